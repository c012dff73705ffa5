from __future__ import annotations

from uuid import UUID

import pytest

from kafka.broker.group_settings import GroupConfig
from kafka.broker.share.coordinator import ShareGroup, ShareHeartbeat, ShareHeartbeatResult, ShareMember
from kafka.broker.topics import TopicInfo
from kafka.errors import FencedMemberEpochError, GroupMaxSizeReachedError, InvalidRequestError, UnknownMemberIdError
from test.broker.test_group_settings import broker_config

TOPIC = TopicInfo(UUID(int=1), 4)
METADATA = {"t": TOPIC}


class Group:
    """A group whose clock the test moves."""

    def __init__(self, **limits: int) -> None:
        self.now = 0.0
        self.metadata = dict(METADATA)
        self.group = ShareGroup("g", GroupConfig(broker_config(**limits).value))

    def beat(
        self, member: str, epoch: int, topics: list[str] | None = None, rack: str | None = None
    ) -> ShareHeartbeatResult:
        return self.group.heartbeat(ShareHeartbeat(member, epoch, topics, rack), self.metadata, self.now)

    def join(self, member: str) -> ShareHeartbeatResult:
        return self.beat(member, 0, ["t"])


def test_the_first_member_is_assigned_everything_at_once() -> None:
    answer = Group().join("a")
    assert answer == ShareHeartbeatResult(3, 5000, frozenset((TOPIC.topic_id, at) for at in range(4)))


def test_an_unchanged_assignment_is_not_sent_again_unless_topics_are_named() -> None:
    group = Group()
    group.join("a")
    assert group.beat("a", 3).assignment is None
    assert group.beat("a", 3, ["t"]).assignment is not None


def test_a_second_member_is_assigned_with_the_first_heartbeat_after_the_interval() -> None:
    group = Group()
    group.join("a")
    group.now = 0.4
    assert group.join("b").assignment == frozenset()
    group.now = 1.0
    mine = group.beat("a", 3)
    yours = group.beat("b", 3)
    assert mine.member_epoch == yours.member_epoch == 4
    assert mine.assignment is not None
    assert yours.assignment is not None
    assert (len(mine.assignment), len(yours.assignment)) == (2, 2)
    assert not mine.assignment & yours.assignment


def test_partitions_that_are_new_to_the_group_raise_its_epoch_twice() -> None:
    group = Group(assignment_interval_ms=0)
    group.metadata["u"] = TopicInfo(UUID(int=2), 1)
    assert group.join("a").member_epoch == 3
    assert group.beat("a", 3, ["t", "u"]).member_epoch == 5
    assert group.beat("a", 5, ["t"]).member_epoch == 6


def test_an_interval_of_zero_assigns_at_every_change() -> None:
    group = Group(assignment_interval_ms=0)
    group.join("a")
    answer = group.join("b").assignment
    assert answer is not None
    assert len(answer) == 2


def test_the_previous_epoch_is_accepted_and_others_are_fenced() -> None:
    group = Group(assignment_interval_ms=0)
    group.join("a")
    group.join("b")
    assert group.beat("a", 3).member_epoch == 4
    assert group.beat("a", 3).member_epoch == 4
    for epoch in (2, 5, 99):
        with pytest.raises(FencedMemberEpochError):
            group.beat("a", epoch)


def test_a_member_that_has_joined_is_fenced_at_every_epoch_but_its_own() -> None:
    group = Group()
    assert group.join("a").member_epoch == 3
    for epoch in (1, 2, 4):
        with pytest.raises(FencedMemberEpochError):
            group.beat("a", epoch)
    assert (ShareMember("a").epoch, ShareMember("a").previous_epoch) == (0, -1)  # ModernGroupMember


def test_a_rack_stays_until_another_is_named() -> None:
    group = Group()
    group.beat("a", 0, ["t"], rack="r1")
    group.beat("a", 3)
    assert group.group.members["a"].rack_id == "r1"
    group.beat("a", 3, rack="r2")
    assert group.group.members["a"].rack_id == "r2"


def test_a_member_that_nobody_knows_joins_first() -> None:
    group = Group()
    for epoch in (1, -1):
        with pytest.raises(UnknownMemberIdError):
            group.beat("a", epoch)


def test_a_member_joins_again_under_its_id() -> None:
    group = Group()
    group.join("a")
    assert group.join("a").assignment == frozenset((TOPIC.topic_id, at) for at in range(4))
    assert len(group.group.members) == 1


