from __future__ import annotations

import pytest

from kafka.broker.groups.group_settings import (
    GROUP_NUMBERS,
    ConsumerSettings,
    check_consumer_settings,
    consumer_settings,
)
from kafka.errors import InvalidConfigurationError

# GroupCoordinatorConfig of 4.3.0: the defaults of the broker.
BROKER = {
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.min.session.timeout.ms": "45000",
    "group.consumer.max.session.timeout.ms": "60000",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "5000",
    "group.consumer.max.heartbeat.interval.ms": "15000",
    "group.consumer.assignment.interval.ms": "1000",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.max.assignment.interval.ms": "15000",
    "group.consumer.max.size": "2147483647",
    "group.consumer.assignors": "uniform, range,",
}
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


def test_the_defaults_are_kafkas() -> None:
    expected = (45_000, 5_000, 1_000, 2_147_483_647, ("uniform", "range"))
    assert tuple(ConsumerSettings()) == expected
    assert tuple(consumer_settings(BROKER.__getitem__, {})) == expected


def test_a_group_may_set_three_numbers_from_a_lowest_value_on() -> None:
    """GroupConfig.CONFIG_DEF of 4.3.0: atLeast(1), atLeast(1), atLeast(0)."""
    assert {name: row.low for name, row in GROUP_NUMBERS.items()} == {SESSION: 1, HEARTBEAT: 1, ASSIGNMENT: 0}


def test_what_a_group_sets_is_held_to_the_brokers_range() -> None:
    for value, in_force in (("44999", 45_000), ("50000", 50_000), ("60001", 60_000)):
        assert consumer_settings(BROKER.__getitem__, {SESSION: value}).session_timeout_ms == in_force
    assert consumer_settings(BROKER.__getitem__, {HEARTBEAT: "6000"}).heartbeat_interval_ms == 6000
    assert consumer_settings(BROKER.__getitem__, {ASSIGNMENT: "0"}).assignment_interval_ms == 0


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (SESSION, "many", "Invalid value many for configuration consumer.session.timeout.ms: Not a number of type INT"),
        (SESSION, "", "Not a number of type INT"),
        (SESSION, "\u0664", "Not a number of type INT"),
        (SESSION, "2147483648", "Not a number of type INT"),
        (SESSION, "-2147483649", "Not a number of type INT"),
        (SESSION, "2147483647", "less than or equal to group.consumer.max.session.timeout.ms"),
        (SESSION, "-2147483648", "Value must be at least 1"),
        (SESSION, "0", "Value must be at least 1"),
        (SESSION, "1", "greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "44999", "greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "60001", "less than or equal to group.consumer.max.session.timeout.ms"),
        (HEARTBEAT, "0", "Value must be at least 1"),
        (HEARTBEAT, "1", "greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        (ASSIGNMENT, "-1", "Value must be at least 0"),
        (ASSIGNMENT, "15001", "less than or equal to group.consumer.max.assignment.interval.ms"),
    ],
)
def test_values_that_are_none_are_refused_in_kafkas_words(name: str, value: str, text: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=text):
        check_consumer_settings(BROKER.__getitem__, {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [(SESSION, "45000"), (SESSION, " +60000 "), (HEARTBEAT, "5000"), (HEARTBEAT, "15000"), (ASSIGNMENT, "0")],
)
def test_the_ends_of_a_range_are_in_it(name: str, value: str) -> None:
    check_consumer_settings(BROKER.__getitem__, {name: value})


def test_the_session_timeout_is_above_the_heartbeat_interval() -> None:
    broker = {**BROKER, "group.consumer.min.session.timeout.ms": "5000"}
    check_consumer_settings(broker.__getitem__, {SESSION: "5001"})
    with pytest.raises(InvalidConfigurationError, match="must be greater than consumer.heartbeat.interval.ms"):
        check_consumer_settings(broker.__getitem__, {SESSION: "5000"})
