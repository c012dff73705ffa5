"""Answers of APIs that a release lists and has switched off (table): one row for each API that any release refuses.

Which release refuses which API, and with what error code, is in :mod:`kafka.broker.emulation`. The form of each answer
was measured: heartbeats and share requests say it once, descriptions once for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka.protocol.groups import ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatResponse, HeartbeatResponse
from kafka.protocol.offsets import OffsetCommitResponse, OffsetFetchResponse
from kafka.protocol.share import (
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponse,
    ShareAcknowledgeResponse,
    ShareFetchResponse,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatResponse,
)
from kafka.wire.message import Request, Response

_ErrorResponse = Callable[[Any, int], Response]


def _described(kind: type[ConsumerGroupDescribeResponse] | type[ShareGroupDescribeResponse]) -> _ErrorResponse:
    made: Any = kind

    def refuse(request: Any, code: int) -> Response:
        groups = [
            made.DescribedGroup(
                error_code=code, group_id=name, group_state="", group_epoch=0, assignment_epoch=0, assignor_name="",
                members=[],
            )
            for name in request.group_ids
        ]  # fmt: skip
        response: Response = made(throttle_time_ms=0, groups=groups)
        return response

    return refuse


def _share_offsets(request: Any, code: int) -> Response:
    kind = DescribeShareGroupOffsetsResponse
    groups = [
        kind.DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=[], error_code=code)
        for group in request.groups
    ]
    return kind(throttle_time_ms=0, groups=groups)


def _commit(request: Any, code: int) -> Response:
    kind = OffsetCommitResponse
    topics = [
        kind.OffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                kind.OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return kind(topics=topics)


def _offsets(request: Any, code: int) -> Response:
    kind = OffsetFetchResponse
    topics = [
        kind.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                kind.OffsetFetchResponsePartition(
                    partition_index=number, committed_offset=-1, metadata="", error_code=code
                )
                for number in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return kind(topics=topics)


_ERROR_RESPONSES: Final[Mapping[int, _ErrorResponse]] = {
    8: _commit,
    9: _offsets,
    12: lambda _, code: HeartbeatResponse(error_code=code),
    68: lambda _, code: ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=code, member_epoch=0, heartbeat_interval_ms=0
    ),
    69: _described(ConsumerGroupDescribeResponse),
    76: lambda _, code: ShareGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=code, member_epoch=0, heartbeat_interval_ms=0
    ),
    77: _described(ShareGroupDescribeResponse),
    78: lambda _, code: ShareFetchResponse(
        throttle_time_ms=0, error_code=code, acquisition_lock_timeout_ms=0, responses=[], node_endpoints=[]
    ),
    79: lambda _, code: ShareAcknowledgeResponse(
        throttle_time_ms=0, error_code=code, responses=[], node_endpoints=[]
    ),
    90: _share_offsets,
    91: lambda _, code: AlterShareGroupOffsetsResponse(throttle_time_ms=0, error_code=code, responses=[]),
    92: lambda _, code: DeleteShareGroupOffsetsResponse(throttle_time_ms=0, error_code=code, responses=[]),
}
"""API key -> how its answer says no."""


def error_response(request: Request[Any], code: int) -> Response:
    """The answer that refuses the whole request with an error code."""
    return _ERROR_RESPONSES[request.api_key](request, code)
