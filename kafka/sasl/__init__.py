"""What a program that knows kafka-python finds here: the base class of token providers."""

from __future__ import annotations

from kafka.sasl.oauth import AbstractTokenProvider

__all__ = ["AbstractTokenProvider"]
