"""Requests by chance for a broker: any field of any version, with values that mean something where they were learnt.

:class:`Learner` keeps what answers have told (ids of members, producers, sessions, topics; epochs), so that requests
get behind the first check of a handler; :class:`RandomFrames` makes frames, whole ones or spoiled; :class:`Bench`
runs a broker without sockets, as its server does, and collects what must not be: exceptions, logged tracebacks,
answers that are no answers, turns that take too long.
"""

from __future__ import annotations

import copy
import logging
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.broker.topics import create_topic
from kafka.core.serving import ServerConnection
from kafka.errors import IllegalArgumentError, KafkaError, KafkaProtocolError
from kafka.protocol.configs import IncrementalAlterConfigsRequest
from kafka.protocol.framing import decode_response, encode_request
from kafka.protocol.groups import ConsumerGroupHeartbeatRequest, JoinGroupRequest
from kafka.protocol.registry import REGISTRY
from kafka.records import GZIP, NONE, RecordBatchBuilder
from kafka.wire.message import Field, FieldType, Request, Struct, fields_of
from kafka.wire.types import ZERO_UUID
from test.broker.driver import HandBroker

BITS: Final = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}
LONG_TEXT: Final = "x" * 32767
TEXTS: Final = [
    "", "t", "c", "u", "g", "h", "s", "x", "missing", "a b", ".", "..", "/", "../../etc", "\0", "ä" * 10, "1",
    "a" * 249, "a" * 250,
    "__consumer_offsets", "__transaction_state", "__share_group_state", "range", "uniform", "roundrobin",
    "consumer", "simple",
    "[", "t.*", "(a+)+$", "(?P<", "*", "User:ANONYMOUS", "host", "rack", "compact", "delete", "0", "-1",
    "99999999999999999999",
    "nan", "cleanup.policy", "retention.ms", "segment.bytes", "earliest", "latest", "by_duration:P1D", "by_duration:P",
    "read_committed", "share.auto.offset.reset", "share.isolation.level", "message.max.bytes", "max.connections",
    "metadata.version", "group.version", "share.version", "streams.version", "transaction.version", "true",
    "producer_byte_rate", "user", "client-id", "ip", "127.0.0.1", "SCRAM-SHA-256", "PLAIN", "\ud7ff", "\U0010ffff",
    LONG_TEXT,
]  # fmt: skip
NUMBERS: Final = [0, 0, 0, 1, 1, 2, 3, 5, 7, 10, 16, 50, 100, 1000, 5000, 30_000, 60_000, -1, -1, -2, -3, -4, -5]
LEARNT: Final = (
    "member_id", "producer_id", "producer_epoch", "session_id", "topic_id", "generation_id", "member_epoch", "log_dir",
    "group_id", "transactional_id", "instance_id", "token_id", "hmac",
)  # fmt: skip
ALIASES: Final = {"generation_id_or_member_epoch": "generation_id", "topics_id": "topic_id"}


class Learner:
    """What answers have told, by the name of the field; the last few of each."""

    def __init__(self) -> None:
        self._known: dict[str, list[Any]] = {}

    def learn(self, message: Struct) -> None:
        for name, value in _walk(message):
            for known in LEARNT:
                if name == known or name.endswith("_" + known) or (name == "topic_ids" and known == "topic_id"):
                    self.learn_one(known, value)

    def learn_one(self, name: str, value: Any) -> None:
        found = self._known.setdefault(name, [])
        if value is not None and value not in found:
            found.append(value)
            del found[:-12]

    def known(self, name: str) -> list[Any]:
        name = ALIASES.get(name, name)
        for known in LEARNT:
            if known in name:
                found = self._known.get(known, [])
                if known == "member_epoch" or known == "generation_id":
                    found = [*found, *self._known.get("generation_id", []), *self._known.get("member_epoch", [])]
                return found
        return []


def _walk(message: Struct) -> Iterable[tuple[str, Any]]:
    for name in message.fields:
        value = getattr(message, name)
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, Struct):
                yield from _walk(one)
            else:
                yield name, one


