"""Bytes and values: primitives, messages as classes, their codec, frames, CRC-32C. Independent of Kafka's messages."""

from __future__ import annotations
