"""An app whose tasks do to their process what a test asks for. Importable, for children that load it by its path."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from kafka.tasks import App, Context, SoftTimeLimit

PATH = "test.tasks.pools.process_jobs:app"
LONG_S = 120.0
"""Longer than any test waits."""

app = App("shop", bootstrap_servers="nowhere:1", max_payload_bytes=16_000_000)


@app.task(name="square")
def square(number: int) -> int:
    return number * number


@app.task(name="headers", bind=True, aliases=("jobs.headers",))
def headers(ctx: Context) -> list[str]:
    return [f"{name}={value!r}" for name, value in ctx.headers.items()]


@app.task(name="nothing")
def nothing() -> None: ...


@app.task(name="pid")
def pid() -> int:
    return os.getpid()


@app.task(name="hold", bind=True)
def hold(ctx: Context, folder: str) -> int:
    """Say that it runs; end when the file ``go`` is there."""
    Path(folder, f"{ctx.job_id}.tmp").write_text(str(os.getpid()))
    os.rename(Path(folder, f"{ctx.job_id}.tmp"), Path(folder, ctx.job_id))
    until = time.monotonic() + LONG_S
    while not Path(folder, "go").exists() and time.monotonic() < until:
        time.sleep(0.002)
    return os.getpid()


@app.task(name="until_cancelled", bind=True)
def until_cancelled(ctx: Context, folder: str) -> str:
    Path(folder, ctx.job_id).write_text("begun")
    until = time.monotonic() + LONG_S
    while not ctx.cancelled and time.monotonic() < until:
        time.sleep(0.002)
    return "cancelled"


@app.task(name="end_process")
def end_process(code: int) -> None:
    os._exit(code)


@app.task(name="die_of")
def die_of(signum: int) -> None:
    os.kill(os.getpid(), signum)
    time.sleep(LONG_S)


@app.task(name="sleep")
def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


@app.task(name="stop_itself")
def stop_itself() -> str:
    os.kill(os.getpid(), signal.SIGSTOP)
    return "continued"


@app.task(name="tidy_up")
def tidy_up(file: str | None = None) -> str:
    """Ends well when its soft limit comes. That is so once the file is there."""
    try:
        if file is not None:
            Path(file).touch()
        time.sleep(LONG_S)
    except SoftTimeLimit:
        return "tidied up"
    return "not asked"


@app.task(name="ignore_sigterm")
def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        time.sleep(0.05)


@app.task(name="large")
def large(size: int) -> str:
    return "x" * size


_kept: list[bytearray] = []


@app.task(name="eat")
def eat(size: int, seconds: float) -> int:
    """Take memory, and keep it."""
    block = bytearray(size)
    block[::4096] = b"x" * len(block[::4096])
    _kept.append(block)
    time.sleep(seconds)
    return os.getpid()


@app.task(name="leave_processes")
def leave_processes(folder: str) -> None:
    """One process in this group and one in a session of its own; then wait."""
    for name, own in (("group", False), ("session", True)):
        child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(120)"], start_new_session=own)
        Path(folder, f"{name}.tmp").write_text(str(child.pid))
        os.rename(Path(folder, f"{name}.tmp"), Path(folder, name))
    time.sleep(LONG_S)


@app.task(name="length")
def length(text: str) -> int:
    return len(text)


@app.task(name="leave_and_return")
def leave_and_return(folder: str) -> int:
    """Leave a process in this group and one in a session of its own behind."""
    for name, own in (("group", False), ("session", True)):
        child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(120)"], start_new_session=own)
        child.returncode = 0
        Path(folder, name).write_text(str(child.pid))
    return os.getpid()


@app.task(name="leave_a_broker")
def leave_a_broker() -> int:
    """A process that looks like the shared broker of ``embedded:DIR``."""
    command = [sys.executable, "-S", "-c", "import time; time.sleep(120)", "kafka", "broker"]
    child = subprocess.Popen(command, start_new_session=True)
    child.returncode = 0
    return child.pid


@app.task(name="close_and_return")
def close_and_return() -> None:
    os.closerange(3, 1 << 20)


@app.task(name="number")
def number() -> float:
    return random.random()


@app.task(name="policy")
def policy() -> int:
    return os.sched_getscheduler(0)


@app.task(name="remember")
def remember(value: int) -> list[int]:
    """What was remembered in this process, with this."""
    _remembered.append(value)
    return _remembered


_remembered: list[int] = []


@app.task(name="hang_at_exit")
def hang_at_exit() -> int:
    atexit.register(time.sleep, LONG_S)
    return os.getpid()


@app.task(name="say_at_exit")
def say_at_exit(path: str) -> None:
    atexit.register(Path(path).write_text, "said")


@app.task(name="signal_group")
def signal_group() -> str:
    """End what this task has started, as people do."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    return "alive"


@app.task(name="close_channel")
def close_channel() -> None:
    os.closerange(3, 1 << 20)
    time.sleep(LONG_S)


# -- coroutines, and others in whom a signal's exception would be lost -------------------------------------------------


@app.task(name="turns_of_a_loop")
async def turns_of_a_loop() -> None:
    while True:
        await asyncio.sleep(0)


@app.task(name="waits_on_a_loop")
async def waits_on_a_loop() -> str:
    try:
        await asyncio.sleep(LONG_S)
    except SoftTimeLimit:
        await asyncio.sleep(0.01)  # what it has to do at its end may wait, too
        return "struck where it waits"
    return "not struck"


@app.task(name="computes_in_a_coroutine")
async def computes_in_a_coroutine() -> str:
    try:
        while True:
            pass
    except SoftTimeLimit:
        return "struck where it computes"


@app.task(name="waits_for_another_that_computes")
async def waits_for_another_that_computes() -> str:
    async def other() -> None:
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            await asyncio.sleep(0)
            sum(range(10_000))

    task = asyncio.create_task(other())
    try:
        await task
    except SoftTimeLimit:
        return "struck where it waits"
    return "not struck"


@app.task(name="cleans_up_for_long")
async def cleans_up_for_long() -> str:
    try:
        await asyncio.sleep(LONG_S)
    except SoftTimeLimit:
        await asyncio.sleep(2.2)
    return "cleaned up"


@app.task(name="leaves_a_stubborn_one")
async def leaves_a_stubborn_one() -> str:
    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(LONG_S)

    _remembered.append(id(asyncio.create_task(stubborn())))
    await asyncio.sleep(0)
    return "done"


@app.task(name="runs_a_loop_itself")
def runs_a_loop_itself() -> None:
    asyncio.run(turns_of_a_loop.function())


class _Finalised:
    def __del__(self) -> None:
        sum(range(1_000))


@app.task(name="lives_in_finalisers")
def lives_in_finalisers() -> str:
    try:
        while True:
            _Finalised()
            sum(range(2_000))
    except SoftTimeLimit:
        return "struck"


@app.task(name="chain_of_sessions")
def chain_of_sessions(folder: str, depth: int = 3) -> None:
    """Processes one below the other, each in a session of its own; then it waits."""
    for level in range(depth):
        if os.fork():
            break
        os.setsid()
        Path(folder, str(level)).write_text(str(os.getpid()))
    time.sleep(LONG_S)
