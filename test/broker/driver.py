"""A broker driven by hand: requests as messages, a clock that the test moves, no sockets. And batches to produce."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from kafka.broker.broker import Broker
from kafka.broker.emulation import LATEST
from kafka.broker.registry import load
from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.protocol.configs import IncrementalAlterConfigsRequest
from kafka.protocol.fetch import FetchRequest, FetchResponse
from kafka.protocol.framing import ReceivedRequest
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.protocol.topics import CreateTopicsRequest, CreateTopicsResponse
from kafka.records import BatchHeader, RecordBatchBuilder, decode_records, iter_batches
from kafka.wire.codec import decode, encode
from kafka.wire.message import Request, Response
from kafka.wire.types import ZERO_UUID

R = TypeVar("R", bound=Response)

EPOCH_S = 1_700_000_000.0
"""What the wall clock says when the monotonic one says 0."""


class HandBroker:
    """The machine, a clock, one connection to begin with. Each request and answer passes through the codec."""

    def __init__(
        self,
        data_dir: Path,
        settings: dict[str, str] | None = None,
        fsync: str = "never",
        release: str = LATEST,
        telemetry: bool = False,
    ) -> None:
        self.data_dir = data_dir
        self.telemetry = telemetry
        self.release = release
        self.settings = settings
        self.fsync = fsync
        self.now = 0.0
        self.connection = ConnectionContext()
        self.broker = self._open()

    def _open(self) -> Broker:
        return Broker(
            str(self.data_dir),
            self.settings,
            fsync=self.fsync,
            now=self.now,
            epoch_offset=EPOCH_S,
            rng=random.Random(7),
            release=self.release,
            telemetry=self.telemetry,
        )

    def restart(self) -> None:
        """End the broker well, and open the directory again."""
        self.broker.close()
        self.connection = ConnectionContext()
        self.broker = self._open()

    @property
    def epoch_ms(self) -> int:
        return int((self.now + EPOCH_S) * 1000)

    def send(
        self, request: Request[Any], version: int | None = None, connection: ConnectionContext | None = None
    ) -> PendingResponse:
        """Hand a request over; the reply, done or not. No tick."""
        version = newest(request) if version is None else version
        received = ReceivedRequest(decode(type(request), encode(request, version), version), version, 1, "hand")
        return self.broker.handle(connection or self.connection, received, self.now)

    def ask(self, request: Request[R], version: int | None = None, connection: ConnectionContext | None = None) -> R:
        """Hand a request over and get the answer, which has to be there after one tick."""
        reply = self.send(request, version, connection)
        self.tick()
        assert reply.done, f"{type(request).__name__} waits"
        return self.answer(request, reply, version)

    def answer(self, request: Request[R], reply: PendingResponse, version: int | None = None) -> R:
        """The response of a reply that is done, as the client decodes it."""
        assert reply.done
        assert reply.response is not None
        shown = reply.version if reply.version is not None else newest(request) if version is None else version
        cls = request.response_type()
        return decode(cls, encode(reply.response, shown), shown)

    def tick(self) -> float | None:
        return self.broker.tick(self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass, ticking whenever the broker wants to."""
        end = self.now + seconds
        for _ in range(1000):
            deadline = self.tick()
            if deadline is None or deadline > end:
                break
            self.now = max(self.now, deadline)
        self.now = end
        self.tick()

    # -- everyday requests -------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> UUID:
        """Make a topic and give its id; settings with ``_`` for ``.``."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in settings.items()
            ],
        )
        answer: CreateTopicsResponse = self.ask(CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0, answer
        return answer.topics[0].topic_id

    def produce(
        self, topic: str, batch: bytes | None, partition: int = 0, acks: int = -1, version: int = 9
    ) -> ProduceResponse.PartitionProduceResponse:
        """Produce one batch and give the partition's answer."""
        answer = self.ask(produce_request(topic, batch, partition, acks), version)
        return answer.responses[0].partition_responses[0]

    def set_group(self, group_id: str, **settings: str) -> int:
        """Set a group's configuration; the error code."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=32,
                    resource_name=group_id,
                    configs=[
                        IncrementalAlterConfigsRequest.AlterableConfig(
                            name=key.replace("_", "."), config_operation=0, value=value
                        )
                        for key, value in settings.items()
                    ],
                )
            ],
            validate_only=False,
        )
        return self.ask(request).responses[0].error_code


def newest(request: Request[Any]) -> int:
    """The newest version that the broker serves."""
    return load()[request.api_key].max_version


def batch(
    *values: bytes, timestamp: int = int(EPOCH_S * 1000), producer: tuple[int, int, int] = (-1, -1, -1), **options: bool
) -> bytes:
    """A batch of records with these values. ``producer``: id, epoch, base sequence."""
    builder = RecordBatchBuilder(1 << 30)
    for value in values or (b"v",):
        builder.append(timestamp, None, value)
    return builder.build(*producer, **options)


def plain(records: Any) -> bytes:
    """Fetched records, however they came, as bytes."""
    return bytes(records or b"")


def values(records: Any) -> list[bytes | None]:
    """The values of all records in fetched bytes."""
    data = plain(records)
    return [record.value for header in iter_batches(data) for record in decode_records(data, header)]


def produce_request(topic: str, data: bytes | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """One batch for one partition, by the topic's name."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=data)]
            )
        ],
    )


def fetch_request(
    topic: str = "",
    offsets: Sequence[int] = (0,),
    *,
    topic_id: UUID = ZERO_UUID,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    """Partitions 0, 1, ... of one topic, from these offsets."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=at, fetch_offset=offset, partition_max_bytes=partition_max_bytes
                    )
                    for at, offset in enumerate(offsets)
                ],
            )
        ],
    )


def shown_batches(answer: FetchResponse.PartitionData) -> Iterator[tuple[BatchHeader, bool]]:
    """Each batch of an answer, and whether a consumer shows its records: no marker, and nothing of a transaction that
    the answer tells as aborted."""
    aborted = sorted((row.first_offset, row.producer_id) for row in answer.aborted_transactions or ())
    dropping: set[int] = set()
    for header in iter_batches(plain(answer.records)):
        while aborted and aborted[0][0] <= header.last_offset:
            dropping.add(aborted.pop(0)[1])
        if header.is_control:
            dropping.discard(header.producer_id)
        yield header, not header.is_control and not (header.is_transactional and header.producer_id in dropping)


def fetched(answer: FetchResponse) -> list[FetchResponse.PartitionData]:
    """All partitions of an answer."""
    return [partition for topic in answer.responses for partition in topic.partitions]
