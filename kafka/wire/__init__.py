"""Bytes and values: primitives, messages as classes, their codec, frames, CRC-32C. Knows no message of Kafka's."""

from __future__ import annotations
