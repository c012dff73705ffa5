"""What a job's record becomes when its queue is migrated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka.errors import CorruptRecordError
from kafka.tasks.delivery.moved_jobs import end_of_marks, from_consumer_group, from_share_group, marks_behind
from kafka.tasks.format.envelope import Envelope, decode
from kafka.tasks.format.offset_metadata import MarkedJob, PartitionMarks
from kafka.tasks.format.topics import TopicNames

NAMES = TopicNames("shop")
ID = "018c2f00000000000001aaaaaaaaaaaa"
EXTRA = ("traceparent", b"00-1")


def record(topic: str = "shop.mail", offset: int = 5, **fields: Any) -> Any:
    job = Envelope(ID, "send", b"{}", extra=(EXTRA,), key=b"k", **fields)
    return SimpleNamespace(topic=topic, offset=offset, key=b"k", value=b"{}", headers=job.headers())


WRITER = "shop.worker.1"


@pytest.mark.parametrize(
    ("topic", "marks", "to"),
    [
        ("shop.mail", PartitionMarks(), "shop.mail.due"),
        ("shop.mail.due", PartitionMarks(), "shop.mail.due"),
        ("shop.mail.suspect", PartitionMarks(), "shop.mail.suspect"),
        ("shop.mail", PartitionMarks(started_below=6, writer=WRITER), "shop.mail.suspect"),
        ("shop.mail", PartitionMarks(started_below=5, writer=WRITER), "shop.mail.due"),
        ("shop.mail", PartitionMarks(suspects_below=6), "shop.mail.suspect"),
        ("shop.mail", PartitionMarks(suspects_below=6, jobs={5: MarkedJob(attempt=2)}), "shop.mail.due"),
        ("shop.mail", PartitionMarks(jobs={5: MarkedJob(is_suspect=True)}), "shop.mail.suspect"),
        ("shop.mail", PartitionMarks(jobs={5: MarkedJob(is_started=True)}), "shop.mail.suspect"),
        ("shop.mail", PartitionMarks(started_below=6, writer=WRITER, jobs={5: MarkedJob(2)}), "shop.mail.suspect"),
    ],
)
def test_jobs_that_may_have_killed_their_worker_go_to_the_suspects(topic: str, marks: PartitionMarks, to: str) -> None:
    assert from_consumer_group(record(topic), marks, NAMES, "mail").topic == to


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (None, (2, 1, 3, 7, None)),
        (MarkedJob(losses=2, is_suspect=True), (2, 3, 3, 7, None)),
        (MarkedJob(losses=1, is_started=True), (2, 3, 3, 7, None)),
        (MarkedJob(4, 2, due_ms=9), (4, 2, 0, None, 9)),
        (MarkedJob(4, 2, losses=1, is_started=True), (4, 4, 0, None, None)),
        (MarkedJob(1, 0, unknown=5, unknown_since_ms=8, due_ms=9), (1, 0, 5, 8, 9)),
    ],
)
def test_how_far_a_job_has_come_is_in_its_record(job: MarkedJob | None, expected: Any) -> None:
    """Each run that was not seen to end is a crash."""
    given = record(attempt=2, crashes=1, unknown=3, unknown_since_ms=7)
    marks = PartitionMarks(jobs={} if job is None else {5: job})
    moved = from_consumer_group(given, marks, NAMES, "mail")
    found = decode(moved.value, moved.headers, moved.key)
    assert (found.attempt, found.crashes, found.unknown, found.unknown_since_ms, found.due_ms) == expected
    assert (found.id, found.key, found.value, found.extra) == (ID, b"k", b"{}", (EXTRA,))


@pytest.mark.parametrize(
    ("topic", "deliveries", "to", "crashes"),
    [
        ("shop.mail", 1, "shop.mail.due", 1),
        ("shop.mail.due", 1, "shop.mail.due", 1),
        ("shop.mail", 2, "shop.mail.suspect", 1),
        ("shop.mail.suspect", 1, "shop.mail.suspect", 1),
        ("shop.mail.suspect", 3, "shop.mail.suspect", 3),
    ],
)
def test_deliveries_of_a_suspect_are_crashes(topic: str, deliveries: int, to: str, crashes: int) -> None:
    moved = from_share_group(record(topic, crashes=1), deliveries, NAMES, "mail")
    assert (moved.topic, decode(moved.value, moved.headers).crashes) == (to, crashes)


def test_what_is_no_job_is_moved_as_it_is() -> None:
    given = SimpleNamespace(topic="shop.mail.suspect", offset=5, key=None, value=b"?", headers=[("a", b"b")])
    marks = PartitionMarks(jobs={5: MarkedJob(losses=1)})
    assert from_consumer_group(given, marks, NAMES, "mail") == ("shop.mail.suspect", None, b"?", [("a", b"b")])

    class Malformed:
        topic, offset, key, value = "shop.mail", 5, None, b"?"

        @property
        def headers(self) -> Any:
            raise CorruptRecordError

    assert from_share_group(Malformed(), 1, NAMES, "mail") == ("shop.mail.due", None, b"?", [])


@pytest.mark.parametrize(
    ("marks", "end"),
    [
        (PartitionMarks(), 10),
        (PartitionMarks(((12, 14),)), 15),
        (PartitionMarks(((12, 14),), started_below=17, writer=WRITER), 17),
        (PartitionMarks(suspects_below=19), 19),
        (PartitionMarks(((12, 14),), jobs={20: MarkedJob(1)}), 21),
    ],
)
def test_nobody_has_begun_with_what_is_behind_the_marks(marks: PartitionMarks, end: int) -> None:
    assert end_of_marks(10, marks) == end


def test_what_is_moved_first_is_taken_off_the_marks() -> None:
    marks = PartitionMarks(((12, 14), (17, 17)), 20, 18, {11: MarkedJob(1), 19: MarkedJob(2)}, WRITER)
    kept = {19: MarkedJob(2)}
    assert marks_behind(12, marks) == (15, PartitionMarks(((17, 17),), 20, 18, kept, WRITER))
    assert marks_behind(13, marks) == (15, PartitionMarks(((17, 17),), 20, 18, kept, WRITER))
    assert marks_behind(16, marks) == (16, PartitionMarks(((17, 17),), 20, 18, kept, WRITER))
    assert marks_behind(19, marks) == (19, PartitionMarks((), 20, 0, kept, WRITER))
    assert marks_behind(20, marks) == (20, PartitionMarks())
