"""Settings of groups of consumers and share groups: what a group may set, within what range, and what it means.

    consumer.NAME, share.NAME                what was set for a group (IncrementalAlterConfigs, resource type GROUP)
    group.share.NAME                         the broker's: a number's default
    group.share.min.NAME, group.share.max.NAME   and the range that a group's own has to lie in

A value outside of its range gets INVALID_CONFIG (40); one that was stored under other ranges is clamped when it is
read. The table is Apache Kafka 4.3.0's. To add a setting: a row in ``GROUP_SETTINGS``, and for a number the broker's
three in ``config.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kafka.broker.share.states import ShareSettings
from kafka.errors import InvalidConfigurationError

BrokerValue = Callable[[str], str]
"""The broker's value of a setting in force."""


class GroupSetting(NamedTuple):
    """A whole number from ``low`` on; or one of ``words``, the first of which is the default, or a text that fits
    ``pattern``."""

    name: str
    low: int = 0
    words: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    @property
    def is_number(self) -> bool:
        return not self.words

    @property
    def broker_name(self) -> str:
        """Of a number: the broker's setting that is its default."""
        return f"group.{self.name}"

    @property
    def minimum(self) -> str:
        return "group." + self.name.replace(".", ".min.", 1)

    @property
    def maximum(self) -> str:
        return "group." + self.name.replace(".", ".max.", 1)

    def default(self, broker: BrokerValue) -> str:
        return self.words[0] if self.words else broker(self.broker_name)

    def range(self, broker: BrokerValue) -> tuple[int, int]:
        """Of a number: the lowest and the highest that a group may set."""
        return int(broker(self.minimum)), int(broker(self.maximum))


_ISO_DURATION = (
    r"P(?!$)(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?"
)
_BY_DURATION: Final = re.compile("by_duration:" + _ISO_DURATION)
_DURATION_FORM: Final = "by_duration:PnDTnHnMn.nS"

CONSUMER_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
CONSUMER_ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"

GROUP_SETTINGS: Final[Mapping[str, GroupSetting]] = {
    row.name: row
    for row in (
        GroupSetting("share.auto.offset.reset", words=("latest", "earliest", _DURATION_FORM), pattern=_BY_DURATION),
        GroupSetting("share.record.lock.duration.ms"),
        GroupSetting("share.delivery.count.limit"),
        GroupSetting("share.partition.max.record.locks"),
        GroupSetting("share.isolation.level", words=("read_uncommitted", "read_committed")),
        GroupSetting("share.renew.acknowledge.enable", words=("true", "false")),
        GroupSetting(SHARE_SESSION_TIMEOUT),
        GroupSetting(SHARE_HEARTBEAT_INTERVAL),
        GroupSetting("share.assignment.interval.ms"),
        GroupSetting(CONSUMER_SESSION_TIMEOUT, 1),
        GroupSetting(CONSUMER_HEARTBEAT_INTERVAL, 1),
        GroupSetting(CONSUMER_ASSIGNMENT_INTERVAL, 0),
    )
}
CONSUMER_SETTINGS: Final = frozenset(name for name in GROUP_SETTINGS if name.startswith("consumer."))
"""Those of groups of consumers; the others are share groups'."""


class OffsetReset(NamedTuple):
    """Where a group begins on a partition: ``earliest``, ``latest``, or ``by_duration`` with how many ms back."""

    strategy: str
    back_ms: int = 0


class GroupConfig:
    """One group's settings: ``own``, what was set for it, over the broker's defaults."""

    def __init__(self, broker: BrokerValue, own: Mapping[str, str] | None = None) -> None:
        self.broker = broker
        self.own = {} if own is None else own

    def value(self, name: str) -> str:
        """The value in force, as text: set, clamped to the broker's range, or the default."""
        setting = GROUP_SETTINGS[name]
        text = self.own.get(name)
        if text is None:
            return setting.default(self.broker)
        if setting.is_number:
            low, high = setting.range(self.broker)
            return str(min(max(int(text), low), high))
        return text

    def number(self, name: str) -> int:
        """As :meth:`value`, for the settings that are numbers."""
        return int(self.value(name))

    def partition_settings(self) -> ShareSettings:
        """What this means to a share partition."""
        return ShareSettings(
            lock_s=self.number("share.record.lock.duration.ms") / 1000,
            delivery_limit=self.number("share.delivery.count.limit"),
            max_locks=self.number("share.partition.max.record.locks"),
            renew_enabled=self.value("share.renew.acknowledge.enable") == "true",
            read_committed=self.value("share.isolation.level") == "read_committed",
        )

    def offset_reset(self) -> OffsetReset:
        """Where the group begins on a partition that it has no state of."""
        text = self.value("share.auto.offset.reset")
        match = _BY_DURATION.fullmatch(text)
        return OffsetReset("by_duration", _duration_ms(match)) if match else OffsetReset(text)


