"""The consumer's machine: which fetches go where and when, and what becomes of the answers.

    poll(now) ──► effects: SendFetch, RequestOffsets, RequestEpochEnds, RefreshFetchMetadata; and ``next_deadline``
    fetched(call, response, now) · failed(call, error, now)      once for each SendFetch
    offsets_received(...)                                        once for each RequestOffsets
    epoch_ends_received(...)                                     once for each RequestEpochEnds
    metadata_changed()                                           leaders may be others

Each broker has a session and a fetch in flight (``session.py``), with every partition there that may have
more buffered. Positions and epochs are asked of each leader by itself, too: one that is silent, or that is not there,
holds up its own partitions and no others. Reading ahead is bounded for each partition, which is left out when it has
reached its bound until its reader has come closer; and in all: what is buffered and what may come of the fetches in
flight is never more than ``buffer_bytes``, but for single batches that are larger than what they have room in.

Work is done for what has changed: ``partition.py`` notes what was touched, and nothing here goes through all partitions
but assignments and new metadata.

What answers do to positions:

    records             buffered, if they are what the position waits for: else a seek came between
    a read replica      the next fetch goes there (KIP-392)
    an error            what :data:`FETCH_ERROR_ACTIONS` says
    where epochs end    the log has what was read of it, or it was truncated (KIP-320)

An error of another kind is a row in that table; a fact that answers carry, a line in :meth:`Fetcher._take`.

Not a machine for several threads: a driver holds one lock around every call. Answers are decoded by the reader, outside
of it (``partition.py``).
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from itertools import count
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from kafka.core.consume.offsets import EpochEnd, EpochQuery, ResolvedOffset
from kafka.core.consume.partition import (
    NO_EPOCH,
    CompletedFetch,
    LeaderAndEpoch,
    OffsetResetStrategy,
    PartitionPosition,
    PositionChanges,
    ReaderOptions,
)
from kafka.core.consume.session import FetchLimits, NodeFetcher, SendFetch, SessionPartition
from kafka.core.retry import ErrorTable
from kafka.errors import (
    CorruptRecordError,
    FencedLeaderEpochError,
    FetchSessionTopicIdError,
    InconsistentTopicIdError,
    KafkaStorageError,
    LogTruncationError,
    NoOffsetForPartitionError,
    NotLeaderForPartitionError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
    UnassignedPartitionError,
    UnknownError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.fetch import FetchResponse
from kafka.structs import OffsetAndMetadata, TopicPartition

# Effects, for a driver to carry out. A new kind is a class here, and an entry in ``consumer/driver.py``.


class RequestOffsets(NamedTuple):
    """Ask ``leader`` for the offsets of these timestamps; ``generations`` are those of the positions."""

    leader: int
    timestamps: dict[TopicPartition, int]
    generations: dict[TopicPartition, int]


class RequestEpochEnds(NamedTuple):
    """Ask one leader where these epochs ended (``offsets.py``); ``generations`` are those of the positions."""

    questions: dict[TopicPartition, EpochQuery]
    generations: dict[TopicPartition, int]


class RefreshFetchMetadata(NamedTuple):
    """What is known of these topics is out of date or missing."""

    topics: frozenset[str]


FetcherEffect = SendFetch | RequestOffsets | RequestEpochEnds | RefreshFetchMetadata


# What a fetcher does about the error code of a partition, as the Java consumer does. One more code is one more row.
#
# A code that is not here goes by what its error says of itself: ``invalid_metadata``, ``retriable``, or neither.


class FetchErrorAction(Enum):
    """What to do about it."""

    RETRY = "fetch again after the back-off"
    MOVED = "read the metadata anew, trust no read replica, fetch again: at once if there is another leader by now"
    RESET = "go back from a read replica to the leader; at the leader, find the position anew by auto_offset_reset"
    RAISE = "the reader has to know"


FETCH_ERROR_ACTIONS: Final = ErrorTable(
    {
        OffsetOutOfRangeError: FetchErrorAction.RESET,
        NotLeaderForPartitionError: FetchErrorAction.MOVED,
        ReplicaNotAvailableError: FetchErrorAction.MOVED,
        KafkaStorageError: FetchErrorAction.MOVED,
        FencedLeaderEpochError: FetchErrorAction.MOVED,
        OffsetNotAvailableError: FetchErrorAction.MOVED,
        UnknownTopicOrPartitionError: FetchErrorAction.MOVED,
        UnknownTopicIdError: FetchErrorAction.MOVED,
        InconsistentTopicIdError: FetchErrorAction.MOVED,
        # the broker is behind: it learns of the election later than we did
        UnknownLeaderEpochError: FetchErrorAction.RETRY,
        UnknownError: FetchErrorAction.RETRY,
        # what lies there on the broker's disk: no other attempt makes it better
        CorruptRecordError: FetchErrorAction.RAISE,
    },
    refresh=FetchErrorAction.MOVED,
    retry=FetchErrorAction.RETRY,
    otherwise=FetchErrorAction.RAISE,
    exact=True,
)


log = logging.getLogger(__name__)

EPOCH_CODES: Final = frozenset({FencedLeaderEpochError.errno, UnknownLeaderEpochError.errno})
EPOCH_ATTEMPTS: Final = 4
"""After so many errors in a row, fetches go without the epoch that leads to such a code: brokers before 2.4 may tell a
wrong one in their metadata, and go on doing so (KAFKA-9212)."""


def _name(position: PartitionPosition) -> str:
    return f"{position.partition.topic}-{position.partition.partition}"


class Fetcher:
    """See the module. Times in seconds, sizes in bytes.

    ``leader_of`` gives a node id or None, ``epoch_of`` that leader's epoch or -1, ``is_replica(partition, node)``
    whether the node can be read from, ``topic_id_of`` an id or the zero one, ``free_at(node)`` until when a node wants
    no fetches (KIP-219; 0: now is fine). ``backoff`` turns errors in a row into a wait, ``wall_ms`` is the time of day
    in ms. ``read_replica_age_s``: so long a leader's word counts that another replica is to be read (KIP-392).
    """

    def __init__(
        self,
        *,
        leader_of: Callable[[TopicPartition], int | None],
        topic_id_of: Callable[[str], UUID],
        wall_ms: Callable[[], int],
        topic_of_id: Callable[[UUID], str | None] = lambda _: None,
        epoch_of: Callable[[TopicPartition], int] = lambda _: -1,
        is_replica: Callable[[TopicPartition, int], bool] = lambda _partition, _node: True,
        reset_policy: str = "latest",
        options: ReaderOptions | None = None,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 52428800,
        max_partition_bytes: int = 1048576,
        buffer_bytes: int = 104857600,
        backoff: Callable[[int], float] = lambda _: 0.1,
        rack: str = "",
        read_replica_age_s: float = 300.0,
        has_sessions: bool = True,
        free_at: Callable[[int], float] = lambda _node: 0.0,
    ) -> None:
        options = options or ReaderOptions()
        self.options = options
        self.positions: dict[TopicPartition, PartitionPosition] = {}
        self.refusal: BaseException | None = None
        """Why the cluster refuses this client, or a broker cannot be understood, for the reader to raise once: an error
        that is not one partition's."""
        self._policy = OffsetResetStrategy(reset_policy, wall_ms)
        self._backoff = backoff
        self._leader_of = leader_of
        self._topic_of_id = topic_of_id
        self._read_replica_age_s = read_replica_age_s
        self._changes = PositionChanges()
        self._nodes: dict[int, NodeFetcher] = {}
        self._names: dict[UUID, str] = {}
        self._stale: set[str] = set()
        self._reserved_bytes = 0
        """What may come of the fetches in flight."""
        # A heap by time. The numbers keep positions, which have no order, from being compared.
        self._timers: list[tuple[float, int, PartitionPosition]] = []
        self._timer_numbers = count()
        self.next_deadline = inf
        self.lacks_room = False
        """The last :meth:`poll` fetched less than it would have, until something that is buffered has been read. (The
        same holds for positions without ``node`` whose own buffer is full.)"""
        self._topic_id_of = topic_id_of
        self._epoch_of = epoch_of
        self._is_replica = is_replica
        isolation_level = 1 if options.read_committed else 0
        self._limits = FetchLimits(max_wait_ms, min_bytes, max_bytes, max_partition_bytes, isolation_level, rack)
        self._buffer_bytes = buffer_bytes
        self._has_sessions = has_sessions
        self._free_at = free_at
        self._resets: dict[int, dict[TopicPartition, int]] = {}
        self._questions: dict[int, dict[TopicPartition, EpochQuery]] = {}

    # -- what the user says --------------------------------------------------------------------------------------------

    def assign(
        self, partitions: Iterable[TopicPartition], *, awaiting: Collection[TopicPartition] = frozenset()
    ) -> None:
        """Read these partitions and no others; ones that stay keep their positions. New ones of ``awaiting`` are
        neither fetched nor reset before :meth:`start` (or a seek) says where: their group's offsets are looked up."""
        wanted = list(dict.fromkeys(partitions))
        former = self.positions
        for partition in former.keys() - set(wanted):
            former[partition].release()
        self.positions = {
            partition: former.get(partition) or self._fresh(partition, partition in awaiting) for partition in wanted
        }

    def _fresh(self, partition: TopicPartition, is_awaiting: bool) -> PartitionPosition:
        position = PartitionPosition(partition, self._changes)
        if is_awaiting:
            position.await_start()
        else:
            self._reset_by_policy(position)
        return position

    def start(self, partition: TopicPartition, offset: int | None, leader_epoch: int = -1) -> None:
        """Read an awaiting partition from ``offset`` on, the record before it being of ``leader_epoch`` (-1: unknown).
        None: from where ``auto_offset_reset`` says. Nothing happens if it is no longer assigned, or no longer awaits
        this, since the user has said where meanwhile."""
        position = self.positions.get(partition)
        if position is None or not position.is_awaiting:
            return
        if offset is not None:
            position.seek(offset, leader_epoch)
        else:
            position.end_await()
            self._reset_by_policy(position)

    def refuse(self, error: BaseException) -> None:
        """The cluster refuses this client: :attr:`refusal`."""
        self.refusal = error

    def take_refusal(self) -> BaseException:
        """The error, which is the reader's to raise now."""
        error, self.refusal = self.refusal, None
        assert error is not None
        return error

    def position_of(self, partition: TopicPartition) -> PartitionPosition:
        """UnassignedPartitionError when it is not assigned."""
        found = self.positions.get(partition)
        if found is None:
            raise UnassignedPartitionError(f"{partition.topic}-{partition.partition} is not assigned to this consumer")
        return found

    # -- what the reader takes -----------------------------------------------------------------------------------------

    @property
    def has_ready(self) -> bool:
        """Whether :meth:`ready` has something."""
        return bool(self._changes.ready)

    def ready(self) -> PartitionPosition | None:
        """A partition with something to read, the others first the next time."""
        ready = self._changes.ready
        for position in ready:
            del ready[position]
            ready[position] = None
            return position
        return None

    def put_first(self, position: PartitionPosition) -> None:
        """It has had no turn: :meth:`ready` is to name it the next time."""
        ready = self._changes.ready
        if position in ready:
            self._changes.put_first(position)

    def after_read(self, position: PartitionPosition, fetched: CompletedFetch, generation: int) -> bool:
        """``fetched``, the first that is buffered, was read from. Whether that counts: else the position has become
        another meanwhile, or will be fetched again, and what was read is not to be handed out."""
        if position.generation != generation or not position.buffered or position.buffered[0] is not fetched:
            return False
        position.read_from(fetched)
        return True

    def after_fault(self, position: PartitionPosition, fetched: CompletedFetch, generation: int) -> None:
        """Reading ``fetched`` raised: what is buffered is dropped, and fetched again from the position on."""
        if position.generation == generation:
            position.go_on_from(fetched.position)

    # -- what there is to do -------------------------------------------------------------------------------------------

    def metadata_changed(self) -> None:
        """Leaders, their epochs, topic ids or replicas may be others than before."""
        for position in self.positions.values():
            position.touch()

    def poll(self, now: float) -> list[FetcherEffect]:
        """What to do now. To be called after everything that happens, and at ``next_deadline``."""
        timers, touched = self._timers, self._changes.touched
        self.lacks_room = False
        while timers and timers[0][0] <= now:
            position = heapq.heappop(timers)[2]
            position.rechecked(now)
            touched[position] = None
        while touched:
            position = next(iter(touched))
            del touched[position]
            self._place(position, now)
        self.next_deadline = timers[0][0] if timers else inf
        effects: list[FetcherEffect] = []
        for leader, timestamps in self._resets.items():
            effects.append(RequestOffsets(leader, timestamps, self._generations(timestamps)))
        self._resets = {}
        for questions in self._questions.values():
            effects.append(RequestEpochEnds(questions, self._generations(questions)))
        self._questions = {}
        for number, node in list(self._nodes.items()):
            call = node.next_fetch(now, self._free_at(number), self._room)
            if call is not None:
                self._reserved_bytes += call.reserved_bytes
                self._nodes[number] = self._nodes.pop(number)  # the others first the next time there is little room
                effects.append(call)
            self.next_deadline = min(self.next_deadline, node.next_deadline)
        if self._stale:
            effects.append(RefreshFetchMetadata(frozenset(self._stale)))
            self._stale = set()
        return effects

    def _generations(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.positions[partition].generation for partition in partitions}

    def close(self) -> list[SendFetch]:
        """The fetches that end the sessions at the brokers. Nothing is to be asked afterwards."""
        return [call for node in self._nodes.values() if (call := node.last_fetch()) is not None]

    def _place(self, position: PartitionPosition, now: float) -> None:
        """Have the position fetched where it is to be fetched now, and nowhere else."""
        partition = position.partition
        source = self._source(position, now)
        if position.node is not None and position.node != source:
            # What was assigned anew meanwhile comes later: a position that is released is touched before its successor.
            self._nodes[position.node].session.drop(partition)
        position.read_at(source)
        if source is None:
            return
        node = self._nodes.get(source)
        if node is None:
            node = self._nodes[source] = NodeFetcher(source, self._limits, self._backoff, self._has_sessions)
        topic_id = self._topic_id_of(partition.topic)
        self._names[topic_id] = partition.topic
        assert position.fetch_offset is not None and position.leader is not None
        listing = SessionPartition(
            position, position.generation, position.fetch_offset, position.leader.epoch, topic_id
        )
        if node.session.wanted.get(partition) != listing:
            node.session.want(listing)

    def _has_moved(self, position: PartitionPosition) -> bool:
        """It rests since a node said that it does not lead, and another leads as we know now."""
        refused_by = position.refused_by
        return refused_by is not None and self._leader_of(position.partition) not in (None, refused_by)

    def _source(self, position: PartitionPosition, now: float) -> int | None:
        """The node to fetch from; None while nothing is to be fetched, having seen to it that this will change."""
        partition = position.partition
        if self.positions.get(partition) is not position or position.error is not None:
            return None
        if position.retry_at > now and not self._has_moved(position):
            self._schedule_recheck(position, position.retry_at)
            return None
        is_to_be_found = position.reset_to is not None and not position.is_resetting
        if not is_to_be_found and (position.fetch_offset is None or position.is_validating):
            return None
        leader = self._leader_of(partition)
        if leader is None:
            self._stale.add(partition.topic)
            self._schedule_recheck(position, now + self._backoff(1))  # or earlier, with the new metadata
            return None
        if position.reset_to is not None:
            position.begin_reset()
            self._resets.setdefault(leader, {})[partition] = position.reset_to
            return None
        epoch = self._epoch_of(partition)
        now_leads = LeaderAndEpoch(leader, NO_EPOCH if epoch == position.distrusted_epoch else epoch)
        if position.leader != now_leads:
            position.lead_by(now_leads, validating=position.fetch_epoch >= 0 and now_leads.epoch >= 0)
            if position.is_validating:
                question = EpochQuery(leader, now_leads.epoch, position.fetch_epoch)
                self._questions.setdefault(leader, {})[partition] = question
                return None
        # Not wanted: the session forgets the partition. A broker that kept it, with its offset, would send the same
        # records with each answer.
        if position.is_paused or position.buffered_bytes >= self._limits.max_partition_bytes:
            return None
        if position.buffered and position.buffered[-1].error is not None:
            return None  # the reader has to meet it: what comes from there is the same again
        replica = position.read_replica
        if replica is None:
            return leader
        if now < position.read_replica_until and self._is_replica(partition, replica):
            self._schedule_recheck(position, position.read_replica_until)
            return replica
        position.leave_replica()
        return leader

    def _room(self, partitions: int) -> int:
        """The bytes that a fetch of so many partitions may bring; 0 when there is no room for it now."""
        used = sum(1 for node in self._nodes.values() if node.is_used)
        limits = self._limits
        share = max(min(limits.max_bytes, self._buffer_bytes // (2 * used)), 1)
        wanted = min(share, partitions * limits.max_partition_bytes)
        changes = self._changes
        left = self._buffer_bytes - changes.buffered_bytes - self._reserved_bytes
        if left < wanted and changes.buffered_bytes and not changes.ready:
            for position in self.positions.values():  # paused ones hold it all, and would not be read
                if position.buffered:
                    position.drop_buffer()
        if self._buffer_bytes - changes.buffered_bytes - self._reserved_bytes >= wanted:
            return wanted
        self.lacks_room = True
        return 0

    def _schedule_recheck(self, position: PartitionPosition, when: float) -> None:
        """Look at the position then or earlier. One looked at earlier is not noted twice, or each reason to
        look would have timers of its own; that look asks again if there is still something to wait for."""
        if position.recheck_by(when):
            heapq.heappush(self._timers, (when, next(self._timer_numbers), position))

    def _back_off(self, position: PartitionPosition, now: float, refused_by: int | None = None) -> None:
        """Leave the position alone for a while: longer with each error in a row."""
        position.back_off(now + self._backoff(position.failures + 1), refused_by)

    def _reset_by_policy(self, position: PartitionPosition) -> None:
        if (timestamp := self._policy.timestamp()) is not None:
            position.reset(timestamp)
            return
        position.set_error(
            NoOffsetForPartitionError(
                f"{_name(position)} has no position: seek, or set auto_offset_reset to other than 'none'"
            )
        )

    # -- fetches -------------------------------------------------------------------------------------------------------

    def fetched(self, call: SendFetch, response: FetchResponse, now: float) -> bool:
        """The node answered. Whether there is something new for the reader."""
        self._reserved_bytes -= call.reserved_bytes
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

    def _take(self, node: int, listing: SessionPartition, entry: FetchResponse.PartitionData, now: float) -> bool:
        position = listing.position
        if entry.error_code:
            return self._refused(node, listing, entry.error_code, now)
        position.note_offsets(entry.high_watermark, entry.last_stable_offset, entry.log_start_offset)
        if entry.preferred_read_replica >= 0:
            # The broker answers at once, without records. A follower learns of the high watermark with its own next
            # fetch, so single records come up to 0.5 s later from it (seen on 4.3.0).
            position.prefer_replica(entry.preferred_read_replica, now + self._read_replica_age_s)
        data = entry.records
        if data is None or not len(data):
            return False
        buffer = data if isinstance(data, (bytes, bytearray, memoryview)) else b"".join(data)
        position.buffer(CompletedFetch(position.partition, listing.offset, buffer, entry.aborted_transactions or ()))
        return True

    def _refused(self, node: int, listing: SessionPartition, code: int, now: float) -> bool:
        position = listing.position
        error = for_code(code)(f"{_name(position)} at offset {listing.offset}")
        action = FETCH_ERROR_ACTIONS.action_for(error)
        if action is FetchErrorAction.RESET:
            if position.read_replica is not None:  # it may lag behind the leader, which knows
                position.leave_replica()
            elif position.buffered:  # the reader is not there yet, and may never come
                self._back_off(position, now)
            elif self._policy.resets:
                log.info("%s: resetting the offset by auto_offset_reset", error)
                self._reset_by_policy(position)
            else:
                position.set_error(
                    for_code(code)(
                        f"{_name(position)} has no offset {listing.offset} (any more): seek, or set "
                        "auto_offset_reset to other than 'none'"
                    )
                )
            return position.error is not None
        if code in EPOCH_CODES and position.failures >= EPOCH_ATTEMPTS:
            position.distrust(listing.leader_epoch)
        if action is FetchErrorAction.RAISE:
            position.set_error(error)
            self._back_off(position, now)
            return True
        if action is FetchErrorAction.MOVED:
            self._stale.add(position.partition.topic)
            position.leave_replica()
            # Another leader may be known by now, from this very response (KIP-951): that one need not be waited for.
            if self._leader_of(position.partition) not in (None, node):
                return False
            self._back_off(position, now, refused_by=node)
            return False
        if position.failures == 0:
            log.info("%s: fetch failed, retrying", error)
        self._back_off(position, now)
        return False

    def failed(self, call: SendFetch, error: BaseException, now: float) -> bool:
        """There is no answer. Whether there is something new for the reader (an error that will not go away)."""
        self._reserved_bytes -= call.reserved_bytes
        node = self._nodes[call.node]
        node.failed(call, now)
        if call.is_sessionless and getattr(error, "retriable", False):
            return False  # the session's own fetch will meet the same, if there is something to be met
        positions = [listing.position for listing in node.session.wanted.values()]
        if getattr(error, "invalid_metadata", False):
            self._stale.update(position.partition.topic for position in positions)
        for position in positions:
            if position.read_replica == call.node:
                position.leave_replica()
        if not positions or getattr(error, "retriable", False):
            return False
        self.refusal = error
        return True

    # -- offsets and epochs --------------------------------------------------------------------------------------------

    def offsets_received(
        self, effect: RequestOffsets, told: Mapping[TopicPartition, ResolvedOffset | BaseException], now: float
    ) -> bool:
        """Where the timestamps are. Whether there is something new for the reader."""
        news = False
        for position in self._current(effect.generations):
            answer = told[position.partition]
            if isinstance(answer, ResolvedOffset):
                position.seek(answer.offset)
                news = True
                continue
            position.end_reset()
            if not getattr(answer, "retriable", False):
                position.set_error(answer)
                news = True
                continue
            if position.failures == 0:
                log.info("resetting the offset of %s failed, retrying: %s", _name(position), answer)
            self._stale.add(position.partition.topic)
            self._back_off(position, now, refused_by=effect.leader)
        return news

    def epoch_ends_received(
        self, effect: RequestEpochEnds, told: Mapping[TopicPartition, EpochEnd | BaseException], now: float
    ) -> bool:
        """Where the epochs ended. Whether there is something new for the reader."""
        news = False
        for position in self._current(effect.generations):
            if not position.is_validating:
                continue
            position.end_validation()
            answer = told[position.partition]
            if isinstance(answer, EpochEnd):
                news = self._validate(position, answer) or news
            # The hint to a new leader (KIP-951) may come up to 0.2 s before that leader knows that it leads (seen on
            # 4.3.0): it refuses this request, which is sent again after ``retry_backoff_ms``, as in Java.
            elif not isinstance(answer, UnsupportedVersionError):  # else: it cannot be checked, and counts as valid
                position.invalidate()
                if getattr(answer, "retriable", False):
                    self._stale.add(position.partition.topic)
                    self._back_off(position, now)
                else:
                    position.set_error(answer)
                    news = True
        return news

    def _validate(self, position: PartitionPosition, end: EpochEnd) -> bool:
        """What was read is still there, or not: as in Java, the position goes back to where the logs part if positions
        may be reset, else an error is raised to the reader."""
        offset, fetch_offset = position.position, position.fetch_offset
        assert offset is not None and fetch_offset is not None
        is_known = end.leader_epoch >= 0 and end.end_offset >= 0
        if is_known and end.end_offset >= fetch_offset:
            return False
        if is_known and end.end_offset >= offset:
            # what was handed out is there; what was not, and is gone, was never seen by the user
            position.drop_buffer()
            return False
        parted = OffsetAndMetadata(end.end_offset, "", end.leader_epoch) if is_known else None
        error = LogTruncationError({position.partition: parted}, {position.partition: offset})
        if not self._policy.resets:
            position.invalidate()  # what the reader does not answer with a seek is found again
            position.set_error(error)
            return True
        log.warning("%s", error)
        if parted is None:
            self._reset_by_policy(position)
        else:
            position.seek_validated(parted.offset, parted.leader_epoch)
        return False

    def _current(self, generations: Mapping[TopicPartition, int]) -> Iterable[PartitionPosition]:
        for partition, generation in generations.items():
            position = self.positions.get(partition)
            if position is not None and position.generation == generation:
                yield position
