"""Responses with an error code, read from the schemas of the messages for every API and version: what an entry of a
request is about, and where the code goes in the response.

A response may have a code for the whole, for each thing asked for (a topic, a group, a key), or for each partition::

    ()                          Heartbeat, JoinGroup, InitProducerId, ...
    (topics,)                   CreateTopics, Metadata, ...          lists that mirror one of the request
    (responses, partitions)     Produce, Fetch, OffsetCommit, ...

:class:`ErrorResponse` chooses the place and makes the response, for releases that list an API and have it switched off
(``emulation.py``) and for injected faults. An API that follows another pattern than "the first list of the request"
gets an exception in the tables here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.wire.message import Field, Message, Request, Response, Struct, fields_of
from kafka.wire.types import ZERO_UUID

TopicNameLookup = Callable[[UUID], str | None]

# -- what an entry is about ------------------------------------------------------------------------------------------

SUBJECTS: Final = {
    "name": "topic", "topic": "topic", "topic_name": "topic", "topic_id": "topic_id",
    "index": "partition", "partition": "partition", "partition_index": "partition",
    "key": "key", "group_id": "group", "transactional_id": "transactional_id", "member_id": "member",
    "group_instance_id": "instance", "resource_type": "resource_type", "resource_name": "resource_name",
}  # fmt: skip
"""Field -> what an entry with it is about; it distinguishes the entry from others of its list."""

NOT_MIRRORED: Final = "forgotten_topics_data"
RESOURCES: Final = "resources"
TOPIC_RESOURCE: Final = 2


class Target(NamedTuple):
    """A topic, or one of its partitions."""

    topic: str
    partition: int | None


@cache
def _subjects(cls: type[Struct]) -> dict[str, str]:
    """Subject -> the field that has it."""
    return {SUBJECTS[name]: name for name in cls.fields if name in SUBJECTS}


def _about(entry: Any) -> dict[str, Any]:
    """Subject -> value, of an entry of a list: a structure, the number of a partition, or a name of something."""
    if isinstance(entry, Struct):
        return {subject: getattr(entry, name) for subject, name in _subjects(type(entry)).items()}
    if isinstance(entry, int):
        return {"partition": entry}
    return dict.fromkeys(("topic", "key", "group", "transactional_id"), entry)


def _partition_of(entry: Struct) -> Any:
    return getattr(entry, _subjects(type(entry))["partition"])


def _topic_of(entry: Any, topic_name: TopicNameLookup) -> str | None:
    """The topic that an entry is about: by its name, by its id, or as a resource."""
    about = _about(entry)
    topic_id = about.get("topic_id", ZERO_UUID)
    is_resource = about.get("resource_type") == TOPIC_RESOURCE
    topic: str | None = about.get("topic") or (about["resource_name"] if is_resource else None)
    return topic_name(topic_id) if topic is None and topic_id != ZERO_UUID else topic


@cache
def _lists(cls: type[Struct]) -> dict[str, Any]:
    """List -> the class of its elements, None where those are no structures."""
    return {
        field.name: field.type.cls for field in fields_of(cls) if field.type.array and field.name != NOT_MIRRORED
    }


def entries(
    part: Struct, topic_name: TopicNameLookup, topic: str | None = None
) -> Iterator[tuple[Target, Any]]:
    """The topics and partitions that a message names, or a part of one that is about ``topic``, in its order, each with
    its entry."""
    for name in _lists(type(part)):
        for entry in getattr(part, name) or ():
            if topic is not None:
                if "partition" in name:
                    yield Target(topic, _partition_of(entry) if isinstance(entry, Struct) else entry), entry
            elif "topic" in name or name in ("responses", RESOURCES):
                named = _topic_of(entry, topic_name)
                if named is not None:
                    partitions = list(entries(entry, topic_name, named)) if isinstance(entry, Struct) else []
                    yield from partitions or [(Target(named, None), entry)]
            elif isinstance(entry, Struct):
                yield from entries(entry, topic_name)


def targets(request: Struct, topic_name: TopicNameLookup) -> Iterator[Target]:
    """The topics and partitions that a request names, in its order."""
    return (target for target, _ in entries(request, topic_name))


def _nested(
    cls: type[Struct], version: int | None = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], type[Struct] | None]]:
    """A class and the elements of its lists, each with the lists that lead to it. Of one version, or of any."""
    yield path, cls
    for name, below in _lists(cls).items():
        if version is None or cls.fields[name].present(version):
            yield from [((*path, name), None)] if below is None else _nested(below, version, (*path, name))


def names_topics(request: type[Message]) -> bool:
    """Whether requests of this class can name topics."""
    return any(path and ("topic" in path[-1] or path[-1] == RESOURCES) for path, _ in _nested(request))


def names_partitions(request: type[Message]) -> bool:
    """Whether requests of this class can name partitions."""
    return any(len(path) > 1 and "partition" in path[-1] for path, _ in _nested(request))


# -- errors ----------------------------------------------------------------------------------------------------------

CODES: Final = ("error_code", "partition_error_code")
FETCH: Final = 1
METADATA: Final = 3

READ_ONLY: Final = frozenset(
    {1, 2, 3, 9, 10, 15, 16, 18, 23, 29, 32, 35, 41, 46, 48, 50, 55, 60, 61, 65, 66, 69, 74, 75, 77, 78, 90}
)
"""Requests that change nothing (or, with a session, too much to be left out): they are handled whole, and parts of the
response are then replaced."""

ABOUT_PARTITIONS: Final = frozenset({1, 2, 3, 5, 6, 9, 29, 56, 74, 75, 76, 78, 100, 103, 121})
"""Codes that speak of a partition: they go to the partitions where a response could have them at its top, too."""

WHOLE_FETCH: Final = frozenset({70, 71, 106})
"""Codes of fetch sessions; all others belong to the partitions of a Fetch."""

METADATA_PARTITIONS: Final = frozenset({5, 9})
"""LEADER_NOT_AVAILABLE and REPLICA_NOT_AVAILABLE stand at partitions; other codes of Metadata at topics."""

_MINUS_ONE: Final = ("offset", "epoch", "id", "port", "timestamp", "watermark")
_ZERO: Final = ("session_id", "member_epoch", "group_epoch", "assignment_epoch")
_INTEGERS: Final = ("int16", "int32", "int64")


class ErrorLevel(NamedTuple):
    """A place for an error code: through which lists, in entries about which subjects, and the field's name there."""

    path: tuple[str, ...]
    subjects: frozenset[str]
    code_field: str


