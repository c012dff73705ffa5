"""Transactions through a bad line: connections end and coordinators move at random, and nothing is doubled or lost."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Iterator

import pytest

from kafka import KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata
from kafka.testing import EmbeddedBroker
from test.producer.transaction_worker import committed
from test.support.seeds import each_seed

TRANSACTIONS = 15
APIS = ["Produce", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]
PASSING = {"Produce": [6, 7, 51], "TxnOffsetCommit": [14, 16, 51]}
"""Codes that mean "come again"; for the others those of a coordinator."""


@pytest.fixture(scope="module", params=["4.3", "3.9", "2.8"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True, emulate=request.param) as running:
        yield running


def spoil(broker: EmbeddedBroker, name: str, rng: random.Random, stack: contextlib.ExitStack) -> None:
    """Every request fails sometimes: unheard, heard but not answered, or put off."""
    for api in APIS:
        for when in ("before", "after"):
            fault = broker.faults.close(api, when=when, client_id=name, probability=0.08, seed=rng.randrange(1 << 30))
            stack.enter_context(fault)
        for code in PASSING.get(api, [14, 15, 16, 51]):
            fault = broker.faults.answer(api, code, client_id=name, probability=0.05, seed=rng.randrange(1 << 30))
            stack.enter_context(fault)


@pytest.mark.timeout(120)
@each_seed(5)
def test_transactions_hold_through_any_sequence_of_passing_faults(broker: EmbeddedBroker, seed: int) -> None:
    rng = random.Random(seed)
    name = f"chance-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=2)
    expected: dict[int, list[bytes]] = {0: [], 1: []}
    offset = -1
    with (
        contextlib.ExitStack() as stack,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap, client_id=name, transactional_id=name, retry_backoff_ms=1,
            retry_backoff_max_ms=20, reconnect_backoff_ms=1, reconnect_backoff_max_ms=20, batch_max_records=2,
        ) as producer,
    ):  # fmt: skip
        producer.init_transactions()
        spoil(broker, name, rng, stack)
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            values: dict[int, list[bytes]] = {0: [], 1: []}
            for n in range(rng.randrange(1, 12)):
                partition = rng.randrange(2)
                value = b"%d.%d" % (number, n)
                values[partition].append(value)
                producer.send(name, value, partition=partition)
                if rng.random() < 0.1:
                    producer.flush()
            producer.send_offsets_to_transaction({TopicPartition(name, 0): OffsetAndMetadata(number)}, name)
            if rng.random() < 0.3:
                producer.abort_transaction()
                continue
            producer.commit_transaction()  # nothing of this is an error
            offset = number
            for partition, some in values.items():
                expected[partition] += some
    records = broker.records(name)
    for partition, some in expected.items():
        assert [record.value for record in records if record.partition == partition] == some
    assert committed(broker.bootstrap, name, TopicPartition(name, 0)) == offset
