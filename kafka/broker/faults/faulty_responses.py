"""Where an error code goes in an answer: found from the message's schema, for every API and version.

An answer may have a code for the whole, for each thing asked for (a topic, a group, a key), or for each partition::

    ()                          Heartbeat, JoinGroup, InitProducerId, ...
    (topics,)                   CreateTopics, Metadata, ...          lists that mirror one of the request
    (responses, partitions)     Produce, Fetch, OffsetCommit, ...

:func:`error_level_for` chooses the place, :func:`error_response` builds the answer from the request alone,
:func:`without_partitions` is what is left of the request when only some partitions are refused, and
:func:`merge_errors` puts the refused ones into the answer to that. An API that follows another pattern than "the first
list of the request" gets an exception in the tables here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.records import HEADER_BYTES
from kafka.records.header import FRAME_BYTES
from kafka.wire.frame import pack_length
from kafka.wire.message import Field, Message, Request, Response, Struct, fields_of
from kafka.wire.types import ZERO_UUID, BytesLike

NAME_FIELDS: Final = ("name", "topic", "topic_name")
ID_FIELD: Final = "topic_id"
PARTITION_FIELDS: Final = ("index", "partition", "partition_index")
NUMBER_LISTS: Final = ("partitions", "partition_indexes")
CONTAINERS: Final = ("groups", "transactions")
"""Lists with lists of topics inside."""

IGNORED_LISTS: Final = ("forgotten_topics_data", "supported_features", "finalized_features")
TOPIC_RESOURCE: Final = 2

TopicNameLookup = Callable[[UUID], str | None]


class Target(NamedTuple):
    """A topic, or one of its partitions."""

    topic: str
    partition: int | None


def topic_of(entry: Any, topic_name: TopicNameLookup) -> str | None:
    """The topic that an entry of a list is about: by its name, or by its id."""
    if isinstance(entry, str):
        return entry
    if isinstance(entry, Struct):
        for field in NAME_FIELDS:
            name = getattr(entry, field, None)
            if name:
                return str(name)
        topic_id = getattr(entry, ID_FIELD, None)
        if topic_id is not None and topic_id != ZERO_UUID:
            return topic_name(topic_id)
    return None


def partition_of(entry: Any) -> int | None:
    """The partition that an entry of a list is about."""
    if isinstance(entry, int):
        return entry
    for field in PARTITION_FIELDS:
        number = getattr(entry, field, None)
        if number is not None:
            return int(number)
    return None


class _FieldPlan(NamedTuple):
    """Which lists of a structure are to be looked at; made once for each class, since every request is looked at."""

    containers: tuple[str, ...]
    resources: tuple[str, ...]
    topics: tuple[str, ...]
    partitions: tuple[str, ...]


_plans: dict[type[Struct], _FieldPlan] = {}


def _plan_of(cls: type[Struct]) -> _FieldPlan:
    plan = _plans.get(cls)
    if plan is None:
        lists = [field.name for field in fields_of(cls) if field.type.array and field.name not in IGNORED_LISTS]
        plan = _plans[cls] = _FieldPlan(
            containers=tuple(name for name in lists if name in CONTAINERS),
            resources=tuple(name for name in lists if name == "resources"),
            topics=tuple(name for name in lists if "topic" in name),
            partitions=tuple(name for name in lists if name not in ("assignments", "configs")),
        )
    return plan


def targets(struct: Struct, topic_name: TopicNameLookup) -> Iterator[Target]:
    """The topics and partitions that a request, or a part of one, names, in its order."""
    plan = _plan_of(type(struct))
    for name in plan.containers:
        for entry in getattr(struct, name) or ():
            if isinstance(entry, Struct):
                yield from targets(entry, topic_name)
    for name in plan.resources:
        for entry in getattr(struct, name) or ():
            if entry.resource_type == TOPIC_RESOURCE:
                yield Target(entry.resource_name, None)
    for name in plan.topics:
        for entry in getattr(struct, name) or ():
            topic = topic_of(entry, topic_name)
            if topic is not None:
                yield from _partitions(entry, topic)


def _partitions(entry: Any, topic: str) -> Iterator[Target]:
    is_whole = True
    if isinstance(entry, Struct):
        for name in _plan_of(type(entry)).partitions:
            for one in getattr(entry, name) or ():
                number = partition_of(one)
                if number is not None:
                    is_whole = False
                    yield Target(topic, number)
    if is_whole:
        yield Target(topic, None)


def names_topics(request: type[Message]) -> bool:
    """Whether requests of this class can name topics."""
    return any(
        field.type.array
        and field.name not in IGNORED_LISTS
        and (
            "topic" in field.name
            or field.name == "resources"
            or (field.name in CONTAINERS and field.type.cls is not None and "topics" in field.type.cls.fields)
        )
        for field in fields_of(request)
    )


def names_partitions(request: type[Message]) -> bool:
    """Whether requests of this class can name partitions."""
    return any(_has_partitions(field.type.cls) for field in fields_of(request) if field.type.cls is not None)


def _has_partitions(struct: type[Struct]) -> bool:
    for field in fields_of(struct):
        if field.name in ("assignments", "configs"):
            continue
        below = field.type.cls
        if field.type.array and below is None and field.name in NUMBER_LISTS:
            return True
        if not field.type.array or below is None:
            continue
        if any(name in below.fields for name in PARTITION_FIELDS) or _has_partitions(below):
            return True
    return False


CODES: Final = ("error_code", "partition_error_code")
FETCH: Final = 1
METADATA: Final = 3

READ_ONLY: Final = frozenset(
    {1, 2, 3, 9, 10, 15, 16, 18, 23, 29, 32, 35, 41, 46, 48, 50, 55, 60, 61, 65, 66, 69, 74, 75, 77, 78, 90}
)
"""Requests that change nothing (or, with a session, too much to be left out): they are handled whole, and parts of the
answer are then replaced."""

ABOUT_PARTITIONS: Final = frozenset({1, 2, 3, 5, 6, 9, 29, 56, 74, 75, 76, 78, 100, 103, 121})
"""Codes that speak of a partition: they go to the partitions where an answer could have them at its top, too."""

WHOLE_FETCH: Final = frozenset({70, 71, 106})
"""Codes of fetch sessions; all others belong to the partitions of a Fetch."""

METADATA_PARTITIONS: Final = frozenset({5, 9})
"""LEADER_NOT_AVAILABLE and REPLICA_NOT_AVAILABLE stand at partitions; other codes of Metadata at topics."""

NOT_COPIED: Final = (*IGNORED_LISTS, "protocols", "assignments", "configs", "acknowledgement_batches")
_MINUS_ONE: Final = ("offset", "epoch", "id", "port", "timestamp", "watermark")
_INTEGERS: Final = ("int16", "int32", "int64")
_KEYS: Final = (
    *NAME_FIELDS, *PARTITION_FIELDS, ID_FIELD, "key", "group_id", "transactional_id", "resource_type", "resource_name",
)  # fmt: skip
"""What distinguishes one entry of a list from another."""


class Selection(NamedTuple):
    """Which topics and partitions are refused; None: all."""

    topic: str | None
    partition: int | None

    def has_topic(self, topic: str | None) -> bool:
        return self.topic is None or self.topic == topic

    def has_partition(self, number: int | None) -> bool:
        return self.partition is None or self.partition == number


class ErrorLevel(NamedTuple):
    """A place for an error code: through which lists, and the field's name there."""

    path: tuple[str, ...]
    code_field: str
    names_topic: bool
    names_partition: bool


