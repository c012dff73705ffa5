"""Metadata, DescribeCluster, FindCoordinator: where everything is."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from kafka.broker.handlers.metadata import MOST_MADE
from kafka.broker.responses import ConnectionContext
from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.metadata import DescribeClusterRequest, MetadataRequest, MetadataResponse
from test.broker.driver import HandBroker


def ask(hand: HandBroker, *names: str, version: int = 12, auto: bool = False) -> MetadataResponse:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return hand.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=auto or version < 4), version)


@pytest.mark.parametrize("version", range(14))
def test_a_topic_has_its_partitions_all_led_by_this_broker(hand: HandBroker, version: int) -> None:
    topic_id = hand.create_topic("t", 3)
    hand.broker.advertised = ("h", 9)
    answer = ask(hand, "t", version=version)
    assert [(row.node_id, row.host, row.port) for row in answer.brokers] == [(1, "h", 9)]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (0, "t")
    assert [(row.partition_index, row.leader_id, row.isr_nodes) for row in topic.partitions] == [
        (at, 1, [1]) for at in range(3)
    ]
    if version >= 10:
        assert topic.topic_id == topic_id
    if version >= 2:
        assert answer.cluster_id == hand.broker.ids.cluster_id


def test_none_asks_for_all_and_an_empty_list_for_none(hand: HandBroker) -> None:
    hand.create_topic("a")
    hand.create_topic("b")
    assert {topic.name for topic in hand.ask(MetadataRequest(topics=None)).topics} == {"a", "b"}
    assert hand.ask(MetadataRequest(topics=[])).topics == []
    assert len(hand.ask(MetadataRequest(topics=[]), 0).topics) == 2


def test_a_topic_asked_for_twice_is_answered_once(hand: HandBroker) -> None:
    hand.create_topic("t")
    assert len(ask(hand, "t", "t").topics) == 1


def test_an_unknown_topic_is_not_made_unless_the_request_says_so(hand: HandBroker) -> None:
    for _ in range(2):
        assert [topic.error_code for topic in ask(hand, "t").topics] == [3]


def test_auto_creation_answers_3_first_and_then_has_the_brokers_number_of_partitions(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path / "data", {"num.partitions": "5"})
    assert [topic.error_code for topic in ask(hand, "t", auto=True).topics] == [3]
    (topic,) = ask(hand, "t").topics
    assert (topic.error_code, len(topic.partitions)) == (0, 5)
    hand.broker.close()


def test_auto_creation_can_be_forbidden(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path / "data", {"auto.create.topics.enable": "false"})
    for _ in range(2):
        assert [topic.error_code for topic in ask(hand, "t", auto=True).topics] == [3]
    hand.broker.close()


@pytest.mark.parametrize("name", ["", "a b", ".", "x" * 250])
def test_a_name_that_cannot_be_is_invalid(hand: HandBroker, name: str) -> None:
    assert [topic.error_code for topic in ask(hand, name, auto=True).topics] == [17]


def test_topics_are_found_by_id_and_unknown_ids_come_first(hand: HandBroker) -> None:
    topic_id = hand.create_topic("t")
    wanted = [MetadataRequest.MetadataRequestTopic(name=None, topic_id=one) for one in (topic_id, UUID(int=5))]
    missing, found = hand.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12).topics
    assert (found.error_code, found.name) == (0, "t")
    assert (missing.error_code, missing.name, missing.topic_id) == (100, None, UUID(int=5))


def test_who_asks_may_do_everything(hand: HandBroker) -> None:
    hand.create_topic("t")
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name="t")], include_topic_authorized_operations=True
    )
    assert hand.ask(request).topics[0].topic_authorized_operations == 3576
    cluster = hand.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert cluster.cluster_authorized_operations == 8096


def test_a_broker_on_all_addresses_returns_each_client_the_one_that_it_connected_to(hand: HandBroker) -> None:
    hand.broker.advertised = (None, 9)
    connection = ConnectionContext("10.0.0.2", 5, local_host="10.0.0.1")
    assert hand.ask(MetadataRequest(topics=[]), connection=connection).brokers[0].host == "10.0.0.1"


@pytest.mark.parametrize(("kind", "code"), [(1, 0), (2, 114), (3, 115)])
def test_the_cluster_has_brokers_and_no_other_endpoints(hand: HandBroker, kind: int, code: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=kind)
    answer = hand.ask(request, 2)
    assert answer.error_code == code
    assert len(answer.brokers) == (0 if code else 1)


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1])
def test_this_broker_coordinates_every_group_and_transaction(hand: HandBroker, version: int, key_type: int) -> None:
    if key_type and not version:
        return
    if version < 4:
        old = hand.ask(FindCoordinatorRequest(key="g", key_type=key_type), version)
        assert (old.error_code, old.node_id) == (0, 1)
    else:
        answer = hand.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=key_type), version)
        assert [(row.key, row.error_code, row.node_id) for row in answer.coordinators] == [("g", 0, 1), ("h", 0, 1)]


@pytest.mark.parametrize(
    ("key", "key_type", "version", "code"),
    [
        ("x", 9, 6, 42),
        ("g:AAAAAAAAAAAAAAAAAAAAAA:0", 2, 5, 42),
        ("g:AAAAAAAAAAAAAAAAAAAAAA:0", 2, 6, 0),
        ("bad", 2, 6, 42),
        ("g:AAAAAAAAAAAAAAAAAAAAAA:x", 2, 6, 42),
    ],
)
def test_coordinators_of_other_kinds(hand: HandBroker, key: str, key_type: int, version: int, code: int) -> None:
    answer = hand.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), version)
    assert answer.coordinators[0].error_code == code


@pytest.mark.parametrize(("version", "top", "code"), [(10, 0, 42), (11, 0, 42), (12, 0, -1), (13, -1, -1)])
def test_a_topic_without_name_and_id_spoils_the_whole_request(
    hand: HandBroker, version: int, top: int, code: int
) -> None:
    hand.create_topic("t")
    unnamed = MetadataRequest.MetadataRequestTopic(name=None)
    named = MetadataRequest.MetadataRequestTopic(name="t")
    answer = hand.ask(MetadataRequest(topics=[unnamed, named]), version)
    assert (answer.error_code, [topic.error_code for topic in answer.topics]) == (top, [code, code])


def test_one_request_makes_some_of_the_topics_that_it_names_and_the_next_one_the_others(hand: HandBroker) -> None:
    names = [f"t{number}" for number in range(MOST_MADE + 1)]
    ask(hand, *names, auto=True)
    assert len(hand.broker.metadata) == MOST_MADE
    ask(hand, *names, auto=True)
    assert {topic.error_code for topic in ask(hand, *names).topics} == {0}
