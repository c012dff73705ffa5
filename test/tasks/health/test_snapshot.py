"""Tests of ``kafka.tasks.health.snapshot``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.errors import BadRecord
from kafka.tasks.health.snapshot import QueueJobs, RunningJob, WorkerSnapshot, from_json, to_json
from kafka.tasks.pools.base import ChildSnapshot

FULL = WorkerSnapshot(
    "web:12:ab",
    app="shop",
    host="web",
    pid=12,
    queues=("default", "mail"),
    pool="prefork",
    concurrency=2,
    busy=1,
    held=7,
    stage="WORKING",
    reasons=("pool: no child is up yet",),
    version="0.1.0",
    started_ms=1_700_000_000_000,
    uptime_s=12.5,
    contact_age_s=0.25,
    rss_bytes=30_000_000,
    counts={"done": 5},
    pool_counts={"done": 5},
    lost={"oom": 1},
    queue_jobs=(QueueJobs("mail", 3, 2, 3_104), QueueJobs("low")),
    children=(ChildSnapshot(20, 1, "busy", "j1", "mail.send", 3.5, 40_000_000, 4, 0.5), ChildSnapshot(21, 2, "idle")),
    running=(RunningJob("j1", "mail.send", 3.5, 40_000_000, 20),),
)


def test_what_was_written_is_read() -> None:
    assert from_json(to_json(FULL)) == FULL
    assert from_json(to_json(WorkerSnapshot("x"))) == WorkerSnapshot("x")


def test_a_reader_ignores_what_later_releases_add_and_does_without_what_earlier_ones_lack() -> None:
    assert from_json(b'{"id": "x", "colour": "red"}') == WorkerSnapshot("x")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\x00",
        b"[]",
        b"7",
        b'"x"',
        b"{}",
        b'{"id": 5}',
        b'{"id": "x", "pid": "12"}',
        b'{"id": "x", "pid": true}',
        b'{"id": "x", "pid": 1e400}',
        b'{"id": "x", "uptime_s": NaN}',
        b'{"id": "x", "uptime_s": null}',
        b'{"id": "x", "queues": "default"}',
        b'{"id": "x", "children": [{"generation": 1}]}',
        b'{"id": "x", "children": [3]}',
        b'{"id": "x", "counts": {"done": "many"}}',
        b'{"id": "x", "pid": 99999999999999999999}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_snapshot_is_refused(text: bytes) -> None:
    with pytest.raises(BadRecord):
        from_json(text)


@given(st.binary(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_a_reader_raises_nothing_else(text: Any) -> None:
    with contextlib.suppress(BadRecord):
        from_json(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))


def test_what_a_terminal_would_obey_is_taken_out() -> None:
    evil = dataclasses.replace(FULL, host="\x1b[2Jweb\n", running=(RunningJob("\x07", "a\x9b31mb"),))
    read = from_json(to_json(evil))
    assert read.host == "?[2Jweb?"
    assert (read.running[0].id, read.running[0].name) == ("?", "a?31mb")


def test_a_worker_of_a_thousand_children_fits_and_says_what_is_left_out() -> None:
    children = tuple(ChildSnapshot(pid, 1, "busy", "j" * 32, "n" * 250, 1.0, 10, 1, 0.1) for pid in range(1000))
    running = tuple(RunningJob("j" * 32, "n" * 250, 1.0, 10, pid) for pid in range(1000))
    text = to_json(dataclasses.replace(FULL, children=children, running=running))
    assert len(text) <= 60_000
    read = from_json(text)
    assert read.children == children[: len(read.children)]
    assert len(read.children) + len(read.running) + read.left_out == 2000
    assert len(read.children) > 50


def test_long_texts_are_cut() -> None:
    text = to_json(dataclasses.replace(FULL, reasons=("why " * 100_000,)))
    assert len(text) < 5000
    assert from_json(text).reasons[0].endswith("...")


def test_ages_grow_with_the_time_since() -> None:
    older = FULL.aged(10.0)
    assert (older.uptime_s, older.contact_age_s) == (22.5, 10.25)
    assert [child.age_s for child in older.children] == [13.5, None]
    assert older.children[0].last_activity_s == 10.5
    assert older.running[0].age_s == 13.5
    assert older.counts == FULL.counts
    assert WorkerSnapshot("x").aged(1.0).contact_age_s is None


def test_a_worker_with_a_reason_is_not_ready() -> None:
    assert not FULL.is_ready
    assert WorkerSnapshot("x").is_ready
