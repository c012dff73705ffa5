"""How a worker gets jobs and finishes them: lease, renew, finish.

The interface that the worker drives, the callbacks that it implements, and the values that pass between them.
Everything happens on the worker's loop, in its thread, and nothing blocks. The worker requests a number of jobs, and
the delivery reports leases when they arrive; whether it fetches, long-polls or waits is up to the delivery. To finish a
job belongs to the delivery as well: a share group publishes the job's records and acknowledges the lease afterwards,
a consumer group puts records and offsets into one transaction. A delivery in memory serves tests, and one process.

A lease is written by :class:`kafka.tasks.worker.leases.Leases` alone, once the worker has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from kafka.errors import KafkaError
from kafka.tasks.format.envelope import Envelope, Header
from kafka.tasks.format.topics import TopicNames

DRAIN_S: Final = 2.0
"""So long at most brokers that are asked for jobs are waited for; a long poll is over after half a second."""


class SourceKind(str, Enum):
    """What a topic that jobs are leased from holds. (A text, since sources are keys that are looked up for each job:
    the hash of a plain Enum is a call of Python's.)"""

    MAIN = "main"
    """Jobs as they were enqueued."""
    DUE = "due"
    """Jobs that were under way before: given back, waiting for another attempt, or for a worker that can run them."""
    SUSPECT = "suspect"
    """Jobs whose worker may have died while it held them. Each delivery here is a start."""


class JobSource(NamedTuple):
    """A topic that jobs are leased from. The rows of a queue come from the delivery: :meth:`JobDelivery.sources`."""

    queue: str
    topic: str
    kind: SourceKind = SourceKind.MAIN
    is_ordered: bool = False
    """A job stays where it is until it has ended for good, and the next ones of its key wait for that."""

    @property
    def is_suspect(self) -> bool:
        """Whether it is the topic of the queue's suspects."""
        return self.kind is SourceKind.SUSPECT


def sources_of(names: TopicNames, queues: Iterable[str], ordered: Collection[str] = ()) -> list[JobSource]:
    """The topics that jobs of these queues are leased from. Suspects of those that are ``ordered`` stay in the queue's
    topic; what is in their others was written by an app that does not declare the order."""
    sources: list[JobSource] = []
    for queue in queues:
        main, kinds = names.queue(queue), SourceKind
        if queue in ordered:
            sources += [JobSource(queue, main, kind, True) for kind in (kinds.MAIN, kinds.SUSPECT)]
        else:
            sources.append(JobSource(queue, main))
        sources.append(JobSource(queue, names.due(queue), kinds.DUE))
        sources.append(JobSource(queue, names.suspect(queue), kinds.SUSPECT))
    return sources


class ClaimKind(Enum):
    """What gives a worker the right to finish a job."""

    SHARE_LOCK = "share lock"
    """An acquisition lock of a share group, which is renewed and ends with an acknowledgement."""
    PARTITION = "partition of a consumer group"
    """The partition that the record is in: its owner has all that is there, for as long as it is a member."""
    SCHEDULE = "lease of the schedule"
    """A lease that the schedule keeps of a long job, whose record is accepted already."""


class Claim:
    """The right to finish a job: its kind, and whatever the delivery needs to find it again."""

    __slots__ = ("kind", "token")

    def __init__(self, kind: ClaimKind, token: Any = None) -> None:
        self.kind = kind
        self.token = token


class JobLease:
    """One record that is ours until it is finished or its claim is lost.

    ``value``, ``headers`` and ``key`` are the record's, ``deliveries`` its delivery count with this one, ``partition``
    and ``offset`` where it is. ``is_cancelled``: its job was cancelled while it ran. ``is_offered``: the schedule was
    asked for a lease of its job, and so has the job's next generation, or may have. ``headers_left_out``: how many it
    has, when they are too many for a job (or ``envelope.MALFORMED``) and ``headers`` is empty. ``excused``: of its
    earlier deliveries, those whose locks this worker lost while it lived.
    """

    __slots__ = (
        "claim",
        "deliveries",
        "excused",
        "headers",
        "headers_left_out",
        "is_cancelled",
        "is_offered",
        "job",
        "key",
        "leased_at",
        "locked_until",
        "lost",
        "offset",
        "partition",
        "source",
        "stage",
        "value",
    )

    def __init__(
        self,
        source: JobSource,
        value: bytes | None,
        headers: Sequence[Header],
        deliveries: int,
        partition: int = 0,
        offset: int = -1,
        claim: Claim | None = None,
        headers_left_out: int = 0,
        key: bytes | None = None,
    ) -> None:
        self.source = source
        self.value = value
        self.headers = headers
        self.key = key
        self.headers_left_out = headers_left_out
        self.deliveries = deliveries
        self.partition = partition
        self.offset = offset
        self.claim = claim
        # Both by the loop's clock, in seconds: set when the worker takes the lease, `locked_until` with each renewal.
        self.leased_at = 0.0
        self.locked_until = 0.0
        self.lost = False
        self.is_cancelled = False
        self.is_offered = False
        self.excused = 0
        self.stage = 0
        self.job: Any = None

    @property
    def is_handed_off(self) -> bool:
        """Whether the job goes on by a lease of the schedule."""
        claim: Claim | None = self.claim
        return claim is not None and claim.kind is ClaimKind.SCHEDULE

    @property
    def stays_in_place(self) -> bool:
        """Whether a job that is given back needs no other record: its delivery hands it out again."""
        claim: Claim | None = self.claim
        return claim is not None and claim.kind is ClaimKind.PARTITION

    @property
    def origin(self) -> str:
        """TOPIC:PARTITION:OFFSET."""
        return f"{self.source.topic}:{self.partition}:{self.offset}"


class RecordKind(Enum):
    """What a record is; it decides how records are batched on their way to the broker."""

    JOB = "job"
    """A job's next record. In small batches: a broker sends a batch again for each part of it that is acquired."""
    COMMAND = "command"
    """What the schedule is asked for (:mod:`kafka.tasks.format.commands`). As a job."""
    STATE = "state"
    """A state record. Read in order by plain consumers: in large batches."""
    DEAD = "dead"
    """A record for the dead topic. As a state record."""


class OutgoingRecord(NamedTuple):
    """One record to be written; ``partition`` None: any, or that of the key."""

    kind: RecordKind
    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: list[Header] | None = None
    partition: int | None = None


class Appended(NamedTuple):
    """Where a record was appended: milliseconds since the epoch by the broker's clock and its offset; -1: unknown."""

    time_ms: int
    offset: int = -1


class Ending:
    """How one lease ends: the records that must be durable before it is accepted.

    ``envelope`` None: it was no job. ``is_shortened``: a record was too large and has been replaced already, or is not
    to be, since its result is there.
    ``is_move``: the job goes to the suspects, or back to them; ``is_dead``: to the dead topic. ``is_last``: nothing
    follows, it has ended for good. ``after``: records that are written when all others are durable. ``is_cancelled``:
    it was cancelled, and nothing is written of it. ``stays``: its record is not accepted, and is delivered again as
    this job; None: it is.
    """

    __slots__ = (
        "after", "envelope", "is_cancelled", "is_dead", "is_last", "is_move", "is_shortened", "lease", "records",
        "stays",
    )  # fmt: skip

    def __init__(
        self,
        lease: JobLease,
        envelope: Envelope | None,
        records: list[OutgoingRecord],
        is_shortened: bool = False,
        is_move: bool = False,
        is_dead: bool = False,
        is_last: bool = False,
        after: Sequence[OutgoingRecord] = (),
        is_cancelled: bool = False,
        stays: Envelope | None = None,
    ) -> None:
        self.stays = stays
        self.lease = lease
        self.after = after
        self.envelope = envelope
        self.records = records
        self.is_shortened = is_shortened
        self.is_move = is_move
        self.is_dead = is_dead
        self.is_last = is_last
        self.is_cancelled = is_cancelled


class BrokerContact(NamedTuple):
    """When the brokers last answered for a source.

    ``at``: monotonic seconds of the last heartbeat or fetch that was answered without an error, None when none was yet;
    ``interval_s``: how often there is one at least.
    """

    source: JobSource
    at: float | None
    interval_s: float


class MetadataUse(NamedTuple):
    """How much of their offset metadata the partitions of a queue use that this worker owns in a consumer group.

    ``full_partitions``: of which nothing more is taken until jobs end that run for long; ``most_characters``: of the
    partition that uses most.
    """

    queue: str
    full_partitions: int
    most_characters: int


class DeliveryEvents(Protocol):
    """Callbacks of a delivery, on the loop's thread."""

    def leased(self, leases: list[JobLease]) -> None:
        """Jobs have come, as many as were asked for at most."""

    def lost(self, leases: list[JobLease], reason: str) -> None:
        """The claims of these are gone: a lock (timeout, disconnect, an acknowledgement refused) or a partition
        (revoked, or the worker is no member any more). Suspects that were finished may be among them, when the broker
        did not take that.
        """

    def returning(self, leases: list[JobLease]) -> None:
        """These are to end soon, since their partition goes to another worker: those that have not started are to be
        given back. What has not ended when the grace period is over is lost.
        """

    def replace_result(self, ending: Ending, record: OutgoingRecord) -> Ending:
        """How a job ends instead whose result, this record, its topic does not take."""

    def failed(self, error: KafkaError) -> None:
        """Nothing more will come: the group cannot be joined, or not any more."""

    def left(self) -> None:
        """After :meth:`JobDelivery.close`: everything is settled as far as it could be, and the groups are left."""


PublishCallback = Callable[[Sequence["Appended | BaseException"]], None]
"""Called once with an answer for each record: where it was appended, or why it was not."""

FinishCallback = Callable[[list[JobLease]], object]
"""Called with leases whose finishing is over: they are accepted, or their claims are lost."""


class JobDelivery(Protocol):
    """Where jobs come from and how their leases end."""

    @property
    def lock_s(self) -> float:
        """Length of a lock in seconds; it may change with each response."""

    @property
    def sources(self) -> Sequence[JobSource]:
        """The topics that jobs are leased from, the rows of a queue together."""

    def request(self, source: JobSource, count: int) -> None:
        """Ask for up to ``count`` more jobs from ``source``, instead of what was asked before; 0: none.

        Never more come, whatever a producer has put into one batch: what is held is bounded by what is asked for.
        (The broker sends a batch again for each part of it, so a few of many are expensive.)
        """

    def drain(self, drained: Callable[[], object]) -> None:
        """Ask for nothing more. ``drained`` is called on a later turn of the loop, when no request is out that may
        bring jobs, or the brokers have not answered for :data:`DRAIN_S`.
        """

    def renew(self, leases: Sequence[JobLease]) -> None:
        """Start the locks of these anew."""

    def accept(self, leases: Sequence[JobLease]) -> None:
        """Settle the records of these: their jobs go on by another claim."""

    def publish(self, records: Sequence[OutgoingRecord], done: PublishCallback) -> None:
        """Write records that finish nothing, durably (acks=all), and call ``done`` when the last is answered."""

    def finish(self, endings: Sequence[Ending], done: FinishCallback) -> None:
        """Write the records of each ending, then accept its lease, and call ``done``, with some of the leases at a
        time.

        What cannot be written is written again until it is, or the claim is lost: the worker renews it meanwhile. An
        ending whose result is too large is replaced (:meth:`DeliveryEvents.replace_result`).
        """

    def cancelled(self, ids: Collection[str]) -> None:
        """These jobs were cancelled, of whatever queues. What waits here for another attempt of one is leased now, so
        that the worker ends it."""

    def contacts(self) -> list[BrokerContact]:
        """When the brokers last answered, for each source."""

    def metadata_use(self) -> list[MetadataUse]:
        """Of each queue that is delivered by a consumer group."""

    def close(self) -> None:
        """Settle what is due, close the sessions, leave the groups; :meth:`DeliveryEvents.left` follows."""


class Publisher(Protocol):
    """How records are written."""

    def publish(self, records: Sequence[OutgoingRecord], done: PublishCallback) -> None:
        """Write the records, durably (acks=all), and call ``done`` on the loop when the last is answered."""

    def close(self) -> None:
        """Release what it holds; nothing is under way."""
