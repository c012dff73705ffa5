"""Workers of a simulated world: the real :class:`Worker` with the real :class:`GroupDelivery`, on a host of its own,
and a pool whose jobs take simulated time. What they do is told to the story."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafka.errors import KafkaError
from kafka.tasks import App, Retry
from kafka.tasks.backends.base import WorkerBackend
from kafka.tasks.backends.kafka.publisher import KafkaPublisher
from kafka.tasks.delivery.base import DeliveryEvents, Ending, JobDelivery, JobLease, OutgoingRecord, sources_of
from kafka.tasks.delivery.consumer_group.delivery import REBALANCE_S, SESSION_S, GroupDelivery
from kafka.tasks.delivery.consumer_group.owned_partition import OwnedPartition
from kafka.tasks.format.job_id import BrokerTimeEstimate
from kafka.tasks.options import WorkerOptions
from kafka.tasks.pools.base import Finished, SimplePool
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import AttemptFailed, ErrorInfo, JobSucceeded, Outcome
from kafka.tasks.settings import Settings
from kafka.tasks.worker.worker import Worker
from test.simulation.world import Host

if TYPE_CHECKING:
    from test.tasks.delivery.consumer_group.delivery_story import DeliveryStory, Plan

APP: Final = App("shop", bootstrap_servers="memory://")
WALL_S: Final = 1_700_000_000.0
SILENCE_S: Final = SESSION_S - 0.5
"""A member that was not answered for so long may have lost its partitions."""
DISTURBED_SILENCE_S: Final = SESSION_S / 2
"""The same where answers were lost on the way: who is behind a lost one is not heard either."""
NOTICED_S: Final = 0.05


@APP.task(name="plain")
def _plain(number: int) -> None: ...


@APP.task(name="again", retry=Retry(max_attempts=3))
def _again(number: int) -> None: ...


@APP.task(name="later", retry=Retry(max_attempts=3, backoff=lambda attempt: 2.0))
def _later(number: int) -> None: ...


class Membership:
    """What the coordinator of a group has heard of a worker, and the worker of it, past the worker's own code."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._now = host.world.loop.time
        self._heard_at = self._now()
        self._lost_at = -1.0
        self._losses = 0
        self._is_joining = False
        self.troubled_at = -1.0

    @property
    def losses(self) -> int:
        """How often others may have had to take the worker's jobs for lost."""
        return self._losses + (self._host.is_dead or self._is_silent())

    def may_have_lost(self, since: float) -> bool:
        """Whether it may have lost partitions since then."""
        told_at = self._lost_at + self._host.world.faults.longest_delay_s + NOTICED_S
        return self._host.is_dead or self._is_silent() or told_at >= since

    def on_answered(self) -> None:
        """The coordinator has answered it, and nothing keeps the answer back."""
        self._look_for_silence()
        self._is_joining = False
        if self._host.disturbed_until < self._now():
            self._heard_at = self._now()

    def on_joining(self) -> None:
        """The coordinator knows that it wants to join, and has it wait for others."""
        self._look_for_silence()
        self._is_joining = True

    def on_connection_lost(self) -> None:
        """What it waited for does not come."""
        self._is_joining = False
        self.troubled_at = self._now()

    def on_expelled(self) -> None:
        """The coordinator has said that it is no member any more."""
        self._losses += 1
        self._lost_at = self._now()

    def is_troubled_since(self, since: float) -> bool:
        """Whether anything has gone wrong on the way since then."""
        return max(self.troubled_at, min(self._now(), self._host.disturbed_until)) >= since

    def _is_silent(self) -> bool:
        is_disturbed = self.is_troubled_since(self._now() - 2 * SESSION_S)
        if self._is_joining and not self.is_troubled_since(self._heard_at):
            return False
        return self._now() - self._heard_at >= (DISTURBED_SILENCE_S if is_disturbed else SILENCE_S)

    def _look_for_silence(self) -> None:
        if self._is_silent():
            self._losses += 1
            self._lost_at = self._now()


