"""What the loop's thread tells: to the inbox of the users' threads, if there is one, and to the user's callbacks.

It does not know the consumer: the loop's thread lives as long as the consumer's host is known to somebody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from kafka.core.share.holding import Acknowledged, Answered, each_of
from kafka.core.share.records import ShareRecord
from kafka.errors import KafkaError
from kafka.share.inbox import Inbox
from kafka.share.metrics import ShareMetrics
from kafka.structs import TopicPartition

log = logging.getLogger(__name__)

OnRecords = Callable[[list[ShareRecord]], object]
OnAcknowledged = Callable[[list[Acknowledged]], object]
OnLost = Callable[[list[ShareRecord], "KafkaError | None"], object]
OnError = Callable[[KafkaError], object]
CommitCallback = Callable[[dict[TopicPartition, set[int]], "KafkaError | None"], object]
"""``callback(offsets, exception)``: the offsets of one partition whose acknowledgements were answered, and None or the
error that refused them. Source: Java's ``AcknowledgementCommitCallback``."""


class Events:
    """The engine's events, on the loop's thread. ``inbox`` None: the user lives on the loop, too."""

    def __init__(self, inbox: Inbox | None, commit_callback: CommitCallback | None, **callbacks: Any) -> None:
        self.commit_callback = commit_callback
        """Called here when there is no inbox, and else by the user's thread."""
        self.metrics: ShareMetrics | None = None
        self._inbox = inbox
        self._callbacks: dict[str, Callable[..., object] | None] = callbacks

    def on_records(self, records: list[ShareRecord]) -> None:
        if self.metrics is not None:
            self.metrics.came(records)
        if self._inbox is not None:
            self._inbox.put(records)
        else:
            self._call("on_records", records)

    def on_acknowledged(self, answered: list[Answered]) -> None:
        if self.metrics is not None:
            self.metrics.acknowledged(answered)
        if self._inbox is not None:
            self._inbox.heard(answered, keep=self.commit_callback is not None)
        elif self.commit_callback is not None:
            try:
                call_back(self.commit_callback, answered)
            except Exception:
                log.exception("an error in the share consumer's acknowledgement commit callback")
        if self._callbacks.get("on_acknowledged") is not None:
            self._call("on_acknowledged", each_of(answered))

    def on_lost(self, records: list[ShareRecord], error: KafkaError | None) -> None:
        if self._inbox is not None:
            records = self._inbox.lose(records)
        if records:
            self._call("on_lost", records, error)

    def on_trouble(self, error: KafkaError) -> None:
        if self._inbox is not None:
            self._inbox.fail(error, is_final=False)

    def on_error(self, error: KafkaError) -> None:
        if self._inbox is not None:
            self._inbox.fail(error, is_final=True)
        self._call("on_error", error)

    def _call(self, name: str, *args: object) -> None:
        callback = self._callbacks.get(name)
        if callback is None:
            return
        try:
            callback(*args)
        except Exception:
            log.exception("an error in the share consumer's %s", name)


def call_back(callback: CommitCallback, answered: Iterable[Answered]) -> None:
    """Tell it, once for each partition and error. What it raises comes through when all were told; the first of it."""
    told: dict[tuple[TopicPartition, int], tuple[set[int], KafkaError | None]] = {}
    for _, records, error in answered:
        key = TopicPartition(records[0].topic, records[0].partition), id(error)
        told.setdefault(key, (set(), error))[0].update([record.offset for record in records])
    fault: BaseException | None = None
    for (partition, _), (offsets, error) in told.items():
        try:
            callback({partition: offsets}, error)
        except BaseException as raised:
            fault = fault or raised
    if fault is not None:
        raise fault
