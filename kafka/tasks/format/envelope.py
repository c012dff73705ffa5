"""A job as a record, both ways: one table, read by the worker, the child and every move of a job.

The record's value is the payload (:mod:`kafka.tasks.format.payload`), its key the job's key, if it has one; everything
else is headers, so that any language can write a job with two of them and a worker can look at a job without decoding
its arguments::

    header          content (ASCII text)                       left out when
    id              32 hex digits, see kafka.tasks.format.job_id   never
    name            the task's name, UTF-8                     never
    attempt         1 for the first run, counts all            1
    due             ms since the epoch, broker time:           it may start at once
                    not to start before
    expires         ms since the epoch, broker time            it never expires
    timeout         seconds, hard limit of this call           the task's own holds
    soft-timeout    seconds, soft limit of this call           the task's own holds
    store           0: no SUCCESS record                       the task's own holds
    content-type    media type of the payload                  application/json
    needs           what a worker must understand to run it,   nothing
                    names with commas between
    crashes         workers that died running it               0
    clean           times a worker gave it back unstarted      0
    unknown         times a worker could not run it: it had    0
                    no task of the name, or lacked a need
    unknown-since   ms since the epoch, the first such time    it was not
    run             the slot of a periodic entry               it is not of one
    origin          id of the dead job that it replays         it is no replay
    parent          id of the job that enqueued it             it has none
    root            id of the first job of its workflow        it has none
    generation      times that the schedule has taken it       0

The time of the enqueue is in the id, that of this attempt is the record's own timestamp. Headers that are not in the
table (trace context, the caller's own) are carried along unchanged. A dead record is the job's record with value and
headers as they were, and ``dead-*`` headers added (:class:`DeadLetter`), so that it can be replayed by leaving those
out. Headers ``schedule-*`` are those of :mod:`kafka.tasks.format.commands` and :mod:`kafka.tasks.format.schedule`.

A new header is one more row in ``_FIELDS`` and one more field of :class:`Envelope`. One that an older worker must not
ignore also gets a name in :data:`UNDERSTOOD`, which its writers put into ``needs``: a worker that does not understand a
need leaves the job to others, as one of an unknown task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from kafka.errors import CorruptRecordError
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.job_id import is_id, partition_of

Header: TypeAlias = "tuple[str, bytes | None]"
"""A record header as the clients take and give it."""

DEAD = "dead-"
"""Prefix of the headers that a dead record has and a job has not."""

SCHEDULE = "schedule-"
"""Prefix of the headers that records of the schedule have and a job has not."""

RESERVED = (DEAD, SCHEDULE)
"""Prefixes that a caller's own headers may not have."""

MOST_EXTRA = 100
"""A record with more headers of others is no job. Each costs a hundred bytes of memory, and two in the record."""

MOST_HEADERS = 128
"""Of all kinds; those of the table and of a death come on top of the others', and change on a job's way."""

UNDERSTOOD: frozenset[str] = frozenset()
"""Needs that this release meets."""

MOST_NEEDS = 500
"""Characters of ``needs``: they are named in the log and in the dead topic."""

MALFORMED = -1
"""In the place of a number of headers."""

MOST_SHOWN = 100
"""Bytes of a record that an error shows: its text goes to the log and into the dead topic."""


class RecordHeaders(Protocol):
    """A fetched record, as far as its headers are looked at."""

    @property
    def headers_count(self) -> int: ...

    @property
    def headers(self) -> Sequence[Header]: ...


def job_headers(record: RecordHeaders) -> tuple[Sequence[Header], int]:
    """A record's headers; or none, and how many there are, when they are more than a job has or malformed. They are
    counted before they are made."""
    try:
        count = record.headers_count
        return ([], count) if count > MOST_HEADERS else (record.headers, 0)
    except CorruptRecordError:
        return [], MALFORMED


