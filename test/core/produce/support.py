"""A producer's machine with a manual clock and brokers made of two dictionaries."""

from __future__ import annotations

import random
import threading
from typing import Any
from uuid import UUID

from kafka.core.produce.accumulator import Accumulator, TopicQueues
from kafka.core.produce.batch import Batch
from kafka.core.produce.identity import ProducerIdentity
from kafka.core.produce.sender import AskIdentity, Effect, RefreshMetadata, SendBatches, Sender
from kafka.errors import KafkaConnectionError
from kafka.net.clock import ManualClock
from kafka.protocol.produce import ProduceResponse
from kafka.records import iter_batches

TOPIC_ID = UUID(int=7)


class Rig:
    """Accumulator and sender of one topic ``t``; ``leaders`` has the node of each partition."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        batch_bytes: int = 16384,
        batch_records: int = 0,
        buffer_bytes: int = 33554432,
        **options: Any,
    ) -> None:
        self.clock = ManualClock()
        self.leaders: dict[int, int | None] = dict.fromkeys(range(partitions), 1)
        self.signals = 0
        self.freed = 0
        partitioner = options.pop("partitioner", "sticky")
        self.accumulator = Accumulator(
            lock=threading.Lock(),
            clock=self.clock.monotonic,
            rng=random.Random(1),
            signal=self._count_signal,
            freed=self._count_freed,
            buffer_bytes=buffer_bytes,
            batch_bytes=batch_bytes,
            batch_records=batch_records,
            partitioner=partitioner,
        )
        self.topic = self.accumulator.topics.setdefault("t", TopicQueues("t"))
        if partitions:
            self.accumulator.set_partitions(self.topic, partitions, range(partitions))
        self.sender = Sender(
            self.accumulator,
            leader_of=lambda _topic, partition: self.leaders[partition],
            topic_id_of=lambda _topic: TOPIC_ID,
            **options,
        )

    def _count_signal(self) -> None:
        self.signals += 1

    def _count_freed(self) -> None:
        self.freed += 1

    def put(self, value: bytes, partition: int | None = 0, key: bytes | None = None) -> tuple[Batch, int]:
        queue = self.accumulator.queue_for(self.topic, key, partition)
        return self.accumulator.append(self.topic, queue, 1000, key, value, None)

    def put_alone(self, value: bytes, partition: int = 0) -> Batch:
        """A record in a batch of its own."""
        batch, _ = self.put(value, partition)
        self.accumulator.close_open_batches()
        return batch

    def poll(self) -> list[Effect]:
        return self.sender.poll(self.clock.monotonic())

    def calls(self) -> list[SendBatches]:
        """Poll, give an identity when one is asked for, and return what is to be sent."""
        found: list[SendBatches] = []
        again = True
        while again:
            again = False
            for effect in self.poll():
                if isinstance(effect, SendBatches):
                    found.append(effect)
                elif isinstance(effect, AskIdentity):
                    known = effect.identity
                    self.sender.identity_received(
                        ProducerIdentity(9, 0) if known.producer_id < 0 else ProducerIdentity(9, known.epoch + 1)
                    )
                    again = True
        return found

    def call(self) -> SendBatches:
        """The one thing that is to be sent."""
        (call,) = self.calls()
        return call

    def stale_topics(self) -> set[str]:
        return {topic for effect in self.poll() if isinstance(effect, RefreshMetadata) for topic in effect.topics}

    def answer(
        self, call: SendBatches, error_code: int = 0, base_offset: int = 0, only: int | None = None
    ) -> None:
        """The same answer for each of the call's batches, or for partition ``only`` alone."""
        responses = [
            ProduceResponse.TopicProduceResponse(
                topic_id=TOPIC_ID,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(
                        index=batch.partition,
                        error_code=error_code,
                        base_offset=-1 if error_code else base_offset,
                    )
                ],
            )
            for batch in call.batches
            if only is None or batch.partition == only
        ]
        self.sender.answered(call, ProduceResponse(responses=responses), self.clock.monotonic())

    def lose(self, call: SendBatches) -> None:
        self.sender.failed(call, KafkaConnectionError("gone"), self.clock.monotonic())

    def back_off(self) -> None:
        self.clock.advance(0.1)


def sequences(call: SendBatches) -> list[tuple[int, int]]:
    """(epoch, base sequence) of each batch, as it goes over the wire."""
    found = []
    for topic in call.request.topic_data:
        for data in topic.partition_data:
            assert isinstance(data.records, bytes)
            (header,) = iter_batches(data.records)
            found.append((header.producer_epoch, header.base_sequence))
    return found
