"""Leases from share groups: one member for each topic, in the group of the topic's name.

A :class:`JobLease` holds its share record in its claim. What each member holds is kept by record, so that what the
broker says of records (locks gone, a renewal refused) finds its lease. Acknowledgements that are said in one turn of
the loop go out together.

Nothing is asked for before all members have joined, and the queues are seen then not to be read by consumer groups:
``queue migrate`` deletes the first group of a queue only without members, and what joins a deleted one begins anew.

A queue's suspects have a member only while there are some: when this worker moves jobs there, or finds some in its
look every few seconds (:meth:`ShareDelivery.look_for_suspects`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from kafka.client import KafkaClient
from kafka.errors import (
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from kafka.log_limit import LimitedLog
from kafka.share import Acknowledged, AcknowledgeType, KafkaShareConsumer, ShareRecord
from kafka.tasks.backends.kafka.transactions import explain
from kafka.tasks.delivery.base import (
    DRAIN_S,
    BrokerContact,
    Claim,
    ClaimKind,
    DeliveryEvents,
    Ending,
    FinishCallback,
    JobLease,
    JobSource,
    MetadataUse,
    OutgoingRecord,
    PublishCallback,
    Publisher,
)
from kafka.tasks.delivery.finishing import PublishThenAccept
from kafka.tasks.errors import counted
from kafka.tasks.format.envelope import job_headers
from kafka.tasks.format.topics import TopicNames

log = logging.getLogger(__name__)

FETCH_BYTES = 8 * 1024 * 1024
"""Of one answer, compressed as it may be: who holds much asks for nothing more, and so much may still come."""

POLL_SUSPECTS_S = 0.5
"""Suspects are polled so often, and no poll waits for them: each of their deliveries counts as a crash, and a poll that
waits while its worker is killed acquires records that are not run. It takes as many requests as polls that wait."""

LOOK_S: Final = 5.0
"""Between looks for suspects of queues that have no member for them."""
JOIN_LOOK_S: Final = 0.01
"""Between looks whether all members have joined."""
CHECK_S: Final = 1.0
"""Between looks whether the queues were migrated, while the brokers do not say it."""
JOIN_S: Final = 60.0
"""How long a worker that starts waits for a place in a full group: more than a broker keeps that of a member that was
killed (45 s). Then it ends, so that its supervisor sees it. One that had a place, and a queue's suspects, wait on."""
IDLE_CHECKS: Final = 3
"""A member that has got no suspects in so many intervals leaves."""
REJECTED_LOG_S: Final = 60.0
"""Between two lines about rejected acknowledgements: each broker of a cluster may be restarted within a minute."""


