from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.broker.groups.embedded_protocol import (
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
    write_subscription,
)
from kafka.errors import KafkaProtocolError

PARTITIONS = st.dictionaries(st.text(min_size=1, max_size=9), st.lists(st.integers(0, 2**31 - 1), max_size=4))

SEEN = bytes.fromhex("0001 00000001 0009") + b"gt-0083f0" + bytes.fromhex("ffffffff 00000000")
"""A subscription of version 1, as a real client wrote it."""


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
    assert read_version(data) == version
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
