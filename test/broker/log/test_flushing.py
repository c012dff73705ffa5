"""What is synced when, who waits for it, in which order: with an executor that does its work when the test says so."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka.broker.log import FilePool, FlushPolicy
from kafka.broker.log.files import FileDeleter, OutOfDescriptorsError, replace_file
from kafka.broker.log.flushing import RETRY_BACKOFF_S, SLICE_FILES, InlineExecutor, LogFlusher
from kafka.broker.process import BackgroundThread, BrokerOptions, RunningBroker
from kafka.broker.responses import DelayedResponses, PendingResponse
from kafka.errors import KafkaStorageError
from kafka.net.loop import Loop
from kafka.protocol.produce import ProduceRequest
from kafka.protocol.topics import CreateTopicsRequest
from test.broker.driver import HandBroker, batch, fetch_request, fetched, produce_request, values
from test.broker.raw_client import RawClient


class HandExecutor:
    """Work waits for :meth:`finish`."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.count = 0

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.work.append((work, done))
        self.count += 1

    def finish(self, pieces: int = 1) -> None:
        for _ in range(pieces):
            work, done = self.work.pop(0)
            done(work())

    def drain(self) -> None:
        while self.work:
            self.finish()


class Owner:
    """Something with files."""

    def __init__(self, *paths: Path) -> None:
        self.paths = [str(path) for path in paths]
        self.ends: list[KafkaStorageError | None] = []

    def begin_flush(self) -> list[str]:
        return self.paths

    def end_flush(self, error: KafkaStorageError | None) -> None:
        self.ends.append(error)


def owner(directory: Path, name: str, files: int = 1) -> Owner:
    paths = [directory / f"{name}{number}" for number in range(files)]
    for path in paths:
        path.write_bytes(b"x")
    return Owner(*paths)


@pytest.fixture
def executor() -> HandExecutor:
    return HandExecutor()


@pytest.fixture
def always(tmp_path: Path, executor: HandExecutor) -> HandBroker:
    hand = HandBroker(tmp_path / "data", fsync="always")
    for name in ("t", "other"):
        hand.create_topic(name)
        hand.produce(name, batch(b"first"))
    hand.broker.logs.flusher.executor = executor
    return hand


def test_answers_wait_for_the_sync_that_covers_them_and_share_it(always: HandBroker, executor: HandExecutor) -> None:
    first = [always.send(produce_request("t", batch(b"%d" % at)), 9) for at in range(3)]
    always.tick()
    later = [always.send(produce_request("other", batch(b"x")), 9) for _ in range(3)]
    always.tick()
    assert len(executor.work) == 1, "one job at a time"
    assert not any(reply.done for reply in first + later)
    executor.finish()
    assert all(reply.done for reply in first)
    assert not any(reply.done for reply in later), "written after that sync had begun"
    assert len(executor.work) == 1, "the next job has begun at once"
    executor.finish()
    assert all(reply.done for reply in later)
    assert executor.count == 2
    assert not always.broker.logs.flusher.has_unflushed


def test_an_answer_that_comes_later_waits_for_the_disk_too(always: HandBroker, executor: HandExecutor) -> None:
    """Whatever a handler has parked: here an answer that somebody else's request completes."""
    broker = always.broker
    parked = PendingResponse()
    shown = DelayedResponses(broker.logs, FlushPolicy.parse("always")).delay(parked, ProduceRequest.api_key)
    broker.logs.log(broker.topic("t"), 0).append(batch(b"a"), now_ms=0)
    parked.complete(None)
    assert not shown.done
    assert always.tick() is not None
    executor.drain()
    assert shown.done
    assert not shown.hang_up


def test_a_sync_for_which_all_wait_takes_no_detour_by_a_thread(always: HandBroker, executor: HandExecutor) -> None:
    always.broker.logs.flusher.may_block = lambda: True
    held = always.send(produce_request("t", batch(b"a")), 9)
    always.tick()
    assert held.done
    assert executor.count == 0
    assert not always.broker.logs.flusher.has_unflushed


def test_a_sync_for_which_nobody_waits_never_holds_up_the_loop(tmp_path: Path, executor: HandExecutor) -> None:
    hand = HandBroker(tmp_path / "data", fsync="interval")
    hand.create_topic("t")
    hand.broker.logs.flusher.executor = executor
    hand.broker.logs.flusher.may_block = lambda: True
    hand.produce("t", batch(b"a"))
    hand.advance(2.0)
    assert executor.count == 1


