"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords: answers as measured on Apache Kafka 4.3.0."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafka.broker.log import MetadataStore
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from test.broker.driver import HandBroker, batch, fetch_request, fetched

Topic = CreateTopicsRequest.CreatableTopic
Assignment = CreateTopicsRequest.CreatableReplicaAssignment


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: list[tuple[int, list[int]]] | None = None,
    **configs: str | None,
) -> Topic:
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[Assignment(partition_index=at, broker_ids=ids) for at, ids in assignments or []],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def create(
    hand: HandBroker, *topics: Topic, version: int = 7, validate_only: bool = False
) -> list[CreateTopicsResponse.CreatableTopicResult]:
    return hand.ask(CreateTopicsRequest(topics=list(topics), validate_only=validate_only), version).topics


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_made_in_every_version(hand: HandBroker, version: int) -> None:
    (made,) = create(hand, topic("t", 3), version=version)
    assert made.error_code == 0
    if version >= 5:
        assert (made.num_partitions, made.replication_factor, len(made.configs or [])) == (3, 1, 33)
    if version >= 7:
        assert made.topic_id == hand.broker.topic("t").topic_id
    assert hand.broker.topic("t").partitions == 3


def test_what_was_made_says_where_its_settings_come_from(hand: HandBroker) -> None:
    (made,) = create(hand, topic("t", retention_ms="5"))
    found = {row.name: (row.value, row.config_source) for row in made.configs or []}
    assert found["retention.ms"] == ("5", 1)
    assert found["cleanup.policy"] == ("delete", 5)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("there"), 36),
        (topic("a b"), 17),
        (topic(""), 17),
        (topic("."), 17),
        (topic(".."), 17),
        (topic("x" * 250), 17),
        (topic("one_1"), 17),
        (topic("t", 0), 37),
        (topic("t", -5), 37),
        (topic("t", 1, 2), 38),
        (topic("t", 1, 0), 38),
        (topic("t", 20_000), 44),
        (topic("t", nope="1"), 40),
        (topic("t", retention_ms="x"), 40),
        (topic("t", retention_ms=None), 40),
        (topic("t", -1, -1, [(1, [1])]), 39),
        (topic("t", -1, -1, [(0, [7])]), 39),
        (topic("t", -1, -1, [(0, [])]), 39),
        (topic("t", -1, -1, [(0, [1, 1])]), 39),
        (topic("t", 1, 1, [(0, [1])]), 42),
        (topic("t", 1, -1, [(0, [1])]), 42),
    ],
)
def test_what_cannot_be_made_is_refused(hand: HandBroker, wanted: Topic, code: int) -> None:
    create(hand, topic("there"), topic("one.1"))
    (answer,) = create(hand, wanted)
    assert answer.error_code == code
    assert answer.error_message
    assert len(hand.broker.metadata) == 2


def test_defaults_are_the_brokers(hand: HandBroker) -> None:
    (made,) = create(hand, topic("t", -1, -1))
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 1, 1)


def test_an_assignment_gives_the_number_of_partitions(hand: HandBroker) -> None:
    (made,) = create(hand, topic("t", -1, -1, [(0, [1]), (1, [1])]))
    assert (made.error_code, made.num_partitions) == (0, 2)


def test_a_name_twice_in_one_request_is_one_error_and_no_topic(hand: HandBroker) -> None:
    assert [row.error_code for row in create(hand, topic("t"), topic("t"))] == [42]
    assert len(hand.broker.metadata) == 0


def test_validation_alone_makes_nothing(hand: HandBroker) -> None:
    assert [row.error_code for row in create(hand, topic("t"), topic("a b"), validate_only=True)] == [0, 17]
    assert len(hand.broker.metadata) == 0


# -- delete ----------------------------------------------------------------------------------------------------------


def delete(hand: HandBroker, *wanted: str | UUID | None) -> list[int]:
    states = [
        DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=one)
        if isinstance(one, UUID)
        else DeleteTopicsRequest.DeleteTopicState(name=one)
        for one in wanted
    ]
    return [row.error_code for row in hand.ask(DeleteTopicsRequest(topics=states, timeout_ms=0)).responses]


def test_topics_are_deleted_by_name_and_by_id(hand: HandBroker) -> None:
    hand.create_topic("a")
    other = hand.create_topic("b")
    assert delete(hand, "a", other) == [0, 0]
    assert hand.ask(MetadataRequest(topics=None)).topics == []


def test_what_is_not_there_cannot_be_deleted(hand: HandBroker) -> None:
    assert delete(hand, "nope", UUID(int=6), None) == [3, 100, 42]
    assert delete(hand, "twice", "twice") == [42]


@pytest.mark.parametrize("version", range(1, 6))
def test_old_versions_delete_by_name(hand: HandBroker, version: int) -> None:
    hand.create_topic("a")
    answer = hand.ask(DeleteTopicsRequest(topic_names=["a", "nope"], timeout_ms=0), version)
    assert [(row.name, row.error_code) for row in answer.responses] == [("a", 0), ("nope", 3)]


