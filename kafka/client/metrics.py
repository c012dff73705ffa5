"""What clients measure of their connections and requests, the same for all kinds of clients.

    PREFIX-metrics               of the whole client
    PREFIX-node-metrics.node-N   of each node

The prefix is Java's: ``consumer``, ``consumer-share``, ``admin-client``; the names are kafka-python's, and Java's where
that has more. A producer has the same ones from its own batches (``kafka/producer/metrics.py``). Recorded by request
and answer, on the loop's thread; times in milliseconds, sizes in bytes. A new metric is a row here, or in the table of
the client that derives from :class:`ClientMetrics`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kafka._native import mypyc_attr
from kafka.client.connection import BrokerConnection, PendingRequest
from kafka.client.kafka_client import KafkaClient
from kafka.metrics import KafkaMetric, Measured, Measurements, MetricName, Row
from kafka.wire.message import Response

log = logging.getLogger(__name__)

NODE: Final[tuple[Row, ...]] = (
    ("incoming-byte-rate", "incoming", "rate"),
    ("incoming-byte-total", "incoming", "total"),
    ("outgoing-byte-rate", "outgoing", "rate"),
    ("outgoing-byte-total", "outgoing", "total"),
    ("request-latency-avg", "latency", "average"),
    ("request-latency-max", "latency", "most"),
    ("request-rate", "outgoing", "frequency"),
    ("request-total", "outgoing", "count"),
    ("request-size-avg", "outgoing", "average"),
    ("request-size-max", "outgoing", "most"),
    ("response-rate", "latency", "frequency"),
    ("response-total", "latency", "count"),
    ("throttle-time-avg", "throttle", "average"),
    ("throttle-time-max", "throttle", "most"),
)
CLIENT: Final[tuple[Row, ...]] = (
    *NODE,
    ("network-io-rate", "network", "frequency"),
    ("connection-count", "connections", "gauge"),
    ("connection-creation-rate", "opened", "rate"),
    ("connection-creation-total", "all-opened", "counter"),
    ("connection-close-rate", "lost", "rate"),
    ("connection-close-total", "all-lost", "counter"),
    ("requests-in-flight", "in-flight", "gauge"),
    ("metadata-age", "metadata-age", "gauge"),
)


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientMetrics:
    """The metrics of one client. ``prefix``: of its groups' names. ``settings``: its resolved ones.

    ``rows``, ``gauges``: more metrics of the whole client. Given back with :meth:`close`.
    """

    def __init__(
        self,
        client: KafkaClient,
        settings: Mapping[str, Any],
        prefix: str,
        rows: Iterable[Row] = (),
        gauges: Mapping[str, Callable[[], float]] | None = None,
    ) -> None:
        """Registers itself with the client: for its traffic, and for new metadata."""
        self.measurements = Measurements(settings, client.loop.time)
        self.client = client
        self._router = router = client.router
        self.clock = client.loop.time
        self.prefix = prefix
        self._metadata_at = self.clock()
        self._nodes: dict[int | str, Measured] = {}
        self._received: dict[BrokerConnection, int] = {}
        # The client may be shared and older than these metrics: they count from here on.
        self._seen = {"opened": router.connections_opened, "lost": router.connections_lost}
        own: dict[str, Callable[[], float]] = {
            "connections": lambda: sum(connection.connected() for connection in router.nodes),
            "all-opened": lambda: router.connections_opened,
            "all-lost": lambda: router.connections_lost,
            "in-flight": client.in_flight_request_count,
            "metadata-age": lambda: self.clock() - self._metadata_at,
        }
        self.all = self.measurements.measure(f"{prefix}-metrics", (*CLIENT, *rows), gauges={**own, **(gauges or {})})
        """The quantities of the whole client."""
        self._opened, self._lost = self.all["opened"], self.all["lost"]
        client.add_traffic(self)
        client.cluster.add_listener(self._metadata_changed)

    # -- called by the connections -------------------------------------------------------------------------------------

    def sent(self, connection: BrokerConnection, pending: PendingRequest, size_bytes: int) -> None:
        now = self.clock()
        pending.mark_sent(now)
        for measured in (self.all, self._node(connection)):
            measured["outgoing"].record(size_bytes, now)
        self.all["network"].record(1, now)

    def answered(self, connection: BrokerConnection, pending: PendingRequest, response: Response) -> None:
        try:
            self._count(connection, pending, response)
        except Exception:  # a bug in a metric must not close the connection
            log.exception("cannot count a response of %s", pending.api)

    def _count(self, connection: BrokerConnection, pending: PendingRequest, response: Response) -> None:
        now = self.clock()
        received = connection.bytes_received
        more = received - self._received.get(connection, 0)
        self._received[connection] = received
        latency_ms = (now - pending.sent_at) * 1000
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        for measured in (self.all, self._node(connection)):
            if pending.sent_at:  # 0: it was sent before this object was made
                measured["latency"].record(latency_ms, now)
            measured["incoming"].record(more, now)
            measured["throttle"].record(throttle_ms, now)
        self.all["network"].record(1, now)
        self._add_since("opened", self._opened, self._router.connections_opened, now)
        self._add_since("lost", self._lost, self._router.connections_lost, now)
        self.on_answered(pending, response, latency_ms, now)

    def on_answered(self, pending: PendingRequest, response: Response, latency_ms: float, now: float) -> None:
        """For what a kind of client measures of single APIs (commits, heartbeats, joins), by the type of the response:
        the machines of groups know nothing of metrics."""

    def _add_since(self, name: str, sampled: Any, count: int, now: float) -> None:
        if count != self._seen[name]:
            sampled.record(count - self._seen[name], now)
            self._seen[name] = count

    def _node(self, connection: BrokerConnection) -> Measured:
        node = connection.node_id
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = self.measurements.measure(f"{self.prefix}-node-metrics.node-{node}", NODE)
        if connection not in self._received:
            living = set(self._router.nodes)
            self._received = {one: count for one, count in self._received.items() if one in living}
            self._received[connection] = 0
        return found

    def _metadata_changed(self, *_: object) -> None:
        self._metadata_at = self.clock()

    # -- read ----------------------------------------------------------------------------------------------------------

    def by_group(self) -> dict[str, dict[str, float]]:
        """``{group: {name: value}}``, those of topics and partitions in groups of their own."""
        return self.measurements.by_group()

    def raw(self) -> dict[MetricName, KafkaMetric]:
        """The metrics themselves, by name."""
        return self.measurements.raw()

    def close(self) -> None:
        """Stop, and close the reporters."""
        self.client.remove_traffic(self)
        self.client.cluster.remove_listener(self._metadata_changed)
        self.measurements.close()


POLLS: Final[tuple[Row, ...]] = (
    ("time-between-poll-avg", "between-polls", "average"),
    ("time-between-poll-max", "between-polls", "most"),
    ("poll-idle-ratio-avg", "idle-ratio", "average"),
    ("last-poll-seconds-ago", "last-poll", "gauge"),
)
FETCH_SIZES: Final[tuple[Row, ...]] = (
    ("fetch-size-avg", "fetch-size", "average"),
    ("fetch-size-max", "fetch-size", "most"),
    ("bytes-consumed-rate", "fetch-size", "rate"),
    ("bytes-consumed-total", "fetch-size", "total"),
)
FETCH_TIMES: Final[tuple[Row, ...]] = (
    ("fetch-latency-avg", "fetch-latency", "average"),
    ("fetch-latency-max", "fetch-latency", "most"),
    ("fetch-rate", "fetch-latency", "frequency"),
    ("fetch-total", "fetch-latency", "count"),
    ("fetch-throttle-time-avg", "fetch-throttle", "average"),
    ("fetch-throttle-time-max", "fetch-throttle", "most"),
)
HEARTBEATS: Final[tuple[Row, ...]] = (
    ("heartbeat-response-time-max", "heartbeats", "most"),
    ("heartbeat-rate", "heartbeats", "frequency"),
    ("heartbeat-total", "heartbeats", "count"),
    ("last-heartbeat-seconds-ago", "last-heartbeat", "gauge"),
)


@mypyc_attr(allow_interpreted_subclasses=True)
class PolledMetrics(ClientMetrics):
    """The metrics of a client with a ``poll``: how long users take between polls, and how long polls wait.

    Recorded in the user's thread (on a loop: there), once for each poll. The rows of fetches and heartbeats above are
    for the tables of both consumers.
    """

    def __init__(self, client: KafkaClient, settings: Mapping[str, Any], prefix: str) -> None:
        self._polled_at = self._poll_ended_at = 0.0
        super().__init__(client, settings, prefix, POLLS, {"last-poll": lambda: self._age(self._polled_at)})

    def poll_began(self) -> float:
        """A poll begins; to be handed to :meth:`poll_ended`."""
        now = self.clock()
        if self._polled_at:
            self.all["between-polls"].record((now - self._polled_at) * 1000, now)
        self._polled_at = now
        return now

    def poll_ended(self, began: float) -> None:
        """It returns, or raises."""
        now = self.clock()
        cycle_s = now - (self._poll_ended_at or began)
        self._poll_ended_at = now
        self.all["idle-ratio"].record((now - began) / cycle_s if cycle_s > 0 else 0.0, now)

    def _age(self, instant: float) -> float:
        """Seconds since then; -1 for never (0)."""
        return self.clock() - instant if instant else -1.0
