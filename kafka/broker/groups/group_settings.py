"""Settings of groups of consumers: the broker's ``group.*`` and ``group.consumer.*``, and what one group may set.

A group's own (IncrementalAlterConfigs, resource type GROUP) have to lie in the range that the broker's give, else the
answer is INVALID_CONFIG (40); one that was stored under other ranges is clamped. To add one: a row in
``GROUP_NUMBERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kafka.errors import InvalidConfigurationError


class GroupNumber(NamedTuple):
    """One setting of a group: the broker's with its default, and those with its range."""

    name: str
    low: int

    @property
    def default(self) -> str:
        return f"group.{self.name}"

    @property
    def minimum(self) -> str:
        return self.default.replace("consumer.", "consumer.min.")

    @property
    def maximum(self) -> str:
        return self.default.replace("consumer.", "consumer.max.")


SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"

GROUP_NUMBERS: Final[Mapping[str, GroupNumber]] = {
    row.name: row
    for row in (
        GroupNumber(SESSION_TIMEOUT, 1),
        GroupNumber(HEARTBEAT_INTERVAL, 1),
        GroupNumber(ASSIGNMENT_INTERVAL, 0),
    )
}
"""What a group of consumers may set for itself."""


class ConsumerSettings(NamedTuple):
    """What is in force for one group. ``assignors``: their names, the default first."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")


def consumer_settings(broker: Callable[[str], str], own: Mapping[str, str]) -> ConsumerSettings:
    """``broker``: the broker's value of a setting; ``own``: what was set for the group."""

    def number(name: str) -> int:
        row = GROUP_NUMBERS[name]
        if name not in own:
            return int(broker(row.default))
        return min(max(int(own[name]), int(broker(row.minimum))), int(broker(row.maximum)))

    return ConsumerSettings(
        number(SESSION_TIMEOUT),
        number(HEARTBEAT_INTERVAL),
        number(ASSIGNMENT_INTERVAL),
        int(broker("group.consumer.max.size")),
        tuple(part.strip() for part in broker("group.consumer.assignors").split(",") if part.strip()),
    )


def check_consumer_settings(broker: Callable[[str], str], changed: Mapping[str, str]) -> None:
    """Raise InvalidConfigurationError (40) with Kafka's text. ``changed``: a group's own, of the names in
    ``GROUP_NUMBERS``."""
    for name, value in changed.items():
        row = GROUP_NUMBERS[name]
        digits = value.strip().lstrip("+-")
        if not (digits.isascii() and digits.isdigit() and -(2**31) <= int(value) < 2**31):
            raise InvalidConfigurationError(
                f"Invalid value {value} for configuration {name}: Not a number of type INT"
            )
        if int(value) < row.low:
            raise InvalidConfigurationError(
                f"Invalid value {value} for configuration {name}: Value must be at least {row.low}"
            )
    for name, value in changed.items():
        row = GROUP_NUMBERS[name]
        if int(value) < int(broker(row.minimum)):
            raise InvalidConfigurationError(f"{name} must be greater than or equal to {row.minimum}")
        if int(value) > int(broker(row.maximum)):
            raise InvalidConfigurationError(f"{name} must be less than or equal to {row.maximum}")
    in_force = consumer_settings(broker, changed)
    if in_force.session_timeout_ms <= in_force.heartbeat_interval_ms:
        raise InvalidConfigurationError(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")
