"""The messages between parent and child, as bytes: a job as a packet, and the bodies of the child's frames.

A packet (parent to child; one message of the socket, so it has no length of its own)::

     0     1       2        4         8     16           20      52
     +-----+-------+--------+---------+-----+------------+-------+-------+---------+--------
     | "J" | flags | names  | headers | seq | deliveries | id    | names | headers | payload
     +-----+-------+--------+---------+-----+------------+-------+-------+---------+--------

``names`` are the task's and the queue's, with a zero byte between; ``headers`` the record's headers beside id and name
(:meth:`kafka.tasks.format.envelope.Envelope.more_headers`) as JSON, when there are any; with :data:`KEY` in ``flags``
the first of them is the record's key. Where all that would be too large for a packet, what follows the id is in a file
that comes along. The body of a frame (child to parent)::

    UP         JSON: pid, generation, versions, registry_hash
    PROGRESS   UTF-8 text
    DONE       seq u64 | started_at f64 | ran_s f64 | outcome u8 | the outcome by its kind
    STARTED    seq u64 | started_at f64

Little-endian. Both sides are the same release (the handshake says so): no field is optional. A new message is a
number and a row of ``_MESSAGES``; a new outcome of a run a row of ``_OUTCOMES``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from kafka.tasks.format.envelope import Envelope, Header, decode
from kafka.tasks.pools.ipc.frames import Frame
from kafka.tasks.pools.ipc.processes import ChannelDamaged, ChildMessage, ChildProgress, ChildUp, JobDone, JobStarted
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ErrorInfo,
    JobCancelled,
    JobRetried,
    JobSnoozed,
    JobSucceeded,
    Outcome,
)

JOB = 0x4A
END = b"E"
"""The packet that ends the jobs, where closing the parent's side does not."""

KEY, TRACK_STARTED = 1, 2

PACKET = struct.Struct("<BBHIQI32s")
PACKET_BYTES = PACKET.size

UP, PROGRESS, DONE, STARTED = 1, 2, 3, 4

_DONE = struct.Struct("<QddB")
_STARTED = struct.Struct("<Qd")
_MOST_32 = 0xFFFFFFFF


class Packet(NamedTuple):
    """A job as the child gets it."""

    seq: int
    queue: str
    deliveries: int
    envelope: Envelope
    track_started: bool


def encode_job(seq: int, job: Job) -> tuple[bytes, bytes, bytes]:
    """The packet of a job in three pieces: up to the id, names with headers, payload."""
    envelope = job.envelope
    names = _names(envelope.name, job.lease.source.queue)
    # A job that came with two headers has id and name: to look at the fields of each would cost a microsecond.
    headers, key = envelope.more_headers() if len(job.lease.headers) != 2 else (), envelope.key
    encoded = b""
    if headers or key is not None:
        pairs = [(name, None if raw is None else raw.decode("latin-1")) for name, raw in headers]
        if key is not None:
            pairs.insert(0, ("key", key.decode("latin-1")))
        encoded = json.dumps(pairs).encode()
    head = PACKET.pack(
        JOB,
        (0 if key is None else KEY) | (TRACK_STARTED if job.track_started else 0),
        len(names),
        len(encoded),
        seq,
        min(job.lease.deliveries, _MOST_32),
        envelope.id.encode(),
    )
    return head, names + encoded if encoded else names, envelope.value


@lru_cache(maxsize=1024)
def _names(task: str, queue: str) -> bytes:
    return f"{task}\0{queue}".encode()


def seq_of(packet: bytes | bytearray) -> int:
    """The sequence number in a packet."""
    return int.from_bytes(packet[8:16], "little")


def decode_job(packet: memoryview, rest: bytes | None = None) -> Packet:
    """A job out of a packet; ``rest`` is what was in the file that came with it."""
    _, flags, names_length, headers_length, seq, deliveries, raw_id = PACKET.unpack_from(packet)
    tail = packet[PACKET_BYTES:] if rest is None else memoryview(rest)
    name, _, queue = str(tail[:names_length], "utf-8").partition("\0")
    job_id = str(raw_id, "ascii")
    track_started = bool(flags & TRACK_STARTED)
    payload = bytes(tail[names_length + headers_length :])
    if not headers_length:
        return Packet(seq, queue, deliveries, Envelope(job_id, name, payload), track_started)
    pairs = json.loads(bytes(tail[names_length : names_length + headers_length]))
    headers: list[Header] = [(header, None if raw is None else raw.encode("latin-1")) for header, raw in pairs]
    key = headers.pop(0)[1] if flags & KEY else None
    own: list[Header] = [("id", job_id.encode()), ("name", name.encode())]
    return Packet(seq, queue, deliveries, decode(payload, own + headers, key), track_started)


