"""A produced batch is taken if, and only if, every consumer can read it; and looking at it costs little."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Sequence

import pytest

from kafka.errors import CorruptRecordError
from kafka.records import GZIP, ZSTD, RecordBatchBuilder, decode_raw, iter_batches, parse_header
from kafka.records.compression import InflationLimitError
from kafka.records.header import HEADER_BYTES, encode_varint
from kafka.records.validator import MAX_RECORD_ERRORS, MIN_RUN_RECORDS, BatchValidator, UniformRun, find_uniform_run
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


# -- runs of records that are laid out alike ---------------------------------------------------------------------------


def alike(
    count: int,
    value: bytes = b"v" * 100,
    key: bytes | None = None,
    step_ms: float = 0.0,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    builder = RecordBatchBuilder(1 << 24)
    for number in range(count):
        builder.append(T0 + int(number * step_ms), key, value, list(headers))
    return builder.build()


def runs_of(data: bytes) -> list[UniformRun]:
    """All of them, one behind the other, up to the first record that is in none."""
    header = parse_header(data)
    assert header is not None
    found: list[UniformRun] = []
    pos, number = HEADER_BYTES, 0
    while number < header.records_count:
        run = find_uniform_run(data, pos, len(data), number, header.records_count - number)
        if run is None:
            break
        found.append(run)
        pos += run.records * run.step
        number += run.records
    return found


def test_a_run_ends_where_a_number_gets_another_byte() -> None:
    """KIP-98's layout: zigzag varints, so offsets have two bytes from 64 on, and three from 8192 on."""
    assert [(run.records, run.step) for run in runs_of(alike(20_000))] == [
        (64, 109), (8128, 110), (8192, 111), (3616, 111),
    ]  # fmt: skip
    of_times = runs_of(alike(256, step_ms=0.5))
    assert [(run.records, run.max_delta) for run in of_times] == [(64, 31), (64, 63), (128, 127)]


@pytest.mark.parametrize("size", [0, 1, 50, 63, 64, 100, 5000, 8000])
@pytest.mark.parametrize("key", [None, b"", b"k" * 63])
def test_values_of_all_sizes_and_short_keys_make_runs(size: int, key: bytes | None) -> None:
    (run,) = runs_of(alike(40, b"v" * size, key))
    assert (run.records, run.has_keys) == (40, key is not None)


@pytest.mark.parametrize(
    "data",
    [
        alike(MIN_RUN_RECORDS - 1),
        alike(40, b"v" * 9000),
        alike(40, key=b"k" * 64),
        alike(40, headers=[("h", b"x" * 64)]),
        alike(40, headers=[("h" * 64, b"x")]),
        alike(40, headers=[("h", b"x")] * 64),
        alike(40, step_ms=10_000.0),
        alike(40, step_ms=-1.0),
    ],
    ids=[
        "few", "large values", "long keys", "long headers", "long names", "many headers", "far timestamps",
        "timestamps that descend",
    ],
)
def test_what_is_unusual_is_left_to_the_walk(data: bytes) -> None:
    assert sum(run.records for run in runs_of(data)) <= 1
    assert checked(data, 1000) == checked(data, MIN_RUN_RECORDS - 1)


HEADERS: list[list[tuple[str, bytes | None]]] = [
    [], [("", b"")], [("a", b"x" * 63), ("b" * 63, None)], [("n", None)] * 63
]  # fmt: skip


@pytest.mark.parametrize("headers", HEADERS, ids=["none", "empty", "long and null", "63"])
def test_records_with_short_headers_make_runs(headers: list[tuple[str, bytes | None]]) -> None:
    (run,) = runs_of(alike(40, headers=headers))
    assert run.records == 40


