from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from kafka.client import KafkaClient
from kafka.consumer import KafkaConsumer
from kafka.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaConfigurationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnassignedPartitionError,
)
from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.protocol.fetch import FetchRequest, FetchResponse
from kafka.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest
from kafka.structs import TopicPartition
from kafka.validation import deserializer_for
from test.core.consume.test_partition import batch
from test.support.scripted import CLOSE, SILENT, Answer, ScriptedBroker

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
RANGES = {1: (4, 12), 2: (1, 8), 3: (0, 12), 10: (0, 6), 18: (0, 4)}
OUT_OF_RANGE, NOT_LEADER = 1, 6


class Rig:
    """A consumer on a manual loop, and one broker whose log holds ``values``."""

    def __init__(self, loop: Loop, broker: ScriptedBroker, client: KafkaClient, values: list[bytes]) -> None:
        self.loop = loop
        self.broker = broker
        self.client = client
        self.values = values
        self.faults: list[Any] = []
        self.got: list[tuple[int, bytes]] = []
        self.errors: list[Exception] = []
        broker.topics = {"t": {0: 1, 1: 1}}
        broker.answers[FetchRequest] = self.fetch
        broker.answers[ListOffsetsRequest] = self.list_offsets

    def consumer(self, **configs: Any) -> KafkaConsumer:
        return KafkaConsumer(client=self.client, on_records=self.take, on_error=self.errors.append, **configs)

    def take(self, found: dict[TopicPartition, list[Any]]) -> None:
        self.got += [(record.offset, record.value) for records in found.values() for record in records]

    def run(self, seconds: float = 10.0) -> None:
        self.loop.run_until(lambda: False, seconds)

    def fetch(self, request: Any, version: int) -> Answer:
        if self.faults:
            fault = self.faults.pop(0)
            if not isinstance(fault, int):
                return fault  # type: ignore[no-any-return]
        else:
            fault = 0
        topics = []
        found = False
        for topic in request.topics:
            entries = []
            for asked in topic.partitions:
                code = fault
                if not code and asked.fetch_offset > len(self.values):
                    code = OUT_OF_RANGE
                values = self.values[asked.fetch_offset : asked.fetch_offset + 3] if not code else []
                found = found or bool(values or code)
                entries.append(
                    FetchResponse.PartitionData(
                        partition_index=asked.partition,
                        error_code=code,
                        high_watermark=len(self.values),
                        records=batch(asked.fetch_offset, *values) if values else b"",
                    )
                )
            topics.append(FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=entries))
        return FetchResponse(responses=topics) if found else SILENT

    def list_offsets(self, request: Any, version: int) -> Answer:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsResponse.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsResponse.ListOffsetsPartitionResponse(
                            partition_index=entry.partition_index,
                            error_code=0,
                            offset=0 if entry.timestamp == -2 else len(self.values),
                        )
                        for entry in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


@contextmanager
def rig(count: int = 7) -> Iterator[Rig]:
    loop = Loop.simulated()
    network = MemoryNetwork(loop, "client")
    broker = ScriptedBroker(network.host("kafka"), ranges=RANGES)
    client = KafkaClient(network=network, all_topics=False, bootstrap_servers="kafka:9092", request_timeout_ms=5000)
    try:
        yield Rig(loop, broker, client, [b"%d" % n for n in range(count)])
    finally:
        client.close()
        loop.close()


ALL = [(n, b"%d" % n) for n in range(7)]


def test_a_tail_gets_every_record_once_and_in_order() -> None:
    with rig() as it:
        it.consumer(auto_offset_reset="earliest").assign([A])
        it.run()
        assert it.got == ALL
        assert it.errors == []


