"""Apache Kafka's own tool reads the files of the embedded broker's internal topics."""

from __future__ import annotations

import pathlib
import subprocess
from pathlib import Path

import pytest

from kafka.broker.offset_store import CommittedOffset
from kafka.broker.share.state_store import ShareKey
from kafka.broker.share.states import ACKNOWLEDGED, StateRange
from kafka.broker.state.records import TransactionLogKey, TransactionLogValue, encode_key, encode_value
from kafka.broker.state.state_topic import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kafka.structs import TopicPartition
from test.broker.driver import HandBroker
from test.support import jars
from test.support.apache_kafka import LATEST, require_apache_kafka

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def classpath() -> str:
    require_apache_kafka()
    return jars.tools_classpath(LATEST) + ":" + jars.broker_classpath(LATEST)


def dump(classpath: str, data_dir: Path, topic: str, decoder: str) -> str:
    files = [str(path) for path in sorted(data_dir.glob(f"topics/{topic}.*/*/*.log")) if path.stat().st_size]
    assert files
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "org.apache.kafka.tools.DumpLogSegments", decoder,
         "--print-data-log", "--files", ",".join(files)],
        capture_output=True, text=True, timeout=120, cwd=pathlib.Path("/"), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "isvalid: false" not in done.stdout
    return done.stdout


def test_committed_offsets(tmp_path: Path, classpath: str) -> None:
    hand = HandBroker(tmp_path)
    topic_id = hand.create_topic("orders")
    where = TopicPartition("orders", 0)
    hand.broker.offsets.commit("plain", {where: CommittedOffset(42, 3, "note", 1234)})
    hand.broker.offsets.commit_pending("plain", 7, 1, {where: CommittedOffset(43, 3, "", 1235)})
    hand.broker.share.alter_offset("sharers", topic_id, 0, 5)
    hand.broker.close()
    text = dump(classpath, tmp_path, CONSUMER_OFFSETS, "--offsets-decoder")
    assert '"group":"plain","topic":"orders","partition":0' in text
    assert '"offset":42,"leaderEpoch":3,"metadata":"note","commitTimestamp":1234' in text
    assert "producerId: 7 producerEpoch: 1" in text
    assert '"groupId":"sharers"' in text


def test_the_state_of_share_groups(tmp_path: Path, classpath: str) -> None:
    hand = HandBroker(tmp_path)
    topic_id = hand.create_topic("jobs")
    broker = hand.broker
    partition = broker.share.partition("sharers", topic_id, 0, lambda config: 0)
    store = broker.share._store
    store.write(ShareKey("sharers", topic_id, 0), partition.start_offset, [StateRange(3, 4, ACKNOWLEDGED, 2)])
    store.write(ShareKey("sharers", topic_id, 0), partition.start_offset, [StateRange(6, 6, ACKNOWLEDGED, 1)])
    broker.close()
    text = dump(classpath, tmp_path, SHARE_GROUP_STATE, "--share-group-state-decoder")
    assert '"firstOffset":3,"lastOffset":4,"deliveryState":2,"deliveryCount":2' in text
    assert '"firstOffset":6,"lastOffset":6,"deliveryState":2,"deliveryCount":1' in text
    assert text.count('"groupId":"sharers"') == 2


def test_transactional_ids(tmp_path: Path, classpath: str) -> None:
    hand = HandBroker(tmp_path)
    topic = hand.broker.state.topic(TRANSACTION_STATE)
    value = TransactionLogValue(
        producer_id=7, producer_epoch=1, transaction_timeout_ms=60000, transaction_status=1,
        transaction_partitions=[TransactionLogValue.PartitionsSchema(topic="orders", partition_ids=[0, 2])],
        transaction_last_update_timestamp_ms=5, transaction_start_timestamp_ms=4, client_transaction_version=2,
    )  # fmt: skip
    topic.append(0, [(encode_key(TransactionLogKey(transactional_id="tx")), encode_value(value, 1))])
    hand.broker.close()
    text = dump(classpath, tmp_path, TRANSACTION_STATE, "--transaction-log-decoder")
    assert "tx" in text
    assert "orders" in text
