"""Client telemetry (KIP-714): metrics subscriptions, when a client may push, and the last pushes of each, for tests.

A stock Apache Kafka offers GetTelemetrySubscriptions and PushTelemetry only with a plug-in that receives the pushes; so
the broker here offers them only on request, and keeps the pushes in memory.

    instance    one client, by the id that it was given, or brings from another broker, or from before a restart;
                forgotten when its connection ends, as in Kafka, or when nothing came for three intervals, at least 60 s

A push may come when the interval has passed since the last one, or as the first one after a GetTelemetrySubscriptions;
the last one of a client (``terminating``) at any time, and none after it. GetTelemetrySubscriptions may come when the
interval has passed since the last of either, or the last push was rejected for its subscription or compression.

A subscription is the configuration of a resource of type 16 (client metrics):

    metrics        prefixes of metric names, separated by commas; ``*``: all
    interval.ms    100 to 3,600,000
    match          ``client_id=app-.*,client_software_name=...``: all have to match; empty: any client

A client gets the metrics of all subscriptions that match it, at the shortest of their intervals. Texts and checks are
Apache Kafka 4.3.0's, measured.
"""

from __future__ import annotations

import base64
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kafka.broker.config import INT, LIST, BrokerSetting, list_of
from kafka.broker.groups.regex import INSTALL, WorkLimit, check_regex, is_available, matches
from kafka.errors import (
    BrokerResponseError,
    CorruptRecordError,
    InvalidConfigurationError,
    InvalidRecordError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCodecError,
    UnsupportedCompressionTypeError,
)
from kafka.protocol.telemetry import PushTelemetryRequest
from kafka.records.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD, codec_for
from kafka.wire.crc32c import crc32c
from kafka.wire.types import ZERO_UUID

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from kafka.broker.responses import ConnectionContext

KIND: Final = "client-metrics"
"""The kind of the subscriptions' configuration in the metadata."""

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
DEFAULT_INTERVAL_MS: Final = 300_000
LEAST_INTERVAL_MS: Final = 100
MOST_INTERVAL_MS: Final = 3_600_000
EVERYTHING: Final = "*"

CLIENT_METRICS_SETTINGS: Final[Mapping[str, BrokerSetting]] = {
    INTERVAL_MS: BrokerSetting(INTERVAL_MS, INT, str(DEFAULT_INTERVAL_MS)),
    MATCH: BrokerSetting(MATCH, LIST, ""),
    METRICS: BrokerSetting(METRICS, LIST, ""),
}
ATTRIBUTES: Final = frozenset(
    {
        "client_instance_id", "client_id", "client_software_name", "client_software_version",
        "client_source_address", "client_source_port",
    }
)  # fmt: skip
"""What ``match`` may look at."""


class RequestedMetrics(NamedTuple):
    """What a client is to push. ``metrics`` empty: nothing."""

    metrics: tuple[str, ...]
    interval_ms: int


def check_client_metrics(name: str, values: Mapping[str, str]) -> dict[str, str]:
    """The values as they are kept; InvalidRequestError (42) or InvalidConfigurationError (40), as Kafka has it."""
    if not name:
        raise InvalidRequestError("Subscription name can't be empty")
    for key in values:
        if key not in CLIENT_METRICS_SETTINGS:
            raise InvalidRequestError(f"Unknown client metrics configuration: {key}")
    found = dict(values)
    for key in (METRICS, MATCH):
        if values.get(key, "").strip():
            parts = [part.strip() for part in values[key].split(",")]
            if not all(parts):
                raise InvalidConfigurationError(f"Configuration '{key}' values must not be empty.")
            found[key] = ",".join(parts)
    if INTERVAL_MS in values:
        CLIENT_METRICS_SETTINGS[INTERVAL_MS].check(values[INTERVAL_MS])
        interval_ms = int(values[INTERVAL_MS])
        if not LEAST_INTERVAL_MS <= interval_ms <= MOST_INTERVAL_MS:
            raise InvalidRequestError(
                f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between {LEAST_INTERVAL_MS} and "
                f"{MOST_INTERVAL_MS} (1 hour)"
            )
        found[INTERVAL_MS] = str(interval_ms)
    patterns_of(values.get(MATCH, ""))
    return found


def patterns_of(match: str) -> dict[str, str]:
    """Attribute -> the regular expression that all of it has to match."""
    found = {}
    for part in list_of(match):
        pair = part.split("=")
        try:
            if len(pair) != 2 or pair[0].strip() not in ATTRIBUTES or not pair[1]:
                raise ValueError
            check_regex(pair[1].strip())
            found[pair[0].strip()] = pair[1].strip()
        except (ValueError, InvalidRegularExpressionError) as error:
            if isinstance(error, InvalidRegularExpressionError) and not is_available():
                raise InvalidConfigurationError(f"Client matching pattern {part}: {INSTALL}") from None
            raise InvalidConfigurationError(f"Illegal client matching pattern: {part}") from None
    return found


