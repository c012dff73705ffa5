"""What answers, and errors in their place, do to positions, and whether the reader is told."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kafka.core.consume.fetcher import RefreshFetchMetadata
from kafka.core.consume.offsets import EpochEnd, ResolvedOffset
from kafka.core.consume.partition import ReaderOptions
from kafka.core.consume.session import SendFetch
from kafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)
from kafka.protocol.fetch import FetchResponse
from kafka.records import ABORT
from test.core.consume.rig import A, B, Rig
from test.core.consume.test_partition import aborted, batch, marker

UNKNOWN, NOT_LEADER = -1, 6
REFRESH = RefreshFetchMetadata(frozenset({"t"}))


def handle_response(rig: Rig, call: SendFetch, records: bytes | None = None, **fields: Any) -> bool:
    """The answer says this of partition 0. Whether the reader has news."""
    part = FetchResponse.PartitionData(partition_index=0, error_code=0, high_watermark=100, records=records, **fields)
    topic = FetchResponse.FetchableTopicResponse(topic_id=rig.ids["t"], partitions=[part])
    return rig.fetcher.fetched(call, FetchResponse(session_id=0, responses=[topic]), rig.now)


# -- a partition's part of an answer -----------------------------------------------------------------------------------


def test_errors_in_a_row_wait_longer_until_there_is_an_answer_or_a_seek() -> None:
    rig = Rig(A, backoff=float)
    rig.seek_all()
    waits = []
    for step in ("error", "error", "records", "error", "error", "seek", "error"):
        if step == "seek":
            rig.seek_all()
            continue
        rig.answer(rig.fetch(), p0=UNKNOWN if step == "error" else b"")
        if step == "error":
            assert rig.poll() == []
            waits.append(rig.fetcher.next_deadline - rig.now)
            rig.now = rig.fetcher.next_deadline
    assert waits == [1.0, 2.0, 1.0, 2.0, 1.0]


def test_the_first_of_errors_in_a_row_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig(A)
    rig.seek_all()
    for _ in range(3):
        rig.answer(rig.fetch(), p0=UNKNOWN)
        rig.now += 0.1
        assert [message.partition(": ")[2] for message in caplog.messages] == [
            "t-0 at offset 0: fetch failed, retrying"
        ]


def test_an_answer_without_records_is_no_news() -> None:
    for nothing in (None, b""):
        rig = Rig(A)
        rig.seek_all()
        assert not handle_response(rig, rig.fetch(), records=nothing)
        assert not rig.fetcher.has_ready
        assert rig.fetcher.positions[A].highwater == 100


def test_the_node_0_may_be_the_nearest_replica() -> None:
    """And -1 says that there is none (FetchResponse.json, "PreferredReadReplica")."""
    rig = Rig(A)
    rig.seek_all()
    rig.answer(rig.fetch(), r0=0)
    call = rig.fetch()
    assert call.node == 0
    handle_response(rig, call, preferred_read_replica=-1)
    assert rig.fetch().node == 0


@pytest.mark.parametrize(
    ("first_offsets", "values"), [(None, [b"gone", b"good"]), ([], [b"gone", b"good"]), ([0], [b"good"])]
)
def test_the_aborted_transactions_of_an_answer_are_left_out(
    first_offsets: list[int] | None, values: list[bytes]
) -> None:
    """None: the broker tells of none to who reads uncommitted records."""
    rig = Rig(A, options=ReaderOptions(read_committed=True))
    rig.seek_all()
    data = batch(0, b"gone", producer_id=7, transactional=True) + marker(1, 7, ABORT) + batch(2, b"good")
    transactions = None if first_offsets is None else [aborted(7, offset) for offset in first_offsets]
    assert handle_response(rig, rig.fetch(), records=data, aborted_transactions=transactions)
    assert rig.read() == values


# -- an answer's own error, and errors in place of answers -------------------------------------------------------------


@pytest.mark.parametrize(("code", "is_of_metadata"), [(100, True), (106, True), (UNKNOWN, False), (70, False)])
def test_an_error_of_the_whole_answer_asks_for_metadata_when_that_is_what_is_wrong(
    code: int, is_of_metadata: bool
) -> None:
    """As Kafka's exception of the code extends InvalidMetadataException, or not; and FETCH_SESSION_TOPIC_ID_ERROR, for
    which Java's AbstractFetch.handleFetchSuccess asks for an update."""
    rig = Rig(A)
    rig.seek_all()
    assert not rig.answer(rig.fetch(), error=code)
    assert (REFRESH in rig.poll()) is is_of_metadata


