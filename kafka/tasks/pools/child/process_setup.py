"""What a process does before it is a child that runs user code: nothing of the parent's stays in reach, and it cannot
outlive the worker.

For one that was forked from the worker or from the fork server all of it counts; one that was executed anew has no
foreign descriptors, handlers or copies of random numbers, but it goes the same way.

The worker's death. The child and all that it forks are one group. The kernel kills that group when the
lifeline closes, and the worker alone holds its other end (``F_SETOWN``, ``F_SETSIG``, ``O_ASYNC``). So nothing has to
run here for it: measured, a child in an endless loop and a process that it has forked are gone 15 ms after ``kill
-9`` of the worker. ``PR_SET_PDEATHSIG`` would kill the child alone. Where the kernel cannot do that (macOS), a thread
waits for the lifeline instead; it needs the GIL, which a long C call may keep.

Foreign descriptors are not closed but replaced. Python objects of the parent still know their numbers, and would close
whatever has got the number since. Regular files and devices stay: logs go there.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import resource
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from kafka.tasks.pools import gc_tuning, kernel

MARK = "KAFKA_TASKS_CHILD_OF"
"""Environment variable of children: the worker's pid. What they leave behind is known by it."""

ALL_SIGNALS = frozenset(int(signum) for signum in signal.valid_signals())

# What the module signal wraps, to make an enumeration of each number: 0.9 ms for each fork, of 3.
_signal_module: Any = sys.modules.get("_signal", signal)
_set_mask: Callable[[int, Iterable[int]], set[int]] = _signal_module.pthread_sigmask
_handler_of: Callable[[int], object] = _signal_module.getsignal

_F_SETSIG = getattr(fcntl, "F_SETSIG", 10)  # Python has no name for it before 3.11


def isolate(keep: Iterable[int], worker_pid: int, lifeline: int, parent_pid: int | None) -> None:
    """Do it all. Signals are blocked, and stay so. ``parent_pid``: who must still be the parent; None: anyone.

    Ends the process when the worker is gone already.
    """
    with contextlib.suppress(OSError):  # it leads a session already
        os.setsid()
    if parent_pid is not None:
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(1)
    reset_signals()
    die_with_lifeline(lifeline)
    kernel.adopt_orphans()
    replace_foreign_descriptors({*keep, lifeline})
    os.environ[MARK] = str(worker_pid)
    reseed_numpy()
    use_batch_scheduling()


def use_batch_scheduling() -> None:
    """Wait for a free core, or for the end of a turn, when there is something to do (Linux: SCHED_BATCH).

    A job that comes wakes a child, and the system would give it the core of the very worker that hands out jobs: the
    one process that all others wait for. On two cores a worker with two children ran 12 % more jobs with this, with its
    start included. A policy that was chosen for the worker is left alone.
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def descriptor_limit() -> int:
    """How many descriptors this process may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def set_descriptor_limit(limit: int) -> None:
    """May have so many. A child that is started while the worker's limit is lowered would keep the low limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != limit:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def reseed_numpy() -> None:
    """Random numbers of its own, for a fork."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        with contextlib.suppress(Exception):
            numpy.random.seed()  # Python's own random does that by itself


def stop_ignoring_sigchld() -> None:
    """In the worker: children that end wait for it. With SIGCHLD ignored, as a process may inherit it, the kernel reaps
    them, and their exit status is lost."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def reset_signals() -> None:
    """Default actions for all that has a Python handler; SIGINT is ignored: it is the worker's to stop its children.
    SIGCHLD is not, as the worker may have inherited it: the kernel would reap what is to be waited for here."""
    signal.set_wakeup_fd(-1)
    for signum in ALL_SIGNALS:
        if callable(_handler_of(signum)):
            signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def block_signals() -> set[int]:
    """Block all signals; what was blocked before."""
    return _set_mask(signal.SIG_BLOCK, ALL_SIGNALS)


def unblock_signals(former: Iterable[int] = ()) -> None:
    """Block none but ``former``."""
    _set_mask(signal.SIG_SETMASK, former)


def die_with_lifeline(lifeline: int) -> None:
    """Die, with the group, when the other end of the lifeline closes."""
    if sys.platform == "linux":
        try:
            fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
            fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        except OSError:  # a sandbox without it
            _wait_in_thread(lifeline)
    else:
        _wait_in_thread(lifeline)
    poll = select.poll()  # not select(), which takes no descriptor above 1023: a worker of 200 children has those
    poll.register(lifeline, select.POLLIN)
    if poll.poll(0):  # it had closed before
        os._exit(1)


def _wait_in_thread(lifeline: int) -> None:
    def wait() -> None:
        with contextlib.suppress(OSError, ValueError):
            select.select([lifeline], [], [])
            os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, name="kafka-lifeline", daemon=True).start()


def replace_foreign_descriptors(keep: set[int]) -> None:
    """Put a descriptor that can do nothing into the place of all sockets, pipes and the like that are not in
    ``keep``."""
    null_fd = os.open("/", os.O_PATH) if hasattr(os, "O_PATH") else os.open(os.devnull, os.O_RDONLY)
    for fd in open_fds():
        if fd in keep or fd in (0, 1, 2, null_fd):
            continue
        with contextlib.suppress(OSError):
            mode = os.fstat(fd).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode) or stat.S_ISDIR(mode) or stat.S_ISBLK(mode)):
                os.dup2(null_fd, fd, inheritable=False)
    os.close(null_fd)


def open_fds() -> list[int]:
    """The descriptors of this process."""
    for place in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return [int(name) for name in os.listdir(place) if name.isdigit()]
    return list(range(3, min(os.sysconf("SC_OPEN_MAX"), 4096)))


def redirect_stdin() -> None:
    """Standard input is empty: a terminal's is the worker's."""
    null_fd = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_fd, 0, inheritable=True)
    if null_fd != 0:
        os.close(null_fd)


def freeze_heap() -> None:
    """Keep the collector away from what was there before the fork: it would write to every page that it looks at.
    In the child, after the fork: in the parent ``gc.freeze`` would keep for ever what is garbage later.
    """
    gc_tuning.restore_thresholds()
    gc.freeze()
    gc.enable()
