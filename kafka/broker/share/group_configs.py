"""Settings of share groups: names, defaults, ranges, and what they mean to a share partition.

A group's setting (IncrementalAlterConfigs, resource type GROUP) has to lie in the range that the broker's own settings
give, else the answer is INVALID_CONFIG (40); one that was stored under other ranges is clamped when it is read. The
table is Apache Kafka 4.3.0's. A new setting is one more row in ``GROUP_SETTINGS``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafka.broker.share.states import ShareSettings
from kafka.errors import InvalidConfigurationError


class BrokerLimits(NamedTuple):
    """The broker's ``group.share.*`` settings: defaults of the groups, and the ranges that they may choose from."""

    record_lock_duration_ms: int = 30_000
    min_record_lock_duration_ms: int = 15_000
    max_record_lock_duration_ms: int = 60_000
    delivery_count_limit: int = 5
    min_delivery_count_limit: int = 2
    max_delivery_count_limit: int = 10
    partition_max_record_locks: int = 2000
    min_partition_max_record_locks: int = 100
    max_partition_max_record_locks: int = 4000
    max_size: int = 200
    max_share_sessions: int = 2000
    session_timeout_ms: int = 45_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    assignment_interval_ms: int = 1_000
    min_assignment_interval_ms: int = 0
    max_assignment_interval_ms: int = 15_000


BROKER_RANGES: Final[Mapping[str, tuple[int, int]]] = {
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
    "max_share_sessions": (1, 2**31 - 1),
}
"""Field of :class:`BrokerLimits` -> lowest and highest value, where Kafka bounds it."""


class IntGroupConfig(NamedTuple):
    """A whole number; ``field`` of :class:`BrokerLimits` is its default, ``min_`` and ``max_`` of it its range."""

    field: str

    def default(self, limits: BrokerLimits) -> str:
        return str(getattr(limits, self.field))

    def bounds(self, limits: BrokerLimits) -> tuple[int, int]:
        return int(getattr(limits, "min_" + self.field)), int(getattr(limits, "max_" + self.field))

    def check(self, name: str, value: str, limits: BrokerLimits) -> None:
        low, high = self.bounds(limits)
        try:
            number = int(value)
        except ValueError:
            raise InvalidConfigurationError(f"{name} must be a whole number, not {value!r}") from None
        if not low <= number <= high:
            raise InvalidConfigurationError(f"{name} must be from {low} to {high}, not {number}")


class EnumGroupConfig(NamedTuple):
    """One of some words; ``pattern`` is a further form that is allowed."""

    words: tuple[str, ...]
    fallback: str
    pattern: re.Pattern[str] | None = None

    def default(self, limits: BrokerLimits) -> str:
        return self.fallback

    def check(self, name: str, value: str, limits: BrokerLimits) -> None:
        if value not in self.words and not (self.pattern and self.pattern.fullmatch(value)):
            raise InvalidConfigurationError(f"{name} must be one of {', '.join(self.words)}, not {value!r}")


_ISO_DURATION = (
    r"P(?!$)(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?"
)
_BY_DURATION = re.compile("by_duration:" + _ISO_DURATION)

GROUP_SETTINGS: Final[Mapping[str, IntGroupConfig | EnumGroupConfig]] = {
    "share.auto.offset.reset": EnumGroupConfig(
        ("latest", "earliest", "by_duration:PnDTnHnMn.nS"), "latest", _BY_DURATION
    ),
    "share.record.lock.duration.ms": IntGroupConfig("record_lock_duration_ms"),
    "share.delivery.count.limit": IntGroupConfig("delivery_count_limit"),
    "share.partition.max.record.locks": IntGroupConfig("partition_max_record_locks"),
    "share.isolation.level": EnumGroupConfig(("read_uncommitted", "read_committed"), "read_uncommitted"),
    "share.renew.acknowledge.enable": EnumGroupConfig(("true", "false"), "true"),
    "share.session.timeout.ms": IntGroupConfig("session_timeout_ms"),
    "share.heartbeat.interval.ms": IntGroupConfig("heartbeat_interval_ms"),
    "share.assignment.interval.ms": IntGroupConfig("assignment_interval_ms"),
}


class OffsetReset(NamedTuple):
    """Where a group begins on a partition: ``earliest``, ``latest``, or ``by_duration`` with how many ms back."""

    strategy: str
    back_ms: int = 0


class ShareGroupConfig:
    """One group's settings: what was set for it, over the broker's defaults."""

    def __init__(self, limits: BrokerLimits, overrides: Mapping[str, str] | None = None) -> None:
        self.limits = limits
        self.overrides: dict[str, str] = dict(overrides or {})

    def value(self, name: str) -> str:
        """The value in force, as text: set, clamped to the broker's range, or the default."""
        setting = GROUP_SETTINGS[name]
        text = self.overrides.get(name)
        if text is None:
            return setting.default(self.limits)
        if isinstance(setting, IntGroupConfig):
            low, high = setting.bounds(self.limits)
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


def check_group_settings(limits: BrokerLimits, changes: Mapping[str, str]) -> None:
    """Raise ``InvalidConfigurationError`` (40) for an unknown name, or a value that is malformed or out of range."""
    for name, value in changes.items():
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            raise InvalidConfigurationError(f"Unknown group config name: {name}")
        if value == "by_duration:PnDTnHnMn.nS":
            raise InvalidConfigurationError(f"{name}: {value!r} is the form, not a value")
        setting.check(name, value, limits)
    timeout, interval = "share.session.timeout.ms", "share.heartbeat.interval.ms"
    config = ShareGroupConfig(limits, changes)
    if config.number(timeout) <= config.number(interval):
        raise InvalidConfigurationError(f"{timeout} must be above {interval}")


def check_broker_limits(limits: BrokerLimits) -> None:
    """Raise ``InvalidConfigurationError`` for a broker setting outside of Kafka's range, or default outside of its
    own.
    """
    for field, (low, high) in BROKER_RANGES.items():
        value = getattr(limits, field)
        if not low <= value <= high:
            name = "group.share." + field.replace("_", ".")
            raise InvalidConfigurationError(f"{name} must be from {low} to {high}, not {value}")
    for name, setting in GROUP_SETTINGS.items():
        if isinstance(setting, IntGroupConfig):
            setting.check(name, setting.default(limits), limits)


def _duration_ms(match: re.Match[str]) -> int:
    parts = {unit: float(text) for unit, text in match.groupdict().items() if text}
    seconds = ((parts.get("days", 0) * 24 + parts.get("hours", 0)) * 60 + parts.get("minutes", 0)) * 60
    return round((seconds + parts.get("seconds", 0)) * 1000)
