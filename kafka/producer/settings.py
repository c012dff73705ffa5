"""A producer's settings, looked at together: which exclude one another, and which codec and level they ask for.

What one setting alone may be is its row in ``kafka/config.py``; here is what two of them cannot be together. Something
that the user asked for explicitly is never given up silently: then it is an error that names both. A default gives
way. To add a combination: a row in the table, and a line in its test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, Final, NamedTuple

from kafka.errors import KafkaConfigurationError
from kafka.records import CODEC_NAMES, NONE, Codec, codec_for

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


# The codec and the level that a producer's settings ask for, found to be possible before anything is sent.
#
# What there is to choose from, and what each takes as a level, is the table of :mod:`kafka.records.compression`; a
# codec that is added there needs a row in ``kafka/config.py`` for its own level, and nothing here.
#
# ``compression_level`` is for the codec in use, so it is an error where that has none; ``compression_<codec>_level`` is
# Java's way to say the same, and is passed over while another codec is in use, as it is there.
#
# Source: KIP-390.


_NUMBERS = {name: number for number, name in CODEC_NAMES.items()}


class ChosenCodec(NamedTuple):
    """A codec's number (0: none) and the level to use, None for the codec's own."""

    number: int
    level: int | None


def chosen_codec(settings: Mapping[str, Any]) -> ChosenCodec:
    """What resolved settings ask for.

    Errors: UnsupportedCodecError, with the name of the extra to install, when the codec's library is missing;
    KafkaConfigurationError for a level that the codec does not take.
    """
    name = settings["compression_type"]
    level = settings["compression_level"]
    if name is None:
        if level is not None:
            raise KafkaConfigurationError(f"compression_level={level} without a compression_type")
        return ChosenCodec(NONE, None)
    codec = codec_for(_NUMBERS[name])
    own_name = f"compression_{name}_level"
    own_level = settings.get(own_name)
    if own_level is not None:
        if level is not None and level != own_level:
            raise KafkaConfigurationError(f"compression_level={level} and {own_name}={own_level}: give one of them")
        level = own_level
    if level is not None:
        _check_level(codec, level)
    return ChosenCodec(codec.number, level)


def _check_level(codec: Codec, level: int) -> None:
    if codec.levels is None:
        raise KafkaConfigurationError(f"compression_level={level}: {codec.name} has no levels")
    least, most = codec.levels
    if not least <= level <= most and level != codec.default_level:
        default = "" if least <= codec.default_level <= most else f", or {codec.default_level} for its default"
        raise KafkaConfigurationError(f"compression_level={level}: {codec.name} takes {least} to {most}{default}")


