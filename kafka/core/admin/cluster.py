"""Dialogues about the cluster and its brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kafka.core.admin.answers import raise_first
from kafka.core.admin.plain import operations_of, to_dict
from kafka.core.dialogue import All, ByVersion, Dialogue, Send, refresh_metadata, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode
from kafka.errors import IncompatibleBrokerVersion, UnknownBrokerIdError
from kafka.protocol.cluster import DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest

_FENCED_SINCE: Final = 2
_OPERATIONS: Final = "cluster_authorized_operations"
_LOOKS: Final = 2


def describe_cluster(*, backoff: Backoff, timeout_s: float = 30.0) -> Dialogue[dict[str, Any]]:
    """``{"cluster_id", "controller_id", "brokers": [{"broker_id", "host", "port", "rack", "is_fenced"}],
    "authorized_operations"}``, fenced brokers with the others (4.0). Brokers before 2.8 are asked for metadata instead,
    which tells of no fences, and asked for no operations (None)."""
    return (
        yield from retrying(
            lambda: _describe(is_whole=True), what="describing the cluster", backoff=backoff, timeout_s=timeout_s
        )
    )


def _describe(*, is_whole: bool) -> Dialogue[dict[str, Any]]:
    """``is_whole`` False: the brokers that can be asked, and no operations."""

    def build(version: int) -> DescribeClusterRequest:
        request = DescribeClusterRequest(include_cluster_authorized_operations=is_whole)
        if version >= _FENCED_SINCE:
            request.include_fenced_brokers = is_whole
        return request

    try:
        answer = yield from send(AnyNode(), ByVersion(DescribeClusterRequest, build))
    except IncompatibleBrokerVersion:
        metadata = yield from send(AnyNode(), MetadataRequest(topics=[]), min_version=1)
        found = to_dict(metadata)
        found["brokers"] = [{"broker_id": broker.pop("node_id"), **broker} for broker in found["brokers"]]
    else:
        raise_first([(answer.error_code, answer.error_message, "describe_cluster")])
        found = to_dict(answer)
    told = {name: found[name] for name in ("cluster_id", "controller_id", "brokers")}
    return {**told, "authorized_operations": operations_of(found[_OPERATIONS])}


def broker_ids_of_the_cluster() -> Dialogue[list[int]]:
    """The node ids of all brokers, without trying again."""
    cluster = yield from _describe(is_whole=False)
    return [broker["broker_id"] for broker in cluster["brokers"]]


def ask_brokers(sends: Sequence[Send]) -> Dialogue[list[Any]]:
    """All answers, in order, or the first error. A broker that the client does not know may have joined since it last
    looked: it looks again, twice. UnknownBrokerIdError: there is none of that id."""
    answers: list[Any]
    for _ in range(_LOOKS):
        try:
            answers = yield All(sends)
            return answers
        except UnknownBrokerIdError:
            yield from refresh_metadata()
    answers = yield All(sends)
    return answers
