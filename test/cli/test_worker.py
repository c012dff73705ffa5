"""Tests of ``kafka.cli.worker``: what is wrong is said in one line, with the right exit code."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka.cli import main, worker
from kafka.errors import IllegalArgumentError, NoBrokersAvailable
from kafka.tasks import App, PoolFailed, PoolSettings


def command(*arguments: str) -> int:
    return main(["worker", *arguments])


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "worker_tasks.py").write_text(
        "from kafka.tasks import App\n"
        "app = App('shop', bootstrap_servers='nowhere:1')\n"
        "@app.task(queue='mail')\ndef send(): ...\n"
        "@app.task(queue='mail', soft_timeout=30)\ndef slow(): ...\n"
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
        (["worker_tasks:number"], "is not a kafka.tasks.App"),
        (["worker_tasks:app", "--queues", "mial"], "did you mean 'mail'"),
        (["worker_tasks:app", "--pool", "perfork"], "did you mean 'prefork'"),
        (["worker_tasks:app", "--concurrency", "0"], "--concurrency must be an integer from 1"),
        (["worker_tasks:app", "--concurrency", "1000000"], "to 1000, not 1000000"),
        (["worker_tasks:app", "--pool", "inline", "--concurrency", "2"], "leave --concurrency out, or choose"),
        (["worker_tasks:app", "--queues", ","], "--queues is a list of names"),
        (["worker_tasks:app", "--queues", ""], "leave it out for all queues"),
        (["worker_tasks:app", "--bootstrap-server", ""], "bootstrap_servers must be 'host:port'"),
        (["worker_tasks:app", "--log-level", "LOUD"], "invalid choice"),
        (["worker_tasks:app", "--autoscale", "2,8", "--pool", "threads"], "--autoscale is for the pool prefork, not"),
        (["worker_tasks:app", "--max-jobs-per-child", "9", "--pool", "inline"], "--max-jobs-per-child is for the pool"),
        (["worker_tasks:app", "--timeout", "soon"], "--timeout must be a number of seconds, not 'soon'"),
        (["worker_tasks:app", "--timeout", "-1"], "--timeout must be a number of seconds above 0"),
        (["worker_tasks:app", "--timeout", "nan"], "--timeout must be a number of seconds above 0"),
        (["worker_tasks:app", "--timeout", "5", "--soft-timeout", "5"], "soft_timeout (5 s) must be below timeout"),
        (["worker_tasks:app", "--timeout", "20"], "soft_timeout of worker_tasks.slow (30 s) must be below"),
        (["worker_tasks:app", "--kill-grace", "0"], "--kill-grace must be a number of seconds above 0"),
        (["worker_tasks:app", "--health-port", "http"], "--health-port is PORT"),
        (["worker_tasks:app", "--bootstrap-server", "redis://"], "no back end for 'redis'"),
    ],
)
def test_a_wrong_use_is_one_line_and_exit_code_2(
    tasks: str, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert command(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("python -m kafka worker: ")
    assert text in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def settings_for(pool: str, *arguments: str) -> PoolSettings:
    parser = argparse.ArgumentParser()
    worker.add_arguments(parser)
    return worker.pool_settings(parser.parse_args(["shop:app", *arguments]), pool, App("shop", kill_grace=7))


def test_options_reach_the_pool() -> None:
    said = "--timeout 60 --soft-timeout 50 --kill-grace 2 --max-jobs-per-child 1000 --concurrency 3 --prefetch 4"
    memory = "--max-memory-per-child 512M,1G --start-method spawn --autoscale 2,8 --start-limit 90"
    settings = settings_for("prefork", *said.split(), *memory.split())
    assert settings == PoolSettings(
        concurrency=3,
        app_path="shop:app",
        start_method="spawn",
        timeout=60,
        soft_timeout=50,
        kill_grace=2,
        max_jobs_per_child=1000,
        max_memory_soft=512 << 20,
        max_memory_hard=1 << 30,
        autoscale=(2, 8),
        prefetch=4,
        start_limit=90,
    )


def test_an_unset_option_has_a_default_that_fits_the_pool() -> None:
    assert settings_for("threads").concurrency == (os.cpu_count() or 1)
    assert settings_for("asyncio").concurrency == 100
    assert settings_for("inline").concurrency == 1
    assert settings_for("prefork", "--autoscale", "3,9").concurrency == 3
    assert settings_for("threads").kill_grace == 7


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--max-memory-per-child", "1G,512M"], "--max-memory-per-child: the soft memory limit of a child (1,073"),
        (["--max-memory-per-child", "lots"], "--max-memory-per-child must be a size such as 512M"),
        (["--max-memory-per-child", "512M,lots"], "--max-memory-per-child must be a size such as 512M"),
        (["--max-memory-per-child", "100"], "--max-memory-per-child must be an integer from 1048576 to"),
        (["--max-memory-per-child", "512M,0"], "--max-memory-per-child must be an integer from 1048576 to"),
        (["--autoscale", "8"], "--autoscale must be MIN,MAX"),
        (["--autoscale", "8,2"], "--autoscale must be MIN,MAX with MIN not above MAX"),
        (["--autoscale", "0,2"], "the least of --autoscale must be an integer from 1"),
        (["--max-jobs-per-child", "0"], "--max-jobs-per-child must be an integer from 1"),
        (["--max-jobs-per-child", "many"], "--max-jobs-per-child must be an integer"),
        (["--prefetch", "0"], "--prefetch must be an integer from 1"),
        (["--start-method", "clone"], "unknown start method 'clone'"),
    ],
)
def test_a_limit_that_makes_no_sense_says_which(arguments: list[str], text: str) -> None:
    with pytest.raises(IllegalArgumentError) as found:
        settings_for("prefork", *arguments)
    assert text in str(found.value)
    assert "_" not in str(found.value), "it names a field of PoolSettings, which is not what was written"


@pytest.mark.parametrize(("flags", "is_on"), [([], True), (["--log-jobs"], True), (["--no-log-jobs"], False)])
def test_jobs_are_logged_unless_that_is_turned_off(
    tasks: str, monkeypatch: pytest.MonkeyPatch, flags: list[str], is_on: bool
) -> None:
    found: list[Any] = []
    monkeypatch.setattr(worker, "run_worker", lambda *_, log_jobs, **__: found.append(log_jobs))
    assert command(tasks, *flags) == 0
    assert found == [is_on]


@pytest.mark.parametrize("flag", ["--timeout", "--soft-timeout"])
def test_a_limit_that_the_pool_cannot_keep_is_refused(flag: str) -> None:
    with pytest.raises(IllegalArgumentError, match=f"{flag} is for the pool .* or threads, not for inline"):
        settings_for("inline", flag, "3")


def test_a_pool_that_never_came_up_is_exit_code_3(
    tasks: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hopeless(*arguments: object, **options: object) -> None:
        raise PoolFailed("the pool has never been able to run jobs: no memory")

    monkeypatch.setattr(worker, "run_worker", hopeless)
    assert command(tasks) == 3
    assert capsys.readouterr().err == "python -m kafka worker: the pool has never been able to run jobs: no memory\n"


def test_a_broker_that_cannot_be_reached_is_exit_code_1(
    tasks: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(self: App) -> None:
        raise NoBrokersAvailable("nowhere:1")

    monkeypatch.setattr(App, "backend", unreachable)
    assert command(tasks) == 1
    assert capsys.readouterr().err == "python -m kafka worker: nowhere:1\n"


CLOSED = """
import os, subprocess, sys
from kafka.cli.worker import fill_standard_descriptors
for fd in CLOSED: os.close(fd)
fill_standard_descriptors()
first = os.open("/", os.O_RDONLY)  # as a socket of the worker's
said = subprocess.call(["sh", "-c", "echo said; echo said >&2; read line; test $? = 1"])
os._exit(0 if first > 2 and said == 0 else 1)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no sh")
@pytest.mark.parametrize("closed", ["()", "(1,)", "(0, 1, 2)"])
def test_closed_standard_descriptors_become_no_sockets_and_programs_of_tasks_write_to_nowhere(closed: str) -> None:
    code = CLOSED.replace("CLOSED", closed)
    found = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert (found.returncode, found.stdout) == (0, b"said\n" if closed == "()" else b""), found.stderr
