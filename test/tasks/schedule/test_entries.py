"""Tests of ``kafka.tasks.schedule.entries``: what periodic entries do as commands and time come in.

The expectations are those of the module's docstring and of docs/schedule.rst.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import pytest

from kafka.tasks.delivery.base import OutgoingRecord, RecordKind
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.commands import (
    ADD,
    DECLARE,
    LIST,
    PAUSE,
    REMOVE,
    RESUME,
    RUN,
    Command,
    decode_command,
    encode_command,
)
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.schedule.entries import EntryDefinition
from kafka.tasks.schedule.machine import ScheduleMachine
from test.support import seeds

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
START = 1_772_323_200_000
"""2026-03-01 00:00:00 UTC."""
REQUEST = f"{START:012x}0002" + "a" * 16


def definition(name: str = "e", missed: str = "skip", every_s: int = 3600, **changes: Any) -> EntryDefinition:
    times = {"every_s": every_s, "anchor_ms": 0}
    made = EntryDefinition(name, times, missed, "mail", "shop.send", (("name", b"shop.send"),), b"[[],{}]")
    return made._replace(**changes)


class Owner:
    """A machine, the log of its partition, and what it has written elsewhere."""

    def __init__(self) -> None:
        self.log: list[OutgoingRecord] = []
        self.jobs: list[OutgoingRecord] = []
        self.answers: list[dict[str, Any]] = []
        self.start()

    def start(self) -> None:
        """A new owner takes over: all that it knows is the log."""
        self.machine = ScheduleMachine(TopicNames("shop"), 0, 4, "host")
        for offset, record in enumerate(self.log):
            self.machine.restore(record.key, record.value, record.headers or [], offset)

    def step(self, now_ms: int, *commands: Command) -> list[OutgoingRecord]:
        """One round; returns the jobs that it writes."""
        for command in commands:
            self.machine.apply(command, now_ms)
        self.machine.advance(now_ms)
        jobs = [record for record in self.commit() if record.topic == "shop.mail.due"]
        self.jobs += jobs
        return jobs

    def commit(self) -> list[OutgoingRecord]:
        records, stored = self.machine.take()
        self.log += [record for record in records if record.topic == "shop.schedule"]
        states = [record for record in records if record.topic in ("shop.results", "shop.results.late")]
        self.answers += [json.loads(record.value or b"") for record in states]
        self.machine.committed([0] * len(stored))
        return records

    def ask(self, now_ms: int, kind: str, name: str = "", body: bytes = b"") -> dict[str, Any]:
        self.step(now_ms, command(kind, name, now_ms, body))
        return self.answers[-1]

    def runs_until(self, until_ms: int) -> list[int]:
        """Let the time go on from one deadline to the next; the slots of the jobs that were written."""
        before = len(self.jobs)
        while (at_ms := self.machine.next_at_ms) <= until_ms:
            self.step(at_ms)
        return slots_of(self.jobs[before:])


def command(kind: str, name: str, now_ms: int, body: bytes = b"") -> Command:
    request = None if kind == DECLARE else REQUEST
    record = encode_command(kind, name, request=request, body=body)
    read = decode_command(record.key, record.value, record.headers, now_ms)
    assert read is not None
    return read


def declare(now_ms: int, version: str, *definitions: EntryDefinition) -> Command:
    body = {"version": version, "entries": [each.to_json() for each in definitions]}
    return command(DECLARE, "", now_ms, json.dumps(body).encode())


def slots_of(jobs: Sequence[OutgoingRecord]) -> list[int]:
    return [int(dict(job.headers or [])["run"].rpartition(b"@")[2]) for job in jobs]  # type: ignore[union-attr]


def test_a_job_is_written_at_each_time_and_says_of_which_it_is() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", definition(expires_s=90.0, key=b"k")))
    assert owner.machine.next_at_ms == START + HOUR
    assert owner.step(START + HOUR - 1) == []
    (job,) = owner.step(START + HOUR)
    headers = dict(job.headers or [])
    assert (job.value, job.key) == (b"[[],{}]", b"k")
    assert headers["name"] == b"shop.send"
    assert headers["run"] == b"e@%d" % (START + HOUR)
    assert headers["expires"] == b"%d" % (START + HOUR + 90_000)
    assert str(headers["id"], "ascii").startswith(f"{START + HOUR:012x}")  # its result is found from the bare id
    assert owner.runs_until(START + 3 * HOUR) == [START + 2 * HOUR, START + 3 * HOUR]


def test_the_job_of_an_ordered_queue_goes_to_its_one_topic_with_the_key_of_the_entry() -> None:
    made = definition(key=b"user-7", is_ordered=True)
    assert EntryDefinition.from_json(json.loads(made.to_bytes())) == made
    machine = ScheduleMachine(TopicNames("shop"), 0, 4, "host")
    machine.apply(command(ADD, "e", 0, made.to_bytes()), 0)
    assert machine.entry_topics == {"shop.mail"}
    machine.advance(3_600_000)
    (job,) = [each for each in machine.take().records if each.kind is RecordKind.JOB]
    assert (job.topic, job.key, job.partition) == ("shop.mail", b"user-7", None)


def test_an_entry_of_a_release_before_is_of_a_queue_that_is_not_ordered() -> None:
    body = definition().to_json()
    assert "ordered" not in body, "nothing changes for entries of other queues"
    assert not EntryDefinition.from_json(body).is_ordered


def test_the_id_of_a_job_is_made_of_entry_and_time_alone() -> None:
    ids = []
    for _ in range(2):
        owner = Owner()
        owner.step(START, declare(START, "v1", definition("a"), definition("b")))
        ids.append(sorted(str(dict(job.headers or [])["id"]) for job in owner.step(START + HOUR)))
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_no_slot_has_two_jobs_or_none_when_owners_change_at_any_time() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", definition(missed="all", every_s=600)))
    now_ms = START
    for step_ms in (1, 599_999, 600_000, 1, 3_000_000, 59_999, 1, 700_000):
        now_ms += step_ms
        owner.start()
        owner.step(now_ms)
        owner.start()
        owner.step(now_ms)
    ran = slots_of(owner.jobs)
    assert ran == list(range(START + 600_000, now_ms + 1, 600_000))


@pytest.mark.parametrize(
    ("missed", "late_ms", "expected"),
    [
        # an owner comes 5 hours and `late_ms` after the last slot that had a job
        ("skip", 59_000, [5]),
        ("skip", 61_000, []),
        ("once", 61_000, [5]),
        ("all", 61_000, [1, 2, 3, 4, 5]),
    ],
)
def test_times_that_passed_without_an_owner(missed: str, late_ms: int, expected: list[int]) -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", definition(missed=missed)))
    owner.start()
    jobs = owner.step(START + 5 * HOUR + late_ms)
    assert slots_of(jobs) == [START + hours * HOUR for hours in expected]
    assert owner.machine.next_at_ms == START + 6 * HOUR
    assert owner.runs_until(START + 6 * HOUR) == [START + 6 * HOUR]


def test_a_year_of_missed_seconds_is_made_up_for_in_bounded_steps() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", definition(missed="all", every_s=1), definition("s", every_s=1)))
    jobs = owner.step(START + 365 * DAY)
    assert len(jobs) == 101  # MOST_SLOTS of one, and the last one of the other
    assert owner.machine.next_at_ms <= START + 365 * DAY
    assert len(owner.step(START + 365 * DAY)) == 100


def test_thousands_of_entries_of_one_time_have_their_jobs_in_bounded_steps_by_turns() -> None:
    """A step is one transaction, which a broker ends after ten seconds, and the process says nothing to its group
    meanwhile."""
    owner = Owner()
    late = [definition(f"late{number}", "all", every_s=1) for number in range(50)]
    owner.step(START, declare(START, "v1", *late, *(definition(f"{number}") for number in range(2000))))
    now_ms = START + HOUR
    counts: list[int] = []
    while len(counts) < 9:
        counts.append(len(owner.step(now_ms)))
    assert max(counts) <= 500
    ran = [dict(job.headers or [])["run"] for job in owner.jobs]
    assert sum(not (run or b"").startswith(b"late") for run in ran) == 2000, "no entry waits for another's arrears"
    while owner.machine.next_at_ms <= now_ms:
        owner.step(now_ms)
    assert len(owner.jobs) == 50 * 3600 + 2000
    assert len({dict(job.headers or [])["run"] for job in owner.jobs}) == len(owner.jobs)


def test_a_step_with_large_payloads_has_few_jobs() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", *(definition(f"{number}", payload=bytes(500_000)) for number in range(20))))
    assert len(owner.step(START + HOUR)) < 12
    assert owner.machine.next_at_ms <= START + HOUR


@pytest.mark.parametrize("kinds", [(PAUSE, RESUME), (ADD,)], ids="-".join)
def test_no_slot_runs_again_where_time_has_gone_back(kinds: tuple[str, ...]) -> None:
    """A new owner may know the broker's time less exactly, and a broker's clock may step."""
    owner = Owner()
    owner.ask(START, ADD, "e", definition().to_bytes())
    owner.step(START + HOUR)
    owner.start()
    for kind in kinds:
        owner.ask(START + HOUR - 5, kind, "e", definition(missed="all").to_bytes())
    assert owner.runs_until(START + 2 * HOUR) == [START + 2 * HOUR]
    assert slots_of(owner.jobs) == [START + HOUR, START + 2 * HOUR]


def test_an_entry_that_is_changed_when_its_time_has_come_runs_then() -> None:
    owner = Owner()
    owner.ask(START, ADD, "e", definition().to_bytes())
    owner.ask(START + HOUR, ADD, "e", definition(key=b"k").to_bytes())
    assert slots_of(owner.jobs) == [START + HOUR]


def test_a_paused_entry_makes_no_jobs_also_not_afterwards() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", definition(missed="all")))
    assert owner.ask(START + 1, PAUSE, "e") == {"ok": True, "next": None}
    owner.start()
    assert owner.step(START + 5 * HOUR) == []
    assert owner.ask(START + 5 * HOUR + 1, RESUME, "e") == {"ok": True, "next": START + 6 * HOUR}
    assert owner.runs_until(START + 6 * HOUR) == [START + 6 * HOUR]


def test_a_time_that_comes_after_a_resume_has_its_job_though_the_owner_hears_of_both_later() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", definition()))
    owner.ask(START + 1, PAUSE, "e")
    owner.step(START + 2 * HOUR + 1_000, command(RESUME, "e", START + 2 * HOUR - 5))
    assert slots_of(owner.jobs) == [START + 2 * HOUR]


def test_times_after_a_pause_that_is_over_have_their_jobs_though_there_was_no_owner() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", definition(missed="all")))
    pause, resume = command(PAUSE, "e", START + 10), command(RESUME, "e", START + HOUR + 20)
    owner.step(START + 3 * HOUR + 1_000, pause, resume)
    assert slots_of(owner.jobs) == [START + 2 * HOUR, START + 3 * HOUR]


def test_a_job_can_be_made_at_once() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", definition()))
    owner.ask(START + 1, PAUSE, "e")
    answer = owner.ask(START + 2, RUN, "e")
    (job,) = owner.jobs
    assert answer == {"ok": True, "job": str(dict(job.headers or [])["id"], "ascii")}
    assert dict(job.headers or [])["run"] == b"e@" + REQUEST.encode()


def test_entries_are_added_changed_and_removed_at_run_time_and_stay() -> None:
    owner = Owner()
    added = definition("nightly")
    assert owner.ask(START, ADD, "nightly", added.to_bytes()) == {"ok": True, "next": START + HOUR}
    owner.start()
    assert owner.ask(START + 1, ADD, "nightly", definition("nightly", every_s=60).to_bytes())["next"] == START + MINUTE
    owner.start()
    assert owner.runs_until(START + 2 * MINUTE) == [START + MINUTE, START + 2 * MINUTE]
    assert owner.ask(START + 2 * MINUTE, REMOVE, "nightly")["ok"] is True
    owner.start()
    assert owner.runs_until(START + DAY) == []
    assert owner.ask(START + DAY, REMOVE, "nightly") == {"error": "there is no periodic entry 'nightly'"}


def test_what_the_code_declares_is_not_removed_or_replaced_at_run_time() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", definition()))
    assert "declared by the app's code" in owner.ask(START, REMOVE, "e")["error"]
    assert "declared by the app's code" in owner.ask(START, ADD, "e", definition().to_bytes())["error"]


def test_two_versions_of_the_code_do_not_alternate_and_a_roll_back_holds() -> None:
    old, new = definition(), definition(every_s=1800)
    owner = Owner()
    now_ms = START
    owner.step(now_ms, declare(now_ms, "v1", old))
    for _ in range(20):  # a rolling deploy of an hour and forty minutes, with a new owner each time
        now_ms += 5 * MINUTE
        owner.step(now_ms, declare(now_ms, "v2", new))
        now_ms += 1
        owner.step(now_ms, declare(now_ms, "v1", old))
        owner.start()
        assert owner.ask(now_ms, LIST)["entries"][0]["times"]["every_s"] == 1800
    rolled_back_ms = now_ms
    shown = []
    for _ in range(6):  # only the old code runs
        now_ms += 5 * MINUTE
        owner.step(now_ms, declare(now_ms, "v1", old))
        shown.append(owner.ask(now_ms, LIST)["entries"][0]["times"]["every_s"])
    assert shown[0] == 1800
    assert shown[-1] == 3600
    assert now_ms - rolled_back_ms == 30 * MINUTE


def test_an_entry_that_the_new_code_does_not_declare_ends_and_a_changed_one_keeps_its_pause() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", definition("gone"), definition("kept")))
    owner.ask(START, PAUSE, "kept")
    owner.ask(START, ADD, "mine", definition("mine").to_bytes())
    owner.step(START + 1, declare(START + 1, "v2", definition("kept", queue="mail", missed="once")))
    owner.start()
    assert owner.machine.take_changes() == []
    owner.step(START + 2, declare(START + 2, "v3", definition("kept", queue="mail", missed="once"), definition("new")))
    assert owner.machine.take_changes() == ["new or changed: new"]
    owner.step(START + 3, declare(START + 3, "v4", definition("kept", queue="mail", missed="once")))
    assert owner.machine.take_changes() == ["not declared any more: new"]
    listed = {row["name"]: row for row in owner.ask(START + 4, LIST)["entries"]}
    assert set(listed) == {"kept", "mine"}
    assert (listed["kept"]["paused"], listed["kept"]["missed"], listed["kept"]["next"]) == (True, "once", None)
    assert listed["mine"]["source"] == "added"


def test_a_change_of_the_task_runs_no_slot_again_and_skips_none() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", definition()))
    owner.step(START + HOUR)
    changed = definition(headers=(("name", b"other"),), task="other")
    owner.step(START + HOUR + 1, declare(START + HOUR + 1, "v2", changed))
    assert owner.runs_until(START + 2 * HOUR) == [START + 2 * HOUR]
    assert slots_of(owner.jobs) == [START + HOUR, START + 2 * HOUR]
    assert dict(owner.jobs[-1].headers or [])["name"] == b"other"


def test_the_list_of_entries_comes_in_parts_that_fit_a_record() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", *(definition(f"{number:0240}") for number in range(3000))))
    names: list[str] = []
    while True:
        answer = owner.ask(START, LIST, names[-1] if names else "")
        assert len(json.dumps(answer, separators=(",", ":"))) < 64 * 1024, "the least that a results topic takes"
        names += [row["name"] for row in answer["entries"]]
        assert len(names) + answer.get("left_out", 0) == 3000
        if len(names) == 3000:
            break
    assert names == sorted(f"{number:0240}" for number in range(3000))


def test_jobs_of_a_queue_that_is_gone_end_as_failures() -> None:
    owner = Owner()
    owner.step(START, declare(START, "v1", definition()))
    owner.machine.set_missing_topics({"shop.mail.due"})
    owner.machine.advance(START + HOUR)
    failures = [record for record in owner.commit() if record.topic == "shop.results"]
    assert [dict(record.headers or [])["state"] for record in failures] == [b"FAILURE"]
    assert json.loads(failures[0].value or b"")["type"] == "UnknownQueue"


BROKEN: list[dict[str, Any]] = [
    {"name": ""}, {"missed": "never"}, {"times": {"cron": "x", "tz": "UTC"}}, {"times": None}, {"queue": 7},
    {"payload": "%"}, {"headers": [["a"]]}, {"expires": "soon"}, {"headers": 3}, {"expires": float("inf")},
    {"expires": float("nan")}, {"queue": "no queue!"}, {"name": "\ud800"}, {"headers": [["\ud800", ""]]},
]  # fmt: skip


@pytest.mark.parametrize("changes", BROKEN, ids=str)
def test_a_damaged_definition_is_refused(changes: dict[str, Any]) -> None:
    body = {**definition().to_json(), **changes}
    with pytest.raises(BadRecord):
        EntryDefinition.from_json(body)
    owner = Owner()
    assert "malformed periodic entry" in owner.ask(START, ADD, "e", json.dumps(body).encode())["error"]
    with pytest.raises(BadRecord):
        owner.machine.apply(command(DECLARE, "", START, b'{"version": "1", "entries": [3]}'), START)


@pytest.mark.parametrize("entries", [b"3", b"null", b'"ab"'], ids=repr)
def test_a_damaged_declaration_is_refused(entries: bytes) -> None:
    with pytest.raises(BadRecord):
        Owner().machine.apply(command(DECLARE, "", START, b'{"version": "1", "entries": %b}' % entries), START)


def test_an_entry_goes_to_the_partition_of_its_name() -> None:
    assert "is named" in Owner().ask(START, ADD, "other", definition().to_bytes())["error"]


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("declared", {"older": 3}), ("declared", {"older": {"v0": "x"}}), ("declared", {"older": [["v0"]]}),
        ("entry:e", {"passed": "x"}), ("entry:e", {"passed": None}), ("entry:e", {"passed": float("inf")}),
    ],
)  # fmt: skip
def test_a_damaged_record_of_the_state_is_refused(key: str, changes: dict[str, Any]) -> None:
    body = {"version": "v1", "older": {}, "definition": definition().to_json(), "source": "added", "passed": START}
    Owner().machine.restore(key.encode(), json.dumps(body).encode(), [], 0)
    with pytest.raises(BadRecord):
        Owner().machine.restore(key.encode(), json.dumps({**body, **changes}).encode(), [], 0)


def test_a_definition_is_the_same_after_a_round_trip() -> None:
    given = definition(headers=(("name", b"n"), ("mine", b"\xff\x00"), ("null", None)), key=b"k", expires_s=1.5)
    assert EntryDefinition.from_json(json.loads(given.to_bytes())) == given
    assert base64.b64decode(given.to_json()["payload"]) == given.payload


@pytest.mark.parametrize(
    ("zone", "day", "cron", "expected"),
    [
        # tz database: Paris 2026-03-29 02:00 -> 03:00 (01:00 UTC), 2026-10-25 03:00 -> 02:00 (01:00 UTC); New York
        # 2026-03-08 02:00 -> 03:00 (07:00 UTC), 2026-11-01 02:00 -> 01:00 (06:00 UTC). Named hours: Vixie's cron(8).
        ("Europe/Paris", "2026-03-29", "30 2 * * *", ["01:00"]),
        ("Europe/Paris", "2026-10-25", "30 2 * * *", ["00:30"]),
        ("Europe/Paris", "2026-03-29", "*/30 * * * *", [f"{n // 2:02}:{n % 2 * 30:02}" for n in range(48)]),
        ("Europe/Paris", "2026-10-25", "*/30 * * * *", [f"{n // 2:02}:{n % 2 * 30:02}" for n in range(48)]),
        ("America/New_York", "2026-03-08", "30 2 * * *", ["07:00"]),
        ("America/New_York", "2026-11-01", "30 1 * * *", ["05:30"]),
        ("America/New_York", "2026-11-01", "0 * * * *", [f"{n:02}:00" for n in range(24)]),
    ],
)
def test_each_slot_has_one_job_on_the_days_of_both_changes_whichever_owner_is_alive(
    zone: str, day: str, cron: str, expected: list[str]
) -> None:
    rng = seeds.rng(f"{zone} {day} {cron}")
    begin_ms = int(datetime.fromisoformat(f"{day}T00:00+00:00").timestamp() * 1000)
    owner = Owner()
    made = definition(missed="all")._replace(times={"cron": cron, "tz": zone})
    owner.step(begin_ms - 1, declare(begin_ms - 1, "v1", made))
    now_ms = begin_ms - 1
    while now_ms < begin_ms + DAY - 1:
        now_ms = min(begin_ms + DAY - 1, now_ms + rng.randrange(1, 40 * MINUTE))
        if rng.random() < 0.4:
            owner.start()  # another worker takes over; what the last one had not committed is gone
        if rng.random() < 0.3:
            owner.machine.advance(now_ms)
            owner.start()  # killed between its decision and its commit
        owner.step(now_ms)
    slots = [datetime.fromtimestamp(slot / 1000, timezone.utc) for slot in slots_of(owner.jobs)]
    assert [f"{slot:%H:%M}" for slot in slots] == expected
