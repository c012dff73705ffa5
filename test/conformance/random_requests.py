"""Requests made by chance, with values that mean something: names that exist and names that do not, ids, odd numbers.

What a field may hold is found by its structure and name, in :data:`POOLS`; a row that matches first counts. Values that
each broker has made up itself stand as :class:`Named` until the request is sent, and batches as :class:`Batch`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.errors import IllegalArgumentError, KafkaProtocolError
from kafka.records import GZIP, NONE, RecordBatchBuilder
from kafka.wire.codec import encode
from kafka.wire.message import Field, FieldType, Request, Struct, fields_of
from kafka.wire.types import ZERO_UUID
from test.conformance.broker_pair import Side

UNKNOWN_ID: Final = UUID(int=77)
UNKNOWN_PRODUCER: Final = 10**12 + 7
BASE_MS: Final = 1_700_000_000_000
"""The timestamp of the first record of a topic; each record is 10 ms later than the one before."""


class Named(NamedTuple):
    """Stands for what a name stands for on a side."""

    name: str


class Batch(NamedTuple):
    """A batch of records, before it is made for a side. ``producer``: a name, or an id; ``spoil``: position and
    byte; ``cut``: bytes off its end."""

    values: tuple[bytes | None, ...]
    key: bytes | None = None
    timestamp: int = BASE_MS
    producer: Named | int = -1
    epoch: int = -1
    sequence: int = -1
    codec: int = NONE
    transactional: bool = False
    control: bool = False
    cut: int = 0
    spoil: tuple[int, int] | None = None
    twice: bool = False

    def __repr__(self) -> str:
        given = (name for name in self._fields if getattr(self, name) != self._field_defaults.get(name))
        return f"Batch({', '.join(f'{name}={getattr(self, name)!r}' for name in given)})"

    def bytes(self, side: Side) -> bytes:
        builder = RecordBatchBuilder(1 << 20, self.codec)
        for at, value in enumerate(self.values):
            builder.append(self.timestamp + 10 * at, self.key, value)
        producer = side.value(self.producer.name) if isinstance(self.producer, Named) else self.producer
        data = bytearray(
            builder.build(
                producer, self.epoch, self.sequence, transactional=self.transactional, control=self.control
            )
        )
        if self.spoil is not None:
            data[self.spoil[0]] = self.spoil[1]
        if self.cut:
            del data[-self.cut :]
        return bytes(data * 2 if self.twice else data)


class Made(NamedTuple):
    """A structure with its fields, before it is made for a side."""

    cls: type[Struct]
    values: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.cls.__name__}({', '.join(f'{name}={value!r}' for name, value in self.values.items())})"


class Scene(NamedTuple):
    """What there is on both brokers: topics of two partitions, one of them compacted, all with records; names for
    groups, of which the first has committed offsets; transactional ids; idempotent producers by name."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    producers: tuple[Named, ...]


Pool = Callable[[Scene], list[Any]]


def _batches(scene: Scene) -> list[Any]:
    known = scene.producers[0]
    return [
        Batch((b"a", b"b")),
        Batch((b"a", None), key=b"k"),
        Batch((b"c" * 300,), codec=GZIP, key=b"k"),
        Batch((b"d",), timestamp=-1),
        Batch((b"e",), timestamp=2**45),
        Batch((b"n0",), producer=known, epoch=0, sequence=2, key=b"k"),  # goes on where the scene has ended
        Batch((b"p0", b"p1"), producer=known, epoch=0, sequence=0),
        Batch((b"n1",), producer=known, epoch=0, sequence=9),
        Batch((b"n2",), producer=known, epoch=1, sequence=0),
        Batch((b"n3",), producer=known, epoch=1, sequence=5),
        Batch((b"f",), producer=scene.producers[1], epoch=0, sequence=0),
        Batch((b"g",), producer=UNKNOWN_PRODUCER, epoch=0, sequence=5),
        Batch((b"g",), producer=UNKNOWN_PRODUCER, epoch=-1, sequence=0),
        Batch((b"g",), producer=UNKNOWN_PRODUCER, epoch=0, sequence=-1),
        Batch((b"t",), producer=known, epoch=0, sequence=3, transactional=True),
        Batch((b"t",), transactional=True),
        Batch(
            (b"\0\0\0\0\0\0",), key=b"\0\0\0\1", producer=known, epoch=0, transactional=True, control=True
        ),
        Batch((b"\0\0\0\0\0\0",), key=b"\0\0\0\1", control=True),
        Batch((b"h",), cut=1),
        Batch((b"h",), cut=20),
        Batch((b"h",), spoil=(16, 1)),  # magic
        Batch((b"h",), spoil=(16, 3)),
        Batch((b"h",), spoil=(20, 1)),  # checksum
        Batch((b"h",), spoil=(21, 0x80)),  # attributes
        Batch((b"h",), spoil=(22, 7)),
        Batch((b"h", b"i"), spoil=(26, 0)),  # last offset
        Batch((b"h", b"i"), spoil=(60, 5)),  # count of records
        Batch((b"h",), spoil=(11, 3)),  # length
        Batch((b"h",), twice=True),
        b"",
        b"x" * 30,
        b"x" * 70,
        None,
    ]  # fmt: skip


