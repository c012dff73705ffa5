"""The client driven by hand, as kafka-python's first asynchronous generation was::

    while not client.ready(node_id):
        client.poll(100)
    future = client.send(node_id, request)
    client.poll(future=future)

The part of :class:`~kafka.client.kafka_client.KafkaClient` with questions about single nodes, one turn of the loop,
scheduled functions, and what brokers speak. Routes and connections are ``router.py``'s; here is only what such a caller
looks at and waits for.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kafka.client.check_version import VersionChecks
from kafka.client.cluster import ClusterMetadata
from kafka.client.greeting import ClusterVersions
from kafka.client.link import Exchange
from kafka.client.router import Router
from kafka.client.scheduled import ScheduledTasks
from kafka.core.dialogue import ByVersion
from kafka.core.routing import NodeId
from kafka.core.versions import ApiRanges
from kafka.errors import AuthenticationError, NodeNotReadyError, UnknownBrokerIdError
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.wire.message import Request, Response

R = TypeVar("R", bound=Response)


class DrivenByHand(abc.ABC):
    """What a client is made of is put in place by ``KafkaClient``, before anything here is called."""

    config: dict[str, Any]
    loop: Loop
    cluster: ClusterMetadata
    _router: Router
    _tasks: ScheduledTasks
    _versions: ClusterVersions
    _checks: VersionChecks
    _is_woken = False

    def ready(self, node_id: NodeId) -> bool:
        """Begin to connect, or go on; whether requests may be sent. False while metadata is due or under way.

        AuthenticationError when the cluster, or the node, has just not let us in.
        """
        self._check_usable()
        if self.cluster.refusal is not None:
            raise self.cluster.refusal
        if self.is_ready(node_id):
            return True
        connection = self._router.nodes.find(node_id)
        if connection is None:
            if self.cluster.broker_metadata(node_id) is None:
                return False
            connection = self._router.nodes.get(node_id)
        if isinstance(connection.last_error, AuthenticationError) and connection.blacked_out():
            raise connection.last_error
        connection.connect()
        return self.is_ready(node_id)

    def is_ready(self, node_id: NodeId) -> bool:
        """Whether requests may be sent to the node now; changes nothing."""
        if self.cluster.metadata_refresh_in_progress or self.cluster.ttl() == 0:
            return False
        connection = self._router.nodes.find(node_id)
        return connection is not None and connection.can_send_more()

    def send(self, node_id: NodeId, request: Request[R] | ByVersion[R]) -> Future[R]:
        """Send a request to a node that is ready; NodeNotReadyError when its connection is not."""
        self._check_usable()
        connection = self._router.nodes.find(node_id)
        if connection is None or not connection.can_send_more():
            state = "not connected"
            if connection is not None:
                busy = "its requests in flight are as many as may be, or it throttles"
                state = busy if connection.connected() else connection.state.value
            raise NodeNotReadyError(f"node {node_id} takes no request now: {state}")
        exchange = self._exchange(request)
        connection.submit(exchange)
        return exchange.future

    def poll(
        self, timeout_ms: float | None = None, future: Future[Any] | None = None, sleep: bool = False
    ) -> list[Response]:
        """Drive the loop: complete connections, refresh metadata, run due tasks, read and write.

        Returns the responses that came, of all requests of this client, as soon as there is one or something else
        happened (a connection, a task, :meth:`wakeup`), or after ``timeout_ms`` (default: ``request_timeout_ms``). With
        ``future`` it goes on until that is done. With nothing in flight it waits ``retry_backoff_ms`` at most, unless
        ``sleep`` is set: then the whole time.
        """
        self._check_usable()
        router, loop = self._router, self.loop
        wait_s = (self.config["request_timeout_ms"] if timeout_ms is None else max(timeout_ms, 0)) / 1000
        if future is None and not sleep and not self._is_busy():
            wait_s = min(wait_s, self.config["retry_backoff_ms"] / 1000)
        until = loop.time() + wait_s
        events = router.events
        collected = router.collected = []
        try:
            while True:
                if future is not None and future.is_done:
                    break
                left_s = until - loop.time()
                if future is not None:
                    loop.run_once(None)
                    continue
                loop.run_once(max(left_s, 0.0))
                if router.events != events or self._is_woken or left_s <= 0:
                    break
        finally:
            router.collected = None
            self._is_woken = False
        return collected

    def wakeup(self) -> None:
        """Let :meth:`poll` return. From any thread."""
        self._is_woken = True
        self.loop.wakeup()

    def connection_delay(self, node_id: NodeId) -> float:
        """Milliseconds until it makes sense to try the node: 0 for an unknown or connecting one, what is left of the
        back-off for a disconnected one, 999999999 for a connected one.
        """
        connection = self._router.nodes.find(node_id)
        return 0 if connection is None else connection.connection_delay()

    def throttle_delay(self, node_id: NodeId, lane: str | None = None) -> float:
        """Milliseconds that the node still wants to be left alone for (KIP-219); 0 when it takes requests."""
        return max((self.throttled_until(node_id, lane) - self.loop.time()) * 1000, 0.0)

    def throttled_until(self, node_id: NodeId, lane: str | None = None) -> float:
        """The same as the monotonic instant when that is over; 0 when it takes requests."""
        connection = self._router.nodes.find(node_id, lane)
        return 0.0 if connection is None else connection.muted_until

    def connected(self, node_id: NodeId) -> bool:
        """Whether there is a connection that requests may be sent on."""
        connection = self._router.nodes.find(node_id)
        return connection is not None and connection.connected()

    def is_disconnected(self, node_id: NodeId) -> bool:
        """Whether the connection to the node was lost or not made; False for an unknown node."""
        connection = self._router.nodes.find(node_id)
        return connection is not None and connection.disconnected()

    def in_flight_request_count(self, node_id: NodeId | None = None) -> int:
        """Requests sent, or waiting to be, that have no answer yet: of one node, or of all."""
        return self._router.nodes.in_flight_request_count(node_id)

    def least_loaded_node(self) -> NodeId | None:
        """A connected node with nothing in flight; else the one with least in flight outside back-off; else one that is
        disconnected and outside back-off; else a broker never tried; else None, and the bootstrap servers are tried.
        """
        found = self._router.nodes.least_loaded_node()
        if found is None:
            self._router.start_bootstrap()
        return found

    def set_topics(self, topics: Iterable[str]) -> Future[ClusterMetadata]:
        """Read the metadata of these topics from now on, of all when empty. The future is that of the refresh."""
        self._check_usable()
        return self.cluster.set_topics(topics)

    def add_topic(self, topic: str) -> Future[ClusterMetadata]:
        """Read the metadata of this topic, too. The future is that of the refresh."""
        self._check_usable()
        return self.cluster.add_topic(topic)

    def schedule(self, task: Callable[[], Any], at: float) -> Future[Any]:
        """Call ``task()`` at ``at`` (epoch seconds). The future gets its result, or its exception.

        Scheduling the same task again cancels the former: its future fails with Cancelled.
        """
        self._check_usable()
        return self._tasks.schedule(task, at)

    def unschedule(self, task: Callable[[], Any]) -> None:
        """Take a task back: its future fails with Cancelled. Nothing happens for an unknown one."""
        self._tasks.unschedule(task)

    # -- versions ------------------------------------------------------------------------------------------------------

    def check_version(self, node_id: NodeId | None = None, timeout: float = 2, strict: bool = False) -> str:
        """The release that a broker looks like: "0.8.2", "0.9", "0.10.2", "2.8", "4.3". Blocks, driving the loop.

        ``timeout``: seconds for each step. Without ``node_id``: any broker, asked once for each client; servers that
        take connections and lose them are asked again for ``timeout`` seconds. With ``strict`` an answer that no known
        release gives is an error of its own.

        Errors: NoBrokersAvailable (nothing answers; the text says what happened at each server), the node's
        KafkaConnectionError, UnrecognizedBrokerVersion, UnknownBrokerIdError.
        """
        return self.api_ranges(node_id, timeout, strict).release or ""

    def api_ranges(self, node_id: NodeId | None = None, timeout: float = 2, strict: bool = False) -> ApiRanges:
        """What a broker speaks, as :meth:`check_version` finds it: ``ranges``, ``features`` and ``release``."""
        self._check_usable()
        if node_id is None:
            if self._versions.known is None:
                self._versions.learn(self._checks.of_servers(timeout, strict))
            assert self._versions.known is not None
            return self._versions.known
        address = self._router.address_of(node_id)
        if address is None:
            raise UnknownBrokerIdError(f"node {node_id}: not in the cluster's metadata")
        return self._checks.of_node(node_id, address, timeout, strict).ranges

    def finalized_level(self, feature: str) -> int:
        """The cluster's level of a feature (KIP-584), as the last broker told that was connected to; 0 without it."""
        known = self._versions.known
        return 0 if known is None else known.features.get(feature, (0, 0))[1]

    # -- inside --------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _check_usable(self) -> None:
        """IllegalStateError for a client that is closed, or another process's."""

    @abc.abstractmethod
    def _exchange(
        self,
        request: Request[Any] | ByVersion[Any],
        timeout_s: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Exchange:
        """The request with a time limit, ready to be handed to a connection."""

    def _is_busy(self) -> bool:
        return bool(
            self._router.nodes.in_flight_request_count()
            or self._router.bootstrap.is_under_way
            or any(connection.connecting() for connection in self._router.nodes)
        )

    def _count_event(self) -> None:
        self._router.events += 1
