"""Which codecs work here, under kafka-python's names. The codecs are in ``kafka/records/compression.py``."""

from __future__ import annotations

from kafka.records.compression import CODECS, works


def has_gzip() -> bool:
    """True: it is Python's own."""
    return _has("gzip")


def has_snappy() -> bool:
    """Whether the extra ``compression`` is installed."""
    return _has("snappy")


def has_lz4() -> bool:
    """The same."""
    return _has("lz4")


def has_zstd() -> bool:
    """The same."""
    return _has("zstd")


def _has(name: str) -> bool:
    return any(codec.name == name and works(codec) for codec in CODECS.values())
