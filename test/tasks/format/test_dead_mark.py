"""Marks of dead jobs as records, both ways."""

from __future__ import annotations

import pytest

from kafka.tasks.format.dead_mark import MOST_MARKED, DeadMark, MarkKind, decode_mark, encode_mark
from kafka.tasks.format.envelope import Header, dead_letter_of


@pytest.mark.parametrize(
    "mark",
    [
        DeadMark(MarkKind.DROPPED, (0, 7, 2**40)),
        DeadMark(MarkKind.REPLAYED, (3, 4), ("0" * 32, "f" * 32)),
    ],
)
def test_a_mark_is_read_as_it_was_written(mark: DeadMark) -> None:
    value, headers = encode_mark(mark)
    assert decode_mark(value, headers) == mark
    assert dead_letter_of(headers) is None, "it would be listed as a dead job"


def test_the_layout_is_the_documented_one() -> None:
    value, headers = encode_mark(DeadMark(MarkKind.REPLAYED, (3,), ("a" * 32,)))
    assert value == b'{"offsets":[3],"ids":["' + b"a" * 32 + b'"]}'
    assert headers == [("dead-mark", b"replayed")]


def test_the_largest_mark_is_small() -> None:
    value, _ = encode_mark(DeadMark(MarkKind.REPLAYED, (10**12,) * MOST_MARKED, ("a" * 32,) * MOST_MARKED))
    assert len(value) < 25_600


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (b'{"offsets":[1]}', []),
        (b'{"offsets":[1]}', [("dead-mark", b"buried")]),
        (b'{"offsets":[1]}', [("dead-mark", None)]),
        (b'{"offsets":[1]}', [("dead-mark", b"\xff")]),
        (None, [("dead-mark", b"dropped")]),
        (b"[1]", [("dead-mark", b"dropped")]),
        (b"{}", [("dead-mark", b"dropped")]),
        (b'{"offsets":[-1]}', [("dead-mark", b"dropped")]),
        (b'{"offsets":[true]}', [("dead-mark", b"dropped")]),
        (b'{"offsets":7}', [("dead-mark", b"dropped")]),
        (b'{"offsets":[1],"ids":["a","b"]}', [("dead-mark", b"replayed")]),
        (b'{"offsets":[1],"ids":[5]}', [("dead-mark", b"replayed")]),
        (b"[" * 100_000, [("dead-mark", b"dropped")]),
    ],
)
def test_what_is_no_mark_is_none(value: bytes | None, headers: list[Header]) -> None:
    assert decode_mark(value, headers) is None
