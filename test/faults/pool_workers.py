"""Workers of the pools' chaos tests, and a ledger of what readers see of their jobs.

:class:`PoolCrew` starts worker processes of one app and ends all that came of them. :class:`Ledger` follows the results
topics and the dead topic, so that a test can say of each job that it has exactly one visible terminal state, and one
cause when it is dead.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest

from kafka import KafkaConsumer, TopicPartition
from kafka.tasks import READY, JobFailed, JobHandle, JobState
from kafka.tasks.format.envelope import DeadLetter, dead_letter_of
from kafka.tasks.format.records import decode
from test.faults.pool_jobs import make_app
from test.support.process_table import MARK, Process, children_of, fds_of, marked, process, tcp_inodes
from test.support.waiting import until, whole_lines

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
PATIENCE_S: Final = 60.0


def wait_for(condition: Callable[[], object], what: str, crew: PoolCrew | None = None) -> None:
    """Until the condition holds; fails with ``what``, and what the workers said, when it does not in time."""
    until(condition, what, within_s=PATIENCE_S, shown=lambda: "" if crew is None else crew.logs())


class Ledger:
    """All state records and dead jobs of an app so far, in the order of their log."""

    def __init__(self, servers: str, *topics: str) -> None:
        self.states: dict[str, list[JobState]] = collections.defaultdict(list)
        self.deaths: dict[str, list[DeadLetter]] = collections.defaultdict(list)
        self._consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest")
        self._topics = topics
        self._places: list[TopicPartition] = []

    def read(self) -> None:
        """Up to the ends as they are now."""
        consumer = self._consumer
        if not self._places:
            self._places = [
                TopicPartition(topic, number)
                for topic in self._topics
                for number in consumer.partitions_for_topic(topic) or ()
            ]
            consumer.assign(self._places)
        ends = consumer.end_offsets(self._places)

        def poll() -> None:
            for records in consumer.poll(200).values():
                for record in records:
                    self._note(record.key, record.value, record.headers)

        until(
            lambda: all(consumer.position(place) >= ends[place] for place in self._places),
            f"{self._topics} are read to their ends",
            within_s=PATIENCE_S,
            meanwhile=poll,
        )

    def _note(self, key: Any, value: Any, headers: Any) -> None:
        death = dead_letter_of(headers)
        if death is not None:
            self.deaths[dict(headers)["id"].decode()].append(death)
            return
        state = decode(key, value, headers)
        if state is not None:
            self.states[state.id].append(state.state)

    def ends_of(self, job_id: str) -> list[JobState]:
        """Its terminal states: readers see the first; there should be no other."""
        return [state for state in self.states[job_id] if state in READY]

    def close(self) -> None:
        self._consumer.close()


class PoolWorker:
    """A worker process, and all that it and its tasks have started."""

    def __init__(self, crew: PoolCrew, flags: tuple[str, ...], environment: dict[str, str]) -> None:
        self.mark = uuid.uuid4().hex
        self.log_path = crew.directory / f"worker-{len(crew.workers)}.log"
        command = [sys.executable, "-m", crew.module, "worker", "test.faults.pool_jobs:app", *flags]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**crew.environment, **environment, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.pid = self.process.pid

    def log(self) -> str:
        """What it and its children have written."""
        return self.log_path.read_text(errors="replace")

    def tracebacks_of_its_own(self) -> list[str]:
        """The lines before tracebacks in its log, but for those of jobs that have failed for good."""
        lines = self.log().splitlines()
        before = [line for line, next_one in itertools.pairwise(lines) if next_one.startswith("Traceback")]
        return [line for line in before if "failed permanently" not in line]

    def children(self) -> set[int]:
        """Pids of its child processes that live."""
        return {each.pid for each in children_of(self.pid) if each.state != "Z"}

    def kill_child(self, pid: int) -> None:
        """``kill -9`` a child, if that is still there."""
        if pid in self.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def others(self) -> list[Process]:
        """All that live and come from it, but itself."""
        return [each for each in marked(self.mark) if each.pid != self.pid]

    def fds(self) -> list[str]:
        """What its descriptors are, without the numbers of sockets and pipes, and without connections to brokers: these
        come with the first use, and again when one was idle for long."""
        names = set(fds_of(self.pid).items())
        tcp = tcp_inodes(self.pid)
        return sorted(name.partition(":[")[0] for _, name in names if name.partition("[")[2].rstrip("]") not in tcp)

    def connections(self) -> int:
        """How many TCP sockets it has."""
        names, tcp = fds_of(self.pid).values(), tcp_inodes(self.pid)
        return sum(name.partition("[")[2].rstrip("]") in tcp for name in names)

    def cpu_s(self) -> float:
        found = process(self.pid)
        assert found is not None
        return found.cpu_s

    def send(self, signum: int) -> None:
        self.process.send_signal(signum)

    def freeze(self) -> None:
        """SIGSTOP it alone, and come back when it stands still."""
        self.send(signal.SIGSTOP)
        wait_for(lambda: (found := process(self.pid)) is not None and found.state == "T", "it is stopped")

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def end(self) -> None:
        """Kill it and whatever is left of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for each in marked(self.mark):
            with contextlib.suppress(OSError):
                os.kill(each.pid, signal.SIGKILL)


