"""One member of one share group on a loop: heartbeats to the coordinator, a session with every leader, and the demand.

**Every partition of the subscription is fetched**, the assigned ones first. The assignment of a share group is a
preference that brokers do not check, and it moves slowly: measured on Apache Kafka 4.3.0 with two members on two
partitions, the partition of a killed member stood still for 44.8 s (the session time-out's floor is 45 s) when the
other kept to its assignment, and not at all when it fetched both. Heartbeats are still needed: they make the group's
state.

The demand is the number of records that the owner requests beyond those it has; it falls with each record that arrives,
until it is set again. The driver divides it among the leaders and fetches from all of them at once. A leader returns at
most its part, except for whole batches, and may be asked again while others have not responded: so less than twice the
demand may arrive. With ``exactly`` (record-limit mode) never more than the demand arrives, except from a leader whose
response is overdue (``leader_sessions.py``): its part is then requested from others, because a silent leader would
otherwise block it for a whole request time-out. When the demand is too small for all leaders, those that have waited
longest go first, with short fetches: leaders take turns, and failed ones come after the others.

A poll requests *some* records, up to a count: the first records end its demand. Fetching the rest at once would bring
nothing before these are acknowledged, because the broker locks at most 2,000 offsets of a partition
(``share.partition.max.record.locks``), or one larger batch, and a waiting fetch delays the acknowledgements. Measured:
18,000 records of 100 bytes a second with that rest, whose fetch waited for 100 ms each, and 460,000 without. The limit
is a span of offsets and not a count, so one slow job at the front stops its partition.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, cast
from uuid import UUID

from kafka.client import KafkaClient
from kafka.core.routing import Coordinator
from kafka.core.share.acknowledgements import AcknowledgementResult, AcquiredRecords
from kafka.core.share.membership import HeartbeatOutcome, ShareMembership, ShareMemberState
from kafka.core.share.records import ShareRecord, TopicIdPartition, consecutive_runs
from kafka.core.share.session import (
    SHARE_FETCH_ERRORS,
    SHARE_PARTITION_ERRORS,
    FetchDemand,
    ShareResponseOutcome,
    ShareSession,
)
from kafka.errors import (
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    KafkaError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka.future import Future
from kafka.log_limit import LimitedLog
from kafka.net.loop import LoopTimer
from kafka.protocol.constants import AcknowledgeType
from kafka.protocol.share import ShareGroupHeartbeatResponse
from kafka.share.leader_sessions import LeaderSession
from kafka.structs import TopicPartition

# Who leads the partitions of a subscription, as far as the cluster's metadata says, and the search for what it lacks.
#
# A group's assignment names topics by id, and brokers do not repeat it: what the metadata does not know yet (a topic
# that is new, or not there), and a partition that has no leader now, is looked for until it does.


log = logging.getLogger(__name__)

_numbers = itertools.count()

LOST_LOG_S: Final = 60.0
"""Between two lines about lost locks: each broker of a cluster may be restarted within a minute."""

LEADER_SEARCH_S: Final = 1.0
"""Interval of metadata refreshes while a subscribed topic, an assigned partition or a leader is missing."""


class PartitionLeaders:
    """On the loop's thread. ``on_change``: leaders may have changed."""

    def __init__(self, client: KafkaClient, on_change: Callable[[], object]) -> None:
        self.topics: list[str] = []
        self.assignment: Sequence[TopicIdPartition] = ()
        self._client = client
        self._on_change = on_change
        self._timer: LoopTimer | None = None
        self._is_closed = False
        self._logged_missing: set[str] = set()  # topics that the log has as missing
        client.cluster.add_listener(self._changed)

    def look(self) -> None:
        """Refresh the metadata until it has all subscribed topics and assigned partitions."""
        self.stop_looking()
        if self._is_anything_missing():
            self.refresh()
            self._look_later()

    def refresh(self) -> None:
        """A leader has changed, or refuses this client: read the metadata soon."""
        try:
            self._client.refresh_metadata(self.topics).add_errback(self._failed)
        except IllegalStateError as error:  # the client is closed, as the next request will say
            self._failed(error)

    def stop_looking(self) -> None:
        """Stop looking for missing topics."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Make no more callbacks."""
        self._is_closed = True
        self.stop_looking()
        self._client.cluster.remove_listener(self._changed)

    def by_node(self) -> tuple[dict[int, list[TopicIdPartition]], dict[UUID, str]]:
        """The partitions that each node leads, the assigned ones first, and the names of their topics."""
        cluster = self._client.cluster
        assigned = set(self.assignment)
        topics: dict[UUID, str] = {}
        partitions_by_node: dict[int, list[TopicIdPartition]] = {}
        for topic in self.topics:
            topic_id = cluster.topic_id(topic)
            if topic_id is None:
                continue
            topics[topic_id] = topic
            for number in sorted(cluster.partitions_for_topic(topic) or ()):
                leader = cluster.leader_for_partition(TopicPartition(topic, number))
                if leader is not None and leader >= 0:
                    partitions_by_node.setdefault(leader, []).append(TopicIdPartition(topic_id, number))
        for partitions in partitions_by_node.values():
            partitions.sort(key=lambda each: each not in assigned)
        return partitions_by_node, topics

    def has_moved(self, partition: TopicIdPartition, node_id: int) -> bool:
        """Whether the metadata has another leader of the partition; False for an unknown one."""
        cluster = self._client.cluster
        topic = cluster.topic_name_for_id(partition.topic_id)
        if topic is None:
            return False
        leader = cluster.leader_for_partition(TopicPartition(topic, partition.partition))
        return leader is not None and leader >= 0 and leader != node_id

    def _is_anything_missing(self) -> bool:
        """A topic, a partition that is assigned, or the leader of one: its broker may be on its way back."""
        cluster = self._client.cluster
        for topic in self.topics:
            numbers = cluster.partitions_for_topic(topic)
            if not numbers or numbers != cluster.available_partitions_for_topic(topic):
                return True
        for topic_id, number in self.assignment if self.topics else ():
            name = cluster.topic_name_for_id(topic_id)
            if name is None or number not in (cluster.partitions_for_topic(name) or ()):
                return True
        return False

    def _tell_of_missing_topics(self) -> None:
        missing = {topic for topic in self.topics if self._is_missing(topic)}
        for topic in sorted(missing - self._logged_missing):
            log.warning("topic %s does not exist yet; waiting for it", topic)
        self._logged_missing = missing

    def _is_missing(self, topic: str) -> bool:
        cluster = self._client.cluster
        if cluster.need_all_topics and not cluster.topic_error(topic):
            return cluster.partitions_for_topic(topic) is None
        return isinstance(cluster.topic_error(topic), UnknownTopicOrPartitionError)

    def _look_later(self) -> None:
        self._timer = self._client.loop.call_later(LEADER_SEARCH_S, self.look)

    def _failed(self, error: BaseException) -> None:
        log.debug("no metadata of %s: %s", self.topics, error)

    def _changed(self, *_: object) -> None:
        self._tell_of_missing_topics()
        self._on_change()
        if self._timer is None and not self._is_closed and self._is_anything_missing():
            self._look_later()


