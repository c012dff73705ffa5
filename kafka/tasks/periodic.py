"""Periodic jobs as an app declares them: ``@app.periodic(...)``.

A declaration is a name, times, and one call of a task; it is checked and encoded where it is written. What an app
declares is one *version* (:meth:`DeclaredEntries.version`): the owners of the schedule say which one they run
(:mod:`kafka.tasks.schedule.entries`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Any

from kafka.errors import IllegalArgumentError
from kafka.tasks.errors import did_you_mean, wall_clock
from kafka.tasks.format.commands import DECLARE, CommandRecord, encode_command, partition_of_entry
from kafka.tasks.options import check_task_name
from kafka.tasks.schedule.entries import MISSED, EntryDefinition
from kafka.tasks.schedule.times import CronTimes, Times, interval_times
from kafka.tasks.settings import Seconds

if TYPE_CHECKING:
    from kafka.tasks.task import Call


def read_times(cron: str | None, every: Seconds | None, anchor: datetime | None, tz: str | None) -> Times:
    """The times that a declaration says: a cron expression and its time zone, or an interval and its anchor."""
    if (cron is None) == (every is None):
        raise IllegalArgumentError(
            'a periodic entry needs a cron expression, such as "0 3 * * *", or every=SECONDS: one of them'
        )
    if cron is not None:
        if anchor is not None:
            raise IllegalArgumentError("anchor= is for every=; a cron expression says its times itself")
        return CronTimes(cron, "UTC" if tz is None else tz)
    if tz is not None:
        raise IllegalArgumentError("tz= is for a cron expression; every= counts seconds, which no time zone changes")
    assert every is not None
    return interval_times(every, anchor, now_ms=int(wall_clock.get()() * 1000))


def check_missed(missed: Any) -> str:
    """``missed`` itself when it is one of the known policies."""
    if not isinstance(missed, str) or missed not in MISSED:
        hint = did_you_mean(missed, MISSED) if isinstance(missed, str) else ""
        raise IllegalArgumentError(f"missed must be one of {', '.join(map(repr, MISSED))}, not {missed!r}{hint}")
    return missed


def define_entry(
    name: str, times: Times, missed: str, call: Call[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> EntryDefinition:
    """The entry that makes this call at these times; :class:`IllegalArgumentError` when the arguments do not fit."""
    check_task_name("the name of a periodic entry", name)
    if not isinstance(args, (list, tuple)):
        raise IllegalArgumentError(f"args must be a list or tuple of arguments, not {args!r}")
    if not isinstance(kwargs, (Mapping, NoneType)) or not all(isinstance(key, str) for key in kwargs or ()):
        raise IllegalArgumentError(f"kwargs must be a dict with str keys, not {kwargs!r}")
    task, queue, headers, payload, key, expires_s = call.template(tuple(args), dict(kwargs or {}))
    return EntryDefinition(
        name, times.spec(), check_missed(missed), queue, task, tuple(headers), payload, key, expires_s
    )


class DeclaredEntries:
    """The entries that an app's code declares, by name. ``ordered_queues``: the app's as they are now, since a queue
    may be declared after the entries whose jobs go there."""

    def __init__(self, ordered_queues: Callable[[], frozenset[str]] = frozenset) -> None:
        self._ordered_queues = ordered_queues
        self._entries: dict[str, EntryDefinition] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: EntryDefinition) -> None:
        """Add an entry; a second one of its name is an error, unless it is the same (a module was loaded twice)."""
        known = self._entries.get(entry.name)
        if known is not None and known != entry:
            raise IllegalArgumentError(
                f"two periodic entries have the name {entry.name!r}: give one of them another, with name="
            )
        self._entries[entry.name] = entry

    @property
    def queues(self) -> set[str]:
        """The queues of their jobs."""
        return {entry.queue for entry in self._entries.values()}

    def _definitions(self) -> list[dict[str, Any]]:
        """All entries by name, as commands have them."""
        ordered = self._ordered_queues()
        entries = (self._entries[name] for name in sorted(self._entries))
        return [entry._replace(is_ordered=entry.queue in ordered).to_json() for entry in entries]

    def version(self) -> str:
        """What tells these entries from those of another version of the code."""
        text = json.dumps(self._definitions())
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def commands(self, partitions: int) -> list[tuple[int, CommandRecord]]:
        """The commands that say to each partition of the schedule what is declared."""
        version = self.version()
        by_partition: dict[int, list[dict[str, Any]]] = {partition: [] for partition in range(partitions)}
        for definition in self._definitions():
            by_partition[partition_of_entry(definition["name"], partitions)].append(definition)
        bodies = ((each, {"version": version, "entries": entries}) for each, entries in by_partition.items())
        return [(each, encode_command(DECLARE, "", body=json.dumps(body).encode())) for each, body in bodies]
