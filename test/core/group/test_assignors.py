"""What holds for every assignor and every group, by hypothesis; examples of each; and how fast they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka.core.group.assignors.base import Assignor, GroupMember
from kafka.core.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from kafka.core.group.assignors.strategy import ASSIGNORS
from kafka.core.group.machine import TopicSnapshot
from kafka.core.group.protocol import MemberAssignment, MemberSubscription
from kafka.structs import TopicPartition
from test.support.cpu import CpuTime

STICKY = ("sticky", "cooperative-sticky")
RACKS = ("a", "b", "c")

Topics = Mapping[str, TopicSnapshot]
Given = Mapping[str, MemberAssignment]


def member(member_id: str, *topics: str, instance_id: str | None = None, rack: str = "") -> GroupMember:
    return GroupMember(member_id, instance_id, MemberSubscription(topics, rack=rack))


def shown(found: Given) -> dict[str, str]:
    return {
        member_id: " ".join(f"{topic}{number}" for topic, number in sorted(assignment.partitions))
        for member_id, assignment in found.items()
    }


places = st.frozensets(st.sampled_from(RACKS), max_size=2)
few = settings(max_examples=40)  # groups are small, and what goes wrong shows soon


@st.composite
def pictures(draw: st.DrawFn) -> dict[str, TopicSnapshot]:
    has_racks = draw(st.booleans())
    found = {}
    for name in draw(st.lists(st.sampled_from("tuvwx"), min_size=1, unique=True)):
        count = draw(st.integers(0, 7))
        racks = (
            [frozenset(draw(st.sets(st.sampled_from(RACKS), max_size=2))) for _ in range(count)] if has_racks else []
        )
        found[name] = TopicSnapshot(count, racks)
    return found


@st.composite
def groups(draw: st.DrawFn, are_equal: bool | None = None) -> tuple[dict[str, TopicSnapshot], list[GroupMember]]:
    topics = draw(pictures())
    same = draw(st.booleans()) if are_equal is None else are_equal
    some = st.lists(st.sampled_from([*topics, "missing"]), unique=True)
    chosen = draw(some)
    members = []
    for number in range(draw(st.integers(1, 7))):
        instance_id = f"i{draw(st.integers(0, 99))}-{number}" if draw(st.booleans()) else None
        own = chosen if same else draw(some)
        rack = draw(st.sampled_from(("", *RACKS)))
        members.append(
            GroupMember(
                f"m{draw(st.integers(0, 999))}-{number}", instance_id, MemberSubscription(tuple(own), rack=rack)
            )
        )
    return topics, members


def check(topics: Topics, members: Sequence[GroupMember], found: Given, is_complete: bool = True) -> None:
    assert set(found) == {one.member_id for one in members}
    wanted = {one.member_id: set(one.subscription.topics) for one in members}
    owners = Counter(partition for assignment in found.values() for partition in assignment.partitions)
    assert all(count == 1 for count in owners.values()), "no partition has two owners"
    for member_id, assignment in found.items():
        assert {topic for topic, _ in assignment.partitions} <= wanted[member_id], "nobody gets what he does not read"
    if is_complete:
        read = set().union(*wanted.values()) & topics.keys()
        assert set(owners) == {
            TopicPartition(topic, n) for topic in read for n in range(topics[topic].partitions_count)
        }


def sizes(found: Given) -> list[int]:
    return sorted(len(assignment.partitions) for assignment in found.values())


@pytest.mark.parametrize("name", ASSIGNORS)
@few
@given(group=groups())
def test_everything_is_assigned_once_to_who_reads_it(
    name: str, group: tuple[dict[str, TopicSnapshot], list[GroupMember]]
) -> None:
    topics, members = group
    check(topics, members, ASSIGNORS[name]().assign(topics, members))


@pytest.mark.parametrize("name", ["roundrobin", *STICKY])
@few
@given(group=groups(are_equal=True))
def test_members_that_read_the_same_differ_by_one_at_most(
    name: str, group: tuple[dict[str, TopicSnapshot], list[GroupMember]]
) -> None:
    found = sizes(ASSIGNORS[name]().assign(*group))
    assert found[-1] - found[0] <= 1


@few
@given(groups(are_equal=True))
def test_range_differs_by_one_for_each_topic(group: tuple[dict[str, TopicSnapshot], list[GroupMember]]) -> None:
    topics, members = group
    found = ASSIGNORS["range"]().assign(topics, members)
    for topic in topics:
        counts = [sum(one.topic == topic for one in assignment.partitions) for assignment in found.values()]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("name", STICKY)
@few
@given(group=groups())
def test_sticky_ones_are_as_even_as_the_topics_allow(
    name: str, group: tuple[dict[str, TopicSnapshot], list[GroupMember]]
) -> None:
    topics, members = group
    found = ASSIGNORS[name]().assign(topics, members)
    for rich in members:
        for poor in members:
            surplus = len(found[rich.member_id].partitions) - len(found[poor.member_id].partitions)
            if surplus >= 2:
                movable = [one for one in found[rich.member_id].partitions if one.topic in poor.subscription.topics]
                assert not movable, "it could be more even"


def remembering(name: str, one: GroupMember, assignment: MemberAssignment, generation: int = 1) -> GroupMember:
    """The member as it joins again after it was given ``assignment``."""
    own = ASSIGNORS[name]()
    own.on_assignment(assignment, generation)
    said = one.subscription._replace(
        owned=() if name == "sticky" else tuple(sorted(assignment.partitions)),
        generation=generation,
        user_data=own.user_data(frozenset(one.subscription.topics)),
    )
    return one._replace(subscription=said)


def settle(name: str, topics: Topics, members: Sequence[GroupMember]) -> tuple[Given, int]:
    """What they have when nothing changes any more, and after how many generations."""
    for generation in range(1, 10):
        found = ASSIGNORS[name]().assign(topics, members)
        is_settled = all(set(found[one.member_id].partitions) >= set(one.subscription.owned) for one in members)
        if is_settled:
            return found, generation
        members = [remembering(name, one, found[one.member_id], generation + 1) for one in members]
    raise AssertionError("it never comes to rest")


@pytest.mark.parametrize("name", STICKY)
@few
@given(group=groups())
def test_nothing_moves_when_nothing_has_changed(
    name: str, group: tuple[dict[str, TopicSnapshot], list[GroupMember]]
) -> None:
    topics, members = group
    if any(one.subscription.rack for one in members):
        members = [one._replace(subscription=one.subscription._replace(rack="")) for one in members]
    first = ASSIGNORS[name]().assign(topics, members)
    again = ASSIGNORS[name]().assign(topics, [remembering(name, one, first[one.member_id]) for one in members])
    assert {key: set(each.partitions) for key, each in again.items()} == {
        key: set(each.partitions) for key, each in first.items()
    }


@pytest.mark.parametrize("name", STICKY)
@few
@given(group=groups(are_equal=True), gone=st.integers(0, 6), new=st.integers(0, 3))
def test_no_more_moves_than_balance_takes_when_members_come_and_go(
    name: str, group: tuple[dict[str, TopicSnapshot], list[GroupMember]], gone: int, new: int
) -> None:
    topics, members = group
    members = [one._replace(subscription=one.subscription._replace(rack="")) for one in members]
    first = ASSIGNORS[name]().assign(topics, members)
    stayed = [remembering(name, one, first[one.member_id]) for one in members[: max(1, len(members) - gone)]]
    came = [member(f"new{number}", *members[0].subscription.topics) for number in range(new)]
    found, generations = settle(name, topics, [*stayed, *came])
    assert generations <= (2 if name == "cooperative-sticky" else 1)
    check(topics, [*stayed, *came], found)
    total = sum(sizes(first))
    least, odd = divmod(total, len(stayed) + len(came))
    kept = sum(len(set(found[one.member_id].partitions) & set(first[one.member_id].partitions)) for one in stayed)
    had = sorted((len(first[one.member_id].partitions) for one in stayed), reverse=True)
    could_be_kept = sum(min(count, least + (at < odd)) for at, count in enumerate(had))
    assert kept == could_be_kept


@few
@given(groups(), st.integers(0, 6))
def test_a_cooperative_partition_never_goes_to_another_while_somebody_owns_it(
    group: tuple[dict[str, TopicSnapshot], list[GroupMember]], gone: int
) -> None:
    topics, members = group
    first = CooperativeStickyAssignor().assign(topics, members)
    stayed = [
        remembering("cooperative-sticky", one, first[one.member_id]) for one in members[: max(1, len(members) - gone)]
    ]
    joined = [*stayed, member("new", *topics)]
    found = CooperativeStickyAssignor().assign(topics, joined)
    check(topics, joined, found, is_complete=False)
    owner = {partition: one.member_id for one in joined for partition in one.subscription.owned}
    for member_id, assignment in found.items():
        for partition in assignment.partitions:
            assert owner.get(partition, member_id) == member_id
    last, _ = settle("cooperative-sticky", topics, joined)
    check(topics, joined, last)


@pytest.mark.parametrize("name", STICKY)
def test_a_claim_of_an_older_generation_does_not_count(name: str) -> None:
    topics = {"t": TopicSnapshot(2)}
    both = MemberAssignment((TopicPartition("t", 0), TopicPartition("t", 1)))
    late = remembering(name, member("a", "t"), both, 3)
    holder = remembering(name, member("b", "t"), MemberAssignment((TopicPartition("t", 1),)), 7)
    other = remembering(name, member("c", "t"), MemberAssignment((TopicPartition("t", 0),)), 7)
    found = shown(ASSIGNORS[name]().assign(topics, [late, holder, other]))
    assert (found["b"], found["c"], found["a"]) == ("t1", "t0", "")


def test_who_claims_the_same_of_the_same_generation_has_it_no_more() -> None:
    topics = {"t": TopicSnapshot(2)}
    claim = MemberAssignment((TopicPartition("t", 0),))
    members = [remembering("cooperative-sticky", member(one, "t"), claim, 7) for one in "ab"]
    found = CooperativeStickyAssignor().assign(topics, members)
    assert all(TopicPartition("t", 0) not in each.partitions for each in found.values()), "first both give it up"


def test_user_data_that_cannot_be_read_is_no_claim() -> None:
    broken = GroupMember("a", None, MemberSubscription(("t",), user_data=b"\x00"))
    assert shown(StickyAssignor().assign({"t": TopicSnapshot(1)}, [broken])) == {"a": "t0"}
    assert shown(CooperativeStickyAssignor().assign({"t": TopicSnapshot(1)}, [broken])) == {"a": "t0"}


def test_what_a_member_owned_of_partitions_that_are_no_more_is_forgotten() -> None:
    had = MemberAssignment((TopicPartition("t", 0), TopicPartition("t", 9), TopicPartition("gone", 0)))
    found = StickyAssignor().assign({"t": TopicSnapshot(1)}, [remembering("sticky", member("a", "t", "gone"), had)])
    assert shown(found) == {"a": "t0"}


def test_static_members_come_first_and_by_their_instance_ids() -> None:
    members = [member("a", "t"), member("z", "t", instance_id="2"), member("y", "t", instance_id="10")]
    topics = {"t": TopicSnapshot(4)}
    assert shown(ASSIGNORS["range"]().assign(topics, members)) == {"y": "t0 t1", "z": "t2", "a": "t3"}
    assert shown(ASSIGNORS["roundrobin"]().assign(topics, members)) == {"y": "t0 t3", "z": "t1", "a": "t2"}


def test_range_gives_what_is_near_and_keeps_topics_together() -> None:
    racks = [frozenset(each) for each in ("a", "b", "a", "b")]
    topics = {"t": TopicSnapshot(4, racks), "u": TopicSnapshot(4, racks)}
    members = [member("m1", "t", "u", rack="b"), member("m2", "t", "u", rack="a")]
    assert shown(ASSIGNORS["range"]().assign(topics, members)) == {"m1": "t1 t3 u1 u3", "m2": "t0 t2 u0 u2"}


@pytest.mark.parametrize("name", STICKY)
def test_sticky_ones_give_what_is_near(name: str) -> None:
    topics = {"t": TopicSnapshot(4, [frozenset(each) for each in ("a", "b", "a", "b")])}
    members = [member("m1", "t", rack="b"), member("m2", "t", rack="a")]
    assert shown(ASSIGNORS[name]().assign(topics, members)) == {"m1": "t1 t3", "m2": "t0 t2"}


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("kind", ["one topic", "many topics", "own topics", "racks"])
def test_two_thousand_partitions_for_a_hundred_members_take_well_under_a_second(name: str, kind: str) -> None:
    names = ["t"] if kind == "one topic" else [f"t{number}" for number in range(100)]
    racks = [frozenset({RACKS[number % 3]}) for number in range(2000)] if kind == "racks" else []
    topics = {topic: TopicSnapshot(2000 // len(names), racks[: 2000 // len(names)]) for topic in names}

    def reads(number: int) -> list[str]:
        return names if kind != "own topics" else [names[(number * 7 + each * each) % 100] for each in range(30)]

    rack = RACKS if kind == "racks" else ("", "", "")
    members = [
        member(f"consumer-{number * 7919 % 100}", *reads(number), rack=rack[number % 3]) for number in range(100)
    ]
    assignor: Assignor = ASSIGNORS[name]()
    first = assignor.assign(topics, members)
    later = [remembering(name, one, first[one.member_id]) for one in members[:90]]
    took = []
    for group in (members, later, [*later, *members[90:]]):
        with CpuTime() as cpu:
            found = assignor.assign(topics, group)
        took.append(cpu.seconds)
        check(topics, group, found, is_complete=name != "cooperative-sticky")
    assert max(took) < 1.0, took
