"""The app of the pools' chaos tests: tasks that do to their process whatever user code can do.

Workers import it, so it learns its settings from the environment: ``POOL_APP`` the app's name, ``POOL_SERVERS``, and
``POOL_DIRECTORY``, where each start of a job leaves a line ``id pid`` in ``starts``, where gates are files that a test
makes for tasks that wait, and where the module counts its imports. ``POOL_IMPORT`` says what every import but the first
does, which is the worker's own: ``raise``, ``exit`` or ``slow``. ``POOL_GROUP`` is the directory of a control group
that the worker joins before it has children. A new way to misbehave is one more function in :data:`TASKS`.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from kafka.tasks import App, Context

MOST_PAYLOAD: Final = 12_000_000
SLOW_IMPORT_S: Final = 5.0
"""Longer than the four seconds after which other pools kill a child that imports."""

_hoard: list[bytearray] = []


def directory() -> pathlib.Path:
    return pathlib.Path(os.environ["POOL_DIRECTORY"])


def _append(name: str, line: str) -> None:
    file = os.open(directory() / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def _note(context: Context) -> None:
    _append("starts", f"{context.job_id} {os.getpid()}")


def _wait_for(gate: str) -> None:
    path = directory() / gate
    while not path.exists():
        time.sleep(0.005)


def noop(number: int) -> int:
    return number


def ping(context: Context, number: int) -> list[int]:
    _note(context)
    return [number, os.getpid()]


def length(context: Context, text: str) -> int:
    _note(context)
    return len(text)


def double(context: Context, text: str) -> str:
    _note(context)
    return 2 * text


def hold(context: Context, gate: str, value: int) -> int:
    """Wait for a gate: the time in which a test does something to this process."""
    _note(context)
    _wait_for(gate)
    _append("through", f"{context.job_id} {os.getpid()}")
    return value


def stubborn(context: Context, gate: str) -> str:
    """Wait for a gate, and let no exception out."""
    _note(context)
    while True:
        try:
            _wait_for(gate)
            return "through the gate"
        except BaseException:
            pass


def wall(context: Context) -> float:
    """What its process takes for the time."""
    _note(context)
    return time.time()


def enqueue(context: Context, number: int) -> str:
    """Enqueue a job; its id."""
    _note(context)
    return app.tasks["ping"].delay(number).id


# -- ends of the process ---------------------------------------------------------------------------------------------


def exit_now(context: Context, code: int) -> None:
    _note(context)
    os._exit(code)


def exit_while(context: Context, gate: str) -> int:
    """Ends its process as long as there is no such gate."""
    _note(context)
    if not (directory() / gate).exists():
        os._exit(1)
    return os.getpid()


def signal_self(context: Context, signum: int) -> None:
    _note(context)
    os.kill(os.getpid(), signum)


def close_channel(context: Context, then_wait_for: str | None) -> str:
    _note(context)
    os.closerange(3, 1 << 20)
    if then_wait_for is not None:
        _wait_for(then_wait_for)
    return "closed"


def big(context: Context, size: int, killed_after_s: float) -> str:
    """A large result; a helper kills this process so long after the function was called, in its first run."""
    _note(context)
    first = directory() / f"big-{context.job_id}"
    if not first.exists():
        first.touch()
        parent = os.getpid()
        if os.fork() == 0:
            time.sleep(killed_after_s)
            os.kill(parent, signal.SIGKILL)
            os._exit(0)
    return big_text(size)


def big_text(size: int) -> str:
    """The same text for the same size."""
    part = hashlib.sha256(b"%d" % size).hexdigest()
    return (part * (size // len(part) + 1))[:size]


def hoard(context: Context, mib: int, wait_for: str | None) -> int:
    """Take memory, and keep it for good."""
    _note(context)
    for _ in range(mib // 20):
        _hoard.append(bytearray(os.urandom(4096) * (20 * 256)))
    if wait_for is not None:
        _wait_for(wait_for)
    return os.getpid()


# -- processes of its own --------------------------------------------------------------------------------------------


def leave_processes(context: Context, gate: str | None) -> int:
    """Start a process, one in its own session, and two daemons, of which one is executed and one is not; then go, or
    wait."""
    _note(context)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    subprocess.Popen(sleep)
    subprocess.Popen(sleep, start_new_session=True)
    _daemon(lambda: os.execv(sleep[0], sleep))
    _daemon(lambda: time.sleep(600))
    if gate is not None:
        _wait_for(gate)
    return os.getpid()


def leave_process_of_the_group(context: Context, gate: str) -> int:
    """Start a process and a forked copy, neither in a session of its own, and wait."""
    _note(context)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    _wait_for(gate)
    return os.getpid()


def _daemon(live: Callable[[], object]) -> None:
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    os.setsid()
    if os.fork() == 0:
        live()
    os._exit(0)


# -- what cannot be written ------------------------------------------------------------------------------------------


class WantsArguments(Exception):
    """Cannot be made from its ``args``, as unpickling would."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{reason} ({code})")
        self.code = code


