"""Every error of a share session and of its heartbeats: what becomes of session, locks, acknowledgements and member.

The expectations are by hand, never read from the tables under test: from Apache Kafka 4.3.0's ShareSessionHandler,
ShareConsumeRequestManager, ShareFetchCollector and AbstractHeartbeatRequestManager ("Java"), from KafkaApis,
SharePartitionManager, SharePartition and ShareSessionCache ("broker"), and from KIP-932. A row that is missing here, or
in the tables, fails. test/conformance/test_raw_responses.py provokes on Apache Kafka 4.3.0 the errors of sessions (122,
123), of acknowledgements (121, 42, 3, 100) and of heartbeats (25, 42, 69, 110).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kafka.core.group.heartbeat import SHARE_HEARTBEAT_ERRORS
from kafka.core.retry import ErrorTable
from kafka.core.share.membership import ShareMemberState
from kafka.core.share.session import (
    ACKNOWLEDGE_ERRORS,
    SHARE_FETCH_ERRORS,
    SHARE_PARTITION_ERRORS,
    FetchDemand,
    ShareSession,
)
from kafka.errors import (
    ERRORS_BY_CODE,
    AuthenticationError,
    IllegalStateError,
    KafkaConnectionError,
    UnsupportedCodecError,
    for_code,
)
from kafka.protocol.share import ShareAcknowledgeRequest, ShareFetchRequest
from test.core.retriable import RETRIABLE
from test.core.share.test_membership import answer, stable
from test.core.share.test_session import ACCEPT, P0, P1, RENEW, TOPIC, Broker, acknowledgements_of, partitions

LOST, KEPT = "locks lost", "locks kept"
CODES = {error.message: code for code, error in ERRORS_BY_CODE.items() if code}
WITHOUT_ROW = ("LEADER_NOT_AVAILABLE", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR", "COORDINATOR_NOT_AVAILABLE")
"""Some errors that the tables leave to their class: retriable and not, and one that is neither."""


NOT_LET_IN = {"UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE", "SASL_AUTHENTICATION_FAILED"}
"""Errors that end the member wherever they come from."""


def is_grave(name: str) -> bool:
    """Whether a user has to hear of an error without a row: what neither passes by itself nor is the broker's fault."""
    return name not in RETRIABLE and name != "UNKNOWN_SERVER_ERROR"


def new_broker() -> Broker:
    session = ShareSession("g", "m")
    session.set_partitions([P0, P1], {TOPIC: "t"})
    return Broker(session)


@pytest.fixture
def broker() -> Broker:
    return new_broker()


def check(
    expected: dict[str, Any], extra: dict[str, Any], observe: Callable[[int], Any], table: ErrorTable[Any]
) -> None:
    """Each of ``expected``, but for its source, and of ``extra``, which have no row, is what ``observe`` finds."""
    wrong = []
    for name, wanted in {**expected, **extra}.items():
        found = observe(CODES[name])
        if found != wanted._replace(source=""):
            wrong.append(f"{name}: {found}, expected {wanted}")
    assert not wrong, "\n".join(wrong)
    rows = {error.message for error in table.rows if getattr(error, "errno", None)}  # type: ignore[attr-defined]
    assert rows == expected.keys()


# -- the whole answer -------------------------------------------------------------------------------------------------


class OfWhole(NamedTuple):
    """``acks``: what becomes of acknowledgements that were in the request."""

    locks: str
    acks: str
    is_told: bool
    is_final: bool
    source: str = ""


