"""KafkaConsumer in groups of the consumer group protocol (KIP-848, ``group_protocol="consumer"``), over either broker.

Groups are set to heartbeats of half a second, so that a rebalance takes about one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kafka.admin import KafkaAdminClient
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.consumer.listener import SubscriptionPattern
from kafka.errors import (
    CommitFailedError,
    InvalidRegularExpressionError,
    KafkaConfigurationError,
    KafkaError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from kafka.producer import KafkaProducer
from kafka.protocol.configs import IncrementalAlterConfigsRequest
from kafka.protocol.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    LeaveGroupRequest,
)
from kafka.protocol.topics import CreatePartitionsRequest
from kafka.structs import OffsetAndMetadata, TopicPartition
from test.broker.raw_client import RawClient
from test.conformance.readiness import wait_for_coordinator
from test.conformance.reading import poll_until, take
from test.support.either_broker import every_release
from test.support.optional import needs_re2
from test.support.waiting import until

DEADLINE_S = 40.0
SESSION_MS = 6000
UNSUPPORTED_VERSION, GROUP_ID_NOT_FOUND = 35, 69
CLASSIC = {"group_protocol": "classic", "heartbeat_interval_ms": 300, "session_timeout_ms": 6000}


class Listener:
    """Notes what it is told, but for assignments of nothing: how many there are is a matter of time."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: Any) -> None:
        if partitions:
            self.heard.append(("assigned", set(partitions)))

    def on_partitions_revoked(self, partitions: Any) -> None:
        self.heard.append(("revoked", set(partitions)))

    def on_partitions_lost(self, partitions: Any) -> None:
        self.heard.append(("lost", set(partitions)))

    def all_of(self, what: str) -> set[TopicPartition]:
        return {each for kind, partitions in self.heard if kind == what for each in partitions}


def poll_for_heartbeats(consumer: KafkaConsumer, count: int = 3) -> None:
    """Until the coordinator has answered so many more: whatever it wants of the member has come."""

    def answered() -> float:
        return consumer.metrics()["consumer-coordinator-metrics"]["heartbeat-total"]

    before = answered()
    poll_until(lambda: answered() >= before + count, consumer)


def places(topic: str, *numbers: int) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in numbers}


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(int(bootstrap.rpartition(":")[2])) as client:
        yield client


@pytest.fixture
def group(raw: RawClient, unique: Callable[[str], str]) -> str:
    """A name whose coordinator is there, and whose members beat fast."""
    name = unique("group")
    wait_for_coordinator(raw, name)
    set_session(raw, name, SESSION_MS)
    return name


def set_session(raw: RawClient, group: str, session_ms: int) -> None:
    settings = {"consumer.heartbeat.interval.ms": "500", "consumer.session.timeout.ms": str(session_ms)}
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=32,
        resource_name=group,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
            for key, value in settings.items()
        ],
    )
    answer = raw.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    assert answer.responses[0].error_code == 0, answer


@pytest.fixture
def member(bootstrap: str, group: str) -> Iterator[Callable[..., KafkaConsumer]]:
    """``member(**settings)``: a consumer of the group, closed with the test."""
    with ExitStack() as stack:

        def make(**settings: Any) -> KafkaConsumer:
            given: dict[str, Any] = {
                "bootstrap_servers": bootstrap,
                "group_id": group,
                "group_protocol": "consumer",
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "retry_backoff_ms": 50,
                **settings,
            }
            consumer = KafkaConsumer(**given)
            stack.callback(consumer.close)
            return consumer

        yield make


@pytest.fixture
def send(bootstrap: str) -> Iterator[Callable[..., None]]:
    """``send(topic, partition, *values)``: delivered when it returns."""
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:

        def deliver(topic: str, partition: int, *values: bytes) -> None:
            for value in values:
                producer.send(topic, value, partition=partition)
            producer.flush(DEADLINE_S)

        yield deliver


def described(raw: RawClient, group: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
    (found,) = raw.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)).groups
    assert found.error_code == 0, found
    return found


