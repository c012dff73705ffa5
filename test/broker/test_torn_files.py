"""A data directory after a lost machine: each file cut at each byte. The broker starts, says what it cut, has all that
was written before the cut, and takes new records.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from kafka.broker.log.journal import MAGIC, decode
from kafka.broker.share.acknowledgements import AckBatch
from kafka.broker.share.states import ACCEPT
from kafka.structs import TopicPartition
from test.broker.driver import HandBroker, batch
from test.broker.handlers.test_offsets import commit
from test.broker.share.test_groups import take


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A directory with something in each of its files, as a killed process leaves it."""
    hand = HandBroker(tmp_path / "whole")
    topic_id = hand.create_topic("t")
    for value in (b"a", b"b", b"c"):
        hand.produce("t", batch(value))
    for offset in (1, 2):
        commit(hand, offset)
    partition = hand.broker.share.partition("g", topic_id, 0, lambda config: 0)
    take(partition, 3)
    for offset in (0, 1):
        partition.acknowledge("m", [AckBatch(offset, offset, (ACCEPT,))], 0.0)
    hand.broker.logs.log(hand.broker.topic("t"), 0).delete_before(1)
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    hand.broker.close()
    return tmp_path / "killed"


@pytest.mark.parametrize("name", ["metadata.journal", "offsets.journal", "share-groups.journal"])
def test_a_journal_cut_at_any_byte_keeps_what_was_written_before(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    data = (whole / name).read_bytes()
    ends = [len(MAGIC), *(end for end, _, _ in decode(data, len(MAGIC)))]
    assert ends[-1] == len(data)
    seen = set()
    for size in range(len(data)):
        directory = tmp_path / "cut"
        shutil.copytree(whole, directory)
        (directory / name).write_bytes(data[:size])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            hand = HandBroker(directory)
        kept = sum(end <= size for end in ends) - 1
        if size > len(MAGIC):
            assert ("cut a torn tail of" in caplog.text) == (size not in ends), size
        broker = hand.broker
        topic = broker.metadata.topic("t")
        if name == "metadata.journal":
            assert (topic is not None) == (kept >= ends.index(len(data))), "the topic was made last"
            if topic is None:
                assert "belongs to no topic" in caplog.text
                hand.create_topic("t")
        elif name == "offsets.journal":
            found = broker.offsets.get("g", TopicPartition("t", 0))
            assert (found.offset if found is not None else 0) == max(kept, 0)
        else:
            assert topic is not None
            assert (broker.share.start_offset("g", topic.topic_id, 0) or 0) == max(kept, 0)
        assert hand.produce("t", batch(b"d")).error_code == 0
        assert commit(hand, 9) == 0
        seen.add(kept)
        broker.close()
        shutil.rmtree(directory)
    assert len(seen) >= len(ends) - 1


def test_a_start_offset_cut_at_any_byte_is_not_taken_for_another(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (path,) = whole.glob("topics/t.*/0/start-offset")
    for text in (b"", b"1", b"x\n", b"-1\n"):
        path.write_bytes(text)
        caplog.clear()
        hand = HandBroker(whole)
        assert hand.broker.logs.log(hand.broker.topic("t"), 0).start_offset == 0
        assert "is no start offset" in caplog.text
        assert hand.produce("t", batch(b"d")).error_code == 0
        hand.broker.close()


def test_a_seal_cut_at_any_byte_counts_for_nothing(whole: Path) -> None:
    hand = HandBroker(whole)
    hand.produce("t", batch(b"d"))
    hand.broker.close()
    (seal,) = whole.glob("topics/t.*/0/*.seal")
    data = seal.read_bytes()
    for size in range(len(data)):
        seal.write_bytes(data[:size])
        hand = HandBroker(whole)
        log = hand.broker.logs.log(hand.broker.topic("t"), 0)
        assert log.end_offset == 4
        assert log.recovered_bytes == log.size_bytes
        hand.broker.close()
        assert seal.read_bytes() == data