class Envelope:
    """One job: which task, with what, and how far it has come. ``value`` is the undecoded payload, ``key`` the key of
    the record.

    No dataclass: compiled, one takes three times as long to make and to look into.
    """

    __slots__ = (
        "attempt", "clean", "content_type", "crashes", "due_ms", "expires_ms", "extra", "generation", "id", "key",
        "name", "needs", "origin", "parent", "root", "run", "soft_timeout", "store_result", "timeout", "unknown",
        "unknown_since_ms", "value",
    )  # fmt: skip

    def __init__(
        self,
        id: str,
        name: str,
        value: bytes,
        attempt: int = 1,
        expires_ms: int | None = None,
        timeout: float | None = None,
        soft_timeout: float | None = None,
        store_result: bool | None = None,
        crashes: int = 0,
        clean: int = 0,
        extra: tuple[Header, ...] = (),
        unknown: int = 0,
        key: bytes | None = None,
        due_ms: int | None = None,
        content_type: str | None = None,
        needs: tuple[str, ...] = (),
        unknown_since_ms: int | None = None,
        run: str | None = None,
        origin: str | None = None,
        parent: str | None = None,
        root: str | None = None,
        generation: int = 0,
    ) -> None:
        self.id = id
        self.name = name
        self.value = value
        self.attempt = attempt
        self.expires_ms = expires_ms
        self.timeout = timeout
        self.soft_timeout = soft_timeout
        self.store_result = store_result
        self.crashes = crashes
        self.clean = clean
        # Headers that the format does not name, in the record's order: they go with the job through all its moves.
        self.extra = extra
        self.unknown = unknown
        self.key = key
        self.due_ms = due_ms
        self.content_type = content_type
        self.needs = needs
        self.unknown_since_ms = unknown_since_ms
        self.run = run
        self.origin = origin
        self.parent = parent
        self.root = root
        self.generation = generation

    def moved(
        self,
        attempt: int,
        crashes: int,
        clean: int = 0,
        unknown: int = 0,
        unknown_since_ms: int | None = None,
        due_ms: int | None = None,
        generation: int | None = None,
    ) -> Envelope:
        """The same job, having come so far; ``generation`` None: the same."""
        return Envelope(
            self.id, self.name, self.value, attempt, self.expires_ms, self.timeout, self.soft_timeout,
            self.store_result, crashes, clean, self.extra, unknown, self.key, due_ms, self.content_type, self.needs,
            unknown_since_ms, self.run, self.origin, self.parent, self.root,
            self.generation if generation is None else generation,
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Envelope):
            return NotImplemented
        return (self.key, self.value, self.headers()) == (other.key, other.value, other.headers())

    def __repr__(self) -> str:
        return f"<Envelope {self.value!r} {self.headers()!r}>"

    @property
    def results_partition(self) -> int:
        """Where its state records go."""
        return partition_of(self.id)

    def headers(self) -> list[Header]:
        """The record's headers; fields at their defaults are left out."""
        return [("id", self.id.encode()), ("name", self.name.encode()), *self.more_headers()]

    def more_headers(self) -> list[Header]:
        """The record's headers beside id and name."""
        headers: list[Header] = []
        for header, attribute, default, to_text, _ in _FIELDS:
            value = getattr(self, attribute)
            if value != default:
                headers.append((header, to_text(value).encode()))
        headers.extend(self.extra)
        return headers


def decode(value: bytes | None, headers: Sequence[Header], key: bytes | None = None) -> Envelope:
    """The job in a record; :class:`BadRecord` with a cause when it is none. The payload is not looked at."""
    job_id: str | None = None
    name: str | None = None
    if len(headers) == 2 and headers[0][0] == "id" and headers[1][0] == "name":  # a call without options, in our order
        job_id, name = _text("id", headers[0][1]), _text("name", headers[1][1])
        if value is not None and name and is_id(job_id):
            return Envelope(job_id, name, bytes(value), key=key)
        job_id = name = None
    if len(headers) > MOST_HEADERS:
        raise too_many_headers(len(headers))
    fields: dict[str, Any] = {}
    extra: list[Header] = []
    for header, raw in headers:
        if header == "id":
            job_id = _text(header, raw)
        elif header == "name":
            name = _text(header, raw)
        elif header in _DECODERS:
            attribute, from_text = _DECODERS[header]
            try:
                fields[attribute] = from_text(_text(header, raw))
            except ValueError:
                text = f"invalid value of the header {header!r}: {truncated_repr(raw)}"
                raise BadRecord("bad-header", text) from None
        elif not header.startswith(RESERVED):
            extra.append((header, raw))
    if len(extra) > MOST_EXTRA:
        raise too_many_headers(len(headers))
    if job_id is None or name is None:
        missing = " and ".join(repr(h) for h, found in (("id", job_id), ("name", name)) if found is None)
        raise BadRecord("no-job", f"the record is not a job: it has no header {missing}")
    if not is_id(job_id):
        raise BadRecord("bad-id", f"{truncated_repr(job_id)} is not a job id (32 lower-case hex digits)")
    if not name:
        raise BadRecord("no-job", "the task's name is empty")
    if value is None:
        raise BadRecord("no-payload", "the record has no value")
    return Envelope(job_id, name, bytes(value), extra=tuple(extra), key=key, **fields)


def readable_id(headers: Sequence[Header]) -> str | None:
    """The id in a record that is no job otherwise: somebody may wait for the result of that job."""
    ids = [raw for header, raw in headers if header == "id"]
    job_id = ids[0].decode("ascii", "replace") if len(ids) == 1 and ids[0] is not None else ""
    return job_id if is_id(job_id) else None


