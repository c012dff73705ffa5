"""Several deliveries as one: a worker may lease some queues by share groups, and others by consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from kafka.errors import KafkaError
from kafka.tasks.delivery.base import (
    BrokerContact,
    DeliveryEvents,
    Ending,
    FinishCallback,
    JobDelivery,
    JobLease,
    JobSource,
    MetadataUse,
    OutgoingRecord,
    PublishCallback,
)

T = TypeVar("T")


class CombinedDelivery:
    """See the module and :class:`kafka.tasks.delivery.base.JobDelivery`. Each of ``opens`` makes a delivery, of other
    queues than the others."""

    def __init__(
        self, events: DeliveryEvents, opens: Iterable[Callable[[DeliveryEvents], JobDelivery]]
    ) -> None:
        self._events = events
        self._parts = [open_part(_PartEvents(events, self._on_left)) for open_part in opens]
        self._parts_left = len(self._parts)
        self._of_queue = {source.queue: part for part in self._parts for source in part.sources}
        self.sources: Sequence[JobSource] = [source for part in self._parts for source in part.sources]

    @property
    def lock_s(self) -> float:
        """The shortest of theirs."""
        return min(part.lock_s for part in self._parts)

    def request(self, source: JobSource, count: int) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._of_queue[source.queue].request(source, count)

    def drain(self, drained: Callable[[], object]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        left = len(self._parts)

        def on_drained() -> None:
            nonlocal left
            left -= 1
            if not left:
                drained()

        for part in self._parts:
            part.drain(on_drained)

    def renew(self, leases: Sequence[JobLease]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        for part, those in self._by_part(leases, lambda lease: lease).items():
            part.renew(those)

    def accept(self, leases: Sequence[JobLease]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        for part, those in self._by_part(leases, lambda lease: lease).items():
            part.accept(those)

    def publish(self, records: Sequence[OutgoingRecord], done: PublishCallback) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`. They publish alike."""
        self._parts[0].publish(records, done)

    def finish(self, endings: Sequence[Ending], done: FinishCallback) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        for part, those in self._by_part(endings, lambda ending: ending.lease).items():
            part.finish(those, done)

    def cancelled(self, ids: Collection[str]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        for part in self._parts:
            part.cancelled(ids)

    def contacts(self) -> list[BrokerContact]:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        return [contact for part in self._parts for contact in part.contacts()]

    def metadata_use(self) -> list[MetadataUse]:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        return [use for part in self._parts for use in part.metadata_use()]

    def close(self) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        for part in self._parts:
            part.close()

    def _on_left(self) -> None:
        self._parts_left -= 1
        if not self._parts_left:
            self._events.left()

    def _by_part(self, items: Iterable[T], lease_of: Callable[[T], JobLease]) -> Mapping[JobDelivery, list[T]]:
        found: dict[JobDelivery, list[T]] = {}
        for item in items:
            found.setdefault(self._of_queue[lease_of(item).source.queue], []).append(item)
        return found


class _PartEvents:
    """The events of one part: the worker's, but that it has left when all parts have."""

    def __init__(self, events: DeliveryEvents, left: Callable[[], None]) -> None:
        self._events = events
        self._left = left

    def leased(self, leases: list[JobLease]) -> None:
        self._events.leased(leases)

    def lost(self, leases: list[JobLease], reason: str) -> None:
        self._events.lost(leases, reason)

    def returning(self, leases: list[JobLease]) -> None:
        self._events.returning(leases)

    def replace_result(self, ending: Ending, record: OutgoingRecord) -> Ending:
        return self._events.replace_result(ending, record)

    def failed(self, error: KafkaError) -> None:
        self._events.failed(error)

    def left(self) -> None:
        self._left()
