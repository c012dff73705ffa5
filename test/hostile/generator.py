"""Requests that are well-formed and as dear as their bytes can make them: one :class:`Case` for each way to be dear.

From the schemas of all requests, in the oldest and the newest version that the broker serves:

    filled     each array at any depth, as long as the size allows: the same name again and again, names that differ,
               and elements that have one element in each array of their own
    long       each text and each byte string as long as it may be, and arrays of such texts
    extreme    each integer at both ends of its type, and all of them

and by hand, where the schema says nothing of what bytes mean: records, subscriptions, regular expressions, metrics.

A new API needs nothing here. A field that holds a format of its own is a row of :data:`BY_HAND`. Values that get behind
a handler's first check are ``SENSE`` in ``test/broker/crash_fuzz.py``, and :data:`KNOWN` by the name of the field.
"""

from __future__ import annotations

import copy
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.broker.emulation import ApiRange
from kafka.broker.registry import MOST_ELEMENTS
from kafka.protocol.groups import ConsumerGroupHeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from kafka.protocol.produce import ProduceRequest
from kafka.protocol.quotas import AlterClientQuotasRequest
from kafka.protocol.registry import NAMES, REGISTRY
from kafka.protocol.telemetry import PushTelemetryRequest
from kafka.records import CODECS, GZIP, NONE, RecordBatchBuilder
from kafka.records.compression import codec_for
from kafka.wire.codec import ELEMENT_BYTES, MAX_ELEMENTS, encode
from kafka.wire.message import IMPLICIT_DEFAULTS, Field, Request, Struct, fields_of
from test.broker.crash_fuzz import BITS, SENSE
from test.broker.groups.requests import write_assignment, write_subscription
from test.records.fuzz import v2_around

LONGEST_TEXT: Final = 32_767
NOW_MS: Final = 1_700_000_000_000
KNOWN: Final[dict[str, Any]] = {
    "topic": "t", "topics": "t", "topic_names": "t", "topic_name": "t", "name": "t", "resource_name": "t",
    "group_id": "g", "groups": "g", "group_ids": "g", "groups_names": "g", "key": "g", "coordinator_keys": "g",
    "transactional_id": "x", "transactional_ids": "x", "member_id": "m1", "protocol_type": "consumer",
    "resource_type": 2, "replication_factor": 1, "num_partitions": 1, "timeout_ms": 1000, "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20, "replica_id": -1, "acks": -1, "iterations": 4096, "mechanism": 1,
    "response_partition_limit": 2000, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000,
}  # fmt: skip
"""Field -> the value of an element that means something in the scene (``scene.py``)."""

Names = Callable[[Field, int], Any]
"""Field and number of the element -> its value; None: the known or the implied one."""


class Case(NamedTuple):
    """One way to be dear. ``make``: how many bytes it may take and a text for names that nobody had before -> a request
    of about that size. ``has_size``: whether the size makes a difference."""

    api: str
    version: int
    name: str
    make: Callable[[int, str], Request[Any]]
    has_size: bool = True

    @property
    def title(self) -> str:
        return f"{self.api} v{self.version}, {self.name}"


def cases(apis: Iterable[ApiRange]) -> Iterator[Case]:
    """All of them. ``apis``: what the broker serves."""
    for row in apis:
        cls, api = REGISTRY[row.key].request, NAMES[row.key]
        most = MOST_ELEMENTS.get(api, MAX_ELEMENTS)
        for version in sorted({row.least, row.most}):
            for name, make, has_size in _of(cls, version, most):
                yield Case(api, version, name, make, has_size)
        for name, make in BY_HAND.get(api, {}).items():
            yield Case(api, row.most, name, make)


# -- from the schemas --------------------------------------------------------------------------------------------------


