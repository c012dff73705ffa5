"""Leases from share groups: one member for each topic, in the group of the topic's name.

A :class:`JobLease` holds its share record as ``token``. What each member holds is kept by record, so that what the
broker says of records (locks gone, a renewal refused) finds its lease. Acknowledgements that are said in one turn of
the loop go out together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kafka.client import KafkaClient
from kafka.errors import CorruptRecordError, IllegalStateError, KafkaError
from kafka.share import Acknowledged, AcknowledgeType, KafkaShareConsumer, ShareRecord
from kafka.tasks.delivery.base import DRAIN_S, BrokerContact, DeliveryEvents, JobLease, JobSource
from kafka.tasks.format.envelope import MALFORMED, MOST_HEADERS, Header
from kafka.tasks.rules.decide import LeaseVerdict

log = logging.getLogger(__name__)

FETCH_BYTES = 8 * 1024 * 1024
"""Of one answer, compressed as it may be: who holds much asks for nothing more, and so much may still come."""

LOOK_EVERY_S = 0.5
"""Suspects are looked for so often, and no poll waits for them: each of their deliveries counts as a crash, and a poll
that waits while its worker is killed acquires records that are not run. It takes as many requests as polls that
wait."""

_TYPES = {
    LeaseVerdict.ACCEPT: AcknowledgeType.ACCEPT,
    LeaseVerdict.RELEASE: AcknowledgeType.RELEASE,
    LeaseVerdict.REJECT: AcknowledgeType.REJECT,
}


class ShareDelivery:
    """See :class:`kafka.tasks.delivery.base.JobDelivery`. On the loop's thread."""

    def __init__(
        self, client: KafkaClient, sources: Sequence[JobSource], events: DeliveryEvents, delivery_limit: int
    ) -> None:
        self.delivery_limit = delivery_limit
        self._loop = client.loop
        self._events = events
        self._members = {source: _Member(client, source, events) for source in sources}
        self._is_closing = False

    @property
    def lock_s(self) -> float:
        """Length of a lock in seconds."""
        return min(member.consumer.lock_s for member in self._members.values())

    def request(self, source: JobSource, count: int) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        if not self._is_closing:
            self._members[source].consumer.request_records(count, exactly=True)

    def fetch_suspects(self, queue: str) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        for source, member in self._members.items():
            if source.suspect and source.queue == queue and not self._is_closing:
                member.consumer.look()

    def drain(self, drained: Callable[[], object]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        left = len(self._members)
        timer = self._loop.call_later(DRAIN_S, drained)

        def one_is_quiet(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                timer.cancel()
                self._loop.call_soon(drained)

        for member in self._members.values():
            member.consumer.quiet_async().add_both(one_is_quiet)

    def renew(self, leases: Sequence[JobLease]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._acknowledge(leases, AcknowledgeType.RENEW)

    def settle(
        self, leases: Sequence[JobLease], verdict: LeaseVerdict, answered: Callable[[], object] | None = None
    ) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        if verdict is not LeaseVerdict.DROP:
            self._acknowledge(leases, _TYPES[verdict])
        if answered is not None:
            self._when_answered({lease.source for lease in leases}, answered)

    def contacts(self) -> list[BrokerContact]:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        consumers = [(source, member.consumer) for source, member in self._members.items()]
        return [BrokerContact(source, each.answered_at, each.heartbeat_interval_s) for source, each in consumers]

    def close(self) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._is_closing = True
        open_count = len(self._members)

        def one_has_left(_: object) -> None:
            nonlocal open_count
            open_count -= 1
            if not open_count:
                self._events.left()

        for member in self._members.values():
            member.consumer.close_async().add_both(one_has_left)

    def _when_answered(self, sources: set[JobSource], answered: Callable[[], object]) -> None:
        left = len(sources)

        def one_is_answered(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                self._loop.call_soon(answered)

        for source in sources:
            self._members[source].consumer.commit_async().add_both(one_is_answered)

    def _acknowledge(self, leases: Sequence[JobLease], kind: AcknowledgeType) -> None:
        by_source: dict[JobSource, list[JobLease]] = {}
        for lease in leases:
            by_source.setdefault(lease.source, []).append(lease)
        refused: list[JobLease] = []
        for source, of_one in by_source.items():
            refused += self._members[source].acknowledge(of_one, kind)
        if refused:
            self._loop.call_soon(self._events.lost, refused, "acquisition lock timed out")


class _Member:
    """One share consumer and the leases of what it holds."""

    __slots__ = ("_ended", "_events", "_held", "_source", "consumer")

    def __init__(self, client: KafkaClient, source: JobSource, events: DeliveryEvents) -> None:
        self._source = source
        self._events = events
        self._held: dict[ShareRecord, JobLease] = {}
        self._ended: dict[ShareRecord, JobLease] = {}  # of suspects: settled, and not answered yet
        self.consumer = KafkaShareConsumer(
            source.topic,
            group_id=source.topic,
            client=client,
            share_acknowledgement_mode="explicit",
            fetch_max_bytes=FETCH_BYTES,
            look_every_s=LOOK_EVERY_S if source.suspect else 0.0,
            on_records=self._leased,
            on_acknowledged=self._acknowledged,
            on_lost=self._lost,
            on_error=self._failed,
        )

    def acknowledge(self, leases: Sequence[JobLease], kind: AcknowledgeType) -> list[JobLease]:
        """Acknowledge the leases' records; those whose locks are gone."""
        held = self._held
        records: list[ShareRecord] = [lease.token for lease in leases]
        if kind is not AcknowledgeType.RENEW:
            for record in records:
                held.pop(record, None)
            if self._source.suspect:
                self._ended.update(zip(records, leases, strict=True))
        try:
            refused = self.consumer.acknowledge_all(records, kind)
        except IllegalStateError:  # closed: an answer that came after the worker had left
            refused = records
        if not refused:
            return []
        gone = set(refused)
        for record in gone:
            held.pop(record, None)
            self._ended.pop(record, None)
        return [lease for lease in leases if lease.token in gone]

    def _leased(self, records: list[ShareRecord]) -> None:
        leases = []
        source, held = self._source, self._held
        for record in records:
            headers, left_out = _headers(record)
            lease = held[record] = JobLease(
                source, record.value, headers, record.delivery_count, record.partition, record.offset, record, left_out
            )
            leases.append(lease)
        self._events.leased(leases)

    def _acknowledged(self, acknowledged: list[Acknowledged]) -> None:
        """Reports the leases whose acknowledgement was rejected as lost. A rejected ACCEPT of a finished job is
        logged, since the broker delivers the job again; its lease is known for suspects alone, whose settlements wait
        for the answer."""
        refused = [(record, kind, error) for record, kind, error in acknowledged if error is not None]
        ended: dict[ShareRecord, JobLease] = {}
        if self._ended:
            for record, kind, _ in acknowledged:
                lease = self._ended.pop(record, None) if kind is not AcknowledgeType.RENEW else None
                if lease is not None:
                    ended[record] = lease
        if not refused:
            return
        leases = []
        settled = 0
        for record, _, _ in refused:
            lease = self._held.pop(record, None)
            if lease is None:
                settled += 1
                lease = ended.get(record)
            if lease is not None:
                leases.append(lease)
        error = refused[0][2]
        if settled:
            log.warning(
                "%s: the acknowledgements of %d finished jobs were rejected, they will be delivered again: %s",
                self._source.topic,
                settled,
                error,
            )
        if leases:
            self._events.lost(leases, str(error))

    def _lost(self, records: list[ShareRecord], error: KafkaError | None) -> None:
        leases = [lease for record in records if (lease := self._held.pop(record, None)) is not None]
        if leases:
            self._events.lost(leases, "acquisition locks timed out" if error is None else str(error))

    def _failed(self, error: KafkaError) -> None:
        self._events.failed(error)


def _headers(record: ShareRecord) -> tuple[Sequence[Header], int]:
    """A record's headers; or none, and how many there are, when they are more than a job has or malformed."""
    try:
        count = record.headers_count
        return ([], count) if count > MOST_HEADERS else (record.headers, 0)
    except CorruptRecordError:
        return [], MALFORMED
