"""A queue's dead topic as a :class:`kafka.tasks.backends.base.DeadLog`: one connection, and a consumer, a producer and
an administration client that share it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from kafka import KafkaAdminClient
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition
from kafka.tasks.backends.base import DeadRecord
from kafka.tasks.backends.kafka.admin import unknown_queue
from kafka.tasks.backends.kafka.connection import connect_in_thread, producer_configs
from kafka.tasks.backends.kafka.partition_reader import poll_to
from kafka.tasks.backends.kafka.rights import needing
from kafka.tasks.format.envelope import Header
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.settings import Settings

MOST_BUFFERED: Final = 1000
"""A partition with so many records that wait for older ones of others is not fetched."""


class KafkaDeadLog:
    """See :class:`kafka.tasks.backends.base.DeadLog`."""

    def __init__(self, names: TopicNames, queue: str, settings: Settings) -> None:
        """Connects, and looks how many partitions the topic has; UnknownQueue when there is none."""
        self.topic = topic = names.dead(queue)
        self._app = names.app
        self._settings = settings
        self._timeout_s = settings.request_timeout
        self._producer: KafkaProducer | None = None
        self._io = connect_in_thread(settings, "dead jobs")
        client = self._io.client
        try:
            self._consumer: KafkaConsumer = self._io.call(
                lambda: KafkaConsumer(client=client, auto_offset_reset="earliest", enable_auto_commit=False)
            )
            with needing(self._app, "topic", "Read"):
                partition_numbers = self._consumer.partitions_for_topic(topic)
            if not partition_numbers:
                raise unknown_queue(topic, self._consumer.topics())
        except BaseException:
            self._io.close()
            raise
        self._partitions = [TopicPartition(topic, number) for number in sorted(partition_numbers)]

    def bounds(self) -> dict[int, tuple[int, int]]:
        """See :class:`kafka.tasks.backends.base.DeadLog`."""
        starts = self._consumer.beginning_offsets(self._partitions)
        ends = self._consumer.end_offsets(self._partitions)
        return {each.partition: (starts[each], ends[each]) for each in self._partitions}

    def offsets_at(self, time_ms: int) -> dict[int, int]:
        """See :class:`kafka.tasks.backends.base.DeadLog`."""
        ends = self._consumer.end_offsets(self._partitions)
        found = self._consumer.offsets_for_times(dict.fromkeys(self._partitions, time_ms))
        return {each.partition: ends[each] if at is None else at.offset for each, at in found.items()}

    def read(self, spans: Mapping[int, tuple[int, int]]) -> Iterator[DeadRecord]:
        """See :class:`kafka.tasks.backends.base.DeadLog`."""
        ends = {TopicPartition(self.topic, number): end for number, (begin, end) in spans.items() if begin < end}
        self._consumer.assign(list(ends))
        for partition in ends:
            self._consumer.seek(partition, spans[partition.partition][0])
        waiting: dict[TopicPartition, deque[ConsumerRecord]] = {partition: deque() for partition in ends}
        while waiting:
            for partition in list(waiting):
                with needing(self._app, "topic", "Read"):
                    has_record = waiting[partition] or self._poll_until_buffered(partition, waiting, ends)
                if not has_record:
                    del waiting[partition]
            if waiting:
                oldest = min(waiting.values(), key=lambda records: records[0].timestamp).popleft()
                yield DeadRecord(
                    oldest.partition, oldest.offset, oldest.timestamp, oldest.key, oldest.value, oldest.headers
                )

    def _poll_until_buffered(
        self,
        wanted: TopicPartition,
        waiting: Mapping[TopicPartition, deque[ConsumerRecord]],
        ends: Mapping[TopicPartition, int],
    ) -> bool:
        """Poll until ``wanted`` has a record; False when it has none before its end."""
        self._pause_full(waiting)
        for polled in poll_to(self._consumer, wanted, ends[wanted], self._timeout_s):
            for partition, records in polled.items():
                if partition in waiting:
                    waiting[partition].extend(each for each in records if each.offset < ends[partition])
            if waiting[wanted]:
                return True
            self._pause_full(waiting)
        return False

    def _pause_full(self, waiting: Mapping[TopicPartition, deque[ConsumerRecord]]) -> None:
        """Fetch from those partitions alone that have room in their buffers."""
        full = {each for each, records in waiting.items() if len(records) >= MOST_BUFFERED}
        self._consumer.pause(*(full - self._consumer.paused()))
        self._consumer.resume(*(self._consumer.paused() - full))

    def append(self, partition: int, value: bytes, headers: list[Header]) -> None:
        """See :class:`kafka.tasks.backends.base.DeadLog`."""
        if self._producer is None:
            client, configs = self._io.client, producer_configs(
                self._settings, linger_s=0, batch_bytes=16_384, batch_records=0
            )
            self._producer = self._io.call(lambda: KafkaProducer(client=client, **configs))
        with needing(self._app, "topic", "Write"):
            self._producer.send(self.topic, value, None, headers, partition).get()

    def delete_before(self, offsets: Mapping[int, int]) -> None:
        """See :class:`kafka.tasks.backends.base.DeadLog`."""
        client = self._io.client
        admin: KafkaAdminClient = self._io.call(lambda: KafkaAdminClient(client=client))
        try:
            with needing(self._app, "topic", "Delete"):
                admin.delete_records({TopicPartition(self.topic, number): offset for number, offset in offsets.items()})
        finally:
            admin.close()

    def close(self) -> None:
        """See :class:`kafka.tasks.backends.base.DeadLog`."""
        try:
            self._consumer.close()
            if self._producer is not None:
                self._producer.close()
        finally:
            self._io.close()