class ShareDelivery:
    """See :class:`kafka.tasks.delivery.base.JobDelivery`. On the loop's thread.

    ``find_suspects(topics, found)`` looks which of these topics hold records and calls ``found`` with them;
    ``check(done)`` calls ``done`` with None, or with the error when one of the queues is delivered in the other way.
    """

    def __init__(
        self,
        client: KafkaClient,
        sources: Sequence[JobSource],
        events: DeliveryEvents,
        publisher: Publisher,
        names: TopicNames,
        find_suspects: Callable[[list[str], Callable[[set[str]], object]], object],
        check: Callable[[Callable[[Any], object]], object],
    ) -> None:
        self.sources = tuple(sources)
        self._client = client
        self._loop: Any = client.loop
        self._events = events
        self._publisher = publisher
        self._finishing = PublishThenAccept(publisher, self._accept, names, events, self._loop, self._on_moved)
        self._find_suspects = find_suspects
        # Of all sources: a broker that goes leads partitions of each.
        self._names = names
        self._rejected_log = LimitedLog(log, most=1, every_s=REJECTED_LOG_S, clock=client.loop.time)
        self._members = {
            source: _Member(client, source, events, names, self._rejected_log)
            for source in sources
            if not source.is_suspect
        }
        self._leaving: set[_Member] = set()
        self._requested: dict[JobSource, int] = {}
        self._check = check
        self._is_checked = False
        self._is_closing = False
        self._check_timer = self._loop.call_later(0.0, self._check_when_joined)
        self._look_timer = self._loop.call_later(0.0, self.look_for_suspects)

    @property
    def lock_s(self) -> float:
        """Length of a lock in seconds."""
        return min(member.consumer.lock_s for member in self._members.values())

    def request(self, source: JobSource, count: int) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`. Suspects are not asked for while jobs move there."""
        self._requested[source] = count
        if not self._is_checked or (source.is_suspect and count and self._finishing.is_moving):
            return
        member = self._members.get(source)
        if member is not None and not self._is_closing:
            member.consumer.request_records(count, exactly=True)

    def drain(self, drained: Callable[[], object]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._look_timer.cancel()
        self._check_timer.cancel()
        self._requested.clear()
        self._finishing.retry()
        members = list(self._members.values())
        left = len(members)
        timer = self._loop.call_later(DRAIN_S, drained)

        def on_drained(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                timer.cancel()
                self._loop.call_soon(drained)

        for member in members:
            member.consumer.quiet_async().add_both(on_drained)

    def renew(self, leases: Sequence[JobLease]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._acknowledge(leases, AcknowledgeType.RENEW)

    def accept(self, leases: Sequence[JobLease]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._acknowledge(leases, AcknowledgeType.ACCEPT, goes_on=True)

    def publish(self, records: Sequence[OutgoingRecord], done: PublishCallback) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._publisher.publish(records, done)

    def finish(self, endings: Sequence[Ending], done: FinishCallback) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._finishing.finish(endings, done)

    def cancelled(self, ids: Collection[str]) -> None:
        """No job waits here for another attempt."""

    def contacts(self) -> list[BrokerContact]:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        consumers = [(source, member.consumer) for source, member in self._members.items()]
        return [BrokerContact(source, each.answered_at, each.heartbeat_interval_s) for source, each in consumers]

    def metadata_use(self) -> list[MetadataUse]:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        return []

    def close(self) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._is_closing = True
        self._look_timer.cancel()
        self._check_timer.cancel()
        self._finishing.close()
        members = {*self._members.values(), *self._leaving}
        left = len(members)

        def on_closed(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                self._publisher.close()
                self._events.left()

        for member in members:
            member.close(on_closed)

    # -- joining ------------------------------------------------------------------------------------------------------

    def _check_when_joined(self) -> None:
        if all(member.consumer.has_joined for source, member in self._members.items() if not source.is_suspect):
            self._check(self._on_checked)
        else:
            self._check_timer = self._loop.call_later(JOIN_LOOK_S, self._check_when_joined)

    def _on_checked(self, error: BaseException | None) -> None:
        if self._is_closing:
            return
        if error is None:
            self._is_checked = True
            for source, count in list(self._requested.items()):
                self.request(source, count)
        elif isinstance(error, KafkaConfigurationError):
            self._events.failed(error)
        else:
            log.debug("could not see whether the queues were migrated, trying again: %s", error)
            self._check_timer = self._loop.call_later(CHECK_S, self._check_when_joined)

    # -- suspects -----------------------------------------------------------------------------------------------------

    def look_for_suspects(self) -> None:
        """Look for suspects of queues without a member for them; let members leave that have got none for a while."""
        if self._is_closing:
            return
        self._look_timer = self._loop.call_later(LOOK_S, self.look_for_suspects)
        for source in [source for source in self._members if source.is_suspect]:
            member = self._members[source]
            if member.is_idle():
                del self._members[source]
                self._leaving.add(member)
                member.close(partial(self._on_left, member))
            else:
                self.request(source, self._requested.get(source, 0))  # it was left out while jobs moved there
        missing = [source.topic for source in self.sources if source.is_suspect and source not in self._members]
        if missing:
            self._find_suspects(missing, self._open_suspects)

    def _open_suspects(self, topics: set[str]) -> None:
        for source in self.sources:
            if source.topic in topics and source not in self._members and not self._is_closing:
                self._members[source] = _Member(
                    self._client, source, self._events, self._names, self._rejected_log
                )
                self.request(source, self._requested.get(source, 0))

    def _on_left(self, member: _Member, _: object) -> None:
        self._leaving.discard(member)

    def _on_moved(self, queues: set[str]) -> None:
        """Suspects of these queues have become more: fetch them at once."""
        if self._is_closing:
            return
        self._open_suspects({source.topic for source in self.sources if source.is_suspect and source.queue in queues})
        for source, member in self._members.items():
            if source.is_suspect:
                member.consumer.request_records(self._requested.get(source, 0), exactly=True)
                if source.queue in queues:
                    member.look()

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def _accept(self, leases: list[JobLease], answered: Callable[[], object] | None) -> None:
        self._acknowledge(leases, AcknowledgeType.ACCEPT)
        if answered is None:
            return
        members = {self._members[lease.source] for lease in leases if lease.source in self._members}
        left = len(members)

        def on_answered(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                self._loop.call_soon(answered)

        for member in members:
            member.consumer.commit_async().add_both(on_answered)
        if not members:
            self._loop.call_soon(answered)

    def _acknowledge(self, leases: Sequence[JobLease], kind: AcknowledgeType, goes_on: bool = False) -> None:
        by_source: dict[JobSource, list[JobLease]] = {}
        for lease in leases:
            by_source.setdefault(lease.source, []).append(lease)
        refused: list[JobLease] = []
        for source, of_one in by_source.items():
            member = self._members.get(source)
            refused += of_one if member is None else member.acknowledge(of_one, kind, goes_on)
        if refused:
            self._loop.call_soon(self._events.lost, refused, "acquisition lock timed out")


class _Member:
    """One share consumer and the leases of what it holds."""

    __slots__ = (
        "_unanswered", "_events", "_full_since", "_held", "_idle_checks", "_loop", "_names", "_rejected_log",
        "_source", "consumer",
    )  # fmt: skip

    def __init__(
        self,
        client: KafkaClient,
        source: JobSource,
        events: DeliveryEvents,
        names: TopicNames,
        rejected_log: LimitedLog,
    ) -> None:
        self._source = source
        self._names = names
        self._rejected_log = rejected_log
        self._events = events
        self._held: dict[ShareRecord, JobLease] = {}
        self._unanswered: dict[ShareRecord, JobLease] = {}  # accepted and not answered yet: suspects, and what goes on
        self._idle_checks = 0
        self._full_since: float | None = None
        self._loop: Any = client.loop
        self.consumer = KafkaShareConsumer(
            source.topic,
            group_id=source.topic,
            client=client,
            share_acknowledgement_mode="explicit",
            fetch_max_bytes=FETCH_BYTES,
            look_every_s=POLL_SUSPECTS_S if source.is_suspect else 0.0,
            on_records=self._leased,
            on_acknowledged=self._acknowledged,
            on_lost=self._lost,
            on_error=self._failed,
            on_trouble=self._on_trouble,
        )

    def look(self) -> None:
        """Fetch at once: there are records."""
        self._idle_checks = 0
        self.consumer.look()

    def is_idle(self) -> bool:
        """Whether it holds nothing and has got nothing in the last intervals; called once in each. One that waits for a
        place in its group is not idle."""
        is_waiting = self._full_since is not None and self.consumer.answered_at is None
        self._idle_checks = 0 if self._held or self._unanswered or is_waiting else self._idle_checks + 1
        return self._idle_checks > IDLE_CHECKS

    def close(self, closed: Callable[[object], object]) -> None:
        """Leave the group; ``closed`` is called when it has left."""
        self.consumer.close_async().add_both(closed)

    def acknowledge(self, leases: Sequence[JobLease], kind: AcknowledgeType, goes_on: bool) -> list[JobLease]:
        """Acknowledge the leases' records; those whose locks are gone. ``goes_on``: their jobs have not ended."""
        held = self._held
        records: list[ShareRecord] = [_record(lease) for lease in leases]
        if kind is not AcknowledgeType.RENEW:
            for record in records:
                held.pop(record, None)
            if goes_on or self._source.is_suspect:
                self._unanswered.update(zip(records, leases, strict=True))
        try:
            refused = self.consumer.acknowledge_all(records, kind)
        except IllegalStateError:  # closed: an answer that came after the worker had left
            refused = records
        if not refused:
            return []
        gone = set(refused)
        for record in gone:
            held.pop(record, None)
            self._unanswered.pop(record, None)
        return [lease for lease in leases if _record(lease) in gone]

    def _leased(self, records: list[ShareRecord]) -> None:
        leases = []
        source, held = self._source, self._held
        self._idle_checks = 0
        for record in records:
            headers, left_out = job_headers(record)
            lease = held[record] = JobLease(
                source,
                record.value,
                headers,
                record.delivery_count,
                record.partition,
                record.offset,
                Claim(ClaimKind.SHARE_LOCK, record),
                left_out,
                record.key,
            )
            leases.append(lease)
        self._events.leased(leases)

    def _acknowledged(self, acknowledged: list[Acknowledged]) -> None:
        """Reports the leases whose acknowledgement was rejected as lost. A rejected ACCEPT of a finished job is
        logged, since the broker delivers the job again; its lease is known for suspects alone, whose settlements wait
        for the answer. A job that goes on by another claim is not finished, and its run is to end."""
        refused = [(record, kind, error) for record, kind, error in acknowledged if error is not None]
        ended: dict[ShareRecord, JobLease] = {}
        if self._unanswered:
            for record, kind, _ in acknowledged:
                lease = self._unanswered.pop(record, None) if kind is not AcknowledgeType.RENEW else None
                if lease is not None:
                    ended[record] = lease
        if not refused:
            return
        leases = []
        settled = 0
        for record, _, _ in refused:
            lease = self._held.pop(record, None)
            if lease is None:
                lease = ended.get(record)
                settled += lease is None or not lease.is_handed_off
            if lease is not None:
                leases.append(lease)
        error = refused[0][2]
        if settled:
            self._rejected_log.warning(
                "rejected",
                "%s: the acknowledgements of %s were rejected, they will be delivered again: %s",
                self._source.topic,
                counted(settled, "finished job"),
                error,
            )
        if leases:
            self._events.lost(leases, str(error))

    def _lost(self, records: list[ShareRecord], error: KafkaError | None) -> None:
        leases = [lease for record in records if (lease := self._held.pop(record, None)) is not None]
        if leases:
            self._events.lost(leases, "acquisition locks timed out" if error is None else str(error))

    def _on_trouble(self, error: KafkaError) -> None:
        """It is refused again every few seconds while its group is full; the consumer logs it."""
        if not isinstance(error, GroupMaxSizeReachedError):
            return
        now = self._loop.time()
        if self._full_since is None:
            self._full_since = now
        has_been_member = self.consumer.answered_at is not None
        if not has_been_member and not self._source.is_suspect and now - self._full_since >= JOIN_S:
            self._failed(error)

    def _failed(self, error: KafkaError) -> None:
        if isinstance(error, (GroupAuthorizationFailedError, TopicAuthorizationFailedError)):
            text = explain(error, self._names)
            refused = KafkaError(f"cannot take jobs as a member of share group {self._source.topic}: {text}")
            refused.__cause__ = error
            error = refused
        self._events.failed(error)


def _record(lease: JobLease) -> ShareRecord:
    assert lease.claim is not None
    record: ShareRecord = lease.claim.token
    return record
