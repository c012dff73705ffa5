"""Commits of one consumer, in order: one request at a time, so that no offset goes back and each may be tried again.

    commit(offsets) ──► queue ──► one request for all that waited ──► the futures, in the order of the calls

What waits while a request is on its way goes out together: of a partition the last offset. Partitions that are revoked
or lost take their queued commits with them. All of it on the loop's thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafka.client import KafkaClient
from kafka.core.group.offsets import OffsetDialogues, OffsetErrors
from kafka.errors import Cancelled, CommitFailedError, IllegalStateError, KafkaError
from kafka.future import Future
from kafka.protocol.offsets import OffsetCommitResponse
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

# Callbacks of commits: noted on the loop when the answer is there, called where the user is.


log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Any], object]


class OffsetCommitCallbacks:
    """Those of one consumer, in the order of the answers."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self.due: deque[tuple[CommitCallback, Offsets, BaseException | None]] = deque()
        """To be called by :meth:`run`, with these."""

    def put(self, callback: CommitCallback, offsets: Offsets, error: BaseException | None = None) -> None:
        """These were committed, or not: ``callback`` is to be told. Any thread."""
        self.due.append((callback, offsets, error))
        self._wake()  # the poll that waits calls it

    def run(self) -> None:
        """Call those that are due. What they raise is logged."""
        while self.due:
            callback, offsets, error = self.due.popleft()
            try:
                callback(dict(offsets), _commit_response(offsets) if error is None else error)
            except Exception:
                log.exception("commit callback raised; ignoring it")


def _commit_response(offsets: Offsets) -> OffsetCommitResponse:
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


class _PendingCommit(NamedTuple):
    offsets: Offsets
    give_up_at: float
    done: Future[None]


class CommitQueue:
    """``who`` says as whom to commit, or raises; ``on_fenced`` hears errors that concern the membership, and
    ``on_committed`` what was committed."""

    def __init__(
        self,
        client: KafkaClient,
        who: Callable[[], ConsumerGroupMetadata],
        on_fenced: Callable[[KafkaError], object],
        on_committed: Callable[[Offsets], object],
    ) -> None:
        self._client = client
        self._who = who
        self._dialogues = OffsetDialogues(self._speaker, client.cluster.topic_id, client.retry_backoff, on_fenced)
        self._on_committed = on_committed
        self._queue: list[_PendingCommit] = []
        self._sent: list[_PendingCommit] = []
        self._withdrawn: KafkaError | None = None
        """Why the request under way must not be tried again."""
        self._idle: Future[None] | None = None

    def also_tell(self, on_committed: Callable[[Offsets], object]) -> None:
        """Call this, too, with what was committed."""
        first = self._on_committed

        def tell(offsets: Offsets) -> None:
            first(offsets)
            on_committed(offsets)

        self._on_committed = tell

    def commit(self, offsets: Offsets, timeout_s: float) -> Future[None]:
        """Done when all are committed; fails with the first one's error, KafkaTimeoutError when it takes too long."""
        job = _PendingCommit(dict(offsets), self._client.loop.time() + timeout_s, Future())
        if not offsets:
            return self.settled()  # behind those before it, as in Java
        self._queue.append(job)
        if not self._sent:
            self._send()
        return job.done

    def settled(self) -> Future[None]:
        """Done when nothing is under way."""
        if not self._sent:
            return Future[None]().success(None)
        if self._idle is None:
            self._idle = Future()
        return self._idle

    def withdraw(self, partitions: Iterable[TopicPartition]) -> None:
        """These belong to others now: what is queued for them fails, and what is under way is not tried again."""
        gone = set(partitions)
        error = CommitFailedError(
            "the offsets were not committed: the partitions were taken from this member before the commit was sent"
        )
        failed = [job for job in self._queue if gone & job.offsets.keys()]
        self._queue = [job for job in self._queue if not gone & job.offsets.keys()]
        if any(gone & job.offsets.keys() for job in self._sent):
            self._withdrawn = error
        for job in failed:
            job.done.failure(error)

    def close(self) -> None:
        """What is queued fails; what is under way ends with the client."""
        queue, self._queue = self._queue, []
        for job in queue:
            job.done.failure(Cancelled("the consumer was closed"))

    def _send(self) -> None:
        self._sent, self._queue = self._queue, []
        self._withdrawn = None
        merged: dict[TopicPartition, OffsetAndMetadata] = {}
        for job in self._sent:
            merged.update(job.offsets)
        timeout_s = max(job.give_up_at for job in self._sent) - self._client.loop.time()
        try:
            done = self._client.run(self._dialogues.commit(merged, max(timeout_s, 0.0)))
        except IllegalStateError as error:  # the client is closed
            done = Future[OffsetErrors]().failure(error)
        done.add_callback(self._answered, merged)
        done.add_errback(self._failed)

    def _speaker(self) -> ConsumerGroupMetadata:
        if self._withdrawn is not None:
            raise self._withdrawn
        return self._who()

    def _answered(self, merged: Offsets, errors: OffsetErrors) -> None:
        good = {partition: what for partition, what in merged.items() if partition not in errors}
        if good:
            self._on_committed(good)
        self._end(errors)

    def _failed(self, error: Any) -> None:
        self._end({partition: error for job in self._sent for partition in job.offsets})

    def _end(self, errors: OffsetErrors) -> None:
        ended, self._sent = self._sent, []
        if self._queue:
            self._send()
        for job in ended:
            error = next((errors[partition] for partition in job.offsets if partition in errors), None)
            if error is None:
                job.done.success(None)
            else:
                job.done.failure(error)
        if not self._sent and self._idle is not None:
            idle, self._idle = self._idle, None
            idle.success(None)
