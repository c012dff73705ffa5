"""Deserialisers as users write them, made alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Deserialize = Callable[[str, Any, Any], Any]
"""``(topic, headers, bytes or None) -> value``."""


def deserializer_for(given: Any) -> Deserialize | None:
    """``given`` is a function of the bytes, an object with ``deserialize(topic, headers, data)`` (kafka-python 3) or
    one with ``deserialize(topic, data)`` (kafka-python 2); None leaves the bytes alone. It is called with None for
    a missing key or value, too."""
    if given is None:
        return None
    method = getattr(given, "deserialize", None)
    if method is None:
        return lambda _topic, _headers, data: given(data)
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    if code is not None and code.co_argcount - (1 if hasattr(method, "__self__") else 0) == 2:
        return lambda topic, _headers, data: method(topic, data)
    run: Deserialize = method
    return run
