"""KafkaClient: requests to the right broker, over one select loop, in one thread.

Two ways to use it. Event-driven, which is how the other clients of this package do::

    client = KafkaClient(bootstrap_servers="broker:9092", loop=loop)
    future = client.request(Leader(TopicPartition("jobs", 0)), FetchRequest(...))    # connects, routes, picks a version
    future = client.run(dialogue)                                                    # core/dialogue.py

and by hand, as in the first asynchronous generation of kafka-python::

    while not client.ready(node_id):
        client.poll(100)
    future = client.send(node_id, request)
    client.poll(future=future)

Nothing happens but on the loop: whoever has a loop runs it, whoever has none calls :meth:`KafkaClient.poll`. The client
is not thread-safe; :meth:`KafkaClient.wakeup` alone may be called from another thread. In a thread of its own:
``io_thread.py``.

It only puts together what lives elsewhere: routes and connections ``router.py`` and ``nodes.py``, metadata
``refresh.py``, dialogues ``driver.py``, scheduled functions ``scheduled.py``.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from kafka._version import __version__
from kafka.client.check_version import VersionCheck
from kafka.client.cluster import ClusterMetadata
from kafka.client.driver import DialogueDriver
from kafka.client.greeting import ClusterVersions
from kafka.client.link import Exchange, LinkSettings
from kafka.client.nodes import BOOTSTRAP
from kafka.client.refresh import MetadataRefresher
from kafka.client.router import Router
from kafka.client.scheduled import ScheduledTasks
from kafka.config import resolve
from kafka.core.coordinator import Found, find_coordinator
from kafka.core.dialogue import ByVersion, Dialogue
from kafka.core.retry import Backoff, Rng
from kafka.core.routing import AnyNode, Coordinator, Coordinators, NodeId, Target
from kafka.core.versions import ApiRanges, Discovery
from kafka.errors import (
    Cancelled,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    NoBrokersAvailable,
    NodeNotReadyError,
    UnknownBrokerIdError,
)
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.net.resolve import parse_servers
from kafka.net.tcp import TcpNetwork
from kafka.net.transport import Network
from kafka.protocol.metadata import MetadataResponse
from kafka.wire.message import Request, Response

T = TypeVar("T")
R = TypeVar("R", bound=Response)


class Dependant(Protocol):
    """What lives on a client and has work of its own under way: a producer, say."""

    def finish(self) -> Future[None]:
        """Bring it to an end in good order; done when it is."""
        ...

    def close(self) -> None:
        """End it now: what is left fails."""
        ...


class KafkaClient:
    """A client of one cluster. Settings: the rows of ``client`` in :mod:`kafka.config`.

    ``loop``: the loop to live on (default: one of its own). ``network``: how to connect (default: TCP on the loop).
    ``rng``: chance for back-offs and the choice of servers. ``all_topics``: whether metadata of every topic is read
    until :meth:`set_topics` or :meth:`add_topic` says which; with False, of none. ``resolve_servers``: gives
    ``bootstrap_servers`` anew when no broker can be reached any more; it may block, and runs in a thread of its own.
    """

    def __init__(
        self,
        *,
        loop: Loop | None = None,
        network: Network | None = None,
        rng: Rng | None = None,
        all_topics: bool = True,
        resolve_servers: Callable[[], Sequence[str]] | None = None,
        **configs: Any,
    ) -> None:
        self.config = resolve("client", configs)
        if self.config["client_id"] is None:
            self.config["client_id"] = f"kafka-taskloop-{__version__}"
        try:
            self._servers = parse_servers(self.config["bootstrap_servers"])
        except ValueError as error:
            raise KafkaConfigurationError(f"bootstrap_servers: {error}") from None
        self._owns_network = network is None
        self._owns_loop = loop is None and network is None
        self.loop: Loop = loop or (network.loop if network is not None else Loop())
        self._network: Network = network or TcpNetwork(self.loop)
        self._rng: Rng = rng or random.Random()
        self._settings = LinkSettings.of(self.config, self.config["client_id"])
        retry_backoff_s, retry_backoff_max_s = (
            self.config[name] / 1000 for name in ("retry_backoff_ms", "retry_backoff_max_ms")
        )
        self.retry_backoff = Backoff(retry_backoff_s, retry_backoff_max_s, self._rng)
        """Waits between attempts, for dialogues."""
        self.cluster = ClusterMetadata(
            now=self.loop.time,
            **{
                name: self.config[name]
                for name in (
                    "metadata_max_age_ms",
                    "retry_backoff_ms",
                    "retry_backoff_max_ms",
                    "allow_auto_create_topics",
                )
            },
        )
        """What is known of brokers, topics and leaders."""
        self.cluster.need_all_topics = all_topics
        self._versions = ClusterVersions(self.config["api_version"])
        self._router = Router(
            self._network,
            self.cluster,
            self._settings,
            self._servers,
            self._versions,
            self._rng,
            self._find_coordinator,
            self.refresh_metadata,
            None if resolve_servers is None else lambda: self._find_servers(resolve_servers),
        )
        self._refresher = MetadataRefresher(
            self.loop, self.cluster, self._ask_for_metadata, self._router.on_metadata
        )
        self._driver = DialogueDriver(self)
        self._tasks = ScheduledTasks(self.loop, self._count_event)
        self.dependants: list[Dependant] = []
        """Who has to be closed before this client; they enter and leave by themselves."""
        self._is_closed = False
        self._is_woken = False
        self._refresher.check()

    # -- requests ------------------------------------------------------------------------------------------------------

    def request(
        self,
        target: Target,
        request: Request[R] | ByVersion[R],
        timeout_s: float | None = None,
        *,
        lane: str | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Future[R]:
        """Send ``request`` to a node id, AnyNode(), Controller(), Leader(partition) or Coordinator(key, type).

        Connects as needed, waits until the connection is ready and has room, speaks the highest version that both sides
        have (within ``min_version`` and ``max_version``), and tries nothing twice. ``timeout_s`` (default:
        ``request_timeout_ms``) runs from now to the answer. ``lane``: a connection of its own for each (node, lane).
        A Produce with acks=0 has no response: the future gets None once the bytes have left.

        The future fails with KafkaConnectionError (the connection could not be made, or was lost), KafkaTimeoutError
        (not sent in time), RequestTimedOutError (sent, and no answer in time; the connection is closed then),
        IncompatibleBrokerVersion, KafkaProtocolError, StaleMetadata or the topic's error (no leader). Error codes in
        the response are the caller's to look at.
        """
        exchange = self._exchange(request, timeout_s, min_version, max_version)
        self._router.send(exchange, target, lane)
        return exchange.future

    def run(self, dialogue: Dialogue[T]) -> Future[T]:
        """Drive a dialogue (``core/dialogue.py``); the future gets its result, or the error that it lets out."""
        self._check_usable()
        return self._driver.run(dialogue)

    @property
    def coordinators(self) -> Coordinators:
        """Who coordinates what; ``forget()`` there when a response says NOT_COORDINATOR."""
        return self._router.coordinators

    def refresh_metadata(self, topics: Sequence[str] = ()) -> Future[None]:
        """Read the cluster's metadata soon; ``topics`` are wanted from now on, beside the others."""
        self._check_usable()
        future: Future[None] = Future()
        if self.cluster.need_all_topics or not set(topics) - self.cluster.wanted_topics:
            refreshed = self.cluster.request_update()
        else:
            refreshed = self.cluster.add_topics(topics)
        refreshed.add_callback(lambda _: future.success(None))
        refreshed.add_errback(future.failure)
        return future

    def close_lane(self, lane: str, node_id: NodeId | None = None) -> None:
        """Close the connections of one lane, or the one to a node."""
        self._router.nodes.close(node_id, lane)

    # -- by hand -------------------------------------------------------------------------------------------------------

    def ready(self, node_id: NodeId) -> bool:
        """Begin to connect, or go on; whether requests may be sent. False while metadata is due or under way."""
        self._check_usable()
        if self.is_ready(node_id):
            return True
        connection = self._router.nodes.find(node_id)
        if connection is None:
            if self.cluster.broker_metadata(node_id) is None:
                return False
            connection = self._router.nodes.get(node_id)
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
        exchange = self._exchange(request, None, None, None)
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
        if found is None and not self._is_closed:
            self._router.bootstrap.start()
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
                self._versions.learn(self._check_servers(timeout, strict))
            assert self._versions.known is not None
            return self._versions.known
        address = self._router.address_of(node_id)
        if address is None:
            raise UnknownBrokerIdError(f"node {node_id}: not in the cluster's metadata")
        return self._check(node_id, address, timeout, strict).future.result().ranges

    def _check_servers(self, timeout: float, strict: bool) -> Discovery:
        give_up_at = self.loop.time() + timeout
        for failures in itertools.count(1):
            errors: list[KafkaError] = []
            is_there = False
            for server in self._servers:
                check = self._check(BOOTSTRAP, server, timeout, strict)
                try:
                    return check.future.result()
                except KafkaError as error:
                    errors.append(error)
                    is_there = is_there or (check.has_connected and error.retriable)
            wait_s = self.retry_backoff.delay_s(failures)
            if not is_there or self.loop.time() + wait_s >= give_up_at:
                break
            self.loop.run_until(self._pause(wait_s))
        if len(errors) == 1 and not errors[0].retriable:
            raise errors[0]
        raise NoBrokersAvailable("; ".join(str(e.args[0]) if e.args else str(e) for e in errors))

    def _check(self, node_id: NodeId, address: tuple[str, int], timeout: float, strict: bool) -> VersionCheck:
        check = VersionCheck(node_id, address, self._network, self._settings, self._rng, timeout, strict)
        self.loop.run_until(check.future)
        return check

    def _pause(self, seconds: float) -> Future[None]:
        future: Future[None] = Future()
        self.loop.call_later(seconds, future.success, None)
        return future

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, node_id: NodeId | None = None) -> None:
        """Close the connections to one node, or the client: then what is under way fails with Cancelled.

        Any number of times. A loop of its own is closed, too; one that was given goes on.
        """
        if node_id is not None:
            self._router.nodes.close(node_id)
            return
        if self._is_closed:
            return
        if self.loop.is_usable:
            for dependant in list(self.dependants):
                dependant.close()
        self._is_closed = True
        error = Cancelled("the client was closed")
        self._refresher.close()
        self._driver.close()
        self._router.close(error)
        self.cluster.close(error)
        self._tasks.close()
        if self._owns_network:
            self._network.close()
        if self._owns_loop:
            self.loop.close()

    def __enter__(self) -> KafkaClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _exchange(
        self,
        request: Request[Any] | ByVersion[Any],
        timeout_s: float | None,
        min_version: int | None,
        max_version: int | None,
    ) -> Exchange:
        if self._is_closed or not self.loop.is_usable:
            self._check_usable()
        if timeout_s is None:
            timeout_s = self._settings.request_timeout_s
        return Exchange(request, self.loop.time() + timeout_s, timeout_s, min_version, max_version)

    def _ask_for_metadata(self, request: ByVersion[MetadataResponse]) -> Future[MetadataResponse]:
        exchange = self._exchange(request, None, None, None)
        exchange.is_internal = True
        self._router.send(exchange, AnyNode())
        return exchange.future

    def _find_coordinator(self, coordinator: Coordinator) -> Future[Found]:
        return self._driver.run(
            find_coordinator(coordinator, self.retry_backoff, self._settings.request_timeout_s)
        )

    def _find_servers(self, resolve_servers: Callable[[], Sequence[str]]) -> Future[Sequence[tuple[str, int]]]:
        found: Future[Sequence[tuple[str, int]]] = Future()

        def work() -> None:
            try:
                done: Callable[[Any], object] = found.success
                outcome: Any = parse_servers(resolve_servers())
            except Exception as error:
                done, outcome = found.failure, error
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self.loop.call_soon_threadsafe(done, outcome)

        threading.Thread(target=work, name="kafka-servers", daemon=True).start()
        return found

    def _is_busy(self) -> bool:
        return bool(
            self._router.nodes.in_flight_request_count()
            or self._router.bootstrap.is_under_way
            or any(connection.connecting() for connection in self._router.nodes)
        )

    def _count_event(self) -> None:
        self._router.events += 1

    def _check_usable(self) -> None:
        if self._is_closed:
            raise IllegalStateError("the client is closed")
        if not self.loop.is_usable:
            raise IllegalStateError(
                "the client's loop is closed, or belongs to the parent process: after a fork, make a new client"
            )
