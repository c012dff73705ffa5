"""Clients that go on over every death of their broker, and remember what it has promised them.

Each :class:`Worker` is a thread with a connection. When the connection ends it makes another one and takes up what it
had begun, as a good client does; what it noted is checked against the broker by :meth:`Worker.check`, after a start and
at the end. A new kind of work is a class more, and a line in ``test_killed_under_load.py``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from kafka.protocol.fetch import FetchRequest
from kafka.protocol.list_offsets import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.produce import ProduceRequest
from kafka.protocol.share import DescribeShareGroupOffsetsRequest, ShareAcknowledgeRequest, ShareFetchRequest
from kafka.protocol.topics import CreateTopicsRequest
from kafka.protocol.transactions import InitProducerIdRequest
from kafka.records import RecordBatchBuilder, decode_records
from test.broker.driver import batch, fetch_request, fetched, plain, produce_request, shown_batches
from test.broker.groups import requests as groups
from test.broker.raw_client import RawClient
from test.broker.transactions import txn

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
    give_up_at = time.monotonic() + DEADLINE_S
    while True:
        code = attempt()
        if code not in NOT_YET:
            return code
        assert time.monotonic() < give_up_at, f"still {code} after {DEADLINE_S:g} s"


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
    wanted = L.ListOffsetsPartition(partition_index=partition, timestamp=-2)
    request = L(replica_id=-1, topics=[L.ListOffsetsTopic(name=topic, partitions=[wanted])])
    return client.ask(request, 5).topics[0].partitions[0].offset


class _Sent(NamedTuple):
    partition: int
    first: int
    count: int
    request: ProduceRequest


class IdempotentProducer(Worker):
    """Batches of one to three records for the partitions of a topic, some ahead of their answers; after a reconnect all
    without an answer again, as they were. Promise: each record once, in order, none lost."""

    AHEAD: Final = 4
    """Of each partition; a broker remembers five."""

    def __init__(self, port: int, progress: Progress, topic: str, partitions: int) -> None:
        super().__init__(port, progress)
        self.topic = topic
        self.partitions = partitions
        self._producer: tuple[int, int] | None = None
        self._made = [0] * partitions
        self.acknowledged = [0] * partitions
        self._under_way: list[_Sent] = []
        self._next = 0
        self._seen: list[int] = [0] * partitions
        self._offset: list[int] = [0] * partitions

    def work(self, client: Client) -> None:
        if self._producer is None:
            answer = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
            assert answer.error_code == 0
            self._producer = (answer.producer_id, answer.producer_epoch)
        self._send_again(client)
        while not self.is_over.is_set():
            while len(self._under_way) < self.AHEAD:
                self._under_way.append(self._make())
                client.send(self._under_way[-1].request, 9)
            self._take(client)

    def finish(self, client: Client) -> None:
        self._send_again(client)
        while self._under_way:
            self._take(client)

    def _send_again(self, client: Client) -> None:
        for sent in self._under_way:
            client.send(sent.request, 9)

    def _make(self) -> _Sent:
        partition = self._next % self.partitions
        first, count = self._made[partition], 1 + self._next % 3
        self._next += 1
        self._made[partition] += count
        assert self._producer is not None
        made = (b"%d" % number for number in range(first, first + count))
        data = batch(*made, timestamp=epoch_ms(), producer=(*self._producer, first))
        return _Sent(partition, first, count, produce_request(self.topic, data, partition))

    def _take(self, client: Client) -> None:
        sent = self._under_way[0]
        answer = client.receive(sent.request, 9).responses[0].partition_responses[0]
        assert answer.error_code == 0, f"batch from {sent.first} on: {answer}"
        assert answer.base_offset == sent.first, f"{answer} to the batch from {sent.first} on: it went in twice"
        self._under_way.pop(0)
        self.acknowledged[sent.partition] = sent.first + sent.count
        self.progress.note()

    def check(self, client: Client, *, is_last: bool) -> None:
        for partition in range(self.partitions):
            found = read(client, self.topic, partition, self._offset[partition])
            for offset, _, value in found.shown:
                assert value == b"%d" % offset == b"%d" % self._seen[partition], "each record once, in order"
                self._seen[partition] += 1
            self._offset[partition] = found.next_offset
            known = self.acknowledged[partition]
            seen, made = self._seen[partition], self._made[partition]
            assert known <= seen <= made, f"{self.topic}-{partition}: {known} acknowledged, {seen} found, {made} sent"
            if is_last:
                assert self._seen[partition] == self._made[partition]


class Transactions(Worker):
    """A transaction after the other: a record for each of two partitions and the offset of a group; two are committed,
    the third is aborted. After a reconnect a new epoch. Promise: an answered outcome holds, one without answer is all
    or nothing, and nothing that was not to be committed is shown."""

    def __init__(self, port: int, progress: Progress, topic: str, name: str, version: int) -> None:
        super().__init__(port, progress)
        self.topic = topic
        self.name = name
        self.group = f"group-of-{name}"
        self._version = version
        self.number = 0
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.unknown: set[int] = set()
        """The answer to their commit was lost."""
        self._shown: tuple[set[int], set[int]] = (set(), set())
        self._offset = [0, 0]

    def work(self, client: Client) -> None:
        producer = (-1, -1)

        def begin() -> int:
            nonlocal producer
            answer = txn.init(client, self.name)
            producer = answer[1:]
            return answer.code

        assert settled(begin) == 0
        sequences = [0, 0]
        while not self.is_over.is_set():
            self.number += 1
            number = self.number
            wants = number % 3 != 0
            for partition in range(2):
                self._produce(client, producer, sequences[partition], partition, number)
                sequences[partition] += 1
            if self._version < 5:
                assert settled(partial(txn.add_group, client, self.name, producer, self.group)) == 0
            commit = partial(txn.commit_offset, client, self.name, producer, self.group, self.topic, number)
            code = settled(partial(commit, version=self._version))
            assert code == 0
            if wants:
                self.unknown.add(number)
            answer = txn.end(client, self.name, producer, wants, self._version)
            assert answer.code == 0, answer
            self.unknown.discard(number)
            (self.committed if wants else self.aborted).add(number)
            self.progress.note()
            if self._version >= 5 and answer[1:] != producer:
                producer = answer[1:]
                sequences = [0, 0]

    def prepare(self, client: Client) -> None:
        # whoever comes next is let in, and ends what was open: so it hides nothing of the other's
        assert settled(lambda: txn.init(client, self.name).code) == 0

    def _produce(self, client: Client, producer: tuple[int, int], sequence: int, partition: int, number: int) -> None:
        if self._version < 5:
            assert settled(lambda: txn.add(client, self.name, producer, self.topic, (partition,))[0]) == 0
        version = txn.NEW if self._version >= 5 else txn.OLD
        value = b"%s %d" % (self.name.encode(), number)
        code = settled(
            lambda: txn.produce(
                client, self.name, producer, sequence, self.topic, value, partition=partition, version=version
            ).error_code
        )
        assert code == 0, code
        self.progress.note()

    def check(self, client: Client, *, is_last: bool) -> None:
        mine = self.name.encode() + b" "
        for partition in range(2):
            found = read(client, self.topic, partition, self._offset[partition], txn.READ_COMMITTED)
            numbers = [int(value[len(mine) :]) for _, _, value in found.shown if value and value.startswith(mine)]
            assert len(set(numbers)) == len(numbers) and not self._shown[partition] & set(numbers), "shown twice"
            self._shown[partition].update(numbers)
            self._offset[partition] = found.next_offset
            assert found.next_offset == found.end == found.stable, "nothing holds the stable offset"
        assert self._shown[0] == self._shown[1], "a transaction is all or nothing"
        both = self._shown[0] & self._shown[1]
        assert self.committed <= both, f"committed and lost: {sorted(self.committed - both)}"
        for shown in self._shown:
            more = shown - self.committed
            assert more <= self.unknown, f"shown, and never to be committed: {sorted(more - self.unknown)}"
        if is_last:
            code, offset = txn.committed(client, self.group, self.topic, stable=True)
            assert (code, offset) == (0, max(both, default=-1)), "the offset came and went with its transaction"


class Member(Worker):
    """A member of a group, by the classic protocol or the new one, that commits offsets. Promise: it goes on after a
    restart as if nothing had been, and offsets never go back."""

    def __init__(self, port: int, progress: Progress, topic: str, is_classic: bool) -> None:
        super().__init__(port, progress)
        self.topic = topic
        self.group = "classic" if is_classic else "new"
        self._is_classic = is_classic
        self._member = "" if is_classic else "member-1"
        self._generation = -1
        self.offset = -1
        self.beats_after_restarts = 0

    def work(self, client: Client) -> None:
        if self._generation < 0:
            self._join(client)
        else:
            self._beat(client)
            self.beats_after_restarts += 1
        while not self.is_over.is_set():
            offset = self.offset + 1
            request = groups.commit(self.group, self.topic, {0: offset}, self._generation, self._member)
            assert settled(lambda request=request: groups.codes(client.ask(request, 9))[0]) == 0  # type: ignore[misc]
            self.offset = offset
            self.progress.note()
            if offset % 8 == 0:
                self._beat(client)

    def _join(self, client: Client) -> None:
        if not self._is_classic:
            answer = client.ask(groups.consumer(self.group, self._member, 0, [self.topic]))
            assert answer.error_code == 0, answer
            self._generation = answer.member_epoch
            return
        joined = client.ask(groups.join(self.group, self._member, session_ms=60_000, rebalance_ms=2_000), 5)
        if joined.error_code == 79:
            self._member = joined.member_id
        elif joined.error_code:
            assert joined.error_code in (25, *NOT_YET), joined
            self._member = ""
        else:
            request = groups.sync(self.group, joined.generation_id, self._member, {self._member: b"all"})
            synced = client.ask(request, 3)
            if synced.error_code == 0:
                self._generation = joined.generation_id
                return
            assert synced.error_code in (22, 25, 27, *NOT_YET), synced
        self._join(client)

    def _beat(self, client: Client) -> None:
        if self._is_classic:
            beat = groups.beat(self.group, self._generation, self._member)
            code = settled(lambda: client.ask(beat, 4).error_code)
            assert code == 0, f"the member was to go on without a rebalance: {code}"
            return
        answer = client.ask(groups.consumer(self.group, self._member, self._generation, owned={}))
        assert answer.error_code == 0, f"the member was to go on: {answer}"
        self._generation = answer.member_epoch

    def check(self, client: Client, *, is_last: bool) -> None:
        request = groups.fetch(self.group, self.topic)
        (found,) = groups.offsets(client.ask(request, 9))
        assert self.offset <= found <= self.offset + 1, f"offset {found} after {self.offset} was acknowledged"


class CompactedWriter(Worker):
    """Values for a few keys, over and over, of a topic that is compacted all the time. Promise: the latest value of
    each key stays, and their order."""

    KEYS: Final = 20

    def __init__(self, port: int, progress: Progress, topic: str) -> None:
        super().__init__(port, progress)
        self.topic = topic
        self._number = 0
        self.acknowledged: dict[bytes, int] = {}

    def work(self, client: Client) -> None:
        while not self.is_over.is_set():
            self._number += 1
            number, key = self._number, b"k%d" % (self._number % self.KEYS)
            builder = RecordBatchBuilder(1 << 20)
            builder.append(client.epoch_ms, key, b"%d" % number)
            request = produce_request(self.topic, builder.build())
            answer = client.ask(request, 9).responses[0].partition_responses[0]
            assert answer.error_code == 0, answer
            self.acknowledged[key] = number
            self.progress.note()

    def check(self, client: Client, *, is_last: bool) -> None:
        found = read(client, self.topic, 0, 0)
        numbers = [int(value) for _, _, value in found.shown if value is not None]
        assert numbers == sorted(numbers)
        latest = {key: int(value) for _, key, value in found.shown if key is not None and value is not None}
        for key, number in self.acknowledged.items():
            assert latest.get(key, -1) >= number, f"{key!r}: {latest.get(key)} is left where {number} was acknowledged"
        self.length = len(numbers)


class Expiring(IdempotentProducer):
    """A topic whose old segments are deleted all the time. Promise: its beginning never goes back, and what is behind
    that is whole."""

    def __init__(self, port: int, progress: Progress, topic: str) -> None:
        super().__init__(port, progress, topic, 1)
        self.start_offset = 0

    def check(self, client: Client, *, is_last: bool) -> None:
        start = earliest(client, self.topic)
        assert start >= self.start_offset, f"the beginning went back from {self.start_offset} to {start}"
        found = read(client, self.topic, 0, start)
        self.start_offset = start
        shown = [offset for offset, _, value in found.shown if value == b"%d" % offset]
        first = found.shown[0][0] if shown else found.end  # it may have gone on meanwhile
        assert shown == list(range(first, found.end)), "what is left is whole and in order"
        assert found.end >= self.acknowledged[0], "no acknowledged record is lost but to the rule"


class ShareMember(Worker):
    """Takes records of a share group and accepts them. Promise: what was accepted does not come again, all else
    does."""

    GROUP: Final = "share"

    def __init__(self, port: int, progress: Progress, topic: str, topic_id: UUID) -> None:
        super().__init__(port, progress)
        self.topic = topic
        self.topic_id = topic_id
        self.accepted: set[int] = set()
        self.sent: set[int] = set()
        """Accepted perhaps: of some the answer was lost."""

    def work(self, client: Client) -> None:
        epoch = 0
        while not self.is_over.is_set():
            epoch = self._turn(client, epoch)

    def _turn(self, client: Client, epoch: int) -> int:
        ranges = self._acquire(client, epoch)
        epoch += 1
        for first, last in ranges:
            again = self.accepted.intersection(range(first, last + 1))
            assert not again, f"accepted and delivered again: {sorted(again)}"
        for first, last in ranges:
            self.sent.update(range(first, last + 1))
            self._accept(client, epoch, first, last)
            epoch += 1
            self.accepted.update(range(first, last + 1))
            self.progress.note()
        return epoch

    def _acquire(self, client: Client, epoch: int) -> list[tuple[int, int]]:
        F = ShareFetchRequest
        partition = F.FetchPartition(partition_index=0, acknowledgement_batches=[])
        request = F(
            group_id=self.GROUP,
            member_id="m",
            share_session_epoch=epoch,
            max_wait_ms=20,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=20,
            batch_size=20,
            share_acquire_mode=1,
            topics=[F.FetchTopic(topic_id=self.topic_id, partitions=[partition])] if epoch == 0 else [],
            forgotten_topics_data=[],
        )
        answer = client.ask(request)
        assert answer.error_code == 0, answer
        return [
            (found.first_offset, found.last_offset)
            for topic in answer.responses
            for one in topic.partitions
            for found in one.acquired_records
        ]

    def _accept(self, client: Client, epoch: int, first: int, last: int) -> None:
        A = ShareAcknowledgeRequest
        acks = A.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[1])
        partitions = [A.AcknowledgePartition(partition_index=0, acknowledgement_batches=[acks])]
        request = A(
            group_id=self.GROUP,
            member_id="m",
            share_session_epoch=epoch,
            topics=[A.AcknowledgeTopic(topic_id=self.topic_id, partitions=partitions)],
        )
        answer = client.ask(request)
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0), answer

    def check(self, client: Client, *, is_last: bool) -> None:
        if not is_last:
            return
        end = read(client, self.topic, 0, 0).end
        give_up_at = time.monotonic() + DEADLINE_S
        epoch = 0
        while True:
            epoch = self._turn(client, epoch)  # the group is on the partition from now on, so the lag is exact
            if self._lag(client) == 0:
                break
            assert time.monotonic() < give_up_at, f"{self._lag(client)} records are not delivered"
        assert self.accepted <= set(range(end)) <= self.accepted | self.sent, "each record was delivered"

    def _lag(self, client: Client) -> int:
        """How many records the group has not done."""
        D = DescribeShareGroupOffsetsRequest
        topic = D.DescribeShareGroupOffsetsRequestTopic(topic_name=self.topic, partitions=[0])
        wanted = D.DescribeShareGroupOffsetsRequestGroup(group_id=self.GROUP, topics=[topic])
        return client.ask(D(groups=[wanted])).groups[0].topics[0].partitions[0].lag


class Creator(Worker):
    """Topics, one after the other. Promise: what was made is there."""

    def __init__(self, port: int, progress: Progress) -> None:
        super().__init__(port, progress)
        self.count = 0

    def work(self, client: Client) -> None:
        while not self.is_over.is_set():
            wanted = CreateTopicsRequest.CreatableTopic(
                name=f"topic-{self.count}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            # 36: it was made, and the answer was lost
            assert client.ask(CreateTopicsRequest(topics=[wanted])).topics[0].error_code in (0, 36)
            self.count += 1
            self.progress.note()
            self.is_over.wait(0.02)  # so that there are hundreds, not thousands

    def check(self, client: Client, *, is_last: bool) -> None:
        names = {topic.name for topic in client.ask(MetadataRequest(topics=None)).topics}
        assert {f"topic-{number}" for number in range(self.count)} <= names


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


def topic_id_of(client: RawClient, name: str) -> UUID:
    topics = [MetadataRequest.MetadataRequestTopic(name=name)]
    return client.ask(MetadataRequest(topics=topics)).topics[0].topic_id
