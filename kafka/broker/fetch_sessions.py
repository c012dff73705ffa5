"""Incremental fetch sessions (KIP-227): requests and responses contain only the partitions that have changed.

    epoch 0     a full fetch of all partitions, which creates a session; ends the session that it names
    epoch -1    a full fetch without a session; ends the session that it names
    epoch n     the session's n-th fetch: partitions that are new or changed, and forgotten ones; the response has those
                with records, errors, a new high watermark or a new log start offset

    FetchSessions.begin(request) -> FetchContext -> wanted ... -> FetchContext.finish(rows) -> rows to be sent

Sessions belong to no connection. There are ``max.incremental.fetch.session.cache.slots``, split into eight shards that
take turns with new sessions, as in Apache Kafka 4.3.0. A full shard evicts its least recently used session if that was
not used for two minutes, else the smallest one that is older than two minutes and smaller than the new one; else the
new fetch gets no session, and its client goes on with full fetches. Apache Kafka has no bound like
:data:`MAX_PARTITIONS`, for all sessions together. There are no followers, so none has priority.

A partition that returned records is moved behind the others, so that all are served when ``max_bytes`` is short.

``handlers/fetch.py`` reads the logs. Pure: time and the random source are arguments.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from kafka.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError
from kafka.protocol.constants import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, NO_SESSION
from kafka.protocol.fetch import FetchRequest, FetchResponse

IDS_SINCE: Final = 13
"""The first version that names topics by their ids."""

SHARDS: Final = 8
SHARD_IDS: Final = (2**31 - 1) // SHARDS
EVICTION_S: Final = 120.0
MAX_PARTITIONS: Final = 250_000
MAX_NAME_LENGTH: Final = 249
"""No topic has a longer name, so no session remembers one."""

Key = tuple["str | UUID", int]
"""A partition in its session: by the topic's name before version 13, by its id since."""


