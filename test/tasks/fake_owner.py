"""A small owner of the schedule for tests: it obeys the commands of one app on a broker, and keeps its state in memory.

It does what callers can see of an owner: it writes jobs to their queues when they are due, answers requests, and writes
to the results topics, at the time that a job was announced for, what has become of it before. It knows nothing of
groups, transactions and leases.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition
from kafka.tasks import App, JobState
from kafka.tasks.format.commands import CANCEL, LOOK, PUT, RESCHEDULE, Command, StoredJob, decode_command
from kafka.tasks.format.job_id import partition_of
from kafka.tasks.format.records import StateRecord, encode, is_late, reason_value

POLL_MS = 20
STOP_S = 20.0


class _Place:
    """Where a job is. ``job`` None: it does not wait any more. ``told``: what to write at ``announced_ms``."""

    def __init__(self, job: StoredJob | None, due_ms: int, announced_ms: int) -> None:
        self.job = job
        self.due_ms = due_ms
        self.announced_ms = announced_ms
        self.told: StateRecord | None = None


class FakeOwner:
    """Runs in a thread during the block. Its clock is the app's estimate of the broker's."""

    def __init__(self, app: App, bootstrap: str) -> None:
        self._names = app.names
        self._clock = app.backend().clock
        partitions = app.backend().schedule_partitions()
        self._consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
        self._consumer.assign([TopicPartition(app.names.commands, number) for number in range(partitions)])
        self._producer = KafkaProducer(bootstrap_servers=bootstrap)
        self._places: dict[str, _Place] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake-owner", daemon=True)
        self.commands: list[Command] = []
        self.partitions: dict[str, set[int]] = {}
        """Job or entry -> the partitions in which it was asked for."""

    def __enter__(self) -> FakeOwner:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._thread.join(STOP_S)
        self._producer.close(STOP_S)
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for records in self._consumer.poll(POLL_MS).values():
                for record in records:
                    command = decode_command(record.key, record.value, record.headers, record.timestamp)
                    assert command is not None
                    self.commands.append(command)
                    self.partitions.setdefault(command.subject, set()).add(record.partition)
                    self._obey(command)
            self._release()

    def _obey(self, command: Command) -> None:
        place = self._places.get(command.subject)
        if command.kind == PUT:
            self._places[command.subject] = _Place(command.job, command.due_ms, command.due_ms)
        elif command.kind == CANCEL:
            is_waiting = place is not None and place.job is not None
            revoked = StateRecord(command.subject, JobState.REVOKED, value=reason_value("cancelled", "owner"))
            if place is not None and is_waiting:
                place.job, place.told = None, revoked
            else:
                self._tell(revoked)
            self._answer(command, {"waiting": is_waiting})
        elif command.kind == RESCHEDULE:
            is_waiting = place is not None and place.job is not None
            if place is not None and is_waiting:
                place.due_ms = command.due_ms
            self._answer(command, {"rescheduled": is_waiting, **({"due": command.due_ms} if is_waiting else {})})
        elif command.kind == LOOK:
            self._answer(command, _where(place))

    def _release(self) -> None:
        """Write what is due, and what was announced for now."""
        now_ms = self._clock.earliest_ms()
        for job_id, place in list(self._places.items()):
            if place.job is not None and place.due_ms <= now_ms:
                headers = [*place.job.headers]
                topic = self._names.scheduled(place.job.queue, place.job.is_ordered)
                self._producer.send(topic, place.job.value, place.job.key, headers)
                place.job = None
                if place.announced_ms > now_ms:
                    place.told = StateRecord(job_id, JobState.QUEUED, due_ms=now_ms)
            if place.announced_ms > now_ms:
                continue
            if place.job is not None:
                place.announced_ms = place.due_ms
                self._tell(StateRecord(job_id, JobState.SCHEDULED, due_ms=place.due_ms))
                continue
            if place.told is not None:
                self._tell(place.told)
            del self._places[job_id]

    def _tell(self, record: StateRecord) -> None:
        late = is_late(record.id, self._clock.now_ms())
        key, value, headers = encode(record)
        topic = self._names.late if late else self._names.results
        self._producer.send(topic, value, key, headers, partition_of(record.id))

    def _answer(self, command: Command, answer: dict[str, Any]) -> None:
        assert command.request is not None
        self._tell(StateRecord(command.request, JobState.SUCCESS, value=json.dumps(answer).encode()))


def _where(place: _Place | None) -> dict[str, Any]:
    if place is None:
        return {"state": None, "due": None}
    if place.job is not None:
        return {"state": "SCHEDULED", "due": place.due_ms}
    assert place.told is not None
    return {"state": place.told.state.name, "due": place.told.due_ms, "detail": place.told.detail()}


