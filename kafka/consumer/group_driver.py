"""Drives a member of a consumer group on the loop: its requests, deadlines and metadata.

    GroupMachine.poll() ──► Ask                 to the coordinator, over a connection of the group's own
                            Revoke, Lose, Assign     -> ``pending``, for ``membership.py`` to carry out
                            Report, NeedMetadata, ForgetCoordinator, Left

What a member decides is in ``kafka/core/group``. Everything here runs on the loop's thread; another thread reads
``pending`` and calls ``machine.on_poll_begin`` and ``on_poll_end``, nothing else.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from itertools import count
from math import inf
from typing import Any, Final
from uuid import UUID

from kafka.client import KafkaClient
from kafka.consumer.metrics import ConsumerMetrics
from kafka.consumer.topics import SubscribedTopics
from kafka.core.group.assignors.strategy import make_assignors
from kafka.core.group.classic import ClassicMember
from kafka.core.group.consumer import ConsumerMember
from kafka.core.group.machine import (
    NO_GENERATION,
    Assign,
    AssignmentStep,
    ForgetCoordinator,
    GroupEffect,
    GroupMachine,
    GroupSubscription,
    Left,
    Lose,
    NeedMetadata,
    ReportError,
    Revoke,
    SendToCoordinator,
    TopicSnapshot,
)
from kafka.core.retry import Backoff
from kafka.core.routing import Coordinator
from kafka.errors import (
    Cancelled,
    CommitFailedError,
    CommitInRebalanceError,
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaError,
)
from kafka.future import Future
from kafka.net.loop import DeadlineTimer
from kafka.structs import ConsumerGroupMetadata, TopicPartition

log = logging.getLogger(__name__)

_numbers = count(1)


class GroupDriver:
    """``on_news``: something is pending, or was reported; ``on_report(error, is_fatal)``: for the user to be raised."""

    def __init__(
        self,
        client: KafkaClient,
        machine: GroupMachine,
        topics: SubscribedTopics,
        on_news: Callable[[], object],
        on_report: Callable[[KafkaError, bool], object],
    ) -> None:
        self.machine = machine
        self.pending: AssignmentStep | None = None
        self.metrics: ConsumerMetrics | None = None
        self.last_member_id = ""
        """That of the last assignment, also when it has left; for telemetry."""
        self.has_begun = False
        self.answered_at: float | None = None
        """When the coordinator answered last (the loop's clock)."""
        self._client = client
        self._loop = client.loop
        self._topics = topics
        self._on_news = on_news
        self._on_report = on_report
        self.on_lost: Callable[[frozenset[TopicPartition]], object] = lambda _: None
        """Called when partitions are lost: nothing of these is to be committed from now on, whenever the user hears."""
        self.on_pending: Callable[[], object] = lambda: None
        """Called when something is pending, on the loop."""
        self._wanted = GroupSubscription()
        self._coordinator = Coordinator(machine.group_id)
        self._lane = f"group-{next(_numbers)}"
        """A broker answers the requests of a connection in turn, and holds a JoinGroup until all have joined. Commits
        go over another connection, since a member may commit while its group rebalances."""
        self._alarm = DeadlineTimer(self._loop, self.pump)
        # pump() may be called within itself, by an effect; it runs again instead of nesting.
        self._is_pumping = False
        self._pump_again = False
        self._is_closed = False
        self._is_orphaned = False
        self._left: Future[None] | None = None
        client.cluster.add_listener(self._metadata_changed)

    # -- what the user wants -------------------------------------------------------------------------------------------

    def call_when_pending(self, action: Callable[[], object]) -> None:
        """On a loop: ``action`` is called when the user's side has something to carry out."""
        self.on_pending = action

    def measure(self, metrics: ConsumerMetrics | None) -> None:
        """Count rebalances there."""
        self.metrics = metrics

    def subscribe(self, subscription: GroupSubscription) -> None:
        """Be a member that reads this, as soon as :meth:`begin` was called; of an empty one: be none."""
        self._wanted = subscription
        if self.has_begun:
            self.machine.subscribe(subscription, self._loop.time())
            self._metadata_changed()

    def begin(self) -> None:
        """The user polls: be the member that was asked for. Who does not poll has no business in a group."""
        if not self.has_begun:
            self.has_begun = True
            self.subscribe(self._wanted)

    def has_been_polled(self, _: object = None) -> None:
        """The user got what was waited for, and is to poll again in time."""
        self.machine.on_poll_end(self._loop.time())

    @property
    def is_member(self) -> bool:
        """Whether what is read is read as a member, or is to be; else partitions are assigned by hand."""
        return self.has_begun and (not self._wanted.is_empty or self.machine.generation != NO_GENERATION)

    def rejoin(self, reason: str) -> None:
        """Begin a rebalance."""
        self.machine.rejoin(reason, self._loop.time())
        self.pump()

    def leave(self, reason: str = "") -> Future[None]:
        """Be a member no more; what is pending has to be carried out for that."""
        if self._left is None:
            self._left = Future()
            self.machine.leave(self._loop.time(), reason)
            self.pump()
        return self._left

    def carried_out(self, effect: AssignmentStep) -> None:
        """``pending`` was carried out."""
        if self.pending is not effect:
            return
        self.pending = None
        self.machine.carried_out(effect, self._loop.time())
        if isinstance(effect, Assign):
            self.last_member_id = self.machine.member_id
            if self.metrics is not None:
                self.metrics.rebalance_ended()
        self.pump()

    def fenced(self, error: KafkaError) -> None:
        """A commit was answered so."""
        self.machine.fenced(error, self._loop.time())
        self.pump()

    def speaker(self) -> ConsumerGroupMetadata:
        """As whom to commit. CommitFailedError while this is no member, CommitInRebalanceError while it is to be one
        again."""
        machine = self.machine
        if machine.generation == NO_GENERATION or isinstance(self.pending, Lose):
            if isinstance(self.pending, Lose) or machine.state_name in ("unjoined", "left", "fatal", "stale"):
                raise CommitFailedError(
                    f"group {machine.group_id}: nothing was committed, since this consumer is no member of the group "
                    f"now ({machine.state_name}): what it read may be read by others again. If it did not call poll() "
                    "for max_poll_interval_ms, raise that or lower max_poll_records"
                )
            raise CommitInRebalanceError(
                f"group {machine.group_id}: nothing was committed, since the group is being rebalanced; call poll(), "
                "and commit again what is still assigned"
            )
        return self.metadata()

    def reader(self) -> ConsumerGroupMetadata:
        """As whom to look up offsets. Cancelled while this is no member: another assignment follows, with its own."""
        if self.machine.generation == NO_GENERATION:
            raise Cancelled("no member of the group any more")
        return self.metadata()

    def metadata(self) -> ConsumerGroupMetadata:
        """What the member is now."""
        machine = self.machine
        return ConsumerGroupMetadata(
            machine.group_id,
            machine.generation,
            machine.member_id if machine.generation != NO_GENERATION else "",
            machine.group_instance_id,
            f"<{machine.state_name}>",
        )

    # -- what there is to do -------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Ask the machine what there is to do, and do it."""
        if self._is_pumping:
            self._pump_again = True
            return
        self._is_pumping = True
        try:
            while not self._is_closed:
                self._pump_again = False
                for effect in self.machine.poll(self._loop.time()):
                    self._do(effect)
                if not self._pump_again:
                    break
        finally:
            self._is_pumping = False
        self._alarm.set(inf if self._is_closed else self.machine.next_deadline)

    def _do(self, effect: GroupEffect) -> None:
        """Carries out one effect of the machine. Revoke, Lose and Assign wait in ``pending`` until the user's thread
        (or, once the consumer was forgotten, the loop) has called the listener; lost partitions are reported at once,
        since their offsets may not be committed any more."""
        if isinstance(effect, SendToCoordinator):
            self._ask(effect)
        elif isinstance(effect, (Revoke, Lose, Assign)):
            self.pending = effect
            if self.metrics is not None:
                self.metrics.rebalance_began()
                if isinstance(effect, Lose):
                    self.metrics.rebalance_failed()
            if isinstance(effect, Lose):
                self.on_lost(effect.partitions)
            if self._is_orphaned:
                self._loop.call_soon(self.carried_out, effect)
            self._on_news()
            self._loop.call_soon(self.on_pending)
        elif isinstance(effect, ForgetCoordinator):
            log.info("group %s: coordinator lost, rediscovering: %s", self.machine.group_id, effect.error)
            self._client.coordinators.forget(self._coordinator)
        elif isinstance(effect, ReportError):
            self._on_report(effect.error, effect.is_fatal)
        elif isinstance(effect, NeedMetadata):
            self._learn(effect)
        elif isinstance(effect, Left):
            self._has_left()

    def _has_left(self) -> None:
        if self._left is not None and not self._left.is_done:
            self._left.success(None)

    def _ask(self, ask: SendToCoordinator) -> None:
        future: Future[Any]
        try:
            lane = f"{self._lane}-apart" if ask.on_own_connection else self._lane
            future = self._client.request(self._coordinator, ask.request, ask.timeout_s, lane=lane)
        except KafkaError as error:  # the client is closed
            future = Future[Any]().failure(error)
        future.add_callback(self._answered, ask)
        future.add_errback(self._failed, ask)

    def _answered(self, ask: SendToCoordinator, response: Any) -> None:
        if not self._is_closed:
            self.answered_at = self._loop.time()
            self.machine.answered(ask, response, self._loop.time())
            self.pump()

    def _failed(self, ask: SendToCoordinator, error: BaseException) -> None:
        if not self._is_closed:
            self.machine.failed(ask, error, self._loop.time())
            self.pump()

    # -- metadata ------------------------------------------------------------------------------------------------------

    def _learn(self, need: NeedMetadata) -> None:
        self._topics.learn(need.topic_ids)
        if need.topics:
            self._topics.note_found(need.topics)
            self._client.cluster.add_topics(need.topics)  # a leader's, from now on
        if need.topics or not need.topic_ids:
            try:
                read = self._client.refresh_metadata(sorted(need.topics))
            except KafkaError:  # the client is closed
                return
            # An answer without news is one, too: what is still missing is not there.
            read.add_both(lambda _: self._metadata_changed())

    def _metadata_changed(self, *_: object) -> None:
        if self._is_closed:
            return
        self.machine.metadata_changed(self._pictures(), self._loop.time())
        self.pump()

    def _pictures(self) -> dict[str, TopicSnapshot]:
        cluster = self._client.cluster
        racks = {broker.nodeId: broker.rack for broker in cluster.brokers() if broker.rack}
        found: dict[str, TopicSnapshot] = {}
        for topic in cluster.topics(exclude_internal_topics=False):
            numbers = sorted(cluster.partitions_for_topic(topic) or ())
            if not numbers:
                continue
            if racks:
                found[topic] = TopicSnapshot(len(numbers), [self._racks_of(topic, each, racks) for each in numbers])
            else:
                found[topic] = TopicSnapshot(len(numbers))
        return found

    def _racks_of(self, topic: str, number: int, racks: Mapping[int | str, str]) -> frozenset[str]:
        known = self._client.cluster.partition_metadata(TopicPartition(topic, number))
        return frozenset(rack for node in (known.replicas if known else ()) if (rack := racks.get(node)))

    def finish(self) -> Future[None]:
        """The consumer was forgotten without ``close()``: leave, so that the group does not wait for it. Nothing is
        committed, since it is unknown which records were processed."""
        self._is_orphaned = True
        if self.pending is not None:
            self.carried_out(self.pending)
        return self.leave("the consumer was forgotten")

    def depart(self, reason: str) -> None:
        """Leave without waiting for anything: what is pending counts as carried out, and the request goes out if the
        connection can take it now. The others need not wait for the session to end then."""
        if self._is_closed or not self.has_begun:
            return
        left = self.leave(reason)
        while self.pending is not None and not left.is_done:
            self.carried_out(self.pending)
        if not left.is_done:
            self.machine.leave_now(self._loop.time())
            self.pump()

    def close(self) -> None:
        """Do nothing from now on; the group finds out by itself unless :meth:`leave` was called before."""
        if not self._is_closed:
            self._is_closed = True
            self.pending = None
            self._alarm.set(inf)
            self._client.cluster.remove_listener(self._metadata_changed)
            self._client.remove_resident(self)
            self._client.close_lane(self._lane)
            self._client.close_lane(f"{self._lane}-apart")
            self._has_left()


# A consumer's settings that concern its group: which go together, and the member that they make.


GROUP_SETTINGS: Final = (
    "enable_auto_commit", "auto_commit_interval_ms", "default_offset_commit_callback", "partition_assignment_strategy",
    "session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms",
)  # fmt: skip
"""Without a group these do nothing. That is a warning and no error: half of the examples of kafka-python that people
copy give ``enable_auto_commit=True`` without a ``group_id``, and read well.
"""

GROUP_ONLY_SETTINGS: Final = ("group_instance_id", "group_protocol", "group_remote_assignor")
"""Who gives these means to be in a group: without one they are an error."""

_NOT_WITH: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "consumer": (
        ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms"),
        "the broker decides about that in the consumer group protocol (KIP-848), by its group.consumer.* settings",
    ),
    "classic": (("group_remote_assignor",), "assignors in the broker need group_protocol='consumer' (KIP-848)"),
}


