from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafka.core.admin.topics import (
    check_partitions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_topic_partitions,
    describe_topics,
    list_topics,
    wait_for_topics,
)
from kafka.core.admin.values import NewPartitions, NewTopic
from kafka.core.connection import ByVersion
from kafka.core.dialogue import Now, RefreshMetadata, Send
from kafka.core.routing import AnyNode, Controller, Leader
from kafka.errors import (
    Cancelled,
    IllegalArgumentError,
    KafkaConnectionError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.topics import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeTopicPartitionsResponse,
)
from kafka.structs import TopicPartition
from test.core.admin.driving import BACKOFF, run
from test.core.test_retry import drive

OUT_OF_RANGE, UNKNOWN_TOPIC, NO_LEADER, NOT_LEADER, DENIED, NOT_CONTROLLER = 1, 3, 5, 6, 29, 41


def created(*codes: int) -> CreateTopicsResponse:
    result = CreateTopicsResponse.CreatableTopicResult
    return CreateTopicsResponse(topics=[result(name=f"t{n}", error_code=code) for n, code in enumerate(codes)])



def test_the_controller_is_looked_for_when_it_has_moved() -> None:
    result, steps = run(create_topics(["t0"], backoff=BACKOFF), created(NOT_CONTROLLER), created(0))
    assert result["topics"][0]["error_code"] == 0
    sends = [step for step in steps if isinstance(step, Send)]
    assert [send.target for send in sends] == [Controller(), Controller()]
    assert any(isinstance(step, RefreshMetadata) for step in steps)


def test_the_first_error_is_raised_or_all_are_returned() -> None:
    with pytest.raises(TopicAlreadyExistsError, match="topic t1"):
        run(create_topics(["t0", "t1"], backoff=BACKOFF), created(0, 36))
    result, _ = run(create_topics(["t0", "t1"], backoff=BACKOFF, raise_errors=False), created(0, 36))
    assert [topic["error_code"] for topic in result["topics"]] == [0, 36]


def answered(call: str, code: int = 0) -> Any:
    if call == "create_topics":
        return created(code)
    if call == "delete_topics":
        result = DeleteTopicsResponse.DeletableTopicResult(name="t0", error_code=code)
        return DeleteTopicsResponse(responses=[result])
    result = CreatePartitionsResponse.CreatePartitionsTopicResult(name="t0", error_code=code, error_message=None)
    return CreatePartitionsResponse(throttle_time_ms=0, results=[result])


