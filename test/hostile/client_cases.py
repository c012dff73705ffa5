"""What peers can give to clients and workers, as dear as its bytes can make it: one :class:`Case` for each way.

A case makes its input, and then gives the steps that a client takes with it: each is what a loop, or a user's thread,
does in one go. What a loop of a client of ours does has its time bounded; what a user's thread does (``poll()``), its
memory only. The limit that a case names is what the code enforces: MODULE:NAME, with its value read from there.

Answers of the protocol come from the schemas (``test/wire/test_decoding_cost.py``); all else is by hand, a row each.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import random
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from kafka.client.cluster import ClusterMetadata
from kafka.consumer import ConsumerRecord
from kafka.core.consume.partition import CompletedFetch, ReaderOptions
from kafka.core.produce.accumulator import RecordAccumulator
from kafka.core.produce.batch import TopicQueues
from kafka.core.share.records import AcquiredRange, AcquiredReader, AcquiredSlice, SharedBatch, ShareRecord
from kafka.errors import KafkaError, KafkaProtocolError
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.registry import REGISTRY
from kafka.records import CODECS
from kafka.records.compression import inflation_bound
from kafka.records.header import encode_varint
from kafka.structs import TopicPartition
from kafka.tasks import App
from kafka.tasks.backends.base import WorkerBackend
from kafka.tasks.backends.kafka.snapshot_reader import KafkaSnapshotReader
from kafka.tasks.delivery.base import DeliveryEvents
from kafka.tasks.delivery.share_group.delivery import _Member
from kafka.tasks.format.job_id import partition_of
from kafka.tasks.pools.ipc.channel import ChildChannel, ParentChannel
from kafka.tasks.pools.ipc.frames import encode as encode_frame
from kafka.tasks.pools.ipc.messages import DONE, PROGRESS, encode_done
from kafka.tasks.pools.ipc.processes import ChannelDamaged
from kafka.tasks.results.log_reader import StateDecoder
from kafka.tasks.results.tails import PartitionTail, Tails
from kafka.tasks.results.view import ResultView
from kafka.tasks.results.waiters import JobWaiters
from kafka.tasks.rules.outcome import JobSucceeded
from kafka.tasks.worker.worker import Worker
from kafka.wire.codec import Cost, decode, encode
from kafka.wire.message import Field, Message
from test.hostile.generator import bomb, one_huge
from test.records.fuzz import v2_around, wrapper
from test.tasks.fakes import FakeDelivery, FakePublisher, ManualPool, Queues
from test.wire.test_decoding_cost import arrays, with_many

Step = Callable[[], object]
T0: Final = 1_700_000_000_000
PARTITION: Final = TopicPartition("t", 0)
ACQUIRED: Final = 500
"""Records of one answer, as ``max_poll_records`` says if nobody does."""
RESULTS_POLLED: Final = 2000
"""Records that the tail of the results topics takes at once (``max_poll_records`` there)."""


class Case(NamedTuple):
    """``make``: about how many bytes -> the input's bytes, and the steps. ``limit``: MODULE:NAME."""

    input: str
    name: str
    limit: str
    make: Callable[[int], tuple[int, Iterable[Step]]]
    is_on_loop: bool = True

    @property
    def title(self) -> str:
        return f"{self.input}, {self.name}"

    @property
    def bound(self) -> str:
        """The limit's name and value."""
        module, _, name = self.limit.partition(":")
        value = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
        return f"{name} = {value:,}"


def cases() -> Iterator[Case]:
    """All but those of answers, of which there are thousands: :func:`answers`."""
    yield from _metadata()
    yield from _fetched()
    yield from _shared()
    yield from _admitted()
    yield from _results()
    yield from _channel()


# -- answers -----------------------------------------------------------------------------------------------------------


def answers() -> Iterator[tuple[int, Case]]:
    """Each array of each answer in its oldest and its newest version, and the most bytes in memory of an element beyond
    its share (``kafka/wire/codec.py``): its excess."""
    for row in REGISTRY.values():
        cls = row.response
        for version in sorted({cls.min_version, cls.max_version}):
            for path in arrays(cls, version):
                wire, excess = Cost(cls, version).element(path[-1])
                name = f"{cls.__name__} v{version} {'.'.join(each.name for each in path)}"
                make = _answer(cls, version, path, wire)
                yield excess, Case("any answer", name, "kafka.wire.codec:SPARE_BYTES", make)


