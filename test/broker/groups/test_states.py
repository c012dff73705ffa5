from __future__ import annotations

from kafka.broker.groups.states import CLASSIC, REBALANCES_FROM, ClassicState, MemberState


def test_a_classic_groups_steps_are_kafkas() -> None:
    """ClassicGroupState of 4.3.0: validPreviousStates, turned round; there a dead group may die again."""
    steps = {state.value: {following.value for following in after} for state, after in CLASSIC.items()}
    assert steps == {
        "Empty": {"PreparingRebalance", "Dead"},
        "PreparingRebalance": {"CompletingRebalance", "Empty", "Dead"},
        "CompletingRebalance": {"Stable", "PreparingRebalance", "Dead"},
        "Stable": {"PreparingRebalance", "Dead"},
        "Dead": set(),
    }
    assert set(CLASSIC) == set(ClassicState)


def test_a_rebalance_begins_where_kafka_lets_it() -> None:
    assert {state.value for state in REBALANCES_FROM} == {"Empty", "CompletingRebalance", "Stable"}


def test_members_states_have_the_numbers_that_are_on_the_disk() -> None:
    """org.apache.kafka.coordinator.group.modern.MemberState."""
    assert {state.name: int(state) for state in MemberState} == {
        "STABLE": 0, "UNREVOKED_PARTITIONS": 1, "UNRELEASED_PARTITIONS": 2, "UNKNOWN": 127,
    }  # fmt: skip
