"""What of a log is too old or too much, as in Kafka: whole segments, from the oldest one on.

    retention.bytes   as long as the log without a segment still has so many bytes
    retention.ms      whose greatest timestamp is longer ago; without timestamps: that was written to last longer ago

Timestamps are what producers said, so one record from the future keeps its segment, and all behind it, until its time
has passed. The last segment goes too, when all of it is too old; an empty one begins at the log's end then. A log that
is only compacted keeps everything. Decides only: :meth:`PartitionLog.delete_before` does it.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka.broker.log.partition_log import PartitionLog
from kafka.broker.log.segment import Segment

MAX_SEGMENTS = 200
"""Of one decision, so that acting upon it does not take long."""


class Expired(NamedTuple):
    """``start_offset``: where the log should begin; ``why``: the setting that says so; ``is_all``: nothing is left,
    so the last segment has to be closed first."""

    start_offset: int
    why: str
    is_all: bool


def expired(log: PartitionLog, now_ms: int) -> Expired | None:
    """What should go now, or None. ``now_ms``: the time of day."""
    config = log.config
    if not config.deletes:
        return None
    segments = log.segments
    count = 0
    why = ""
    if config.retention_bytes >= 0:
        surplus = log.size_bytes - config.retention_bytes
        while count < len(segments) and _can_go(log, segments, count) and surplus >= segments[count].size:
            surplus -= segments[count].size
            count += 1
            why = "retention.bytes"
    if config.retention_ms >= 0:
        while (
            count < len(segments)
            and _can_go(log, segments, count)
            and now_ms - newest_ms(segments[count]) > config.retention_ms
        ):
            count += 1
            why = "retention.ms"
    if not count:
        return None
    count = min(count, MAX_SEGMENTS)
    is_all = count == len(segments)
    return Expired(log.end_offset if is_all else segments[count].base_offset, why, is_all)


def newest_ms(segment: Segment) -> int:
    """A segment's age begins here (ms): its greatest timestamp, or when it was written to last."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms


def _can_go(log: PartitionLog, segments: tuple[Segment, ...], at: int) -> bool:
    """Whatever is no empty last segment: also what an open transaction has written, as in Kafka."""
    return at + 1 < len(segments) or segments[at].size > 0
