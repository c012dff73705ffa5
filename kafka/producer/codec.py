"""The codec and the level that a producer's settings ask for, found to be possible before anything is sent.

What there is to choose from, and what each takes as a level, is the table of :mod:`kafka.records.compression`; a codec
that is added there needs a row in ``kafka/config.py`` for its own level, and nothing here.

``compression_level`` is for the codec in use, so it is an error where that has none; ``compression_<codec>_level`` is
Java's way to say the same, and is passed over while another codec is in use, as it is there.

Source: KIP-390.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka.errors import KafkaConfigurationError
from kafka.records import CODEC_NAMES, NONE, Codec, codec_for

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