WHOLE = {
    # error                                 locks  acks      told   final
    "SHARE_SESSION_NOT_FOUND": OfWhole(
        LOST, "refused", False, False,
        "Java: a new session, acks again. Broker: releases a session's locks when it forgets it, so they are lost here",
    ),
    "INVALID_SHARE_SESSION_EPOCH": OfWhole(
        KEPT, "again", False, False, "Java: a new session, acks again; broker: it fails before it looks at acks"
    ),
    "SHARE_SESSION_LIMIT_REACHED": OfWhole(
        KEPT, "refused", False, False, "Java: a new session; broker: only of a request that opens one, without acks"
    ),
    "TOPIC_AUTHORIZATION_FAILED": OfWhole(KEPT, "refused", True, False, "Java: acks refused; rights may be granted"),
    "INVALID_REQUEST": OfWhole(KEPT, "refused", True, False, "Java: acks refused; a fault of the client's, so told"),
    "GROUP_AUTHORIZATION_FAILED": OfWhole(
        KEPT, "refused", True, True, "Java: acks refused, fatal by the heartbeat; broker: for the whole request"
    ),
    "UNSUPPORTED_VERSION": OfWhole(
        KEPT, "refused", True, True, "Java: fatal by the heartbeat; broker: share.version is 0, or no such version"
    ),
    "UNKNOWN_SERVER_ERROR": OfWhole(
        KEPT, "refused", False, False, "KIP-932 names no such; a fault of the broker's, as in a partition"
    ),
}  # fmt: skip


@pytest.mark.parametrize("by", [ShareFetchRequest, ShareAcknowledgeRequest])
def test_an_error_of_the_whole_answer(by: type) -> None:
    def observe(code: int) -> OfWhole:
        broker = new_broker()
        held, spoken = broker.give(2)
        broker.session.acknowledge(spoken, ACCEPT)
        exchange = broker.ask(FetchDemand(0) if by is ShareAcknowledgeRequest else FetchDemand(5))
        assert isinstance(exchange.request, by)
        answered = broker.acknowledged if by is ShareAcknowledgeRequest else broker.fetched
        outcome = answered(exchange, top=code)
        assert type(outcome.error) is for_code(code)
        assert outcome.lost in ([], [held]) and held.lost is bool(outcome.lost)
        assert not broker.session.is_open
        refused = [(each.record, type(each.error)) for each in outcome.acknowledged]
        assert refused in ([], [(spoken, for_code(code))])
        opening = broker.ask()
        assert (opening.request.share_session_epoch, acknowledgements_of(opening.request)) == (0, []), "it opens anew"
        assert partitions(opening.request) == [0, 1]
        broker.fetched(opening)
        after = broker.session.next_request(broker.now, FetchDemand(0))
        if not refused:
            assert after is not None and acknowledgements_of(after.request) == [(1, 1, [1])]
        else:
            assert after is None and spoken.lost
        of = SHARE_FETCH_ERRORS.action_for(outcome.error)
        locks = LOST if outcome.lost else KEPT
        return OfWhole(locks, "refused" if refused else "again", of.is_reported, of.final)

    extra = {name: OfWhole(KEPT, "refused", is_grave(name), False) for name in WITHOUT_ROW if name not in WHOLE}
    check(WHOLE, extra, observe, SHARE_FETCH_ERRORS)


def test_every_error_without_a_row_goes_by_its_class() -> None:
    for name, code in CODES.items():
        error = for_code(code)("")
        if name not in WHOLE:
            assert SHARE_FETCH_ERRORS.action_for(error) == (False, False, is_grave(name), name in NOT_LET_IN), name
        if name not in FETCHED:
            assert SHARE_PARTITION_ERRORS.action_for(error) == (False, is_grave(name), 0.1, 1.0), name
        if name not in SPOKEN:
            assert ACKNOWLEDGE_ERRORS.action_for(error) == (False, False, name in RETRIABLE), name


def test_what_is_no_error_of_a_brokers_is_final_when_the_client_cannot_go_on() -> None:
    assert SHARE_FETCH_ERRORS.action_for(AuthenticationError("no")) == (False, False, True, True)
    assert SHARE_FETCH_ERRORS.action_for(IllegalStateError("closed")) == (False, False, True, True)
    assert SHARE_FETCH_ERRORS.action_for(KafkaConnectionError("gone")) == (False, False, False, False)
    assert SHARE_PARTITION_ERRORS.action_for(UnsupportedCodecError("lz4")) == (False, True, 30.0, 30.0), (
        "as CORRUPT_MESSAGE"
    )


# -- a partition ------------------------------------------------------------------------------------------------------


class OfFetched(NamedTuple):
    """``rests_s``: for how long the partition is left out after the first error, the second in a row, and the tenth."""

    locks: str
    is_told: bool
    rests_s: tuple[float, float, float] = (0.1, 0.2, 1.0)
    source: str = ""