def _of(
    cls: type[Request[Any]], version: int, most: int
) -> Iterator[tuple[str, Callable[[int, str], Request[Any]], bool]]:
    for path in _arrays(cls, version):
        title = ".".join(path)
        for kind in ("the same", "all different", "nested"):

            def fill(size: int, salt: str, path: tuple[str, ...] = path, kind: str = kind) -> Request[Any]:
                return _filled(cls, version, path, kind, size, salt, most)

            yield f"{title}: {kind}", fill, True
    for path, field in _leaves(cls, version, ("string", "bytes")):

        def stretch(size: int, salt: str, path: tuple[str, ...] = path, field: Field = field) -> Request[Any]:
            return _stretched(cls, version, path, field, size, salt)

        yield f"{'.'.join(path)}: long", stretch, True
    for end, at in itertools.product((0, 1), (None, *_leaves(cls, version, tuple(BITS)))):

        def push(_size: int, salt: str, end: int = end, at: tuple[tuple[str, ...], Field] | None = at) -> Request[Any]:
            return _extreme(cls, version, None if at is None else at[0], end, salt)

        yield f"{'all integers' if at is None else '.'.join(at[0])}: {('least', 'most')[end]}", push, False


def _present(cls: type[Struct], version: int) -> list[Field]:
    return [each for each in fields_of(cls) if each.spec.present(version)]


