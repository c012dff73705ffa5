"""Checks of arguments that several clients have: errors are raised by the call itself. And users' deserializers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import six

from kafka.errors import IllegalArgumentError

MAX_TOPIC_LENGTH: Final = 249
_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name(topic: Any) -> str:
    """A topic as text; TypeError, or IllegalArgumentError for a name that no broker takes."""
    if not isinstance(topic, (six.text_type, six.binary_type)):
        raise TypeError(f"topics: each has to be a text, not {type(topic).__name__}")
    name = six.ensure_text(topic)
    fault = topic_name_fault(name)
    if fault is not None:
        raise IllegalArgumentError(fault)
    return name


def topic_name_fault(name: str) -> str | None:
    """Why no broker takes a topic of that name (``Topic.validate``); None when it does."""
    if _LEGAL_TOPIC.fullmatch(name) and name not in (".", "..") and len(name) <= MAX_TOPIC_LENGTH:
        return None
    return (
        f"{name[:300]!r}: a topic's name has 1 to {MAX_TOPIC_LENGTH} of the characters a-z A-Z 0-9 . _ - "
        "and is neither '.' nor '..'"
    )


def topic_names(topics: Any) -> list[str]:
    """Topics as texts, each once."""
    if isinstance(topics, (six.text_type, six.binary_type)):
        raise TypeError("topics: a list of texts is needed, not one text")
    return list(dict.fromkeys(topic_name(topic) for topic in topics))


def max_records(given: Any, default: int) -> int:
    """The most records that a call returns; None is the default. TypeError or IllegalArgumentError."""
    if given is None:
        return default
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"max_records: a whole number is needed, not {given!r}")
    if given < 1:
        raise IllegalArgumentError(f"max_records: at least 1, not {given}")
    return given


def timeout_s(timeout_ms: Any, default_s: float) -> float:
    """``timeout_ms`` in seconds; None is the default. IllegalArgumentError when it is negative or no number."""
    if timeout_ms is None:
        return default_s
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, (int, float)) or not timeout_ms >= 0:
        raise IllegalArgumentError(f"timeout_ms: a number of at least 0 is needed, not {timeout_ms!r}")
    return timeout_ms / 1000


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