class Run:
    """A job in a worker's pool. ``lost_at``: when its worker was told, with good reason, that the job is another's."""

    __slots__ = ("attempt", "began_at", "ended_at", "is_abandoned", "job", "lost_at", "plan", "worker")

    def __init__(self, plan: Plan, worker: SimulatedWorker, job: Job, now: float) -> None:
        self.plan = plan
        self.worker = worker
        self.job = job
        self.attempt = job.envelope.attempt
        self.began_at = now
        self.ended_at: float | None = None
        self.lost_at: float | None = None
        self.is_abandoned = False

    def __str__(self) -> str:
        return f"the run of {self.plan} by {self.worker.host.name} at {self.began_at:.4f}"

    @property
    def may_be_repeated(self) -> bool:
        """Whether the job may run again elsewhere: its worker is gone, was not heard for too long, lost the partition
        in good order, or may have failed to settle it when it gave the partition up."""
        worker = self.worker
        return (
            worker.host.is_dead
            or self.lost_at is not None
            or self.is_abandoned
            or worker.may_have_lost(self.job.lease)
            or worker.may_have_failed_to_settle(self.job.lease)
        )


class SimulatedPool(SimplePool):
    """Runs jobs for as long as the story says; it has no processes."""

    def __init__(self, worker: SimulatedWorker, concurrency: int) -> None:
        self.concurrency = self.depth = concurrency
        self._worker = worker
        self._waiting: deque[Job] = deque()
        self._runs: dict[Job, Run] = {}
        self._ended: list[Finished] = []

    @property
    def free_slots(self) -> int:
        return max(0, self.depth - self.busy)

    @property
    def busy(self) -> int:
        return len(self._waiting) + len(self._runs) + len(self._ended)

    def submit(self, job: Job) -> None:
        self._waiting.append(job)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._runs) < self.concurrency:
            job = self._waiting.popleft()
            run = self._runs[job] = self._worker.story.begins(self._worker, job)
            loop = self._worker.host.loop
            job.on_started(loop.time())
            loop.call_later(run.plan.lasts_s, self._end, run)

    def _end(self, run: Run) -> None:
        job, plan = run.job, run.plan
        del self._runs[job]
        job.on_ended(self._worker.host.loop.time() - (job.started_at or 0.0))
        outcome: Outcome = JobSucceeded(b"%d" % plan.number)
        if run.attempt <= plan.failures:
            outcome = AttemptFailed(ErrorInfo("ValueError", "as planned"))
        self._ended.append((job, outcome))
        self._worker.story.ended(run)
        self._fill()
        self._worker.host.loop.call_soon(self._worker.worker.finished)

    def finished(self, timeout: float = 0.0) -> list[Finished]:
        ended, self._ended = self._ended, []
        return ended

    def started(self) -> list[Job]:
        return []

    def recall(self) -> list[Job]:
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def tick(self, now: float) -> float | None:
        return None

    def interrupt(self) -> None:
        """Threads go on."""

    def abandon(self) -> list[Job]:
        self._worker.on_abandoned(list(self._runs.values()))
        return list(self._runs)

    def stop(self, grace: float) -> list[Job]:
        return list(self._runs)

    def statistics(self) -> dict[str, int]:
        return {"busy": self.busy}


