"""Tests of ``kafka.tasks.options``."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.tasks import App
from kafka.tasks.options import (
    _CALL,
    _TASK,
    LATER,
    CallKeywords,
    CallOptions,
    SendKeywords,
    TaskOptions,
    call_options,
    task_options,
)
from kafka.tasks.retry import Retry
from kafka.tasks.start_time import StartTime


@pytest.mark.parametrize("name", sorted(LATER))
def test_an_option_of_a_later_release_is_no_silence(name: str) -> None:
    for read in (task_options, call_options):
        with pytest.raises(IllegalArgumentError, match=f"'{name}'.*does not have yet"):
            read({name: 1})


def test_an_unknown_option_names_the_nearest_one() -> None:
    with pytest.raises(IllegalArgumentError, match="did you mean 'timeout'"):
        task_options({"time_out": 3})
    with pytest.raises(IllegalArgumentError, match="a call has no option 'retry'"):
        call_options({"retry": Retry()})


@pytest.mark.parametrize(
    "given",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": True},
        {"expires": "tomorrow"},
        {"soft_timeout": 5, "timeout": 5},
        {"queue": "no queue"},
        {"store_result": 0},
        {"serializer": "yaml"},
        {"delay": 0},
        {"delay": -1},
        {"delay": True},
        {"delay": "30"},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"delay": timedelta(0)},
        {"delay": timedelta(days=36_526)},
        {"eta": 30},
        {"eta": datetime(2030, 1, 1)},
    ],
)
def test_an_option_that_makes_no_sense_is_refused_everywhere(given: dict[str, Any]) -> None:
    for read in (task_options, call_options):
        with pytest.raises(IllegalArgumentError):
            read(given)


@pytest.mark.parametrize("given", [{"name": ""}, {"name": "a\nb"}, {"bind": 1}, {"retry": 3}])
def test_a_declaration_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(IllegalArgumentError):
        task_options(given)


@pytest.mark.parametrize("key", ["user-7", "ü", b"\x00\xff", "k" * 1000])
def test_a_key_is_a_str_or_bytes_and_becomes_the_bytes_of_the_record(key: str | bytes) -> None:
    assert call_options({"key": key}).key == (key.encode("utf-8") if isinstance(key, str) else key)
    assert call_options({"key": None}).key is None


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (7, r"not 7: use str\(7\)$"),
        ("", "not ''$"),
        (b"", "not b''$"),
        ("k" * 1001, "of 1 to 1,000 bytes"),
        ("ü" * 501, "of 1 to 1,000 bytes"),
        ("\ud800", "must be a str or bytes"),
        (("user", 7), "must be a str or bytes"),
        (bytearray(b"k"), "must be a str or bytes"),
    ],
)
def test_what_is_no_key_is_refused_in_one_line_that_says_what_a_key_is(key: Any, text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text) as error:
        call_options({"key": key})
    assert "jobs of the same key run in order in an ordered queue" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("read", "given", "text"),
    [
        (task_options, {"ordered": True}, r'a queue is ordered, not a task: .*app.queue\("ledger", ordered=True\)'),
        (call_options, {"ordered": True}, r'a queue is ordered, not a call: .*app.queue\("ledger", ordered=True\)'),
        (task_options, {"key": "user-7"}, "key is an option of a call.*for all calls of a task, ordered_by="),
        (call_options, {"ordered_by": str}, "ordered_by is an option of a task; a call says its key itself: key="),
        (task_options, {"ordered_by": "user_id"}, "ordered_by must be a function of the task's arguments"),
    ],
)
def test_an_option_in_the_wrong_place_says_where_it_belongs(read: Any, given: dict[str, Any], text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text):
        read(given)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        (["a"], r"headers must be a dict of at most 100 names with str or bytes, not \['a'\]"),
        ({f"h{n}": "" for n in range(101)}, "at most 100 names"),
        ({"": "x"}, "a name must be a str of 1 to 250 printable characters, not ''"),
        ({"a\n": "x"}, "printable"),
        ({7: "x"}, "a name must be a str"),
        ({"x" * 251: "x"}, "1 to 250"),
        ({"attempt": "2"}, "a job has a header 'attempt' of its own; choose another name"),
        ({"id": "2"}, "a header 'id' of its own"),
        ({"dead-cause": "x"}, "a header 'dead-cause' of its own"),
        ({"a": 1}, r"the value of 'a' must be str \(of valid UTF-8\) or bytes, not 1"),
        ({"a": None}, "the value of 'a' must be"),
        ({"a": "\ud800"}, "of valid UTF-8"),
    ],
)
def test_headers_that_no_job_can_carry_are_one_clear_line(headers: Any, text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text) as caught:
        call_options({"headers": headers})
    assert "\n" not in str(caught.value)


def test_headers_are_read_as_bytes() -> None:
    read = call_options({"headers": {"traceparent": "00-ä", "blob": b"\xff"}})
    assert read.headers == (("traceparent", "00-ä".encode()), ("blob", b"\xff"))
    assert call_options({"headers": None}) == call_options({"headers": {}}) == call_options({})


@pytest.mark.parametrize(("aliases", "text"), [("old", "tuple of former names"), (7, "tuple of"), ([""], "an alias")])
def test_aliases_are_names_of_tasks(aliases: Any, text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text):
        task_options({"aliases": aliases})


def test_type_checkers_know_the_options_that_the_tables_check() -> None:
    using = set(CallKeywords.__annotations__)
    assert using == set(_CALL) == {field.name for field in dataclasses.fields(CallOptions)}
    send = set(inspect.signature(App.send).parameters) - {"self", "name", "args", "kwargs", "options"}
    assert set(SendKeywords.__annotations__) | send == using
    declared = {field.name for field in dataclasses.fields(TaskOptions)}
    assert set(_TASK) == declared
    for overload in typing.get_overloads(App.task)[1:] if hasattr(typing, "get_overloads") else ():
        assert set(inspect.signature(overload).parameters) - {"self"} == declared


def test_a_call_says_once_when_it_starts() -> None:
    eta = datetime(2030, 1, 1, tzinfo=timezone.utc)
    with pytest.raises(IllegalArgumentError, match="delay and eta both say when the job starts: give one of them"):
        call_options({"delay": 3, "eta": eta})
    assert call_options({"delay": timedelta(minutes=1), "eta": None}).start == StartTime(60.0)
    assert call_options({"eta": eta}).start == StartTime(None, 1_893_456_000_000)  # date -d 2030-01-01T00:00Z +%s
    assert call_options({"delay": None}).start is None


@pytest.mark.parametrize("name", ["delay", "eta", "headers"])
def test_an_option_of_a_call_in_a_declaration_says_where_it_belongs(name: str) -> None:
    with pytest.raises(IllegalArgumentError, match=rf"{name} is an option of a call: task.using\({name}=...\)"):
        task_options({name: 1})


def test_none_is_as_good_as_nothing() -> None:
    assert task_options({"queue": None, "retry": None, "timeout": None}) == task_options({})
