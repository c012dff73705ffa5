"""What a broker does with batches: validation, placing, stamping, recovery at every byte."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import CorruptRecordError, InvalidRecordError
from kafka.records import (
    GZIP,
    NO_PRODUCER_ID,
    ControlMarker,
    control_batch,
    decode_raw,
    decode_records,
    iter_batches,
    rewrite_base,
    scan_log,
    set_log_append_time,
    validate_batch,
)
from kafka.records.header import ATTRIBUTES_AT, CRC_AT
from kafka.wire.crc32c import crc32c
from test.records.samples import GOLDEN_RECORDS, T0, batch_of, builder_of, golden

PRODUCED = batch_of(GOLDEN_RECORDS)


def with_field(layout: str, at: int, value: int, batch: bytes = PRODUCED) -> bytes:
    """The batch with another value in one field, and the CRC that fits."""
    data = bytearray(batch)
    struct.pack_into(layout, data, at, value)
    struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[ATTRIBUTES_AT:])))
    return bytes(data)


def log_of(*counts: int) -> bytes:
    """A log of one batch for each count, at the offsets that follow."""
    data = b""
    offset = 0
    for count in counts:
        data += batch_of(GOLDEN_RECORDS[:count], GZIP if count == 3 else 0, base_offset=offset)
        offset += count
    return data


def scan(data: bytes, pos: int = 0) -> tuple[list[tuple[int, int, int]], str]:
    found: list[tuple[int, int, int]] = []
    try:
        for header in scan_log(io.BytesIO(data), pos):
            found.append((header.start, header.end, header.base_offset))
    except CorruptRecordError as error:
        return found, str(error)
    return found, ""


def test_a_good_produced_batch_is_taken_with_its_header() -> None:
    header = validate_batch(PRODUCED)
    assert (header.records_count, header.start, header.end) == (5, 0, len(PRODUCED))
    assert validate_batch(memoryview(b"before" + PRODUCED), 6).start == 6


def test_an_idempotent_batch_needs_epoch_and_sequence() -> None:
    assert validate_batch(builder_of(GOLDEN_RECORDS).build(7, 0, 0)).producer_id == 7
    for producer in ((7, 0, -1), (7, -1, 0)):
        with pytest.raises(InvalidRecordError, match="producer 7"):
            validate_batch(builder_of(GOLDEN_RECORDS).build(*producer))


@pytest.mark.parametrize("end", [0, 1, 16, 17, 60, 61, len(PRODUCED) - 1])
def test_a_cut_produced_batch_is_corrupt(end: int) -> None:
    with pytest.raises(CorruptRecordError):
        validate_batch(PRODUCED[:end])


def test_a_damaged_produced_batch_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError, match="CRC"):
        validate_batch(PRODUCED[:-1] + b"\x7f")


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (PRODUCED + PRODUCED, "only one"),
        (PRODUCED + b"\0", "only one"),
        (with_field(">i", 57, 4), "4 records over 5 offsets"),
        (with_field(">i", 57, 0), "0 records over 5 offsets"),
        (control_batch(ControlMarker(0, 0), T0, NO_PRODUCER_ID, -1, 0, 0), "control"),
        (struct.pack(">qiIbb", 0, 14, 0, 0, 0).ljust(26, b"\xff"), "magic 0"),
    ],
)
def test_what_should_not_have_been_sent_is_refused_for_good(batch: bytes, reason: str) -> None:
    with pytest.raises(InvalidRecordError, match=reason):
        validate_batch(batch)


def test_a_batch_gets_its_place_without_a_new_crc() -> None:
    data = bytearray(b"before" + PRODUCED)
    rewrite_base(data, 6, 2**40, 9)
    (header,) = iter_batches(data, 6)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (2**40, 9, 2**40 + 4)
    assert [record[0] for record in decode_raw(data, header)] == list(range(2**40, 2**40 + 5))


@pytest.mark.parametrize("compression", [0, GZIP])
def test_a_stamped_batch_has_a_new_crc_and_one_time_for_all_records(compression: int) -> None:
    data = bytearray(b"before" + batch_of(GOLDEN_RECORDS, compression) + b"after")
    set_log_append_time(data, 6, T0 + 77)
    header = next(iter_batches(data, 6))
    assert {(record.timestamp, record.timestamp_type) for record in decode_records(data, header)} == {(T0 + 77, 1)}
    assert data[-5:] == b"after"


def test_a_stamped_batch_has_the_bytes_that_a_java_broker_gives_it() -> None:
    theirs = golden("broker-log-append-time")
    (header,) = iter_batches(theirs)
    ours = bytearray(PRODUCED)
    rewrite_base(ours, 0, 0, 0)
    set_log_append_time(ours, 0, header.max_timestamp)
    assert ours == theirs


def test_only_a_whole_batch_can_be_stamped() -> None:
    with pytest.raises(CorruptRecordError):
        set_log_append_time(bytearray(PRODUCED[:-1]), 0, T0)


def test_a_message_set_cannot_be_stamped() -> None:
    message = struct.pack(">qiIbb", 2, 60, 0, 1, 0).ljust(72, b"\xff")
    with pytest.raises(CorruptRecordError, match="no whole batch v2"):
        set_log_append_time(bytearray(message), 0, T0)


def test_a_whole_log_is_scanned_to_its_end() -> None:
    data = log_of(2, 3, 1)
    found, reason = scan(data)
    assert reason == ""
    assert [start for start, _, _ in found] == [0, found[0][1], found[1][1]]
    assert [offset for _, _, offset in found] == [0, 2, 5]
    assert found[-1][1] == len(data)
    assert scan(data, found[0][1]) == (found[1:], "")
    assert [header.start for header in scan_log(io.BytesIO(data))] == [start for start, _, _ in found]
    assert scan(b"") == ([], "")


def test_a_log_cut_at_any_byte_is_good_up_to_its_last_whole_batch() -> None:
    data = log_of(2, 3, 1)
    whole, _ = scan(data)
    ends = [0, *(end for _, end, _ in whole)]
    for cut in range(len(data)):
        found, reason = scan(data[:cut])
        assert found == [batch for batch in whole if batch[1] <= cut]
        assert (reason == "") is (cut in ends)


@given(st.data())
def test_a_log_damaged_at_any_byte_is_good_up_to_the_damage(draw: st.DataObject) -> None:
    data = bytearray(log_of(2, 3, 1))
    whole, _ = scan(bytes(data))
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] ^= draw.draw(st.integers(1, 255))
    found, reason = scan(bytes(data))
    before = [batch for batch in whole if batch[1] <= at]
    assert found[: len(before)] == before
    in_batch = at - (before[-1][1] if before else 0)
    if in_batch >= 16 or 8 <= in_batch < 12:  # not base_offset, not leader_epoch
        assert found == before
        assert reason


@pytest.mark.parametrize("tail", [bytes(100), b"\0", b"\xff" * 100, log_of(2), b"\0" * 8 + b"\x7f" * 4 + b"\2" * 60])
def test_what_follows_a_log_and_does_not_go_on_with_it_is_reported(tail: bytes) -> None:
    data = log_of(2, 3)
    found, reason = scan(data + tail)
    assert (len(found), found[-1][1]) == (2, len(data))
    assert f"byte {len(data)}" in reason


def test_a_message_set_in_a_log_is_reported() -> None:
    message = struct.pack(">qiIbb", 2, 14, 0, 0, 0).ljust(26, b"\xff")
    found, reason = scan(log_of(2) + message)
    assert len(found) == 1
    assert "v0" in reason


def test_real_segments_are_scanned_whole() -> None:
    data = golden("librdkafka-transactions")
    found, reason = scan(data)
    assert [offset for _, _, offset in found] == [0, 5, 6, 11]
    assert reason == ""