def error_levels(response: type[Response], version: int | None = None) -> list[ErrorLevel]:
    """All places for a code, the outermost first; of one version, or of any."""
    return [
        ErrorLevel(path, frozenset(_subjects(cls)), code)
        for path, cls in _nested(response, version)
        for code in CODES
        if cls is not None and code in cls.fields and (version is None or cls.fields[code].present(version))
    ]


class ErrorResponse:
    """An error code as the response to a request, or to those parts of it that are about a topic or a partition.

    ``completed``: the request with what it does not name. ``level``: where the code goes; None: this version of the
    response has no field for it. It is the whole response (:meth:`response`) if nothing is left to be handled
    (:meth:`remaining_request`), else it is merged into the response to the rest (:meth:`merge_into`).
    """

    def __init__(
        self,
        request: Request[Any],
        version: int,
        code: int,
        topic: str | None = None,
        partition: int | None = None,
        *,
        topic_name: TopicNameLookup = lambda _: None,
        completed: Request[Any] | None = None,
    ) -> None:
        """``topic``, ``partition``: refuse only these, None: all. ``topic_name`` finds the name of a topic's id."""
        self._request = request
        self._version = version
        self._code = code
        self._topic = topic
        self._partition = partition
        self._topic_name = topic_name
        # What a fetch session remembers gets the error, too, but the handler is given what was really asked for.
        self._completed = request if completed is None else completed
        self.level = self._level()
        self._path = self.level.path if self.level is not None else ()

    def _level(self) -> ErrorLevel | None:
        code, found = self._code, error_levels(self._request.response_type(), self._version)
        if not found:
            return None
        deepest = max(found, key=lambda level: len(level.path))
        key = self._request.api_key
        if self._partition is not None or (self._topic is not None and key == FETCH):
            return deepest
        if self._topic is not None:
            return next((level for level in found if level.path and level.subjects & {"topic", "partition"}), deepest)
        if key == FETCH:
            return found[0] if code in WHOLE_FETCH else deepest
        if key == METADATA:
            return deepest if code in METADATA_PARTITIONS else next(level for level in found if level.path)
        return deepest if code in ABOUT_PARTITIONS and "partition" in deepest.subjects else found[0]

    @property
    def is_whole(self) -> bool:
        """Whether it leaves nothing to be handled of any such request."""
        if self.level is None or self._topic is not None or self._partition is not None:
            return False
        return not self._path or self._request.api_key not in READ_ONLY

    def response(self) -> Response:
        """The response with the selected parts of the request in it, and nothing else."""
        made: Response = self._made(self._request.response_type(), self._completed, self._path)
        return made

    def remaining_request(self) -> Any:
        """What the broker is to handle; None: nothing."""
        request = self._request
        if not self._path:
            return None
        if request.api_key not in READ_ONLY:
            return self._without(request, request.response_type(), self._path)
        # An error response does not wait for records.
        return copy_with(request, max_wait_ms=0) if "max_wait_ms" in request.fields else request

    def merge_into(self, response: Response) -> Response:
        """The response with the selected parts in it: in place of what is there, else behind it."""
        made = self.response()
        if not self._path:
            return made
        self._merge(response, made, self._path)
        return response

    def _made(self, cls: type[Struct], asked: Any, path: tuple[str, ...]) -> Any:
        """One structure of the response: its code, its lists, what it repeats of the request, -1 and empty values."""
        values = {field.name: _nothing(field, self._version) for field in fields_of(cls)}
        about = _about(asked)
        is_entry = not isinstance(asked, Message)  # else only JoinGroup's response repeats the member, as in Kafka
        for subject, name in _subjects(cls).items():
            if subject in about and (is_entry or values[name] is not None):
                values[name] = about[subject]
        if path:
            below, mirrored = _lists(cls)[path[0]], self._mirrored(asked)
            values[path[0]] = [
                self._made(below, entry, path[1:])
                for entry in (getattr(asked, mirrored) if mirrored else None) or ()
                if self._selects(entry, below)
            ]
        elif self.level is not None:
            values[self.level.code_field] = self._code
        return cls(**values)

    def _without(self, asked: Any, cls: type[Struct], path: tuple[str, ...]) -> Any:
        """A structure of the request without the selected parts, or None when nothing is left."""
        mirrored = self._mirrored(asked)
        if not path or mirrored is None:
            return asked if path else None
        below = _lists(cls)[path[0]]
        left = [
            self._without(entry, below, path[1:]) if self._selects(entry, below) else entry
            for entry in getattr(asked, mirrored) or ()
        ]
        left = [entry for entry in left if entry is not None]
        return copy_with(asked, **{mirrored: left}) if left else None

    def _merge(self, there: Any, made: Any, path: tuple[str, ...]) -> None:
        """Put the entries of the error response in the place of the response's own, list by list."""
        found = list(getattr(there, path[0]) or ())
        errors = {self._identity(entry): entry for entry in getattr(made, path[0], None) or ()}
        known = {self._identity(entry) for entry in found}
        for position, entry in enumerate(found):
            if not self._selects(entry, type(entry)):
                continue
            if path[1:]:
                self._merge(entry, errors.get(self._identity(entry)), path[1:])
            else:
                found[position] = self._made(type(entry), entry, ())
        setattr(there, path[0], found + [entry for key, entry in errors.items() if key not in known])

    def _identity(self, entry: Any) -> tuple[Any, ...]:
        """What distinguishes an entry from others of its list; a request has a topic's name or id, a response both."""
        about = _about(entry)
        topic = _topic_of(entry, self._topic_name)
        return tuple(value for subject, value in about.items() if topic is None or "topic" not in subject), topic

    def _mirrored(self, asked: Any) -> str | None:
        """The list of the request that its response mirrors: the first that this version has."""
        names = _lists(type(asked)) if isinstance(asked, Struct) else ()
        return next((name for name in names if asked.fields[name].present(self._version)), None)

    def _selects(self, entry: Any, mirror: type[Struct]) -> bool:
        """Whether what stands for ``entry`` in the response is (or holds) something that gets the error."""
        subjects = _subjects(mirror)
        if "partition" in subjects:
            return self._partition in (None, _about(entry).get("partition"))
        if subjects.keys() & {"topic", "topic_id", "resource_name"}:
            return self._topic in (None, _topic_of(entry, self._topic_name))
        return True


def _nothing(field: Field, version: int) -> Any:
    """What stands in a field beside an error: -1 for offsets, ids and the like; else 0, "" or an empty list."""
    implicit = field.implicit
    if not field.spec.present(version) or field.type.array:
        return implicit
    if isinstance(implicit, Struct):
        return type(implicit)(**{each.name: _nothing(each, version) for each in fields_of(type(implicit))})
    if field.type.kind == "records":
        return b""
    if field.type.kind in _INTEGERS and field.name.endswith(_MINUS_ONE) and field.name not in _ZERO:
        return -1
    return implicit


def copy_with(struct: Any, **changes: Any) -> Any:
    """A structure like this one, with some values changed. Lists and structures inside are the same."""
    made = copy.copy(struct)
    for name, value in changes.items():
        setattr(made, name, value)
    return made
