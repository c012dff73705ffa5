"""DescribeConfigs and IncrementalAlterConfigs: answers as measured on Apache Kafka 4.3.0."""

from __future__ import annotations

import pytest

from kafka.protocol.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from test.broker.driver import HandBroker

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def describe(
    hand: HandBroker, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True
) -> DescribeConfigsResponse.DescribeConfigsResult:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
    return hand.ask(request, version).results[0]


def value(hand: HandBroker, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (row,) = describe(hand, kind, name, key).configs
    return row.value, row.config_source


def alter(
    hand: HandBroker, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[int, str | None]:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=text)
            for key, operation, text in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = hand.ask(request).responses[0]
    return answer.error_code, answer.error_message


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_has_all_settings_of_kafka(hand: HandBroker, version: int) -> None:
    hand.create_topic("t", retention_ms="5")
    answer = describe(hand, TOPIC, "t", version=version)
    assert (answer.error_code, len(answer.configs)) == (0, 33)
    found = {row.name: row for row in answer.configs}
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("5", 1)
    assert [(row.name, row.value, row.source) for row in found["segment.bytes"].synonyms] == [
        ("log.segment.bytes", "1073741824", 5)
    ]
    assert found["flush.ms"].synonyms == []


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", 3),
        (TOPIC, "bad name", 17),
        (BROKER, "99", 42),
        (BROKER, "x", 42),
        (GROUP, "", 42),
        (77, "x", 42),
    ],
)
def test_what_is_not_there_cannot_be_described(hand: HandBroker, kind: int, name: str, code: int) -> None:
    answer = describe(hand, kind, name)
    assert (answer.error_code, answer.configs) == (code, [])


def test_unknown_keys_are_left_out(hand: HandBroker) -> None:
    hand.create_topic("t")
    assert [row.name for row in describe(hand, TOPIC, "t", "retention.ms", "nope").configs] == ["retention.ms"]


def test_a_topic_setting_is_set_deleted_and_durable(hand: HandBroker) -> None:
    hand.create_topic("t")
    assert alter(hand, TOPIC, "t", ("retention.ms", SET, "7")) == (0, None)
    hand.restart()
    assert value(hand, TOPIC, "t", "retention.ms") == ("7", 1)
    assert alter(hand, TOPIC, "t", ("retention.ms", DELETE, None)) == (0, None)
    assert value(hand, TOPIC, "t", "retention.ms") == ("604800000", 5)


def test_lists_are_appended_to_and_subtracted_from(hand: HandBroker) -> None:
    hand.create_topic("t")
    alter(hand, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert value(hand, TOPIC, "t", "cleanup.policy") == ("delete,compact", 1)
    alter(hand, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    assert value(hand, TOPIC, "t", "cleanup.policy") == ("compact", 1)


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "t", ("retention.ms", SET, "abc"), 40),
        (TOPIC, "t", ("nope", SET, "1"), 40),
        (TOPIC, "t", ("nope", DELETE, None), 0),
        (TOPIC, "t", ("retention.ms", SET, None), 42),
        (TOPIC, "t", ("retention.ms", APPEND, "5"), 40),
        (TOPIC, "t", ("retention.ms", 9, "5"), -1),
        (TOPIC, "nope", ("retention.ms", SET, "5"), 3),
        (TOPIC, "bad name", ("retention.ms", SET, "5"), 17),
        (BROKER, "1", ("nope", SET, "5"), 0),
        (BROKER, "1", ("num.partitions", SET, "5"), 42),
        (BROKER, "1", ("log.retention.ms", SET, "abc"), 42),
        (BROKER, "9", ("log.retention.ms", SET, "5"), 42),
        (BROKER, "x", ("log.retention.ms", SET, "5"), 42),
        (BROKER, "", ("log.retention.ms", SET, "5"), 0),
        (GROUP, "g", ("share.record.lock.duration.ms", SET, "5000"), 40),
        (GROUP, "g", ("share.record.lock.duration.ms", SET, "x"), 40),
        (GROUP, "g", ("share.delivery.count.limit", SET, "11"), 40),
        (GROUP, "g", ("share.auto.offset.reset", SET, "early"), 40),
        (GROUP, "g", ("share.auto.offset.reset", SET, "by_duration:PT1H"), 0),
        (GROUP, "g", ("nope", SET, "x"), 40),
        (GROUP, "", ("share.auto.offset.reset", SET, "earliest"), 42),
        (77, "x", ("share.auto.offset.reset", SET, "earliest"), 42),
    ],
)
def test_changes_are_checked(
    hand: HandBroker, kind: int, name: str, change: tuple[str, int, str | None], code: int
) -> None:
    hand.create_topic("t")
    assert alter(hand, kind, name, change, validate_only=True)[0] == code
    assert alter(hand, kind, name, change)[0] == code


