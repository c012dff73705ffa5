"""Where assigned partitions begin: at their group's committed offsets, else where ``auto_offset_reset`` says.

A look-up that fails is made again for as long as its partitions wait for it. Its answer counts for the assignment that
it was made for: a partition that was away meanwhile may have been read, and committed, by another member since. All on
the loop's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, MutableMapping
from typing import Final

from kafka.consumer.driver import ConsumerDriver
from kafka.core.consume.positions import PartitionPosition
from kafka.core.group.offsets import Committed, fetch_offsets
from kafka.errors import (
    Cancelled,
    FencedMemberEpochError,
    KafkaError,
    KafkaTimeoutError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from kafka.structs import ConsumerGroupMetadata, TopicPartition

log = logging.getLogger(__name__)

AGAIN_S: Final = 5.0
"""After an error that trying again does not mend; somebody may."""

Wanted = dict[TopicPartition, PartitionPosition]
"""What is looked up: the position that waits for it stands for the assignment."""

_MENDING: Final = (KafkaTimeoutError, UnknownMemberIdError, StaleMemberEpochError, FencedMemberEpochError)
"""What is not retriable and passes all the same: the member has heard of it (``on_fenced``), and will join anew."""


class Starts:
    """``known`` is given the committed offsets; ``on_trouble`` hears of errors that users should."""

    def __init__(
        self,
        driver: ConsumerDriver,
        who: Callable[[], ConsumerGroupMetadata],
        *,
        is_member: Callable[[], bool],
        timeout_s: float,
        known: MutableMapping[TopicPartition, int],
        on_fenced: Callable[[KafkaError], object],
        on_trouble: Callable[[KafkaError], object],
    ) -> None:
        self._driver = driver
        self._client = driver.client
        self._who = who
        self._is_member = is_member
        self._timeout_s = timeout_s
        self._known = known
        self._on_fenced = on_fenced
        self._on_trouble = on_trouble
        self._asked: Wanted = {}

    def look_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Let these begin, as far as they still wait for it."""
        if self._driver.is_closed:
            return
        with self._driver.lock:
            positions = self._driver.fetcher.positions
            wanted = {
                each: position
                for each in partitions
                if (position := positions.get(each)) is not None
                and position.is_awaiting
                and self._asked.get(each) is not position
            }
        if not wanted:
            return
        self._asked.update(wanted)
        try:
            found = self._client.run(
                fetch_offsets(
                    wanted,
                    self._who,
                    as_member=self._is_member(),
                    topic_id_of=self._client.cluster.topic_id,
                    timeout_s=self._timeout_s,
                    backoff=self._client.retry_backoff,
                    on_fenced=self._on_fenced,
                )
            )
        except KafkaError:  # the client is closed
            return
        found.add_callback(self._found, wanted)
        found.add_errback(self._failed, wanted)

    def _ended(self, wanted: Wanted) -> None:
        for partition, position in wanted.items():
            if self._asked.get(partition) is position:
                del self._asked[partition]

    def _found(self, wanted: Wanted, committed: Committed) -> None:
        self._ended(wanted)
        offsets, errors = committed
        with self._driver.lock:
            positions = self._driver.fetcher.positions
            for partition, position in wanted.items():
                if partition in errors or positions.get(partition) is not position:
                    continue
                what = offsets.get(partition)
                if what is None:
                    self._driver.fetcher.start(partition, None)
                else:
                    self._known[partition] = what.offset
                    self._driver.fetcher.start(partition, what.offset, what.leader_epoch)
        self._driver.started()
        if errors:
            self._complain(errors)

    def _failed(self, wanted: Wanted, error: BaseException) -> None:
        self._ended(wanted)
        if not isinstance(error, KafkaError):
            error = KafkaError(f"the look-up of committed offsets failed: {error!r}")
        self._complain(dict.fromkeys(wanted, error))

    def _complain(self, errors: dict[TopicPartition, KafkaError]) -> None:
        """Tell each kind of error once that does not mend itself (Java's poll raises no other either), and try again
        those partitions that still wait."""
        told: set[type[KafkaError]] = set()
        retriable = True
        for error in errors.values():
            if isinstance(error, Cancelled):
                return
            retriable = retriable and (error.retriable or isinstance(error, _MENDING))
            if type(error) in told:
                continue
            told.add(type(error))
            if error.retriable or isinstance(error, _MENDING):
                log.info("the committed offsets are looked up again: %s", error)
            else:
                self._on_trouble(error)
        wait_s = self._client.retry_backoff.delay_s(1) if retriable else AGAIN_S
        self._client.loop.call_later(wait_s, self.look_up, list(errors))
