"""Consumers without a group: KafkaConsumer on a loop, with seeks, pauses, other assignments and a log that loses its
beginning.

What has to hold: of each partition a consumer is handed every record once and in order, from where it was told to
begin; its position is behind the last one; no error is told, since ``auto_offset_reset`` answers the only one there may
be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka.client.kafka_client import KafkaClient
from kafka.consumer import KafkaConsumer
from kafka.protocol.topics import CreatePartitionsRequest, DeleteRecordsRequest
from kafka.structs import TopicPartition
from test.simulation.world import Host, Story, World

TOPIC = "t"


class Reader:
    """One consumer and what it may expect. ``expected``: partition -> the offset that comes next."""

    def __init__(self, story: PlainStory, host: Host, is_subscribed: bool) -> None:
        self.story = story
        self.host = host
        self.is_subscribed = is_subscribed
        self.expected: dict[TopicPartition, int] = {}
        self.seeks: dict[TopicPartition, int] = {}
        rng = story.rng
        self.client: KafkaClient = host.client(metadata_max_age_ms=3000)
        self.consumer = KafkaConsumer(
            client=self.client,
            on_records=self.on_records,
            on_error=lambda error: story.world.violate(f"{host.name}: {error!r}"),
            auto_offset_reset="earliest",
            fetch_max_wait_ms=rng.choice((100, 500)),
            max_partition_fetch_bytes=rng.choice((100, 1_000_000)),
            max_poll_records=rng.choice((1, 3, 500)),
        )
        if is_subscribed:
            self.consumer.subscribe([TOPIC])
        else:
            self.assign()

    def assign(self) -> None:
        """Read some partitions, or all."""
        rng = self.story.rng
        known = [TopicPartition(TOPIC, number) for number in range(self.story.partitions)]
        wanted = [each for each in known if rng.random() < 0.8] or known
        self.story.world.note("assigns", self.host.name, [each.partition for each in wanted])
        self.consumer.assign(wanted)
        self.expected = {each: self.expected.get(each, 0) for each in wanted}

    def on_records(self, found: Mapping[TopicPartition, Sequence[Any]]) -> None:
        story = self.story
        for partition, records in found.items():
            if not self.is_subscribed and partition not in self.expected:
                story.world.violate(f"{self.host.name} was handed records of {partition}, which it does not read")
                return
            for record in records:
                expected = self.expected.get(partition, 0)
                story.world.note("handed", self.host.name, partition.partition, record.offset)
                if record.offset != expected and record.offset not in story.starts_behind(partition, expected):
                    story.world.violate(f"{self.host.name}: {partition} {record.offset} came, expected {expected}")
                if record.value != b"%d:%d" % (partition.partition, record.offset):
                    story.world.violate(f"{partition} {record.offset} has the value {record.value!r}")
                self.expected[partition] = record.offset + 1
            position = self.consumer.position(partition, 0)
            if position != self.expected[partition]:
                story.world.violate(f"{partition}: position {position} behind record {self.expected[partition] - 1}")

    def act(self) -> None:
        """Seek, pause, or read other partitions."""
        rng = self.story.rng
        assigned = sorted(self.consumer.assignment())
        if not assigned:
            return
        partition = rng.choice(assigned)
        how = rng.choice(("seek", "pause", "assign"))
        if how == "seek":
            end = self.story.ends.get(partition.partition, 0)
            start = max(self.story.log_starts.get(partition.partition, [0]))
            offset = rng.randint(min(start, end), end)
            self.story.world.note("seeks", self.host.name, partition.partition, offset)
            self.consumer.seek(partition, offset)
            self.expected[partition] = offset
        elif how == "pause":
            self.consumer.pause(partition)
            self.story.world.note("pauses", self.host.name, partition.partition)
            self.host.loop.call_later(rng.random() * 2, self.resume, partition)
        elif not self.is_subscribed:
            self.assign()

    def resume(self, partition: TopicPartition) -> None:
        if partition in self.consumer.assignment():
            self.consumer.resume(partition)


class PlainStory(Story):
    """See the module."""

    kind = "plain"
    settles_within_s = 30.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.partitions = self.rng.randint(1, 4)
        self.readers: list[Reader] = []
        self.ends: dict[int, int] = {}
        self.log_starts: dict[int, list[int]] = {}
        self.to_produce = self.rng.randint(20, 60)

    def begin(self) -> None:
        world, rng = self.world, self.rng
        world.create_topic(TOPIC, self.partitions)
        self.produce()
        for number in range(rng.randint(1, 2)):
            self.readers.append(Reader(self, world.host(f"c{number + 1}"), rng.random() < 0.4))
        for _ in range(rng.randint(0, 4)):
            world.later(rng.uniform(0.1, world.faults.lasts_s), self.act)
        if rng.random() < 0.3:
            world.later(rng.uniform(0.1, world.faults.lasts_s), self.grow)
        for _ in range(rng.choice((0, 0, 1, 2))):
            world.later(rng.uniform(0.1, world.faults.lasts_s), self.shorten)

    def is_up(self) -> bool:
        return self.world.broker is not None and not self.world.broker_host.loop.is_paused

    def produce(self) -> None:
        world, rng = self.world, self.rng
        if self.to_produce <= 0:
            return
        if self.is_up():
            partition = rng.randrange(self.partitions)
            count = min(self.to_produce, rng.choice((1, 2, 5, 9)))
            end = self.ends.get(partition, 0)
            first = world.produce(TOPIC, partition, [b"%d:%d" % (partition, end + n) for n in range(count)])
            if first != end:
                world.violate(f"the log of {partition} ends at {first}, and {end} was acknowledged")
            self.ends[partition] = end + count
            self.to_produce -= count
            world.note("produced", partition, end, count)
        world.later(rng.choice((0.0, 0.1, 0.5, 2.0)), self.produce)

    def grow(self) -> None:
        """One more partition."""
        if self.is_up():
            topic = CreatePartitionsRequest.CreatePartitionsTopic(
                name=TOPIC, count=self.partitions + 1, assignments=None
            )
            answer: Any = self.world.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=False))
            assert answer.results[0].error_code == 0, answer
            self.partitions += 1
            self.world.note("partitions", self.partitions)

    def shorten(self) -> None:
        """The beginning of a log goes."""
        if not (self.is_up() and self.ends):
            return
        partition = self.rng.choice(sorted(self.ends))
        offset = self.rng.randint(max(self.log_starts.get(partition, [0])), self.ends[partition])
        topic = DeleteRecordsRequest.DeleteRecordsTopic(
            name=TOPIC,
            partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)],
        )
        answer: Any = self.world.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000))
        assert answer.topics[0].partitions[0].error_code == 0, answer
        self.log_starts.setdefault(partition, []).append(offset)
        self.world.note("log starts at", partition, offset)

    def starts_behind(self, partition: TopicPartition, expected: int) -> list[int]:
        """Where a consumer may come to be that wants ``expected``."""
        return [start for start in self.log_starts.get(partition.partition, ()) if start > expected]

    def act(self) -> None:
        reader = self.rng.choice(self.readers)
        if not reader.host.loop.is_paused:
            reader.act()

    def calm(self) -> None:
        while self.to_produce > 0:
            self.produce()

    def is_done(self) -> bool:
        return not self._behind()

    def _behind(self) -> list[str]:
        found = []
        for reader in self.readers:
            partitions = reader.expected
            if reader.is_subscribed:
                partitions = {
                    TopicPartition(TOPIC, n): reader.expected.get(TopicPartition(TOPIC, n), 0) for n in self.ends
                }
            for partition, expected in partitions.items():
                end = self.ends.get(partition.partition, 0)
                if expected < end and end not in self.log_starts.get(partition.partition, ()):
                    found.append(f"{reader.host.name} is at {expected} of {end} in {partition}")
        return found

    def missing(self) -> str:
        return "; ".join(self._behind())

    def close(self) -> Callable[[], bool]:
        for reader in self.readers:
            reader.consumer.close()
            reader.client.close()
        return lambda: True
