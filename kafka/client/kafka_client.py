"""KafkaClient: requests to the right broker, over one select loop, in one thread.

Two ways to use it. Event-driven, which is how the other clients of this package do::

    client = KafkaClient(bootstrap_servers="broker:9092", loop=loop)
    future = client.request(Leader(TopicPartition("jobs", 0)), FetchRequest(...))    # connects, routes, picks a version
    future = client.run(dialogue)                                                    # core/dialogue.py

and polled, as kafka-python's first asynchronous generation was::

    while not client.ready(node_id):
        client.poll(100)
    future = client.send(node_id, request)
    client.poll(future=future)

Nothing happens but on the loop: the owner of a given loop runs it, others call :meth:`KafkaClient.poll`. The client is
not thread-safe; :meth:`KafkaClient.wakeup` alone may be called from another thread. In a thread of its own:
``io_thread.py``.

It only puts together what lives elsewhere: routes and connections ``router.py``, metadata ``cluster.py``, dialogues
``driver.py``, the brokers' versions ``check_version.py``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Protocol, TypeVar

from kafka._version import __version__
from kafka.client.bootstrap import server_finder
from kafka.client.check_version import ClusterVersions, VersionChecks
from kafka.client.cluster import ClusterMetadata, MetadataRefresher
from kafka.client.connection import BrokerConnection, ConnectionSettings, TrafficCounters
from kafka.client.driver import DialogueDriver, gather
from kafka.client.router import Coordinators, Router, ThrottleTimes
from kafka.config import resolve
from kafka.core.connection import ApiRanges, ByVersion
from kafka.core.coordinator import FoundCoordinator, find_coordinator
from kafka.core.dialogue import Dialogue, now, on_lane, refresh_metadata
from kafka.core.retry import Backoff, Rng
from kafka.core.routing import AnyNode, Coordinator, NodeId, Target
from kafka.errors import (
    AuthenticationError,
    Cancelled,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    UnknownBrokerIdError,
)
from kafka.future import Future
from kafka.net.loop import NEVER_S, DelayedTaskQueue, Loop, LoopTimer
from kafka.net.resolve import parse_servers
from kafka.net.tcp import TcpNetwork
from kafka.net.transport import Network
from kafka.protocol.metadata import MetadataResponse
from kafka.wire.message import Request, Response

T = TypeVar("T")
R = TypeVar("R", bound=Response)


class LoopResident(Protocol):
    """What lives on a client's loop and has work of its own under way: a producer, say."""

    def finish(self) -> Future[None]:
        """Complete the work under way; done when it is."""
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
            servers = parse_servers(self.config["bootstrap_servers"])
        except ValueError as error:
            raise KafkaConfigurationError(f"bootstrap_servers: {error}") from None
        # may refuse: no loop is made before
        self._settings = ConnectionSettings.of(self.config, self.config["client_id"])
        proxied = _proxy_layer(self.config)
        self._owns_network = network is None
        self._owns_loop = loop is None and network is None
        self.loop: Loop = loop or (network.loop if network is not None else Loop())
        self._network: Network = proxied(network or TcpNetwork(self.loop))
        self._rng: Rng = rng or random.Random()
        retry_backoff_s, retry_backoff_max_s = (
            self.config[name] / 1000 for name in ("retry_backoff_ms", "retry_backoff_max_ms")
        )
        self.retry_backoff = Backoff(retry_backoff_s, retry_backoff_max_s, self._rng)
        """Waits between attempts, for dialogues."""
        self.cluster = ClusterMetadata(
            now=self.loop.time,
            rng=self._rng,
            all_topics=all_topics,
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
        if self.config["bootstrap_topics_filter"]:
            self.cluster.set_topics(self.config["bootstrap_topics_filter"])
        self._versions = ClusterVersions(self.config["api_version"], self._settings.software)
        self._checks = VersionChecks(servers, self._network, self._settings, self._rng, self.retry_backoff)
        is_canonical = self.config["client_dns_lookup"] == "resolve_canonical_bootstrap_servers_only"
        recovers = self.config["metadata_recovery_strategy"] == "rebootstrap"
        self.router = Router(
            self._network,
            self.cluster,
            self._settings,
            servers,
            self._versions,
            self._rng,
            self._find_coordinator,
            self.refresh_metadata,
            self._refresh_elsewhere,
            server_finder(self.loop, servers, resolve_servers, is_canonical),
            find_at_once=is_canonical,
            recovers=recovers,
        )
        """Requests to connections: the clients of this package hand theirs to it directly."""
        self._refresher = MetadataRefresher(
            self.loop,
            self.cluster,
            self._ask_for_metadata,
            self.router.on_metadata,
            self.router.rebootstrap if recovers else None,
            self.config["metadata_recovery_rebootstrap_trigger_ms"] / 1000,
        )
        self._driver = DialogueDriver(self)
        self._tasks = ScheduledTasks(self.loop, self.router.count_event)
        self._residents: list[LoopResident] = []
        self._traffic: list[TrafficCounters] = []
        self._is_closed = False
        self._is_woken = False
        self._refresher.check()
        if self._owns_loop and self.config["bootstrap_timeout_ms"] is not None:
            try:
                self.loop.run_until(bootstrapped := self.bootstrapped())
                bootstrapped.result()
            except BaseException:
                self.close()
                raise

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
        IncompatibleBrokerVersion, KafkaProtocolError, UnknownBrokerIdError (the node has left), StaleMetadata or the
        topic's error (no leader). Error codes in the response are the caller's to look at.
        """
        return self.router.request(
            target, request, timeout_s, lane=lane, min_version=min_version, max_version=max_version
        )

    def run(self, dialogue: Dialogue[T], lane: str | None = None) -> Future[T]:
        """Drive a dialogue (``core/dialogue.py``); the future gets its result, or the error that it lets out.
        ``lane``: of its requests that do not name one (:meth:`request`)."""
        self.router.check_usable()
        return self._driver.run(dialogue if lane is None else on_lane(lane, dialogue))

    @property
    def request_timeout_s(self) -> float:
        """``request_timeout_ms``, in seconds: what a request has when nothing else is said."""
        return self._settings.request_timeout_s

    @property
    def software(self) -> tuple[str, str]:
        """The name and version, sent to brokers (KIP-511)."""
        return self._settings.software

    @property
    def rng(self) -> Rng:
        """Its random source."""
        return self._rng

    @property
    def coordinators(self) -> Coordinators:
        """The known coordinators; ``forget()`` there when a response says NOT_COORDINATOR."""
        return self.router.coordinators

    def refresh_metadata(self, topics: Sequence[str] = ()) -> Future[None]:
        """Read the cluster's metadata soon; ``topics`` are wanted from now on, beside the others."""
        self.router.check_usable()
        future: Future[None] = Future()
        if self.cluster.need_all_topics or not set(topics) - self.cluster.wanted_topics:
            refreshed = self.cluster.request_update()
        else:
            refreshed = self.cluster.add_topics(topics)
        refreshed.add_callback(lambda _: future.success(None))
        refreshed.add_errback(future.failure)
        return future

    @property
    def throttle(self) -> ThrottleTimes:
        """Throttle times of this client's responses, by API."""
        return self.router.throttle

    @property
    def connections_opened(self) -> int:
        """How many connections were ready, since the start."""
        return self.router.connections_opened

    @property
    def connections_lost(self) -> int:
        """How many connections were lost, or could not be made."""
        return self.router.connections_lost

    def log_when_unreachable(self) -> None:
        """Log when no bootstrap server can be reached: for consumers, whose poll() raises no error for that."""
        self.router.bootstrap.log_when_unreachable()

    def add_resident(self, resident: LoopResident) -> None:
        """Close it before this client, until :meth:`remove_resident`."""
        self._residents.append(resident)

    def remove_resident(self, resident: LoopResident) -> bool:
        """Whether it was there."""
        if resident not in self._residents:
            return False
        self._residents.remove(resident)
        return True

    def finish_residents(self) -> Future[list[None]]:
        """Let all of them complete their work; done when they have, errors included."""
        return gather([resident.finish() for resident in self._residents], return_errors=True)

    def add_traffic(self, traffic: TrafficCounters) -> None:
        """Report all requests and responses to it, until :meth:`remove_traffic`."""
        self._traffic.append(traffic)
        self.router.nodes.set_traffic(tuple(self._traffic))

    def remove_traffic(self, traffic: TrafficCounters) -> None:
        """Nothing for one that is not there."""
        if traffic in self._traffic:
            self._traffic.remove(traffic)
            self.router.nodes.set_traffic(tuple(self._traffic))

    def connections(self) -> list[BrokerConnection]:
        """All that there are, open or not."""
        return list(self.router.nodes)

    def connection(self, node_id: NodeId) -> BrokerConnection | None:
        """The one to a node, if there is one."""
        return self.router.nodes.find(node_id)

    def bootstrapped(self, timeout_ms: float | None = None, *, anew: bool = False) -> Future[None]:
        """Done when the cluster's metadata has been read, or with ``anew`` read once more; fails with the first error
        that trying again does not mend, or with KafkaTimeoutError after ``timeout_ms`` (default:
        ``bootstrap_timeout_ms``; without it: never)."""
        limit_ms = self.config["bootstrap_timeout_ms"] if timeout_ms is None else timeout_ms
        name = "bootstrap_timeout_ms" if timeout_ms is None else "timeout_ms"

        def read() -> Dialogue[None]:
            give_up_at = (yield from now()) + (inf if limit_ms is None else limit_ms / 1000)
            is_due = anew
            last = "no broker answered"
            while is_due or not self.cluster.brokers():
                try:
                    yield from refresh_metadata((), give_up_at)  # which is due after its back-off
                    is_due = False
                except KafkaError as error:
                    if not error.retriable or isinstance(error, Cancelled):
                        raise
                    if not isinstance(error, KafkaTimeoutError):
                        last = str(error)
                    if (yield from now()) >= give_up_at:
                        why = last if self.cluster.brokers() else self.router.bootstrap.why()
                        raise KafkaTimeoutError(f"no metadata within {name}={limit_ms}: {why}") from None

        return self.run(read())

    def close_lane(self, lane: str, node_id: NodeId | None = None) -> None:
        """Close the connections of one lane, or the one to a node."""
        self.router.nodes.close(node_id, lane)

    def watch_lane(self, lane: str, on_lost: Callable[[BaseException], object] | None) -> None:
        """Call ``on_lost`` when a connection of that lane is lost or closed as idle, also without requests on it,
        and not for :meth:`close_lane` and the other ways to close it; None: no more."""
        self.router.watch_lane(lane, on_lost)

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, node_id: NodeId | None = None) -> None:
        """Close the connections to one node, or the client: then what is under way fails with Cancelled.

        Any number of times. A loop of its own is closed, too; one that was given goes on.
        """
        if node_id is not None:
            self.router.nodes.close(node_id)
            return
        if self._is_closed:
            return
        if self.loop.is_usable:
            for resident in list(self._residents):
                resident.close()
        self._is_closed = True
        self.router.refuse()
        error = Cancelled("the client was closed")
        self._refresher.close()
        self._driver.close()
        self.router.close(error)
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

    def _ask_for_metadata(self, request: ByVersion[MetadataResponse]) -> Future[MetadataResponse]:
        return self.router.request(AnyNode(), request, is_internal=True)

    def _refresh_elsewhere(self, metadata_s: float) -> None:
        """``metadata_s``: for how long a request for metadata is without an answer; infinity when it is another one."""
        if self.router.nodes.has_answering_node():
            # Where metadata takes long, a look for it would be the next reason to look: that would never end.
            if metadata_s > 2 * self._refresher.took_s:
                self.cluster.request_update()
            self._refresher.ask_again()

    def _find_coordinator(self, coordinator: Coordinator) -> Future[FoundCoordinator]:
        return self._driver.run(find_coordinator(coordinator, self.retry_backoff, self._settings.request_timeout_s))

    def ready(self, node_id: NodeId) -> bool:
        """Begin to connect, or go on; whether requests may be sent. False while metadata is due or under way.

        AuthenticationError when the cluster, or the node, has just refused us.
        """
        self.router.check_usable()
        if self.cluster.refusal is not None:
            raise self.cluster.refusal
        if self.is_ready(node_id):
            return True
        connection = self.router.nodes.find(node_id)
        if connection is None:
            if self.cluster.broker_metadata(node_id) is None:
                return False
            connection = self.router.nodes.get(node_id)
        if isinstance(connection.last_error, AuthenticationError) and connection.blacked_out():
            raise connection.last_error
        connection.connect()
        return self.is_ready(node_id)

    def is_ready(self, node_id: NodeId) -> bool:
        """Whether requests may be sent to the node now; changes nothing."""
        if self.cluster.metadata_refresh_in_progress or self.cluster.ttl() == 0:
            return False
        connection = self.router.nodes.find(node_id)
        return connection is not None and connection.can_send_more()

    def send(self, node_id: NodeId, request: Request[R] | ByVersion[R]) -> Future[R]:
        """Send a request to a node that is ready; NodeNotReadyError when its connection is not."""
        self.router.check_usable()
        connection = self.router.nodes.find(node_id)
        if connection is None or not connection.can_send_more():
            state = "not connected"
            if connection is not None:
                busy = "max_in_flight_requests_per_connection is reached, or it throttles this client"
                state = busy if connection.connected() else connection.state.value
            raise NodeNotReadyError(f"node {node_id} takes no request now: {state}")
        return self.router.request(node_id, request)

    def poll(
        self, timeout_ms: float | None = None, future: Future[Any] | None = None, sleep: bool = False
    ) -> list[Response]:
        """Drive the loop: complete connections, refresh metadata, run due tasks, read and write.

        Returns the responses that came, of all requests of this client, as soon as there is one or something else
        happened (a connection, a task, :meth:`wakeup`), or after ``timeout_ms`` (default: ``request_timeout_ms``). With
        ``future`` it goes on until that is done. With nothing in flight it waits ``retry_backoff_ms`` at most, unless
        ``sleep`` is set: then the whole time.
        """
        self.router.check_usable()
        router, loop = self.router, self.loop
        wait_s = (self.config["request_timeout_ms"] if timeout_ms is None else max(timeout_ms, 0)) / 1000
        if future is None and not sleep and not self._is_busy():
            wait_s = min(wait_s, self.config["retry_backoff_ms"] / 1000)
        until = loop.time() + wait_s
        events = router.events
        collected = router.begin_collecting()
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
            router.end_collecting()
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
        connection = self.router.nodes.find(node_id)
        return 0 if connection is None else connection.connection_delay()

    def throttle_delay(self, node_id: NodeId, lane: str | None = None) -> float:
        """Milliseconds that the node still wants to be left alone for (KIP-219); 0 when it takes requests."""
        return max((self.throttled_until(node_id, lane) - self.loop.time()) * 1000, 0.0)

    def throttled_until(self, node_id: NodeId, lane: str | None = None) -> float:
        """The same as the monotonic instant when that is over; 0 when it takes requests."""
        return self.router.throttled_until(node_id, lane)

    def connected(self, node_id: NodeId) -> bool:
        """Whether there is a connection that requests may be sent on."""
        connection = self.router.nodes.find(node_id)
        return connection is not None and connection.connected()

    def is_disconnected(self, node_id: NodeId) -> bool:
        """Whether the connection to the node was lost or not made; False for an unknown node."""
        connection = self.router.nodes.find(node_id)
        return connection is not None and connection.disconnected()

    def in_flight_request_count(self, node_id: NodeId | None = None) -> int:
        """Requests sent, or waiting to be, that have no answer yet: of one node, or of all."""
        return self.router.nodes.in_flight_request_count(node_id)

    def least_loaded_node(self) -> NodeId | None:
        """A connected node with nothing in flight; else the one with least in flight outside back-off; else one that is
        disconnected and outside back-off; else a broker never tried; else None, and the bootstrap servers are tried.
        """
        found = self.router.nodes.least_loaded_node()
        if found is None:
            self.router.start_bootstrap()
        return found

    def set_topics(self, topics: Iterable[str]) -> Future[ClusterMetadata]:
        """Read the metadata of these topics from now on, of all when empty. The future is that of the refresh."""
        self.router.check_usable()
        return self.cluster.set_topics(topics)

    def add_topic(self, topic: str) -> Future[ClusterMetadata]:
        """Read the metadata of this topic, too. The future is that of the refresh."""
        self.router.check_usable()
        return self.cluster.add_topic(topic)

    def schedule(self, task: Callable[[], Any], at: float) -> Future[Any]:
        """Call ``task()`` at ``at`` (epoch seconds). The future gets its result, or its exception.

        Scheduling the same task again cancels the former: its future fails with Cancelled.
        """
        self.router.check_usable()
        return self._tasks.schedule(task, at)

    def unschedule(self, task: Callable[[], Any]) -> None:
        """Unschedule a task: its future fails with Cancelled. Nothing happens for an unknown one."""
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
        self.router.check_usable()
        if node_id is None:
            if self._versions.known is None:
                self._versions.learn(self._checks.of_servers(timeout, strict))
            assert self._versions.known is not None
            return self._versions.known
        address = self.router.address_of(node_id)
        if address is None:
            raise UnknownBrokerIdError(f"node {node_id}: not in the cluster's metadata")
        return self._checks.of_node(node_id, address, timeout, strict).ranges

    def finalized_level(self, feature: str) -> int:
        """The cluster's level of a feature (KIP-584), from the broker that was connected last; 0 without it."""
        known = self._versions.known
        return 0 if known is None else known.features.get(feature, (0, 0))[1]

    def _is_busy(self) -> bool:
        return bool(
            self.router.nodes.in_flight_request_count()
            or self.router.bootstrap.is_under_way
            or any(connection.connecting() for connection in self.router.nodes)
        )


