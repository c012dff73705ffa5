"""Tests of ``kafka.tasks.pools.runner``."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from kafka.errors import KafkaError, KafkaProtocolError, KafkaStorageError, KafkaTimeoutError
from kafka.tasks import App, Cancel, Context, Retry, Task
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.errors import JobFailed, LoadError, UnknownQueue
from kafka.tasks.format.envelope import DeadLetter
from kafka.tasks.format.records import error_value
from kafka.tasks.format.topics import HEADROOM_BYTES
from kafka.tasks.pools.runner import TEXT_CHARACTERS, Job, error_info_of, run, truncate_middle
from kafka.tasks.rules.outcome import AttemptFailed, JobCancelled, JobSucceeded
from test.tasks.fakes import a_job


def job_of(app: App, function: Callable[..., Any], *args: Any, **options: Any) -> Job:
    declare: Callable[[Callable[..., Any]], Task[..., Any]] = app.task(name="f", **options)
    task = declare(function)
    lease = JobLease(JobSource("q", "shop.q"), b"", [], 2)
    return Job(lease, a_job("f", *args, attempt=3), task)


def test_what_the_task_returns_is_encoded(app: App) -> None:
    job = job_of(app, lambda a, b: {"sum": a + b}, 1, 2)
    assert run(job) == JobSucceeded(b'{"sum":3}')
    assert job.started_at is not None
    assert job.ran_s >= 0


def test_a_result_that_nobody_wants_is_not_encoded(app: App) -> None:
    assert run(job_of(app, object, store_result=False)) == JobSucceeded(b"")
    job = job_of(App("other"), lambda: 1)
    job.envelope.store_result = False
    assert run(job) == JobSucceeded(b"")


def test_an_error_becomes_data(app: App) -> None:
    def f() -> None:
        raise FileNotFoundError("no such file")

    outcome = run(job_of(app, f, retry=Retry(on=(OSError,))))
    assert isinstance(outcome, AttemptFailed)
    assert (outcome.error_info.type, outcome.error_info.text, outcome.listed) == (
        "FileNotFoundError",
        "no such file",
        True,
    )
    assert 'raise FileNotFoundError("no such file")' in outcome.error_info.traceback
    assert "tasks/runner.py" not in outcome.error_info.traceback


def test_a_caller_can_have_the_error_itself(app: App) -> None:
    raised = ValueError("no")
    errors: list[BaseException] = []

    def f(error: bool) -> None:
        if error:
            raise raised

    for each in (False, True):
        run(job_of(app, f, each), on_error=errors.append)
    assert errors == [raised]


def test_an_error_that_the_policy_does_not_list_says_so(app: App) -> None:
    def f() -> None:
        raise ValueError

    outcome = run(job_of(app, f, retry=Retry(on=(OSError,))))
    assert isinstance(outcome, AttemptFailed)
    assert not outcome.listed


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_no_exception_gets_out(app: App, error: BaseException) -> None:
    def f() -> None:
        raise error

    outcome = run(job_of(app, f))
    assert isinstance(outcome, AttemptFailed)
    assert outcome.error_info.type == type(error).__name__


def test_endless_recursion_is_an_error_like_others(app: App) -> None:
    def f() -> None:
        f()

    outcome = run(job_of(app, f))
    assert isinstance(outcome, AttemptFailed)
    assert outcome.error_info.type == "RecursionError"


@pytest.mark.parametrize("second", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_without_a_text_of_its_own_is_no_trouble(app: App, second: type[BaseException]) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise second

    def f() -> None:
        raise Odd

    outcome = run(job_of(app, f))
    assert isinstance(outcome, AttemptFailed)
    assert outcome.error_info.text == f"<str() raised {second.__name__}>"
    assert "Odd" in outcome.error_info.traceback


def test_cancel_may_be_raised_or_returned(app: App) -> None:
    def raises() -> None:
        raise Cancel("enough")

    assert run(job_of(app, raises)) == JobCancelled("enough")
    assert run(job_of(App("b"), lambda: Cancel("no"))) == JobCancelled("no")


def test_the_reason_of_a_cancel_is_text_whatever_it_was(app: App) -> None:
    reason: Any = OSError("full")
    assert run(job_of(app, lambda: Cancel(reason))) == JobCancelled("full")
    outcome = run(job_of(App("b"), lambda: Cancel("x" * 100_000)))
    assert isinstance(outcome, JobCancelled)
    assert len(outcome.reason) < TEXT_CHARACTERS + 100


def test_the_context_describes_the_run(app: App) -> None:
    seen: list[Context] = []

    def f(ctx: Context, x: int) -> bool:
        seen.append(ctx)
        return ctx.cancelled

    job = job_of(app, f, 5, bind=True)
    job.cancel()
    assert run(job) == JobSucceeded(b"true")
    (ctx,) = seen
    assert (ctx.job_id, ctx.idempotency_key) == (job.envelope.id, job.envelope.id)
    assert (ctx.attempt, ctx.deliveries, ctx.task_name) == (3, 2, "f")
    assert ctx.headers == {}
    job.envelope.extra = (("traceparent", b"00-1"), ("empty", None))
    assert run(job) == JobSucceeded(b"true")
    assert seen[-1].headers == {"traceparent": b"00-1", "empty": b""}


def test_log_lines_of_a_task_carry_its_job(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kafka.tasks.job")
    ctx = Context("1" * 32, "mail.send")
    ctx.log("sent %d of %d", 1, 2)
    assert caplog.messages == [f"mail.send[{'1' * 32}] sent 1 of 2"]


@pytest.mark.parametrize("value", [object(), {1: object()}, float("inf")])
def test_a_result_that_cannot_be_stored_is_a_failure(app: App, value: Any) -> None:
    outcome = run(job_of(app, lambda: value, retry=Retry()))
    assert isinstance(outcome, AttemptFailed)
    assert (outcome.error_info.type, outcome.listed) == ("NotSerialisable", False)


def test_a_payload_that_is_none_is_a_failure_that_is_not_retried(app: App) -> None:
    job = job_of(app, lambda: 1, retry=Retry())
    job.envelope.value = b"\xff"
    outcome = run(job)
    assert isinstance(outcome, AttemptFailed)
    assert (outcome.error_info.type, outcome.listed) == ("BadRecord", False)


def test_a_coroutine_is_run_to_its_end_in_every_pool(app: App) -> None:
    async def f(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    assert run(job_of(app, f, 1)) == JobSucceeded(b"2")


def test_the_traceback_of_a_coroutine_begins_with_the_users_own_frames(app: App) -> None:
    async def f() -> None:
        raise FileNotFoundError("no such file")

    outcome = run(job_of(app, f))
    assert isinstance(outcome, AttemptFailed)
    assert "no such file" in outcome.error_info.traceback
    assert "asyncio" not in outcome.error_info.traceback
    assert "tasks/runner.py" not in outcome.error_info.traceback


def test_long_texts_are_cut_and_say_so() -> None:
    error_info = error_info_of(ValueError("x" * 100_000))
    assert len(error_info.text) < TEXT_CHARACTERS + 100
    assert "96000 characters omitted" in error_info.text
    assert truncate_middle("short", 10, 10) == "short"


class ShopError(KafkaError):
    """A user's own, below ours."""


