"""Where a consumer reads: seeking, positions, and looking up offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka.consumer import checks
from kafka.consumer.base import ConsumerBase
from kafka.core.consume.offsets import FoundOffset
from kafka.core.consume.positions import EARLIEST, LATEST
from kafka.errors import IllegalArgumentError, KafkaTimeoutError, UnassignedPartitionError
from kafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition


class Positions(ConsumerBase):
    """The part of KafkaConsumer about positions."""

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read the partition from ``offset`` on, a number or what was committed. IllegalArgumentError when that is
        negative or no whole number, UnassignedPartitionError when the partition is not assigned."""
        self._check_usable()
        partition = checks.partition(partition)
        epoch = -1
        if isinstance(offset, tuple) and offset:  # OffsetAndMetadata, as in Java
            what = OffsetAndMetadata(*offset[:3])
            offset, epoch = what.offset, -1 if what.leader_epoch is None else what.leader_epoch
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < checks.INT64:
            raise IllegalArgumentError(f"seek: an offset of at least 0 and below 2**63 is needed, not {offset!r}")
        with self._turn:
            with self._driver.lock:
                self._fetcher.position_of(partition).seek(offset, epoch)
            self._iteration.drop(partition)
            self._changed()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these, or all assigned ones, from their starts. The look-up runs in the background.
        UnassignedPartitionError when one of them is not assigned, or (but in a listener) none at all."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read these, or all assigned ones, from their ends. The look-up runs in the background: "the end" is that of
        when it runs; :meth:`position` waits for it. UnassignedPartitionError as with :meth:`seek_to_beginning`."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: tuple[TopicPartition, ...], timestamp: int) -> None:
        self._check_usable()
        partitions = tuple(checks.partition(each) for each in partitions)
        with self._turn:
            with self._driver.lock:
                meant = partitions or tuple(self._fetcher.positions)
                if not meant and not self._membership.is_busy:  # a listener may be told of no partitions
                    raise UnassignedPartitionError("no partitions are assigned to this consumer yet")
                positions = [self._fetcher.position_of(each) for each in meant]
                for position in positions:
                    position.reset(timestamp)
            for position in positions:
                self._iteration.drop(position.partition)
            self._changed()

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record that is handed out. Waits while it is being looked up: KafkaTimeoutError after
        ``timeout_ms`` (default: ``default_api_timeout_ms``); NoOffsetForPartitionError and the like without one;
        UnassignedPartitionError; WakeupError and IllegalStateError when :meth:`wakeup` or :meth:`close` end the wait.
        """
        self._check_usable()
        partition = checks.partition(partition)
        give_up_at = self._host.loop.time() + checks.timeout_s(timeout_ms, self._default_timeout_s)
        with self._turn:
            while True:
                self._news.silence()
                with self._driver.lock:
                    found = self._fetcher.position_of(partition)
                    unread = self._iteration.consumed().get(partition)
                    if unread is not None:
                        return unread.offset
                    if found.position is not None:
                        return found.position
                    if found.error is not None:
                        raise found.fault()
                self._host.check_may_block()
                if found.is_awaiting and self._starts is not None:  # within a listener: nobody has asked yet
                    self._host.submit(self._starts.look_up, [partition])
                self._reports.raise_one()
                left_s = give_up_at - self._host.loop.time()
                if left_s <= 0:
                    name = f"{partition[0]}-{partition[1]}"
                    raise KafkaTimeoutError(
                        f"the position of {name} was not found in time: no answer, or no such partition"
                    )
                self._check_usable()
                self._raise_if_woken()
                self._news.wait(left_s)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Where the partition ended at the last fetch; None before the first. UnassignedPartitionError."""
        self._check_usable()
        return self._fetcher.position_of(checks.partition(partition)).highwater

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition. Waits; KafkaTimeoutError after ``timeout_ms``."""
        return {
            p: found.offset
            for p, found in self._find(dict.fromkeys(checks.partitions(partitions), EARLIEST), timeout_ms).items()
        }

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition (read_committed: after the last that is decided)."""
        return {
            p: found.offset
            for p, found in self._find(dict.fromkeys(checks.partitions(partitions), LATEST), timeout_ms).items()
        }

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, float], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time in ms since the epoch; None when there is none."""
        wanted = checks.timestamps(timestamps)
        return {
            partition: OffsetAndTimestamp(*found) if found.offset >= 0 else None
            for partition, found in self._find(wanted, timeout_ms).items()
        }

    def _find(
        self, timestamps: dict[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, FoundOffset]:
        self._check_usable()
        timeout_s = checks.timeout_s(timeout_ms, self._default_timeout_s)
        if not timestamps:
            return {}
        return self._wait_for(self._driver.find_offsets, timestamps, timeout_s)
