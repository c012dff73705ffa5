"""What answers do to the positions they are about: the half of the fetcher that listens (``fetcher.py`` is the other).

    records             buffered, if they are what the position waits for: else a seek came between
    a read replica      the next fetch goes there (KIP-392)
    an error            what ``reactions.py`` says
    where epochs end    the log has what was read of it, or it was truncated (KIP-320)

An error of another kind is a row in ``reactions.py``; a fact that answers tell, a line in :meth:`Answers._take`.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Final
from uuid import UUID

from kafka.core.consume.effects import AskEpochs, FindOffsets
from kafka.core.consume.epochs import EpochEnd
from kafka.core.consume.fetched import Fetched, ReaderOptions
from kafka.core.consume.node import FetchNode, SendFetch
from kafka.core.consume.offsets import FoundOffset
from kafka.core.consume.policy import ResetPolicy
from kafka.core.consume.positions import Changes, PartitionPosition
from kafka.core.consume.reactions import Reaction, reaction_to
from kafka.core.consume.session import Listing
from kafka.errors import (
    FencedLeaderEpochError,
    FetchSessionTopicIdError,
    LogTruncationError,
    NoOffsetForPartitionError,
    UnknownLeaderEpochError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.fetch import FetchResponse
from kafka.structs import OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)

EPOCH_CODES: Final = frozenset({FencedLeaderEpochError.errno, UnknownLeaderEpochError.errno})
EPOCH_ATTEMPTS: Final = 4
"""After so many errors in a row, fetches go without the epoch that leads to such a code: brokers before 2.4 may tell a
wrong one in their metadata, and go on doing so (KAFKA-9212)."""


class Answers:
    """See the module. Arguments are those of :class:`~kafka.core.consume.fetcher.Fetcher`."""

    def __init__(
        self,
        options: ReaderOptions,
        policy: ResetPolicy,
        backoff: Callable[[int], float],
        leader_of: Callable[[TopicPartition], int | None],
        topic_of_id: Callable[[UUID], str | None],
        read_replica_age_s: float,
    ) -> None:
        self.options = options
        self.positions: dict[TopicPartition, PartitionPosition] = {}
        self.refusal: BaseException | None = None
        """Why the cluster does not let us in, or a broker cannot be understood, for the reader to raise once: an error
        that is not one partition's."""
        self._policy = policy
        self._backoff = backoff
        self._leader_of = leader_of
        self._topic_of_id = topic_of_id
        self._read_replica_age_s = read_replica_age_s
        self._changes = Changes()
        self._nodes: dict[int, FetchNode] = {}
        self._names: dict[UUID, str] = {}
        self._stale: set[str] = set()
        self._room_bytes = 0
        """What may come of the fetches in flight."""
        self._timers: list[tuple[float, int, PartitionPosition]] = []
        self._timer_numbers = count()

    def _look_again(self, position: PartitionPosition, when: float) -> None:
        """Look at the position then or earlier. One looked at earlier is not noted twice, or each reason to
        look would have timers of its own; that look asks again if there is still something to wait for."""
        if when < position.look_at:
            position.look_at = when
            heapq.heappush(self._timers, (when, next(self._timer_numbers), position))

    def _rest(self, position: PartitionPosition, now: float) -> None:
        """Leave the position alone for a while: longer with each error in a row."""
        position.failures += 1
        position.retry_at = now + self._backoff(position.failures)
        position.refused_by = None
        position.touch()

    def _reset_by_policy(self, position: PartitionPosition) -> None:
        if (timestamp := self._policy.timestamp()) is not None:
            position.reset(timestamp)
            return
        position.error = NoOffsetForPartitionError(
            f"{_name(position)} has no position: seek, or set auto_offset_reset to other than 'none'"
        )

    # -- fetches -------------------------------------------------------------------------------------------------------

    def fetched(self, call: SendFetch, response: FetchResponse, now: float) -> bool:
        """The node answered. Whether there is something new for the reader."""
        self._room_bytes -= call.room_bytes
        node = self._nodes[call.node]
        if not node.answered(call, response, now):
            kind = for_code(response.error_code)
            # The ids of topics made anew are not those that a session began with; Java asks for them, too.
            if kind.invalid_metadata or kind is FetchSessionTopicIdError:
                self._stale.update(partition.topic for partition in node.session.wanted)
            return False
        news = False
        for topic in response.responses:
            name = topic.topic or self._names.get(topic.topic_id) or self._topic_of_id(topic.topic_id)
            if name is None:
                continue
            for entry in topic.partitions:
                listing = node.listing(call, TopicPartition(name, entry.partition_index))
                if listing is not None and listing.is_current and not listing.position.is_validating:
                    news = self._take(call.node, listing, entry, now) or news
        return news

    def _take(self, node: int, listing: Listing, entry: FetchResponse.PartitionData, now: float) -> bool:
        position = listing.position
        if entry.error_code:
            return self._refused(node, listing, entry.error_code, now)
        position.failures = 0
        position.highwater = entry.high_watermark
        position.last_stable_offset = entry.last_stable_offset
        position.log_start_offset = entry.log_start_offset
        if entry.preferred_read_replica >= 0:
            position.read_replica = entry.preferred_read_replica
            position.read_replica_until = now + self._read_replica_age_s
            position.touch()
        data = entry.records
        if data is None or not len(data):
            return False
        buffer = data if isinstance(data, (bytes, bytearray, memoryview)) else b"".join(data)
        position.buffer(Fetched(position.partition, listing.offset, buffer, entry.aborted_transactions or ()))
        return True

    def _refused(self, node: int, listing: Listing, code: int, now: float) -> bool:
        position = listing.position
        error = for_code(code)(f"{_name(position)} at offset {listing.offset}")
        reaction = reaction_to(error)
        if reaction is Reaction.RESET:
            if position.read_replica is not None:  # it may lag behind the leader, which knows
                position.read_replica = None
                position.touch()
            elif position.buffered:  # the reader is not there yet, and may never come
                self._rest(position, now)
            elif self._policy.resets:
                log.info("%s: looking for another position", error)
                self._reset_by_policy(position)
            else:
                position.error = for_code(code)(
                    f"{_name(position)} has no offset {listing.offset} (any more): seek, or set auto_offset_reset to "
                    "other than 'none'"
                )
            return position.error is not None
        if code in EPOCH_CODES and position.failures >= EPOCH_ATTEMPTS:
            position.distrusted_epoch = listing.leader_epoch
        if reaction is Reaction.RAISE:
            position.error = error
            return True
        if reaction is Reaction.MOVED:
            self._stale.add(position.partition.topic)
            position.read_replica = None
            position.touch()
            # Another leader may be known by now, told in this very answer (KIP-951): that one need not be waited for.
            if self._leader_of(position.partition) not in (None, node):
                return False
            self._rest(position, now)
            position.refused_by = node
            return False
        if position.failures == 0:
            log.info("%s: fetching it again", error)
        self._rest(position, now)
        return False

    def failed(self, call: SendFetch, error: BaseException, now: float) -> bool:
        """There is no answer. Whether there is something new for the reader (an error that will not go away)."""
        self._room_bytes -= call.room_bytes
        node = self._nodes[call.node]
        node.failed(call, now)
        if call.is_beside and getattr(error, "retriable", False):
            return False  # the session's own fetch will meet the same, if there is something to be met
        positions = [listing.position for listing in node.session.wanted.values()]
        if getattr(error, "invalid_metadata", False):
            self._stale.update(position.partition.topic for position in positions)
        for position in positions:
            if position.read_replica == call.node:
                position.read_replica = None
                position.touch()
        if not positions or getattr(error, "retriable", False):
            return False
        self.refusal = error
        return True

    # -- offsets and epochs --------------------------------------------------------------------------------------------

    def offsets_told(
        self, effect: FindOffsets, told: Mapping[TopicPartition, FoundOffset | BaseException], now: float
    ) -> bool:
        """Where the timestamps are. Whether there is something new for the reader."""
        news = False
        for position in self._current(effect.generations):
            answer = told[position.partition]
            if isinstance(answer, FoundOffset):
                position.seek(answer.offset)
                news = True
                continue
            position.is_resetting = False
            if not getattr(answer, "retriable", False):
                position.error = answer
                news = True
                continue
            if position.failures == 0:
                log.info("the position of %s is looked up again: %s", _name(position), answer)
            self._stale.add(position.partition.topic)
            self._rest(position, now)
            position.refused_by = effect.leader
        return news

    def epochs_told(
        self, effect: AskEpochs, told: Mapping[TopicPartition, EpochEnd | BaseException], now: float
    ) -> bool:
        """Where the epochs ended. Whether there is something new for the reader."""
        news = False
        for position in self._current(effect.generations):
            if not position.is_validating:
                continue
            position.is_validating = False
            position.touch()
            answer = told[position.partition]
            if isinstance(answer, EpochEnd):
                news = self._validate(position, answer) or news
            elif not isinstance(answer, UnsupportedVersionError):  # else: nobody can tell, and it counts as valid
                position.leader = None  # ask again
                if getattr(answer, "retriable", False):
                    self._stale.add(position.partition.topic)
                    self._rest(position, now)
                else:
                    position.error = answer
                    news = True
        return news

    def _validate(self, position: PartitionPosition, end: EpochEnd) -> bool:
        """What was read is still there, or not: as in Java, the position goes back to where the logs part if positions
        may be reset, else the reader is told."""
        offset, fetch_offset = position.position, position.fetch_offset
        assert offset is not None and fetch_offset is not None
        is_known = end.leader_epoch >= 0 and end.end_offset >= 0
        if is_known and end.end_offset >= fetch_offset:
            return False
        if is_known and end.end_offset >= offset:
            position.drop_buffer()  # what was handed out is there; what was not, and is gone, is nobody's loss
            return False
        parted = OffsetAndMetadata(end.end_offset, "", end.leader_epoch) if is_known else None
        error = LogTruncationError({position.partition: parted}, {position.partition: offset})
        if not self._policy.resets:
            position.leader = None  # what the reader does not answer with a seek is found again
            position.error = error
            return True
        log.warning("%s", error)
        if parted is None:
            self._reset_by_policy(position)
        else:
            leader = position.leader
            position.seek(parted.offset, parted.leader_epoch)
            position.leader = leader
        return False

    def _current(self, generations: Mapping[TopicPartition, int]) -> Iterable[PartitionPosition]:
        for partition, generation in generations.items():
            position = self.positions.get(partition)
            if position is not None and position.generation == generation:
                yield position


def _name(position: PartitionPosition) -> str:
    return f"{position.partition.topic}-{position.partition.partition}"