# -- messages of the child --------------------------------------------------------------------------------------------


def encode_up(up: ChildUp) -> bytes:
    """The body of UP."""
    return json.dumps(up).encode()


def encode_progress(text: str) -> bytes:
    """The body of PROGRESS."""
    return text.encode("utf-8", "backslashreplace")


def encode_done(seq: int, outcome: Outcome, ran_s: float, started_at: float) -> bytes:
    """The body of DONE."""
    number, encode, _ = _OUTCOMES[type(outcome)]
    return _DONE.pack(seq, started_at, ran_s, number) + encode(outcome)


def encode_started(seq: int, started_at: float) -> bytes:
    """The body of STARTED."""
    return _STARTED.pack(seq, started_at)


def decode_message(frame: Frame, body: bytes) -> ChildMessage:
    """The message in a frame; ``body`` is its own or that of its file. :class:`ChannelDamaged` for what cannot be
    decoded."""
    try:
        return _MESSAGES[frame.kind](body)
    except (KeyError, ValueError, TypeError, struct.error, RecursionError) as error:
        raise ChannelDamaged(f"could not decode a frame of kind {frame.kind}: {error!r}") from None


def _up(body: bytes) -> ChildUp:
    pid, generation, versions, registry_hash = json.loads(body)
    return ChildUp(int(pid), int(generation), str(versions), str(registry_hash))


def _done(body: bytes) -> JobDone:
    seq, started_at, ran_s, number = _DONE.unpack_from(body)
    return JobDone(seq, _DECODERS[number](body[_DONE.size :]), ran_s, started_at)


def _encode_failed(failed: AttemptFailed) -> bytes:
    error_info = failed.error_info
    return json.dumps([error_info.type, error_info.text, error_info.traceback, failed.listed]).encode()


def _failed(body: bytes) -> AttemptFailed:
    kind, text, lines, listed = json.loads(body)
    return AttemptFailed(ErrorInfo(str(kind), str(text), str(lines)), bool(listed))


_EMPTY, _NULL = JobSucceeded(b""), JobSucceeded(b"null")


def _succeeded(body: bytes) -> JobSucceeded:
    if len(body) <= 4:
        if not body:
            return _EMPTY
        if body == b"null":  # most functions; making a frozen object costs 0.5 us
            return _NULL
    return JobSucceeded(body)


def _retried(due_ms: object, reason: object) -> JobRetried:
    if not isinstance(due_ms, int):
        raise ValueError(due_ms)
    return JobRetried(due_ms, str(reason))


_MESSAGES: dict[int, Callable[[bytes], ChildMessage]] = {
    UP: _up,
    PROGRESS: lambda body: ChildProgress(body.decode("utf-8", "replace")),
    DONE: _done,
    STARTED: lambda body: JobStarted(*_STARTED.unpack(body)),
}

_OUTCOMES: dict[type, tuple[int, Callable[[Any], bytes], Callable[[bytes], Outcome]]] = {
    JobSucceeded: (0, lambda outcome: outcome.value, _succeeded),
    AttemptFailed: (1, _encode_failed, _failed),
    JobCancelled: (
        2,
        lambda outcome: json.dumps(outcome.reason).encode(),
        lambda body: JobCancelled(str(json.loads(body))),
    ),
    JobRetried: (
        3,
        lambda outcome: json.dumps([outcome.due_ms, outcome.reason]).encode(),
        lambda body: _retried(*json.loads(body)),
    ),
    JobSnoozed: (4, lambda outcome: b"%d" % outcome.delay_ms, lambda body: JobSnoozed(int(body))),
}
"""Outcome of a run -> its number, how it is written, how it is read."""

_DECODERS = {number: decode for number, _, decode in _OUTCOMES.values()}
