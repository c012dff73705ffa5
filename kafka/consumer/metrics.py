"""What a consumer measures, under kafka-python's names, and Java's where that has more.

    client/metrics.py, client/metrics.py   of the whole consumer   ``consumer-metrics``
    client/metrics.py                           of each node            ``consumer-node-metrics.node-N``
    FETCHES                                     of all fetches          ``consumer-fetch-manager-metrics``
    TOPIC                                       of each topic           the same, tag ``topic``
    PARTITION                                   of each assigned one    the same, tags ``topic`` and ``partition``
    GROUP                                       of the membership       ``consumer-coordinator-metrics``

Recorded by request, answer, poll, batch of records handed out and rebalance, never by record. Requests are reported by
the client's connections, so that nothing else has to know of metrics to be counted; of a client that several consumers
share, what comes from connections counts for all of them. Times in milliseconds, sizes in bytes as they come, that is
compressed, ages in seconds (-1: never).

In ``metrics()`` those of a topic are in a group ``consumer-fetch-manager-metrics.TOPIC``, those of a partition in
``...TOPIC-PARTITION``. A new metric is a row here, a new quantity its ``record``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafka.client import KafkaClient
from kafka.client.connection import PendingRequest
from kafka.client.metrics import FETCH_SIZES, FETCH_TIMES, HEARTBEATS, PolledMetrics
from kafka.consumer.driver import ConsumerDriver
from kafka.core.consume.partition import PartitionPosition, RecordsByPartition
from kafka.metrics import Measured, Row
from kafka.protocol.fetch import FetchResponse
from kafka.protocol.groups import (
    ConsumerGroupHeartbeatResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    SyncGroupResponse,
)
from kafka.protocol.offsets import OffsetCommitResponse
from kafka.structs import TopicPartition
from kafka.wire.message import Response

PREFIX: Final = "consumer"
FETCH_GROUP: Final = f"{PREFIX}-fetch-manager-metrics"
GROUP_GROUP: Final = f"{PREFIX}-coordinator-metrics"

TOPIC: Final[tuple[Row, ...]] = (
    *FETCH_SIZES,
    ("records-per-request-avg", "per-request", "gauge"),
    ("records-consumed-rate", "records", "rate"),
    ("records-consumed-total", "records", "total"),
)
FETCHES: Final[tuple[Row, ...]] = (
    *TOPIC,
    *FETCH_TIMES,
    ("records-lag-max", "lag-max", "gauge"),
    ("records-lead-min", "lead-min", "gauge"),
    ("assigned-partitions", "assigned", "gauge"),
    ("buffered-bytes", "buffered", "gauge"),
)
PARTITION: Final[tuple[Row, ...]] = (
    ("records-lag", "lag-now", "gauge"),
    ("records-lag-avg", "lag", "average"),
    ("records-lag-max", "lag", "most"),
    ("records-lead", "lead-now", "gauge"),
    ("records-lead-avg", "lead", "average"),
)
GROUP: Final[tuple[Row, ...]] = (
    ("assigned-partitions", "assigned", "gauge"),
    ("commit-latency-avg", "commits", "average"),
    ("commit-latency-max", "commits", "most"),
    ("commit-rate", "commits", "frequency"),
    ("commit-total", "commits", "count"),
    *HEARTBEATS,
    ("join-time-avg", "joins", "average"),
    ("join-time-max", "joins", "most"),
    ("join-rate", "joins", "frequency"),
    ("join-total", "joins", "count"),
    ("sync-time-avg", "syncs", "average"),
    ("sync-time-max", "syncs", "most"),
    ("sync-rate", "syncs", "frequency"),
    ("sync-total", "syncs", "count"),
    ("rebalance-latency-avg", "rebalances", "average"),
    ("rebalance-latency-max", "rebalances", "most"),
    ("rebalance-latency-total", "rebalances", "total"),
    ("rebalance-total", "rebalances", "count"),
    ("rebalance-rate-per-hour", "rebalances-per-hour", "gauge"),
    ("last-rebalance-seconds-ago", "last-rebalance", "gauge"),
    ("failed-rebalance-total", "failed-rebalances", "count"),
    ("partition-assigned-latency-avg", "on_partitions_assigned", "average"),
    ("partition-assigned-latency-max", "on_partitions_assigned", "most"),
    ("partition-revoked-latency-avg", "on_partitions_revoked", "average"),
    ("partition-revoked-latency-max", "on_partitions_revoked", "most"),
    ("partition-lost-latency-avg", "on_partitions_lost", "average"),
    ("partition-lost-latency-max", "on_partitions_lost", "most"),
)
_OF_ANSWERS: Final[Mapping[type[Response], str]] = {
    OffsetCommitResponse: "commits",
    HeartbeatResponse: "heartbeats",
    ConsumerGroupHeartbeatResponse: "heartbeats",
    JoinGroupResponse: "joins",
    SyncGroupResponse: "syncs",
}
_SECONDS_PER_HOUR: Final = 3600


class ConsumerMetrics(PolledMetrics):
    """The metrics of one consumer; ``settings``: its resolved ones."""

    def __init__(self, client: KafkaClient, settings: Mapping[str, Any], driver: ConsumerDriver) -> None:
        self._driver = driver  # which has the lock: after a fork another one
        self._fetcher = fetcher = driver.fetcher
        self._heartbeat_at = self._rebalanced_at = 0.0
        self._rebalance_began_at = 0.0
        self._topics: dict[str, Measured] = {}
        self._partitions: dict[TopicPartition, Measured] = {}
        super().__init__(client, settings, PREFIX)
        self._fetches = self.measurements.measure(
            FETCH_GROUP,
            FETCHES,
            gauges={
                "per-request": lambda: self._per_request(self._fetches),
                "lag-max": lambda: max(self._of_positions(_lag), default=0.0),
                "lead-min": lambda: min(self._of_positions(_lead), default=0.0),
                "assigned": lambda: len(fetcher.positions),
                "buffered": lambda: sum(self._of_positions(lambda position: position.buffered_bytes)),
            },
        )
        self._group: Measured | None = None
        if settings["group_id"] is not None:
            self._group = self.measurements.measure(
                GROUP_GROUP,
                GROUP,
                gauges={
                    "assigned": lambda: len(fetcher.positions),
                    "last-heartbeat": lambda: self._age(self._heartbeat_at),
                    "last-rebalance": lambda: self._age(self._rebalanced_at),
                    "rebalances-per-hour": self._rebalances_per_hour,
                },
            )

    # -- told in the user's thread (on a loop: there) ------------------------------------------------------------------

    def taken(self, records: RecordsByPartition) -> RecordsByPartition:
        """These are handed out: they are the result, too."""
        now = self.clock()
        for partition, of_partition in records.items():
            count = len(of_partition)
            for measured in (self._fetches, self._topic(partition.topic)):
                measured["records"].record(count, now)
        return records

    def listener_called(self, method: str, seconds: float) -> None:
        """A method of the rebalance listener has taken so long."""
        if self._group is not None:
            self._group[method].record(seconds * 1000, self.clock())

    # -- told on the loop ----------------------------------------------------------------------------------------------

    def rebalance_began(self) -> None:
        """The member is to get or to give away partitions. More than once before :meth:`rebalance_ended` is one."""
        if not self._rebalance_began_at:
            self._rebalance_began_at = self.clock()

    def rebalance_ended(self) -> None:
        """It has what is assigned to it."""
        began_at, self._rebalance_began_at = self._rebalance_began_at, 0.0
        if began_at and self._group is not None:
            now = self._rebalanced_at = self.clock()
            self._group["rebalances"].record((now - began_at) * 1000, now)

    def rebalance_failed(self) -> None:
        """It has lost what it had."""
        if self._group is not None:
            self._group["failed-rebalances"].record(1, self.clock())

    def on_answered(self, pending: PendingRequest, response: Response, latency_ms: float, now: float) -> None:
        if isinstance(response, FetchResponse):
            self._fetched(response, latency_ms, now)
        elif self._group is not None:
            quantity = _OF_ANSWERS.get(type(response))
            if quantity is not None:
                self._group[quantity].record(latency_ms, now)
                if quantity == "heartbeats":
                    self._heartbeat_at = now
                elif quantity == "joins" and not self._rebalance_began_at:
                    self._rebalance_began_at = pending.sent_at

    def _fetched(self, response: FetchResponse, latency_ms: float, now: float) -> None:
        """Records sizes, latency and, of each assigned partition, lag (to the high watermark) and lead (from the log
        start offset), both in records and seen from the position of the reader. Topics whose id has no name yet are
        left out."""
        self._fetches["fetch-latency"].record(latency_ms, now)
        self._fetches["fetch-throttle"].record(response.throttle_time_ms, now)
        positions = self._fetcher.positions
        if positions.keys() != self._partitions.keys():
            self._assigned()
        total = 0
        for topic in response.responses:
            name = topic.topic or self.client.cluster.snapshot.names.get(topic.topic_id)
            if name is None:
                continue
            size = 0
            for entry in topic.partitions:
                size += len(entry.records or b"")
                partition = TopicPartition(name, entry.partition_index)
                position, measured = positions.get(partition), self._partitions.get(partition)
                if position is not None and measured is not None and position.position is not None:
                    if entry.high_watermark >= 0:
                        measured["lag"].record(max(entry.high_watermark - position.position, 0), now)
                    if entry.log_start_offset >= 0:
                        measured["lead"].record(max(position.position - entry.log_start_offset, 0), now)
            if size:
                self._topic(name)["fetch-size"].record(size, now)
                total += size
        if total:
            self._fetches["fetch-size"].record(total, now)

    def _assigned(self) -> None:
        """Other partitions are assigned than those that are measured."""
        with self._driver.lock:
            positions = dict(self._fetcher.positions)
        for partition in self._partitions.keys() - positions.keys():
            self.measurements.remove(self._partitions.pop(partition))
        for partition in positions:
            if partition not in self._partitions:
                self._partitions[partition] = self._measure_partition(partition)
        for topic in self._topics.keys() - {partition.topic for partition in positions}:
            self.measurements.remove(self._topics.pop(topic))

    def _measure_partition(self, partition: TopicPartition) -> Measured:
        fetcher = self._fetcher

        def of_it(read: Any) -> float:
            position = fetcher.positions.get(partition)
            value = None if position is None else read(position)
            return -1.0 if value is None else value

        return self.measurements.measure(
            FETCH_GROUP,
            PARTITION,
            {"topic": partition.topic, "partition": str(partition.partition)},
            {"lag-now": lambda: of_it(_lag), "lead-now": lambda: of_it(_lead)},
        )

    def _topic(self, topic: str) -> Measured:
        found = self._topics.get(topic)
        if found is None:
            gauges = {"per-request": lambda: self._per_request(self._topics.get(topic))}
            found = self._topics[topic] = self.measurements.measure(FETCH_GROUP, TOPIC, {"topic": topic}, gauges)
        return found

    # -- read ----------------------------------------------------------------------------------------------------------

    def _per_request(self, measured: Measured | None) -> float:
        """Records for each answer that brought some."""
        if measured is None:
            return 0.0
        now = self.clock()
        answers = measured["fetch-size"].frequency(now)
        return measured["records"].rate(now) / answers if answers else 0.0

    def _of_positions(self, read: Any) -> list[float]:
        with self._driver.lock:
            found = [read(position) for position in self._fetcher.positions.values()]
        return [value for value in found if value is not None]

    def _rebalances_per_hour(self) -> float:
        return 0.0 if self._group is None else self._group["rebalances"].frequency(self.clock()) * _SECONDS_PER_HOUR


def _lag(position: PartitionPosition) -> float | None:
    if position.position is None or position.highwater is None:
        return None
    return max(position.highwater - position.position, 0)


def _lead(position: PartitionPosition) -> float | None:
    if position.position is None or position.log_start_offset < 0:
        return None
    return max(position.position - position.log_start_offset, 0)


# What a consumer hands out and is, for those who watch it: metrics, interceptors, telemetry.


