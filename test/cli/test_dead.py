"""``dead``: its options, what it prints, its exit codes; over a back end in memory, and once with a real worker."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka.cli import dead as command
from kafka.cli import main
from kafka.tasks import App, JobFailed, JobState
from kafka.tasks.backends.base import BACKENDS
from kafka.tasks.format.envelope import DeadLetter, Envelope
from kafka.tasks.format.payload import encode_call
from kafka.tasks.settings import Settings
from kafka.testing import EmbeddedBroker, running_worker
from test.tasks import fakes
from test.tasks.fakes import FakeBackend, FakeDeadLog

PAYLOAD = encode_call("mail.send", (7,), {"body": "hi"})
IDS = [f"018c00000000000{number}0001" + "ab" * 6 for number in range(4)]
SOON_S = 20.0


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> list[FakeBackend]:
    """The back ends that commands have opened; each has the dead jobs of ``shop.mail``."""
    log = FakeDeadLog("shop.mail.dead", 2)
    letters = [
        ("mail.send", DeadLetter("failed", "OSError", "no route\nto host", "Traceback\n  x", "db1", 5, "a:0:3")),
        ("mail.send", DeadLetter("failed", "ValueError", "\x1b[2Jbad")),
        ("bill.print", DeadLetter("lost-memory", "WorkerLost", "killed")),
    ]
    for job_id, (task, letter) in zip(IDS, letters, strict=False):
        headers = Envelope(job_id, task, PAYLOAD, extra=(("trace", b"t1"),)).headers() + letter.headers()
        log.write(0, PAYLOAD, headers)
    opened: list[FakeBackend] = []

    def open_prepared(app: str, settings: Settings) -> FakeBackend:
        backend = FakeBackend(app, settings)
        backend.dead["mail"] = log
        backend.existing.add("mail")
        opened.append(backend)
        return backend

    monkeypatch.setitem(BACKENDS, "fake", "test.tasks.fakes:open_prepared")
    monkeypatch.setattr(fakes, "open_prepared", open_prepared, raising=False)
    return opened


def run(*arguments: str, code: int = 0) -> None:
    assert main(["dead", *arguments, "--bootstrap-server", "fake://"]) == code


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The ids that the list has."""
    run("list", "shop.mail", "--json", *arguments)
    return [row["id"] for row in json.loads(capsys.readouterr().out)]


# -- list, show --------------------------------------------------------------------------------------------------------


def test_the_list_has_a_line_for_each_dead_job(
    backends: list[FakeBackend], capsys: pytest.CaptureFixture[str]
) -> None:
    run("list", "shop.mail")
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["time", "id", "task", "cause", "error", "text"]
    assert [line[21:53] for line in lines] == IDS[:3]
    time = datetime.fromtimestamp(2).strftime("%Y-%m-%d %H:%M:%S")
    assert re.split("  +", lines[0]) == [time, IDS[0], "mail.send", "failed", "OSError", "no route"]
    assert lines[1].endswith("\N{REPLACEMENT CHARACTER}[2Jbad")
    assert [backend.is_closed for backend in backends] == [True]
    assert backends[0].settings.create_topics is False


def test_the_list_as_json_is_one_document(backends: list[FakeBackend], capsys: pytest.CaptureFixture[str]) -> None:
    run("list", "shop.mail", "--json", "--limit", "1")
    (row,) = json.loads(capsys.readouterr().out)
    assert datetime.fromisoformat(row.pop("time")).timestamp() == 2.0
    assert row == {
        "id": IDS[0], "position": "0:0", "task": "mail.send", "cause": "failed", "error": "OSError",
        "text": "no route\nto host", "mark": None,
    }  # fmt: skip
    assert listed(capsys, "--task", "nothing") == []


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        (["--error", "OSError"], [0]),
        (["--error", "lost-*"], [2]),
        (["--task", "mail.*"], [0, 1]),
        (["--since", "1970-01-01T00:00:03Z"], [1, 2]),
        (["--until", "1970-01-01T00:00:03+00:00"], [0]),
        (["--since", "30s"], []),
        (["--limit", "2"], [0, 1]),
        ([IDS[1], "0:2"], [1, 2]),
    ],
)
def test_options_select(
    backends: list[FakeBackend], capsys: pytest.CaptureFixture[str], arguments: list[str], places: list[int]
) -> None:
    assert listed(capsys, *arguments) == [IDS[place] for place in places]


def test_a_list_of_nothing_is_one_line(backends: list[FakeBackend], capsys: pytest.CaptureFixture[str]) -> None:
    run("list", "shop.mail", "--task", "nothing")
    assert capsys.readouterr() == ("no dead jobs of shop.mail match\n", "")
    run("replay", "shop.mail")
    capsys.readouterr()
    run("list", "shop.mail")
    assert capsys.readouterr().out == "no dead jobs of shop.mail; 3 replayed or dropped before (--all lists these)\n"
    run("list", "shop.mail", "--all", "--since", "30s")
    assert capsys.readouterr().out == "no dead jobs of shop.mail match\n"


