"""A data directory in which a lost machine, or a bad disk, has spoiled one file, of each kind that there is: cut, its
tail zeros, a byte changed, gone. The broker opens and goes on, or says which file it cannot live without and stays
away; it never fails in a way that it does not know, and what it then shows was once there.

What a cut leaves of single files is told exactly by ``test_torn_files.py`` and ``log/test_recovery.py``.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from kafka.broker.log import cleaner
from kafka.broker.share.states import ACCEPT, AckBatch
from kafka.errors import CorruptRecordError, KafkaStorageError
from kafka.records import RecordBatchBuilder, decode_records, iter_batches
from test.broker.driver import HandBroker, batch
from test.broker.groups import requests as groups
from test.broker.share.test_coordinator import take
from test.broker.transactions import txn
from test.support import seeds

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
CUTS = 9
"""Of each file, besides its ends and the bytes beside them."""


def keyed(number: int) -> bytes:
    builder = RecordBatchBuilder(1 << 20)
    builder.append(1_700_000_000_000 + 1500 * number, b"k%d" % (number % 3), b"%d" % number)
    return builder.build()


def fill(hand: HandBroker) -> None:
    """Something in each kind of file."""
    hand.create_topic("t", segment_bytes="1048576", retention_ms="-1")
    hand.create_topic("c", cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.01")
    for number in range(5):
        hand.produce("t", batch(b"%d" % number, producer=(900, 0, number)))
    for number in range(9):
        hand.produce("c", keyed(number))
        hand.advance(1.5)
    for name, version in (("new", 5), ("old", 4)):
        producer = txn.init(hand, name)[1:]
        for number, is_committed in enumerate((True, False)):
            if version < 5:
                txn.add(hand, name, producer, "t")
                txn.add_group(hand, name, producer, "g")
            produce_version = txn.NEW if version == 5 else txn.OLD
            sequence = number if version < 5 else 0
            answer = txn.produce(hand, name, producer, sequence, "t", b"x", version=produce_version)
            assert answer.error_code == 0, answer
            assert txn.commit_offset(hand, name, producer, "g", "t", number, version=version) == 0
            ended = txn.end(hand, name, producer, is_committed, version)
            assert ended.code == 0
            producer = ended[1:] if version == 5 else producer
    open_one = txn.init(hand, "open")[1:]
    assert txn.produce(hand, "open", open_one, 0, "t", b"open").error_code == 0
    member = hand.ask(groups.join("classic"), 5).member_id
    reply = hand.send(groups.join("classic", member), 5)
    hand.advance(1.0)
    generation = hand.answer(groups.join("classic"), reply, 5).generation_id
    assert hand.ask(groups.sync("classic", generation, member, {member: b"all"}), 3).error_code == 0
    assert groups.codes(hand.ask(groups.commit("classic", "t", {0: 3}, generation, member), 9)) == [0]
    hand.ask(groups.consumer("new", "m", 0, ["t"]))
    assert hand.set_group("s", share_auto_offset_reset="earliest") == 0
    partition = hand.broker.share.partition("s", hand.broker.topic("t").topic_id, 0, lambda config: 0)
    take(partition, 3)
    for offset in (0, 1):
        partition.acknowledge("m", [AckBatch(offset, offset, (ACCEPT,))], hand.now)
    hand.broker.logs.log(hand.broker.topic("t"), 0).delete_before(1)
    hand.advance(30.0)
    hand.broker.logs.log(hand.broker.topic("t"), 0).flush()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a killed process leaves it, with the files of an interrupted compaction."""
    root = tmp_path_factory.mktemp("crash")
    hand = HandBroker(root / "data", SETTINGS, fsync="always")
    commit_swap = cleaner.commit_swap
    copies: list[Path] = []

    def copy(name: str) -> None:
        shutil.rmtree(root / name, ignore_errors=True)
        shutil.copytree(hand.data_dir, root / name)
        copies.append(root / name)

    def copying(directory: str, *bases: int) -> str:
        if "/c." not in directory:
            return commit_swap(directory, *bases)
        copy("cleaned")
        path = commit_swap(directory, *bases)
        copy("swap")
        return path

    with mock.patch.object(cleaner, "commit_swap", copying):
        fill(hand)
    assert copies, "the cleaner was at work"
    shutil.copytree(hand.data_dir, root / "whole")
    for suffix in ("cleaned", "swap"):  # beside the others, in a partition of which nothing else is left to do
        (found,) = (root / suffix).glob(f"topics/c.*/0/*.{suffix}")
        target = root / "whole" / found.relative_to(root / suffix)
        shutil.rmtree(target.parent)
        shutil.copytree(found.parent, target.parent)
    hand.broker.close()
    return root / "whole"


def shown(hand: HandBroker, topic: str) -> list[bytes | None]:
    """The records of ``topic``, or nothing when it has gone; what cannot be read is passed over."""
    found = hand.broker.metadata.topic(topic)
    if found is None:
        return []
    log = hand.broker.logs.log(found, 0)
    offset, values = log.start_offset, []
    while offset < log.end_offset:
        try:
            data = bytes(log.read(offset, 1))
        except CorruptRecordError:
            offset += 1
            continue
        if not data:
            break
        for header in iter_batches(data):
            if not header.is_control:
                values += [record.value for record in decode_records(data, header)]
            offset = header.next_offset
    return values


