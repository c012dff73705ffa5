"""ConsumerRecord has the manners of kafka-python's, which is a named tuple; read and made records are alike."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from typing import Any

import pytest

from kafka.core.consume.partition import FIELDS, CompletedFetch, ConsumerRecord, ReaderOptions
from kafka.records import RecordBatchBuilder
from kafka.structs import TopicPartition

Theirs = namedtuple("ConsumerRecord", FIELDS)  # type: ignore[misc]  # as kafka-python 3.0.12 makes it

HEADERS = [("h", b"xy"), ("é", None)]
VALUES = ("t", 3, 4, 2**40, 1_700_000_000_000, 0, b"key", b"value", HEADERS, None, 3, 5, 5)
MADE = ConsumerRecord(*VALUES)
THEIRS = Theirs(*VALUES)


def read() -> ConsumerRecord:
    builder = RecordBatchBuilder(1000)
    builder.append(1_700_000_000_000, b"key", b"value", HEADERS)
    data = builder.build(base_offset=2**40, leader_epoch=4)
    (record,) = CompletedFetch(TopicPartition("t", 3), 2**40, data).read(10, ReaderOptions())
    return record


@pytest.fixture(params=["read", "made"])
def record(request: pytest.FixtureRequest) -> ConsumerRecord:
    return read() if request.param == "read" else MADE


def test_fields_are_there_by_name_by_number_and_in_order(record: ConsumerRecord) -> None:
    assert Theirs._fields == FIELDS
    for number, name in enumerate(FIELDS):
        assert getattr(record, name) == record[number] == record[number - len(FIELDS)] == getattr(THEIRS, name), name
    assert list(record) == list(THEIRS)
    assert record[6:8] == (b"key", b"value")
    assert len(record) == len(THEIRS)
    topic, _partition, *_, size = record
    assert (topic, size) == ("t", 5)
    with pytest.raises(IndexError):
        record[13]


def test_it_equals_what_has_the_same_fields(record: ConsumerRecord) -> None:
    assert record == read() == MADE == VALUES
    assert record == THEIRS
    assert record != record._replace(offset=1)
    assert record != VALUES[:-1]
    assert record != "t"
    assert sorted([record, record._replace(offset=1)])[0].offset == 1
    assert not record < MADE


def test_it_is_shown_as_theirs_is(record: ConsumerRecord) -> None:
    assert repr(record) == repr(THEIRS)


def test_it_turns_into_a_dictionary_and_into_another_record(record: ConsumerRecord) -> None:
    assert record._asdict() == THEIRS._asdict()
    assert record._fields == ConsumerRecord._fields == THEIRS._fields
    assert record.index(THEIRS.offset) == THEIRS.index(THEIRS.offset) and record.count(None) == THEIRS.count(None)
    assert record.index("t") == 0
    with pytest.raises(ValueError, match="not in tuple"):
        record.index("nowhere")
    other = record._replace(key="k", value={"a": 1})
    assert isinstance(other, ConsumerRecord)
    assert tuple(other) == tuple(THEIRS._replace(key="k", value={"a": 1}))
    for each in (record, THEIRS):
        with pytest.raises(ValueError, match="unexpected field names"):
            each._replace(colour="red")


def test_it_can_be_pickled_and_copied_and_not_hashed(record: ConsumerRecord) -> None:
    assert pickle.loads(pickle.dumps(record)) == record
    assert copy.copy(record) == copy.deepcopy(record) == record
    for each in (record, THEIRS):
        with pytest.raises(TypeError, match="unhashable"):
            hash(each)


def test_it_can_be_matched(record: ConsumerRecord) -> None:
    match record:
        case ConsumerRecord(topic="t", offset=offset, value=bytes(value)):
            assert (offset, value) == (2**40, b"value")
        case _:
            pytest.fail("no match")


def test_headers_are_one_list_however_often_somebody_looks(record: ConsumerRecord) -> None:
    assert record.headers == HEADERS
    assert record.headers is record.headers


def test_sizes_are_found_out_unless_they_are_given() -> None:
    plain = ConsumerRecord("t", 0, -1, 0, -1, 0, None, b"", [])
    assert tuple(plain)[-5:] == ([], None, -1, 0, -1)
    given = ConsumerRecord("t", 0, -1, 0, -1, 0, "key", None, [], 7, serialized_key_size=3)
    assert tuple(given)[-4:] == (7, 3, -1, -1)
    by_name: dict[str, Any] = dict(zip(FIELDS, VALUES, strict=True))
    assert ConsumerRecord(**by_name) == MADE


@pytest.mark.parametrize(
    ("name", "tail"),
    [
        ("checksum", (7, 1, 2, -1)),
        ("serialized_key_size", (None, 7, 2, -1)),
        ("serialized_value_size", (None, 1, 7, -1)),
        ("serialized_header_size", (None, 1, 2, 7)),
    ],
)
def test_what_is_given_alone_counts_and_the_rest_is_found_out(name: str, tail: tuple[int | None, ...]) -> None:
    given: dict[str, Any] = {name: 7}
    assert tuple(ConsumerRecord("t", 0, -1, 0, -1, 0, b"k", b"vv", [], **given))[-4:] == tail


def test_headers_are_counted_without_being_made() -> None:
    record = read()
    for _ in range(2):  # before the headers are made, and after
        assert record.headers_count == 2
        assert record.headers == HEADERS
    assert MADE.headers_count == 2
    assert MADE.encoded_headers is None
    assert ConsumerRecord("t", 0, 0, 0, 0, 0, None, None, None).headers_count == 0