def test_a_slow_sync_keeps_no_reader_waiting(always: HandBroker, executor: HandExecutor) -> None:
    held = always.send(produce_request("t", batch(b"a")), 9)
    always.tick()
    answer = always.ask(fetch_request("t"), 12)
    assert values(fetched(answer)[0].records) == [b"first", b"a"]
    assert not held.done
    executor.finish()
    assert held.done


def test_a_duplicate_is_acknowledged_no_earlier_than_the_original(always: HandBroker, executor: HandExecutor) -> None:
    request = produce_request("t", batch(b"a", producer=(9, 0, 0)))
    original = always.send(request, 9)
    always.tick()
    again = always.send(request, 9)
    always.tick()
    assert not again.done
    executor.finish(1)
    assert original.done
    executor.drain()
    assert again.done
    assert always.answer(request, again, 9).responses[0].partition_responses[0].base_offset == 1


def test_with_an_interval_the_sync_runs_beside_the_serving(tmp_path: Path, executor: HandExecutor) -> None:
    hand = HandBroker(tmp_path / "data", fsync="interval")
    hand.create_topic("t")
    hand.broker.logs.flusher.executor = executor
    assert hand.produce("t", batch(b"a")).error_code == 0
    assert not executor.work
    hand.now = 1.0
    hand.tick()
    assert len(executor.work) == 1
    assert hand.produce("t", batch(b"b")).error_code == 0, "while it runs"
    hand.now = 5.0
    hand.tick()
    assert len(executor.work) == 1
    executor.finish()
    assert hand.broker.logs.flusher.has_unflushed
    hand.tick()
    assert len(executor.work) == 1, "what came meanwhile is overdue"
    executor.drain()
    assert not hand.broker.logs.flusher.has_unflushed
    hand.broker.close()


def test_a_topic_is_acknowledged_when_it_is_on_the_disk(tmp_path: Path, executor: HandExecutor) -> None:
    hand = HandBroker(tmp_path / "data", fsync="interval")
    hand.broker.logs.flusher.executor = executor
    topic = CreateTopicsRequest.CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    reply = hand.send(CreateTopicsRequest(topics=[topic]))
    hand.tick()
    assert not reply.done
    executor.finish()
    assert reply.done
    hand.broker.close()


def test_closing_waits_for_what_is_under_way(always: HandBroker, executor: HandExecutor) -> None:
    held = always.send(produce_request("t", batch(b"a")), 9)
    always.tick()
    always.broker.close()
    assert held.done
    always.broker = always._open()
    assert values(fetched(always.ask(fetch_request("t"), 12))[0].records) == [b"first", b"a"]
    always.broker.close()


def test_many_files_are_synced_in_slices(tmp_path: Path, executor: HandExecutor) -> None:
    flusher = LogFlusher(FlushPolicy.parse("always"), FilePool(), executor)
    many = owner(tmp_path, "many", 2 * SLICE_FILES + 1)
    flusher.mark_dirty(many)
    flusher.tick(0.0)
    executor.finish(2)
    assert many.ends == []
    executor.finish()
    assert many.ends == [None]
    assert not executor.work


@pytest.mark.parametrize("files", [1, 5000])
def test_any_number_of_files_is_synced_at_once_where_nothing_waits(tmp_path: Path, files: int) -> None:
    flusher = LogFlusher(FlushPolicy.parse("always"), FilePool())
    one = Owner(*[tmp_path / f"missing{at}" for at in range(files)])
    flusher.mark_dirty(one)
    flusher.sync()
    assert one.ends == [None], "what is no longer there needs no sync"


