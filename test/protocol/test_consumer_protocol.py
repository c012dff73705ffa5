"""The bytes of subscriptions and assignments, as a broker reads and writes them."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import KafkaProtocolError
from kafka.protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    deserialize,
    deserialize_version,
)
from test.broker.groups.requests import read_assignment, write_assignment, write_subscription

PARTITIONS = st.dictionaries(st.text(min_size=1, max_size=9), st.lists(st.integers(0, 2**31 - 1), max_size=4))

SEEN = bytes.fromhex("0001 00000001 0009") + b"gt-0083f0" + bytes.fromhex("ffffffff 00000000")
"""A subscription of version 1, as a real client wrote it."""


class Subscription(NamedTuple):
    """What a broker reads in a subscription."""

    version: int
    topics: tuple[str, ...]
    owned: dict[str, list[int]]
    rack_id: str | None


def read_subscription(data: bytes) -> Subscription:
    found = deserialize(ConsumerProtocolSubscription, data, null_is_empty=True)
    owned = {one.topic: one.partitions for one in found.owned_partitions}
    return Subscription(deserialize_version(data), tuple(found.topics), owned, found.rack_id or None)


def test_a_subscription_that_was_seen_is_read_and_written() -> None:
    found = read_subscription(SEEN)
    assert (found.version, found.topics, found.owned, found.rack_id) == (1, ("gt-0083f0",), {}, None)
    assert write_subscription(["gt-0083f0"]) == SEEN


def test_later_versions_have_a_generation_and_a_rack() -> None:
    data = b"\x00\x03" + SEEN[2:] + (7).to_bytes(4, "big") + b"\x00\x02r1"
    assert read_subscription(data).rack_id == "r1"
    assert read_subscription(b"\x00\x09" + data[2:] + b"more").rack_id == "r1"


@given(PARTITIONS, st.integers(0, 3))
def test_assignments_come_back(partitions: dict[str, list[int]], version: int) -> None:
    data = write_assignment(partitions, version)
    assert deserialize_version(data) == version
    assert read_assignment(data) == partitions
    assert read_subscription(write_subscription(list(partitions), partitions)).owned == partitions


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        with suppress(KafkaProtocolError):
            read(data)


@pytest.mark.parametrize("size", range(1, len(SEEN)))
def test_cut_bytes_are_refused(size: int) -> None:
    with pytest.raises(KafkaProtocolError):
        read_subscription(SEEN[:size])


def test_null_lists_and_texts_are_empty_and_other_negative_sizes_are_refused() -> None:
    """ConsumerProtocolSubscription: -1 is null."""
    head, tail = bytes.fromhex("0003"), bytes.fromhex("ffffffff 00000000 00000007")
    null_list, one_null_text = bytes.fromhex("ffffffff"), bytes.fromhex("00000001 ffff")
    assert read_subscription(head + null_list + tail + bytes.fromhex("ffff")) == (3, (), {}, None)
    assert read_subscription(head + one_null_text + tail + bytes.fromhex("0000")) == (3, ("",), {}, None)
    for broken in (bytes.fromhex("fffffffe"), bytes.fromhex("00000001 fffe")):
        with pytest.raises(KafkaProtocolError):
            read_subscription(head + broken + tail + bytes.fromhex("ffff"))
    with pytest.raises(KafkaProtocolError):
        read_subscription(head + null_list + tail + bytes.fromhex("fffe"))


def test_each_version_has_the_fields_of_those_before() -> None:
    """ConsumerProtocolSubscription.json: OwnedPartitions from 1, GenerationId from 2, RackId from 3."""
    topics, owned = bytes.fromhex("00000001 0001 74 ffffffff"), bytes.fromhex("00000001 0001 75 00000001 00000005")
    generation, rack = bytes.fromhex("00000007"), bytes.fromhex("0001 72")
    parts = [topics, owned, generation, rack]
    for version in range(4):
        data = version.to_bytes(2, "big") + b"".join(parts[: version + 1])
        found = read_subscription(data)
        assert found == (version, ("t",), {"u": [5]} if version >= 1 else {}, "r" if version >= 3 else None)
        if version:
            with pytest.raises(KafkaProtocolError):
                read_subscription(version.to_bytes(2, "big") + b"".join(parts[:version]))


def test_a_negative_version_is_refused_where_it_stands() -> None:
    assert deserialize_version(b"\0\0") == 0
    with pytest.raises(KafkaProtocolError) as caught:
        deserialize_version(b"\xff\xff")
    assert caught.value.offset == 0


def test_an_assignment_has_kafkas_bytes() -> None:
    """ConsumerProtocolAssignment.json: partitions, and user data that is null."""
    data = bytes.fromhex("0001 00000001 0001 74 00000002 00000001 00000003 ffffffff")
    assert write_assignment({"t": [1, 3]}, 1) == data
    assert read_assignment(data) == {"t": [1, 3]}
    assert read_assignment(b"") == {}
