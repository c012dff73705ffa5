"""Dialogues about the controllers' quorum (KIP-595)."""

from __future__ import annotations

from typing import Any, Final

from kafka.core.admin.answers import Entry, raise_first, raise_transient, since
from kafka.core.admin.plain import to_dict
from kafka.core.dialogue import Dialogue, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode
from kafka.errors import for_code
from kafka.protocol.quorum import DescribeQuorumRequest, DescribeQuorumResponse

METADATA_TOPIC: Final = "__cluster_metadata"


def describe_metadata_quorum(*, backoff: Backoff, timeout_s: float = 30.0) -> Dialogue[dict[str, Any]]:
    """The controllers, and how far each of them and of the brokers has come in the log of the cluster's metadata::

        {"topics": [{"topic_name", "partitions": [{"partition_index", "error", "leader_id", "leader_epoch",
          "high_watermark", "current_voters": [replica], "observers": [replica]}]}],
         "nodes": [{"node_id", "listeners": [{"name", "host", "port"}]}]}

    A replica is ``{"replica_id", "replica_directory_id", "log_end_offset", "last_fetch_timestamp",
    "last_caught_up_timestamp"}``, times in ms since 1970, -1 where not told; ``error`` None or a text. ``nodes`` and
    directories' ids with KIP-853. Raises the error of the request. Brokers with KRaft since 3.3 (KIP-836).
    """
    topic = DescribeQuorumRequest.TopicData(
        topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
    )
    request = DescribeQuorumRequest(topics=[topic])

    def attempt() -> Dialogue[DescribeQuorumResponse]:
        answer = yield from send(AnyNode(), request)
        raise_transient(_entries(answer))
        return answer

    answer = yield from since(
        "3.3, with KRaft", retrying(attempt, what="describing the quorum", backoff=backoff, timeout_s=timeout_s)
    )
    raise_first([_whole(answer)])
    found = to_dict(answer)
    for topics in found["topics"]:
        for one in topics["partitions"]:
            code, text = one.pop("error_code"), one.pop("error_message")
            one["error"] = str(for_code(code)(text or "")) if code else None
    return {name: found[name] for name in ("topics", "nodes")}


def _whole(answer: DescribeQuorumResponse) -> Entry:
    return answer.error_code, answer.error_message, "the controllers' quorum"


def _entries(answer: DescribeQuorumResponse) -> list[Entry]:
    parts = [one for topic in answer.topics for one in topic.partitions]
    return [_whole(answer), *((one.error_code, one.error_message, "the controllers' quorum") for one in parts)]
