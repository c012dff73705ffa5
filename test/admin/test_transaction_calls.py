"""Calls about transactions, through the client, when connections break."""

from __future__ import annotations

import threading

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AbortTransactionSpec
from kafka.testing import EmbeddedBroker

PARTITION = TopicPartition("events", 0)
WAIT_S = 30.0


def test_the_next_transaction_is_committed_when_the_answer_to_an_abort_was_lost() -> None:
    """Release 3.9: all transactions of a producer have one epoch, so a second marker would abort this one."""
    with (
        EmbeddedBroker(topics={"events": 1}, emulate="3.9") as broker,
        KafkaAdminClient(
            bootstrap_servers=broker.bootstrap, retry_backoff_ms=1000, retry_backoff_max_ms=1000
        ) as admin,
        KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="transfers") as producer,
        KafkaConsumer(
            bootstrap_servers=broker.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("events", b"hangs").get(WAIT_S)
        (hung,) = admin.describe_producers([PARTITION])[PARTITION].active_producers
        spec = AbortTransactionSpec(PARTITION, hung.producer_id, hung.producer_epoch)
        fault = broker.faults.close("WriteTxnMarkers", when="after", nth=1)
        aborting = threading.Thread(target=admin.abort_transaction, args=(spec,))
        aborting.start()
        fault.wait(1, WAIT_S)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("events", b"first").get(WAIT_S)
        aborting.join(WAIT_S)
        assert not aborting.is_alive()
        producer.send("events", b"second").get(WAIT_S)
        producer.commit_transaction()
        consumer.assign([PARTITION])
        found = consumer.poll(int(WAIT_S * 1000))
        assert [record.value for record in found[PARTITION]] == [b"first", b"second"]
