"""Real child processes for tests: started, fed, watched with deadlines, and gone without a trace afterwards.

The tasks are in ``children_app.py``, so that children of every start method can load them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import select
import signal
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from kafka.tasks import Task
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.pools import kernel
from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.ipc.processes import (
    ChildHandle,
    ChildMessage,
    ChildPhase,
    ChildProgress,
    ChildUp,
    ExitStatus,
    JobDone,
)
from kafka.tasks.pools.parent.launch import make_launcher
from kafka.tasks.pools.runner import Job
from kafka.tasks.pools.settings import PoolSettings
from kafka.tasks.rules.outcome import Outcome
from test.support.waiting import until
from test.tasks.fakes import a_job
from test.tasks.pools import children_app

DEADLINE_S = 60.0


def a_call(task: Task[..., Any], *args: Any) -> Job:
    """A job of one of the tasks."""
    envelope = a_job(task.name, *args)
    return Job(JobLease(JobSource("q", "shop.q"), envelope.value, [], 1), envelope, task)


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    stat = kernel.stat_of(pid)
    return stat is not None and stat[0] != "Z"


@contextlib.contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    """A block in which this process can open no more than ``count`` descriptors."""
    limit = next(itertools.islice(filter(_is_free, itertools.count()), count, None))
    former = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, former)


def _is_free(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return True
    return False


class ChildProcesses:
    """A launcher and its children. On leaving it nothing is left: no process, no zombie, no descriptor."""

    def __init__(self, method: str = "fork", path: str = "test.tasks.pools.children_app:app", **settings: Any) -> None:
        self._fds = len(process_setup.open_fds())
        self._children_before = set(kernel.children_of(os.getpid()))
        settings.setdefault("app", children_app.app)
        self._settings = PoolSettings(app_path=path, start_method=method, **settings)
        self._generation = 0
        self._seq = 0
        self.children: list[ChildHandle] = []
        self.progress: list[str] = []

    def __enter__(self) -> ChildProcesses:
        self.launcher = make_launcher(self._settings)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for child in self.children:
            child.kill_group(signal.SIGKILL)
        for child in self.children:
            until(child.exited)
            child.kill_orphans()
            child.close()
        until(self._tidied)
        self.launcher.close()
        if kind is None:
            assert set(kernel.children_of(os.getpid())) <= self._children_before
            assert len(process_setup.open_fds()) == self._fds

    def _tidied(self) -> bool:
        """Orphans come one generation after the other: one that is killed leaves its own to us."""
        for child in self.children:
            child.kill_orphans()
        self.launcher.reap_zombies()
        servers = {server.pid for server in [getattr(self.launcher, "_server", None)] if server is not None}
        return set(kernel.children_of(os.getpid())) <= self._children_before | servers

    def start(self, wait_up: bool = True) -> ChildHandle:
        """One more child; by default one that is up."""
        self._generation += 1
        child = self.launcher.start(self._generation)
        self.children.append(child)
        if wait_up:
            (up,) = self.messages(child)
            assert isinstance(up, ChildUp)
            until(lambda: child.exited() is not None or child.pid == up.pid)
            assert up.generation == self._generation
        return child

    def give(self, child: ChildHandle, task: Task[..., Any], *args: Any) -> int:
        """Hand a call over; its sequence number."""
        self._seq += 1
        job = a_call(task, *args)
        until(lambda: child.send(self._seq, job))
        return self._seq

    def messages(self, child: ChildHandle, count: int = 1) -> list[ChildMessage]:
        """The next messages, without those of progress, which are collected; fewer when the stream ends."""
        found: list[ChildMessage] = []

        def read() -> None:
            select.select([child.messages_fd], [], [], 1.0)
            for messages in child.read_messages():
                if isinstance(messages, ChildProgress):
                    self.progress.append(messages.text)
                else:
                    found.append(messages)

        until(lambda: len(found) >= count or child.messages_eof, "messages", meanwhile=read, shown=lambda: found)
        return found

    def run(self, child: ChildHandle, task: Task[..., Any], *args: Any) -> Outcome:
        """Hand a call over and wait for its outcome."""
        seq = self.give(child, task, *args)
        (done,) = self.messages(child)
        assert isinstance(done, JobDone)
        assert done.seq == seq
        return done.outcome

    def begin(self, child: ChildHandle, task: Task[..., Any], *args: Any) -> int:
        """Hand a call over and wait until the child is in the task's code; its sequence number."""
        seq = self.give(child, task, *args)
        until(lambda: child.page.begun_seq == seq and child.page.phase == ChildPhase.USER_CODE)
        return seq

    def end_of(self, child: ChildHandle) -> tuple[ExitStatus, list[ChildMessage]]:
        """Wait for the child's end; how it was, and the messages until then."""
        found: ExitStatus = until(child.exited)
        messages: list[ChildMessage] = []
        while not child.messages_eof:
            messages += self.messages(child)
        return found, messages
