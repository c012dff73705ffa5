"""Responses that say an error, of every API of which the whole request can fail."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.broker.error_responses import answer_each, coordinator_error, error_code, error_response, error_text, failed
from kafka.broker.registry import RequestContext
from kafka.broker.responses import ConnectionContext
from kafka.errors import (
    BrokerResponseError,
    InvalidGroupIdError,
    InvalidRequestError,
    KafkaStorageError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.groups import DeleteGroupsResponse, HeartbeatRequest
from kafka.protocol.log_dirs import DescribeLogDirsRequest
from kafka.protocol.metadata import DescribeClusterResponse, MetadataRequest
from kafka.protocol.registry import REGISTRY
from kafka.protocol.share import ShareFetchResponse
from kafka.protocol.topics import CreateTopicsRequest
from kafka.wire.codec import encode
from kafka.wire.message import Request
from kafka.wire.types import ZERO_UUID

REFUSED = InvalidRequestError("because")
WHOLE = {
    name: (api, version)
    for name, api in ((api.response.__name__, api) for api in REGISTRY.values())
    for version in range(api.response.min_version, api.response.max_version + 1)
    if "error_code" in api.response.fields and api.response.fields["error_code"].present(version)
}


def call(request: Request[Any], version: int) -> RequestContext[Request[Any]]:
    return RequestContext(request, version, None, ConnectionContext(), 0.0)


@pytest.mark.parametrize("name", WHOLE)
def test_the_error_is_all_that_a_failed_response_says(name: str) -> None:
    api, version = WHOLE[name]
    response = failed(api.response, REFUSED)
    assert response.error_code == 42
    assert getattr(response, "error_message", "because") == "because"
    assert all(not value for value in (getattr(response, one) for one in response.fields) if isinstance(value, list))
    assert encode(response, version)


def test_a_code_alone_has_no_text_and_what_is_given_is_kept() -> None:
    response = failed(ShareFetchResponse, 35, acquisition_lock_timeout_ms=5)
    assert (response.error_code, response.error_message, response.acquisition_lock_timeout_ms) == (35, None, 5)
    assert failed(DescribeClusterResponse, REFUSED, error_message=None).error_message is None


def test_two_failed_responses_share_no_list() -> None:
    one, other = failed(ShareFetchResponse, 35), failed(ShareFetchResponse, 35)
    one.responses.append(ShareFetchResponse.ShareFetchableTopicResponse(topic_id=ZERO_UUID, partitions=[]))
    assert other.responses == []


def test_an_error_is_raised_where_the_response_has_no_place_for_it() -> None:
    assert error_response(call(HeartbeatRequest(group_id="", generation_id=0, member_id=""), 4), REFUSED)
    assert error_response(call(DescribeLogDirsRequest(topics=None), 3), REFUSED)
    for request, version in (
        (CreateTopicsRequest(topics=[], timeout_ms=0), 7),
        (DescribeLogDirsRequest(topics=None), 2),
        (MetadataRequest(topics=[]), 12),
    ):
        with pytest.raises(InvalidRequestError):
            error_response(call(request, version), REFUSED)


def test_each_item_has_an_answer_or_its_own_error() -> None:
    kind = DeleteGroupsResponse.DeletableGroupResult

    def answer(name: str) -> DeleteGroupsResponse.DeletableGroupResult:
        if not name:
            raise InvalidGroupIdError("")
        return kind(group_id=name)

    found = answer_each(["a", "", "b"], answer, lambda name, error: failed(kind, error, group_id=name))
    assert [(one.group_id, one.error_code) for one in found] == [("a", 0), ("", 24), ("b", 0)]


def test_a_coordinator_that_cannot_write_is_none() -> None:
    lost: BrokerResponseError = KafkaStorageError("full")
    assert error_code(coordinator_error(lost)) == 16
    assert error_text(coordinator_error(lost)) == "full"
    assert error_code(coordinator_error(UnknownTopicOrPartitionError(""))) == 3
