"""What a fetcher does about each error code of a partition.

By hand, never read from the table under test: from Apache Kafka 4.3.0's FetchCollector.handleInitializeErrors ("Java"),
which throws IllegalStateException for what it does not list; such codes go here by what Kafka's exception of that code
extends. A row that is missing here, or in the table, fails.
"""

from __future__ import annotations

from typing import Final

import pytest

from kafka.core.consume.fetcher import FETCH_ERROR_ACTIONS, RefreshFetchMetadata, RequestOffsets
from kafka.errors import ERRORS_BY_CODE, BrokerResponseError, for_code
from test.core.consume.rig import A, Rig
from test.core.retriable import RETRIABLE

AGAIN, MOVED, RESET, RAISED = "fetched again", "after a look at the metadata", "reset", "the reader's"

ROWS: Final = {
    "NOT_LEADER_OR_FOLLOWER": MOVED,
    "REPLICA_NOT_AVAILABLE": MOVED,
    "KAFKA_STORAGE_ERROR": MOVED,
    "FENCED_LEADER_EPOCH": MOVED,
    "OFFSET_NOT_AVAILABLE": MOVED,
    "UNKNOWN_TOPIC_OR_PARTITION": MOVED,
    "UNKNOWN_TOPIC_ID": MOVED,
    "INCONSISTENT_TOPIC_ID": MOVED,
    "OFFSET_OUT_OF_RANGE": RESET,
    "UNKNOWN_LEADER_EPOCH": AGAIN,
    "UNKNOWN_SERVER_ERROR": AGAIN,
    "CORRUPT_MESSAGE": RAISED,
}

OTHERS_OF_METADATA: Final = {
    "LEADER_NOT_AVAILABLE", "NETWORK_EXCEPTION", "LISTENER_NOT_FOUND", "PREFERRED_LEADER_NOT_AVAILABLE",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE", "ELECTION_NOT_NEEDED",
}  # fmt: skip
"""Those without a row whose exceptions extend InvalidMetadataException."""


def expected(name: str) -> str:
    if name in ROWS:
        return ROWS[name]
    if name in OTHERS_OF_METADATA:
        return MOVED
    return AGAIN if name in RETRIABLE else RAISED


def done_about(code: int) -> str:
    rig = Rig(A, reset_policy="earliest")
    rig.seek_all(7)
    news = rig.answer(rig.fetch(), p0=code)
    position = rig.fetcher.positions[A]
    effects = {type(effect) for effect in rig.poll()}
    if position.error is not None:
        assert news and effects == set()
        assert isinstance(position.error, BrokerResponseError) and position.error.errno == code
        assert "t-0 at offset 7" in str(position.error)
        return RAISED
    assert not news, "nothing for the reader"
    if effects == {RequestOffsets}:
        return RESET
    assert effects in (set(), {RefreshFetchMetadata}), "not at once"
    rig.now = rig.fetcher.next_deadline
    assert (rig.now, rig.asked(rig.fetch())) == (0.1, {0: 7})
    return MOVED if effects else AGAIN


@pytest.mark.parametrize("code", [code for code in sorted(ERRORS_BY_CODE) if code])
def test_each_error_of_a_partition_is_answered_as_java_does(code: int) -> None:
    assert done_about(code) == expected(for_code(code).message)


def test_a_code_that_is_not_heard_of_is_the_readers() -> None:
    assert done_about(9999) == RAISED


def test_each_row_has_its_expectation() -> None:
    assert {error.message for error in FETCH_ERROR_ACTIONS.rows} == ROWS.keys()