@pytest.mark.parametrize(
    ("error", "is_told", "is_of_metadata"),
    [
        (KafkaConnectionError("gone"), False, True),
        (RequestTimedOutError("late"), False, False),
        (TopicAuthorizationFailedError("t"), True, False),
        (ValueError("no error of Kafka's"), True, False),
    ],
)
def test_an_error_in_place_of_an_answer_is_the_readers_when_it_will_not_pass(
    error: BaseException, is_told: bool, is_of_metadata: bool
) -> None:
    rig = Rig(A, B)
    rig.seek_all()
    assert rig.fetcher.failed(rig.fetch(), error, rig.now) is is_told
    assert rig.fetcher.refusal is (error if is_told else None)
    assert (REFRESH in rig.poll()) is is_of_metadata


@pytest.mark.parametrize(
    ("error", "is_told"),
    [
        (KafkaConnectionError("gone"), False),
        (RequestTimedOutError("late"), False),
        (ValueError("no error of Kafka's"), True),
    ],
)
def test_what_ends_a_fetch_beside_another_is_left_to_that_one_if_it_may_pass(
    error: BaseException, is_told: bool
) -> None:
    rig = Rig(A)
    rig.seek_all()
    rig.fetch()
    rig.now = 0.2
    rig.fetcher.position_of(A).seek(7)
    beside = rig.fetch()
    assert beside.is_sessionless
    assert rig.fetcher.failed(beside, error, rig.now) is is_told
    assert rig.fetcher.refusal is (error if is_told else None)
    assert rig.poll() == [], "no look at the metadata"


def test_errors_of_a_node_without_partitions_are_not_reported() -> None:
    rig = Rig(A)
    rig.seek_all()
    call = rig.fetch()
    rig.fetcher.assign([])
    rig.poll()
    assert not rig.fetcher.failed(call, TopicAuthorizationFailedError("t"), rig.now)
    assert rig.fetcher.refusal is None


# -- offsets and epochs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "is_told"),
    [
        (ResolvedOffset(7, -1, -1), True),
        (TopicAuthorizationFailedError("t"), True),
        (ValueError("no error of Kafka's"), True),
        (NotLeaderForPartitionError("t"), False),
        (KafkaTimeoutError("late"), False),
    ],
)
def test_a_position_that_was_looked_up_is_news_and_so_is_that_there_is_none(
    answer: ResolvedOffset | BaseException, is_told: bool
) -> None:
    rig = Rig(A)
    assert rig.fetcher.offsets_received(rig.find(), {A: answer}, rig.now) is is_told
    is_error = is_told and isinstance(answer, BaseException)
    assert rig.fetcher.positions[A].error is (answer if is_error else None)


def test_the_first_of_look_ups_in_vain_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig(A, backoff=float)
    waits = []
    for _ in range(3):
        rig.fetcher.offsets_received(rig.find(), {A: KafkaTimeoutError("late")}, rig.now)
        rig.poll()
        waits.append(rig.fetcher.next_deadline - rig.now)
        rig.now = rig.fetcher.next_deadline
        assert [message.partition(":")[0] for message in caplog.messages] == [
            "resetting the offset of t-0 failed, retrying"
        ]
    assert waits == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("answer", "is_told"),
    [
        (EpochEnd(3, 10), False),
        (TopicAuthorizationFailedError("t"), True),
        (ValueError("no error of Kafka's"), True),
        (KafkaConnectionError("gone"), False),
    ],
)
def test_an_epoch_of_which_nothing_will_be_known_is_news(answer: EpochEnd | BaseException, is_told: bool) -> None:
    rig = Rig()
    rig.lead(A, 1, 6)
    rig.fetcher.assign([A], awaiting={A})
    rig.fetcher.start(A, 10, leader_epoch=3)
    assert rig.fetcher.epoch_ends_received(rig.ask_epochs(), {A: answer}, rig.now) is is_told
    assert rig.fetcher.positions[A].error is (answer if is_told else None)