def test_the_first_member_reads_all_and_the_next_goes_on_where_it_committed(
    member: Callable[..., KafkaConsumer],
    new_topic: Callable[..., str],
    send: Callable[..., None],
    raw: RawClient,
    group: str,
) -> None:
    topic = new_topic(partitions=2)
    send(topic, 0, b"a", b"b")
    send(topic, 1, b"c")
    first = member(client_rack="r1")
    listener = Listener()
    first.subscribe([topic], listener=listener)
    assert sorted(record.value for record in take(first, 3)) == [b"a", b"b", b"c"]
    assert listener.heard == [("assigned", places(topic, 0, 1))]
    (seen,) = described(raw, group).members
    assert (seen.rack_id, seen.subscribed_topic_names, seen.instance_id) == ("r1", [topic], None)
    first.commit()
    first.close()
    assert listener.heard[1:] == [("revoked", places(topic, 0, 1))]
    send(topic, 1, b"d")
    second = member()
    second.subscribe([topic])
    assert [record.value for record in take(second, 1)] == [b"d"]
    assert described(raw, group).members[0].member_id == second.group_metadata().member_id


def test_partitions_are_shared_out_revoked_with_their_commits_and_taken_back(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str], send: Callable[..., None], group: str
) -> None:
    topic = new_topic(partitions=4)
    for number in range(4):
        send(topic, number, b"old")
    first, second = member(enable_auto_commit=True, auto_commit_interval_ms=600_000), member()
    told, told_second = Listener(), Listener()
    first.subscribe([topic], listener=told)
    take(first, 4)
    second.subscribe([topic], listener=told_second)
    poll_until(lambda: len(first.assignment()) == 2 == len(second.assignment()), first, second)
    assert first.assignment() | second.assignment() == places(topic, 0, 1, 2, 3)
    assert told.all_of("revoked") == second.assignment() == told_second.all_of("assigned")
    moved = min(second.assignment())
    assert second.committed(moved) == 1, "by itself, before the revocation"
    send(topic, moved.partition, b"new")
    found: list[ConsumerRecord] = []
    poll_until(lambda: found, first, second, into=found)
    assert [record.value for record in found] == [b"new"]
    second.close()
    poll_until(lambda: first.assignment() == places(topic, 0, 1, 2, 3), first)


@needs_re2
def test_a_regular_expression_is_evaluated_by_the_broker(
    member: Callable[..., KafkaConsumer],
    new_topic: Callable[..., str],
    send: Callable[..., None],
    raw: RawClient,
    group: str,
) -> None:
    topic, other = new_topic(partitions=2), new_topic(partitions=1)
    send(topic, 0, b"a")
    consumer = member()
    consumer.subscribe(pattern=SubscriptionPattern(f"{topic[:-1]}[{topic[-1]}]"))
    assert [record.value for record in take(consumer, 1)] == [b"a"]
    assert consumer.assignment() == places(topic, 0, 1)
    (seen,) = described(raw, group).members
    assert (seen.subscribed_topic_names, seen.subscribed_topic_regex) == ([], f"{topic[:-1]}[{topic[-1]}]")
    consumer.unsubscribe()
    consumer.subscribe([other])
    poll_until(lambda: consumer.assignment() == places(other, 0), consumer)
    assert not described(raw, group).members[0].subscribed_topic_regex


