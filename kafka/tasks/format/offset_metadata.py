"""What a worker commits beside an offset of a queue's partition: which jobs behind it have ended, and which it may have
started.

Jobs end in another order than they came in, and the committed offset is that of the first that has not. The metadata of
the commit (OffsetCommit, TxnOffsetCommit) says the rest, so that the next owner of the partition repeats nothing that
has ended, and knows what the last one may have died of. It is text, 4,096 characters at most where a broker has its
default (``offset.metadata.max.bytes``)::

    1:BODY:WRITER

    BODY      base64url, without padding, of unsigned varints (7 bits a byte, the low ones first), offsets relative to
              the committed one:
              started_below    jobs below that have not ended may have been started by the writer
              suspects_below   jobs below that have not ended may have been started by an earlier owner that is gone
              form             0: runs, 1: bitmap; whichever is shorter
              length           bytes of what follows
              ...              runs: how many offsets have not ended, how many have, and so on, from the committed one
                               on; bitmap: bit N of byte M is offset 8 M + N, 1: ended
              count            of jobs that are not as their records say
              ...              each: offset behind the one before, flags, attempt, crashes, losses, and by the flags
                               due, unknown, unknown_since
    WRITER    transactional id of the one who committed it; empty when it has given the partition up in good order

Other text, or that of a release to come, is not understood: the jobs behind the offset then run again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

MOST_CHARACTERS: Final = 4_000
"""Less than Kafka's default of ``offset.metadata.max.bytes``."""

_VERSION: Final = "1"
_RUNS, _BITMAP = 0, 1
_STARTED, _SUSPECT, _DUE, _UNKNOWN = 1, 2, 4, 8
_MOST_OFFSETS: Final = 1 << 40
"""More than a partition gets while one job runs: text that speaks of more is damaged."""


class MarkedJob(NamedTuple):
    """A job that has not ended and is not as its record says.

    ``attempt`` 0: as far as its record says, and so are ``crashes`` and the unknown ones; else it was run, and goes on
    from there at ``due_ms`` (ms since the epoch, 0: at once). ``is_suspect``: its worker may have died of it, so that
    its runs are told apart from others; ``is_started``: such a run may be under way; ``losses``: how many of them were
    not seen to end.
    """

    attempt: int = 0
    crashes: int = 0
    losses: int = 0
    is_started: bool = False
    is_suspect: bool = False
    due_ms: int = 0
    unknown: int = 0
    unknown_since_ms: int = 0


    def after_loss(self) -> MarkedJob:
        """What is known of it when its owner is gone and may have run it."""
        return self._replace(losses=self.losses + self.is_started, is_started=False, is_suspect=True)


class PartitionMarks(NamedTuple):
    """What is said beside a committed offset. ``completed``: runs (first, last) of offsets that have ended, ascending
    and apart from each other; ``jobs`` by offset. Offsets are absolute."""

    completed: tuple[tuple[int, int], ...] = ()
    started_below: int = 0
    suspects_below: int = 0
    jobs: Mapping[int, MarkedJob] = {}
    writer: str = ""

    @property
    def lost_below(self) -> int:
        """Jobs below that have not ended may have been started by the writer, if that is gone."""
        return self.started_below if self.writer else 0

    def taken_over(self, at: int) -> MarkedJob | None:
        """What the next owner knows of the job at this offset beyond its record."""
        job = self.jobs.get(at)
        return job.after_loss() if job is not None and (at < self.lost_below or job.is_started) else job

    def is_suspect(self, at: int) -> bool:
        """Whether the next owner takes the job at this offset for one that its worker may have died of."""
        job = self.taken_over(at)
        return at < max(self.suspects_below, self.lost_below) if job is None else job.is_suspect


def encode(offset: int, marks: PartitionMarks) -> str:
    """The metadata for a commit of ``offset``; empty when there is nothing to say."""
    started, suspects = max(0, marks.started_below - offset), max(0, marks.suspects_below - offset)
    if not (marks.completed or started or suspects or marks.jobs or marks.writer):
        return ""
    body = bytearray()
    form, completed = _encode_completed(offset, marks.completed)
    for number in (started, suspects, form, len(completed)):
        _put(body, number)
    body += completed
    _put(body, len(marks.jobs))
    before = offset
    for at in sorted(marks.jobs):
        job = marks.jobs[at]
        has_unknown = job.unknown > 0 or job.unknown_since_ms > 0
        flags = _STARTED * job.is_started | _SUSPECT * job.is_suspect | _DUE * (job.due_ms > 0) | _UNKNOWN * has_unknown
        for number in (at - before, flags, job.attempt, job.crashes, job.losses):
            _put(body, number)
        if job.due_ms > 0:
            _put(body, job.due_ms)
        if has_unknown:
            _put(body, job.unknown)
            _put(body, job.unknown_since_ms)
        before = at
    text = base64.urlsafe_b64encode(bytes(body)).rstrip(b"=").decode()
    return f"{_VERSION}:{text}:{marks.writer}"


