"""Pushes a client's metrics to a broker that subscribes to them (KIP-714, KIP-1076): the machine of
``core/telemetry.py`` on the client's loop, the names of metrics, their deltas, and their encoding as OpenTelemetry's
protobuf.

It begins when there is a connection to a broker that offers GetTelemetrySubscriptions, which its ApiVersions say. As
long as there is none, nothing is sent and no timer runs: it looks again after each refresh of the metadata, which
follows every lost connection. It makes no connection of its own to begin with, and stays with one broker as long as
that connection is there.

Metric names::

    ``consumer-fetch-manager-metrics``, ``fetch-rate``   ->  ``org.apache.kafka.consumer.fetch.manager.fetch.rate``
    ``producer-node-metrics.node-1``, ``request-rate``   ->  ``org.apache.kafka.producer.node.request.rate``
                                                             with the attribute ``node_id``: ``node-1``
    tag ``topic-name``                                   ->  attribute ``topic_name``; ``client-id`` is left out,
                                                             since the broker knows it from the request

A metric that counts (``is_total``) becomes a monotonic sum, cumulative or as a delta since the last push; any other a
gauge. A value that is not a finite number is left out. Java makes each metric a ``ResourceMetrics`` of its own; here
all share one, and the points of one name one metric, which means the same and is shorter.

The extra ``telemetry`` (``opentelemetry-proto``) is imported with the first push: it costs some 30 ms.

:class:`HasTelemetry` has the methods that users of the public clients see. ``metrics`` gives the client's metrics,
``resource`` its attributes such as ``group_id``, read again for each push. Source: KIP-714; opentelemetry-proto,
``metrics/v1/metrics.proto``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from math import isfinite
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.client.connection import BrokerConnection
from kafka.client.io_thread import ClientHost
from kafka.client.kafka_client import KafkaClient
from kafka.core.routing import AnyNode, NodeId, Target
from kafka.core.telemetry import NextTelemetryRequest, Push, TelemetryMachine
from kafka.errors import (
    Cancelled,
    IllegalArgumentError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedCodecError,
)
from kafka.future import Future
from kafka.metrics import KafkaMetric, MetricName
from kafka.net.loop import DeadlineTimer
from kafka.protocol.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from kafka.records.compression import CODECS, codec_for

log = logging.getLogger(__name__)

LAST_PUSH_TIMEOUT_S: Final = 3.0
"""How long the end of a client waits for its last push, at most."""
NO_EXTRA: Final = "telemetry needs the library opentelemetry-proto: pip install 'kafka-taskloop[telemetry]'"
_KEYS: Final = (GetTelemetrySubscriptionsRequest.api_key, PushTelemetryRequest.api_key)

_logged: set[str] = set()
"""What was logged in this process: each once."""


class ClientTelemetryReporter:
    """The telemetry of one public client. All methods on the loop's thread, but for ``register`` and ``unregister``."""

    def __init__(
        self,
        client: KafkaClient,
        metrics: Callable[[], Mapping[MetricName, KafkaMetric]],
        resource: Callable[[], Mapping[str, str]],
    ) -> None:
        self._client = client
        self._loop = client.loop
        self._metrics = metrics
        self._resource = resource
        self._registered: dict[MetricName, KafkaMetric] = {}
        self._machine = TelemetryMachine(client.rng)
        self._timer = DeadlineTimer(client.loop, self.pump)
        self._accumulator = DeltaAccumulator(self._now_ns())
        self._node: NodeId | None = None
        self._is_running = False
        self._is_closed = False
        self._waiting: list[Future[UUID]] = []
        self._finished: Future[None] | None = None

    # -- its life ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Look for a broker with telemetry, from now on."""
        if not self._is_closed:
            self._client.cluster.add_listener(self._look)
            self._client.add_resident(self)
            self._look()

    def finish(self) -> Future[None]:
        """Push a last time, where a broker subscribes to metrics; done when it was answered, or cannot be, or after
        ``LAST_PUSH_TIMEOUT_S``."""
        if self._finished is None:
            self._finished = Future()
            self._machine.close()
            if not self._is_running or self._connection() is None:  # no connection is made for the last push
                self._machine.stop()
            self.pump()
        return self._finished

    def close(self) -> None:
        """Stop."""
        if self._is_closed:
            return
        self._is_closed = True
        self._machine.stop()
        self._timer.set(float("inf"))
        if self._client.remove_resident(self):
            self._client.cluster.remove_listener(self._look)
        self._settle(Cancelled("the client was closed"))

    # -- the machine ---------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Do what the machine asks for."""
        effect = self._machine.poll(self._loop.time())
        self._timer.set(self._machine.next_deadline)
        if isinstance(effect, NextTelemetryRequest):
            self._send(effect.request, self._machine.subscribed, None)
        elif isinstance(effect, Push):
            try:
                request = self._payload(effect)
            except Exception as error:  # a library that is too old, say: the client goes on without telemetry
                log.warning("cannot encode metrics for telemetry, retrying after the push interval: %r", error)
                self._machine.failed(error, self._loop.time())
                self._after()
            else:
                limit_s = LAST_PUSH_TIMEOUT_S if effect.is_terminating else None
                self._send(request, self._machine.pushed, limit_s)
        elif self._machine.is_terminated:
            self._after()

    def _send(self, request: Any, answered: Callable[[Any, float], None], timeout_s: float | None) -> None:
        """Sends a request of KIP-714 to the node in use, and gives its response to ``answered``. After a
        failure the next request goes to any connected node, after the machine's back-off; no error reaches the user."""
        def done(outcome: Any) -> None:
            if self._is_closed:
                return
            now = self._loop.time()
            if isinstance(outcome, Exception):
                log.debug("%s: %s", type(request).__name__, outcome)
                self._node = None
                self._machine.failed(outcome, now)
            else:
                answered(outcome, now)
                if self._machine.error is not None:
                    log.debug("broker rejected %s: %r", type(request).__name__, self._machine.error)
            self._after()

        target = self._target()
        if target is None:
            done(IncompatibleBrokerVersion("no broker offers telemetry any more"))
            return
        self._client.request(target, request, timeout_s).add_both(done)

    def _after(self) -> None:
        """The machine has changed its state: complete futures, set the timer."""
        known = self._machine.subscription
        if known is not None:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                future.success(known.client_instance_id)
        if self._machine.is_terminated:
            self._settle(self._machine.error or IllegalStateError("telemetry has ended"))
        else:
            self._timer.set(self._machine.next_deadline)

    def _settle(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.failure(error)
        if self._finished is not None and not self._finished.is_done:
            self._finished.success(None)

    # -- the broker ----------------------------------------------------------------------------------------------------

    def _look(self, *_: object) -> None:
        """Begin when there is a connection to a broker that offers telemetry."""
        if self._is_running or self._is_closed or self._connection() is None:
            return
        if not has_opentelemetry():
            if NO_EXTRA not in _logged:
                _logged.add(NO_EXTRA)
                log.info("a broker offers telemetry (KIP-714), no metrics are pushed: %s", NO_EXTRA)
            return
        self._is_running = True
        self._machine.codecs.update(_codecs())
        self._loop.call_soon(self.pump)

    def _connection(self) -> BrokerConnection | None:
        """A connection to a broker that offers telemetry; the last push's, if that is among them."""
        found = None
        for connection in self._client.connections():
            if connection.lane is None and connection.connected() and _offers(connection):
                if connection.node_id == self._node:
                    return connection
                found = found or connection
        return found

    def _target(self) -> Target | None:
        connection = self._connection()
        if connection is not None:
            self._node = connection.node_id
            return connection.node_id
        stands = any(one.lane is None and one.connected() for one in self._client.connections())
        return None if stands else AnyNode()  # all were closed as idle

    # -- the metrics ---------------------------------------------------------------------------------------------------

    def _payload(self, push: Push) -> PushTelemetryRequest:
        subscription = push.subscription
        own = dict(self._metrics())
        metrics = [*own.values(), *(one for name, one in list(self._registered.items()) if name not in own)]
        points = self._accumulator.collect(metrics, subscription.wants, subscription.is_delta, self._now_ns())
        resource = {name: value for name, value in self._resource().items() if value}
        return PushTelemetryRequest(
            client_instance_id=subscription.client_instance_id,
            subscription_id=subscription.subscription_id,
            terminating=push.is_terminating,
            compression_type=push.compression_type,
            metrics=_fitting(points, resource, push.compression_type, subscription.max_bytes),
        )

    def _now_ns(self) -> int:
        return int(self._loop.clock.time() * 1e9)

    def register(self, metric: KafkaMetric) -> None:
        """Push it along with the client's own, none of which it can stand for. Any thread."""
        if metric.metric_name in self._metrics():
            log.warning("cannot register %r for telemetry: the client has a metric of that name", metric.metric_name)
        else:
            self._registered[metric.metric_name] = metric

    def unregister(self, metric: KafkaMetric) -> None:
        """Push it no more. Any thread; nothing for one that is not registered."""
        self._registered.pop(metric.metric_name, None)

    def instance_id(self) -> Future[UUID]:
        """The id that a broker has given this client, when it has."""
        future: Future[UUID] = Future()
        known = self._machine.subscription
        if known is not None:
            return future.success(known.client_instance_id)
        if not has_opentelemetry():
            return future.failure(IllegalStateError(NO_EXTRA))
        if self._machine.is_terminated:
            return future.failure(self._machine.error or IllegalStateError("telemetry has ended"))
        self._waiting.append(future)
        return future


class HasTelemetry:
    """The public methods of telemetry. A public client derives from this, and calls :meth:`_begin_telemetry` when it
    is made and
    :meth:`_end_telemetry` when it is closed."""

    _telemetry: ClientTelemetryReporter | None = None
    _telemetry_host: ClientHost | None = None

    def client_instance_id(self, timeout_ms: float | None = None) -> UUID:
        """The id that a broker has given this client for its metrics (KIP-714): waits for it.

        KafkaTimeoutError after ``timeout_ms`` (default: ``request_timeout_ms``), as with a broker that wants no
        metrics; IllegalStateError with ``enable_metrics_push=False``, or without the extra ``telemetry``;
        IllegalArgumentError for a negative timeout.
        """
        if timeout_ms is not None and timeout_ms < 0:
            raise IllegalArgumentError(f"timeout_ms={timeout_ms}: at least 0")
        if self._telemetry is None or self._telemetry_host is None:
            raise IllegalStateError("telemetry is off: enable_metrics_push is False")
        host = self._telemetry_host
        limit_s = host.client.request_timeout_s if timeout_ms is None else timeout_ms / 1000
        run: Callable[..., Any] = self._telemetry.instance_id
        try:
            found: UUID = host.call(run, timeout_s=limit_s)
        except KafkaTimeoutError:
            text = f"no broker has given this client an id within {limit_s:g} s; does it offer telemetry (KIP-714)?"
            raise KafkaTimeoutError(text) from None
        return found

    def register_metric_for_subscription(self, metric: KafkaMetric) -> None:
        """Push this metric of the application, too, when a broker wants its name (KIP-1076). It is called
        ``org.apache.kafka.GROUP.NAME``; a second one of the same name and tags replaces the first. Nothing happens with
        ``enable_metrics_push=False``, or when the client has a metric of its own by that name.

        ``metric``: ``KafkaMetric(MetricName("depth", "my-queue"), read)``, where ``read()`` gives a number and may be
        called in another thread; with ``is_total=True`` it counts, and never goes back.
        """
        if not isinstance(metric, KafkaMetric):
            raise TypeError(f"metric: a kafka.metrics.KafkaMetric is needed, not {type(metric).__name__}")
        if self._telemetry is not None:
            self._telemetry.register(metric)

    def unregister_metric_from_subscription(self, metric: KafkaMetric) -> None:
        """Push it no more. Nothing happens for one that was not registered."""
        if self._telemetry is not None:
            self._telemetry.unregister(metric)

    def _begin_telemetry(
        self,
        host: ClientHost,
        settings: Mapping[str, Any],
        metrics: Callable[[], Mapping[MetricName, KafkaMetric]],
        resource: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """No argument may hold a reference to ``host`` or the client itself: losing the last one ends the thread."""
        if settings["enable_metrics_push"]:
            self._telemetry_host = host
            self._telemetry = ClientTelemetryReporter(host.client, metrics, resource)
            host.loop.call_soon_threadsafe(self._telemetry.begin)

    def _finish_telemetry(self) -> Future[None]:
        """On the loop: done when the last push is over; then :meth:`_end_telemetry`."""
        done: Future[None] = Future()
        return done.success(None) if self._telemetry is None else self._telemetry.finish()

    def _end_telemetry(self, timeout_s: float | None = None) -> None:
        """The last push, and the end; once. On the loop's thread nothing is waited for: the push goes out by itself
        where the KafkaClient is shared, and not at all where it is closed next."""
        telemetry, host = self._telemetry, self._telemetry_host
        if telemetry is None or host is None or not host.loop.is_usable:
            return
        if host.loop.in_loop_thread():
            telemetry.finish().add_both(lambda _: telemetry.close())
            return
        limit_s = LAST_PUSH_TIMEOUT_S if timeout_s is None else min(timeout_s, LAST_PUSH_TIMEOUT_S)
        run: Callable[..., Any] = telemetry.finish
        try:
            if limit_s > 0:
                host.call(run, timeout_s=limit_s)
        except KafkaError as error:
            log.debug("terminating telemetry push failed: %s", error)
        try:
            host.call(telemetry.close)
        except KafkaError:
            log.debug("closing telemetry failed")


def _offers(connection: BrokerConnection) -> bool:
    ranges = connection.ranges
    return ranges is not None and all(key in ranges for key in _KEYS)


def _codecs() -> frozenset[int]:
    """Those that work here."""
    found = set()
    for number in CODECS:
        try:
            codec_for(number)
        except UnsupportedCodecError:
            continue
        found.add(number)
    return frozenset(found)


def _fitting(points: list[MetricPoint], resource: Mapping[str, str], codec: int, max_bytes: int) -> bytes:
    """As many points as fit, those of the whole client first and those with the most attributes last."""
    order: Iterable[MetricPoint] = points
    count = len(points)
    while True:
        data = encode_otlp(list(order)[:count], resource)
        if codec:
            data = CODECS[codec].compress(data, None)
        if len(data) <= max_bytes or count == 0:
            break
        if count == len(points):
            order = sorted(points, key=lambda point: len(point.attributes))
            log.info(
                "telemetry push of %d bytes exceeds the broker's limit (%d); leaving out some metrics",
                len(data),
                max_bytes,
            )
        count = min(count - 1, count * max_bytes // len(data))
    return data if count or not points else b""


_OTLP_MODULE = "opentelemetry.proto.metrics.v1.metrics_pb2"


def has_opentelemetry() -> bool:
    """Whether the library is installed."""
    try:
        return find_spec("opentelemetry.proto") is not None and find_spec("google.protobuf") is not None
    except ModuleNotFoundError:  # not even the package above
        return False


def encode_otlp(points: Sequence[MetricPoint], resource: Mapping[str, str]) -> bytes:
    """The bytes of one push. ``resource``: the attributes of the client, such as its group."""
    schema: Any = import_module(_OTLP_MODULE)
    data = schema.MetricsData()
    of_client = data.resource_metrics.add()
    _add_attributes(of_client.resource.attributes, resource)
    metrics = of_client.scope_metrics.add().metrics
    by_name: dict[tuple[str, bool], Any] = {}
    for point in points:
        is_sum = point.start_ns is not None
        key = point.name, is_sum
        holder = by_name.get(key)
        if holder is None:
            metric = metrics.add()
            metric.name = point.name
            holder = by_name[key] = metric.sum if is_sum else metric.gauge
            if is_sum:
                holder.is_monotonic = True
                holder.aggregation_temporality = (
                    schema.AGGREGATION_TEMPORALITY_DELTA
                    if point.is_delta
                    else schema.AGGREGATION_TEMPORALITY_CUMULATIVE
                )
        told = holder.data_points.add()
        told.time_unix_nano = point.at_ns
        if point.start_ns is not None:
            told.start_time_unix_nano = point.start_ns
        told.as_double = float(point.value)
        _add_attributes(told.attributes, point.attributes)
    encoded: bytes = data.SerializeToString()
    return encoded


def _add_attributes(attributes: Any, given: Mapping[str, str]) -> None:
    for name, value in given.items():
        attribute = attributes.add()
        attribute.key = name
        attribute.value.string_value = str(value)


PREFIX: Final = "org.apache.kafka."
CLIENT_ID: Final = "client_id"


class MetricPoint(NamedTuple):
    """One metric's value. ``start_ns``, ``at_ns``: since the epoch; a gauge has no start. ``is_delta``: of a sum."""

    name: str
    attributes: dict[str, str]
    value: float
    at_ns: int
    start_ns: int | None = None
    is_delta: bool = False


def telemetry_name(name: MetricName) -> tuple[str, dict[str, str]]:
    """The name of a metric, and its attributes."""
    group, _, node = name.group.partition(".")
    attributes = {tag.lower().replace("-", "_"): value for tag, value in name.tags.items()}
    if node:
        attributes["node_id"] = node
    attributes.pop(CLIENT_ID, None)
    cleaned = group.lower().replace("-", ".").replace(".metrics", "")
    return f"{PREFIX}{cleaned}.{name.name.lower().replace('-', '.')}", attributes


class DeltaAccumulator:
    """The last pushed value of each total. One thread."""

    def __init__(self, now_ns: int) -> None:
        self._began_ns = now_ns
        self._last: dict[MetricName, tuple[float, int]] = {}
        """Value and when."""
        self._since: dict[MetricName, int] = {}
        """Since when a total is known."""
        self._was_delta: bool | None = None

    def collect(
        self, metrics: Iterable[KafkaMetric], wants: Callable[[str], bool], is_delta: bool, now_ns: int
    ) -> list[MetricPoint]:
        """The points of those metrics whose names are wanted. A metric that cannot be read is left out, and logged."""
        if self._was_delta is not None and self._was_delta != is_delta:
            self._last.clear()  # as in Java: a change between deltas and cumulative sums begins again
            self._since = {}
            self._began_ns = now_ns
        self._was_delta = is_delta
        points = []
        seen: set[MetricName] = set()
        for metric in metrics:
            name, attributes = telemetry_name(metric.metric_name)
            if not wants(name):
                continue
            try:
                value = metric.value()
                if not isfinite(value):
                    continue
            except Exception as error:
                log.warning("cannot read metric %r, leaving it out of the push: %r", metric.metric_name, error)
                continue
            if metric.is_total:
                seen.add(metric.metric_name)
                points.append(self._sum(metric.metric_name, name, attributes, value, is_delta, now_ns))
            else:
                points.append(MetricPoint(name, attributes, value, now_ns))
        for gone in self._since.keys() - seen:
            self._last.pop(gone, None)
            del self._since[gone]
        return points

    def _sum(
        self, metric: MetricName, name: str, attributes: dict[str, str], value: float, is_delta: bool, now_ns: int
    ) -> MetricPoint:
        start_ns = self._since.setdefault(metric, self._began_ns)
        if is_delta:
            before, at_ns = self._last.get(metric, (0.0, start_ns))
            if value < before:  # another one of the same name
                before = 0.0
            self._last[metric] = (value, now_ns)
            return MetricPoint(name, attributes, value - before, now_ns, at_ns, is_delta=True)
        return MetricPoint(name, attributes, value, now_ns, start_ns)
