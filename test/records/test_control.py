"""Markers of transactions, from real logs and of any shape."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import CorruptRecordError
from kafka.records import ABORT, COMMIT, ControlMarker, decode_control, decode_raw, encode_control, iter_batches
from test.records.samples import golden


def test_the_markers_of_a_real_log_say_commit_and_abort() -> None:
    data = golden("librdkafka-transactions")
    batches = list(iter_batches(data))
    assert [header.is_control for header in batches] == [False, True, False, True]
    assert all(header.is_transactional for header in batches)
    markers = []
    for header in batches:
        if header.is_control:
            ((_, _, key, value, _),) = decode_raw(data, header)
            markers.append(decode_control(key, value))
    assert markers == [ControlMarker(COMMIT, 0), ControlMarker(ABORT, 0)]
    assert [marker.name for marker in markers] == ["commit", "abort"]


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
@given(epoch=st.integers(-1, 2**31 - 1), extra=st.binary(max_size=4))
def test_a_marker_survives_also_with_fields_of_a_later_version(kind: int, epoch: int, extra: bytes) -> None:
    key, value = encode_control(ControlMarker(kind, epoch))
    assert decode_control(key + extra, value + extra) == (kind, epoch)


def test_a_marker_of_another_kind_is_not_an_error() -> None:
    marker = decode_control(b"\0\0\0\5", None)
    assert (marker.kind, marker.name, marker.coordinator_epoch) == (5, "unknown", -1)


def test_markers_have_the_bytes_of_kafkas_end_txn_marker() -> None:
    """Key: version 0, type 0 for an abort and 1 for a commit; value: version 0, the coordinator's epoch (KIP-98)."""
    assert encode_control(ControlMarker(ABORT, 7)) == (bytes(4), b"\0\0\0\0\0\7")
    assert encode_control(ControlMarker(COMMIT, -1)) == (b"\0\0\0\1", b"\0\0\xff\xff\xff\xff")
    assert decode_control(bytes(4), b"\0\1\0\0\0\7") == ControlMarker(ABORT, 7)


@given(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=8))
def test_any_key_and_value_give_a_marker_or_are_corrupt(key: bytes | None, value: bytes | None) -> None:
    with contextlib.suppress(CorruptRecordError):
        decode_control(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, None), (b"\0\0\0", b""), (b"\0\0\0\1", None), (b"\0\0\0\1", b"\0\0\0\0\0"), (b"\xff\xff\0\1", bytes(6)),
     (b"\0\0\0\0", b"\xff\xff\0\0\0\0")],
)  # fmt: skip
def test_a_missing_short_or_negative_field_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecordError):
        decode_control(key, value)
