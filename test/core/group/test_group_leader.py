"""What the leader of a classic group makes of the members' subscriptions, its assignor's answer and the topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from kafka.core.group.assignors.base import GroupMember, RebalanceProtocol
from kafka.core.group.classic import GroupLeader
from kafka.core.group.machine import TopicSnapshot
from kafka.core.group.protocol import MemberAssignment, MemberSubscription, read_assignment
from kafka.errors import IllegalStateError
from kafka.structs import TopicPartition
from test.core.group.classic_bench import joined, parts

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


class Fixed:
    """Gives what it was made with, and keeps what it was asked."""

    rebalance_protocols = frozenset({EAGER, COOPERATIVE})

    def __init__(self, given: Mapping[str, tuple[TopicPartition, ...]], name: str = "fixed") -> None:
        self.name = name
        self.given = {member: MemberAssignment(partitions) for member, partitions in given.items()}
        self.members: Sequence[GroupMember] = ()

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        return None

    def assign(
        self, topics: Mapping[str, TopicSnapshot], members: Sequence[GroupMember]
    ) -> Mapping[str, MemberAssignment]:
        self.members = members
        return self.given

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        pass


def leading(
    assignor: Fixed, *owned: TopicPartition, looks_at_racks: bool = False, skip_assignment: bool = False
) -> GroupLeader:
    """Of a group in which ``me`` reads jobs and ``other`` jobs and logs; ``other`` owns what is given."""
    subscriptions = {"me": MemberSubscription(("jobs",)), "other": MemberSubscription(("jobs", "logs"), None, owned)}
    answer = joined(1, "me", "me", subscriptions, skip_assignment=skip_assignment)
    return GroupLeader(answer, assignor, looks_at_racks)


def picture(**counts: int) -> dict[str, TopicSnapshot]:
    return {topic: TopicSnapshot(count) for topic, count in counts.items()}


def test_topics_that_are_not_known_are_missing_but_for_who_has_nothing_to_assign() -> None:
    assert leading(Fixed({})).topics == {"jobs", "logs"}
    assert leading(Fixed({})).missing(picture(jobs=1)) == {"logs"}
    assert leading(Fixed({})).missing(picture(jobs=1, logs=1, more=1)) == frozenset()
    assert leading(Fixed({}), skip_assignment=True).missing({}) == frozenset()


def test_every_member_gets_an_assignment_and_no_other() -> None:
    assignor = Fixed({"other": (TopicPartition("jobs", 0),)})
    assignments = leading(assignor).assign(picture(jobs=1), EAGER)
    assert {each.member_id: read_assignment(each.assignment).partitions for each in assignments} == {
        "me": (),
        "other": (TopicPartition("jobs", 0),),
    }
    assert [each.subscription.topics for each in assignor.members] == [("jobs",), ("jobs", "logs")]
    with pytest.raises(IllegalStateError, match="'third'.*no members"):
        leading(Fixed({"third": ()})).assign(picture(jobs=1), EAGER)


def test_who_is_to_skip_the_assignment_assigns_nothing_and_watches_the_topics() -> None:
    """KIP-814."""
    assignor = Fixed({"me": ()})
    leader = leading(assignor, skip_assignment=True)
    assert leader.assign(picture(jobs=1), EAGER) == []
    assert assignor.members == ()
    assert leader.has_changed(picture(jobs=2), frozenset({"jobs"}))


@pytest.mark.parametrize(
    ("name", "protocol", "is_refused"),
    [("mine", COOPERATIVE, True), ("mine", EAGER, False), ("cooperative-sticky", COOPERATIVE, False)],
)
def test_a_cooperative_assignor_of_a_users_gives_away_nothing_that_is_owned(
    name: str, protocol: RebalanceProtocol, is_refused: bool
) -> None:
    """KIP-429. Java validates all but its own cooperative-sticky, too (ConsumerCoordinator.onLeaderElected)."""
    leader = leading(Fixed({"me": (TopicPartition("jobs", 1),)}, name), TopicPartition("jobs", 1))
    if is_refused:
        with pytest.raises(IllegalStateError, match="still own.*partition=1"):
            leader.assign(picture(jobs=2), protocol)
    else:
        assert len(leader.assign(picture(jobs=2), protocol)) == 2


def test_a_cooperative_assignor_may_take_what_nobody_gets_yet_and_give_what_nobody_had() -> None:
    given = {"me": tuple(sorted(parts(0))), "other": tuple(sorted(parts(1)))}
    leader = leading(Fixed(given, "mine"), *sorted(parts(1, 2)))
    assert len(leader.assign(picture(jobs=3), COOPERATIVE)) == 2


@pytest.mark.parametrize(
    ("later", "has_changed"),
    [
        ({"jobs": 3, "logs": 1}, False),
        ({"jobs": 4, "logs": 1}, True),
        ({"jobs": 3, "logs": 2}, True),
        ({"logs": 1}, True),
        ({"jobs": 3}, False),  # of the others' topics maybe nobody has asked lately
        ({"jobs": 3, "logs": 1, "more": 1}, False),
    ],
)
def test_what_has_changed_is_a_topic_of_the_group(later: dict[str, int], has_changed: bool) -> None:
    leader = leading(Fixed({}))
    leader.assign(picture(jobs=3, logs=1), EAGER)
    assert leader.has_changed(picture(**later), frozenset({"jobs"})) is has_changed


def test_a_topic_that_is_made_is_a_change() -> None:
    leader = leading(Fixed({}))
    leader.assign(picture(jobs=3), EAGER)
    assert leader.has_changed(picture(jobs=3, logs=1), frozenset({"jobs"}))


@pytest.mark.parametrize("looks_at_racks", [False, True])
def test_racks_are_a_change_for_who_looks_at_them(looks_at_racks: bool) -> None:
    """KIP-881: a consumer without client.rack does not mind where replicas are."""
    leader = leading(Fixed({}), looks_at_racks=looks_at_racks)
    leader.assign({"jobs": TopicSnapshot(1, [frozenset({"a"})])}, EAGER)
    assert not leader.has_changed({"jobs": TopicSnapshot(1, (frozenset({"a"}),))}, frozenset({"jobs"}))
    moved = {"jobs": TopicSnapshot(1, (frozenset({"b"}),))}
    assert leader.has_changed(moved, frozenset({"jobs"})) is looks_at_racks
