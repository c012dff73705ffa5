"""A seeded fuzzer of everything that reads records: valid bytes, broken in one to four ways, read in every way.

    python -m test.records.fuzz --inputs 1000000 --seed 7     # counts, worst time, peak of memory; 1 at a fault

What it breaks: batches v2 and message sets v0 and v1 of every codec, the golden files, wrappers within wrappers,
bombs, and several of them one behind another. How: bits, bytes, whole fields with values at their edges, lengths,
varints, cuts, insertions, repetitions, splices of two; on the outside, or inside what is compressed, which is then
compressed anew; with the CRC as it was, or put right, so that what lies behind the check is met as well.

What is promised: a result or an error of ours, whatever the bytes; no result larger than the bound; no input that takes
more CPU time than :data:`SLOW_S`. The same input is the same for ever: (seed, number) gives it again.

A new reader is a line in :data:`READERS`, a new format a corpus in :func:`corpus`. The short form runs with the other
tests (``test_fuzz.py``), over whatever is imported: plain Python or compiled.
"""

from __future__ import annotations

import argparse
import collections
import io
import pathlib
import random
import resource
import struct
import sys
import time
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from kafka._compiled import is_compiled
from kafka.core.consume.partition import CompletedFetch, ReaderOptions
from kafka.errors import KafkaError
from kafka.protocol.fetch import FetchResponse
from kafka.records import (
    ABORT,
    CODECS,
    LZ4,
    ControlMarker,
    Headers,
    RecordBatchBuilder,
    control_batch,
    decode_control,
    decode_raw,
    decode_records,
    encode_message_set,
    iter_batches,
    parse_header,
    scan_log,
    set_log_append_time,
    validate_batch,
)
from kafka.records.message_set import decode_produced, with_broken_lz4_checksum, with_correct_lz4_checksum
from kafka.records.validator import BatchValidator
from kafka.structs import TopicPartition
from kafka.wire.crc32c import crc32c

GOLDEN: Final = pathlib.Path(__file__).parent.parent / "golden"
BOUND: Final = 1 << 20
"""What may be inflated from one batch."""
SLOW_S: Final = 2.0
T0: Final = 1_700_000_000_000
PARTITION: Final = TopicPartition("t", 0)

_EDGES: Final = (0, 1, 2, 3, 7, 127, 128, 255, 256, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63)
_VARINTS: Final = tuple(
    bytes.fromhex(text)
    for text in ("00", "01", "02", "03", "7f", "8001", "ff01", "feffffff0f", "ffffffff0f", "8080808010",
                 "80808080808000", "ffffffffffffffffff01", "feffffffffffffffff01", "80808080808080808080", "8080808000")
)  # fmt: skip
_V2_FIELDS: Final = (
    (0, 8), (8, 4), (12, 4), (16, 1), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4),
)  # fmt: skip
"""Where each field of a header begins, and its bytes."""
_SET_FIELDS: Final = ((0, 8), (8, 4), (16, 1), (17, 1), (18, 4), (18, 8), (22, 4), (26, 4), (30, 4))


class Fault(Exception):
    """A promise was broken; the text has what gives the input again."""


# -- what is broken ----------------------------------------------------------------------------------------------------


def records_of(rng: random.Random, count: int) -> list[tuple[int, bytes | None, bytes | None, Headers]]:
    found = []
    for number in range(count):
        key = None if rng.random() < 0.3 else rng.randbytes(rng.randrange(20))
        value = None if rng.random() < 0.1 else b"value-%d " % number * rng.randrange(30)
        headers: Headers = [
            ("h" * rng.randrange(8), None if rng.random() < 0.3 else rng.randbytes(rng.randrange(9)))
            for _ in range(rng.choice((0, 0, 0, 1, 3)))
        ]
        found.append((T0 + rng.choice((0, 1, number, 10**6, -5)), key, value, headers))
    return found


