"""Changes of several writes, of which a disk takes only the first ones: what is half done does no harm, and whoever
asks again, or starts the broker, completes it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from kafka.broker.log import FilePool
from kafka.broker.log.files import Buffer, storage_error
from kafka.broker.share.state_store import ShareKey
from kafka.protocol.offsets import OffsetCommitRequest
from kafka.protocol.topics import DeleteTopicsRequest
from test.broker.driver import HandBroker, batch
from test.broker.transactions.txn import READ_COMMITTED, committed, init, produce, read, state

T = OffsetCommitRequest.OffsetCommitRequestTopic


@contextmanager
def taking_nothing_for(*names: str) -> Iterator[None]:
    """No file of these topics takes a byte."""
    write = FilePool.write

    def full(pool: FilePool, path: str, position: int, data: Buffer) -> None:
        if any(name in path for name in names):
            raise storage_error("write to", path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        write(pool, path, position, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilePool, "write", full)
        yield


def commit(hand: HandBroker, group: str, topic: str, offset: int) -> int:
    one = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    wanted = T(name=topic, partitions=[one])
    return hand.ask(OffsetCommitRequest(group_id=group, topics=[wanted]), 8).topics[0].partitions[0].error_code


def delete(hand: HandBroker, topic: str) -> int:
    topic_request = DeleteTopicsRequest.DeleteTopicState(name=topic)
    return hand.ask(DeleteTopicsRequest(topics=[topic_request], timeout_ms=0)).responses[0].error_code


def share_state(hand: HandBroker, topic_id: UUID) -> ShareKey:
    key = ShareKey("s", topic_id, 0)
    hand.broker.share.alter_offset(*key, 1)
    return key


@pytest.mark.parametrize("then_restart", [False, True])
def test_a_topic_is_gone_for_its_groups_also_when_the_disk_cannot_note_it(tmp_path: Path, then_restart: bool) -> None:
    hand = HandBroker(tmp_path / "data", fsync="interval")
    topic_id = hand.create_topic("t")
    hand.produce("t", batch(b"a"))
    for group in ("g", "h"):
        assert commit(hand, group, "t", 1) == 0
    share_state(hand, topic_id)
    with taking_nothing_for("__consumer_offsets", "__share_group_state"):
        assert delete(hand, "t") == 0
        if then_restart:
            hand.restart()
    hand.create_topic("t")
    for group in ("g", "h"):
        assert committed(hand, group, "t") == (0, -1)
    assert not hand.broker.share.keys()
    hand.restart()
    assert committed(hand, "g", "t") == (0, -1)
    assert not hand.broker.share.keys()


def test_a_fence_for_which_no_producer_id_can_be_had_is_tried_again(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path / "data")
    hand.create_topic("t")
    producer = init(hand, "x", timeout_ms=1000)[1:]
    assert produce(hand, "x", producer, 0, "t", b"v").error_code == 0
    broker = hand.broker
    found = broker.transactions.all["x"]
    broker.transactions._store.all["x"] = found._replace(epoch=2**15 - 2)
    broker.ids._producer_ids = range(0)
    with taking_nothing_for("metadata.journal"):
        hand.advance(5)
        assert state(hand, "x") == "Ongoing"
    hand.advance(5)
    assert state(hand, "x") == "CompleteAbort"
    assert read(hand, "t", READ_COMMITTED) == []
