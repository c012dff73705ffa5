"""Groups of KafkaConsumers, of both protocols: some take records by callback, some poll, at leisure or too late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kafka.client.kafka_client import KafkaClient
from kafka.consumer import KafkaConsumer
from kafka.consumer.listener import ConsumerRebalanceListener
from kafka.structs import TopicPartition
from test.simulation.groups import GROUP, GroupMember, GroupStory
from test.simulation.world import Host


class Listener(ConsumerRebalanceListener):
    """Tells the member, whatever it is told."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._member.told_assigned(assigned)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._member.told_gone(sorted(revoked), "revoked")

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self._member.told_gone(sorted(lost), "lost")


class ConsumerMember(GroupMember):
    """One consumer and its user."""

    story: ConsumerStory

    def __init__(self, story: ConsumerStory, host: Host, instance_id: str | None) -> None:
        super().__init__(story, host, instance_id)
        rng = story.rng
        self.expected: dict[TopicPartition, int] = {}
        self.is_polling = rng.random() < 0.6
        self.interval_s = rng.choice((0.1, 0.5, 1.5))
        self.commits_itself = rng.random() < 0.3
        self.slow_s = 0.0
        self.client: KafkaClient = host.client(metadata_max_age_ms=4000)
        self.consumer = KafkaConsumer(
            client=self.client,
            on_records=None if self.is_polling else self.on_records,
            on_error=None if self.is_polling else self.told_error,
            group_id=GROUP,
            group_instance_id=instance_id,
            max_poll_interval_ms=int(story.max_poll_s * 1000),
            enable_auto_commit=not self.commits_itself,
            auto_commit_interval_ms=700,
            auto_offset_reset="earliest",
            request_timeout_ms=3000,
            default_api_timeout_ms=6000,
            max_poll_records=rng.choice((1, 3, 500) if self.interval_s < 0.5 else (5, 500)),
            fetch_max_wait_ms=rng.choice((500, 2000)),
            metrics_enabled=False,
            **story.settings,
        )
        if self.is_polling:
            self.poll()
        if self.commits_itself:
            self.commit()

    # -- the user ------------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        if self.is_closing or self.is_fenced:
            return
        try:
            self.on_records(self.consumer.poll(0))
        except Exception as error:
            self.told_error(error)
        wait_s, self.slow_s = self.slow_s or self.interval_s, 0.0
        self.host.loop.call_later(wait_s, self.poll)

    def commit(self) -> None:
        if self.is_closing or self.is_fenced:
            return
        if self.owned:
            self.consumer.commit_async()
        self.host.loop.call_later(0.8, self.commit)

    def told_gone(self, partitions: Sequence[TopicPartition], how: str) -> None:
        super().told_gone(partitions, how)
        for partition in partitions:
            self.expected.pop(partition, None)

    def on_records(self, found: Mapping[TopicPartition, Sequence[Any]]) -> None:
        for partition, records in found.items():
            for record in records:
                expected = self.expected.get(partition, record.offset)
                self.story.world.note("reads", self.name, f"{partition.topic}{partition.partition}", record.offset)
                if record.offset != expected:
                    self.story.world.violate(f"{self.name}: {partition} {record.offset} came, expected {expected}")
                if record.value != b"%d" % record.offset:
                    self.story.world.violate(f"{partition} {record.offset} has the value {record.value!r}")
                self.processed(partition, record.offset)
                self.expected[partition] = record.offset + 1

    # -- what the story wants ------------------------------------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.story.world.note("subscribes", self.name, topics)
        self.topics = topics
        self.consumer.subscribe(topics, listener=Listener(self))

    def be_slow(self, seconds: float) -> None:
        self.slow_s = seconds

    def leave(self) -> None:
        if self.is_closing:
            return
        self.is_closing = True
        self.story.world.note("leaves", self.name)
        self.consumer.close_async(timeout_s=20.0).add_both(self.left)

    def left(self, _: object) -> None:
        self.has_left = True
        self.story.world.note("left", self.name)
        if self.owned and not self.is_fenced:
            self.story.world.violate(f"{self.name} has left, and owns {set(self.owned)}")
        self.client.close()


class ConsumerStory(GroupStory):
    """Members are KafkaConsumers."""

    settings: dict[str, Any]

    def new_member(self, host: Host, instance_id: str | None) -> GroupMember:
        return ConsumerMember(self, host, instance_id)


class ClassicStory(ConsumerStory):
    """The classic protocol, with each assignor."""

    kind = "classic"
    STRATEGIES: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("range",), ("roundrobin",), ("sticky",), ("cooperative-sticky",), ("cooperative-sticky",),
        ("range", "cooperative-sticky"),
    )  # fmt: skip

    @property
    def may_grow(self) -> bool:
        # A static leader that comes back skips the assignment (KIP-814), and takes the topics that it sees for those
        # that were assigned: partitions that came while it was away wait for the next change. So it is with Java.
        return not self.is_static

    def begin(self) -> None:
        strategy = self.rng.choice(self.STRATEGIES)
        self.settings = {
            "partition_assignment_strategy": strategy,
            "session_timeout_ms": int(self.session_s * 1000),
            "heartbeat_interval_ms": 1000,
        }
        self.world.note("assignors", strategy, "session", self.session_s, "poll", self.max_poll_s)
        super().begin()


class ConsumerProtocolStory(ConsumerStory):
    """The consumer group protocol (KIP-848)."""

    kind = "consumer"

    def begin(self) -> None:
        self.settings = {
            "group_protocol": "consumer",
            "group_remote_assignor": self.rng.choice((None, "uniform", "range")),
        }
        super().begin()
