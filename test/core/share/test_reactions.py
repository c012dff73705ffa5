"""Every error of a share session, row by row: what becomes of the session, the locks and the acknowledgements.

The numbers and names are Kafka's; a row that is missing here, or in the tables, fails.
"""

from __future__ import annotations

import pytest

from kafka.core.share.membership import RECOVERIES, MemberState
from kafka.core.share.reactions import ACKS, ANSWERS, PARTITIONS, of_acks, of_answer, of_partition
from kafka.core.share.requests import Demand
from kafka.core.share.session import ShareSession
from kafka.errors import AuthenticationError, IllegalStateError, KafkaConnectionError, UnsupportedCodecError, for_code
from kafka.protocol.share import ShareAcknowledgeRequest, ShareFetchRequest
from test.core.share.test_membership import answer, stable
from test.core.share.test_session import ACCEPT, P0, P1, RENEW, TOPIC, Broker, partitions, said

LOST, KEPT = True, False
NAMES = {
    122: "SHARE_SESSION_NOT_FOUND", 123: "INVALID_SHARE_SESSION_EPOCH", 133: "SHARE_SESSION_LIMIT_REACHED",
    30: "GROUP_AUTHORIZATION_FAILED", 29: "TOPIC_AUTHORIZATION_FAILED", 42: "INVALID_REQUEST",
    35: "UNSUPPORTED_VERSION", 6: "NOT_LEADER_OR_FOLLOWER", 74: "FENCED_LEADER_EPOCH",
    3: "UNKNOWN_TOPIC_OR_PARTITION", 100: "UNKNOWN_TOPIC_ID", 103: "INCONSISTENT_TOPIC_ID", 56: "KAFKA_STORAGE_ERROR",
    9: "REPLICA_NOT_AVAILABLE", 78: "OFFSET_NOT_AVAILABLE", 75: "UNKNOWN_LEADER_EPOCH", -1: "UNKNOWN_SERVER_ERROR",
    2: "CORRUPT_MESSAGE", 121: "INVALID_RECORD_STATE", 7: "REQUEST_TIMED_OUT", 14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE", 16: "NOT_COORDINATOR", 25: "UNKNOWN_MEMBER_ID", 110: "FENCED_MEMBER_EPOCH",
    69: "GROUP_ID_NOT_FOUND", 81: "GROUP_MAX_SIZE_REACHED", 24: "INVALID_GROUP_ID",
}  # fmt: skip


@pytest.fixture
def broker() -> Broker:
    session = ShareSession("g", "m")
    session.set_partitions([P0, P1], {TOPIC: "t"})
    return Broker(session)


@pytest.mark.parametrize("code", sorted({*ANSWERS, *PARTITIONS, *ACKS, *RECOVERIES}))
def test_the_tables_name_errors_that_kafka_has(code: int) -> None:
    assert for_code(code).message == NAMES[code]


# -- the whole answer -------------------------------------------------------------------------------------------------

TOP = [
    # code  locks   acks      told   final
    (122, LOST, "lost", False, False),
    (123, KEPT, "again", False, False),
    (133, KEPT, "refused", False, False),
    (29, KEPT, "refused", True, False),
    (42, KEPT, "refused", True, False),
    (30, KEPT, "refused", True, True),
    (35, KEPT, "refused", True, True),
    (-1, KEPT, "refused", False, False),
    (15, KEPT, "refused", False, False),
]


@pytest.mark.parametrize("by", [ShareFetchRequest, ShareAcknowledgeRequest])
@pytest.mark.parametrize(("code", "locks", "acks", "is_told", "is_final"), TOP)
def test_an_error_of_the_whole_answer(
    broker: Broker, by: type, code: int, locks: bool, acks: str, is_told: bool, is_final: bool
) -> None:
    held, spoken = broker.give(2)
    broker.session.acknowledge(spoken, ACCEPT)
    exchange = broker.ask(Demand(0) if by is ShareAcknowledgeRequest else Demand(5))
    assert isinstance(exchange.request, by)
    answered = broker.acknowledged if by is ShareAcknowledgeRequest else broker.fetched
    outcome = answered(exchange, top=code)
    assert outcome.error is not None
    assert (of_answer(outcome.error).told, of_answer(outcome.error).final) == (is_told, is_final)
    assert (outcome.lost == [held]) is locks
    assert held.lost is locks
    assert not broker.session.is_open
    assert [each.record for each in outcome.acknowledged] == ([] if acks == "again" else [spoken])
    opening = broker.ask()
    assert (opening.request.share_session_epoch, said(opening.request)) == (0, []), "it opens anew, and says nothing"
    assert partitions(opening.request) == [0, 1]
    broker.fetched(opening)
    after = broker.session.next_request(broker.now, Demand(0))
    assert (after is not None and said(after.request) == [(1, 1, [1])]) is (acks == "again")


