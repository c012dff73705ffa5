from __future__ import annotations

import pytest

from kafka.broker.share.group_configs import (
    GROUP_SETTINGS,
    BrokerLimits,
    OffsetReset,
    ShareGroupConfig,
    check_broker_limits,
    check_group_settings,
)
from kafka.broker.share.states import ShareSettings
from kafka.errors import InvalidConfigurationError


def test_the_defaults_are_kafkas_and_pass_their_own_checks() -> None:
    check_broker_limits(BrokerLimits())
    config = ShareGroupConfig(BrokerLimits())
    check_group_settings(BrokerLimits(), {name: config.value(name) for name in GROUP_SETTINGS})
    assert config.partition_settings() == ShareSettings(30.0, 5, 2000, True, False)
    assert config.offset_reset() == OffsetReset("latest")


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
