"""When the last segment of a log is full, or too old, and another one begins.

    segment.bytes      with the batch it would be longer
    segment.ms         by the records' own clock: counted from the greatest time of its first batch, as in Kafka, so a
                       partition that nobody writes to keeps its last segment. Without timestamps, by the broker's
                       clock. Of a compacted log max.compaction.lag.ms, if that is less
    always             before offsets that its base is too far from, and behind bad bytes
"""

from __future__ import annotations

from kafka.broker.log.log_config import LogConfig
from kafka.broker.log.segment import Segment

MAX_OFFSET_DELTA = 2**31 - 1
"""Between a segment's base and its last offset, as in Kafka."""


def is_over(
    last: Segment, config: LogConfig, length: int, last_offset_delta: int, max_timestamp: int, now_ms: int
) -> bool:
    """Whether a batch of so many bytes and offsets, with this greatest timestamp, belongs into a new segment."""
    if not last.size:
        return False
    first = last.first_timestamps[1]
    since, until = (first, max_timestamp) if first >= 0 else (last.created_ms, now_ms)
    if config.log_append_time:
        until = now_ms
    return (
        last.size + length > config.segment_bytes
        or last.next_offset + last_offset_delta - last.base_offset > MAX_OFFSET_DELTA
        or until - since > (config.roll_ms if config.compacts else config.segment_ms)
        or bool(last.damages)
    )