def test_show_has_everything(backends: list[FakeBackend], capsys: pytest.CaptureFixture[str]) -> None:
    run("show", "shop.mail", IDS[0], "--json")
    (row,) = json.loads(capsys.readouterr().out)
    del row["time"]
    assert row == {
        "id": IDS[0], "position": "0:0", "task": "mail.send", "cause": "failed", "error": "OSError",
        "text": "no route\nto host", "mark": None, "host": "db1", "from": "a:0:3", "key": None,
        "arguments": {"args": [7], "kwargs": {"body": "hi"}},
        "headers": {"id": IDS[0], "name": "mail.send", "trace": "t1"}, "traceback": "Traceback\n  x",
    }  # fmt: skip
    run("show", "shop.mail", IDS[0])
    lines = capsys.readouterr().out.splitlines()
    assert 'arguments    {"args": [7], "kwargs": {"body": "hi"}}' in lines
    assert lines[-3:] == ["    Traceback", "      x", ""]


def test_a_payload_that_is_not_json_is_not_read(
    backends: list[FakeBackend], capsys: pytest.CaptureFixture[str]
) -> None:
    run("list", "shop.mail")
    capsys.readouterr()
    backends[0].dead["mail"].write(1, b"\x80\x04N.", DeadLetter("no-job", "BadRecord", "?").headers())
    run("show", "shop.mail", "1:0", "--json")
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["id"], row["task"], row["arguments"]) == ("1:0", None, "4 bytes that are not JSON")


# -- replay, drop ------------------------------------------------------------------------------------------------------


def test_a_replay_shows_the_new_ids_and_is_shown(
    backends: list[FakeBackend], capsys: pytest.CaptureFixture[str]
) -> None:
    run("replay", "shop.mail", "--error", "OSError", "--rate", "1000/s")
    out, err = capsys.readouterr()
    (record,) = backends[-1].queues.topics["shop.mail"]
    new_id = record.header("id")
    assert out == f"{IDS[0]} -> {new_id}  mail.send\n"
    assert err == "replayed 1 dead job of shop.mail\n"
    assert listed(capsys) == IDS[1:3]
    assert listed(capsys, "--all") == IDS[:3]
    run("list", "shop.mail", "--all")
    assert "[replayed] no route" in capsys.readouterr().out
    run("show", "shop.mail", IDS[0])
    assert f"replayed as  {new_id}" in capsys.readouterr().out


def test_a_replay_without_a_match_is_one_line_and_exit_code_1(
    backends: list[FakeBackend], capsys: pytest.CaptureFixture[str]
) -> None:
    run("replay", "shop.mail", "--task", "nothing", code=1)
    assert capsys.readouterr() == ("", "python -m kafka dead: no dead job of shop.mail matches\n")
    run("replay", "shop.mail", IDS[0])
    capsys.readouterr()
    run("replay", "shop.mail", IDS[0], code=1)
    error = "python -m kafka dead: no dead job of shop.mail matches but 1 replayed or dropped before\n"
    assert capsys.readouterr() == ("", error)
    for action in ("show", "drop"):
        run(action, "shop.mail", "9:9", *(["--yes"] if action == "drop" else []), code=1)
        assert capsys.readouterr() == ("", "python -m kafka dead: no dead job of shop.mail matches\n")


def test_a_dry_run_shows_what_would_be_and_changes_nothing(
    backends: list[FakeBackend], capsys: pytest.CaptureFixture[str]
) -> None:
    run("replay", "shop.mail", "--dry-run", "--json")
    out, err = capsys.readouterr()
    assert [(row["id"], row["replayed_as"]) for row in json.loads(out)] == [(each, None) for each in IDS[:3]]
    assert err == "would have replayed 3 dead jobs of shop.mail\n"
    run("drop", "shop.mail", "--dry-run")
    assert capsys.readouterr().err == "would have dropped 3 dead jobs of shop.mail\n"
    assert all(backend.queues.topics["shop.mail"] == [] for backend in backends)
    assert listed(capsys) == IDS[:3]