def decode(offset: int, text: str | None) -> PartitionMarks | None:
    """What was committed beside ``offset``; None for text that is not understood."""
    if not text:
        return PartitionMarks()
    version, _, rest = text.partition(":")
    encoded, colon, writer = rest.partition(":")
    if version != _VERSION or not colon:
        return None
    try:
        reader = _Reader(base64.b64decode(encoded + "=" * (-len(encoded) % 4), b"-_", validate=True))
        started, suspects = reader.number(_MOST_OFFSETS), reader.number(_MOST_OFFSETS)
        form, length = reader.number(_BITMAP), reader.number(MOST_CHARACTERS)
        completed = _decode_completed(offset, form, reader.take(length))
        jobs: dict[int, MarkedJob] = {}
        at = offset
        for _ in range(reader.number(MOST_CHARACTERS)):
            at += reader.number(_MOST_OFFSETS)
            flags = reader.number(_STARTED | _SUSPECT | _DUE | _UNKNOWN)
            attempt, crashes, losses = reader.number(), reader.number(), reader.number()
            due_ms = reader.number() if flags & _DUE else 0
            unknown, unknown_since_ms = (reader.number(), reader.number()) if flags & _UNKNOWN else (0, 0)
            is_started, is_suspect = bool(flags & _STARTED), bool(flags & _SUSPECT)
            jobs[at] = MarkedJob(attempt, crashes, losses, is_started, is_suspect, due_ms, unknown, unknown_since_ms)
        if not reader.is_at_end:
            return None
    except (ValueError, binascii.Error):
        return None
    return PartitionMarks(
        tuple(completed), offset + started if started else 0, offset + suspects if suspects else 0, jobs, writer
    )


def _encode_completed(offset: int, runs: Sequence[tuple[int, int]]) -> tuple[int, bytes]:
    """The shorter form of the runs."""
    as_runs, at = bytearray(), offset
    for first, last in runs:
        _put(as_runs, first - at)
        _put(as_runs, last - first + 1)
        at = last + 1
    length = (at - offset + 7) // 8
    if len(as_runs) <= length:
        return _RUNS, bytes(as_runs)
    pieces, at = [], offset
    for first, last in runs:
        pieces.append("0" * (first - at) + "1" * (last - first + 1))
        at = last + 1
    return _BITMAP, int("".join(pieces)[::-1], 2).to_bytes(length, "little")


def _decode_completed(offset: int, form: int, data: bytes) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    if form == _RUNS:
        reader, at = _Reader(data), offset
        while not reader.is_at_end:
            before, first = at, at + reader.number(_MOST_OFFSETS)
            at = first + reader.number(_MOST_OFFSETS)
            if first == before or at == first:
                raise ValueError("an empty run")
            runs.append((first, at - 1))
        return runs
    bits = int.from_bytes(data, "little")
    if bits & 1:
        raise ValueError("the committed offset has ended")
    at = offset
    while bits:
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        length = ((bits + 1) & ~bits).bit_length() - 1
        runs.append((at + gap, at + gap + length - 1))
        bits >>= length
        at += gap + length
    return runs


def _put(body: bytearray, number: int) -> None:
    while number > 0x7F:
        body.append(number & 0x7F | 0x80)
        number >>= 7
    body.append(number)


class _Reader:
    """Takes varints off bytes; ValueError where they end too early or are too large."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, length: int) -> bytes:
        """So many bytes."""
        taken = self._data[self._at : self._at + length]
        if len(taken) < length:
            raise ValueError("too short")
        self._at += length
        return taken

    def number(self, most: int = 1 << 62) -> int:
        """The next number."""
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if not byte & 0x80:
                break
            shift += 7
            if shift > 63:
                raise ValueError("too long")
        if number > most:
            raise ValueError("too large")
        return number
