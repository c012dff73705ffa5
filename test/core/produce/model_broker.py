"""Two brokers that a sender talks to without a network: logs, what a leader knows of producers, and wires.

The rules are those of Apache Kafka's ``ProducerAppendInfo`` and ``ProducerStateEntry``: five batches are remembered for
each producer and partition; a repetition of one of them is answered with its offset; a leader that knows nothing of a
producer takes any sequence (since 2.5), or refuses all but 0 with UNKNOWN_PRODUCER_ID (before).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafka.core.produce.sender import SendBatches
from kafka.protocol.produce import ProduceResponse
from kafka.records import decode_records, iter_batches

REMEMBERED: Final = 5
MASK: Final = 0x7FFFFFFF

NOT_LEADER: Final = 6
TOO_LARGE: Final = 10
OUT_OF_ORDER: Final = 45
INVALID_EPOCH: Final = 47
UNKNOWN_PRODUCER: Final = 59

Answer = tuple[int, int, int]
"""Error code, base offset, log start offset."""


class Known(NamedTuple):
    """What a leader remembers of a producer: (first sequence, last sequence, offset) of its last batches."""

    epoch: int
    batches: tuple[tuple[int, int, int], ...]


class Partition:
    """One log, which all leaders share: what is appended here is replicated."""

    def __init__(self, *, is_old: bool) -> None:
        self.values: list[int] = []
        self.producers: dict[int, Known] = {}
        self.leader = 1
        self.leader_epoch = 0
        self.most_records = 1000
        """More in one batch are too large."""
        self.is_old = is_old

    def append(self, data: bytes) -> Answer:
        (header,) = iter_batches(data)
        records = decode_records(data, header)
        values = [int(record.value or b"") for record in records]
        if len(records) > self.most_records:  # before repetitions are looked for, as in Apache Kafka's UnifiedLog
            return TOO_LARGE, -1, 0
        if not header.has_producer_id:
            self.values += values
            return 0, len(self.values) - len(values), 0
        first = header.base_sequence
        last = (first + len(records) - 1) & MASK
        known = self.producers.get(header.producer_id)
        if known is not None and header.producer_epoch == known.epoch:
            for begin, end, offset in known.batches:
                if (begin, end) == (first, last):
                    return 0, offset, 0
        if known is None:
            if self.is_old and first != 0:
                return UNKNOWN_PRODUCER, -1, 0
        elif header.producer_epoch < known.epoch:
            return INVALID_EPOCH, -1, 0
        elif header.producer_epoch > known.epoch:
            if first != 0:
                return OUT_OF_ORDER, -1, 0
            known = None
        elif known.batches and first != (known.batches[-1][1] + 1) & MASK:
            return OUT_OF_ORDER, -1, 0
        offset = len(self.values)
        self.values += values
        batches = (*(known.batches if known is not None else ()), (first, last, offset))
        self.producers[header.producer_id] = Known(header.producer_epoch, batches[-REMEMBERED:])
        return 0, offset, 0

    def knows(self, data: bytes) -> bool:
        (header,) = iter_batches(data)
        return header.producer_id in self.producers or header.base_sequence <= 0


class Brokers:
    """Nodes 1 and 2. Each has one wire: requests come in the order of sending, and answers in the order of requests.
    ``ghosts`` are requests whose wire was cut after they had been written: they are handled some time later."""

    def __init__(self, partitions: int, topic_id: Any, *, is_old: bool) -> None:
        self.topic_id = topic_id
        self.partitions = [Partition(is_old=is_old) for _ in range(partitions)]
        self.unhandled: dict[int, list[SendBatches]] = {1: [], 2: []}
        self.answered: dict[int, list[tuple[SendBatches, ProduceResponse]]] = {1: [], 2: []}
        self.ghosts: list[SendBatches] = []

    def send(self, call: SendBatches) -> None:
        self.unhandled[call.node].append(call)

    def handle(self, node: int, refuse: dict[int, int] | None = None, lie: dict[int, int] | None = None) -> None:
        """The next request of the wire. ``refuse``: partition -> code without an append; ``lie``: after one."""
        call = self.unhandled[node].pop(0)
        self.answered[node].append((call, self.response(call, refuse or {}, lie or {})))

    def handle_ghost(self) -> None:
        self.response(self.ghosts.pop(0), {}, {})

    def cut(self, node: int, written: int) -> list[SendBatches]:
        """The wire ends. Of what was not handled, so many were written and become ghosts. What has no answer now."""
        lost = [call for call, _ in self.answered[node]] + self.unhandled[node]
        self.ghosts += self.unhandled[node][:written]
        self.answered[node] = []
        self.unhandled[node] = []
        return lost

    def response(self, call: SendBatches, refuse: dict[int, int], lie: dict[int, int]) -> ProduceResponse:
        answers = []
        for topic in call.request.topic_data:
            for data in topic.partition_data:
                partition = self.partitions[data.index]
                records = data.records
                assert isinstance(records, bytes)
                code, offset, start = refuse.get(data.index, 0), -1, -1
                if not code and partition.leader != call.node:
                    code = NOT_LEADER
                if code and not partition.knows(records):
                    code = 0 if partition.leader == call.node else NOT_LEADER
                if not code:
                    code, offset, start = partition.append(records)
                    if not code and data.index in lie:
                        code, offset, start = lie[data.index], -1, -1
                answers.append(
                    ProduceResponse.PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=offset, log_start_offset=start
                    )
                )
        return ProduceResponse(
            responses=[ProduceResponse.TopicProduceResponse(topic_id=self.topic_id, partition_responses=answers)]
        )
