"""Children in memory, driven by the test: what :mod:`kafka.tasks.pools.ipc.processes` promises, without a process.

A :class:`FakeChild` does nothing by itself: :meth:`FakeChild.begin`, :meth:`FakeChild.end`, :meth:`FakeChild.die` are
what a process would do. :class:`FakeLauncher` says what becomes of the next starts.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable

from kafka.tasks.pools.ipc.processes import (
    ChannelDamaged,
    ChildMessage,
    ChildPhase,
    ChildUp,
    ExitStatus,
    JobDone,
    JobStarted,
)
from kafka.tasks.pools.parent.memory import ProcessSample
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import JobSucceeded, Outcome


class FakePage:
    """The shared page."""

    def __init__(self) -> None:
        self.phase = int(ChildPhase.BOOTING)
        self.begun_seq = 0
        self.done_seq = 0
        self.started_at = 0.0
        self.heartbeat_at = 0.0
        self.runner_pid = 0
        self.lost_usage: tuple[int, float] | None = None
        self.cancelled: list[int] = []

    def cancel(self, seq: int) -> None:
        self.cancelled.append(seq)


class FakeChild:
    """A process that the test plays. ``dies_of``: signals that end it at once; others are only written down."""

    def __init__(self, generation: int, clock: Callable[[], float]) -> None:
        self.generation = generation
        self.pid = 100_000 + generation
        self.page = FakePage()
        self.pidfd: int | None = None
        self.messages_fd = -1
        self.messages_eof = False
        self.capacity = 1000
        self.unwritable: set[Job] = set()
        self.dies_of = {int(signal.SIGTERM), int(signal.SIGKILL)}
        self.retires = True
        self.inbox: deque[tuple[int, Job]] = deque()
        self.received: deque[tuple[int, Job]] = deque()
        self.signals: list[int] = []
        self.softened: list[int] = []
        self.is_damaged = False
        self.is_closed = False
        self.is_retired = False
        self.swept = 0
        self.dumps = 0
        self._messages: list[ChildMessage] = []
        self._exit: ExitStatus | None = None
        self._clock = clock

    # what the pool calls

    def send(self, seq: int, job: Job) -> bool:
        if len(self.inbox) >= self.capacity:
            return False
        if job in self.unwritable:
            raise OSError(24, "Too many open files")
        self.inbox.append((seq, job))
        return True

    def recall(self, most: int | None = None) -> list[int]:
        count = len(self.inbox) if most is None else min(most, len(self.inbox))
        return [self.inbox.popleft()[0] for _ in range(count)]

    def read_messages(self) -> list[ChildMessage]:
        messages, self._messages = self._messages, []
        if self.is_damaged:
            self.messages_eof = True
            raise ChannelDamaged("a frame has a wrong checksum")
        if self._exit is not None:
            self.messages_eof = True
        return messages

    def exited(self) -> ExitStatus | None:
        return self._exit

    def soft(self, seq: int) -> None:
        self.softened.append(seq)

    def kill(self, signum: int) -> None:
        self.kill_group(signum)

    def kill_group(self, signum: int) -> None:
        self.signals.append(int(signum))
        if signum in self.dies_of and self._exit is None:
            self.die(signum=int(signum))

    def kill_orphans(self) -> None:
        self.swept += 1

    def dump(self) -> bool:
        self.dumps += 1
        return self.page.phase != ChildPhase.BOOTING

    def retire(self) -> None:
        self.is_retired = True
        if self.retires and not self.inbox and not self.received:
            self.die(code=0)

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True

    # what the process does

    @property
    def is_alive(self) -> bool:
        return self._exit is None

    def up(self, registry_hash: str = "") -> None:
        self.page.phase = int(ChildPhase.IDLE)
        self._messages.append(ChildUp(self.pid, self.generation, "", registry_hash))

    def say(self, messages: ChildMessage) -> None:
        self._messages.append(messages)

    def receive(self) -> None:
        self.received.append(self.inbox.popleft())

    def begin(self) -> Job:
        if not self.received:
            self.receive()
        seq, job = self.received[0]
        page = self.page
        page.started_at, page.begun_seq, page.phase = self._clock(), seq, int(ChildPhase.USER_CODE)
        page.heartbeat_at = self._clock()
        if job.track_started:
            self._messages.append(JobStarted(seq, page.started_at))
        return job

    def end(self, outcome: Outcome | None = None) -> None:
        """The job that has begun ends, and its result is written."""
        seq, _ = self.received.popleft()
        page = self.page
        page.done_seq, page.phase = seq, int(ChildPhase.IDLE)
        self._messages.append(
            JobDone(seq, outcome or JobSucceeded(b"1"), self._clock() - page.started_at, page.started_at)
        )
        if self.is_retired and not self.inbox and not self.received:
            self.die(code=0)

    def run_all(self) -> int:
        count = 0
        while self.is_alive and (self.inbox or self.received):
            self.begin()
            self.end()
            count += 1
        return count

    def die(self, code: int | None = None, signum: int | None = None, peak: int | None = None) -> None:
        self._exit = ExitStatus(code, signum, peak)


class FakeLauncher:
    """``plan`` is called with each new child, and may raise OSError or do something to it."""

    registry_hash = "ours"
    stacks_fd = -1

    def __init__(self, clock: Callable[[], float], plan: Callable[[FakeChild], object] = FakeChild.up) -> None:
        self.clock = clock
        self.plan = plan
        self.children: list[FakeChild] = []
        self.rss: dict[int, int] = {}
        self.stopped: set[int] = set()
        self.tidied = 0
        self.is_closed = False

    def start(self, generation: int) -> FakeChild:
        child = FakeChild(generation, self.clock)
        self.plan(child)
        self.children.append(child)
        return child

    def reap_zombies(self) -> None:
        self.tidied += 1

    def close(self) -> None:
        assert all(child.is_closed for child in self.children)
        self.is_closed = True

    @property
    def alive(self) -> list[FakeChild]:
        return [child for child in self.children if child.is_alive]

    def sample_process(self, pid: int) -> ProcessSample | None:
        return ProcessSample("T" if pid in self.stopped else "S", self.rss.get(pid, 10 << 20))
