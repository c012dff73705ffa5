"""A partition of the schedule in a simulated log: its topics, an owner that dies, workers, readers, and a clock that is
set by hand. What comes out of it is held against :mod:`test.tasks.schedule.schedule_model`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kafka.tasks.delivery.base import RecordKind
from kafka.tasks.format.commands import (
    END,
    LEASE,
    LOOK,
    PUT,
    Command,
    CommandRecord,
    decode_command,
    encode_command,
    encode_put,
)
from kafka.tasks.format.envelope import Envelope, Header
from kafka.tasks.format.envelope import decode as decode_job_record
from kafka.tasks.format.job_id import make_id, partition_of, time_of
from kafka.tasks.format.records import StateRecord, decode, state_headers, supersedes, with_due
from kafka.tasks.format.schedule import decode_place
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.schedule import machine as machine_module
from kafka.tasks.schedule.machine import ScheduleMachine
from kafka.tasks.schedule.pending import NEVER_MS
from kafka.tasks.states import READY, JobState
from test.tasks.schedule.schedule_model import FORGOTTEN_MS, NEXT_PLACES, Model

START_MS: Final = 1_700_000_000_000
RESULTS_PARTITIONS: Final = 2
PARTITION: Final = 3

SMALL: Final = {"MOST_KEPT": 8, "MOST_KEPT_BYTES": 320, "MOST_MOVED": 3, "MOST_READ": 4, "MOST_ROUND_BYTES": 400}
"""Limits of the machine so small that jobs go back and forth between objects, rows and the log all the time."""


@dataclass
class Stored:
    """A record of APP.schedule."""

    offset: int
    time_ms: int
    key: bytes
    value: bytes | None
    headers: list[Header]


class World:
    """``is_lost(place)`` says whether the owner dies at a place of its loop, before or after the commit."""

    def __init__(self, is_lost: Callable[[str], bool] = lambda _: False, batch: int = 5) -> None:
        self.now = START_MS
        self.names = TopicNames("shop")
        self.model = Model(RESULTS_PARTITIONS)
        self.is_lost = is_lost
        self.batch = batch
        self.commands: list[Command] = []
        self.committed = 0
        self.log: dict[int, Stored] = {}
        self.end_offset = 0
        self.states: dict[str, list[StateRecord]] = {}
        """All state records, by job; the order is that of both logs."""
        self.answers: dict[str, dict[str, Any]] = {}
        self.ends: dict[str, StateRecord] = {}
        """The first end of each job."""
        self.queue: list[Envelope] = []
        """Records of queues that no worker has accepted."""
        self.leases: dict[str, Envelope] = {}
        self.number = 0
        self.places: dict[str, str] = {}
        """Where the records of APP.schedule say that each job is."""
        self.moves: set[tuple[str, str]] = set()
        """Which places have followed which; PUT and LEASE: jobs that were nowhere."""
        self.machine = self.restored()

    # -- the log ------------------------------------------------------------------------------------------------------

    def restored(self) -> ScheduleMachine:
        """What a new owner has read."""
        machine = ScheduleMachine(self.names, PARTITION, RESULTS_PARTITIONS, "host")
        machine.set_missing_topics(self.model.missing_topics)
        for stored in self.log.values():
            machine.restore(stored.key, stored.value, stored.headers, stored.offset)
        return machine

    def compact(self) -> None:
        """Superseded records go, and tombstones once they are old; the last record of a partition stays."""
        last = {stored.key: stored.offset for stored in self.log.values()}
        self.log = {
            offset: stored
            for offset, stored in self.log.items()
            if offset == self.end_offset - 1
            or (offset == last[stored.key] and (stored.value is not None or stored.time_ms + 600_000 > self.now))
        }

    def append(self, record: CommandRecord) -> None:
        """A command."""
        command = decode_command(record.key, record.value, record.headers, self.now)
        assert command is not None
        self.commands.append(command)

    def write_state(self, record: StateRecord) -> None:
        """A state record into the results topics."""
        in_late = self.now - time_of(record.id) > 60_000
        kept = self.states.setdefault(record.id, [])
        kept.append(record._replace(time_ms=self.now, in_late=in_late, offset=len(kept)))
        if record.state in READY:
            self.ends.setdefault(record.id, kept[-1])

    # -- the owner ----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One round of the owner; whether there is more to do now."""
        machine = self.machine
        commands = self.commands[self.committed : self.committed + self.batch]
        for offset in machine.to_read(commands, self.now):
            stored = self.log.get(offset)
            assert stored is not None, "an offset that no record has any more"
            machine.load(stored.key, stored.value, stored.headers, offset)
        for command in commands:
            machine.apply(command, self.now)
        machine.advance(self.now, machine_module.MOST_MOVED)
        taken = machine.take()
        if self.is_lost("before"):
            self.machine = self.restored()
            return True
        offsets = []
        stored_at = dict(taken.stored)
        for place, record in enumerate(taken.records):
            if record.topic == "shop.schedule":
                assert record.partition == PARTITION
                assert record.key is not None
                if place in stored_at:
                    assert record.key.decode() == stored_at[place]
                    offsets.append(self.end_offset)
                stored = Stored(self.end_offset, self.now, record.key, record.value, list(record.headers or []))
                self.log[self.end_offset] = stored
                self.end_offset += 1
                self._note_place(stored, commands)
            elif record.kind is RecordKind.JOB:
                envelope = decode_job_record(record.value, record.headers or [], record.key)
                self.queue.append(envelope)
            elif record.topic != "shop.cancelled":
                state = decode(record.key, record.value, record.headers or [])
                assert state is not None
                if state.state is JobState.SUCCESS:
                    self.answers[state.id] = json.loads(state.value)
                else:
                    self.write_state(state)
            self.end_offset += place % 3 == 0  # offsets of other records: markers of transactions
        self.committed += len(commands)
        self.model.take_round(commands, taken.records, self.now)
        if self.is_lost("after"):
            self.machine = self.restored()
            return True
        machine.committed(offsets)
        self.check_memory()
        return self.committed < len(self.commands) or machine.next_at_ms <= self.now

    def _note_place(self, stored: Stored, commands: list[Command]) -> None:
        """A job has come to a place; one that was nowhere by a command of the same round."""
        job_id, place = stored.key.decode(), decode_place(stored.key, stored.headers)
        before = self.places.pop(job_id, None)
        if before is None:
            before = next(each.kind for each in commands if each.subject == job_id and each.kind in (PUT, LEASE))
        if place is not None:
            self.places[job_id] = place.kind
        after = "gone" if place is None else place.kind
        assert after in NEXT_PLACES[before], f"{job_id}: from {before} to {after}"
        self.moves.add((before, after))

    def run(self) -> None:
        """Step until nothing is to be done now."""
        steps = 0
        while self.step():
            steps += 1
            assert steps < 2_000 + 10 * len(self.model.jobs) + len(self.commands), "the owner makes no progress"
        self.model.check_nothing_waits(self.now)

    def wait(self, ms: int) -> None:
        """Time passes, and the owner steps when the machine says that it has something to do."""
        self.run()
        until = self.now + ms
        steps = 0
        while self.machine.next_at_ms <= until:
            self.now = max(self.now, self.machine.next_at_ms)
            self.run()
            steps += 1
            assert steps < 100 + ms / 5_000 + 20 * len(self.model.jobs), "the owner steps for nothing"
        self.now = until
        self.model.check_nothing_waits(self.now)
        self.model.forget_old(self.now, after_ms=FORGOTTEN_MS)
        must, may = self.model.known_count(self.now)
        known = len(self.machine) - sum(self.machine._known(job_id) is not None for job_id in self.model.uncertain)
        assert must <= known, "a job is forgotten"
        if len(self.machine._near) < machine_module.MOST_KEPT // 4:  # else rows are looked at later
            assert known <= may, "what is over is forgotten"
        if len(self.machine) == 0:
            assert self.machine.next_at_ms == NEVER_MS

    def stand_still(self, ms: int) -> None:
        """Time passes without an owner."""
        self.now += ms

    def check_memory(self) -> None:
        """No more jobs are objects than may be, and payloads are counted."""
        machine = self.machine
        near = machine._near
        assert machine._kept_bytes == sum(len(each.job.value) for each in near.values() if each.job is not None)
        assert not near.keys() & set(machine._unread) - near.keys()
        assert all(each.offset >= 0 for each in near.values())
        # At most as many as fit, half as many that became objects, and those of one batch of commands.
        assert len(near) <= machine_module.MOST_KEPT * 3 // 2 + self.batch
        assert len(machine._heap) <= 2 * (machine_module.MOST_KEPT * 3 // 2 + self.batch) + machine_module.MOST_READ + 1
        largest = max((len(each.job.value) for each in near.values() if each.job is not None), default=0)
        assert machine._kept_bytes <= machine_module.MOST_KEPT_BYTES + largest * (machine_module.MOST_READ + self.batch)

    # -- clients ------------------------------------------------------------------------------------------------------

    def new_id(self, time_ms: int, partition: int | None = None) -> str:
        """An id of a job, or of a request."""
        self.number += 1
        chosen = self.number % RESULTS_PARTITIONS if partition is None else partition
        return make_id(time_ms, chosen, (self.number * 0x9E3779B97F4A7C15 % (1 << 64)).to_bytes(8, "big"))

    def new_job(self, delay_ms: int, queue: str = "mail", expires_ms: int | None = None, size: int = 1) -> str:
        """A job that is to start later: its id has that time."""
        due = self.now + delay_ms
        job_id = self.new_id(due)
        key = self._key_of(job_id)
        envelope = Envelope(job_id, "f", job_id.encode() * size, expires_ms=expires_ms, key=key, generation=1)
        self.append(encode_put(envelope, queue, due, is_ordered=key is not None))
        return job_id

    def _key_of(self, job_id: str) -> bytes | None:
        """Every third job has one, and its queue is said to be ordered."""
        return None if self.number % 3 else b"key of " + job_id.encode()

    def new_leased(self, lease_ms: int, size: int = 1) -> str:
        """A job that came from its queue, and whose worker leaves it to the schedule."""
        job_id = self.new_id(self.now)
        envelope = Envelope(job_id, "f", job_id.encode() * size, key=self._key_of(job_id))
        self.lease(envelope, lease_ms)
        return job_id

    def ask(self, kind: str, job_id: str, due_ms: int | None = None) -> str:
        """A command with an answer."""
        request = self.new_id(self.now)
        self.append(encode_command(kind, job_id, request=request, due_ms=due_ms))
        return request

    # -- workers ------------------------------------------------------------------------------------------------------

    def lease(self, envelope: Envelope, lease_ms: int) -> None:
        """The worker that has a job asks the schedule to look after it."""
        leased = envelope.moved(envelope.attempt, envelope.crashes, generation=envelope.generation + 1)
        self.append(encode_put(leased, "mail", self.now + lease_ms, LEASE, leased.key is not None))
        self.leases[leased.id] = leased

    def retry(self, envelope: Envelope, delay_ms: int) -> None:
        """Another attempt: readers are told when."""
        due = self.now + delay_ms
        headers = with_due(state_headers(JobState.RETRY, envelope.attempt, 1), due)
        retried = decode(envelope.id.encode(), b"{}", headers)
        assert retried is not None
        self.write_state(retried)
        again = envelope.moved(envelope.attempt + 1, envelope.crashes, generation=envelope.generation + 1)
        self.append(encode_put(again, "mail", due, PUT, again.key is not None))

    def succeed(self, envelope: Envelope) -> None:
        """The job has ended."""
        self.write_state(StateRecord(envelope.id, JobState.SUCCESS, envelope.attempt, 1, b"1"))

    def end_lease(self, leased: Envelope) -> None:
        """A leased job has ended; so has its lease."""
        self.succeed(leased)
        self.append(encode_command(END, leased.id, generation=leased.generation))

    # -- readers ------------------------------------------------------------------------------------------------------

    def read(self, job_id: str) -> JobState | None:
        """What a client that has a bare id finds, by the rule of the specification: a window around the id's time, from
        each time that a record points to on, and the owner's answer where that is in the future."""
        pointers = [time_of(job_id)]
        best: StateRecord | None = None
        shown: JobState | None = None
        for from_ms in pointers:  # of all records that were read, not of the best alone: a run may have ended before
            if from_ms > self.now:
                answer = self.look(job_id)
                if answer["state"] in ("REVOKED", "FAILURE"):
                    return JobState[answer["state"]]
                shown = None if answer["state"] is None else JobState[answer["state"]]
                if answer["due"] is not None and answer["due"] <= self.now and answer["due"] not in pointers:
                    pointers.append(answer["due"])
                continue
            for record in self.states.get(job_id, ()):
                is_read = record.in_late or record.time_ms <= time_of(job_id) + 65_000
                if is_read and record.time_ms >= from_ms - 60_000:
                    best = record if supersedes(best, record) else best
                    if record.due_ms is not None and record.due_ms not in pointers:
                        pointers.append(record.due_ms)
        return shown if best is None else best.state

    def look(self, job_id: str) -> dict[str, Any]:
        """The owner's answer to LOOK."""
        request = self.ask(LOOK, job_id)
        self.run()
        return self.answers.pop(request)

    def check_reader(self, job_id: str) -> None:
        """From the moment of its end on readers find it, and none before."""
        if partition_of(job_id) >= RESULTS_PARTITIONS or job_id in self.model.uncertain:
            return
        self.run()
        found = self.read(job_id)
        end = self.ends.get(job_id)
        if end is None:
            assert found not in READY, found
        elif end.state is JobState.SUCCESS and job_id in self.model.ends:
            # A run ended, its worker died before it accepted the job, and the schedule has ended the next attempt: it
            # does not know of the first end. Readers of the bare id may find either one.
            assert found in (end.state, JobState[self.model.ends[job_id]])
        else:
            assert found is end.state, f"{job_id} ended as {end}, a reader finds {found}: {self.states[job_id]}"