def _arrays(cls: type[Struct], version: int, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The way to each array: names of fields, through structures and other arrays."""
    for each in _present(cls, version):
        path = (*above, each.name)
        if each.type.array:
            yield path
        if each.type.cls is not None:
            yield from _arrays(each.type.cls, version, path)


def _leaves(
    cls: type[Struct], version: int, kinds: tuple[str, ...], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Field]]:
    for each in _present(cls, version):
        path = (*above, each.name)
        if each.type.cls is not None:
            yield from _leaves(each.type.cls, version, kinds, path)
        elif each.type.kind in kinds:
            yield path, each


def _struct(cls: type[Struct], version: int, names: Names, number: int, nested: bool) -> Any:
    values = {}
    for each in fields_of(cls):
        if each.spec.present(version):
            values[each.name] = _value(each, version, names, number, nested)
        elif each.spec.required:
            values[each.name] = each.implicit
    return cls(**values)


def _value(each: Field, version: int, names: Names, number: int, nested: bool) -> Any:
    if each.type.array:
        return [_one(each, version, names, number, nested)] if nested else []
    if each.type.cls is not None:
        return each.implicit if each.spec.nullable(version) else _one(each, version, names, number, nested)
    return _one(each, version, names, number, nested)


def _one(each: Field, version: int, names: Names, number: int, nested: bool) -> Any:
    if each.type.cls is not None:
        return _struct(each.type.cls, version, names, number, nested)
    wanted = names(each, number)
    if wanted is not None:
        return wanted
    known = KNOWN.get(each.name)
    if known is not None and isinstance(known, str) == (each.type.kind == "string"):
        return known
    return IMPLICIT_DEFAULTS[each.type.kind] if each.type.array else each.implicit


def _same(field: Field, number: int) -> Any:
    return None


def _fresh(salt: str) -> Names:
    def name(field: Field, number: int) -> Any:
        kind = field.type.kind
        if kind == "string":
            return f"{salt}{number:x}"
        if kind == "uuid":
            return UUID(int=(hash(salt) << 64 | number << 1 | 1) & (1 << 128) - 1)
        if kind in ("int32", "int64") and any(word in field.name for word in ("partition", "index", "producer_id")):
            return number
        return None

    return name


def _base(cls: type[Request[Any]], version: int, names: Names = _same) -> Request[Any]:
    """A request that makes sense, with nothing in its arrays."""
    made: Request[Any] = _struct(cls, version, names, 0, nested=False)
    for name, choices in SENSE.get(cls.api_key, {}).items():
        if cls.fields[name].present(version):
            setattr(made, name, copy.deepcopy(choices[0]))
    return made


def _open(made: Struct, version: int, path: tuple[str, ...]) -> tuple[Struct, Field]:
    """Walk to the last field of a path, with one element in each array on the way."""
    for at, name in enumerate(path):
        field = next(each for each in fields_of(type(made)) if each.name == name)
        if at == len(path) - 1:
            return made, field
        below = _one(field, version, _same, 0, nested=False)
        setattr(made, name, [below] if field.type.array else below)
        made = below
    raise ValueError("an empty path")


def _filled(
    cls: type[Request[Any]], version: int, path: tuple[str, ...], kind: str, size: int, salt: str, most: int
) -> Request[Any]:
    names = _same if kind == "the same" else _fresh(salt)
    made = _base(cls, version)
    parent, field = _open(made, version, path)
    nested = kind == "nested"
    if field.type.array and field.type.cls is None and kind == "nested":
        names = _same  # a plain array: there is nothing to nest; see whether the first element is dearer

    def elements(first: int, count: int) -> list[Any]:
        return [_one(field, version, names, number, nested) for number in range(first, first + count)]

    sample = 16
    setattr(parent, field.name, [])
    empty = len(encode(made, version))
    setattr(parent, field.name, elements(most, sample))
    each = max(1, (len(encode(made, version)) - empty) / sample)
    first = getattr(parent, field.name)[0]
    above = 2 * len(path) + 8
    by_api = (most - above) // _elements(first, version, uuids=False)
    by_reader = (MAX_ELEMENTS - above) / (_elements(first, version, uuids=True) + each / ELEMENT_BYTES)
    count = int(max(1, min((size - empty) / each, by_api, by_reader)))
    setattr(parent, field.name, elements(0, count))
    return made


def _elements(value: Any, version: int, *, uuids: bool) -> int:
    """How many elements an element of an array is, with all below it; with its UUIDs, as ``wire.codec.MAX_ELEMENTS``
    counts, or without, as ``registry.MOST_ELEMENTS`` does."""
    if isinstance(value, UUID):
        return 1 + uuids
    if not isinstance(value, Struct):
        return 1
    count = 1
    for each in _present(type(value), version):
        below = getattr(value, each.name)
        if each.type.array:
            count += sum(_elements(one, version, uuids=uuids) for one in below or ())
        elif isinstance(below, (UUID, Struct)) and not each.spec.tagged(version):
            count += _elements(below, version, uuids=uuids) - 1
    return count


def _stretched(
    cls: type[Request[Any]], version: int, path: tuple[str, ...], field: Field, size: int, salt: str
) -> Request[Any]:
    made = _base(cls, version)
    parent, _ = _open(made, version, path)
    length = size if field.type.kind == "bytes" else min(size, LONGEST_TEXT)
    texts = [(f"{salt}{number:x}" + "a" * length)[:length] for number in range(max(1, size // length))]
    values: list[Any] = [text.encode() for text in texts] if field.type.kind == "bytes" else list(texts)
    setattr(parent, field.name, values if field.type.array else values[0])
    owner, above = _owner(made, path)
    if not field.type.array and owner is not None:  # an array of structures with such a text
        rows = [copy.copy(parent) for _ in values]
        for row, value in zip(rows, values, strict=True):
            setattr(row, field.name, value)
        setattr(owner, above, rows)
    return made


def _owner(made: Struct, path: tuple[str, ...]) -> tuple[Struct | None, str]:
    """The structure whose array holds the parent of the last field, and that array's name."""
    owner: Struct | None = None
    for name in path[:-1]:
        below = getattr(made, name)
        owner, made = (made, below[0]) if isinstance(below, list) else (None, below)
    return owner, path[-2] if owner is not None else ""


def _extreme(
    cls: type[Request[Any]], version: int, path: tuple[str, ...] | None, end: int, salt: str
) -> Request[Any]:
    made = _base(cls, version)
    for where, field in _leaves(cls, version, tuple(BITS)):
        if path in (None, where):
            bits = BITS[field.type.kind]
            value = 2**bits - 1 if end else 0 if field.type.kind[0] == "u" else -(2**bits)
            parent, _ = _open_once(made, version, where)
            setattr(parent, field.name, [value] if field.type.array else value)
    return made


def _open_once(made: Struct, version: int, path: tuple[str, ...]) -> tuple[Struct, Field]:
    """As :func:`_open`, but elements that are there stay."""
    for name in path[:-1]:
        found = getattr(made, name)
        if not found:
            break
        made = found[0] if isinstance(found, list) else found
        path = path[1:]
    return _open(made, version, path)


# -- by hand -----------------------------------------------------------------------------------------------------------


def _produce(records: bytes, topic: str = "c") -> Request[Any]:
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    # Versions from 13 on say the topic's id, which the scene fills in (``scene.with_ids``).
    return ProduceRequest(
        acks=-1, timeout_ms=1000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )  # fmt: skip


def _empty_record(number: int, key: bytes = b"") -> bytes:
    body = b"\0\0" + varint(number) + varint(len(key)) + key + b"\1\0"
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _inflating(codec: int, body: Callable[[int], tuple[bytes, int]]) -> Callable[[int, str], Request[Any]]:
    def make(size: int, salt: str) -> Request[Any]:
        return _produce(bomb(codec, body, size))

    return make


def bomb(codec: int, body: Callable[[int], tuple[bytes, int]], size: int, most: int = 64 << 20) -> bytes:
    """A batch of about ``size`` bytes around a body (and its count of records) that grows with what is asked of it, up
    to ``most`` bytes."""
    inner = size
    data = v2_around(codec, *body(inner))
    while codec and len(data) < size and inner < most:
        inner = min(inner * max(2, min(64, size // len(data))), most)
        data = v2_around(codec, *body(inner))
    return data


def _many_empty(size: int) -> tuple[bytes, int]:
    record = _empty_record(0, b"k")
    count = size // len(record)
    return record * count, count


def one_huge(size: int) -> tuple[bytes, int]:
    body = b"\0\0\0\2k" + varint(size) + bytes(size) + b"\0"
    return varint(len(body)) + body, 1


def many_headers(size: int) -> tuple[bytes, int]:
    count = size // 2
    body = b"\0\0\0\2k\0" + varint(count) + b"\0\0" * count
    return varint(len(body)) + body, 1


def cut_otherwise(size: int) -> tuple[bytes, int]:
    """Records of one size with many headers, of which the last one is cut otherwise after every 16 records: for who
    looks for what they have in common."""
    found = []
    for number in range(max(1, size // 132)):
        headers = varint(61) + b"\0\0" * 60 + (b"\2a\0" if number // 16 % 2 else b"\0\2a")
        body = b"\0\0" + varint(number) + b"\1\2v" + headers
        found.append(varint(len(body)) + body)
    return b"".join(found), len(found)


def _keys(size: int, salt: str) -> Request[Any]:
    builder = RecordBatchBuilder(1 << 30, NONE)
    for number in range(max(1, size // 20)):
        builder.append(NOW_MS, b"%s%x" % (salt.encode(), number), b"")
    return _produce(builder.build())


def _far_times(size: int, salt: str) -> Request[Any]:
    builder = RecordBatchBuilder(1 << 30, NONE)
    for number in range(max(1, size // 20)):
        builder.append(0 if number % 2 else 2**62, b"k", b"")
    return _produce(builder.build(), "t")


def _many_batches(size: int, salt: str) -> Request[Any]:
    builder = RecordBatchBuilder(1 << 30, NONE)
    builder.append(NOW_MS, b"k", b"")
    one = builder.build()
    return _produce(one * max(1, size // len(one)), "t")


def _many_partitions(size: int, salt: str) -> Request[Any]:
    """Each with a small batch of many records, of which no two neighbours have the same size."""
    builder = RecordBatchBuilder(1 << 30, GZIP)
    for number in range(min(10_000, size)):
        builder.append(NOW_MS, b"k", b"v" * (number % 2))
    batch = builder.build()
    request = _produce(batch, "t")
    (topic,) = request.topic_data
    topic.partition_data = [
        ProduceRequest.PartitionProduceData(index=number, records=batch) for number in range(max(1, size // len(batch)))
    ]
    return request


def _join(size: int, salt: str) -> Request[Any]:
    names = [f"{salt}{number:x}" for number in range(max(1, size // 10))]
    one = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=write_subscription(names))
    return JoinGroupRequest(
        group_id=salt, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="", group_instance_id=None,
        protocol_type="consumer", protocols=[one],
    )  # fmt: skip


def _sync(size: int, salt: str) -> Request[Any]:
    made = write_assignment({"t": range(max(1, size // 4))}, 1)
    one = SyncGroupRequest.SyncGroupRequestAssignment(member_id="m1", assignment=made)
    return SyncGroupRequest(
        group_id="g", generation_id=1, member_id="m1", protocol_type="consumer", protocol_name="range",
        assignments=[one],
    )  # fmt: skip


def _quotas(size: int, salt: str) -> Request[Any]:
    kind = AlterClientQuotasRequest
    return kind(
        validate_only=False,
        entries=[
            kind.EntryData(
                entity=[kind.EntityData(entity_type="client-id", entity_name=f"{salt}{number:x}")],
                ops=[kind.OpData(key="producer_byte_rate", value=1.0, remove=False)],
            )
            for number in range(min(max(1, size // 60), MOST_ELEMENTS.get("AlterClientQuotas", MAX_ELEMENTS) // 3 - 1))
        ],
    )


def _regex(pattern: str) -> Callable[[int, str], Request[Any]]:
    def make(size: int, salt: str) -> Request[Any]:
        size = min(size, LONGEST_TEXT)
        return ConsumerGroupHeartbeatRequest(
            group_id=salt, member_id=salt, member_epoch=0, rebalance_timeout_ms=60_000, topic_partitions=[],
            subscribed_topic_names=None, subscribed_topic_regex=(pattern * (size // len(pattern) + 1))[:size],
        )  # fmt: skip

    return make


def _metrics(codec: int) -> Callable[[int, str], Request[Any]]:
    def make(size: int, salt: str) -> Request[Any]:
        data, inner = b"", size
        while len(data) < size and inner <= 64 << 20:
            data = codec_for(codec).compress(bytes(inner), None)
            inner *= 4
        return PushTelemetryRequest(
            client_instance_id=UUID(int=struct.unpack(">Q", salt.encode().rjust(8, b"x")[:8])[0]), subscription_id=0,
            terminating=False, compression_type=codec, metrics=data,
        )  # fmt: skip

    return make


BY_HAND: Final[dict[str, dict[str, Callable[[int, str], Request[Any]]]]] = {
    "Produce": {
        **{
            f"records: {name}, codec {codec}": _inflating(codec, body)
            for codec in CODECS
            for name, body in (("many empty", _many_empty), ("one huge", one_huge), ("headers", many_headers),
                               ("headers cut otherwise", cut_otherwise))
        },
        "records: many partitions": _many_partitions,
        "records: keys that differ": _keys,
        "records: far timestamps": _far_times,
        "records: many batches": _many_batches,
    },
    "JoinGroup": {"subscription: topics that differ": _join},
    "SyncGroup": {"assignment: many partitions": _sync},
    "ConsumerGroupHeartbeat": {
        f"regex: {pattern}": _regex(pattern) for pattern in ("a?", "(a|b)*", "(t.*)+", "[a-zA-Z0-9]{0,99}", "(?:(?:")
    },
    "AlterClientQuotas": {"entries: names that differ, quotas that are": _quotas},
    "PushTelemetry": {f"metrics: zeros, codec {codec}": _metrics(codec) for codec in CODECS},
}  # fmt: skip
"""API -> what is wrong with it -> how it is made; in the newest version."""
