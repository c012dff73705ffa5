"""The bytes of subscriptions and assignments: as Kafka's schemas say, as Java writes them, and in every broken form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.core.group.assignors.sticky import CooperativeStickyAssignorUserData, StickyAssignorUserData
from kafka.core.group.protocol import (
    MemberAssignment,
    MemberSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kafka.core.partitions import MAX_ASSIGNED
from kafka.errors import KafkaProtocolError
from kafka.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.structs import TopicPartition
from kafka.wire.codec import encode
from kafka.wire.message import Message
from test.support.schema_views import class_view, parse_range, schema_view
from test.support.schemas import load_schemas

A0, A5, B1 = TopicPartition("a", 0), TopicPartition("a", 5), TopicPartition("b", 1)
FULL = MemberSubscription(("a", "b"), b"\x01", (A0, A5, B1), 7, "rack")

names = st.text(min_size=1, max_size=5)
partitions = st.lists(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=6, unique=True).map(
    lambda found: tuple(sorted(found))
)
user_data = st.none() | st.binary(max_size=8)
subscriptions = st.builds(
    MemberSubscription, st.lists(names, max_size=4).map(tuple), user_data, partitions, st.integers(-1, 2**31 - 1), names
)


@pytest.mark.parametrize(
    "cls", [ConsumerProtocolSubscription, ConsumerProtocolAssignment], ids=lambda cls: cls.__name__
)
def test_the_messages_say_what_kafkas_schemas_say(cls: type[Message]) -> None:
    schema: dict[str, Any] = load_schemas("4.3.0")[cls.__name__]
    assert parse_range(schema["validVersions"]) == (cls.min_version, cls.max_version)
    assert parse_range(schema["flexibleVersions"]) is None
    for version in range(cls.min_version, cls.max_version + 1):
        assert class_view(cls, version) == schema_view(schema, version), f"version {version}"


# What Java's ConsumerProtocol writes; by hand from the schema.
BYTES = {
    0: "0000 00000002 000161 000162 00000001 01",
    1: "0001 00000002 000161 000162 00000001 01 00000002 000161 00000002 00000000 00000005 000162 00000001 00000001",
    2: "0002 00000002 000161 000162 00000001 01 00000002 000161 00000002 00000000 00000005 000162 00000001 00000001"
    "00000007",
    3: "0003 00000002 000161 000162 00000001 01 00000002 000161 00000002 00000000 00000005 000162 00000001 00000001"
    "00000007 0004 7261636b",
}


@pytest.mark.parametrize("version", BYTES)
def test_each_version_of_a_subscription_has_what_it_has(version: int) -> None:
    data = bytes.fromhex(BYTES[version])
    assert write_subscription(FULL, version) == data
    read = read_subscription(data)
    assert read.topics == FULL.topics and read.user_data == FULL.user_data
    assert read.owned == (FULL.owned if version >= 1 else ())
    assert read.generation == (FULL.generation if version >= 2 else -1)
    assert read.rack == (FULL.rack if version >= 3 else "")


def test_who_owned_nothing_yet_says_generation_minus_1_and_no_rack() -> None:
    """KIP-792 and KIP-881: the defaults of ConsumerProtocolSubscription.json."""
    written = write_subscription(MemberSubscription(("a",)), 3)
    assert written == bytes.fromhex("0003 00000001 000161 ffffffff 00000000 ffffffff ffff")


def test_an_assignment_has_the_same_bytes_in_all_versions_but_for_the_number() -> None:
    written = [write_assignment(MemberAssignment((A0, A5, B1), b"x"), version) for version in range(4)]
    assert {data[2:] for data in written} == {
        bytes.fromhex("00000002 000161 00000002 00000000 00000005 000162 00000001 00000001 00000001 78")
    }
    assert [data[:2] for data in written] == [bytes([0, version]) for version in range(4)]


@given(subscriptions)
def test_a_subscription_is_read_as_it_was_written(subscription: MemberSubscription) -> None:
    in_order = subscription._replace(topics=tuple(sorted(subscription.topics)))
    assert read_subscription(write_subscription(subscription)) == in_order


@given(st.builds(MemberAssignment, partitions, user_data))
def test_an_assignment_is_read_as_it_was_written(assignment: MemberAssignment) -> None:
    assert read_assignment(write_assignment(assignment)) == assignment


def test_a_later_version_is_read_as_the_latest_known_and_more_bytes_are_not_looked_at() -> None:
    data = write_subscription(FULL, 3)
    assert read_subscription(b"\x00\x09" + data[2:] + b"something new") == FULL
    assert read_assignment(b"\x00\x09" + write_assignment(MemberAssignment((A0,)))[2:] + b"?") == MemberAssignment(
        (A0,)
    )


def test_an_assignment_of_more_partitions_than_a_member_takes_is_a_protocol_error() -> None:
    def written(count: int) -> bytes:
        several = [
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=[2**31 - 1] * (count // 2))
            for topic in ("a", "b")
        ]
        message = ConsumerProtocolAssignment(assigned_partitions=several, user_data=None)
        return b"\0\0" + encode(message, 0)

    assert len(read_assignment(written(MAX_ASSIGNED)).partitions) == MAX_ASSIGNED
    with pytest.raises(KafkaProtocolError, match="an assignment of 100002 partitions"):
        read_assignment(written(MAX_ASSIGNED + 2))


def test_no_bytes_are_an_assignment_of_nothing() -> None:
    assert read_assignment(b"") == MemberAssignment()


@given(
    st.binary(max_size=60) | st.builds(lambda data, cut: write_subscription(data)[:cut], subscriptions, st.integers(0))
)
def test_whatever_is_no_subscription_or_assignment_is_a_protocol_error(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        try:
            read(data)
        except KafkaProtocolError:
            continue


@pytest.mark.parametrize(
    ("data", "offset"),
    [(b"", 0), (b"\x00", 0), (b"\xff\xff", 0), (b"\x00\x00", 2), (b"\x00\x00\x00\x00\x00\x09", 6)],
    ids=["none", "half a version", "version -1", "a version alone", "nine topics in no bytes"],
)
def test_broken_bytes_are_reported_with_their_place(data: bytes, offset: int) -> None:
    with pytest.raises(KafkaProtocolError) as error:
        read_subscription(data)
    assert error.value.offset == offset


def test_the_user_data_of_the_sticky_assignors_has_no_version_in_front() -> None:
    data = StickyAssignorUserData(
        previous_assignment=[StickyAssignorUserData.TopicPartition(topic="a", partitions=[1])], generation=3
    )
    assert encode(data, 1) == bytes.fromhex("00000001 000161 00000001 00000001 00000003")
    assert encode(data, 0) == bytes.fromhex("00000001 000161 00000001 00000001")
    assert encode(CooperativeStickyAssignorUserData(generation=3), 0) == bytes.fromhex("00000003")
