"""Callbacks of commits: noted on the loop when the answer is there, called where the user is."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kafka.protocol.offsets import OffsetCommitResponse
from kafka.structs import OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Any], object]


class Callbacks:
    """Those of one consumer, in the order of the answers."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._due: deque[tuple[CommitCallback, Offsets, BaseException | None]] = deque()

    def put(self, callback: CommitCallback, offsets: Offsets, error: BaseException | None = None) -> None:
        """These were committed, or not: ``callback`` is to be told. Any thread."""
        self._due.append((callback, offsets, error))
        self._wake()  # the poll that waits calls it

    def __bool__(self) -> bool:
        return bool(self._due)

    def run(self) -> None:
        """Call those that are due. What they raise is logged."""
        while self._due:
            callback, offsets, error = self._due.popleft()
            try:
                callback(dict(offsets), _response(offsets) if error is None else error)
            except Exception:
                log.exception("an error in the callback of a commit")


def _response(offsets: Offsets) -> OffsetCommitResponse:
    """What kafka-python hands to callbacks of commits that succeeded."""
    topics: dict[str, list[OffsetCommitResponse.OffsetCommitResponsePartition]] = {}
    for topic, number in offsets:
        topics.setdefault(topic, []).append(
            OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=number, error_code=0)
        )
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ]
    )
