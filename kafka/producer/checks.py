"""Settings of a producer that exclude one another: data first, one function that reads it.

What one setting alone may be is its row in ``kafka/config.py``; here is what two of them cannot be together. Something
that the user asked for in so many words is never given up in silence: then it is an error that names both. A default
gives way.

To add a combination: a row in the table, and a line in its test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, Final

from kafka.errors import KafkaConfigurationError

Settings = Mapping[str, Any]

NOT_IDEMPOTENT: Final[tuple[tuple[str, Callable[[Any], bool]], ...]] = (
    ("acks", lambda value: value != -1),
    ("max_in_flight_requests_per_connection", lambda value: value > 5),
    ("retries", lambda value: value == 0),
)
"""What excludes idempotence (KIP-98): a setting, and with which values."""

BUILT_IN_PARTITIONER_ONLY: Final = (
    "partitioner_adaptive_partitioning_enable",
    "partitioner_availability_timeout_ms",
    "partitioner_ignore_keys",
)
"""What would mean nothing beside another ``partitioner``."""


def check_together(settings: dict[str, Any], given: Settings) -> None:
    """KafkaConfigurationError for what cannot be together. ``settings`` (resolved) are changed where a default gives
    way; ``given`` is what the user gave.

    Adds ``requires_idempotence``: whether a broker that has none is an error."""
    _check_idempotence(settings, given)
    _check_times(settings, given)
    if settings["partitioner"] is not None:
        for name in BUILT_IN_PARTITIONER_ONLY:
            if name in given:
                raise KafkaConfigurationError(
                    f"{name}={given[name]!r} is for the partitioner that is built in, and "
                    f"partitioner={given['partitioner']!r} is another"
                )


def _check_idempotence(settings: dict[str, Any], given: Settings) -> None:
    """A user who only set something that excludes idempotence did not ask for idempotence, and does without."""
    settings["requires_idempotence"] = bool(given.get("enable_idempotence"))
    conflict = next(
        (
            f"{name}={given.get(name, settings[name])!r}"
            for name, excludes in NOT_IDEMPOTENT
            if excludes(settings[name])
        ),
        None,
    )
    if settings["transactional_id"] is not None:
        if conflict is not None or not settings["enable_idempotence"]:
            raise KafkaConfigurationError(f"transactional_id excludes {conflict or 'enable_idempotence=False'}")
        settings["requires_idempotence"] = True
    if conflict is None or not settings["enable_idempotence"]:
        return
    if given.get("enable_idempotence"):
        raise KafkaConfigurationError(f"enable_idempotence=True excludes {conflict}")
    settings["enable_idempotence"] = False


def _check_times(settings: dict[str, Any], given: Settings) -> None:
    """A record has time for lingering and for one request (KIP-91); as in Java, the default makes room for both."""
    least = ceil(settings["linger_ms"] + settings["request_timeout_ms"])
    if settings["delivery_timeout_ms"] >= least:
        return
    if "delivery_timeout_ms" in given:
        raise KafkaConfigurationError(
            f"delivery_timeout_ms={settings['delivery_timeout_ms']} leaves no time for linger_ms="
            f"{settings['linger_ms']} and request_timeout_ms={settings['request_timeout_ms']}: "
            f"at least {least} is needed"
        )
    settings["delivery_timeout_ms"] = least
