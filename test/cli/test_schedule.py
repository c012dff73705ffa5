"""``python -m kafka schedule``: lists, pauses, resumes and runs the periodic entries of an app."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest

from kafka.cli import client_settings, main
from kafka.tasks import App
from kafka.tasks.testing import FakeClock

START = datetime(2026, 3, 1, tzinfo=timezone.utc)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    made = App("shop", bootstrap_servers="127.0.0.1:1")

    @made.task(name="note")
    def note() -> None: ...

    with made.testing(FakeClock(START)):
        made.schedule.add("nightly", note, "0 1 * * *", tz="Europe/Paris")
        made.schedule.add("often", note, every=90)
        monkeypatch.setattr(client_settings, "load_app", lambda args: made)
        monkeypatch.setattr(made, "close", lambda: None)
        monkeypatch.setattr(App, "is_in_process", False)  # as far as the command is to know
        yield made


def test_it_lists_entries_and_their_times(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "list", "tasks:app"]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "name"
    assert "2026-03-02 00:00:00" in first
    assert "0 1 * * * Europe/Paris" in first
    assert "every 90 s" in second


def test_it_shows_the_next_times(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "next", "tasks:app", "nightly", "--count", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"nightly": [f"2026-03-0{day}T00:00:00+00:00" for day in (2, 3, 4)]}
    assert main(["schedule", "next", "tasks:app", "--count", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_it_pauses_resumes_and_runs(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "pause", "tasks:app", "nightly", "often"]) == 0
    assert [entry.is_paused for entry in app.schedule.list()] == [True, True]
    assert main(["schedule", "next", "tasks:app"]) == 0
    assert main(["schedule", "resume", "tasks:app", "nightly"]) == 0
    assert main(["schedule", "run-now", "tasks:app", "often"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[3:5]] == [["nightly", "paused"], ["often", "paused"]]
    assert lines[5] == "nightly is resumed; it runs next at 2026-03-02 00:00:00 UTC"
    assert lines[6].startswith("often runs now: job ")


def test_an_app_in_memory_has_nothing_to_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client_settings, "load_app", lambda args: App("shop", bootstrap_servers="memory://"))
    assert main(["schedule", "list", "tasks:app"]) == 2
    assert "in the memory of the process that uses it (memory://)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["list", "tasks:app", "weekly"], "no periodic entry 'weekly'; the app shop has: nightly, often"),
        (["pause", "tasks:app"], "which entry?"),
        (["pause", "tasks:app", "often", "weekly"], "no periodic entry 'weekly'; the app shop has: nightly, often"),
        (["next", "tasks:app", "--count", "0"], "--count"),
        (["next", "tasks:app", "--count", "-1"], "--count"),
    ],
)
def test_a_mistake_is_one_line(app: App, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str) -> None:
    assert main(["schedule", *arguments]) != 0
    assert text in capsys.readouterr().err
