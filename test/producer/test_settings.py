"""The settings of compression: what is taken, what is refused, and what the refusal says."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kafka import KafkaProducer
from kafka.config import resolve
from kafka.errors import KafkaConfigurationError, UnsupportedCodecError
from kafka.producer.settings import ChosenCodec, chosen_codec


def chosen(**given: Any) -> ChosenCodec:
    return chosen_codec(resolve("producer", given))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (0, None)),
        ({"compression_type": None}, (0, None)),
        ({"compression_type": "none"}, (0, None)),
        ({"compression_type": "gzip"}, (1, None)),
        ({"compression_type": "snappy"}, (2, None)),
        ({"compression_type": "lz4"}, (3, None)),
        ({"compression_type": "zstd"}, (4, None)),
        ({"compression_type": "gzip", "compression_level": 9}, (1, 9)),
        ({"compression_type": "gzip", "compression_level": -1}, (1, -1)),
        ({"compression_type": "gzip", "compression_gzip_level": -1}, (1, -1)),
        ({"compression_type": "lz4", "compression_level": 17}, (3, 17)),
        ({"compression_type": "zstd", "compression_level": -131072}, (4, -131072)),
        ({"compression_type": "zstd", "compression_zstd_level": 22}, (4, 22)),
        ({"compression_type": "zstd", "compression_zstd_level": 5, "compression_level": 5}, (4, 5)),
        ({"compression_type": "zstd", "compression_lz4_level": 5}, (4, None)),
        ({"compression_gzip_level": 5}, (0, None)),
    ],
)
def test_type_and_level_are_as_java_and_kafka_python_name_them(
    given: dict[str, Any], expected: tuple[int, int | None]
) -> None:
    assert chosen(**given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"compression_type": "brotli"}, "compression_type='brotli'.*'zstd'"),
        ({"compression_type": 1}, "compression_type=1"),
        ({"compression_type": "gzip", "compression_level": 0}, "gzip takes 1 to 9, or -1"),
        ({"compression_type": "gzip", "compression_level": 10}, "gzip takes 1 to 9"),
        ({"compression_type": "lz4", "compression_level": 0}, "lz4 takes 1 to 17"),
        ({"compression_type": "lz4", "compression_level": 18}, "lz4 takes 1 to 17"),
        ({"compression_type": "lz4", "compression_level": -1}, "lz4 takes 1 to 17"),
        ({"compression_type": "zstd", "compression_level": 23}, "compression_level=23: zstd takes -131072 to 22"),
        ({"compression_type": "gzip", "compression_level": 99}, "compression_level=99: gzip takes 1 to 9, or -1"),
        ({"compression_type": "zstd", "compression_zstd_level": -131073}, "compression_zstd_level=-131073"),
        ({"compression_gzip_level": 0}, "compression_gzip_level=0"),
        ({"compression_type": "snappy", "compression_level": 1}, "snappy has no levels"),
        ({"compression_level": 3}, "compression_level=3 without a compression_type"),
        ({"compression_type": "zstd", "compression_zstd_level": 5, "compression_level": 6}, "give one of them"),
    ],
)
def test_what_cannot_be_is_refused_at_construction(given: dict[str, Any], message: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=message):
        KafkaProducer(bootstrap_servers="localhost:1", **given)


@pytest.mark.parametrize("name", ["snappy", "lz4", "zstd"])
def test_a_codec_whose_library_is_missing_is_an_error_at_construction_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(UnsupportedCodecError, match=rf"{name} needs .*pip install 'kafka-taskloop\[compression\]'"):
        KafkaProducer(bootstrap_servers="localhost:1", compression_type=name)
    assert chosen(compression_type="gzip") == (1, None)
