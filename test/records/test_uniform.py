"""Records that are laid out alike are passed over together if, and only if, the walk would take each of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kafka.errors import CorruptRecordError
from kafka.records import RecordBatchBuilder, decode_raw, parse_header
from kafka.records.header import HEADER_BYTES
from kafka.records.validator import MIN_RUN_RECORDS, BatchValidator, UniformRun, find_uniform_run
from test.records.samples import T0


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
