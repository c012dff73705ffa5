"""Codecs: bytes of each type and field, round trips, and bytes that are no message."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka.errors import IllegalArgumentError, KafkaProtocolError, UnsupportedFieldError
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.protocol.share import ShareFetchRequest
from kafka.wire.codec import decode, encode, encode_chunks, read_uvarint, uvarint
from kafka.wire.message import Message, Request, Response, Struct, StructMeta, field, fields_of
from kafka.wire.types import (
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uint16,
    Uuid,
)
from test import strategies
from test.support import seeds

EVERY = strategies.message_classes()
IDS = [f"{cls.__name__}-{version}" for cls, version in EVERY]


@pytest.mark.parametrize(("cls", "version"), EVERY, ids=IDS)
def test_a_message_is_read_back_as_it_was_and_a_cut_or_damaged_one_is_a_protocol_error(
    cls: type[Message], version: int
) -> None:
    rng = seeds.rng(f"{cls.__name__} {version}")

    @settings(max_examples=5)
    @given(strategies.messages(cls, version))
    def check(message: Message) -> None:
        data = encode(message, version)
        assert decode(cls, data, version) == message
        assert decode(cls, memoryview(data), version) == message
        assert encode(message, version) == data, "a second encoding gives the same bytes"
        for end in {rng.randrange(len(data) + 1) for _ in range(4)} - {len(data)}:
            with pytest.raises(KafkaProtocolError) as raised:
                decode(cls, data[:end], version)
            assert raised.value.offset is not None
        for _ in range(4):
            damaged = bytearray(data + b"\0")
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            with contextlib.suppress(KafkaProtocolError):
                decode(cls, bytes(damaged[:-1]), version)

    check()


@given(st.sampled_from(EVERY), st.binary(max_size=200))
@settings(max_examples=400)
def test_any_bytes_decode_or_raise_the_protocol_error(chosen: tuple[type[Message], int], data: bytes) -> None:
    cls, version = chosen
    try:
        message = decode(cls, data, version)
    except KafkaProtocolError:
        return
    assert isinstance(message, cls)


def test_an_array_that_claims_more_elements_than_there_are_bytes_allocates_nothing() -> None:
    with pytest.raises(KafkaProtocolError, match="more elements"):
        decode(MetadataRequest, b"\x7f\xff\xff\xff", 0)


def test_unknown_tagged_fields_survive_a_round_trip() -> None:
    message = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    message.unknown_tags = {0: b"zero", 300: b"three hundred"}  # type: ignore[misc]
    again = decode(ApiVersionsRequest, encode(message, 3), 3)
    assert again.unknown_tags == {0: b"zero", 300: b"three hundred"}
    assert encode(again, 3) == encode(message, 3)


def test_a_tagged_field_at_its_default_is_not_written() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    assert encode(response, 3) == b"\x00\x00" + b"\x01" + b"\x00\x00\x00\x00" + b"\x00"
    response.zk_migration_ready = True
    assert decode(ApiVersionsResponse, encode(response, 3), 3).zk_migration_ready is True


def test_a_field_that_the_version_lacks_is_refused_unless_it_may_be_left_out() -> None:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    with pytest.raises(UnsupportedFieldError, match="version 3 has no allow_auto_topic_creation"):
        encode(request, 3)
    partition = ProduceResponse.PartitionProduceResponse(index=0, error_code=0, base_offset=7, log_append_time_ms=99)
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[partition])
    old = decode(ProduceResponse, encode(ProduceResponse(responses=[topic]), 1), 1)
    assert old.responses[0].partition_responses[0].log_append_time_ms == -1


def test_null_where_none_may_be_is_refused_both_ways() -> None:
    with pytest.raises(IllegalArgumentError):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(KafkaProtocolError, match="null where topics"):
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)


def test_values_that_do_not_fit_are_refused_with_the_messages_name() -> None:
    with pytest.raises(IllegalArgumentError, match="ProduceRequest version 9"):
        encode(ProduceRequest(acks=70_000, timeout_ms=1, topic_data=[]), 9)
    with pytest.raises(IllegalArgumentError, match="longer than 32767"):
        encode(ApiVersionsRequest(client_software_name="x" * 40_000), 3)
    with pytest.raises(IllegalArgumentError):
        encode(ApiVersionsRequest(client_software_name="\ud800"), 3)


def test_a_version_that_the_class_lacks_is_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="versions 1 to 2, not 3"):
        encode(ShareFetchRequest(member_id="m", share_session_epoch=0, max_wait_ms=0, min_bytes=0, topics=[],
                                 forgotten_topics_data=[], max_records=1, batch_size=1), 3)  # fmt: skip


def test_trailing_bytes_are_an_error_that_says_where() -> None:
    data = encode(ApiVersionsRequest(), 0)
    with pytest.raises(KafkaProtocolError, match="1 bytes after the end") as raised:
        decode(ApiVersionsRequest, data + b"!", 0)
    assert raised.value.offset == len(data)


def test_records_travel_without_a_copy() -> None:
    batch = bytes(100_000)
    data = ProduceRequest.PartitionProduceData(index=0, records=[batch[:10], batch])
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    chunks = encode_chunks(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 9)
    assert any(chunk is batch for chunk in chunks)
    again = decode(ProduceRequest, b"".join(chunks), 9)
    records = again.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.nbytes == 100_010


def test_the_constructor_wants_what_has_no_default() -> None:
    with pytest.raises(TypeError, match="acks"):
        ProduceRequest(timeout_ms=1, topic_data=[])  # type: ignore[call-arg]


def test_a_structure_that_was_left_out_is_each_messages_own() -> None:
    answer = ProduceResponse.PartitionProduceResponse(index=0, error_code=0, base_offset=5)
    topics = [ProduceResponse.TopicProduceResponse(partition_responses=[answer, answer])]
    data = encode(ProduceResponse(responses=topics), 13)
    one, other = decode(ProduceResponse, data, 13).responses[0].partition_responses
    assert one.current_leader == other.current_leader == ProduceResponse.LeaderIdAndEpoch()
    one.current_leader.leader_id = 7
    assert other.current_leader.leader_id == -1


# -- unsigned varints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "encoded"),
    [
        (0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (129, "8101"), (300, "ac02"), (2047, "ff0f"), (2048, "8010"),
        (2049, "8110"), (16_383, "ff7f"), (16_384, "808001"), (2**28 - 1, "ffffff7f"), (2**28, "8080808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)  # fmt: skip
def test_values_have_the_bytes_of_the_protocol_guide(n: int, encoded: str) -> None:
    """Those of Protocol Buffers' unsigned varints, as "UNSIGNED_VARINT" says."""
    assert uvarint(n).hex() == encoded
    assert read_uvarint(bytes.fromhex(encoded), 0) == (n, len(encoded) // 2)


@given(st.integers(0, 2**32 - 1))
def test_a_varint_reads_back_and_takes_one_byte_for_seven_bits(n: int) -> None:
    data = uvarint(n)
    assert len(data) == max(1, -(-n.bit_length() // 7))
    assert read_uvarint(b"\xff" + data + b"\xff", 1) == (n, 1 + len(data))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x10"])
def test_a_varint_above_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(KafkaProtocolError):
        read_uvarint(data, 0)


def test_a_varint_of_more_than_five_bytes_is_refused_whatever_its_value() -> None:
    assert read_uvarint(b"\x80\x80\x80\x80\x00", 0) == (0, 5)
    with pytest.raises(KafkaProtocolError, match="more than five bytes"):
        read_uvarint(b"\x80\x80\x80\x80\x80\x00", 0)


@pytest.mark.parametrize("data", ["", "80", "ffff"])
def test_a_varint_that_the_data_ends_in_is_an_index_error(data: str) -> None:
    with pytest.raises(IndexError):
        read_uvarint(bytes.fromhex(data), 0)


# -- the bytes of each type and of each kind of field (protocol guide, KIP-482, KIP-893) -------------------------------


ONE = uuid.UUID("00000000-0000-0000-0000-000000000001")


def one_field(kind: Any, base: type[Message] = Message, **options: Any) -> Any:
    """A message of one field ``x``: version 0 has lengths of fixed size, version 1 is flexible."""
    namespace = {"__module__": __name__, "__qualname__": "One", "__annotations__": {"x": kind}, "x": field(**options)}
    return StructMeta("One", (base,), namespace, versions=(0, 1), flexible=1)


def both_ways(message: Any, version: int, expected: str) -> None:
    data = bytes.fromhex(expected)
    assert encode(message, version) == data
    assert decode(type(message), data, version) == message


class Point(Struct):
    x: Int8
    name: String


class Nothing(Struct):
    pass


class Answer(Response, api_key=900, versions=(0, 1), flexible=1):
    numbers: list[Int8]
    points: list[Point]


class Ask(Request["Answer"], api_key=900, versions=(0, 1), flexible=1):
    numbers: list[Int8]
    points: list[Point]


# -- types -------------------------------------------------------------------------------------------------------------

TYPES = [
    (Boolean, True, "01", "01"),
    (Boolean, False, "00", "00"),
    (Int8, -2, "fe", "fe"),
    (Int16, -2, "fffe", "fffe"),
    (Int32, 0x01020304, "01020304", "01020304"),
    (Int64, 0x0102030405060708, "0102030405060708", "0102030405060708"),
    (Uint16, 65_534, "fffe", "fffe"),
    (Float64, 1.5, "3ff8000000000000", "3ff8000000000000"),
    (Uuid, ONE, "00" * 15 + "01", "00" * 15 + "01"),
    (String, "é", "0002c3a9", "03c3a9"),
    (String, "", "0000", "01"),
    (Bytes, b"abc", "00000003616263", "04616263"),
    (Records, b"abc", "00000003616263", "04616263"),
    (Point, Point(x=5, name="a"), "05000161", "05026100"),
    (list[Boolean], [True, False], "000000020100", "030100"),
    (list[Int16], [1, -1], "000000020001ffff", "030001ffff"),
    (list[Uuid], [ONE], "00000001" + "00" * 15 + "01", "02" + "00" * 15 + "01"),
    (list[String], ["a", ""], "000000020001610000", "03026101"),
    (list[Bytes], [b"a", b""], "00000002000000016100000000", "03026101"),
    (list[Point], [Point(x=1, name=""), Point(x=2, name="b")], "0000000201000002000162", "0301010002026200"),
    (list[Point], [], "00000000", "01"),
]


@pytest.mark.parametrize(("kind", "value", "plain", "compact"), TYPES)
def test_each_type_has_the_bytes_of_the_protocol_guide(kind: Any, value: Any, plain: str, compact: str) -> None:
    message = one_field(kind)(x=value)
    both_ways(message, 0, plain)
    both_ways(message, 1, compact + "00")


NULLS = [
    (String | None, "ffff", "00"),
    (Bytes | None, "ffffffff", "00"),
    (Records | None, "ffffffff", "00"),
    (list[String] | None, "ffffffff", "00"),
    (list[Int16] | None, "ffffffff", "00"),
    (list[Point] | None, "ffffffff", "00"),
    (Point | None, "ff", "ff"),
]


@pytest.mark.parametrize(("kind", "plain", "compact"), NULLS)
def test_null_is_a_length_below_zero_and_in_flexible_versions_zero(kind: Any, plain: str, compact: str) -> None:
    """A structure that is null is one byte of -1 in either (KIP-893)."""
    message = one_field(kind, null_since=0)(x=None)
    both_ways(message, 0, plain)
    both_ways(message, 1, compact + "00")


@pytest.mark.parametrize(("kind", "value", "plain", "compact"), [row for row in TYPES if row[0] not in (
    Boolean, Int8, Int16, Int32, Int64, Uint16, Float64, Uuid, Point)])  # fmt: skip
def test_what_may_be_null_and_is_not_has_the_same_bytes(kind: Any, value: Any, plain: str, compact: str) -> None:
    message = one_field(kind | None, null_since=0)(x=value)
    both_ways(message, 0, plain)
    both_ways(message, 1, compact + "00")


def test_a_structure_that_may_be_null_and_is_not_has_a_byte_of_one_before_it() -> None:
    cls = one_field(Point | None, null_since=0)
    both_ways(cls(x=Point(x=5, name="a")), 0, "0105000161")
    both_ways(cls(x=Point(x=5, name="a")), 1, "0105026100" + "00")
    assert decode(cls, bytes.fromhex("0005000161"), 0).x == Point(x=5, name="a")  # below 0 is null, 0 is not


@pytest.mark.parametrize(
    ("kind", "plain", "compact"),
    [(String, "ffff", "00"), (Bytes, "ffffffff", "00"), (list[Point], "ffffffff", "00"), (list[Int8], "ffffffff", "00"),
     (list[String], "00000001ffff", "0200"), (list[Bytes], "00000001ffffffff", "0200")],
)  # fmt: skip
def test_null_where_none_may_be_is_refused(kind: Any, plain: str, compact: str) -> None:
    cls = one_field(kind)
    for version, data in ((0, plain), (1, compact + "00")):
        with pytest.raises(KafkaProtocolError, match="null"):
            decode(cls, bytes.fromhex(data), version)
    with pytest.raises(IllegalArgumentError):
        encode(cls(x=None), 0)


@pytest.mark.parametrize(
    ("kind", "data"), [(String, "fffe"), (Bytes, "fffffffe"), (list[Int8], "fffffffe"), (list[Point], "80000000")]
)
def test_a_length_below_that_of_null_is_refused(kind: Any, data: str) -> None:
    with pytest.raises(KafkaProtocolError, match="below -1"):
        decode(one_field(kind | None, null_since=0), bytes.fromhex(data), 0)


def test_null_is_allowed_from_its_version_on() -> None:
    cls = one_field(String | None, null_since=1)
    both_ways(cls(x=None), 1, "0000")
    with pytest.raises(IllegalArgumentError):
        encode(cls(x=None), 0)
    with pytest.raises(KafkaProtocolError, match="null where x"):
        decode(cls, b"\xff\xff", 0)


@pytest.mark.parametrize(
    ("kind", "data"),
    [(Uuid, "00" * 15), (Bytes, "0000000261"), (String, "000261"), (list[Int16], "00000002000100"),
     (list[String], "000000020000"), (Int32, "000000"), (list[Uuid], "00000001" + "00" * 15)],
)  # fmt: skip
def test_data_that_ends_in_a_field_is_refused(kind: Any, data: str) -> None:
    with pytest.raises(KafkaProtocolError):
        decode(one_field(kind), bytes.fromhex(data), 0)


# -- neighbours, versions, defaults ------------------------------------------------------------------------------------


class Mixed(Message, versions=(0, 3), flexible=3):
    a: Int8
    b: Int16
    numbers: list[Int16]
    more: list[Int8]
    c: Int32
    name: String = field(flexible=False)
    point: Point
    since: Int64 = field(since=1)
    both: Boolean = field(since=1, until=2)
    d: Uint16


def mixed(**values: Any) -> Mixed:
    given: dict[str, Any] = {"since": 0, "both": False, **values}
    return Mixed(a=1, b=2, numbers=[3], more=[8, 9], c=4, name="n", point=Point(x=5, name="p"), d=6, **given)


def test_fields_stand_in_the_order_of_their_lines_and_only_in_their_versions() -> None:
    before = "01" "0002" "00000001" "0003" "00000002" "0809" "00000004" "00016e" "05000170"
    both_ways(mixed(), 0, before + "0006")
    both_ways(mixed(since=7, both=True), 1, before + "0000000000000007" "01" "0006")
    both_ways(mixed(since=7, both=True), 2, before + "0000000000000007" "01" "0006")
    flexible = "01" "0002" "02" "0003" "03" "0809" "00000004" "00016e" "05027000"  # `name` has its old length
    both_ways(mixed(since=7), 3, flexible + "0000000000000007" "0006" "00")


def test_structures_without_any_field_take_no_byte_but_that_of_their_tags() -> None:
    message = one_field(list[Nothing])(x=[])
    both_ways(message, 1, "0100")
    assert encode(one_field(list[Nothing])(x=[Nothing(), Nothing()]), 0).hex() == "00000002"
    both_ways(one_field(list[Nothing])(x=[Nothing()]), 1, "020000")


IMPLIED = [
    (Boolean, False, True), (Int8, 0, 1), (Int16, 0, 1), (Int32, 0, 1), (Int64, 0, 1), (Uint16, 0, 1),
    (Float64, 0.0, 0.5), (String, "", "a"), (Bytes, b"", b"a"), (Records, None, b"a"),
    (Uuid, uuid.UUID(bytes=bytes(16)), ONE), (list[Int8], [], [0]), (list[Point], [], [Point(x=0, name="")]),
    (Point, Point(x=0, name=""), Point(x=0, name="a")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "implied", "other"), IMPLIED)
def test_a_field_without_a_default_has_the_one_that_its_type_implies(kind: Any, implied: Any, other: Any) -> None:
    """As Kafka's message generator has them (its README, "Default Values"); ours for records is None."""
    cls = one_field(kind, since=1)
    assert fields_of(cls)[0].implicit == implied
    assert encode(cls(x=implied), 0) == b""
    with pytest.raises(UnsupportedFieldError, match="One version 0 has no x"):
        encode(cls(x=other), 0)


@pytest.mark.parametrize(("kind", "implied"), [row[:2] for row in IMPLIED if row[0] is not Point])
def test_a_field_that_the_version_lacks_is_read_as_what_its_type_implies(kind: Any, implied: Any) -> None:
    found = decode(one_field(kind, since=1), b"", 0).x
    assert found == implied
    assert type(found) is type(implied)


@pytest.mark.parametrize(
    ("kind", "default", "refused"),
    [(Int32, -1, 0), (Boolean, True, False), (String, "x", ""), (String | None, None, ""),
     (list[Int8] | None, None, []), (Point | None, None, Point(x=0, name=""))],
)  # fmt: skip
def test_a_field_that_the_version_lacks_may_be_at_its_default_and_nothing_else(
    kind: Any, default: Any, refused: Any
) -> None:
    """An empty array is no default where null is one, as in the generated code of Kafka's messages."""
    cls = one_field(kind, default=default, since=1, null_since=1)
    assert encode(cls(), 0) == b""
    found = decode(cls, b"", 0).x
    assert found == default
    assert type(found) is type(default)
    with pytest.raises(UnsupportedFieldError):
        encode(cls(x=refused), 0)
    assert encode(one_field(kind, default=default, since=1, null_since=1, ignorable=True)(x=refused), 0) == b""


def test_an_array_that_is_empty_by_default_may_also_be_null_where_the_version_lacks_it() -> None:
    cls = one_field(list[Int8] | None, default_factory=list, since=1, null_since=1)
    assert encode(cls(), 0) == encode(cls(x=None), 0) == b""
    with pytest.raises(UnsupportedFieldError):
        encode(cls(x=[0]), 0)


class Bag(Struct):
    items: list[Int8] = field(default_factory=list)


@pytest.mark.parametrize(
    ("kind", "factory", "made"),
    [(list[Int8], list, []), (list[Int8], lambda: [7], [7]), (Bag, Bag, Bag(items=[])),
     (Bag, lambda: Bag(items=[1]), Bag(items=[1])), (Point, lambda: Point(x=3, name="z"), Point(x=3, name="z"))],
)  # fmt: skip
def test_a_default_that_is_made_is_each_messages_own(kind: Any, factory: Any, made: Any) -> None:
    cls = one_field(kind, default_factory=factory, since=1)
    one, other = decode(cls, b"", 0).x, decode(cls, b"", 0).x
    assert one == other == made
    assert one is not other
    assert cls().x is not cls().x
    if kind is Bag:
        assert one.items is not other.items
    if made != [7]:
        assert encode(cls(), 0) == b""


# -- tagged fields -----------------------------------------------------------------------------------------------------

TAGGED = [
    (Boolean, {"default": False}, True, "0101"),
    (Int16, {"default": -1}, 0, "020000"),
    (Int64, {"default": 0}, 1, "080000000000000001"),
    (String, {"default": ""}, "a", "020261"),
    (String | None, {"default": None, "null_since": 0}, "", "0101"),
    (String | None, {"default": "x", "null_since": 0}, None, "0100"),
    (Bytes, {"default": b""}, b"a", "020261"),
    (Uuid, {"default": uuid.UUID(int=0)}, ONE, "10" + "00" * 15 + "01"),
    (list[Int16], {"default_factory": list}, [1], "03020001"),
    (list[Int16] | None, {"default_factory": list, "null_since": 0}, None, "0100"),
    (list[Int16] | None, {"default": None, "null_since": 0}, [], "0101"),
    (list[Int16], {"default_factory": lambda: [7]}, [], "0101"),
    (list[Point], {"default_factory": list}, [Point(x=1, name="")], "0402010100"),
    (Point, {"default_factory": lambda: Point(x=0, name="")}, Point(x=0, name="a"), "0400026100"),
    (Bag, {"default_factory": Bag}, Bag(items=[1]), "03020100"),
    (Point | None, {"default": None, "null_since": 0}, Point(x=0, name=""), "0401000100"),
    (Point | None, {"default_factory": lambda: Point(x=0, name=""), "null_since": 0}, None, "0100"),
]


@pytest.mark.parametrize(("kind", "options", "value", "data"), TAGGED)
def test_a_tagged_field_is_its_tag_its_size_and_a_compact_value(
    kind: Any, options: dict[str, Any], value: Any, data: str
) -> None:
    """And nothing at its default. A structure that is null is 0 there; 1 stands before one that is not (KIP-893)."""
    cls = one_field(kind, tag=5, tag_since=1, **options)
    both_ways(cls(x=value), 1, "0105" + data)
    both_ways(cls(), 1, "00")
    unknown = cls(x=value)
    unknown.unknown_tags = {9: b"later"}
    both_ways(unknown, 1, "0205" + data + "09056c61746572")


@pytest.mark.parametrize(
    ("kind", "default", "data"), [(Int16, 0, "0105" "03" "000100"), (String, "", "0105" "03" "0261")]
)
def test_a_tagged_field_of_another_size_than_it_says_is_refused(kind: Any, default: Any, data: str) -> None:
    with pytest.raises(KafkaProtocolError):
        decode(one_field(kind, tag=5, tag_since=1, default=default), bytes.fromhex(data + "00"), 1)


def test_a_field_is_in_line_until_the_version_from_which_it_is_tagged() -> None:
    class Moved(Message, versions=(0, 2), flexible=1):
        name: String = field(default="", tag=0, tag_since=2)
        last: Int8

    both_ways(Moved(name="a", last=1), 0, "000161" "01")
    both_ways(Moved(name="a", last=1), 1, "0261" "01" "00")
    both_ways(Moved(name="a", last=1), 2, "01" "010002" "0261")


def test_a_field_with_a_tag_and_no_version_is_tagged_from_the_first_flexible_one_on() -> None:
    class Always(Message, versions=(0, 0), flexible=0):
        x: Int8 = field(default=0, tag=0)

    both_ways(Always(x=1), 0, "01000101")


class Tags(Message, versions=(0, 0), flexible=0):
    last: Int8 = field(default=0, tag=2, tag_since=0)
    first: String = field(default="", tag=0, tag_since=0)
    middle: list[Int8] = field(default_factory=list, tag=1, tag_since=0)
    inline: Int8


def test_tagged_fields_stand_behind_the_others_in_the_order_of_their_tags() -> None:
    message = Tags(last=3, first="a", middle=[2], inline=9)
    both_ways(message, 0, "09" "03" "00020261" "01020202" "020103")
    message.unknown_tags = {200: b"z"}  # type: ignore[misc]
    both_ways(message, 0, "09" "04" "00020261" "01020202" "020103" "c801017a")


def test_tagged_fields_are_read_in_any_order_and_bytes_of_unknown_ones_are_kept() -> None:
    found = decode(Tags, bytes.fromhex("09" "03" "020103" "07026162" "00020261"), 0)
    assert (found.inline, found.last, found.first, found.middle) == (9, 3, "a", [])
    assert found.unknown_tags == {7: b"ab"}
    with pytest.raises(KafkaProtocolError, match="end of the data"):
        decode(Tags, bytes.fromhex("09" "01" "07036162"), 0)
    assert decode(Tags, bytes.fromhex("0900"), 0).unknown_tags is None


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_compact_string_has_32767_bytes_at_most() -> None:
    """As many as a length of two bytes can say; Kafka's own codecs refuse more in compact strings, too."""
    cls = one_field(String)
    most = cls(x="a" * 32_767)
    assert decode(cls, encode(most, 1), 1) == most
    with pytest.raises(IllegalArgumentError, match="32768 bytes is longer than 32767"):
        encode(cls(x="a" * 32_768), 1)
    too_long = bytes.fromhex("818002") + b"a" * 32_768 + b"\0"
    with pytest.raises(KafkaProtocolError, match="x is longer than a string may be"):
        decode(cls, too_long, 1)


def array(count: int, element: bytes, version: int) -> bytes:
    return (uvarint(count + 1) if version else count.to_bytes(4, "big")) + element * count


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("numbers", "points"), [(32_768, 0), (32_767, 1), (32_766, 2)])
def test_a_request_has_32768_elements_at_most_in_all_of_its_arrays(version: int, numbers: int, points: int) -> None:
    """A limit of ours; it is for what anybody may send to a broker, and not for a broker's answers."""
    point = b"\0\1\0" if version else b"\0\0\0"
    end = b"\0" if version else b""

    def request(more: int) -> bytes:
        return array(numbers + more, b"\1", version) + array(points, point, version) + end

    assert len(decode(Ask, request(0), version).numbers) == numbers
    with pytest.raises(KafkaProtocolError, match="more than 32768 elements"):
        decode(Ask, request(1), version)
    assert len(decode(Answer, request(1), version).numbers) == numbers + 1


def test_the_tagged_fields_of_a_request_count_as_elements() -> None:
    most = array(32_767, b"\1", 1) + array(0, b"", 1)
    assert decode(Ask, most + bytes.fromhex("01" "0000"), 1).unknown_tags == {0: b""}
    for data in (most + bytes.fromhex("02" "0000" "0100"), array(32_768, b"\1", 1) + b"\1" + bytes.fromhex("010000")):
        with pytest.raises(KafkaProtocolError, match="more than 32768 elements"):
            decode(Ask, data, 1)
        assert decode(Answer, data, 1).unknown_tags


def test_512_bytes_of_the_texts_and_byte_strings_of_a_request_count_as_an_element() -> None:
    for kind, most in ((String, 32_767), (Bytes, 32_768 * 512), (Records, 32_768 * 512 + 1)):
        whole = one_field(list[kind] if kind is String else kind, Request)  # type: ignore[valid-type]
        value: Any = ["n" * most] * 504 if kind is String else b"n" * most
        assert decode(whole, encode(whole(x=value), 0), 0).x == value
        if kind is not Records:
            value = [*value, "n" * most] if kind is String else value + b"n"
            with pytest.raises(KafkaProtocolError, match="512 bytes of text count as one"):
                decode(whole, encode(whole(x=value), 0), 0)


def test_an_array_of_more_elements_than_bytes_is_refused_before_anything_is_made() -> None:
    shorter = ((list[Int16], "00000002" "000100"), (list[Point], "00000004" "000000"), (list[Uuid], "00000002" "00"))
    for kind, data in shorter:
        with pytest.raises(KafkaProtocolError, match="more elements in x than bytes"):
            decode(one_field(kind), bytes.fromhex(data), 0)


# -- faults ------------------------------------------------------------------------------------------------------------


class OnceOnly:
    """Makes one list, and for another there is no memory."""

    made = 0

    def __call__(self) -> list[int]:
        self.made += 1
        if self.made > 1:
            raise MemoryError("no memory")
        return []


def test_whatever_goes_wrong_in_reading_is_a_protocol_error() -> None:
    for cls, data in (
        (one_field(Int32), b"\0"),
        (one_field(Bytes), b""),
        (one_field(String), b"\0\1\xff"),
        (one_field(list[Int8], default_factory=OnceOnly(), since=1), b""),
    ):
        with pytest.raises(KafkaProtocolError, match="One version 0 cannot be read"):
            decode(cls, data, 0)
    with pytest.raises(KafkaProtocolError, match="One version 1 cannot be read"):
        decode(one_field(String), b"", 1)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(Int8, 128), (Int8, None), (Uuid, "text"), (String, 5), (String, "\ud800"), (Bytes, 5), (list[Int8], 5),
     (list[Point], [5]), (Float64, 10**400), (Point, None)],
)  # fmt: skip
def test_whatever_cannot_be_written_is_an_illegal_argument(kind: Any, value: Any) -> None:
    for version in (0, 1):
        with pytest.raises(IllegalArgumentError, match=f"One version {version} cannot be written"):
            encode(one_field(kind)(x=value), version)


def test_records_are_written_from_any_buffer_and_from_pieces() -> None:
    cls = one_field(Records)
    words = memoryview(b"abcd").cast("H")
    for value in (b"abcd", bytearray(b"abcd"), words, [b"ab", b"", memoryview(b"cd")], (b"abcd",), [words]):
        assert encode(cls(x=value), 0).hex() == "0000000461626364"
        assert encode(cls(x=value), 1).hex() == "056162636400"
