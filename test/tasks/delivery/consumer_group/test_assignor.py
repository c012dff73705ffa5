"""Who owns which partitions of a queue."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka.core.group.assignors.base import Assignor, GroupMember, RebalanceProtocol
from kafka.core.group.assignors.strategy import make_assignors
from kafka.core.group.machine import TopicSnapshot
from kafka.core.group.protocol import MemberSubscription
from kafka.structs import TopicPartition
from kafka.tasks.delivery.consumer_group.assignor import QueueAssignor, share_numbers

TOPICS = ("shop.mail", "shop.mail.due", "shop.mail.suspect")


def rebalance(
    assignor: Assignor, counts: dict[str, int], owned: dict[str, set[TopicPartition]], generation: int = 1
) -> dict[str, set[TopicPartition]]:
    """One rebalance of members that own these."""
    members = [
        GroupMember(member, None, MemberSubscription(TOPICS, None, tuple(sorted(places)), generation, ""))
        for member, places in owned.items()
    ]
    topics = {topic: TopicSnapshot(count) for topic, count in counts.items()}
    return {member: set(given.partitions) for member, given in assignor.assign(topics, members).items()}


def settle(assignor: Assignor, counts: dict[str, int], owned: dict[str, set[TopicPartition]]) -> tuple[int, Any]:
    """Rebalance until nothing changes: how often that took, and who owns what."""
    for times in range(5):
        after = rebalance(assignor, counts, owned)
        if after == owned:
            return times, owned
        owned = {member: owned[member] & after[member] | after[member] for member in after}
    raise AssertionError("no end of rebalances")


def make() -> Assignor:
    (assignor,) = make_assignors([QueueAssignor()])
    return assignor


def test_each_member_has_the_same_numbers_of_all_topics_and_equal_shares() -> None:
    assignor = make()
    assert assignor.rebalance_protocols == {RebalanceProtocol.COOPERATIVE}
    counts = dict.fromkeys(TOPICS, 6)
    times, owned = settle(assignor, counts, {"a": set(), "b": set(), "c": set(), "d": set()})
    assert times == 1
    for places in owned.values():
        numbers = {place.partition for place in places}
        assert places == {TopicPartition(topic, number) for topic in TOPICS for number in numbers}
        assert len(numbers) in (1, 2)
    assert sum(map(len, owned.values())) == 18


def test_one_that_joins_gets_its_share_when_others_have_given_it_up_and_the_rest_stays() -> None:
    assignor, counts = make(), dict.fromkeys(TOPICS, 6)
    _, owned = settle(assignor, counts, {"a": set(), "b": set()})
    first = rebalance(assignor, counts, {**owned, "c": set()})
    assert first["c"] == set(), "all is owned by others"
    assert all(len(first[member]) == 6 and first[member] < owned[member] for member in "ab")
    second = rebalance(assignor, counts, first)
    assert {member: second[member] for member in "ab"} == {member: first[member] for member in "ab"}
    assert second["c"] == set().union(*owned.values()) - first["a"] - first["b"]


def test_what_one_that_leaves_had_is_shared_and_the_rest_stays() -> None:
    assignor, counts = make(), dict.fromkeys(TOPICS, 6)
    _, owned = settle(assignor, counts, {"a": set(), "b": set(), "c": set()})
    del owned["b"]
    after = rebalance(assignor, counts, owned)
    assert all(owned[member] < after[member] for member in "ac")
    assert sum(map(len, after.values())) == 18


def test_topics_may_have_other_numbers_of_partitions() -> None:
    counts = {TOPICS[0]: 8, TOPICS[1]: 3, TOPICS[2]: 1}
    _, owned = settle(make(), counts, {"a": set(), "b": set()})
    assert sorted(place for places in owned.values() for place in places) == sorted(
        TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)
    )
    assert {member: sum(place.topic == TOPICS[0] for place in places) for member, places in owned.items()} == {
        "a": 4, "b": 4,
    }  # fmt: skip


@given(st.integers(0, 40), st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.integers(0, 39)), min_size=1))
def test_shares_are_equal_whole_and_keep_what_they_can(count: int, wanted: dict[str, set[int]]) -> None:
    taken: set[int] = set()
    claims: dict[str, list[int]] = {}
    for member, numbers in wanted.items():
        claims[member] = sorted(number for number in numbers - taken if number < count)
        taken |= numbers
    shares = share_numbers(count, claims)
    assert sorted(number for share in shares.values() for number in share) == list(range(count))
    sizes = sorted(map(len, shares.values()))
    assert sizes[-1] - sizes[0] <= 1
    for member, share in shares.items():
        kept = len(set(share) & set(claims[member]))
        assert kept == min(len(claims[member]), len(share)), "it moves no more than it has to"
