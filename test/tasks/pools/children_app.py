"""The tasks that tests have children run: good ones, and each way of user code to harm its process."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import stat
import subprocess
import sys
import time
from typing import Any, NoReturn

from kafka.tasks import App, Context, SoftTimeLimit
from kafka.tasks.pools.child import process_setup

app = App("shop", max_payload_bytes=20_000_000)


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task
def length(text: str) -> int:
    return len(text)


@app.task
def repeat(text: str, count: int) -> str:
    return text * count


@app.task
def pid() -> int:
    return os.getpid()


@app.task(bind=True)
def who(ctx: Context) -> list[Any]:
    return [ctx.job_id, ctx.task_name, ctx.attempt, ctx.deliveries]


@app.task(bind=True)
def until_cancelled(ctx: Context) -> str:
    while not ctx.cancelled:
        time.sleep(0.001)
    return "cancelled"


@app.task
def touch(path: str) -> None:
    with open(path, "a", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")


# -- what cannot be written -------------------------------------------------------------------------------------------


@app.task
def unserialisable() -> object:
    return object()


class NeedsArguments(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code)
        self.text = text


class BadText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@app.task
def raise_with_arguments() -> NoReturn:
    raise NeedsArguments(7, "seven")


@app.task
def raise_recursive() -> NoReturn:
    error = ValueError("round and round")
    error.__cause__ = KeyError("the other")
    error.__cause__.__cause__ = error
    raise error


@app.task
def recurse() -> int:
    return recurse()


@app.task
def raise_bad_text() -> NoReturn:
    raise BadText


@app.task
def raise_surrogates() -> NoReturn:
    raise ValueError("half a pair: \ud800")


@app.task
def leave(code: int) -> NoReturn:
    sys.exit(code)


# -- what ends or damages the process ---------------------------------------------------------------------------------


@app.task
def exit_at_once(code: int) -> NoReturn:
    os._exit(code)


@app.task
def close_descriptors() -> None:
    os.closerange(3, 1 << 20)


@app.task
def write_to_descriptors() -> None:
    for fd in process_setup.open_fds():
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, b"not a frame, but as long as a head")


@app.task
def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@app.task
def spin() -> None:
    while True:
        pass


@app.task
def c_loop() -> int:
    return sum(range(10**18))


@app.task
def sleep(seconds: float) -> None:
    time.sleep(seconds)


@app.task
def fork_one() -> int:
    forked = os.fork()
    if forked == 0:
        while True:
            time.sleep(60)
    return forked


@app.task
def fork_and_return() -> int:
    return os.fork()


@app.task
def fork_and_exit(code: int | str | None) -> int:
    """The exit code of a copy that ends by ``sys.exit(code)``, which comes back from the task's function."""
    forked = os.fork()
    if forked == 0:
        sys.exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])


@app.task
def fork_and_raise() -> int:
    forked = os.fork()
    if forked == 0:
        raise ValueError("in the copy")
    return os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])


@app.task
def lead_a_session() -> None:
    """Leave the group of the child, say so, and go on."""
    os.setsid()
    print(os.getpid(), flush=True)
    while True:
        time.sleep(60)


@app.task
def arm_a_timer() -> None:
    signal.setitimer(signal.ITIMER_REAL, 1000, 1000)


@app.task
def arm_a_raising_timer(us: int, fails: bool) -> str:
    """It strikes from so many microseconds on, again and again, wherever this process is then."""

    def strike(signum: int, frame: object) -> NoReturn:
        raise TimeoutError("struck")

    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, us / 1e6, 0.0003)
    if fails:
        raise ValueError("its own")
    return "kept"


@app.task
def armed_timer() -> list[float]:
    return list(signal.getitimer(signal.ITIMER_REAL))


@app.task
def daemonise() -> int:
    """A daemon as they are made: two forks, with a session of its own between; its pid comes through a pipe."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writer, b"%d" % os.getpid())
            while True:
                time.sleep(60)
        os._exit(0)
    os.wait()
    return int(os.read(reader, 20))


@app.task
def daemonise_a_program() -> int:
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True, stdin=subprocess.DEVNULL
    )
    process.returncode = 0
    return process.pid


# -- soft limits ------------------------------------------------------------------------------------------------------


@app.task
def swallow(path: str) -> str:
    """``except Exception`` around everything, as people write it."""
    while True:
        try:
            while True:
                time.sleep(0.001)
        except Exception:
            _note(path, "swallowed")


def _note(path: str, line: str) -> None:
    with open(path, "a", encoding="ascii") as file:
        file.write(f"{line}\n")


@app.task
def clean_up(path: str) -> None:
    try:
        _note(path, "began")
        while True:
            time.sleep(0.001)
    except SoftTimeLimit:
        _note(path, "cleaned up")
        raise


@app.task
def finish_anyway(path: str) -> str:
    try:
        _note(path, "began")
        while True:
            time.sleep(0.001)
    except SoftTimeLimit:
        return "partial"


@app.task
def spin_in_finally() -> None:
    try:
        raise KeyError("first")
    finally:
        while True:
            time.sleep(0.001)


# -- what is around it ------------------------------------------------------------------------------------------------


@app.task
def say(text: str) -> None:
    print(text)
    logging.getLogger("shop").warning("logged %s", text)
    print(text, "again", end="")


@app.task
def numbers() -> list[float]:
    import random

    return [random.random() for _ in range(3)]


@app.task
def surroundings() -> dict[str, Any]:
    """What a child has that it could have from its parent."""
    import stat

    kinds = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            mode = os.fstat(int(name)).st_mode
            if stat.S_ISSOCK(mode):
                kinds.append("socket")
            elif stat.S_ISFIFO(mode) and int(name) > 2:
                kinds.append("pipe")
    return {
        "kinds": sorted(kinds),
        "session": os.getsid(0) == os.getpid(),
        "sigint": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
        "sigterm": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
        "blocked": sorted(int(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "stdin": os.fstat(0).st_rdev == os.stat(os.devnull).st_rdev,
        "collects": __import__("gc").isenabled(),
    }


@app.task
def servers() -> str:
    return app.settings.bootstrap_servers
