"""The app of the kill tests, and its workers: each start of a job leaves a line ``id pid time attempt worker what``
in a file.

Settings come through the environment, since workers are processes of their own: ``COUNTED_APP`` the app's name,
``COUNTED_SERVERS``, ``COUNTED_PARTITIONS``, ``COUNTED_FILE``, ``COUNTED_WORKER`` the worker's number, and
``COUNTED_RELEASE``: an ``old`` worker does not have the task ``later``. ``COUNTED_SETTINGS`` are more settings of the
app, as JSON, and ``COUNTED_EVERY`` the seconds between two runs of ``later`` by the schedule.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer import ConsumerRecord
from kafka.tasks import App, Context, JobHandle, Retry
from test.support.troubles import note_troubles
from test.support.waiting import until, whole_lines

ROOT = pathlib.Path(__file__).resolve().parents[2]
ATTEMPTS = 3
"""Of a job of ``retried``, which fails before the last."""
BACKOFF_S = 0.5


def make_app(name: str, servers: str, partitions: int, **settings: Any) -> App:
    """The app as its workers declare it; in a test, one of the test's own, with the task as ``work``."""
    app = App(name, bootstrap_servers=servers, partitions=partitions, stop_grace=5.0, kill_grace=1.0, **settings)
    app.task(bind=True, name="work")(_work)
    app.task(bind=True, name="kill_the_worker")(_kill_the_worker)
    app.task(bind=True, name="hold")(_hold)
    app.task(bind=True, name="append", queue=app.queue("ledger", ordered=settings.get("delivery") == "group"))(_append)
    retry = Retry(max_attempts=ATTEMPTS + 5, backoff=lambda attempt: BACKOFF_S, jitter=False)
    app.task(bind=True, name="retried", retry=retry)(_retried)
    if os.environ.get("COUNTED_RELEASE") != "old":
        app.task(bind=True, name="later")(_later)
    if "COUNTED_EVERY" in os.environ:
        app.periodic(every=float(os.environ["COUNTED_EVERY"]), args=(0,), missed="all")(app.tasks["later"])
    return app


