"""A disk that takes no more: what cannot be stored is refused with KAFKA_STORAGE_ERROR (56), all else goes on, and when
there is room again so does the rest. A disk that cannot flush: logged, and no answer that promises what is not so.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka.broker.log import TransactionMarker
from kafka.broker.responses import ConnectionContext
from kafka.errors import KafkaStorageError, KafkaTimeoutError
from kafka.protocol.share import ShareAcknowledgeRequest, ShareFetchRequest
from kafka.protocol.topics import CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.transactions import InitProducerIdRequest
from kafka.records import RecordBatchBuilder
from kafka.tasks import App
from kafka.testing import EmbeddedBroker, running_worker
from test.broker.driver import HandBroker, batch, fetch_request, fetched, produce_request, values
from test.broker.log.test_log_directory import full_disk
from test.broker.test_write_errors import lines_of
from test.support.small_disk import small_disk
from test.support.waiting import until

STORAGE = 56
DEADLINE_S = 30.0
TOPIC, GROUP = "jobs", "workers"


def failing_sync(fd: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def create(hand: HandBroker, name: str) -> int:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return hand.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code


def test_a_full_disk_refuses_what_it_cannot_store_and_serves_the_rest(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = hand.create_topic(TOPIC)
    assert hand.set_group(GROUP, share_auto_offset_reset="earliest") == 0
    hand.produce(TOPIC, batch(b"a", b"b", b"c"))
    F, A = ShareFetchRequest, ShareAcknowledgeRequest
    topic_request = F.FetchTopic(
        topic_id=topic_id, partitions=[F.FetchPartition(partition_index=0, acknowledgement_batches=[])]
    )
    opened = hand.ask(
        F(
            group_id=GROUP, member_id="m", share_session_epoch=0, max_wait_ms=0, min_bytes=1, max_records=10,
            batch_size=10, share_acquire_mode=1, topics=[topic_request], forgotten_topics_data=[],
        )
    )  # fmt: skip
    assert opened.responses[0].partitions[0].acquired_records[0].last_offset == 2

    def accept(epoch: int) -> int:
        acks = A.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
        one = A.AcknowledgePartition(partition_index=0, acknowledgement_batches=[acks])
        topic = A.AcknowledgeTopic(topic_id=topic_id, partitions=[one])
        answer = hand.ask(A(group_id=GROUP, member_id="m", share_session_epoch=epoch, topics=[topic]))
        assert answer.error_code == 0
        return answer.responses[0].partitions[0].error_code

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full_disk)
        assert hand.produce(TOPIC, batch(b"d")).error_code == STORAGE
        assert create(hand, "other") == STORAGE
        assert hand.set_group(GROUP, share_auto_offset_reset="latest") == STORAGE
        assert hand.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)).error_code == STORAGE
        deleted = hand.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=TOPIC)], timeout_ms=0))
        assert deleted.responses[0].error_code == STORAGE
        assert accept(1) == STORAGE
        assert values(fetched(hand.ask(fetch_request(TOPIC), 12))[0].records) == [b"a", b"b", b"c"]
        hand.advance(31)  # the locks end, and that cannot be written
    assert hand.produce(TOPIC, batch(b"d")).base_offset == 3
    assert create(hand, "other") == 0
    assert accept(2) == 121, "the lock is over"
    hand.restart()
    assert values(fetched(hand.ask(fetch_request(TOPIC), 12))[0].records) == [b"a", b"b", b"c", b"d"]


def test_a_file_system_that_is_full_takes_records_again_when_there_is_room_and_has_lost_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with small_disk(tmp_path / "disk", 512 << 10) as disk:
        hand = HandBroker(disk.path / "data")
        hand.create_topic(TOPIC)
        acknowledged: list[bytes] = []

        def produce(number: int) -> int:
            value = b"%d" % number + bytes(3000)
            answer = hand.produce(TOPIC, batch(value))
            if not answer.error_code:
                assert answer.base_offset == len(acknowledged)
                acknowledged.append(value)
            return answer.error_code

        for number in range(20):
            assert produce(number) == 0
        disk.fill(leaving=16 << 10)
        codes = [produce(number) for number in range(20, 40)]
        assert set(codes) == {0, STORAGE}, "some found room"
        assert "No space left on device; 0 bytes are free" in lines_of(caplog, logging.ERROR)[0]
        disk.free()
        for number in range(40, 60):
            assert produce(number) == 0
        assert len(lines_of(caplog, logging.INFO)) == 1
        hand.restart()
        read = values(fetched(hand.ask(fetch_request(TOPIC), 12))[0].records)
        assert read == acknowledged
        assert produce(60) == 0
        hand.broker.close()


def test_an_app_and_its_worker_name_the_full_disk_and_go_on_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started, gate = threading.Event(), threading.Event()
    with EmbeddedBroker(in_process=True) as broker:
        app = App("shop", bootstrap_servers=broker.bootstrap)

        @app.task(name="wait")
        def wait(number: int) -> int:
            started.set()
            assert gate.wait(DEADLINE_S)
            return number

        def flush_error() -> str:
            with pytest.raises(KafkaTimeoutError) as refused:
                app.flush(0.001)
            return str(refused.value)

        def is_named_in_the_workers_log() -> bool:
            return any("shop.results-" in line and "No space left" in line for line in caplog.messages)

        with running_worker(app, broker=broker):
            running = wait.delay(1)
            app.flush(DEADLINE_S)
            assert started.wait(DEADLINE_S)
            with monkeypatch.context() as patch:
                patch.setattr(os, "pwrite", full_disk)
                waiting = wait.delay(2)
                until(lambda: re.search(r"shop\.default-\d.*cannot write to .*: No space left", flush_error()))
                gate.set()
                until(is_named_in_the_workers_log)
            assert [running.result(DEADLINE_S), waiting.result(DEADLINE_S)] == [1, 2]
        app.close()


def test_a_share_fetch_that_cannot_write_what_it_passes_over_ends_its_session_and_its_locks(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = hand.create_topic(TOPIC)
    assert hand.set_group(GROUP, share_auto_offset_reset="earliest", share_isolation_level="read_committed") == 0
    hand.produce(TOPIC, batch(b"a"))
    log = hand.broker.logs.log(hand.broker.topic(TOPIC), 0)
    builder = RecordBatchBuilder(1 << 20)
    builder.append(0, None, b"aborted")
    log.append(builder.build(7, 0, 0, transactional=True), now_ms=0)
    log.append_marker(TransactionMarker(7, 0, committed=False, coordinator_epoch=0), 0)
    F = ShareFetchRequest
    partition = F.FetchPartition(partition_index=0, acknowledgement_batches=[])

    def fetch(member_id: str) -> ShareFetchRequest:
        return F(
            group_id=GROUP, member_id=member_id, share_session_epoch=0, max_wait_ms=0, min_bytes=1, max_records=10,
            batch_size=10, topics=[F.FetchTopic(topic_id=topic_id, partitions=[partition])], forgotten_topics_data=[],
        )  # fmt: skip

    connection = ConnectionContext()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full_disk)
        reply = hand.send(fetch("m"), connection=connection)
        assert reply.hang_up, "an error would leave the locks, which no client knows of"
    assert os.strerror(errno.ENOSPC) in caplog.text
    hand.broker.disconnected(connection, hand.now)
    other = hand.ask(fetch("n")).responses[0].partitions[0]
    assert [one.first_offset for one in other.acquired_records] == [0, 2], "the record, and the transaction's marker"


@pytest.fixture
def careful(tmp_path: Path) -> Iterator[HandBroker]:
    broker = HandBroker(tmp_path / "data", fsync="always")
    yield broker
    broker.broker.close()


def test_an_answer_that_waited_for_a_flush_that_failed_is_not_given(
    careful: HandBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    careful.create_topic("t")
    careful.create_topic("other")
    careful.produce("t", batch(b"a"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing_sync)
        reply = careful.send(produce_request("t", batch(b"b")), 9)
        assert not reply.done
        careful.tick()
        assert reply.done
        assert reply.hang_up
        assert "durability is not guaranteed" in caplog.text


def test_after_a_flush_that_failed_nothing_is_acknowledged_again_until_the_next_start(
    careful: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    careful.create_topic("t")
    careful.create_topic("other")
    careful.produce("t", batch(b"a", producer=(7, 0, 0)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing_sync)
        assert not careful.send(produce_request("t", batch(b"b", producer=(7, 0, 1))), 9).done
        careful.tick()
    assert careful.produce("t", batch(b"b", producer=(7, 0, 1))).error_code == STORAGE, "not even a duplicate"
    assert careful.produce("t", batch(b"c")).error_code == STORAGE
    assert values(fetched(careful.ask(fetch_request("t"), 12))[0].records) == [b"a", b"b"], "reads go on"
    assert careful.produce("other", batch(b"d")).error_code == 0, "and so do other logs"
    careful.restart()
    assert careful.produce("t", batch(b"b", producer=(7, 0, 1))).error_code == 0
    assert careful.produce("t", batch(b"c")).error_code == 0


def test_a_flush_that_fails_keeps_no_long_poll_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = HandBroker(tmp_path / "data", fsync="interval")
    hand.create_topic("t")
    hand.create_topic("other")
    waiting = hand.send(fetch_request("t", max_wait_ms=5000), 12)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing_sync)
        hand.produce("other", batch(b"a"))
        hand.advance(6)
        assert waiting.done
    assert hand.produce("other", batch(b"b")).error_code == STORAGE
    hand.create_topic("third")
    assert hand.produce("third", batch(b"c")).error_code == 0
    hand.broker.close()


def read_only_disk(path: str, flags: int, mode: int = 0o777, *, open_file: Callable[..., int] = os.open) -> int:
    if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    return open_file(path, flags, mode)


def test_a_directory_that_cannot_be_written_to_is_named_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "open", read_only_disk)
    with pytest.raises(KafkaStorageError, match=f"cannot open {tmp_path}.*Read-only file system"):
        HandBroker(tmp_path)


def test_a_disk_that_becomes_read_only_refuses_writes_and_serves_reads(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.create_topic("t")
    hand.produce("t", batch(b"a"))
    pool = hand.broker.logs.pool
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only_disk)
        pool.close()
        assert hand.produce("t", batch(b"b")).error_code == STORAGE
        assert values(fetched(hand.ask(fetch_request("t"), 12))[0].records) == [b"a"]
        assert hand.produce("t", batch(b"b")).error_code == STORAGE
        log = hand.broker.logs.log(hand.broker.topic("t"), 0)
        with pytest.raises(KafkaStorageError, match="Read-only file system"):
            log.append(batch(b"b"), now_ms=0)
        assert create(hand, "other") == STORAGE
    assert hand.produce("t", batch(b"b")).base_offset == 1


def test_a_request_that_fails_while_it_waits_ends_its_connection_and_no_other(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.create_topic("t")
    hand.create_topic("other")
    bad = hand.send(fetch_request("t", max_wait_ms=5000), 12)
    good = hand.send(fetch_request("other", max_wait_ms=5000), 12)
    log = hand.broker.logs.log(hand.broker.topic("t"), 0)
    hand.produce("t", batch(b"a"))
    waiting = hand.send(fetch_request("t", offsets=(1,), max_wait_ms=5000), 12)
    assert bad.done
    monkeypatch.setattr(type(log), "end_offset", property(lambda self: 1 // (self is not log)))
    hand.broker.purgatory.notify(log)
    hand.tick()
    assert waiting.hang_up
    monkeypatch.undo()
    hand.advance(6)
    assert good.done
    assert not good.hang_up
