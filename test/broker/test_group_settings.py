from __future__ import annotations

import pytest

from kafka.broker.config import BROKER_SETTINGS, BrokerConfig
from kafka.broker.group_settings import (
    CONSUMER_SETTINGS,
    GROUP_SETTINGS,
    ConsumerSettings,
    GroupConfig,
    OffsetReset,
    check_group_settings,
    consumer_settings,
)
from kafka.broker.share.states import ShareSettings
from kafka.errors import InvalidConfigurationError, KafkaConfigurationError


def share_name(field: str) -> str:
    return "group.share." + field.replace("_", ".")


def broker_config(**fields: int) -> BrokerConfig:
    """A broker whose settings of share groups are these."""
    return BrokerConfig({share_name(field): str(value) for field, value in fields.items()})


SHARE = BrokerConfig().value

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
    rows = {name: int(row.default) for name, row in BROKER_SETTINGS.items() if name.startswith("group.share.")}
    assert rows == {share_name(field): value for field, value in BROKER_DEFAULTS.items()}
    config = GroupConfig(SHARE)
    assert config.partition_settings() == ShareSettings(30.0, 5, 2000, True, False)
    assert config.offset_reset() == OffsetReset("latest", 0)


def test_there_are_no_settings_but_those_of_the_tables() -> None:
    names = {name for name, *_ in GROUP_NUMBERS} | {name for name, *_ in GROUP_WORDS}
    assert set(GROUP_SETTINGS) - CONSUMER_SETTINGS == names


@pytest.mark.parametrize(("name", "default", "low", "high"), GROUP_NUMBERS)
def test_a_number_may_be_any_from_the_lowest_to_the_highest(name: str, default: int, low: int, high: int) -> None:
    assert GroupConfig(SHARE).number(name) == default
    for value in (low, high):
        check_group_settings(SHARE, {name: str(value)})
        assert GroupConfig(SHARE, {name: str(value)}).number(name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidConfigurationError, match=f"from {low} to {high}, not {value}"):
            check_group_settings(SHARE, {name: str(value)})
    assert GroupConfig(SHARE, {name: str(low - 1)}).number(name) == low
    assert GroupConfig(SHARE, {name: str(high + 1)}).number(name) == high


@pytest.mark.parametrize(("name", "default", "words"), GROUP_WORDS)
def test_a_word_may_be_any_of_the_tables(name: str, default: str, words: list[str]) -> None:
    assert GroupConfig(SHARE).value(name) == default
    for word in words:
        check_group_settings(SHARE, {name: word})
        assert GroupConfig(SHARE, {name: word}).value(name) == word
    with pytest.raises(InvalidConfigurationError):
        check_group_settings(SHARE, {name: "other"})


def test_the_error_of_an_unknown_offset_reset_lists_the_valid_ones() -> None:
    with pytest.raises(InvalidConfigurationError, match="latest, earliest, by_duration:PnDTnHnMn.nS, not 'never'"):
        check_group_settings(SHARE, {"share.auto.offset.reset": "never"})


def test_the_session_timeout_has_to_be_above_the_heartbeat_interval() -> None:
    limits = broker_config(min_session_timeout_ms=5_000).value
    with pytest.raises(InvalidConfigurationError, match="must be above"):
        check_group_settings(limits, {"share.session.timeout.ms": "5000"})
    check_group_settings(limits, {"share.session.timeout.ms": "5001"})


@pytest.mark.parametrize(("field", "low", "high"), [(field, *bounds) for field, bounds in BROKER_BOUNDS.items()])
def test_a_brokers_setting_may_be_any_from_the_lowest_to_the_highest(field: str, low: int, high: int) -> None:
    for value in (low, high):
        broker_config(**{**WIDEST, field: value})
    for value, why in ((low - 1, f"at least {low}"), (high + 1, f"no more than {high}|Not a number of type INT")):
        said = f"Invalid value {value} for .*{share_name(field)}: .*({why})"
        with pytest.raises(KafkaConfigurationError, match=said):
            broker_config(**{**WIDEST, field: value})


def test_only_these_settings_of_a_broker_are_bounded() -> None:
    bounded = {
        name for name, row in BROKER_SETTINGS.items() if name.startswith("group.share.") and row.high is not None
    }
    assert bounded == {share_name(field) for field in BROKER_BOUNDS}


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
        check_group_settings(SHARE, {name: value})


def test_what_is_set_holds_and_the_rest_is_the_brokers() -> None:
    changes = {
        "share.record.lock.duration.ms": "15000",
        "share.delivery.count.limit": "10",
        "share.renew.acknowledge.enable": "false",
        "share.isolation.level": "read_committed",
        "share.assignment.interval.ms": "0",
    }
    check_group_settings(SHARE, changes)
    assert GroupConfig(SHARE, changes).partition_settings() == ShareSettings(15.0, 10, 2000, False, True)


def test_a_value_stored_under_wider_limits_is_clamped() -> None:
    config = GroupConfig(SHARE, {"share.record.lock.duration.ms": "600000"})
    assert config.number("share.record.lock.duration.ms") == 60_000


@pytest.mark.parametrize(
    ("text", "back_ms"), [("PT1H", 3_600_000), ("P1DT2M", 86_520_000), ("PT1.5S", 1500), ("P2D", 172_800_000)]
)
def test_a_group_may_begin_some_time_ago(text: str, back_ms: int) -> None:
    changes = {"share.auto.offset.reset": f"by_duration:{text}"}
    check_group_settings(SHARE, changes)
    assert GroupConfig(SHARE, changes).offset_reset() == OffsetReset("by_duration", back_ms)


def test_broker_settings_have_ranges_too() -> None:
    with pytest.raises(KafkaConfigurationError):
        broker_config(max_size=1001)
    with pytest.raises(KafkaConfigurationError):
        broker_config(record_lock_duration_ms=5000)


# -- groups of consumers ---------------------------------------------------------------------------------------------

# GroupCoordinatorConfig of 4.3.0: the defaults of the broker.
BROKER = {
    **{name: row.default for name, row in BROKER_SETTINGS.items() if name.startswith("group.share.")},
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


def test_the_defaults_of_groups_of_consumers_are_kafkas() -> None:
    expected = (45_000, 5_000, 1_000, 2_147_483_647, ("uniform", "range"))
    assert tuple(ConsumerSettings()) == expected
    assert tuple(consumer_settings(BROKER.__getitem__, {})) == expected


def test_a_group_may_set_three_numbers_from_a_lowest_value_on() -> None:
    """GroupConfig.CONFIG_DEF of 4.3.0: atLeast(1), atLeast(1), atLeast(0)."""
    assert {name: GROUP_SETTINGS[name].low for name in CONSUMER_SETTINGS} == {SESSION: 1, HEARTBEAT: 1, ASSIGNMENT: 0}


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
        check_group_settings(BROKER.__getitem__, {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [(SESSION, "45000"), (SESSION, " +60000 "), (HEARTBEAT, "5000"), (HEARTBEAT, "15000"), (ASSIGNMENT, "0")],
)
def test_the_ends_of_a_range_are_in_it(name: str, value: str) -> None:
    check_group_settings(BROKER.__getitem__, {name: value})


def test_a_consumers_session_timeout_is_above_the_heartbeat_interval() -> None:
    broker = {**BROKER, "group.consumer.min.session.timeout.ms": "5000"}
    check_group_settings(broker.__getitem__, {SESSION: "5001"})
    with pytest.raises(InvalidConfigurationError, match="must be greater than consumer.heartbeat.interval.ms"):
        check_group_settings(broker.__getitem__, {SESSION: "5000"})
