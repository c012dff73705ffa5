"""Message sets of old clients on a log of batches: up, down, and where segments begin."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka.broker.log_validator import convert_message_set, down_convert
from kafka.errors import CorruptRecordError, InvalidTimestampError, UnsupportedCompressionTypeError
from kafka.protocol.fetch import FetchResponse
from kafka.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.records import (
    COMMIT,
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    ControlMarker,
    RawRecord,
    RecordBatchBuilder,
    control_batch,
    decode_raw,
    encode_message_set,
    iter_batches,
)
from test.broker.driver import HandBroker, fetch_request, fetched
from test.records.test_message_set import BAD, SAMPLE, message, wrapper

CODECS_OF_SETS = (NONE, GZIP, SNAPPY, LZ4)


@pytest.fixture
def old(tmp_path: Path) -> Iterator[HandBroker]:
    """A broker that plays the last release with message sets and topics that can be configured."""
    broker = HandBroker(tmp_path / "data", release="2.8")
    yield broker
    broker.broker.close()


def read(data: Any) -> list[RawRecord]:
    return [record for header in iter_batches(data) for record in decode_raw(data, header)]


def untimed(records: list[RawRecord]) -> list[RawRecord]:
    return [(offset, -1, key, value, headers) for offset, _, key, value, headers in records]


def fetch(
    broker: HandBroker, topic: str, offset: int, version: int, limit: int = 1 << 20
) -> FetchResponse.PartitionData:
    answer = broker.ask(fetch_request(topic, (offset,), partition_max_bytes=limit), version)
    return fetched(answer)[0]


def stored(broker: HandBroker, topic: str) -> list[Any]:
    """The batches in the log."""
    return list(iter_batches(bytes(fetch(broker, topic, 0, 11).records or b"")))


# -- up --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", CODECS_OF_SETS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_is_one_batch_of_the_same_compression(magic: int, compression: int) -> None:
    batch = convert_message_set(encode_message_set(SAMPLE, magic, compression))
    assert batch is not None
    (header,) = iter_batches(batch)
    assert (header.magic, header.codec, header.base_offset, header.has_producer_id) == (2, compression, 0, False)
    assert decode_raw(batch, header) == (SAMPLE if magic else untimed(SAMPLE))


@pytest.mark.parametrize("data", [b"", message()[:-1], b"\0" * 11])
def test_a_set_without_a_whole_message_is_nothing(data: bytes) -> None:
    assert convert_message_set(data) is None


def test_wrappers_and_plain_messages_may_be_mixed_as_before_0_11() -> None:
    data = message(b"1") + wrapper(message(b"2") + message(b"3")) + wrapper(message(b"4", magic=1), magic=1) + b"\0" * 5
    batch = convert_message_set(data)
    assert batch is not None
    assert [record[3] for record in read(batch)] == [b"1", b"2", b"3", b"4"]


ANY_OFFSETS = {
    "negative": message(b"1", offset=-1) + message(b"2", offset=-7),
    "negative wrapper": wrapper(message(b"1") + message(b"2"), offset=-1),
    "negative inside": wrapper(message(b"1", offset=-1) + message(b"2", offset=-1)),
    "all 0, as kafka-python has them": wrapper(message(b"1", magic=1) + message(b"2", magic=1), magic=1),
    "backwards": wrapper(message(b"1", magic=1, offset=9) + message(b"2", magic=1), magic=1, offset=3),
    "wrapper at 0": wrapper(message(b"1", magic=1, offset=0) + message(b"2", magic=1, offset=1), magic=1),
}


@pytest.mark.parametrize("what", ANY_OFFSETS)
def test_producers_may_write_any_offsets(what: str) -> None:
    batch = convert_message_set(ANY_OFFSETS[what])
    assert batch is not None
    assert [(record[0], record[3]) for record in read(batch)] == [(0, b"1"), (1, b"2")]


@pytest.mark.parametrize("what", [what for what in BAD if "offset" not in what])
def test_a_bad_set_is_corrupt(what: str) -> None:
    with pytest.raises(CorruptRecordError):
        convert_message_set(BAD[what])


@pytest.mark.parametrize("attributes", [8, 8 | GZIP])
def test_a_producer_is_not_the_brokers_clock(attributes: int) -> None:
    value = gzip.compress(message(magic=1)) if attributes & GZIP else b"v"
    with pytest.raises(InvalidTimestampError):
        convert_message_set(message(value, magic=1, attributes=attributes))


def test_many_small_bombs_are_one_large_one() -> None:
    with pytest.raises(CorruptRecordError, match="bound"):
        convert_message_set(wrapper(message(bytes(30_000_000))) * 5)


def test_a_codec_that_is_not_installed_is_an_unsupported_compression(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_message_set(SAMPLE, 1, LZ4)
    batch = convert_message_set(data)
    assert batch is not None
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(UnsupportedCompressionTypeError, match="compression"):
        convert_message_set(data)
    with pytest.raises(UnsupportedCompressionTypeError, match="compression"):
        down_convert(batch, 1, 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produced_sets_get_offsets_one_after_another(old: HandBroker, version: int) -> None:
    old.create_topic("t")
    data = encode_message_set(SAMPLE, min(version, 1), GZIP)
    for expected in (0, 5):
        answer = old.produce("t", data, version=version)
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, expected, -1)
    assert [(header.base_offset, header.codec) for header in stored(old, "t")] == [(0, GZIP), (5, GZIP)]


def test_an_empty_set_is_taken_and_changes_nothing(old: HandBroker) -> None:
    old.create_topic("t")
    answer = old.produce("t", b"", version=2)
    assert (answer.error_code, answer.base_offset) == (0, -1)
    assert stored(old, "t") == []


def test_messages_get_the_brokers_time_where_the_topic_says_so(old: HandBroker) -> None:
    old.create_topic("t", message_timestamp_type="LogAppendTime")
    assert old.produce("t", encode_message_set(SAMPLE, 1), version=2).log_append_time_ms == old.epoch_ms
    for version in (2, 3):
        data = bytes(fetch(old, "t", 0, version).records or b"")
        assert {record[1] for record in read(data)} == {old.epoch_ms}
        assert {header.timestamp_type for header in iter_batches(data)} == {LOG_APPEND_TIME}


@pytest.mark.parametrize("what", ["crc", "wrapped twice", "wrapped garbage"])
def test_a_bad_set_is_refused_with_an_error_that_old_clients_know(old: HandBroker, what: str) -> None:
    old.create_topic("t")
    assert old.produce("t", BAD[what], version=2).error_code == 2
    assert stored(old, "t") == []


# -- down ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", CODECS_OF_SETS)
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_each_version_gives_its_own_kind_of_set(old: HandBroker, version: int, compression: int) -> None:
    old.create_topic("t")
    for _ in range(2):
        builder = RecordBatchBuilder(1 << 20, compression)
        for _, timestamp, key, value, _ in SAMPLE:
            builder.append(timestamp, key, value, [("lost", b"on the way")])
        assert old.produce("t", builder.build()).error_code == 0
    found = fetch(old, "t", 0, version)
    assert (found.error_code, found.high_watermark) == (0, 10)
    data = bytes(found.records or b"")
    headers = list(iter_batches(data))
    assert {(header.magic, header.codec) for header in headers} == {(0 if version < 2 else 1, compression)}
    assert len(headers) == (10 if compression == NONE else 2)
    expected = SAMPLE + [(offset + 5, *rest) for offset, *rest in SAMPLE]
    assert read(data) == (untimed(expected) if version < 2 else expected)


def test_plain_messages_begin_at_the_offset_and_wrappers_before_it(old: HandBroker) -> None:
    for topic, compression in (("plain", NONE), ("packed", GZIP)):
        old.create_topic(topic)
        old.produce(topic, encode_message_set(SAMPLE, 1, compression), version=2)
    assert [record[0] for record in read(fetch(old, "plain", 3, 2).records)] == [3, 4]
    assert [record[0] for record in read(fetch(old, "packed", 3, 2).records)] == [0, 1, 2, 3, 4]


def test_an_answer_is_cut_at_its_limit_within_a_message(old: HandBroker) -> None:
    old.create_topic("t")
    old.produce("t", encode_message_set(SAMPLE, 1), version=2)
    whole = bytes(fetch(old, "t", 0, 2).records or b"")
    for limit in (0, 1, 10, 50, len(whole) - 1, len(whole)):
        assert bytes(fetch(old, "t", 0, 2, limit).records or b"") == whole[:limit]


def test_from_version_3_on_the_first_message_comes_whole(old: HandBroker) -> None:
    old.create_topic("t")
    old.produce("t", encode_message_set(SAMPLE, 1), version=2)
    assert [record[0] for record in read(fetch(old, "t", 0, 3, 10).records)] == [0]
    assert [record[0] for record in read(fetch(old, "t", 4, 3, 0).records)] == [4]


def test_a_reader_comes_to_the_end_whatever_fits_in_an_answer(old: HandBroker) -> None:
    old.create_topic("t")
    for compression in CODECS_OF_SETS:
        old.produce("t", encode_message_set(SAMPLE, 1, compression), version=2)
    for version in (0, 1, 2, 3):
        offset, found = 0, []
        while offset < 20:
            records = [record for record in read(fetch(old, "t", offset, version, 400).records) if record[0] >= offset]
            assert records, f"stuck at {offset}"
            found += records
            offset = records[-1][0] + 1
        assert [record[0] for record in found] == list(range(20))


def test_zstd_is_refused(old: HandBroker) -> None:
    old.create_topic("t")
    builder = RecordBatchBuilder(1 << 20, ZSTD)
    builder.append(0, None, b"v")
    old.produce("t", builder.build())
    assert fetch(old, "t", 0, 3).error_code == 76


def test_control_batches_are_left_out_and_stepped_over() -> None:
    marker = control_batch(ControlMarker(COMMIT, 0), 0, 7, 0, 0, 0)
    assert down_convert(marker, 1, 0) == (b"", 1)
    old_set, after = down_convert(marker + encode_v2(1, b"x"), 1, 0)
    assert ([record[0] for record in read(old_set)], after) == ([1], 2)


def encode_v2(base_offset: int, *values: bytes) -> bytes:
    builder = RecordBatchBuilder(1 << 20)
    for value in values:
        builder.append(0, None, value)
    return builder.build(base_offset=base_offset)


# -- where segments begin --------------------------------------------------------------------------------------------


def starts(
    broker: HandBroker, timestamp: int, count: int, partition: int = 0
) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=partition, timestamp=timestamp, max_num_offsets=count
                    )
                ],
            )
        ],
    )
    return broker.ask(request, 0).topics[0].partitions[0]


def test_version_0_returns_the_end_and_where_segments_begin(old: HandBroker) -> None:
    old.create_topic("t")
    assert starts(old, -1, 10).old_style_offsets == [0]
    old.produce("t", encode_message_set(SAMPLE, 1), version=2)
    assert starts(old, -1, 10).old_style_offsets == [5, 0]
    assert starts(old, -1, 1).old_style_offsets == [5]
    assert starts(old, -1, 0).old_style_offsets == []
    assert starts(old, -2, 10).old_style_offsets == [0]
    assert starts(old, old.epoch_ms * 2, 10).old_style_offsets == [5, 0]
    assert starts(old, 0, 10).old_style_offsets == []
    assert starts(old, -3, 10).old_style_offsets == []
    assert starts(old, -1, 1, partition=9).error_code == 3