@pytest.mark.parametrize(
    "faults", [[CLOSE], [SILENT], [NOT_LEADER], [CLOSE, NOT_LEADER, CLOSE]], ids=["cut", "timeout", "moved", "all"]
)
def test_no_record_is_lost_or_repeated_when_fetches_fail(faults: list[Any]) -> None:
    with rig() as it:
        it.faults = faults
        it.consumer(auto_offset_reset="earliest").assign([A])
        it.run(60)
        assert not it.faults
        assert it.got == ALL


def test_latest_begins_behind_what_is_there() -> None:
    with rig() as it:
        consumer = it.consumer()
        consumer.assign([A])
        it.run(1)
        it.values.append(b"new")
        it.run(20)  # the held fetch of the script ends with its time limit
        assert it.got == [(7, b"new")]
        assert consumer.position(A) == 8


def test_errors_come_through_on_error_and_a_seek_leads_out_of_them() -> None:
    with rig() as it:
        consumer = it.consumer(auto_offset_reset="none")
        consumer.assign([A])
        it.run(1)
        assert isinstance(it.errors.pop(0), NoOffsetForPartitionError)
        it.errors.clear()
        consumer.seek(A, 100)
        it.run(1)
        assert isinstance(it.errors[0], OffsetOutOfRangeError)
        consumer.seek(A, 5)
        it.run(1)
        assert it.got == [(5, b"5"), (6, b"6")]


def test_what_a_partition_had_buffered_comes_when_it_goes_on_though_nothing_new_does() -> None:
    with rig(3) as it:
        consumer = it.consumer(auto_offset_reset="earliest", max_poll_records=1)
        consumer.assign([A])
        it.loop.run_until(lambda: it.got, 5)
        consumer.pause(A)
        it.run(1)
        assert len(it.got) == 1
        it.broker.answers[FetchRequest] = SILENT
        it.run(1)
        consumer.resume(A)
        it.run(1)
        assert it.got == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_a_paused_partition_is_quiet_and_goes_on_where_it_stood() -> None:
    with rig() as it:
        consumer = it.consumer(auto_offset_reset="earliest")
        consumer.assign([A])
        consumer.pause(A)
        it.run(1)
        assert it.got == []
        consumer.resume(A)
        it.run(1)
        assert it.got == ALL


def test_the_last_leaves_nothing_behind() -> None:
    with rig() as it:
        consumer = it.consumer(auto_offset_reset="earliest")
        consumer.assign([A])
        consumer.close()
        consumer.close()
        it.run(1)
        assert it.got == []
        with pytest.raises(IllegalStateError, match="closed"):
            consumer.poll()


def test_waiting_on_the_loops_own_thread_is_refused() -> None:
    with rig() as it:
        consumer = it.consumer()
        consumer.assign([A])
        for call in (
            lambda: consumer.poll(100),
            lambda: consumer.position(A),
            lambda: consumer.end_offsets([A]),
            consumer.topics,
            lambda: next(consumer),
        ):
            with pytest.raises(IllegalStateError, match="own thread"):
                call()


@pytest.mark.parametrize("caught", [IllegalStateError, ValueError, KeyError, UnassignedPartitionError])
def test_a_partition_that_is_not_assigned_is_caught_by_what_kafka_python_raises(caught: type[Exception]) -> None:
    with rig() as it:
        consumer = it.consumer()
        for call in (consumer.seek_to_beginning, consumer.seek_to_end):
            with pytest.raises(caught, match="no partitions are assigned to this consumer yet"):
                call()
        consumer.assign([A])
        for call in (
            consumer.position, consumer.highwater, consumer.pause, consumer.resume, consumer.seek_to_beginning,
            consumer.seek_to_end, partial(consumer.seek, offset=0),
        ):  # fmt: skip
            with pytest.raises(caught) as raised:
                call(B)
            assert str(raised.value) == "UnassignedPartitionError: t-1 is not assigned to this consumer"
        with pytest.raises(caught):
            consumer.pause(A, B)
        assert consumer.paused() == set()


