"""What runs on a cluster while it has faults, and what each of these promises. A new one is a class here and a row of
:data:`WORKLOADS`; a new delivery of jobs is a row of :data:`DELIVERIES`.

Each works at a steady pace, in processes of its own, so that what a process logs can be counted. :meth:`Workload.check`
ends the load, waits for what is under way, and returns what there is to print.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kafka.admin import ConfigResource, KafkaAdminClient, NewTopic
from kafka.core.routing import CoordinatorType
from kafka.tasks import READY
from kafka.tasks.format.job_id import time_of
from kafka.tasks.format.records import decode
from test.faults.counted_jobs import ROOT, Crew, read_topic
from test.support.real_cluster import Cluster
from test.support.troubles import VARIABLE, worst_kinds
from test.support.waiting import until, whole_lines

PARTITIONS: Final = 4
RECORD_S: Final = 0.005
"""Between two records."""
JOB_S: Final = 0.04
"""Between two jobs."""
TICK_S: Final = 1.0
"""Between two runs of the periodic job."""
MOST_WAIT_S: Final = 5.0
"""Of 99 in 100 jobs, from the enqueue, or from the time a job is due, to its start. Missed by share groups about one
time in three when the controller is killed: while a group's state has no leader a broker of 4.3.0 keeps
acknowledgements, and the fetch that they came with, and tries to write them 1, 3 and 7 s later, give or take a fifth
(PersisterStateManager). A fetch that was sent 6 ms before the kill was held for 5.7 s by a broker that lived."""
DRAIN_S: Final = 60.0


def percentile(values: list[float], part: float = 0.99) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Client:
    """A process of ``client.py``, and its notes."""

    def __init__(self, directory: pathlib.Path, role: str, number: int, **order: Any) -> None:
        self.notes = directory / f"{role}-{number}.notes"
        self.notes.touch()
        self.log = self.notes.with_suffix(".log")
        command = [sys.executable, "-m", "test.faults.clusters.client", role]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, json.dumps({**order, "notes": str(self.notes)})],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: str(directory)},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    def rows(self, what: str) -> list[list[str]]:
        """The words after ``what`` in its notes."""
        return [row[1:] for row in map(str.split, whole_lines(self.notes)) if row[0] == what]

    def end(self) -> None:
        """Ask it to end, and see that it does, and without an error."""
        self.process.send_signal(signal.SIGTERM)
        self.see_ended()

    def see_ended(self) -> None:
        until(lambda: self.process.poll() is not None, f"{self.notes.stem} has ended", within_s=DRAIN_S * 1.5)
        assert self.process.returncode == 0, self.log.read_text()[-3000:]


class Workload:
    """``name`` begins the names of all its topics. ``coordinators``: the keys of what coordinates it, with their
    kinds; ``step``: how much progress says that it goes on."""

    coordinators: tuple[tuple[str, CoordinatorType], ...] = ()
    step = 100

    def __init__(self, cluster: Cluster, directory: pathlib.Path) -> None:
        self.name = f"load-{uuid.uuid4().hex[:8]}"
        self.cluster = cluster
        self.directory = directory
        self.clients: list[Client] = []
        self.start()
        self.goes_on()

    def start(self) -> None:
        raise NotImplementedError

    def progress(self) -> int:
        """How many records or jobs have come to their end."""
        raise NotImplementedError

    def check(self) -> str:
        raise NotImplementedError

    def client(self, role: str, **order: Any) -> Client:
        self.clients.append(
            Client(self.directory, role, len(self.clients), bootstrap=self.cluster.bootstrap, topic=self.name,
                   group=f"{self.name}-group", **{"settings": {}, **order})
        )  # fmt: skip
        return self.clients[-1]

    def make_topic(self) -> None:
        with KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(self.name, num_partitions=PARTITIONS, replication_factor=3)])

    def produce(self) -> Client:
        return self.client("produce", partitions=PARTITIONS, pause_s=RECORD_S)

    def goes_on(self) -> None:
        """Wait until it has made some progress from now."""
        goal = self.progress() + self.step
        until(lambda: self.progress() >= goal, f"{self.name} goes on", within_s=30, shown=self.logs)

    def check_troubles(self) -> int:
        """How often the worst kind of trouble was logged by one process within a minute; more than once fails."""
        kinds = worst_kinds(self.directory)
        floods = [kind for kind in kinds if len(kind.lines) > 1]
        shown = [f"{len(kind.lines)} x {kind.logger} in {kind.pid}: {kind.template!r}\n  " + "\n  ".join(kind.lines[:6])
                 for kind in floods]  # fmt: skip
        assert not floods, "lines of one kind within a minute:\n" + "\n".join(shown)
        return max((len(kind.lines) for kind in kinds), default=0)

    def logs(self) -> str:
        return "\n".join(f"--- {each.log.name}\n{each.log.read_text()[-2000:]}" for each in self.clients)

    def close(self) -> None:
        for client in self.clients:
            client.process.kill()
            client.process.wait()


class Producing(Workload):
    """An idempotent producer with ``acks="all"``: no record that was acknowledged is lost, each is there once, those of
    a partition are in order, and none fails, since an outage is shorter than ``delivery_timeout_ms``."""

    def start(self) -> None:
        self.make_topic()
        self.producer = self.produce()

    def progress(self) -> int:
        return len(self.producer.rows("acked"))

    def check_records(self) -> tuple[set[int], str]:
        """Of the producer alone: the numbers of its records, and what to print."""
        self.producer.end()
        acked = {int(number): (int(partition), int(offset)) for number, partition, offset, _ in
                 self.producer.rows("acked")}  # fmt: skip
        assert self.producer.rows("failed") == []
        ((count,),) = self.producer.rows("ended")
        assert set(acked) == set(range(int(count)))
        found: dict[int, list[int]] = defaultdict(list)
        at: dict[int, tuple[int, int]] = {}
        for record in read_topic(self.cluster.bootstrap, self.name):
            number = int(record.value or b"")
            found[record.partition].append(number)
            at[number] = record.partition, record.offset
        lost = sorted(acked.keys() - at.keys())
        assert not lost, f"acknowledged and lost: {lost[:20]}"
        for partition in range(PARTITIONS):
            assert found[partition] == list(range(partition, len(acked), PARTITIONS)), "once, and in order"
        assert at == acked, "each is where the acknowledgement has said"
        waits = [float(row[3]) for row in self.producer.rows("acked")]
        text = f"{len(acked)} records, 0 lost, acknowledged within {percentile(waits):.2f} s (p99), {max(waits):.2f} s"
        return set(acked), f"{text} (most)"

    def check(self) -> str:
        return self.check_records()[1]


class Consuming(Producing):
    """Two members of a group, which commit what they have read: every record that was acknowledged is read, and those
    of a partition in order, but for what a rebalance has repeated."""

    role = "consume"
    settings: Mapping[str, Any] = {"group_protocol": "classic"}

    def start(self) -> None:
        super().start()
        self.coordinators = ((f"{self.name}-group", CoordinatorType.GROUP),)
        self.prepare()
        self.members = [self.client(self.role, settings=self.settings) for _ in range(2)]

    def prepare(self) -> None:
        """Before the first member joins."""

    def progress(self) -> int:
        return sum(len(member.rows("read")) for member in self.members)

    def numbers_read(self) -> list[int]:
        return [int(row[0]) for member in self.members for row in member.rows("read")]

    def check(self) -> str:
        acked, text = self.check_records()
        until(lambda: acked <= set(self.numbers_read()), "all records are read", within_s=DRAIN_S,
              shown=lambda: f"{sorted(acked - set(self.numbers_read()))[:20]} {self.logs()}")  # fmt: skip
        for member in self.members:
            member.end()
        self.check_order()
        again = len(self.numbers_read()) - len(acked)
        refused = [row for member in self.members for row in member.rows("refused")]
        kinds = dict(Counter(row[0].partition("(")[0] for row in refused))
        return f"{text}; all read, {again} again; refused commits: {kinds}"

    def check_order(self) -> None:
        for member in self.members:
            last: dict[str, int] = {}
            for row in map(str.split, whole_lines(member.notes)):
                if row[0] == "assigned":
                    last.pop(row[1], None)
                elif row[0] == "read":
                    assert int(row[3]) > last.get(row[2], -1), f"out of order: {row} after {last[row[2]]}"
                    last[row[2]] = int(row[3])


class ConsumingByNewProtocol(Consuming):
    """The same, by the consumer group protocol (KIP-848)."""

    settings = {"group_protocol": "consumer"}


class Sharing(Consuming):
    """Two members of a share group: every record that was acknowledged to the producer is delivered."""

    role = "share"
    settings: Mapping[str, Any] = {}

    def prepare(self) -> None:
        group = f"{self.name}-group"
        with KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap) as admin:
            admin.alter_configs([ConfigResource("GROUP", group, {"share.auto.offset.reset": "earliest"})])
        topic_id = self.cluster.topic_id(self.name)
        shares = ((f"{group}:{topic_id}:{number}", CoordinatorType.SHARE) for number in range(PARTITIONS))
        self.coordinators = (*self.coordinators, *shares)

    def check_order(self) -> None:
        """Several members share a partition: there is none."""


class Jobs(Workload):
    """Two workers: each job has one end that readers see, its result, and starts soon."""

    step = 30
    pool = "threads"
    options: tuple[str, ...] = ("--no-schedule",)
    delays_s: tuple[float, ...] = (0.0,)
    environment: Mapping[str, str] = {}
    delivery = "share"

    def start(self) -> None:
        settings = DELIVERIES[self.delivery]
        self.crew = Crew(
            self.directory, self.name, self.cluster.bootstrap, PARTITIONS, settings,
            **{VARIABLE: str(self.directory), **self.environment},
        )  # fmt: skip
        self.crew.options = self.options
        self.coordinators = ((self.crew.app.names.queue("default"), CoordinatorType.GROUP),)
        self.crew.warm_up(2, self.pool)
        self.prepare()
        self.enqueuer = self.client(
            "enqueue", app=self.name, partitions=PARTITIONS, pause_s=JOB_S, job_s=0.002, delays_s=self.delays_s,
            settings=settings,
        )  # fmt: skip

    def prepare(self) -> None:
        """Before the first job that counts."""

    def progress(self) -> int:
        return self.crew.starts_count()

    def check(self) -> str:
        self.enqueuer.end()
        assert [worker.poll() for worker in self.crew.workers] == [None, None], self.logs()
        assert self.enqueuer.rows("failed") == [], self.logs()
        ids = [row[0] for row in self.enqueuer.rows("enqueued")]
        assert self.enqueuer.rows("done") == [[job_id, str(at)] for at, job_id in enumerate(ids)]
        starts, waits = self.crew.starts(), []
        for job_id, _, due in self.enqueuer.rows("enqueued"):
            waits.append(min(start.at for start in starts[job_id]) - float(due))
        assert min(waits) > -0.05, "a job has started before its time"
        names = self.crew.app.names
        states = [
            decode(each.key, each.value, each.headers)
            for topic in (names.results, names.late)
            for each in read_topic(self.cluster.bootstrap, topic)
        ]
        ends = Counter(state.id for state in states if state is not None and state.state in READY)
        assert set(ids) <= set(ends)
        again = sum(ends[job_id] - 1 for job_id in ids)
        ran_again = sum(len(starts[job_id]) - 1 for job_id in ids)
        text = (
            f"{len(ids)} jobs, 0 lost, {ran_again} ran again, {again} more ends that readers do not see; wait "
            f"{percentile(waits):.2f} s (p99), {max(waits):.2f} s (most){self.check_more()}"
        )
        print(text)
        assert percentile(waits) < MOST_WAIT_S, text
        return text

    def check_more(self) -> str:
        return ""

    def logs(self) -> str:
        return f"{super().logs()}\n{self.crew.logs()}"

    def close(self) -> None:
        super().close()
        self.crew.close()


class Scheduling(Jobs):
    """Delayed jobs, none of which starts before its time, and a periodic one, each time of which has one job."""

    pool = "prefork"
    options = ("--schedule",)
    delays_s = (1.0, 2.0, 3.0)
    environment = {"COUNTED_EVERY": str(TICK_S)}

    def start(self) -> None:
        super().start()
        names = self.crew.app.names
        owners = (names.commands, CoordinatorType.GROUP)
        transactions = ((f"{names.schedule}.{number}", CoordinatorType.TRANSACTION) for number in range(PARTITIONS))
        self.coordinators = (*self.coordinators, owners, *transactions)

    def prepare(self) -> None:
        """Wait until all partitions of the schedule have owners: one without keeps its jobs till then."""
        work = self.crew.app.tasks["work"].using(delay=0.1)
        for handle in [work.delay(-1, 0) for _ in range(PARTITIONS * 8)]:
            assert handle.wait(DRAIN_S), self.logs()

    def check_more(self) -> str:
        """Of the periodic jobs: each time of the entry has run. (Their records may be deleted by now; the id of a
        periodic job has its time, and so the same job started twice has one.)"""
        began: dict[str, float] = {}
        for job_id, starts in self.crew.starts().items():
            if starts[0].what == "later":
                began[job_id] = min(start.at for start in starts)
        slots = Counter(time_of(job_id) for job_id in began)
        assert slots and set(slots.values()) == {1}, slots
        expected = range(min(slots), max(slots) + 1, int(TICK_S * 1000))
        missing = [slot for slot in expected if slot not in slots]
        assert not missing, f"no job at {missing}"
        late = [at - time_of(job_id) / 1000 for job_id, at in began.items()]
        return f"; {len(slots)} periodic jobs, late by {percentile(late):.2f} s (p99)"


class GroupJobs(Jobs):
    """The same by a consumer group."""

    delivery = "group"

    def start(self) -> None:
        super().start()
        self.coordinators = ((self.crew.app.names.group("default"), CoordinatorType.GROUP),)


DELIVERIES: Final[Mapping[str, Mapping[str, Any]]] = {"share": {}, "group": {"delivery": "group"}}
"""How workers get their jobs: settings of the app."""


class Row(NamedTuple):
    """A workload, and the releases that it runs on."""

    make: Callable[[Cluster, pathlib.Path], Workload]
    brokers: tuple[str, ...] = ("apache",)


OLDER: Final = ("apache", "apache 3.9.1")
WORKLOADS: Final[Mapping[str, Row]] = {
    "producer": Row(Producing, OLDER),
    "consumer, classic": Row(Consuming, OLDER),
    "consumer, KIP-848": Row(ConsumingByNewProtocol),
    "share consumer": Row(Sharing),
    "worker, share": Row(Jobs),
    "worker, group": Row(GroupJobs, OLDER),
    "schedule": Row(Scheduling),
}