def test_an_error_is_reported_to_its_owner_and_to_waiting_calls_and_is_not_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flusher = LogFlusher(FlushPolicy.parse("interval"), FilePool())
    bad, good = owner(tmp_path, "bad"), owner(tmp_path, "good")
    sync = os.fsync

    def faulty(fd: int) -> None:
        if os.path.basename(os.readlink(f"/proc/self/fd/{fd}")).startswith("bad"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(fd)

    monkeypatch.setattr(os, "fsync", faulty)
    outcomes: list[KafkaStorageError | None] = []
    flusher.mark_dirty(bad)
    flusher.mark_dirty(good)
    flusher.add_waiter(outcomes.append)
    with pytest.raises(KafkaStorageError, match="cannot sync .*bad0"):
        flusher.sync()
    assert len(bad.ends) == 1
    assert "Input/output" in str(bad.ends[0])
    assert good.ends == [None]
    assert [type(error) for error in outcomes] == [KafkaStorageError]
    flusher.sync()
    assert len(bad.ends) == 1


def test_all_logs_whose_sync_failed_have_one_line_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    flusher = LogFlusher(FlushPolicy.parse("interval"), FilePool())
    for name in ("a", "b", "c"):
        flusher.mark_dirty(owner(tmp_path, name))
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(KafkaStorageError):
        flusher.sync()
    (line,) = caplog.messages
    cause = f"cannot sync {tmp_path}/a0: Input/output error"
    assert line.startswith(f"fsync failed, durability is not guaranteed: {cause}; ")
    assert "3 logs take no more writes: check the disk" in line
    assert "restart the broker" in line


@contextlib.contextmanager
def no_descriptors(code: int = errno.EMFILE) -> Iterator[None]:
    """Nothing can be opened meanwhile; what is open stays so."""

    def refused(*arguments: Any) -> int:
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", refused)
        patch.setattr(os, "dup", refused)
        yield


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("is_beside", [False, True])
def test_a_file_that_could_not_be_opened_to_be_synced_is_synced_later_and_nothing_is_read_only(
    always: HandBroker, executor: HandExecutor, caplog: pytest.LogCaptureFixture, code: int, is_beside: bool
) -> None:
    """Whether the sync runs in the thread or, as all wait for it, on the loop."""
    flusher = always.broker.logs.flusher
    flusher.may_block = lambda: not is_beside
    held = always.send(produce_request("t", batch(b"a")), 9)
    with no_descriptors(code):
        for _ in range(5):
            due_at = always.tick()
            executor.drain()
            due_at = always.tick()
            assert due_at is not None
            assert always.now < due_at <= always.now + RETRY_BACKOFF_S, "no job is begun again and again"
            assert not executor.work
            always.now = due_at
    assert not held.done
    assert always.broker.logs.flusher.has_unflushed
    assert caplog.text.count("flush postponed, retrying") == 1
    always.tick()
    executor.drain()
    assert held.done
    assert not held.hang_up
    assert not always.broker.logs.flusher.has_unflushed
    flusher.executor = InlineExecutor()
    assert [always.produce(name, batch(b"b")).error_code for name in ("t", "other")] == [0, 0]


def test_a_topic_that_could_not_be_synced_at_once_is_acknowledged_later(
    tmp_path: Path, executor: HandExecutor
) -> None:
    """With any policy; so it stays as urgent as it was."""
    hand = HandBroker(tmp_path / "data", fsync="interval")
    hand.broker.logs.flusher.executor = executor
    topic = CreateTopicsRequest.CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    reply = hand.send(CreateTopicsRequest(topics=[topic]))
    with no_descriptors():
        hand.tick()
        executor.finish()
    hand.tick()
    assert not reply.done
    hand.advance(RETRY_BACKOFF_S)
    executor.drain()
    assert reply.done
    hand.broker.close()


def test_closing_comes_to_an_end_while_descriptors_are_out(always: HandBroker, executor: HandExecutor) -> None:
    """What could not be synced is an error, and what was written is there all the same."""
    flusher = always.broker.logs.flusher
    always.send(produce_request("t", batch(b"a")), 9)
    with no_descriptors(), pytest.raises(OutOfDescriptorsError, match="Too many open files"):
        flusher.sync()
    flusher.sync()
    assert not always.broker.logs.flusher.has_unflushed
    always.broker.close()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOMEM])