def test_wrong_use_is_a_clear_error_at_the_call() -> None:
    with rig() as it:
        consumer = it.consumer()
        consumer.assign([A])
        for offset in (-1, 1.5, True, None, 2**63):
            with pytest.raises(IllegalArgumentError, match="at least 0"):
                consumer.seek(A, offset)  # type: ignore[arg-type]
        with pytest.raises(IllegalStateError, match="t-1 is not assigned"):
            consumer.seek(B, 0)
        with pytest.raises(IllegalStateError, match="t-1 is not assigned"):
            consumer.pause(B)
        with pytest.raises(IllegalArgumentError, match="max_records"):
            consumer.poll(0, max_records=0)
        with pytest.raises(TypeError, match="topics: a list"):
            consumer.subscribe("t")
        with pytest.raises(IllegalStateError, match="reads partitions, by assign"):
            consumer.subscribe(pattern="t.*")
        for wrong in ("t", None, [A], 0):
            for call in (
                consumer.pause, consumer.resume, consumer.position, consumer.highwater,
                consumer.seek_to_beginning, consumer.seek_to_end, partial(consumer.seek, offset=0),
            ):  # fmt: skip
                with pytest.raises(TypeError, match="TopicPartition is needed"):
                    call(wrong)  # type: ignore[operator]
        for wrong in (None, 5, ["t"]):
            with pytest.raises(TypeError, match="topics: each has to be a text"):
                consumer.partitions_for_topic(wrong)  # type: ignore[arg-type]
        for timestamp in (-5, -0.5, float("inf"), float("nan")):
            with pytest.raises(IllegalArgumentError, match="t-0 is negative"):
                consumer.offsets_for_times({A: timestamp})
        for timestamps in (None, [A], {A: "1"}, {A: True}, {A: None}, {"t": 1}):
            with pytest.raises(TypeError, match="needed|a number of ms"):
                consumer.offsets_for_times(timestamps)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ({"group_id": ""}, "a text that is not empty"),
        ({"on_records": print}, "needs a loop"),
        ({"auto_offset_reset": "newest"}, "earliest"),
        ({"fetch_max_byte": 1}, "fetch_max_bytes"),
    ],
)
def test_a_wrong_setting_is_refused_at_construction(configs: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=text):
        KafkaConsumer(**configs)


def test_deserialisers_of_each_generation_are_taken() -> None:
    class Two:
        def deserialize(self, topic: str, data: bytes) -> str:
            return f"{topic}:{data.decode()}"

    class Three:
        def deserialize(self, topic: str, headers: Any, data: bytes) -> str:
            return f"{topic}/{data.decode()}"

    for given, expected in ((Two(), "t:5"), (Three(), "t/5"), (int, 5)):
        run = deserializer_for(given)
        assert run is not None
        assert run("t", [], b"5") == expected
    assert deserializer_for(None) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_consumer_is_refused_in_a_forked_child() -> None:
    with rig() as it:
        consumer = it.consumer()
        child = os.fork()
        if child == 0:
            try:
                consumer.poll()
            except IllegalStateError as error:
                os._exit(0 if "after a fork" in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_may_look_at_a_consumer_whose_lock_another_thread_held() -> None:
    with rig() as it:
        consumer = it.consumer()
        consumer.assign([A])
        with consumer._driver.lock:
            child = os.fork()
            if child == 0:
                signal.alarm(5)  # instead of a hang
                os._exit(0 if consumer.assignment() == {A} and consumer.metrics() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_topic_that_is_made_after_subscribe_is_read_soon() -> None:
    with rig() as it:
        topics, it.broker.topics = it.broker.topics, {}
        consumer = it.consumer(auto_offset_reset="earliest")
        consumer.subscribe(["t"])
        it.run(30)
        assert it.got == []
        asked = len(it.broker.requests(MetadataRequest))
        assert asked < 40  # and no busy loop
        it.broker.topics = topics
        it.run(3)
        assert sorted(set(it.got)) == ALL
