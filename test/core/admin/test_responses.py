"""What errors in responses lead to, and responses as dictionaries."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafka.core.admin.responses import (
    RESPONSE_LOST,
    AdminApi,
    each_partition,
    in_all,
    in_each,
    operations_of,
    raise_first,
    raise_transient,
    request_api,
    requiring_release,
    result_of,
    to_dict,
    topics_as,
)
from kafka.core.connection import ByVersion
from kafka.core.dialogue import All, RefreshMetadata, Send
from kafka.core.routing import AnyNode, Controller, Leader
from kafka.errors import (
    ERRORS_BY_CODE,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    NoError,
    NotControllerError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
)
from kafka.protocol.acls import CreateAclsRequest, CreateAclsResponse
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.offsets import OffsetCommitRequest, OffsetCommitResponse
from kafka.protocol.topics import DeleteTopicsRequest
from kafka.structs import TopicPartition
from test.core.admin.driving import BACKOFF, asked, run
from test.core.test_retry import drive

ASKED_AGAIN = {
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    41: "NOT_CONTROLLER",
    88: "UNSTABLE_OFFSET_COMMIT",
    89: "THROTTLING_QUOTA_EXCEEDED",
}
"""Those after which Java's admin client asks again: PartitionLeaderStrategy, CoordinatorStrategy and their handlers,
``handleNotControllerError``, ``retryOnQuotaViolation`` (KIP-599), ListConsumerGroupOffsetsHandler (KIP-447)."""


@pytest.mark.parametrize("code", sorted(ERRORS_BY_CODE))
def test_the_wrong_broker_or_too_early_is_asked_again_and_nothing_else(code: int) -> None:
    entries = [(0, None, "first"), (code, "why", "second")]
    if code in ASKED_AGAIN:
        with pytest.raises(ERRORS_BY_CODE[code], match="second: why"):
            raise_transient(entries)
    else:
        raise_transient(entries)


def test_the_first_error_is_raised_with_what_it_is_about() -> None:
    raise_first([(0, None, "a"), (0, "all is well", "b")])
    with pytest.raises(NotControllerError) as caught:
        raise_first([(0, None, "a"), (41, None, "b"), (29, "no", "c")])
    assert caught.value.args == ("b",)
    with pytest.raises(TopicAuthorizationFailedError) as denied:
        raise_first([(29, "no", "c")])
    assert denied.value.args == ("c: no",)


def test_an_error_without_a_text_has_an_empty_one() -> None:
    assert isinstance(result_of(0, None), NoError)
    assert result_of(29, None).args == ("",) and result_of(29, "no").args == ("no",)


def test_an_answer_may_be_lost_with_the_connection_or_by_time() -> None:
    assert set(RESPONSE_LOST) == {KafkaConnectionError, RequestTimedOutError}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (IncompatibleBrokerVersion("node 1 is old", 2), "node 1 is old; brokers have it since release 2.4"),
        (IncompatibleBrokerVersion(), "the broker is too old; brokers have it since release 2.4"),
    ],
)
def test_an_error_of_an_old_broker_names_the_release_that_is_needed(error: Exception, text: str) -> None:
    def attempt() -> Any:
        raise error
        yield

    with pytest.raises(IncompatibleBrokerVersion) as caught:
        drive(requiring_release("2.4", attempt()), lambda step: None)
    assert caught.value.args == (text,)
    assert caught.value.__cause__ is error


MADE = AdminApi("making rules", in_each("results", "rule of {0.error_message}"), AnyNode())
REQUEST = CreateAclsRequest(creations=[])
DELETE = DeleteTopicsRequest(topic_names=[], timeout_ms=1000)


def made(*codes: int) -> CreateAclsResponse:
    results = [CreateAclsResponse.AclCreationResult(error_code=code, error_message="me") for code in codes]
    return CreateAclsResponse(throttle_time_ms=0, results=results)


def test_an_api_is_asked_again_while_an_entry_is_transient_and_then_its_first_error_is_raised() -> None:
    found, sends = asked(request_api(MADE, REQUEST, BACKOFF, 30), made(0, 41), made(0, 0))
    assert [result.error_code for result in found.results] == [0, 0]
    assert [(send.target, send.request, send.timeout_s) for send in sends] == [(AnyNode(), REQUEST, None)] * 2
    with pytest.raises(TopicAuthorizationFailedError) as denied:
        asked(request_api(MADE, REQUEST, BACKOFF, 30), made(0, 29, 31))
    assert denied.value.args == ("rule of me: me",)
    found, _ = asked(request_api(MADE, REQUEST, BACKOFF, 30, raise_errors=False), made(0, 29))
    assert [result.error_code for result in found.results] == [0, 29]


def test_an_error_of_all_may_have_no_text() -> None:
    bare = OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=3, error_code=7)
    assert list(in_all("all")(bare)) == [(7, None, "all")]
    assert list(in_all("all")(made(7).results[0])) == [(7, "me", "all")]


def test_a_response_is_waited_for_longer_than_the_broker_may_take() -> None:
    api = AdminApi("deleting")
    for request in (DELETE, ByVersion(DeleteTopicsRequest, lambda version: DELETE)):
        _, (send,) = asked(request_api(api, request, BACKOFF, 2.5, min_version=4), None)
        assert (send.target, send.timeout_s, send.min_version) == (Controller(), 7.5, 4)


def test_answers_that_were_lost_are_remembered() -> None:
    lost: list[KafkaError] = []
    errors = (KafkaConnectionError("gone"), RequestTimedOutError("late"))
    asked(request_api(MADE, REQUEST, BACKOFF, 30, lost=lost), errors[0], NotControllerError(), errors[1], made())
    assert lost == list(errors)
    asked(request_api(MADE, REQUEST, BACKOFF, 30), KafkaConnectionError("gone"), made())


def test_a_broker_that_is_not_known_is_looked_for_and_the_topic_of_a_leader_refreshed() -> None:
    unknown: Any = UnknownBrokerIdError("node 3")
    _, steps = run(request_api(MADE._replace(target=3), REQUEST, BACKOFF, 30), unknown, made())
    assert [type(step) for step in steps if isinstance(step, (All, Send, RefreshMetadata))] == [
        All, RefreshMetadata, All,
    ]  # fmt: skip
    api = MADE._replace(target=Leader(TopicPartition("events", 0)))
    _, steps = run(request_api(api, REQUEST, BACKOFF, 30), made(6), made())
    assert [list(step.topics) for step in steps if isinstance(step, RefreshMetadata)] == [["events"]]


def test_the_release_is_told_where_the_api_has_one() -> None:
    for release, text in (("2.4", "old; brokers have it since release 2.4"), ("", "old")):
        with pytest.raises(IncompatibleBrokerVersion) as caught:
            asked(request_api(MADE._replace(release=release), REQUEST, BACKOFF, 30), IncompatibleBrokerVersion("old"))
        assert caught.value.args == (text,)


def test_partitions_are_written_and_read_by_topic() -> None:
    """A topic's name is its structure's first field, and its partitions are the last; its id may be between them."""
    message = OffsetCommitRequest
    topics = topics_as(
        message.OffsetCommitRequestTopic,
        {"a": [2, 0], "b": []},
        lambda each: message.OffsetCommitRequestPartition(
            partition_index=each.partition, committed_offset=10, committed_metadata=each.topic
        ),
    )
    written = {
        topic.name: [(each.partition_index, each.committed_metadata) for each in topic.partitions] for topic in topics
    }
    assert written == {"a": [(2, "a"), (0, "a")], "b": []}
    partition = OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=3, error_code=5)
    answered = [OffsetCommitResponse.OffsetCommitResponseTopic(name="c", partitions=[partition])]
    assert list(each_partition(answered)) == [(TopicPartition("c", 3), partition)]
# -- messages as dictionaries, and authorized operations by their names ------------------------------------------------


OPERATIONS = {
    3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE", 9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS", 12: "IDEMPOTENT_WRITE", 13: "CREATE_TOKENS", 14: "DESCRIBE_TOKENS",
}  # fmt: skip
"""Bit -> name: the codes of ``org.apache.kafka.common.acl.AclOperation`` (KIP-430)."""


@pytest.mark.parametrize(("bit", "name"), sorted(OPERATIONS.items()))
def test_a_bit_is_the_operation_of_that_code(bit: int, name: str) -> None:
    assert operations_of(1 << bit) == [name]


def test_operations_are_listed_from_the_lowest_bit_and_only_authorized_ones() -> None:
    """As Java's ``Utils.from32BitField`` and ``KafkaAdminClient.validAclOperations``: not UNKNOWN, ANY and ALL."""
    assert operations_of((1 << 15) - 1) == list(OPERATIONS.values())
    assert operations_of(0b111) == [] and operations_of(0) == []


def test_operations_that_were_not_asked_for_are_none() -> None:
    """The protocol's default, the lowest int32."""
    assert operations_of(-(2**31)) is None


def test_a_structure_is_a_dictionary_all_the_way_down() -> None:
    message = MetadataResponse
    part = message.MetadataResponsePartition(
        error_code=0, partition_index=1, leader_id=2, replica_nodes=[2, 3], isr_nodes=[2]
    )
    with_id, without = (
        message.MetadataResponseTopic(error_code=0, name="t", topic_id=topic_id, partitions=[part])
        for topic_id in (UUID(int=5), UUID(int=0))
    )
    found = to_dict(message(brokers=[], topics=[with_id, without]))
    assert [topic["topic_id"] for topic in found["topics"]] == ["00000000-0000-0000-0000-000000000005", None]
    assert found["topics"][0]["partitions"] == [
        {
            "error_code": 0, "partition_index": 1, "leader_id": 2, "leader_epoch": -1, "replica_nodes": [2, 3],
            "isr_nodes": [2], "offline_replicas": [],
        }
    ]  # fmt: skip
    assert found["brokers"] == []
