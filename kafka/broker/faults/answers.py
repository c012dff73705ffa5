"""Where an error code goes in an answer: found from the message's schema, for every API and version.

An answer may have a code for the whole, for each thing asked for (a topic, a group, a key), or for each partition::

    ()                          Heartbeat, JoinGroup, InitProducerId, ...
    (topics,)                   CreateTopics, Metadata, ...          lists that mirror one of the request
    (responses, partitions)     Produce, Fetch, OffsetCommit, ...

:func:`level_for` chooses the place, :func:`refusal` builds the answer from the request alone, :func:`without` is what
is left of the request when only some partitions are refused, and :func:`merge` puts the refused ones into the answer to
that. An API that follows another pattern than "the first list of the request" gets an exception in the tables here.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafka.broker.faults.targets import (
    ID_FIELD,
    NAME_FIELDS,
    NOT_ASKED,
    PARTITION_FIELDS,
    NameOf,
    partition_of,
    topic_of,
)
from kafka.wire.message import Message, Request, Response, Struct
from kafka.wire.schema import Field, fields_of

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

NOT_MIRRORED: Final = (*NOT_ASKED, "protocols", "assignments", "configs", "acknowledgement_batches")
_MINUS_ONE: Final = ("offset", "epoch", "id", "port", "timestamp", "watermark")
_INTEGERS: Final = ("int16", "int32", "int64")
_KEYS: Final = (
    *NAME_FIELDS, *PARTITION_FIELDS, ID_FIELD, "key", "group_id", "transactional_id", "resource_type", "resource_name",
)  # fmt: skip
"""What tells one entry of a list from another."""


class Selection(NamedTuple):
    """Which topics and partitions are refused; None: all."""

    topic: str | None
    partition: int | None

    def has_topic(self, topic: str | None) -> bool:
        return self.topic is None or self.topic == topic

    def has_partition(self, number: int | None) -> bool:
        return self.partition is None or self.partition == number


class Level(NamedTuple):
    """A place for an error code: through which lists, and the field's name there."""

    path: tuple[str, ...]
    code_field: str
    names_topic: bool
    names_partition: bool


def levels(response: type[Response], version: int | None = None) -> list[Level]:
    """All places for a code, the outermost first; of one version, or of any."""
    found: list[Level] = []
    _levels(response, version, (), False, found)
    return found


def _levels(struct: type[Struct], version: int | None, path: tuple[str, ...], topic: bool, found: list[Level]) -> None:
    topic = topic or any(name in struct.fields for name in NAME_FIELDS)
    for code in CODES:
        spec = struct.fields.get(code)
        if spec is not None and (version is None or spec.present(version)):
            found.append(Level(path, code, topic, any(name in struct.fields for name in PARTITION_FIELDS)))
    for field in fields_of(struct):
        if not field.type.array or field.type.cls is None or field.name in NOT_MIRRORED:
            continue
        if version is None or field.spec.present(version):
            _levels(field.type.cls, version, (*path, field.name), topic, found)


def has_error(response: type[Response]) -> bool:
    """Whether there is any place for an error code."""
    return bool(levels(response))


def is_answerable(response: type[Response], *, topic: bool, partition: bool) -> bool:
    """Whether single topics or partitions can be refused."""
    found = levels(response)
    if partition:
        return any(level.names_partition for level in found)
    return not topic or any(level.path for level in found)


def level_for(response: type[Response], version: int, code: int, selection: Selection) -> Level | None:
    """Where the code goes in this version; None: there is no place."""
    found = levels(response, version)
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


def _is_topic(level: Level) -> bool:
    return level.names_topic or level.names_partition


# -- an answer from nothing ------------------------------------------------------------------------------------------


def refusal(
    request: Request[Any], version: int, level: Level, code: int, selection: Selection, name_of: NameOf
) -> Response:
    """The answer that refuses what of the request is selected, and has nothing else in it."""
    made = _refused(request.response_type(), request, version, level.path, level.code_field, code, selection, name_of)
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
    name_of: NameOf,
) -> Struct:
    values = {field.name: _nothing(field, version) for field in fields_of(cls)}
    values.update(_echoed(cls, asked))
    if not path:
        values[code_field] = code
    else:
        below = next(field.type.cls for field in fields_of(cls) if field.name == path[0])
        assert below is not None
        entries = []
        for entry in _mirrored(asked, version) or ():
            if _is_selected(entry, below, selection, name_of):
                entries.append(_refused(below, entry, version, path[1:], code_field, code, selection, name_of))
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
            if field.type.array and field.spec.present(version) and field.name not in NOT_MIRRORED:
                return field.name
    return None


def _is_selected(entry: Any, mirror: type[Struct], selection: Selection, name_of: NameOf) -> bool:
    """Whether what stands for ``entry`` in the answer is (or holds) something that is refused."""
    if any(name in mirror.fields for name in PARTITION_FIELDS):
        return selection.has_partition(partition_of(entry))
    if any(name in mirror.fields for name in (*NAME_FIELDS, ID_FIELD)):
        return selection.has_topic(topic_of(entry, name_of))
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


def copied(struct: Any, **changes: Any) -> Any:
    """A structure like this one, with some values changed. Lists and structures inside are the same."""
    values = {name: getattr(struct, name) for name in struct.fields}
    made = type(struct)(**{**values, **changes})
    if getattr(struct, "unknown_tags", None):
        made.unknown_tags = struct.unknown_tags
    return made


def without(
    request: Request[Any], version: int, level: Level, selection: Selection, name_of: NameOf
) -> Request[Any] | None:
    """The request without what is refused; None when nothing is left of it."""
    left: Request[Any] | None = _without(
        request, request.response_type(), version, level.path, selection, name_of
    )
    return left


def _without(
    asked: Any, cls: type[Struct], version: int, path: tuple[str, ...], selection: Selection, name_of: NameOf
) -> Any:
    if not path:
        return None
    below = next(field.type.cls for field in fields_of(cls) if field.name == path[0])
    assert below is not None
    name = _mirrored_name(asked, version)
    if name is None:
        return asked
    kept = []
    for entry in getattr(asked, name) or ():
        if not _is_selected(entry, below, selection, name_of):
            kept.append(entry)
        elif (left := _without(entry, below, version, path[1:], selection, name_of)) is not None:
            kept.append(left)
    return copied(asked, **{name: kept}) if kept else None


def merge(
    response: Response, refused: Response, version: int, level: Level, code: int, selection: Selection, name_of: NameOf
) -> None:
    """Put what is refused into the answer to the rest: in place of what is there, else behind it."""
    _merge(response, refused, version, level.path, level.code_field, code, selection, name_of)


def _merge(
    there: Any,
    refused: Any,
    version: int,
    path: tuple[str, ...],
    code_field: str,
    code: int,
    selection: Selection,
    name_of: NameOf,
) -> None:
    if not path:
        for field in fields_of(type(there)):
            if field.name not in _KEYS:
                setattr(there, field.name, _nothing(field, version))
        setattr(there, code_field, code)
        return
    entries = list(getattr(there, path[0]) or ())
    by_key = {_key(entry): entry for entry in (getattr(refused, path[0]) if refused is not None else ()) or ()}
    for entry in entries:
        if _is_selected(entry, type(entry), selection, name_of):
            _merge(entry, by_key.get(_key(entry)), version, path[1:], code_field, code, selection, name_of)
    known = {_key(entry) for entry in entries}
    entries += [entry for key, entry in by_key.items() if key not in known]
    setattr(there, path[0], entries)


def _key(entry: Any) -> tuple[Any, ...]:
    return tuple(getattr(entry, name) for name in _KEYS if name in entry.fields)
