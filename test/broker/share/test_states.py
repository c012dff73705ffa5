from __future__ import annotations

from kafka.broker.share import states
from kafka.broker.share.states import OUTCOMES, AcquireMode, ShareEvent, ShareSettings


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
