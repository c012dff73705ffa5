"""Idempotent producers: KafkaProducer on a loop, through any faults.

What has to hold: every record whose future has succeeded is in the log, once, at the offset that the future says; one
whose future has failed is there at most once; those of one producer in one partition are in the order of sending; every
future ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from kafka.client.kafka_client import KafkaClient
from kafka.producer import KafkaProducer
from kafka.records import decode_records, iter_batches
from test.simulation.world import Host, Story, World

TOPIC = "t"


class Sender:
    """One producer and what became of its records."""

    def __init__(self, story: ProducerStory, host: Host) -> None:
        self.story = story
        self.host = host
        rng = story.rng
        self.client: KafkaClient = host.client()
        self.producer = KafkaProducer(
            client=self.client,
            linger_ms=rng.choice((0, 5, 50)),
            batch_size=rng.choice((100, 16384)),
            max_in_flight_requests_per_connection=rng.choice((1, 2, 5)),
            delivery_timeout_ms=rng.choice((4000, 30_000, 120_000)),
            request_timeout_ms=3000,
            max_block_ms=0,
        )
        self.left = rng.randint(10, 40)
        self.sent: dict[bytes, Any] = {}
        self.numbers: dict[int, int] = {}
        self.host.loop.call_later(rng.random(), self.send)

    def send(self) -> None:
        rng = self.story.rng
        for _ in range(min(self.left, rng.choice((1, 1, 5, 12)))):
            partition = rng.randrange(self.story.partitions)
            number = self.numbers.get(partition, 0)
            value = b"%s:%d:%d" % (self.host.name.encode(), partition, number)
            try:
                future = self.producer.send(
                    TOPIC, value, partition=partition, timestamp_ms=int(self.host.loop.clock.time() * 1000)
                )
            except Exception as error:
                self.story.world.violate(f"send: {error!r}")
                return
            self.numbers[partition] = number + 1
            self.left -= 1
            self.sent[value] = future
            self.story.world.note("sends", self.host.name, value)
            future.add_both(self.on_outcome, value)
        if self.left:
            self.host.loop.call_later(rng.choice((0.0, 0.02, 0.3, 1.5)), self.send)

    def on_outcome(self, value: bytes, outcome: Any) -> None:
        self.story.world.note("outcome", value, getattr(outcome, "offset", outcome))

    @property
    def is_done(self) -> bool:
        return not self.left and all(future.is_done for future in self.sent.values())


class ProducerStory(Story):
    """See the module."""

    kind = "producer"
    settles_within_s = 150.0
    allowed_errors: ClassVar[tuple[str, ...]] = ()

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.partitions = self.rng.randint(1, 3)
        self.senders: list[Sender] = []
        self.logs: dict[int, list[bytes]] = {}

    def begin(self) -> None:
        world, rng = self.world, self.rng
        world.create_topic(TOPIC, self.partitions)
        for number in range(rng.randint(1, 2)):
            self.senders.append(Sender(self, world.host(f"p{number + 1}")))
        if len(self.senders) > 1 and rng.random() < 0.2:
            world.later(rng.uniform(0.5, world.faults.lasts_s), self.senders[0].host.die, rng.random() < 0.5)

    def living(self) -> list[Sender]:
        return [each for each in self.senders if not each.host.is_dead]

    def is_done(self) -> bool:
        return all(each.is_done for each in self.living())

    def missing(self) -> str:
        return "; ".join(
            f"{each.host.name}: {[value for value, future in each.sent.items() if not future.is_done]}"
            for each in self.living()
        )

    def close(self) -> Callable[[], bool]:
        for each in self.living():
            each.producer.close(timeout=0)
            each.client.close()
        return lambda: True

    def check(self) -> None:
        broker = self.world.broker
        assert broker is not None
        for partition in range(self.partitions):
            found = read_log(self.world, TOPIC, partition)
            offsets: dict[bytes, int] = {}
            last: dict[bytes, int] = {}
            for offset, value in found:
                who, _, number = value.split(b":")
                if value in offsets:
                    self.world.violate(f"{value!r} is in the log at {offsets[value]} and at {offset}")
                elif int(number) < last.get(who, -1):
                    self.world.violate(f"{value!r} at {offset} is behind {last[who]}")
                offsets[value] = offset
                last[who] = int(number)
            for sender in self.living():
                for value, future in sender.sent.items():
                    is_here = value.split(b":")[1] == b"%d" % partition
                    if is_here and future.succeeded() and offsets.get(value) != future.value.offset:
                        on_outcome = future.value.offset
                        self.world.violate(f"{value!r} was told at {on_outcome}, and is at {offsets.get(value)}")


def read_log(world: World, topic: str, partition: int) -> list[tuple[int, bytes]]:
    """Offset and value of all that is in a log, past the network."""
    from test.broker.driver import fetch_request, fetched, plain

    found: list[tuple[int, bytes]] = []
    at = 0
    while True:
        request = fetch_request(topic, [at], max_bytes=1 << 20)
        request.topics[0].partitions[0].partition = partition
        (answer,) = fetched(world.ask(request, 12))
        assert answer.error_code == 0, answer
        data = plain(answer.records)
        if not data:
            return found
        for header in iter_batches(data):
            if header.last_offset >= at:
                found += [(record.offset, record.value or b"") for record in decode_records(data, header)]
                at = header.last_offset + 1