class RandomFrames:
    """Frames, without their length, by ``rng``. ``apis``: (key, least, most version) to choose from."""

    def __init__(self, rng: random.Random, apis: Iterable[tuple[int, int, int]], learner: Learner) -> None:
        self._rng = rng
        self._apis = list(apis)
        self._learner = learner
        self._now_ms = 1_700_000_000_000
        self._welcome: dict[int, list[Request[Any]]] = {}

    def welcomed(self, request: Request[Any]) -> None:
        """A request of which something was done: others are made from it."""
        found = self._welcome.setdefault(request.api_key, [])
        found.append(request)
        del found[:-20]

    def request(self) -> tuple[Request[Any], int]:
        """A request that its version can say."""
        rng = self._rng
        while True:
            key, least, most = rng.choice(self._apis)
            version = rng.choice((most, rng.randint(least, most)))
            cls = REGISTRY[key].request
            welcome = self._welcome.get(key)
            if welcome and rng.random() < 0.5:
                made = copy.deepcopy(rng.choice(welcome))
                for _ in range(rng.choice((0, 1, 1, 2))):
                    self._change(made, version)
            else:
                made = self._struct(cls, version)
                if rng.random() < 0.6:
                    self._make_sense(made)
            try:
                encode_request(made, version, 1, None)
            except (IllegalArgumentError, KafkaProtocolError, KafkaError):
                continue
            return made, version

    def frame(self, correlation_id: int) -> tuple[bytes, str, tuple[Request[Any], int] | None]:
        """A frame, what it is, and, when it is whole, the request that it is."""
        rng = self._rng
        if rng.random() < 0.03:
            key, least, most = rng.choice(self._apis)
            version = rng.randint(least - 1, most + 1)
            body = rng.randbytes(rng.choice((0, 1, 5, 40, 300)))
            head = b"".join(n.to_bytes(2, "big", signed=True) for n in (key, version))
            return head + correlation_id.to_bytes(4, "big") + b"\xff\xff" + body, f"api {key} v{version} noise", None
        request, version = self.request()
        data = b"".join(encode_request(request, version, correlation_id, rng.choice((None, "fuzz", ""))))[4:]
        title = f"{type(request).__name__} v{version}"
        if rng.random() < 0.7:
            return data, title, (request, version)
        return self._spoil(bytearray(data)), title + " spoiled", None

    def _spoil(self, data: bytearray) -> bytes:
        rng = self._rng
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(8, max(9, len(data)))
            kind = rng.randrange(6)
            if kind == 0 and at < len(data):
                data[at] ^= rng.randint(1, 255)
            elif kind == 1:
                del data[at:]
            elif kind == 2:
                data[at : at + 4] = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x00\x00\xff\xff",
                    b"\x80\0\0\0"))
            elif kind == 3:
                data[at:at] = rng.choice((b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07",
                    b"\x80\x80\x80\x80\x01", b"\x05"))
            elif kind == 4:
                data[at:at] = rng.randbytes(rng.randint(1, 9))
            else:
                del data[at : at + rng.randint(1, 9)]
        return bytes(data)

    def _change(self, made: Struct, version: int) -> None:
        """Give one field, somewhere in it, another value."""
        places: list[tuple[Struct, Field]] = []

        def gather(one: Struct) -> None:
            for field in fields_of(type(one)):
                if field.spec.since <= version <= field.spec.until:
                    places.append((one, field))
                    value = getattr(one, field.name)
                    for below in value if isinstance(value, list) else (value,):
                        if isinstance(below, Struct):
                            gather(below)

        gather(made)
        if places:
            one, field = self._rng.choice(places)
            setattr(one, field.name, self._value(type(one), field, version))

    def _make_sense(self, made: Request[Any]) -> None:
        """Set what has to be right for a request of this kind to get anywhere."""
        for name, choices in SENSE.get(made.api_key, {}).items():
            if self._rng.random() < 0.9:
                setattr(made, name, copy.deepcopy(self._rng.choice(choices)))

    def _struct(self, cls: type[Struct], version: int) -> Any:
        values: dict[str, Any] = {}
        for field in fields_of(cls):
            spec = field.spec
            if not spec.since <= version <= spec.until:
                if spec.required:
                    values[field.name] = field.implicit
            elif spec.required or self._rng.random() > 0.15:
                values[field.name] = self._value(cls, field, version)
        return cls(**values)

    def _value(self, cls: type[Struct], field: Field, version: int) -> Any:
        rng = self._rng
        if field.spec.nullable(version) and rng.random() < 0.15:
            return None
        if not field.type.array:
            return self._one(cls, field.name, field.type, version)
        count = rng.choice((0, 1, 1, 1, 1, 2, 2, 3, 8))
        made = [self._one(cls, field.name, field.type, version) for _ in range(count)]
        if made and rng.random() < 0.1:
            made += made[:1] * rng.choice((1, 3))
        return made

    def _one(self, cls: type[Struct], name: str, kind: FieldType, version: int) -> Any:
        rng = self._rng
        if kind.cls is not None:
            return self._struct(kind.cls, version)
        known = self._learner.known(name)
        if known and rng.random() < 0.75:
            value = rng.choice(known)
            if isinstance(value, _TYPES[kind.kind]) and not (kind.kind in BITS and abs(value) >= 2 ** BITS[kind.kind]):
                return value
        if kind.kind in BITS:
            most = 2 ** BITS[kind.kind] - 1
            signed = kind.kind[0] == "i"
            if rng.random() < 0.08:
                return rng.choice((most, most - 1, -most - 1 if signed else 0, rng.randint(0, most)))
            if name == "acks":
                return rng.choice((-1, 1, 0, 2))
            if name in ("max_wait_ms", "timeout_ms"):
                return rng.choice((0, 1, 100, 60_000, -1))
            if "epoch" in name or "index" in name or name in ("partition", "partitions", "partition_indexes"):
                return rng.choice((0, 0, 0, 0, 1, 1, 2, -1 if signed else 0))
            value = rng.choice(NUMBERS)
            return min(value, most) if signed else max(0, min(value, most))
        if kind.kind == "bool":
            return rng.random() < 0.5
        if kind.kind == "string":
            return self._text(name)
        if kind.kind == "uuid":
            return rng.choice((ZERO_UUID, UUID(int=rng.getrandbits(128)), UUID(int=1)))
        if kind.kind == "bytes":
            return rng.choice((b"", b"\0", b"\0\0", rng.randbytes(rng.randint(0, 60)),
                b"\0\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\0\0\0\0"))
        if kind.kind == "records":
            return self._records()
        return rng.choice((0.0, 1.0, -1.0, 0.5, float("nan"), float("inf"), 1e300))

    def _text(self, name: str) -> str:
        rng = self._rng
        if rng.random() < 0.6:
            if "topic" in name or name == "name":
                return rng.choice(("t", "t", "c", "u", "c", f"n{rng.randrange(4)}"))
            if "group" in name or "key" in name:
                return rng.choice(("g", "g", "h", "s", f"k{rng.randrange(4)}"))
            if "transactional" in name:
                return rng.choice(("x", "x", "y"))
            if "protocol_type" in name:
                return "consumer"
            if "protocol" in name or "assignor" in name:
                return rng.choice(("range", "uniform"))
            if "regex" in name:
                return rng.choice(("t.*", "(", "[a-z]+", "(a|b)*c{1,3}", "x{1000}{1000}", "(?i)T", "\\pL"))
        return rng.choice(TEXTS)

    def _records(self) -> bytes:
        rng = self._rng
        builder = RecordBatchBuilder(1 << 20, rng.choice((NONE, NONE, GZIP)))
        for _ in range(rng.choice((1, 1, 2, 5))):
            key = rng.choice((None, b"k", b"k%d" % rng.randrange(20)))
            builder.append(self._now_ms + rng.choice((0, 1, -5000, 10**9)), key, rng.choice((None, b"v", b"v" * 100)))
        ids = self._learner.known("producer_id") if rng.random() < 0.6 else []
        data = bytearray(
            builder.build(
                rng.choice(ids) if ids else -1,
                rng.choice((0, 0, 0, 1, -1)) if ids else -1,
                rng.choice((0, 0, 1, 2, 3, -1, 2**31 - 1)) if ids else -1,
                transactional=rng.random() < 0.3,
                control=rng.random() < 0.03,
            )
        )
        if rng.random() < 0.25:
            data[rng.randrange(len(data))] ^= rng.randint(1, 255)
        if rng.random() < 0.05:
            del data[rng.randrange(len(data)) :]
        return bytes(data)


