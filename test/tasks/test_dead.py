"""Dead jobs: which are selected, what a replay writes and marks, and what a drop deletes; over a log in memory."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError, KafkaTimeoutError, MessageSizeTooLargeError
from kafka.tasks import App, DeadCounts, DeadJob, DeadJobs, DeadSelection, UnknownQueue, dead
from kafka.tasks.dead import OffsetSet, Pacer
from kafka.tasks.delivery.memory import MemoryRecord
from kafka.tasks.format.dead_mark import MOST_MARKED, DeadMark, MarkKind, decode_mark
from kafka.tasks.format.envelope import DeadLetter, Envelope, decode
from kafka.tasks.format.job_id import is_id, make_id
from kafka.tasks.format.payload import encode_call
from test.tasks.fakes import FakeBackend, FakeDeadLog, FakeSent

PAYLOAD = encode_call("mail.send", (7,), {"body": "hi"})
numbers = itertools.count()


def new_id() -> str:
    return make_id(1_700_000_000_000, 2, next(numbers).to_bytes(8, "big"))


@pytest.fixture
def log(backend: FakeBackend) -> FakeDeadLog:
    """The dead topic of the queue mail, which has two partitions."""
    backend.existing.add("mail")
    backend.dead["mail"] = FakeDeadLog("shop.mail.dead", 2)
    return backend.dead["mail"]


@pytest.fixture
def jobs(app: App, log: FakeDeadLog) -> DeadJobs:
    return DeadJobs(app, "mail")


def die(
    log: FakeDeadLog, partition: int = 0, task: str = "mail.send", error: str = "OSError", cause: str = "failed"
) -> str:
    """Write a dead job; its id."""
    job_id = new_id()
    envelope = Envelope(job_id, task, PAYLOAD)
    log.write(partition, PAYLOAD, envelope.headers() + DeadLetter(cause, error, "no route").headers())
    return job_id


def ids(found: object) -> list[str | None]:
    return [job.id for job in found]  # type: ignore[attr-defined]


def marks(log: FakeDeadLog, partition: int = 0) -> list[DeadMark]:
    decoded = (decode_mark(each.value, each.headers) for each in log.records[partition])
    return [mark for mark in decoded if mark is not None]


def enqueued(backend: FakeBackend) -> list[MemoryRecord]:
    return backend.queues.topics["shop.mail"]


# -- selecting ---------------------------------------------------------------------------------------------------------


def test_dead_jobs_are_selected_by_age_over_all_partitions(jobs: DeadJobs, log: FakeDeadLog) -> None:
    died = [die(log, partition) for partition in (1, 0, 0, 1)]
    found = list(jobs.select(DeadSelection()))
    assert ids(found) == died
    assert [job.position for job in found] == ["1:0", "0:0", "0:1", "1:1"]
    assert (found[0].task, found[0].letter, found[0].time_ms) == (
        "mail.send",
        DeadLetter("failed", "OSError", "no route"),
        2_000,
    )


@pytest.mark.parametrize(
    ("selection", "places"),
    [
        (DeadSelection(error="OSError"), [0, 3]),
        (DeadSelection(error="*Error"), [0, 1, 3]),
        (DeadSelection(error="lost-memory"), [2]),
        (DeadSelection(error="oserror"), []),
        (DeadSelection(task="bill.*"), [1, 3]),
        (DeadSelection(task="bill.*", error="OSError"), [3]),
        (DeadSelection(since_ms=3_000), [1, 2, 3]),
        (DeadSelection(until_ms=3_000), [0]),
        (DeadSelection(since_ms=3_000, until_ms=5_000), [1, 2]),
        (DeadSelection(limit=2), [0, 1]),
        (DeadSelection(error="OSError", limit=1), [0]),
        (DeadSelection(ids=frozenset({"1:0", "0:2"})), [1, 3]),
    ],
)
def test_all_conditions_of_a_selection_hold(
    jobs: DeadJobs, log: FakeDeadLog, selection: DeadSelection, places: list[int]
) -> None:
    died = [
        die(log, 0),
        die(log, 1, "bill.print", "ValueError"),
        die(log, 0, error="WorkerLost", cause="lost-memory"),
        die(log, 0, "bill.send"),
    ]
    assert ids(jobs.select(selection)) == [died[place] for place in places]


def test_a_selection_by_id_finds_the_job(jobs: DeadJobs, log: FakeDeadLog) -> None:
    die(log)
    wanted = die(log, 1)
    assert ids(jobs.select(DeadSelection(ids=frozenset({wanted})))) == [wanted]


def test_only_the_part_of_the_time_is_read(jobs: DeadJobs, log: FakeDeadLog) -> None:
    for partition in (0, 1, 0, 1):
        die(log, partition)  # at 2, 3, 4 and 5 s
    assert len(list(jobs.select(DeadSelection(since_ms=4_000, until_ms=5_000)))) == 1
    assert log.reads == [{0: (1, 2), 1: (1, 2)}, {0: (1, 2), 1: (1, 1)}]


def test_what_is_no_job_is_selected_by_its_position(jobs: DeadJobs, log: FakeDeadLog) -> None:
    log.write(0, b"\xff", [("id", b"\xfe"), *DeadLetter("bad-id", "BadRecord", "no id").headers()])
    log.write(0, b"other", [("something", b"else")])
    (found,) = jobs.select(DeadSelection(ids=frozenset({"0:0"})))
    assert (found.id, found.task, found.letter.cause, found.value) == (None, None, "bad-id", b"\xff")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"ids": "018c"}, "ids must be a collection of job ids, not the str '018c'"),
        ({"limit": 0}, "limit must be a number of jobs above 0"),
        ({"limit": -1}, "limit must be a number of jobs above 0"),
    ],
)
def test_a_selection_that_makes_no_sense_is_an_error(given: dict[str, Any], text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text):
        DeadSelection(**given)


def test_a_queue_without_dead_topic_is_unknown(app: App) -> None:
    with pytest.raises(UnknownQueue, match="'mial'"):
        DeadJobs(app, "mial")


def test_closing_closes_the_log_and_not_the_app(app: App, backend: FakeBackend, log: FakeDeadLog) -> None:
    with DeadJobs(app, "mail"):
        assert not log.is_closed
    assert log.is_closed
    assert not backend.is_closed


# -- replaying ---------------------------------------------------------------------------------------------------------


def test_a_replay_is_a_new_job_linked_to_the_dead_one(jobs: DeadJobs, log: FakeDeadLog, backend: FakeBackend) -> None:
    old = Envelope(
        new_id(), "mail.send", PAYLOAD, attempt=4, expires_ms=1, timeout=60.0, soft_timeout=30.0, store_result=False,
        crashes=2, clean=3, extra=(("traceparent", b"00-1"), ("empty", None)), unknown=5, key=b"user-7", due_ms=9,
        content_type="application/x", needs=("x",), unknown_since_ms=8, run="daily@1", origin=new_id(), parent=new_id(),
        root=new_id(),
    )  # fmt: skip
    log.write(0, PAYLOAD, old.headers() + DeadLetter("failed", "OSError", "no", "Traceback").headers(), b"user-7")
    replayed: list[tuple[str | None, str | None]] = []
    counts = jobs.replay(DeadSelection(), on_replayed=lambda job, new: replayed.append((job.id, new)))
    assert counts == DeadCounts(done=1)
    (record,) = enqueued(backend)
    new = decode(record.value, record.headers, record.key)
    assert new == Envelope(
        new.id, "mail.send", PAYLOAD, timeout=60.0, soft_timeout=30.0, store_result=False,
        extra=(("traceparent", b"00-1"), ("empty", None)), key=b"user-7", content_type="application/x", needs=("x",),
        origin=old.id, parent=old.parent, root=old.root,
    )  # fmt: skip
    assert is_id(new.id) and new.id != old.id
    assert new.results_partition == 3, "an id of this process, and so not the dead job's partition"
    assert replayed == [(old.id, new.id)]


def test_a_replayed_job_is_not_replayed_again(jobs: DeadJobs, log: FakeDeadLog, backend: FakeBackend) -> None:
    first = die(log)
    jobs.replay(DeadSelection())
    second = die(log)
    counts = jobs.replay(DeadSelection())
    assert counts == DeadCounts(done=1, marked=1)
    assert [record.header("origin") for record in enqueued(backend)] == [first, second]
    assert jobs.replay(DeadSelection()) == DeadCounts(marked=2)
    assert ids(jobs.select(DeadSelection())) == []
    every = list(jobs.select(DeadSelection(), include_marked=True))
    assert [(job.id, job.mark) for job in every] == [(first, MarkKind.REPLAYED), (second, MarkKind.REPLAYED)]
    assert [jobs.replayed_as(job) for job in every] == [record.header("id") for record in enqueued(backend)]


def test_a_mark_counts_although_it_is_later_than_the_selection(jobs: DeadJobs, log: FakeDeadLog) -> None:
    die(log)
    jobs.replay(DeadSelection())
    assert ids(jobs.select(DeadSelection(until_ms=3_000))) == []


def test_a_mark_is_in_the_partition_of_its_jobs(jobs: DeadJobs, log: FakeDeadLog, backend: FakeBackend) -> None:
    for partition in (0, 1, 1):
        die(log, partition)
    jobs.replay(DeadSelection())
    new = [record.header("id") for record in enqueued(backend)]
    assert marks(log, 0) == [DeadMark(MarkKind.REPLAYED, (0,), (new[0],))]
    assert marks(log, 1) == [DeadMark(MarkKind.REPLAYED, (0, 1), (new[1], new[2]))]


def test_jobs_are_marked_after_they_are_durable(jobs: DeadJobs, log: FakeDeadLog, backend: FakeBackend) -> None:
    die(log)
    seen: list[tuple[int, int]] = []
    log.on_append = lambda: seen.append((len(enqueued(backend)), backend.flushes))
    jobs.replay(DeadSelection())
    assert seen == [(1, 1)]


def test_what_was_not_written_is_not_marked_and_its_error_is_raised(
    jobs: DeadJobs, log: FakeDeadLog, backend: FakeBackend
) -> None:
    died = [die(log), die(log)]
    backend.next_sent = FakeSent(MessageSizeTooLargeError("2 MB"))
    with pytest.raises(MessageSizeTooLargeError):
        jobs.replay(DeadSelection())
    assert ids(jobs.select(DeadSelection())) == died[:1]


def test_what_was_written_is_marked_when_the_flush_fails(
    jobs: DeadJobs, log: FakeDeadLog, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = [die(log), die(log)]
    backend.next_sent = FakeSent(is_done=False)

    def fail(timeout: float | None) -> None:
        raise KafkaTimeoutError("flush")

    monkeypatch.setattr(backend, "flush", fail)
    with pytest.raises(KafkaTimeoutError):
        jobs.replay(DeadSelection())
    assert ids(jobs.select(DeadSelection())) == died[:1]


def test_a_record_that_is_no_job_is_counted_and_left(jobs: DeadJobs, log: FakeDeadLog, backend: FakeBackend) -> None:
    log.write(0, None, DeadLetter("no-job", "BadRecord").headers())
    die(log)
    assert jobs.replay(DeadSelection()) == DeadCounts(done=1, no_job=1)
    assert len(enqueued(backend)) == 1


def test_a_dry_run_writes_nothing(jobs: DeadJobs, log: FakeDeadLog, backend: FakeBackend) -> None:
    died = [die(log), die(log, 1)]
    seen: list[tuple[str | None, str | None]] = []
    counts = jobs.replay(DeadSelection(), dry_run=True, on_replayed=lambda job, new: seen.append((job.id, new)))
    assert counts == DeadCounts(done=2)
    assert seen == [(died[0], None), (died[1], None)]
    assert (enqueued(backend), marks(log), backend.routed) == ([], [], [])
    assert jobs.drop(DeadSelection(), dry_run=True) == DeadCounts(done=2)
    assert (marks(log), log.starts) == ([], {0: 0, 1: 0})


def test_many_jobs_are_written_in_parts_that_one_mark_names(
    jobs: DeadJobs, log: FakeDeadLog, backend: FakeBackend
) -> None:
    for _ in range(MOST_MARKED + 1):
        die(log)
    assert jobs.replay(DeadSelection()).done == MOST_MARKED + 1
    assert [len(mark.offsets) for mark in marks(log)] == [MOST_MARKED, 1]
    assert backend.flushes == 2
    assert backend.routed == ["mail"]


def test_a_rate_is_kept_by_waiting_between_small_parts(
    jobs: DeadJobs, log: FakeDeadLog, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, waits = [100.0], []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(dead.time, "sleep", sleep)
    monkeypatch.setattr(dead.time, "monotonic", lambda: now[0])
    for _ in range(12):
        die(log)
    jobs.replay(DeadSelection(), rate=50)
    assert waits == pytest.approx([0, 0.1, 0.1])
    assert backend.flushes == 3


@pytest.mark.parametrize("rate", [0, -1.0, float("nan")])
def test_a_rate_that_makes_no_sense_is_an_error_at_the_call(jobs: DeadJobs, log: FakeDeadLog, rate: float) -> None:
    with pytest.raises(IllegalArgumentError, match="rate must be a number of jobs a second above 0"):
        jobs.replay(DeadSelection(), rate)
    assert log.reads == []


def test_a_pause_is_not_made_up_for_by_a_burst() -> None:
    pacer = Pacer(10)
    assert pacer.wait_s(0.0, 5) == 0
    assert pacer.wait_s(0.1, 5) == pytest.approx(0.4)
    assert pacer.wait_s(60.0, 5) == 0
    assert pacer.wait_s(60.0, 5) == pytest.approx(0.5)


# -- dropping ----------------------------------------------------------------------------------------------------------


def test_dropping_all_deletes_the_records(jobs: DeadJobs, log: FakeDeadLog) -> None:
    for partition in (0, 0, 1):
        die(log, partition)
    dropped: list[DeadJob] = []
    assert jobs.drop(DeadSelection(), on_dropped=dropped.append) == DeadCounts(done=3)
    assert len(dropped) == 3
    assert log.starts == {0: 2, 1: 1}
    assert marks(log) == []
    assert list(jobs.select(DeadSelection())) == []


def test_only_what_has_nothing_else_below_it_is_deleted_and_the_rest_marked(jobs: DeadJobs, log: FakeDeadLog) -> None:
    for task in ("a", "a", "b", "a"):
        die(log, task=task)
    assert jobs.drop(DeadSelection(task="a")) == DeadCounts(done=3)
    assert log.starts == {0: 2, 1: 0}
    assert marks(log) == [DeadMark(MarkKind.DROPPED, (3,))]
    assert [job.task for job in jobs.select(DeadSelection())] == ["b"]
    assert jobs.drop(DeadSelection(task="b")) == DeadCounts(done=1)
    assert log.starts == {0: 4, 1: 0}, "the one that was dropped earlier goes, too"


def test_a_replayed_job_below_is_kept(jobs: DeadJobs, log: FakeDeadLog) -> None:
    die(log)
    jobs.replay(DeadSelection())
    die(log)
    assert jobs.drop(DeadSelection()) == DeadCounts(done=1, marked=1)
    assert log.starts == {0: 0, 1: 0}
    assert [job.mark for job in jobs.select(DeadSelection(), True)] == [MarkKind.REPLAYED, MarkKind.DROPPED]


def test_nothing_is_deleted_below_the_selected_time(jobs: DeadJobs, log: FakeDeadLog) -> None:
    old, _ = die(log), die(log)
    assert jobs.drop(DeadSelection(since_ms=3_000)) == DeadCounts(done=1)
    assert log.starts == {0: 0, 1: 0}
    assert ids(jobs.select(DeadSelection())) == [old]


def test_a_limited_drop_leaves_the_newer_ones(jobs: DeadJobs, log: FakeDeadLog) -> None:
    died = [die(log) for _ in range(3)]
    assert jobs.drop(DeadSelection(limit=2)) == DeadCounts(done=2)
    assert log.starts == {0: 2, 1: 0}
    assert ids(jobs.select(DeadSelection())) == died[2:]


def test_a_dropped_job_is_not_replayed(jobs: DeadJobs, log: FakeDeadLog, backend: FakeBackend) -> None:
    die(log, task="a")
    die(log, task="b")
    jobs.drop(DeadSelection(task="b"))
    assert jobs.replay(DeadSelection()) == DeadCounts(done=1, marked=1)
    assert [record.header("name") for record in enqueued(backend)] == ["a"]


def test_offsets_take_a_bit_each() -> None:
    offsets = OffsetSet(1_000, 1_000_000)
    for each in (1_000, 1_007, 1_008, 999_999, 999, 1_000_000):
        offsets.add(each)
    assert [each for each in range(900, 1_100) if each in offsets] == [1_000, 1_007, 1_008]
    assert 999_999 in offsets and 1_000_000 not in offsets and 0 not in offsets
    assert len(offsets._bits) < 125_000
    assert 5 not in OffsetSet(5, 5)