def test_a_drop_is_confirmed(
    backends: list[FakeBackend], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal:
        answer = "n\n"

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return self.answer

    run("drop", "shop.mail", code=2)
    assert "drop 3 dead jobs of shop.mail? Not without --yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Terminal())
    run("drop", "shop.mail", code=1)
    out, err = capsys.readouterr()
    assert (out, err) == ("drop 3 dead jobs of shop.mail? [y/N] ", "python -m kafka dead: nothing was changed\n")
    assert listed(capsys) == IDS[:3]
    Terminal.answer = "y\n"
    run("drop", "shop.mail")
    assert capsys.readouterr().err == "dropped 3 dead jobs of shop.mail\n"
    assert listed(capsys) == []


# -- wrong use ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["list", "mail"], "expected APP.QUEUE, such as shop.mail, not 'mail'"),
        (["list", ".mail"], "expected APP.QUEUE"),
        (["list", "shop."], "expected APP.QUEUE"),
        (["list", "shop.mail", "--app", "shap"], "expected shap.QUEUE, not 'shop.mail'"),
        (["list", "shop.mial"], "unknown queue 'mial'"),
        (
            ["list", "shop.mail", "--since", "yesterday"],
            "'yesterday' is not a time; give 30s, 5m, 2h or 7d (ago), or 2026-03-01T12:00",
        ),
        (["list", "shop.mail", "--since", "99999999999d"], "is not a time"),
        (["list", "shop.mail", "--since", "1h", "--until", "2h"], "--since must be before --until"),
        (["list", "shop.mail", "--limit", "0"], "'0' is not a number of jobs above 0"),
        (["list", "shop.mail", "--rate", "5/s"], "--rate is for replay, not list"),
        (["list", "shop.mail", "--dry-run"], "--dry-run is for replay and drop, not list"),
        (["replay", "shop.mail", "--all"], "--all is for list, not replay"),
        (["replay", "shop.mail", "--rate", "0/s"], "'0/s' is not a rate such as 50/s"),
        (["replay", "shop.mail", "--rate", "fast"], "'fast' is not a rate"),
        (["show", "shop.mail"], "show needs the id of a dead job: python -m kafka dead show shop.mail ID"),
    ],
)
def test_a_wrong_use_is_one_line_and_exit_code_2(
    backends: list[FakeBackend], capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    run(*arguments, code=2)
    out, err = capsys.readouterr()
    assert out == "" or arguments[1] == "shop.mial"
    assert err.startswith("python -m kafka dead: ") and err.count("\n") == 1
    assert text in err


def test_an_app_whose_name_has_dots_is_named(backends: list[FakeBackend], capsys: pytest.CaptureFixture[str]) -> None:
    run("list", "my.shop.mail", "--app", "my.shop")
    assert backends[0].names.app == "my.shop"


def test_without_brokers_the_line_says_what_is_needed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["dead", "list", "shop.mail"]) == 2
    assert "--bootstrap-server HOST:PORT is needed: there is no embedded broker in ./.kafka" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "rate"), [("50/s", 50.0), ("50", 50.0), ("0.5/s", 0.5), ("30/m", 0.5), ("36/h", 0.01)]
)
def test_rates(text: str, rate: float) -> None:
    assert command._rate(text) == pytest.approx(rate)


@pytest.mark.parametrize(("text", "back"), [("30s", 30), ("5m", 300), ("2h", 7_200), ("7d", 604_800)])
def test_times_ago(text: str, back: int) -> None:
    before = datetime.now(timezone.utc) - timedelta(seconds=back)
    found = command._time(text)
    after = datetime.now(timezone.utc) - timedelta(seconds=back)
    assert before.timestamp() * 1000 - 1 <= found <= after.timestamp() * 1000


# -- with a worker -----------------------------------------------------------------------------------------------------


def test_a_job_that_a_worker_gave_up_is_replayed_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(in_process=True) as broker:
        app = App("shop", bootstrap_servers=broker.bootstrap, partitions=2)
        is_up: list[bool] = []
        runs: list[Any] = []

        @app.task(name="mail.send", queue="mail")
        def send(user: int) -> str:
            runs.append(user)
            if not is_up:
                raise OSError("no route")
            return f"sent to {user}"

        with running_worker(app, broker=broker) as worker:
            job = send.delay(7)
            with pytest.raises(JobFailed):
                job.result(SOON_S)
            worker.drain()
            is_up.append(True)
            server = ["--bootstrap-server", broker.bootstrap]
            assert main(["dead", "list", "shop.mail", "--json", "--error", "OSError", "--since", "1h", *server]) == 0
            (row,) = json.loads(capsys.readouterr().out)
            assert (row["id"], row["task"], row["error"]) == (job.id, "mail.send", "OSError")
            assert main(["dead", "replay", "shop.mail", "--json", *server]) == 0
            (row,) = json.loads(capsys.readouterr().out)
            assert app.job(row["replayed_as"]).result(SOON_S) == "sent to 7"
            assert job.status() is JobState.FAILURE
            assert main(["dead", "replay", "shop.mail", *server]) == 1
            assert main(["dead", "drop", "shop.mail", "--yes", *server]) == 1
            assert runs == [7, 7]
        app.close()
