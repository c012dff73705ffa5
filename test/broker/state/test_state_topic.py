"""State topics: what is appended comes back at the start, in order; made late, opened seldom, never half of a batch."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.broker.broker import Broker
from kafka.broker.log import TransactionMarker
from kafka.broker.log.files import FilePool
from kafka.broker.state import state_topic
from kafka.broker.state.state_topic import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    java_hash,
    single_record_batch,
)
from kafka.errors import KafkaStorageError
from kafka.protocol.configs import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.topics import CreateTopicsRequest, DeleteTopicsRequest
from kafka.records import RecordBatchBuilder
from test.broker.driver import HandBroker

K = b"\0\x63"
"""A kind of key that nobody knows, so that the broker's own readers pass over it."""

Seen = list[tuple[Any, ...]]


def replayed(broker: Broker, name: str) -> Seen:
    seen: Seen = []
    for partition, (key, value, producer, is_committed) in broker.state.topic(name).replay():
        if key is None:
            assert producer is not None
            seen.append(("marker", partition, *producer, is_committed))
        else:
            seen.append((partition, key, value, producer))
    return seen


def described(hand: HandBroker, name: str) -> MetadataResponse.MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return hand.ask(request, 12).topics[0]


def test_what_was_appended_comes_back_in_order_with_its_transactions(hand: HandBroker) -> None:
    topic = hand.broker.state.topic(CONSUMER_OFFSETS)
    topic.append(3, [(K + b"a", b"1"), (K + b"b", None)])
    topic.append(3, [(K + b"c", b"2")], producer=(7, 1))
    topic.log(3).append_marker(TransactionMarker(7, 1, True, 0), hand.epoch_ms)
    topic.append(1, [(K + b"d", b"3")])
    expected = [
        (1, K + b"d", b"3", None),
        (3, K + b"a", b"1", None),
        (3, K + b"b", None, None),
        (3, K + b"c", b"2", (7, 1)),
        ("marker", 3, 7, 1, True),
    ]
    assert replayed(hand.broker, CONSUMER_OFFSETS) == expected
    hand.restart()
    assert replayed(hand.broker, CONSUMER_OFFSETS) == expected


def test_of_a_compacted_topic_only_what_holds_is_replayed_in_the_order_of_its_last_records(hand: HandBroker) -> None:
    topic = hand.broker.state.topic(CONSUMER_OFFSETS)
    for number in range(5):
        topic.append(0, [(K + b"a", b"%d" % number), (K + b"b", b"%d" % number)])
        topic.append(0, [(K + b"a", b"pending")], producer=(7, 1))
    topic.append(0, [(K + b"a", None)])
    pending = [(0, K + b"a", b"pending", (7, 1))]
    expected = [*pending * 4, (0, K + b"b", b"4", None), *pending, (0, K + b"a", None, None)]
    assert replayed(hand.broker, CONSUMER_OFFSETS) == expected
    changes = hand.broker.state.topic(SHARE_GROUP_STATE)
    changes.append(0, [(K + b"a", b"1")])
    changes.append(0, [(K + b"a", b"2")])
    assert [record[2] for record in replayed(hand.broker, SHARE_GROUP_STATE)] == [b"1", b"2"]


def test_the_files_are_read_once_for_all_who_ask_at_the_start(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = hand.broker.state.topic(CONSUMER_OFFSETS)
    topic.append(0, [(K + b"a", b"1")])
    reads: list[str] = []
    read_events = state_topic.read_events
    monkeypatch.setattr(
        state_topic, "read_events", lambda log, **how: reads.append(log.name) or read_events(log, **how)
    )
    assert replayed(hand.broker, CONSUMER_OFFSETS) == replayed(hand.broker, CONSUMER_OFFSETS)
    assert len(reads) == 1
    topic.append(0, [(K + b"b", b"1")])
    assert len(replayed(hand.broker, CONSUMER_OFFSETS)) == 2


def test_records_are_durable_against_a_killed_process_when_the_call_returns(hand: HandBroker) -> None:
    hand.broker.state.topic(TRANSACTION_STATE).append(0, [(K + b"a", b"1")])
    copy = Broker(str(shutil.copytree(hand.data_dir, hand.data_dir.with_name("copy"))), fsync="never")
    assert replayed(copy, TRANSACTION_STATE) == [(0, K + b"a", b"1", None)]
    copy.close()


def test_a_large_append_is_one_batch_all_or_nothing(hand: HandBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = hand.broker.state.topic(CONSUMER_OFFSETS)
    records = [(K + b"%d" % number, bytes(1000)) for number in range(3000)]
    topic.append(0, records)
    assert len(replayed(hand.broker, CONSUMER_OFFSETS)) == 3000

    def full(*_: object) -> None:
        raise KafkaStorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(FilePool, "write", full)
        with pytest.raises(KafkaStorageError):
            topic.append(0, records)
    assert len(replayed(hand.broker, CONSUMER_OFFSETS)) == 3000


def test_an_internal_topic_is_made_at_its_first_use_as_kafka_makes_it(hand: HandBroker) -> None:
    assert described(hand, SHARE_GROUP_STATE).error_code == 3
    assert described(hand, SHARE_GROUP_STATE).is_internal
    for name in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE):
        hand.broker.state.topic(name).append(0, [(K + b"k", b"v")])
        found = described(hand, name)
        assert (found.error_code, found.is_internal, len(found.partitions)) == (0, True, 50)
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=SHARE_GROUP_STATE, configuration_keys=None
    )
    configs = hand.ask(DescribeConfigsRequest(resources=[resource])).results[0].configs
    assert {one.name: one.value for one in configs if one.config_source == 1} == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