def error_levels(response: type[Response], version: int | None = None) -> list[ErrorLevel]:
    """All places for a code, the outermost first; of one version, or of any."""
    found: list[ErrorLevel] = []
    _levels(response, version, (), False, found)
    return found


def _levels(
    struct: type[Struct], version: int | None, path: tuple[str, ...], topic: bool, found: list[ErrorLevel]
) -> None:
    topic = topic or any(name in struct.fields for name in NAME_FIELDS)
    for code in CODES:
        spec = struct.fields.get(code)
        if spec is not None and (version is None or spec.present(version)):
            found.append(ErrorLevel(path, code, topic, any(name in struct.fields for name in PARTITION_FIELDS)))
    for field in fields_of(struct):
        if not field.type.array or field.type.cls is None or field.name in NOT_COPIED:
            continue
        if version is None or field.spec.present(version):
            _levels(field.type.cls, version, (*path, field.name), topic, found)


def has_error(response: type[Response]) -> bool:
    """Whether there is any place for an error code."""
    return bool(error_levels(response))


def is_answerable(response: type[Response], *, topic: bool, partition: bool) -> bool:
    """Whether single topics or partitions can be refused."""
    found = error_levels(response)
    if partition:
        return any(level.names_partition for level in found)
    return not topic or any(level.path for level in found)