FETCHED = {
    # error                                     locks  told
    "NOT_LEADER_OR_FOLLOWER": OfFetched(LOST, False, source="Java: metadata; locks are the leader's"),
    "FENCED_LEADER_EPOCH": OfFetched(LOST, False, source="Java: metadata; locks are the leader's"),
    "UNKNOWN_TOPIC_OR_PARTITION": OfFetched(LOST, False, source="Java: metadata; the broker has no such partition"),
    "UNKNOWN_TOPIC_ID": OfFetched(LOST, False, source="Java: metadata; deleted, a topic made anew has another id"),
    "INCONSISTENT_TOPIC_ID": OfFetched(KEPT, False, source="Java: metadata"),
    "KAFKA_STORAGE_ERROR": OfFetched(KEPT, False, source="Java: metadata; it may be the leader still"),
    "REPLICA_NOT_AVAILABLE": OfFetched(KEPT, False, source="Java: metadata; it may be the leader still"),
    "OFFSET_NOT_AVAILABLE": OfFetched(KEPT, False, source="Java: metadata; a new leader that has not caught up"),
    "UNKNOWN_LEADER_EPOCH": OfFetched(KEPT, False, source="Java: logged; the broker's metadata is older"),
    "UNKNOWN_SERVER_ERROR": OfFetched(KEPT, False, source="Java: logged"),
    "TOPIC_AUTHORIZATION_FAILED": OfFetched(KEPT, True, source="Java: TopicAuthorizationException; may be granted"),
    "CORRUPT_MESSAGE": OfFetched(
        KEPT, True, (30.0, 30.0, 30.0), "Java: KafkaException out of poll(). Each hand-out counts: it rests for long"
    ),
}  # fmt: skip


def test_an_error_of_a_fetched_partition() -> None:
    def observe(code: int) -> OfFetched:
        broker = new_broker()
        broker.lock_ms = 3_600_000  # longer than all that follows
        (held,) = broker.give(1)
        broker.now = 1.0
        outcome = broker.fetched(broker.ask(), (0, 0, 0), code=code)
        assert outcome.error is None
        assert broker.session.is_open, "the session goes on"
        error = outcome.partition_errors[P0]
        assert type(error) is for_code(code)
        assert outcome.lost in ([], [held]) and held.lost is bool(outcome.lost)
        resting = broker.ask()
        assert (resting.fetched, resting.forgotten) == ({P1}, {P0})
        broker.fetched(resting)
        rests = []
        for _ in range(10):
            end = broker.session.next_deadline(broker.now)
            assert end is not None
            rests.append(round(end - broker.now, 6))
            broker.now = end - 0.001
            assert P0 not in broker.ask().fetched and not broker.session.can_fetch(broker.now)
            broker.session.exchange = None
            broker.now = end
            broker.fetched(broker.ask(), (0, 0, 0), code=code)
        is_reported = SHARE_PARTITION_ERRORS.action_for(error).is_reported
        return OfFetched(LOST if held.lost else KEPT, is_reported, (rests[0], rests[1], rests[-1]))

    extra = {name: OfFetched(KEPT, is_grave(name)) for name in WITHOUT_ROW if name not in FETCHED}
    check(FETCHED, extra, observe, SHARE_PARTITION_ERRORS)


# -- acknowledgements -------------------------------------------------------------------------------------------------


class OfSpoken(NamedTuple):
    """What becomes of two records that were acknowledged together; and of the locks of a third that is held."""

    becomes: str
    locks: str
    source: str = ""


