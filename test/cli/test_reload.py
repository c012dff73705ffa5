"""Tests of ``kafka.cli.reload``: when the worker is restarted, which files count, and a real worker with new code."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kafka.cli.reload import Supervisor, find_roots, take_snapshot, without_reload
from kafka.tasks import App
from kafka.testing import EmbeddedBroker
from test.support.waiting import until

ROOT = pathlib.Path(__file__).resolve().parents[2]


class FakeChild:
    """A worker's process: the signals that it got."""

    def __init__(self) -> None:
        self.signals: list[int] = []

    def send_signal(self, sig: int, /) -> None:
        self.signals.append(sig)


class Bench:
    """A supervisor with fake files and children, begun."""

    def __init__(self) -> None:
        self.files = {"a.py": (1, 1)}
        self.children: list[FakeChild] = []
        self.supervisor = Supervisor(self._start, lambda: dict(self.files))
        self.supervisor.begin()

    def _start(self) -> FakeChild:
        self.children.append(FakeChild())
        return self.children[-1]

    def change(self, path: str = "a.py") -> None:
        """The file is another one, and the supervisor looks."""
        self.files[path] = (self.files.get(path, (0, 0))[0] + 1, 1)
        self.supervisor.on_poll()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_change_stops_the_worker_once_and_its_end_starts_the_next(bench: Bench) -> None:
    bench.supervisor.on_poll()
    assert bench.children[0].signals == []
    bench.change()
    bench.change("new.py")
    assert bench.children[0].signals == [signal.SIGTERM]
    assert len(bench.children) == 1  # its jobs may still run
    bench.supervisor.on_exit(0)
    assert len(bench.children) == 2
    bench.supervisor.on_poll()
    assert bench.children[1].signals == []


def test_a_file_that_goes_away_is_a_change(bench: Bench) -> None:
    del bench.files["a.py"]
    bench.supervisor.on_poll()
    assert bench.children[0].signals == [signal.SIGTERM]


def test_a_change_while_the_worker_imports_is_not_missed(bench: Bench) -> None:
    bench.change()
    bench.supervisor.on_exit(0)  # looks at the files, then starts
    bench.change()
    assert bench.children[1].signals == [signal.SIGTERM]


@pytest.mark.parametrize(("code", "how"), [(2, "exited with code 2"), (-signal.SIGSEGV, "was ended by SIGSEGV")])
def test_after_an_error_the_supervisor_waits_for_the_next_change(
    bench: Bench, caplog: pytest.LogCaptureFixture, code: int, how: str
) -> None:
    bench.supervisor.on_exit(code)
    bench.supervisor.on_poll()
    assert len(bench.children) == 1
    assert bench.supervisor.exit_code is None
    assert how in caplog.text
    bench.change()
    assert len(bench.children) == 2


def test_an_error_of_the_worker_that_is_being_restarted_starts_the_next(bench: Bench) -> None:
    bench.change()
    bench.supervisor.on_exit(-signal.SIGTERM)  # it had not come as far as its handlers
    assert len(bench.children) == 2


@pytest.mark.parametrize("is_restarting", [False, True])
@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (-signal.SIGKILL, 128 + signal.SIGKILL)])
def test_each_stop_signal_is_passed_on_and_the_exit_code_is_the_workers(
    bench: Bench, is_restarting: bool, code: int, expected: int
) -> None:
    if is_restarting:
        bench.change()
    before = list(bench.children[0].signals)
    bench.supervisor.on_signal(signal.SIGINT)
    bench.supervisor.on_signal(signal.SIGINT)
    assert bench.children[0].signals == [*before, signal.SIGINT, signal.SIGINT]
    bench.change()
    bench.supervisor.on_exit(code)
    assert len(bench.children) == 1
    assert bench.supervisor.exit_code == expected


def test_a_worker_that_the_stop_signal_has_ended_before_it_had_handlers_was_stopped(bench: Bench) -> None:
    bench.supervisor.on_signal(signal.SIGTERM)
    bench.supervisor.on_exit(-signal.SIGTERM)
    assert bench.supervisor.exit_code == 0