def requested_metrics(subscriptions: Iterable[Mapping[str, str]], attributes: Mapping[str, str]) -> RequestedMetrics:
    """What a client with these attributes is to push."""
    metrics: set[str] = set()
    interval_ms = DEFAULT_INTERVAL_MS
    limit = WorkLimit()
    for values in subscriptions:
        try:
            patterns = patterns_of(values.get(MATCH, ""))
        except InvalidConfigurationError as error:
            if is_available():
                raise
            # stored when google-re2 was installed
            log.warning("ignoring a client metrics subscription with a pattern: %s", error)
            continue
        if all(matches(pattern, attributes.get(name, ""), limit) for name, pattern in patterns.items()):
            metrics.update(list_of(values.get(METRICS, "")))
            interval_ms = min(interval_ms, int(values.get(INTERVAL_MS, DEFAULT_INTERVAL_MS)))
    return RequestedMetrics((EVERYTHING,) if EVERYTHING in metrics else tuple(sorted(metrics)), interval_ms)


ACCEPTED: Final = (ZSTD, LZ4, GZIP, SNAPPY)
"""Codecs of pushes, the best liked first; as in Kafka."""
KEPT_PUSHES: Final = 100
"""Of each client."""
KEPT_CLIENTS: Final = 1000
MOST_INSTANCES: Final = 16_384
LEAST_IDLE_S: Final = 60.0
MOST_BYTES: Final = 16 << 20
"""What a push may inflate to."""
MOST_KEPT_BYTES: Final = 4 * MOST_BYTES
"""Of all clients together: with more, those that have not pushed for the longest time are forgotten first."""
LEAVE_TO_ASK: Final = frozenset({UnknownSubscriptionIdError, UnsupportedCompressionTypeError})
"""Who was refused a push for one of these may ask at once."""
RESERVED_IDS: Final = frozenset({ZERO_UUID, UUID(int=1)})


class TelemetryPush(NamedTuple):
    """What a client has pushed. ``metrics``: not compressed any more, in OpenTelemetry's encoding (``MetricsData``)."""

    client_id: str | None
    client_instance_id: UUID
    subscription_id: int
    is_terminating: bool
    compression_type: str
    metrics: bytes
    at: float
    """The broker's monotonic time, in s."""

    def to_json(self) -> list[Any]:
        """For the remote control."""
        values: list[Any] = list(self)
        values[1], values[5] = self.client_instance_id.hex, self.metrics.hex()
        return values

    @classmethod
    def from_json(cls, values: list[Any]) -> TelemetryPush:
        told = cls(*values)
        return told._replace(client_instance_id=UUID(values[1]), metrics=bytes.fromhex(values[5]))


class ClientInstance:
    """One client. Its times are monotonic s; ``asked_at`` and ``pushed_at`` those of what was let pass."""

    def __init__(
        self,
        instance_id: UUID,
        attributes: Mapping[str, str],
        wanted: RequestedMetrics,
        version: int,
        connection: ConnectionContext,
    ) -> None:
        self.instance_id = instance_id
        self.attributes = attributes
        self.wanted = wanted
        self.version = version
        self.connection = connection
        # Below 0: never.
        self.asked_at = self.pushed_at = -1.0
        self.seen_at = 0.0
        self.is_terminating = False
        self.error: type[BrokerResponseError] | None = None
        """What the last push was refused for."""
        known = f"{list(wanted.metrics)}{wanted.interval_ms}".encode()
        number = (crc32c(known) ^ instance_id.int) & 0xFFFFFFFF
        self.subscription_id = number - (1 << 32) if number >> 31 else number
        """The same for the same metrics, interval and client: so at another broker, too, and after a restart."""

    @property
    def interval_s(self) -> float:
        return self.wanted.interval_ms / 1000

    def may_ask(self, now: float) -> bool:
        return self.error in LEAVE_TO_ASK or self._has_passed(max(self.asked_at, self.pushed_at), now)

    def may_push(self, now: float) -> bool:
        return self.asked_at > self.pushed_at or self._has_passed(self.pushed_at, now)

    def _has_passed(self, last: float, now: float) -> bool:
        """Whether the interval has passed since, to the millisecond."""
        return last < 0 or round((now - last) * 1000) >= self.wanted.interval_ms


