"""Tests of ``app.testing()``: what a user's test sees of jobs, and that they behave as in production."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

import pytest

from kafka.errors import IllegalStateError
from kafka.tasks import (
    App,
    Cancel,
    Context,
    JobFailed,
    JobRevoked,
    JobState,
    JobTimeout,
    NotSerialisable,
    PayloadTooLarge,
    Retry,
    RetryAt,
    Snooze,
    UnknownQueue,
    expo,
)
from kafka.tasks.testing import FakeClock, TestingJobs
from test.tasks.fakes import FakeBackend

START = datetime(2031, 5, 1, tzinfo=timezone.utc)


class Shop:
    """An app whose brokers nothing must reach, and a test of its jobs."""

    def __init__(self) -> None:
        self.app = App("shop", bootstrap_servers="127.0.0.1:1", queues=["mail"])
        self.runs: list[object] = []
        self.failures = 0

        @self.app.task(name="add")
        def add(a: int, b: int = 1) -> int:
            self.runs.append((a, b))
            return a + b

        @self.app.task(name="fail", retry=Retry(3, on=(OSError,), backoff=expo(first=4), jitter=False))
        def fail(*args: object) -> str:
            self.runs.append(t.clock.now() - START)
            if self.failures:
                self.failures -= 1
                raise OSError("disk")
            return "done"

        @self.app.task(name="break")
        def break_() -> None:
            raise ValueError("no")

        self.add, self.fail, self.break_ = add, fail, break_
        self.t = t = self.app.testing(FakeClock(START))


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    with shop.t:
        yield shop


def at(*seconds: float) -> list[timedelta]:
    return [timedelta(seconds=each) for each in seconds]


def test_nothing_runs_until_the_test_says_so(shop: Shop) -> None:
    job = shop.add.delay(1, b=2)
    assert (shop.runs, job.status()) == ([], JobState.QUEUED)
    assert shop.t.run_all() == 1
    assert (shop.runs, job.status(), job.result(), job.wait()) == ([(1, 2)], JobState.SUCCESS, 3, True)
    assert shop.t.run_all() == 0


def test_a_result_that_is_not_there_is_an_error_at_once(shop: Shop) -> None:
    job = shop.add.delay(1)
    with pytest.raises(JobTimeout, match=r"no job runs while the test waits: call run_all\(\) or advance\(\) first"):
        job.result()


def test_jobs_are_listed_with_what_came_of_them(shop: Shop) -> None:
    shop.add.using(timeout=60, soft_timeout=30, expires=90, store_result=True).delay(1, b=2)
    shop.break_.delay()
    shop.app.send("add", args=[5], queue="mail")
    added, broken, sent = shop.t.jobs
    assert repr(added) == "<EnqueuedJob add(1, b=2) QUEUED>"
    assert added.options == {"timeout": 60.0, "soft_timeout": 30.0, "expires": 90.0, "store_result": True}
    assert (added.attempts, added.state, added.exception) == (0, JobState.QUEUED, None)
    shop.t.run_all()
    assert (added.task, added.args, added.kwargs, added.queue) == ("add", [1], {"b": 2}, "default")
    assert (added.attempts, added.state, added.result, added.exception) == (1, JobState.SUCCESS, 3, None)
    assert (broken.state, type(broken.exception), broken.options) == (JobState.FAILURE, ValueError, {})
    with pytest.raises(JobFailed, match="ValueError: no"):
        _ = broken.result
    assert (sent.queue, sent.args, sent.result) == ("mail", [5], 6)


def test_a_job_without_a_stored_result_is_seen_to_succeed(shop: Shop) -> None:
    shop.add.using(store_result=False).delay(1)
    assert shop.t.jobs[0].state is JobState.QUEUED
    shop.t.run_all()
    assert (shop.t.jobs[0].state, shop.runs) == (JobState.SUCCESS, [(1, 1)])


def test_a_failed_job_is_retried_when_its_time_has_come(shop: Shop) -> None:
    shop.failures = 2
    job = shop.fail.delay()
    assert (shop.t.run_all(), job.status()) == (1, JobState.RETRY)
    assert (shop.t.advance(3.9), shop.t.advance(0.1)) == (0, 1)
    assert type(shop.t.jobs[0].exception) is OSError
    assert (shop.t.advance(timedelta(seconds=20)), job.result()) == (1, "done")
    assert shop.runs == at(0, 4, 12)
    assert (shop.t.jobs[0].attempts, shop.t.jobs[0].exception) == (3, None)
    assert shop.t.clock.now() == START + timedelta(seconds=24)


def test_each_deadline_on_the_way_is_kept_and_in_order(shop: Shop) -> None:
    shop.failures = 9
    shop.fail.delay()
    shop.t.advance(1)
    shop.fail.delay()
    assert shop.t.advance(3600) == 5
    assert shop.runs == at(0, 1, 4, 5, 12, 13)
    assert [(dead.job.task, dead.cause, dead.type, dead.text) for dead in shop.t.dead] == [
        ("fail", "attempts", "OSError", "disk")
    ] * 2


def test_a_clock_that_is_set_forward_makes_jobs_due(shop: Shop) -> None:
    shop.failures = 1
    shop.fail.delay()
    shop.t.run_all()
    shop.t.clock.advance(3600)
    assert (shop.t.run_all(), shop.runs) == (1, at(0, 3600))


def test_delays_are_exact_in_steps_that_are_not(shop: Shop) -> None:
    shop.failures = 1
    shop.t.advance(0.7)
    shop.fail.delay()
    shop.t.run_all()
    assert [shop.t.advance(0.1) for _ in range(40)] == [0] * 39 + [1]


def test_a_delay_of_whole_milliseconds_ends_exactly_whatever_the_time_is(shop: Shop) -> None:
    asked: list[float] = []

    @shop.app.task(name="later")
    def later() -> Snooze | None:
        return Snooze(asked.pop()) if asked else None

    for ms in [1200, *range(1001, 1400, 3)]:  # a second is the least
        asked.append(ms / 1000)
        later.delay()
        assert shop.t.run_all() == 1
        assert (ms, shop.t.advance(ms / 1000)) == (ms, 1)
        shop.t.advance(0.1)


def test_what_jobs_enqueue_runs_too(shop: Shop) -> None:
    @shop.app.task(name="outer", queue="outer")
    def outer(depth: int) -> str:
        return outer.delay(depth - 1).id if depth else shop.add.delay(1).id

    job = outer.delay(3)
    assert shop.t.run_all() == 5
    assert [each.task for each in shop.t.jobs] == ["outer"] * 4 + ["add"]
    assert job.result() == shop.t.jobs[1].id


def test_jobs_without_end_are_an_error_that_names_the_task(shop: Shop) -> None:
    @shop.app.task(name="again")
    def again() -> None:
        again.delay()

    again.delay()
    with pytest.raises(IllegalStateError, match="more than 20 jobs have run, the last one of task again: it") as caught:
        shop.t.run_all(limit=20)
    assert str(caught.value).endswith("without end; if they do not, pass a higher limit: t.run_all(limit=...)")
    assert len(shop.t.jobs) == 22


def test_a_limit_that_is_just_enough_is_enough(shop: Shop) -> None:
    for number in range(20):
        shop.add.delay(number)
    assert shop.t.run_all(limit=20) == 20


def test_an_error_of_a_task_can_be_raised(shop: Shop) -> None:
    shop.failures = 1
    shop.fail.delay()
    shop.add.delay(1)
    shop.t.run_all(raise_errors=True)
    shop.break_.delay()
    shop.break_.delay()
    with pytest.raises(ValueError, match="no"):
        shop.t.advance(4, raise_errors=True)
    assert [job.attempts for job in shop.t.jobs] == [2, 1, 1, 1]
    shop.t.run_all(raise_errors=True)


def test_a_task_that_nothing_declares_waits_and_dies_after_a_day(shop: Shop) -> None:
    job = shop.app.send("nothing")
    shop.t.advance(timedelta(hours=23), raise_errors=True)
    assert (job.status(), shop.t.dead) == (JobState.QUEUED, [])
    with pytest.raises(JobFailed, match="could run the task 'nothing'"):
        shop.t.advance(timedelta(hours=2), raise_errors=True)
    (dead,) = shop.t.dead
    assert (dead.cause, dead.job.attempts, dead.job.state) == ("unknown-task", 0, JobState.FAILURE)


def test_the_settings_of_the_app_hold() -> None:
    app = App("shop", bootstrap_servers="127.0.0.1:1", unknown_ttl=60, queues=["mail"])
    with app.testing() as t:
        app.send("nothing", queue="mail")
        t.advance(59)
        assert t.dead == []
        t.advance(60)
        assert [dead.cause for dead in t.dead] == ["unknown-task"]


def test_a_snoozed_job_and_one_that_is_retried_later_run_by_the_clock(shop: Shop) -> None:
    attempts: list[int] = []

    @shop.app.task(name="later", bind=True)
    def later(ctx: Context) -> object:
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            return Snooze(90)
        if len(attempts) == 2:
            raise RetryAt(shop.t.clock.now() + timedelta(hours=2))
        return "done"

    job = later.delay()
    assert (shop.t.run_all(), shop.t.advance(89.9), shop.t.advance(0.1)) == (1, 0, 1)
    assert (job.status(), shop.t.advance(7199), shop.t.advance(1)) == (JobState.RETRY, 0, 1)
    assert (job.result(), attempts) == ("done", [1, 1, 2])


def test_a_job_expires_by_the_clock(shop: Shop) -> None:
    early, late = (shop.add.using(expires=10).delay(number) for number in range(2))
    shop.t.clock.advance(9.999)
    shop.t.run_all()
    last = shop.add.using(expires=10).delay(2)
    shop.t.clock.advance(10)
    assert (shop.t.run_all(), early.result(), late.result(), last.status()) == (0, 1, 2, JobState.REVOKED)


def test_a_cancelled_job_is_revoked_and_no_error(shop: Shop) -> None:
    @shop.app.task(name="cancel")
    def cancel() -> None:
        raise Cancel("enough")

    job = cancel.delay()
    shop.t.run_all(raise_errors=True)
    assert shop.t.jobs[0].exception is None
    with pytest.raises(JobRevoked, match="enough"):
        job.result()


def test_arguments_and_results_are_encoded_as_in_production(shop: Shop) -> None:
    passed: list[object] = []

    @shop.app.task(name="keep")
    def keep(value: object) -> object:
        passed.append(value)
        return (value, object) if value == "bad" else value

    given = [1, {"a": [2]}]
    job = keep.delay(given)
    bad = keep.delay("bad")
    shop.t.run_all()
    assert (passed[0] == given, passed[0] is not given) == (True, True)
    assert job.result() == given and job.result() is not passed[0]
    with pytest.raises(JobFailed, match="NotSerialisable"):
        bad.result()
    with pytest.raises(NotSerialisable):
        keep.delay(object())
    with pytest.raises(PayloadTooLarge):
        keep.delay("x" * 1_000_001)
    assert len(shop.t.jobs) == 2


@dataclass
class Order:
    when: date
    items: tuple[int, ...]


def test_values_are_restored_by_the_annotations_of_the_task(shop: Shop) -> None:
    orders: list[Order] = []

    @shop.app.task(name="order")
    def order(order: Order) -> Order:
        orders.append(order)
        return order

    given = Order(date(2031, 5, 2), (1, 2))
    job = order.delay(given)
    shop.t.run_all(raise_errors=True)
    listed = shop.t.jobs[0]
    assert orders == [given] == listed.args == [listed.result] == [job.result()]
    assert orders[0] is not given


def test_a_coroutine_is_run(shop: Shop) -> None:
    @shop.app.task(name="coroutine")
    async def double(number: int) -> int:
        return 2 * number

    job = double.delay(4)
    shop.t.run_all(raise_errors=True)
    assert job.result() == 8


def test_starts_are_recorded_when_the_app_says_so() -> None:
    app = App("shop", bootstrap_servers="127.0.0.1:1", track_started=True, track_queued=True)
    states: list[JobState] = []

    @app.task(name="look", bind=True)
    def look(ctx: Context) -> None:
        states.append(app.job(ctx.job_id).status())

    with app.testing() as t:
        job = look.delay()
        assert app.job(job.id).status() is JobState.QUEUED
        t.run_all()
    assert states == [JobState.STARTED]


def test_ctrl_c_in_a_job_ends_the_job_and_reaches_the_test(shop: Shop) -> None:
    @shop.app.task(name="stuck", retry=Retry(max_attempts=5))
    def stuck() -> None:
        raise KeyboardInterrupt

    job, other = stuck.delay(), shop.add.delay(1)
    with pytest.raises(KeyboardInterrupt):
        shop.t.run_all()
    assert (job.status(), other.status()) == (JobState.FAILURE, JobState.QUEUED)
    assert (shop.t.run_all(), other.result()) == (1, 2)


def test_a_task_runs_the_jobs_of_its_former_name(shop: Shop) -> None:
    @shop.app.task(name="new", aliases=["old"])
    def new() -> int:
        return 1

    job = shop.app.send("old")
    shop.t.run_all()
    assert job.result() == 1


def test_a_coroutine_enqueues_and_awaits_a_job(shop: Shop) -> None:
    async def enqueue() -> int:
        job = await shop.add.delay_async(1)
        with pytest.raises(JobTimeout, match="call run_all"):
            await job
        shop.t.run_all()
        return await job

    assert asyncio.run(enqueue()) == 2


def test_a_queue_that_a_task_declares_later_is_served(shop: Shop) -> None:
    shop.t.run_all()

    @shop.app.task(name="late", queue="late")
    def late() -> int:
        return 1

    job = late.delay()
    assert (shop.t.run_all(), job.result(), shop.t.jobs[0].queue) == (1, 1, "late")


def test_a_job_cannot_run_the_others(shop: Shop) -> None:
    @shop.app.task(name="run")
    def run() -> None:
        shop.t.run_all()

    run.delay()
    with pytest.raises(IllegalStateError, match="a job cannot run the others: they run when it has ended"):
        shop.t.run_all(raise_errors=True)


def test_jobs_of_other_threads_are_the_tests_too(shop: Shop) -> None:
    enqueuing = threading.Thread(target=shop.add.delay, args=(1,))
    enqueuing.start()
    enqueuing.join()
    assert (shop.t.run_all(), shop.runs) == (1, [(1, 1)])


def test_error_handlers_are_called_where_the_job_runs(shop: Shop) -> None:
    errors: list[BaseException] = []

    @shop.app.error_handler
    def note(job: object, kill_signal: object, exc_info: tuple[object, BaseException, object]) -> None:
        errors.append(exc_info[1])

    shop.break_.delay()
    shop.t.run_all()
    assert errors == [shop.t.jobs[0].exception]


def test_the_app_has_its_own_connection_after_the_block() -> None:
    app = App("shop", bootstrap_servers="fake://")

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    own = app.backend()
    before = add.delay(1, 2)
    with app.testing() as t:
        inside, dropped = add.delay(3, 4), add.using(expires=1).delay(5, 6)
        t.run_all()
        app.close()
        assert (app.backend() is not own, app.is_in_process) == (True, True)
        assert app.job(inside.id).result() == 7
    assert (app.backend() is own, app.is_in_process, before.status()) == (True, False, JobState.QUEUED)
    assert (inside.result(), dropped.result(), t.jobs[0].result) == (7, 11, 7)
    with pytest.raises(IllegalStateError, match="the jobs of app shop do not run here any more: the block has ended"):
        t.run_all()
    t.close()


def test_a_queue_that_only_the_brokers_have_is_unknown_in_the_block() -> None:
    app = App("shop", bootstrap_servers="fake://")
    backend = app.backend()
    assert isinstance(backend, FakeBackend)
    backend.existing.add("mail")
    app.send("send", queue="mail")
    with app.testing(), pytest.raises(UnknownQueue, match="unknown queue 'mail': nothing has been sent to it"):
        app.send("send", queue="mail")
    app.send("send", queue="mail")


def test_a_forked_child_is_refused_where_it_enqueues(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with pytest.raises(IllegalStateError, match=f"in the memory of process {pid}, and this is its child"):
        shop.add.delay(1)
    assert shop.t.jobs == []


def test_blocks_can_be_nested() -> None:
    app = App("shop", bootstrap_servers="127.0.0.1:1")

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    with app.testing() as outer:
        add.delay(1, 2)
        with app.testing() as inner:
            add.delay(3, 4)
            assert (len(outer.jobs), len(inner.jobs), inner.run_all()) == (1, 1, 1)
        add.delay(5, 6)
        assert outer.run_all() == 2


def test_without_a_clock_it_has_one_of_its_own() -> None:
    with App("shop").testing() as t:
        assert isinstance(t, TestingJobs) and isinstance(t.clock, FakeClock)
