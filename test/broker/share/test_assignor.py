from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kafka.broker.share.assignor import assign

TOPICS = [UUID(int=at) for at in range(1, 5)]


@given(st.integers(1, 12), st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1), st.integers(0, 12))
def test_equal_subscriptions_are_served_evenly_and_every_partition_has_a_member_and_nothing_moves_twice(
    members: int, counts: dict[UUID, int], left: int
) -> None:
    subscriptions = {f"m{at}": set(counts) for at in range(members)}
    first = assign(subscriptions, counts, {})
    gone = {name: subscriptions[name] for name in sorted(subscriptions)[min(left, members - 1) :]}
    for names, result in ((subscriptions, first), (gone, assign(gone, counts, first))):
        assert set(result) == set(names)
        sizes = [len(found) for found in result.values()]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1 or sum(counts.values()) < 1
        shared: dict[tuple[UUID, int], int] = {}
        for found in result.values():
            for partition in found:
                shared[partition] = shared.get(partition, 0) + 1
        assert len(shared) == sum(counts.values())
        assert max(shared.values()) - min(shared.values()) <= 1
        if len(names) <= len(shared):
            assert max(shared.values()) == 1
        assert assign(names, counts, result) == result


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), st.sets(st.sampled_from(TOPICS)), min_size=1),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 5)),
)
def test_members_get_only_what_they_subscribe_to_and_nothing_is_left_over(
    subscriptions: dict[str, set[UUID]], counts: dict[UUID, int]
) -> None:
    result = assign(subscriptions, counts, {})
    for member, found in result.items():
        assert all(topic in subscriptions[member] for topic, _ in found)
        assert bool(found) == any(counts.get(topic) for topic in subscriptions[member])
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert {partition for found in result.values() for partition in found} == {
        (topic, at) for topic in wanted for at in range(counts.get(topic, 0))
    }


def test_members_keep_what_they_have_when_another_joins() -> None:
    counts = {TOPICS[0]: 4}
    first = assign({"a": set(counts), "b": set(counts)}, counts, {})
    second = assign({"a": set(counts), "b": set(counts), "c": set(counts)}, counts, first)
    assert second["a"] <= first["a"]
    assert second["b"] <= first["b"]
