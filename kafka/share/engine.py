"""One member of one share group on a loop: heartbeats to the coordinator, a session with every leader, and the demand.

**Every partition of the subscription is fetched**, the assigned ones first. The assignment of a share group is a
preference that brokers do not check, and it moves slowly: measured on Apache Kafka 4.3.0 with two members on two
partitions, the partition of a killed member stood still for 44.8 s (the session time-out's floor is 45 s) when the
other kept to its assignment, and not at all when it fetched both. Heartbeats are still needed: they make the group's
state.

Demand is what the owner wants beyond what it has: a count that goes down with what comes, until it is said anew. It is
split over the leaders, so that all of them are asked at once and no more comes than was wanted but for what whole
batches bring (with ``exactly``, never more).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from kafka.client import KafkaClient
from kafka.core.routing import Coordinator
from kafka.core.share.membership import HeartbeatOutcome, MemberState, ShareMembership
from kafka.core.share.records import AcknowledgeType, SharePartition, ShareRecord
from kafka.core.share.requests import Demand
from kafka.core.share.session import Acknowledged, Holding, Outcome, ShareSession
from kafka.errors import IllegalStateError, KafkaError
from kafka.future import Future
from kafka.net.loop import LoopTimer
from kafka.share.link import ShareLink
from kafka.structs import TopicPartition

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
"""How long closing waits for brokers that do not answer."""


class ShareEvents(Protocol):
    """What the engine tells its owner, on the loop's thread."""

    def on_records(self, records: list[ShareRecord]) -> None:
        """Records that this member holds now."""

    def on_acknowledged(self, acknowledged: list[Acknowledged]) -> None:
        """What became of acknowledgements."""

    def on_lost(self, records: list[ShareRecord], error: KafkaError | None) -> None:
        """Held records whose locks are gone: with the connection, the session, or (error None) the time."""

    def on_error(self, error: KafkaError) -> None:
        """The group cannot be joined, or not any more. Nothing comes after this."""


