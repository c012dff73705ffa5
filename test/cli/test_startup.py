"""Signals while ``python -m kafka worker`` or ``scheduler`` starts: real processes whose app waits in the midst of its
import."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from kafka.cli.startup import StartupSignals
from test.support.commands import started_command
from test.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals between processes")

ROOT = Path(__file__).resolve().parents[2]
SOON_S = 45.0

# The module says that its import has begun, and waits until its gate opens. Handlers that catch everything are usual.
GATED = """
import os
open("begun", "w").close()
gate = os.open("gate", os.O_RDONLY)
try:
    os.read(gate, 1)
except BaseException as error:
    print("caught", repr(error), flush=True)
raise RuntimeError("imported")
"""

# SIGINT may be ignored here, as it is in the background of a shell; HANDLERS are the test's own.
MAIN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
HANDLERS
from kafka.cli import main
sys.exit(main())
"""


class Starting:
    """A worker, or another command, whose app is being imported."""

    def __init__(
        self, directory: Path, *options: str, command: str = "worker", handlers: str = "", module: str = GATED
    ) -> None:
        (directory / "gated.py").write_text(module)
        os.mkfifo(directory / "begun")
        os.mkfifo(directory / "gate")
        self._gate = os.open(directory / "gate", os.O_RDWR)
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN.replace("HANDLERS", handlers), command, "gated:app", *options],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        open(directory / "begun").close()  # waits until the other end is opened

    def send(self, name: str) -> None:
        self.process.send_signal(getattr(signal, name))

    def line(self) -> str:
        """The next line of the log without its time."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().partition(",")[2][4:].rstrip("\n")

    def open_gate(self) -> None:
        os.write(self._gate, b"x")

    def end(self) -> tuple[int, str, str]:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        out, err = self.process.stdout.read(), self.process.stderr.read()  # not communicate(): it misses what is read
        return self.process.wait(SOON_S), out, err

    def close(self) -> None:
        os.close(self._gate)
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Starting]:
    starting = Starting(tmp_path)
    yield starting
    starting.close()


@pytest.mark.parametrize("command", ["worker", "scheduler"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_stop_signal_ends_it_at_once_with_one_line_and_exit_code_0(tmp_path: Path, name: str, command: str) -> None:
    started = Starting(tmp_path, command=command)
    try:
        started.send(name)
        line = f"INFO kafka.cli.startup: received {name}: the {command} is starting, and leaves at once"
        assert started.line() == line
        assert started.end() == (0, "", "")
    finally:
        started.close()


@pytest.mark.parametrize("name", ["SIGTTIN", "SIGTTOU"])
def test_a_signal_for_slots_does_nothing_and_says_so(started: Starting, name: str) -> None:
    started.send(name)
    assert started.line() == f"INFO kafka.cli.startup: received {name}: the worker is starting, and has no slots yet"
    started.open_gate()
    code, out, err = started.end()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("python -m kafka worker: importing gated failed: RuntimeError: imported")


def test_sigusr1_writes_the_stacks(started: Starting) -> None:
    started.send("SIGUSR1")
    assert started.line() == "WARNING kafka.cli.startup: the worker has not started"
    started.open_gate()
    code, out, err = started.end()
    assert (code, out) == (2, "")
    assert err.startswith("thread MainThread:\n")
    assert 'gated.py", line ' in err


def test_signals_that_are_ignored_stay_ignored(tmp_path: Path) -> None:
    """By ``nohup``, which the shell's SIGHUP at its end must not undo."""
    started = Starting(tmp_path, handlers="signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    try:
        started.send("SIGHUP")
        started.send("SIGTTIN")
        assert "received SIGTTIN" in started.line()
    finally:
        started.close()


FORKING = """
import os, signal, time
pid = os.fork()
if pid == 0:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
open("begun", "w").close()
raise RuntimeError(f"child ended with {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
"""


def test_a_process_that_the_app_forks_keeps_the_actions_that_signals_had(tmp_path: Path) -> None:
    started = Starting(tmp_path, module=FORKING)
    try:
        code, _, err = started.end()
        assert (code, err.count("\n")) == (2, 1)
        assert "RuntimeError: child ended with -15" in err
    finally:
        started.close()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_with_reload_a_stop_signal_ends_the_supervisor_and_the_worker(tmp_path: Path, name: str) -> None:
    started = Starting(tmp_path, "--reload")
    try:
        assert "restarting the worker when a .py file in" in started.line()
        started.send("SIGTTIN")
        assert "received SIGTTIN: the worker is starting" in started.line()
        started.send(name)
        assert f"received {name}: the worker is starting, and leaves at once" in started.line()
        assert started.end() == (0, "", "")
    finally:
        started.close()


def test_after_the_start_and_after_the_end_signals_do_what_they_did_before() -> None:
    received: list[str] = []

    def first(signum: int, frame: FrameType | None) -> None:
        received.append("first")

    former = signal.signal(signal.SIGTERM, first)
    try:
        startup = StartupSignals(leave=lambda code: received.append(f"left with {code}"))
        with startup:
            os.kill(os.getpid(), signal.SIGTERM)
            assert received == ["left with 0"]
            startup.finish()
            os.kill(os.getpid(), signal.SIGTERM)
            assert received == ["left with 0", "first"]
        assert signal.getsignal(signal.SIGTERM) is first
        with startup:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as an app may
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, former)


def test_a_stop_that_waits_for_a_full_pipe_ends_by_the_next_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []

    class Full:
        def flush(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            until(lambda: left, "the second signal")

    with StartupSignals(leave=left.append):
        monkeypatch.setattr(sys, "stdout", Full())
        os.kill(os.getpid(), signal.SIGTERM)
    assert left == [0, 0]


def test_a_worker_whose_broker_never_answers_leaves_by_the_second_stop_signal(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (tmp_path / "silent.py").write_text(
            "from kafka.tasks import App\n"
            f"app = App('shop', bootstrap_servers='127.0.0.1:{silent.getsockname()[1]}', connect_timeout=600)\n"
        )
        with started_command(tmp_path, "worker", "silent:app", "--pool", "threads") as (process, stderr):
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGTERM)
                assert "leaves when it has started" in stderr.readline()
                process.send_signal(signal.SIGHUP)  # no further stage
                assert "received SIGHUP" in stderr.readline()
                process.send_signal(signal.SIGINT)
                assert process.wait(SOON_S) == 0
                assert stderr.read().endswith("received SIGINT: the worker has not started yet, and leaves at once\n")
