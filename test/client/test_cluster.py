"""What the client knows of the cluster, and how old that may get."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from kafka.client.cluster import ClusterMetadata
from kafka.errors import (
    Cancelled,
    InvalidTopicMetadataError,
    KafkaConnectionError,
    MetadataEmptyBrokerList,
    UnknownTopicOrPartitionError,
)
from kafka.net.clock import ManualClock
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.structs import BrokerMetadata, TopicPartition
from kafka.wire.types import ZERO_UUID

ID = uuid.UUID(int=7)


def partition(number: int, leader: int = 1, epoch: int = -1, **more: Any) -> MetadataResponse.MetadataResponsePartition:
    return MetadataResponse.MetadataResponsePartition(
        error_code=0,
        partition_index=number,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=more.pop("replicas", [1, 2]),
        isr_nodes=[1],
        **more,
    )


def topic(name: str, *partitions: Any, topic_id: uuid.UUID = ZERO_UUID, **more: Any) -> Any:
    return MetadataResponse.MetadataResponseTopic(
        error_code=more.pop("error", 0), name=name, topic_id=topic_id, partitions=list(partitions), **more
    )


def response(*topics: Any, brokers: tuple[int, ...] = (1, 2), **more: Any) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=node, host=f"host{node}", port=9092) for node in brokers
        ],
        topics=list(topics),
        **more,
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> ClusterMetadata:
    return ClusterMetadata(now=clock.monotonic)


def refresh(cluster: ClusterMetadata, answer: MetadataResponse) -> None:
    cluster.metadata_request()
    cluster.update_metadata(answer)


JOBS0, JOBS1 = TopicPartition("jobs", 0), TopicPartition("jobs", 1)


def test_brokers_topics_and_leaders_are_those_of_the_answer(cluster: ClusterMetadata) -> None:
    refresh(
        cluster,
        response(
            topic("jobs", partition(0, 1, 5), partition(1, -1), topic_id=ID),
            topic("__offsets", partition(0), is_internal=True),
            controller_id=2,
            cluster_id="c",
        ),
    )
    assert cluster.brokers() == {BrokerMetadata(1, "host1", 9092), BrokerMetadata(2, "host2", 9092)}
    assert cluster.broker_metadata(2) == BrokerMetadata(2, "host2", 9092)
    assert cluster.broker_metadata(3) is None and cluster.broker_metadata("bootstrap") is None
    assert cluster.controller == BrokerMetadata(2, "host2", 9092) and cluster.cluster_id == "c"
    assert cluster.topics() == {"jobs"} and cluster.topics(exclude_internal_topics=False) == {"jobs", "__offsets"}
    assert cluster.partitions_for_topic("jobs") == {0, 1} and cluster.partitions_for_topic("x") is None
    assert cluster.available_partitions_for_topic("jobs") == {0}
    assert cluster.leader_for_partition(JOBS0) == 1 and cluster.leader_for_partition(JOBS1) == -1
    assert cluster.leader_for_partition(TopicPartition("jobs", 9)) is None
    assert cluster.leader_epoch_for_partition(JOBS0) == 5
    assert cluster.partitions_for_broker(1) == {JOBS0, TopicPartition("__offsets", 0)}
    assert cluster.topic_id("jobs") == ID and cluster.topic_name_for_id(ID) == "jobs"
    assert cluster.topic_id("__offsets") is None


def test_a_broker_that_lags_behind_does_not_bring_back_a_former_leader(cluster: ClusterMetadata) -> None:
    refresh(cluster, response(topic("jobs", partition(0, 2, 6), topic_id=ID)))
    refresh(cluster, response(topic("jobs", partition(0, 1, 5), topic_id=ID)))
    assert cluster.leader_for_partition(JOBS0) == 2


def test_a_topic_made_anew_begins_with_its_own_epochs(cluster: ClusterMetadata) -> None:
    refresh(cluster, response(topic("jobs", partition(0, 2, 6), topic_id=ID)))
    other = uuid.UUID(int=8)
    refresh(cluster, response(topic("jobs", partition(0, 1, 0), topic_id=other)))
    assert cluster.leader_for_partition(JOBS0) == 1
    assert cluster.topic_name_for_id(ID) is None and cluster.topic_name_for_id(other) == "jobs"


def test_a_leader_hint_counts_when_its_epoch_is_newer(cluster: ClusterMetadata) -> None:
    refresh(cluster, response(topic("jobs", partition(0, 1, 5))))
    assert not cluster.update_partition_leader(JOBS0, 2, 5)
    assert cluster.update_partition_leader(JOBS0, 2, 6)
    assert cluster.leader_for_partition(JOBS0) == 2
    assert not cluster.update_partition_leader(JOBS1, 2, 6)


def test_offline_replicas_are_no_replica_nodes(cluster: ClusterMetadata) -> None:
    refresh(cluster, response(topic("jobs", partition(0, offline_replicas=[2]))))
    assert cluster.is_replica_node(JOBS0, 1) and not cluster.is_replica_node(JOBS0, 2)


def test_a_topic_with_an_error_is_not_known_and_its_error_is(cluster: ClusterMetadata) -> None:
    refresh(cluster, response(topic("jobs", error=3)))
    assert cluster.partitions_for_topic("jobs") is None
    assert cluster.topic_error("jobs") == UnknownTopicOrPartitionError("jobs")
    assert cluster.topic_error("other") is None


@pytest.mark.parametrize(
    ("numbers", "what"),
    [
        ([2**31 - 1], r"1 partitions of topic jobs, among them partition 2147483647: they have to be 0 to 0"),
        ([0, 2], "partition 2: they have to be 0 to 1"),
        ([-1, 0], "partition -1"),
        ([0, 0], "a partition twice"),
    ],
)
def test_a_topic_whose_partitions_are_not_0_to_n_has_an_error_and_other_topics_go_on(
    cluster: ClusterMetadata, caplog: pytest.LogCaptureFixture, numbers: list[int], what: str
) -> None:
    refresh(cluster, response(topic("jobs", partition(0), partition(1))))
    for _ in range(2):
        refresh(cluster, response(topic("jobs", *map(partition, numbers)), topic("other", partition(1), partition(0))))
    error = cluster.topic_error("jobs")
    assert isinstance(error, InvalidTopicMetadataError) and error.retriable and error.invalid_metadata
    assert re.search(what, str(error))
    assert cluster.partitions_for_topic("jobs") is None and cluster.partitions_for_topic("other") == {0, 1}
    assert caplog.text.count("the response to Metadata has") == 1, "not with each refresh"
    refresh(cluster, response(topic("jobs", partition(0))))
    assert cluster.topic_error("jobs") is None and cluster.partitions_for_topic("jobs") == {0}


def test_a_refresh_is_due_at_first_and_again_after_the_age_limit(cluster: ClusterMetadata, clock: ManualClock) -> None:
    assert cluster.ttl() == 0
    refresh(cluster, response())
    assert cluster.ttl() == 300_000
    clock.advance(300)
    assert cluster.ttl() == 0


def test_a_requested_refresh_waits_for_the_back_off(cluster: ClusterMetadata, clock: ManualClock) -> None:
    refresh(cluster, response())
    future = cluster.request_update()
    assert cluster.ttl() == 100 and not future.is_done
    clock.advance(0.1)
    assert cluster.ttl() == 0
    refresh(cluster, response())
    assert future.value is cluster


def test_failures_double_the_back_off_and_a_success_ends_it(cluster: ClusterMetadata, clock: ManualClock) -> None:
    waits = []
    for _ in range(6):
        future = cluster.request_update()
        cluster.metadata_request()
        cluster.failed_update(KafkaConnectionError("x"))
        assert isinstance(future.exception, KafkaConnectionError)
        waits.append(cluster.ttl())
        clock.advance(waits[-1] / 1000)
    assert waits == pytest.approx([100, 200, 400, 800, 1000, 1000])
    refresh(cluster, response())
    cluster.request_update()
    assert cluster.ttl() == pytest.approx(100)


def test_an_answer_without_brokers_is_a_failure(cluster: ClusterMetadata) -> None:
    future = cluster.request_update()
    refresh(cluster, response(brokers=()))
    assert isinstance(future.exception, MetadataEmptyBrokerList) and cluster.need_update


def test_a_request_for_an_update_joins_the_one_under_way(cluster: ClusterMetadata) -> None:
    cluster.metadata_request()
    future = cluster.request_update()
    cluster.update_metadata(response())
    assert future.succeeded() and not cluster.need_update


def test_a_new_topic_needs_another_refresh_than_the_one_under_way_and_no_waiting(cluster: ClusterMetadata) -> None:
    cluster.need_all_topics = False
    cluster.metadata_request()
    future = cluster.add_topic("jobs")
    cluster.update_metadata(response())
    assert not future.is_done
    cluster.refresh_backoff()
    refresh(cluster, response(topic("jobs", partition(0))))
    assert future.succeeded()
    assert cluster.add_topic("jobs").is_done  # no news


def test_the_request_has_the_fields_of_each_version(cluster: ClusterMetadata) -> None:
    def topics(version: int) -> list[str | None] | None:
        request = cluster.metadata_request().build(version)
        assert isinstance(request, MetadataRequest)
        return None if request.topics is None else [entry.name for entry in request.topics]

    assert topics(1) is None and topics(0) == []  # all
    cluster.set_topics(["b", "a"])
    assert topics(0) == topics(9) == ["a", "b"]
    cluster.set_topics([])
    assert topics(1) is None
    cluster.need_all_topics = False
    assert topics(1) == []


def test_automatic_creation_is_asked_for_where_the_version_has_it(clock: ManualClock) -> None:
    cluster = ClusterMetadata(now=clock.monotonic, allow_auto_create_topics=False)
    request = cluster.metadata_request()
    assert request.build(4).allow_auto_topic_creation is False  # type: ignore[attr-defined]
    assert request.build(3).allow_auto_topic_creation is True  # type: ignore[attr-defined]


def asked(cluster: ClusterMetadata, version: int) -> tuple[list[str | None] | None, bool]:
    """The topics that the next request names (None: all), and whether it may create them."""
    request = cluster.metadata_request().build(version)
    assert isinstance(request, MetadataRequest)
    names = None if request.topics is None else [entry.name for entry in request.topics]
    return names, request.allow_auto_topic_creation


def test_what_must_not_be_created_is_never_asked_for_by_name_where_that_creates(clock: ManualClock) -> None:
    cluster = ClusterMetadata(now=clock.monotonic, allow_auto_create_topics=False)
    cluster.set_topics(["a"])
    assert asked(cluster, 4) == (["a"], False)
    assert asked(cluster, 3)[0] is None  # all topics: a version that cannot forbid the creation
    assert asked(cluster, 0)[0] == []  # the same in its words


def test_topics_of_a_pattern_are_not_created_by_asking_for_them(cluster: ClusterMetadata) -> None:
    found = {"found"}
    cluster.exclude_from_creation(found.__contains__)
    cluster.set_topics(["found"])
    assert asked(cluster, 9) == (["found"], False) and asked(cluster, 3)[0] is None
    refresh(cluster, response(topic("found", error=3)))
    assert cluster.missing_topics() == []
    found.clear()
    assert asked(cluster, 9) == (["found"], True)


def test_a_topic_requested_by_name_beside_a_patterns_is_created_by_its_own_request(cluster: ClusterMetadata) -> None:
    found = {"found", "gone"}
    cluster.exclude_from_creation(found.__contains__)
    cluster.set_topics(["found", "gone", "mine"])
    refresh(cluster, response(topic("found", partition(0)), topic("gone", error=3), topic("mine", error=3)))
    assert cluster.missing_topics() == ["mine"]
    request = cluster.creating_request(["mine"]).build(9)
    assert isinstance(request, MetadataRequest) and request.topics is not None
    assert request.allow_auto_topic_creation and [entry.name for entry in request.topics] == ["mine"]
    cluster.created(response(topic("mine", error=3)))  # the broker creates none
    assert not cluster.need_update
    cluster.created(response(topic("mine", error=5)))
    assert cluster.need_update
    refresh(cluster, response(topic("found", partition(0)), topic("mine", partition(0))))
    assert cluster.missing_topics() == []


def test_listeners_hear_of_each_update_until_they_are_removed(cluster: ClusterMetadata) -> None:
    heard: list[ClusterMetadata] = []

    def broken(_: ClusterMetadata) -> None:
        raise ValueError("mine")

    cluster.add_listener(broken)
    cluster.add_listener(heard.append)
    refresh(cluster, response())
    cluster.remove_listener(heard.append)
    refresh(cluster, response())
    assert heard == [cluster]
    with pytest.raises(KeyError):
        cluster.remove_listener(heard.append)


def test_brokers_named_by_others_are_known_until_the_next_metadata(cluster: ClusterMetadata) -> None:
    cluster.note_broker(2, "elsewhere", 1)
    assert cluster.broker_metadata(2) == BrokerMetadata(2, "elsewhere", 1)
    assert cluster.brokers() == set()
    refresh(cluster, response())
    assert cluster.broker_metadata(2) == BrokerMetadata(2, "host2", 9092)


def test_seeding_fills_an_empty_cluster_and_is_no_refresh(cluster: ClusterMetadata) -> None:
    future = cluster.request_update()
    cluster.seed(response())
    assert len(cluster.brokers()) == 2 and not future.is_done and cluster.ttl() == 0
    refresh(cluster, response(brokers=(1,)))
    cluster.seed(response())
    assert len(cluster.brokers()) == 1


def test_closing_fails_all_waiting_calls(cluster: ClusterMetadata) -> None:
    future = cluster.request_update()
    cluster.close(Cancelled("closed"))
    assert isinstance(future.exception, Cancelled)


def test_answers_without_news_double_the_back_off_until_there_are_some(
    cluster: ClusterMetadata, clock: ManualClock
) -> None:
    waits = []
    for _ in range(8):
        refresh(cluster, response(topic("gone", error=3)))
        cluster.request_update()
        waits.append(cluster.ttl())
        clock.advance(cluster.ttl() / 1000)
    assert waits == pytest.approx([100, 100, 200, 400, 800, 1000, 1000, 1000])
    refresh(cluster, response(topic("gone", partition(0))))
    cluster.request_update()
    assert cluster.ttl() == pytest.approx(100)


def test_a_request_after_a_quiet_time_does_not_pay_for_old_answers_without_news(
    cluster: ClusterMetadata, clock: ManualClock
) -> None:
    for _ in range(8):
        refresh(cluster, response(topic("t", partition(0))))
        clock.advance(300)
    refresh(cluster, response(topic("t", partition(0))))
    clock.advance(3)
    cluster.request_update()
    assert cluster.ttl() == 0
    refresh(cluster, response(topic("t", partition(0))))
    cluster.request_update()
    assert cluster.ttl() == pytest.approx(100)


def test_a_topic_added_during_a_refresh_is_asked_for_as_soon_as_that_has_ended(cluster: ClusterMetadata) -> None:
    cluster.metadata_request()
    added = cluster.add_topic("t")
    cluster.update_metadata(response())
    assert not added.is_done
    assert cluster.ttl() == 0
    cluster.metadata_request()
    cluster.failed_update(KafkaConnectionError("lost"))
    assert cluster.ttl() == pytest.approx(100)  # one attempt was free


def test_an_answer_says_nothing_of_topics_that_its_request_did_not_ask_for(cluster: ClusterMetadata) -> None:
    """Java's Metadata keeps what the subscription needs when an answer is one for other topics
    (ConsumerMetadata.retainTopic). If it were gone, the leader of a group would begin a rebalance for it."""
    cluster.need_all_topics = False
    cluster.seed(
        response(topic("jobs", partition(0, epoch=4), topic_id=ID, is_internal=True), topic("other", partition(0)))
    )
    cluster.metadata_request()
    cluster.add_topic("jobs")
    cluster.update_metadata(response())
    assert cluster.topics(exclude_internal_topics=False) == {"jobs"} and cluster.topics() == set()
    assert cluster.leader_epoch_for_partition(JOBS0) == 4
    assert cluster.topic_id("jobs") == ID and cluster.topic_name_for_id(ID) == "jobs"
    refresh(cluster, response())
    assert cluster.topics(exclude_internal_topics=False) == set()  # it was asked for, and is gone


def test_an_answer_for_all_topics_says_which_are_gone(cluster: ClusterMetadata) -> None:
    cluster.seed(response(topic("jobs", partition(0))))
    cluster.metadata_request()
    cluster.add_topic("jobs")
    cluster.update_metadata(response())
    assert cluster.topics() == set()


def test_a_request_for_an_update_waits_for_the_refresh_that_asks_for_the_new_topics(cluster: ClusterMetadata) -> None:
    cluster.need_all_topics = False
    cluster.metadata_request()
    cluster.add_topic("jobs")
    future = cluster.request_update()
    cluster.update_metadata(response())
    assert not future.is_done
    refresh(cluster, response(topic("jobs", partition(0))))
    assert future.succeeded()


def test_who_waits_for_a_refresh_finds_the_listeners_up_to_date(cluster: ClusterMetadata) -> None:
    heard: list[str] = []
    cluster.add_listener(lambda _: heard.append("listener"))
    cluster.request_update().add_callback(lambda _: heard.append("waiter"))
    refresh(cluster, response())
    assert heard == ["listener", "waiter"]
