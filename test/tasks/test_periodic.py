"""Tests of ``kafka.tasks.periodic``: what ``@app.periodic`` takes, and what of it the schedule is told.

The promises are those of docs/schedule.rst, "Periodic jobs".
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.tasks import App, Task
from kafka.tasks.format.commands import DECLARE, decode_command, partition_of_entry
from kafka.tasks.schedule.entries import EntryDefinition


class Shop:
    def __init__(self) -> None:
        self.app = App("shop", bootstrap_servers="127.0.0.1:1")

        @self.app.task(name="note", queue="mail")
        def note(text: str = "") -> None: ...

        self.note: Task[..., None] = note

    def declared(self, partitions: int = 4) -> dict[int, dict[str, Any]]:
        found = {}
        for partition, (key, value, headers) in self.app.declared.commands(partitions):
            command = decode_command(key, value, headers)
            assert command is not None
            assert command.kind == DECLARE
            found[partition] = json.loads(command.body)
        return found


def noted() -> None: ...


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_a_call_of_a_task_is_declared_to_the_partition_of_its_name(shop: Shop) -> None:
    shop.app.periodic("0 3 * * *", tz="Europe/Paris", missed="once", args=("a",), expires=60)(shop.note)
    shop.app.periodic(every=timedelta(minutes=2), name="often")(shop.note)
    declared = shop.declared()
    assert declared.keys() == {0, 1, 2, 3}
    assert len({body["version"] for body in declared.values()}) == 1
    entries = {each["name"]: partition for partition, body in declared.items() for each in body["entries"]}
    assert entries == {name: partition_of_entry(name, 4) for name in ("note", "often")}
    (body,) = [each for each in declared[entries["note"]]["entries"] if each["name"] == "note"]
    entry = EntryDefinition.from_json(body)
    assert (entry.task, entry.queue, entry.missed, entry.expires_s) == ("note", "mail", "once", 60.0)
    assert entry.times == {"cron": "0 3 * * *", "tz": "Europe/Paris"}


def test_an_entry_has_the_key_of_its_call_and_says_whether_its_queue_is_ordered(shop: Shop) -> None:
    shop.app.periodic(every=60, name="by call", key="user-7")(shop.note)
    shop.app.periodic(every=60, name="by task", queue="ledger", ordered_by=lambda: "all")(noted)
    version = shop.app.declared.version()

    def entries() -> dict[str, EntryDefinition]:
        found = [EntryDefinition.from_json(each) for body in shop.declared().values() for each in body["entries"]]
        return {entry.name: entry for entry in found}

    assert {name: (entry.key, entry.is_ordered) for name, entry in entries().items()} == {
        "by call": (b"user-7", False),
        "by task": (b"all", False),
    }
    shop.app.queue("ledger", ordered=True)  # after the entries that use it
    assert {name: entry.is_ordered for name, entry in entries().items()} == {"by call": False, "by task": True}
    assert shop.app.declared.version() != version, "owners are to take over what has changed"


def test_an_app_without_periodic_jobs_says_so(shop: Shop) -> None:
    assert [body["entries"] for body in shop.declared().values()] == [[], [], [], []]


def test_the_version_is_that_of_the_entries_in_whatever_order(shop: Shop) -> None:
    other, changed = Shop(), Shop()
    for each, names in ((shop, ("a", "b")), (other, ("b", "a"))):
        for name in names:
            each.app.periodic(every=60, name=name)(each.note)
    for name in ("a", "b"):
        changed.app.periodic(every=61, name=name)(changed.note)
    assert shop.app.declared.version() == other.app.declared.version() != changed.app.declared.version()


def test_alone_above_a_function_it_takes_the_options_of_a_task(shop: Shop) -> None:
    @shop.app.periodic(every=60, queue="reports", timeout=5, name="shop.poll")
    def poll() -> None: ...

    assert isinstance(poll, Task)
    assert poll.queue == "reports"
    assert shop.app.declared.queues == {"reports"}


def test_a_module_that_is_loaded_twice_declares_the_same(shop: Shop) -> None:
    for _ in range(2):
        shop.app.periodic("@daily")(shop.note)
    assert len(shop.app.declared) == 1
    with pytest.raises(IllegalArgumentError, match="two periodic entries have the name 'note'"):
        shop.app.periodic("@hourly")(shop.note)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "one of them"),
        ({"cron": "@daily", "every": 60}, "one of them"),
        ({"cron": "0 0 30 2 *"}, "never"),
        ({"cron": "* * *"}, "fields"),
        ({"cron": "@daily", "tz": "Europe/Pariss"}, "unknown time zone"),
        ({"cron": "@daily", "anchor": datetime(2026, 1, 1, tzinfo=timezone.utc)}, "anchor= is for every="),
        ({"every": 60, "tz": "UTC"}, "tz= is for a cron expression"),
        ({"every": 60, "anchor": datetime(2026, 1, 1)}, "time zone"),
        ({"every": 60, "anchor": datetime(2999, 1, 1, tzinfo=timezone.utc)}, "anchor that has passed"),
        ({"every": 0}, "every"),
        ({"every": 60, "missed": "skipp"}, "did you mean 'skip'"),
        ({"every": 60, "args": (1, 2)}, "note"),
        ({"every": 60, "kwargs": {"nothing": 1}}, "nothing"),
        ({"every": 60, "name": "a\nb"}, "printable"),
        ({"every": 60, "delay": 5}, "single call"),
        ({"every": 60, "eta": datetime(2999, 1, 1, tzinfo=timezone.utc)}, "single call"),
        ({"every": 60, "args": (Ellipsis,)}, "note"),
        ({"every": 60, "args": "a"}, "args must be"),
        ({"every": 60, "kwargs": 3}, "kwargs must be"),
    ],
    ids=str,
)
def test_what_cannot_be_is_said_where_it_is_written(shop: Shop, given: dict[str, Any], why: str) -> None:
    with pytest.raises((IllegalArgumentError, TypeError), match=why):
        shop.app.periodic(**given)(shop.note)
    assert len(shop.app.declared) == 0
