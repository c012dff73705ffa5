"""What a topic's configuration says to its logs: one row for each setting that something here acts upon.

Where the values come from (the topic's own, the broker's, Kafka's defaults) is ``LogDirectory``'s and the broker's
business; whether they are possible, ``settings.py``'s. To let a log act on one more setting, add it to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class LogConfig(NamedTuple):
    """What a topic's configuration says to its logs, by the settings' names; ``log_append_time``: whether
    ``message.timestamp.type`` is that; ``deletes``, ``compacts``: what is in ``cleanup.policy``."""

    segment_bytes: int = 1 << 30
    max_message_bytes: int = 1_048_588
    log_append_time: bool = False
    segment_ms: int = 7 * 24 * 3600 * 1000
    deletes: bool = True
    compacts: bool = False
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 24 * 3600 * 1000
    timestamp_before_ms: int = 2**63 - 1
    timestamp_after_ms: int = 3600 * 1000

    @property
    def roll_ms(self) -> int:
        """After how long the last segment is closed, so that what is in it can be compacted in time."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms


def log_config(values: Mapping[str, str]) -> LogConfig:
    """What a topic's configuration, as text, says to its logs."""
    default = LogConfig()
    policies = [policy.strip() for policy in values.get("cleanup.policy", "delete").split(",")]
    return LogConfig(
        segment_bytes=int(values.get("segment.bytes", default.segment_bytes)),
        max_message_bytes=int(values.get("max.message.bytes", default.max_message_bytes)),
        log_append_time=values.get("message.timestamp.type", "CreateTime") == "LogAppendTime",
        segment_ms=int(values.get("segment.ms", default.segment_ms)),
        deletes="delete" in policies,
        compacts="compact" in policies,
        retention_ms=int(values.get("retention.ms", default.retention_ms)),
        retention_bytes=int(values.get("retention.bytes", default.retention_bytes)),
        min_cleanable_dirty_ratio=float(values.get("min.cleanable.dirty.ratio", default.min_cleanable_dirty_ratio)),
        min_compaction_lag_ms=int(values.get("min.compaction.lag.ms", default.min_compaction_lag_ms)),
        max_compaction_lag_ms=int(values.get("max.compaction.lag.ms", default.max_compaction_lag_ms)),
        delete_retention_ms=int(values.get("delete.retention.ms", default.delete_retention_ms)),
        timestamp_before_ms=int(values.get("message.timestamp.before.max.ms", default.timestamp_before_ms)),
        timestamp_after_ms=int(values.get("message.timestamp.after.max.ms", default.timestamp_after_ms)),
    )
