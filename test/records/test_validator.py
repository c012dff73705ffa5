"""A produced batch is taken if, and only if, every consumer can read it; and looking at it costs little."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest

from kafka.errors import CorruptRecordError
from kafka.records import GZIP, ZSTD, RecordBatchBuilder, decode_raw, iter_batches, parse_header
from kafka.records.compression import InflationLimitError
from kafka.records.header import HEADER_BYTES, encode_varint
from kafka.records.validator import MAX_RECORD_ERRORS, BatchValidator
from test.records import fuzz
from test.records.samples import GOLDEN_RECORDS, T0, batch_of

BOUND = 1 << 20
EMPTY_RECORD = b"\x0c\0\0\0\1\1\0"


def validated(data: bytes, limit: int = 1000, bound: int = BOUND, **rules: object) -> BatchValidator:
    header = parse_header(data)
    assert header is not None
    validator = BatchValidator(data, header, bound, **rules)  # type: ignore[arg-type]
    while validator.read(limit):
        pass
    return validator


def with_deltas(deltas: list[int]) -> bytes:
    """A batch of empty records at these offsets."""
    records = [b"\0\0" + encode_varint(delta) + b"\1\1\0" for delta in deltas]
    body = b"".join(encode_varint(len(record)) + record for record in records)
    batch = bytearray(batch_of([(T0, None, b"", [])] * len(deltas))[:HEADER_BYTES]) + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return bytes(batch)


@pytest.mark.parametrize("limit", [1, 2, 1000])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_a_good_batch_is_taken_in_slices_of_any_size(limit: int, codec: int) -> None:
    found = validated(batch_of(GOLDEN_RECORDS, codec), limit)
    assert found.errors == []
    assert found.max_timestamp == max(record[0] for record in GOLDEN_RECORDS)


@pytest.mark.parametrize("deltas", [[0, 0], [0, 0, 0], [1, 0], [0, 2], [1, 2], [0, 1, 1], [0, -1]])
def test_records_at_other_offsets_than_one_after_another_are_corrupt(deltas: list[int]) -> None:
    with pytest.raises(CorruptRecordError, match="has the offset delta"):
        validated(with_deltas(deltas))


@pytest.mark.parametrize("null", [b"\1", b"\x81\0", b"\x81\x80\x80\x80\0"])
def test_a_null_key_or_value_is_one_however_many_bytes_its_length_has(null: bytes) -> None:
    """As ``ByteUtils.readVarint`` reads it."""
    for key, value in ((null, b"\2v"), (b"\2k", null), (null, null)):
        record = b"\0\0\0" + key + value + b"\0"
        data = fuzz.v2_around(0, encode_varint(len(record)) + record, 1)
        assert validated(data).errors == []
        header = parse_header(data)
        assert header is not None
        wanted = (None if key is null else b"k", None if value is null else b"v")
        assert decode_raw(data, header)[0][2:4] == wanted


def test_what_the_validator_takes_the_reader_reads_and_what_it_refuses_the_reader_does_too() -> None:
    """Bytes of good batches are changed anywhere in the records, a thousand times."""
    rng = random.Random()
    good = batch_of([*GOLDEN_RECORDS, *GOLDEN_RECORDS])
    taken = 0
    for _ in range(1000):
        data = bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 5))):
            data[rng.randrange(HEADER_BYTES, len(data))] = rng.choice((rng.randrange(256), 0, 1, 2, 0x7F, 0x80, 0xFF))
        header = parse_header(data)
        assert header is not None
        try:
            offsets: list[int] | None = [record[0] for record in decode_raw(bytes(data), header)]
        except CorruptRecordError:
            offsets = None
        is_good = offsets == list(range(header.records_count))
        try:
            validated(bytes(data), rng.choice((1, 3, 1000)))
        except CorruptRecordError:
            assert not is_good, bytes(data).hex()
        else:
            assert is_good, bytes(data).hex()
            taken += 1
    assert taken


def test_records_without_a_key_and_at_other_times_are_faults_where_that_is_asked_for() -> None:
    builder = RecordBatchBuilder(1 << 20)
    for timestamp, key in ((T0, b"k"), (T0 - 5, b"k"), (T0, None), (-1, b"k"), (T0 + 5, None)):
        builder.append(timestamp, key, b"v")
    data = builder.build()
    assert validated(data).errors == []
    found = validated(data, needs_keys=True, times=(T0, T0))
    faults = [(fault.index, fault.timestamp, fault.is_without_key) for fault in found.errors]
    assert faults == [(1, T0 - 5, False), (2, T0, True), (4, T0 + 5, True)]


def test_no_more_is_read_than_up_to_the_hundredth_fault() -> None:
    data = batch_of([(T0, None, b"v", [])] * 300) + b""
    cut = bytearray(data)
    cut[-1] ^= 0x7F  # the last record is corrupt
    found = validated(bytes(cut), needs_keys=True)
    assert [fault.index for fault in found.errors] == list(range(MAX_RECORD_ERRORS))


def test_a_batch_that_claims_more_records_than_it_has_room_for_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka.records.reader.codec_for", None)
    with pytest.raises(InflationLimitError):
        validated(fuzz.v2_around(GZIP, b"", 4_000_000), bound=16 << 20)
    with pytest.raises(CorruptRecordError, match="49 bytes are the most"):
        validated(fuzz.v2_around(0, bytes(49), 8))


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_a_million_records_are_looked_at_in_the_memory_of_their_bytes(codec: int) -> None:
    """They are corrupt, as all have one offset: that is found at the second one, and before that nothing is made."""
    body = EMPTY_RECORD * 1_000_000
    data = fuzz.v2_around(codec, body, 1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match="record 1 has the offset delta 0"):
            validated(data, bound=16 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64_000_000


def test_many_headers_count_as_records_of_a_slice() -> None:
    data = batch_of([(T0, None, b"v", [("name", b"value")] * 100)] * 50)
    header = parse_header(data)
    assert header is not None
    validator = BatchValidator(data, header, BOUND)
    slices = 1
    while validator.read(1000):
        slices += 1
    assert slices > 3


def test_a_record_has_at_most_16384_headers() -> None:
    most, more = (batch_of([(T0, None, b"v", [("", None)] * count)]) for count in (16_384, 16_385))
    validated(most)
    (header,) = iter_batches(more)
    with pytest.raises(CorruptRecordError, match="16385 record headers"):
        validated(more)
    with pytest.raises(CorruptRecordError, match="16385 record headers"):
        decode_raw(more, header)