def _proxy_layer(config: dict[str, Any]) -> Callable[[Network], Network]:
    given = {name: config[name] for name in ("proxy_url", "socks5_proxy") if config[name] is not None}
    if len(given) > 1:
        raise KafkaConfigurationError("proxy_url and socks5_proxy are two names of one setting: give one of them")
    for name, url in given.items():
        from kafka.net.proxy import ProxyNetwork, parse_proxy  # 10 ms, which few clients need

        try:
            proxy = parse_proxy(url.reveal())
        except ValueError as error:
            raise KafkaConfigurationError(f"{name}: expected {error}") from None
        return lambda network: ProxyNetwork(network, proxy)
    return lambda network: network


class ScheduledTasks:
    """Functions that the loop calls at a time of the wall clock: the queue, and one timer for the next of them."""

    def __init__(self, loop: Loop, on_ran: Callable[[], object]) -> None:
        self._loop = loop
        self._queue = DelayedTaskQueue(loop.clock)
        self._timer: LoopTimer | None = None
        self._on_ran = on_ran

    def schedule(self, task: Callable[[], Any], at: float) -> Future[Any]:
        """Call ``task()`` at ``at`` (epoch seconds); its future gets the result, or the exception."""
        future = self._queue.add(task, at)
        self._arm()
        return future

    def unschedule(self, task: Callable[[], Any]) -> None:
        """Unschedule it: its future fails with Cancelled. Nothing happens for an unknown one."""
        if task in self._queue:
            self._queue.remove(task)
            self._arm()

    def close(self) -> None:
        """Unschedule everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._queue.cancel_all()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait_s = self._queue.next_at()
        if wait_s < NEVER_S:
            self._timer = self._loop.call_later(wait_s, self._run_due)

    def _run_due(self) -> None:
        for task, future in self._queue.pop_ready():
            try:
                result = task()
            except Exception as error:
                future.failure(error)
            else:
                future.success(result)
        self._arm()
        self._on_ran()


