"""How a worker gets jobs and settles them: lease, renew, settle; and publish before settle.

Two interfaces that the worker drives and two kinds of values that pass through them. Everything happens on the worker's
loop, in its thread, and nothing blocks. The worker requests a number of jobs, and the delivery reports leases when they
arrive; whether it fetches, long-polls or waits is up to the delivery. Share groups are one delivery, consumer groups
will be another; the tests have one in memory with a manual clock.

A lease's ``stage`` and ``lost`` are written by :class:`kafka.tasks.worker.leases.Leases`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kafka.errors import KafkaError
from kafka.tasks.format.envelope import Header
from kafka.tasks.rules.decide import LeaseVerdict

DRAIN_S: Final = 2.0
"""So long at most brokers that are asked for jobs are waited for; a long poll is over after half a second."""


class JobSource(NamedTuple):
    """A topic that jobs are leased from: a queue's own, or that of its suspects."""

    queue: str
    topic: str
    suspect: bool = False


class JobLease:
    """One record that is ours until it is settled or its lock is lost.

    ``value`` and ``headers`` are the record's, ``deliveries`` its delivery count with this one, ``partition`` and
    ``offset`` where it is, ``token`` whatever the delivery needs to find it again. ``headers_left_out``: how many it
    has, when they are too many for a job (or ``envelope.MALFORMED``) and ``headers`` is empty. ``excused``: of its
    earlier deliveries, those whose locks this worker lost while it lived.
    """

    __slots__ = (
        "deliveries",
        "headers",
        "headers_left_out",
        "job",
        "leased_at",
        "locked_until",
        "lost",
        "offset",
        "partition",
        "source",
        "excused",
        "stage",
        "token",
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
        token: Any = None,
        headers_left_out: int = 0,
    ) -> None:
        self.source = source
        self.value = value
        self.headers = headers
        self.headers_left_out = headers_left_out
        self.deliveries = deliveries
        self.partition = partition
        self.offset = offset
        self.token = token
        # Both by the loop's clock, in seconds: set when the worker takes the lease, `locked_until` with each renewal.
        self.leased_at = 0.0
        self.locked_until = 0.0
        self.lost = False
        self.excused = 0
        self.stage = 0
        self.job: Any = None

    @property
    def origin(self) -> str:
        """TOPIC:PARTITION:OFFSET."""
        return f"{self.source.topic}:{self.partition}:{self.offset}"


class OutgoingRecord(NamedTuple):
    """One record to be written; ``partition`` None: any."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: list[Header] | None = None
    partition: int | None = None


class BrokerContact(NamedTuple):
    """When the brokers last answered for a source.

    ``at``: monotonic seconds of the last heartbeat or fetch that was answered without an error, None when none was yet;
    ``interval_s``: how often there is one at least.
    """

    source: JobSource
    at: float | None
    interval_s: float


class DeliveryEvents(Protocol):
    """Callbacks of a delivery, on the loop's thread."""

    def leased(self, leases: list[JobLease]) -> None:
        """Jobs have come, as many as were asked for at most."""

    def lost(self, leases: list[JobLease], reason: str) -> None:
        """The locks of these are gone (lock timeout, disconnect, an acknowledgement refused). Suspects that were
        settled may be among them, when the broker did not take that.
        """

    def failed(self, error: KafkaError) -> None:
        """Nothing more will come: the group cannot be joined, or not any more."""

    def left(self) -> None:
        """After :meth:`JobDelivery.close`: everything is settled as far as it could be, and the groups are left."""


class JobDelivery(Protocol):
    """Where jobs come from and how their leases end."""

    @property
    def lock_s(self) -> float:
        """Length of a lock in seconds; it may change with each response."""

    delivery_limit: int
    """After so many deliveries the broker drops a record silently."""

    def request(self, source: JobSource, count: int) -> None:
        """Ask for up to ``count`` more jobs from ``source``, instead of what was asked before; 0: none.

        Never more come, whatever a producer has put into one batch: what is held is bounded by what is asked for.
        (The broker sends a batch again for each part of it, so a few of many are expensive.)
        """

    def drain(self, drained: Callable[[], object]) -> None:
        """Ask for nothing more. ``drained`` is called on a later turn of the loop, when no request is out that may
        bring jobs, or the brokers have not answered for :data:`DRAIN_S`.
        """

    def fetch_suspects(self, queue: str) -> None:
        """There are suspects of this queue now: request them at once."""

    def renew(self, leases: Sequence[JobLease]) -> None:
        """Start the locks of these anew."""

    def settle(
        self, leases: Sequence[JobLease], verdict: LeaseVerdict, answered: Callable[[], object] | None = None
    ) -> None:
        """End these leases: ACCEPT, RELEASE or REJECT. Sent soon, many at a time.

        With ``answered`` they are sent at once, and it is called on a later turn of the loop, when the broker has
        answered or never will.
        """

    def contacts(self) -> list[BrokerContact]:
        """When the brokers last answered, for each source."""

    def close(self) -> None:
        """Settle what is due, close the sessions, leave the groups; :meth:`DeliveryEvents.left` follows."""


PublishCallback = Callable[[Sequence["int | BaseException"]], None]
"""Called once with an answer for each record: its append time in ms (-1: unknown), or why it is not there."""


class Publisher(Protocol):
    """How records are written."""

    def publish(self, records: Sequence[OutgoingRecord], done: PublishCallback) -> None:
        """Write the records, durably (acks=all), and call ``done`` on the loop when the last is answered."""

    def close(self) -> None:
        """Release what it holds; nothing is under way."""
