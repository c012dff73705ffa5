"""Records to test with: the ones of the golden files, and strategies for any."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from kafka.records import RecordBatchBuilder
from kafka.records.reader import Headers

GOLDEN = Path(__file__).parent.parent / "golden" / "records"
T0 = 1_700_000_000_000

RawInput = tuple[int, bytes | None, bytes | None, Headers]

GOLDEN_RECORDS: list[RawInput] = [
    (T0, b"k0", b"v0", []),
    (T0 + 1, None, b"value only", []),
    (T0 + 200, b"tombstone", None, []),
    (T0 + 100, b"", b"", []),
    (T0 + 10_000, None, b"x" * 300, [("a", b"1"), ("b", None), ("é", b"")]),
]
"""What test/golden/records/README.md lists: timestamp, key, value, headers."""

timestamps = st.integers(-1, 2**40) | st.integers(T0 - 100, T0 + 10_000)
optional_bytes = st.none() | st.binary(max_size=200) | st.integers(4000, 9000).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=80), st.none() | st.binary(max_size=80)), max_size=3)
records: st.SearchStrategy[RawInput] = st.tuples(timestamps, optional_bytes, optional_bytes, headers)
record_lists = st.lists(records, min_size=1, max_size=8)


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.bin").read_bytes()


def builder_of(items: list[RawInput], compression: int = 0, limit_bytes: int = 2**31) -> RecordBatchBuilder:
    builder = RecordBatchBuilder(limit_bytes, compression)
    for index, (timestamp, key, value, items_of_record) in enumerate(items):
        assert builder.append(timestamp, key, value, items_of_record) == index
    return builder


def batch_of(items: list[RawInput], compression: int = 0, base_offset: int = 0) -> bytes:
    return builder_of(items, compression).build(base_offset=base_offset)
