"""Pushes a client's metrics to a broker that asks for them (KIP-714, KIP-1076): the machine of ``core/telemetry.py`` on
the client's loop.

It begins when a connection is there to a broker that offers GetTelemetrySubscriptions; as long as there is none,
nothing is asked and no timer runs: it looks again whenever the cluster's metadata was read. It makes no connection of
its own to begin with, and stays with one broker as long as that connection stands.

:class:`HasTelemetry` is the part of it that users of the public clients see. Which metrics there are is said by the
client (``metrics``), what it is by ``resource``: attributes such as ``group_id``, read anew for each push.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from kafka.client import otlp
from kafka.client.connection import BrokerConnection
from kafka.client.io_thread import Host
from kafka.client.kafka_client import KafkaClient
from kafka.core.routing import AnyNode, NodeId, Target
from kafka.core.telemetry import Ask, Push, TelemetryMachine
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
from kafka.metrics.telemetry import Ledger, Point
from kafka.net.loop import DeadlineTimer
from kafka.protocol.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from kafka.records.compression import CODECS, codec_for

log = logging.getLogger(__name__)

LAST_PUSH_TIMEOUT_S: Final = 3.0
"""How long the end of a client waits for its last push, at most."""
NO_EXTRA: Final = "telemetry needs the library opentelemetry-proto: pip install 'kafka-taskloop[telemetry]'"
_KEYS: Final = (GetTelemetrySubscriptionsRequest.api_key, PushTelemetryRequest.api_key)

_told: set[str] = set()
"""What was logged in this process: once is enough."""


class Telemetry:
    """That of one public client. All methods on the loop's thread, but for ``register`` and ``unregister``."""

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
        self._alarm = DeadlineTimer(client.loop, self.pump)
        self._ledger = Ledger(self._now_ns())
        self._node: NodeId | None = None
        self._is_running = False
        self._is_closed = False
        self._waiting: list[Future[UUID]] = []
        self._finished: Future[None] | None = None

    # -- its life ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Look for a broker that wants metrics, from now on."""
        if not self._is_closed:
            self._client.cluster.add_listener(self._look)
            self._client.dependants.append(self)
            self._look()

    def finish(self) -> Future[None]:
        """Push a last time, where a broker wants metrics; done when it was answered, or cannot be, or after
        ``LAST_PUSH_TIMEOUT_S``."""
        if self._finished is None:
            self._finished = Future()
            self._machine.close()
            if not self._is_running or self._connection() is None:  # to connect for it is too much
                self._machine.stop()
            self.pump()
        return self._finished

    def close(self) -> None:
        """Do nothing from now on."""
        if self._is_closed:
            return
        self._is_closed = True
        self._machine.stop()
        self._alarm.set(float("inf"))
        if self in self._client.dependants:
            self._client.dependants.remove(self)
            self._client.cluster.remove_listener(self._look)
        self._settle(Cancelled("the client was closed"))

    # -- the machine ---------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Ask the machine what there is to do, and do it."""
        effect = self._machine.poll(self._loop.time())
        self._alarm.set(self._machine.next_deadline)
        if isinstance(effect, Ask):
            self._send(effect.request, self._machine.subscribed, None)
        elif isinstance(effect, Push):
            try:
                request = self._payload(effect)
            except Exception as error:  # a library that is too old, say: this is no reason to fail
                log.warning("no metrics can be pushed: %r", error)
                self._machine.failed(error, self._loop.time())
                self._after()
            else:
                limit_s = LAST_PUSH_TIMEOUT_S if effect.is_terminating else None
                self._send(request, self._machine.pushed, limit_s)
        elif self._machine.is_terminated:
            self._after()

    def _send(self, request: Any, answered: Callable[[Any, float], None], timeout_s: float | None) -> None:
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
                    log.debug("%s was refused: %r", type(request).__name__, self._machine.error)
            self._after()

        target = self._target()
        if target is None:
            done(IncompatibleBrokerVersion("no broker offers telemetry any more"))
            return
        self._client.request(target, request, timeout_s).add_both(done)

    def _after(self) -> None:
        """The machine has gone on."""
        known = self._machine.subscription
        if known is not None:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                future.success(known.client_instance_id)
        if self._machine.is_terminated:
            self._settle(self._machine.error or IllegalStateError("telemetry has ended"))
        else:
            self._alarm.set(self._machine.next_deadline)

    def _settle(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.failure(error)
        if self._finished is not None and not self._finished.is_done:
            self._finished.success(None)

    # -- whom ----------------------------------------------------------------------------------------------------------

    def _look(self, *_: object) -> None:
        """Whether somebody is there now who offers it."""
        if self._is_running or self._is_closed or self._connection() is None:
            return
        if not otlp.is_available():
            if NO_EXTRA not in _told:
                _told.add(NO_EXTRA)
                log.info("a broker may want metrics, and gets none: %s", NO_EXTRA)
            return
        self._is_running = True
        self._machine.codecs.update(_codecs())
        self._loop.call_soon(self.pump)

    def _connection(self) -> BrokerConnection | None:
        """One that stands, to a broker that offers it; the last one, if it is among them."""
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
        return None if stands else AnyNode()  # all idle, and closed for that

    # -- what ----------------------------------------------------------------------------------------------------------

    def _payload(self, push: Push) -> PushTelemetryRequest:
        subscription = push.subscription
        own = dict(self._metrics())
        metrics = [*own.values(), *(one for name, one in list(self._registered.items()) if name not in own)]
        points = self._ledger.collect(metrics, subscription.wants, subscription.is_delta, self._now_ns())
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
            log.warning("%r: the client has a metric of that name, which stays", metric.metric_name)
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
        if not otlp.is_available():
            return future.failure(IllegalStateError(NO_EXTRA))
        if self._machine.is_terminated:
            return future.failure(self._machine.error or IllegalStateError("telemetry has ended"))
        self._waiting.append(future)
        return future


class HasTelemetry:
    """What users see of it. A public client derives from this, and calls :meth:`_begin_telemetry` when it is made and
    :meth:`_end_telemetry` when it is closed."""

    _telemetry: Telemetry | None = None
    _telemetry_host: Host | None = None

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
        host: Host,
        settings: Mapping[str, Any],
        metrics: Callable[[], Mapping[MetricName, KafkaMetric]],
        resource: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Nothing that is handed in may hold ``host`` or the client itself: forgetting them ends the thread."""
        if settings["enable_metrics_push"]:
            self._telemetry_host = host
            self._telemetry = Telemetry(host.client, metrics, resource)
            host.loop.call_soon_threadsafe(self._telemetry.begin)

    def _finish_telemetry(self) -> Future[None]:
        """On the loop: done when the last push is over; then :meth:`_end_telemetry`."""
        done: Future[None] = Future()
        return done.success(None) if self._telemetry is None else self._telemetry.finish()

    def _end_telemetry(self, timeout_s: float | None = None) -> None:
        """The last push, and the end; once. On the loop's thread nothing is waited for: the push goes out by itself
        where the KafkaClient is somebody else's, and not at all where it is closed next."""
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
            log.debug("the last push of metrics: %s", error)
        try:
            host.call(telemetry.close)
        except KafkaError:
            log.debug("telemetry could not be closed")


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


def _fitting(points: list[Point], resource: Mapping[str, str], codec: int, max_bytes: int) -> bytes:
    """As many points as fit, those of the whole client first and those with the most attributes last."""
    order: Iterable[Point] = points
    count = len(points)
    while True:
        data = otlp.encode(list(order)[:count], resource)
        if codec:
            data = CODECS[codec].compress(data, None)
        if len(data) <= max_bytes or count == 0:
            break
        if count == len(points):
            order = sorted(points, key=lambda point: len(point.attributes))
            log.info("metrics of %d bytes are more than the broker takes (%d): some are left out", len(data), max_bytes)
        count = min(count - 1, count * max_bytes // len(data))
    return data if count or not points else b""