@needs_re2
def test_a_wrong_regular_expression_is_an_error_and_another_one_works(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    consumer = member()
    consumer.subscribe(pattern=SubscriptionPattern("(" + topic))
    with pytest.raises(InvalidRegularExpressionError, match="not a valid regular expression"):
        poll_until(lambda: False, consumer)
    consumer.unsubscribe()
    consumer.subscribe(pattern=SubscriptionPattern(f"{topic}|x"))
    poll_until(lambda: consumer.assignment() == places(topic, 0), consumer)


@pytest.mark.parametrize(("assignor", "together"), [("range", True), ("uniform", False)])
def test_the_assignor_of_the_broker_can_be_chosen(
    member: Callable[..., KafkaConsumer],
    new_topic: Callable[..., str],
    raw: RawClient,
    group: str,
    assignor: str,
    together: bool,
) -> None:
    topics = [new_topic(partitions=1), new_topic(partitions=1)]
    consumers = [member(group_remote_assignor=assignor) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(topics)
    sizes = [0, 2] if together else [1, 1]
    poll_until(lambda: sorted(len(consumer.assignment()) for consumer in consumers) == sizes, *consumers)
    assert described(raw, group).assignor_name == assignor


def test_an_assignor_that_the_broker_lacks_is_an_error(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str]
) -> None:
    consumer = member(group_remote_assignor="nobody's")
    consumer.subscribe([new_topic()])
    with pytest.raises(UnsupportedAssignorError, match="uniform, range"):
        poll_until(lambda: False, consumer)


def test_a_static_member_that_comes_back_finds_its_place_and_nobody_else_notices(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str], raw: RawClient, group: str
) -> None:
    set_session(raw, group, 45_000)
    topic = new_topic(partitions=4)
    stays, leaves = member(), member(group_instance_id="i")
    told = Listener()
    stays.subscribe([topic], listener=told)
    leaves.subscribe([topic])
    poll_until(lambda: len(stays.assignment()) == 2 == len(leaves.assignment()), stays, leaves)
    had = leaves.assignment()
    told.heard.clear()
    leaves.close()
    poll_for_heartbeats(stays)
    assert len(stays.assignment()) == 2, "its place is kept for a session"
    back = member(group_instance_id="i")
    back.subscribe([topic])
    poll_until(lambda: back.assignment() == had, stays, back)
    assert told.heard == []


def test_a_second_member_with_the_same_instance_id_is_refused(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    first, second = member(group_instance_id="i"), member(group_instance_id="i")
    first.subscribe([topic])
    poll_until(lambda: len(first.assignment()) == 2, first)
    second.subscribe([topic])
    with pytest.raises(UnreleasedInstanceIdError, match="is owned by"):
        poll_until(lambda: False, second)
    poll_for_heartbeats(first)
    assert len(first.assignment()) == 2


def test_who_takes_too_long_between_polls_is_out_and_comes_back_with_the_next(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str], send: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    send(topic, 0, b"a")
    slow, other = member(max_poll_interval_ms=3000), member()
    told = Listener()
    slow.subscribe([topic], listener=told)
    take(slow, 1)
    other.subscribe([topic])
    poll_until(lambda: len(other.assignment()) == 2, other)
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        slow.commit()
    assert told.heard == [("assigned", places(topic, 0, 1))]
    poll_until(lambda: len(slow.assignment()) == 1 == len(other.assignment()), slow, other)
    assert told.all_of("lost") | told.all_of("revoked") == places(topic, 0, 1)
    assert "lost" in dict(told.heard)


def test_a_handler_that_takes_longer_than_a_session_costs_no_rebalance(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str], group: str, raw: RawClient
) -> None:
    topic = new_topic()
    consumer = member()
    told = Listener()
    consumer.subscribe([topic], listener=told)
    poll_until(lambda: consumer.assignment(), consumer)
    epoch = described(raw, group).members[0].member_epoch
    time.sleep(1.1 * SESSION_MS / 1000)  # the handler
    assert [seen.member_epoch for seen in described(raw, group).members] == [epoch]
    consumer.poll(50)
    assert told.heard == [("assigned", places(topic, 0))]


def test_partitions_that_are_added_are_assigned(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str], raw: RawClient
) -> None:
    topic = new_topic(partitions=1)
    consumer = member()
    consumer.subscribe([topic])
    poll_until(lambda: consumer.assignment() == places(topic, 0), consumer)
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=3, assignments=None)
    raw.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=5000, validate_only=False))
    poll_until(lambda: consumer.assignment() == places(topic, 0, 1, 2), consumer)