def batch_v2(rng: random.Random, codec: int, *, count: int = 5, transactional: bool = False) -> bytes:
    builder = RecordBatchBuilder(1 << 30, codec)
    for record in records_of(rng, count):
        builder.append(*record)
    producer = (7, 1, 0) if transactional else (-1, -1, -1)
    return builder.build(*producer, transactional=transactional, base_offset=rng.choice((0, 10, 2**40)), leader_epoch=3)


def message_set(rng: random.Random, magic: int, codec: int, *, count: int = 5) -> bytes:
    records = [(10 + at, time, key, value, []) for at, (time, key, value, _) in enumerate(records_of(rng, count))]
    return encode_message_set(records, magic, codec, timestamp_type=rng.choice((0, 1)))


def wrapper(magic: int, codec: int, inner: bytes, offset: int = 20) -> bytes:
    """One message with ``codec`` around any bytes."""
    value = CODECS[codec].compress(inner, None) if codec in CODECS else inner
    if magic == 0 and codec == LZ4:
        value = with_broken_lz4_checksum(value)
    head = struct.pack(">bb", magic, codec) + (struct.pack(">q", T0) if magic else b"")
    body = head + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def v2_around(codec: int, body: bytes, count: int, *, base_offset: int = 0, last_delta: int | None = None) -> bytes:
    """A batch v2 with ``codec`` around any bytes that claim to be ``count`` records."""
    made = CODECS[codec].compress(body, None) if codec in CODECS else body
    delta = max(0, count - 1) if last_delta is None else last_delta
    fields = (base_offset, 49 + len(made), 0, 2, 0, codec, delta, T0, T0, -1, -1, -1, count)
    return refit(struct.pack(">qiibIhiqqqhii", *fields) + made)


def corpus(rng: random.Random) -> list[bytes]:
    """Valid buffers, and some that are made to hurt."""
    found = [path.read_bytes() for path in sorted(GOLDEN.glob("*/*.bin"))]
    for codec in (0, *CODECS):
        found += [batch_v2(rng, codec), batch_v2(rng, codec, count=1), batch_v2(rng, codec, count=60)]
        found.append(batch_v2(rng, codec, transactional=True))
        for magic in (0, 1):
            if codec < 4:
                found += [message_set(rng, magic, codec), message_set(rng, magic, codec, count=40)]
    found.append(control_batch(ControlMarker(ABORT, 0), T0, 7, 1, 5, 3))
    for codec in CODECS:  # bombs, and wrappers within wrappers
        found.append(v2_around(codec, bytes(3 << 20), 5))
        for magic in (0, 1):
            if codec < 4:
                found.append(wrapper(magic, codec, bytes(3 << 20)))
                nested = message_set(rng, magic, 0)
                for _ in range(20):
                    nested = wrapper(magic, codec, nested)
                found.append(nested)
    found += [rng.choice(found) + rng.choice(found) for _ in range(10)]
    return found


# -- how it is broken --------------------------------------------------------------------------------------------------


def flip_bits(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)


def set_bytes(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    for index in range(at, min(len(data), at + rng.choice((1, 2, 4, 16)))):
        data[index] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def set_field(rng: random.Random, data: bytearray) -> None:
    """A field of a header, at the start of any batch, gets a value at an edge."""
    starts = starts_of(bytes(data))
    fields = _V2_FIELDS if rng.random() < 0.5 else _SET_FIELDS
    at, width = rng.choice(fields)
    at += rng.choice(starts)
    value = rng.choice((*_EDGES, -1, -2, len(data), len(data) - at, len(data) - 12)) & ((1 << 8 * width) - 1)
    data[at : at + width] = value.to_bytes(width, "big")


def set_length(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at : at + 4] = struct.pack(">I", rng.choice(_EDGES) & 0xFFFFFFFF)


def set_varint(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at : at + rng.choice((0, 1, 1, 2, 5))] = rng.choice(_VARINTS)


def cut(rng: random.Random, data: bytearray) -> None:
    if rng.random() < 0.7:
        del data[rng.randrange(len(data)) :]
    else:
        at = rng.randrange(len(data))
        del data[at : at + rng.choice((1, 2, 4, 12, 100))]


def insert(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 60)))


