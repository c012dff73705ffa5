"""Tests of ``app.testing()`` and ``app.eager()`` with the schedule: delays, cancelling and periodic jobs by the clock.

The promises are those of docs/schedule.rst and docs/testing.rst.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from kafka.tasks import App, CancelResult, JobRevoked, JobState, Retry
from kafka.tasks.testing import FakeClock, TestingJobs

START = datetime(2026, 3, 1, tzinfo=timezone.utc)
DAY = 86_400.0


class Shop:
    def __init__(self) -> None:
        self.app = App("shop", bootstrap_servers="127.0.0.1:1")
        self.clock = FakeClock(START)
        self.ran: list[tuple[str, datetime]] = []

        @self.app.task(name="note")
        def note(text: str) -> str:
            self.ran.append((text, self.clock.now()))
            return text

        self.note = note

    def testing(self) -> TestingJobs:
        return self.app.testing(self.clock)


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_a_delayed_job_runs_at_its_time(shop: Shop) -> None:
    with shop.testing() as t:
        soon = shop.note.using(delay=30).delay("soon")
        late = shop.note.using(eta=START + timedelta(days=40)).delay("late")
        assert [t.jobs[0].options, t.jobs[1].options] == [{"delay": 30.0}, {"delay": 40 * DAY}]
        assert (t.run_all(), soon.status(), soon.due_at()) == (0, JobState.SCHEDULED, START + timedelta(seconds=30))
        assert (t.advance(29.999), t.advance(0.001), soon.result()) == (0, 1, "soon")
        assert (t.advance(days=39), t.advance(days=1), late.result(0)) == (0, 1, "late")
        assert shop.ran == [("soon", START + timedelta(seconds=30)), ("late", START + timedelta(days=40))] or (
            shop.ran[1][1] == START + timedelta(days=40)
        )


def test_a_cancelled_job_does_not_run_and_a_rescheduled_one_at_its_other_time(shop: Shop) -> None:
    with shop.testing() as t:
        cancelled = shop.note.using(delay=60).delay("cancelled")
        earlier = shop.note.using(delay=3600).delay("earlier")
        later = shop.note.using(delay=60).delay("later")
        assert cancelled.cancel() is CancelResult.CANCELLED
        assert earlier.reschedule(delay=10)
        assert later.reschedule(START + timedelta(days=1))
        t.advance(hours=2)
        assert [text for text, _ in shop.ran] == ["earlier"]
        t.advance(days=1)
        assert [text for text, _ in shop.ran] == ["earlier", "later"]
        assert cancelled.status() is JobState.REVOKED
        with pytest.raises(JobRevoked, match="cancelled"):
            cancelled.result()
        assert earlier.cancel() is CancelResult.TOO_LATE
        assert not earlier.reschedule(delay=10)


def test_a_job_in_its_queue_can_be_cancelled(shop: Shop) -> None:
    with shop.testing() as t:
        job = shop.note.delay("no")
        assert job.cancel()
        assert (t.run_all(), shop.ran, job.status()) == (0, [], JobState.REVOKED)


def test_periodic_jobs_run_by_the_clock_across_a_change_of_clocks(shop: Shop) -> None:
    paris = ZoneInfo("Europe/Paris")
    shop.app.periodic("30 2 * * *", tz="Europe/Paris", args=("night",))(shop.note)
    with shop.testing() as t:
        t.run_all()
        assert t.advance(days=31) == 31
    times = [at.astimezone(paris) for _, at in shop.ran]
    assert [f"{at:%m-%d %H:%M}" for at in times[27:30]] == ["03-28 02:30", "03-29 03:00", "03-30 02:30"]


def test_periodic_entries_can_be_changed_while_the_test_runs(shop: Shop) -> None:
    shop.app.periodic(every=3600, args=("hour",))(shop.note)
    with shop.testing() as t:
        t.run_all()
        shop.app.schedule.add("minutes", shop.note, every=60, args=("minute",))
        assert [entry.name for entry in shop.app.schedule.list()] == ["minutes", "note"]
        assert t.advance(3600) == 61
        shop.app.schedule.pause("note")
        shop.app.schedule.remove("minutes")
        assert t.advance(hours=3) == 0
        job = shop.app.schedule.run_now("note")
        assert (t.run_all(), job.result()) == (1, "hour")
        assert shop.app.schedule.resume("note") == t.clock.now() + timedelta(hours=1)


def test_eager_jobs_wait_for_no_delay(shop: Shop) -> None:
    with shop.app.eager():
        assert shop.note.using(delay=3600).delay("now").result() == "now"


def test_a_job_keeps_its_key_on_all_its_ways_and_is_shown_with_it(shop: Shop) -> None:
    """Retries, delays, periodic entries, added or declared, and the dead topic; of an ordered queue and of others."""
    app = shop.app
    app.queue("ledger", ordered=True)

    @app.task(name="pay", queue="ledger", retry=Retry(max_attempts=2, backoff=lambda attempt: 4, jitter=False))
    def pay() -> None:
        raise OSError("no bank")

    app.periodic(every=3600, key="slot", name="hourly")(pay)
    with app.testing(FakeClock(START)) as t:
        app.schedule.add("added", pay, every=3600, key="added")
        pay.using(key="now").delay()
        pay.using(key="later", delay=60, queue="default").delay()
        pay.delay()
        t.advance(10, hours=1)
        found = {job.key for job in t.jobs}
        assert found == {b"now", b"later", None, b"slot", b"added"}
        assert {job.attempts for job in t.jobs} == {2}
        assert {dead.job.key for dead in t.dead} == found
        topics = t._in_process.topics.topics
        written = {name: {record.key for record in topics.get(f"{app.name}.{name}", ())} for name in (
            "ledger", "default", "default.due", "ledger.dead", "default.dead",
        )}  # fmt: skip
    assert written == {
        "ledger": {b"now", None, b"slot", b"added"},
        "default": set(),
        "default.due": {b"later"},
        "ledger.dead": {b"now", None, b"slot", b"added"},
        "default.dead": {b"later"},
    }
