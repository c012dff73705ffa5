"""Tests of ``kafka.tasks.worker.traceback_excerpt``."""

from __future__ import annotations

import json
import re
import sysconfig
import traceback

import pytest

from kafka.tasks.worker.traceback_excerpt import MAX_LINES, excerpt, truncate_line

STDLIB = sysconfig.get_path("stdlib")
HEADER = "Traceback (most recent call last):"


def frame(path: str, number: int, code: str = "call()") -> list[str]:
    return [f'  File "{path}", line {number}, in f', f"    {code}", "    ^^^^^^"]


def frames(path: str, numbers: range) -> list[str]:
    return [line for number in numbers for line in frame(path, number)]


def shown(*lines: str) -> list[str]:
    return excerpt("\n".join(lines))


def numbers_of(lines: list[str]) -> list[int]:
    """The line numbers of the frames."""
    return [int(found[1]) for line in lines if (found := re.search(r'", line (\d+), in f', line))]


def test_a_short_traceback_is_shown_whole() -> None:
    lines = [HEADER, *frames("/app/shop.py", range(6)), "ValueError: no"]
    assert len(lines) == MAX_LINES
    assert shown(*lines) == lines
    assert excerpt("") == []


def test_the_users_frames_are_shown_whole_between_many_of_libraries() -> None:
    lines = shown(
        HEADER,
        *frame("/app/shop.py", 1, "order.charge(card)"),
        *frames("/venv/lib/python3.11/site-packages/orm/session.py", range(100, 120)),
        *frame("/app/models.py", 2, "self.gateway.send(amount)"),
        *frames(f"{STDLIB}/http/client.py", range(200, 220)),
        "ConnectionError: refused",
    )
    assert numbers_of(lines) == [1, 2, 216, 217, 218, 219]
    assert "    order.charge(card)" in lines
    assert "    self.gateway.send(amount)" in lines
    assert lines[-1] == "ConnectionError: refused"
    assert lines[0] == "... 1 line omitted, the dead topic has all of them ..."
    assert [line for line in lines[1:] if "omitted" in line] == ["... 60 lines omitted ...", "... 48 lines omitted ..."]


def test_a_task_of_an_installed_package_is_shown_as_the_first_frame() -> None:
    package = "/venv/lib/python3.11/site-packages"
    lines = shown(HEADER, *frame(f"{package}/shop/jobs.py", 1), *frames(f"{package}/orm.py", range(100, 120)), "E: no")
    assert numbers_of(lines) == [1, 115, 116, 117, 118, 119]


def test_what_led_to_the_error_is_shown_by_the_users_frames_and_the_last_of_the_others() -> None:
    lines = shown(
        HEADER,
        *frame("/app/shop.py", 1),
        *frames(f"{STDLIB}/json/decoder.py", range(100, 120)),
        "ValueError: no JSON",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        HEADER,
        *frame("/app/shop.py", 2),
        *frame("/app/shop.py", 3),
        "OrderError: no order",
    )
    assert numbers_of(lines) == [1, 119, 2, 3]
    assert {"ValueError: no JSON", "OrderError: no order"} <= set(lines)


def test_a_message_of_many_lines_leaves_room_for_the_frames() -> None:
    message = [f"line {number} of the message" for number in range(100)]
    lines = shown(HEADER, *frame("/app/shop.py", 1), *message)
    assert numbers_of(lines) == [1]
    assert {"line 0 of the message", "line 1 of the message", "line 2 of the message"} <= set(lines)
    assert lines[-1] == "line 99 of the message"


@pytest.mark.parametrize("margin", ["", "  | ", "    | "])
def test_frames_of_an_exception_group_are_frames(margin: str) -> None:
    body = [*frame("/app/shop.py", 1), *frames(f"{STDLIB}/asyncio/taskgroups.py", range(100, 120)), "ValueError: no"]
    lines = shown(*(margin + line for line in (HEADER, *body)))
    assert numbers_of(lines) == [1, 115, 116, 117, 118, 119]


def test_real_tracebacks_keep_the_line_of_the_user() -> None:
    def deep(number: int) -> object:
        return deep(number - 1) if number else json.loads("{" * 3)

    try:
        re.sub("a", lambda _: str(deep(20)), "a")
    except ValueError as error:
        lines = excerpt("".join(traceback.format_exception(error)))
    assert len([line for line in lines if "omitted" not in line]) <= MAX_LINES
    assert any("re.sub(" in line for line in lines), "the first frame"
    assert any('json.loads("{" * 3)' in line for line in lines), "the last of ours"
    assert lines[-1].startswith("json.decoder.JSONDecodeError: Expecting property name")


def test_a_long_line_is_cut_behind_a_word() -> None:
    assert truncate_line("x" * 10, 10) == "x" * 10
    assert truncate_line("x" * 11, 10) == "x" * 10 + "..."
    assert truncate_line("cannot send the order", 10) == "cannot..."
    assert truncate_line("cannot sen d", 10) == "cannot sen..."
    assert truncate_line("a xxxxxxxxxxxxxxxx", 10) == "a xxxxxxxx...", "the word is longer than half of it"
    assert truncate_line("short", 10, is_cut=True) == "short..."
