"""The consumer's machine: which fetches go where and when, and what becomes of the answers.

    poll(now) ──► effects: SendFetch, FindOffsets, AskEpochs, RefreshMetadata; and ``next_deadline``
    fetched(call, response, now) · failed(call, error, now)      once for each SendFetch
    offsets_told(...)                                            once for each FindOffsets
    epochs_told(...)                                             once for each AskEpochs
    metadata_changed()                                           leaders may be others

Each broker has a session and a fetch in flight (``node.py``, ``session.py``), with every partition there that may have
more buffered. Positions and epochs are asked of each leader by itself, too: one that is silent, or that is not there,
holds up its own partitions and no others. Reading ahead is bounded for each partition, which is left out when it has
reached its bound until its reader has come closer; and in all: what is buffered and what may come of the fetches in
flight is never more than ``buffer_bytes``, but for single batches that are larger than what they have room in.

Work is done for what has changed: ``positions.py`` notes what was touched, and nothing here goes through all partitions
but assignments and new metadata.

Not a machine for several threads: a driver holds one lock around every call. Answers are decoded by the reader, outside
of it (``fetched.py``).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable
from math import inf
from uuid import UUID

from kafka.core.consume.answers import Answers
from kafka.core.consume.effects import AskEpochs, Effect, FindOffsets, RefreshMetadata
from kafka.core.consume.epochs import EpochQuestion
from kafka.core.consume.fetched import Fetched, ReaderOptions
from kafka.core.consume.node import FetchLimits, FetchNode, SendFetch
from kafka.core.consume.policy import ResetPolicy
from kafka.core.consume.positions import NO_EPOCH, LeaderAndEpoch, PartitionPosition
from kafka.core.consume.session import Listing
from kafka.errors import UnassignedPartitionError
from kafka.structs import TopicPartition


class Fetcher(Answers):
    """See the module; what answers do is ``answers.py``. Times in seconds, sizes in bytes.

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
        policy = ResetPolicy(reset_policy, wall_ms)
        super().__init__(options, policy, backoff, leader_of, topic_of_id, read_replica_age_s)
        self.next_deadline = inf
        self.lacks_room = False
        """The last :meth:`poll` fetched less than it would have, until something that is buffered has been read. (So do
        positions without ``node`` whose own buffer is full.)"""
        self._topic_id_of = topic_id_of
        self._epoch_of = epoch_of
        self._is_replica = is_replica
        isolation_level = 1 if options.read_committed else 0
        self._limits = FetchLimits(max_wait_ms, min_bytes, max_bytes, max_partition_bytes, isolation_level, rack)
        self._buffer_bytes = buffer_bytes
        self._has_sessions = has_sessions
        self._free_at = free_at
        self._resets: dict[int, dict[TopicPartition, int]] = {}
        self._questions: dict[int, dict[TopicPartition, EpochQuestion]] = {}

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
            position.is_awaiting = True
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
            position.is_awaiting = False
            self._reset_by_policy(position)

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
            self._changes.ready = {position: None, **ready}

    def after_read(self, position: PartitionPosition, fetched: Fetched, generation: int) -> bool:
        """``fetched``, the first that is buffered, was read from. Whether that counts: else the position has become
        another meanwhile, or will be fetched again, and what was read is not to be handed out."""
        if position.generation != generation or not position.buffered or position.buffered[0] is not fetched:
            return False
        position.read_from(fetched)
        return True

    def after_fault(self, position: PartitionPosition, fetched: Fetched, generation: int) -> None:
        """Reading ``fetched`` raised: what is buffered is dropped, and fetched again from the position on."""
        if position.generation == generation:
            position.position = fetched.position
            position.drop_buffer()

    # -- what there is to do -------------------------------------------------------------------------------------------

    def metadata_changed(self) -> None:
        """Leaders, their epochs, topic ids or replicas may be others than before."""
        for position in self.positions.values():
            position.touch()

    def poll(self, now: float) -> list[Effect]:
        """What to do now. To be called after everything that happens, and at ``next_deadline``."""
        timers, touched = self._timers, self._changes.touched
        self.lacks_room = False
        while timers and timers[0][0] <= now:
            position = heapq.heappop(timers)[2]
            if position.look_at <= now:
                position.look_at = inf
            touched[position] = None
        while touched:
            position = next(iter(touched))
            del touched[position]
            self._place(position, now)
        self.next_deadline = timers[0][0] if timers else inf
        effects: list[Effect] = []
        for leader, timestamps in self._resets.items():
            effects.append(FindOffsets(leader, timestamps, self._generations(timestamps)))
        self._resets = {}
        for questions in self._questions.values():
            effects.append(AskEpochs(questions, self._generations(questions)))
        self._questions = {}
        for number, node in list(self._nodes.items()):
            call = node.next_fetch(now, self._free_at(number), self._room)
            if call is not None:
                self._room_bytes += call.room_bytes
                self._nodes[number] = self._nodes.pop(number)  # the others first the next time there is little room
                effects.append(call)
            self.next_deadline = min(self.next_deadline, node.next_deadline)
        if self._stale:
            effects.append(RefreshMetadata(frozenset(self._stale)))
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
        position.node = source
        if source is None:
            return
        node = self._nodes.get(source)
        if node is None:
            node = self._nodes[source] = FetchNode(source, self._limits, self._backoff, self._has_sessions)
        topic_id = self._topic_id_of(partition.topic)
        self._names[topic_id] = partition.topic
        assert position.fetch_offset is not None and position.leader is not None
        listing = Listing(position, position.generation, position.fetch_offset, position.leader.epoch, topic_id)
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
            self._look_again(position, position.retry_at)
            return None
        is_to_be_found = position.reset_to is not None and not position.is_resetting
        if not is_to_be_found and (position.fetch_offset is None or position.is_validating):
            return None
        leader = self._leader_of(partition)
        if leader is None:
            self._stale.add(partition.topic)
            self._look_again(position, now + self._backoff(1))  # or earlier, with the new metadata
            return None
        if position.reset_to is not None:
            position.is_resetting = True
            self._resets.setdefault(leader, {})[partition] = position.reset_to
            return None
        epoch = self._epoch_of(partition)
        now_leads = LeaderAndEpoch(leader, NO_EPOCH if epoch == position.distrusted_epoch else epoch)
        if position.leader != now_leads:
            position.leader = now_leads
            position.read_replica = None
            if position.fetch_epoch >= 0 and now_leads.epoch >= 0:
                position.is_validating = True
                question = EpochQuestion(leader, now_leads.epoch, position.fetch_epoch)
                self._questions.setdefault(leader, {})[partition] = question
                return None
        if position.is_paused or position.buffered_bytes >= self._limits.max_partition_bytes:
            return None
        if position.buffered and position.buffered[-1].error is not None:
            return None  # the reader has to meet it: what comes from there is the same again
        replica = position.read_replica
        if replica is None:
            return leader
        if now < position.read_replica_until and self._is_replica(partition, replica):
            self._look_again(position, position.read_replica_until)
            return replica
        position.read_replica = None
        return leader

    def _room(self, partitions: int) -> int:
        """The bytes that a fetch of so many partitions may bring; 0 when there is no room for it now."""
        used = sum(1 for node in self._nodes.values() if node.is_used)
        limits = self._limits
        share = max(min(limits.max_bytes, self._buffer_bytes // (2 * used)), 1)
        wanted = min(share, partitions * limits.max_partition_bytes)
        changes = self._changes
        left = self._buffer_bytes - changes.buffered_bytes - self._room_bytes
        if left < wanted and changes.buffered_bytes and not changes.ready:
            for position in self.positions.values():  # paused ones hold it all, and nobody would ever take it
                if position.buffered:
                    position.drop_buffer()
        if self._buffer_bytes - changes.buffered_bytes - self._room_bytes >= wanted:
            return wanted
        self.lacks_room = True
        return 0
