"""A fetcher with brokers that are played by hand, and remember their fetch sessions as brokers do."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafka.core.consume.fetcher import Fetcher, RequestEpochEnds, RequestOffsets
from kafka.core.consume.session import SendFetch
from kafka.protocol.fetch import FetchResponse
from kafka.structs import TopicPartition

TOPIC_ID = UUID(int=3)
A, B, C = (TopicPartition("t", number) for number in range(3))


class Rig:
    """Nodes 1 (partitions 0 and 1 of the topic ``t``) and 2 (partition 2)."""

    def __init__(self, *assigned: TopicPartition, topic_id: UUID = TOPIC_ID, **options: Any) -> None:
        self.leaders: dict[TopicPartition, int | None] = {A: 1, B: 1, C: 2}
        self.epochs: dict[TopicPartition, int] = {}
        self.now = 0.0
        self.ids = {"t": topic_id}
        self.sessions: dict[int, dict[TopicPartition, int]] = {}
        """By id: the offsets that the broker remembers."""
        self._asked: dict[int, dict[TopicPartition, int]] = {}
        self._ids: dict[int, int] = {}
        self.fetcher = Fetcher(
            leader_of=self.leaders.get,
            epoch_of=lambda partition: self.epochs.get(partition, -1),
            topic_id_of=self.ids.__getitem__,
            **{"wall_ms": lambda: 0, **options},
        )
        self.fetcher.assign(assigned)

    def lead(self, partition: TopicPartition, node: int | None, epoch: int = -1) -> None:
        """The metadata says so from now on."""
        self.leaders[partition] = node
        self.epochs[partition] = epoch
        self.fetcher.metadata_changed()

    def poll(self) -> list[Any]:
        effects = self.fetcher.poll(self.now)
        for effect in effects:
            if isinstance(effect, SendFetch):
                self._receive(effect)
        return list(effects)

    def _receive(self, call: SendFetch) -> None:
        """As a broker does: a full fetch makes a session, another one changes it."""
        request = call.request
        names = {id: name for name, id in self.ids.items()}
        told = {
            TopicPartition(topic.topic, entry.partition): entry.fetch_offset
            for topic in request.topics
            for entry in topic.partitions
        }
        session_id = 0
        asked = told
        if request.session_epoch == 0:
            self.sessions.pop(request.session_id, None)
            session_id = max(self.sessions, default=1000) + 1
            self.sessions[session_id] = asked
        elif request.session_epoch > 0:
            session_id = request.session_id
            asked = self.sessions[session_id]
            asked.update(told)
            for topic in request.forgotten_topics_data:
                for number in topic.partitions:
                    del asked[TopicPartition(names[topic.topic_id], number)]
        self._asked[id(call)] = asked
        self._ids[id(call)] = session_id

    def fetches(self) -> list[SendFetch]:
        return [effect for effect in self.poll() if isinstance(effect, SendFetch)]

    def fetch(self) -> SendFetch:
        (call,) = self.fetches()
        return call

    def find(self) -> RequestOffsets:
        (effect,) = (effect for effect in self.poll() if isinstance(effect, RequestOffsets))
        return effect

    def ask_epochs(self) -> RequestEpochEnds:
        (effect,) = (effect for effect in self.poll() if isinstance(effect, RequestEpochEnds))
        return effect

    def asked(self, call: SendFetch) -> dict[int, int]:
        """Offsets by partition, as the broker has them after the call."""
        return {partition.partition: offset for partition, offset in sorted(self._asked[id(call)].items())}

    def answer(
        self, call: SendFetch, *, error: int = 0, session_id: int | None = None, **by_partition: bytes | int
    ) -> bool:
        """Records or an error code by partition ``p0``, ``p1``; a preferred read replica by ``r0``, ``r1``. Others have
        nothing new, and are told only by a full fetch."""
        entries = []
        for partition in self._asked[id(call)]:
            given = by_partition.get(f"p{partition.partition}")
            replica = by_partition.get(f"r{partition.partition}", -1)
            if given is None and replica == -1 and call.request.session_epoch > 0:
                continue
            assert isinstance(replica, int)
            entries.append(
                FetchResponse.PartitionData(
                    partition_index=partition.partition,
                    error_code=given if isinstance(given, int) else 0,
                    high_watermark=100,
                    preferred_read_replica=replica,
                    records=given if isinstance(given, bytes) else None,
                )
            )
        topics = [FetchResponse.FetchableTopicResponse(topic_id=self.ids["t"], partitions=entries)] if entries else []
        response = FetchResponse(
            error_code=error,
            session_id=self._ids[id(call)] if session_id is None else session_id,
            responses=[] if error else topics,
        )
        return self.fetcher.fetched(call, response, self.now)

    def seek_all(self, offset: int = 0) -> None:
        for position in self.fetcher.positions.values():
            position.seek(offset)

    def read(self) -> list[bytes]:
        """Everything that is buffered, as the consumer reads it."""
        values = []
        while (position := self.fetcher.ready()) is not None and position.buffered:
            fetched = position.buffered[0]
            values += [record.value for record in fetched.read(1000, self.fetcher.options)]
            self.fetcher.after_read(position, fetched, position.generation)
        return values


def listed(call: SendFetch) -> dict[int, int]:
    """Partitions that the request names, with their offsets."""
    return {p.partition: p.fetch_offset for topic in call.request.topics for p in topic.partitions}


def forgotten(call: SendFetch) -> list[int]:
    return [number for topic in call.request.forgotten_topics_data for number in topic.partitions]


def session(call: SendFetch) -> tuple[int, int]:
    return call.request.session_id, call.request.session_epoch
