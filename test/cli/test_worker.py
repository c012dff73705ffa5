"""Tests of ``kafka.cli.worker``: what is wrong is said in one line, with the right exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafka.cli import main
from kafka.errors import NoBrokersAvailable
from kafka.tasks import App


def command(*arguments: str) -> int:
    return main(["worker", *arguments])


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "worker_tasks.py").write_text(
        "from kafka.tasks import App\n"
        "app = App('shop', bootstrap_servers='nowhere:1')\n"
        "@app.task(queue='mail')\ndef send(): ...\n"
        "number = 4\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "worker_tasks", raising=False)
    return "worker_tasks:app"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no_such_module:app"], "there is no module 'no_such_module'"),
        (["worker_tasks:number"], "is no App"),
        (["worker_tasks:app", "--queues", "mial"], "did you mean 'mail'"),
        (["worker_tasks:app", "--pool", "prefork"], "available are inline, threads"),
        (["worker_tasks:app", "--concurrency", "0"], "--concurrency is at least 1"),
        (["worker_tasks:app", "--concurrency", "1000000"], "at most 1000, not 1000000"),
        (["worker_tasks:app", "--queues", ","], "--queues is a list of names"),
        (["worker_tasks:app", "--queues", ""], "leave it out for all queues"),
        (["worker_tasks:app", "--bootstrap-server", ""], "bootstrap_servers is 'host:port'"),
        (["worker_tasks:app", "--log-level", "LOUD"], "invalid choice"),
        (["worker_tasks:app", "--bootstrap-server", "memory://"], "no back end for 'memory'"),
    ],
)
def test_a_wrong_use_is_one_line_and_exit_code_2(
    tasks: str, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert command(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("kafka worker: ")
    assert text in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_broker_that_cannot_be_reached_is_exit_code_1(
    tasks: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(self: App) -> None:
        raise NoBrokersAvailable("nowhere:1")

    monkeypatch.setattr(App, "backend", unreachable)
    assert command(tasks) == 1
    assert capsys.readouterr().err == "kafka worker: nowhere:1\n"
