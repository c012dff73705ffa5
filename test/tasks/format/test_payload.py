"""Tests of ``kafka.tasks.format.payload``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.errors import BadRecord, NotSerialisable
from kafka.tasks.format.payload import decode_call, decode_value, encode_call, encode_value
from test.strategies import task_values

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def typed(value: Any) -> Any:
    """A value as something that is equal only for equal values of equal types, time zones and folds."""
    if isinstance(value, (list, tuple)):
        return type(value), [typed(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(typed(inner)) for inner in value)
    if isinstance(value, dict):
        return type(value), [(typed(key), typed(inner)) for key, inner in value.items()]
    return type(value), repr(value)


@given(task_values(), st.text())
def test_arguments_arrive_as_they_were(value: Any, name: str) -> None:
    assert typed(decode_call(encode_call("f", (1, value), {name: value}))) == typed(([1, value], {name: value}))


@given(task_values())
def test_results_arrive_as_they_were(value: Any) -> None:
    assert typed(decode_value(encode_value("f", value))) == typed(value)


@given(st.lists(json_values, max_size=3), st.dictionaries(st.text(), json_values, max_size=3))
def test_what_json_has_is_plain_json(args: list[Any], kwargs: dict[str, Any]) -> None:
    data = encode_call("f", tuple(args), kwargs)
    assert data == json.dumps({"args": args, "kwargs": kwargs}, separators=(",", ":"), ensure_ascii=False).encode()
    assert encode_value("f", args) == json.dumps(args, separators=(",", ":"), ensure_ascii=False).encode()


@given(st.lists(json_values, max_size=2), st.dictionaries(st.text(), json_values, max_size=2))
def test_json_of_other_writers_is_read(args: list[Any], kwargs: dict[str, Any]) -> None:
    for data in (json.dumps({"args": args, "kwargs": kwargs}).encode(code) for code in ("utf-8", "utf-16")):
        assert decode_call(data) == (args, kwargs)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("\u00e9", b"\xc3\xa9"),
        ("\u20ac", b"\xe2\x82\xac"),
        ("\U0001f600", b"\xf0\x9f\x98\x80"),
        ('"\n\x7f', b'\\"\\n\x7f'),
        ("\ud83d-\ude00", b"\\ud83d-\\ude00"),
        ("\ude00\ud83d", b"\\ude00\\ud83d"),
    ],
)
def test_texts_are_utf8_and_lone_surrogates_escapes(text: str, data: bytes) -> None:
    assert encode_call("f", (text,), {text: text}) == b'{"args":["%b"],"kwargs":{"%b":"%b"}}' % (data, data, data)
    assert decode_call(encode_call("f", (text,), {text: text})) == ([text], {text: text})
    assert encode_value("f", text) == b'"%b"' % data
    assert decode_value(encode_value("f", text)) == text


def test_what_other_writers_escape_is_read() -> None:
    assert decode_call(b'{"args":["\\u20ac"],"kwargs":{}}') == (["\u20ac"], {})


def test_a_surrogate_pair_which_json_would_join_is_refused() -> None:
    with pytest.raises(NotSerialisable, match="argument 2 .*surrogate pair"):
        encode_call("f", ("\ud83d", "\ud83d\ude00"), {})
    with pytest.raises(NotSerialisable, match="surrogate pair"):
        encode_value("f", ["\ud83d\ude00"])


@given(st.binary(max_size=60))
def test_any_bytes_are_a_call_or_a_bad_record(value: bytes) -> None:
    try:
        args, kwargs = decode_call(value)
    except BadRecord as error:
        assert error.cause == "bad-payload"
    else:
        assert type(args) is list
        assert type(kwargs) is dict


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"args":1,"kwargs":{}}', b'{"args":[],"kwargs":[]}', b"\xff"])
def test_a_payload_of_another_shape_is_a_bad_record(value: bytes) -> None:
    with pytest.raises(BadRecord):
        decode_call(value)


def test_deeply_nested_bytes_are_a_bad_record() -> None:
    with pytest.raises(BadRecord):
        decode_call(b"[" * 100_000)


@pytest.mark.parametrize(
    ("args", "kwargs", "culprit"),
    [
        ((1, bytearray()), {}, "argument 2 of task mail.send cannot be sent as JSON: an object of type bytearray"),
        ((), {"user": object()}, "argument 'user' of task mail.send"),
        (([[{"a": {None: open}}]],), {}, "argument 1 .* builtin_function_or_method cannot be serialised"),
        ((1, float("nan")), {}, "argument 2 of task mail.send cannot be sent as JSON: nan is not allowed in JSON"),
        (({"x": [1.0, float("-inf")]},), {}, "argument 1 of .*: -inf is not allowed in JSON"),
        ((10**5000,), {}, "argument 1 .* int"),
        ((), {"$type": 1, "value": 2}, "cannot be the names of all keyword arguments"),
    ],
)
def test_the_argument_that_cannot_be_sent_is_named(args: tuple[Any, ...], kwargs: dict[str, Any], culprit: str) -> None:
    with pytest.raises(NotSerialisable, match=culprit) as caught:
        encode_call("mail.send", args, kwargs)
    assert "for example an object's id" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_loop_and_a_deep_nest_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (loop, deep):
        with pytest.raises(NotSerialisable, match="argument 1"):
            encode_call("f", (value,), {})


def test_keywords_that_look_like_a_marked_value_among_others_pass() -> None:
    kwargs = {"$type": 1, "value": 2, "x": 3}
    assert decode_call(encode_call("f", (), kwargs)) == ([], kwargs)


def test_keywords_of_a_payload_are_texts() -> None:
    with pytest.raises(BadRecord, match="must be texts"):
        decode_call(b'{"args":[],"kwargs":{"$type":"dict","value":[[1,2]]}}')


@pytest.mark.parametrize("value", [object(), [float("nan")], {1: bytearray()}, pytest.param(10**5000, id="huge")])
def test_a_result_that_cannot_be_stored_says_what_to_do(value: Any) -> None:
    with pytest.raises(NotSerialisable, match=r"the result of task f cannot be stored as JSON: .*store_result=False"):
        encode_value("f", value)


@given(st.binary(max_size=60) | json_values.map(json.dumps).map(str.encode))
def test_any_bytes_are_a_result_or_a_bad_record(data: bytes) -> None:
    try:
        value = decode_value(data)
    except BadRecord as error:
        assert error.cause == "bad-result"
    else:
        assert value is None or json.loads(data) == value or b"$type" in data
