from __future__ import annotations

import pytest

from kafka.broker.share.group_configs import (
    BROKER_RANGES,
    GROUP_SETTINGS,
    BrokerLimits,
    OffsetReset,
    ShareGroupConfig,
    check_broker_limits,
    check_group_settings,
)
from kafka.broker.share.states import ShareSettings
from kafka.errors import InvalidConfigurationError

# Apache Kafka 4.3.0: ShareGroupConfig.CONFIG_DEF (record locks, delivery counts, sessions) and
# GroupCoordinatorConfig.CONFIG_DEF (size, session timeout, heartbeat, assignment).
BROKER_DEFAULTS = {
    "record_lock_duration_ms": 30_000,
    "min_record_lock_duration_ms": 15_000,
    "max_record_lock_duration_ms": 60_000,
    "delivery_count_limit": 5,
    "min_delivery_count_limit": 2,
    "max_delivery_count_limit": 10,
    "partition_max_record_locks": 2000,
    "min_partition_max_record_locks": 100,
    "max_partition_max_record_locks": 4000,
    "max_size": 200,
    "max_share_sessions": 2000,
    "session_timeout_ms": 45_000,
    "min_session_timeout_ms": 45_000,
    "max_session_timeout_ms": 60_000,
    "heartbeat_interval_ms": 5_000,
    "min_heartbeat_interval_ms": 5_000,
    "max_heartbeat_interval_ms": 15_000,
    "assignment_interval_ms": 1_000,
    "min_assignment_interval_ms": 0,
    "max_assignment_interval_ms": 15_000,
}
# The same classes: Range.between of each definition, Range.atLeast(1) of an INT for the sessions.
BROKER_BOUNDS = {
    "record_lock_duration_ms": (1000, 3_600_000),
    "min_record_lock_duration_ms": (1000, 30_000),
    "max_record_lock_duration_ms": (30_000, 3_600_000),
    "delivery_count_limit": (2, 10),
    "min_delivery_count_limit": (2, 5),
    "max_delivery_count_limit": (5, 25),
    "partition_max_record_locks": (100, 10_000),
    "min_partition_max_record_locks": (100, 2000),
    "max_partition_max_record_locks": (2000, 10_000),
    "max_size": (1, 1000),
    "max_share_sessions": (1, 2_147_483_647),
}
WIDEST = {
    "min_record_lock_duration_ms": 1000,
    "max_record_lock_duration_ms": 3_600_000,
    "min_delivery_count_limit": 2,
    "max_delivery_count_limit": 25,
    "min_partition_max_record_locks": 100,
    "max_partition_max_record_locks": 10_000,
}
# GroupConfig of 4.3.0, under the broker's defaults: what is in force, the lowest and the highest that may be set.
GROUP_NUMBERS = [
    ("share.record.lock.duration.ms", 30_000, 15_000, 60_000),
    ("share.delivery.count.limit", 5, 2, 10),
    ("share.partition.max.record.locks", 2000, 100, 4000),
    ("share.session.timeout.ms", 45_000, 45_000, 60_000),
    ("share.heartbeat.interval.ms", 5_000, 5_000, 15_000),
    ("share.assignment.interval.ms", 1_000, 0, 15_000),
]
GROUP_WORDS = [
    ("share.auto.offset.reset", "latest", ["latest", "earliest", "by_duration:PT1H"]),
    ("share.isolation.level", "read_uncommitted", ["read_uncommitted", "read_committed"]),
    ("share.renew.acknowledge.enable", "true", ["true", "false"]),
]


def test_the_defaults_are_kafkas_and_pass_their_own_checks() -> None:
    assert BrokerLimits()._asdict() == BROKER_DEFAULTS
    check_broker_limits(BrokerLimits())
    config = ShareGroupConfig(BrokerLimits())
    assert config.partition_settings() == ShareSettings(30.0, 5, 2000, True, False)
    assert config.offset_reset() == OffsetReset("latest", 0)


def test_there_are_no_settings_but_those_of_the_tables() -> None:
    assert set(GROUP_SETTINGS) == {name for name, *_ in GROUP_NUMBERS} | {name for name, *_ in GROUP_WORDS}


@pytest.mark.parametrize(("name", "default", "low", "high"), GROUP_NUMBERS)
def test_a_number_may_be_any_from_the_lowest_to_the_highest(name: str, default: int, low: int, high: int) -> None:
    limits = BrokerLimits()
    assert ShareGroupConfig(limits).number(name) == default
    for value in (low, high):
        check_group_settings(limits, {name: str(value)})
        assert ShareGroupConfig(limits, {name: str(value)}).number(name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidConfigurationError, match=f"from {low} to {high}, not {value}"):
            check_group_settings(limits, {name: str(value)})
    assert ShareGroupConfig(limits, {name: str(low - 1)}).number(name) == low
    assert ShareGroupConfig(limits, {name: str(high + 1)}).number(name) == high


