"""One member of one share group on a loop: heartbeats to the coordinator, a session with every leader, and the demand.

**Every partition of the subscription is fetched**, the assigned ones first. The assignment of a share group is a
preference that brokers do not check, and it moves slowly: measured on Apache Kafka 4.3.0 with two members on two
partitions, the partition of a killed member stood still for 44.8 s (the session time-out's floor is 45 s) when the
other kept to its assignment, and not at all when it fetched both. Heartbeats are still needed: they make the group's
state.

Demand is what the owner wants beyond what it has: a count that goes down with what comes, until it is said anew. It is
split over the leaders, and all of them are asked at once. Each brings its part at most, but for whole batches, and may
be asked again while others still look for theirs: so more may come than was wanted, by less than that again. With
``exactly`` (record-limit mode) never, but for what comes from a leader after others were asked in its stead: what one
is asked for is withheld from the others until its answer is overdue (``link.py``), for one that is silent would keep it
for as long as a request may take. When there is not enough for all, those go first that have waited longest, and do not
wait for long: whoever has records is asked in turn, and one that has failed after the others.

Who polls wants *some* records, up to a count: with the first of them that demand is over. A rest of it would be looked
for at once, where nothing more can come before these are acknowledged: the broker hands out 2,000 offsets of a
partition (``share.partition.max.record.locks``), or one batch that is larger, and a fetch that waits is in the way of
the acknowledgements. Measured: 18,000 records of 100 bytes a second with that rest, whose fetch waited for 100 ms each.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol, cast

from kafka.client import KafkaClient
from kafka.core.share.holding import Answered, Holding
from kafka.core.share.intake import Outcome
from kafka.core.share.membership import HeartbeatOutcome, MemberState, ShareMembership
from kafka.core.share.reactions import of_answer, of_partition
from kafka.core.share.records import AcknowledgeType, SharePartition, ShareRecord, runs
from kafka.core.share.requests import Demand
from kafka.core.share.session import ShareSession
from kafka.errors import (
    GroupIdNotFoundError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    KafkaError,
    NotLeaderForPartitionError,
    UnsupportedVersionError,
)
from kafka.future import Future
from kafka.share.heartbeats import Heartbeats
from kafka.share.leaders import Leaders
from kafka.share.link import ShareLink

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 5.0
"""How long closing waits for brokers that do not answer."""
TURN_WAIT_MS: Final = 50
"""Longest long poll while the demand is too small for all leaders."""


class ShareEvents(Protocol):
    """What the engine tells its owner, on the loop's thread."""

    def on_records(self, records: list[ShareRecord]) -> None:
        """Records that this member holds now."""

    def on_acknowledged(self, answered: list[Answered]) -> None:
        """What became of acknowledgements."""

    def on_lost(self, records: list[ShareRecord], error: KafkaError | None) -> None:
        """Held records whose locks are gone: with the connection, the session, or (error None) the time."""

    def on_trouble(self, error: KafkaError) -> None:
        """Some records cannot be had, and somebody should know: no rights, damaged, an unknown codec."""

    def on_error(self, error: KafkaError) -> None:
        """The group cannot be joined, or not any more. Nothing comes after this but for another subscription."""


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
        self._leaders = Leaders(client, self._assign_links)
        self._heartbeats = Heartbeats(client, self._membership, self._after_heartbeat)
        self._links: dict[int, ShareLink] = {}
        self._demand = Demand(0)
        self._until_some = False
        self._has_joined = False  # an assignment has come: the group's state of these partitions exists
        self._closing: Future[None] | None = None
        self._withheld: set[ShareRecord] = set()  # came while closing: the link gives them back, and nobody knows them

    # -- what the owner says -------------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str]) -> None:
        """The topics to read from now on; records held of others stay ours to acknowledge until their locks end."""
        self._leaders.topics = list(topics)
        self._membership.subscribe(self._leaders.topics, self._client.loop.time())
        self._look()
        self._assign_links()
        self._heartbeats.beat()

    def request_records(self, count: int, exactly: bool = False, until_some: bool = False) -> None:
        """Want ``count`` more records from now on, instead of what was wanted before; 0: none.

        ``exactly``: never more (record-limit mode); else producers' batches come whole, and may bring some more.
        ``until_some``: no more are wanted as soon as there are some.
        """
        grew = count > self._demand.records or exactly != self._demand.exactly
        self._demand = Demand(count, exactly)
        self._until_some = until_some
        if grew:
            self._pump_all()

    def look(self) -> None:
        """With ``look_every_s``: fetch what is wanted now, not when it is time."""
        for link in self._links.values():
            link.look()

    @property
    def demand(self) -> int:
        """Records that are still wanted."""
        return self._demand.records

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Say ``kind`` of a held record. What is said in one turn of the loop goes out together.

        IllegalStateError when it is not held (any more). The answer comes through ``on_acknowledged``.
        """
        self._link_of(record).session.acknowledge(record, kind)

    def acknowledge_all(
        self, records: Sequence[ShareRecord], kind: AcknowledgeType
    ) -> list[tuple[list[ShareRecord], IllegalStateError]]:
        """:meth:`acknowledge` for many, as if each had been said by itself; those that are not held (any more)."""
        refused: list[tuple[list[ShareRecord], IllegalStateError]] = []
        for run in runs(records):
            try:
                link = self._link_of(run[0])
            except IllegalStateError as error:
                refused.append((run, error))
                continue
            others = link.session.acknowledge_all(cast(Holding, run[0].owner), run, kind)
            if others:
                refused.append((others, IllegalStateError(f"{others[0]!r} cannot be acknowledged: it is not held")))
        return refused

    def _link_of(self, record: ShareRecord) -> ShareLink:
        """The link that has to send what is said of the record; it will."""
        holding = record.owner
        if not isinstance(holding, Holding):
            raise IllegalStateError(f"{record!r} was not handed out by a share session")
        for link in self._links.values():
            if link.session is holding.session:
                link.pump_soon()
                return link
        why = "its lock is gone" if record.lost else "it was handed out by another consumer"
        raise IllegalStateError(f"{record!r} cannot be acknowledged: {why}")

    def find(self, topic: str, partition: int, offset: int) -> ShareRecord | None:
        """The record that is held there."""
        topic_id = self._client.cluster.topic_id(topic)
        if topic_id is None:
            return None
        found = (link.session.held(topic_id, partition, offset) for link in self._links.values())
        return next((record for record in found if record is not None), None)

    def flush(self) -> Future[None]:
        """Send what was acknowledged; done when all of it has been answered."""
        return _when_all([link.flush() for link in self._links.values()])

    def quiet(self) -> Future[None]:
        """Want nothing more; done when no request is out that may bring records."""
        self._demand = Demand(0, self._demand.exactly)
        return _when_all([link.quiet() for link in self._links.values()])

    @property
    def held_count(self) -> int:
        """Records that are locked for this member and not acknowledged."""
        return sum(link.session.held_count for link in self._links.values())

    @property
    def lock_s(self) -> float:
        """Length of a lock in seconds, as the last answer told it."""
        return max((link.session.lock_s for link in self._links.values()), default=30.0)

    @property
    def answered_at(self) -> float | None:
        """When the group or a leader last answered well, as far as is known without counting answers; None: never."""
        instants = [self._membership.answered_at, *(link.answered_at for link in list(self._links.values()))]
        return max((instant for instant in instants if instant is not None), default=None)

    @property
    def heartbeat_interval_s(self) -> float:
        """Between heartbeats, as the last answer told it."""
        return self._membership.interval_s

    @property
    def state(self) -> MemberState:
        """Where the member stands in its group."""
        return self._membership.state

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> Future[None]:
        """Say the last acknowledgements, give back what is held, leave the group. Any number of times."""
        if self._closing is None:
            done = self._closing = Future()
            self._demand = Demand(0)
            self._leaders.stop_looking()
            timer = self._client.loop.call_later(timeout_s, self._finish)
            done.add_both(lambda _: timer.cancel())
            # Sessions first: leaving the group frees no locks.
            _when_all([link.close() for link in self._links.values()]).add_callback(self._leave)
        return self._closing

    # -- links ---------------------------------------------------------------------------------------------------------

    def demand_for(self, link: ShareLink) -> Demand:
        """The link's part of what is wanted; with ``exactly``, of what nobody has been asked for yet."""
        wanted, exactly, _ = self._demand
        now = self._client.loop.time()
        if self._closing is not None or not wanted or not link.session.is_wanted or not link.looks(now):
            return Demand(0, exactly)
        fetching = sum(each.session.is_wanted for each in self._links.values())
        part = -(-wanted // max(1, fetching))
        if exactly:
            free = wanted - sum(each.asked for each in self._links.values() if each.session.is_wanted)
            for each in sorted(self._links.values(), key=lambda one: one.turn):
                if each is link or free <= 0:
                    break
                if each.can_fetch(now):
                    free -= part
            part = min(part, max(free, 0))
        return Demand(part, exactly, TURN_WAIT_MS if exactly and wanted < fetching else None)

    def on_outcome(self, link: ShareLink, outcome: Outcome) -> None:
        """Called by links."""
        self._tell(link, outcome)  # first: a record that is lost may be among those that came anew
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
            reaction = of_answer(outcome.error)
            if reaction.final:
                self._give_up(outcome.error)
            else:
                level = _level(reaction.told, link.failures)
                log.log(level, "%s: the session with node %s ended: %s", self.group_id, link.node_id, outcome.error)
                if reaction.told:
                    self._events.on_trouble(outcome.error)
        if not link.session.is_wanted:
            self._retire(link)
        if self._demand.exactly and self._demand.records:
            self._pump_all()  # what this link was asked for and did not bring is free for the others

    def _partition_failed(self, partition: SharePartition, error: KafkaError) -> None:
        topic = self._client.cluster.topic_name_for_id(partition.topic_id) or partition.topic_id
        text = f"{self.group_id}: {topic}:{partition.partition}: {error}"
        is_told = of_partition(error).told
        log.log(logging.ERROR if is_told else logging.INFO, "%s", text)
        if is_told:
            self._events.on_trouble(error)

    def _tell(self, link: ShareLink, outcome: Outcome, why: KafkaError | None = None) -> None:
        """What became of acknowledgements, and which locks are gone."""
        if outcome.answered:
            self._events.on_acknowledged(outcome.answered)
        lost = [record for record in outcome.lost if record not in self._withheld]
        count = len(lost) + outcome.expired_unread
        if count:
            why = why or outcome.error or next(iter(outcome.partition_errors.values()), None)
            if self._closing is None:
                log.warning(
                    "%s: %d records held on node %s are lost: %s",
                    self.group_id, count, link.node_id, why or "their locks have ended",
                )  # fmt: skip
        if lost:
            self._events.on_lost(lost, why)

    def _pump_all(self) -> None:
        for link in self._links.values():
            link.pump_soon()

    # -- leaders -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._closing is None:
            self._leaders.look()

    def _assign_links(self) -> None:
        """Give each leader's link its partitions; make links for new leaders, and let go of those without."""
        if not self._has_joined or self._closing is not None or self._membership.state is MemberState.FATAL:
            return
        by_leader, topics = self._leaders.by_node()
        for node_id in by_leader:
            if node_id not in self._links:
                session = ShareSession(
                    self.group_id,
                    self.member_id,
                    fetch_max_bytes=self._fetch_max_bytes,
                    check_crcs=self._check_crcs,
                    max_wait_ms=self._fetch_max_wait_ms,
                )
                self._links[node_id] = ShareLink(self._client, self, node_id, session, self._look_every_s)
        for node_id, link in list(self._links.items()):
            link.session.set_partitions(by_leader.get(node_id, ()), topics)
            moved = [each for each in link.session.in_use if self._leaders.has_moved(each, node_id)]
            if moved:
                why = NotLeaderForPartitionError(f"node {node_id} leads it no more")
                self._tell(link, link.session.lose(moved, why), why)
            link.pump_soon()
            if not link.session.is_wanted:
                self._retire(link)

    def _retire(self, link: ShareLink) -> None:
        """Nothing is fetched from this leader any more: let it go once nothing of it is held."""
        if not (link.session.in_use or link.session.in_flight) and self._links.get(link.node_id) is link:
            del self._links[link.node_id]
            link.abandon()

    # -- the group -----------------------------------------------------------------------------------------------------

    def _after_heartbeat(self, outcome: HeartbeatOutcome) -> None:
        if outcome.assignment is not None:
            if outcome.assignment:
                self._has_joined = True
            self._leaders.assignment = self._membership.assignment
            self._look()
            self._assign_links()
        state = self._membership.state
        if outcome.error is not None and state is not MemberState.FATAL:
            level = _level(outcome.told, self._membership.failures)
            log.log(level, "%s: heartbeat of member %s: %s", self.group_id, self.member_id, outcome.error)
            if outcome.told and self._closing is None:
                self._events.on_trouble(outcome.error)
        if self._closing is not None and state in (MemberState.LEFT, MemberState.FATAL):
            self._finish()
        elif state is MemberState.FATAL:
            self._give_up(outcome.error or KafkaError("the group cannot be joined"))
        else:
            self._heartbeats.beat()

    def _give_up(self, error: KafkaError) -> None:
        """Nothing can be had from this group: say why, and let everything go."""
        if self._closing is not None:
            return
        error = _explained(error, self.group_id)
        log.error("%s: member %s gives up: %s", self.group_id, self.member_id, error)
        self._membership.give_up(error)
        self._heartbeats.stop()
        self._leaders.stop_looking()
        for link in list(self._links.values()):
            self._tell(link, link.session.lose(link.session.in_use, error), error)
            link.abandon()
        self._links = {}
        self._events.on_error(error)

    def _leave(self, _: object) -> None:
        if self._membership.state is MemberState.FATAL:
            self._finish()
            return
        self._membership.leave(self._client.loop.time())
        if self._membership.state is MemberState.LEFT:
            self._finish()
        else:
            self._heartbeats.beat()

    def _finish(self) -> None:
        if self._closing is None or self._closing.is_done:
            return
        links, self._links = self._links, {}
        for link in links.values():
            link.abandon()  # the last one leaves the group
        self._heartbeats.stop()
        if not self._closing.is_done:
            self._leaders.close()
            self._closing.success(None)


def _explained(error: KafkaError, group_id: str) -> KafkaError:
    """The error with what is missing, where the broker's words do not say it."""
    if isinstance(error, IncompatibleBrokerVersion):
        why = "share groups need Apache Kafka 4.2 or later"
    elif isinstance(error, UnsupportedVersionError):
        why = "share groups are switched off in this cluster: its feature share.version is 0, and 1 is needed"
    elif isinstance(error, GroupIdNotFoundError):
        why = "the group exists, and is no share group: choose another group_id"
    else:
        return error
    said = str(error.args[0]) if error.args else ""
    return type(error)(f"group {group_id}: {why}" + (f" ({said})" if said else ""))


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


def _level(is_told: bool, failures: int) -> int:
    """Of an error in the log: the user is told of it, or it is tried again; ``failures`` in a row are one line."""
    if is_told:
        return logging.ERROR
    return logging.INFO if failures <= 1 else logging.DEBUG
