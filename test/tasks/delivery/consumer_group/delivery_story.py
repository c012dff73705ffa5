"""Workers in consumer groups: jobs are enqueued, and workers run and settle them while they join, leave, die and stand
still, connections fail, and the coordinators restart and refuse. A kind of :mod:`test.simulation`.

What has to hold:

* Every job has exactly one visible end: a terminal state record in a committed transaction.
* It runs again only if its worker was killed, was not heard for longer than its session, was expelled by the
  coordinator, gave its partition up before it had settled the job, or failed for itself. After its end is visible no
  member runs it.
* After the death of the worker that ran it, it runs as a suspect. It fails for its workers' deaths only when so many
  have died or were lost.
* In an ordered queue the first runs of a key ascend, and two jobs of it never run at the same time in members that own
  what they run.
* Committed offsets do not go back, and the metadata beside them has 4,000 characters at most.
* After the faults all jobs end within a bound, and the group has committed that.

Who the members are is ``simulated_workers.py``'s.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from kafka.broker.error_places import ErrorResponse
from kafka.broker.responses import ConnectionContext
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.protocol.framing import ReceivedRequest, UnknownRequest
from kafka.protocol.offsets import OffsetFetchRequest
from kafka.structs import TopicPartition
from kafka.tasks.delivery.consumer_group.delivery import GROUP_SETTINGS
from kafka.tasks.format.envelope import Envelope
from kafka.tasks.format.job_id import make_id, time_of
from kafka.tasks.format.offset_metadata import MOST_CHARACTERS
from kafka.tasks.format.payload import encode_call
from kafka.tasks.format.records import LATE_AFTER_MS, StateRecord
from kafka.tasks.format.records import decode as decode_state
from kafka.tasks.format.topics import READ_COMMITTED, TopicDefaults, TopicNames, queue_plans, results_plans
from kafka.tasks.pools.runner import Job
from kafka.tasks.settings import Settings
from kafka.tasks.states import READY, JobState
from test.simulation.world import Host, Story, World
from test.tasks.delivery.consumer_group.simulated_workers import APP, Run, SimulatedWorker

PRODUCE, OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 0, 8, 9, 11, 12, 14
INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28
GROUP_HEARTBEAT: Final = 68

LOADING, UNAVAILABLE, NOT_COORDINATOR, CONCURRENT = 14, 15, 16, 51
NOT_LEADER, FEW_REPLICAS, UNSTABLE = 6, 19, 88
GENERATION, UNKNOWN_MEMBER, REBALANCE, FENCED_EPOCH = 22, 25, 27, 110
PRODUCER_EPOCH, PRODUCER_FENCED, ABORTABLE = 47, 90, 120

OF_COORDINATOR: Final = (LOADING, NOT_COORDINATOR)
FENCING: Final = (PRODUCER_EPOCH, PRODUCER_FENCED)
REFUSALS: Final[Mapping[int, tuple[int, ...]]] = {
    PRODUCE: (NOT_LEADER, FEW_REPLICAS, PRODUCER_EPOCH),
    OFFSET_COMMIT: (*OF_COORDINATOR, REBALANCE, GENERATION, UNKNOWN_MEMBER),
    OFFSET_FETCH: (*OF_COORDINATOR, UNSTABLE),
    JOIN_GROUP: (*OF_COORDINATOR, UNKNOWN_MEMBER),
    HEARTBEAT: (*OF_COORDINATOR, REBALANCE, GENERATION, UNKNOWN_MEMBER),
    SYNC_GROUP: (*OF_COORDINATOR, REBALANCE, UNKNOWN_MEMBER),
    INIT_PRODUCER_ID: (*OF_COORDINATOR, UNAVAILABLE, CONCURRENT, PRODUCER_FENCED),
    ADD_PARTITIONS: (*OF_COORDINATOR, CONCURRENT, *FENCING),
    ADD_OFFSETS: (*OF_COORDINATOR, CONCURRENT, *FENCING),
    END_TXN: (*OF_COORDINATOR, CONCURRENT, *FENCING),
    TXN_OFFSET_COMMIT: (*OF_COORDINATOR, REBALANCE, GENERATION, UNKNOWN_MEMBER, PRODUCER_EPOCH),
    GROUP_HEARTBEAT: (*OF_COORDINATOR, UNKNOWN_MEMBER, FENCED_EPOCH),
}
"""API key -> the errors that requests of workers may get: what can be sent again, and what fences them."""
EXPELLING: Final = frozenset({GENERATION, UNKNOWN_MEMBER, FENCED_EPOCH})
OF_MEMBERS: Final = frozenset({OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT, SYNC_GROUP, GROUP_HEARTBEAT})
"""APIs whose answers tell a member that it is one, or that it is none any more."""
MOST_WORKERS: Final = 3


class Plan:
    """A job: where it is, how long its runs take, how many of them fail, and what became of it."""

    __slots__ = ("end", "failures", "id", "key", "lasts_s", "number", "offset", "partition", "queue", "runs", "task")

    def __init__(
        self,
        number: int,
        queue: str,
        partition: int,
        key: bytes | None = None,
        task: str = "plain",
        lasts_s: float = 0.0,
        failures: int = 0,
    ) -> None:
        self.number = number
        self.id = ""
        self.queue = queue
        self.partition = partition
        self.key = key
        self.offset = -1
        self.task = task
        self.lasts_s = lasts_s
        self.failures = failures
        self.runs: list[Run] = []
        self.end: StateRecord | None = None

    def __str__(self) -> str:
        return f"job {self.number} ({self.queue}-{self.partition}:{self.offset}, key {self.key!r})"


class DeliveryStory(Story):
    """See the module."""

    kind = "jobs"
    watched: ClassVar[frozenset[int]] = OF_MEMBERS
    closes_within_s = 60.0
    allowed_errors: ClassVar[tuple[str, ...]] = ("could not write the records of job",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        rng = self.rng
        self.names: TopicNames = APP.names
        self.queues = rng.choice((("fast",), ("line",), ("fast", "line")))
        self.ordered = {"line"} & {*self.queues}
        self.partitions = rng.choice((1, 2, 3))
        self.protocol = rng.choice(("classic", "classic", "consumer"))
        self.by_generation = self.protocol == "consumer" or rng.random() < 0.7
        self.settings: Settings = dataclasses.replace(
            APP.settings, request_timeout=3.0, stop_grace=rng.choice((2.0, 8.0, 20.0)), kill_grace=1.0
        )
        self.longest_s = rng.choice((0.1, 5.0, 20.0, 60.0))
        self.keys = [b"a", b"b", b"c"][: rng.choice((1, 3))] if rng.random() < 0.8 else []
        self.to_enqueue = rng.choice((5, 15, 40))
        self.has_backoff = bool(self.ordered) and rng.random() < 0.5
        if self.has_backoff:
            world.faults.spared = frozenset({"step"})  # what is due in an hour ends in an hour
        self.refusals = rng.choice((0.0, 0.0, 0.01, 0.05))
        self.refused_apis = [key for key in REFUSALS if rng.random() < 0.5]
        world.faults.lasts_s = rng.choice((5.0, 20.0, 60.0))
        self.jobs: dict[str, Plan] = {}
        self.workers: list[SimulatedWorker] = []
        self.copies: dict[tuple[str, bool], StateRecord] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.reader: KafkaConsumer | None = None
        self.reader_client: Any = None
        self._unheard: dict[int, Any] = {}

    # -- the course ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        world, rng = self.world, self.rng
        self.make_topics()
        world.note(
            "queues", self.queues, "partitions", self.partitions, self.protocol,
            "by generation" if self.by_generation else "by partition", "grace", self.settings.stop_grace,
            "longest", self.longest_s, "refusals", self.refusals,
        )  # fmt: skip
        self.look_at_offsets()
        self.enqueue()
        for _ in range(rng.randint(1, MOST_WORKERS)):
            world.later(rng.choice((0.0, rng.uniform(0.0, 3.0))), self.join)
        for _ in range(rng.choice((0, 1, 2, 4, 6))):
            world.later(rng.uniform(0.5, world.faults.lasts_s), self.change)

    def make_topics(self) -> None:
        """The topics of the app, and the groups' settings."""
        world, shape = self.world, TopicDefaults(self.partitions)
        plans = [*results_plans(self.names, shape)]
        for queue in self.queues:
            plans += queue_plans(self.names, queue, shape)
            if self.protocol == "consumer":
                settings = {name.replace(".", "_"): value for name, value in GROUP_SETTINGS}
                world.configure_group(self.names.group(queue), **settings)
        for plan in plans:
            world.create_topic(plan.name, plan.partitions, {"message.timestamp.type": "LogAppendTime"})

    @property
    def settles_within(self) -> float:
        return 150.0 + 4 * sum((plan.failures + 1) * plan.lasts_s for plan in self.jobs.values())

    def is_up(self) -> bool:
        return self.world.broker is not None and not self.world.broker_host.loop.is_paused

    def enqueue(self) -> None:
        world, rng = self.world, self.rng
        if self.to_enqueue <= 0:
            return
        if self.is_up():
            for _ in range(min(self.to_enqueue, rng.choice((1, 3, 10)))):
                self.enqueue_one()
        world.later(rng.choice((0.0, 0.1, 1.0, 4.0)), self.enqueue)

    def enqueue_one(self) -> None:
        rng = self.rng
        self.to_enqueue -= 1
        queue, key = rng.choice(self.queues), rng.choice((None, *self.keys))
        partition = rng.randrange(self.partitions) if key is None else zlib.crc32(key) % self.partitions
        lasts_s = rng.choice((0.0, 0.0, 0.1, 1.0)) * self.longest_s * rng.random()
        later = ("later",) if self.has_backoff and queue in self.ordered else ()
        task = rng.choice(("plain", "again", *later))
        self.put(Plan(len(self.jobs), queue, partition, key, task, lasts_s, rng.choice((0, 0, 0, 0, 1, 2, 3))))

    def put(self, plan: Plan) -> None:
        """Enqueue a job, past the network."""
        world = self.world
        assert world.broker is not None
        plan.id = make_id(world.broker.epoch_ms(), self.rng.randrange(self.partitions), self.rng.randbytes(8))
        envelope = Envelope(plan.id, plan.task, encode_call(plan.task, (plan.number,), {}), key=plan.key)
        record = plan.key, envelope.value, list(envelope.headers())
        plan.offset = world.append(self.names.queue(plan.queue), plan.partition, [record])
        self.jobs[plan.id] = plan
        world.note("enqueued", str(plan), plan.task, "lasts", plan.lasts_s, "fails", plan.failures)

    def join(self, concurrency: int = 0) -> SimulatedWorker:
        host = self.world.host(f"w{len(self.workers) + 1}")
        self.world.note("joins", host.name)
        worker = SimulatedWorker(self, host, concurrency or self.rng.choice((1, 2, 4)))
        self.workers.append(worker)
        return worker

    def living(self) -> list[SimulatedWorker]:
        return [each for each in self.workers if each.is_living]

    def change(self) -> None:
        """A worker comes, leaves, dies, or stands still for longer than its session."""
        rng, world = self.rng, self.world
        living = [each for each in self.living() if not each.host.loop.is_paused]
        how = rng.choice(("join", "leave", "die", "vanish", "freeze"))
        if how == "join" or not living:
            if len(self.living()) < MOST_WORKERS:
                self.join()
            return
        worker = rng.choice(living)
        world.note(how, worker.host.name)
        if how == "leave":
            worker.stop()
        elif how == "freeze":
            worker.host.loop.pause()
            host: Host = worker.host
            world.faults.for_a_while(rng.uniform(8.0, 40.0), lambda: None if host.is_dead else host.loop.resume())
        else:
            worker.host.die(how == "die")

    def calm(self) -> None:
        while self.to_enqueue > 0:
            self.enqueue_one()
        if not self.living():
            self.join()
        self.settles_within_s = self.settles_within  # type: ignore[misc]
        self.read_results()

    def read_results(self) -> None:
        """Read what a reader of results sees."""
        self.reader_client = self.world.host("reader").client()
        self.reader = KafkaConsumer(
            client=self.reader_client,
            on_records=self.on_states,
            auto_offset_reset="earliest",
            isolation_level=READ_COMMITTED,
            metrics_enabled=False,
        )
        topics = (self.names.results, self.names.late)
        self.reader.assign([TopicPartition(topic, n) for topic in topics for n in range(self.partitions)])

    def is_done(self) -> bool:
        return all(plan.end is not None for plan in self.jobs.values()) and not self._uncommitted()

    def _uncommitted(self) -> list[str]:
        """The partitions with jobs whose end their group has not committed."""
        return [
            f"{plan} is not behind the committed offset"
            for plan in self.jobs.values()
            if self.committed.get(TopicPartition(self.names.queue(plan.queue), plan.partition), -1) <= plan.offset
        ]

    def look_at_offsets(self) -> None:
        """What the groups have committed, each second."""
        if self.is_up():
            for queue in self.queues:
                topics = [
                    OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=[*range(self.partitions)])
                    for name in self.names.job_topics(queue)
                ]
                answer: Any = self.world.ask(OffsetFetchRequest(group_id=self.names.group(queue), topics=topics), 7)
                for topic in answer.topics:
                    for part in topic.partitions:
                        place = TopicPartition(topic.name, part.partition_index)
                        former = self.committed.get(place, -1)
                        if part.committed_offset < former:
                            self.world.violate(f"{place} is committed to {part.committed_offset}, after {former}")
                        self.committed[place] = part.committed_offset
        self.world.later(1.0, self.look_at_offsets)

    def missing(self) -> str:
        not_ended = [str(plan) for plan in self.jobs.values() if plan.end is None]
        return "; ".join([f"no end of {', '.join(not_ended)}" if not_ended else "", *self._uncommitted()])

    def close(self) -> Callable[[], bool]:
        living = self.living()
        for worker in living:
            worker.stop()
        return lambda: all(worker.has_left or worker.host.is_dead for worker in self.workers)

    def check(self) -> None:
        for plan in self.jobs.values():
            on_time, late = self.copies.get((plan.id, False)), self.copies.get((plan.id, True))
            if on_time is not None and late is not None and on_time.time_ms <= time_of(plan.id) + LATE_AFTER_MS:
                self.world.violate(f"{plan} has two ends, in both topics")

    # -- what readers see ---------------------------------------------------------------------------------------------

    def on_states(self, found: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        for place, records in found.items():
            is_late = place.topic == self.names.late
            for record in records:
                state = decode_state(
                    record.key, record.value, record.headers, record.timestamp, is_late, record.offset
                )
                if state is not None and state.state in READY:
                    self.on_end(state)

    def on_end(self, state: StateRecord) -> None:
        world, plan = self.world, self.jobs[state.id]
        world.note("ends", str(plan), state.state.name, "late" if state.in_late else "")
        if (state.id, state.in_late) in self.copies:
            world.violate(f"{plan} has two ends")
        self.copies[state.id, state.in_late] = state
        plan.end = state
        attempts = 1 if plan.task == "plain" else 3
        expected = JobState.FAILURE if plan.failures >= attempts else JobState.SUCCESS
        if state.state is JobState.SUCCESS and (expected is not state.state or state.value != b"%d" % plan.number):
            world.violate(f"{plan} ends with {state.state} and {state.value!r}")
        if state.state is not expected and self.losses() < self.settings.crash_limit:
            world.violate(f"{plan} is {state.state}: {state.value!r}")
        if not plan.runs and state.state is JobState.SUCCESS:
            world.violate(f"{plan} has an end, and never ran")

    def losses(self) -> int:
        """How often a worker was lost, or may have been."""
        return sum(each.losses for worker in self.workers for each in worker.memberships.values())

    # -- what workers do ----------------------------------------------------------------------------------------------

    def begins(self, worker: SimulatedWorker, job: Job) -> Run:
        """A job starts in a worker's pool."""
        world, plan = self.world, self.jobs[job.envelope.id]
        run = Run(plan, worker, job, world.now)
        world.note("runs", worker.host.name, str(plan), "attempt", run.attempt, "delivery", job.lease.deliveries)
        if not run.may_be_repeated:  # else it may be a former member that does not know it yet
            if plan.end is not None:
                world.violate(f"{plan} runs in {worker.host.name} after its end")
            for former in plan.runs:
                if former.attempt >= run.attempt and not former.may_be_repeated:
                    world.violate(f"{plan} runs again in {worker.host.name} without a reason: {former}")
                is_cut_off = former.worker.host.is_dead and former.ended_at is None and former.lost_at is None
                if is_cut_off and former.attempt == run.attempt and not job.lease.source.is_suspect:
                    world.violate(f"{plan} is no suspect in {worker.host.name} after {former}")
            if plan.queue in self.ordered and plan.key is not None:
                self._check_order(run)
        plan.runs.append(run)
        worker.runs[job.lease] = run
        return run

    def _check_order(self, run: Run) -> None:
        plan = run.plan
        for other in self.jobs.values():
            if other is plan or (other.queue, other.key) != (plan.queue, plan.key) or not other.runs:
                continue
            if other.offset > plan.offset:
                self.world.violate(f"{plan} begins after {other}")
            for beside in other.runs:
                if beside.ended_at is None and not beside.may_be_repeated:
                    self.world.violate(f"{plan} runs in {run.worker.host.name} beside {beside}")

    def ended(self, run: Run) -> None:
        """Its function has returned."""
        run.ended_at = self.world.now
        self.world.note("ran", run.worker.host.name, str(run.plan))

    # -- what the broker does -----------------------------------------------------------------------------------------

    def _worker(self, connection: ConnectionContext) -> SimulatedWorker | None:
        return next((each for each in self.workers if each.host.name == connection.host), None)

    def on_request(self, connection: ConnectionContext, received: ReceivedRequest) -> ErrorResponse | None:
        request: Any = received.request
        worker = self._worker(connection)
        if worker is None:
            return None
        key = request.api_key
        if key in (OFFSET_COMMIT, TXN_OFFSET_COMMIT):
            self._look_at_metadata(request, worker)
        may_be_refused = key in self.refused_apis and (key != PRODUCE or request.transactional_id is not None)
        if self.world.is_stormy and may_be_refused and self.rng.random() < self.refusals:
            code = self.rng.choice(REFUSALS[key])
            self.world.note("fault", "refused", type(request).__name__, code, worker.host.name)
            worker.on_trouble()
            return ErrorResponse(request, received.version, code)
        if key == JOIN_GROUP:
            worker.memberships[request.group_id].on_joining()
        return None

    def _look_at_metadata(self, request: Any, worker: SimulatedWorker) -> None:
        for topic in request.topics:
            for part in topic.partitions:
                metadata = part.committed_metadata or ""
                if len(metadata) > MOST_CHARACTERS:
                    where = f"{topic.name}-{part.partition_index}"
                    self.world.violate(f"{worker.host.name} commits {len(metadata)} characters beside {where}")

    def on_fault(self, connection: ConnectionContext, received: ReceivedRequest | UnknownRequest) -> None:
        worker = self._worker(connection)
        if worker is not None:
            worker.on_trouble()
            if isinstance(received, ReceivedRequest):
                self._unheard[id(received.request)] = received.request

    def on_answer(self, connection: ConnectionContext, request: Any, response: Any) -> None:
        worker = self._worker(connection)
        if worker is None:
            return
        codes = {response.error_code} if "error_code" in response.fields else set()
        if request.api_key == OFFSET_COMMIT:
            codes = {part.error_code for topic in response.topics for part in topic.partitions}
        if codes & EXPELLING:
            worker.memberships[request.group_id].on_expelled()
        elif request.api_key != OFFSET_COMMIT and codes <= {0, REBALANCE} and id(request) not in self._unheard:
            worker.memberships[request.group_id].on_answered()

    def on_disconnected(self, connection: ConnectionContext) -> None:
        worker = self._worker(connection)
        if worker is not None:
            worker.on_connection_lost()

    def on_broker_gone(self) -> None:
        for worker in self.workers:
            worker.on_connection_lost()