CALLS: Any = {
    "create_topics": lambda **options: create_topics(["t0"], backoff=BACKOFF, **options),
    "delete_topics": lambda **options: delete_topics(["t0"], backoff=BACKOFF, **options),
    "create_partitions": lambda **options: create_partitions({"t0": 2}, backoff=BACKOFF, **options),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_controller_has_its_time_and_is_waited_for_a_little_longer(call: str) -> None:
    for options, limit_ms, wait_s in (({}, 30_000, 35.0), ({"timeout_s": 2.0}, 2_000, 7.0)):
        _, (send,) = run(CALLS[call](**options), answered(call))
        requests = [send.request]
        if isinstance(send.request, ByVersion):
            requests = [send.request.build(version) for version in (5, 6)]
        assert [request.timeout_ms for request in requests] == [limit_ms] * len(requests)
        assert (send.target, send.timeout_s) == (Controller(), wait_s)


@pytest.mark.parametrize("call", CALLS)
def test_errors_are_raised_and_things_are_done_by_default(call: str) -> None:
    with pytest.raises(TopicAuthorizationFailedError, match="topic t0"):
        run(CALLS[call](), answered(call, DENIED))
    found, _ = run(CALLS[call](raise_errors=False), answered(call, DENIED))
    (entry,) = found["results" if call == "create_partitions" else "topics"]
    assert entry["error_code"] == DENIED
    if call != "delete_topics":
        for options, is_only_looked_at in (({}, False), ({"validate_only": True}, True)):
            _, (send,) = run(CALLS[call](**options), answered(call))
            assert send.request.validate_only is is_only_looked_at


def test_what_is_no_topic_to_create_is_refused() -> None:
    for nothing in ([], {}):
        with pytest.raises(IllegalArgumentError, match="no topics"):
            run(create_topics(nothing, backoff=BACKOFF))


def test_the_settings_of_a_new_topic_are_returned_where_the_broker_has_them() -> None:
    answer = created(0, 0, 0)
    config = CreateTopicsResponse.CreatableTopicConfigs
    setting = config(name="retention.ms", value="5", read_only=False, config_source=1, is_sensitive=False)
    answer.topics[0].configs, answer.topics[1].configs, answer.topics[2].configs = [setting], [], None
    found, _ = run(create_topics(["t0", "t1", "t2"], backoff=BACKOFF), answer)
    first, second, third = found["topics"]
    assert first["configs"] == {
        "retention.ms": {
            "value": "5", "read_only": False, "config_source": "DYNAMIC_TOPIC_CONFIG", "is_sensitive": False,
        }
    }  # fmt: skip
    assert "configs" not in second and "configs" not in third


def test_an_unset_option_of_a_new_topic_is_the_brokers_default() -> None:
    """-1 for both numbers (KIP-464); null for a setting."""
    for given in (["t0"], {"t0": {}}):
        _, (send,) = run(create_topics(given, backoff=BACKOFF), created(0))
        (topic,) = send.request.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t0", -1, -1)
        assert (topic.assignments, topic.configs) == ([], [])
    _, (send,) = run(create_topics([NewTopic("t0", topic_configs={"a": None, "b": 0})], backoff=BACKOFF), created(0))
    assert [(config.name, config.value) for config in send.request.topics[0].configs] == [("a", None), ("b", "0")]


def test_topics_are_asked_for_in_every_form() -> None:
    for given in (
        [NewTopic("t0", 3, 1, topic_configs={"retention.ms": 5})],
        {"t0": {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": 5}}},
    ):
        _, (send,) = run(create_topics(given, backoff=BACKOFF), created(0))
        (topic,) = send.request.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t0", 3, 1)
        assert [(config.name, config.value) for config in topic.configs] == [("retention.ms", "5")]


def test_replicas_by_hand_leave_the_counts_to_the_broker() -> None:
    _, (send,) = run(create_topics([NewTopic("t0", 2, 2, {0: [1, 2]})], backoff=BACKOFF), created(0))
    (topic,) = send.request.topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    assert [(a.partition_index, a.broker_ids) for a in topic.assignments] == [(0, [1, 2])]


def test_topics_are_deleted_by_name_in_old_versions_and_by_id_in_new_ones() -> None:
    answer = DeleteTopicsResponse(responses=[DeleteTopicsResponse.DeletableTopicResult(name="t", error_code=0)])
    _, (send,) = run(delete_topics(["t"], backoff=BACKOFF), answer)
    assert isinstance(send.request, ByVersion)
    assert send.min_version is None
    old, new = send.request.build(5), send.request.build(6)
    assert isinstance(old, DeleteTopicsRequest)
    assert isinstance(new, DeleteTopicsRequest)
    assert (old.topic_names, [topic.name for topic in new.topics]) == (["t"], ["t"])
    _, (send,) = run(delete_topics([UUID(int=5)], backoff=BACKOFF), answer)
    assert send.min_version == 6
    (topic,) = send.request.build(6).topics
    assert (topic.topic_id, topic.name) == (UUID(int=5), None), "ids came with version 6 (KIP-516)"


def grown() -> CreatePartitionsResponse:
    result = CreatePartitionsResponse.CreatePartitionsTopicResult(name="t", error_code=0, error_message=None)
    return CreatePartitionsResponse(throttle_time_ms=0, results=[result])


@pytest.mark.parametrize(
    ("given", "count", "assignments"),
    [
        (2, 2, None),
        (NewPartitions(2), 2, None),
        (NewPartitions(2, [[1]]), 2, [[1]]),
        ({"count": 2, "assignments": [[1], [2, 1]]}, 2, [[1], [2, 1]]),
        ({"count": 2}, 2, None),
    ],
)
def test_more_partitions_are_asked_for_in_every_form(given: Any, count: int, assignments: Any) -> None:
    _, (send,) = run(create_partitions({"t": given}, backoff=BACKOFF), grown())
    (topic,) = send.request.topics
    sent = None if topic.assignments is None else [one.broker_ids for one in topic.assignments]
    assert (topic.name, topic.count, sent) == ("t", count, assignments)


@pytest.mark.parametrize("given", [{"t": {"total": 2}}, {"t": "2"}, {"t": None}, {"t": True}, ["t"]])
def test_what_is_no_count_of_partitions_is_refused(given: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="total count"):
        run(create_partitions(given, backoff=BACKOFF))


@pytest.mark.parametrize("call", [create_topics, delete_topics, describe_topics])
def test_one_text_is_no_list_of_topics(call: Any) -> None:
    with pytest.raises(IllegalArgumentError, match=r"topics='events': a list of .*not one"):
        run(call("events", backoff=BACKOFF))


@pytest.mark.parametrize("given", ["events", [TopicPartition("events", 0)], {"events": 4}])
def test_what_is_no_dict_of_partitions_is_refused_before_records_are_deleted(given: Any) -> None:
    with pytest.raises(IllegalArgumentError, match=r"records_to_delete.*'events'.*TopicPartition.* is needed"):
        run(delete_records(given, backoff=BACKOFF))


def deleted() -> DeleteRecordsResponse:
    message = DeleteRecordsResponse
    one = message.DeleteRecordsPartitionResult(partition_index=0, low_watermark=4, error_code=0)
    return message(throttle_time_ms=0, topics=[message.DeleteRecordsTopicResult(name="t", partitions=[one])])


def test_deleting_records_of_many_partitions_has_one_limit() -> None:
    call = delete_records({TopicPartition("t", 0): 4}, backoff=BACKOFF, timeout_s=5.0)
    _, steps = run(call, KafkaConnectionError("gone"), described(1), deleted())
    *_, last = (step for step in steps if isinstance(step, Send))
    request: Any = last.request
    assert (last.give_up_at, request.timeout_ms, last.timeout_s) == (5.0, 4900, 9.9)


def test_records_are_deleted_partition_by_partition_at_their_leaders() -> None:
    low = DeleteRecordsResponse.DeleteRecordsPartitionResult
    moved = deleted()
    moved.topics[0].partitions = [low(partition_index=0, low_watermark=-1, error_code=NOT_LEADER)]
    call = delete_records({TopicPartition("t", 0): -1}, backoff=BACKOFF)
    found, steps = run(call, described(1), moved, deleted())
    assert found == {TopicPartition("t", 0): {"partition_index": 0, "low_watermark": 4, "error_code": 0}}
    sends = [step for step in steps if isinstance(step, Send)][1:]
    assert [send.target for send in sends] == [Leader(TopicPartition("t", 0))] * 2
    request: Any = sends[0].request
    ((topic,),) = (request.topics,)
    assert (topic.name, [(each.partition_index, each.offset) for each in topic.partitions]) == ("t", [(0, -1)])
    moved.topics[0].partitions[0].error_code = OUT_OF_RANGE
    with pytest.raises(OffsetOutOfRangeError, match="t-0"):
        run(delete_records({TopicPartition("t", 0): 9}, backoff=BACKOFF), described(1), moved)


def metadata(*topics: tuple[str | None, int, list[tuple[int, int, int]]]) -> MetadataResponse:
    """Name, error code, and (number, error code, leader) of each partition."""
    message = MetadataResponse
    return message(
        brokers=[],
        topics=[
            message.MetadataResponseTopic(
                error_code=code,
                name=name,
                partitions=[
                    message.MetadataResponsePartition(
                        error_code=error, partition_index=number, leader_id=leader, replica_nodes=[], isr_nodes=[]
                    )
                    for number, error, leader in parts
                ],
            )
            for name, code, parts in topics
        ],
    )


def test_partitions_are_looked_for_before_anything_goes_to_leaders() -> None:
    wanted = [TopicPartition("u", 0), TopicPartition("t", 0), TopicPartition("t", 1)]
    there = metadata(("t", 0, [(0, 0, 1), (1, 0, 1)]), ("u", 0, [(0, 0, 1)]))
    _, (send,) = run(check_partitions(wanted, backoff=BACKOFF), there)
    assert [topic.name for topic in send.request.build(4).topics] == ["t", "u"]
    with pytest.raises(UnknownTopicOrPartitionError, match=r"there is no u-0, no t-1$"):
        run(check_partitions(wanted, backoff=BACKOFF), metadata(("t", 0, [(0, 0, 1)]), ("u", UNKNOWN_TOPIC, [])))
    with pytest.raises(TopicAuthorizationFailedError, match="topic u$"):
        run(check_partitions(wanted, backoff=BACKOFF), metadata(("t", UNKNOWN_TOPIC, []), ("u", DENIED, [])))
    _, steps = run(check_partitions(wanted, backoff=BACKOFF), metadata(("t", NO_LEADER, [])), there)
    assert sum(isinstance(step, Send) for step in steps) == 2, "a new topic may have no leader yet"


def test_the_names_of_all_topics_are_listed() -> None:
    """A topic that is asked for by its id may have none (KIP-516)."""
    found, (send,) = run(list_topics(backoff=BACKOFF), metadata(("t", 0, []), (None, 0, []), ("u", 0, [])))
    assert found == ["t", "u"]
    assert [send.request.build(version).topics for version in (0, 1, 4, 12)] == [[], None, None, None]
    assert send.min_version is None


def test_topics_are_described_with_operations_where_the_version_can_and_by_ids() -> None:
    """Operations came with version 8 (KIP-430), asking by ids with version 12 (KIP-516)."""
    _, (send,) = run(describe_topics(["t"], backoff=BACKOFF), metadata())
    assert send.min_version is None
    built = [send.request.build(version) for version in (7, 8)]
    assert [request.include_topic_authorized_operations for request in built] == [False, True]
    assert [request.allow_auto_topic_creation for request in built] == [False, False]
    _, (send,) = run(describe_topics(["t", UUID(int=5)], backoff=BACKOFF), metadata())
    assert send.min_version == 12
    by_name, by_id = send.request.build(12).topics
    assert (by_name.name, by_name.topic_id, by_id.name, by_id.topic_id) == ("t", UUID(int=0), None, UUID(int=5))
    _, (send,) = run(list_topics(backoff=BACKOFF), metadata())
    assert send.request.build(8).include_topic_authorized_operations is False


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (metadata(("t", 0, [(0, 0, 0), (1, 0, 2)])), None),
        (metadata(("t", 0, [(0, 0, 1), (1, 0, -1)])), "t: not every partition has a leader"),
        (metadata(("t", 0, [])), "t: not every partition has a leader"),
        (metadata(("t", UNKNOWN_TOPIC, [])), "t: UnknownTopicOrPartitionError"),
        (metadata(("t", 0, [(0, 0, 1), (1, NO_LEADER, 1)])), "t: LeaderNotAvailableError"),
        (metadata(("t", UNKNOWN_TOPIC, []), ("u", 0, [(0, 0, 1)])), "t: UnknownTopicOrPartitionError"),
        (KafkaConnectionError("gone"), "KafkaConnectionError: gone"),
    ],
)
def test_a_topic_is_ready_when_each_partition_has_a_leader_and_no_error(answer: Any, reason: str | None) -> None:
    if reason is None:
        assert sum(isinstance(step, Send) for step in run(wait_for_topics(["t"]), answer)[1]) == 1
        return
    with pytest.raises(KafkaTimeoutError, match=f"topics are not ready after 0.1 s: {reason}$"):
        run(wait_for_topics(["t"], timeout_s=0.1), *[answer] * 10)


@pytest.mark.parametrize("error", [TopicAuthorizationFailedError("no"), Cancelled("the client is closed")])
def test_what_no_waiting_changes_is_raised_at_once(error: Exception) -> None:
    with pytest.raises(type(error)):
        run(wait_for_topics(["t"]), error)


def test_the_latest_look_that_had_its_time_says_why_a_topic_is_not_ready() -> None:
    looks = [metadata(("t", UNKNOWN_TOPIC, [])), KafkaConnectionError("gone"), KafkaConnectionError("cut short")]
    with pytest.raises(KafkaTimeoutError, match="KafkaConnectionError: gone$"):
        run(wait_for_topics(["t"], timeout_s=0.1), *looks)


def test_a_last_look_that_was_cut_short_does_not_hide_what_is_missing() -> None:
    def answer(step: Any) -> Any:
        if not isinstance(step, Send):
            return None
        looks.append(step)
        if len(looks) == 2:
            raise KafkaConnectionError("slow")
        return metadata(("t", UNKNOWN_TOPIC, []))

    looks: list[Any] = []
    with pytest.raises(KafkaTimeoutError, match="t: UnknownTopicOrPartitionError"):
        drive(wait_for_topics(["t"], timeout_s=0.05), answer)
    assert len(looks) == 2


def described(leader: int) -> MetadataResponse:
    partition = MetadataResponse.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=leader, replica_nodes=[], isr_nodes=[]
    )
    topic = MetadataResponse.MetadataResponseTopic(error_code=0, name="t", partitions=[partition])
    return MetadataResponse(brokers=[], topics=[topic])


