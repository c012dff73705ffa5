"""From a target to a connection: looks the node up, finds out what is missing, holds the request meanwhile.

The look-up itself is :func:`route`, which only decides. When it does not know, it says what has to be found out first
(:class:`NoKnownNode`), and :class:`Router` does that. The router is also the owner of the nodes' connections
(:class:`NodeConnections`) and is called when they are ready or lost.

    NoKnownNode.BROKERS      bootstrap (KIP-899; when brokers are known, only if ``metadata_recovery_strategy``
                             says so); held until a connection is ready, metadata came, or a back-off is over
    NoKnownNode.LEADER       one refresh of the metadata, then an error
    NoKnownNode.CONTROLLER   the same
    NoKnownNode.COORDINATOR  FindCoordinator, once for all requests that wait

Responses pass through here before their callers see them: leader hints (KIP-951) and throttle times are taken out.
A new kind of target is a class in ``core/routing.py`` and a branch in :func:`route`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from math import inf
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from kafka.client.bootstrap import Bootstrap, FindServers
from kafka.client.check_version import ClusterVersions
from kafka.client.cluster import ClusterMetadata, LeaderHint
from kafka.client.connection import (
    BOOTSTRAP,
    BrokerConnection,
    ConnectionOwner,
    ConnectionSettings,
    PendingRequest,
    TrafficCounters,
    fail_all,
)
from kafka.core.connection import ByVersion
from kafka.core.coordinator import FoundCoordinator
from kafka.core.retry import Rng
from kafka.core.routing import AnyNode, Coordinator, Leader, NodeId, Target
from kafka.core.versions import NegotiatedVersions, VersionsDialogue
from kafka.errors import (
    FencedLeaderEpochError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
    StaleMetadata,
    UnknownTopicOrPartitionError,
)
from kafka.future import Future
from kafka.net.loop import LoopTimer
from kafka.net.transport import Network
from kafka.protocol.fetch import FetchResponse
from kafka.protocol.produce import ProduceResponse
from kafka.protocol.share import ShareAcknowledgeResponse, ShareFetchResponse
from kafka.structs import BrokerMetadata, TopicPartition
from kafka.wire.message import Request, Response

log = logging.getLogger(__name__)


class NoKnownNode(Enum):
    """Why a target has no node: what has to be found out first."""

    BROKERS = "no broker is known or free"
    CONTROLLER = "the controller is not known"
    LEADER = "the partition's leader is not known"
    COORDINATOR = "the coordinator is not known"


class ClusterView(Protocol):
    """The part of ``ClusterMetadata`` that routing needs."""

    @property
    def controller_id(self) -> int | None: ...

    def leader_for_partition(self, partition: TopicPartition) -> int | None: ...


class NodeChooser(Protocol):
    """Chooses the least loaded node."""

    def least_loaded_node(self) -> NodeId | None: ...


class Coordinators:
    """The known coordinators: from FindCoordinator, until an error contradicts it."""

    def __init__(self) -> None:
        self._nodes: dict[Coordinator, int] = {}

    def get(self, coordinator: Coordinator) -> int | None:
        """The node, or None."""
        return self._nodes.get(coordinator)

    def put(self, coordinator: Coordinator, node: int) -> None:
        """FindCoordinator has answered."""
        self._nodes[coordinator] = node

    def forget(self, coordinator: Coordinator, node: int | None = None) -> None:
        """It has moved. With ``node``: only when that is the known one, so that late errors do not undo a new
        look-up."""
        if node is None or self._nodes.get(coordinator) == node:
            self._nodes.pop(coordinator, None)

    def forget_others(self, nodes: AbstractSet[NodeId]) -> None:
        """The cluster has only these nodes now."""
        for coordinator in [c for c, n in self._nodes.items() if n not in nodes]:
            del self._nodes[coordinator]

    def forget_all(self) -> None:
        """Before a rebootstrap: the cluster may be another one."""
        self._nodes.clear()

    def forget_node(self, node: NodeId) -> None:
        """The connection to ``node`` failed: its coordinators may have moved."""
        for coordinator in [c for c, n in self._nodes.items() if n == node]:
            del self._nodes[coordinator]


def route(target: Target, cluster: ClusterView, nodes: NodeChooser, coordinators: Coordinators) -> NodeId | NoKnownNode:
    """The node for ``target``, or what has to be found out first."""
    if isinstance(target, (int, str)):
        return target
    if isinstance(target, AnyNode):
        node = nodes.least_loaded_node()
        return NoKnownNode.BROKERS if node is None else node
    if isinstance(target, Leader):
        leader = cluster.leader_for_partition(target.partition)
        return NoKnownNode.LEADER if leader is None or leader < 0 else leader
    if isinstance(target, Coordinator):
        found = coordinators.get(target)
        return NoKnownNode.COORDINATOR if found is None else found
    controller = cluster.controller_id
    return NoKnownNode.CONTROLLER if controller is None else controller


class _Held(NamedTuple):
    """A request without a route yet."""

    pending: PendingRequest
    target: Target
    lane: str | None
    timer: LoopTimer


class Router:
    """Requests to connections. ``look_up`` runs FindCoordinator, ``refresh`` reads metadata with a topic,
    ``refresh_elsewhere`` reads it because a node is silent. ``recovers``: whether the bootstrap servers may be asked
    again after brokers were known."""

    def __init__(
        self,
        network: Network,
        cluster: ClusterMetadata,
        settings: ConnectionSettings,
        servers: list[tuple[str, int]],
        versions: ClusterVersions,
        rng: Rng,
        look_up: Callable[[Coordinator], Future[FoundCoordinator]],
        refresh: Callable[[tuple[str, ...]], Future[None]],
        refresh_elsewhere: Callable[[float], object],
        find_servers: FindServers | None = None,
        *,
        find_at_once: bool = False,
        recovers: bool = True,
    ) -> None:
        self._recovers = recovers
        self._refresh_elsewhere = refresh_elsewhere
        self._loop = network.loop
        self._request_timeout_s = settings.request_timeout_s
        self._cluster = cluster
        self._look_up = look_up
        self._refresh = refresh
        self._held: list[_Held] = []
        self._coordinator_lookups: dict[Coordinator, Future[FoundCoordinator]] = {}
        self._wake: LoopTimer | None = None
        self._is_closed = False
        self._is_refusing = False
        self.versions = versions
        self.coordinators = Coordinators()
        self.nodes = NodeConnections(cluster, network, settings, self, rng)
        self.bootstrap = Bootstrap(servers, network, settings, rng, self, find_servers, find_at_once=find_at_once)
        self.throttle = ThrottleTimes()
        self.connections_opened = 0
        self.connections_lost = 0
        self._lane_watchers: dict[str, Callable[[BaseException], object]] = {}
        """By lane: called when its connection was lost, or was closed as idle."""
        self._events = 0  # grows with all that a caller of poll() may wait for
        self._collected: list[Response] | None = None  # responses, while poll() runs

    def watch_lane(self, lane: str, on_lost: Callable[[BaseException], object] | None) -> None:
        if on_lost is None:
            self._lane_watchers.pop(lane, None)
        else:
            self._lane_watchers[lane] = on_lost

    # -- poll() --------------------------------------------------------------------------------------------------------

    @property
    def events(self) -> int:
        """Grows with all that a caller of ``poll`` may wait for: responses, connections, tasks."""
        return self._events

    def count_event(self) -> None:
        self._events += 1

    def begin_collecting(self) -> list[Response]:
        """The list to which responses are appended until :meth:`end_collecting`."""
        collected: list[Response] = []
        self._collected = collected
        return collected

    def end_collecting(self) -> None:
        self._collected = None

    # -- requests ------------------------------------------------------------------------------------------------------

    def request(
        self,
        target: Target,
        request: Request[Any] | ByVersion[Any],
        timeout_s: float | None = None,
        *,
        lane: str | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
        is_internal: bool = False,
    ) -> Future[Any]:
        """Hand the request to the connection for ``target``, now or when that is known; see
        :meth:`kafka.client.kafka_client.KafkaClient.request`. ``is_internal``: not the user's, who polls for responses.
        """
        if self._is_refusing or not self._loop.is_usable:
            self.check_usable()
        if timeout_s is None:
            timeout_s = self._request_timeout_s
        pending = PendingRequest(
            request, self._loop.time() + timeout_s, timeout_s, min_version, max_version, is_internal
        )
        if pending.depends_on is not None:
            pending.depends_on_node = self.coordinators.get(pending.depends_on)
        if isinstance(target, int):  # the common case, without a search
            self.nodes.get(target, lane).submit(pending)
        else:
            self._route(pending, target, lane, is_retried=False)
        return pending.future

    def check_usable(self) -> None:
        """IllegalStateError when the client is closed, or its loop cannot be used."""
        if self._is_refusing:
            raise IllegalStateError("the client is closed")
        if not self._loop.is_usable:
            raise IllegalStateError(
                "the client's loop is closed, or belongs to the parent process: after a fork, make a new client"
            )

    def throttled_until(self, node_id: NodeId, lane: str | None = None) -> float:
        """Until when the node wants no requests (KIP-219), a monotonic instant; 0 when it takes them."""
        connection = self.nodes.find(node_id, lane)
        return 0.0 if connection is None else connection.muted_until

    def refuse(self) -> None:
        """Take no request any more: the client is being closed."""
        self._is_refusing = True

    def close(self, error: KafkaError) -> None:
        """End all connections; what waits fails with ``error``."""
        self._is_closed = True
        if self._wake is not None:
            self._wake.cancel()
        self.bootstrap.close()
        held, self._held = self._held, []
        for entry in held:
            entry.timer.cancel()
            entry.pending.future.failure(error)
        self.nodes.close(error=error)

    def on_metadata(self) -> None:
        """The cluster's metadata was read anew."""
        known: set[NodeId] = {broker.nodeId for broker in self._cluster.brokers()}
        self.coordinators.forget_others(known)
        self.nodes.drop_unknown_nodes(known)
        self._give_up_dependents()
        for connection in self.nodes:
            connection.on_metadata_updated()
        self.close_bootstrap_when_idle()
        self.release()
        for connection in self.nodes:
            if connection.is_unreachable():
                self.on_unreachable(connection)

    def rebootstrap(self, why: str) -> None:
        """Forget the brokers, close the connections to them, and connect to the bootstrap servers (KIP-1102).

        What is in flight fails with KafkaConnectionError, which is retriable.
        """
        log.warning("rebootstrapping from bootstrap_servers, closing all connections: %s", why)
        self._cluster.forget_brokers()
        self.coordinators.forget_all()
        error = KafkaConnectionError(f"closed, going back to the bootstrap servers: {why}")
        ended = [connection for connection in self.nodes if connection.connected()]
        self.nodes.close(error=error)
        for connection in ended:
            self._notify_lane_watcher(connection, error)
        self.bootstrap.start_anew()

    def close_bootstrap_when_idle(self) -> None:
        """Close the bootstrap connection when brokers are known and nothing is in flight on it."""
        connection = self.nodes.find(BOOTSTRAP)
        if connection is None or not self._cluster.brokers():
            return
        if connection.in_flight_count:
            self._loop.call_later(0.1, self.close_bootstrap_when_idle)
        else:
            self.nodes.close(BOOTSTRAP)

    # -- routes --------------------------------------------------------------------------------------------------------

    def _route(self, pending: PendingRequest, target: Target, lane: str | None, *, is_retried: bool) -> None:
        node = route(target, self._cluster, self.nodes, self.coordinators)
        if not isinstance(node, NoKnownNode):
            self.nodes.get(node, None if node == BOOTSTRAP else lane).submit(pending)
        elif node is NoKnownNode.BROKERS:
            self._hold(pending, target, lane)
        elif is_retried:
            pending.future.failure(self._not_found(pending, target, node))
        else:
            self._find_out(pending, target, lane)

    def _find_out(self, pending: PendingRequest, target: Target, lane: str | None) -> None:
        """Find the coordinator, or refresh the metadata, and route again; the request's deadline holds meanwhile."""
        lookup: Future[FoundCoordinator] | Future[None]
        if isinstance(target, Coordinator):
            lookup = self._find_coordinator(target)
        else:
            lookup = self._refresh((target.partition.topic,) if isinstance(target, Leader) else ())
        timer = self._loop.call_at(pending.deadline, self._on_timeout, pending, target)

        def found_out(outcome: object) -> None:
            timer.cancel()
            if pending.future.is_done:
                return
            if isinstance(outcome, BaseException):
                pending.future.failure(outcome)
            else:
                self._route(pending, target, lane, is_retried=True)

        lookup.add_both(found_out)

    def _find_coordinator(self, coordinator: Coordinator) -> Future[FoundCoordinator]:
        under_way = self._coordinator_lookups.get(coordinator)
        if under_way is not None:
            return under_way
        future = self._coordinator_lookups[coordinator] = self._look_up(coordinator)

        def found(outcome: FoundCoordinator | BaseException) -> None:
            self._coordinator_lookups.pop(coordinator, None)
            if isinstance(outcome, FoundCoordinator):
                if self._cluster.broker_metadata(outcome.node_id) is None:
                    self._cluster.note_broker(outcome.node_id, outcome.host, outcome.port)
                self.coordinators.put(coordinator, outcome.node_id)

        return future.add_both(found)

    def _not_found(self, pending: PendingRequest, target: Target, missing: NoKnownNode) -> KafkaError:
        if isinstance(target, Leader):
            topic, number = target.partition
            where = f"{pending.api} to the leader of {topic}-{number}"
            error = self._cluster.topic_error(topic)
            if error is not None:
                return type(error)(f"{where}: {error.args[0]}")
            if self._cluster.partitions_for_topic(topic) is None:
                return UnknownTopicOrPartitionError(f"{where}: no such topic in the cluster's metadata")
            if self._cluster.leader_for_partition(target.partition) is None:
                return StaleMetadata(f"{where}: no such partition in the cluster's metadata")
            return LeaderNotAvailableError(f"{where}: it has none now")
        return StaleMetadata(f"{pending.api} to {target}: {missing.value}")

    # -- holding -------------------------------------------------------------------------------------------------------

    def _hold(self, pending: PendingRequest, target: Target, lane: str | None) -> None:
        timer = self._loop.call_at(pending.deadline, self._on_timeout, pending, target)
        self._held.append(_Held(pending, target, lane, timer))
        self.start_bootstrap()
        self._refuse_held()
        self._set_wake()

    def _refuse_held(self) -> None:
        """Fail what is held when a bootstrap server has just refused us (TLS, SASL): waiting does not help."""
        refusal = self.bootstrap.refusal()
        if refusal is None or not self._held:
            return
        held, self._held = self._held, []
        for entry in held:
            entry.timer.cancel()
        # On the next turn: the callers have the futures by then.
        self._loop.call_soon(fail_all, [entry.pending for entry in held], refusal)

    def start_bootstrap(self) -> None:
        """No known broker can be reached: connect to the bootstrap servers, if the settings allow it (KIP-899)."""
        if not self._is_closed and (self._recovers or not self._cluster.brokers()):
            self.bootstrap.start()

    def release(self) -> None:
        """Route what is held again."""
        held, self._held = self._held, []
        for entry in held:
            entry.timer.cancel()
            if not entry.pending.future.is_done:
                self._route(entry.pending, entry.target, entry.lane, is_retried=False)

    def _set_wake(self) -> None:
        """Set the timer for the end of the next back-off, a node's or the bootstrap's."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if self._held and not self._is_closed:
            when = self.nodes.next_retry_at()
            may_start = self._recovers or not self._cluster.brokers()
            if may_start and not self.bootstrap.is_under_way:
                when = min(when, self.bootstrap.next_at)
            now = self._loop.time()
            # Also when it is over already, as with a back-off of 0.
            self._wake = self._loop.call_at(min(max(when, now), now + 86400), self.release)

    def _on_timeout(self, pending: PendingRequest, target: Target) -> None:
        if pending.future.is_done:
            return
        self._held = [entry for entry in self._held if entry.pending is not pending]
        why = self.bootstrap.why() if not self._cluster.brokers() else "no known broker can be used now"
        text = f"{pending.api} to {_name(target)}: not sent within {pending.timeout_s:g} s: {why}"
        pending.future.failure(KafkaTimeoutError(text))

    # -- called by connections -----------------------------------------------------------------------------------------

    def address_of(self, node_id: NodeId) -> tuple[str, int] | None:
        broker = self._cluster.broker_metadata(node_id)
        return None if broker is None else (broker.host, broker.port)

    def versions_dialogue(self) -> VersionsDialogue | NegotiatedVersions:
        return self.versions.versions_dialogue()

    def on_ready(self, connection: BrokerConnection, negotiated: NegotiatedVersions) -> None:
        self._events += 1
        self.connections_opened += 1
        self.versions.learn(negotiated)
        self.release()

    def on_lost(self, connection: BrokerConnection, error: BaseException) -> None:
        self._events += 1
        self.connections_lost += 1
        self.coordinators.forget_node(connection.node_id)
        if connection.node_id == BOOTSTRAP:
            self.nodes.close(BOOTSTRAP)  # the next bootstrap round tries all servers again
        else:
            self._cluster.request_update()
            if self._cluster.brokers() and self.nodes.least_loaded_node() is None:
                # Now, and not when a node is chosen: a broker's back-off may be shorter than that of the metadata.
                # Then there is one to be tried whenever metadata is due, it fails, and the bootstrap servers would
                # never be tried (Java's clients look at every poll).
                self.start_bootstrap()
        if self._held:
            self._set_wake()
        self._notify_lane_watcher(connection, error)
        self._give_up_dependents()

    def _give_up_dependents(self) -> None:
        """Lose the silent connections whose nodes ask a coordinator that is not there any more. They would do so until
        their own requests time out (30 s, seen on 4.3.0); asked again, they ask the new one."""
        for connection in self.nodes:
            oldest = connection.oldest()
            if oldest is None or oldest.depends_on is None or oldest.depends_on_node is None:
                continue
            if connection.is_silent() and self.coordinators.get(oldest.depends_on) != oldest.depends_on_node:
                silent_s, node = connection.silent_s(), oldest.depends_on_node
                text = f"{connection.name}: silent for {silent_s:.1f} s; its {oldest.api} depends on node {node}"
                connection.give_up(KafkaConnectionError(f"{text}, which does not coordinate it any more"))

    def on_idle_closed(self, connection: BrokerConnection, error: BaseException) -> None:
        self._notify_lane_watcher(connection, error)

    def _notify_lane_watcher(self, connection: BrokerConnection, error: BaseException) -> None:
        watcher = self._lane_watchers.get(connection.lane or "")
        if watcher is not None:
            self._loop.call_soon(watcher, error)  # after the futures of its requests

    def on_unreachable(self, connection: BrokerConnection) -> None:
        """The cluster may give the node up before it is tried again: ask another node each back-off of the metadata."""
        if connection.node_id != BOOTSTRAP and self.nodes.least_loaded_node() not in (None, connection.node_id):
            self._cluster.request_update()

    def on_silent(self, connection: BrokerConnection) -> None:
        if connection.node_id != BOOTSTRAP:
            oldest = connection.oldest()
            self._refresh_elsewhere(connection.silent_s() if oldest is not None and oldest.is_internal else inf)
            self._give_up_dependents()

    def on_answer(self, pending: PendingRequest, response: Response) -> None:
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.throttle.note(pending.api, throttle_ms)
        if type(response) in PARTITIONS_OF:
            hints = leader_hints(response, self._cluster.topic_name_for_id)
            if hints is not None:
                self._cluster.update_partition_leaders(hints.leaders, hints.nodes)
        if self._collected is not None and not pending.is_internal:
            self._events += 1
            self._collected.append(response)

    def bootstrapped(self, connection: BrokerConnection, negotiated: NegotiatedVersions) -> None:
        """A bootstrap server is connected: use its connection until brokers are known."""
        self.nodes.adopt(connection)
        if negotiated.metadata is not None:
            self._cluster.seed(negotiated.metadata)
        self.on_ready(connection, negotiated)

    def bootstrap_failed(self) -> None:
        """No bootstrap server could be reached; the next round is due after its back-off."""
        self._events += 1
        self._refuse_held()
        self._set_wake()


def _name(target: Target) -> str:
    if isinstance(target, Leader):
        return f"the leader of {target.partition.topic}-{target.partition.partition}"
    if isinstance(target, Coordinator):
        return f"the coordinator of {target.type.name.lower()} {target.key!r}"
    return {"AnyNode": "any node", "Controller": "the controller"}.get(type(target).__name__, f"node {target}")


class NodeConnections:
    """All connections of a client, by node and lane, and which node is least loaded.

    Connections are made on first use and kept until :meth:`close`. The connection to a bootstrap server is handed over
    by ``bootstrap.py`` with :meth:`adopt`, as the node ``"bootstrap"``.
    """

    def __init__(
        self, cluster: ClusterMetadata, network: Network, settings: ConnectionSettings, owner: ConnectionOwner, rng: Rng
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._settings = settings
        self._owner = owner
        self._rng = rng
        self._connections: dict[tuple[NodeId, str | None], BrokerConnection] = {}
        self._traffic: tuple[TrafficCounters, ...] = ()

    def __iter__(self) -> Iterator[BrokerConnection]:
        return iter(list(self._connections.values()))

    def find(self, node_id: NodeId, lane: str | None = None) -> BrokerConnection | None:
        """The connection, if there is one."""
        return self._connections.get((node_id, lane))

    def get(self, node_id: NodeId, lane: str | None = None) -> BrokerConnection:
        """The connection, made now if there is none; it connects when it is used."""
        key = (node_id, lane)
        found = self._connections.get(key)
        if found is None:
            found = BrokerConnection(node_id, self._network, self._settings, self._owner, self._rng, lane)
            found.count_traffic(self._traffic)
            self._connections[key] = found
        return found

    def adopt(self, connection: BrokerConnection) -> None:
        """Take over a connection made elsewhere."""
        connection.count_traffic(self._traffic)
        self._connections[connection.node_id, connection.lane] = connection

    def set_traffic(self, traffic: tuple[TrafficCounters, ...]) -> None:
        """Report all requests to these from now on, and to no others."""
        self._traffic = traffic
        for connection in self:
            connection.count_traffic(traffic)

    def close(self, node_id: NodeId | None = None, lane: str | None = None, error: KafkaError | None = None) -> None:
        """Close all connections, those of one node, those of one lane, or the one."""
        for key, connection in list(self._connections.items()):
            if node_id in (None, key[0]) and lane in (None, key[1]):
                del self._connections[key]
                connection.close(error)

    def drop_unknown_nodes(self, known: AbstractSet[NodeId]) -> None:
        """Close the connections to nodes that are not in the metadata any more, unless they are still in use. One that
        is silent is lost: its broker has no session with the cluster, and others lead what it has led."""
        for key, connection in list(self._connections.items()):
            if key[0] in known or self._connections.get(key) is not connection:
                continue  # the latter: closed by a callback of a request that has failed here
            if connection.disconnected() and not connection.in_flight_count:
                del self._connections[key]
                connection.close()
            elif key[0] != BOOTSTRAP and connection.is_silent():
                silent_s = connection.silent_s()
                text = f"{connection.name}: silent for {silent_s:.1f} s, and not in the cluster's metadata any more"
                connection.give_up(KafkaConnectionError(text))

    def in_flight_request_count(self, node_id: NodeId | None = None) -> int:
        """Requests sent or waiting, on all connections or those to one node."""
        return sum(c.in_flight_count for c in self if node_id in (None, c.node_id))

    def least_loaded_node(self) -> NodeId | None:
        """A connected node with nothing in flight; else the one with least in flight outside back-off, connected ones
        first; else a broker from the metadata never tried; else one that throttles or is silent; else None. The
        bootstrap server comes last everywhere.
        """
        best: NodeId | None = None
        best_rank = (False, False, inf, False)
        for (node_id, lane), connection in self._connections.items():
            if lane is not None or connection.blacked_out() or self._has_no_address(connection):
                continue
            is_slow = connection.muted_until > 0 or connection.is_silent()
            rank = (is_slow, connection.disconnected(), connection.in_flight_count, node_id == BOOTSTRAP)
            if best is None or rank < best_rank:
                best, best_rank = node_id, rank
        is_slow, is_disconnected = best_rank[:2]
        if best is not None and best != BOOTSTRAP and not is_slow and not is_disconnected:
            return best
        # A known broker that was never tried comes before a bootstrap server, and before one that throttles.
        for broker in sorted(sorted(self._cluster.brokers()), key=lambda _: self._rng.random()):
            if (broker.nodeId, None) not in self._connections:
                return broker.nodeId if best in (None, BOOTSTRAP) or is_slow else best
        return best

    def has_answering_node(self) -> bool:
        """Whether :meth:`least_loaded_node` is one that is not silent."""
        node_id = self.least_loaded_node()
        connection = None if node_id is None else self.find(node_id)
        return node_id is not None and (connection is None or not connection.is_silent())

    def _has_no_address(self, connection: BrokerConnection) -> bool:
        """Whether there is no address to connect to: the node is not in the metadata."""
        node_id = connection.node_id
        return connection.disconnected() and node_id != BOOTSTRAP and self._cluster.broker_metadata(node_id) is None

    def next_retry_at(self) -> float:
        """When the first of the nodes in back-off may be tried again; infinity when none is."""
        return min((c.retry_at for c in self if c.lane is None and c.blacked_out()), default=inf)


class Throttled(NamedTuple):
    """``answers``: how many had a throttle time above 0; the sum of their times, and the longest."""

    answers: int
    total_ms: int
    most_ms: int


NOT_THROTTLED = Throttled(0, 0, 0)


class ThrottleTimes:
    """The ``throttle_time_ms`` of this client's responses, by API, for metrics; connections mute themselves (KIP-219).

    ``by_api``: the API's name ("Produce") -> what was counted for it. The loop's thread writes, any may read.
    """

    def __init__(self) -> None:
        self.by_api: dict[str, Throttled] = {}

    def note(self, api: str, throttle_ms: int) -> None:
        """A response of ``api`` had this throttle time."""
        known = self.by_api.get(api, NOT_THROTTLED)
        self.by_api[api] = Throttled(known.answers + 1, known.total_ms + throttle_ms, max(known.most_ms, throttle_ms))

    def of(self, api: str) -> Throttled:
        """What was counted for one API; zeros when it was never throttled."""
        return self.by_api.get(api, NOT_THROTTLED)


# The leaders in the response to a request that was sent to the wrong broker (KIP-951).
#
# With NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH, brokers of 3.7 and later say who leads instead, and where that
# is: ``current_leader`` of the partition, ``node_endpoints`` of the answer (Produce 10, Fetch 16; Fetch 12 to 15 have
# the leader without its address). Whether to believe it is the cluster metadata's to decide (``client/cluster.py``).
#
# Another API with such hints: one more line in :data:`PARTITIONS_OF`.


CODES: Final = frozenset({NotLeaderForPartitionError.errno, FencedLeaderEpochError.errno})


class LeaderHints(NamedTuple):
    """All hints of one response."""

    leaders: dict[TopicPartition, LeaderHint]
    nodes: list[BrokerMetadata]


PARTITIONS_OF: Final[Mapping[type[Response], str]] = {
    ProduceResponse: "partition_responses",
    FetchResponse: "partitions",
    ShareFetchResponse: "partitions",
    ShareAcknowledgeResponse: "partitions",
}
"""Answers with hints, and what they call the partitions of a topic."""


def leader_hints(response: Any, name_of: Callable[[UUID], str | None]) -> LeaderHints | None:
    """The hints of an answer of one of :data:`PARTITIONS_OF`'s types; None when there are none, as there are mostly.

    ``name_of`` gives the name of the topic with an id.
    """
    attribute = PARTITIONS_OF[type(response)]
    leaders: dict[TopicPartition, LeaderHint] = {}
    for topic in response.responses:
        for entry in getattr(topic, attribute):
            if entry.error_code not in CODES:
                continue
            hint = entry.current_leader
            name = getattr(topic, "name", "") or getattr(topic, "topic", "") or name_of(topic.topic_id)
            if name is not None and hint.leader_id >= 0 and hint.leader_epoch >= 0:
                number = entry.index if attribute == "partition_responses" else entry.partition_index
                leaders[TopicPartition(name, number)] = LeaderHint(hint.leader_id, hint.leader_epoch)
    if not leaders:
        return None
    nodes = [BrokerMetadata(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
    return LeaderHints(leaders, nodes)
