"""Commands: what clients and workers ask of the schedule, as records of the topic ``APP.commands``.

The key is the *subject*, a job's id or the name of a periodic entry, which also chooses the partition
(:func:`partition_of_job`, :func:`partition_of_entry`), so that all commands about a subject have one order and one
owner. The header ``schedule-command`` says which command it is::

    command      subject  other headers, and value
    PUT          job      schedule-queue, schedule-key, schedule-ordered, due, and all headers of the job (see
                          kafka.tasks.format.envelope); value: the payload. Write the job to APP.QUEUE.due at `due`
    LEASE        job      the same: the job runs, and is written to APP.QUEUE.due if nothing is heard until `due`
    RENEW        job      generation, due: the lease goes on until `due`
    END          job      generation: the lease is over, its job has ended
    CANCEL       job      request, terminate: end it as REVOKED
    RESCHEDULE   job      request, due: another time
    LOOK         job      request: where is it?
    DECLARE      --       value: JSON, the periodic entries that an app's code declares in this partition
    ADD          entry    request; value: JSON, one entry
    REMOVE PAUSE RESUME RUN   entry   request
    LIST         entry    request: the entries of this partition whose names come after this one; --: from the first

``request`` is an id like a job's (:mod:`kafka.tasks.format.job_id`), of the client's own: the answer is the state
record SUCCESS of that id, with a JSON object as its value, so a client waits for an answer as for a result.

``schedule-ordered`` is ``1`` of a job whose queue is an ordered one: it is written to APP.QUEUE, which has all jobs of
such a queue, and to the partition of its key there. It is left out of all others, and a release that does not know it
writes the job to APP.QUEUE.due. The entries of DECLARE and ADD say the same as ``"ordered": true``.

Other headers of a PUT or a LEASE are the job's, whatever their names: ``request`` may be its caller's.

Times are ms since the epoch by the broker's clock. A command of a later release is not obeyed, and logged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kafka.tasks.errors import BadRecord
from kafka.tasks.format.envelope import Envelope, Header, truncated_repr
from kafka.tasks.format.job_id import is_id
from kafka.tasks.format.topics import is_queue

COMMAND: Final = "schedule-command"
QUEUE: Final = "schedule-queue"
JOB_KEY: Final = "schedule-key"
ORDERED: Final = "schedule-ordered"
REQUEST: Final = "request"
DUE: Final = "due"
GENERATION: Final = "generation"
EXPIRES: Final = "expires"
TERMINATE: Final = "terminate"

PUT: Final = "PUT"
LEASE: Final = "LEASE"
RENEW: Final = "RENEW"
END: Final = "END"
CANCEL: Final = "CANCEL"
RESCHEDULE: Final = "RESCHEDULE"
LOOK: Final = "LOOK"
DECLARE: Final = "DECLARE"
ADD: Final = "ADD"
REMOVE: Final = "REMOVE"
PAUSE: Final = "PAUSE"
RESUME: Final = "RESUME"
RUN: Final = "RUN"
LIST: Final = "LIST"

OF_JOBS: Final = frozenset({PUT, LEASE, RENEW, END, CANCEL, RESCHEDULE, LOOK})
OF_ENTRIES: Final = frozenset({DECLARE, ADD, REMOVE, PAUSE, RESUME, RUN, LIST})
ANSWERED: Final = frozenset({CANCEL, RESCHEDULE, LOOK, ADD, REMOVE, PAUSE, RESUME, RUN, LIST})
"""Commands with a ``request``."""

MOST_DIGITS: Final = 18
"""Of a number in a header: it fits 64 bits."""

_OF_SCHEDULE: Final = frozenset({COMMAND, QUEUE, JOB_KEY, ORDERED, DUE})
"""Headers of a PUT that are not the job's when it is written to its queue."""


def partition_of_job(job_id: str, count: int) -> int:
    """Which of ``count`` partitions of the schedule has a job: by the last random bits of its id."""
    return int(job_id[20:], 16) % count


def partition_of_entry(name: str, count: int) -> int:
    """Which of ``count`` partitions of the schedule has a periodic entry: by the CRC-32 of its name."""
    return zlib.crc32(name.encode()) % count


class StoredJob(NamedTuple):
    """A job as the schedule keeps it: queue, key of its record, payload, headers but for ``due``, and whether the queue
    is an ordered one."""

    queue: str
    key: bytes | None
    value: bytes
    headers: list[Header]
    is_ordered: bool = False


class Command(NamedTuple):
    """One command. ``time_ms``: when its record was appended; ``job`` of PUT and LEASE; ``expires_ms`` of that job;
    ``body``: the value of a command about entries."""

    kind: str
    subject: str
    time_ms: int = 0
    request: str | None = None
    due_ms: int = 0
    generation: int = 0
    expires_ms: int | None = None
    is_terminating: bool = False
    job: StoredJob | None = None
    body: bytes = b""


