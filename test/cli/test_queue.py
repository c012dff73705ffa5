"""``queue``: what it asks, prints and removes; over a back end in memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kafka.broker.embedded import ensure_running
from kafka.cli import main
from kafka.tasks import App
from kafka.tasks.backends.base import BACKENDS, QueueMigration
from kafka.tasks.settings import Settings
from kafka.testing import EmbeddedBroker
from test.tasks import fakes
from test.tasks.fakes import FakeBackend

BY_SHARE_GROUPS = "the jobs of shop.mail are delivered by share groups"
NO_ORDER = "share groups keep no order: workers that declare the queue as ordered refuse it until --to group"
HELD = "Jobs that workers hold go on, and jobs that wait in the schedule stay there"


class Terminal:
    """Standard input that answers."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.answer


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """The back end that the command opens, whose queue mail has three jobs."""
    found: list[FakeBackend] = []

    def open_prepared(app: str, settings: Settings) -> FakeBackend:
        found[0].settings = settings
        return found[0]

    monkeypatch.setitem(BACKENDS, "fake", "test.tasks.fakes:open_prepared")
    monkeypatch.setattr(fakes, "open_prepared", open_prepared, raising=False)
    backend = fakes.open_fake("shop", Settings(**dict.fromkeys(Settings.__dataclass_fields__, "")))  # type: ignore[arg-type]
    found.append(backend)
    backend.existing.add("mail")
    for _ in range(3):
        backend.send("shop.mail", b"{}", [])
    return backend


def run(*arguments: str, code: int = 0) -> None:
    assert main(["queue", *arguments, "--bootstrap-server", "fake://"]) == code


def waiting(backend: FakeBackend) -> int:
    return len(backend.queues.waiting("shop.mail"))


def test_a_purge_removes_the_jobs_and_says_how_many(
    backend: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    run("purge", "shop.mail", "--yes")
    assert capsys.readouterr() == (f"removed 3 jobs of shop.mail; j{HELD[1:]}\n", "")
    assert waiting(backend) == 0
    assert backend.settings.create_topics is False
    run("purge", "shop.mail")
    assert capsys.readouterr() == ("shop.mail has no jobs that have not ended\n", "")


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("YES\n", 0), ("n\n", 3), ("\n", 3), ("", 3)])
def test_a_purge_asks_first(
    backend: FakeBackend,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    left: int,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    run("purge", "shop.mail", code=1 if left else 0)
    out, err = capsys.readouterr()
    assert out.startswith(f"remove 3 jobs of shop.mail that have not ended? {HELD}. [y/N] ")
    assert err == ("python -m kafka queue: nothing was changed\n" if left else "")
    assert waiting(backend) == left


def test_where_nothing_can_be_asked_yes_is_needed(backend: FakeBackend, capsys: pytest.CaptureFixture[str]) -> None:
    run("purge", "shop.mail", code=2)
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"remove 3 jobs of shop.mail that have not ended? {HELD}. Not without --yes" in err
    assert waiting(backend) == 3


def test_a_queue_is_paused_and_resumed(backend: FakeBackend, capsys: pytest.CaptureFixture[str]) -> None:
    run("resume", "shop.mail")
    run("pause", "shop.mail")
    assert backend.paused == {"mail"}
    run("pause", "shop.mail")
    run("resume", "shop.mail")
    assert backend.paused == set()
    assert capsys.readouterr().out.splitlines() == [
        "shop.mail is not paused",
        "shop.mail is paused: within a few seconds workers lease no more of its jobs",
        "shop.mail is paused already",
        "shop.mail is resumed",
    ]
    assert waiting(backend) == 3


@pytest.mark.parametrize(
    ("done", "text"),
    [
        (
            QueueMigration("group", 3, 12),
            f"{BY_SHARE_GROUPS} from now on: 12 jobs to do, 3 of them written anew\n{NO_ORDER}",
        ),
        (QueueMigration("group", 0, 1), f"{BY_SHARE_GROUPS} from now on: 1 job to do\n{NO_ORDER}"),
        (QueueMigration("share"), f"nothing to do: {BY_SHARE_GROUPS}"),
        (QueueMigration(None), "nothing to do: no worker has read shop.mail yet"),
    ],
)
def test_a_migration_says_what_it_did(
    backend: FakeBackend, capsys: pytest.CaptureFixture[str], done: QueueMigration, text: str
) -> None:
    backend.migration = done
    run("migrate", "shop.mail", "--to", "share")
    assert capsys.readouterr() == (f"{text}\n", "")
    assert backend.migrated_to == "share"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["migrate", "shop.mail"], "missing --to share|group"),
        (["migrate", "shop.mail", "--to", "both"], "invalid choice"),
        (["migrate", "shop.mial", "--to", "share"], "unknown queue 'mial'"),
        (["pause", "shop.mial"], "unknown queue 'mial'"),
        (["purge", "mail"], "expected APP.QUEUE"),
        (["migrate", "shop.results", "--to", "share"], "invalid queue name 'results': the app uses a topic or group"),
        (["purge", "shop.mial"], "unknown queue 'mial'"),
        (["empty", "shop.mail"], "invalid choice"),
    ],
)
def test_a_wrong_use_is_one_line_and_exit_code_2(
    backend: FakeBackend, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    run(*arguments, code=2)
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert text in err


@pytest.mark.parametrize("command", [["queue", "pause"], ["queue", "purge"], ["dead", "list"], ["dead", "replay"]])
@pytest.mark.parametrize("is_there", [False, True])
def test_where_no_embedded_broker_has_ever_run_none_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], is_there: bool
) -> None:
    directory = tmp_path / "data"
    if is_there:
        directory.mkdir()
    assert main([*command, "shop.mail", "--bootstrap-server", f"embedded:{directory}"]) == 1
    assert capsys.readouterr() == ("", f"python -m kafka {command[0]}: no embedded broker runs in {directory}\n")
    assert [path for path in tmp_path.rglob("*") if path != directory] == []
    assert directory.exists() is is_there


def test_an_embedded_broker_that_has_ended_is_started_for_its_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "data"
    with EmbeddedBroker(directory) as broker:
        app = App("shop", bootstrap_servers=broker.bootstrap)
        app.task(name="send", queue="mail")(print)
        app.send("send")
        app.close()
    try:
        assert main(["queue", "purge", "shop.mail", "--yes", "--bootstrap-server", f"embedded:{directory}"]) == 0
        assert capsys.readouterr().out.startswith("removed 1 job of shop.mail; ")
    finally:
        os.kill(ensure_running(str(directory)).pid, signal.SIGTERM)
