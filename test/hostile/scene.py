"""The broker that hostile requests meet: one that has topics, groups, producers and settings, on a manual clock.

:class:`Scene` carries a request through all that a server would do with it in one turn, and measures that turn.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from kafka.broker.config import BROKER_SETTINGS
from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.broker.topics import MAX_PARTITIONS_PER_REQUEST
from kafka.core.serving import ServerConnection
from kafka.errors import KafkaProtocolError
from kafka.protocol.framing import encode_request
from kafka.wire.message import Request, Struct, fields_of
from kafka.wire.types import ZERO_UUID
from test.broker.driver import HandBroker, batch

SETTINGS: Final = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}
TOPICS: Final = ("t", "c")
"""The second one is compacted."""


class Turn(NamedTuple):
    """What one request cost. ``cpu_s``: the longest time that the loop would have been busy for it, as CPU time of the
    process, so that other processes do not count. ``outcome``: ``answered``, ``waits``, ``refused`` (its bytes) or
    ``hung up``."""

    cpu_s: float
    answer_bytes: int
    outcome: str


class Scene:
    """A broker on ``data_dir``, with a topic of ``partitions``: as many as one request may make, if not told."""

    def __init__(self, data_dir: Path, partitions: int = MAX_PARTITIONS_PER_REQUEST - 1) -> None:
        self.hand = HandBroker(data_dir, SETTINGS, telemetry=True)
        if self.hand.broker.metadata.topic("t") is None:
            self.hand.create_topic("t", partitions)
            self.hand.create_topic("c", cleanup_policy="compact")
            self.hand.produce("t", batch(*[b"v"] * 100))
        self.max_bytes = int(BROKER_SETTINGS["socket.request.max.bytes"].default)

    def frame(self, request: Request[Any], version: int) -> bytes:
        """The request with its length in front; topics that it knows are named by their ids, where the version does."""
        self._name_topics(request, version)
        return b"".join(encode_request(request, version, 7, "hostile"))

    def turn(self, frame: bytes, connection: ConnectionContext | None = None) -> Turn:
        """Receive, decode, handle, encode, tick; then what comes due within two seconds."""
        broker = self.hand.broker
        connection = connection or ConnectionContext()
        machine = ServerConnection(self.max_bytes, decode=broker.release.decode)
        answers: list[bytes] = []

        def answer(reply: PendingResponse) -> None:
            if not reply.hang_up:
                answers.append(b"".join(machine.answer(reply.response, reply.version)))

        started = time.process_time()
        machine.receive(frame)
        try:
            received = machine.next_request()
        except KafkaProtocolError:
            return Turn(time.process_time() - started, 0, "refused")
        assert received is not None
        reply = broker.handle(connection, received, self.hand.now)
        if reply.done:
            answer(reply)
        else:
            reply.call_when_done(answer)
        del received
        self.hand.tick()
        worst = time.process_time() - started
        outcome = "answered" if answers else "hung up" if reply.done else "waits"
        for after_s in (0.0, 0.2, 2.0):
            self.hand.now += after_s
            started = time.process_time()
            self.hand.tick()
            worst = max(worst, time.process_time() - started)
        started = time.process_time()
        broker.disconnected(connection, self.hand.now)
        self.hand.tick()
        worst = max(worst, time.process_time() - started)
        return Turn(worst, sum(map(len, answers)), outcome)

    def _name_topics(self, made: Struct, version: int) -> None:
        by_name = {name: self.hand.broker.topic(name).topic_id for name in TOPICS}

        def walk(one: Struct) -> None:
            fields = {each.name: each for each in fields_of(type(one)) if each.spec.present(version)}
            if "topic_id" in fields and one.topic_id == ZERO_UUID and "topic" not in fields:  # type: ignore[attr-defined]
                name = getattr(one, "name", None) or "t"
                one.topic_id = by_name.get(name, ZERO_UUID)  # type: ignore[attr-defined]
            for name in fields:
                value = getattr(one, name)
                for below in value if isinstance(value, list) else (value,):
                    if not isinstance(below, Struct):
                        break
                    walk(below)

        walk(made)

