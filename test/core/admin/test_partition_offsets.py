"""Offsets of partitions by what they are."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.core.admin.groups import list_partition_offsets
from kafka.core.admin.values import OffsetSpec, OffsetTimestamp
from kafka.errors import IllegalArgumentError, TopicAuthorizationFailedError, UnsupportedVersionError
from kafka.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.structs import IsolationLevel, OffsetAndTimestamp, TopicPartition
from test.core.admin.driving import BACKOFF
from test.core.admin.many_brokers import Brokers

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def cluster(codes: dict[int, int] | None = None, version: int = 11) -> Brokers:
    """Where each offset is 10 times the node's number and the partition's."""

    def answer(node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        entry = ListOffsetsResponse.ListOffsetsPartitionResponse
        return ListOffsetsResponse(
            topics=[
                ListOffsetsResponse.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        entry(
                            partition_index=each.partition_index,
                            error_code=(codes or {}).get(each.partition_index, 0),
                            offset=10 * node + each.partition_index,
                            timestamp=5,
                            leader_epoch=3,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    brokers = Brokers({A: 1, B: 2}, version=version)
    brokers.handlers[ListOffsetsRequest] = answer
    return brokers


def asked(brokers: Brokers) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Node, isolation level, partitions with their timestamps."""
    return [
        (node, request.isolation_level, [(each.partition_index, each.timestamp) for each in topic.partitions])
        for node, request in brokers.asked(ListOffsetsRequest)
        for topic in request.topics
    ]


@pytest.mark.parametrize("level", [IsolationLevel.READ_COMMITTED, "read_committed", "READ-COMMITTED", 1])
def test_leaders_are_asked_with_the_isolation_that_is_meant(level: Any) -> None:
    brokers = cluster()
    found = brokers.run(
        list_partition_offsets({A: OffsetSpec.LATEST, B: OffsetTimestamp(99)}, level, backoff=BACKOFF)
    )
    assert found == {A: OffsetAndTimestamp(10, 5, 3), B: OffsetAndTimestamp(21, 5, 3)}
    assert asked(brokers) == [(1, 1, [(0, -1)]), (2, 1, [(1, 99)])]


def test_all_records_count_by_default() -> None:
    brokers = cluster()
    brokers.run(list_partition_offsets({A: -2}, backoff=BACKOFF))
    assert asked(brokers) == [(1, 0, [(0, -2)])]
    assert brokers.run(list_partition_offsets({}, backoff=BACKOFF)) == {}


def test_the_first_millisecond_of_the_epoch_is_a_time() -> None:
    brokers = cluster()
    brokers.run(list_partition_offsets({A: 0, B: 1}, backoff=BACKOFF))
    assert asked(brokers) == [(1, 0, [(0, 0)]), (2, 0, [(1, 1)])]


def test_the_first_error_is_raised_with_the_partition() -> None:
    with pytest.raises(TopicAuthorizationFailedError, match="t-1"):
        cluster({1: 29}).run(list_partition_offsets({A: -1, B: -1}, backoff=BACKOFF))


@pytest.mark.parametrize(
    ("spec", "least"), [(OffsetSpec.MAX_TIMESTAMP, 7), (OffsetSpec.EARLIEST_LOCAL, 8), (OffsetSpec.LATEST_TIERED, 9)]
)
def test_a_spec_that_an_old_broker_would_take_for_a_time_is_refused(spec: OffsetSpec, least: int) -> None:
    old = cluster(version=least - 1)
    with pytest.raises(UnsupportedVersionError, match="needs brokers"):
        old.run(list_partition_offsets({A: spec}, backoff=BACKOFF))
    assert asked(old) == []
    assert cluster(version=least).run(list_partition_offsets({A: spec}, backoff=BACKOFF))[A].offset == 10


def test_brokers_without_transactions_have_committed_records_only() -> None:
    brokers = cluster(version=1)
    brokers.run(list_partition_offsets({A: -1}, "read_committed", backoff=BACKOFF))
    assert asked(brokers) == [(1, 0, [(0, -1)])]


@pytest.mark.parametrize(
    ("specs", "level", "error", "text"),
    [
        ({A: "latest"}, 0, IllegalArgumentError, "an OffsetSpec, or a time in ms"),
        ({A: True}, 0, IllegalArgumentError, "an OffsetSpec, or a time in ms"),
        ([A], 0, IllegalArgumentError, "topic_partition_specs=.* is needed"),
        ({"ab": -1}, 0, IllegalArgumentError, "topic_partition_specs: 'ab': a TopicPartition is needed"),
        ({A: -9}, 0, IllegalArgumentError, "no OffsetSpec has that number"),
        ({A: -1}, "dirty", IllegalArgumentError, "isolation_level='dirty': one of 'read_uncommitted'"),
    ],
)
def test_wrong_use_is_an_error_at_the_call(specs: Any, level: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        cluster().run(list_partition_offsets(specs, level, backoff=BACKOFF))