class CommandRecord(NamedTuple):
    """Key, value and headers of a command's record."""

    key: bytes
    value: bytes
    headers: list[Header]


def encode_put(
    envelope: Envelope, queue: str, due_ms: int, kind: str = PUT, is_ordered: bool = False
) -> CommandRecord:
    """A job that is to be written to its queue at ``due_ms``. Its generation is the one that it will have there.
    ``is_ordered``: whether the queue is an ordered one."""
    own = [header for header in envelope.headers() if header[0] != DUE]
    headers = put_headers(queue, envelope.key, due_ms, own, kind, is_ordered)
    return CommandRecord(envelope.id.encode(), envelope.value, headers)


def put_headers(
    queue: str, key: bytes | None, due_ms: int, own: Iterable[Header], kind: str = PUT, is_ordered: bool = False
) -> list[Header]:
    """The headers of a PUT; ``own``: the job's, without ``due``."""
    headers: list[Header] = [(COMMAND, kind.encode()), (QUEUE, queue.encode()), (DUE, b"%d" % due_ms)]
    if key is not None:
        headers.append((JOB_KEY, key))
    if is_ordered:
        headers.append((ORDERED, b"1"))
    headers.extend(own)
    return headers


def encode_command(
    kind: str,
    subject: str,
    *,
    request: str | None = None,
    due_ms: int | None = None,
    generation: int | None = None,
    is_terminating: bool = False,
    body: bytes = b"",
) -> CommandRecord:
    """A command that has no job in it."""
    headers: list[Header] = [(COMMAND, kind.encode())]
    for name, text in ((REQUEST, request), (DUE, due_ms), (GENERATION, generation)):
        if text is not None:
            headers.append((name, str(text).encode()))
    if is_terminating:
        headers.append((TERMINATE, b"1"))
    return CommandRecord(subject.encode(), body, headers)


def decode_command(
    key: bytes | None, value: bytes | None, headers: Sequence[Header], time_ms: int = 0
) -> Command | None:
    """The command in a record; None when this release does not know it, :class:`BadRecord` when it is damaged."""
    by_name: dict[str, bytes | None] = dict(headers)
    kind = _text(by_name, COMMAND) or ""
    if kind not in OF_JOBS and kind not in OF_ENTRIES:
        if not kind:
            raise BadRecord("bad-command", f"the record is not a command: it has no header {COMMAND!r}")
        return None
    subject = _decoded(key or b"")
    if kind in OF_JOBS and not is_id(subject):
        raise BadRecord("bad-command", f"the key of {kind} is not a job id: {truncated_repr(key)}")
    request = _text(by_name, REQUEST) if kind in ANSWERED else None
    if kind in ANSWERED and (request is None or not is_id(request)):
        raise BadRecord("bad-command", f"{kind} has no request id: {truncated_repr(request)}")
    due_ms, generation = _number(by_name, DUE), _number(by_name, GENERATION)
    if due_ms is None and kind in (PUT, LEASE, RENEW, RESCHEDULE):
        raise BadRecord("bad-command", f"{kind} has no header {DUE!r}")
    job: StoredJob | None = None
    if kind in (PUT, LEASE):
        queue = _text(by_name, QUEUE)
        if not queue or value is None or "name" not in by_name or by_name.get("id") != key:
            raise BadRecord("bad-command", f"{kind} needs a value, and {QUEUE!r}, 'name', 'id' (its key)")
        if not is_queue(queue):
            raise BadRecord("bad-command", f"{kind} names no queue: {truncated_repr(queue)}")
        own = [header for header in headers if header[0] not in _OF_SCHEDULE]
        job = StoredJob(queue, by_name.get(JOB_KEY), value, own, by_name.get(ORDERED) == b"1")
    return Command(
        kind,
        subject,
        time_ms,
        request,
        due_ms or 0,
        generation or 0,
        _number(by_name, EXPIRES),
        kind == CANCEL and by_name.get(TERMINATE) == b"1",
        job,
        b"" if job is not None else value or b"",
    )


def _text(by_name: dict[str, bytes | None], name: str) -> str | None:
    raw = by_name.get(name)
    return None if raw is None else _decoded(raw)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise BadRecord("bad-command", f"a command is not UTF-8: {truncated_repr(raw)}") from None


def _number(by_name: dict[str, bytes | None], name: str) -> int | None:
    raw = by_name.get(name)
    if raw is None:
        return None
    if not raw.isdigit() or len(raw) > MOST_DIGITS:
        raise BadRecord("bad-command", f"the header {name!r} of a command is not a number: {truncated_repr(raw)}")
    return int(raw)