def test_a_topic_that_comes_later_is_read_when_it_is_there(
    member: Callable[..., KafkaConsumer], bootstrap: str, unique: Callable[[str], str], group: str, raw: RawClient
) -> None:
    topic = unique("later")
    consumer = member(allow_auto_create_topics=False)
    consumer.subscribe([topic])
    poll_until(lambda: consumer.group_metadata().generation_id > 0, consumer)
    assert consumer.assignment() == set()
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
        poll_until(lambda: consumer.assignment() == places(topic, 0, 1), consumer)
        consumer.close()
        admin.delete_topics([topic])


def test_a_member_that_was_removed_loses_its_partitions_and_joins_again(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str], raw: RawClient, group: str
) -> None:
    topic = new_topic()
    consumer = member()
    told = Listener()
    consumer.subscribe([topic], listener=told)
    poll_until(lambda: consumer.assignment(), consumer)
    who = LeaveGroupRequest.MemberIdentity(member_id=consumer.group_metadata().member_id)
    raw.ask(LeaveGroupRequest(group_id=group, members=[who]))
    with pytest.raises(CommitFailedError):
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})
    assert consumer.committed(TopicPartition(topic, 0)) is None
    poll_until(lambda: len(told.heard) == 3, consumer)
    assert [what for what, _ in told.heard] == ["assigned", "lost", "assigned"]
    poll_until(lambda: consumer.assignment() == places(topic, 0), consumer)
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(0, "", -1)})


def test_offsets_in_a_transaction_are_taken_of_members_only(
    member: Callable[..., KafkaConsumer],
    new_topic: Callable[..., str],
    bootstrap: str,
    unique: Callable[[str], str],
    raw: RawClient,
    group: str,
) -> None:
    topic = new_topic()
    place = TopicPartition(topic, 0)
    consumer = member()
    consumer.subscribe([topic])
    poll_until(lambda: consumer.assignment(), consumer)
    who = consumer.group_metadata()
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique("id")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"a", partition=0)
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(1, "", -1)}, who)
        producer.commit_transaction()
        assert consumer.committed(place) == 1
        leaver = LeaveGroupRequest.MemberIdentity(member_id=who.member_id)
        raw.ask(LeaveGroupRequest(group_id=group, members=[leaver]))
        producer.begin_transaction()
        with pytest.raises(KafkaError):
            producer.send_offsets_to_transaction({place: OffsetAndMetadata(2, "", -1)}, who)
        producer.abort_transaction()


def test_unsubscribe_leaves_and_subscribe_comes_back(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str], raw: RawClient, group: str
) -> None:
    topic = new_topic()
    consumer = member()
    told = Listener()
    consumer.subscribe([topic], listener=told)
    poll_until(lambda: consumer.assignment(), consumer)
    consumer.unsubscribe()
    assert consumer.assignment() == set() and told.heard[-1] == ("revoked", places(topic, 0))
    until(lambda: not described(raw, group).members)
    consumer.subscribe([topic], listener=told)
    poll_until(lambda: consumer.assignment(), consumer)


@pytest.mark.parametrize("protocol", [{}, {**CLASSIC, "session_timeout_ms": 45_000}], ids=["consumer", "classic"])
def test_who_may_not_wait_leaves_although_a_heartbeat_is_out(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str], raw: RawClient, group: str, bootstrap: str,
    protocol: dict[str, Any],
) -> None:  # fmt: skip
    set_session(raw, group, 45_000)
    consumer = member(**protocol)
    consumer.subscribe([new_topic()])
    poll_until(lambda: consumer.assignment(), consumer)
    poll_until(lambda: consumer._group.machine.state_name == "stable", consumer)
    asked: list[str] = []

    def in_one_turn_of_the_loop() -> None:
        its = consumer._group
        its.fenced(CommitFailedError("a heartbeat is due now"))
        asked.append(its.machine.state_name)
        its.depart("a test")
        its.close()

    consumer._host.call(in_one_turn_of_the_loop)
    assert asked == ["stable"]
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        until(
            lambda: not admin.describe_groups([group])[group]["members"],
            "it has left, and its session does not have to run out", within_s=20,
        )  # fmt: skip