class Mute(Exception):
    """Has no text, and fails when asked."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Base(BaseException):
    """Not an Exception."""


def _recursive() -> Exception:
    error = ValueError("I am my own cause")
    error.__cause__ = error.__context__ = error
    error.args = ("I am my own argument", [error])
    error.args[1].append(error.args)
    return error


def _deep() -> Exception:
    error = ValueError("the first")
    for number in range(3000):
        following = ValueError(f"after {number}")
        following.__cause__ = error
        error = following
    return error


def _group() -> Exception:
    make: Any = getattr(builtins, "ExceptionGroup", lambda text, errors: ValueError(text))  # Python 3.11
    found: Exception = make("both", [ValueError("one"), KeyError("two")])
    return found


def _endless() -> object:
    found: list[object] = []
    found.append(found)
    return found


ERRORS: Final[dict[str, Callable[[], BaseException]]] = {
    "recursive": _recursive,
    "deep": _deep,
    "wants arguments": lambda: WantsArguments(7, reason="it has to be"),
    "mute": Mute,
    "base": lambda: Base("not an Exception"),
    "group": _group,
    "long": lambda: ValueError("x" * 3_000_000),
    "surrogate": lambda: ValueError("\udcff"),
    "exit": lambda: SystemExit(3),
    "interrupt": lambda: KeyboardInterrupt("as by Ctrl-C"),
    "stop": lambda: StopIteration(5),
    "generator": lambda: GeneratorExit("out"),
}
RESULTS: Final[dict[str, Callable[[], object]]] = {
    "object": object,
    "function": lambda: _endless,
    "lock": threading.Lock,
    "endless": _endless,
    "not a number": lambda: float("nan"),
    "a set of objects": lambda: {object()},
    "generator": lambda: (number for number in range(3)),
    "too large": lambda: "x" * (MOST_PAYLOAD + 1),
}


def fail(context: Context, kind: str) -> None:
    _note(context)
    raise ERRORS[kind]()


def recurse(context: Context) -> None:
    _note(context)

    def deeper() -> None:
        deeper()

    deeper()


def give(context: Context, kind: str) -> Any:
    _note(context)
    return RESULTS[kind]()


# -- limits ----------------------------------------------------------------------------------------------------------


def in_finally(context: Context) -> None:
    _note(context)
    try:
        pass
    finally:
        _wait_for("never")


def in_except_exception(context: Context) -> None:
    _note(context)
    while True:
        with contextlib.suppress(Exception):
            _wait_for("never")


def in_c(context: Context) -> int:
    """C code that looks at no signal, and does not end."""
    _note(context)
    return sum(itertools.repeat(0))


TASKS: Final = (
    ping, length, double, hold, wall, enqueue, stubborn, exit_now, exit_while, signal_self, close_channel, big, hoard,
    leave_processes, leave_process_of_the_group, fail, recurse, give, in_finally, in_except_exception, in_c,
)  # fmt: skip


def make_app(name: str, servers: str) -> App:
    """The app as its workers declare it; in a test, one of the test's own."""
    made = App(
        name,
        bootstrap_servers=servers,
        partitions=2,
        stop_grace=60.0,
        kill_grace=1.0,
        max_payload_bytes=MOST_PAYLOAD,
    )
    made.task(name="noop")(noop)
    for function in TASKS:
        made.task(bind=True, name=function.__name__)(function)
    return made


def _join() -> None:
    group = os.environ.get("POOL_GROUP")
    if group is not None:
        (pathlib.Path(group) / "cgroup.procs").write_text(str(os.getpid()))


def _misbehave() -> None:
    how = os.environ.get("POOL_IMPORT", "")
    if not how:
        return
    _append("imports", str(os.getpid()))
    if len((directory() / "imports").read_text().splitlines()) == 1:
        return
    if how == "slow":
        time.sleep(SLOW_IMPORT_S)
    elif how == "exit":
        sys.exit("the module says goodbye")
    elif how == "_exit":
        os._exit(7)
    else:
        raise RuntimeError("the module cannot be imported")


if "POOL_APP" in os.environ:
    _join()
    _misbehave()
    app = make_app(os.environ["POOL_APP"], os.environ["POOL_SERVERS"])