SPOKEN = {
    "INVALID_RECORD_STATE": OfSpoken(
        "one by one", KEPT, "broker: one bad offset fails the partition's list (measured on 4.3.0); Java: all refused"
    ),
    "INVALID_REQUEST": OfSpoken("one by one", KEPT, "broker: an offset was never acquired; Java: all refused"),
    "NOT_LEADER_OR_FOLLOWER": OfSpoken("refused", LOST, "Java: refused, the locks have been released; metadata"),
    "FENCED_LEADER_EPOCH": OfSpoken("refused", LOST, "Java: refused, the locks have been released; metadata"),
    "UNKNOWN_TOPIC_OR_PARTITION": OfSpoken(
        "refused", LOST, "broker: it does not have the partition, so no locks either; Java: again, as retriable"
    ),
    "UNKNOWN_TOPIC_ID": OfSpoken("refused", LOST, "broker: deleted; Java: again, as retriable"),
    "REQUEST_TIMED_OUT": OfSpoken("again", KEPT, "Java: again, as retriable"),
    "COORDINATOR_LOAD_IN_PROGRESS": OfSpoken("again", KEPT, "Java: again, as retriable; the state was not written"),
    "COORDINATOR_NOT_AVAILABLE": OfSpoken("again", KEPT, "broker: SharePartition.fetchPersisterError; Java: again"),
    "NOT_COORDINATOR": OfSpoken("again", KEPT, "Java: again, as retriable; the state was not written"),
    "UNKNOWN_SERVER_ERROR": OfSpoken("refused", KEPT, "Java: refused; the state may have been written"),
    "TOPIC_AUTHORIZATION_FAILED": OfSpoken("refused", KEPT, "Java: refused; broker: it did not look at them"),
}  # fmt: skip


@pytest.mark.parametrize("by", [ShareFetchRequest, ShareAcknowledgeRequest])
def test_an_error_of_a_partitions_acknowledgements(by: type) -> None:
    def observe(code: int) -> OfSpoken:
        broker = new_broker()
        *spoken, held = broker.give(3)
        for record in spoken:
            broker.session.acknowledge(record, ACCEPT)
        broker.now = 1.0
        if by is ShareFetchRequest:
            exchange = broker.ask(FetchDemand(5))
            outcome = broker.fetched(exchange, (0, 0, 0), ack_code=code)
        else:
            exchange = broker.ask(FetchDemand(0))
            outcome = broker.acknowledged(exchange, {0: code})
        assert isinstance(exchange.request, by)
        assert broker.session.is_open
        refused = [each.record for each in outcome.acknowledged if type(each.error) is for_code(code)]
        assert len(refused) == len(outcome.acknowledged) and all(record.lost for record in refused)
        assert outcome.says_again is not bool(refused)
        assert outcome.lost in ([], [held]) and held.lost is bool(outcome.lost)
        assert (P0 in outcome.partition_errors) is held.lost, "the metadata is read again"
        again = broker.session.next_request(broker.now, FetchDemand(0))
        if again is not None:
            assert (acknowledgements_of(again.request), refused) == ([(0, 0, [1])], [])
            return OfSpoken("one by one", LOST if held.lost else KEPT)
        assert broker.session.next_request(broker.now + 0.099, FetchDemand(0)) is None, "not at once"
        again = broker.session.next_request(broker.now + 0.1, FetchDemand(0))
        if again is None:
            assert refused == spoken
        else:
            assert (acknowledgements_of(again.request), refused) == ([(0, 1, [1])], [])
        return OfSpoken("refused" if again is None else "again", LOST if held.lost else KEPT)

    extra = {"LEADER_NOT_AVAILABLE": OfSpoken("again", KEPT), "INVALID_RECORD": OfSpoken("refused", KEPT)}
    check(SPOKEN, extra, observe, ACKNOWLEDGE_ERRORS)


def test_what_is_sent_again_waits_longer_each_time_and_ends_with_its_lock(broker: Broker) -> None:
    (record,) = broker.give(1)
    broker.session.acknowledge(record, ACCEPT)
    tries = 0
    for _ in range(200):
        broker.session.expire(broker.now)
        exchange = broker.session.next_request(broker.now, FetchDemand(0))
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
    assert broker.session.next_request(broker.now + 5, FetchDemand(0)) is None


def test_a_renewal_that_could_not_be_looked_at_is_sent_again_and_the_record_stays_held(broker: Broker) -> None:
    (record,) = broker.give(1)
    broker.session.acknowledge(record, RENEW)
    assert broker.acknowledged(broker.ask(FetchDemand(0)), {0: 15}).acknowledged == []
    broker.now = 0.1
    again = broker.ask(FetchDemand(0))
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