@pytest.mark.parametrize("name", [CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE])
def test_a_client_that_asks_for_an_internal_topic_gets_it_made_as_kafka_makes_it(hand: HandBroker, name: str) -> None:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
    first = hand.ask(request, 12).topics[0]
    assert (first.error_code, first.is_internal) == (3, True)
    assert len(hand.ask(request, 12).topics[0].partitions) == 50


def test_a_client_may_delete_an_internal_topic_and_make_it_anew(hand: HandBroker) -> None:
    topic = hand.broker.state.topic(CONSUMER_OFFSETS)
    topic.append(0, [(K + b"k", b"v")])
    events: list[str] = []
    topic.add_deletion_listener(lambda: events.append("deleted"))
    gone = DeleteTopicsRequest.DeleteTopicState(name=CONSUMER_OFFSETS)
    assert hand.ask(DeleteTopicsRequest(topics=[gone], timeout_ms=1000)).responses[0].error_code == 0
    assert events == ["deleted"]
    assert replayed(hand.broker, CONSUMER_OFFSETS) == []
    topic_request = CreateTopicsRequest.CreatableTopic(
        name=CONSUMER_OFFSETS, num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    assert hand.ask(CreateTopicsRequest(topics=[topic_request])).topics[0].error_code == 0
    assert topic.partitions == 2
    topic.append(topic.partition_of("g"), [(K + b"k", b"w")])
    hand.restart()
    assert [record[1:3] for record in replayed(hand.broker, CONSUMER_OFFSETS)] == [(K + b"k", b"w")]


def test_a_start_opens_only_the_partitions_that_have_records(hand: HandBroker) -> None:
    hand.broker.state.topic(CONSUMER_OFFSETS).append(5, [(K + b"k", b"v")])
    hand.restart()
    topic = hand.broker.metadata.topic(CONSUMER_OFFSETS)
    assert topic is not None
    assert [log.name for log in hand.broker.logs.open_logs(topic)] == [f"{CONSUMER_OFFSETS}-5"]


def test_beginning_anew_keeps_what_holds_and_drops_the_rest(hand: HandBroker) -> None:
    topic = hand.broker.state.topic(SHARE_GROUP_STATE)
    assert not topic.should_rewrite(0)
    while not topic.should_rewrite(0):
        topic.append(0, [(K + b"k", bytes(50_000))])
    before = topic.log(0).size_bytes
    topic.rewrite(0, [(K + b"k", b"holds")])
    assert topic.log(0).size_bytes < before / 100
    assert replayed(hand.broker, SHARE_GROUP_STATE) == [(0, K + b"k", b"holds", None)]
    topic.append(0, [(K + b"k", b"later")])
    hand.restart()
    assert replayed(hand.broker, SHARE_GROUP_STATE) == [(0, K + b"k", b"holds", None), (0, K + b"k", b"later", None)]


def test_a_compacted_topics_segment_is_closed_early_so_that_it_can_be_compacted(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_topic, "ROLL_BYTES", 1000)
    topic = hand.broker.state.topic(CONSUMER_OFFSETS)
    for _ in range(3):
        topic.append(0, [(K + b"k", bytes(1000))])
    assert len(topic.log(0).segments) == 3


def test_a_damaged_batch_stops_the_start_and_names_the_log(hand: HandBroker) -> None:
    topic = hand.broker.state.topic(CONSUMER_OFFSETS)
    for number in range(3):
        topic.append(0, [(K + b"%d" % number, bytes(100))])
    copy = shutil.copytree(hand.data_dir, hand.data_dir.with_name("copy"))  # without the seal of a good end
    path = next(copy.glob(f"topics/{CONSUMER_OFFSETS}*/0/*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(KafkaStorageError, match=f"{CONSUMER_OFFSETS}-0 cannot be read from offset 1"):
        Broker(str(copy), fsync="never")


@given(st.text(max_size=20), st.binary(max_size=200), st.none() | st.binary(max_size=9000))
def test_a_batch_of_one_record_is_the_builders(text: str, key: bytes, value: bytes | None) -> None:
    builder = RecordBatchBuilder(1 << 30)
    builder.append(1_700_000_000_123, key, value)
    assert single_record_batch(1_700_000_000_123, key, value) == builder.build()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("group", 98629247), ("polygenelubricants", -(2**31)), ("ü😀", 2015071), ("a" * 40, 1042809472)],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected
