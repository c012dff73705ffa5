"""The consumer's machine: which fetches go where and when, and what becomes of the answers.

    poll(now) ──► effects: SendFetch, FindOffsets, RefreshMetadata; and ``next_deadline``
    fetched(call, response, now) · failed(call, error, now)      once for each SendFetch
    offsets_found(...) · offsets_failed(...)                     once for each FindOffsets

One fetch is in flight for each leader. It asks for every partition there that may have more buffered: reading ahead is
bounded for each partition and in all, and a partition that has reached its bound is left out until its reader has come
closer. A fetch from which some are left out is not held long by the broker, since those may be wanted any moment.

Not a machine for several threads: a driver holds one lock around every call. Answers are decoded by the reader, outside
of it (``fetched.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from kafka.core.consume.fetched import Fetched, ReaderOptions
from kafka.core.consume.offsets import FoundOffset
from kafka.core.consume.positions import EARLIEST, LATEST, PartitionPosition
from kafka.core.consume.record import ConsumerRecord
from kafka.errors import (
    IllegalStateError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    for_code,
)
from kafka.protocol.fetch import FetchRequest, FetchResponse
from kafka.structs import TopicPartition
from kafka.wire.types import ZERO_UUID

FIRST_VERSION_WITH_IDS: Final = 13
SHORT_WAIT_MS: Final = 50
"""How long the broker may hold a fetch from which partitions were left out."""

RESET_POLICIES: Final[Mapping[str, int | None]] = {"latest": LATEST, "earliest": EARLIEST, "none": None}


class Asked(NamedTuple):
    """A partition in a fetch: asked for from ``offset`` on."""

    position: PartitionPosition
    generation: int
    offset: int


class SendFetch(NamedTuple):
    """Send ``request`` to ``node``, in a version up to ``max_version`` (None: any)."""

    node: int
    request: FetchRequest
    asked: dict[TopicPartition, Asked]
    max_version: int | None


class FindOffsets(NamedTuple):
    """Look up the offsets of these timestamps; ``generations`` to be handed back."""

    timestamps: dict[TopicPartition, int]
    generations: dict[TopicPartition, int]


class RefreshMetadata(NamedTuple):
    """What is known of these topics is out of date or missing."""

    topics: frozenset[str]


Effect = SendFetch | FindOffsets | RefreshMetadata


class Fetcher:
    """See the module. Times in seconds, sizes in bytes. ``leader_of`` gives a node id or None, ``topic_id_of`` an id or
    the zero one, ``free_at(node)`` until when a node wants no fetches (KIP-219; 0: now is fine)."""

    def __init__(
        self,
        *,
        leader_of: Callable[[TopicPartition], int | None],
        topic_id_of: Callable[[str], UUID],
        topic_of_id: Callable[[UUID], str | None] = lambda _: None,
        reset_policy: str = "latest",
        options: ReaderOptions | None = None,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 52428800,
        max_partition_bytes: int = 1048576,
        retry_backoff_s: float = 0.1,
        rack: str = "",
        free_at: Callable[[int], float] = lambda _node: 0.0,
    ) -> None:
        self.options = options or ReaderOptions()
        self.positions: dict[TopicPartition, PartitionPosition] = {}
        self.next_deadline = inf
        self.refusal: BaseException | None = None
        """Why the cluster does not let us in, for the reader to raise once; not one partition's."""
        self._leader_of = leader_of
        self._topic_id_of = topic_id_of
        self._topic_of_id = topic_of_id
        self._reset_to = RESET_POLICIES[reset_policy]
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._max_partition_bytes = max_partition_bytes
        self._retry_backoff_s = retry_backoff_s
        self._rack = rack
        self._free_at = free_at
        self._in_flight: set[int] = set()
        self._stale: set[str] = set()
        self._paused_nodes: dict[int, float] = {}
        """Nodes that are not to be asked before, since they failed."""

    # -- what the user says --------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others; ones that stay keep their positions."""
        wanted = list(dict.fromkeys(partitions))
        former = self.positions
        for partition in former.keys() - set(wanted):
            former[partition].generation += 1
        self.positions = {partition: former.get(partition) or self._fresh(partition) for partition in wanted}

    def _fresh(self, partition: TopicPartition) -> PartitionPosition:
        position = PartitionPosition(partition)
        self._reset_by_policy(position, None)
        return position

    def position_of(self, partition: TopicPartition) -> PartitionPosition:
        """IllegalStateError when it is not assigned."""
        found = self.positions.get(partition)
        if found is None:
            raise IllegalStateError(f"{partition.topic}-{partition.partition} is not assigned to this consumer")
        return found

    def _reset_by_policy(self, position: PartitionPosition, why: BaseException | None) -> None:
        if self._reset_to is not None:
            position.reset(self._reset_to)
            return
        topic, number = position.partition
        position.error = why or NoOffsetForPartitionError(
            f"{topic}-{number} has no position: seek, or set auto_offset_reset to other than 'none'"
        )

    # -- what the reader takes -----------------------------------------------------------------------------------------

    def ready(self) -> PartitionPosition | None:
        """A partition with something to read, the others first the next time."""
        for partition, position in self.positions.items():
            if position.is_ready:
                self.positions[partition] = self.positions.pop(partition)
                return position
        return None

    def after_read(self, position: PartitionPosition, fetched: Fetched, generation: int) -> None:
        """``fetched``, the first that is buffered, was read from."""
        if position.generation != generation or not position.buffered or position.buffered[0] is not fetched:
            return
        position.position = fetched.position
        if fetched.is_exhausted:
            position.buffered.popleft()
            position.buffered_bytes -= fetched.size_bytes

    def after_fault(self, position: PartitionPosition, fetched: Fetched, generation: int) -> None:
        """Reading ``fetched`` raised: what is buffered is dropped, and fetched again from the position on."""
        if position.generation == generation:
            position.seek(fetched.position)

    # -- what there is to do -------------------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Effect]:
        """What to do now. To be called after everything that happens, and at ``next_deadline``."""
        self.next_deadline = inf
        effects: list[Effect] = []
        resets: dict[TopicPartition, int] = {}
        by_node: dict[int, list[PartitionPosition]] = {}
        crowded: set[int] = set()
        buffered_bytes = sum(position.buffered_bytes for position in self.positions.values())
        for partition, position in self.positions.items():
            if position.is_fetching or position.is_resetting or position.error is not None:
                continue
            if position.retry_at > now:
                self._wake_at(position.retry_at)
                continue
            if position.reset_to is not None:
                resets[partition] = position.reset_to
                position.is_resetting = True
                continue
            if position.is_paused or position.fetch_offset is None:
                continue
            node = self._leader_of(partition)
            if node is None:
                self._stale.add(partition.topic)
                self._wake_at(now + self._retry_backoff_s)  # or earlier, with the new metadata
                continue
            if node in self._in_flight:
                continue
            paused_until = max(self._paused_nodes.get(node, 0.0), self._free_at(node))
            if paused_until > now:
                self._wake_at(paused_until)
            elif position.buffered_bytes >= self._max_partition_bytes or buffered_bytes >= self._max_bytes:
                crowded.add(node)
            else:
                by_node.setdefault(node, []).append(position)
        if resets:
            generations = {partition: self.positions[partition].generation for partition in resets}
            effects.append(FindOffsets(resets, generations))
        effects += [self._fetch(node, positions, node in crowded) for node, positions in by_node.items()]
        if self._stale:
            effects.append(RefreshMetadata(frozenset(self._stale)))
            self._stale = set()
        return effects

    def _wake_at(self, when: float) -> None:
        if when < self.next_deadline:
            self.next_deadline = when

    def _fetch(self, node: int, positions: list[PartitionPosition], is_crowded: bool) -> SendFetch:
        topics: dict[str, FetchRequest.FetchTopic] = {}
        asked: dict[TopicPartition, Asked] = {}
        max_version: int | None = None
        for position in positions:
            name, number = position.partition
            offset = position.fetch_offset
            assert offset is not None
            topic = topics.get(name)
            if topic is None:
                topic_id = self._topic_id_of(name)
                if topic_id == ZERO_UUID:
                    max_version = FIRST_VERSION_WITH_IDS - 1
                topic = topics[name] = FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[])
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=number, fetch_offset=offset, partition_max_bytes=self._max_partition_bytes
                )
            )
            position.is_fetching = True
            asked[position.partition] = Asked(position, position.generation, offset)
        self._in_flight.add(node)
        request = FetchRequest(
            max_wait_ms=min(self._max_wait_ms, SHORT_WAIT_MS) if is_crowded else self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=1 if self.options.read_committed else 0,
            topics=list(topics.values()),
            rack_id=self._rack,
        )
        return SendFetch(node, request, asked, max_version)

    # -- answers -------------------------------------------------------------------------------------------------------

    def fetched(self, call: SendFetch, response: FetchResponse, now: float) -> bool:
        """The node answered. Whether there is something new for the reader."""
        self._end(call)
        if response.error_code:
            self._paused_nodes[call.node] = now + self._retry_backoff_s
            if for_code(response.error_code).invalid_metadata:
                self._stale.update(partition.topic for partition in call.asked)
            return False
        names = {topic.topic_id: topic.topic for topic in call.request.topics}
        news = False
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id) or self._topic_of_id(topic.topic_id)
            if name is None:
                continue
            for entry in topic.partitions:
                asked = call.asked.get(TopicPartition(name, entry.partition_index))
                if asked is not None and asked.position.generation == asked.generation:
                    news = self._take(call.node, asked, entry, now) or news
        return news

    def _take(self, node: int, asked: Asked, entry: FetchResponse.PartitionData, now: float) -> bool:
        position = asked.position
        if entry.error_code:
            return self._refused(node, asked, entry.error_code, now)
        position.highwater = entry.high_watermark
        position.last_stable_offset = entry.last_stable_offset
        position.log_start_offset = entry.log_start_offset
        data = entry.records
        if data is None or not len(data):
            return False
        buffer = data if isinstance(data, (bytes, bytearray, memoryview)) else b"".join(data)
        fetched = Fetched(position.partition, asked.offset, buffer, entry.aborted_transactions or ())
        position.buffer(fetched)
        return True

    def _refused(self, node: int, asked: Asked, code: int, now: float) -> bool:
        position = asked.position
        topic, number = position.partition
        error = for_code(code)(f"{topic}-{number} at offset {asked.offset}")
        if isinstance(error, OffsetOutOfRangeError):
            if position.buffered:  # the reader is not there yet, and may never come
                position.retry_at = now + self._retry_backoff_s
            else:
                self._reset_by_policy(position, error)
            return position.error is not None
        if error.invalid_metadata:
            self._stale.add(topic)
        if error.retriable:
            # Another leader may be known by now, told in this very answer (KIP-951): that one need not be waited for.
            if self._leader_of(position.partition) in (None, node):
                position.retry_at = now + self._retry_backoff_s
            return False
        position.error = error
        return True

    def failed(self, call: SendFetch, error: BaseException, now: float) -> bool:
        """There is no answer. Whether there is something new for the reader (an error that will not go away)."""
        self._end(call)
        if getattr(error, "invalid_metadata", False):
            self._stale.update(partition.topic for partition in call.asked)
        if getattr(error, "retriable", False):
            self._paused_nodes[call.node] = now + self._retry_backoff_s
            return False
        for asked in call.asked.values():
            if asked.position.generation == asked.generation:
                asked.position.error = error
        return True

    def _end(self, call: SendFetch) -> None:
        self._in_flight.discard(call.node)
        for asked in call.asked.values():
            asked.position.is_fetching = False

    def offsets_found(self, effect: FindOffsets, found: Mapping[TopicPartition, FoundOffset]) -> None:
        """The answer to :class:`FindOffsets`."""
        for partition, generation in effect.generations.items():
            position = self.positions.get(partition)
            if position is not None and position.generation == generation:
                position.seek(found[partition].offset)

    def offsets_failed(self, effect: FindOffsets, error: BaseException, now: float) -> bool:
        """There was none. Whether there is something new for the reader."""
        news = False
        for partition, generation in effect.generations.items():
            position = self.positions.get(partition)
            if position is None or position.generation != generation:
                continue
            position.is_resetting = False
            if getattr(error, "retriable", False):
                position.retry_at = now + self._retry_backoff_s
            else:
                position.error = error
                news = True
        return news


Records = dict[TopicPartition, list[ConsumerRecord]]
