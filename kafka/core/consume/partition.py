"""One partition of a consumer: its bytes become records, and :class:`PartitionPosition` says where it is read.

From the partition's part of a Fetch answer to records, as many at a time as the caller of ``poll`` wants:

    records of the answer:  | batch | batch | ... | cut batch |       the cut one is fetched again
    offset asked for:            ^ within a batch: what lies before it is left out

Control batches are never handed out. With ``read_committed``, neither are the records of aborted transactions: the
answer lists (producer, first offset); from there on the producer's transactional batches are left out until its abort
marker has been passed (KIP-98).

Who fetches checks the headers only (:func:`scan_batches`); decoding, CRC and deserialisers are the reader's, in its
thread.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple

from kafka._native import i64, mypyc_attr
from kafka.errors import CorruptRecordError, KafkaError, MessageSizeTooLargeError
from kafka.protocol.fetch import FetchResponse
from kafka.records import (
    ABORT,
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    check_crc,
    decode_control,
    decode_raw,
    parse_header,
)
from kafka.records.compression import inflation_bound
from kafka.records.header import Buffer
from kafka.records.reader import Headers, RecordReader, RecordSink, count_headers, first_header, headers_of
from kafka.structs import TopicPartition
from kafka.validation import Deserialize

# What a consumer hands out.
#
# :class:`ConsumerRecord` has the fields and the manners of kafka-python's, which is a named tuple: ``record.value``,
# ``record[7]``, unpacking, ``_asdict()``, ``_replace()``, comparison. It is no tuple, since a compiled class takes an
# eighth of the time to be made, and the garbage collector passes over it; and headers are read from their bytes when
# they are asked for. A field is added in :data:`FIELDS`, in the three methods that have all of them, and in the sinks
# below, which make what is read of a batch.


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
    def first_header(self) -> tuple[str, bytes | None] | None:
        """The first header, without making the others; None when there is none."""
        return first_header(self._headers)

    @property
    def encoded_headers(self) -> bytes | None:
        """The headers as they are in the batch, as long as they have not been asked for; None when they have been, or
        when there are none. Records with the same bytes have the same headers."""
        headers = self._headers
        return headers if isinstance(headers, bytes) else None

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


# Where a partition's error was: said on the error itself, for programs that go on from there.
#
#     error.topic_partition   the TopicPartition
#     error.offset            what could not be read; None when the partition has no position
#
# Here and not in ``errors.py``, since what a user's deserialiser raises may be anything.


def set_error_location(error: BaseException, partition: TopicPartition, offset: int | None) -> None:
    """Say so. An error that takes no attributes (a user's, with slots) stays as it is."""
    with contextlib.suppress(AttributeError, TypeError):
        for name, value in (("topic_partition", partition), ("offset", offset)):
            setattr(error, name, value)


def has_error_location(error: BaseException) -> bool:
    """Whether the error names its partition already."""
    return getattr(error, "topic_partition", None) is not None


# Makes the records that a consumer hands out, one by one as ``records/reader.py`` finds them in a batch.
#
# Two kinds, since looking for deserialisers at each record would cost those who have none: :class:`ConsumerRecordSink`
# for bytes as they are, :class:`DeserializingRecordSink` for the others. What a user's deserialiser raises is no fault
# of the batch: it is kept in ``fault``, and the records before it are good.


class ConsumerRecordSink(RecordSink):
    """``found``: the records of one batch, in their order. ``fault``: what stopped them, or None."""

    def __init__(self, topic: str, partition: int, leader_epoch: int, timestamp_type: int) -> None:
        self.found: list[ConsumerRecord] = []
        self.fault: Exception | None = None
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.timestamp_type = timestamp_type

    def add(self, offset: i64, timestamp: i64, key: bytes | None, value: bytes | None, headers: bytes | None) -> None:
        self.found.append(
            ConsumerRecord(
                self.topic, self.partition, self.leader_epoch, offset, timestamp, self.timestamp_type, key, value,
                headers,
            )
        )  # fmt: skip


class DeserializingRecordSink(ConsumerRecordSink):
    """With what users' functions make of keys and values; None leaves bytes alone."""

    def __init__(
        self,
        topic: str,
        partition: int,
        leader_epoch: int,
        timestamp_type: int,
        key: Deserialize | None,
        value: Deserialize | None,
    ) -> None:
        super().__init__(topic, partition, leader_epoch, timestamp_type)
        self.key = key
        self.value = value

    def add(self, offset: i64, timestamp: i64, key: bytes | None, value: bytes | None, headers: bytes | None) -> None:
        if self.fault is not None:
            return
        topic = self.topic
        parsed = headers_of(headers)
        try:
            made_key = key if self.key is None else self.key(topic, parsed, key)
            made_value = value if self.value is None else self.value(topic, parsed, value)
        except Exception as error:
            self.fault = error
            set_error_location(error, TopicPartition(topic, self.partition), offset)
            note = getattr(error, "add_note", None)  # since Python 3.11
            if note is not None:
                note(f"in a deserialiser, for {topic}-{self.partition} at offset {offset}; seek() leads past it")
            return
        self.found.append(
            ConsumerRecord(
                topic, self.partition, self.leader_epoch, offset, timestamp, self.timestamp_type, made_key, made_value,
                parsed, None, -1 if key is None else len(key), -1 if value is None else len(value),
            )
        )  # fmt: skip


MAX_HEADER_BYTES: Final = 256 << 10
"""After so many bytes of headers ``poll`` gives what it has: they take some 80 ms to be looked through in plain Python,
and 500 records may have eight million headers."""

NO_TIMESTAMP_TYPE: Final = -1
"""Of records that had no timestamp yet: message sets v0."""

_first_offset: Final = attrgetter("first_offset")


class ReaderOptions:
    """How a consumer reads. Deserialisers None: bytes as they are. ``max_batch_bytes``: what a batch may inflate to."""

    __slots__ = ("check_crcs", "key", "max_batch_bytes", "read_committed", "value")

    def __init__(
        self,
        check_crcs: bool = True,
        read_committed: bool = False,
        key: Deserialize | None = None,
        value: Deserialize | None = None,
        max_batch_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.check_crcs = check_crcs
        self.max_batch_bytes = max_batch_bytes
        self.read_committed = read_committed
        self.key = key
        self.value = value


class CompletedFetch:
    """What was fetched of one partition, from ``fetch_offset`` on. ``next_offset`` is where the next fetch begins."""

    __slots__ = ("_aborted", "_aborting", "_batch_at", "_reader", "data", "error", "header_bytes", "headers",
                 "next_offset", "partition", "position", "size_bytes")  # fmt: skip

    def __init__(
        self,
        partition: TopicPartition,
        fetch_offset: int,
        data: Buffer,
        aborted: Iterable[FetchResponse.AbortedTransaction] = (),
    ) -> None:
        self.partition = partition
        self.data = data
        self.size_bytes = len(data)
        self.position = fetch_offset
        """The next offset to hand out."""
        self.headers, self.error = scan_batches(data, fetch_offset, partition)
        """The whole batches; and the fault that ended them, met when all of them have been read."""
        self.next_offset = max(self.headers[-1].next_offset, fetch_offset) if self.headers else fetch_offset
        # Descending, so that the next one is taken off the end.
        self._aborted = sorted(aborted, key=_first_offset, reverse=True)
        self._aborting: set[int] = set()
        self._batch_at = 0
        self.header_bytes = 0
        """Of the records that the last :meth:`read` gave."""
        self._reader: RecordReader | None = None
        """Of the batch at ``_batch_at``, of which the records before ``position`` have been read."""

    @property
    def leader_epoch(self) -> int:
        """Of the batch that was read from last; -1 before that, and of message sets, which have none."""
        at = self._batch_at if self._reader is not None else self._batch_at - 1
        return self.headers[at].leader_epoch if at >= 0 else -1

    @property
    def is_exhausted(self) -> bool:
        """Everything has been read, and no fault is left to be met."""
        return self.is_read and self.error is None

    def read(
        self, limit: int, options: ReaderOptions, max_header_bytes: int = MAX_HEADER_BYTES
    ) -> list[ConsumerRecord]:
        """The next records, at most ``limit``; fewer, or none, at the end, and none after that with which there were
        ``max_header_bytes``. Moves ``position``.

        Raises the fault of a batch (CorruptRecordError and the like, or what a deserialiser raised) when it is the
        first thing to be read; ``position`` then stands before it.
        """
        found: list[ConsumerRecord] = []
        self.header_bytes = 0
        while len(found) < limit and self.header_bytes < max_header_bytes:
            if self.is_read:
                if self.error is not None and not found:
                    raise self.error
                break
            try:
                most = max_header_bytes - self.header_bytes
                records = self._read_batch(self.headers[self._batch_at], limit - len(found), options, most)
            except Exception:
                if found:
                    break  # what is good comes first
                raise
            if not found:
                found = records
            elif records:
                found += records
        return found

    def skip_to(self, offset: int) -> None:
        """Read on at ``offset``, which is not before ``position``, without making the records up to there.
        CorruptRecordError for what does not even say where transactions end."""
        while not self.is_read and self.headers[self._batch_at].next_offset <= offset:
            self._is_aborted(self.headers[self._batch_at])  # notes which ones begin or end there
            self._reader = None
            self._batch_at += 1
        if self._reader is not None and not self._reader.skip_to(offset):
            self._reader = None
        self.position = offset

    @property
    def is_read(self) -> bool:
        """All batches have been read."""
        return self._batch_at >= len(self.headers)

    @property
    def inflated_bytes(self) -> int:
        """What the batch that is being read takes besides ``data``."""
        return 0 if self._reader is None else self._reader.decompressed_bytes

    def close(self) -> None:
        """Let go of the batch that is being read; :meth:`read` opens it again."""
        self._reader = None

    def _read_batch(
        self, header: BatchHeader, limit: int, options: ReaderOptions, max_header_bytes: int
    ) -> list[ConsumerRecord]:
        """The next records of the batch, at most ``limit``; it is left when they are its last."""
        try:
            reader = self._reader or self._open_batch(header, options)
        except CorruptRecordError as error:
            raise self._located(error) from None
        if reader is None:
            self._leave_batch(header)
            return []
        self._reader = None  # unless all goes well
        records = self._sink(header, options)
        is_more = False
        fault: Exception | None = None
        try:
            is_more = reader.read(records, limit, max_header_bytes)
            self.header_bytes += reader.header_bytes
        except CorruptRecordError as error:
            fault = self._located(error)
        fault = records.fault or fault
        found = records.found
        if fault is not None and not found:
            raise fault
        if found:
            self.position = found[-1].offset + 1
        if is_more and fault is None:
            self._reader = reader
        elif fault is None:
            self._leave_batch(header)
        return found  # what is good comes first; then the rest of the batch is opened again

    def _leave_batch(self, header: BatchHeader) -> None:
        """The batch was read to its end: compaction may have removed its last records, and those offsets count."""
        self.position = max(self.position, header.next_offset)
        self._batch_at += 1

    def _open_batch(self, header: BatchHeader, options: ReaderOptions) -> RecordReader | None:
        """None: none of its records is for the reader."""
        if options.check_crcs and header.magic == 2:
            check_crc(self.data, header)
        if options.read_committed and self._is_aborted(header):
            return None
        if header.is_control:
            return None
        most = options.max_batch_bytes
        if header.codec or header.magic < 2:  # else nothing is inflated
            most = min(most, inflation_bound(header.length, most * 3 // 10))
        return RecordReader(self.data, header, most, self.position)

    def _located(self, error: CorruptRecordError) -> CorruptRecordError:
        return CorruptRecordError(f"{_partition_text(self.partition)}: {error.args[0]}")

    def _sink(self, header: BatchHeader, options: ReaderOptions) -> ConsumerRecordSink:
        topic, partition = self.partition
        kind = header.timestamp_type if header.magic else NO_TIMESTAMP_TYPE
        if options.key is None and options.value is None:
            return ConsumerRecordSink(topic, partition, header.leader_epoch, kind)
        return DeserializingRecordSink(topic, partition, header.leader_epoch, kind, options.key, options.value)

    def _is_aborted(self, header: BatchHeader) -> bool:
        aborted = self._aborted
        while aborted and aborted[-1].first_offset <= header.last_offset:
            self._aborting.add(aborted.pop().producer_id)
        if not header.is_transactional or header.producer_id not in self._aborting:
            return False
        if header.is_control:
            for _, _, key, value, _ in decode_raw(self.data, header):
                if decode_control(key, value).kind == ABORT:
                    self._aborting.discard(header.producer_id)
        return True


def scan_batches(
    data: Buffer, fetch_offset: int, partition: TopicPartition
) -> tuple[list[BatchHeader], KafkaError | None]:
    """The headers of the whole batches in ``data``, and the fault at which they end, if it is not a cut.

    A first batch that is cut was larger than the fetch: brokers since 0.10.1 send it whole, so this is
    MessageSizeTooLargeError with the setting to raise.
    """
    headers: list[BatchHeader] = []
    pos = 0
    try:
        while (header := parse_header(data, pos)) is not None:
            headers.append(header)
            pos = header.end
    except KafkaError as error:
        return headers, CorruptRecordError(f"{_partition_text(partition)} at offset {fetch_offset}: {error.args[0]}")
    if not headers and len(data):
        return headers, MessageSizeTooLargeError(
            f"{_partition_text(partition)}: the batch at offset {fetch_offset} is larger than "
            "max_partition_fetch_bytes, and the broker (before 0.10.1) cuts it: raise that, or seek() past it"
        )
    return headers, None


def _partition_text(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


# Where each assigned partition is read, and what of it is buffered.
#
#     AWAITING ──start──► NEEDS RESET or READING
#     NEEDS RESET ──asked──► RESETTING ──offset──► READING ──out of range──► NEEDS RESET (or an error, by policy)
#          ▲                     │ error: again after a pause    │
#          └─────────────────────┘                       seek: READING at once
#
# ``position`` is the next offset to hand out, ``fetch_offset`` the next to ask for: what lies between is buffered.
# ``generation`` goes up with every seek, so that answers to earlier questions are known as such.
#
# What changes a position notes it in :class:`PositionChanges`: the fetcher looks at what has changed and not at a
# thousand positions that have not. A new fact that decides whether, where or what is fetched is to call
# :meth:`PartitionPosition.touch` when it changes.


LATEST: Final = -1
EARLIEST: Final = -2
NO_EPOCH: Final = -1
"""A leader epoch that is not known."""


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition, and its epoch (:data:`NO_EPOCH`: unknown to old brokers)."""

    leader: int
    epoch: int


MAX_INFLATED_BYTES: Final = 32 << 20
"""Of the batches that are being read, when they are more than one."""


class PositionChanges:
    """What happened to positions: ``touched`` since the fetcher last looked; ``ready`` for the reader, in its turn."""

    __slots__ = ("_inflated", "_inflated_bytes", "_max_inflated_bytes", "buffered_bytes", "ready", "touched")

    def __init__(self, max_inflated_bytes: int = MAX_INFLATED_BYTES) -> None:
        self.touched: dict[PartitionPosition, None] = {}
        self.ready: dict[PartitionPosition, None] = {}
        self.buffered_bytes = 0
        """Of all positions."""
        self._inflated: dict[CompletedFetch, int] = {}
        """What has been read from and holds an inflated batch, the longest ago first, and how many bytes of it."""
        self._inflated_bytes = 0
        self._max_inflated_bytes = max_inflated_bytes

    def put_first(self, position: PartitionPosition) -> None:
        """It is the reader's next one."""
        self.ready = {position: None, **self.ready}

    def note_inflated(self, fetched: CompletedFetch, size_bytes: int) -> None:
        """``fetched`` holds so much of an inflated batch now. Beyond :data:`MAX_INFLATED_BYTES` in all, others let go
        of theirs, which are inflated again when they are read on."""
        self._inflated_bytes += size_bytes - self._inflated.pop(fetched, 0)
        if not size_bytes:
            return
        self._inflated[fetched] = size_bytes
        while self._inflated_bytes > self._max_inflated_bytes and len(self._inflated) > 1:
            other = next(iter(self._inflated))
            self._inflated_bytes -= self._inflated.pop(other)
            other.close()


class PartitionPosition:
    """One assigned partition. ``leader_epoch``, ``fetch_epoch``: of the record before ``position``, ``fetch_offset``:
    of the last handed out and the last fetched, or as given to :meth:`seek`; :data:`NO_EPOCH`: not known."""

    __slots__ = (
        "_changes", "_error", "_is_paused", "buffered", "buffered_bytes", "distrusted_epoch", "failures",
        "fetch_epoch", "fetch_offset", "generation", "highwater", "is_awaiting", "is_resetting", "is_validating",
        "last_stable_offset", "leader", "leader_epoch", "log_start_offset", "recheck_at", "node", "partition",
        "position",
        "read_replica", "read_replica_until", "refused_by", "reset_to", "retry_at",
    )  # fmt: skip

    def __init__(self, partition: TopicPartition, changes: PositionChanges) -> None:
        self.partition = partition
        self._changes = changes
        self.position: int | None = None
        self.leader_epoch = NO_EPOCH
        self.fetch_offset: int | None = None
        self.fetch_epoch = NO_EPOCH
        # Goes up with each seek and reset, so that answers to earlier requests are dropped.
        self.generation = 0
        self.reset_to: int | None = None
        """The timestamp to reset to (LATEST, EARLIEST, or ms since the epoch); None: no reset is needed."""
        self.is_awaiting = False
        """The start is not known yet, and must not be reset here: the group's committed offset is being looked up."""
        self.is_resetting = False
        self.is_validating = False
        """Whether the log still has what was read of it is being asked (KIP-320)."""
        self.leader: LeaderAndEpoch | None = None
        """With whom the position is valid."""
        self.distrusted_epoch = NO_EPOCH
        """An epoch of the metadata with which the leader refused us again and again."""
        self.read_replica: int | None = None
        """A node that the leader has sent us to (KIP-392), until ``read_replica_until``."""
        self.read_replica_until = 0.0
        self.node: int | None = None
        """Where it is fetched; None: nowhere now."""
        self._is_paused = False
        self.failures = 0
        """Errors in a row."""
        self.retry_at = 0.0
        self.refused_by: int | None = None
        """The node that does not lead it any more, for which ``retry_at`` holds: another one is not made to wait."""
        self.recheck_at = inf
        """When the fetcher looks at it next, though nothing touched it."""
        self.buffered: deque[CompletedFetch] = deque()
        self.buffered_bytes = 0
        self._error: BaseException | None = None
        self.highwater: int | None = None
        self.last_stable_offset = -1
        self.log_start_offset = -1

    # -- what is read --------------------------------------------------------------------------------------------------

    def seek(self, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Read from ``offset`` on; ``leader_epoch`` is that of the record before it, where it is known: the log is then
        asked first whether it still has that (KIP-320)."""
        self._begin_anew()
        self.reset_to = None
        self.position = self.fetch_offset = offset
        self.leader_epoch = self.fetch_epoch = leader_epoch
        self.touch()

    def skip_to(self, offset: int) -> int | None:
        """Go on at ``offset``, or as near before it as what is buffered goes; the position then, None when there is
        none. What is buffered behind it stays, and so do faults, which are met by reading."""
        position = self.position
        while position is not None and position < offset and self.buffered:
            fetched = self.buffered[0]
            if fetched.error is not None:
                break
            fetched.skip_to(min(offset, fetched.next_offset))
            self.read_from(fetched)
            if self.position == position:  # batches that do not ascend: reading says so
                break
            position = self.position
        return position

    def seek_validated(self, offset: int, leader_epoch: int) -> None:
        """:meth:`seek`, where the leader has just said that its log has the record before ``offset``."""
        leader = self.leader
        self.seek(offset, leader_epoch)
        self.leader = leader

    def reset(self, timestamp: int) -> None:
        """Find the position by ``timestamp``: :data:`LATEST`, :data:`EARLIEST`, or ms since the epoch."""
        self._begin_anew()
        self.reset_to = timestamp
        self.position = self.fetch_offset = None
        self.leader_epoch = self.fetch_epoch = NO_EPOCH
        self.touch()

    def release(self) -> None:
        """It is assigned no more."""
        self._begin_anew()
        self.reset_to = self.position = self.fetch_offset = None
        self.touch()

    def drop_buffer(self) -> None:
        """Forget what is buffered: it is fetched again."""
        self.generation += 1
        self._empty()
        self.fetch_offset = self.position
        self.fetch_epoch = self.leader_epoch
        self.touch()

    def _begin_anew(self) -> None:
        self.generation += 1
        self.is_awaiting = self.is_resetting = self.is_validating = False
        self.leader = None
        self.failures = 0
        self.retry_at = 0.0
        self._empty()
        self._error = None

    def _empty(self) -> None:
        self._changes.buffered_bytes -= self.buffered_bytes
        for fetched in self.buffered:
            self._changes.note_inflated(fetched, 0)
        self.buffered.clear()
        self.buffered_bytes = 0

    def buffer(self, fetched: CompletedFetch) -> None:
        """An answer has come for the present generation."""
        self.buffered.append(fetched)
        self.buffered_bytes += fetched.size_bytes
        self._changes.buffered_bytes += fetched.size_bytes
        self.fetch_offset = fetched.next_offset
        if fetched.headers and fetched.headers[-1].leader_epoch >= 0:
            self.fetch_epoch = fetched.headers[-1].leader_epoch
        self.touch()

    def read_from(self, fetched: CompletedFetch) -> None:
        """``fetched``, the first that is buffered, was read from."""
        self.position = fetched.position
        if fetched.leader_epoch >= 0:
            self.leader_epoch = fetched.leader_epoch
        self._changes.note_inflated(fetched, fetched.inflated_bytes)
        if fetched.is_exhausted:
            self.buffered.popleft()
            self.buffered_bytes -= fetched.size_bytes
            self._changes.buffered_bytes -= fetched.size_bytes
            self.touch()

    # -- what the fetcher notes ----------------------------------------------------------------------------------------

    def await_start(self) -> None:
        """Where to begin is being looked up (a group's committed offset): neither fetched nor reset before."""
        self.is_awaiting = True

    def end_await(self) -> None:
        """No committed offset was found, or whatever else says where to begin."""
        self.is_awaiting = False

    def begin_reset(self) -> None:
        """The offset of ``reset_to`` is being requested."""
        self.is_resetting = True

    def end_reset(self) -> None:
        """The offset could not be found; :meth:`seek` ends a reset that succeeded."""
        self.is_resetting = False

    def lead_by(self, leader: LeaderAndEpoch, validating: bool) -> None:
        """``leader`` leads from now on; ``validating``: its log is asked first whether it has what was read."""
        self.leader = leader
        self.read_replica = None
        self.is_validating = validating

    def end_validation(self) -> None:
        """The leader has answered, or the position cannot be checked."""
        self.is_validating = False
        self.touch()

    def invalidate(self) -> None:
        """Ask again whether the leader's log has what was read."""
        self.leader = None

    def read_at(self, node: int | None) -> None:
        """It is fetched from ``node``; None: from nowhere now."""
        self.node = node

    def prefer_replica(self, replica: int, until: float) -> None:
        """The leader has sent us to ``replica`` (KIP-392)."""
        self.read_replica = replica
        self.read_replica_until = until
        self.touch()

    def leave_replica(self) -> None:
        """Fetch from the leader again."""
        self.read_replica = None
        self.touch()

    def back_off(self, until: float, refused_by: int | None = None) -> None:
        """One more error in a row: left alone until then, unless ``refused_by`` does not lead it any more by then."""
        self.failures += 1
        self.retry_at = until
        self.refused_by = refused_by
        self.touch()

    def distrust(self, leader_epoch: int) -> None:
        """Fetch without this epoch of the metadata: its leader refuses it again and again."""
        self.distrusted_epoch = leader_epoch

    def note_offsets(self, highwater: int, last_stable_offset: int, log_start_offset: int) -> None:
        """A fetch was answered without an error."""
        self.failures = 0
        self.highwater = highwater
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset

    def recheck_by(self, when: float) -> bool:
        """The fetcher is to look at it then or earlier; whether that is news (else an earlier look is due anyway)."""
        if when >= self.recheck_at:
            return False
        self.recheck_at = when
        return True

    def rechecked(self, now: float) -> None:
        """The fetcher looks at it now."""
        if self.recheck_at <= now:
            self.recheck_at = inf

    def go_on_from(self, position: int | None) -> None:
        """Reading failed behind ``position``: what is buffered is dropped, and fetched again from there."""
        self.position = position
        self.drop_buffer()

    # -- notifications of the fetcher and the reader -------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Nothing is fetched or handed out; what is buffered stays."""
        return self._is_paused

    def pause(self, is_paused: bool = True) -> None:
        """Stop handing out, or go on."""
        self._is_paused = is_paused
        self.touch()

    @property
    def error(self) -> BaseException | None:
        """To be raised to the reader once what is buffered has been read."""
        return self._error

    def set_error(self, error: BaseException | None) -> None:
        """What the reader has to know; None: it does, and reading goes on."""
        self._error = error
        self.touch()

    def fault(self) -> BaseException:
        """The error, to be raised now: it says where it was."""
        assert self._error is not None
        set_error_location(self._error, self.partition, self.fetch_offset)
        return self._error

    @property
    def is_ready(self) -> bool:
        """There is something for the reader, be it an error."""
        return not self._is_paused and (bool(self.buffered) or self._error is not None)

    def touch(self) -> None:
        """Something has changed: the fetcher is to look at it."""
        self._changes.touched[self] = None
        if self.is_ready:
            self._changes.ready.setdefault(self)
        else:
            self._changes.ready.pop(self, None)


# ``auto_offset_reset``: where a partition is read that has no position, or one that its log does not have (KIP-1106).
#
#     latest, earliest             its end, its start
#     by_duration:PT3600S          the first record that is not older than that now; the end where there is none
#     none                         nowhere: an error for the reader
#
# The texts are as the setting's check leaves them. Another policy is another row, or another branch in
# :meth:`OffsetResetStrategy.timestamp`.


BY_DURATION: Final = "by_duration:PT"
RESET_TIMESTAMPS: Final[Mapping[str, int | None]] = {"latest": LATEST, "earliest": EARLIEST, "none": None}


class OffsetResetStrategy:
    """``wall_ms`` gives the time of day, in ms since the epoch, as records have it."""

    def __init__(self, text: str, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._age_ms: int | None = None
        self._timestamp: int | None = None
        if text.startswith(BY_DURATION):
            self._age_ms = round(float(text[len(BY_DURATION) : -1]) * 1000)
        else:
            self._timestamp = RESET_TIMESTAMPS[text]

    @property
    def resets(self) -> bool:
        """A position is looked up anew; else an error is raised to its reader."""
        return self._age_ms is not None or self._timestamp is not None

    def timestamp(self) -> int | None:
        """The timestamp to look up now; None when nothing is to be reset."""
        return self._timestamp if self._age_ms is None else max(self._wall_ms() - self._age_ms, 0)