@pytest.mark.parametrize(("name", "default", "words"), GROUP_WORDS)
def test_a_word_may_be_any_of_the_tables(name: str, default: str, words: list[str]) -> None:
    limits = BrokerLimits()
    assert ShareGroupConfig(limits).value(name) == default
    for word in words:
        check_group_settings(limits, {name: word})
        assert ShareGroupConfig(limits, {name: word}).value(name) == word
    with pytest.raises(InvalidConfigurationError):
        check_group_settings(limits, {name: "other"})


def test_the_error_of_an_unknown_offset_reset_lists_the_valid_ones() -> None:
    with pytest.raises(InvalidConfigurationError, match="latest, earliest, by_duration:PnDTnHnMn.nS, not 'never'"):
        check_group_settings(BrokerLimits(), {"share.auto.offset.reset": "never"})


def test_the_session_timeout_has_to_be_above_the_heartbeat_interval() -> None:
    limits = BrokerLimits(min_session_timeout_ms=5_000)
    with pytest.raises(InvalidConfigurationError, match="must be above"):
        check_group_settings(limits, {"share.session.timeout.ms": "5000"})
    check_group_settings(limits, {"share.session.timeout.ms": "5001"})


@pytest.mark.parametrize(("field", "low", "high"), [(field, *bounds) for field, bounds in BROKER_BOUNDS.items()])
def test_a_brokers_setting_may_be_any_from_the_lowest_to_the_highest(field: str, low: int, high: int) -> None:
    for value in (low, high):
        check_broker_limits(BrokerLimits(**{**WIDEST, field: value}))
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidConfigurationError, match=f"from {low} to {high}, not {value}"):
            check_broker_limits(BrokerLimits(**{**WIDEST, field: value}))


def test_only_these_settings_of_a_broker_are_bounded() -> None:
    assert set(BROKER_RANGES) == set(BROKER_BOUNDS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.record.lock.duration.ms", "5000"),
        ("share.record.lock.duration.ms", "60001"),
        ("share.delivery.count.limit", "11"),
        ("share.delivery.count.limit", "1"),
        ("share.partition.max.record.locks", "99"),
        ("share.partition.max.record.locks", "4001"),
        ("share.session.timeout.ms", "44999"),
        ("share.heartbeat.interval.ms", "4999"),
        ("share.assignment.interval.ms", "-1"),
        ("share.auto.offset.reset", "never"),
        ("share.auto.offset.reset", "by_duration:"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "by_duration:PnDTnHnMn.nS"),
        ("share.isolation.level", "read"),
        ("share.renew.acknowledge.enable", "yes"),
        ("share.delivery.count.limit", "many"),
        ("share.unheard.of", "1"),
    ],
)
def test_values_out_of_range_and_unknown_names_are_invalid(name: str, value: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=name.replace(".", r"\.")):
        check_group_settings(BrokerLimits(), {name: value})


def test_what_is_set_holds_and_the_rest_is_the_brokers() -> None:
    changes = {
        "share.record.lock.duration.ms": "15000",
        "share.delivery.count.limit": "10",
        "share.renew.acknowledge.enable": "false",
        "share.isolation.level": "read_committed",
        "share.assignment.interval.ms": "0",
    }
    check_group_settings(BrokerLimits(), changes)
    assert ShareGroupConfig(BrokerLimits(), changes).partition_settings() == ShareSettings(15.0, 10, 2000, False, True)


def test_a_value_stored_under_wider_limits_is_clamped() -> None:
    config = ShareGroupConfig(BrokerLimits(), {"share.record.lock.duration.ms": "600000"})
    assert config.number("share.record.lock.duration.ms") == 60_000


@pytest.mark.parametrize(
    ("text", "back_ms"), [("PT1H", 3_600_000), ("P1DT2M", 86_520_000), ("PT1.5S", 1500), ("P2D", 172_800_000)]
)
def test_a_group_may_begin_some_time_ago(text: str, back_ms: int) -> None:
    changes = {"share.auto.offset.reset": f"by_duration:{text}"}
    check_group_settings(BrokerLimits(), changes)
    assert ShareGroupConfig(BrokerLimits(), changes).offset_reset() == OffsetReset("by_duration", back_ms)


def test_broker_settings_have_ranges_too() -> None:
    with pytest.raises(InvalidConfigurationError):
        check_broker_limits(BrokerLimits(max_size=1001))
    with pytest.raises(InvalidConfigurationError):
        check_broker_limits(BrokerLimits(record_lock_duration_ms=5000))
