"""From a target to a connection: looks the node up, learns what is missing, holds the request meanwhile.

The look-up itself is :func:`kafka.core.routing.route`; here is what is done about its :class:`Unknown`. The router is
also the owner of the nodes' connections: it hears of their beginnings and ends, and draws the conclusions.

    Unknown.BROKERS      bootstrap (KIP-899; when brokers are known, only if ``metadata_recovery_strategy`` says so);
                         held until a connection is ready, metadata came, or a back-off is over
    Unknown.LEADER       one refresh of the metadata, then an error
    Unknown.CONTROLLER   the same
    Unknown.COORDINATOR  FindCoordinator, once for all who wait

What answers tell on the side is taken note of here, before their callers see them: other leaders (KIP-951), throttling.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from kafka.client.bootstrap import Bootstrap
from kafka.client.cluster import ClusterMetadata
from kafka.client.connection import BrokerConnection
from kafka.client.faults import fail_all
from kafka.client.greeting import ClusterVersions
from kafka.client.link import Exchange, LinkSettings
from kafka.client.nodes import BOOTSTRAP, Nodes
from kafka.client.servers import FindServers
from kafka.client.throttle import ThrottleTimes
from kafka.core.coordinator import Found
from kafka.core.leader_hints import PARTITIONS_OF, leader_hints
from kafka.core.retry import Rng
from kafka.core.routing import Coordinator, Coordinators, Leader, NodeId, Target, Unknown, route
from kafka.core.versions import Discovery, Greeting
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    StaleMetadata,
    UnknownTopicOrPartitionError,
)
from kafka.future import Future
from kafka.net.loop import LoopTimer
from kafka.net.transport import Network
from kafka.wire.message import Response

log = logging.getLogger(__name__)


class _Held(NamedTuple):
    """A request that waits for its route."""

    exchange: Exchange
    target: Target
    lane: str | None
    timer: LoopTimer


class Router:
    """Requests to connections. ``look_up`` runs FindCoordinator, ``refresh`` reads metadata with a topic. ``recovers``:
    whether the bootstrap servers may be asked again after brokers were known."""

    def __init__(
        self,
        network: Network,
        cluster: ClusterMetadata,
        settings: LinkSettings,
        servers: list[tuple[str, int]],
        versions: ClusterVersions,
        rng: Rng,
        look_up: Callable[[Coordinator], Future[Found]],
        refresh: Callable[[tuple[str, ...]], Future[None]],
        find_servers: FindServers | None = None,
        *,
        find_at_once: bool = False,
        recovers: bool = True,
    ) -> None:
        self.recovers = recovers
        self._loop = network.loop
        self._cluster = cluster
        self._look_up = look_up
        self._refresh = refresh
        self._held: list[_Held] = []
        self._looked_up: dict[Coordinator, Future[Found]] = {}
        self._wake: LoopTimer | None = None
        self._is_closed = False
        self.versions = versions
        self.coordinators = Coordinators()
        self.nodes = Nodes(cluster, network, settings, self, rng)
        self.bootstrap = Bootstrap(servers, network, settings, rng, self, find_servers, find_at_once=find_at_once)
        self.throttle = ThrottleTimes()
        self.connections_opened = 0
        self.connections_lost = 0
        self.lane_watchers: dict[str, Callable[[BaseException], object]] = {}
        """By lane: who wants to know that its connection has ended though nobody closed it."""
        self.events = 0
        """Grows with whatever a caller of ``poll`` may wait for."""
        self.collected: list[Response] | None = None
        """Where ``poll`` gathers responses; None outside it."""

    def send(self, exchange: Exchange, target: Target, lane: str | None = None) -> None:
        """Hand the request to the connection for ``target``, now or when that is known."""
        self._route(exchange, target, lane, is_learnt=False)

    def close(self, error: KafkaError) -> None:
        """End all connections; what waits fails with ``error``."""
        self._is_closed = True
        if self._wake is not None:
            self._wake.cancel()
        self.bootstrap.close()
        held, self._held = self._held, []
        for entry in held:
            entry.timer.cancel()
            entry.exchange.future.failure(error)
        self.nodes.close(error=error)

    def on_metadata(self) -> None:
        """The cluster's metadata was read anew."""
        self.nodes.forget_strangers()
        for connection in self.nodes:
            connection.look_again()
        self.settle_bootstrap()
        self.release()

    def rebootstrap(self, why: str) -> None:
        """Forget the brokers, close the connections to them, and ask the bootstrap servers (KIP-1102).

        What is in flight fails with KafkaConnectionError, which is retriable.
        """
        log.warning("the bootstrap servers are asked again: %s", why)
        self._cluster.forget_brokers()
        self.coordinators.forget_all()
        error = KafkaConnectionError(f"closed, since the bootstrap servers are asked again: {why}")
        ended = [connection for connection in self.nodes if connection.connected()]
        self.nodes.close(error=error)
        for connection in ended:
            self._tell_watcher(connection, error)
        self.bootstrap.start_anew()

    def settle_bootstrap(self) -> None:
        """Brokers are known: the bootstrap connection ends once nothing is in flight on it."""
        connection = self.nodes.find(BOOTSTRAP)
        if connection is None or not self._cluster.brokers():
            return
        if connection.in_flight_count:
            self._loop.call_later(0.1, self.settle_bootstrap)
        else:
            self.nodes.close(BOOTSTRAP)

    # -- routes --------------------------------------------------------------------------------------------------------

    def _route(self, exchange: Exchange, target: Target, lane: str | None, *, is_learnt: bool) -> None:
        node = route(target, self._cluster, self.nodes, self.coordinators)
        if not isinstance(node, Unknown):
            self.nodes.get(node, None if node == BOOTSTRAP else lane).submit(exchange)
        elif node is Unknown.BROKERS:
            self._hold(exchange, target, lane)
        elif is_learnt:
            exchange.future.failure(self._not_found(exchange, target, node))
        else:
            self._learn(exchange, target, lane)

    def _learn(self, exchange: Exchange, target: Target, lane: str | None) -> None:
        """Ask for what is missing and route again; the request's deadline holds meanwhile."""
        learning: Future[Found] | Future[None]
        if isinstance(target, Coordinator):
            learning = self._find_coordinator(target)
        else:
            learning = self._refresh((target.partition.topic,) if isinstance(target, Leader) else ())
        timer = self._loop.call_at(exchange.deadline, self._out_of_time, exchange, target)

        def learnt(outcome: object) -> None:
            timer.cancel()
            if exchange.future.is_done:
                return
            if isinstance(outcome, BaseException):
                exchange.future.failure(outcome)
            else:
                self._route(exchange, target, lane, is_learnt=True)

        learning.add_both(learnt)

    def _find_coordinator(self, coordinator: Coordinator) -> Future[Found]:
        under_way = self._looked_up.get(coordinator)
        if under_way is not None:
            return under_way
        future = self._looked_up[coordinator] = self._look_up(coordinator)

        def found(outcome: Found | BaseException) -> None:
            self._looked_up.pop(coordinator, None)
            if isinstance(outcome, Found):
                if self._cluster.broker_metadata(outcome.node_id) is None:
                    self._cluster.note_broker(outcome.node_id, outcome.host, outcome.port)
                self.coordinators.put(coordinator, outcome.node_id)

        return future.add_both(found)

    def _not_found(self, exchange: Exchange, target: Target, missing: Unknown) -> KafkaError:
        if isinstance(target, Leader):
            topic, number = target.partition
            where = f"{exchange.api} to the leader of {topic}-{number}"
            error = self._cluster.topic_error(topic)
            if error is not None:
                return type(error)(f"{where}: {error.args[0]}")
            if self._cluster.partitions_for_topic(topic) is None:
                return UnknownTopicOrPartitionError(f"{where}: no such topic in the cluster's metadata")
            if self._cluster.leader_for_partition(target.partition) is None:
                return StaleMetadata(f"{where}: no such partition in the cluster's metadata")
            return LeaderNotAvailableError(f"{where}: it has none now")
        return StaleMetadata(f"{exchange.api} to {target}: {missing.value}")

    # -- holding -------------------------------------------------------------------------------------------------------

    def _hold(self, exchange: Exchange, target: Target, lane: str | None) -> None:
        timer = self._loop.call_at(exchange.deadline, self._out_of_time, exchange, target)
        self._held.append(_Held(exchange, target, lane, timer))
        self.start_bootstrap()
        self._refuse_held()
        self._set_wake()

    def _refuse_held(self) -> None:
        """The servers were just asked, and what they said is for somebody to put right: waiting is of no use."""
        refusal = self.bootstrap.refusal()
        if refusal is None or not self._held:
            return
        held, self._held = self._held, []
        for entry in held:
            entry.timer.cancel()
        # On the next turn: whoever waits has the future by then.
        self._loop.call_soon(fail_all, [entry.exchange for entry in held], refusal)

    def start_bootstrap(self) -> None:
        """No known broker can be reached: ask the bootstrap servers, if that may be (KIP-899)."""
        if not self._is_closed and (self.recovers or not self._cluster.brokers()):
            self.bootstrap.start()

    def release(self) -> None:
        """Something has changed: try again to route what is held."""
        held, self._held = self._held, []
        for entry in held:
            entry.timer.cancel()
            if not entry.exchange.future.is_done:
                self._route(entry.exchange, entry.target, entry.lane, is_learnt=False)

    def _set_wake(self) -> None:
        """The next instant at which a node's or the bootstrap's back-off is over."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if self._held and not self._is_closed:
            when = self.nodes.next_retry_at()
            may_start = self.recovers or not self._cluster.brokers()
            if may_start and not self.bootstrap.is_under_way:
                when = min(when, self.bootstrap.next_at)
            now = self._loop.time()
            # Also when it is over already, as it is at once with a back-off of 0.
            self._wake = self._loop.call_at(min(max(when, now), now + 86400), self.release)

    def _out_of_time(self, exchange: Exchange, target: Target) -> None:
        if exchange.future.is_done:
            return
        self._held = [entry for entry in self._held if entry.exchange is not exchange]
        why = self.bootstrap.why() if not self._cluster.brokers() else "no broker that is free is known"
        text = f"{exchange.api} to {_name(target)}: not sent within {exchange.timeout_s:g} s: {why}"
        exchange.future.failure(KafkaTimeoutError(text))

    # -- what connections tell -----------------------------------------------------------------------------------------

    def address_of(self, node_id: NodeId) -> tuple[str, int] | None:
        broker = self._cluster.broker_metadata(node_id)
        return None if broker is None else (broker.host, broker.port)

    def greeting(self) -> Greeting | Discovery:
        return self.versions.greeting()

    def on_ready(self, connection: BrokerConnection, discovery: Discovery) -> None:
        self.events += 1
        self.connections_opened += 1
        self.versions.learn(discovery)
        self.release()

    def on_lost(self, connection: BrokerConnection, error: BaseException) -> None:
        self.events += 1
        self.connections_lost += 1
        self.coordinators.forget_node(connection.node_id)
        if connection.node_id == BOOTSTRAP:
            self.nodes.close(BOOTSTRAP)  # the next round tries all servers again
        else:
            self._cluster.request_update()
            if self._cluster.brokers() and self.nodes.least_loaded_node() is None:
                # Now, and not when somebody asks for any node: by then one may be out of its back-off, and fail again.
                self.start_bootstrap()
        if self._held:
            self._set_wake()
        self._tell_watcher(connection, error)

    def on_retired(self, connection: BrokerConnection, error: BaseException) -> None:
        self._tell_watcher(connection, error)

    def _tell_watcher(self, connection: BrokerConnection, error: BaseException) -> None:
        watcher = self.lane_watchers.get(connection.lane or "")
        if watcher is not None:
            self._loop.call_soon(watcher, error)  # after those whose requests were on it

    def on_answer(self, exchange: Exchange, response: Response) -> None:
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.throttle.note(exchange.api, throttle_ms)
        if type(response) in PARTITIONS_OF:
            hints = leader_hints(response, self._cluster.topic_name_for_id)
            if hints is not None:
                self._cluster.update_partition_leaders(hints.leaders, hints.nodes)
        if self.collected is not None and not exchange.is_internal:
            self.events += 1
            self.collected.append(response)

    def bootstrapped(self, connection: BrokerConnection, discovery: Discovery) -> None:
        """A server has been reached: use its connection until brokers are known."""
        self.nodes.adopt(connection)
        if discovery.metadata is not None:
            self._cluster.seed(discovery.metadata)
        self.on_ready(connection, discovery)

    def bootstrap_failed(self) -> None:
        """None of the servers was reached; the next round is due after its back-off."""
        self.events += 1
        self._refuse_held()
        self._set_wake()


def _name(target: Target) -> str:
    if isinstance(target, Leader):
        return f"the leader of {target.partition.topic}-{target.partition.partition}"
    if isinstance(target, Coordinator):
        return f"the coordinator of {target.type.name.lower()} {target.key!r}"
    return {"AnyNode": "any node", "Controller": "the controller"}.get(type(target).__name__, f"node {target}")
