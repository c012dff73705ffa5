"""A producer's machine with a manual clock and brokers made of two dictionaries."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from kafka.core.produce.accumulator import RecordAccumulator
from kafka.core.produce.batch import ProducerBatch, ProducerIdAndEpoch, TopicQueues
from kafka.core.produce.sender import Effect, RefreshTopicMetadata, RequestProducerId, SendBatches, Sender
from kafka.core.produce.transactions import TransactionManager
from kafka.core.retry import Backoff
from kafka.errors import KafkaConnectionError
from kafka.net.clock import ManualClock
from kafka.producer.sending import FutureRecordMetadata
from kafka.protocol.produce import ProduceResponse
from kafka.records import Record, decode_records, iter_batches

TOPIC_ID = UUID(int=7)


class Rig:
    """Accumulator and sender of one topic ``t``; ``leaders`` has the node of each partition. ``known``: the producer
    has its id (9, 0), and each leader has acknowledged something of it."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        known: bool = True,
        batch_bytes: int = 16384,
        batch_records: int = 0,
        buffer_bytes: int = 33554432,
        **options: Any,
    ) -> None:
        self.clock = ManualClock()
        self.leaders: dict[int, int | None] = dict.fromkeys(range(partitions), 1)
        self.leader_epochs: dict[int, int] = {}
        self.signals = 0
        self.interrupted_signals = 0
        """So many of the next signals end in Ctrl-C."""
        self.ids = 0
        partitioner = options.pop("partitioner", "sticky")
        compression = options.pop("compression", 0)
        self.accumulator = RecordAccumulator(
            lock=threading.Lock(),
            clock=self.clock.monotonic,
            rng=random.Random(1),
            signal=self._count_signal,
            buffer_bytes=buffer_bytes,
            batch_bytes=batch_bytes,
            batch_records=batch_records,
            partitioner=partitioner,
            compression=compression,
        )
        self.topic = self.accumulator.topics.setdefault("t", TopicQueues("t"))
        if partitions:
            self.accumulator.set_partitions(self.topic, partitions, range(partitions))
        self.sender = Sender(
            self.accumulator,
            leader_of=lambda _topic, partition: self.leaders[partition],
            leader_epoch_of=lambda _topic, partition: self.leader_epochs.get(partition, -1),
            topic_id_of=lambda _topic: TOPIC_ID,
            backoff=Backoff(0.1, 1.0, random.Random(1), jitter=0.0),
            **options,
        )
        if known and self.sender.identity.is_on:
            self.know()

    def know(self) -> None:
        """Have the id 9, and leaders that have it, too."""
        self.sender.identity_received(ProducerIdAndEpoch(9, 0))
        for queue in self.topic.queues:
            queue.numbers.begin(ProducerIdAndEpoch(9, 0))
            queue.numbers.is_known = True

    def _count_signal(self) -> None:
        if self.interrupted_signals:
            self.interrupted_signals -= 1
            raise KeyboardInterrupt
        self.signals += 1

    def put(self, value: bytes, partition: int | None = 0, key: bytes | None = None) -> tuple[ProducerBatch, int]:
        queue = self.accumulator.queue_for(self.topic, key, partition)
        return self.accumulator.append(self.topic, queue, 1000, key, value, None)

    def put_alone(self, value: bytes, partition: int = 0) -> ProducerBatch:
        """A record in a batch of its own."""
        batch, _ = self.put(value, partition)
        self.accumulator.close_open_batches()
        return batch

    def future(self, value: bytes, partition: int = 0) -> FutureRecordMetadata:
        batch, index = self.put(value, partition)
        return FutureRecordMetadata(batch, index, 1000, -1, len(value), -1)

    def future_alone(self, value: bytes, partition: int = 0) -> FutureRecordMetadata:
        self.accumulator.close_open_batches()
        future = self.future(value, partition)
        self.accumulator.close_open_batches()
        return future

    def records(self, batch: ProducerBatch) -> list[Record]:
        """What would go over the wire."""
        data = batch.encoded()
        (header,) = iter_batches(data)
        return decode_records(data, header)

    def values(self, batch: ProducerBatch) -> list[bytes]:
        return [record.value or b"" for record in self.records(batch)]

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
                elif isinstance(effect, RequestProducerId):
                    self.ids += 1
                    self.sender.identity_received(ProducerIdAndEpoch(8 + self.ids, 0))
                    again = True
        return found

    def call(self) -> SendBatches:
        """The one thing that is to be sent."""
        (call,) = self.calls()
        return call

    def stale_topics(self) -> set[str]:
        return {topic for effect in self.poll() if isinstance(effect, RefreshTopicMetadata) for topic in effect.topics}

    def answer(
        self,
        call: SendBatches,
        error_code: int | Mapping[int, int] = 0,
        base_offset: int = 0,
        only: int | None = None,
        log_start_offset: int = 0,
    ) -> None:
        """An answer for each of the call's batches, or for partition ``only`` alone; error codes by partition, or one
        for all of them."""
        codes = (
            error_code if isinstance(error_code, Mapping) else {batch.partition: error_code for batch in call.batches}
        )
        responses = [
            ProduceResponse.TopicProduceResponse(
                topic_id=TOPIC_ID,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(
                        index=batch.partition,
                        error_code=codes.get(batch.partition, 0),
                        base_offset=-1 if codes.get(batch.partition) else base_offset,
                        log_start_offset=log_start_offset,
                    )
                ],
            )
            for batch in call.batches
            if only is None or batch.partition == only
        ]
        self.sender.answered(call, ProduceResponse(responses=responses), self.clock.monotonic())

    def answer_all(self) -> None:
        """Well, until nothing is left to be sent."""
        while calls := self.calls():
            for call in calls:
                self.answer(call)

    def lose(self, call: SendBatches) -> None:
        self.sender.failed(call, KafkaConnectionError("gone"), self.clock.monotonic())

    def back_off(self, seconds: float = 0.1) -> None:
        self.clock.advance(seconds)


def sequences(call: SendBatches) -> list[tuple[int, int]]:
    """(epoch, base sequence) of each batch, as it goes over the wire."""
    found = []
    for topic in call.request.topic_data:
        for data in topic.partition_data:
            assert isinstance(data.records, bytes)
            (header,) = iter_batches(data.records)
            found.append((header.producer_epoch, header.base_sequence))
    return found


def in_transaction(
    partitions: int = 1, *, version: int = 2, can_bump: bool = True, **options: Any
) -> tuple[Rig, TransactionManager]:
    """A producer ``me`` that has begun a transaction; with version 1, no partition was added to it."""
    machine = TransactionManager("me")
    machine.begin_initializing()
    machine.initialized(ProducerIdAndEpoch(9, 0), can_bump=can_bump, version=version)
    machine.begin()
    return Rig(partitions, transactions=machine, **options), machine
