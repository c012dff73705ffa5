"""Settings: Kafka's names, ranges and texts; where a value comes from."""

from __future__ import annotations

import pytest

from kafka.broker.config import (
    BROKER_SETTINGS,
    FROM_ALL_BROKERS,
    FROM_DEFAULT,
    FROM_STATIC,
    FROM_THIS_BROKER,
    TOPIC_SETTINGS,
    BrokerConfig,
    check_topic_settings,
)
from kafka.errors import InvalidConfigurationError, KafkaConfigurationError


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("nope", "1", "Unknown topic config name: nope"),
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("max.message.bytes", "99999999999", "Not a number of type INT"),
        ("cleanup.policy", "foo", "String must be one of: compact, delete"),
        ("cleanup.policy", "delete,foo", "Invalid value foo for configuration cleanup.policy"),
        ("min.cleanable.dirty.ratio", "2", "Invalid value 2.0 .*: Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "x", "Not a number of type DOUBLE"),
        ("preallocate", "maybe", "Expected value to be either true or false"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("segment.bytes", "1", "Value must be at least 1048576"),
    ],
)
def test_a_wrong_topic_setting_is_refused_in_kafkas_words(name: str, value: str, text: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=text):
        check_topic_settings({name: value})


def test_every_default_passes_its_own_check() -> None:
    for setting in (*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()):
        setting.check(setting.default)


@pytest.mark.parametrize(("end", "outside"), [("1", "0"), ("9", "10")])
def test_the_ends_of_a_range_are_in_it(end: str, outside: str) -> None:
    check_topic_settings({"compression.gzip.level": end})
    with pytest.raises(InvalidConfigurationError):
        check_topic_settings({"compression.gzip.level": outside})


def test_a_value_comes_from_the_nearest_place() -> None:
    config = BrokerConfig({"log.retention.ms": "5"})
    assert [(found.value, found.source) for found in config.sources("log.retention.ms")] == [
        ("5", FROM_STATIC),
        ("604800000", FROM_DEFAULT),
    ]
    config.dynamic[""] = {"log.retention.ms": "6"}
    config.dynamic["1"] = {"log.retention.ms": "7"}
    assert [found.source for found in config.sources("log.retention.ms")] == [
        FROM_THIS_BROKER,
        FROM_ALL_BROKERS,
        FROM_STATIC,
        FROM_DEFAULT,
    ]
    assert config.number("log.retention.ms") == 7


def test_an_unknown_broker_setting_names_the_nearest_one() -> None:
    with pytest.raises(KafkaConfigurationError, match="num.partition; did you mean num.partitions?"):
        BrokerConfig({"num.partition": "3"})


@pytest.mark.parametrize("value", ["0", "x", "1.5"])
def test_an_impossible_broker_setting_is_refused(value: str) -> None:
    with pytest.raises(KafkaConfigurationError, match="num.partitions"):
        BrokerConfig({"num.partitions": value})


def test_a_share_default_outside_of_its_own_range_is_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="share.record.lock.duration.ms"):
        BrokerConfig({"group.share.record.lock.duration.ms": "5000"})
    shorter = {"group.share.record.lock.duration.ms": "5000", "group.share.min.record.lock.duration.ms": "1000"}
    assert BrokerConfig(shorter).number("group.share.record.lock.duration.ms") == 5000
