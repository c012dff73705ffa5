from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka.broker.log import FilePool, Journal
from kafka.errors import KafkaStorageError


@pytest.fixture
def pool() -> Iterator[FilePool]:
    files = FilePool(4)
    yield files
    files.close()


Entries = list[tuple[bytes, bytes | None]]


def open_journal(path: Path, pool: FilePool, minimum: int = 1 << 20) -> tuple[Journal, Entries]:
    seen: Entries = []
    journal = Journal(
        str(path), pool, lambda key, value: seen.append((key, value)), min_rewrite_bytes=minimum, sync=False
    )
    return journal, seen


def test_entries_come_back_in_their_order(tmp_path: Path, pool: FilePool) -> None:
    journal, _ = open_journal(tmp_path / "j", pool)
    journal.append([(b"a", b"1"), (b"b", b"")])
    journal.append([(b"a", None)])
    assert open_journal(tmp_path / "j", pool)[1] == [(b"a", b"1"), (b"b", b""), (b"a", None)]


def test_a_torn_tail_is_cut_at_every_byte(tmp_path: Path, pool: FilePool, caplog: pytest.LogCaptureFixture) -> None:
    journal, _ = open_journal(tmp_path / "j", pool)
    ends = [journal.size_bytes]
    for at in range(3):
        journal.append([(b"key%d" % at, b"value%d" % at)])
        ends.append(journal.size_bytes)
    whole = (tmp_path / "j").read_bytes()
    for size in range(len(whole) + 1):
        path = tmp_path / f"j{size}"
        path.write_bytes(whole[:size])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            again, seen = open_journal(path, pool)
        good = max([end for end in ends if end <= size], default=ends[0])
        assert len(seen) == ends.index(good)
        assert path.stat().st_size == good
        assert ("torn bytes from" in caplog.text) == (size > good)
        again.append([(b"k", b"v")])
        assert open_journal(path, pool)[1][-1] == (b"k", b"v")


def test_a_bad_entry_before_good_ones_is_an_error_and_nothing_is_cut(tmp_path: Path, pool: FilePool) -> None:
    journal, _ = open_journal(tmp_path / "j", pool)
    journal.append([(b"a", b"111")])
    at = journal.size_bytes
    journal.append([(b"b", b"222")])
    journal.append([(b"c", b"333")])
    data = bytearray((tmp_path / "j").read_bytes())
    data[at + 14] ^= 1
    (tmp_path / "j").write_bytes(data)
    with pytest.raises(KafkaStorageError, match=f"byte {at}"):
        open_journal(tmp_path / "j", pool)
    assert (tmp_path / "j").read_bytes() == data


def test_a_bad_length_before_good_entries_is_no_torn_tail(tmp_path: Path, pool: FilePool) -> None:
    journal, _ = open_journal(tmp_path / "j", pool)
    journal.append([(b"a", b"111")])
    at = journal.size_bytes
    journal.append([(b"b", b"222")])
    journal.append([(b"c", b"333")])
    whole = (tmp_path / "j").read_bytes()
    for broken in range(at, at + 12):
        data = bytearray(whole)
        data[broken] ^= 0x41
        (tmp_path / "j").write_bytes(data)
        with pytest.raises(KafkaStorageError, match=f"byte {at}"):
            open_journal(tmp_path / "j", pool)
        assert (tmp_path / "j").read_bytes() == data


def test_a_tail_of_zeros_is_cut(tmp_path: Path, pool: FilePool) -> None:
    journal, _ = open_journal(tmp_path / "j", pool)
    journal.append([(b"a", b"111")])
    size = journal.size_bytes
    with open(tmp_path / "j", "ab") as file:
        file.write(bytes(4096))
    assert open_journal(tmp_path / "j", pool)[1] == [(b"a", b"111")]
    assert (tmp_path / "j").stat().st_size == size


def test_a_rewrite_keeps_what_holds_and_shrinks_the_file(tmp_path: Path, pool: FilePool) -> None:
    journal, _ = open_journal(tmp_path / "j", pool, minimum=1000)
    turns = 0
    while not journal.should_rewrite:
        journal.append([(b"key", b"%d" % turns)])
        turns += 1
    journal.rewrite([(b"key", b"%d" % (turns - 1))])
    assert not journal.should_rewrite
    journal.append([(b"key", b"last")])
    assert open_journal(tmp_path / "j", pool)[1] == [(b"key", b"%d" % (turns - 1)), (b"key", b"last")]


def test_another_file_is_not_taken_for_a_journal(tmp_path: Path, pool: FilePool) -> None:
    (tmp_path / "j").write_bytes(b"something else")
    with pytest.raises(KafkaStorageError, match="not a journal"):
        open_journal(tmp_path / "j", pool)