# The heartbeats of one member, sent to its group's coordinator when they are due.
#
# What they say and what an answer means is the membership's affair (``core/share/membership.py``), what follows from
# that the driver's.


class ShareHeartbeats:
    """On the loop's thread. ``on_outcome`` is called for each response, and must call :meth:`beat` again.
    """

    def __init__(
        self,
        client: KafkaClient,
        membership: ShareMembership,
        on_outcome: Callable[[HeartbeatOutcome], object],
    ) -> None:
        self._client = client
        self._membership = membership
        self._on_outcome = on_outcome
        self._timer: LoopTimer | None = None
        self._lane = f"share-group-{next(_numbers)}"
        """A broker answers the requests of a connection in turn, and holds a Produce until all replicas have it."""

    def beat(self) -> None:
        """Send what is due now, or wait until something is."""
        self.stop()
        request = self._membership.next_request(self._client.loop.time())
        if request is None:
            due_at = self._membership.due_at()
            if due_at is not None:
                self._timer = self._client.loop.call_at(due_at, self.beat)
            return
        future: Future[ShareGroupHeartbeatResponse]
        try:
            future = self._client.request(Coordinator(self._membership.group_id), request, lane=self._lane)
        except KafkaError as error:  # the client is closed
            future = Future[ShareGroupHeartbeatResponse]().failure(error)
        future.add_callback(self._answered)
        future.add_errback(self._failed)

    def stop(self) -> None:
        """Stop waiting; the request in flight still gets its response."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Send nothing more; what is in flight fails."""
        self.stop()
        self._client.close_lane(self._lane)

    def _answered(self, response: Any) -> None:
        self._settle(self._membership.on_response(response, self._client.loop.time()))

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, KafkaError):
            error = KafkaError(f"heartbeat of {self._membership.group_id}: {error!r}")
        self._settle(self._membership.on_failure(error, self._client.loop.time()))

    def _settle(self, outcome: HeartbeatOutcome) -> None:
        if outcome.lost_coordinator:
            self._client.coordinators.forget(Coordinator(self._membership.group_id))
        self._on_outcome(outcome)