def test_a_topic_is_waited_for_until_its_partitions_have_leaders() -> None:
    _, steps = run(wait_for_topics(["t"]), described(-1), described(-1), described(1))
    assert sum(isinstance(step, Send) for step in steps) == 3
    assert steps[-1] == RefreshMetadata(["t"])
    with pytest.raises(KafkaTimeoutError, match="t: not every partition has a leader"):
        run(wait_for_topics(["t"], timeout_s=0.1), *[described(-1)] * 10)


def test_time_that_a_broker_takes_is_waited_too() -> None:
    """Each answer comes after two seconds."""
    clock, looks = 0.0, 0
    dialogue = wait_for_topics(["t"], timeout_s=5.0)
    step: Any = next(dialogue)
    with pytest.raises(KafkaTimeoutError, match="after 5 s: t: not every partition has a leader"):
        while True:
            if isinstance(step, Send):
                clock, looks = clock + 2.0, looks + 1
                assert step.give_up_at == 5.0
            step = dialogue.send(
                clock if isinstance(step, Now) else described(-1) if isinstance(step, Send) else None
            )
    assert looks == 3
    assert run(wait_for_topics([])) == (None, [])


@pytest.mark.parametrize(("version", "asked"), [(0, []), (3, None), (4, ["there", "typo"])])
def test_a_broker_that_would_create_topics_is_asked_for_all_topics(
    version: int, asked: list[str] | None
) -> None:
    def answer(step: Any) -> Any:
        if not isinstance(step, Send):
            return None
        assert isinstance(step.request, ByVersion)
        request = step.request.build(version)
        assert isinstance(request, MetadataRequest)
        assert (None if request.topics is None else [topic.name for topic in request.topics]) == asked
        topic = MetadataResponse.MetadataResponseTopic
        there = [topic(error_code=0, name=name, partitions=[]) for name in ("another", "there")]
        missing = [topic(error_code=3, name="typo", partitions=[])]
        return MetadataResponse(brokers=[], topics=there if version < 4 else there[1:] + missing)

    found, _ = drive(describe_topics(["there", "typo"], backoff=BACKOFF), answer)
    assert [(topic["name"], topic["error_code"], topic["topic_id"]) for topic in found] == [
        ("there", 0, None),
        ("typo", 3, None),
    ]