class FetchPartitionState:
    """One partition that a client fetches: its last request, and, in a session, the last response's offsets.

    ``topic`` is empty for an unknown topic id; once known, the name stays, as in Apache Kafka.
    """

    __slots__ = ("asked", "high_watermark", "log_start", "number", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: UUID, asked: FetchRequest.FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.number = asked.partition
        self.asked = asked
        self.high_watermark = -1
        self.log_start = -1

    def client_knows(self, high_watermark: int, log_start: int) -> bool:
        """Whether the client knows these two."""
        return self.high_watermark == high_watermark and self.log_start == log_start

    def take(self, data: FetchResponse.PartitionData) -> bool:
        """Note what the response has to say; whether there is anything. After an error, all of it."""
        is_new = (
            bool(data.records)
            or data.error_code != 0
            or data.diverging_epoch.epoch >= 0
            or not self.client_knows(data.high_watermark, data.log_start_offset)
        )
        self.high_watermark = -1 if data.error_code else data.high_watermark
        self.log_start = data.log_start_offset
        return is_new


Row = tuple[FetchPartitionState, FetchResponse.PartitionData]


class FetchSession:
    """One client's session: partitions in the order in which they are read."""

    __slots__ = ("by_id", "created_at", "epoch", "evictable_size", "partitions", "session_id", "used_at")

    def __init__(self, session_id: int, by_id: bool, partitions: dict[Key, FetchPartitionState], now: float) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.partitions = partitions
        self.epoch = 1
        """What the next fetch has to say."""
        self.created_at = now
        self.used_at = now
        self.evictable_size: int | None = None
        """Its size when it was used last, if it was old enough by then to give way to a larger one."""

    def update(self, request: FetchRequest) -> None:
        """Take what a fetch adds, changes and forgets."""
        for key, wanted in requested_partitions(request, self.by_id).items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = wanted
            else:
                known.asked = wanted.asked
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                self.partitions.pop((topic.topic_id if self.by_id else topic.topic, number), None)

    def turn_to_end(self, wanted: FetchPartitionState) -> None:
        """It had its turn."""
        key: Key = (wanted.topic_id if self.by_id else wanted.topic, wanted.number)
        found = self.partitions.pop(key, None)
        if found is not None:
            self.partitions[key] = found


class FetchContext:
    """One fetch: what it wants, and what its response has. Without a session that is everything."""

    is_incremental = False

    def __init__(self, wanted: Sequence[FetchPartitionState]) -> None:
        self.wanted = wanted

    def finish(self, rows: list[Row], now: float) -> tuple[int, list[Row]]:
        """The session's id and the rows that are to be sent, of those that were read. Errors:
        InvalidFetchSessionEpochError (71) when another fetch of the session has come meanwhile."""
        return NO_SESSION, rows


class _FullContext(FetchContext):
    def __init__(self, sessions: FetchSessions, partitions: dict[Key, FetchPartitionState], by_id: bool) -> None:
        super().__init__(list(partitions.values()))
        self._sessions = sessions
        self._by_id = by_id

    def finish(self, rows: list[Row], now: float) -> tuple[int, list[Row]]:
        partitions: dict[Key, FetchPartitionState] = {}
        for wanted, data in rows:
            wanted.take(data)
            partitions[wanted.topic_id if self._by_id else wanted.topic, wanted.number] = wanted
        return self._sessions.create(partitions, self._by_id, now), rows


class _IncrementalContext(FetchContext):
    is_incremental = True

    def __init__(self, session: FetchSession) -> None:
        super().__init__(list(session.partitions.values()))
        self._session = session
        self._epoch = session.epoch

    def finish(self, rows: list[Row], now: float) -> tuple[int, list[Row]]:
        session = self._session
        if session.epoch != self._epoch:
            raise InvalidFetchSessionEpochError(f"session {session.session_id} has gone on to epoch {session.epoch}")
        told = []
        for row in rows:
            wanted, data = row
            if wanted.take(data):
                told.append(row)
                if data.records:
                    session.turn_to_end(wanted)
        return session.session_id, told


class _Shard:
    """Some of the sessions, the least recently used one first."""

    def __init__(self, number: int, slots: int) -> None:
        self.number = number
        self.slots = slots
        self.sessions: dict[int, FetchSession] = {}

    def touch(self, session: FetchSession, now: float) -> None:
        session.used_at = now
        session.evictable_size = len(session.partitions) if now - session.created_at > EVICTION_S else None
        self.sessions[session.session_id] = self.sessions.pop(session.session_id)

    def make_room(self, size: int, now: float) -> bool:
        """Whether there is a place for a session of ``size`` partitions; one that is worth less may go for it."""
        if len(self.sessions) < self.slots:
            return True
        oldest = next(iter(self.sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.used_at > EVICTION_S:
            del self.sessions[oldest.session_id]
            return True
        smallest = min(
            (one for one in self.sessions.values() if one.evictable_size is not None),
            key=lambda one: (one.evictable_size, one.session_id),
            default=None,
        )
        if smallest is None or size <= (smallest.evictable_size or 0):
            return False
        del self.sessions[smallest.session_id]
        return True


class FetchSessions:
    """All sessions of a broker. ``slots``: how many there may be; ``now`` is monotonic s everywhere."""

    def __init__(self, slots: int, rng: random.Random, max_partitions: int = MAX_PARTITIONS) -> None:
        self._shards = [_Shard(number, slots // SHARDS) for number in range(SHARDS)]
        self._rng = rng
        self._next_shard = 0
        self._max_partitions = max_partitions

    def __len__(self) -> int:
        return sum(len(shard.sessions) for shard in self._shards)

    @property
    def partition_count(self) -> int:
        """Partitions in all sessions."""
        return sum(len(session.partitions) for shard in self._shards for session in shard.sessions.values())

    def begin(self, request: FetchRequest, version: int, now: float) -> FetchContext:
        """What a fetch wants. Errors, for the whole of it: FetchSessionIdNotFoundError (70),
        InvalidFetchSessionEpochError (71), FetchSessionTopicIdError (106)."""
        by_id = version >= IDS_SINCE
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._shard(session_id).sessions.pop(session_id, None)
            partitions = requested_partitions(request, by_id)
            if epoch == FINAL_EPOCH or _has_long_name(request):
                return FetchContext(list(partitions.values()))
            return _FullContext(self, partitions, by_id)
        shard = self._shard(session_id)
        session = shard.sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFoundError(f"there is no session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpochError(f"session {session_id} is at epoch {session.epoch}, not {epoch}")
        if session.by_id != by_id:
            raise FetchSessionTopicIdError(f"session {session_id} names its topics otherwise than version {version}")
        size = len(session.partitions)
        if _has_long_name(request):
            del shard.sessions[session_id]
            raise FetchSessionIdNotFoundError(f"session {session_id} has ended with a name that no topic can have")
        session.update(request)
        if not session.partitions:
            del shard.sessions[session_id]
            # what it has named is read a last time
            return FetchContext(list(requested_partitions(request, by_id).values()))
        if len(session.partitions) > size and self.partition_count > self._max_partitions:
            del shard.sessions[session_id]
            raise FetchSessionIdNotFoundError(f"session {session_id} has become too large")
        shard.touch(session, now)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        return _IncrementalContext(session)

    def create(self, partitions: dict[Key, FetchPartitionState], by_id: bool, now: float) -> int:
        """A new session's id, or 0 when there is no room for it."""
        shard = self._shards[self._next_shard]
        self._next_shard = (self._next_shard + 1) % SHARDS
        if self.partition_count + len(partitions) > self._max_partitions or not shard.make_room(len(partitions), now):
            return NO_SESSION
        session_id = self._new_id(shard)
        shard.sessions[session_id] = FetchSession(session_id, by_id, partitions, now)
        return session_id

    def get(self, session_id: int) -> FetchSession | None:
        """The session of this id, if there is one."""
        return self._shard(session_id).sessions.get(session_id)

    def _shard(self, session_id: int) -> _Shard:
        return self._shards[max(0, min(session_id // SHARD_IDS, SHARDS - 1))]

    def _new_id(self, shard: _Shard) -> int:
        while True:
            found = shard.number * SHARD_IDS + self._rng.randrange(1, SHARD_IDS)
            if found not in shard.sessions:
                return found


def _has_long_name(request: FetchRequest) -> bool:
    return any(len(topic.topic) > MAX_NAME_LENGTH for topic in request.topics)


def requested_partitions(request: FetchRequest, by_id: bool) -> dict[Key, FetchPartitionState]:
    """The partitions that a request lists. Of one that is listed twice, what was said last counts, where it stood
    first."""
    found: dict[Key, FetchPartitionState] = {}
    for topic in request.topics:
        name: str | UUID = topic.topic_id if by_id else topic.topic
        for asked in topic.partitions:
            found[name, asked.partition] = FetchPartitionState("" if by_id else topic.topic, topic.topic_id, asked)
    return found


def grouped(rows: Iterable[Row]) -> list[FetchResponse.FetchableTopicResponse]:
    """Rows as an answer has them: neighbours of one topic together, the order kept."""
    topics: list[FetchResponse.FetchableTopicResponse] = []
    last: tuple[str, UUID] | None = None
    for wanted, data in rows:
        name = (wanted.topic, wanted.topic_id)
        if name != last:
            last = name
            topics.append(
                FetchResponse.FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
            )
        topics[-1].partitions.append(data)
    return topics
