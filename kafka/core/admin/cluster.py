"""Dialogues about brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kafka.core.admin.plain import raise_first, raise_transient, to_dict
from kafka.core.dialogue import All, Dialogue, Send, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode, Coordinator
from kafka.errors import IncompatibleBrokerVersion
from kafka.protocol.cluster import DescribeClusterRequest
from kafka.protocol.groups import DeleteGroupsRequest, DeleteGroupsResponse, ListGroupsRequest
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


def list_groups(
    broker_ids: Sequence[int] | None = None,
    states_filter: Iterable[str] = (),
    types_filter: Iterable[str] = (),
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[list[dict[str, Any]]]:
    """All groups: ``[{"group_id", "protocol_type", "group_state", "group_type"}]``. Each broker lists those that it
    coordinates, so all are asked. States since 2.6 (KIP-518), types since 3.8 (KIP-848)."""
    states, types = list(states_filter), list(types_filter)
    least = 5 if types else 4 if states else None
    request = ListGroupsRequest(states_filter=states, types_filter=types)

    def attempt() -> Dialogue[list[dict[str, Any]]]:
        asked = broker_ids
        if asked is None:
            cluster = yield from _describe()
            asked = [broker["broker_id"] for broker in cluster["brokers"]]
        answers: list[Any] = yield All([Send(broker, request, min_version=least) for broker in asked])
        found = []
        for broker, answer in zip(asked, answers, strict=True):
            raise_first([(answer.error_code, None, f"list_groups at node {broker}")])
            found += [to_dict(group) for group in answer.groups]
        return found

    return (yield from retrying(attempt, what="listing the groups", backoff=backoff, timeout_s=timeout_s))


def delete_groups(
    group_ids: Iterable[str], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[str, str]]:
    """Delete empty groups: ``{group: "OK"}``. Raises the first error (NonEmptyGroupError, GroupIdNotFoundError)."""
    found: dict[str, str] = {}
    for group_id in group_ids:
        target = Coordinator(group_id)

        def attempt(group_id: str = group_id, target: Coordinator = target) -> Dialogue[DeleteGroupsResponse]:
            answer = yield from send(target, DeleteGroupsRequest(groups_names=[group_id]))
            raise_transient((result.error_code, None, f"group {result.group_id}") for result in answer.results)
            return answer

        answer = yield from retrying(
            attempt, what="deleting a group", backoff=backoff, timeout_s=timeout_s, target=target
        )
        raise_first((result.error_code, None, f"group {result.group_id}") for result in answer.results)
        found[group_id] = "OK"
    return found
