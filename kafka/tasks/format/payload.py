"""Arguments and results as bytes: JSON, so far.

A call is ``{"args": [...], "kwargs": {...}}``, a result any value.

JSON carries None, booleans, numbers, texts, lists and dicts with text keys; a tuple arrives as a list. What would be
changed silently otherwise is refused: keys that are no texts (JSON would make ``{1: 2}`` into ``{"1": 2}``), NaN and
the infinities. Another format is one more pair of functions here and a ``content-type`` header in the envelope.
"""

from __future__ import annotations

import json
import re
from typing import Any

from kafka.tasks.errors import BadRecord, NotSerialisable

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode
_SCALARS = frozenset({str, int, float, bool, type(None)})
_WORDS = {None: b"null", True: b"true", False: b"false"}
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_decode = json.JSONDecoder().raw_decode


def encode_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The payload of a call of task ``name``; :class:`NotSerialisable` names the argument that cannot be carried."""
    try:
        data = _to_bytes(_encode({"args": args, "kwargs": kwargs}))
        for value in args:
            if type(value) not in _SCALARS:
                _refuse_changed_keys(value)
        for value in kwargs.values():
            if type(value) not in _SCALARS:
                _refuse_changed_keys(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSerialisable(
            f"{_offending_argument(args, kwargs)} of task {name} cannot be sent as JSON: {_reason(error)}. "
            "Pass str, int, float, bool, None, lists and dicts with str keys, "
            "for example an object's id or a date's isoformat()"
        ) from None
    return data


def decode_call(value: bytes | None) -> tuple[list[Any], dict[str, Any]]:
    """The positional and keyword arguments in a payload; :class:`BadRecord` when it is none."""
    try:
        body = _loads(value or b"")
        args, kwargs = body["args"], body["kwargs"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadRecord(
            "bad-payload", f'the payload is not a JSON object with "args" and "kwargs": {error!r}'
        ) from None
    if type(args) is not list or type(kwargs) is not dict:
        raise BadRecord("bad-payload", 'the payload\'s "args" must be a list and its "kwargs" an object')
    return args, kwargs


def encode_value(name: str, value: Any) -> bytes:
    """The payload of a result; :class:`NotSerialisable` when JSON cannot carry it unchanged."""
    kind = type(value)
    if value is None or kind is bool:
        return _WORDS[value]
    try:
        # The encoder takes 3 us to make itself ready.
        data = b"%d" % value if kind is int else _to_bytes(_encode(value))
        if kind not in _SCALARS:
            _refuse_changed_keys(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSerialisable(
            f"the result of task {name} cannot be stored as JSON: {_reason(error)}. "
            "Return str, numbers, lists and dicts with str keys, or declare the task with store_result=False"
        ) from None
    return data


def decode_value(value: bytes | None) -> Any:
    """The value in a result's payload; :class:`BadRecord` when it is no JSON."""
    try:
        return _loads(value or b"null")
    except (ValueError, RecursionError) as error:
        raise BadRecord("bad-result", f"the result is not JSON: {error}") from None


def _loads(data: bytes) -> Any:
    """``json.loads`` without its 3 us of preparation, for what nearly all payloads are: UTF-8, no blanks around."""
    try:
        text = str(data, "utf-8")
        value, end = _decode(text)
        if end != len(text):
            raise ValueError
        return value
    except ValueError:
        return json.loads(data)  # another encoding, blanks, or no JSON: the library says which


def _to_bytes(text: str) -> bytes:
    """JSON text as UTF-8, in which no character takes more than its size; a lone surrogate becomes its JSON escape."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        if _SURROGATE_PAIR.search(text):
            raise ValueError("a str with a surrogate pair, which JSON joins to one character") from None
        return text.encode("utf-8", "backslashreplace")


def _refuse_changed_keys(value: Any) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the dict key {key!r} is not a str")
            if type(inner) not in _SCALARS:
                _refuse_changed_keys(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            if type(inner) not in _SCALARS:
                _refuse_changed_keys(inner)


def _offending_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    named = [(f"argument {i}", value) for i, value in enumerate(args, 1)]
    named += [(f"argument {name!r}", value) for name, value in kwargs.items()]
    for label, value in named:
        try:
            _to_bytes(_encode(value))
            _refuse_changed_keys(value)
        except (TypeError, ValueError, RecursionError):
            return label
    return "the arguments"


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