def error_level_for(response: type[Response], version: int, code: int, selection: Selection) -> ErrorLevel | None:
    """Where the code goes in this version; None: there is no place."""
    found = error_levels(response, version)
    if not found:
        return None
    deepest = max(found, key=lambda level: len(level.path))
    key = response.api_key
    if selection.partition is not None:
        return deepest
    if selection.topic is not None:
        return deepest if key == FETCH else next((level for level in found if level.path and _is_topic(level)), deepest)
    if key == FETCH:
        return found[0] if code in WHOLE_FETCH else deepest
    if key == METADATA:
        if code in METADATA_PARTITIONS:
            return deepest
        return next(level for level in found if level.path)
    return deepest if code in ABOUT_PARTITIONS and deepest.names_partition else found[0]


def _is_topic(level: ErrorLevel) -> bool:
    return level.names_topic or level.names_partition


# -- an answer from nothing ------------------------------------------------------------------------------------------


def error_response(
    request: Request[Any], version: int, level: ErrorLevel, code: int, selection: Selection, topic_name: TopicNameLookup
) -> Response:
    """The answer that refuses what of the request is selected, and has nothing else in it."""
    made = _refused(
        request.response_type(), request, version, level.path, level.code_field, code, selection, topic_name
    )
    assert isinstance(made, Response)
    return made


def _refused(
    cls: type[Struct],
    asked: Any,
    version: int,
    path: tuple[str, ...],
    code_field: str,
    code: int,
    selection: Selection,
    topic_name: TopicNameLookup,
) -> Struct:
    """Fill one structure of the error response: its code, its lists, -1 and empty values elsewhere."""
    values = {field.name: _nothing(field, version) for field in fields_of(cls)}
    values.update(_echoed(cls, asked))
    if not path:
        values[code_field] = code
    else:
        below = next(field.type.cls for field in fields_of(cls) if field.name == path[0])
        assert below is not None
        entries = []
        for entry in _mirrored(asked, version) or ():
            if _is_selected(entry, below, selection, topic_name):
                entries.append(_refused(below, entry, version, path[1:], code_field, code, selection, topic_name))
        values[path[0]] = entries
    return cls(**values)


def _mirrored(asked: Any, version: int) -> list[Any] | None:
    """The list of a request that its answer mirrors: the first that this version has."""
    name = _mirrored_name(asked, version)
    found: list[Any] | None = getattr(asked, name) if name is not None else None
    return found


def _mirrored_name(asked: Any, version: int) -> str | None:
    if isinstance(asked, Struct):
        for field in fields_of(type(asked)):
            if field.type.array and field.spec.present(version) and field.name not in NOT_COPIED:
                return field.name
    return None


def _is_selected(entry: Any, mirror: type[Struct], selection: Selection, topic_name: TopicNameLookup) -> bool:
    """Whether what stands for ``entry`` in the answer is (or holds) something that is refused."""
    if any(name in mirror.fields for name in PARTITION_FIELDS):
        return selection.has_partition(partition_of(entry))
    if any(name in mirror.fields for name in (*NAME_FIELDS, ID_FIELD)):
        return selection.has_topic(topic_of(entry, topic_name))
    return True


