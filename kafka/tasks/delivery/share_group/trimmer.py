"""Deletes the records of settled jobs: below the start offset of a topic's share group every job is settled.

A topic of jobs has ``retention.ms=-1``, because nothing that waits may expire, so without this it grows forever. About
once a minute each worker reads the start offsets of its groups (DescribeShareGroupOffsets, KIP-932) and deletes what is
below them (DeleteRecords, KIP-107). Workers need not agree on who does it: a deletion that another worker has made
already changes nothing.

:func:`plan_deletions` decides, a :class:`TopicTrimmer` asks and acts. Only an offset that was read in the same round is
ever deleted up to. What was deleted last is used for one thing alone: to leave out requests that would change nothing.

The broker may store a start offset one acknowledgement late, so the last jobs that were settled stay until there are
more; and it deletes whole segments, so ``segment.bytes`` of the topic (:mod:`kafka.tasks.format.topics`) decides how
much of what is settled stays on the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kafka import admin
from kafka.client import KafkaClient
from kafka.errors import Cancelled, KafkaError, TopicAuthorizationFailedError
from kafka.future import Future
from kafka.log_limit import LimitedLog
from kafka.structs import TopicPartition
from kafka.tasks.backends.kafka.connection import BACKGROUND
from kafka.tasks.backends.kafka.timed_resident import TimedResident

log = logging.getLogger(__name__)

INTERVAL_S: Final = 60.0
"""Between two rounds on average; each wait is from half of it to half more, and the first is shorter than it."""
TIMEOUT_S: Final = 10.0
"""Of each request of a round, with its retries."""
DENIED_S: Final = 3600.0
"""A topic whose records may not be deleted is left alone so long."""


def plan_deletions(
    starts: Mapping[TopicPartition, int], deleted_below: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Below which offsets to delete: ``{partition: offset}``.

    ``starts``: start offsets of the partitions' share groups as just read, -1 for a group that has none;
    ``deleted_below``: the offsets up to which this worker has deleted last. A start offset that is lower than that is
    one of a group that was reset, or of a topic that was created anew: it counts like any other.
    """
    return {place: start for place, start in starts.items() if start > 0 and start != deleted_below.get(place)}


class TopicTrimmer(TimedResident):
    """Deletes what is done of topics. On the loop's thread; never blocks.

    ``topics``: their names; ``what``: what is deleted, for messages. Rounds begin with :meth:`start` and end with
    :meth:`close`, or with the client. A failed request is logged and made again in the next round.
    """

    def __init__(self, client: KafkaClient, topics: Iterable[str], what: str) -> None:
        super().__init__(client)
        self._topics = tuple(topics)
        self._what = what
        self._log = LimitedLog(log, most=1, every_s=INTERVAL_S, clock=client.loop.time)
        self._deleted_below: dict[TopicPartition, int] = {}
        self._denied_until: dict[str, float] = {}
        self._limits: dict[str, Any] = {"backoff": client.retry_backoff, "timeout_s": TIMEOUT_S}

    def start(self) -> None:
        """Trim about once a minute from now on."""
        self._client.add_resident(self)
        self._call_later(INTERVAL_S * self._client.rng.random(), self._begin)

    def trim(self) -> Future[None]:
        """One round now; done when the broker has answered everything. Fails only when the client is closed."""
        return self._client.run(self._trim(), BACKGROUND)

    # -- rounds -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.trim().add_both(self._on_trimmed)

    def _on_trimmed(self, result: object) -> None:
        if self._is_closed:
            return
        if isinstance(result, BaseException):
            log.error("could not delete %s, trying again in a minute", self._what, exc_info=result)
        self._call_later(INTERVAL_S * (0.5 + self._client.rng.random()), self._begin)

    def _trim(self) -> Any:
        """A dialogue: one round."""
        now = self._loop.time()
        topics = [topic for topic in self._topics if self._denied_until.get(topic, now) <= now]
        starts = yield from self._read_starts(topics)
        by_topic: dict[str, dict[TopicPartition, int]] = {}
        for place, start in plan_deletions(starts, self._deleted_below).items():
            by_topic.setdefault(place.topic, {})[place] = start
        for topic, offsets in by_topic.items():
            yield from self._delete(topic, offsets)

    def _read_starts(self, topics: Sequence[str]) -> Any:
        """A dialogue: where what is not done begins in the partitions of these topics."""
        raise NotImplementedError

    def _delete(self, topic: str, offsets: Mapping[TopicPartition, int]) -> Any:
        """A dialogue: delete what is below these offsets. In all partitions at once or else one by one, so that a
        partition without a leader keeps no other from being trimmed."""
        try:
            yield from admin.dialogues.delete_records(offsets, **self._limits)
        except TopicAuthorizationFailedError as error:
            self._denied_until[topic] = self._loop.time() + DENIED_S
            self._log.warning(
                (type(error), topic),
                "not authorized to delete the %s of topic %s, so they stay on the disk; permit it with "
                "kafka-acls.sh --add --allow-principal User:WORKER --operation Delete --topic %s",
                self._what,
                topic,
                topic,
            )
        except Cancelled:
            raise
        except KafkaError as error:
            if len(offsets) == 1:
                self._on_failure(topic, error)
                return
            for place, offset in offsets.items():
                yield from self._delete(topic, {place: offset})
        else:
            self._deleted_below.update(offsets)

    def _on_failure(self, topic: str, error: KafkaError) -> None:
        self._log.warning(
            type(error).__name__,
            "could not delete the %s of topic %s, trying again in a minute: %s",
            self._what,
            topic,
            error,
        )


class QueueTrimmer(TopicTrimmer):
    """Deletes settled jobs of topics whose share groups have the topics' names. ``topics``: the partitions of each."""

    def __init__(self, client: KafkaClient, topics: Mapping[str, Sequence[TopicPartition]]) -> None:
        super().__init__(client, topics, "settled jobs")
        self._partitions = topics

    def _read_starts(self, topics: Sequence[str]) -> Any:
        """A dialogue: the start offsets of these topics' groups. Of all at once or else one by one, so that a
        coordinator that does not answer keeps no other coordinator's groups from being trimmed."""
        starts: dict[TopicPartition, int] = {}
        groups: Mapping[str, Any]
        try:
            groups = yield from admin.dialogues.share_group_offsets(
                {topic: self._partitions[topic] for topic in topics}, **self._limits
            )
        except Cancelled:
            raise
        except KafkaError as error:
            groups = dict.fromkeys(topics, error)
            if len(topics) > 1:
                groups = {}
                for topic in topics:
                    starts.update((yield from self._read_starts([topic])))
        for topic, offsets in groups.items():
            if isinstance(offsets, KafkaError):
                self._on_failure(topic, offsets)
            else:
                starts.update({place: each.start_offset for place, each in offsets.items()})
        return starts


class CommittedTrimmer(TopicTrimmer):
    """Deletes what consumer groups are done with. ``committed``: of the partitions that this process owns now, the
    offsets of the first records that are not done."""

    def __init__(
        self,
        client: KafkaClient,
        topics: Iterable[str],
        what: str,
        committed: Callable[[], Mapping[TopicPartition, int]],
    ) -> None:
        super().__init__(client, topics, what)
        self._committed = committed

    def _read_starts(self, topics: Sequence[str]) -> Any:
        """A dialogue without a request: this process has committed these offsets itself."""
        yield from ()
        return self._committed()
