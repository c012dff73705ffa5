"""Periodic entries of one partition of the schedule: which jobs they make, and when. Pure, as the state machine is.

An entry has a name, times (:mod:`kafka.tasks.schedule.times`), and the job that it makes at each of them, its *slots*.
The id of that job is made of name and slot alone, and a slot that has passed is stored in the transaction that writes
its job, so no slot has two jobs, whatever happens to owners. Slots that have passed without a job, since no owner was
alive, are treated as the entry says (``missed``)::

    skip   the last one has a job, if it passed no more than LATE_MS ago
    once   the last one has a job
    all    each has a job

Entries are *added* at run time, or *declared* by the code of an app: each owner's process says once in a while
(DECLARE) which version of the code it runs, and the entries of that version. While a deploy goes on two versions say
so by turns. A version that is new replaces the one before; that one replaces it again only when the newer one has not
been heard of for VERSION_TTL_MS (it was rolled back). What an entry's name has of times, slots and pauses stays when a
version changes.

Records of APP.schedule: ``entry:NAME`` with a JSON object of ``definition``, ``source`` (declared or added),
``paused`` and ``passed``, the last slot that is done with; and ``declared`` with ``version``, ``since`` and ``older``,
the versions that it has replaced and when each was last heard of. A definition has ``ordered`` when the queue of its
jobs is an ordered one, and not otherwise.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple

from kafka.errors import IllegalArgumentError
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.commands import ADD, DECLARE, LIST, PAUSE, REMOVE, RESUME, RUN, Command, StoredJob
from kafka.tasks.format.envelope import MOST_SHOWN, Header, truncated_repr
from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.schedule import DECLARED_KEY, ENTRY_PREFIX, ScheduleRecord
from kafka.tasks.format.topics import is_queue
from kafka.tasks.schedule.pending import NEVER_MS
from kafka.tasks.schedule.times import Times, latest, slots, times_of

MISSED: Final = ("skip", "once", "all")
LATE_MS: Final = 60_000
"""How late a slot of an entry that skips missed ones may be: a takeover is over by then."""
VERSION_TTL_MS: Final = 900_000
"""A version that has not been heard of for so long is not running any more; owners say theirs three times in it."""
OLDER_KEPT_MS: Final = 86_400_000
"""How long a version that was replaced is remembered."""
MOST_SHOWN_NAMES: Final = 10
"""Names of entries in a line of the log."""
MOST_SLOTS: Final = 100
"""Slots of one entry in one step."""
MOST_STEP_SLOTS: Final = 500
MOST_STEP_BYTES: Final = 4 * 1024 * 1024
"""Slots of all entries in one step, and of the payloads that are written for them, about."""
MOST_LISTED_BYTES: Final = 48_000
"""Of an answer to LIST: it fits a results topic, whatever an app has for ``max_payload_bytes``."""

Answer = Callable[[Command, "dict[str, Any]"], None]
Write = Callable[[ScheduleRecord], None]
Send = Callable[[str, StoredJob], None]


class EntryDefinition(NamedTuple):
    """What an entry does: ``headers``, ``payload`` and ``key`` of its jobs, without an id; ``expires_s`` after the
    slot. ``is_ordered``: whether the queue is an ordered one."""

    name: str
    times: Mapping[str, Any]
    missed: str
    queue: str
    task: str
    headers: tuple[Header, ...]
    payload: bytes
    key: bytes | None = None
    expires_s: float | None = None
    is_ordered: bool = False

    def to_json(self) -> dict[str, Any]:
        """As the value of a command or record has it."""
        ordered = {"ordered": True} if self.is_ordered else {}
        return {
            "name": self.name,
            "times": dict(self.times),
            "missed": self.missed,
            "queue": self.queue,
            "task": self.task,
            "headers": [[name, _to_text(raw)] for name, raw in self.headers],
            "payload": _to_text(self.payload),
            "key": _to_text(self.key),
            "expires": self.expires_s,
            **ordered,
        }

    def to_bytes(self) -> bytes:
        """As the value of ADD."""
        return _json(self.to_json())

    @staticmethod
    def from_json(body: Any) -> EntryDefinition:
        """The definition in a JSON value; :class:`BadRecord` when it is none."""
        try:
            times_of(body["times"])
            texts = [body[name] for name in ("name", "missed", "queue", "task")]
            expires = body.get("expires")
            if not all(isinstance(text, str) and text for text in texts) or body["missed"] not in MISSED:
                raise ValueError("a text is missing")
            if not is_queue(body["queue"]):
                raise ValueError(f"{truncated_repr(body['queue'])} is no queue")
            expires_s = None if expires is None else float(expires)
            if expires_s is not None and not isfinite(expires_s):
                raise ValueError("it expires at no time")
            headers = tuple((str(name), _from_text(text)) for name, text in body["headers"])
            for text in (*texts, *(name for name, _ in headers)):
                text.encode()  # not half of a surrogate pair
            return EntryDefinition(
                body["name"],
                body["times"],
                body["missed"],
                body["queue"],
                body["task"],
                headers,
                _from_text(body["payload"]) or b"",
                _from_text(body.get("key")),
                expires_s,
                body.get("ordered") is True,
            )
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error, IllegalArgumentError) as error:
            raise BadRecord("bad-entry", f"malformed periodic entry: {error}") from None


class _Entry:
    """An entry as it is now. ``passed_ms``: its last slot that is done with, or since when it counts."""

    __slots__ = ("definition", "is_declared", "is_paused", "next_ms", "passed_ms", "times")

    def __init__(self, definition: EntryDefinition, is_declared: bool, is_paused: bool, passed_ms: int) -> None:
        self.is_declared = is_declared
        self.is_paused = is_paused
        self._define(definition, passed_ms)

    def _define(self, definition: EntryDefinition, passed_ms: int) -> None:
        """Take a definition, whose slots after ``passed_ms`` count."""
        self.definition = definition
        self.times: Times = times_of(definition.times)
        self.pass_until(passed_ms)

    def redefine(self, definition: EntryDefinition, now_ms: int) -> None:
        """Take another definition. New times count from now on, and none again that has passed: time may go back, for
        one owner's is not exactly another's."""
        has_new_times = definition.times != self.definition.times
        self._define(definition, max(now_ms, self.passed_ms) if has_new_times else self.passed_ms)

    def pass_until(self, ms: int) -> None:
        """Slots until then are done with."""
        self.passed_ms = ms
        slot = self.times.next_after(ms)
        self.next_ms = NEVER_MS if slot is None else slot

    def due_slots(self, now_ms: int, most: int) -> list[int]:
        """The slots that have jobs now, at most so many, and passes them and those that have none."""
        missed = self.definition.missed
        if missed == "all":
            due: list[int] = []
            for slot in slots(self.times, self.passed_ms, now_ms):
                due.append(slot)
                if len(due) == most:
                    self.pass_until(slot)
                    return due
        else:
            last = latest(self.times, self.passed_ms, now_ms)
            due = [] if last is None or (missed == "skip" and now_ms - last > LATE_MS) else [last]
        self.pass_until(now_ms)
        return due

    @property
    def shown_next_ms(self) -> int | None:
        """When its next job comes; None when none does."""
        return None if self.is_paused or self.next_ms == NEVER_MS else self.next_ms

    def state(self) -> dict[str, Any]:
        """What records and answers say of an entry beside its definition."""
        source = "declared" if self.is_declared else "added"
        return {"source": source, "paused": self.is_paused, "passed": self.passed_ms}

    def to_json(self) -> dict[str, Any]:
        """The value of its record."""
        return {"definition": self.definition.to_json(), **self.state()}


class PeriodicEntries:
    """The entries of one partition. ``write`` puts a record into the round, ``answer`` an answer, ``send`` a job, by
    its id, into its queue."""

    def __init__(self, results_partitions: int, write: Write, answer: Answer, send: Send) -> None:
        self._results_partitions = results_partitions
        self._write_record = write
        self._answer = answer
        self._send = send
        self._entries: dict[str, _Entry] = {}
        self._version = ""
        self._heard_ms: int | None = None  # when the present version was last heard of; None: not by this owner
        self._older: dict[str, int] = {}
        self._changes: list[str] = []

    @property
    def queues(self) -> set[tuple[str, bool]]:
        """The queues of the jobs that the entries make, and whether each is an ordered one."""
        return {(entry.definition.queue, entry.definition.is_ordered) for entry in self._entries.values()}

    @property
    def next_at_ms(self) -> int:
        """When :meth:`advance` has something to do."""
        return min((entry.next_ms for entry in self._entries.values() if not entry.is_paused), default=NEVER_MS)

    # -- what is stored -----------------------------------------------------------------------------------------------

    def restore(self, key: str, value: bytes | None) -> None:
        """Take in the next record of the partition about entries; :class:`BadRecord` when it is damaged."""
        if key == DECLARED_KEY:
            body = _json_object(value)
            older = body.get("older", {})
            if not isinstance(older, dict):
                raise BadRecord("bad-entry", "the older versions of what is declared are no JSON object")
            self._version = str(body.get("version", ""))
            self._older = {version: _whole(at_ms) for version, at_ms in older.items()}
            return
        name = key.removeprefix(ENTRY_PREFIX)
        if value is None:
            self._entries.pop(name, None)
            return
        body = _json_object(value)
        definition = EntryDefinition.from_json(body.get("definition"))
        is_declared, is_paused = body.get("source") == "declared", bool(body.get("paused"))
        self._entries[name] = _Entry(definition, is_declared, is_paused, _whole(body.get("passed", 0)))

    def _write(self, entry: _Entry) -> None:
        name = entry.definition.name
        self._write_record(ScheduleRecord(f"{ENTRY_PREFIX}{name}".encode(), _json(entry.to_json()), []))

    def _remove(self, name: str) -> None:
        del self._entries[name]
        self._write_record(ScheduleRecord(f"{ENTRY_PREFIX}{name}".encode(), None, []))

    # -- commands -----------------------------------------------------------------------------------------------------

    def apply(self, command: Command, now_ms: int) -> None:
        """Take in a command about entries."""
        if command.kind == DECLARE:
            body = _json_object(command.body)
            entries = body.get("entries", [])
            if not isinstance(entries, list):
                raise BadRecord("bad-entry", "the entries of a declaration are no JSON array")
            definitions = [EntryDefinition.from_json(each) for each in entries]
            self._declare(str(body.get("version", "")), definitions, command.time_ms, now_ms)
            return
        try:
            answer = self._change(command, now_ms)
        except BadRecord as error:
            answer = {"error": error.text}
        self._answer(command, answer)

    def _change(self, command: Command, now_ms: int) -> dict[str, Any]:
        kind, name = command.kind, command.subject
        if kind == LIST:
            return self._list(name)
        if kind == ADD:
            definition = EntryDefinition.from_json(_json_object(command.body))
            if definition.name != name:
                raise BadRecord("bad-entry", f"the entry is named {definition.name!r}, and the command {name!r}")
            return self._add(definition, now_ms)
        entry = self._entries.get(name)
        if entry is None:
            return {"error": f"there is no periodic entry {name!r}"}
        if kind == REMOVE:
            if entry.is_declared:
                return {"error": f"the entry {name!r} is declared by the app's code: remove it there, or pause it"}
            self._remove(name)
        elif kind == RUN:
            assert command.request is not None
            job_id = self._send_job(entry.definition, now_ms, command.request)
            return {"ok": True, "job": job_id}
        elif entry.is_paused != (kind == PAUSE):
            assert kind in (PAUSE, RESUME)
            entry.is_paused = kind == PAUSE
            entry.pass_until(max(min(now_ms, command.time_ms), entry.passed_ms))  # slots of a pause have no jobs
            self._write(entry)
        return {"ok": True, "next": entry.shown_next_ms}

    def _list(self, after: str) -> dict[str, Any]:
        """The entries whose names come after this one, as many as an answer has room for, and how many are left."""
        shown: list[dict[str, Any]] = []
        size = 0
        names = sorted(name for name in self._entries if name > after)
        for name in names:
            entry = self._entries[name]
            definition = entry.definition
            row = {
                "name": name,
                "task": definition.task,
                "queue": definition.queue,
                "times": dict(definition.times),
                "missed": definition.missed,
                **entry.state(),
                "next": entry.shown_next_ms,
            }
            size += len(_json(row)) + 1
            if shown and size > MOST_LISTED_BYTES:
                return {"entries": shown, "left_out": len(names) - len(shown)}
            shown.append(row)
        return {"entries": shown}

    def _add(self, definition: EntryDefinition, now_ms: int) -> dict[str, Any]:
        entry = self._entries.get(definition.name)
        if entry is not None and entry.is_declared:
            return {"error": f"the entry {definition.name!r} is declared by the app's code: choose another name"}
        if entry is None:
            entry = self._entries[definition.name] = _Entry(definition, False, False, now_ms)
        elif entry.definition != definition:
            entry.redefine(definition, now_ms)
        self._write(entry)
        return {"ok": True, "next": entry.shown_next_ms}

    def _declare(self, version: str, definitions: Sequence[EntryDefinition], time_ms: int, now_ms: int) -> None:
        """A process has said which version of the code it runs."""
        if self._heard_ms is None:
            self._heard_ms = time_ms
        if version == self._version:
            self._heard_ms = max(self._heard_ms, time_ms)
            return
        if version in self._older and time_ms - self._heard_ms <= VERSION_TTL_MS:
            self._older[version] = time_ms
            return
        older = {each: at_ms for each, at_ms in self._older.items() if time_ms - at_ms <= OLDER_KEPT_MS}
        older.pop(version, None)
        if self._version:
            older[self._version] = self._heard_ms
        self._version, self._older, self._heard_ms = version, older, time_ms
        value = _json({"version": version, "since": time_ms, "older": older})
        self._write_record(ScheduleRecord(DECLARED_KEY.encode(), value, []))
        by_name = {definition.name: definition for definition in definitions}
        ended = [name for name, entry in self._entries.items() if entry.is_declared and name not in by_name]
        changed = []
        for name in ended:
            self._remove(name)
        for name, definition in by_name.items():
            entry = self._entries.get(name)
            if entry is None:
                entry = self._entries[name] = _Entry(definition, True, False, now_ms)
            elif entry.definition != definition or not entry.is_declared:
                entry.redefine(definition, now_ms)
            else:
                continue
            entry.is_declared = True
            self._write(entry)
            changed.append(name)
        for text, names in (("new or changed: ", changed), ("not declared any more: ", ended)):
            if names:
                shown = ", ".join(sorted(names)[:MOST_SHOWN_NAMES])
                self._changes.append(f"{text}{shown}{', ...' if len(names) > MOST_SHOWN_NAMES else ''}")

    def take_changes(self) -> list[str]:
        """What the last declarations have changed, in words, since the last call."""
        changes, self._changes = self._changes, []
        return changes

    # -- time ---------------------------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """Send the jobs of the slots that have come, those of entries that are less late first. When they are too many
        for one step, :attr:`next_at_ms` stays where it is."""
        due = [entry for entry in self._entries.values() if entry.next_ms <= now_ms and not entry.is_paused]
        due.sort(key=lambda entry: entry.next_ms, reverse=True)
        slots_left, bytes_left = MOST_STEP_SLOTS, MOST_STEP_BYTES
        for entry in due:
            if slots_left <= 0 or bytes_left <= 0:
                break
            definition = entry.definition
            size = len(definition.payload) + 1
            found = entry.due_slots(now_ms, min(MOST_SLOTS, slots_left, max(1, bytes_left // size)))
            for slot in found:
                self._send_job(definition, slot, slot)
            self._write(entry)
            slots_left -= max(1, len(found))
            bytes_left -= (len(found) + 1) * size

    def _send_job(self, definition: EntryDefinition, time_ms: int, reason: int | str) -> str:
        """``reason``: the job's slot, or the request that asked for it. Its id, and the header ``run``, are made of
        that."""
        run = f"{definition.name}@{reason}"
        digest = hashlib.blake2b(run.encode(), digest_size=10).digest()
        partition = int.from_bytes(digest[8:], "big") % self._results_partitions
        job_id = make_id(time_ms, partition, digest[:8])
        headers: list[Header] = [("id", job_id.encode()), *definition.headers, ("run", run[-MOST_SHOWN:].encode())]
        if definition.expires_s is not None:
            headers.append(("expires", b"%d" % (time_ms + int(definition.expires_s * 1000))))
        job = StoredJob(definition.queue, definition.key, definition.payload, headers, definition.is_ordered)
        self._send(job_id, job)
        return job_id


def queues_of(command: Command) -> set[tuple[str, bool]]:
    """The queues of the entries in a command, as far as it can be read, and whether each is an ordered one."""
    if command.kind not in (ADD, DECLARE):
        return set()
    try:
        body = _json_object(command.body)
    except BadRecord:
        return set()
    entries = body.get("entries") if command.kind == DECLARE else [body]
    found = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    pairs = ((each.get("queue"), each.get("ordered") is True) for each in found)
    return {(queue, is_ordered) for queue, is_ordered in pairs if isinstance(queue, str)}


def _json(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _json_object(value: bytes | None) -> dict[str, Any]:
    try:
        body = json.loads(value or b"")
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise BadRecord("bad-entry", "a record about periodic entries is no JSON object")
    return body


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise BadRecord("bad-entry", f"a time of the periodic entries is no number: {truncated_repr(str(value))}")
    return value


def _to_text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def _from_text(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
