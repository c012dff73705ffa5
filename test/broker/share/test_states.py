from __future__ import annotations

import pytest

from kafka.broker.share import states
from kafka.broker.share.states import (
    OUTCOMES,
    AckBatch,
    AcquireMode,
    ShareEvent,
    ShareSettings,
    check_ack_batches,
    runs_of,
)
from kafka.errors import InvalidRequestError


def test_the_numbers_are_kafkas() -> None:
    """RecordState, AcknowledgeType and ShareAcquireMode of 4.3.0: what is on the disk and on the wire."""
    assert (states.AVAILABLE, states.ACQUIRED, states.ACKNOWLEDGED, states.ARCHIVED) == (0, 1, 2, 4)
    assert (states.GAP, states.ACCEPT, states.RELEASE, states.REJECT, states.RENEW) == (0, 1, 2, 3, 4)
    assert (int(AcquireMode.BATCH_OPTIMIZED), int(AcquireMode.RECORD_LIMIT)) == (0, 1)


def test_each_type_but_renew_leads_to_a_state() -> None:
    """SharePartition.fetchRecordStateMap: ACCEPT, RELEASE and REJECT; a gap is archived."""
    assert OUTCOMES == {0: 4, 1: 2, 2: 0, 3: 4}


def test_kafkas_policy_wakes_for_all_but_releases() -> None:
    events = (ShareEvent.NEW_RECORDS, ShareEvent.START_MOVED, ShareEvent.LOCK_EXPIRED, ShareEvent.RELEASED)
    assert [event.wakes(states.WAKE_AS_KAFKA_4_3) for event in events] == [True, True, True, False]
    assert all(event.wakes(states.WAKE_PROMPTLY) for event in events)
    assert not ShareEvent.NOTHING.wakes(states.WAKE_PROMPTLY)
    assert ShareEvent.NOTHING.value == 0


def test_the_defaults_are_kafkas() -> None:
    """ShareGroupConfig and GroupConfig of 4.3.0."""
    assert tuple(ShareSettings()) == (30.0, 5, 2000, True, False)


# -- acknowledgement batches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "batches",
    [
        [AckBatch(5, 4, (1,))],
        [AckBatch(5, 6, ())],
        [AckBatch(5, 7, (1, 1))],
        [AckBatch(5, 5, (1, 1))],
        [AckBatch(5, 5, (5,))],
        [AckBatch(5, 5, (-1,))],
        [AckBatch(5, 9, (1,)), AckBatch(3, 4, (1,))],
        [AckBatch(-2, -2, (1,))],
    ],
)
def test_malformed_acknowledgements_are_invalid_requests(batches: list[AckBatch]) -> None:
    with pytest.raises(InvalidRequestError):
        check_ack_batches(batches)


@pytest.mark.parametrize(
    "batches",
    [
        [],
        [AckBatch(5, 5, (1,))],
        [AckBatch(5, 9, (0,))],
        [AckBatch(5, 8, (0, 1, 2, 3))],
        [AckBatch(5, 9, (1,)), AckBatch(9, 9, (1,)), AckBatch(12, 12, (1,))],
    ],
)
def test_well_formed_acknowledgements_pass(batches: list[AckBatch]) -> None:
    """KafkaApis.validateAcknowledgementBatches: an overlap of one offset is found with the records, not here."""
    check_ack_batches(batches)


def test_renew_needs_the_requests_flag() -> None:
    check_ack_batches([AckBatch(0, 1, (4,))], is_renew_ack=True)
    with pytest.raises(InvalidRequestError):
        check_ack_batches([AckBatch(0, 1, (1, 4))])


def test_neighbours_of_one_type_go_together() -> None:
    assert list(runs_of(AckBatch(3, 9, (1,)))) == [(3, 9, 1)]
    assert list(runs_of(AckBatch(3, 4, (1, 2)))) == [(3, 3, 1), (4, 4, 2)]
    assert list(runs_of(AckBatch(3, 8, (1, 1, 2, 0, 0, 1)))) == [(3, 4, 1), (5, 5, 2), (6, 7, 0), (8, 8, 1)]
