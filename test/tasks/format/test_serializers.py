"""Tests of ``kafka.tasks.format.serializers``."""

from __future__ import annotations

import builtins
import importlib
import json
import pickle
import struct
import warnings
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import IllegalArgumentError
from kafka.tasks.errors import BadRecord, NotSerialisable
from kafka.tasks.format import payload, serializers
from kafka.tasks.format.payload import PayloadCodec
from kafka.tasks.format.serializers import (
    JSON,
    SERIALIZERS,
    PickleWarning,
    check_serializer,
    json_bytes,
    serializer_of,
    unreadable,
)
from test.strategies import task_values
from test.tasks.format.test_payload import typed

ALL = frozenset({"json", "msgpack", "pickle"})
MSGPACK, PICKLE = SERIALIZERS["msgpack"], SERIALIZERS["pickle"]
needs_msgpack = pytest.mark.skipif(not MSGPACK.is_installed, reason="the package msgpack is not installed")


class Odd:
    """What pickle alone takes."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd)

    __hash__ = None  # type: ignore[assignment]


class RunsCode:
    """Whose pickle calls a function where it is read."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return builtins.exec, ("raise SystemError('code of the payload was run')",)


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not warned of pickle yet."""
    monkeypatch.setattr(payload, "pickle_warning", PickleWarning())


@needs_msgpack
@given(task_values())
def test_values_arrive_over_msgpack_as_they_were(value: Any) -> None:
    codec = PayloadCodec()
    try:
        data = codec.encode_call("f", (value,), {"x": value}, MSGPACK)
    except NotSerialisable as error:
        assert "msgpack: Integer value out of range" in str(error)  # noqa: PT017
        return
    assert typed(codec.decode_call(data, "application/vnd.msgpack")) == typed(([value], {"x": value}))


@needs_msgpack
def test_msgpack_has_bytes_of_its_own_and_floats_that_json_lacks() -> None:
    codec = PayloadCodec()
    assert codec.encode_value("f", [b"\x00", 1], "application/vnd.msgpack") == b"\x92\xc4\x01\x00\x01"
    data = codec.encode_value("f", (float("inf"), "\ud800"), "application/msgpack")
    assert codec.decode_value(data, "application/x-msgpack") == (float("inf"), "\ud800")


@needs_msgpack
def test_what_others_write_in_msgpack_is_read() -> None:
    timestamp = b"\xd6\xff" + struct.pack(">I", 1)
    assert MSGPACK.decode(timestamp) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    assert MSGPACK.decode(b"\x81\x01\xa1a") == {1: "a"}


@needs_msgpack
@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_in_msgpack_or_a_bad_record(data: bytes) -> None:
    try:
        value = PayloadCodec().decode_value(b"\x91" + data, "application/vnd.msgpack")
    except BadRecord as error:
        assert error.text.startswith("the result is not msgpack: ")  # noqa: PT017
    else:
        assert len(value) == 1


@pytest.mark.filterwarnings("ignore:a job is enqueued with serializer='pickle'")
def test_pickle_takes_any_object() -> None:
    codec = PayloadCodec(None, ALL)
    data = codec.encode_call("f", (Odd(), (1,)), {"x": date}, PICKLE)
    assert codec.decode_call(data, "application/x-python-serialize") == ([Odd(), (1,)], {"x": date})
    again = codec.encode_value("f", Odd(), "application/x-python-serialize")
    assert codec.decode_value(again, "application/x-python-serialize") == Odd()
    with pytest.raises(NotSerialisable, match="argument 2 of task f cannot be sent as pickle: .*lambda"):
        codec.encode_call("f", (1, lambda: 1), {}, PICKLE)


@pytest.mark.usefixtures("new_process")
def test_enqueueing_in_pickle_warns_once_in_a_process_and_a_result_does_not() -> None:
    codec = PayloadCodec(None, ALL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert codec.encode_value("f", 1, "application/x-python-serialize") == pickle.dumps(1, protocol=5)
    with pytest.warns(UserWarning, match="serializer='pickle': every client that can write .* can run any code"):
        data = codec.encode_call("f", (1,), {}, PICKLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert codec.encode_call("f", (1,), {}, PICKLE) == data


def test_pickle_is_not_read_where_it_is_not_accepted() -> None:
    data = pickle.dumps({"args": [RunsCode()], "kwargs": {}})
    with pytest.raises(BadRecord, match=r"application/x-python-serialize \(pickle\) is not in accept_content"):
        PayloadCodec().decode_call(data, "application/x-python-serialize")
    with pytest.raises(BadRecord, match="is not in accept_content"):
        PayloadCodec().decode_value(data, "application/x-python-serialize")
    with pytest.raises(BadRecord, match="code of the payload was run"):
        PayloadCodec(None, ALL).decode_call(data, "application/x-python-serialize")


@pytest.mark.parametrize(
    ("content_type", "name"),
    [
        (None, "json"),
        ("application/json", "json"),
        ("Application/JSON; charset=utf-8", "json"),
        ("application/vnd.msgpack", "msgpack"),
        ("application/msgpack", "msgpack"),
        ("application/x-msgpack", "msgpack"),
        ("application/x-python-serialize", "pickle"),
        ("application/xml", None),
        ("", None),
    ],
)
def test_a_media_type_is_of_a_format(content_type: str | None, name: str | None) -> None:
    found = serializer_of(content_type)
    assert (None if found is None else found.name) == name


def test_each_format_writes_a_media_type_that_it_reads() -> None:
    assert {name: serializer_of(each.media_type) for name, each in SERIALIZERS.items()} == dict(SERIALIZERS)
    assert JSON.media_type is None


def test_why_a_payload_is_not_read_is_said() -> None:
    assert unreadable(None, frozenset({"json"})) is None
    assert unreadable("application/json", frozenset({"json"})) is None
    assert unreadable("text/yaml", ALL) == "unknown content type 'text/yaml'"
    assert unreadable("application/msgpack", frozenset({"json"})) == (
        "the content type application/msgpack (msgpack) is not in accept_content"
    )


def test_a_format_whose_package_is_missing_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> Any:
        if name == "msgpack":
            raise ImportError(name)
        return importlib.import_module(name)

    monkeypatch.setattr(serializers, "import_module", import_module)
    assert unreadable("application/msgpack", ALL) == (
        "the content type application/msgpack needs the package msgpack, which is not installed"
    )
    with pytest.raises(IllegalArgumentError, match=r"needs the package msgpack: pip install kafka-taskloop\[msgpack\]"):
        check_serializer("serializer", "msgpack")


@pytest.mark.parametrize("value", ["yaml", "", None, 1, JSON])
def test_an_unknown_serializer_is_refused_with_the_names(value: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="serializer must be one of 'json', 'msgpack', 'pickle', not "):
        check_serializer("serializer", value)


def test_json_is_the_same_with_and_without_the_encoder_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"a": [1, 2.5, None, True, "\u20ac\n\"", {"b": []}], "c": 10**30}
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    assert serializers._make_json_text()(value).encode() == json_bytes(value)
    for refused in (float("nan"), Decimal(1), {1j: 1}):
        with pytest.raises((ValueError, TypeError)):
            json_bytes(refused)
