"""Tests of ``kafka.tasks.schedule.machine``: its promises one by one. ``test_machine_model.py`` mixes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka.tasks.delivery.base import RecordKind
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.commands import (
    CANCEL,
    END,
    LEASE,
    LOOK,
    PUT,
    RENEW,
    RESCHEDULE,
    CommandRecord,
    decode_command,
    encode_command,
    encode_put,
)
from kafka.tasks.format.envelope import Envelope, Header
from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.schedule import machine as machine_module
from kafka.tasks.schedule.machine import ScheduleMachine
from kafka.tasks.schedule.pending import NEVER_MS

NOW = 1_700_000_000_000
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000

CANCELLED = {"reason": "cancelled", "host": "host"}
EXPIRED = {"reason": "expired while it waited", "host": "host"}


def id_at(time_ms: int, number: int = 0, partition: int = 1) -> str:
    return make_id(time_ms, partition, number.to_bytes(8, "big"))


REQUEST = id_at(NOW, 0xAA)


class Bench:
    """A machine, the records of its rounds, and the log of APP.schedule."""

    def __init__(self) -> None:
        self.now = NOW
        self.log: list[tuple[bytes, bytes | None, list[Header]]] = []
        self.reads: list[int] = []
        self.machine = self.new_machine()

    def new_machine(self) -> ScheduleMachine:
        machine = ScheduleMachine(TopicNames("shop"), 3, 2, "host")
        for offset, (key, value, headers) in enumerate(self.log):
            machine.restore(key, value, headers, offset)
        return machine

    def round(self, *records: CommandRecord, reads: bool = True) -> list[Any]:
        """Apply commands, do what is due, commit. What was written, in short; records of the state are left out."""
        commands = [decode_command(*record, self.now) for record in records]
        known = [command for command in commands if command is not None]
        for offset in self.machine.to_read(known, self.now):
            self.reads.append(offset)
            if reads:
                key, value, headers = self.log[offset]
                self.machine.load(key, value, headers, offset)
        for command in known:
            self.machine.apply(command, self.now)
        self.machine.advance(self.now)
        return self.commit()

    def commit(self) -> list[Any]:
        written = []
        records, stored = self.machine.take()
        places = dict(stored)
        offsets = []
        for place, record in enumerate(records):
            headers = dict(record.headers or [])
            if record.topic == "shop.schedule":
                if place in places:
                    assert (record.key or b"").decode() == places[place]
                    offsets.append(len(self.log))
                self.log.append((record.key or b"", record.value, list(record.headers or [])))
            elif record.kind is RecordKind.JOB:
                written.append((record.topic, record.value, headers))
            elif record.topic == "shop.cancelled":
                written.append(("cancelled", (record.key or b"").decode(), headers))
            else:
                key, state = (record.key or b"").decode(), (headers["state"] or b"").decode()
                value = json.loads(record.value or b"null")
                due = headers.get("due")
                topic = record.topic.removeprefix("shop.")
                written.append((topic, key, state, None if due is None else int(due), value))
        self.machine.committed(offsets)
        return written

    def at(self, time_ms: int) -> list[Any]:
        """Set the clock, and do what is due: all that was written."""
        self.now = time_ms
        return self.idle()

    def idle(self) -> list[Any]:
        written = self.round()
        while self.machine.next_at_ms <= self.now:
            written += self.round()
        return written

    def restart(self) -> None:
        self.machine = self.new_machine()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def put(
    job_id: str, due_ms: int, kind: str = PUT, generation: int = 1, value: bytes = b"x", **more: Any
) -> CommandRecord:
    return encode_put(Envelope(job_id, "f", value, generation=generation, **more), "mail", due_ms, kind)


def cancel(job_id: str, is_terminating: bool = False) -> CommandRecord:
    return encode_command(CANCEL, job_id, request=REQUEST, is_terminating=is_terminating)


def reschedule(job_id: str, due_ms: int) -> CommandRecord:
    return encode_command(RESCHEDULE, job_id, request=REQUEST, due_ms=due_ms)


def look(job_id: str) -> CommandRecord:
    return encode_command(LOOK, job_id, request=REQUEST)


def answer(body: dict[str, Any]) -> tuple[Any, ...]:
    return ("results", REQUEST, "SUCCESS", None, body)


def job_of(job_id: str, generation: int = 1, **headers: bytes) -> tuple[Any, ...]:
    own = {"id": job_id.encode(), "name": b"f", **headers, "generation": b"%d" % generation}
    return ("shop.mail.due", b"x", own)


SOON = id_at(NOW + 10 * SECOND, 1)
LATER = id_at(NOW + HOUR, 2)
OLD = id_at(NOW, 3)


# -- what waits --------------------------------------------------------------------------------------------------------


def test_a_job_of_an_ordered_queue_is_written_to_the_one_topic_of_that_queue_with_its_key(bench: Bench) -> None:
    """By whichever owner: the state of the schedule says it, too. The producer chooses the partition by the key."""
    envelope = Envelope(LATER, "f", b"x", key=b"user-7", generation=1)
    bench.round(encode_put(envelope, "mail", NOW + HOUR, is_ordered=True))
    bench.restart()
    bench.now = NOW + HOUR - SECOND
    bench.round(reschedule(LATER, NOW + HOUR))
    bench.now = NOW + HOUR
    for offset in bench.machine.to_read([], bench.now):
        assert bench.machine.load(*bench.log[offset], offset)
    bench.machine.advance(bench.now)
    (job,) = [each for each in bench.machine.take().records if each.kind is RecordKind.JOB]
    assert (job.topic, job.key, job.partition) == ("shop.mail", b"user-7", None)
    assert job.headers == [("id", LATER.encode()), ("name", b"f"), ("generation", b"1")]


def test_an_ordered_queue_is_missing_when_its_own_topic_is(bench: Bench) -> None:
    bench.machine.set_missing_topics(["shop.mail"])
    envelope = Envelope(SOON, "f", b"x", key=b"user-7", generation=1)
    bench.round(encode_put(envelope, "mail", NOW + 10 * SECOND, is_ordered=True), put(OLD, NOW))
    assert [each[:3] for each in bench.at(NOW + 10 * SECOND)] == [("results", SOON, "FAILURE")]


@pytest.mark.parametrize("job_id", [SOON, LATER])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_is_written_to_its_queue_when_it_is_due_and_not_before(bench: Bench, job_id: str, restarts: bool) -> None:
    due = NOW + (10 * SECOND if job_id == SOON else HOUR)
    assert bench.round(put(job_id, due)) == []
    if restarts:
        bench.restart()
    assert bench.at(due - 1) == []
    assert bench.at(due) == [job_of(job_id)]
    assert bench.at(due + HOUR) == []
    assert len(bench.machine) == 0


def test_a_job_that_is_due_at_once_is_written_in_the_round_of_its_command(bench: Bench) -> None:
    assert bench.round(put(OLD, NOW)) == [job_of(OLD)]


def test_a_job_keeps_its_payload_its_key_and_its_headers(bench: Bench) -> None:
    envelope = Envelope(
        LATER,
        "f",
        b"payload",
        key=b"user-7",
        generation=1,
        extra=(("request", b"\xff"), ("terminate", b"1"), ("b", None)),
    )
    bench.round(encode_put(envelope, "mail.bulk", NOW + HOUR))
    bench.restart()
    assert bench.at(NOW + HOUR) == [
        (
            "shop.mail.bulk.due",
            b"payload",
            {"id": LATER.encode(), "name": b"f", "generation": b"1", "request": b"\xff", "terminate": b"1", "b": None},
        )
    ]


def test_a_second_put_of_a_generation_is_ignored(bench: Bench) -> None:
    """A worker that dies between its PUT and its ACCEPT: the next worker puts the same one."""
    bench.round(put(OLD, NOW + 10 * SECOND), put(OLD, NOW + 5 * SECOND))
    assert bench.round(put(OLD, NOW + 7 * SECOND)) == []
    assert bench.at(NOW + 9 * SECOND) == []
    assert bench.at(NOW + 10 * SECOND) == [job_of(OLD)]
    assert bench.round(put(OLD, NOW + 10 * SECOND)) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_second_put_of_a_moved_job_is_known_for_ten_minutes(bench: Bench, restarts: bool) -> None:
    bench.round(put(OLD, NOW))
    bench.at(NOW + 599 * SECOND)
    if restarts:
        bench.restart()
    assert bench.round(put(OLD, NOW)) == []
    bench.at(NOW + 12 * MINUTE)
    assert len(bench.machine) == 0
    assert bench.machine.next_at_ms == NEVER_MS
    assert bench.round(put(OLD, NOW)) == [job_of(OLD)]


def test_the_next_generation_takes_the_place_of_the_one_before(bench: Bench) -> None:
    bench.round(put(OLD, NOW))
    bench.round(put(OLD, NOW + 20 * SECOND, generation=2))
    bench.round(put(OLD, NOW + 30 * SECOND, generation=3))
    assert bench.at(NOW + MINUTE) == [job_of(OLD, 3)]


@pytest.mark.parametrize("name", ["attempt", "crashes"])
@pytest.mark.parametrize("raw", [b"x", b"", b"-1", b"9" * 5000, b"\xff", None])
def test_a_jobs_odd_headers_are_left_to_its_worker(bench: Bench, name: str, raw: bytes | None) -> None:
    """A worker writes it to the dead topic (``envelope.decode``); the owner must go on."""
    record = put(LATER, NOW + HOUR)
    lease = put(SOON, NOW + 10 * SECOND, LEASE)
    bench.round(record._replace(headers=[*record.headers, (name, raw)]))
    bench.round(lease._replace(headers=[*lease.headers, (name, raw)]))
    assert bench.round(reschedule(LATER, NOW + 2 * HOUR))
    assert len(bench.at(NOW + HOUR)) == 2
    assert [each[2][name] for each in bench.at(NOW + 2 * HOUR) if each[0] == "shop.mail.due"] == [raw]


# -- expiry and queues that do not exist -------------------------------------------------------------------------------


def test_a_job_that_expires_while_it_waits_is_revoked_then_and_when_it_was_to_start(bench: Bench) -> None:
    bench.round(put(LATER, NOW + HOUR, expires_ms=NOW + MINUTE))
    assert bench.at(NOW + MINUTE - 1) == []
    assert bench.at(NOW + MINUTE) == [("results", LATER, "REVOKED", None, EXPIRED)]
    assert bench.round(look(LATER)) == [answer({"state": "REVOKED", "due": None, "detail": EXPIRED})]
    assert bench.at(NOW + HOUR - 1) == []
    assert bench.at(NOW + HOUR) == [("results", LATER, "REVOKED", None, EXPIRED)]


def test_a_job_that_has_expired_when_it_is_put_is_revoked(bench: Bench) -> None:
    assert bench.round(put(OLD, NOW, expires_ms=NOW)) == [("results", OLD, "REVOKED", None, EXPIRED)]


def test_a_job_of_a_queue_that_is_gone_fails_when_it_is_due(bench: Bench) -> None:
    bench.machine.set_missing_topics(["shop.mail.due"])
    bench.round(put(SOON, NOW + 10 * SECOND))
    assert bench.at(NOW + 10 * SECOND - 1) == []
    (written,) = bench.at(NOW + 10 * SECOND)
    assert written[:4] == ("results", SOON, "FAILURE", None)
    assert written[4]["type"] == "UnknownQueue"
    bench.machine.set_missing_topics([])
    bench.round(put(OLD, NOW))
    assert bench.machine.moved_count == 1


# -- CANCEL ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_waits_is_revoked_when_it_is_cancelled_and_when_it_was_to_start(
    bench: Bench, restarts: bool
) -> None:
    bench.round(put(LATER, NOW + HOUR))
    assert bench.round(cancel(LATER)) == [("results", LATER, "REVOKED", None, CANCELLED), answer({"waiting": True})]
    if restarts:
        bench.restart()
    assert bench.round(cancel(LATER)) == [answer({"waiting": True})]
    assert bench.round(put(LATER, NOW)) == []
    assert bench.round(look(LATER)) == [answer({"state": "REVOKED", "due": None, "detail": CANCELLED})]
    assert bench.at(NOW + HOUR) == [("results", LATER, "REVOKED", None, CANCELLED)]
    assert bench.at(NOW + 2 * HOUR) == []
    assert len(bench.machine) == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_a_cancelled_job_is_known_when_it_was_to_start_and_for_ten_minutes(bench: Bench, restarts: bool) -> None:
    """It was answered that it never starts: the worker that died before its ACCEPT put it, and another one does."""
    bench.round(put(SOON, NOW + 10 * SECOND))
    bench.round(cancel(SOON))
    bench.at(NOW + 10 * SECOND)
    if restarts:
        bench.restart()
    assert bench.round(put(SOON, NOW)) == []
    assert bench.at(NOW + 10 * MINUTE) == []
    assert bench.round(put(SOON, NOW)) == []


def test_no_later_attempt_of_a_cancelled_job_is_taken(bench: Bench) -> None:
    """The worker of an earlier attempt asks for it that was thought to be lost."""
    bench.round(put(LATER, NOW + HOUR))
    bench.round(cancel(LATER))
    assert bench.round(put(LATER, NOW, generation=2)) == []
    assert bench.at(NOW + HOUR) == [("results", LATER, "REVOKED", None, CANCELLED)]


@pytest.mark.parametrize("is_terminating", [False, True])
def test_workers_are_told_of_a_cancelled_job_that_does_not_wait(bench: Bench, is_terminating: bool) -> None:
    headers = {"terminate": b"1"} if is_terminating else {}
    expected = [
        ("results", OLD, "REVOKED", None, CANCELLED),
        ("cancelled", OLD, headers),
        answer({"waiting": False}),
    ]
    assert bench.round(cancel(OLD, is_terminating)) == expected
    bench.round(put(OLD, NOW))
    assert bench.round(cancel(OLD, is_terminating)) == expected


def test_an_end_by_another_cause_is_no_cancellation(bench: Bench) -> None:
    bench.round(put(LATER, NOW + HOUR, expires_ms=NOW))
    assert bench.round(cancel(LATER)) == [answer({"waiting": False})]


def test_a_leased_job_that_is_cancelled_is_not_written_to_its_queue(bench: Bench) -> None:
    bench.round(put(OLD, NOW + MINUTE, LEASE))
    assert bench.round(cancel(OLD)) == [
        ("results", OLD, "REVOKED", None, CANCELLED), ("cancelled", OLD, {}), answer({"waiting": False})
    ]  # fmt: skip
    assert bench.at(NOW + HOUR) == []


# -- RESCHEDULE --------------------------------------------------------------------------------------------------------


def test_a_job_that_starts_later_than_it_was_announced_for_says_so_then(bench: Bench) -> None:
    bench.round(put(LATER, NOW + HOUR))
    assert bench.round(reschedule(LATER, NOW + 2 * HOUR)) == [answer({"rescheduled": True, "due": NOW + 2 * HOUR})]
    assert bench.round(look(LATER)) == [answer({"state": "SCHEDULED", "due": NOW + 2 * HOUR})]
    assert bench.at(NOW + HOUR) == [("results", LATER, "SCHEDULED", NOW + 2 * HOUR, None)]
    assert bench.at(NOW + 2 * HOUR - 1) == []
    assert bench.at(NOW + 2 * HOUR) == [job_of(LATER)]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_starts_earlier_than_it_was_announced_for_says_so_then(bench: Bench, restarts: bool) -> None:
    bench.round(put(LATER, NOW + HOUR, attempt=2))
    assert bench.round(reschedule(LATER, NOW + MINUTE)) == [answer({"rescheduled": True, "due": NOW + MINUTE})]
    assert bench.at(NOW + MINUTE) == [job_of(LATER, attempt=b"2")]
    if restarts:
        bench.restart()
    assert bench.round(look(LATER))[0][4] == {"state": "QUEUED", "due": NOW + MINUTE}
    assert bench.round(put(LATER, NOW)) == []
    assert bench.at(NOW + HOUR) == [("results", LATER, "QUEUED", NOW + MINUTE, None)]
    assert bench.round(put(LATER, NOW)) == [], "it is known for ten minutes more"
    assert bench.at(NOW + 2 * HOUR) == []
    assert len(bench.machine) == 0


def test_a_job_that_is_due_and_still_waits_can_be_put_off(bench: Bench) -> None:
    """Its owner was down when it was to start. Readers have looked for it: they are told at once."""
    bench.round(put(SOON, NOW + 10 * SECOND))
    bench.now = NOW + 20 * SECOND
    assert bench.round(reschedule(SOON, NOW + HOUR)) == [
        ("results", SOON, "SCHEDULED", NOW + HOUR, None),
        answer({"rescheduled": True, "due": NOW + HOUR}),
    ]
    assert bench.at(NOW + HOUR - 1) == []
    assert bench.at(NOW + HOUR) == [job_of(SOON)]


def test_a_job_that_is_rescheduled_for_the_past_starts_at_once(bench: Bench) -> None:
    bench.round(put(LATER, NOW + HOUR))
    assert bench.round(reschedule(LATER, NOW - 1)) == [job_of(LATER), answer({"rescheduled": True, "due": NOW - 1})]


@pytest.mark.parametrize("kind", ["unknown", "moved", "leased", "cancelled"])
def test_a_job_that_does_not_wait_is_not_rescheduled(bench: Bench, kind: str) -> None:
    if kind == "moved":
        bench.round(put(LATER, NOW))
    elif kind == "leased":
        bench.round(put(LATER, NOW + MINUTE, LEASE))
    elif kind == "cancelled":
        bench.round(put(LATER, NOW + HOUR), cancel(LATER))
    assert bench.round(reschedule(LATER, NOW + MINUTE)) == [answer({"rescheduled": False})]


# -- LOOK --------------------------------------------------------------------------------------------------------------


def test_look_says_where_a_job_is(bench: Bench) -> None:
    """The answers of the specification. STARTED of a leased job: readers look from its lease on."""
    assert bench.round(look(LATER)) == [answer({"state": None, "due": None})]
    bench.round(put(LATER, NOW + HOUR))
    assert bench.round(look(LATER)) == [answer({"state": "SCHEDULED", "due": NOW + HOUR})]
    bench.round(put(OLD, NOW))
    assert bench.round(look(OLD)) == [answer({"state": "QUEUED", "due": NOW})]
    bench.round(put(OLD, NOW + HOUR, LEASE, 2))
    assert bench.round(look(OLD)) == [answer({"state": "STARTED", "due": NOW})]


def test_an_answer_goes_to_the_late_topic_when_its_request_is_old(bench: Bench) -> None:
    record = look(OLD)
    bench.now += MINUTE
    assert bench.round(record)[0][0] == "results"
    bench.now += 1
    assert bench.round(record)[0][0] == "results.late"


def test_ids_that_name_partitions_of_others_are_nobodys(bench: Bench) -> None:
    strange = id_at(NOW + HOUR, 5, partition=2)
    assert bench.round(look(strange)) == [answer({"error": "unknown job"})]
    assert bench.round(put(strange, NOW)) == []
    bench.round(put(LATER, NOW + HOUR))
    assert bench.round(encode_command(CANCEL, LATER, request=strange)) == []
    assert bench.at(NOW + HOUR) == [job_of(LATER)]


# -- leases ------------------------------------------------------------------------------------------------------------


def test_a_leased_job_whose_worker_is_lost_is_written_to_its_queue_with_one_crash_more(bench: Bench) -> None:
    bench.round(put(OLD, NOW + MINUTE, LEASE, 4, crashes=2, attempt=3))
    assert bench.at(NOW + MINUTE - 1) == []
    assert bench.at(NOW + MINUTE) == [job_of(OLD, 4, crashes=b"3", attempt=b"3")]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_lease_goes_on_as_long_as_it_is_renewed(bench: Bench, restarts: bool) -> None:
    bench.round(put(OLD, NOW + 10 * MINUTE, LEASE))
    if restarts:
        bench.restart()
    bench.round(encode_command(RENEW, OLD, due_ms=NOW + 20 * MINUTE, generation=1))
    bench.round(encode_command(RENEW, OLD, due_ms=NOW + 90 * MINUTE, generation=2))
    assert bench.at(NOW + 20 * MINUTE - 1) == []
    assert bench.at(NOW + 20 * MINUTE) == [job_of(OLD, crashes=b"1")]


def test_an_ended_lease_leaves_nothing(bench: Bench) -> None:
    bench.round(put(OLD, NOW + MINUTE, LEASE))
    bench.round(encode_command(END, OLD, generation=2))
    assert len(bench.machine) == 1
    bench.round(encode_command(END, OLD, generation=1))
    assert len(bench.machine) == 0
    bench.restart()
    assert len(bench.machine) == 0
    assert bench.at(NOW + HOUR) == []


def test_a_job_that_runs_does_not_expire(bench: Bench) -> None:
    """``expires``: it is not to start later (envelope, task-queue specification). This one has started."""
    bench.round(put(OLD, NOW + HOUR, LEASE, expires_ms=NOW + MINUTE))
    assert bench.at(NOW + HOUR - 1) == []
    assert bench.at(NOW + HOUR) == [("results.late", OLD, "REVOKED", None, EXPIRED)]


# -- where readers look ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("due", [30 * MINUTE, 90 * MINUTE])
def test_the_next_attempt_of_a_job_that_was_sent_early_is_announced_where_readers_look(bench: Bench, due: int) -> None:
    """A bare id says when the job was to start. It ran before; what becomes of it must be found from there."""
    bench.round(put(LATER, NOW + HOUR))
    bench.round(reschedule(LATER, NOW + MINUTE))
    bench.at(NOW + MINUTE)
    assert bench.round(put(LATER, NOW + due, generation=2, attempt=2)) == []
    if due < HOUR:
        assert bench.at(NOW + due) == [job_of(LATER, 2, attempt=b"2")]
        assert bench.at(NOW + HOUR) == [("results", LATER, "QUEUED", NOW + MINUTE, None)]
    else:
        assert bench.at(NOW + HOUR) == [("results", LATER, "SCHEDULED", NOW + due, None)]
        assert bench.at(NOW + due) == [job_of(LATER, 2, attempt=b"2")]


@pytest.mark.parametrize("way", ["end", "end, late", "cancel", "lost", "running"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_leased_job_that_was_sent_early_says_so_where_readers_look(bench: Bench, way: str, restarts: bool) -> None:
    bench.round(put(LATER, NOW + HOUR))
    bench.round(reschedule(LATER, NOW + MINUTE))
    bench.at(NOW + MINUTE)
    bench.round(put(LATER, NOW + (90 if way == "running" else 30) * MINUTE, LEASE, 2))
    if restarts:
        bench.restart()
    told = ("results", LATER, "QUEUED", NOW + MINUTE, None)
    if way == "end":
        assert bench.round(encode_command(END, LATER, generation=2)) == []
    elif way == "end, late":
        bench.round(encode_command(RENEW, LATER, due_ms=NOW + 2 * HOUR, generation=2))
        bench.now = NOW + HOUR
        assert bench.round(encode_command(END, LATER, generation=2)) == [told]
        return
    elif way == "cancel":
        bench.round(cancel(LATER))
    elif way == "lost":
        assert bench.at(NOW + 30 * MINUTE) == [job_of(LATER, 2, crashes=b"1")]
    assert bench.at(NOW + HOUR - 1) == []
    assert bench.at(NOW + HOUR) == [told]
    if way == "running":
        assert bench.at(NOW + 90 * MINUTE) == [job_of(LATER, 2, crashes=b"1")]
    assert bench.at(NOW + 3 * HOUR) == []
    assert len(bench.machine) == 0


def test_what_was_cancelled_after_it_was_rescheduled_is_revoked_where_readers_look(bench: Bench) -> None:
    bench.round(put(SOON, NOW + 10 * SECOND))
    bench.round(reschedule(SOON, NOW + HOUR))
    bench.at(NOW + 10 * SECOND)  # SCHEDULED, for in an hour
    assert bench.round(cancel(SOON))[0] == ("results", SOON, "REVOKED", None, CANCELLED)
    assert bench.at(NOW + HOUR) == [("results.late", SOON, "REVOKED", None, CANCELLED)]


# -- memory and reading ------------------------------------------------------------------------------------------------


def many(count: int, delay_ms: int, step_ms: int = 0, value: bytes = b"x") -> list[CommandRecord]:
    dues = [NOW + delay_ms + number * step_ms for number in range(count)]
    return [put(id_at(due, number), due, value=value) for number, due in enumerate(dues)]


def test_what_waits_for_long_is_a_row_and_is_read_shortly_before_it_is_due(bench: Bench) -> None:
    bench.round(*many(50, HOUR))
    assert len(bench.machine._near) == 0
    bench.at(NOW + HOUR - 3 * SECOND)
    assert bench.reads == []
    bench.at(NOW + HOUR - 2 * SECOND)
    assert sorted(bench.reads) == list(range(50))
    assert len(bench.at(NOW + HOUR)) == 50
    assert len(bench.reads) == 50


def test_jobs_that_commands_asked_for_become_rows_again(bench: Bench) -> None:
    """Else a client that looks at each job of a million would have the owner keep a million payloads."""
    bench.round(*many(50, HOUR, value=b"x" * 1000))
    for number in range(50):
        bench.round(look(id_at(NOW + HOUR, number)))
    bench.round()
    assert len(bench.machine._near) == 0
    assert bench.machine._kept_bytes == 0


def test_what_is_due_at_once_becomes_objects_in_parts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage a million jobs may be due: no more than fit are objects."""
    monkeypatch.setattr(machine_module, "MOST_KEPT", 40)
    bench.round(*many(1_000, HOUR))
    bench.now = NOW + 2 * HOUR
    moved = 0
    while bench.machine.next_at_ms <= bench.now:
        for offset in bench.machine.to_read([], bench.now):
            key, value, headers = bench.log[offset]
            bench.machine.load(key, value, headers, offset)
        bench.machine.advance(bench.now, 10)
        assert len(bench.machine._near) <= 40
        moved += len(bench.commit())
    assert moved == 1_000