def _echoed(cls: type[Struct], asked: Any) -> dict[str, Any]:
    """What the answer repeats of the request: names, ids, numbers."""
    fields = cls.fields
    values: dict[str, Any] = {}
    if isinstance(asked, bool):
        return values
    if isinstance(asked, int):
        return {name: asked for name in PARTITION_FIELDS if name in fields}
    if isinstance(asked, str):
        fitting = [name for name in (*NAME_FIELDS, "key", "group_id", "transactional_id") if name in fields]
        return dict.fromkeys(fitting[:1], asked)
    if not isinstance(asked, Struct) or isinstance(asked, Message):
        member_id = getattr(asked, "member_id", None)
        return {"member_id": member_id} if member_id is not None and "member_id" in fields else {}
    for group in (NAME_FIELDS, PARTITION_FIELDS):
        source = next((name for name in group if name in asked.fields), None)
        target = next((name for name in group if name in fields), None)
        if source is not None and target is not None:
            values[target] = getattr(asked, source)
    for name in (
        ID_FIELD, "group_id", "member_id", "group_instance_id", "transactional_id", "resource_type", "resource_name",
    ):  # fmt: skip
        if name in fields and name in asked.fields:
            values[name] = getattr(asked, name)
    return values


def _nothing(field: Field, version: int) -> Any:
    """What stands in a field beside an error: -1 for offsets, ids and the like; else 0, "" or an empty list."""
    implicit = field.implicit
    if not field.spec.present(version) or field.type.array:
        return implicit
    if isinstance(implicit, Struct):
        return type(implicit)(**{each.name: _nothing(each, version) for each in fields_of(type(implicit))})
    if field.type.kind == "records":
        return b""
    if field.type.kind in _INTEGERS and field.name.endswith(_MINUS_ONE) and field.name != "session_id":
        return -1
    return implicit


# -- some of it ------------------------------------------------------------------------------------------------------


def copy_with(struct: Any, **changes: Any) -> Any:
    """A structure like this one, with some values changed. Lists and structures inside are the same."""
    values = {name: getattr(struct, name) for name in struct.fields}
    made = type(struct)(**{**values, **changes})
    if getattr(struct, "unknown_tags", None):
        made.unknown_tags = struct.unknown_tags
    return made


def without_partitions(
    request: Request[Any], version: int, level: ErrorLevel, selection: Selection, topic_name: TopicNameLookup
) -> Request[Any] | None:
    """The request without what is refused; None when nothing is left of it."""
    left: Request[Any] | None = _without(
        request, request.response_type(), version, level.path, selection, topic_name
    )
    return left


def _without(
    asked: Any,
    cls: type[Struct],
    version: int,
    path: tuple[str, ...],
    selection: Selection,
    topic_name: TopicNameLookup,
) -> Any:
    """The structure without the selected partitions, or None when nothing is left."""
    if not path:
        return None
    below = next(field.type.cls for field in fields_of(cls) if field.name == path[0])
    assert below is not None
    name = _mirrored_name(asked, version)
    if name is None:
        return asked
    kept = []
    for entry in getattr(asked, name) or ():
        if not _is_selected(entry, below, selection, topic_name):
            kept.append(entry)
        elif (left := _without(entry, below, version, path[1:], selection, topic_name)) is not None:
            kept.append(left)
    return copy_with(asked, **{name: kept}) if kept else None


def merge_errors(
    response: Response,
    refused: Response,
    version: int,
    level: ErrorLevel,
    code: int,
    selection: Selection,
    topic_name: TopicNameLookup,
) -> None:
    """Put what is refused into the answer to the rest: in place of what is there, else behind it."""
    _merge(response, refused, version, level.path, level.code_field, code, selection, topic_name)


