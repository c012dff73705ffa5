"""A data directory after a lost machine: each file cut at each byte. The broker starts, says what it cut, has all that
was written before the cut, and takes new records.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from kafka.broker.log.metadata_store import MAGIC, decode
from kafka.broker.share.states import ACCEPT, AckBatch
from kafka.records import iter_batches
from kafka.structs import TopicPartition
from test.broker.driver import HandBroker, batch
from test.broker.handlers.test_offsets import commit
from test.broker.share.test_coordinator import take


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


def test_the_metadata_cut_at_any_byte_keeps_what_was_written_before(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = (whole / "metadata.journal").read_bytes()
    ends = [len(MAGIC), *(end for end, _, _ in decode(data, len(MAGIC)))]
    assert ends[-1] == len(data)
    made_at = next(at for at, (_, _, value) in enumerate(decode(data, len(MAGIC)), 1) if b'"topic/t"' in (value or b""))
    seen = set()
    near = {at for end in ends for at in range(end - 13, end + 14)}  # each is a start of the whole broker
    for size in sorted({at for at in near if 0 <= at < len(data)} | set(range(0, len(data), 37))):
        directory = tmp_path / "cut"
        shutil.copytree(whole, directory)
        (directory / "metadata.journal").write_bytes(data[:size])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            hand = HandBroker(directory)
        kept = sum(end <= size for end in ends) - 1
        if size > len(MAGIC):
            assert ("torn bytes from" in caplog.text) == (size not in ends), size
        assert (hand.broker.metadata.topic("t") is not None) == (kept >= made_at)
        if kept < made_at:
            assert "belongs to no topic" in caplog.text
            hand.create_topic("t")
        assert hand.produce("t", batch(b"d")).error_code == 0
        assert commit(hand, 9) == 0
        seen.add(kept)
        hand.broker.close()
        shutil.rmtree(directory)
    assert len(seen) >= len(ends) - 1


@pytest.mark.parametrize("name", ["__consumer_offsets", "__share_group_state"])
def test_an_internal_topic_cut_at_any_byte_keeps_what_was_written_before(
    whole: Path, tmp_path: Path, name: str
) -> None:
    """In steps, as each one is a start of the whole broker: around the ends of batches at each byte."""
    files = [path for path in whole.glob(f"topics/{name}.*/*/*.log") if path.stat().st_size]
    seen: set[int] = set()
    for path in files:
        data = path.read_bytes()
        ends = [0, *(header.end for header in iter_batches(data))]
        assert ends[-1] == len(data)
        near = {at for end in ends for at in range(end - 3, end + 4)}
        for size in sorted({at for at in near if 0 <= at < len(data)} | set(range(0, len(data), 23))):
            directory = tmp_path / "cut"
            shutil.copytree(whole, directory)
            (directory / path.relative_to(whole)).write_bytes(data[:size])
            hand = HandBroker(directory)
            broker = hand.broker
            topic = broker.topic("t")
            log = broker.logs.log(broker.topic(name), int(path.parent.name))
            kept = sum(header.end <= size for header in iter_batches(data))
            assert log.recovered_bytes > 0 or kept == 0
            found = broker.offsets.get("g", TopicPartition("t", 0))
            start = broker.share.start_offset("g", topic.topic_id, 0) or 0
            assert (found.offset if found is not None else 0) in (0, 1, 2)
            assert start in (0, 1, 2)
            seen.add(found.offset if found is not None and name == "__consumer_offsets" else start)
            assert hand.produce("t", batch(b"d")).error_code == 0
            assert commit(hand, 9) == 0
            broker.close()
            shutil.rmtree(directory)
    assert len(seen) >= 2, "each cut leaves what was there before"


def test_a_start_offset_cut_at_any_byte_is_not_taken_for_another(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (path,) = whole.glob("topics/t.*/0/start-offset")
    for text in (b"", b"1", b"x\n", b"-1\n"):
        path.write_bytes(text)
        caplog.clear()
        hand = HandBroker(whole)
        assert hand.broker.logs.log(hand.broker.topic("t"), 0).start_offset == 0
        assert "is no log start offset" in caplog.text
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
        hand = HandBroker(whole)
        assert hand.broker.logs.log(hand.broker.topic("t"), 0).recovered_bytes == 0, "a good one is there again"
        hand.broker.close()