def test_a_topic_of_the_same_name_begins_anew(hand: HandBroker) -> None:
    hand.create_topic("t")
    hand.produce("t", batch())
    delete(hand, "t")
    hand.create_topic("t")
    assert hand.produce("t", batch()).base_offset == 0


# -- partitions ------------------------------------------------------------------------------------------------------


def grow(
    hand: HandBroker, name: str, count: int, brokers: list[list[int]] | None = None, validate_only: bool = False
) -> int:
    assignments = None
    if brokers is not None:
        assignments = [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=ids) for ids in brokers]
    topic_request = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    request = CreatePartitionsRequest(topics=[topic_request], timeout_ms=0, validate_only=validate_only)
    return hand.ask(request).results[0].error_code


def test_a_topic_grows_and_keeps_its_records(hand: HandBroker) -> None:
    hand.create_topic("t", 2)
    hand.produce("t", batch(b"a"))
    assert grow(hand, "t", 4) == 0
    assert hand.produce("t", batch(b"b"), partition=3).error_code == 0
    hand.restart()
    assert hand.broker.topic("t").partitions == 4


@pytest.mark.parametrize(
    ("count", "brokers", "code"),
    [(2, None, 37), (1, None, 37), (0, None, 37), (3, [[1], [1]], 39), (3, [[7]], 39), (3, [[1]], 0)],
)
def test_growth_is_checked(hand: HandBroker, count: int, brokers: list[list[int]] | None, code: int) -> None:
    hand.create_topic("t", 2)
    assert grow(hand, "t", count, brokers, validate_only=True) == code
    assert hand.broker.topic("t").partitions == 2


def test_an_unknown_topic_does_not_grow(hand: HandBroker) -> None:
    assert grow(hand, "nope", 3) == 3


# -- records ---------------------------------------------------------------------------------------------------------


def cut(hand: HandBroker, offset: int, name: str = "t", partition: int = 0) -> tuple[int, int]:
    partition_request = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[partition_request])], timeout_ms=0
    )
    answer = hand.ask(request).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


def test_records_are_deleted_from_the_front_and_stay_so(hand: HandBroker) -> None:
    hand.create_topic("t")
    for _ in range(5):
        hand.produce("t", batch(b"a", b"b"))
    assert cut(hand, 5) == (0, 5)
    assert cut(hand, 2) == (0, 5), "that is deleted already"
    assert fetched(hand.ask(fetch_request("t", (4,)), 12))[0].error_code == 1
    hand.restart()
    assert cut(hand, 0) == (0, 5)
    assert cut(hand, -1) == (0, 10)


@pytest.mark.parametrize(
    ("offset", "name", "partition", "code"), [(99, "t", 0, 1), (-5, "t", 0, 1), (0, "t", 9, 3), (0, "nope", 0, 3)]
)
def test_records_that_are_not_there_cannot_be_deleted(
    hand: HandBroker, offset: int, name: str, partition: int, code: int
) -> None:
    hand.create_topic("t")
    assert cut(hand, offset, name, partition) == (code, -1)


def test_a_compacted_topic_keeps_its_records(hand: HandBroker) -> None:
    hand.create_topic("t", cleanup_policy="compact")
    assert cut(hand, 0)[0] == 44


@pytest.mark.parametrize(
    ("there", "wanted", "code"),
    [
        ("a.b", "a_b", 17),
        ("a_b", "a.b", 17),
        ("a.b_c", "a_b.c", 17),
        ("a.b", "a.b", 36),
        ("ab", "a.b", 0),
        ("a.b", "a-b", 0),
    ],
)
def test_names_that_differ_in_dots_and_underscores_alone_collide_until_one_is_gone(
    hand: HandBroker, there: str, wanted: str, code: int
) -> None:
    hand.create_topic(there)
    assert [made.error_code for made in create(hand, topic(wanted))] == [code]
    if code == 17:
        hand.restart()
        assert [made.error_code for made in create(hand, topic(wanted))] == [code]
        state = DeleteTopicsRequest.DeleteTopicState(name=there)
        hand.ask(DeleteTopicsRequest(topics=[state], timeout_ms=0))
        assert [made.error_code for made in create(hand, topic(wanted))] == [0]


def test_nothing_about_one_topic_walks_all_of_them(hand: HandBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    hand.create_topic("t.0")

    def walked(self: MetadataStore) -> None:
        raise AssertionError("all topics were walked")

    monkeypatch.setattr(MetadataStore, "__iter__", walked)
    hand.create_topic("t.1")
    hand.produce("t.1", batch())
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t.1")])
    assert hand.ask(asked).topics[0].error_code == 0
    topic_request = CreatePartitionsRequest.CreatePartitionsTopic(name="t.1", count=2, assignments=None)
    grown = hand.ask(CreatePartitionsRequest(topics=[topic_request], timeout_ms=0, validate_only=False))
    assert grown.results[0].error_code == 0
    state = DeleteTopicsRequest.DeleteTopicState(name="t.1")
    assert hand.ask(DeleteTopicsRequest(topics=[state], timeout_ms=0)).responses[0].error_code == 0
