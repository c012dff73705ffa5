"""Metrics of a share consumer, under Java's names.

    consumer-share-metrics                  of the client, its connections, and polls
    consumer-share-node-metrics.node-N      of each node
    consumer-share-fetch-manager-metrics    of fetches and acknowledgements
    consumer-share-coordinator-metrics      of heartbeats

Recorded by request, answer and poll, and never by record. Times in milliseconds, sizes in bytes, ages in seconds. On a
shared client the metrics of connections count for all consumers, since responses do not name one. A new metric is a row
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka.client import KafkaClient
from kafka.client.connection import PendingRequest
from kafka.client.metrics import FETCH_SIZES, FETCH_TIMES, HEARTBEATS, PolledMetrics
from kafka.core.share.acknowledgements import AcknowledgementResult
from kafka.core.share.records import ShareRecord
from kafka.metrics import Row
from kafka.protocol.share import ShareFetchResponse, ShareGroupHeartbeatResponse
from kafka.wire.message import Response

PREFIX: Final = "consumer-share"
FETCHES: Final[tuple[Row, ...]] = (
    *FETCH_SIZES,
    ("records-per-request-avg", "records", "average"),
    ("records-per-request-max", "records", "most"),
    ("records-fetched-rate", "records", "rate"),
    ("records-fetched-total", "records", "total"),
    ("acknowledgements-send-rate", "acknowledgements", "rate"),
    ("acknowledgements-send-total", "acknowledgements", "total"),
    ("acknowledgements-error-rate", "refusals", "rate"),
    ("acknowledgements-error-total", "refusals", "total"),
    *FETCH_TIMES,
)


class ShareMetrics(PolledMetrics):
    """The metrics of one share consumer; ``settings``: its resolved ones."""

    def __init__(self, client: KafkaClient, settings: Mapping[str, Any]) -> None:
        self._heartbeat_at = 0.0
        super().__init__(client, settings, PREFIX)
        self._fetches = self.measurements.measure(f"{PREFIX}-fetch-manager-metrics", FETCHES)
        self._heartbeats = self.measurements.measure(
            f"{PREFIX}-coordinator-metrics", HEARTBEATS, None, {"last-heartbeat": lambda: self._age(self._heartbeat_at)}
        )

    # -- called on the loop --------------------------------------------------------------------------------------------

    def came(self, records: Sequence[ShareRecord]) -> None:
        """Records of one answer."""
        self._fetches["records"].record(len(records), self.clock())

    def acknowledged(self, answered: Sequence[AcknowledgementResult]) -> None:
        """Acknowledgements have got responses, or have failed."""
        now = self.clock()
        self._fetches["acknowledgements"].record(sum(len(each.records) for each in answered), now)
        refused = sum(len(each.records) for each in answered if each.error is not None)
        if refused:
            self._fetches["refusals"].record(refused, now)

    def on_answered(self, exchange: PendingRequest, response: Response, latency_ms: float, now: float) -> None:
        if isinstance(response, ShareFetchResponse):
            size = sum(len(part.records or b"") for topic in response.responses for part in topic.partitions)
            self._fetches["fetch-size"].record(size, now)
            self._fetches["fetch-latency"].record(latency_ms, now)
            self._fetches["fetch-throttle"].record(response.throttle_time_ms, now)
        elif isinstance(response, ShareGroupHeartbeatResponse):
            self._heartbeat_at = now
            self._heartbeats["heartbeats"].record(latency_ms, now)