def test_errors_without_a_row_go_by_their_class() -> None:
    assert of_answer(AuthenticationError("no")).final
    assert of_answer(IllegalStateError("closed")).final
    assert not of_answer(KafkaConnectionError("gone")).final
    assert of_partition(UnsupportedCodecError("lz4")) == PARTITIONS[2]
    assert of_partition(for_code(87)("INVALID_RECORD")).told
    assert not of_partition(for_code(5)("LEADER_NOT_AVAILABLE")).told
    assert of_acks(for_code(13)("NETWORK_EXCEPTION")).again
    assert not of_acks(for_code(87)("INVALID_RECORD")).again


# -- a partition ------------------------------------------------------------------------------------------------------

FETCHED = [
    # code  locks   told   rests for
    (6, LOST, False, 0.1),
    (74, LOST, False, 0.1),
    (3, LOST, False, 0.1),
    (100, LOST, False, 0.1),
    (103, KEPT, False, 0.1),
    (56, KEPT, False, 0.1),
    (9, KEPT, False, 0.1),
    (78, KEPT, False, 0.1),
    (75, KEPT, False, 0.1),
    (-1, KEPT, False, 0.1),
    (29, KEPT, True, 0.1),
    (2, KEPT, True, 30.0),
]


@pytest.mark.parametrize(("code", "locks", "is_told", "rest_s"), FETCHED)
def test_an_error_of_a_fetched_partition(
    broker: Broker, code: int, locks: bool, is_told: bool, rest_s: float
) -> None:
    (held,) = broker.give(1)
    broker.now = 1.0
    outcome = broker.fetched(broker.ask(), (0, 0, 0), code=code)
    assert outcome.error is None
    assert broker.session.is_open, "the session goes on"
    error = outcome.partition_errors[P0]
    assert type(error) is for_code(code)
    assert of_partition(error).told is is_told
    assert (outcome.lost == [held]) is locks
    resting = broker.ask()
    assert resting.fetched == {P1}
    assert resting.forgotten == {P0}
    broker.fetched(resting)
    broker.now = 1.0 + rest_s
    assert P0 in broker.ask().fetched


SPOKEN = [
    # code  what becomes of the two that were said together, and of a third that is held
    (121, "one by one", KEPT),
    (42, "one by one", KEPT),
    (6, "refused", LOST),
    (74, "refused", LOST),
    (3, "refused", LOST),
    (100, "refused", LOST),
    (7, "again", KEPT),
    (14, "again", KEPT),
    (15, "again", KEPT),
    (16, "again", KEPT),
    (-1, "refused", KEPT),
    (29, "refused", KEPT),
]


@pytest.mark.parametrize("by", [ShareFetchRequest, ShareAcknowledgeRequest])
@pytest.mark.parametrize(("code", "becomes", "locks"), SPOKEN)
def test_an_error_of_a_partitions_acknowledgements(
    broker: Broker, by: type, code: int, becomes: str, locks: bool
) -> None:
    *spoken, held = broker.give(3)
    for record in spoken:
        broker.session.acknowledge(record, ACCEPT)
    broker.now = 1.0
    if by is ShareFetchRequest:
        exchange = broker.ask(Demand(5))
        outcome = broker.fetched(exchange, (0, 0, 0), ack_code=code)
    else:
        exchange = broker.ask(Demand(0))
        outcome = broker.acknowledged(exchange, {0: code})
    assert isinstance(exchange.request, by)
    assert broker.session.is_open
    refused = [each.record for each in outcome.acknowledged if type(each.error) is for_code(code)]
    assert refused == (spoken if becomes == "refused" else [])
    assert all(record.lost for record in refused)
    assert (outcome.lost == [held]) is locks
    assert held.lost is locks
    assert (P0 in outcome.partition_errors) is locks, "the metadata is read again"
    again = broker.session.next_request(broker.now, Demand(0))
    if becomes == "one by one":
        assert again is not None
        assert said(again.request) == [(0, 0, [1])]
    else:
        assert again is None, "not at once"
        broker.now += 0.1
        again = broker.session.next_request(broker.now, Demand(0))
        assert ([] if again is None else said(again.request)) == ([(0, 1, [1])] if becomes == "again" else [])