def test_a_key_twice_is_an_invalid_request(hand: HandBroker) -> None:
    hand.create_topic("t")
    assert alter(hand, TOPIC, "t", ("retention.ms", SET, "5"), ("retention.ms", DELETE, None))[0] == 42


def test_validation_alone_changes_nothing(hand: HandBroker) -> None:
    hand.create_topic("t")
    assert alter(hand, TOPIC, "t", ("retention.ms", SET, "5"), validate_only=True) == (0, None)
    assert value(hand, TOPIC, "t", "retention.ms") == ("604800000", 5)


def test_a_brokers_setting_is_the_default_of_all_topics(hand: HandBroker) -> None:
    hand.create_topic("t")
    alter(hand, BROKER, "", ("message.max.bytes", SET, "1000"))
    assert value(hand, TOPIC, "t", "max.message.bytes") == ("1000", 3)
    alter(hand, BROKER, "1", ("message.max.bytes", SET, "2000"))
    assert value(hand, TOPIC, "t", "max.message.bytes") == ("2000", 2)
    hand.restart()
    assert value(hand, TOPIC, "t", "max.message.bytes") == ("2000", 2)
    assert value(hand, BROKER, "1", "message.max.bytes") == ("2000", 2)
    assert [row.name for row in describe(hand, BROKER, "").configs] == ["min.insync.replicas", "message.max.bytes"]


def test_min_insync_replicas_is_always_set_for_all_brokers_and_never_for_one(hand: HandBroker) -> None:
    hand.create_topic("t")
    assert value(hand, TOPIC, "t", "min.insync.replicas") == ("1", 3)
    hand.restart()
    assert value(hand, TOPIC, "t", "min.insync.replicas") == ("1", 3)
    for name, operation in (("", DELETE), ("1", SET), ("1", DELETE)):
        assert alter(hand, BROKER, name, ("min.insync.replicas", operation, "1"))[0] == 40
    assert alter(hand, BROKER, "", ("min.insync.replicas", SET, "2"))[0] == 0


def test_a_groups_settings_show_their_default_as_synonym(hand: HandBroker) -> None:
    alter(hand, GROUP, "g", ("share.record.lock.duration.ms", SET, "20000"))
    (row,) = describe(hand, GROUP, "g", "share.record.lock.duration.ms").configs
    assert (row.value, row.config_source, row.config_type) == ("20000", 8, 3)
    assert [(one.name, one.value, one.source) for one in row.synonyms] == [
        ("share.record.lock.duration.ms", "20000", 8),
        ("group.share.record.lock.duration.ms", "30000", 5),
    ]
    assert value(hand, GROUP, "other", "share.auto.offset.reset") == ("latest", 5)


def test_a_resource_twice_is_an_invalid_request_and_nothing_of_it_is_changed(hand: HandBroker) -> None:
    hand.create_topic("t")
    one = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=SET, value="7")],
    )
    answer = hand.ask(IncrementalAlterConfigsRequest(resources=[one, one], validate_only=False))
    text = "Each resource must appear at most once."
    assert [(row.error_code, row.error_message) for row in answer.responses] == [(42, text)] * 2
    assert value(hand, TOPIC, "t", "retention.ms")[0] == "604800000"


def test_topics_that_have_set_nothing_share_their_rows_in_an_answer(hand: HandBroker) -> None:
    """300 topics are 10,000 rows: made for each, they keep the loop for longer than all else."""
    for name in ("a", "b", "c"):
        hand.create_topic(name, **({"retention_ms": "7"} if name == "c" else {}))
    kind = DescribeConfigsRequest
    resources = [
        kind.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in "abc"
    ]
    reply = hand.send(kind(resources=resources, include_synonyms=True))
    assert isinstance(reply.response, DescribeConfigsResponse)
    first, second, third = ({row.name: row for row in one.configs} for one in reply.response.results)
    assert all(first[key] is second[key] for key in first)
    assert [key for key in first if first[key] is not third[key]] == ["retention.ms"]
    assert third["retention.ms"].value == "7"
