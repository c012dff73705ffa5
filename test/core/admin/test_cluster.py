"""Dialogues about the cluster and its brokers: what each version is asked, and what becomes of the answer."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.core.admin.cluster import broker_ids_of_the_cluster, describe_cluster
from kafka.core.admin.responses import request_brokers
from kafka.core.connection import ByVersion
from kafka.core.dialogue import All, RefreshMetadata, Send
from kafka.core.routing import AnyNode
from kafka.errors import ClusterAuthorizationFailedError, IncompatibleBrokerVersion, UnknownBrokerIdError
from kafka.protocol.metadata import DescribeClusterRequest, DescribeClusterResponse, MetadataRequest, MetadataResponse
from kafka.wire.codec import encode
from test.core.admin.driving import BACKOFF, asked, run

NOT_ALLOWED = 31
DESCRIBE = 1 << 8


def answer(code: int = 0) -> DescribeClusterResponse:
    broker = DescribeClusterResponse.DescribeClusterBroker
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=code,
        error_message="no" if code else None,
        cluster_id="c",
        controller_id=2,
        brokers=[
            broker(broker_id=1, host="h", port=9092, rack="r"),
            broker(broker_id=2, host="i", port=9093, is_fenced=True),
        ],
        cluster_authorized_operations=DESCRIBE,
    )


def built(send: Send, version: int) -> DescribeClusterRequest:
    assert isinstance(send.request, ByVersion)
    request = send.request.build(version)
    assert isinstance(request, DescribeClusterRequest)
    encode(request, version)
    return request


def test_the_cluster_is_reported_with_its_fenced_brokers_and_operations() -> None:
    found, (send,) = asked(describe_cluster(backoff=BACKOFF), answer())
    assert found == {
        "cluster_id": "c",
        "controller_id": 2,
        "brokers": [
            {"broker_id": 1, "host": "h", "port": 9092, "rack": "r", "is_fenced": False},
            {"broker_id": 2, "host": "i", "port": 9093, "rack": None, "is_fenced": True},
        ],
        "authorized_operations": ["DESCRIBE"],
    }
    assert send.target == AnyNode()
    # IncludeFencedBrokers came with version 2 (KIP-1073)
    assert [built(send, version).include_fenced_brokers for version in (0, 1, 2)] == [False, False, True]
    assert [built(send, version).include_cluster_authorized_operations for version in (0, 2)] == [True, True]


def test_brokers_that_can_be_asked_are_looked_for_without_fenced_ones_and_operations() -> None:
    found, (send,) = asked(broker_ids_of_the_cluster(), answer())
    assert found == [1, 2]
    request = built(send, 2)
    assert (request.include_fenced_brokers, request.include_cluster_authorized_operations) == (False, False)


def test_brokers_before_2_8_are_asked_for_metadata_of_no_topic() -> None:
    """An empty list is no topic since version 1 of Metadata; in version 0 it is all, and there is no controller."""
    old = MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=5, host="h", port=9092)],
        cluster_id="c",
        controller_id=5,
        topics=[],
    )
    found, (_, send) = asked(describe_cluster(backoff=BACKOFF), IncompatibleBrokerVersion("too old"), old)
    assert found == {
        "cluster_id": "c",
        "controller_id": 5,
        "brokers": [{"broker_id": 5, "host": "h", "port": 9092, "rack": None}],
        "authorized_operations": None,
    }
    assert (send.target, send.min_version) == (AnyNode(), 1)
    assert isinstance(send.request, MetadataRequest) and send.request.topics == []
    for version in range(1, MetadataRequest.max_version + 1):
        encode(send.request, version)


def test_the_error_of_the_request_is_raised() -> None:
    with pytest.raises(ClusterAuthorizationFailedError, match="describe_cluster: no"):
        asked(describe_cluster(backoff=BACKOFF), answer(NOT_ALLOWED))


def test_brokers_that_are_not_known_are_looked_for_twice() -> None:
    sends = [Send(number, MetadataRequest(topics=[])) for number in (1, 2)]
    unknown: Any = UnknownBrokerIdError("node 2")
    found, steps = run(request_brokers(sends), "a", unknown, "b", unknown, "c", "d")
    assert found == ["c", "d"]
    assert [type(step) for step in steps] == [All, RefreshMetadata, All, RefreshMetadata, All]
    with pytest.raises(UnknownBrokerIdError):
        run(request_brokers(sends), *["a", unknown] * 3)