def test_leaving_gives_the_partitions_to_the_others() -> None:
    group = Group(assignment_interval_ms=0)
    group.join("a")
    group.join("b")
    group.beat("a", 3)
    assert group.group.epoch == 4
    assert group.beat("b", -1) == ShareHeartbeatResult(-1, 0, None)
    assert group.group.epoch == 5
    answer = group.beat("a", 4).assignment
    assert answer is not None
    assert len(answer) == 4


def test_who_leaves_others_behind_does_not_shorten_the_interval_and_the_last_one_ends_it() -> None:
    group = Group()
    group.join("a")
    group.join("b")
    group.now = 0.5
    group.beat("b", -1)
    assert group.beat("a", 3).member_epoch == 3
    group.beat("a", -1)
    answer = group.join("c").assignment
    assert answer is not None
    assert len(answer) == 4


def test_the_interval_begins_with_an_assignment_and_lasts_its_time() -> None:
    group = Group()
    group.join("a")
    group.now = 0.9
    assert group.beat("a", 3).assignment is None
    group.join("b")
    group.now = 0.9995
    assert group.beat("b", 3).assignment is None
    group.now = 1.0
    answer = group.beat("b", 3).assignment
    assert answer is not None
    assert len(answer) == 2


def test_a_heartbeat_that_changes_nothing_does_not_begin_the_interval_anew() -> None:
    group = Group()
    group.join("a")
    group.now = 2.0
    assert group.beat("a", 3) == ShareHeartbeatResult(3, 5000, None)
    group.now = 2.5
    answer = group.join("b")
    assert answer.member_epoch == 4
    assert answer.assignment is not None
    assert len(answer.assignment) == 2


def test_partitions_that_are_new_within_the_interval_wait_for_its_end() -> None:
    group = Group()
    group.join("a")
    group.now = 0.5
    group.metadata["t"] = TopicInfo(TOPIC.topic_id, 6)
    assert group.beat("a", 3) == ShareHeartbeatResult(3, 5000, None)
    group.now = 1.0
    answer = group.beat("a", 3)
    assert answer.member_epoch == 4
    assert answer.assignment is not None
    assert len(answer.assignment) == 6


def test_a_silent_member_is_taken_out_at_its_session_timeout() -> None:
    group = Group()
    group.join("a")
    group.now = 44.9
    assert group.group.tick(44.9) == []
    group.beat("a", 3)
    assert group.group.next_deadline == 89.9
    assert group.group.tick(89.9) == ["a"]
    assert group.group.state == "Empty"


def test_a_group_has_a_greatest_size() -> None:
    group = Group(max_size=1)
    group.join("a")
    with pytest.raises(GroupMaxSizeReachedError):
        group.join("b")
    group.join("a")


@pytest.mark.parametrize(
    ("member", "epoch", "topics", "rack"),
    [
        ("", 0, ["t"], None),
        ("x" * 37, 0, ["t"], None),
        ("m", 0, None, None),
        ("m", 0, [], None),
        ("m", -2, ["t"], None),
        ("m", 0, ["t"], ""),
    ],
)
def test_malformed_heartbeats_are_invalid_requests(
    member: str, epoch: int, topics: list[str] | None, rack: str | None
) -> None:
    with pytest.raises(InvalidRequestError):
        ShareHeartbeat(member, epoch, topics, rack).check("g")


def test_a_heartbeat_names_a_group() -> None:
    with pytest.raises(InvalidRequestError):
        ShareHeartbeat("m", 0, ["t"], None).check(" ")


def test_only_who_joins_has_to_name_topics() -> None:
    ShareHeartbeat("m", 3, [], None).check("g")
    ShareHeartbeat("x" * 36, 0, ["t"], "r").check("g")
    ShareHeartbeat("m", -1, [], None).check("g")
    with pytest.raises(InvalidRequestError):
        ShareHeartbeat("m", 0, [], None).check("g")


def test_topics_that_appear_and_grow_are_assigned() -> None:
    group = Group(assignment_interval_ms=0)
    group.metadata = {}
    assert group.join("a").assignment == frozenset()
    group.metadata = {"t": TOPIC}
    group.group.topics_changed(group.metadata, 0.0)
    assert group.group.epoch == 3
    group.group.topics_changed(group.metadata, 0.0)
    assert group.group.epoch == 3
    answer = group.beat("a", 2)
    assert answer.assignment is not None
    assert len(answer.assignment) == 4
    group.metadata = {"t": TopicInfo(TOPIC.topic_id, 6)}
    grown = group.beat("a", answer.member_epoch).assignment
    assert grown is not None
    assert len(grown) == 6