def spoilt(data: bytes, rng: random.Random) -> Iterator[tuple[str, bytes | None]]:
    """Ways to lose a file's bytes; None: the file."""
    size = len(data)
    near = {0, 1, 2, size - 1, size - 2, *(rng.randrange(size + 1) for _ in range(CUTS))}
    for at in sorted(at for at in near if 0 <= at < size):
        yield f"cut at {at}", data[:at]
    for at in sorted({rng.randrange(size + 1) for _ in range(4)}):
        yield f"zeros from {at} on", data[:at] + bytes(size - at)
    for _ in range(8):
        at = rng.randrange(size) if size else 0
        if size:
            yield f"byte {at} changed", data[:at] + bytes([data[at] ^ rng.randint(1, 255)]) + data[at + 1 :]
    yield "zeros behind", data + bytes(1 << 16)
    yield "rubbish behind", data + rng.randbytes(100)
    yield "gone", None


def kinds(whole: Path) -> dict[str, Path]:
    """A file of each kind: of each topic and each suffix the largest."""
    found: dict[str, Path] = {}
    for path in sorted(whole.rglob("*")):
        if path.is_file() and path.name not in ("lock", ".lock", "broker.log"):
            topic = next((part.split(".")[0] for part in path.parts if part.startswith(("t.", "c.", "__"))), "")
            kind = f"{topic}/{path.suffix or path.name}"
            if kind not in found or path.stat().st_size > found[kind].stat().st_size:
                found[kind] = path
    return found


@pytest.mark.timeout(300)
def test_one_spoilt_file_of_any_kind_is_borne_or_named(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = seeds.rng("crash files")
    hand = HandBroker(shutil.copytree(whole, tmp_path / "good"), SETTINGS)
    good = {topic: shown(hand, topic) for topic in "tc"}
    assert all(good.values())
    good["c"] = [b"%d" % number for number in range(9)]  # without the swap there is more of them
    good["t"].insert(0, b"0")  # and without the start offset
    hand.broker.close()
    found = kinds(whole)
    suffixes = {path.suffix or path.name for path in found.values()}
    assert {"__share_group_state/.log", "__transaction_state/.log", "__consumer_offsets/.log"} <= set(found)
    assert {".log", ".seal", ".swap", ".journal", "start-offset", "cleaner-offset"} <= suffixes, suffixes
    refused: set[str] = set()
    for kind, path in found.items():
        for what, data in spoilt(path.read_bytes(), rng):
            directory = shutil.copytree(whole, tmp_path / "spoilt")
            target = directory / path.relative_to(whole)
            if data is None:
                target.unlink()
            else:
                target.write_bytes(data)
            caplog.clear()
            try:
                with caplog.at_level(logging.WARNING):
                    live_on(directory, good)
            except KafkaStorageError as error:
                assert str(tmp_path) in str(error) or "__" in str(error), f"{kind}, {what}: {error} names nothing"
                refused.add(f"{kind}: {what.split()[0]}")
            except BaseException as error:
                raise AssertionError(f"{kind} ({path.relative_to(whole)}), {what}: {error!r}") from error
            assert not [record for record in caplog.records if record.exc_info], f"{kind}, {what}: {caplog.text}"
            shutil.rmtree(directory)
    print("refused to start: " + "; ".join(sorted(refused)))
    assert not [one for one in refused if one.endswith((": cut", ": gone")) and one.startswith(("t/", "c/"))]


def live_on(directory: Path, good: dict[str, list[bytes | None]]) -> None:
    """Open it twice, and use it."""
    for number in range(2):
        hand = HandBroker(directory, SETTINGS)
        hand.broker.rng.seed(number)  # no id is given out twice
        try:
            for topic, values in good.items():
                found = [value for value in shown(hand, topic) if value != b"more"]
                left = iter(values)
                assert all(value in left for value in found), f"{found} of {topic}, where {values} were"
            if hand.broker.metadata.topic("t") is not None:
                assert hand.produce("t", batch(b"more")).error_code in (0, 56)
            hand.advance(40.0)
            for name in ("new", "old", "open", "another"):
                assert txn.init(hand, name).code in (0, 51, 14, 15, 16)
            for group in ("classic", "new", "g"):
                hand.ask(groups.fetch(group, "t"), 9)
                hand.ask(groups.consumer(group, "other", 0, ["t"]))
        finally:
            hand.broker.close()


@pytest.mark.parametrize("fsync", ["always", "never"])
@pytest.mark.parametrize("ends_well", [True, False])
def test_a_producer_is_known_again_when_all_its_records_have_gone(tmp_path: Path, fsync: str, ends_well: bool) -> None:
    """Retention and DeleteRecords take the segments, and with them their seals."""
    hand = HandBroker(tmp_path / "data", fsync=fsync)
    hand.create_topic("t")
    data = [batch(b"%d" % number, producer=(900, 0, number)) for number in range(3)]
    for one in data:
        assert hand.produce("t", one).error_code == 0
    log = hand.broker.logs.log(hand.broker.topic("t"), 0)
    log.roll(0)
    log.delete_before(3)
    assert (log.start_offset, log.size_bytes) == (3, 0)
    killed = shutil.copytree(tmp_path / "data", tmp_path / "killed")
    hand.broker.close()
    for _ in range(2):
        hand = HandBroker(tmp_path / "data" if ends_well else killed, fsync=fsync)
        log = hand.broker.logs.log(hand.broker.topic("t"), 0)
        answer = hand.produce("t", data[2])
        assert (answer.error_code, answer.base_offset, log.end_offset) == (0, 2, 3), "the second time it is known"
        assert hand.produce("t", batch(b"x", producer=(900, 0, 7))).error_code == 45
        hand.broker.close()
    hand = HandBroker(tmp_path / "data" if ends_well else killed, fsync=fsync)
    assert hand.produce("t", batch(b"3", producer=(900, 0, 3))).base_offset == 3
    hand.broker.close()