class ShareEngine:
    """See the module. All methods on the loop's thread."""

    def __init__(
        self,
        client: KafkaClient,
        events: ShareEvents,
        group_id: str,
        member_id: str,
        *,
        rack_id: str = "",
        fetch_max_bytes: int = 52_428_800,
        fetch_max_wait_ms: int = 500,
        check_crcs: bool = True,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self._client = client
        self._events = events
        self._fetch_max_bytes = fetch_max_bytes
        self._fetch_max_wait_ms = fetch_max_wait_ms
        self._check_crcs = check_crcs
        self._membership = ShareMembership(group_id, member_id, rack_id or None)
        self._topics: list[str] = []
        self._links: dict[int, ShareLink] = {}
        self._demand = Demand(0)
        self._has_joined = False  # an assignment has come: the group's state of these partitions exists
        self._timer: LoopTimer | None = None
        self._closing: Future[None] | None = None
        client.cluster.add_listener(self._metadata_changed)

    # -- what the owner says -------------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str]) -> None:
        """The topics to read from now on; records held of others stay acknowledgeable until their locks end."""
        self._topics = list(topics)
        self._membership.subscribe(self._topics, self._client.loop.time())
        if self._topics:
            self._client.refresh_metadata(self._topics).add_errback(self._metadata_failed)
        self._assign_links()
        self._heartbeat()

    def request_records(self, count: int, exactly: bool = False) -> None:
        """Want ``count`` more records from now on, instead of what was wanted before; 0: none.

        ``exactly``: never more (record-limit mode); else producers' batches come whole, and may bring some more.
        """
        grew = count > self._demand.records or exactly != self._demand.exactly
        self._demand = Demand(count, exactly)
        if grew:
            for link in self._links.values():
                link.pump_soon()

    @property
    def demand(self) -> int:
        """Records that are still wanted."""
        return self._demand.records

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Say ``kind`` of a held record. What is said in one turn of the loop goes out together.

        IllegalStateError when it is not held (any more). The answer comes through ``on_acknowledged``.
        """
        holding = record.owner
        if not isinstance(holding, Holding):
            raise IllegalStateError(f"{record!r} was not handed out by a share session")
        holding.session.acknowledge(record, kind)
        link = self._link_of(holding.session)
        if link is not None:
            link.pump_soon()

    def flush(self) -> Future[None]:
        """Send what was acknowledged; done when all of it has been answered."""
        return _when_all([link.flush() for link in self._links.values()])

    @property
    def held_count(self) -> int:
        """Records that are locked for this member and not acknowledged."""
        return sum(link.session.held_count for link in self._links.values())

    @property
    def lock_s(self) -> float:
        """Length of a lock in seconds, as the last answer told it."""
        return max((link.session.lock_s for link in self._links.values()), default=30.0)

    @property
    def state(self) -> MemberState:
        """Where the member stands in its group."""
        return self._membership.state

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> Future[None]:
        """Say the last acknowledgements, give back what is held, leave the group. Any number of times."""
        if self._closing is None:
            done = self._closing = Future()
            self._demand = Demand(0)
            timer = self._client.loop.call_later(timeout_s, self._finish)
            done.add_both(lambda _: timer.cancel())
            # Sessions first: leaving the group frees no locks.
            _when_all([link.close() for link in self._links.values()]).add_callback(self._leave)
        return self._closing

    # -- links ---------------------------------------------------------------------------------------------------------

    def demand_for(self, link: ShareLink) -> Demand:
        """The link's part of what is wanted and not asked for yet."""
        if self._closing is not None:
            return Demand(0)
        wanted, exactly = self._demand
        asked = sum(each.asked for each in self._links.values() if each is not link)
        if not exactly:
            # Overshooting by what other polls under way may bring would hold records that nobody wants yet.
            asked = min(asked, wanted - 1) if wanted else 0
        free = wanted - asked
        if free <= 0:
            return Demand(0, exactly)
        share = -(-wanted // max(1, len(self._links)))
        return Demand(min(free, share), exactly)

    def on_outcome(self, link: ShareLink, outcome: Outcome) -> None:
        """Called by links."""
        if outcome.records:
            left = max(0, self._demand.records - len(outcome.records))
            self._demand = Demand(left, self._demand.exactly)
            self._events.on_records(outcome.records)
        if outcome.acknowledged:
            self._events.on_acknowledged(outcome.acknowledged)
        if outcome.lost:
            log.warning(
                "%s: %d records held on node %s are lost: %s",
                self.group_id, len(outcome.lost), link.node_id, outcome.error or "their locks have run out",
            )  # fmt: skip
            self._events.on_lost(outcome.lost, outcome.error)
        for partition, error in outcome.partition_errors.items():
            log.info("%s: %s: %s", self.group_id, partition, error)
        if any(error.invalid_metadata for error in outcome.partition_errors.values()):
            self._client.refresh_metadata().add_errback(self._metadata_failed)
        if outcome.error is not None:
            log.info("%s: the session with node %s ended: %s", self.group_id, link.node_id, outcome.error)

    def _link_of(self, session: ShareSession) -> ShareLink | None:
        return next((link for link in self._links.values() if link.session is session), None)

    def _metadata_changed(self, *_: object) -> None:
        self._assign_links()

    def _metadata_failed(self, error: BaseException) -> None:
        log.debug("%s: no metadata of %s: %s", self.group_id, self._topics, error)

    def _assign_links(self) -> None:
        """Give each leader's link its partitions; make links for new leaders and drop those without."""
        if not self._has_joined or self._closing is not None:
            return
        by_leader, topics = self._partitions_by_leader()
        for node_id in self._links.keys() - by_leader.keys():
            link = self._links.pop(node_id)
            self._report_lost(link.session.set_partitions([], {}))
            link.abandon()
        for node_id, partitions in by_leader.items():
            found = self._links.get(node_id)
            if found is None:
                session = ShareSession(
                    self.group_id,
                    self.member_id,
                    fetch_max_bytes=self._fetch_max_bytes,
                    check_crcs=self._check_crcs,
                    max_wait_ms=self._fetch_max_wait_ms,
                )
                lane = f"share-{self.member_id}"
                found = self._links[node_id] = ShareLink(self._client, self, node_id, lane, session)
            self._report_lost(found.session.set_partitions(partitions, topics))
            found.pump_soon()

    def _partitions_by_leader(self) -> tuple[dict[int, list[SharePartition]], dict[UUID, str]]:
        cluster = self._client.cluster
        assigned = set(self._membership.assignment)
        topics: dict[UUID, str] = {}
        found: dict[int, list[SharePartition]] = {}
        for topic in self._topics:
            topic_id = cluster.topic_id(topic)
            if topic_id is None:
                continue
            topics[topic_id] = topic
            for number in sorted(cluster.partitions_for_topic(topic) or ()):
                leader = cluster.leader_for_partition(TopicPartition(topic, number))
                if leader is not None and leader >= 0:
                    found.setdefault(leader, []).append(SharePartition(topic_id, number))
        for partitions in found.values():
            partitions.sort(key=lambda each: each not in assigned)
        return found, topics

    def _report_lost(self, lost: list[ShareRecord]) -> None:
        if lost:
            self._events.on_lost(lost, None)

    # -- the group -----------------------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        self._disarm()
        request = self._membership.next_request(self._client.loop.time())
        if request is not None:
            future: Future[Any] = self._client.request(Coordinator(self.group_id), request)
            future.add_callback(self._heartbeat_answered)
            future.add_errback(self._heartbeat_failed)
            return
        due_at = self._membership.due_at()
        if due_at is not None:
            self._timer = self._client.loop.call_at(due_at, self._heartbeat)

    def _heartbeat_answered(self, response: Any) -> None:
        self._after_heartbeat(self._membership.on_response(response, self._client.loop.time()))

    def _heartbeat_failed(self, error: BaseException) -> None:
        if not isinstance(error, KafkaError):
            error = KafkaError(f"heartbeat of {self.group_id}: {error!r}")
        self._after_heartbeat(self._membership.on_failure(error, self._client.loop.time()))

    def _after_heartbeat(self, outcome: HeartbeatOutcome) -> None:
        if outcome.lost_coordinator:
            self._client.coordinators.forget(Coordinator(self.group_id))
        if outcome.assignment is not None:
            if outcome.assignment:
                self._has_joined = True
            self._assign_links()
        state = self._membership.state
        if outcome.error is not None:
            log.log(
                logging.ERROR if state is MemberState.FATAL else logging.INFO,
                "%s: heartbeat of member %s: %s", self.group_id, self.member_id, outcome.error,
            )  # fmt: skip
        if state is MemberState.LEFT or (state is MemberState.FATAL and self._closing is not None):
            self._finish()
        elif state is MemberState.FATAL:
            self._events.on_error(outcome.error or KafkaError(f"{self.group_id}: the group cannot be joined"))
        else:
            self._heartbeat()

    def _leave(self, _: object) -> None:
        if self._membership.state is MemberState.FATAL:
            self._finish()
            return
        self._membership.leave(self._client.loop.time())
        if self._membership.state is MemberState.LEFT:
            self._finish()
        else:
            self._heartbeat()

    def _finish(self) -> None:
        self._disarm()
        for link in self._links.values():
            link.abandon()
        self._links = {}
        if self._closing is not None and not self._closing.is_done:
            self._client.cluster.remove_listener(self._metadata_changed)
            self._closing.success(None)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _when_all(futures: Sequence[Future[None]]) -> Future[None]:
    """Done when all are."""
    done: Future[None] = Future()
    left = [len(futures)]

    def one(_: object) -> None:
        left[0] -= 1
        if not left[0]:
            done.success(None)

    for future in futures:
        future.add_both(one)
    if not futures:
        done.success(None)
    return done
