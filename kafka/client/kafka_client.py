"""KafkaClient: requests to the right broker, over one select loop, in one thread.

Two ways to use it. Event-driven, which is how the other clients of this package do::

    client = KafkaClient(bootstrap_servers="broker:9092", loop=loop)
    future = client.request(Leader(TopicPartition("jobs", 0)), FetchRequest(...))    # connects, routes, picks a version
    future = client.run(dialogue)                                                    # core/dialogue.py

and by hand, with :meth:`KafkaClient.ready`, ``send``, ``poll`` and ``check_version``: ``by_hand.py``.

Nothing happens but on the loop: whoever has a loop runs it, whoever has none calls :meth:`KafkaClient.poll`. The client
is not thread-safe; :meth:`KafkaClient.wakeup` alone may be called from another thread. In a thread of its own:
``io_thread.py``.

It only puts together what lives elsewhere: routes and connections ``router.py`` and ``nodes.py``, metadata
``refresh.py``, dialogues ``driver.py``, what brokers speak ``check_version.py``, scheduled functions ``scheduled.py``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Protocol, TypeVar

from kafka._version import __version__
from kafka.client.by_hand import DrivenByHand
from kafka.client.check_version import VersionChecks
from kafka.client.cluster import ClusterMetadata
from kafka.client.connection import BrokerConnection
from kafka.client.driver import DialogueDriver
from kafka.client.greeting import ClusterVersions
from kafka.client.link import Exchange, LinkSettings, Traffic
from kafka.client.refresh import MetadataRefresher
from kafka.client.router import Router
from kafka.client.scheduled import ScheduledTasks
from kafka.client.servers import server_finder
from kafka.client.throttle import ThrottleTimes
from kafka.config import resolve
from kafka.core.coordinator import Found, find_coordinator
from kafka.core.dialogue import ByVersion, Dialogue, now, refresh_metadata
from kafka.core.retry import Backoff, Rng
from kafka.core.routing import AnyNode, Coordinator, Coordinators, NodeId, Target
from kafka.errors import (
    Cancelled,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
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


class KafkaClient(DrivenByHand):
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
        self._settings = LinkSettings.of(self.config, self.config["client_id"])  # may refuse: no loop is made before
        through_proxy = _way_through_proxy(self.config)
        self._owns_network = network is None
        self._owns_loop = loop is None and network is None
        self.loop: Loop = loop or (network.loop if network is not None else Loop())
        self._network: Network = through_proxy(network or TcpNetwork(self.loop))
        self._rng: Rng = rng or random.Random()
        retry_backoff_s, retry_backoff_max_s = (
            self.config[name] / 1000 for name in ("retry_backoff_ms", "retry_backoff_max_ms")
        )
        self.retry_backoff = Backoff(retry_backoff_s, retry_backoff_max_s, self._rng)
        """Waits between attempts, for dialogues."""
        self.cluster = ClusterMetadata(
            now=self.loop.time,
            rng=self._rng,
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
        if self.config["bootstrap_topics_filter"]:
            self.cluster.set_topics(self.config["bootstrap_topics_filter"])
        self._versions = ClusterVersions(self.config["api_version"], self._settings.software)
        self._checks = VersionChecks(servers, self._network, self._settings, self._rng, self.retry_backoff)
        is_canonical = self.config["client_dns_lookup"] == "resolve_canonical_bootstrap_servers_only"
        recovers = self.config["metadata_recovery_strategy"] == "rebootstrap"
        self._router = Router(
            self._network,
            self.cluster,
            self._settings,
            servers,
            self._versions,
            self._rng,
            self._find_coordinator,
            self.refresh_metadata,
            server_finder(self.loop, servers, resolve_servers, is_canonical),
            find_at_once=is_canonical,
            recovers=recovers,
        )
        self._refresher = MetadataRefresher(
            self.loop,
            self.cluster,
            self._ask_for_metadata,
            self._router.on_metadata,
            self._router.rebootstrap if recovers else None,
            self.config["metadata_recovery_rebootstrap_trigger_ms"] / 1000,
        )
        self._driver = DialogueDriver(self)
        self._tasks = ScheduledTasks(self.loop, self._count_event)
        self.dependants: list[Dependant] = []
        """Who has to be closed before this client; they enter and leave by themselves."""
        self._traffic: list[Traffic] = []
        self._is_closed = False
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
        exchange = self._exchange(request, timeout_s, min_version, max_version)
        self._router.send(exchange, target, lane)
        return exchange.future

    def run(self, dialogue: Dialogue[T]) -> Future[T]:
        """Drive a dialogue (``core/dialogue.py``); the future gets its result, or the error that it lets out."""
        self._check_usable()
        return self._driver.run(dialogue)

    @property
    def request_timeout_s(self) -> float:
        """``request_timeout_ms``, in seconds: what a request has when nothing else is said."""
        return self._settings.request_timeout_s

    @property
    def software(self) -> tuple[str, str]:
        """The name and version that brokers are told (KIP-511)."""
        return self._settings.software

    @property
    def rng(self) -> Rng:
        """Its source of chance."""
        return self._rng

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

    @property
    def throttle(self) -> ThrottleTimes:
        """How long brokers made this client wait, by API."""
        return self._router.throttle

    @property
    def connections_opened(self) -> int:
        """How many connections could be used, since the start."""
        return self._router.connections_opened

    @property
    def connections_lost(self) -> int:
        """How many connections ended by themselves, or could not be made."""
        return self._router.connections_lost

    def tell_when_unreached(self) -> None:
        """Have the log tell when no server can be reached: for whoever waits for records, and hears of no error."""
        self._router.bootstrap.is_told = True

    def add_traffic(self, traffic: Traffic) -> None:
        """Have somebody told of all requests and answers, until :meth:`remove_traffic`."""
        self._traffic.append(traffic)
        self._router.nodes.set_traffic(tuple(self._traffic))

    def remove_traffic(self, traffic: Traffic) -> None:
        """Nothing for one that is not there."""
        if traffic in self._traffic:
            self._traffic.remove(traffic)
            self._router.nodes.set_traffic(tuple(self._traffic))

    def connections(self) -> list[BrokerConnection]:
        """All that there are, open or not."""
        return list(self._router.nodes)

    def connection(self, node_id: NodeId) -> BrokerConnection | None:
        """The one to a node, if there is one."""
        return self._router.nodes.find(node_id)

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
                        why = last if self.cluster.brokers() else self._router.bootstrap.why()
                        raise KafkaTimeoutError(f"no metadata within {name}={limit_ms}: {why}") from None

        return self.run(read())

    def close_lane(self, lane: str, node_id: NodeId | None = None) -> None:
        """Close the connections of one lane, or the one to a node."""
        self._router.nodes.close(node_id, lane)

    def watch_lane(self, lane: str, on_lost: Callable[[BaseException], object] | None) -> None:
        """Be told when a connection of that lane has ended, also with nothing on it, but for :meth:`close_lane` and the
        other ways to close it; None: not any more."""
        if on_lost is None:
            self._router.lane_watchers.pop(lane, None)
        else:
            self._router.lane_watchers[lane] = on_lost

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
        timeout_s: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Exchange:
        if self._is_closed or not self.loop.is_usable:
            self._check_usable()
        if timeout_s is None:
            timeout_s = self._settings.request_timeout_s
        return Exchange(request, self.loop.time() + timeout_s, timeout_s, min_version, max_version)

    def _ask_for_metadata(self, request: ByVersion[MetadataResponse]) -> Future[MetadataResponse]:
        exchange = self._exchange(request)
        exchange.is_internal = True
        self._router.send(exchange, AnyNode())
        return exchange.future

    def _find_coordinator(self, coordinator: Coordinator) -> Future[Found]:
        return self._driver.run(find_coordinator(coordinator, self.retry_backoff, self._settings.request_timeout_s))

    def _check_usable(self) -> None:
        if self._is_closed:
            raise IllegalStateError("the client is closed")
        if not self.loop.is_usable:
            raise IllegalStateError(
                "the client's loop is closed, or belongs to the parent process: after a fork, make a new client"
            )


def _way_through_proxy(config: dict[str, Any]) -> Callable[[Network], Network]:
    given = {name: config[name] for name in ("proxy_url", "socks5_proxy") if config[name] is not None}
    if len(given) > 1:
        raise KafkaConfigurationError("proxy_url and socks5_proxy are two names of one setting: give one of them")
    for name, url in given.items():
        from kafka.net.proxy import ProxyNetwork, parse_proxy  # 10 ms that few need

        try:
            proxy = parse_proxy(url.reveal())
        except ValueError as error:
            raise KafkaConfigurationError(f"{name}: expected {error}") from None
        return lambda network: ProxyNetwork(network, proxy)
    return lambda network: network