def repeat(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    piece = bytes(data[at : at + rng.choice((1, 7, 61, 200))])
    data[at:at] = piece * rng.choice((1, 2, 30))


def splice(rng: random.Random, data: bytearray) -> None:
    at, other = rng.randrange(len(data)), rng.randrange(len(data))
    piece = bytes(data[other : other + rng.choice((4, 12, 61, 300))])
    data[at : at + len(piece)] = piece


BREAKERS: Final[tuple[Callable[[random.Random, bytearray], None], ...]] = (
    flip_bits, set_bytes, set_field, set_field, set_length, set_varint, cut, insert, repeat, splice,
)  # fmt: skip


def starts_of(data: bytes) -> list[int]:
    """Where batches begin, as far as their sizes lead."""
    starts = [0]
    pos = 0
    while len(starts) < 50 and pos + 17 <= len(data):
        pos += 12 + int.from_bytes(data[pos + 8 : pos + 12], "big")
        if pos + 17 <= len(data):
            starts.append(pos)
    return starts


def refit(data: bytes) -> bytes:
    """The CRCs put right, as far as sizes lead."""
    fixed = bytearray(data)
    for start in starts_of(data):
        end = min(len(data), start + 12 + int.from_bytes(data[start + 8 : start + 12], "big"))
        if data[start + 16 : start + 17] == b"\2":
            if end >= start + 21:
                fixed[start + 17 : start + 21] = crc32c(data[start + 21 : end]).to_bytes(4, "big")
        elif end >= start + 16:
            fixed[start + 12 : start + 16] = zlib.crc32(data[start + 16 : end]).to_bytes(4, "big")
    return bytes(fixed)


def resize(data: bytes) -> bytes:
    """The size of the last batch put right."""
    fixed = bytearray(data)
    start = starts_of(data)[-1]
    if start + 12 <= len(data):
        fixed[start + 8 : start + 12] = max(0, len(data) - start - 12).to_bytes(4, "big")
    return bytes(fixed)


def broken_inside(rng: random.Random, data: bytes) -> bytes:
    """The first batch, broken within what it has compressed (or in its records, where it has not)."""
    try:
        header = parse_header(data)
        if header is None:
            return data
        codec = header.attributes & 7
        if header.magic == 2:
            body = data[61 : header.end]
            plain = CODECS[codec].decompress(body, BOUND) if codec else body
            return v2_around(codec, broken(rng, plain), header.records_count)
        if codec not in CODECS:
            return data
        value = data[header.start + (26, 34)[header.magic] : header.end]
        if header.magic == 0 and codec == LZ4:
            value = with_correct_lz4_checksum(value)
        plain = CODECS[codec].decompress(value, BOUND)
        inner = broken(rng, plain)
        return wrapper(header.magic, codec, refit(inner) if rng.random() < 0.7 else inner, header.base_offset)
    except KafkaError:
        return data


def broken(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not made:
            break
        rng.choice(BREAKERS)(rng, made)
    return bytes(made)


class Fuzzer:
    """Inputs of one seed, by number."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._corpus = corpus(random.Random(seed))

    def input(self, number: int) -> bytes:
        """The input with this number, whatever came before it."""
        rng = random.Random(f"{self.seed}-{number}")
        data = rng.choice(self._corpus)
        way = rng.random()
        if way < 0.45:
            data = broken_inside(rng, data)
        elif way < 0.55:
            other = rng.choice(self._corpus)
            data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other)) :]
        else:
            data = broken(rng, data)
        if rng.random() < 0.3:
            data = resize(data)
        return refit(data) if rng.random() < 0.6 else data


# -- how it is read ----------------------------------------------------------------------------------------------------

Buffer = bytes | bytearray | memoryview


def _size(records: object) -> int:
    total = 0
    assert isinstance(records, list)
    for _, _, key, value, headers in records:
        total += len(key or b"") + len(value or b"") + sum(len(name) + len(item or b"") for name, item in headers)
    return total


def read_checked(data: Buffer) -> int:
    return sum(_size(decode_raw(data, header, BOUND)) for header in iter_batches(data))


def read_unchecked(data: Buffer) -> int:
    largest = 0
    for header in iter_batches(data, check_crcs=False):
        repr(header)
        largest = max(largest, _size(decode_raw(data, header, BOUND)))
    return largest


def read_objects(data: Buffer) -> int:
    header = parse_header(data)
    if header is not None:
        repr(decode_records(data, header, BOUND)[:3])
    return 0


def read_as_consumer(data: Buffer) -> int:
    aborted = [FetchResponse.AbortedTransaction(producer_id=7, first_offset=0)]
    fetched = CompletedFetch(PARTITION, 3, data, aborted)
    options = ReaderOptions(read_committed=True)
    turns = 0
    while not fetched.is_exhausted:
        fetched.read(1000, options)
        turns += 1
        assert turns < 10_000, "it reads for ever"
    return 0


def read_produced(data: Buffer) -> int:
    return _size(decode_produced(data, BOUND)[0])


def read_as_broker(data: Buffer) -> int:
    header = validate_batch(data)
    BatchValidator(data, header, BOUND).read(header.records_count)
    set_log_append_time(bytearray(data), 0, T0)
    return 0


def read_log(data: Buffer) -> int:
    for header in scan_log(io.BytesIO(bytes(data))):
        assert header.end <= len(data)
    return 0


def read_markers(data: Buffer) -> int:
    for header in iter_batches(data, check_crcs=False):
        for _, _, key, value, _ in decode_raw(data, header, BOUND)[:3]:
            decode_control(key, value)
    return 0


READERS: Final[tuple[Callable[[Buffer], int], ...]] = (
    read_checked, read_unchecked, read_objects, read_as_consumer, read_produced, read_as_broker, read_log, read_markers,
)  # fmt: skip


class Tally(NamedTuple):
    """What came of a run: outcomes by reader and kind, the slowest input in seconds and its number."""

    outcomes: collections.Counter[str]
    slowest_s: float
    slowest: int


def run(seed: int, first: int, count: int, *, progress: bool = False) -> Tally:
    """Read the inputs ``first`` to ``first + count - 1``. Raises :class:`Fault` at the first broken promise."""
    fuzzer = Fuzzer(seed)
    outcomes: collections.Counter[str] = collections.Counter()
    slowest_s, slowest = 0.0, -1
    for number in range(first, first + count):
        data = fuzzer.input(number)
        given: Buffer = (data, bytearray(data), memoryview(data))[number % 3]
        began = time.process_time()
        for read in READERS:
            try:
                size = read(given)
            except KafkaError as error:
                outcomes[f"{read.__name__}: {type(error).__name__}"] += 1
            except BaseException as error:
                raise Fault(f"{_where(seed, number, data)}: {read.__name__} raised {error!r}") from error
            else:
                outcomes[f"{read.__name__}: read"] += 1
                if size > 64 * BOUND:
                    raise Fault(f"{_where(seed, number, data)}: {read.__name__} made {size} bytes")
        took_s = time.process_time() - began
        if took_s > slowest_s:
            slowest_s, slowest = took_s, number
            if took_s > SLOW_S:
                raise Fault(f"{_where(seed, number, data)}: took {took_s:.1f} s")
        if progress and number % 50_000 == 49_999:
            print(f"{number + 1} inputs, slowest {slowest_s * 1000:.1f} ms", flush=True)
    return Tally(outcomes, slowest_s, slowest)


def _where(seed: int, number: int, data: bytes) -> str:
    return f"seed {seed}, input {number}, {len(data)} bytes {data[:200].hex()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began = time.perf_counter()
    try:
        tally = run(args.seed, args.first, args.inputs, progress=True)
    except Fault as fault:
        print(f"FAULT {fault}\n{fault.__cause__!r}")
        return 1
    for name, count in sorted(tally.outcomes.items()):
        print(f"{count:>9}  {name}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{args.inputs} inputs of seed {args.seed} by {len(READERS)} readers, "
        f"{'compiled' if is_compiled() else 'plain'}, in {time.perf_counter() - began:.0f} s; "
        f"slowest {tally.slowest_s * 1000:.1f} ms (input {tally.slowest}); peak {peak} MiB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