def _answer(
    cls: type[Message], version: int, path: tuple[Field, ...], wire: int
) -> Callable[[int], tuple[int, Iterable[Step]]]:
    def make(size: int) -> tuple[int, Iterable[Step]]:
        data = with_many(cls, version, path, max(1, size // wire))

        def read() -> None:
            with contextlib.suppress(KafkaProtocolError):  # refused for its many small elements
                decode(cls, data, version)

        return len(data), [read]

    return make


# -- metadata ----------------------------------------------------------------------------------------------------------


def _metadata() -> Iterator[Case]:
    kinds, version = MetadataResponse, 12

    def learnt(topics: int, partitions: int) -> tuple[int, list[Step]]:
        parts = [
            kinds.MetadataResponsePartition(
                error_code=0, partition_index=number, leader_id=1, leader_epoch=0, replica_nodes=[], isr_nodes=[]
            )
            for number in range(partitions)
        ]
        named = [
            kinds.MetadataResponseTopic(error_code=0, name=f"{n:x}", topic_id=UUID(int=n + 1), partitions=parts)
            for n in range(topics)
        ]
        broker = kinds.MetadataResponseBroker(node_id=1, host="b", port=1)
        data = encode(MetadataResponse(brokers=[broker], topics=named), version)
        cluster = ClusterMetadata(rng=random.Random(1))

        def update() -> None:
            cluster.update_metadata(decode(MetadataResponse, data, version))

        return len(data), [update, update]

    bytes_each, limit = 18, "kafka.wire.codec:SPARE_BYTES"
    yield Case("Metadata", "partitions of one topic", limit, lambda size: learnt(1, size // bytes_each))
    yield Case("Metadata", "topics of one partition", limit, lambda size: learnt(size // 45, 1))

    def queues(size: int) -> tuple[int, list[Step]]:
        accumulator = RecordAccumulator(
            lock=contextlib.nullcontext(), clock=lambda: 0.0, rng=random.Random(1), signal=lambda: None
        )
        topic, count = TopicQueues("t"), size // bytes_each
        accumulator.topics["t"] = topic
        everyone = range(count)
        return size, [lambda: accumulator.set_partitions(topic, count, everyone)]

    yield Case("Metadata", "partitions, a producer's queues", limit, queues)


# -- records -----------------------------------------------------------------------------------------------------------


def small_records(size: int, more: bytes = b"\1\1\0") -> tuple[bytes, int]:
    """Records with ascending offsets, and ``more``: their keys, values and headers."""
    made: list[bytes] = []
    left, number = size, 0
    while left > 0:
        body = b"\0\0" + encode_varint(number) + more
        made.append(encode_varint(len(body)) + body)
        left -= len(made[-1])
        number += 1
    return b"".join(made), number


def with_headers(size: int, count: int = 16_384) -> tuple[bytes, int]:
    """Records of as many headers as one may have, without names and values."""
    return small_records(size, b"\1\1" + encode_varint(count) + b"\0\1" * count)


def largest_bomb(codec: int, body: Callable[[int], tuple[bytes, int]], size: int) -> bytes:
    """A batch of about ``size`` bytes that inflates to as much as a reader takes, and 64 MiB at most."""
    return bomb(codec, body, size, min(inflation_bound(size) * 49 // 50, 64 << 20))


def moved(batch: bytes, base: int) -> bytes:
    """The batch at another offset, which its CRC does not cover."""
    return struct.pack(">q", base) + batch[8:]


def many_batches(size: int, body: bytes = b"\x0c\0\0\0\1\1\0", count: int = 1) -> bytes:
    one = v2_around(0, body, count)
    return b"".join(moved(one, number) for number in range(size // len(one)))


def many_messages(magic: int, size: int) -> bytes:
    """A message set of messages with nothing in them."""
    one = wrapper(magic, 0, b"", 0)
    return b"".join(moved(one, number) for number in range(size // len(one)))


def inputs_of_records() -> Iterator[tuple[str, Callable[[int], bytes]]]:
    """What a partition's records may be, by name."""
    for codec, kind in CODECS.items():
        for name, body in (("small", small_records), ("one huge", one_huge), ("headers", with_headers)):
            yield f"{kind.name}: {name}", lambda size, codec=codec, body=body: largest_bomb(codec, body, size)
        if codec < 4:
            for magic in (0, 1):
                yield f"{kind.name}: message set v{magic}", (
                    lambda size, magic=magic, codec=codec: wrapped(magic, codec, size)
                )
    yield "plain: small", lambda size: v2_around(0, *small_records(size))
    yield "plain: headers", lambda size: v2_around(0, *with_headers(size, 4096))
    yield "batches of one record", many_batches
    yield "batches of nothing", lambda size: many_batches(size, b"", 0)
    yield "messages v0", lambda size: many_messages(0, size)
    yield "messages v1", lambda size: many_messages(1, size)


def wrapped(magic: int, codec: int, size: int) -> bytes:
    """A wrapper of about ``size`` bytes around a set that inflates to as much as a reader takes, and 64 MiB at most."""
    inner, most = size, min(inflation_bound(size) * 49 // 50, 64 << 20)
    data = wrapper(magic, codec, many_messages(magic, inner))
    while len(data) < size and inner < most:
        inner = min(inner * max(2, min(64, size // len(data))), most)
        data = wrapper(magic, codec, many_messages(magic, inner), inner)
    return data


def _fetched() -> Iterator[Case]:
    def taken(data: bytes) -> tuple[int, Iterable[Step]]:
        return len(data), [lambda: CompletedFetch(PARTITION, 0, data)]

    def read(data: bytes, limit: int) -> tuple[int, Iterable[Step]]:
        fetched = CompletedFetch(PARTITION, 0, data)

        def step() -> None:
            with contextlib.suppress(KafkaError):
                fetched.read(limit, ReaderOptions())

        return len(data), [step, step]

    limit = "kafka.records.compression:_BOUND_BYTES"
    for name, make in inputs_of_records():
        if name.startswith(("batches", "messages")):
            yield Case("Fetch, on arrival", name, "kafka.wire.frame:DEFAULT_MAX_BYTES",
                       lambda size, make=make: taken(make(size)))  # fmt: skip
        for count in (10, 500):
            yield Case(f"Fetch, read({count})", name, limit,
                       lambda size, make=make, count=count: read(make(size), count), is_on_loop=False)  # fmt: skip


def _shared() -> Iterator[Case]:
    def acquired(data: bytes, ranges: list[AcquiredRange], *before: AcquiredRange) -> tuple[int, Iterable[Step]]:
        open_batch = SharedBatch()

        def read(wanted: list[AcquiredRange]) -> Iterator[Step]:
            readers: list[AcquiredReader] = []

            def step() -> None:
                try:
                    if not readers:
                        readers.append(AcquiredReader("t", 0, data, wanted, 30.0, None, open_batch=open_batch))
                    readers[0].read(AcquiredSlice())
                except KafkaError:
                    readers.clear()

            yield step
            while readers and not readers[0].is_over:
                yield step

        for each in before:
            for step in read([each]):
                step()
        return len(data) + 18 * len(ranges), read(ranges)

    def some(make: Callable[[int], bytes], share: float, warm: bool) -> Callable[[int], tuple[int, Iterable[Step]]]:
        def run(size: int) -> tuple[int, Iterable[Step]]:
            data = make(size)
            count = struct.unpack_from(">i", data, 57)[0] if data[16] == 2 else 1
            first = max(0, int((count - ACQUIRED) * share))
            before = [AcquiredRange(max(0, first - ACQUIRED), max(0, first - 1), 1)] if warm else []
            return acquired(data, [AcquiredRange(first, first + ACQUIRED - 1, 1)], *before)

        return run

    bound = "kafka.records.compression:_BOUND_BYTES"
    for name, make in inputs_of_records():
        if "message" in name:
            continue
        places = [("the first 500", 0.0, False)]
        if name.endswith(": small"):
            places += [("500 in the middle", 0.5, False), ("the last 500", 1.0, False)]
            places.append(("the last 500, with the batch open", 1.0, True))
        for place, share, warm in places:
            yield Case("ShareFetch", f"{name}: {place}", bound, some(make, share, warm))

    def everything(size: int) -> tuple[int, Iterable[Step]]:
        return acquired(largest_bomb(4, small_records, size), [AcquiredRange(0, 1 << 40, 1)])

    def scattered(size: int) -> tuple[int, Iterable[Step]]:
        ranges = [AcquiredRange(number * 2, number * 2, 1) for number in range(size // 36)]
        return acquired(many_batches(size // 2), ranges)

    def overlapping(size: int) -> tuple[int, Iterable[Step]]:
        count = size // 36
        ranges = [AcquiredRange(0, 1 << 40, 1)] * count
        return acquired(many_batches(size // 2, b"", 0), ranges)

    yield Case("ShareFetch", "all that a batch inflates to", bound, everything)
    yield Case("ShareFetch", "ranges of one offset", "kafka.wire.codec:SPARE_BYTES", scattered)
    yield Case("ShareFetch", "ranges that overlap", "kafka.wire.codec:SPARE_BYTES", overlapping)


# -- jobs and results --------------------------------------------------------------------------------------------------


def _records(headers: bytes, value: bytes, key: bytes | None = None) -> Callable[[int], list[ConsumerRecord]]:
    """So many bytes of records with these, at most as many as one poll of the results' tail."""
    each = len(headers) + len(value) + len(key or b"") + 10

    def make(size: int) -> list[ConsumerRecord]:
        count = min(max(1, size // each), RESULTS_POLLED)
        return [ConsumerRecord("r", 0, 0, number, T0, 0, key, value, headers) for number in range(count)]

    return make


def headers_of(*pairs: tuple[bytes, bytes]) -> bytes:
    """As they are in a record."""
    texts = itertools.chain.from_iterable(pairs)
    return encode_varint(len(pairs)) + b"".join(encode_varint(len(text)) + text for text in texts)


JOB_ID: Final = b"018bcfe568000000" + b"0" * 16
HOSTILE_HEADERS: Final = {
    "empty": headers_of(),
    "many headers": encode_varint(16_384) + b"\0\1" * 16_384,
    "128 headers": headers_of(*[(b"h", b"")] * 128),
    "a bad id": headers_of((b"id", b"x" * 32), (b"name", b"note")),
    "a long name": headers_of((b"id", JOB_ID), (b"name", b"n" * 30_000)),
    "a huge name": headers_of((b"id", JOB_ID), (b"name", b"n" * 900_000)),
    "long headers": headers_of((b"id", JOB_ID), (b"name", b"note"), *[(b"h" * 5000, b"v" * 5000)] * 100),
    "a bad number": headers_of((b"id", JOB_ID), (b"name", b"note"), (b"attempt", b"9" * 30_000)),
    "a fraction": headers_of((b"id", JOB_ID), (b"name", b"note"), (b"timeout", b"0." + b"1" * 30_000)),
    "a state": headers_of((b"state", b"SUCCESS")),
    "a long state": headers_of((b"state", b"S" * 30_000)),
    "a crash": headers_of((b"id", JOB_ID), (b"name", b"note"), (b"crashes", b"999")),
}


def _admitted() -> Iterator[Case]:
    def turns(headers: bytes, value: bytes | None, size: int, suspect: bool) -> tuple[int, Iterable[Step]]:
        clock = ManualClock()
        loop, app, queues = Loop.simulated(clock), App("shop", bootstrap_servers="fake://"), Queues(clock)
        app.task(name="note")(print)
        deliveries: list[FakeDelivery] = []

        def open_delivery(events: DeliveryEvents) -> FakeDelivery:
            deliveries.append(FakeDelivery(queues, loop, events, FakePublisher(queues, loop)))
            return deliveries[0]

        backend, pool = WorkerBackend(open_delivery, 8, 4), ManualPool(2, lambda: None)
        worker = Worker(app.tasks, app.names, loop, lambda: T0, "host", backend, pool)
        worker.start()
        (delivery,) = deliveries
        member = object.__new__(_Member)
        source = delivery.sources[2 if suspect else 0]
        member._source, member._events, member._held, member._idle_checks = source, cast(Any, worker), {}, 0
        each = len(headers) + len(value or b"") + 10
        count = min(max(1, size // each), 2000)
        records = [_share_record(number, value, headers) for number in range(count)]
        rest: object = True

        def turn() -> None:
            nonlocal rest
            rest = loop.run_once(0, advance=False)

        def steps() -> Iterator[Step]:
            yield lambda: member._leased(records)
            while rest:
                yield turn

        return count * each, steps()

    for name, headers in HOSTILE_HEADERS.items():
        for suspect in (False, True):
            where = "suspects" if suspect else "queue"
            yield Case("worker's records", f"{name} ({where})", "kafka.tasks.worker.worker:TURN_LEASES",
                       lambda size, headers=headers, suspect=suspect: turns(headers, b"x", size, suspect))  # fmt: skip
    large = b"x" * 900_000
    yield Case("worker's records", "large payloads", "kafka.tasks.worker.worker:TURN_BYTES",
               lambda size: turns(HOSTILE_HEADERS["a bad id"], large, size, False))  # fmt: skip


def _share_record(offset: int, value: bytes | None, headers: bytes) -> Any:
    return ShareRecord("t", 0, 0, offset, T0, 0, None, value, headers, 1, 1e12, None)


def _results() -> Iterator[Case]:
    def taken(make: Callable[[int], list[ConsumerRecord]], size: int, each: int) -> tuple[int, Iterable[Step]]:
        tails = object.__new__(Tails)
        tails._decoder = StateDecoder()
        tails._decoder._limited_log = _silent()
        tails._names = App("shop", bootstrap_servers="fake://").names
        tails._view, tails._waiters = ResultView(lambda _: True), JobWaiters()
        partition = partition_of(JOB_ID.decode())
        tails._by_partition = {partition: PartitionTail()}
        records = make(size)
        found = {TopicPartition(tails._names.results, partition): records}
        return len(records) * each, [lambda: tails._on_records(found)]

    limit = "kafka.tasks.results.view:MOST_VIEW_BYTES"
    for name, headers in HOSTILE_HEADERS.items():
        for key in (JOB_ID, b"k" * 1000):
            kind = "a job's id" if key == JOB_ID else "a long key"
            make, each = _records(headers, b"{}", key), len(headers) + len(key) + 12
            yield Case("results topic", f"{name}, {kind}", limit,
                       lambda size, make=make, each=each: taken(make, size, each))  # fmt: skip

    def published(size: int) -> tuple[int, Iterable[Step]]:
        reader = object.__new__(KafkaSnapshotReader)
        reader._snapshots, reader._clock_offset_ms = {}, 0
        snapshot = b"[" * 60_000
        count = size // len(snapshot) or 1
        records = [ConsumerRecord("w", 0, 0, n, T0, 0, b"%d" % n, snapshot, None) for n in range(count)]

        def add() -> None:
            for record in records:
                reader._add_record(record)

        return len(records) * len(snapshot), [add, reader._recent]

    yield Case("workers topic", "snapshots of 60 kB", "kafka.tasks.backends.kafka.snapshot_reader:MAX_WORKERS",
               published, is_on_loop=False)  # fmt: skip


def _silent() -> Any:
    class Silent:
        def warning(self, *_: object) -> None: ...

    return Silent()


# -- the channel of a child --------------------------------------------------------------------------------------------


def _channel() -> Iterator[Case]:
    def sent(data: Callable[[int], bytes], size: int) -> tuple[int, Iterable[Step]]:
        parent = ParentChannel(4, True)
        child = ChildChannel(4, parent.for_child, parent.page)
        messages = child._messages
        messages.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        messages.setblocking(False)
        rest = memoryview(data(size))
        total = len(rest)

        def look() -> None:
            with contextlib.suppress(ChannelDamaged):
                parent.read_messages()

        def steps() -> Iterator[Step]:
            nonlocal rest
            while rest and not parent.messages_eof:
                with contextlib.suppress(BlockingIOError):
                    while rest:
                        rest = rest[messages.send(rest[: 1 << 16]) :]
                yield look
            yield look
            child.close()
            parent.close()

        return total, steps()

    def repeated(frame: bytes) -> Callable[[int], bytes]:
        return lambda size: frame * max(1, size // len(frame))

    done = encode_done(1, JobSucceeded(b"x" * 60_000), 0.0, 0.0)
    for name, data in {
        "garbage": bytes,
        "frames of nothing": repeated(encode_frame(4, PROGRESS, b"")),
        "small outcomes": repeated(encode_frame(4, DONE, encode_done(1, JobSucceeded(b""), 0.0, 0.0))),
        "outcomes of 60 kB": repeated(encode_frame(4, DONE, done)),
        "the start of a frame": lambda size: encode_frame(4, PROGRESS, bytes(128 * 1024))[:-1],
    }.items():
        yield Case("child's channel", name, "kafka.tasks.pools.ipc.channel:MAX_MESSAGES",
                   lambda size, data=data: sent(data, size))  # fmt: skip
