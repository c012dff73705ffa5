"""Serializers, with kafka-python 3's names and shapes.

A producer takes as ``key_serializer`` and ``value_serializer`` any function of the value, any object with
``serialize(topic, headers, data)`` (kafka-python 3, Java) or ``serialize(topic, data)`` (kafka-python 2); a consumer
the reverse. Deriving from these classes is a convenience, and never a condition.
"""

from __future__ import annotations

from kafka.serializer.abstract import Deserializer, Serializer
from kafka.serializer.default import DefaultSerializer
from kafka.serializer.json import JsonSerializer

__all__ = ["DefaultSerializer", "Deserializer", "JsonSerializer", "Serializer"]
