"""A member's heartbeats: when they go, what they say, and what each error makes of them."""

from __future__ import annotations

import uuid

import pytest

from kafka.core.partitions import MAX_ASSIGNED
from kafka.core.share.membership import HeartbeatOutcome, ShareMembership, ShareMemberState
from kafka.core.share.records import TopicIdPartition
from kafka.errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    IllegalArgumentError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    SaslAuthenticationFailedError,
    SslAuthenticationError,
)
from kafka.protocol.share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

TOPIC = uuid.UUID(int=7)
EAGER_S = 0.1


def answer(epoch: int = 1, code: int = 0, partitions: list[int] | None = None) -> ShareGroupHeartbeatResponse:
    assignment = None
    if partitions is not None:
        each = ShareGroupHeartbeatResponse.TopicPartitions(topic_id=TOPIC, partitions=partitions)
        assignment = ShareGroupHeartbeatResponse.Assignment(topic_partitions=[each] if partitions else [])
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=code, member_epoch=epoch, heartbeat_interval_ms=5000, assignment=assignment
    )


def stable(now: float = 0.0) -> ShareMembership:
    member = ShareMembership("g", "m")
    member.subscribe(["b", "a"], now)
    assert member.next_request(now) is not None
    member.on_response(answer(3, partitions=[0, 1]), now)
    return member


def test_the_first_heartbeat_joins_and_says_everything() -> None:
    member = ShareMembership("g", "m", rack_id="")
    assert member.due_at() is None
    member.subscribe(["b", "a"], 10.0)
    assert member.next_request(10.0) == ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rack_id=None, subscribed_topic_names=["a", "b"]
    )
    assert member.next_request(10.0) is None, "one at a time"


def test_a_stable_member_says_only_its_epoch_and_obeys_the_interval() -> None:
    member = stable()
    assert member.assignment == [TopicIdPartition(TOPIC, 0), TopicIdPartition(TOPIC, 1)]
    assert member.due_at() == 5.0
    assert member.next_request(4.9) is None
    request = member.next_request(5.0)
    assert request == ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
    assert member.on_response(answer(3), 5.0).assignment is None
    assert len(member.assignment) == 2, "null says: unchanged"


def test_an_assignment_of_more_partitions_than_a_member_takes_ends_the_membership_with_an_error() -> None:
    member = stable()
    assert member.next_request(5.0) is not None
    found = member.on_response(answer(partitions=list(range(MAX_ASSIGNED + 1))), 5.0)
    assert isinstance(found.error, KafkaProtocolError) and "100001 partitions" in str(found.error)
    assert member.state is ShareMemberState.FATAL and member.due_at() is None


def test_it_knows_when_the_group_last_answered_without_an_error() -> None:
    member = ShareMembership("g", "m")
    assert (member.answered_at, member.interval_s) == (None, 5.0)
    member.subscribe(["a"], 1.0)
    member.next_request(1.0)
    response = answer(1, partitions=[0])
    response.heartbeat_interval_ms = 7000
    member.on_response(response, 1.5)
    assert (member.answered_at, member.interval_s) == (1.5, 7.0)
    member.next_request(8.5)
    member.on_response(answer(code=15), 9.0)
    assert member.answered_at == 1.5
    member.next_request(10.0)
    member.on_failure(KafkaConnectionError("gone"), 10.5)
    assert member.answered_at == 1.5


def test_heartbeats_are_quick_until_partitions_come() -> None:
    member = ShareMembership("g", "m")
    member.subscribe(["a"], 0.0)
    member.next_request(0.0)
    member.on_response(answer(1, partitions=[]), 0.0)
    assert member.due_at() == EAGER_S
    member.next_request(EAGER_S)
    member.on_response(answer(2, partitions=[0]), EAGER_S)
    assert member.due_at() == EAGER_S + 5.0


def test_a_member_that_gets_no_partition_for_long_stops_hurrying() -> None:
    member = ShareMembership("g", "m")
    member.subscribe(["a"], 0.0)
    now = 0.0
    for _ in range(101):
        now = member.due_at() or 0.0
        member.next_request(now)
        member.on_response(answer(1), now)
    assert member.due_at() == now + 5.0


def test_a_lost_connection_is_like_a_moved_coordinator() -> None:
    member = stable()
    member.next_request(5.0)
    assert member.on_failure(KafkaConnectionError("gone"), 5.0).lost_coordinator
    request = member.next_request(5.2)
    assert request is not None
    assert request.subscribed_topic_names == ["a", "b"]


