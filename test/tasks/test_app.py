"""Tests of ``kafka.tasks.app`` and ``kafka.tasks.task``: declaring and enqueueing."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError, KafkaConfigurationError, KafkaTimeoutError
from kafka.tasks import (
    App,
    Context,
    JobHandle,
    JobsNotSent,
    JobState,
    NotSerialisable,
    PayloadTooLarge,
    Retry,
    TaskInMain,
    UnknownQueue,
)
from kafka.tasks.format.commands import PUT, Command, decode_command
from kafka.tasks.format.envelope import decode
from kafka.tasks.format.job_id import time_of
from kafka.tasks.format.payload import decode_call
from test.tasks.fakes import FakeBackend, FakeSent


def only_record(backend: FakeBackend, topic: str) -> Any:
    (record,) = backend.queues.topics[topic]
    return record


def test_delay_makes_one_record_of_a_call(app: App, backend: FakeBackend) -> None:
    @app.task(queue="mail")
    def send(user_id: int, body: str = "") -> str:
        return f"{user_id} {body}"

    job = send.delay(7, body="hi")
    record = only_record(backend, "shop.mail")
    envelope = decode(record.value, record.headers)
    assert (envelope.id, envelope.name, envelope.attempt) == (job.id, send.name, 1)
    assert decode_call(envelope.value) == ([7], {"body": "hi"})
    assert send.name.endswith("test_delay_makes_one_record_of_a_call.<locals>.send")


def test_a_plain_call_is_a_plain_call(app: App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        "Adds."
        return a + b

    assert add(1, b=2) == 3
    assert (vars(add)["__name__"], add.__doc__) == ("add", "Adds.")
    assert app.tasks[add.name] is add


def test_a_bound_task_gets_its_context_first(app: App, backend: FakeBackend) -> None:
    @app.task(bind=True, name="look")
    def look(ctx: Context, x: int) -> int:
        assert not ctx.cancelled
        return ctx.attempt + x

    assert look(2) == 3
    look.delay(2)
    assert decode_call(only_record(backend, "shop.default").value) == ([2], {})


def test_options_of_a_call_travel_with_the_job(app: App, backend: FakeBackend) -> None:
    @app.task(expires=60)
    def f() -> None: ...

    f.using(timeout=5, soft_timeout=2.5, expires=3, store_result=False).delay()
    f.delay()
    first, second = [decode(r.value, r.headers) for r in backend.queues.topics["shop.default"]]
    assert (first.timeout, first.soft_timeout, first.store_result) == (5, 2.5, False)
    assert first.expires_ms == time_of(first.id) + 3000
    assert second.expires_ms == time_of(second.id) + 60_000
    assert (second.timeout, second.store_result) == (None, None)


def test_headers_of_the_caller_travel_with_the_job(app: App, backend: FakeBackend) -> None:
    f = app.task(name="f")(lambda: None)
    f.using(headers={"traceparent": "00-1", "blob": b"\xff"}, store_result=False).delay()
    app.send("g", headers={"traceparent": b"00-2"})
    first, second = [decode(r.value, r.headers) for r in backend.queues.topics["shop.default"]]
    assert (first.extra, first.store_result) == ((("traceparent", b"00-1"), ("blob", b"\xff")), False)
    assert second.extra == (("traceparent", b"00-2"),)
    with pytest.raises(IllegalArgumentError, match="a header 'name' of its own"):
        app.send("g", headers={"name": "h"})


def test_a_renamed_task_is_found_under_its_former_names(app: App, backend: FakeBackend) -> None:
    @app.task(name="mail.send", aliases=("shop.tasks.send", "mail.send", "send"), queue="mail", expires=60)
    def send(user_id: int) -> None: ...

    assert send.aliases == ("shop.tasks.send", "send")
    app.send("send", (7,))
    envelope = decode(only_record(backend, "shop.mail").value, only_record(backend, "shop.mail").headers)
    assert (envelope.name, envelope.expires_ms) == ("send", time_of(envelope.id) + 60_000)
    with pytest.raises(TypeError, match="user_id"):
        app.send("shop.tasks.send")
    assert list(app.tasks) == ["mail.send"]


@pytest.mark.parametrize("first", [{"name": "a", "aliases": ["x"]}, {"name": "x"}])
@pytest.mark.parametrize("second", [{"name": "b", "aliases": ["x"]}, {"name": "x", "aliases": ["y"]}])
def test_a_name_and_a_former_name_are_of_one_task(app: App, first: dict[str, Any], second: dict[str, Any]) -> None:
    def f() -> None: ...

    def g() -> None: ...

    app.task(**first)(f)
    with pytest.raises(IllegalArgumentError, match="two tasks have the name 'x': .*f and .*g"):
        app.task(**second)(g)
    app.task(**first)(f)  # its module is loaded again
    assert len(app.tasks) == 1


def test_the_hidden_tasks_name_is_no_former_name_either(app: App) -> None:
    with pytest.raises(IllegalArgumentError, match="it is reserved"):
        app.task(name="f", aliases=["kafka.tasks.error_handler"])(lambda: None)


def test_an_option_may_have_the_name_of_an_argument(app: App, backend: FakeBackend) -> None:
    @app.task
    def f(queue: str, timeout: int) -> None: ...

    f.using(timeout=1).delay(queue="x", timeout=9)
    assert decode_call(only_record(backend, "shop.default").value) == ([], {"queue": "x", "timeout": 9})


def test_settings_of_the_app_hold_where_the_task_says_nothing() -> None:
    app = App("shop", default_queue="slow", timeout=9, soft_timeout=3, retry=Retry(2), store_result=False)

    @app.task
    def f() -> None: ...

    @app.task(timeout=20, store_result=True)
    def g() -> None: ...

    assert (f.queue, f.options.timeout, f.options.soft_timeout, f.store_result) == ("slow", 9, 3, False)
    assert f.retry == Retry(2)
    assert (g.options.timeout, g.store_result) == (20, True)


def test_send_by_name_needs_no_declaration(app: App, backend: FakeBackend) -> None:
    backend.existing.add("mail")
    job = app.send("mail.send", args=(7,), kwargs={"body": "hi"}, queue="mail")
    envelope = decode(*[(r.value, r.headers) for r in backend.queues.topics["shop.mail"]][0])
    assert (envelope.id, envelope.name) == (job.id, "mail.send")


@pytest.mark.parametrize(
    ("name", "more", "text"),
    [
        (3, {}, "the name of a task must be a str"),
        ("", {}, "the name of a task must be a str"),
        ("a\ud800", {}, "the name of a task must be a str"),
        ("f", {"args": 3}, "args must be a list or tuple"),
        ("f", {"args": "abc"}, "args must be a list or tuple"),
        ("f", {"kwargs": 3}, "kwargs must be a dict"),
        ("f", {"kwargs": {3: 4}}, "kwargs must be a dict with str keys"),
        ("f", {"expires": 1e18}, "below a century"),
    ],
)
def test_send_refuses_what_would_arrive_as_something_else(
    app: App, backend: FakeBackend, name: Any, more: dict[str, Any], text: str
) -> None:
    with pytest.raises(IllegalArgumentError, match=text):
        app.send(name, **more)
    assert backend.queues.topics.get("shop.default", []) == []


def test_send_to_a_queue_that_nobody_has_is_refused(app: App, backend: FakeBackend) -> None:
    with pytest.raises(UnknownQueue):
        app.send("mail.send", queue="mial")
    assert not backend.queues.topics["shop.mial"]


def test_a_declared_task_sent_by_name_keeps_its_queue_and_is_checked(app: App, backend: FakeBackend) -> None:
    @app.task(queue="mail", name="mail.send")
    def send(user_id: int) -> None: ...

    app.send("mail.send", (7,))
    assert only_record(backend, "shop.mail").header("name") == "mail.send"
    with pytest.raises(TypeError, match="user_id"):
        app.send("mail.send")


@pytest.mark.parametrize("options", [{"queue": "mial"}, {"delay": 0}, {"retires": 3}, {"soft_timeout": 99}])
def test_using_refuses_at_once_what_cannot_be(app: App, options: dict[str, Any]) -> None:
    @app.task(queue="mail", timeout=10)
    def f() -> None: ...

    with pytest.raises((IllegalArgumentError, UnknownQueue)):
        f.using(**options)


def test_an_unknown_queue_names_the_nearest_one(app: App) -> None:
    @app.task(queue="mail")
    def f() -> None: ...

    with pytest.raises(UnknownQueue, match="did you mean 'mail'"):
        f.using(queue="mial")


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"a": 2}), ((1,), {"b": 2}), ((1,), {"c": 1, "d": 2})],
)
def test_arguments_that_do_not_fit_are_refused_at_delay(
    app: App, backend: FakeBackend, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    @app.task
    def f(a: int, b: int = 0, *, c: int) -> None: ...

    with pytest.raises(TypeError, match=r"f\(\)"):
        f.delay(*args, **kwargs)
    assert not backend.queues.topics["shop.default"]


def test_arguments_that_fit_pass_in_every_form(app: App) -> None:
    @app.task
    def f(a: int, /, b: int = 0, *more: int, c: int = 1, **named: int) -> None: ...

    for args, kwargs in (((1,), {}), ((1, 2, 3, 4), {}), ((1,), {"b": 2, "c": 3, "z": 4}), ((1,), {"a": 5})):
        f.check_call(args, kwargs)
        with pytest.raises(TypeError, match=r"f\(\)"):
            f.check_call((), kwargs)


def test_what_does_not_serialise_raises_at_delay_and_sends_nothing(app: App, backend: FakeBackend) -> None:
    @app.task
    def f(x: object) -> None: ...

    with pytest.raises(NotSerialisable, match="argument 1"):
        f.delay(object())
    assert not backend.queues.topics["shop.default"]


def test_a_payload_above_the_limit_raises_at_delay() -> None:
    app = App("shop", bootstrap_servers="fake://", max_payload_bytes=2000)

    @app.task
    def f(x: str) -> None: ...

    f.delay("x" * 1900)
    with pytest.raises(PayloadTooLarge, match=r"bytes, more than the 2000 that shop\.default accepts"):
        f.delay("x" * 2000)


def test_a_task_of_main_is_refused_with_the_line_that_helps(tmp_path: Any) -> None:
    script = tmp_path / "jobs.py"
    script.write_text(
        "from kafka.tasks import App\n"
        "app = App('shop', bootstrap_servers='nowhere:1')\n"
        "@app.task\ndef f(): return 4\n"
        "assert f() == 4\n"
        "f.delay()\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False, env=_environment()
    )
    assert "TaskInMain" in done.stderr
    assert "`from jobs import f`" in done.stderr


def test_a_task_of_a_module_run_with_dash_m_is_refused_too(tmp_path: Any) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "jobs.py").write_text(
        "from kafka.tasks import App\napp = App('shop')\n@app.task\ndef f(): ...\nf.delay()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pack.jobs"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env=_environment(),
    )
    assert "`from pack.jobs import f`" in done.stderr


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def test_task_in_main_is_an_error_of_the_queue() -> None:
    assert issubclass(TaskInMain, Exception)


def test_a_coroutine_function_may_be_a_task(app: App) -> None:
    async def f() -> None: ...

    assert app.task(f).is_coroutine


def test_the_name_of_the_error_handlers_task_is_taken(app: App) -> None:
    with pytest.raises(IllegalArgumentError, match="it is reserved"):
        app.task(name="kafka.tasks.error_handler")(lambda: None)


def test_bind_without_a_first_argument_is_refused_at_declaration(app: App) -> None:
    declare: Any = app.task(bind=True, name="x")
    with pytest.raises(IllegalArgumentError, match="no first argument"):
        declare(lambda: None)


def test_two_tasks_of_one_name_are_refused(app: App) -> None:
    @app.task(name="x")
    def f() -> None: ...

    with pytest.raises(IllegalArgumentError, match="two tasks have the name 'x'"):

        @app.task(name="x")
        def g() -> None: ...


def test_a_module_that_is_loaded_again_replaces_its_tasks(app: App) -> None:
    def f() -> None: ...

    app.task(f)
    again = app.task(f)
    assert app.tasks[again.name] is again


def test_task_takes_named_options_only(app: App) -> None:
    declare: Any = app.task
    with pytest.raises(IllegalArgumentError, match="named options only"):
        declare("mail")


def test_a_batch_flushes_once_and_knows_its_jobs(app: App, backend: FakeBackend) -> None:
    @app.task
    def f(n: int) -> None: ...

    with app.batch() as batch:
        made = [f.delay(n) for n in range(5)]
    f.delay(9)
    assert batch.jobs == made
    assert backend.flushes == 1


def test_flush_close_and_a_batch_raise_what_was_not_written(app: App, backend: FakeBackend) -> None:
    def batch() -> None:
        with app.batch():
            pass

    for wait in (app.flush, batch, app.close):
        error = backend.not_sent = JobsNotSent(2, 53_650, OSError("gone"), "shop.mail")
        with pytest.raises(JobsNotSent) as caught:
            wait()
        assert caught.value is error
        app.flush()  # it was raised once
    assert backend.is_closed


def test_a_batch_raises_for_its_own_jobs_though_another_threads_flush_did_before(
    app: App, backend: FakeBackend
) -> None:
    f = app.task(name="f")(lambda: None)
    gone = OSError("gone")

    def enqueue() -> None:
        with app.batch():
            f.delay()
            backend.next_sent = FakeSent(gone)
            f.delay()

    with pytest.raises(JobsNotSent, match="1 of 2 jobs were not written to their topics: OSError: gone") as caught:
        enqueue()
    assert (caught.value.count, caught.value.total, caught.value.cause) == (1, 2, gone)
    assert caught.value.__cause__ is gone


def test_an_error_about_jobs_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(JobsNotSent(1, 1, KafkaTimeoutError("late"), "shop.mail")))
    assert str(error).startswith("1 of 1 job was not written to shop.mail: KafkaTimeoutError: late; ")
    assert (error.count, error.total, error.place) == (1, 1, "shop.mail")
    assert isinstance(error.__cause__, KafkaTimeoutError)


def test_an_app_that_goes_elsewhere_does_so_though_jobs_were_lost(app: App, backend: FakeBackend) -> None:
    backend.not_sent = JobsNotSent(1, 1, OSError("gone"), "shop.mail")
    with pytest.raises(JobsNotSent):
        app.connect_to("fake://elsewhere")
    assert app.settings.bootstrap_servers == "fake://elsewhere"


def test_a_hook_is_called_for_each_job_that_could_not_be_written(
    app: App, backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    f = app.task(name="f")(lambda: None)
    seen: list[tuple[JobHandle[Any], BaseException]] = []

    @app.on_enqueue_error
    def broken(job: JobHandle[Any], error: BaseException) -> None:
        raise ValueError("a defect of the hook")

    app.on_enqueue_error(lambda job, error: seen.append((job, error)))
    f.delay()
    backend.next_sent = sent = FakeSent(is_done=False)
    job = f.delay()
    assert seen == []
    error = OSError("gone")
    sent.fail(error)
    assert seen == [(job, error)]
    assert "a defect of the hook" in caplog.text


@pytest.mark.parametrize("waits_for", ["the connection", "memory"])
def test_an_event_loop_goes_on_while_a_job_waits_to_be_enqueued(
    app: App, backend: FakeBackend, waits_for: str, caplog: pytest.LogCaptureFixture
) -> None:
    f = app.task(name="f")(lambda x: None)
    g = app.task(name="g")(_coroutine)
    waiting, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        assert go_on.wait(10)
        backend.is_full = False

    if waits_for == "memory":
        f.delay(0)
        backend.is_full, backend.on_flush = True, wait
    else:
        backend.on_route = wait

    async def main() -> None:
        enqueuing = asyncio.ensure_future(f.delay_async(1))
        await asyncio.to_thread(waiting.wait, 10)
        assert not enqueuing.done()
        go_on.set()
        jobs = [await enqueuing, await f.using(expires=60).delay_async(x=2), await g.delay_async()]
        assert len({job.id for job in jobs}) == 3
        with pytest.raises(TypeError, match="argument"):
            await f.delay_async()

    asyncio.run(main())
    sent = [decode_call(record.value) for record in backend.queues.topics["shop.default"]]
    assert sent[-3:] == [([1], {}), ([], {"x": 2}), ([], {})]
    assert caplog.records == []


async def _coroutine() -> int:
    return 1


def test_a_first_delay_in_an_event_loop_works_and_says_what_would_be_better(
    app: App, backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    f = app.task(name="f", queue="mail")(lambda: None)

    async def main() -> None:
        f.delay()
        app.send("g", queue="default")

    asyncio.run(main())
    assert len(backend.routed) == 2
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("app shop connects in a running event loop, which waits for that: use `await task.delay_asy")


def test_warming_up_does_what_the_first_delay_would(app: App, backend: FakeBackend) -> None:
    f = app.task(name="f", queue="mail")(lambda: None)

    async def main() -> None:
        app.warm_up(10)
        assert backend.routed == ["default", "mail"]
        f.delay()

    asyncio.run(main())
    assert backend.routed == ["default", "mail"]
    backend.on_route = lambda: 1 / 0
    app.task(name="g", queue="other")(lambda: None)
    with pytest.raises(ZeroDivisionError):
        app.warm_up()
    assert backend.routed == ["default", "mail", "other"]


def test_a_batch_is_of_its_own_thread(app: App, backend: FakeBackend) -> None:
    @app.task
    def f() -> None: ...

    with app.batch() as batch:
        thread = threading.Thread(target=f.delay)
        thread.start()
        thread.join()
    assert batch.jobs == []


def test_flush_before_the_first_job_connects_nowhere() -> None:
    App("shop", bootstrap_servers="nowhere:1").flush()


def test_track_queued_writes_a_record_with_the_job() -> None:
    app = App("shop", bootstrap_servers="fake://", track_queued=True)

    @app.task
    def f() -> None: ...

    job = f.delay()
    assert app.job(job.id).status() is JobState.QUEUED


def only_put(backend: FakeBackend) -> Command:
    record = only_record(backend, "shop.commands")
    command = decode_command(record.key, record.value, record.headers)
    assert command is not None and command.kind == PUT
    return command


@pytest.mark.parametrize("way", ["call", "send", "coroutine"])
def test_a_job_with_a_delay_goes_to_the_schedule_with_its_due_time_in_its_id(
    app: App, backend: FakeBackend, way: str
) -> None:
    @app.task(queue="mail", name="mail.send")
    def send(user_id: int) -> None: ...

    due_ms = backend.clock.now_ms() + 30_000
    if way == "call":
        job = send.using(delay=30, timeout=5, headers={"trace": "1"}).delay(7)
    elif way == "send":
        job = app.send("mail.send", (7,), delay=timedelta(seconds=30), timeout=5, headers={"trace": "1"})
    else:
        job = asyncio.run(send.using(delay=30, timeout=5, headers={"trace": "1"}).delay_async(7))
    put = only_put(backend)
    assert (put.subject, put.due_ms, time_of(job.id)) == (job.id, due_ms, due_ms)
    assert put.job is not None
    assert (put.job.queue, put.job.key, put.generation) == ("mail", None, 1)
    envelope = decode(put.job.value, put.job.headers)
    assert (envelope.id, envelope.name, envelope.timeout, envelope.generation) == (job.id, "mail.send", 5, 1)
    assert (envelope.due_ms, envelope.extra) == (None, (("trace", b"1"),))
    assert decode_call(envelope.value) == ([7], {})
    assert "shop.mail" not in backend.queues.topics
    assert backend.routed == ["mail"], "its topics exist"


def test_a_job_for_a_time_to_come_goes_to_the_schedule_and_one_for_a_past_time_to_its_queue(
    app: App, backend: FakeBackend
) -> None:
    f = app.task(name="f")(lambda: None)
    now = datetime.fromtimestamp(backend.clock.now_ms() / 1000, timezone.utc)
    job = f.using(eta=now + timedelta(hours=1)).delay()
    assert only_put(backend).due_ms == time_of(job.id) == backend.clock.now_ms() + 3_600_000
    job = f.using(eta=now - timedelta(days=9999), expires=1).delay()
    record = only_record(backend, "shop.default")
    assert record.header("id") == job.id
    assert (record.header("due"), record.header("generation")) == (None, None)
    assert time_of(job.id) == backend.clock.now_ms()


def test_the_expiry_of_a_job_for_later_counts_from_the_enqueue(app: App, backend: FakeBackend) -> None:
    f = app.task(name="f")(lambda: None)
    f.using(delay=30, expires=60).delay()
    assert only_put(backend).expires_ms == backend.clock.now_ms() + 60_000


@pytest.mark.parametrize("where", ["call", "task", "send"])
def test_a_job_that_would_expire_before_it_starts_is_refused_and_not_sent(
    app: App, backend: FakeBackend, where: str
) -> None:
    f = app.task(name="f", expires=20 if where == "task" else None)(lambda: None)
    eta = datetime.fromtimestamp(backend.clock.now_ms() / 1000, timezone.utc) + timedelta(seconds=20)
    for start in ({"delay": 20}, {"eta": eta}):
        options: Any = start if where == "task" else {**start, "expires": 20}
        with pytest.raises(IllegalArgumentError, match="the job would expire before it starts"):
            app.send("f", **options) if where == "send" else f.using(**options).delay()
    assert not backend.queues.topics


def test_a_job_for_later_is_queued_neither_for_the_log_nor_for_its_handle() -> None:
    app = App("shop", bootstrap_servers="fake://", track_queued=True)
    app.task(name="f")(lambda: None).using(delay=5).delay()
    backend = app.backend()
    assert isinstance(backend, FakeBackend)
    assert list(backend.queues.topics) == ["shop.commands"]


def test_a_job_for_later_that_could_not_be_written_is_reported_as_others_are(app: App, backend: FakeBackend) -> None:
    failed: list[Any] = []
    app.on_enqueue_error(lambda handle, error: failed.append((handle, error)))
    backend.next_sent = FakeSent(OSError("refused"))
    job = app.task(name="f")(lambda: None).using(delay=5).delay()
    assert [(handle, str(error)) for handle, error in failed] == [(job, "refused")]
    assert job.status() is JobState.FAILURE


def test_an_event_loop_goes_on_while_the_schedule_is_made_ready(app: App, backend: FakeBackend) -> None:
    threads: list[int] = []
    backend.has_schedule = False
    backend.schedule_partitions = lambda: threads.append(threading.get_ident()) or 1
    asyncio.run(app.task(name="f")(lambda: None).using(delay=5).delay_async())
    assert threads[0] != threading.get_ident()


# -- keys and ordered queues -------------------------------------------------------------------------------------------


def test_a_queue_is_declared_by_its_name_whether_a_task_has_it_before_or_after(app: App) -> None:
    app.task(name="early", queue="ledger")(lambda: None)
    ledger = app.queue("ledger", ordered=True)
    assert ledger == "ledger"
    assert app.task(name="late", queue=ledger)(lambda: None).queue == "ledger"
    assert app.queue("bulk") == "bulk"
    assert app.queues == ["bulk", "default", "ledger"]
    assert app.ordered_queues == frozenset({"ledger"})
    assert app.queue("ledger", ordered=True) == "ledger", "a module may be loaded twice"


@pytest.mark.parametrize("first", [True, False])
def test_a_queue_is_either_ordered_or_not(app: App, first: bool) -> None:
    app.queue("ledger", ordered=first)
    with pytest.raises(IllegalArgumentError, match=f"'ledger' is declared with ordered={first} already"):
        app.queue("ledger", ordered=not first)
    assert app.ordered_queues == (frozenset({"ledger"}) if first else frozenset())


@pytest.mark.parametrize("given", [{"name": "no queue"}, {"name": "a.dead"}, {"name": "a", "ordered": 1}])
def test_a_queue_that_cannot_be_is_refused(app: App, given: dict[str, Any]) -> None:
    with pytest.raises(IllegalArgumentError):
        app.queue(**given)
    assert app.queues == ["default"]


@pytest.mark.parametrize("way", ["call", "send", "coroutine"])
def test_the_key_of_a_call_is_that_of_its_record(app: App, backend: FakeBackend, way: str) -> None:
    pay = app.task(name="pay")(lambda user_id: None)
    if way == "call":
        pay.using(key="user-7").delay(7)
    elif way == "send":
        app.send("pay", (7,), key="user-7")
    else:
        asyncio.run(pay.using(key=b"user-7").delay_async(7))
    record = only_record(backend, "shop.default")
    assert record.key == b"user-7"
    assert [name for name, _ in record.headers] == ["id", "name"], "the record's key says it"


def test_a_key_goes_through_the_schedule_which_is_told_that_the_queue_is_ordered(
    app: App, backend: FakeBackend
) -> None:
    pay = app.task(name="pay", queue="ledger")(lambda user_id: None)
    pay.using(key="user-7", delay=5).delay(7)
    put = only_put(backend)
    assert put.job is not None
    assert (put.job.key, put.job.is_ordered) == (b"user-7", False)
    app.queue("ledger", ordered=True)
    backend.queues.topics.clear()
    pay.using(key="user-7", delay=5).delay(7)
    put = only_put(backend)
    assert put.job is not None
    assert (put.job.key, put.job.is_ordered) == (b"user-7", True)


@pytest.mark.parametrize("way", ["delay", "send", "coroutine"])
def test_ordered_by_returns_the_key_from_the_arguments_of_the_call(app: App, backend: FakeBackend, way: str) -> None:
    calls: list[Any] = []

    def owner(*args: Any, **kwargs: Any) -> str:
        calls.append((args, kwargs))
        return f"user-{args[0]}"

    @app.task(name="pay", bind=True, ordered_by=owner)
    def pay(ctx: Context, user_id: int, amount: int = 0) -> None: ...

    if way == "delay":
        pay.delay(7, amount=3)
    elif way == "send":
        app.send("pay", (7,), {"amount": 3})
    else:
        asyncio.run(pay.delay_async(7, amount=3))
    assert only_record(backend, "shop.default").key == b"user-7"
    assert calls == [((7,), {"amount": 3})]


def test_a_key_of_the_call_wins_and_none_is_no_key(app: App, backend: FakeBackend) -> None:
    @app.task(name="pay", ordered_by=lambda user_id: None if user_id == 0 else f"user-{user_id}")
    def pay(user_id: int) -> None: ...

    pay.using(key="mine").delay(7)
    pay.using(key=None).delay(7)
    app.send("pay", (7,), key="mine")
    pay.delay(0)
    assert [record.key for record in backend.queues.topics["shop.default"]] == [b"mine", b"user-7", b"mine", None]


def test_what_ordered_by_raises_reaches_the_caller_and_what_is_no_key_names_the_task(
    app: App, backend: FakeBackend
) -> None:
    @app.task(name="pay", ordered_by=lambda user_id: {"x": "user"}[user_id])
    def pay(user_id: str) -> None: ...

    @app.task(name="book", ordered_by=lambda user_id: user_id)
    def book(user_id: int) -> None: ...

    with pytest.raises(KeyError, match="y"):
        pay.delay("y")
    for enqueue in (lambda: book.delay(7), lambda: app.send("book", (7,))):
        with pytest.raises(IllegalArgumentError, match=r"ordered_by of task book returns.*not 7: use str\(7\)"):
            enqueue()
    with pytest.raises(TypeError, match="missing a required argument"):
        pay.delay()  # type: ignore[call-arg]  # the arguments are looked at first
    assert not backend.queues.topics


def test_a_scheme_that_nobody_serves_is_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="no back end for 'redis'.*an entry point 'redis' of the group"):
        App("shop", bootstrap_servers="redis://").backend()


def test_other_servers_mean_another_connection(app: App, backend: FakeBackend) -> None:
    app.connect_to("fake://elsewhere")
    assert backend.is_closed
    assert app.backend() is not backend


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_connects_anew(app: App, backend: FakeBackend) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"1" if app.backend() is not backend else b"0")
        os._exit(0)
    os.waitpid(child, 0)
    answer = os.read(reading, 1)
    os.close(reading)
    os.close(writing)
    assert answer == b"1"
    assert app.backend() is backend


def test_names_and_queues_of_an_app_are_checked() -> None:
    with pytest.raises(IllegalArgumentError):
        App("no app")
    assert App("shop", queues=["b", "a"]).queues == ["a", "b", "default"]
