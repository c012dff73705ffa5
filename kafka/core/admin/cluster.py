"""Dialogues about the cluster and its brokers."""

from __future__ import annotations

from typing import Any

from kafka.core.admin.plain import raise_first, to_dict
from kafka.core.dialogue import Dialogue, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode
from kafka.errors import IncompatibleBrokerVersion
from kafka.protocol.cluster import DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest


def describe_cluster(*, backoff: Backoff, timeout_s: float = 30.0) -> Dialogue[dict[str, Any]]:
    """``{"cluster_id", "controller_id", "brokers": [{"broker_id", "host", "port", "rack", ...}]}``. Brokers before 2.8
    are asked for metadata instead."""
    return (yield from retrying(_describe, what="describing the cluster", backoff=backoff, timeout_s=timeout_s))


def _describe() -> Dialogue[dict[str, Any]]:
    try:
        answer = yield from send(AnyNode(), DescribeClusterRequest(include_cluster_authorized_operations=False))
    except IncompatibleBrokerVersion:
        metadata = yield from send(AnyNode(), MetadataRequest(topics=[], allow_auto_topic_creation=True), min_version=1)
        found = to_dict(metadata)
        brokers = [{"broker_id": broker.pop("node_id"), **broker} for broker in found["brokers"]]
        return {"cluster_id": found["cluster_id"], "controller_id": found["controller_id"], "brokers": brokers}
    raise_first([(answer.error_code, answer.error_message, "describe_cluster")])
    return to_dict(answer)


def broker_ids_of_the_cluster() -> Dialogue[list[int]]:
    """The node ids of all brokers, without trying again."""
    cluster = yield from _describe()
    return [broker["broker_id"] for broker in cluster["brokers"]]