class OfHeartbeat(NamedTuple):
    """``epoch``: of the next heartbeat, which comes after ``wait_s``; ``lost_coordinator``: it is looked for."""

    state: ShareMemberState
    epoch: int | None
    wait_s: float | None
    lost_coordinator: bool
    is_told: bool
    source: str = ""


STABLE, JOINING, FATAL = ShareMemberState.STABLE, ShareMemberState.JOINING, ShareMemberState.FATAL
HEARTBEATS = {
    # error                                      state   epoch wait  coord. told
    "COORDINATOR_LOAD_IN_PROGRESS": OfHeartbeat(STABLE, 3, 0.1, False, False, "Java: back-off, same coordinator"),
    "COORDINATOR_NOT_AVAILABLE": OfHeartbeat(
        STABLE, 3, 0.1, True, False, "Java: coordinator unknown, a back-off for FindCoordinator; here both are one"
    ),
    "NOT_COORDINATOR": OfHeartbeat(STABLE, 3, 0.0, True, False, "Java: coordinator unknown, no back-off"),
    "UNKNOWN_MEMBER_ID": OfHeartbeat(JOINING, 0, 0.0, False, False, "Java: transitionToFenced, no back-off"),
    "FENCED_MEMBER_EPOCH": OfHeartbeat(JOINING, 0, 0.0, False, False, "Java: transitionToFenced, no back-off"),
    "GROUP_ID_NOT_FOUND": OfHeartbeat(
        JOINING, 0, 0.0, False, False, "Java: fatal but while unsubscribed; here a vanished group is joined anew"
    ),
    "TOPIC_AUTHORIZATION_FAILED": OfHeartbeat(STABLE, 3, 5.0, False, True, "Java: ErrorEvent, not fatal"),
    "GROUP_MAX_SIZE_REACHED": OfHeartbeat(
        JOINING, 0, 5.0, False, True, "Java: fatal. Here a worker that waits for a place: members may leave"
    ),
    "INVALID_GROUP_ID": OfHeartbeat(FATAL, None, None, False, False, "Java: unexpected, so fatal; it stays so"),
    "GROUP_AUTHORIZATION_FAILED": OfHeartbeat(FATAL, None, None, False, False, "Java: fatal"),
    "UNSUPPORTED_VERSION": OfHeartbeat(FATAL, None, None, False, False, "Java: fatal; share.version is 0"),
    "INVALID_REQUEST": OfHeartbeat(FATAL, None, None, False, False, "Java: fatal"),
}  # fmt: skip


def test_an_error_of_a_heartbeat() -> None:
    def observe(code: int) -> OfHeartbeat:
        member = stable()
        assert member.next_request(5.0) is not None
        outcome = member.on_response(answer(code=code), 5.0)
        assert type(outcome.error) is for_code(code) and outcome.assignment is None
        due_at = member.due_at()
        if due_at is None:
            return OfHeartbeat(member.state, None, None, outcome.lost_coordinator, outcome.is_reported)
        assert member.next_request(due_at - 0.001) is None
        state = member.state
        request = member.next_request(due_at)
        assert request is not None
        assert (request.member_id, request.subscribed_topic_names) == ("m", ["a", "b"]), "everything is said again"
        wait_s = round(due_at - 5.0, 6)
        return OfHeartbeat(state, request.member_epoch, wait_s, outcome.lost_coordinator, outcome.is_reported)

    again, fatal = OfHeartbeat(STABLE, 3, 0.1, False, False), OfHeartbeat(FATAL, None, None, False, False)
    extra = {name: again if name in RETRIABLE else fatal for name in CODES if name not in HEARTBEATS}
    check(HEARTBEATS, extra, observe, SHARE_HEARTBEAT_ERRORS)


@pytest.mark.parametrize("name", ["GROUP_ID_NOT_FOUND", "INVALID_GROUP_ID"])
def test_an_error_that_is_final_when_it_answers_a_join(name: str) -> None:
    """GROUP_ID_NOT_FOUND, broker: the group is of another type, and stays so."""
    member = stable()
    member.next_request(5.0)
    member.on_response(answer(code=25), 5.0)
    assert member.next_request(5.0) is not None
    assert type(member.on_response(answer(code=CODES[name]), 5.0).error) is for_code(CODES[name])
    assert (member.state, member.due_at()) == (FATAL, None)