def test_a_stop_signal_without_a_worker_ends_the_supervisor(bench: Bench) -> None:
    bench.supervisor.on_exit(2)
    bench.supervisor.on_signal(signal.SIGUSR1)
    assert bench.supervisor.exit_code is None
    bench.supervisor.on_signal(signal.SIGTERM)
    assert bench.supervisor.exit_code == 0


def test_other_signals_are_passed_on_and_end_nothing(bench: Bench) -> None:
    bench.supervisor.on_signal(signal.SIGUSR1)
    assert bench.children[0].signals == [signal.SIGUSR1]
    bench.change()
    bench.supervisor.on_exit(0)
    assert len(bench.children) == 2


def test_a_worker_that_stopped_by_itself_ends_the_supervisor(bench: Bench) -> None:
    bench.supervisor.on_exit(0)
    assert bench.supervisor.exit_code == 0


def test_python_files_below_the_roots_are_watched_and_installed_ones_are_not(tmp_path: pathlib.Path) -> None:
    watched = ["a.py", "shop/tasks.py", "shop/deep/er.py"]
    others = ["shop/a.txt", ".hidden/a.py", "venv/lib/a.py", "shop/__pycache__/a.py", "lib/site-packages/a.py"]
    for name in [*watched, *others, "venv/pyvenv.cfg"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    before = take_snapshot([str(tmp_path)])
    assert sorted(before) == sorted(str(tmp_path / name) for name in watched)
    os.utime(tmp_path / "a.py", ns=(5, 5))
    after = take_snapshot([str(tmp_path)])
    assert {path for path in after if after[path] != before[path]} == {str(tmp_path / "a.py")}
    assert list(take_snapshot([str(tmp_path / "a.py")])) == [str(tmp_path / "a.py")]


def test_the_apps_package_is_watched_where_it_is_not_below_the_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, source = tmp_path / "work", tmp_path / "src"
    for path in (work, source / "reload_package"):
        path.mkdir(parents=True)
    (source / "reload_package" / "__init__.py").write_text("raise RuntimeError('never imported here')")
    (source / "reload_module.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(work), str(source), *sys.path])
    assert find_roots("reload_package.tasks:app", str(work)) == [str(work), str(source / "reload_package")]
    assert find_roots("reload_module", str(work)) == [str(work), str(source / "reload_module.py")]
    assert find_roots("reload_package:app", str(source)) == [str(source)]
    assert find_roots("no_such_module:app", str(work)) == [str(work)]
    assert find_roots(":app", str(work)) == [str(work)]


def test_the_worker_has_the_same_command_line_without_the_flag() -> None:
    command = ["-X", "dev", "-m", "kafka", "worker", "shop:app", "--reload", "--queues", "a", "--rel"]
    assert without_reload(command) == ["-X", "dev", "-m", "kafka", "worker", "shop:app", "--queues", "a"]


# -- with a real worker ------------------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


def test_a_job_runs_with_the_new_code_after_an_error_in_between(
    broker: EmbeddedBroker, tmp_path: pathlib.Path
) -> None:
    def write(body: str) -> None:
        (tmp_path / "next").write_text(
            "from kafka.tasks import App\n"
            f"app = App('reloaded', bootstrap_servers={broker.bootstrap!r})\n"
            f"@app.task(name='version')\ndef version(): {body}\n"
        )
        (tmp_path / "next").replace(tmp_path / "reloaded.py")

    write("return 'old'")
    output = tmp_path / "output"
    with open(output, "wb") as stderr:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "kafka", "worker", "reloaded:app", "--reload", "--pool", "threads"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            stderr=stderr,
        )
    app = App("reloaded", bootstrap_servers=broker.bootstrap)
    try:
        assert app.send("version").result(30) == "old", output.read_text()
        write("return 'broken' +")
        until(lambda: "exited with code 2" in output.read_text(), "the error", shown=output.read_text)
        assert "importing reloaded failed: SyntaxError" in output.read_text()
        write("return 'the new one'")
        job = app.send("version")
        assert job.result(30) == "the new one", output.read_text()
        supervisor.send_signal(signal.SIGINT)
        assert supervisor.wait(30) == 0, output.read_text()
        assert output.read_text().count("worker stopped") == 2
    finally:
        supervisor.terminate()
        supervisor.wait(30)
        app.close()