REPORT_S: Final = 60.0
"""Between two log lines of an error that keeps a member out of its group until a user acts."""
CLOSE_TIMEOUT_S: Final = 5.0
"""How long closing waits for brokers that do not respond."""
TURN_WAIT_MS: Final = 50
"""Maximum wait of a fetch while the demand is too small for all leaders."""


class ShareEvents(Protocol):
    """The driver's callbacks to its owner, on the loop's thread."""

    def on_records(self, records: list[ShareRecord]) -> None:
        """Newly acquired records."""

    def on_acknowledged(self, answered: list[AcknowledgementResult]) -> None:
        """Outcomes of acknowledgements."""

    def on_lost(self, records: list[ShareRecord], error: KafkaError | None) -> None:
        """Held records whose locks are lost: with the connection, with the session, or (error None) expired."""

    def on_trouble(self, error: KafkaError) -> None:
        """Some records cannot be read (no rights, corrupt, a missing codec), or the group does not take the member now
        (full, no rights); it goes on."""

    def on_error(self, error: KafkaError) -> None:
        """The membership has failed for good; no events follow until another subscription."""


class ShareConsumerDriver:
    """One member of a share group; see the module. All methods run on the loop's thread."""

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
        look_every_s: float = 0.0,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self._client = client
        self._events = events
        self._fetch_max_bytes = fetch_max_bytes
        self._fetch_max_wait_ms = fetch_max_wait_ms if not look_every_s else 0
        self._look_every_s = look_every_s
        self._check_crcs = check_crcs
        self._membership = ShareMembership(group_id, member_id, rack_id or None)
        self._limited_log = LimitedLog(log, most=1, every_s=REPORT_S, clock=client.loop.time)
        self._leaders = PartitionLeaders(client, self._assign_leaders)
        self._heartbeats = ShareHeartbeats(client, self._membership, self._after_heartbeat)
        self._sessions: dict[int, LeaderSession] = {}
        self._demand = FetchDemand(0)
        self._until_some = False
        self._has_joined = False  # an assignment has come: the group's state of these partitions exists
        self._closing: Future[None] | None = None
        # came while closing: the leader session releases them, and the user never sees them
        self._withheld: set[ShareRecord] = set()
        self._lost_log = LimitedLog(log, most=1, every_s=LOST_LOG_S, clock=client.loop.time)

    # -- what the owner says -------------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str]) -> None:
        """The topics to read from now on; records held of others stay ours to acknowledge until their locks end."""
        self._leaders.topics = list(topics)
        self._membership.subscribe(self._leaders.topics, self._client.loop.time())
        self._look()
        self._assign_leaders()
        self._heartbeats.beat()

    def request_records(self, count: int, exactly: bool = False, until_some: bool = False) -> None:
        """Request ``count`` more records, replacing the former demand; 0: none. ``exactly``: never more (record-limit
        mode); else whole batches come, which may have more. ``until_some``: the first records end the demand.
        """
        grew = count > self._demand.records or exactly != self._demand.exactly
        self._demand = FetchDemand(count, exactly)
        self._until_some = until_some
        if grew:
            self._pump_all()

    def look(self) -> None:
        """With ``look_every_s``: fetch now, not at the next interval."""
        for leader in self._sessions.values():
            leader.look()

    @property
    def demand(self) -> int:
        """The number of records that are still requested."""
        return self._demand.records

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Acknowledge a held record with ``kind``. Acknowledgements of one turn of the loop are sent together.
        IllegalStateError when the record is not held. ``on_acknowledged`` gets the outcome.
        """
        self._leader_of(record).session.acknowledge(record, kind)

    def acknowledge_all(
        self, records: Sequence[ShareRecord], kind: AcknowledgeType
    ) -> list[tuple[list[ShareRecord], IllegalStateError]]:
        """:meth:`acknowledge` for many records; returns those that are not held."""
        refused: list[tuple[list[ShareRecord], IllegalStateError]] = []
        for run in consecutive_runs(records):
            try:
                leader = self._leader_of(run[0])
            except IllegalStateError as error:
                refused.append((run, error))
                continue
            others = leader.session.acknowledge_all(cast(AcquiredRecords, run[0].owner), run, kind)
            if others:
                refused.append((others, IllegalStateError(f"{others[0]!r} cannot be acknowledged: it is not held")))
        return refused

    def _leader_of(self, record: ShareRecord) -> LeaderSession:
        """The session of the leader that sends acknowledgements of the record; it is scheduled."""
        holding = record.owner
        if not isinstance(holding, AcquiredRecords):
            raise IllegalStateError(f"{record!r} does not belong to a share session")
        for leader in self._sessions.values():
            if leader.session is holding.session:
                leader.pump_soon()
                return leader
        why = "its lock is gone" if record.lost else "it was handed out by another consumer"
        raise IllegalStateError(f"{record!r} cannot be acknowledged: {why}")

    def find(self, topic: str, partition: int, offset: int) -> ShareRecord | None:
        """The held record of this offset."""
        topic_id = self._client.cluster.topic_id(topic)
        if topic_id is None:
            return None
        matches = (leader.session.held(topic_id, partition, offset) for leader in self._sessions.values())
        return next((record for record in matches if record is not None), None)

    def flush(self) -> Future[None]:
        """Send acknowledgements; done when all have got responses."""
        return _when_all([leader.flush() for leader in self._sessions.values()])

    def quiet(self) -> Future[None]:
        """Request no more records; done when no fetch is in flight."""
        self._demand = FetchDemand(0, self._demand.exactly)
        return _when_all([leader.quiet() for leader in self._sessions.values()])

    @property
    def held_count(self) -> int:
        """Records that are locked for this member and not acknowledged."""
        return sum(leader.session.held_count for leader in self._sessions.values())

    @property
    def lock_s(self) -> float:
        """Length of a lock in seconds, by the last response."""
        return max((leader.session.lock_s for leader in self._sessions.values()), default=30.0)

    @property
    def answered_at(self) -> float | None:
        """The time of the last known successful response of the group or a leader; None: never."""
        instants = [self._membership.answered_at, *(leader.answered_at for leader in list(self._sessions.values()))]
        return max((instant for instant in instants if instant is not None), default=None)

    @property
    def heartbeat_interval_s(self) -> float:
        """Between heartbeats, by the last response."""
        return self._membership.interval_s

    @property
    def state(self) -> ShareMemberState:
        """The state of the membership."""
        return self._membership.state

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> Future[None]:
        """Send the last acknowledgements, give back held records, leave the group. May be called again."""
        if self._closing is None:
            done = self._closing = Future()
            self._demand = FetchDemand(0)
            self._leaders.stop_looking()
            timer = self._client.loop.call_later(timeout_s, self._finish)
            done.add_both(lambda _: timer.cancel())
            # Sessions first: leaving the group frees no locks.
            _when_all([leader.close() for leader in self._sessions.values()]).add_callback(self._leave)
        return self._closing

    # -- links ---------------------------------------------------------------------------------------------------------

    def demand_for(self, leader: LeaderSession) -> FetchDemand:
        """The leader's part of the demand; with ``exactly``, of the demand that is not requested from any leader
        yet."""
        demand, exactly, _ = self._demand
        now = self._client.loop.time()
        if self._closing is not None or not demand or not leader.session.is_wanted or not leader.looks(now):
            return FetchDemand(0, exactly)
        fetching = sum(each.session.is_wanted for each in self._sessions.values())
        part = -(-demand // max(1, fetching))
        if exactly:
            free = demand - sum(each.asked for each in self._sessions.values() if each.session.is_wanted)
            for each in sorted(self._sessions.values(), key=lambda one: one.turn):
                if each is leader or free <= 0:
                    break
                if each.can_fetch(now):
                    free -= part
            part = min(part, max(free, 0))
        return FetchDemand(part, exactly, TURN_WAIT_MS if exactly and demand < fetching else None)

    def on_outcome(self, leader: LeaderSession, outcome: ShareResponseOutcome) -> None:
        """Called by leader sessions."""
        self._report_outcome(leader, outcome)  # first: a lost record may be among the newly acquired ones
        if outcome.records:
            left = 0 if self._until_some else max(0, self._demand.records - len(outcome.records))
            self._demand = self._demand._replace(records=left)
            if self._closing is None:
                self._events.on_records(outcome.records)
            else:
                self._withheld.update(outcome.records)
        for partition, error in outcome.partition_errors.items():
            self._partition_failed(partition, error)
        if outcome.partition_errors:
            self._leaders.refresh()
        if outcome.error is not None:
            reaction = SHARE_FETCH_ERRORS.action_for(outcome.error)
            if reaction.final:
                self._give_up(outcome.error)
            else:
                level = _level(reaction.is_reported, leader.failures)
                log.log(
                    level,
                    "group %s: share session with node %s ended: %s",
                    self.group_id,
                    leader.node_id,
                    outcome.error,
                )
                if reaction.is_reported:
                    self._events.on_trouble(outcome.error)
        if not leader.session.is_wanted:
            self._retire(leader)
        if self._demand.exactly and self._demand.records:
            self._pump_all()  # the unfilled part of this leader's demand is free for the others

    def _partition_failed(self, partition: TopicIdPartition, error: KafkaError) -> None:
        topic = self._client.cluster.topic_name_for_id(partition.topic_id) or partition.topic_id
        text = f"{self.group_id}: {topic}:{partition.partition}: {error}"
        is_reported = SHARE_PARTITION_ERRORS.action_for(error).is_reported
        log.log(logging.ERROR if is_reported else logging.INFO, "%s", text)
        if is_reported:
            self._events.on_trouble(error)

    def _report_outcome(
        self, leader: LeaderSession, outcome: ShareResponseOutcome, why: KafkaError | None = None
    ) -> None:
        """Report outcomes of acknowledgements, and lost locks."""
        if outcome.answered:
            self._events.on_acknowledged(outcome.answered)
        lost = [record for record in outcome.lost if record not in self._withheld]
        count = len(lost) + outcome.expired_unread
        if count:
            why = why or outcome.error or next(iter(outcome.partition_errors.values()), None)
            if self._closing is None:
                self._lost_log.warning(
                    "lost",
                    "group %s: lost the acquisition locks of %d records on node %s, they will be delivered again: %s",
                    self.group_id, count, leader.node_id, why or "their locks have ended",
                )  # fmt: skip
        if lost:
            self._events.on_lost(lost, why)

    def _pump_all(self) -> None:
        for leader in self._sessions.values():
            leader.pump_soon()

    # -- leaders -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._closing is None:
            self._leaders.look()

    def _assign_leaders(self) -> None:
        """Assign each leader its partitions; open sessions with new leaders, close those without partitions."""
        if not self._has_joined or self._closing is not None or self._membership.state is ShareMemberState.FATAL:
            return
        by_leader, topics = self._leaders.by_node()
        for node_id in by_leader:
            if node_id not in self._sessions:
                session = ShareSession(
                    self.group_id,
                    self.member_id,
                    fetch_max_bytes=self._fetch_max_bytes,
                    check_crcs=self._check_crcs,
                    max_wait_ms=self._fetch_max_wait_ms,
                )
                self._sessions[node_id] = LeaderSession(self._client, self, node_id, session, self._look_every_s)
        for node_id, leader in list(self._sessions.items()):
            leader.session.set_partitions(by_leader.get(node_id, ()), topics)
            moved = [each for each in leader.session.in_use if self._leaders.has_moved(each, node_id)]
            if moved:
                why = NotLeaderForPartitionError(f"node {node_id} leads it no more")
                self._report_outcome(leader, leader.session.lose(moved, why), why)
            leader.pump_soon()
            if not leader.session.is_wanted:
                self._retire(leader)

    def _retire(self, leader: LeaderSession) -> None:
        """Fetch no more from this leader, and close its session once none of its records is held."""
        if not (leader.session.in_use or leader.session.in_flight) and self._sessions.get(leader.node_id) is leader:
            del self._sessions[leader.node_id]
            leader.abandon()

    # -- the group -----------------------------------------------------------------------------------------------------

    def _after_heartbeat(self, outcome: HeartbeatOutcome) -> None:
        """Applies a ShareGroupHeartbeat's outcome: a new assignment goes to the leaders' sessions, a failure is logged
        and retried (reported, too, if the user has to act), a fatal one ends the consumer. While closing, the end of
        the membership is what completes the close."""
        if outcome.assignment is not None:
            if outcome.assignment:
                self._has_joined = True
            self._leaders.assignment = self._membership.assignment
            self._look()
            self._assign_leaders()
        state = self._membership.state
        if outcome.error is not None and state is not ShareMemberState.FATAL:
            text, names = "group %s: heartbeat of member %s failed, retrying: %s", (self.group_id, self.member_id)
            if outcome.is_reported:
                error = _error_with_hint(outcome.error, self.group_id)
                self._limited_log.write(logging.ERROR, type(error).__name__, text, *names, error)
                if self._closing is None:
                    self._events.on_trouble(error)
            else:
                log.log(_level(False, self._membership.failures), text, *names, outcome.error)
        if self._closing is not None and state in (ShareMemberState.LEFT, ShareMemberState.FATAL):
            self._finish()
        elif state is ShareMemberState.FATAL:
            self._give_up(outcome.error or KafkaError("the group cannot be joined"))
        else:
            self._heartbeats.beat()

    def _give_up(self, error: KafkaError) -> None:
        """The membership has failed: report the error and close all sessions."""
        if self._closing is not None:
            return
        error = _error_with_hint(error, self.group_id)
        log.error("group %s: member %s stops, no heartbeat can succeed: %s", self.group_id, self.member_id, error)
        self._membership.give_up(error)
        self._heartbeats.stop()
        self._leaders.stop_looking()
        for leader in list(self._sessions.values()):
            self._report_outcome(leader, leader.session.lose(leader.session.in_use, error), error)
            leader.abandon()
        self._sessions = {}
        self._events.on_error(error)

    def _leave(self, _: object) -> None:
        if self._membership.state is ShareMemberState.FATAL:
            self._finish()
            return
        self._membership.leave(self._client.loop.time())
        if self._membership.state is ShareMemberState.LEFT:
            self._finish()
        else:
            self._heartbeats.beat()

    def _finish(self) -> None:
        if self._closing is None or self._closing.is_done:
            return
        links, self._sessions = self._sessions, {}
        for leader in links.values():
            leader.abandon()  # the last one leaves the group
        if not self._closing.is_done:
            self._leaders.close()
            self._closing.success(None)
        self._heartbeats.close()


_HINTS: Final[Mapping[type[KafkaError], str]] = {
    IncompatibleBrokerVersion: "share groups need Apache Kafka 4.2 or later",
    UnsupportedVersionError: "share groups are switched off in this cluster: its feature share.version is 0, and 1 is "
    "needed",
    GroupMaxSizeReachedError: "the group is full: end other members, or raise group.share.max.size (1000 at most) in "
    "server.properties of all brokers and restart them (kafka-configs.sh cannot alter it)",
    GroupIdNotFoundError: "the group exists, and is no share group: choose another group_id",
}
"""What is missing, where the broker's words do not say it."""


def _error_with_hint(error: KafkaError, group_id: str) -> KafkaError:
    """The error with the missing requirement in its text."""
    why = _HINTS.get(type(error))
    if why is None:
        return error
    text = str(error.args[0]) if error.args else ""
    return type(error)(f"group {group_id}: {why}" + (f" ({text})" if text else ""))


def _when_all(futures: Sequence[Future[None]]) -> Future[None]:
    """A future that is done when all are."""
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


def _level(is_reported: bool, failures: int) -> int:
    """Log level of an error that is reported or retried; ``failures`` in a row are one line."""
    if is_reported:
        return logging.ERROR
    return logging.INFO if failures <= 1 else logging.DEBUG