CONFIG_NAMES: Final = [
    "cleanup.policy", "retention.ms", "segment.bytes", "max.message.bytes", "compression.type", "min.insync.replicas",
    "message.timestamp.type", "unclean.leader.election.enable", "min.cleanable.dirty.ratio", "x", "",
    "follower.replication.throttled.replicas", "flush.ms", "log.retention.ms", "message.max.bytes", "num.partitions",
    "log.cleaner.backoff.ms", "max.connections", "share.session.timeout.ms", "consumer.session.timeout.ms",
    "share.auto.offset.reset", "log.cleanup.policy", "min.compaction.lag.ms", "max.compaction.lag.ms",
]  # fmt: skip
CONFIG_VALUES: Final = [
    None, "", "1", "0", "-1", "x", "compact", "delete", "compact,delete", "true", "false", "gzip", "0.5", "1048576",
    "86400000", "45000", "LogAppendTime", "CreateTime", "1:1", "*", " 5 ", "5000000000", "earliest", "50000",
]  # fmt: skip

_NUMBERS_OF_PARTITIONS: Final = [0, 0, 0, 0, 1, 1, 1, 2, -1, 2**31 - 1]
_ANY_LEADER_EPOCH: Final = [-1, -1, -1, 0, 0, 1, 5, -2, -(2**31), 2**31 - 1]
_LOG_DIRECTORY: Final = Named("$log-dir")