def too_many_headers(count: int) -> BadRecord:
    """What a record with too many headers is; :data:`MALFORMED`: with headers that cannot be read."""
    if count == MALFORMED:
        return BadRecord("bad-header", "the record's headers are malformed; they are left out of the dead record")
    most = f"a job has at most {MOST_EXTRA} besides its own"
    left_out = "; they are left out of the dead record" if count > MOST_HEADERS else ""
    return BadRecord("too-many-headers", f"the record has {count} headers; {most}{left_out}")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why a record is in the dead topic: a short ``cause``, the error's ``type``, ``text`` and ``traceback``, and
    where and when (``host``, ``time_ms`` on the broker's clock, ``origin`` as TOPIC:PARTITION:OFFSET).
    """

    cause: str
    type: str = ""
    text: str = ""
    traceback: str = ""
    host: str = ""
    time_ms: int = 0
    origin: str = ""

    def headers(self) -> list[Header]:
        """The ``dead-*`` headers; empty fields are left out."""
        pairs = (
            ("cause", self.cause),
            ("type", self.type),
            ("text", self.text),
            ("traceback", self.traceback),
            ("host", self.host),
            ("time", str(self.time_ms) if self.time_ms else ""),
            ("origin", self.origin),
        )
        return [(DEAD + name, text.encode("utf-8", "backslashreplace")) for name, text in pairs if text]


def dead_letter_of(headers: Iterable[Header]) -> DeadLetter | None:
    """The cause of death in a dead record's headers, or None when they have none."""
    fields = {name[len(DEAD) :]: _lenient(raw) for name, raw in headers if name.startswith(DEAD)}
    if "cause" not in fields:
        return None
    time = fields.get("time", "")
    return DeadLetter(
        fields["cause"],
        fields.get("type", ""),
        fields.get("text", ""),
        fields.get("traceback", ""),
        fields.get("host", ""),
        int(time) if time.isascii() and time.isdigit() else 0,
        fields.get("origin", ""),
    )


def shortened_death(headers: Iterable[Header]) -> list[Header]:
    """The headers of a dead record without the traceback, and with the beginning of the text."""
    kept: list[Header] = []
    for name, raw in headers:
        if name == f"{DEAD}text":
            kept.append((name, (raw or b"")[:MOST_SHOWN]))
        elif name != f"{DEAD}traceback":
            kept.append((name, raw))
    return kept


def _lenient(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _text(header: str, raw: bytes | None) -> str:
    if raw is None:
        raise BadRecord("bad-header", f"the header {header!r} is null")
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        raise BadRecord("bad-header", f"the header {header!r} is not UTF-8: {truncated_repr(raw)}") from None


def truncated_repr(value: str | bytes | None) -> str:
    """What a record holds, for an error's text: the beginning, and how long it is when there is more."""
    if value is None or len(value) <= MOST_SHOWN:
        return repr(value)
    return f"{value[:MOST_SHOWN]!r}... ({len(value)} {'characters' if isinstance(value, str) else 'bytes'})"


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise ValueError(text)
    return int(text)


def _positive(text: str) -> int:
    number = _natural(text)
    if number == 0:
        raise ValueError(text)
    return number


def _duration(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(text)
    return text == "1"


def _names(text: str) -> tuple[str, ...]:
    if len(text) > MOST_NEEDS:
        raise ValueError(text)
    return tuple(filter(None, text.split(",")))


def _job_id(text: str) -> str:
    if not is_id(text):
        raise ValueError(text)
    return text


def _short(text: str) -> str:
    if not 0 < len(text) <= MOST_SHOWN:
        raise ValueError(text)
    return text


_Row: TypeAlias = "tuple[str, str, Any, Callable[[Any], str], Callable[[str], Any]]"
_FIELDS: tuple[_Row, ...] = (
    ("attempt", "attempt", 1, str, _positive),
    ("due", "due_ms", None, str, _natural),
    ("expires", "expires_ms", None, str, _natural),
    ("timeout", "timeout", None, repr, _duration),
    ("soft-timeout", "soft_timeout", None, repr, _duration),
    ("store", "store_result", None, lambda flag: "1" if flag else "0", _flag),
    ("content-type", "content_type", None, str, _short),
    ("needs", "needs", (), ",".join, _names),
    ("crashes", "crashes", 0, str, _natural),
    ("clean", "clean", 0, str, _natural),
    ("unknown", "unknown", 0, str, _natural),
    ("unknown-since", "unknown_since_ms", None, str, _natural),
    ("run", "run", None, str, _short),
    ("origin", "origin", None, str, _job_id),
    ("parent", "parent", None, str, _job_id),
    ("root", "root", None, str, _job_id),
    ("generation", "generation", 0, str, _natural),
)
_DECODERS = {header: (attribute, from_text) for header, attribute, _, _, from_text in _FIELDS}
OWN_HEADERS: frozenset[str] = frozenset({"id", "name", *_DECODERS})
"""Names of the table: a caller's own headers have others, which do not begin with one of :data:`RESERVED` either."""