def test_the_earliest_are_objects_when_more_are_put_than_fit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "MOST_KEPT", 40)
    bench.round(*many(60, 50 * SECOND))
    bench.round(*[put(id_at(NOW, 100 + number), NOW + 5 * SECOND) for number in range(60)])
    assert bench.at(NOW + 5 * SECOND - 1) == []
    assert len(bench.at(NOW + 5 * SECOND)) == 60
    assert len(bench.machine._near) <= 60


def test_the_owner_is_not_woken_while_objects_fill_the_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "MOST_KEPT", 40)
    bench.round(*many(100, 20 * SECOND, 1))
    bench.idle()
    assert bench.machine.next_at_ms > bench.now
    bench.at(NOW + SECOND)
    assert bench.machine.next_at_ms > bench.now


def test_a_step_moves_no_more_than_fits_a_transaction(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "MOST_ROUND_BYTES", 1_000)
    bench.round(*many(10, SECOND, value=b"x" * 400))
    bench.now += SECOND
    bench.machine.to_read([], bench.now)
    assert bench.machine.advance(bench.now)
    assert len(bench.commit()) == 3
    assert bench.machine.advance(bench.now, 2)
    assert len(bench.commit()) == 2
    assert bench.machine.advance(bench.now)
    assert len(bench.commit()) == 3
    assert not bench.machine.advance(bench.now)
    assert len(bench.commit()) == 2