POOLS: Final[list[tuple[str, Pool]]] = [
    (r"\.transactional_id|\.transactional_ids$", lambda scene: [None, "", *scene.transactional_ids]),
    (r"instance_id$", lambda scene: [None, None, "i1"]),
    (r"\.group|^coordinator_keys|\.coordinator_keys", lambda scene: [*scene.groups, "", "no-group"]),
    (r"\.member_id", lambda scene: ["", "nobody"]),
    (r"\.topic_id$", lambda scene: [*(Named(f"$topic-id:{name}") for name in scene.topics), ZERO_UUID, UNKNOWN_ID]),
    (r"\.resource_type$", lambda scene: [2, 2, 2, 2, 4, 4, 4, 32, 32, 32, 3, 8, 16, 0, 127]),
    (r"\.resource_types$", lambda scene: [2, 4, 8, 16, 32, 3, 0]),
    (r"Acl.*\.resource_type", lambda scene: [1, 2, 2, 3, 4, 5, 6, 7, 0, 8]),
    (r"Acl.*\.(pattern_type|resource_pattern_type)", lambda scene: [1, 2, 3, 3, 4, 0, 5]),
    (r"Acl.*\.operation", lambda scene: [*range(1, 16), 0, 99]),
    (r"Acl.*\.permission_type", lambda scene: [1, 2, 3, 3, 0]),
    (r"Acl.*\.resource_name", lambda scene: [*scene.topics, "*", "", None]),
    (r"\.resource_name$", lambda scene: [*scene.topics, *scene.topics, "1", "1", "", scene.groups[0], "7", "a b"]),
    (r"\.configuration_keys$|Configs?\.name$", lambda scene: CONFIG_NAMES),
    (r"Configs?\.value$", lambda scene: CONFIG_VALUES),
    (r"\.config_operation$", lambda scene: [0, 0, 0, 1, 2, 3, 4, -1]),
    (r"\.path$", lambda scene: [_LOG_DIRECTORY, "/nowhere", "relative", ""]),
    (r"\.records$", _batches),
    (r"\.acks$", lambda scene: [-1, -1, 1, 1, 0, 2, -2]),
    (r"producer_id$", lambda scene: [*scene.producers, UNKNOWN_PRODUCER, -1, -1]),
    (r"producer_epoch$", lambda scene: [0, 0, 1, -1, 2**15 - 1]),
    (r"ListOffsets.*\.timestamp$", lambda scene: [*range(-8, 1), *(BASE_MS + at for at in range(-10, 100, 7)), 2**62]),
    (r"DeletableTopic|DeleteRecords.*\.offset$", lambda scene: [-1, 0, 1, 2, 3, 5, 100, -2, 2**62]),
    (r"offset$", lambda scene: [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100, -1, -2, 2**62]),
    (r"leader_epoch$|last_fetched_epoch$", lambda scene: _ANY_LEADER_EPOCH),
    (r"FetchRequest.*\.session_id$", lambda scene: [0, 0, 0, 7]),
    (r"FetchRequest.*\.session_epoch$", lambda scene: [-1, -1, -1, 0, 1]),
    (r"FetchRequest.*\.replica_id$", lambda scene: [-1]),
    (r"FetchRequest\.replica_state$", lambda scene: []),
    (r"\.replica_id$", lambda scene: [-1, -1, -2, -3, 0, 1, 9]),
    (r"AlterPartitionReassign.*\.replicas$|\.broker_ids$", lambda scene: [1, 1, 1, 0, 2, -1]),
    (r"partition_index|\.partitions?$|Produce.*\.index$", lambda scene: _NUMBERS_OF_PARTITIONS),
    (r"\.isolation_level$", lambda scene: [0, 0, 1, 1, 2]),
    (r"\.max_wait_ms$", lambda scene: [0, 0, 1, 20, -1]),
    (r"\.min_bytes$", lambda scene: [0, 1, 1, 100, 2**31 - 1, -1]),
    (r"max_bytes$", lambda scene: [0, 1, 100, 1000, 1 << 20, 1 << 20, -1]),
    (r"\.cluster_id$", lambda scene: [None]),
    (r"\.match$|\.entity_name$", lambda scene: [None, "", "someone", "127.0.0.1", "other"]),
    (r"\.match_type$", lambda scene: [0, 1, 2, 3, -1]),
    (r"\.entity_type$", lambda scene: ["user", "user", "client-id", "client-id", "ip", "x", ""]),
    (r"OpData\.key$", lambda scene: ["producer_byte_rate", "consumer_byte_rate", "request_percentage",
                                      "controller_mutation_rate", "connection_creation_rate", "x", ""]),
    (r"principal_type|\.owner_principal_type", lambda scene: ["User", "Group", "", None]),
    (r"principal", lambda scene: ["User:a", "a", "", None]),
    (r"\.iterations$", lambda scene: [4096, 4095, 16384, 16385, 8192]),
    (r"\.mechanism$", lambda scene: [0, 1, 2, 3]),
    (r"\.salt$|\.salted_password$", lambda scene: [b"", b"a" * 20]),
    (r"Scram.*\.name$|UserName\.name$", lambda scene: ["alice", "alice", "bob", ""]),
    (r"\.client_software_", lambda scene: ["x", "", "a-1.2", "-", "ä", "a b"]),
    (r"\.feature$", lambda scene: ["metadata.version", "x"]),
    (r"\.session_timeout_ms", lambda scene: [6000, 10_000, 1, 0]),
    (r"rebalance_timeout_ms", lambda scene: [6000, 10_000, -1]),
    (r"transaction_timeout_ms", lambda scene: [0, -1, 1000, 60_000, 900_000, 900_001, 2**31 - 1]),
    (r"timeout", lambda scene: [10_000]),
    (r"\.num_partitions$", lambda scene: [-1, -1, 0, 1, 2, 3, 3, 4, 5, 20_000, -2]),
    (r"\.count$", lambda scene: [-1, -1, 0, 1, 2, 3, 3, 4, 5, -2]),
    (r"replication_factor$", lambda scene: [-1, -1, 1, 1, 0, 2, -2, 2**15 - 1]),
    (r"\.key_type$", lambda scene: [0, 1, 2, 3, -1]),
    (r"\.key$", lambda scene: [*scene.groups, "", "other"]),
    (r"\.response_partition_limit$", lambda scene: [1, 2, 3, 2000, 2000, 0, -1]),
    (r"\.endpoint_type$", lambda scene: [1, 1, 2, 0, 3]),
    (r"\.election_type$", lambda scene: [0, 0, 1, 2, -1]),
    (r"\.protocol_type", lambda scene: ["consumer", "", "x"]),
    (r"\.max_num_offsets$", lambda scene: [0, 1, 2, -1]),
    (r"(DeleteTopics|CreatePartitions).*name", lambda scene: [*scene.topics, *scene.topics, "missing", "", "a b"]),
    # what coordinators have written is not the same
    (r"^FetchRequest.*\.topic$", lambda scene: [*scene.topics, *scene.topics, "missing", "", "a b", "."]),
    (r"topic|name", lambda scene: [*scene.topics, *scene.topics, "missing", "", "a b", ".", "__consumer_offsets"]),
    (r"\.value$", lambda scene: [None, "", "1", "x"]),
]  # fmt: skip
"""Pattern of ``Structure.field`` -> what it may hold. Nothing: the field's default."""

