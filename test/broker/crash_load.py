"""Clients that go on over every death of their broker, and remember what it has promised them.

Each :class:`Worker` is a thread with a connection. When the connection ends it makes another one and takes up what it
had begun, as a good client does; what it noted is checked against the broker by :meth:`Worker.check`, after a start and
at the end. The kinds of work are in ``crash_producers.py`` and ``crash_members.py``; a new one is a class there, and a
line in ``test_killed_under_load.py``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from uuid import UUID

from kafka.protocol.fetch import FetchRequest
from kafka.protocol.list_offsets import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.records import decode_records
from test.broker.driver import fetch_request, fetched, plain, shown_batches
from test.broker.raw_client import RawClient
from test.support.waiting import until

DEADLINE_S: Final = 30.0
NOT_YET: Final = {14, 15, 16, 51}
"""Loading, no coordinator, not the coordinator, concurrent transactions: ask again."""


class Progress:
    """How many answers all workers have had; a kill is due at the n-th one."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()
        self.faults: list[BaseException] = []

    def note(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.faults.append(error)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Until there were so many more answers."""
        with self._changed:
            target = self._count + count
            found = self._changed.wait_for(lambda: self._count >= target or self.faults, DEADLINE_S)
        if self.faults:
            raise self.faults[0]
        assert found, f"no {count} answers within {DEADLINE_S:g} s: something hangs"


class Client(RawClient):
    """A connection whose answers count. What :mod:`test.broker.transactions.txn` calls an asker, too."""

    def __init__(self, port: int) -> None:
        super().__init__(port)

    @property
    def epoch_ms(self) -> int:
        return epoch_ms()


def epoch_ms() -> int:
    """Old records would go with the first look of retention."""
    return int(time.time() * 1000)


class Worker:
    """One thread of the load."""

    def __init__(self, port: int, progress: Progress) -> None:
        self.port = port
        self.progress = progress
        self.is_over = threading.Event()
        self._turnstile = threading.Condition()
        self._is_open = False
        self._is_outside = True
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def open(self, is_open: bool) -> None:
        """Whether it may have a connection."""
        with self._turnstile:
            self._is_open = is_open
            self._turnstile.notify_all()

    def wait_outside(self) -> None:
        """Until it has no connection, so that what it knows stands still."""
        with self._turnstile:
            found = self._turnstile.wait_for(lambda: self._is_outside or self.progress.faults, DEADLINE_S)
        assert found, f"{type(self).__name__} hangs"

    def _may_go_on(self) -> bool:
        with self._turnstile:
            self._is_outside = True
            self._turnstile.notify_all()
            self._turnstile.wait_for(lambda: self._is_open)
            self._is_outside = False
        return not self.is_over.is_set()

    def stop(self) -> None:
        self.is_over.set()
        self.open(True)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{type(self).__name__} hangs"

    def _run(self) -> None:
        try:
            while True:
                if not self._may_go_on():
                    return
                with contextlib.suppress(ConnectionError, EOFError), Client(self.port) as client:
                    self.work(client)
        except BaseException as error:  # noqa: BLE001  # the test tells it
            error.add_note(f"in {type(self).__name__}") if hasattr(error, "add_note") else None
            self.progress.fail(error)

    def work(self, client: Client) -> None:
        """Go on until ``is_over``; the connection may end at any moment."""
        raise NotImplementedError

    def prepare(self, client: Client) -> None:
        """Before anybody's :meth:`check`."""

    def finish(self, client: Client) -> None:
        """At the very end: take up what was begun, and bring it to an end."""

    def check(self, client: Client, *, is_last: bool) -> None:
        """Compare promises with facts; AssertionError. While this runs, :meth:`work` does not."""


def settled(attempt: Callable[[], int]) -> int:
    """Ask until the code says something; the code."""
    codes: list[int] = []

    def is_settled() -> bool:
        codes.append(attempt())
        return codes[-1] not in NOT_YET

    until(is_settled, within_s=DEADLINE_S, shown=lambda: f"still {codes[-1]}")
    return codes[-1]


class Records(NamedTuple):
    """What a fetch has shown."""

    shown: list[tuple[int, bytes | None, bytes | None]]
    """Offset, key, value; with read_committed without what was aborted."""
    next_offset: int
    end: int
    """The high watermark."""
    stable: int
    start: int


def read(client: RawClient, topic: str, partition: int, offset: int, isolation: int = 0) -> Records:
    """All from an offset on."""
    shown: list[tuple[int, bytes | None, bytes | None]] = []
    while True:
        request: FetchRequest = fetch_request(topic, [0] * partition + [offset])
        request.isolation_level = isolation
        request.topics[0].partitions = request.topics[0].partitions[partition:]
        (answer,) = fetched(client.ask(request, 11))
        if answer.error_code == 1:  # behind a log's moved beginning
            offset = answer.log_start_offset if answer.log_start_offset > offset else earliest(client, topic, partition)
            continue
        assert answer.error_code == 0, answer
        data = plain(answer.records)
        if not data:
            return Records(
                shown, offset, answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
            )
        for header, is_shown in shown_batches(answer):
            if is_shown:
                shown += [
                    (one.offset, one.key, one.value) for one in decode_records(data, header) if one.offset >= offset
                ]
            offset = max(offset, header.next_offset)


def earliest(client: RawClient, topic: str, partition: int = 0) -> int:
    L = ListOffsetsRequest
    partition_request = L.ListOffsetsPartition(partition_index=partition, timestamp=-2)
    request = L(replica_id=-1, topics=[L.ListOffsetsTopic(name=topic, partitions=[partition_request])])
    return client.ask(request, 5).topics[0].partitions[0].offset


def topic_id_of(client: RawClient, name: str) -> UUID:
    topics = [MetadataRequest.MetadataRequestTopic(name=name)]
    return client.ask(MetadataRequest(topics=topics)).topics[0].topic_id


class Load:
    """All workers, on a broker that is killed."""

    def __init__(self, workers: list[Worker], progress: Progress) -> None:
        self.workers = workers
        self.progress = progress

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        for worker in self.workers:
            worker.start()
        try:
            yield
        finally:
            for worker in self.workers:
                worker.is_over.set()
            for worker in self.workers:
                worker.stop()

    def go(self) -> None:
        for worker in self.workers:
            worker.open(True)

    def hold(self, end: Callable[[], None]) -> None:
        """Call ``end``, which ends all connections, and let nobody have a new one."""
        for worker in self.workers:
            worker.open(False)
        end()
        for worker in self.workers:
            worker.wait_outside()
        if self.progress.faults:
            raise self.progress.faults[0]

    def check(self, port: int, *, is_last: bool = False) -> None:
        """While held: ask a broker about everything that was promised."""
        for worker in self.workers:
            with Client(port) as client:
                worker.prepare(client)
                if is_last:
                    worker.finish(client)
        for worker in self.workers:
            with Client(port) as client:
                worker.check(client, is_last=is_last)
