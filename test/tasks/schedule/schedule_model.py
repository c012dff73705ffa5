"""A plain model of a partition of the schedule: what its specification says, with dicts and no thought of cost.

It takes in the commands and the records of each committed round. What commands do at once is computed here and must be
in the round; what the passing of time does may come when the owner comes to it, and must be allowed then.
:meth:`Model.check_nothing_waits` says whether it has come to all.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kafka.tasks.delivery.base import OutgoingRecord, RecordKind
from kafka.tasks.format.commands import CANCEL, END, LEASE, LOOK, PUT, RENEW, RESCHEDULE, Command
from kafka.tasks.format.job_id import partition_of, time_of
from kafka.tasks.format.records import decode

Event: TypeAlias = "tuple[Any, ...]"
"""("job", id, generation, queue, crashes) · ("state", id, state, due, reason) · ("cancelled", id, terminate) ·
("answer", request, body)"""

KEPT_MS: Final = 600_000
"""A second PUT of a generation is known so long."""
FORGOTTEN_MS: Final = 800_000
"""And it is forgotten then, when nothing else is to be done."""

NEXT_PLACES: Final = {
    "PUT": {"WAITING", "ENDED", "MOVED"},
    "LEASE": {"LEASED", "MOVED"},
    "WAITING": {"WAITING", "LEASED", "SENT", "ENDED", "MOVED"},
    "LEASED": {"WAITING", "LEASED", "SENT", "ENDED", "MOVED", "gone"},
    "SENT": {"WAITING", "LEASED", "SENT", "ENDED", "MOVED"},
    "ENDED": {"MOVED"},
    "MOVED": {"WAITING", "LEASED", "ENDED", "MOVED"},
}
"""Where a job may be next. PUT, LEASE: it was nowhere. The worker that has the job of one generation may write a PUT or
LEASE of the next one, which keeps a later time that readers know; without such a time no place can be SENT or ENDED,
but for a PUT that has expired before its own time. ENDED is final: it is only said again (MOVED). gone: END of a lease.
"""


@dataclass
class Job:
    """``place``: waiting, leased, sent, ended or moved. ``announced``: where readers look next; None: they need not."""

    place: str
    generation: int
    due: int
    announced: int | None
    queue: str = ""
    expires: int | None = None
    crashes: int = 0
    since: int = 0
    state: str = ""
    reason: str = ""


@dataclass
class Model:
    """``written``: how often each generation was written to its queue. ``revoked``: jobs that will never start, by an
    answer. ``ends``: the first end of each job that the schedule has ended."""

    results_partitions: int
    jobs: dict[str, Job] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    written: Counter[tuple[str, int]] = field(default_factory=Counter)
    revoked: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    ends: dict[str, str] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    """Jobs with a command after the first of the times above: nothing is expected of them any more."""
    unexpected: set[str] = field(default_factory=set)
    """Requests about them."""
    old: set[str] = field(default_factory=set)
    """Jobs that were moved so long ago that the schedule may have forgotten them."""

    @property
    def missing_topics(self) -> set[str]:
        """Those of the queues that there are no more."""
        return {f"shop.{queue}{suffix}" for queue in self.missing for suffix in ("", ".due")}

    def take_round(self, commands: list[Command], records: list[OutgoingRecord], now: int) -> None:
        """One committed round."""
        events = [event for event in (self._event(record, now) for record in records) if event is not None]
        expected: list[Event] = []
        for command in commands:
            expected += self._apply(command, now)
        for event in events:
            if event[0] == "job":
                self._count_write(event[1], event[2])
        events = [event for event in events if self._is_expected(event)]
        expected = [event for event in expected if self._is_expected(event)]
        at_once, later = events[: len(expected)], events[len(expected) :]
        assert sorted(map(repr, at_once)) == sorted(map(repr, expected)), (now, commands, at_once, expected)
        for event in later:
            self._allow(event, now)

    def _event(self, record: OutgoingRecord, now: int) -> Event | None:
        headers = dict(record.headers or [])
        key = (record.key or b"").decode()
        if record.kind is RecordKind.JOB:
            job_id = (headers["id"] or b"").decode()
            assert "due" not in headers
            assert not any(name.startswith("schedule-") for name in headers), "they are the schedule's own"
            queue = record.topic.removeprefix("shop.").removesuffix(".due")
            assert record.key in (None, b"key of " + job_id.encode()), "the key of another job"
            assert record.topic.endswith(".due") is (record.key is None), "an ordered queue has one topic"
            assert record.partition is None, "the key chooses it"
            assert record.value == job_id.encode() * (len(record.value or b"") // 32), "the payload of another job"
            return "job", job_id, int(headers.get("generation") or b"0"), queue, int(headers.get("crashes") or b"0")
        if record.topic == "shop.cancelled":
            return "cancelled", key, dict(record.headers or []).get("terminate") == b"1"
        if record.topic == "shop.schedule":
            return None
        state = decode(record.key, record.value, record.headers or [])
        assert state is not None
        assert record.partition == partition_of(key)
        assert record.topic == ("shop.results.late" if now - time_of(key) > 60_000 else "shop.results")
        if state.state.name == "SUCCESS":
            assert key not in self.answered, "a request is answered once"
            self.answered.add(key)
            answer = json.loads(state.value)
            if "detail" in answer:
                answer["detail"] = _reason(answer["detail"])
            return "answer", key, answer
        return "state", key, state.state.name, state.due_ms, _reason(state.detail())

    def _is_expected(self, event: Event) -> bool:
        return event[1] not in self.uncertain and event[1] not in self.unexpected

    def _count_write(self, job_id: str, generation: int) -> None:
        self.written[job_id, generation] += 1
        if job_id not in self.uncertain:
            assert self.written[job_id, generation] == 1, "a generation is written to its queue once"
            assert job_id not in self.revoked, "a job that was answered as revoked never starts"

    # -- what commands do ---------------------------------------------------------------------------------------------

    def _apply(self, command: Command, now: int) -> list[Event]:
        if command.request is not None and partition_of(command.request) >= self.results_partitions:
            return []
        job_id = command.subject
        if partition_of(job_id) >= self.results_partitions:
            return [("answer", command.request, {"error": "unknown job"})] if command.request else []
        self.forget_old(now, [job_id])
        job = self.jobs.get(job_id)
        if job_id in self.old:
            self.uncertain.add(job_id)
        if job_id in self.uncertain and command.request is not None:
            self.unexpected.add(command.request)
        if command.kind in (PUT, LEASE):
            return self._put(command, job, now)
        if command.kind == CANCEL:
            return self._cancel(command, job, now)
        if command.kind == RESCHEDULE:
            return self._reschedule(command, job, now)
        if command.kind == LOOK:
            return [("answer", command.request, self.look(job))]
        assert command.kind in (RENEW, END)
        if job is None or job.place != "leased" or job.generation != command.generation:
            return []
        if command.kind == RENEW:
            job.due = command.due_ms
            return []
        events = self._tell(job_id, job, now)
        if job.announced is None:
            self._forget(job_id)
        else:
            job.place, job.due = "sent", job.since
        return events

    def _forget(self, job_id: str) -> None:
        """A PUT of a worker that died long ago is a new one."""
        job = self.jobs.pop(job_id)
        for generation in range(job.generation + 1):
            del self.written[job_id, generation]
        self.revoked.discard(job_id)

    def _put(self, command: Command, job: Job | None, now: int) -> list[Event]:
        if job is not None and (job.place == "ended" or job.generation >= command.generation):
            return []
        events: list[Event] = []
        announced = None
        if job is not None and job.place in ("waiting", "leased", "sent"):
            events += self._tell(command.subject, job, now)
            if job.announced is not None and job.announced > now:
                announced = job.announced
        assert command.job is not None
        crashes = int(dict(command.job.headers).get("crashes") or b"0")
        new = Job(
            "waiting", command.generation, command.due_ms, announced, command.job.queue, command.expires_ms, crashes
        )
        if command.kind == LEASE:
            new.place = "leased"
            new.since = command.time_ms
        if job is not None and announced is not None and (job.place == "sent" or job.since):
            new.since = job.due if job.place == "sent" else job.since
        if command.kind == PUT:
            new.announced = announced or command.due_ms
        self.jobs[command.subject] = new
        written = min(command.time_ms, now)  # what came due since then waits for the end of the round
        if new.due <= written or (new.place == "waiting" and new.expires is not None and new.expires <= written):
            events += self._fire(command.subject, new, now)
        return events

    def _cancel(self, command: Command, job: Job | None, now: int) -> list[Event]:
        job_id, is_waiting = command.subject, False
        events: list[Event] = []
        if job is not None and job.place == "ended":
            is_waiting = job.reason == "cancelled"
        elif job is not None and job.place == "waiting":
            events.append(("state", job_id, "REVOKED", None, "cancelled"))
            self._end(job_id, job, "REVOKED", "cancelled", now)
            is_waiting = True
        else:
            events.append(("state", job_id, "REVOKED", None, "cancelled"))
            events.append(("cancelled", job_id, command.is_terminating))
            self.ends.setdefault(job_id, "REVOKED")
            if job is not None and job.place == "leased":
                events += self._tell(job_id, job, now)
                self._leave(job, job.since, now)
        if is_waiting:
            self.revoked.add(job_id)
        return [*events, ("answer", command.request, {"waiting": is_waiting})]

    def _reschedule(self, command: Command, job: Job | None, now: int) -> list[Event]:
        if job is None or job.place != "waiting":
            return [("answer", command.request, {"rescheduled": False})]
        events: list[Event] = []
        job.due = command.due_ms
        assert job.announced is not None
        if job.announced <= now:
            job.announced = job.due
            events.append(("state", command.subject, "SCHEDULED", job.due, ""))
        if job.due <= now or (job.expires is not None and job.expires <= now):
            events += self._fire(command.subject, job, now)
        return [*events, ("answer", command.request, {"rescheduled": True, "due": command.due_ms})]

    def look(self, job: Job | None) -> dict[str, Any]:
        """The answer to LOOK."""
        if job is None:
            return {"state": None, "due": None}
        if job.place == "ended":
            return {"state": job.state, "due": None, "detail": job.reason}
        shown = {"waiting": "SCHEDULED", "leased": "STARTED"}.get(job.place, "QUEUED")
        return {"state": shown, "due": job.since if job.place == "leased" else job.due}

    # -- what the time does -------------------------------------------------------------------------------------------

    def _tell(self, job_id: str, job: Job, now: int) -> list[Event]:
        """A job was written to its queue before it was announced for; that time has come."""
        if job.place not in ("sent", "leased") or job.announced is None or job.announced > now:
            return []
        job.announced = None
        return [("state", job_id, "QUEUED", job.due if job.place == "sent" else job.since, "")]

    def _fire(self, job_id: str, job: Job, now: int) -> list[Event]:
        if job.expires is not None and job.expires <= now:
            self._end(job_id, job, "REVOKED", "expired while it waited", now)
            return [("state", job_id, "REVOKED", None, "expired while it waited")]
        if job.queue in self.missing:
            self._end(job_id, job, "FAILURE", "UnknownQueue", now)
            return [("state", job_id, "FAILURE", None, "UnknownQueue")]
        events: list[Event] = [("job", job_id, job.generation, job.queue, job.crashes + (job.place == "leased"))]
        self._leave(job, job.since or now, now)
        return events

    def _leave(self, job: Job, since: int, now: int) -> None:
        if job.announced is not None and job.announced > now:
            job.place, job.due = "sent", since
        else:
            job.place, job.due = "moved", now

    def _end(self, job_id: str, job: Job, state: str, reason: str, now: int) -> None:
        self.ends.setdefault(job_id, state)
        if job.announced is not None and job.announced > now:
            job.place, job.state, job.reason = "ended", state, reason
        else:
            job.place, job.due = "moved", now

    def _allow(self, event: Event, now: int) -> None:
        """Something that a command did not do: its time must have come."""
        job_id = event[1]
        job = self.jobs.get(job_id)
        assert job is not None, event
        if job.place in ("sent", "ended"):
            assert job.announced is not None
            assert job.announced <= now, "told too early"
            told = self._tell(job_id, job, now) or [("state", job_id, job.state, None, job.reason)]
            assert [event] == told
            job.place, job.due = "moved", now
            return
        if job.place == "leased" and event[2] == "QUEUED" and self._tell(job_id, job, now) == [event]:
            return
        is_over = job.due <= now or (job.place == "waiting" and job.expires is not None and job.expires <= now)
        if event[2] == "SCHEDULED":
            assert job.place == "waiting"
            assert not is_over
            assert job.announced is not None
            assert job.announced <= now
            job.announced = job.due
            assert event == ("state", job_id, "SCHEDULED", job.due, "")
            return
        assert job.place in ("waiting", "leased"), event
        assert is_over, "before its time"
        assert self._fire(job_id, job, now) == [event]

    # -- what must have happened --------------------------------------------------------------------------------------

    def next_at(self, job: Job) -> int | None:
        """When something must be done about a job."""
        if job.place == "waiting":
            times = [job.due, job.expires, job.announced]
        elif job.place == "leased":
            times = [job.due, job.announced]
        else:
            times = [None if job.place == "moved" else job.announced]
        return min((each for each in times if each is not None), default=None)

    def check_nothing_waits(self, now: int) -> None:
        """All that was to be done by now is done."""
        for job_id, job in self.jobs.items():
            at = self.next_at(job)
            assert job_id in self.uncertain or at is None or at > now, f"{job_id} waits since {at} at {now}: {job}"

    def forget_old(self, now: int, job_ids: list[str] | None = None, after_ms: int = KEPT_MS) -> None:
        """Forget those of these jobs (None: of all) that were moved so long ago."""
        for job_id in list(self.jobs) if job_ids is None else job_ids:
            job = self.jobs.get(job_id)
            if job is not None and job.place == "moved" and now - job.due > after_ms:
                self._forget(job_id)
                self.old.add(job_id)

    def known_count(self, now: int) -> tuple[int, int]:
        """How many jobs the schedule must know, and how many it may, besides the uncertain ones."""
        jobs = [job for job_id, job in self.jobs.items() if job_id not in self.uncertain]
        must = sum(job.place != "moved" or now - job.due <= KEPT_MS for job in jobs)
        may = sum(job.place != "moved" or now - job.due < FORGOTTEN_MS for job in jobs)
        return must, may


def _reason(detail: dict[str, Any]) -> str:
    """What a state record's value says, in one word."""
    return str(detail.get("reason") or detail.get("type") or "")