def test_a_run_ends_where_a_header_is_cut_otherwise() -> None:
    """All records have 10 bytes of headers."""
    builder = RecordBatchBuilder(1 << 20)
    cuts: list[list[tuple[str, bytes | None]]] = [[("ab", b"cdefg")], [("abc", b"defg")], [("a", b"b"), ("c", b"de")]]
    for number in range(80):
        builder.append(T0, None, b"v", cuts[number // 16 % 3])
    data = builder.build()
    assert [run.records for run in runs_of(data)] == [16] * 5
    assert checked(data, 1000) == checked(data, 1) == (T0, [])


def test_a_run_ends_before_the_first_record_that_is_not_like_the_others() -> None:
    builder = RecordBatchBuilder(1 << 20)
    for number in range(60):
        builder.append(T0, b"k" if number == 45 else None, b"v" * (101 if number == 30 else 100))
    data = builder.build()
    assert [run.records for run in runs_of(data)] == [30]
    assert checked(data, 1000) == checked(data, 1) == (T0, [])


def checked(data: bytes, limit: int, **rules: object) -> tuple[int, list[tuple[int, int, bool]]] | None:
    """What the validator makes of a batch, so many records at a time: the greatest timestamp, or 0 with faults, and the
    faults; None: it is corrupt. With less than a run at a time no run is looked for."""
    header = parse_header(data)
    assert header is not None
    try:
        validator = BatchValidator(data, header, 1 << 24, **rules)  # type: ignore[arg-type]
        while validator.read(limit):
            pass
    except CorruptRecordError:
        return None
    faults = [(fault.index, fault.timestamp, fault.is_without_key) for fault in validator.errors]
    return 0 if faults else validator.max_timestamp, faults


RULES: list[dict[str, object]] = [{}, {"needs_keys": True}, {"times": (T0 + 20, T0 + 60)}, {"times": (0, T0 + 127)}]


@pytest.mark.parametrize("rules", RULES, ids=["none", "keys", "times", "not later"])
@pytest.mark.parametrize("key", [None, b"key"])
def test_the_same_is_found_with_and_without_runs(rules: dict[str, object], key: bytes | None) -> None:
    for step_ms in (0.0, 0.5, 3.0):
        for headers in HEADERS:
            data = alike(300, key=key, step_ms=step_ms, headers=headers)
            assert checked(data, 1000, **rules) == checked(data, MIN_RUN_RECORDS - 1, **rules) is not None


@pytest.mark.parametrize("times", [range(64), range(64, 200), range(100, 4000, 64), (127, 64), (70, 8191, 64)])
def test_the_greatest_time_of_a_run_is_found_in_any_order(times: Sequence[int]) -> None:
    """Of one byte, and of two of which the first, the second or both differ."""
    rng = random.Random()
    builder = RecordBatchBuilder(1 << 20)
    deltas = [0] + [rng.choice(times) for _ in range(599)]
    for delta in deltas:
        builder.append(T0 + delta, None, b"v" * 100)
    data = builder.build()
    assert checked(data, 1000) == checked(data, MIN_RUN_RECORDS - 1) == (T0 + max(deltas), [])
    pos = HEADER_BYTES
    for _ in range(64):  # where offsets get a second byte
        pos += 1 + (data[pos] >> 1) if data[pos] < 0x80 else 2 + ((data[pos] & 0x7F) >> 1 | data[pos + 1] << 6)
    run = find_uniform_run(data, pos, len(data), 64, 500)
    assert run is not None
    assert (run.records, run.max_delta) == (500, max(deltas[64:564]))


def test_runs_that_end_early_cost_no_more_than_the_records_that_they_have() -> None:
    """Of one size, with a last header that is cut otherwise after every 16 records: each run is found in the columns of
    256 records, or of four times those of the run before, however long the batch is."""
    builder = RecordBatchBuilder(1 << 24)
    cuts: list[list[tuple[str, bytes | None]]] = [[("", b"")] * 60 + [("a", b"")], [("", b"")] * 60 + [("", b"a")]]
    for number in range(8192):
        builder.append(T0, None, b"v", cuts[number // 16 % 2])
    data = builder.build()
    header = parse_header(data)
    assert header is not None
    validator = BatchValidator(data, header, 1 << 24)
    slices = 1
    while validator.read(1024):
        slices += 1
    assert slices >= 8192 // 16 * 2 * 60 // 1024, "each of the runs counts as much as its columns"


def test_a_first_record_of_an_unusual_time_makes_no_run() -> None:
    """A compressed batch's records begin at byte 0 of what is looked at."""
    for time in (b"\1", b"\x81\1", b"\x80\x80\1"):
        record = b"\0" + time + b"\0\1\1\0"
        body = (bytes([2 * len(record)]) + record) * 10_000
        assert find_uniform_run(body, 0, len(body), 0, 64) is None


def test_of_damaged_batches_the_same_is_found_with_and_without_runs_and_by_the_reader() -> None:
    rng = random.Random()
    outcomes = [0, 0]
    for _ in range(1500):
        count = rng.choice((20, 70, 130))
        value, headers = b"v" * rng.choice((0, 3, 60, 70)), rng.choice(HEADERS[:3])
        good = alike(count, value, rng.choice((None, b"k")), rng.choice((0, 0.7)), headers)
        data = bytearray(good)
        for _ in range(rng.choice((1, 1, 2))):
            place = rng.randrange(HEADER_BYTES, len(data))
            data[place] = rng.choice((rng.randrange(256), data[place] ^ 1, data[place] ^ 2, data[place] ^ 0x80, 0, 1))
        header = parse_header(data)
        assert header is not None
        found = checked(bytes(data), 1000)
        assert found == checked(bytes(data), MIN_RUN_RECORDS - 1), bytes(data).hex()
        try:
            records = decode_raw(bytes(data), header)
        except CorruptRecordError:
            assert found is None, bytes(data).hex()
        else:
            in_order = [record[0] for record in records] == list(range(count))
            assert (found is not None) == in_order, bytes(data).hex()
            assert found is None or found[0] == max(record[1] for record in records)
        outcomes[found is None] += 1
    assert min(outcomes) > 100