_Join = JoinGroupRequest.JoinGroupRequestProtocol
_Heard = ConsumerGroupHeartbeatRequest.TopicPartitions
_Config = IncrementalAlterConfigsRequest
_METADATA: Final = b"\0\1\0\0\0\1\0\1t\0\0\0\0"


def _config(kind: int, where: str, **values: str) -> IncrementalAlterConfigsRequest.AlterConfigsResource:
    made = [_Config.AlterableConfig(name=k.replace("_", "."), config_operation=0, value=v) for k, v in values.items()]
    return _Config.AlterConfigsResource(resource_type=kind, resource_name=where, configs=made)


SENSE: Final[dict[int, dict[str, list[Any]]]] = {
    0: {"acks": [-1, 1], "transactional_id": [None, None, "x"]},
    1: {"session_id": [0], "session_epoch": [-1, 0, 1], "max_wait_ms": [0, 100], "replica_id": [-1],
        "max_bytes": [1 << 20]},
    2: {"replica_id": [-1], "isolation_level": [0, 1]},
    8: {"group_id": ["g", "k0", "h"], "generation_id_or_member_epoch": [-1, 1, 2], "group_instance_id": [None]},
    9: {"require_stable": [True, False]},
    11: {
        "group_id": ["g", "k0"], "session_timeout_ms": [10_000], "rebalance_timeout_ms": [10_000],
        "protocol_type": ["consumer"],
        "protocols": [[_Join(name="range", metadata=b"r")], [_Join(name="range", metadata=_METADATA)]],
        "group_instance_id": [None, None, "i"],
    },
    14: {"group_id": ["g", "k0"], "generation_id": [1, 2, 3], "protocol_type": ["consumer"], "protocol_name": ["range"],
         "group_instance_id": [None]},
    12: {"group_id": ["g", "k0"], "generation_id": [1, 2, 3], "group_instance_id": [None]},
    19: {"timeout_ms": [1000]},
    22: {"transactional_id": ["x", "y", None], "transaction_timeout_ms": [60_000], "producer_id": [-1],
        "producer_epoch": [-1]},
    24: {"v3_and_below_transactional_id": ["x", "y"], "v3_and_below_producer_epoch": [0, 1]},
    25: {"transactional_id": ["x", "y"], "producer_epoch": [0, 1], "group_id": ["g", "h"]},
    26: {"transactional_id": ["x", "y"], "producer_epoch": [0, 1, 2]},
    28: {"transactional_id": ["x", "y"], "producer_epoch": [0, 1, 2], "group_id": ["g", "h"], "generation_id": [-1],
         "member_id": [""], "group_instance_id": [None]},
    44: {
        "resources": [
            [_config(2, "t", retention_ms="1000")], [_config(2, "c", cleanup_policy="compact,delete")],
            [_config(32, "s", share_auto_offset_reset="earliest")], [_config(2, "t",
            message_timestamp_type="LogAppendTime")],
            [_config(32, "k1", consumer_session_timeout_ms="50000")], [_config(2, "t", segment_bytes="1048576")],
            [_config(4, "1", max_connections="1000")], [_config(32, "s", share_delivery_count_limit="3")],
        ]
    },
    68: {
        "group_id": ["k1", "k2", "g"], "member_id": ["m1", "m2", "m3"], "member_epoch": [0, 0, 1, 2, 3, -1, -2],
        "rebalance_timeout_ms": [60_000, -1], "topic_partitions": [[], None], "instance_id": [None, None, "i"],
        "subscribed_topic_names": [["t"], ["t", "c"], None], "server_assignor": [None, "uniform", "range"],
        "subscribed_topic_regex": [None, None, "t.*"],
    },
    76: {
        "group_id": ["s"], "member_id": ["m1", "m2"], "member_epoch": [0, 0, 1, 2, -1],
        "subscribed_topic_names": [["t"], ["t", "c"], None],
    },
    78: {
        "group_id": ["s"], "member_id": ["m1", "m2"], "share_session_epoch": [0, 0, 1, 2, 3, -1],
        "max_wait_ms": [0, 100],
        "max_records": [10, 1, 500], "batch_size": [10, 1], "share_acquire_mode": [0, 1], "min_bytes": [1, 0],
        "max_bytes": [1 << 20], "is_renew_ack": [False, False, True],
    },
    79: {"group_id": ["s"], "member_id": ["m1", "m2"], "share_session_epoch": [1, 2, 3, 4, -1],
        "is_renew_ack": [False]},
}  # fmt: skip
"""API key -> field -> what makes sense there."""