def _merge(
    there: Any,
    refused: Any,
    version: int,
    path: tuple[str, ...],
    code_field: str,
    code: int,
    selection: Selection,
    topic_name: TopicNameLookup,
) -> None:
    """Put the entries of an error response in the place of the response's own, level by level."""
    if not path:
        for field in fields_of(type(there)):
            if field.name not in _KEYS:
                setattr(there, field.name, _nothing(field, version))
        setattr(there, code_field, code)
        return
    entries = list(getattr(there, path[0]) or ())
    by_key = {_key(entry, topic_name): entry for entry in getattr(refused, path[0], None) or ()}
    for entry in entries:
        if _is_selected(entry, type(entry), selection, topic_name):
            error = by_key.get(_key(entry, topic_name))
            _merge(entry, error, version, path[1:], code_field, code, selection, topic_name)
    known = {_key(entry, topic_name) for entry in entries}
    entries += [entry for key, entry in by_key.items() if key not in known]
    setattr(there, path[0], entries)


def _key(entry: Any, topic_name: TopicNameLookup) -> tuple[Any, ...]:
    """What distinguishes an entry from others of its list; a request has a topic's name or its id, a response both."""
    topic = topic_of(entry, topic_name)
    about_topic = () if topic is None else (*NAME_FIELDS, ID_FIELD)
    return (
        topic, *(getattr(entry, name) for name in _KEYS if name in entry.fields and name not in about_topic)
    )  # fmt: skip


LENGTH_BYTES: Final = 4
CORRELATION_BYTES: Final = 4
CRC_COVERS_FROM: Final = 21
HALF: Final = 0.5


def kept_bytes(size: int, keep: float | None) -> int:
    """How many of ``size`` bytes are left: ``keep`` is a number, a part below 1, or None for the half."""
    keep = HALF if keep is None else keep
    return min(int(size * keep) if isinstance(keep, float) else int(keep), size)


def truncate_frame(frame: bytes, keep: float | None) -> bytes:
    """A whole frame whose message is cut: the length in front fits what is left."""
    message = frame[LENGTH_BYTES:]
    left = message[: kept_bytes(len(message), keep)]
    return pack_length(len(left)) + left


def truncate_bytes(frame: bytes, keep: float | None) -> bytes:
    """The beginning of a frame: the length in front promises more."""
    return frame[: kept_bytes(len(frame), keep)]


def flipped(data: bytes, start: int, count: int, rng: random.Random) -> bytes:
    """``count`` bytes from ``start`` on, each another than before."""
    changed = bytearray(data)
    places = range(min(start, len(changed)), len(changed))
    for at in rng.sample(places, min(count, len(places))):
        changed[at] ^= rng.randrange(1, 256)
    return bytes(changed)


def corrupt_frame(frame: bytes, count: int, rng: random.Random) -> bytes:
    """An answer with other bytes behind its correlation id: who asked is still found, what is said is not."""
    return flipped(frame, LENGTH_BYTES + CORRELATION_BYTES, count, rng)


def corrupt_batches(data: BytesLike, count: int, rng: random.Random) -> bytes:
    """Record batches each of which has ``count`` other bytes under its CRC; a last one that is cut stays as it is."""
    data = bytes(data)
    pieces: list[bytes] = []
    at = 0
    while at + HEADER_BYTES <= len(data):
        end = at + FRAME_BYTES + int.from_bytes(data[at + 8 : at + 12], "big")
        if not at + HEADER_BYTES <= end <= len(data):
            break
        pieces.append(flipped(data[at:end], CRC_COVERS_FROM, count, rng))
        at = end
    pieces.append(data[at:])
    return b"".join(pieces)


def as_bytes(records: Any) -> bytes:
    """The ``records`` field of a message in one piece."""
    if records is None:
        return b""
    return b"".join(records) if isinstance(records, (list, tuple)) else bytes(records)


def partitions_with_records(message: Struct) -> list[tuple[Struct, Struct]]:
    """(topic, partition) of all that has records in it."""
    found: list[tuple[Struct, Struct]] = []
    for name in message.fields:
        value = getattr(message, name)
        for topic in value if isinstance(value, list) else ():
            for inner in topic.fields if isinstance(topic, Struct) else ():
                below = getattr(topic, inner)
                for partition in below if isinstance(below, list) else ():
                    if isinstance(partition, Struct) and getattr(partition, "records", None) is not None:
                        found.append((topic, partition))
    return found