def test_the_earliest_records_are_read_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those that a step reads are not those that it moves."""
    monkeypatch.setattr(machine_module, "MOST_MOVED", 5)
    monkeypatch.setattr(machine_module, "MOST_READ", 10)
    dues = [NOW + HOUR + 7 * number % 101 for number in range(101)]
    bench.round(*[put(id_at(due, 1), due) for due in dues])
    read = bench.machine.to_read([], NOW + HOUR + SECOND)
    assert sorted(dues[offset] for offset in read) == [NOW + HOUR + number for number in range(10)]


def test_records_are_read_many_at_a_time_and_not_again_before_one_is_urgent(bench: Bench) -> None:
    """To read is to go through the whole partition, where jobs are due in another order than they came."""
    dues = [NOW + HOUR + 100 * (number * 37 % 150) for number in range(150)]
    bench.round(*[put(id_at(due, 1), due) for due in dues])

    bench.machine._mean_bytes = 2.0  # of those that were read before

    def read(at: int) -> list[int]:
        offsets = bench.machine.to_read([], at)
        assert offsets == sorted(offsets)
        for offset in offsets:
            assert bench.machine.load(*bench.log[offset], offset)
        return sorted(dues[offset] - NOW - HOUR for offset in offsets)

    assert read(NOW + HOUR - 2 * SECOND - 1) == []
    assert read(NOW + HOUR - 2 * SECOND) == list(range(0, 8 * SECOND + 1, 100))
    assert read(NOW + HOUR - 2 * SECOND) == []
    assert read(NOW + HOUR + 6 * SECOND) == []
    assert read(NOW + HOUR + 6 * SECOND + 100) == list(range(8 * SECOND + 100, 15 * SECOND, 100))


def test_large_payloads_are_not_read_ahead(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """There would be no room for those that are urgent."""
    monkeypatch.setattr(machine_module, "MOST_KEPT_BYTES", 100_000)
    monkeypatch.setattr(machine_module, "MOST_MOVED", 10)
    dues = [NOW + HOUR + 20 * number for number in range(400)]
    bench.round(*[put(id_at(due, 1), due, value=b"x" * 5_000) for due in dues])
    sizes = []
    for at in range(NOW + HOUR - 2 * SECOND, NOW + HOUR + 6 * SECOND, 20):
        offsets = bench.machine.to_read([], at)
        for offset in offsets:
            if not bench.machine.load(*bench.log[offset], offset):
                break
        sizes.append(bench.machine._kept_bytes)
        bench.machine.advance(at)
        bench.commit()
    assert max(sizes) <= 105_000
    assert bench.machine.moved_count == 400 * 3 // 4, "none waited for its record"


def test_payloads_that_do_not_fit_are_read_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "MOST_KEPT_BYTES", 1_000)
    bench.idle()
    bench.round(*many(10, 20 * SECOND, value=b"x" * 400))
    assert bench.machine._kept_bytes <= 1_400
    assert len(bench.at(NOW + 20 * SECOND)) == 10
    assert len(bench.reads) == 8


def test_load_says_when_there_is_no_room(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "MOST_KEPT_BYTES", 1_000)
    bench.round(*many(10, HOUR, value=b"x" * 400))
    offsets = bench.machine.to_read([], NOW + HOUR)
    room = [bench.machine.load(*bench.log[offset], offset) for offset in offsets[:5]]
    assert room == [True, True, True, True, False]


def test_nothing_is_to_be_done_when_nothing_waits(bench: Bench) -> None:
    assert bench.machine.next_at_ms == NEVER_MS
    bench.round(put(SOON, NOW + 10 * SECOND, LEASE))
    bench.round(encode_command(END, SOON, generation=1))
    assert bench.machine.next_at_ms == NEVER_MS


# -- damage ------------------------------------------------------------------------------------------------------------


def test_a_job_whose_record_is_gone_fails(bench: Bench) -> None:
    """Readers look for it when it was to start."""
    bench.round(put(LATER, NOW + HOUR))
    (offset,) = bench.machine.to_read([decode(look(LATER))], NOW)
    assert bench.machine.unreadable(offset + 1, NOW) is None
    assert bench.machine.unreadable(offset, NOW) == LATER
    (written,) = bench.commit()
    assert written[:3] == ("results", LATER, "FAILURE")
    assert written[4]["type"] == "ScheduleDamaged"
    (again,) = bench.at(NOW + HOUR)
    assert again == written


def test_a_job_that_was_sent_does_not_fail_when_its_record_is_gone(bench: Bench) -> None:
    bench.round(put(LATER, NOW + HOUR))
    bench.round(reschedule(LATER, NOW))
    (offset,) = bench.machine.to_read([decode(look(LATER))], NOW)
    assert bench.machine.unreadable(offset, NOW) == LATER
    assert bench.commit() == []
    assert bench.round(put(LATER, NOW)) == []


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_damaged_record_is_one_that_is_gone(bench: Bench, is_ended: bool) -> None:
    bench.round(put(LATER, NOW + HOUR))
    if is_ended:
        bench.round(cancel(LATER))
    (offset,) = bench.machine.to_read([decode(look(LATER))], NOW)
    key, _, headers = bench.log[offset]
    with pytest.raises(BadRecord):
        bench.machine.load(key, b"{" if is_ended else None, headers, offset)
    assert bench.machine.unreadable(offset, NOW) == LATER
    assert bench.commit()[0][2] == "FAILURE"


@pytest.mark.parametrize(
    ("key", "headers"), [(b"entry:x", []), (None, []), (LATER.encode(), [("schedule-place", b"?")])]
)
def test_a_record_of_another_kind_is_not_restored(bench: Bench, key: bytes | None, headers: list[Header]) -> None:
    with pytest.raises(BadRecord):
        bench.machine.restore(key, b"{", headers, 0)


def decode(record: CommandRecord) -> Any:
    return decode_command(*record, NOW)
