"""When bytes that were written go to the disk: what a lost machine may cost. A killed process never costs anything
acknowledged, with any policy, because each append is a ``write()`` that the system keeps.

    always     before the answer; many appends share one fsync (group commit): ``sync_before_answer``
    interval   at most ``interval_s`` after the append: that much may be lost with the machine
    never      when the system likes

A policy decides; :class:`~kafka.broker.log.syncing.Syncer` acts.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka.errors import KafkaConfigurationError


class FlushPolicy(NamedTuple):
    """``interval_s`` None: no flush by time."""

    name: str
    interval_s: float | None
    sync_before_answer: bool

    @classmethod
    def parse(cls, text: str, interval_s: float = 1.0) -> FlushPolicy:
        """The policy of this name; KafkaConfigurationError for others."""
        if text == "always":
            return cls(text, None, True)
        if text == "interval":
            return cls(text, interval_s, False)
        if text == "never":
            return cls(text, None, False)
        raise KafkaConfigurationError(f"fsync is one of always, interval, never; not {text!r}")

    def deadline(self, dirty_since: float | None) -> float | None:
        """When what was first written at ``dirty_since`` (monotonic s; None: nothing) has to be flushed."""
        if dirty_since is None:
            return None
        if self.sync_before_answer:
            return dirty_since
        return None if self.interval_s is None else dirty_since + self.interval_s