@pytest.mark.parametrize(
    ("error", "type_name", "text"),
    [
        (KafkaTimeoutError("no answer"), "kafka.errors.KafkaTimeoutError", "no answer"),
        (KafkaTimeoutError(), "kafka.errors.KafkaTimeoutError", ""),
        (KafkaStorageError("the disk is full"), "kafka.errors.KafkaStorageError", "[Error 56] the disk is full"),
        (KafkaProtocolError("cut", offset=7), "kafka.errors.KafkaProtocolError", "cut (byte 7)"),
        (JobFailed("ValueError", "no"), "kafka.tasks.errors.JobFailed", "ValueError: no"),
        (ShopError("closed"), f"{__name__}.ShopError", "closed"),
        (ValueError("a ValueError: no"), "ValueError", "a ValueError: no"),
        (ValueError("ValueError"), "ValueError", ""),
    ],
)
def test_the_text_of_an_error_does_not_begin_with_its_class_again(
    error: BaseException, type_name: str, text: str
) -> None:
    info = error_info_of(error)
    assert (info.type, info.text) == (type_name, text)


def test_an_error_of_the_task_queue_is_shown_with_its_class_once() -> None:
    for error in (JobFailed("OSError", "disk full"), LoadError("no module"), UnknownQueue("no queue")):
        (line,) = traceback.format_exception_only(error)
        assert line == f"kafka.tasks.errors.{type(error).__name__}: {error.args[0]}\n"


def test_long_texts_are_cut_between_lines() -> None:
    lines = [f'  File "/app/shop.py", line {number}, in charge' for number in range(1000)]
    text = "\n".join(lines)
    for most in range(1000, 1100):
        cut = truncate_middle(text, most, 10_000).splitlines()
        (mark,) = [index for index, line in enumerate(cut) if "omitted" in line]
        first, last = cut[:mark], cut[mark + 1 :]
        assert first == lines[: len(first)]
        assert last == lines[-len(last) :]
        assert most - 2 * len(lines[0]) - 2 <= len("\n".join(first + last)) <= most
        left_out = len(text) - len("\n".join(first)) - len("\n".join(last))
        assert cut[mark] == f"... {left_out} characters omitted ..."


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\U0001f600", "\ud800"])
def test_a_dead_record_with_the_longest_texts_has_room_beside_the_largest_payload(letter: str) -> None:
    error_info = error_info_of(ValueError(letter * 100_000))
    headers = DeadLetter("error", error_info.type, error_info.text, error_info.traceback).headers()
    assert sum(len(raw or b"") for _, raw in headers) < HEADROOM_BYTES - 4096
    value = error_value(error_info, "host", 0)
    assert len(value) < HEADROOM_BYTES - 4096
    assert json.loads(value)["text"] == error_info.text