class ClientTelemetry:
    """All clients of one broker. ``subscriptions``: gives the settings of all. ``new_id`` makes an id."""

    def __init__(
        self, subscriptions: Callable[[], Iterable[Mapping[str, str]]], new_id: Callable[[], UUID], max_bytes: int
    ) -> None:
        self.max_bytes = max_bytes
        self.is_delta = True
        """Whether totals are to be sent as what was added; Kafka always wants that, and clients can do both."""
        self.pushes: OrderedDict[UUID, deque[TelemetryPush]] = OrderedDict()
        """By client, the last ``KEPT_PUSHES`` of each; ``MOST_KEPT_BYTES`` in all."""
        self._kept_bytes = 0
        self._subscriptions = subscriptions
        self._new_id = new_id
        self._version = 0
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()

    def use_delta(self, is_delta: bool) -> None:
        """Request delta or cumulative temporality from now on."""
        self.is_delta = is_delta

    def subscriptions_changed(self) -> None:
        """Clients are asked for other metrics from now on."""
        self._version += 1

    def subscribe(
        self, given: UUID, client_id: str | None, connection: ConnectionContext, now: float
    ) -> ClientInstance:
        """A client asks what to push; ThrottlingQuotaExceededError (89) when it does so too often."""
        instance = self._instance(self._new_id() if given == ZERO_UUID else given, client_id, connection, now)
        if not instance.may_ask(now):
            raise ThrottlingQuotaExceededError(f"{instance.instance_id} asks before its interval has passed")
        instance.asked_at = now
        instance.error = None
        return instance

    def push(
        self, request: PushTelemetryRequest, client_id: str | None, connection: ConnectionContext, now: float
    ) -> None:
        """A client pushes; raises the error of its response."""
        instance_id = request.client_instance_id
        if instance_id in RESERVED_IDS:
            raise InvalidRequestError(f"{instance_id} is no client instance id")
        instance = self._instance(instance_id, client_id, connection, now)
        try:
            self._push(instance, request, client_id, now)
        except BrokerResponseError as error:
            instance.error = type(error)
            raise
        instance.error = None

    def _push(self, instance: ClientInstance, request: PushTelemetryRequest, client_id: str | None, now: float) -> None:
        instance_id = instance.instance_id
        was_terminating, instance.is_terminating = instance.is_terminating, request.terminating
        if was_terminating:
            raise InvalidRequestError(f"{instance_id} has said that its last push was the last")
        may_push = instance.may_push(now)
        if may_push:
            instance.pushed_at = now
        elif not request.terminating:
            raise ThrottlingQuotaExceededError(f"{instance_id} pushes before its interval has passed")
        if request.subscription_id != instance.subscription_id:
            raise UnknownSubscriptionIdError(f"{instance_id}: its subscription is {instance.subscription_id}")
        if request.compression_type not in CODEC_NAMES:
            raise UnsupportedCompressionTypeError(f"{request.compression_type}")
        if len(request.metrics) > self.max_bytes:
            raise TelemetryTooLargeError(f"{len(request.metrics)} bytes, where {self.max_bytes} are taken")
        if request.metrics:
            self._keep(request, client_id, now)

    def disconnected(self, connection: ConnectionContext) -> None:
        """Forget the clients that came on it."""
        for instance_id in [one.instance_id for one in self._instances.values() if one.connection is connection]:
            del self._instances[instance_id]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _instance(
        self, instance_id: UUID, client_id: str | None, connection: ConnectionContext, now: float
    ) -> ClientInstance:
        self._forget_idle(now)
        instance = self._instances.get(instance_id)
        if instance is None or instance.version < self._version:
            attributes = _attributes(instance_id, client_id, connection) if instance is None else instance.attributes
            wanted = requested_metrics(self._subscriptions(), attributes)
            instance = ClientInstance(instance_id, attributes, wanted, self._version, connection)
            self._instances[instance_id] = instance
        instance.seen_at = now
        self._instances.move_to_end(instance_id)
        if len(self._instances) > MOST_INSTANCES:
            self._instances.popitem(last=False)
        return instance

    def _forget_idle(self, now: float) -> None:
        while self._instances:
            oldest = next(iter(self._instances.values()))
            if now - oldest.seen_at < max(LEAST_IDLE_S, 3 * oldest.interval_s):
                break
            del self._instances[oldest.instance_id]

    def _keep(self, request: PushTelemetryRequest, client_id: str | None, now: float) -> None:
        data = bytes(request.metrics)
        if request.compression_type != NONE:
            try:
                data = codec_for(request.compression_type).decompress(data, MOST_BYTES)
            except (CorruptRecordError, UnsupportedCodecError) as error:
                raise InvalidRecordError(str(error)) from None
        instance_id = request.client_instance_id
        kept = self.pushes.setdefault(instance_id, deque())
        self._kept_bytes += len(data)
        kept.append(
            TelemetryPush(
                client_id, instance_id, request.subscription_id, request.terminating,
                CODEC_NAMES[request.compression_type], data, now,
            )
        )  # fmt: skip
        self.pushes.move_to_end(instance_id)
        if len(kept) > KEPT_PUSHES:
            self._kept_bytes -= len(kept.popleft().metrics)
        while len(self.pushes) > KEPT_CLIENTS or self._kept_bytes > MOST_KEPT_BYTES:
            oldest = next(iter(self.pushes))
            self._kept_bytes -= len(self.pushes[oldest].popleft().metrics)
            if not self.pushes[oldest]:
                del self.pushes[oldest]


def _attributes(instance_id: UUID, client_id: str | None, connection: ConnectionContext) -> dict[str, str]:
    """What subscriptions may match. What is not known matches nothing, but for the empty text."""
    name, version = connection.software
    return {
        "client_instance_id": base64.urlsafe_b64encode(instance_id.bytes).rstrip(b"=").decode(),
        "client_id": client_id or "",
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": connection.host,
        "client_source_port": str(connection.port),
    }