@pytest.mark.parametrize("code", [0, 25, 69])
def test_leaving_ends_whatever_the_group_remembers(code: int) -> None:
    member = stable()
    member.leave(1.0)
    request = member.next_request(1.0)
    assert request is not None
    assert request.member_epoch == -1
    member.on_response(answer(-1, code=code), 1.0)
    assert member.state is ShareMemberState.LEFT
    assert member.due_at() is None


def test_who_never_joined_has_nothing_to_leave() -> None:
    member = ShareMembership("g", "m")
    member.leave(0.0)
    assert member.state is ShareMemberState.LEFT


def test_a_subscription_that_changes_while_a_heartbeat_is_out_reaches_the_group() -> None:
    member = stable()
    assert member.next_request(5.0) is not None
    member.subscribe(["c"], 5.1)
    member.on_response(answer(3), 5.2)
    request = member.next_request(5.2)
    assert request is not None, "at once, not at the next interval"
    assert request.subscribed_topic_names == ["c"]


def test_a_member_leaves_although_a_heartbeat_is_in_flight() -> None:
    member = stable()
    assert member.next_request(5.0) is not None
    member.leave(5.1)
    assert member.next_request(5.1) is None, "one at a time"
    member.on_response(answer(4), 5.2)
    assert member.state is ShareMemberState.LEAVING
    request = member.next_request(5.2)
    assert request is not None
    assert request.member_epoch == -1


def test_what_a_join_makes_after_the_end_was_decided_is_left_again() -> None:
    member = ShareMembership("g", "m")
    member.subscribe(["a"], 0.0)
    assert member.next_request(0.0) is not None
    member.leave(0.1)
    assert member.state is ShareMemberState.LEAVING
    member.on_response(answer(1, partitions=[0]), 0.2)
    request = member.next_request(0.2)
    assert request is not None
    assert request.member_epoch == -1


@pytest.mark.parametrize("code", [25, 69, 110, 81, 35])
def test_a_member_that_leaves_does_not_join_again_whatever_the_group_says(code: int) -> None:
    member = stable()
    member.leave(1.0)
    assert member.next_request(1.0) is not None
    member.on_response(answer(code=code), 1.0)
    assert member.state is ShareMemberState.LEFT


def test_a_subscription_to_nothing_leaves_and_the_next_one_joins_again() -> None:
    member = stable()
    member.subscribe([], 1.0)
    request = member.next_request(1.0)
    assert request is not None
    assert request.member_epoch == -1
    assert member.on_response(answer(-1), 1.1).assignment == []
    assert member.due_at() is None
    member.subscribe(["z"], 9.0)
    request = member.next_request(9.0)
    assert request is not None
    assert (request.member_epoch, request.subscribed_topic_names) == (0, ["z"])


@pytest.mark.parametrize("code", [16, 25])
def test_the_first_error_is_retried_at_once_and_errors_in_a_row_ever_more_slowly(code: int) -> None:
    member = stable()
    now = 5.0
    waits = []
    for _ in range(8):
        assert member.next_request(now) is not None
        member.on_response(answer(code=code), now)
        due_at = member.due_at()
        assert due_at is not None
        waits.append(due_at - now)
        now = due_at
    assert waits == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0])


def test_a_broker_without_share_groups_is_fatal_until_another_subscription() -> None:
    member = ShareMembership("g", "m")
    member.subscribe(["a"], 0.0)
    assert member.next_request(0.0) is not None
    member.on_failure(IncompatibleBrokerVersion("no ShareGroupHeartbeat"), 0.0)
    assert member.state is ShareMemberState.FATAL
    assert member.due_at() is None
    member.subscribe(["a"], 1.0)
    assert member.due_at() == 1.0


def quick_heartbeats(member: ShareMembership, now: float) -> int:
    """How many of a member's heartbeats follow one another quickly while it gets no partition, from ``now`` on."""
    count = 0
    while True:
        assert member.next_request(now) is not None
        member.on_response(answer(4, partitions=[]), now)
        due_at = member.due_at()
        assert due_at is not None
        if due_at > now + EAGER_S + 0.001:
            assert due_at == now + 5.0
            return count
        count, now = count + 1, due_at