class ConsumerSettings(NamedTuple):
    """What is in force for one group of consumers. ``assignors``: their names, the default first."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")


def consumer_settings(broker: BrokerValue, own: Mapping[str, str]) -> ConsumerSettings:
    """``own``: what was set for the group."""
    config = GroupConfig(broker, own)
    return ConsumerSettings(
        config.number(CONSUMER_SESSION_TIMEOUT),
        config.number(CONSUMER_HEARTBEAT_INTERVAL),
        config.number(CONSUMER_ASSIGNMENT_INTERVAL),
        int(broker("group.consumer.max.size")),
        tuple(part.strip() for part in broker("group.consumer.assignors").split(",") if part.strip()),
    )


# -- checks ------------------------------------------------------------------------------------------------------------


def check_group_settings(broker: BrokerValue, changed: Mapping[str, str]) -> None:
    """Raise InvalidConfigurationError (40) for an unknown name, or a value that is malformed or out of range.
    ``changed``: all that a group is to have."""
    _check_consumer_settings(broker, {name: value for name, value in changed.items() if name in CONSUMER_SETTINGS})
    for name, value in changed.items():
        if name not in GROUP_SETTINGS:
            raise InvalidConfigurationError(f"Unknown group config name: {name}")
        if name not in CONSUMER_SETTINGS:
            _check_share_setting(GROUP_SETTINGS[name], value, broker)
    config = GroupConfig(broker, changed)
    if config.number(SHARE_SESSION_TIMEOUT) <= config.number(SHARE_HEARTBEAT_INTERVAL):
        raise InvalidConfigurationError(f"{SHARE_SESSION_TIMEOUT} must be above {SHARE_HEARTBEAT_INTERVAL}")


def _check_consumer_settings(broker: BrokerValue, changed: Mapping[str, str]) -> None:
    """With Kafka's texts."""
    for name, value in changed.items():
        wrong = f"Invalid value {value} for configuration {name}"
        digits = value.strip().lstrip("+-")
        if not (digits.isascii() and digits.isdigit() and -(2**31) <= int(value) < 2**31):
            raise InvalidConfigurationError(f"{wrong}: Not a number of type INT")
        if int(value) < GROUP_SETTINGS[name].low:
            raise InvalidConfigurationError(f"{wrong}: Value must be at least {GROUP_SETTINGS[name].low}")
    for name, value in changed.items():
        row = GROUP_SETTINGS[name]
        low, high = row.range(broker)
        if int(value) < low:
            raise InvalidConfigurationError(f"{name} must be greater than or equal to {row.minimum}")
        if int(value) > high:
            raise InvalidConfigurationError(f"{name} must be less than or equal to {row.maximum}")
    in_force = consumer_settings(broker, changed)
    if in_force.session_timeout_ms <= in_force.heartbeat_interval_ms:
        raise InvalidConfigurationError(
            f"{CONSUMER_SESSION_TIMEOUT} must be greater than {CONSUMER_HEARTBEAT_INTERVAL}"
        )


def _check_share_setting(row: GroupSetting, value: str, broker: BrokerValue) -> None:
    if not row.is_number:
        if value == _DURATION_FORM:
            raise InvalidConfigurationError(f"{row.name}: {value!r} is the form, not a value")
        if value not in row.words and not (row.pattern and row.pattern.fullmatch(value)):
            raise InvalidConfigurationError(f"{row.name} must be one of {', '.join(row.words)}, not {value!r}")
        return
    low, high = row.range(broker)
    try:
        number = int(value)
    except ValueError:
        raise InvalidConfigurationError(f"{row.name} must be a whole number, not {value!r}") from None
    if not low <= number <= high:
        raise InvalidConfigurationError(f"{row.name} must be from {low} to {high}, not {number}")


def check_share_defaults(broker: BrokerValue) -> None:
    """Raise InvalidConfigurationError for a default of share groups that is outside of its own range."""
    for name, setting in GROUP_SETTINGS.items():
        if setting.is_number and name not in CONSUMER_SETTINGS:
            _check_share_setting(setting, setting.default(broker), broker)


def _duration_ms(match: re.Match[str]) -> int:
    parts = {unit: float(text) for unit, text in match.groupdict().items() if text}
    seconds = ((parts.get("days", 0) * 24 + parts.get("hours", 0)) * 60 + parts.get("minutes", 0)) * 60
    return round((seconds + parts.get("seconds", 0)) * 1000)