def test_what_is_said_again_waits_longer_each_time_and_ends_with_its_lock(broker: Broker) -> None:
    (record,) = broker.give(1)
    broker.session.acknowledge(record, ACCEPT)
    tries = 0
    for _ in range(200):
        broker.session.expire(broker.now)
        exchange = broker.session.next_request(broker.now, Demand(0))
        if exchange is None:
            deadline = broker.session.next_deadline(broker.now)
            assert deadline is not None
            assert deadline - broker.now <= 1.0
            broker.now = deadline
            continue
        tries += 1
        outcome = broker.acknowledged(exchange, {0: 15})
        if outcome.acknowledged:
            break
    assert record.lock_deadline <= broker.now < record.lock_deadline + 1.1
    assert 25 < tries < 40
    assert outcome.acknowledged[0].error is not None
    assert broker.session.next_request(broker.now + 5, Demand(0)) is None


def test_a_renewal_that_could_not_be_looked_at_is_said_again_and_the_record_stays_held(broker: Broker) -> None:
    (record,) = broker.give(1)
    broker.session.acknowledge(record, RENEW)
    assert broker.acknowledged(broker.ask(Demand(0)), {0: 15}).acknowledged == []
    broker.now = 0.1
    again = broker.ask(Demand(0))
    assert isinstance(again.request, ShareAcknowledgeRequest)
    assert again.request.is_renew_ack
    (renewed,) = broker.acknowledged(again, {0: 0}).acknowledged
    assert renewed.error is None
    assert record.lock_deadline == pytest.approx(30.1)


@pytest.mark.parametrize("leader", [(0, 0), (-1, -1), (7, 3)])
def test_the_leader_in_an_answer_without_an_error_means_nothing(broker: Broker, leader: tuple[int, int]) -> None:
    """Brokers fill it with (0, 0) (measured on Apache Kafka 4.3.0)."""
    (record,) = broker.fetched(broker.ask(), (0, 0, 1), leader=leader).records
    assert not record.lost
    outcome = broker.fetched(broker.ask(), (0, 1, 1), leader=leader)
    assert (outcome.lost, outcome.partition_errors) == ([], {})


# -- heartbeats -------------------------------------------------------------------------------------------------------

HEARTBEATS = [
    # code  state after        epoch next  after s  coordinator  told
    (14, MemberState.STABLE, 3, 0.1, False, False),
    (15, MemberState.STABLE, 3, 0.1, True, False),
    (16, MemberState.STABLE, 3, 0.0, True, False),
    (25, MemberState.JOINING, 0, 0.0, False, False),
    (110, MemberState.JOINING, 0, 0.0, False, False),
    (69, MemberState.JOINING, 0, 0.0, False, False),
    (29, MemberState.STABLE, 3, 5.0, False, True),
    (81, MemberState.JOINING, 0, 5.0, False, True),
    (24, MemberState.FATAL, None, None, False, False),
    (30, MemberState.FATAL, None, None, False, False),
    (35, MemberState.FATAL, None, None, False, False),
    (42, MemberState.FATAL, None, None, False, False),
]


@pytest.mark.parametrize(("code", "state", "epoch", "after_s", "moved", "is_told"), HEARTBEATS)
def test_an_error_of_a_heartbeat(
    code: int, state: MemberState, epoch: int | None, after_s: float | None, moved: bool, is_told: bool
) -> None:
    member = stable()
    assert member.next_request(5.0) is not None
    outcome = member.on_response(answer(code=code), 5.0)
    assert outcome.error is not None
    assert (member.state, outcome.lost_coordinator, outcome.told) == (state, moved, is_told)
    due_at = member.due_at()
    if after_s is None:
        assert due_at is None
        return
    assert due_at == pytest.approx(5.0 + after_s)
    request = member.next_request(5.0 + after_s)
    assert request is not None
    assert (request.member_id, request.member_epoch) == ("m", epoch)
    assert request.subscribed_topic_names == ["a", "b"], "everything is said again"


def test_every_row_of_the_tables_is_tested() -> None:
    assert set(ANSWERS) <= {row[0] for row in TOP}
    assert set(PARTITIONS) == {row[0] for row in FETCHED}
    assert set(ACKS) == {row[0] for row in SPOKEN}
    assert set(RECOVERIES) | {69} == {row[0] for row in HEARTBEATS}