@pytest.mark.parametrize(("version", "wanted"), [(4, ["t", "u"]), (12, [UUID(int=5), UUID(int=6)])])
def test_a_broker_that_is_asked_for_these_topics_alone_is_taken_at_its_word(version: int, wanted: Any) -> None:
    """In its own order, and with names that were not known."""

    def answer(step: Any) -> Any:
        if not isinstance(step, Send):
            return None
        assert isinstance(step.request, ByVersion)
        request: Any = step.request.build(version)
        assert request.allow_auto_topic_creation is False, "which can be said since version 4"
        return metadata(("u", 0, []), ("t", 0, []))

    found, _ = drive(describe_topics(wanted, backoff=BACKOFF), answer)
    assert [topic["name"] for topic in found] == ["u", "t"]


def page(cursor: tuple[str, int] | None) -> DescribeTopicPartitionsResponse:
    message = DescribeTopicPartitionsResponse
    part = message.DescribeTopicPartitionsResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=1,
        leader_epoch=2,
        replica_nodes=[1, 2],
        isr_nodes=[1],
        eligible_leader_replicas=[2],
        offline_replicas=[],
    )
    topic = message.DescribeTopicPartitionsResponseTopic(
        error_code=0, name="t", topic_id=UUID(int=5), partitions=[part], topic_authorized_operations=1 << 3 | 1 << 8
    )
    at = None if cursor is None else message.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    return message(throttle_time_ms=0, topics=[topic], next_cursor=at)


