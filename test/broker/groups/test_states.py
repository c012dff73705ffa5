from __future__ import annotations

from kafka.broker.groups.classic_group import CLASSIC_TRANSITIONS, STATES_THAT_REBALANCE, ClassicState
from kafka.broker.groups.consumer_group import ConsumerMemberState


def test_a_classic_groups_steps_are_kafkas() -> None:
    """ClassicGroupState of 4.3.0: validPreviousStates, turned round; there a dead group may die again."""
    steps = {state.value: {following.value for following in after} for state, after in CLASSIC_TRANSITIONS.items()}
    assert steps == {
        "Empty": {"PreparingRebalance", "Dead"},
        "PreparingRebalance": {"CompletingRebalance", "Empty", "Dead"},
        "CompletingRebalance": {"Stable", "PreparingRebalance", "Dead"},
        "Stable": {"PreparingRebalance", "Dead"},
        "Dead": set(),
    }
    assert set(CLASSIC_TRANSITIONS) == set(ClassicState)


def test_a_rebalance_begins_where_kafka_lets_it() -> None:
    assert {state.value for state in STATES_THAT_REBALANCE} == {"Empty", "CompletingRebalance", "Stable"}


def test_members_states_have_the_numbers_that_are_on_the_disk() -> None:
    """org.apache.kafka.coordinator.group.modern.ConsumerMemberState."""
    assert {state.name: int(state) for state in ConsumerMemberState} == {
        "STABLE": 0, "UNREVOKED_PARTITIONS": 1, "UNRELEASED_PARTITIONS": 2, "UNKNOWN": 127,
    }  # fmt: skip