class PoolCrew:
    """Workers of an app of its own, its jobs, and where they leave their traces."""

    def __init__(self, directory: pathlib.Path, servers: str) -> None:
        self.directory = directory
        self.module = "kafka"
        """What Python is to run as the command's module."""
        name = f"pool-{uuid.uuid4().hex[:8]}"
        self.app = make_app(name, servers)
        self.workers: list[PoolWorker] = []
        self.handles: list[JobHandle[Any]] = []
        self.environment = {
            **os.environ,
            "POOL_APP": name,
            "POOL_SERVERS": servers,
            "POOL_DIRECTORY": str(directory),
            "PYTHONUNBUFFERED": "1",
        }
        self.servers = servers
        self._ledger: Ledger | None = None

    def start(self, *flags: str, **environment: str) -> PoolWorker:
        """One more worker, with two children under ``--pool prefork`` unless the flags say otherwise."""
        given = tuple(flags)
        for flag, value in (("--pool", "prefork"), ("--concurrency", "2"), ("--kill-grace", "1")):
            if flag not in given and not (flag == "--concurrency" and "--autoscale" in given):
                given += (flag, value)
        self.workers.append(PoolWorker(self, given, environment))
        return self.workers[-1]

    # -- jobs --------------------------------------------------------------------------------------------------------

    def delay(self, task: str, *args: Any, **options: Any) -> JobHandle[Any]:
        """Enqueue a job; ``options`` are those of ``using``."""
        declared = self.app.tasks[task]
        handle: JobHandle[Any] = declared.using(**options).delay(*args) if options else declared.delay(*args)
        self.handles.append(handle)
        return handle

    def opened(self, gate: str) -> None:
        """Let tasks through that wait for it."""
        (self.directory / gate).touch()

    def starts(self, handle: JobHandle[Any]) -> list[int]:
        """The processes in which the job was started so far, in order."""
        return self._pids("starts", handle)

    def through(self, handle: JobHandle[Any]) -> list[int]:
        """The processes in which it came through its gate."""
        return self._pids("through", handle)

    def started(self, handle: JobHandle[Any], times: int = 1) -> int:
        """Wait until the job has started so often; the process of the last start."""
        wait_for(lambda: len(self.starts(handle)) >= times, f"start {times} of {handle}", self)
        return self.starts(handle)[times - 1]

    def _pids(self, name: str, handle: JobHandle[Any]) -> list[int]:
        path = self.directory / name
        if not path.exists():
            return []
        lines = (line.split() for line in whole_lines(path))
        return [int(pid) for job_id, pid in lines if job_id == handle.id]

    def result(self, handle: JobHandle[Any]) -> Any:
        """What it returned, when all is as it should be with its records."""
        assert handle.wait(PATIENCE_S), f"{handle} does not end\n{self.logs()}"
        try:
            value = handle.result(0)
        except JobFailed as failure:
            pytest.fail(f"{handle} has failed: {failure}\n{failure.traceback}\n{self.logs()}")
        self.check([handle])
        return value

    def failure(self, handle: JobHandle[Any]) -> JobFailed:
        """How it failed, when all is as it should be with its records."""
        assert handle.wait(PATIENCE_S), f"{handle} does not end\n{self.logs()}"
        with pytest.raises(JobFailed) as caught:
            handle.result(0)
        self.check([handle])
        return caught.value

    def works(self, number: int = 1) -> list[int]:
        """The processes of so many jobs, which all ran once."""
        handles = [self.delay("ping", each) for each in range(number)]
        pids = []
        for each, handle in enumerate(handles):
            found, pid = self.result(handle)
            assert found == each
            assert self.starts(handle) == [pid]
            pids.append(pid)
        return pids

    # -- what readers see --------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """Made when the first job has ended, so that the topics are there."""
        if self._ledger is None:
            names = self.app.names
            self._ledger = Ledger(self.servers, names.results, names.late, names.dead("default"))
        return self._ledger

    def states(self, handle: JobHandle[Any]) -> list[JobState]:
        """All its state records."""
        self.ledger.read()
        return self.ledger.states[handle.id]

    def death(self, handle: JobHandle[Any]) -> DeadLetter:
        """Its record in the dead topic."""
        self.check([handle])
        (found,) = self.ledger.deaths[handle.id]
        return found

    def check(self, handles: Iterable[JobHandle[Any]]) -> None:
        """Each of these jobs, which have ended, has one terminal state, and one dead record when that is FAILURE."""
        for handle in handles:
            wait_for(lambda handle=handle: self._is_complete(handle), f"the records of {handle}", self)
            ends = self.ledger.ends_of(handle.id)
            deaths = self.ledger.deaths[handle.id]
            assert len(ends) == 1, f"{handle}: {ends}\n{self.logs()}"
            assert len(deaths) == (ends[0] is JobState.FAILURE), f"{handle}: {ends[0]!r}, {deaths}\n{self.logs()}"
            assert all(death.cause for death in deaths)

    def _is_complete(self, handle: JobHandle[Any]) -> bool:
        ledger = self.ledger
        ends = ledger.ends_of(handle.id)
        if not ends or (ends[0] is JobState.FAILURE) != bool(ledger.deaths[handle.id]):
            ledger.read()
        return bool(ends) and (ends[0] is not JobState.FAILURE or bool(ledger.deaths[handle.id]))

    # -- the end -----------------------------------------------------------------------------------------------------

    def logs(self) -> str:
        """What the workers said, for the text of a failure."""
        return "\n".join(f"--- {worker.log_path.name}\n{worker.log()[-4000:]}" for worker in self.workers)

    def gone(self, worker: PoolWorker) -> None:
        """Nothing that came of a worker which has ended is left."""
        assert worker.process.poll() is not None
        wait_for(lambda: not marked(worker.mark), f"nothing is left of {worker.pid}", self)

    def close(self) -> None:
        """End everything."""
        for worker in self.workers:
            worker.end()
        if self._ledger is not None:
            self._ledger.close()
        self.app.close()