def test_a_page_of_topics_ends_where_the_next_begins() -> None:
    found, (send,) = run(describe_topic_partitions(["t", "u"], 1, backoff=BACKOFF), page(("t", 1)))
    assert found == {
        "topics": [
            {
                "error_code": 0,
                "name": "t",
                "topic_id": str(UUID(int=5)),
                "is_internal": False,
                "partitions": [
                    {
                        "error_code": 0,
                        "partition_index": 0,
                        "leader_id": 1,
                        "leader_epoch": 2,
                        "replica_nodes": [1, 2],
                        "isr_nodes": [1],
                        "eligible_leader_replicas": [2],
                        "last_known_elr": None,
                        "offline_replicas": [],
                    }
                ],
                "topic_authorized_operations": 264,
                "authorized_operations": ["READ", "DESCRIBE"],
            }
        ],
        "next_cursor": {"topic_name": "t", "partition_index": 1},
    }
    assert (send.target, [topic.name for topic in send.request.topics]) == (AnyNode(), ["t", "u"])
    assert (send.request.response_partition_limit, send.request.cursor) == (1, None)
    _, (send,) = run(describe_topic_partitions(["t", "u"], backoff=BACKOFF), page(None))
    assert send.request.response_partition_limit == 2000, "as Java's DescribeTopicsOptions"
    last, (send,) = run(describe_topic_partitions(["t", "u"], cursor=found["next_cursor"], backoff=BACKOFF), page(None))
    assert (send.request.cursor.topic_name, send.request.cursor.partition_index) == ("t", 1)
    assert last["next_cursor"] is None


def test_pages_of_all_topics_name_none() -> None:
    for everything in (None, []):
        _, (send,) = run(describe_topic_partitions(everything, backoff=BACKOFF), page(None))
        assert send.request.topics == []
    with pytest.raises(IllegalArgumentError, match="not one text"):
        run(describe_topic_partitions("t", backoff=BACKOFF))
    wrong: Any = ("t", 1)
    with pytest.raises(IllegalArgumentError, match="next_cursor of the page before"):
        run(describe_topic_partitions(["t"], cursor=wrong, backoff=BACKOFF))