BY_KIND: Final[dict[str, list[Any]]] = {
    "bool": [False, True],
    "string": ["", "x", "range", "consumer"],
    "uuid": [ZERO_UUID, UNKNOWN_ID],
    "bytes": [b"", b"abc"],
    "float64": [1.0, 0.0, -1.0, 0.5, 1000.0, float("nan")],
}
NUMBERS: Final = [0, 0, 0, 1, 1, -1, -1, 2, 5, -2]
BITS: Final = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


class RandomRequests:
    """Requests by ``rng`` alone: the same ones for the same seed."""

    def __init__(self, rng: random.Random, scene: Scene) -> None:
        self._rng = rng
        self._scene = scene

    def make(self, cls: type[Request[Any]], version: int, side: Side) -> Made:
        """A request that ``version`` can say."""
        while True:
            made = self._struct(cls, version)
            try:
                encode(for_side(made, side), version)
            except (IllegalArgumentError, KafkaProtocolError):
                continue  # null where there is none, a field that is of other versions
            return made

    def _struct(self, cls: type[Struct], version: int) -> Made:
        values: dict[str, Any] = {}
        for field in fields_of(cls):
            spec = field.spec
            if not spec.since <= version <= spec.until:
                if spec.required:
                    values[field.name] = field.implicit
            elif spec.required or self._rng.random() > 0.12:
                value = self._value(cls, field, version)
                if value is not _DEFAULT:
                    values[field.name] = value
        return Made(cls, values)

    def _value(self, cls: type[Struct], field: Field, version: int) -> Any:
        if not field.type.array:
            return self._one(cls, field.name, field.type, version)
        if self._rng.random() < 0.05:
            return None
        return [self._one(cls, field.name, field.type, version) for _ in range(self._rng.choice((0, 1, 1, 1, 2, 3)))]

    def _one(self, cls: type[Struct], name: str, kind: FieldType, version: int) -> Any:
        path = f"{cls.__qualname__}.{name}"
        for pattern, pool in POOLS:
            if kind.kind != "bool" and re.search(pattern, path):
                found = pool(self._scene)
                if not found:
                    return _DEFAULT
                fitting = [value for value in found if _fits(value, kind.kind)]
                if fitting:
                    return self._rng.choice(fitting)
        if kind.cls is not None:
            return self._struct(kind.cls, version)
        if kind.kind in BITS and self._rng.random() < 0.05:
            return self._rng.choice((2 ** BITS[kind.kind] - 1, -(2 ** BITS[kind.kind])))
        return self._rng.choice(BY_KIND.get(kind.kind, NUMBERS))


_DEFAULT: Final = object()


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, Named):
        return kind == ("uuid" if "topic-id" in value.name else "string" if "log-dir" in value.name else "int64")
    wanted: dict[str, tuple[type, ...]] = {
        "string": (str, type(None)),
        "uuid": (UUID,),
        "bytes": (bytes,),
        "records": (Batch, bytes, type(None)),
        "float64": (float,),
    }
    if kind not in wanted:
        return kind in BITS and isinstance(value, int) and abs(value) <= 2 ** BITS[kind]
    return isinstance(value, wanted[kind])


def for_side(made: Any, side: Side) -> Any:
    """The request as one side understands it."""
    if isinstance(made, Made):
        return made.cls(**{name: for_side(value, side) for name, value in made.values.items()})
    if isinstance(made, Named):
        return side.value(made.name)
    if isinstance(made, Batch):
        return made.bytes(side)
    if isinstance(made, list):
        return [for_side(value, side) for value in made]
    return made
