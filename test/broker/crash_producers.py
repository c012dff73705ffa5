"""Work of those who write, while their broker dies and comes again (``crash_load.py``): records once and in order,
transactions whole, the last value of each key, topics."""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.produce import ProduceRequest
from kafka.protocol.topics import CreateTopicsRequest
from kafka.protocol.transactions import InitProducerIdRequest
from kafka.records import RecordBatchBuilder
from test.broker.crash_load import (
    Client,
    Progress,
    Worker,
    earliest,
    epoch_ms,
    read,
    settled,
)
from test.broker.driver import batch, produce_request
from test.broker.transactions import txn


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


class Creator(Worker):
    """Topics, one after the other. Promise: what was made is there."""

    def __init__(self, port: int, progress: Progress) -> None:
        super().__init__(port, progress)
        self.count = 0

    def work(self, client: Client) -> None:
        while not self.is_over.is_set():
            topic_request = CreateTopicsRequest.CreatableTopic(
                name=f"topic-{self.count}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            # 36: it was made, and the answer was lost
            assert client.ask(CreateTopicsRequest(topics=[topic_request])).topics[0].error_code in (0, 36)
            self.count += 1
            self.progress.note()
            self.is_over.wait(0.02)  # so that there are hundreds, not thousands

    def check(self, client: Client, *, is_last: bool) -> None:
        names = {topic.name for topic in client.ask(MetadataRequest(topics=None)).topics}
        assert {f"topic-{number}" for number in range(self.count)} <= names
