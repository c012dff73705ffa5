"""Tests of ``kafka.tasks.format.payload``."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.errors import BadRecord, NotSerialisable
from kafka.tasks.format.payload import decode_call, decode_value, encode_call, encode_value

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(values, max_size=3), st.dictionaries(st.text(), values, max_size=3))
def test_arguments_arrive_as_they_were(args: list[Any], kwargs: dict[str, Any]) -> None:
    assert decode_call(encode_call("f", tuple(args), kwargs)) == (args, kwargs)


@given(values)
def test_results_arrive_as_they_were(value: Any) -> None:
    assert decode_value(encode_value("f", value)) == value


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
        ((1, datetime.date(2026, 1, 1)), {}, "argument 2 of task mail.send"),
        ((), {"user": object()}, "argument 'user' of task mail.send"),
        (({1: 2},), {}, "the dict key 1 is not a str"),
        (([[{"a": {None: 1}}]],), {}, "the dict key None is not a str"),
        ((float("nan"),), {}, "argument 1"),
        ((b"bytes",), {}, "bytes is not JSON serializable"),
        (({1, 2},), {}, "set is not JSON serializable"),
    ],
)
def test_the_argument_that_cannot_be_sent_is_named(args: tuple[Any, ...], kwargs: dict[str, Any], culprit: str) -> None:
    with pytest.raises(NotSerialisable, match=culprit) as caught:
        encode_call("mail.send", args, kwargs)
    assert "isoformat()" in str(caught.value)


def test_a_loop_and_a_deep_nest_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (loop, deep):
        with pytest.raises(NotSerialisable, match="argument 1"):
            encode_call("f", (value,), {})


def test_a_tuple_arrives_as_a_list() -> None:
    assert decode_value(encode_value("f", (1, (2,)))) == [1, [2]]


def test_a_result_that_cannot_be_stored_says_what_to_do() -> None:
    with pytest.raises(NotSerialisable, match="store_result=False"):
        encode_value("f", {1: 2})