class SimulatedWorker:
    """A worker, what the network has done to it, and what its delivery has told it (it passes that on)."""

    def __init__(self, story: DeliveryStory, host: Host, concurrency: int) -> None:
        self.story = story
        self.host = host
        self.concurrency = concurrency
        self.stops_at: float | None = None
        self.has_left = False
        self.leased_at: dict[JobLease, float] = {}
        self.runs: dict[JobLease, Run] = {}
        self._returning_at: dict[OwnedPartition, float] = {}
        self.memberships = {story.names.group(queue): Membership(host) for queue in story.queues}
        self.client = host.client()
        ahead_s = WALL_S - host.loop.time() + story.world.now
        self.clock = BrokerTimeEstimate(lambda: host.loop.time() + ahead_s)
        self.settings: Settings = story.settings
        self.publisher = KafkaPublisher(self.client, self.settings, self.clock, story.names.results)
        self.delivery: GroupDelivery
        self.worker: Worker
        self.has_started = False
        self.publisher.learn_time().add_both(self._start)

    def _start(self, _: object) -> None:
        settings, story = self.settings, self.story
        options = WorkerOptions(settings.crash_limit, settings.stop_grace, settings.kill_grace)
        self.has_started = True
        self.worker = Worker(
            APP.tasks,
            story.names,
            self.host.loop,
            self.clock.now_ms,
            self.host.name,
            WorkerBackend(self._open_delivery, story.partitions, 1),
            SimulatedPool(self, self.concurrency),
            options,
            self._on_left,
        )
        self.worker.start()
        if self.stops_at is not None:
            self.worker.stop()

    def _open_delivery(self, events: DeliveryEvents) -> JobDelivery:
        story = self.story
        self._events = events
        self.delivery = GroupDelivery(
            self.client,
            sources_of(story.names, story.queues, story.ordered),
            self,
            self.publisher,
            story.names,
            self.settings,
            self.clock,
            story.by_generation,
            story.protocol,
        )
        return self.delivery

    @property
    def is_living(self) -> bool:
        return not self.host.is_dead and self.stops_at is None

    @property
    def owned(self) -> int:
        """Of how many partitions it hands out jobs."""
        return len(self.delivery.committed()) if self.has_started else 0

    def stop(self) -> None:
        """End in good order."""
        if self.stops_at is None:
            self.stops_at = self.story.world.now
            if self.has_started:
                self.worker.stop()

    def _on_left(self) -> None:
        self.has_left = True
        self.story.world.note("left", self.host.name)
        self.client.close()

    def on_trouble(self) -> None:
        """Something has gone wrong on the way."""
        for membership in self.memberships.values():
            membership.troubled_at = self.story.world.now

    def on_connection_lost(self) -> None:
        """One of its connections has ended."""
        for membership in self.memberships.values():
            membership.on_connection_lost()

    def may_have_lost(self, lease: JobLease) -> bool:
        """Whether it may have lost the partition of a lease since it got that."""
        return self._membership(lease).may_have_lost(self.leased_at[lease])

    def may_have_failed_to_settle(self, lease: JobLease) -> bool:
        """Whether there was trouble when it was to settle the last of a partition that it gave up."""
        assert lease.claim is not None
        returning_at = self._returning_at.get(lease.claim.token)
        return returning_at is not None and self._membership(lease).is_troubled_since(returning_at - SESSION_S)

    def _membership(self, lease: JobLease) -> Membership:
        return self.memberships[self.story.names.group(lease.source.queue)]

    # -- events of the delivery ---------------------------------------------------------------------------------------

    def leased(self, leases: list[JobLease]) -> None:
        now = self.story.world.now
        for lease in leases:
            self.leased_at[lease] = now
        self._events.leased(leases)

    def lost(self, leases: list[JobLease], reason: str) -> None:
        story, now = self.story, self.story.world.now
        story.world.note("lost", self.host.name, [lease.origin for lease in leases], reason)
        grace_s = min(self.settings.stop_grace, REBALANCE_S / 2)
        for lease in leases:
            assert lease.claim is not None
            returning_at = self._returning_at.get(lease.claim.token, now)
            if not (self.may_have_lost(lease) or now - returning_at >= grace_s - NOTICED_S):
                story.world.violate(f"{self.host.name} has lost {lease.origin} without a reason: {reason}")
            run = self.runs.get(lease)
            if run is not None and run.lost_at is None:
                run.lost_at = now
        self._events.lost(leases, reason)

    def returning(self, leases: list[JobLease]) -> None:
        self.story.world.note("returning", self.host.name, [lease.origin for lease in leases])
        for lease in leases:
            assert lease.claim is not None
            self._returning_at.setdefault(lease.claim.token, self.story.world.now)
        self._events.returning(leases)

    def replace_result(self, ending: Ending, record: OutgoingRecord) -> Ending:
        return self._events.replace_result(ending, record)

    def failed(self, error: KafkaError) -> None:
        self.story.world.violate(f"{self.host.name} has failed: {error!r}")

    def left(self) -> None:
        self._events.left()

    def on_abandoned(self, runs: Sequence[Run]) -> None:
        """Its time to stop is over, and these have not ended."""
        assert self.stops_at is not None
        took_s = self.story.world.now - self.stops_at
        if took_s < self.settings.stop_grace + self.settings.kill_grace - NOTICED_S:
            self.story.world.violate(f"{self.host.name} has abandoned its jobs {took_s:.1f} s after it was to stop")
        for run in runs:
            run.is_abandoned = True
