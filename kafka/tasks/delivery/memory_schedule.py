"""The schedule of jobs in memory: the state machine of the one partition, over topics in lists of this process.

A command is carried out by the thread that appends it, so its answer is there when that returns; what becomes due is
written by a worker's loop (:class:`kafka.tasks.delivery.memory.MemoryDelivery`), which has a timer for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from kafka.tasks.delivery.base import Appended, OutgoingRecord
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.commands import Command, decode_command
from kafka.tasks.format.envelope import Header
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.schedule.machine import ScheduleMachine

log = logging.getLogger(__name__)

HOST = "localhost"


class StoredRecord(Protocol):
    """A record in a list."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    time_ms: int


class MemorySchedule:
    """The schedule of one app. ``read(topic, offset)`` and ``append`` are those of the topics. Any thread may call it;
    one at a time does."""

    def __init__(
        self,
        names: TopicNames,
        read: Callable[[str, int], StoredRecord],
        append: Callable[[OutgoingRecord], Appended],
        now_ms: Callable[[], int],
    ) -> None:
        self._names = names
        self._read = read
        self._append = append
        self._now_ms = now_ms
        self._machine = ScheduleMachine(names, 0, 1, HOST)
        self._lock = threading.RLock()
        self._applied = 0  # commands

    @property
    def next_at_ms(self) -> int:
        """When there is something to do."""
        return self._machine.next_at_ms

    @property
    def has_waiting(self) -> bool:
        """Whether jobs wait in it."""
        return self._machine.waiting_count > 0

    def run(self, command_count: int = 0) -> None:
        """Carry out the commands before this offset of their topic, and what is due."""
        with self._lock:
            while self._applied < command_count:
                record = self._read(self._names.commands, self._applied)
                self._applied += 1
                try:
                    command = decode_command(record.key, record.value, record.headers, record.time_ms)
                except BadRecord as error:
                    log.warning("ignoring a record of %s: %s", self._names.commands, error.text)
                    continue
                if command is not None:
                    self._step([command])
            now_ms = self._now_ms()
            while self._machine.next_at_ms <= now_ms:
                self._step([])

    def _step(self, commands: list[Command]) -> None:
        machine, now_ms, topic = self._machine, self._now_ms(), self._names.schedule
        for offset in machine.to_read(commands, now_ms):
            record = self._read(topic, offset)
            machine.load(record.key, record.value, record.headers, offset)
        for command in commands:
            machine.apply(command, now_ms)
        machine.advance(now_ms)
        records, stored = machine.take()
        appended = [self._append(record) for record in records]
        machine.committed([appended[position].offset for position, _ in stored])