def test_the_quick_heartbeats_are_as_many_each_time_that_a_member_waits_for_partitions() -> None:
    member = ShareMembership("g", "m")
    member.subscribe(["a"], 0.0)
    counts = [quick_heartbeats(member, 0.0)]
    member.subscribe(["b"], 100.0)
    counts.append(quick_heartbeats(member, 100.0))
    member.next_request(200.0)
    member.on_response(answer(5, partitions=[0]), 200.0)
    counts.append(quick_heartbeats(member, 205.0))
    member.next_request(300.0)
    member.on_response(answer(code=25), 300.0)
    counts.append(quick_heartbeats(member, 300.0))
    assert counts == [100] * 4


def test_the_rack_is_sent_with_the_subscription_and_not_again() -> None:
    member = ShareMembership("g", "m", rack_id="r")
    assert member.state is ShareMemberState.JOINING
    member.subscribe(["a"], 0.0)
    full = ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rack_id="r", subscribed_topic_names=["a"]
    )
    assert member.next_request(0.0) == full
    member.on_response(answer(1, partitions=[0]), 0.0)
    assert member.next_request(5.0) == ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)


def test_the_first_error_of_a_member_is_the_first_in_a_row() -> None:
    member = ShareMembership("g", "m")
    member.subscribe(["a"], 0.0)
    member.next_request(0.0)
    response = answer(code=16)
    response.error_message = "not here"
    assert "not here" in str(member.on_response(response, 0.0).error)
    assert member.due_at() == 0.0


def test_after_the_end_of_a_membership_another_subscription_joins_from_the_beginning() -> None:
    member = stable()
    member.next_request(5.0)
    member.on_response(answer(code=30), 5.0)
    member.subscribe(["c"], 6.0)
    assert member.state is ShareMemberState.JOINING
    request = member.next_request(6.0)
    assert request is not None and request.member_epoch == 0


@pytest.mark.parametrize("code", [25, 30])
def test_a_group_that_does_not_have_a_member_that_pauses_has_let_it_go(code: int) -> None:
    member = stable()
    member.subscribe([], 1.0)
    member.next_request(1.0)
    assert member.on_response(answer(code=code), 1.0).assignment == []
    assert (member.state, member.due_at()) == (ShareMemberState.JOINING, None)


@pytest.mark.parametrize("code", [25, 30])
def test_a_group_that_refuses_the_heartbeat_of_a_member_that_leaves_has_let_it_go(code: int) -> None:
    member = stable()
    member.next_request(5.0)
    member.leave(5.1)
    assert member.on_response(answer(code=code), 5.2).assignment == []
    assert (member.state, member.due_at()) == (ShareMemberState.LEFT, None)


def test_a_member_that_leaves_says_so_again_when_its_heartbeat_fails_for_good() -> None:
    member = stable()
    member.next_request(5.0)
    member.leave(5.1)
    member.subscribe(["z"], 5.1)
    assert member.on_failure(IncompatibleBrokerVersion("no ShareGroupHeartbeat"), 5.2).lost_coordinator
    assert (member.state, member.due_at()) == (ShareMemberState.LEAVING, pytest.approx(5.3))
    member.subscribe(["z"], 5.2)
    assert member.due_at() == pytest.approx(5.3), "a subscription changes nothing any more"
    request = member.next_request(5.3)
    assert request is not None and request.member_epoch == -1


@pytest.mark.parametrize(
    ("error", "is_final"),
    [
        (KafkaConnectionError("gone"), False),
        (KafkaProtocolError("not a response"), False),
        (CoordinatorNotAvailableError("none"), False),
        (SaslAuthenticationFailedError("wrong password"), True),
        (SslAuthenticationError("a certificate of nobody's"), True),
        (GroupAuthorizationFailedError("g"), True),
        (IllegalArgumentError("a name that cannot be written"), True),
        (IllegalStateError("the client is closed"), True),
    ],
)
def test_an_error_instead_of_an_answer_is_final_only_when_no_retry_can_succeed(
    error: KafkaError, is_final: bool
) -> None:
    member = stable()
    member.next_request(5.0)
    assert member.on_failure(error, 5.0) == HeartbeatOutcome(None, error, lost_coordinator=not is_final)
    if is_final:
        assert (member.state, member.due_at()) == (ShareMemberState.FATAL, None)
    else:
        assert (member.state, member.due_at()) == (ShareMemberState.STABLE, pytest.approx(5.1))