def test_a_group_is_taken_from_the_classic_protocol_to_the_new_one_member_by_member(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str], send: Callable[..., None], raw: RawClient,
    group: str,
) -> None:  # fmt: skip
    topic = new_topic(partitions=4)
    first, second = member(**CLASSIC), member(**CLASSIC)
    for consumer in (first, second):
        consumer.subscribe([topic])
    poll_until(lambda: len(first.assignment()) == 2 == len(second.assignment()), first, second)
    send(topic, 0, b"a")
    found: list[ConsumerRecord] = []
    poll_until(lambda: found, first, second, into=found)
    first.commit()
    second.commit()
    second.close()
    upgraded = member()
    upgraded.subscribe([topic])
    poll_until(lambda: len(first.assignment()) == 2 == len(upgraded.assignment()), first, upgraded)
    assert first.assignment() | upgraded.assignment() == places(topic, 0, 1, 2, 3)
    assert sorted(one.member_type for one in described(raw, group).members) == [0, 1]
    send(topic, 0, b"b")
    found.clear()
    poll_until(lambda: found, first, upgraded, into=found)
    assert [record.value for record in found] == [b"b"], "it goes on where the classic group had committed"
    first.commit()
    upgraded.commit()
    first.close()
    poll_until(lambda: upgraded.assignment() == places(topic, 0, 1, 2, 3), upgraded)
    assert [one.member_type for one in described(raw, group).members] == [1]


def test_a_group_goes_back_to_the_classic_protocol_with_the_last_member_of_the_new_one(
    member: Callable[..., KafkaConsumer], new_topic: Callable[..., str], raw: RawClient, group: str
) -> None:
    topic = new_topic(partitions=2)
    new, classic = member(), member(**CLASSIC)
    for consumer in (new, classic):
        consumer.subscribe([topic])
    poll_until(lambda: len(new.assignment()) == 1 == len(classic.assignment()), new, classic)
    assert sorted(one.member_type for one in described(raw, group).members) == [0, 1]
    new.close()
    poll_until(lambda: classic.assignment() == places(topic, 0, 1), classic)
    (found,) = raw.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)).groups
    assert found.error_code == GROUP_ID_NOT_FOUND, "it is none of the consumer group protocol any more"
    classic.commit({TopicPartition(topic, 0): OffsetAndMetadata(0, "", -1)})


@every_release
def test_a_broker_without_the_protocol_is_an_error_that_names_the_setting(
    bootstrap: str, raw: RawClient, unique: Callable[[str], str]
) -> None:
    with KafkaConsumer(bootstrap_servers=bootstrap, group_id=unique("group"), group_protocol="consumer") as consumer:
        consumer.subscribe([unique("anything")])
        if offers_the_protocol(raw):
            poll_until(lambda: consumer.group_metadata().generation_id > 0, consumer)
        else:
            with pytest.raises(UnsupportedVersionError, match="group_protocol='classic'"):
                poll_until(lambda: False, consumer)


def offers_the_protocol(raw: RawClient) -> bool:
    """As its answer to a request says that is wrong in other respects; older brokers hang up."""
    try:
        answer = raw.ask(ConsumerGroupHeartbeatRequest(group_id="", member_id="", member_epoch=0), 0)
    except EOFError:
        return False
    return answer.error_code != UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    "settings",
    [
        {"session_timeout_ms": 10_000},
        {"heartbeat_interval_ms": 3000},
        {"partition_assignment_strategy": ["range"]},
        {"group_id": None},
    ],
)
def test_settings_of_the_other_protocol_are_refused(
    member: Callable[..., KafkaConsumer], settings: dict[str, Any]
) -> None:
    with pytest.raises(KafkaConfigurationError, match="group"):
        member(**settings)