def _note(context: Context, what: str = "-") -> None:
    who = os.environ["COUNTED_WORKER"]
    line = f"{context.job_id} {os.getpid()} {time.time():.6f} {context.attempt} {who} {what}\n"
    file = os.open(os.environ["COUNTED_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def _work(context: Context, number: int, seconds: float) -> int:
    _note(context)
    time.sleep(seconds)
    return number


def _kill_the_worker(context: Context) -> None:
    _note(context)
    os.kill(os.getpid(), 9)


def _append(context: Context, key: str, number: int, seconds: float) -> int:
    """A job of the ordered queue: its start says which of its key it is."""
    _note(context, f"{key}:{number}")
    time.sleep(seconds)
    return number


def _hold(context: Context, gate: str) -> None:
    """Run until the test has opened the gate."""
    _note(context)
    path = pathlib.Path(os.environ["COUNTED_FILE"]).parent / gate
    while not path.exists():
        time.sleep(0.005)


def _retried(context: Context, number: int) -> int:
    _note(context)
    if context.attempt < ATTEMPTS:
        raise OSError("the disk is full")
    return number


def _later(context: Context, number: int) -> int:
    _note(context, "later")
    return number


class Start(NamedTuple):
    """One start of a job: the process it ran in, the time in seconds since the epoch, the attempt, the number of its
    worker, and of a job of the ordered queue ``KEY:NUMBER``, of ``later`` its name."""

    pid: int
    at: float
    attempt: int
    worker: int
    what: str = "-"


def read_topic(servers: str, topic: str) -> list[ConsumerRecord]:
    """All committed records of a topic, up to its present end; those of each partition in their order."""
    with KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        ends = {place: end for place, end in consumer.end_offsets(places).items() if end}
        consumer.assign(ends)
        found: list[ConsumerRecord] = []

        def poll() -> None:
            for records in consumer.poll(200).values():
                found.extend(records)

        until(
            lambda: all(consumer.position(place) >= end for place, end in ends.items()),
            f"{topic} is read",
            meanwhile=poll,
        )
        return found


def job_id_of(record: ConsumerRecord) -> str:
    """The id of a job's record, or of a dead one."""
    return (dict(record.headers)["id"] or b"").decode()


class Crew:
    """Worker processes of one app, and what they started."""

    def __init__(
        self,
        directory: pathlib.Path,
        name: str,
        servers: str,
        partitions: int,
        settings: Mapping[str, Any] | None = None,
        **environment: str,
    ) -> None:
        settings = settings or {}
        self.app = make_app(name, servers, partitions, **settings)
        self.servers = servers
        self.directory = directory
        self.file = directory / "starts"
        self.file.touch()
        self._counted_bytes = self._count = 0
        self.workers: list[subprocess.Popen[bytes]] = []
        self.schedulers: list[subprocess.Popen[bytes]] = []
        self.queues = "default"
        self.options: tuple[str, ...] = ()
        """Of the workers that are started from now on."""
        self._environment = {
            **os.environ,
            "COUNTED_APP": name,
            "COUNTED_SERVERS": servers,
            "COUNTED_PARTITIONS": str(partitions),
            "COUNTED_FILE": str(self.file),
            "COUNTED_SETTINGS": json.dumps(settings),
            **environment,
        }

    def start(self, concurrency: int = 2, pool: str = "threads", **environment: str) -> subprocess.Popen[bytes]:
        """One more worker; its log is in the crew's directory. With threads, a start's pid is its worker's."""
        number = len(self.workers)
        command = [
            sys.executable, "-m", "kafka", "worker", "test.faults.counted_jobs:app", "--queues", self.queues,
            "--pool", pool, "--concurrency", str(concurrency),
            "--log-level", os.environ.get("KAFKA_TEST_WORKER_LOG", "INFO"), *self.options,
        ]  # fmt: skip
        environment = {**self._environment, "COUNTED_WORKER": str(number), **environment}
        with open(self.directory / f"worker-{number}.log", "ab") as log_file:
            self.workers.append(subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log_file))
        return self.workers[-1]

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        """A process that owns the schedule and runs no jobs."""
        command = [sys.executable, "-m", "kafka", "scheduler", "test.faults.counted_jobs:app"]
        with open(self.directory / "worker-scheduler.log", "ab") as log_file:
            self.schedulers.append(subprocess.Popen(command, cwd=ROOT, env=self._environment, stderr=log_file))
        return self.schedulers[-1]

    def starts(self) -> dict[str, list[Start]]:
        """All starts so far, by job."""
        found: dict[str, list[Start]] = defaultdict(list)
        for line in whole_lines(self.file):
            job_id, pid, at, attempt, worker, what = line.split()
            found[job_id].append(Start(int(pid), float(at), int(attempt), int(worker), what))
        return found

    def starts_count(self) -> int:
        """Starts so far. Reads what has come since the last call: a test asks a hundred times a second."""
        with open(self.file, "rb") as file:
            file.seek(self._counted_bytes)
            lines, newline, _ = file.read().rpartition(b"\n")
        self._counted_bytes += len(lines) + len(newline)
        self._count += lines.count(b"\n") + len(newline)
        return self._count

    def has_come_to(self, goal: int) -> bool:
        """Whether there were more starts than so many."""
        return self.starts_count() > goal

    def warm_up(self, count: int, pool: str = "threads", seconds: float = 0.002) -> None:
        """Start workers, and come back when each has run a job of ``seconds``, from which they learn how many to hold,
        and all jobs that were enqueued for that have ended."""
        work, missing = self.app.tasks["work"], set(range(len(self.workers), len(self.workers) + count))
        handles: list[JobHandle[int]] = []
        for _ in range(count):
            self.start(pool=pool)

        def have_run() -> bool:
            with self.app.batch(10):
                handles.extend(work.delay(-1, seconds) for _ in range(4))
            missing.difference_update(start.worker for starts in self.starts().values() for start in starts)
            return not missing

        until(have_run, "each worker has run a job", shown=self.logs)
        for handle in handles:
            assert handle.wait(30), self.logs()

    def open(self, gate: str) -> None:
        """Let jobs of ``hold`` through."""
        (self.directory / gate).touch()

    def count_moved(self, *topics: str) -> int:
        """How many records were ever written to these topics, or to all that jobs are moved to. (Not how many there
        are: workers delete settled ones.)"""
        names = self.app.names
        topics = topics or (names.due("default"), names.suspect("default"), names.dead("default"))
        with KafkaConsumer(bootstrap_servers=self.servers) as consumer:
            places = [
                TopicPartition(topic, number)
                for topic in topics
                for number in consumer.partitions_for_topic(topic) or ()
            ]
            return sum(consumer.end_offsets(places).values())

    def has_started_jobs(self, number: int) -> bool:
        """Whether the worker of this number has started any."""
        return any(start.worker == number for starts in self.starts().values() for start in starts)

    def has_started_since(self, number: int, at: float) -> bool:
        """Whether the worker of this number has started any after that time (seconds since the epoch)."""
        return any(start.worker == number and start.at > at for of_job in self.starts().values() for start in of_job)

    def logs(self) -> str:
        """What the workers said, for the text of a failure."""
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.directory.glob("worker-*.log")))

    def close(self) -> None:
        """End the workers, and the app's connection."""
        for worker in (*self.workers, *self.schedulers):
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        self.app.close()


if "COUNTED_APP" in os.environ:
    note_troubles()
    app = make_app(
        os.environ["COUNTED_APP"],
        os.environ["COUNTED_SERVERS"],
        int(os.environ["COUNTED_PARTITIONS"]),
        **json.loads(os.environ["COUNTED_SETTINGS"]),
    )
