"""What a consumer hands out.

:class:`ConsumerRecord` has the fields and the manners of kafka-python's, which is a named tuple: ``record.value``,
``record[7]``, unpacking, ``_asdict()``, ``_replace()``, comparison. It is no tuple, since a compiled class takes an
eighth of the time to be made, and the garbage collector passes over it; and headers are read from their bytes when
they are asked for. What is read of a batch is made in ``fetched.py``; a field is added there, in :data:`FIELDS`,
and in the three methods here that have all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from kafka._native import mypyc_attr
from kafka.records.reader import Headers, count_headers, headers_of
from kafka.structs import TopicPartition

FIELDS: Final = (
    "topic", "partition", "leader_epoch", "offset", "timestamp", "timestamp_type", "key", "value", "headers",
    "checksum", "serialized_key_size", "serialized_value_size", "serialized_header_size",
)  # fmt: skip

OptionalSizes = tuple[int | None, int | None, int | None, int | None]
"""Checksum, and the sizes of the serialized key, value and headers; None: to be found out."""


@mypyc_attr(acyclic=True)
class ConsumerRecord:
    """One record as read. ``timestamp`` in ms since the epoch (-1: none), ``timestamp_type`` 0 by the producer, 1 by
    the broker, -1 where records had no timestamps yet (message sets v0; as in Java, where kafka-python says None).
    ``key`` and ``value`` are what the deserialisers made of the bytes, sizes are those of the bytes (-1 for None).
    ``headers``: ``[(name, bytes or None)]``. ``checksum`` is None (records v2 have none of their own).

    A value that refers to its own record makes a cycle that a compiled build does not collect.
    """

    __slots__ = (
        "_given", "_headers", "key", "leader_epoch", "offset", "partition", "timestamp", "timestamp_type", "topic",
        "value",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        leader_epoch: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: Any,
        value: Any,
        headers: Any,
        checksum: int | None = None,
        serialized_key_size: int | None = None,
        serialized_value_size: int | None = None,
        serialized_header_size: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self._headers = headers
        """A list; or, until it is asked for, what ``headers_of`` takes."""
        self._given: OptionalSizes | None = None
        # Only users who make records themselves give these; records that were fetched have them computed when read.
        if (
            serialized_key_size is not None
            or serialized_value_size is not None
            or serialized_header_size is not None
            or checksum is not None
        ):
            self._given = (checksum, serialized_key_size, serialized_value_size, serialized_header_size)

    @property
    def headers(self) -> Headers:
        """The headers, in order: ``[(name, bytes or None)]``."""
        headers = self._headers = headers_of(self._headers)
        return headers

    @property
    def headers_count(self) -> int:
        """How many headers there are, without making them."""
        return count_headers(self._headers)

    @property
    def checksum(self) -> int | None:
        """None, unless the record was made with one."""
        return None if self._given is None else self._given[0]

    @property
    def serialized_key_size(self) -> int:
        """Bytes of the key before it was deserialised; -1 without one."""
        given = None if self._given is None else self._given[1]
        return _size_of(self.key) if given is None else given

    @property
    def serialized_value_size(self) -> int:
        """Bytes of the value before it was deserialised; -1 without one."""
        given = None if self._given is None else self._given[2]
        return _size_of(self.value) if given is None else given

    @property
    def serialized_header_size(self) -> int:
        """Bytes of the headers' names and values; -1 without headers."""
        given = None if self._given is None else self._given[3]
        if given is not None:
            return given
        headers = self.headers
        return sum(len(name.encode()) + len(value or b"") for name, value in headers) if headers else -1

    # -- as a named tuple ----------------------------------------------------------------------------------------------

    _fields: ClassVar[tuple[str, ...]] = FIELDS

    def _fields_of(self) -> tuple[Any, ...]:
        return (
            self.topic, self.partition, self.leader_epoch, self.offset, self.timestamp, self.timestamp_type, self.key,
            self.value, self.headers, self.checksum, self.serialized_key_size, self.serialized_value_size,
            self.serialized_header_size,
        )  # fmt: skip

    def _asdict(self) -> dict[str, Any]:
        """The fields by name."""
        return dict(zip(FIELDS, self._fields_of(), strict=True))

    def _replace(self, **fields: Any) -> ConsumerRecord:
        """A record with other values in ``fields``; ValueError for a name that is no field."""
        unknown = sorted(fields.keys() - set(FIELDS))
        if unknown:
            raise ValueError(f"Got unexpected field names: {unknown!r}")
        return ConsumerRecord(**{**self._asdict(), **fields})

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fields_of())

    def __len__(self) -> int:
        return len(FIELDS)

    def __getitem__(self, index: Any) -> Any:
        return self._fields_of()[index]

    def index(self, value: Any, start: int = 0, stop: int = len(FIELDS)) -> int:
        """The number of the first field with this value; ValueError when none has it."""
        return self._fields_of().index(value, start, stop)

    def count(self, value: Any) -> int:
        """How many fields have this value."""
        return self._fields_of().count(value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ConsumerRecord):
            return self._fields_of() == other._fields_of()
        if isinstance(other, tuple):
            return self._fields_of() == other
        return NotImplemented

    def __lt__(self, other: Any) -> bool:
        return self._fields_of() < tuple(other)

    def __hash__(self) -> int:
        return hash(self._fields_of())  # TypeError, since headers are a list: as kafka-python's

    def __repr__(self) -> str:
        pairs = zip(FIELDS, self._fields_of(), strict=True)
        return f"ConsumerRecord({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return ConsumerRecord, self._fields_of()


def _size_of(data: Any) -> int:
    return len(data) if isinstance(data, bytes) else -1


RecordsByPartition = dict[TopicPartition, list[ConsumerRecord]]