def check_group_settings(settings: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """KafkaConfigurationError for settings that exclude one another. ``given``: what the user has said."""
    said = [name for name in (*GROUP_ONLY_SETTINGS, *GROUP_SETTINGS) if given.get(name) not in (None, False)]
    if settings["group_id"] is None:
        if said and said[0] in GROUP_ONLY_SETTINGS:
            raise KafkaConfigurationError(f"{said[0]}: that is for consumer groups, and there is no group_id")
        if said:
            log.warning("no group_id is set: nothing is committed, and %s have no effect", ", ".join(said))
        return
    protocol = settings["group_protocol"]
    excluded, why = _NOT_WITH[protocol]
    for name in said:
        if name in excluded:
            raise KafkaConfigurationError(f"{name}: not with group_protocol={protocol!r}: {why}")
    if protocol == "classic" and settings["heartbeat_interval_ms"] >= settings["session_timeout_ms"]:
        raise KafkaConfigurationError(
            f"heartbeat_interval_ms={settings['heartbeat_interval_ms']} has to be below "
            f"session_timeout_ms={settings['session_timeout_ms']}, and should be a third of it"
        )


def make_member(
    settings: Mapping[str, Any], retry_backoff: Backoff, topic_of_id: Callable[[UUID], str | None]
) -> GroupMachine:
    """The member of the group that ``settings`` speak of."""
    max_poll_interval_s = settings["max_poll_interval_ms"] / 1000
    request_timeout_s = settings["request_timeout_ms"] / 1000
    if settings["group_protocol"] == "consumer":
        return ConsumerMember(
            settings["group_id"],
            group_instance_id=settings["group_instance_id"],
            member_id=str(uuid.uuid4()),
            server_assignor=settings["group_remote_assignor"],
            rack=settings["client_rack"],
            max_poll_interval_s=max_poll_interval_s,
            request_timeout_s=request_timeout_s,
            retry_backoff=retry_backoff,
            topic_of_id=topic_of_id,
        )
    try:
        return ClassicMember(
            settings["group_id"],
            group_instance_id=settings["group_instance_id"],
            assignors=make_assignors(settings["partition_assignment_strategy"]),
            session_timeout_s=settings["session_timeout_ms"] / 1000,
            heartbeat_interval_s=settings["heartbeat_interval_ms"] / 1000,
            max_poll_interval_s=max_poll_interval_s,
            request_timeout_s=request_timeout_s,
            retry_backoff=retry_backoff,
            rack=settings["client_rack"],
        )
    except IllegalArgumentError as error:
        raise KafkaConfigurationError(f"partition_assignment_strategy: {error.args[0]}") from None