_TYPES: Final[dict[str, Any]] = {
    **dict.fromkeys(BITS, int), "bool": bool, "string": str, "uuid": UUID, "bytes": bytes, "records": bytes,
        "float64": float,
}  # fmt: skip


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(self.format(record))


class Bench:
    """A broker and some connections to it, driven by chance; ``faults`` is what must not have been."""

    def __init__(self, data_dir: Path, seed: int, *, release: str = "4.3", settings: dict[str,
        str] | None = None) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.hand = HandBroker(data_dir, settings, release=release)
        self.learner = Learner()
        self._set_scene()
        apis = [(row.key, row.least, row.most) for row in self.hand.broker.release.apis()]
        self.frames = RandomFrames(self.rng, apis, self.learner)
        self.sessions: list[tuple[ConnectionContext, ServerConnection]] = []
        self.waiting: dict[int, tuple[Request[Any], int] | None] = {}
        self.faults: list[str] = []
        self.longest_s = 0.0
        self.longest = ""
        self.count = 0
        self._collector = _Collector()

    def _set_scene(self) -> None:
        """Topics, past what the release can be asked for: the machine is told."""
        broker = self.hand.broker
        for name, partitions, configs in (("t", 3, {}), ("c", 2, {"cleanup.policy": "compact"}), ("u", 1, {})):
            if broker.metadata.topic(name) is None:
                topic = create_topic(broker.metadata, broker.ids, name, partitions, configs)
                self.learner.learn_one("topic_id", topic.topic_id)

    def run(self, steps: int) -> None:
        root = logging.getLogger("kafka.broker")
        root.addHandler(self._collector)
        try:
            for _ in range(steps):
                self.step()
        finally:
            root.removeHandler(self._collector)

    def step(self) -> None:
        rng = self.rng
        self.count += 1
        if rng.random() < 0.002:
            self._attempt("restart", self._restart)
        if self.count % 500 == 0:
            self._attempt("scene", self._set_scene)
        if rng.random() < 0.05:
            self.hand.now += rng.choice((0.001, 0.1, 1.0, 10.0, 61.0))
        if len(self.sessions) < 4 or rng.random() < 0.01:
            self.sessions.append((ConnectionContext(), ServerConnection(decode=self.hand.broker.release.decode)))
        if len(self.sessions) > 6:
            self._end(rng.randrange(len(self.sessions)))
        at = rng.randrange(len(self.sessions))
        if self.sessions[at][1].in_hand is not None:
            self._attempt("tick", lambda: self._tick())
            if self.sessions[at][1].in_hand is not None and rng.random() < 0.3:
                self._end(at)
            return
        frame, title, request = self.frames.frame(self.count)
        started = time.perf_counter()
        self._attempt(title, lambda: self._serve(at, frame, request))
        self._attempt(title + ", tick", lambda: self._tick())
        took_s = time.perf_counter() - started
        if took_s > self.longest_s:
            self.longest_s, self.longest = took_s, title

    def _attempt(self, title: str, action: Any) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            import traceback

            self.faults.append(f"seed {self.seed}, step {self.count}, {title}: {error!r}\n{traceback.format_exc()}")
        for text in self._collector.found:
            self.faults.append(f"seed {self.seed}, step {self.count}, {title}:\n{text}")
        self._collector.found.clear()

    def _serve(self, at: int, frame: bytes, request: tuple[Request[Any], int] | None) -> None:
        connection, machine = self.sessions[at]
        machine.receive(len(frame).to_bytes(4, "big") + frame)
        try:
            received = machine.next_request()
        except KafkaProtocolError:
            self._end(at)
            return
        assert received is not None
        reply = self.hand.broker.handle(connection, received, self.hand.now)
        if reply.done:
            self._answer(connection, machine, reply, request)
        else:
            reply.call_when_done(lambda reply: self._answer(connection, machine, reply, request))

    def _answer(
        self,
        connection: ConnectionContext,
        machine: ServerConnection,
        reply: PendingResponse,
        request: tuple[Request[Any], int] | None,
    ) -> None:
        if reply.hang_up:
            for at, (other, _) in enumerate(self.sessions):
                if other is connection:
                    self._end(at)
            return
        data = b"".join(machine.answer(reply.response, reply.version))
        if data and request is not None and reply.version is None:
            response = decode_response(type(request[0]).response_type(), request[1], data[4:])
            self.learner.learn(response)
            if not any(value for name, value in _walk(response) if name.endswith("error_code")):
                self.frames.welcomed(request[0])

    def _tick(self) -> None:
        self.hand.tick()

    def _end(self, at: int) -> None:
        connection, _ = self.sessions.pop(at)
        self.hand.broker.disconnected(connection, self.hand.now)

    def _restart(self) -> None:
        self.sessions.clear()
        self.hand.restart()
        self.hand.broker.rng.seed(self.count)  # ids are never given out twice