def test_only_a_sync_that_was_begun_can_have_failed(
    always: HandBroker, executor: HandExecutor, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Whatever the code says: the pages may be gone."""

    def failing(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    held = always.send(produce_request("t", batch(b"a")), 9)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        always.tick()
        executor.drain()
    assert held.hang_up
    assert always.produce("t", batch(b"b")).error_code == KafkaStorageError.errno


def test_a_sync_has_the_descriptors_of_files_that_nobody_needs_now(tmp_path: Path) -> None:
    """The file that is synced stays open: of an error, only those who had it open are told."""
    pool = FilePool(8)
    for name in "abcd":
        pool.write(str(tmp_path / name), 0, b"x")
    duplicate = os.dup

    def scarce(fd: int) -> int:
        if len(pool) > 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return duplicate(fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "dup", scarce)
        borrowed = pool.duplicate(str(tmp_path / "a"))
    assert borrowed is not None
    os.close(borrowed)
    assert len(pool) == 2
    pool.close()


def test_a_file_is_replaced_whole_or_not_at_all_while_descriptors_are_out(tmp_path: Path) -> None:
    """The directory is opened before the file is replaced: an error means that the old file is there."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with no_descriptors(), pytest.raises(OutOfDescriptorsError):
        replace_file(str(path), b"new")
    assert path.read_bytes() == b"old"
    replace_file(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_log_that_goes_while_it_is_synced_is_not_reported(tmp_path: Path, executor: HandExecutor) -> None:
    flusher = LogFlusher(FlushPolicy.parse("always"), FilePool(), executor)
    gone, there = owner(tmp_path, "gone"), owner(tmp_path, "there")
    flusher.mark_dirty(gone)
    flusher.mark_dirty(there)
    flusher.tick(0.0)
    flusher.forget(gone)
    executor.finish()
    assert (gone.ends, there.ends) == ([], [None])


def test_a_directory_of_many_files_is_removed_bit_by_bit(tmp_path: Path, executor: HandExecutor) -> None:
    top = tmp_path / "topic.deleted"
    for partition in range(3):
        (top / str(partition)).mkdir(parents=True)
        for number in range(100):
            (top / str(partition) / f"{number}.log").write_bytes(b"x")
    deleter = FileDeleter(lambda: executor)
    deleter.add([str(top), str(tmp_path / "was never there")])
    rounds = 0
    while executor.work:
        executor.finish()
        rounds += 1
    assert not top.exists()
    assert 3 <= rounds <= 10
    assert len(deleter) == 0


def test_the_thread_does_one_piece_after_the_other_and_notifies_the_loop() -> None:
    loop = Loop()
    turns: list[int] = []
    thread = BackgroundThread(loop, lambda: turns.append(1))
    results: list[tuple[int, bool]] = []
    threads: set[int] = set()

    def work(number: int) -> int:
        threads.add(threading.get_ident())
        return number

    def done(found: int) -> None:
        results.append((found, threading.current_thread() is threading.main_thread()))

    for number in range(10):
        thread.run(partial(work, number), done)
    assert loop.run_until(lambda: len(results) == 10, 10.0)
    assert results == [(number, True) for number in range(10)]
    assert threads.isdisjoint({threading.get_ident()})
    assert len(threads) == 1
    assert turns
    thread.run(lambda: 10, done)
    thread.close()
    assert results[-1][0] == 10, "closing waits"
    loop.close()


def test_work_is_done_without_a_thread_while_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    thread = BackgroundThread(loop)
    done: list[int] = []

    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        thread.run(lambda: 1, done.append)
    assert done == [1]
    thread.run(lambda: 2, done.append)
    thread.close()
    assert done == [1, 2]
    loop.close()


@pytest.mark.parametrize("fsync", ["interval", "always"])
def test_a_disk_that_is_slow_to_sync_stops_nobody_elses_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str
) -> None:
    """Over sockets, with the server's own thread: while one ``fsync`` hangs, others are served."""
    running = RunningBroker(BrokerOptions(str(tmp_path), fsync=fsync))
    thread = threading.Thread(target=running.run)
    thread.start()
    hangs, may_end = threading.Event(), threading.Event()
    sync = os.fsync

    def slow(fd: int) -> None:
        hangs.set()
        assert may_end.wait(20.0)
        sync(fd)

    try:
        port = int(running.address.rpartition(":")[2])
        with RawClient(port) as writer, RawClient(port) as reader:
            create = CreateTopicsRequest.CreatableTopic(
                name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            writer.ask(CreateTopicsRequest(topics=[create]))
            first = produce_request("t", batch(b"a"))
            writer.ask(first, 9)
            monkeypatch.setattr(os, "fsync", slow)
            request = produce_request("t", batch(b"b"))
            writer.send(request, 9)
            if fsync == "interval":
                assert writer.receive(request, 9).responses[0].partition_responses[0].error_code == 0
            assert hangs.wait(20.0)
            for _ in range(20):
                assert values(fetched(reader.ask(fetch_request("t"), 12))[0].records) == [b"a", b"b"]
            if fsync == "interval":
                more = produce_request("t", batch(b"c"))
                assert writer.ask(more, 9).responses[0].partition_responses[0].base_offset == 2
            may_end.set()
            if fsync == "always":
                assert writer.receive(request, 9).responses[0].partition_responses[0].base_offset == 1
    finally:
        may_end.set()
        running.stop()
        thread.join(20.0)
    assert not thread.is_alive()
