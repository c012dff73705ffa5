"""``kill -9`` in the middle of everything that the broker makes durable: records, share acknowledgements, committed
offsets, topics. What was acknowledged is there after the restart, and nothing that was accepted comes again.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from kafka.protocol.configs import IncrementalAlterConfigsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.offsets import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.share import (
    DescribeShareGroupOffsetsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from kafka.protocol.topics import CreateTopicsRequest
from kafka.protocol.transactions import InitProducerIdRequest
from kafka.testing import EmbeddedBroker
from test.broker.driver import batch, produce_request
from test.broker.raw_client import RawClient
from test.broker.test_server import make_topic
from test.test_testing import read_all

DEADLINE_S = 30.0
TOPIC = "t"
GROUP = "g"
INIT_PRODUCER = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)


class Load:
    """Threads that ask for one thing after the other, over every restart, and note what was acknowledged."""

    def __init__(self, port: int, topic_id: UUID) -> None:
        self.port = port
        self.topic_id = topic_id
        self.records: list[bytes] = []
        self.accepted: set[int] = set()
        self.sent: set[int] = set()
        """Accepted perhaps: of some the answer was lost."""
        self.delivered_again: set[int] = set()
        self.offset = -1
        self.topics: list[str] = []
        self.faults: list[BaseException] = []
        self._done = 0
        self._progress = threading.Condition()
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._again_and_again, args=(work,))
            for work in (self._produce, self._consume, self._commit, self._create)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in self._threads)
        assert not self.faults

    def wait_for(self, count: int) -> None:
        """Until so many more things have been acknowledged."""
        with self._progress:
            target = self._done + count
            assert self._progress.wait_for(lambda: self._done >= target or self.faults, DEADLINE_S)
        assert not self.faults

    def _note(self) -> None:
        with self._progress:
            self._done += 1
            self._progress.notify_all()

    def _again_and_again(self, work: Callable[[RawClient], None]) -> None:
        try:
            while not self._is_over.is_set():
                with contextlib.suppress(OSError, EOFError), RawClient(self.port) as client:
                    work(client)
        except BaseException as error:
            with self._progress:
                self.faults.append(error)
                self._progress.notify_all()
            raise

    _producer_id = -1

    def _produce(self, client: RawClient) -> None:
        if self._producer_id < 0:
            self._producer_id = client.ask(INIT_PRODUCER).producer_id
        while not self._is_over.is_set():
            number = len(self.records)
            data = batch(b"%d" % number, producer=(self._producer_id, 0, number))
            assert client.ask(produce_request(TOPIC, data), 9).responses[0].partition_responses[0].error_code == 0
            self.records.append(b"%d" % number)
            self._note()

    def _consume(self, client: RawClient) -> None:
        epoch = 0
        while not self._is_over.is_set():
            ranges = acquire(client, self.topic_id, epoch)
            epoch += 1
            if not ranges:
                continue
            for first, last in ranges:
                self.delivered_again |= self.accepted.intersection(range(first, last + 1))
            for first, last in ranges:
                self.sent.update(range(first, last + 1))
                assert accept(client, self.topic_id, epoch, first, last) == 0
                epoch += 1
                self.accepted.update(range(first, last + 1))
                self._note()

    def _commit(self, client: RawClient) -> None:
        while not self._is_over.is_set():
            offset = self.offset + 1
            assert commit(client, offset) == 0
            self.offset = offset
            self._note()

    def _create(self, client: RawClient) -> None:
        while not self._is_over.is_set():
            name = f"topic-{len(self.topics)}"
            wanted = CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            # 36: it was made, and the answer was lost
            assert client.ask(CreateTopicsRequest(topics=[wanted])).topics[0].error_code in (0, 36)
            self.topics.append(name)
            self._note()


def acquire(client: RawClient, topic_id: UUID, epoch: int) -> list[tuple[int, int]]:
    F = ShareFetchRequest
    partition = F.FetchPartition(partition_index=0, acknowledgement_batches=[])
    request = F(
        group_id=GROUP,
        member_id="m",
        share_session_epoch=epoch,
        max_wait_ms=20,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=20,
        batch_size=20,
        share_acquire_mode=1,
        topics=[F.FetchTopic(topic_id=topic_id, partitions=[partition])] if epoch == 0 else [],
        forgotten_topics_data=[],
    )
    answer = client.ask(request)
    assert answer.error_code == 0, answer
    return [
        (found.first_offset, found.last_offset)
        for topic in answer.responses
        for one in topic.partitions
        for found in one.acquired_records
    ]


def accept(client: RawClient, topic_id: UUID, epoch: int, first: int, last: int) -> int:
    A = ShareAcknowledgeRequest
    acks = A.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[1])
    topic = A.AcknowledgeTopic(
        topic_id=topic_id, partitions=[A.AcknowledgePartition(partition_index=0, acknowledgement_batches=[acks])]
    )
    request = A(group_id=GROUP, member_id="m", share_session_epoch=epoch, topics=[topic])
    answer = client.ask(request)
    assert answer.error_code == 0, answer
    return answer.responses[0].partitions[0].error_code


def commit(client: RawClient, offset: int) -> int:
    one = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[one])
    request = OffsetCommitRequest(group_id="plain", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    return client.ask(request, 8).topics[0].partitions[0].error_code


def committed(client: RawClient) -> int:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    return client.ask(OffsetFetchRequest(group_id="plain", topics=[topic]), 5).topics[0].partitions[0].committed_offset


def share_offset(client: RawClient) -> tuple[int, int]:
    """Start offset and lag of the share group."""
    D = DescribeShareGroupOffsetsRequest
    topic = D.DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[0])
    wanted = D.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=[topic])
    found = client.ask(D(groups=[wanted])).groups[0].topics[0].partitions[0]
    return found.start_offset, found.lag


def set_group(client: RawClient) -> None:
    I = IncrementalAlterConfigsRequest  # noqa: E741
    changes = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
    resource = I.AlterConfigsResource(
        resource_type=32,
        resource_name=GROUP,
        configs=[I.AlterableConfig(name=name, config_operation=0, value=value) for name, value in changes.items()],
    )
    assert client.ask(I(resources=[resource], validate_only=False)).responses[0].error_code == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_that_was_acknowledged_is_lost_and_nothing_accepted_comes_again(tmp_path: Path, rounds: int) -> None:
    chance = random.Random(4711)
    with EmbeddedBroker(tmp_path / "data") as broker:
        with RawClient(broker.port) as client:
            make_topic(client, TOPIC)
            set_group(client)
            topics = [MetadataRequest.MetadataRequestTopic(name=TOPIC)]
            topic_id = client.ask(MetadataRequest(topics=topics)).topics[0].topic_id
        load = Load(broker.port, topic_id)
        load.start()
        try:
            for _ in range(6 * rounds):
                load.wait_for(chance.randrange(20, 400))
                broker.kill()
                known = load.offset
                broker.start()
                with RawClient(broker.port) as client:
                    assert committed(client) >= known
        finally:
            load.stop()
        broker.kill()
        broker.start()
        found = read_all(broker.port)
        assert found[: len(load.records)] == load.records
        assert len(found) - len(load.records) <= 1, "at most the one that was under way"
        with RawClient(broker.port) as client:
            assert load.offset <= committed(client) <= load.offset + 1
            assert set(load.topics) <= {topic.name for topic in client.ask(MetadataRequest(topics=None)).topics}
            epoch = 0
            while True:
                ranges = acquire(client, topic_id, epoch)
                epoch += 1
                if not ranges and share_offset(client) == (len(found), 0):
                    break
                for first, last in ranges:
                    load.delivered_again |= load.accepted.intersection(range(first, last + 1))
                    assert accept(client, topic_id, epoch, first, last) == 0
                    epoch += 1
                    load.accepted.update(range(first, last + 1))
        assert not load.delivered_again
        assert load.accepted <= set(range(len(found))) <= load.accepted | load.sent, "each record was delivered"
