"""What the reader takes out of a fetcher: nothing twice, nobody left out, and the fetcher hears of it."""

from __future__ import annotations

import threading

import pytest

from kafka.consumer.driver import FetchBufferReader, RecordNotifier, WakeupEvent
from kafka.core.consume.fetcher import RequestOffsets
from kafka.core.consume.partition import ReaderOptions, RecordsByPartition
from kafka.errors import CorruptRecordError, OffsetOutOfRangeError, TopicAuthorizationFailedError
from kafka.net.loop import Loop
from kafka.records import Headers, RecordBatchBuilder
from test.core.consume.rig import A, B, C, Rig
from test.core.consume.test_partition import batch


class Changed:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def reader_of(rig: Rig) -> tuple[FetchBufferReader, Changed]:
    changed = Changed()
    return FetchBufferReader(rig.fetcher, threading.Lock(), changed), changed


def values(records: RecordsByPartition) -> list[bytes]:
    return [record.value for each in records.values() for record in each]


def test_an_error_of_one_partition_is_raised_though_another_always_has_records() -> None:
    rig = Rig(A, B, reset_policy="none")
    rig.seek_all()
    reader, _ = reader_of(rig)
    rig.answer(rig.fetch(), p0=batch(0, b"x"), p1=1)
    for offset in range(1, 8):
        rig.answer(rig.fetch(), p0=batch(offset, b"x"))  # so that there is always one more than is read
        try:
            reader.take(10)
        except OffsetOutOfRangeError:
            return
    raise AssertionError("the error reached nobody")


def test_a_damaged_batch_of_one_partition_is_reported_though_another_always_has_records() -> None:
    rig = Rig(A, B)
    rig.seek_all()
    reader, _ = reader_of(rig)
    damaged = bytearray(batch(0, b"b"))
    damaged[-1] ^= 1
    rig.answer(rig.fetch(), p0=batch(0, b"x"), p1=bytes(damaged))
    for offset in range(1, 8):
        for call in rig.fetches():
            rig.answer(call, p0=batch(offset, b"x"))
        try:
            reader.take(10)
        except CorruptRecordError:
            return
    raise AssertionError("the fault reached nobody")


def test_what_was_read_while_the_position_became_another_is_not_handed_out() -> None:
    """It is fetched again, and would be handed out twice: a log that was truncated is one reason for that."""

    def meanwhile(_topic: str, _headers: object, value: bytes | None) -> bytes | None:
        if value == b"b" and not dropped:
            dropped.append(True)
            rig.fetcher.positions[A].drop_buffer()
        return value

    dropped: list[bool] = []
    rig = Rig(A, options=ReaderOptions(value=meanwhile))
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"a", b"b"))
    reader, _ = reader_of(rig)
    assert reader.take(10) == {}
    assert dropped
    rig.answer(rig.fetch(), p0=batch(0, b"a", b"b"))
    assert values(reader.take(10)) == [b"a", b"b"]


def test_the_fetcher_hears_of_what_was_read_before_an_error_is_raised() -> None:
    """A batch of which nothing is handed out: nobody would ever fetch on."""
    rig = Rig(A, B, reset_policy="none", max_partition_bytes=1)
    rig.fetcher.positions[A].seek(5)
    rig.fetcher.positions[B].seek(0)
    rig.answer(rig.fetch(), p0=batch(0, b"a"), p1=1)
    assert not rig.fetches(), "the buffer is full"
    reader, changed = reader_of(rig)
    with pytest.raises(OffsetOutOfRangeError):
        reader.take(10)
    assert changed.count == 1


def test_many_headers_end_a_poll_whichever_partitions_they_are_of_and_the_rest_comes_with_the_next() -> None:
    headers: Headers = [("", b"")] * 16_000  # 32 kB
    builder = RecordBatchBuilder(1 << 20)
    for _ in range(6):
        builder.append(1000, None, b"x", headers)
    rig = Rig(A, B)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=builder.build(), p1=builder.build())
    reader, _ = reader_of(rig)
    assert [len(values(reader.take(500))) for _ in range(3)] == [9, 3, 0]


def test_reading_what_was_in_nobodys_way_wakes_nobody() -> None:
    """The next fetch of the partition is on its way, and a wake-up costs as much as the record."""
    rig = Rig(A)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"a"))
    assert rig.fetches()
    reader, changed = reader_of(rig)
    assert values(reader.take(10)) == [b"a"]
    assert changed.count == 0


def test_reading_what_has_taken_all_the_room_has_the_others_fetched() -> None:
    rig = Rig(A, C, buffer_bytes=2000, max_partition_bytes=1000)
    rig.seek_all()
    calls = {call.node: call for call in rig.fetches()}
    rig.answer(calls[1], p0=batch(0, b"a" * 900))
    rig.answer(calls[2], p2=batch(0, b"c" * 500))
    assert len(rig.fetches()) < 2
    reader, changed = reader_of(rig)
    assert len(values(reader.take(1))) == 1
    assert changed.count == 1
    assert rig.fetches()


def test_errors_of_a_partition_say_where_they_were() -> None:
    def fussy(_topic: str, _headers: object, value: bytes | None) -> bytes | None:
        if value == b"bad":
            raise ValueError("fussy")
        return value

    def fault(rig: Rig) -> tuple[object, object]:
        reader, _ = reader_of(rig)
        for _ in range(3):
            try:
                reader.take(10)
            except Exception as error:
                return getattr(error, "topic_partition", None), getattr(error, "offset", "none")
        raise AssertionError("the fault reached nobody")

    assert fault(Rig(A, reset_policy="none")) == (A, None), "NoOffsetForPartitionError"
    rig = Rig(A, reset_policy="none")
    rig.seek_all(1000)
    rig.answer(rig.fetch(), p0=1)
    assert fault(rig) == (A, 1000), "OffsetOutOfRangeError"
    rig = Rig(A, options=ReaderOptions(value=fussy))
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"good", b"bad"))
    assert fault(rig) == (A, 1), "what a deserialiser raises"
    rig = Rig(A)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"a")[:-1] + b"?")
    assert fault(rig) == (A, 0), "CorruptRecordError"


def test_a_look_up_that_was_refused_is_retried_once_it_was_reported() -> None:
    """The rights may have been granted since."""
    rig = Rig(A)
    rig.fetcher.offsets_received(rig.find(), {A: TopicAuthorizationFailedError("t")}, rig.now)
    reader, changed = reader_of(rig)
    with pytest.raises(TopicAuthorizationFailedError):
        reader.take(10)
    assert changed.count == 1
    assert any(isinstance(effect, RequestOffsets) for effect in rig.poll())
    assert reader.take(10) == {}


class Source:
    """Two partitions: one has an error that stands, the other's records are all there already."""

    def __init__(self) -> None:
        self.error = OffsetOutOfRangeError("t-0")
        self.left = 3
        self.turns = 0

    def is_ready(self) -> bool:
        return True

    def take(self, limit: int) -> RecordsByPartition:
        self.turns += 1
        if self.turns % 2 or not self.left:
            raise self.error
        self.left -= 1
        return {A: []} if self.left < 0 else {A: [None]}  # type: ignore[list-item]


def test_on_a_loop_an_error_that_stands_keeps_no_records_from_anybody_and_no_loop_busy() -> None:
    loop = Loop()
    source, told, got = Source(), [], []
    delivery = RecordNotifier(loop, source, WakeupEvent(), 10, got.append, told.append)
    delivery.on_news()
    for _ in range(30):
        loop.run_once(0)
    loop.close()
    assert len(got) == 3
    assert source.turns < 12, "it goes on when there is news"
