"""The page of memory that a parent and one child share: what the child does now, and what the parent wants of it.

A message says that a job has begun only where the worker asks for it (``Job.track_started``): the child writes it here,
which costs nothing, and the parent looks when it has to know (a deadline is due, the child is dead). What a dead child
wrote last stays. Each side has cache lines of its own; each word is written as a whole, by one side alone::

    word   writer   meaning
    0      child    phase (kafka.tasks.pools.ipc.processes.ChildPhase)
    1      child    sequence number of the job that it has begun last; 0 before the first
    2      child    sequence number of the job whose outcome it has written whole
    3      child    when that of word 1 was begun (monotonic seconds; the same clock in all processes of a machine)
    4      child    when it was last active (the same clock)
    5      child    the process that runs the job of word 1, with a process per job (process_per_job.py); else 0
    6      child    the most memory that the process of word 5 held, in bytes, once it is lost
    7      child    the CPU seconds that it used, once it is lost
    8      parent   sequence number of a job that is cancelled
    9      parent   sequence number of the job that has reached its soft limit
    16     child    how many files it has passed with its messages, the next one included
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import tempfile

from kafka.tasks.pools.ipc.processes import ChildPhase

PAGE_BYTES = mmap.PAGESIZE

_PHASE, _BEGUN, _DONE, _STARTED_AT, _HEARTBEAT_AT, _RUNNER, _PEAK, _CPU_S = range(8)
_CANCELLED, _SOFT, _FILES = 8, 9, 16


class SharedPage:
    """The page, as either side sees it. ``fd`` None: memory for children that are forked, which no exec survives."""

    def __init__(self, fd: int | None = None) -> None:
        self._map = mmap.mmap(-1 if fd is None else fd, PAGE_BYTES)
        self._words = memoryview(self._map).cast("Q")
        self._times = memoryview(self._map).cast("d")

    # -- read by both sides -------------------------------------------------------------------------------------------

    @property
    def phase(self) -> int:
        return self._words[_PHASE]

    @property
    def begun_seq(self) -> int:
        return self._words[_BEGUN]

    @property
    def done_seq(self) -> int:
        return self._words[_DONE]

    @property
    def started_at(self) -> float:
        return self._times[_STARTED_AT]

    @property
    def heartbeat_at(self) -> float:
        return self._times[_HEARTBEAT_AT]

    @property
    def runner_pid(self) -> int:
        return self._words[_RUNNER]

    @property
    def lost_usage(self) -> tuple[int, float] | None:
        peak = self._words[_PEAK]
        return (peak, self._times[_CPU_S]) if peak else None

    @property
    def files_passed(self) -> int:
        return self._words[_FILES]

    @property
    def cancelled_seq(self) -> int:
        return self._words[_CANCELLED]

    @property
    def soft_seq(self) -> int:
        return self._words[_SOFT]

    # -- written by the parent ----------------------------------------------------------------------------------------

    def cancel(self, seq: int) -> None:
        """Let the job see that it is cancelled."""
        self._words[_CANCELLED] = seq

    def soft(self, seq: int) -> None:
        """Say which job has reached its soft limit; the signal that goes with it is the caller's."""
        self._words[_SOFT] = seq

    # -- written by the child -----------------------------------------------------------------------------------------

    def begin(self, seq: int, now: float) -> None:
        """The job is about to run."""
        self._times[_STARTED_AT] = now
        self._times[_HEARTBEAT_AT] = now
        self._words[_BEGUN] = seq
        self._words[_PHASE] = ChildPhase.USER_CODE

    def write(self) -> None:
        """The job has ended; its outcome is about to be written."""
        self._words[_PHASE] = ChildPhase.WRITING

    def idle(self, seq: int, now: float) -> None:
        """The outcome of ``seq`` is written; waiting for the next job."""
        self._words[_DONE] = seq
        self._words[_PHASE] = ChildPhase.IDLE
        self._times[_HEARTBEAT_AT] = now

    def count_file(self) -> None:
        """Its next message comes with a file. Called before that is written."""
        self._words[_FILES] += 1

    def set_runner(self, pid: int) -> None:
        """The next job runs in that process; 0: in none any more, and the pid may be reused."""
        self._words[_RUNNER] = pid

    def lost(self, peak_bytes: int, cpu_s: float) -> None:
        """The process of a job has ended before its job had; this is what it used."""
        self._times[_CPU_S] = cpu_s
        self._words[_PEAK] = peak_bytes

    def close(self) -> None:
        """Any number of times."""
        self._words.release()
        self._times.release()
        with contextlib.suppress(BufferError):
            self._map.close()


def page_file() -> int:
    """A descriptor of fresh memory for a page, to be passed to a process that is not forked from this one."""
    return anonymous_file("kafka-page", PAGE_BYTES)


def anonymous_file(name: str, size: int) -> int:
    """A descriptor of a file without a name, closed on exec: memory where the system has that, else on disk."""
    if hasattr(os, "memfd_create"):
        try:
            fd = os.memfd_create(name, os.MFD_CLOEXEC)
            os.truncate(fd, size)
            return fd
        except OSError as error:  # some sandboxes have the name and not the call
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # a file on disk takes a descriptor, too, and the error would be of directories
    fd, path = tempfile.mkstemp(prefix=name)
    os.unlink(path)
    os.truncate(fd, size)
    return fd
