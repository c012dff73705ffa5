"""What clients that are polled measure besides: how long users take between polls, and how long polls wait.

In the group ``PREFIX-metrics``, with what all clients measure (``metrics.py``). The rows of fetches and heartbeats are
for the tables of the consumers, which have them in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafka._native import mypyc_attr
from kafka.client.kafka_client import KafkaClient
from kafka.client.metrics import ClientMetrics
from kafka.metrics import Row

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
    """The metrics of a client with a ``poll``. Told in the user's thread (on a loop: there), once for each poll."""

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
