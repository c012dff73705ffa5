"""The app: a name, its settings, its tasks, and the way to the back end.

An app is made at import time and connects on the first ``delay`` (or ``send``, or question about a job); a forked child
connects anew. It is safe to use from many threads. Its parts: :mod:`kafka.tasks.task` (declarations),
:mod:`kafka.tasks.options` and :mod:`kafka.tasks.settings`, :mod:`kafka.tasks.backends.base` (where jobs are kept),
:mod:`kafka.tasks.job` (handles).
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from kafka.errors import IllegalArgumentError, KafkaConfigurationError, KafkaTimeoutError
from kafka.tasks.apps import add_app
from kafka.tasks.backends.base import IN_PROCESS, Backend, Connect, QueueRoute, open_backend, scheme_of
from kafka.tasks.context import Context
from kafka.tasks.deadline import run_in_thread
from kafka.tasks.enqueued_jobs import add_to_current_run
from kafka.tasks.errors import JobsNotSent, PayloadTooLarge, UnknownQueue, did_you_mean
from kafka.tasks.format.commands import GENERATION, CommandRecord, partition_of_job, put_headers
from kafka.tasks.format.envelope import Envelope, Header
from kafka.tasks.format.job_id import is_id, time_of
from kafka.tasks.format.payload import PayloadCodec
from kafka.tasks.format.records import StateRecord
from kafka.tasks.format.serializers import PayloadFormat
from kafka.tasks.format.topics import TopicNames, check_queue
from kafka.tasks.hooks import (
    ERROR_TASK,
    EnqueueErrorHandler,
    ErrorHandler,
    Handlers,
    SuccessHandler,
    finished_job,
)
from kafka.tasks.job import JobHandle
from kafka.tasks.options import KeyFunction, SendKeywords, TaskOptions, call_options, check_task_name, task_options
from kafka.tasks.retry import Retry
from kafka.tasks.settings import (
    ClientKeywords,
    ClientSettings,
    Seconds,
    SettingKeywords,
    flag,
    optional_timeout,
    read_settings,
)
from kafka.tasks.start_time import StartTime
from kafka.tasks.states import JobState
from kafka.tasks.task import Task

if TYPE_CHECKING:
    from typing_extensions import Unpack  # typing has it from 3.11 on

    from kafka.tasks.app_schedule import Schedule
    from kafka.tasks.periodic import DeclaredEntries
    from kafka.tasks.testing.clocks import FakeClock
    from kafka.tasks.testing.eager import EagerJobs
    from kafka.tasks.testing.jobs import TestingJobs

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
OnSuccess = TypeVar("OnSuccess", bound=SuccessHandler)
OnError = TypeVar("OnError", bound=ErrorHandler)
OnEnqueueError = TypeVar("OnEnqueueError", bound=EnqueueErrorHandler)


class App:
    """A task queue of a name of its own.

    ``bootstrap_servers`` and all other settings are those of :data:`kafka.tasks.settings.SETTINGS`; an unknown or
    invalid one raises :class:`kafka.errors.KafkaConfigurationError`.
    """

    def __init__(self, name: str, **settings: Unpack[SettingKeywords]) -> None:
        self.names = TopicNames(name)
        self.settings = read_settings(settings)
        self.tasks: dict[str, Task[..., Any]] = {}
        """The declared tasks by name."""
        self._aliases: dict[str, Task[..., Any]] = {}
        self.codec = PayloadCodec(None, frozenset(self.settings.accept_content))
        """How calls and results of tasks are written and read that are not declared here."""
        self.handlers = Handlers()
        self._declared: DeclaredEntries | None = None
        self._queues: set[str] = {self.settings.default_queue, *self.settings.queues}
        self._is_ordered: dict[str, bool] = {}  # the queues of queue()
        self._ordered_queues: frozenset[str] = frozenset()
        self._lock = threading.RLock()
        self._local = threading.local()
        self._connect: Connect | None = None
        self._backend: Backend | None = None
        self._routes: dict[str, QueueRoute] = {}
        self._has_been_used = False
        _apps.add(self)
        add_app(self)

    @property
    def name(self) -> str:
        """The first part of all its topics' names."""
        return self.names.app

    @property
    def queues(self) -> Sequence[str]:
        """The declared queues: those of :meth:`queue` and of its tasks, the default one, and those of the setting
        ``queues``."""
        return sorted(self._queues)

    @property
    def ordered_queues(self) -> frozenset[str]:
        """The queues that are declared with ``ordered=True``."""
        return self._ordered_queues

    # -- declaring ----------------------------------------------------------------------------------------------------

    def queue(self, name: str, *, ordered: bool = False) -> str:
        """Declare a queue, and return its name: ``ledger = app.queue("ledger", ordered=True)``.

        ``ordered``: jobs with the same ``key`` run one after another, in the order in which they were enqueued; a job
        that fails and is retried holds up those behind it until it has ended. All apps that enqueue jobs for such a
        queue, or run them, declare it so. Raises :class:`kafka.errors.IllegalArgumentError`, also when the queue was
        declared otherwise.
        """
        check_queue(name)
        is_ordered = flag("ordered", ordered)
        if self._is_ordered.setdefault(name, is_ordered) is not is_ordered:
            raise IllegalArgumentError(
                f"the queue {name!r} is declared with ordered={not is_ordered} already, and cannot have "
                f"ordered={is_ordered}, too: declare it once"
            )
        self._queues.add(name)
        if is_ordered:
            self._ordered_queues |= {name}
        return name

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        *,
        bind: Literal[True],
        name: str | None = None,
        queue: str | None = None,
        retry: Retry | None = None,
        timeout: Seconds | None = None,
        soft_timeout: Seconds | None = None,
        expires: Seconds | None = None,
        store_result: bool | None = None,
        serializer: str | None = None,
        aliases: Sequence[str] = (),
        ordered_by: KeyFunction | None = None,
    ) -> Callable[[Callable[Concatenate[Context, P], R]], Task[P, R]]: ...

    @overload
    def task(
        self,
        *,
        bind: Literal[False] = False,
        name: str | None = None,
        queue: str | None = None,
        retry: Retry | None = None,
        timeout: Seconds | None = None,
        soft_timeout: Seconds | None = None,
        expires: Seconds | None = None,
        store_result: bool | None = None,
        serializer: str | None = None,
        aliases: Sequence[str] = (),
        ordered_by: KeyFunction | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(self, *function: Any, **options: Any) -> Any:
        """Declare a task: ``@app.task`` or ``@app.task(option=...)``.

        ``name``: default ``module.function``. ``queue``: default the app's. ``retry``: a :class:`Retry`; without one an
        error ends the job. ``timeout``, ``soft_timeout``: seconds of running; at the soft one :class:`SoftTimeLimit` is
        raised inside the task, at the hard one the job ends. ``expires``: seconds from the enqueue, after which it does
        not start any more. ``bind``: the function gets a :class:`Context` first. ``store_result=False``: no record of
        a success. ``serializer``: ``"json"``, ``"msgpack"`` or ``"pickle"``, of arguments and results. ``aliases``:
        former names of a task that was renamed; jobs of these names are run by it, too, and ``send`` takes them.
        ``ordered_by``: a function of the task's arguments (without the context) that returns the job's key, as of
        :meth:`Task.using`, or None. Raises :class:`kafka.errors.IllegalArgumentError`.
        """
        if function and (options or len(function) > 1 or not callable(function[0])):
            raise IllegalArgumentError("use @app.task, or @app.task(option=...) with named options only")
        read = task_options(options)
        settings = self.settings
        filled = dataclasses.replace(
            read,
            queue=read.queue or settings.default_queue,
            retry=read.retry or settings.retry,
            timeout=read.timeout or settings.timeout,
            soft_timeout=read.soft_timeout or settings.soft_timeout,
            serializer=read.serializer or settings.serializer,
            store_result=settings.store_result if read.store_result is None else read.store_result,
        )

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            task: Task[..., Any] = Task(self, function, filled, read)
            for name in (task.name, *task.aliases):
                existing = self.find_task(name)
                if name == ERROR_TASK:
                    raise IllegalArgumentError(f"{task.origin} cannot have the name {ERROR_TASK!r}: it is reserved")
                if existing is not None and existing.origin != task.origin:
                    raise IllegalArgumentError(
                        f"two tasks have the name {name!r}: {existing.origin} and {task.origin}"
                    )
            self.tasks[task.name] = task
            self._aliases.update(dict.fromkeys(task.aliases, task))
            self._queues.add(task.queue)
            return task

        return declare(*function) if function else declare

    def periodic(
        self,
        cron: str | None = None,
        *,
        every: Seconds | None = None,
        anchor: datetime | None = None,
        tz: str | None = None,
        missed: str = "skip",
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Declare that a task runs at these times: above ``@app.task(...)``, or alone, above the function.

        ``cron``: five fields (minute hour day-of-month month day-of-week) or six with seconds in front, or a name such
        as ``@daily``, in the time zone ``tz`` (default UTC). ``every``: seconds, counted from ``anchor`` (default
        1970-01-01 UTC). ``missed``: what becomes of times that have passed while no owner of the schedule was alive:
        ``"skip"`` them, run ``"once"``, or ``"all"`` of them. ``name``: of the entry, default the task's; a second
        entry of a task needs one. ``args`` and ``kwargs`` are those of each call. ``options``: above a task those of
        :meth:`Task.using`, else those of :meth:`task`. Raises :class:`kafka.errors.IllegalArgumentError`.
        """
        from kafka.tasks.periodic import define_entry, read_times  # most apps have no periodic jobs

        if callable(cron):
            raise IllegalArgumentError('use @app.periodic("0 3 * * *") or @app.periodic(every=60), with its times')
        times = read_times(cron, every, anchor, tz)

        def declare(function: Callable[P, R]) -> Task[P, R]:
            task: Task[P, R]
            if isinstance(function, Task):
                if function.app is not self:
                    raise IllegalArgumentError(f"task {function.name} is of another app than {self.name}")
                task, call = function, function.using(**options)
            else:
                decorate: Any = self.task(**options)
                task = decorate(function)
                call = task.using()
            self.declared.add(define_entry(task.name if name is None else name, times, missed, call, args, kwargs))
            return task

        return declare

    def success_handler(self, function: OnSuccess) -> OnSuccess:
        """Declare ``function(job)``: it is called where a job ran when its function has returned."""
        self.handlers.successes.append(function)
        return function

    def error_handler(self, function: OnError) -> OnError:
        """Declare ``function(job, kill_signal, exc_info)``: it is called for each run that failed, also when another
        attempt follows.

        It runs where the job ran, with the exception's ``(type, value, traceback)``. When that place was killed, the
        pool runs it elsewhere, with the signal, if it was one, and a :class:`kafka.tasks.errors.WorkerLost` or
        ``TimeLimit``. What it raises is logged.
        """
        self.handlers.errors.append(function)
        if ERROR_TASK not in self.tasks:
            queue = self.settings.default_queue
            self.tasks[ERROR_TASK] = Task(self, self._run_error_handlers, TaskOptions(name=ERROR_TASK, queue=queue))
        return function

    def on_enqueue_error(self, function: OnEnqueueError) -> OnEnqueueError:
        """Declare ``function(handle, error)``: it is called for each job that was enqueued and could not be written.

        It runs on the thread of the app's connection, which does nothing else meanwhile: it must not block, nor call
        what waits for the broker, such as ``flush`` and ``result``. What it raises is logged.
        """
        self.handlers.enqueue_errors.append(function)
        return function

    # -- enqueueing ---------------------------------------------------------------------------------------------------

    def send(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        **options: Unpack[SendKeywords],
    ) -> JobHandle[Any]:
        """Enqueue a job by its task's name; nothing of the task needs to be imported here.

        ``queue``: default the task's when it is declared here, else the app's. A queue that this app does not declare
        must exist on the broker. ``options`` are those of :meth:`Task.using`.
        """
        read = call_options(options)
        key = read.key
        check_task_name("the name of a task", name)
        if not isinstance(args, (list, tuple)):
            raise IllegalArgumentError(f"args must be a list or tuple of arguments, not {args!r}")
        if not isinstance(kwargs, (Mapping, NoneType)) or not all(isinstance(key, str) for key in kwargs or ()):
            raise IllegalArgumentError(f"kwargs must be a dict with str keys, not {kwargs!r}")
        task = self.find_task(name)
        positional, named = tuple(args), dict(kwargs or {})
        expires = read.expires
        if task is not None:
            task.check_call(positional, named)
            queue = queue or task.queue
            expires = expires if expires is not None else task.options.expires
            key = task.key_of(positional, named) if key is None else key
        codec = self.codec_of(name)
        format_name = read.serializer or (self.settings.serializer if task is None else task.serializer.name)
        serializer = codec.writer(format_name)
        headers = Envelope(
            "",
            name,
            b"",
            timeout=read.timeout,
            soft_timeout=read.soft_timeout,
            store_result=read.store_result,
            content_type=serializer.media_type,
            extra=read.headers,
        ).headers()[1:]
        is_stored = read.store_result is not False
        if task is not None and read.store_result is None:
            is_stored = task.store_result
        target = check_queue(queue or self.settings.default_queue)
        return self.enqueue(
            name, target, headers, expires, positional, named, is_stored, codec, serializer, read.start, key
        )

    def batch(self, timeout: Seconds | None = None) -> Batch:
        """Many jobs, one flush: ``with app.batch() as b: task.delay(...)``; leaving it is :meth:`flush`.
        ``b.jobs`` are the handles made by this thread meanwhile.
        """
        return Batch(self, optional_timeout("timeout", timeout))

    def flush(self, timeout: Seconds | None = None) -> None:
        """Wait until all jobs enqueued so far are acknowledged.

        Raises :class:`JobsNotSent` when some could not be written since the last flush, ``KafkaTimeoutError`` after
        ``timeout`` seconds.
        """
        seconds = optional_timeout("timeout", timeout)
        backend = self._backend
        if backend is not None:
            backend.flush(seconds)
            _raise_not_sent(backend)

    def warm_up(self, timeout: Seconds | None = None) -> None:
        """Do now what the first ``delay`` does otherwise: connect, and create or check the topics of the app's queues.

        Blocks; ``KafkaTimeoutError`` after ``timeout`` seconds, and it goes on in the background. Other errors are
        those of connecting, of missing rights, and of topics that are missing or do not fit.
        """
        seconds = optional_timeout("timeout", timeout)
        missing = [queue for queue in self.queues if queue not in self._routes]
        warming = run_in_thread("kafka-task-queue-warm-up", lambda: [self._route(queue) for queue in missing])
        if not warming.wait(seconds):
            raise KafkaTimeoutError(
                f"app {self.name} is not connected to {self.settings.bootstrap_servers} within {seconds:g} s"
            )
        warming.result()

    def job(self, job_id: str) -> JobHandle[Any]:
        """The handle of a job of this app, by its id."""
        if not is_id(job_id):
            raise IllegalArgumentError(f"{job_id!r} is not a job id (32 lower-case hex digits)")
        return JobHandle(job_id, self.backend(), self.codec)

    def connect_to(self, bootstrap_servers: str | None = None, **settings: Unpack[ClientKeywords]) -> None:
        """Use other servers than those of the declaration (a command's ``--bootstrap-server``; None: the same), other
        settings of security, and another ``client_rack``; closes a connection."""
        given: dict[str, Any] = {**settings}
        if bootstrap_servers is not None:
            given["bootstrap_servers"] = bootstrap_servers
        read = read_settings(given)
        foreign = [name for name in settings if name not in read.client]
        if foreign:
            raise KafkaConfigurationError(f"{foreign[0]} can only be set where the app is declared")
        servers = self.settings.bootstrap_servers if bootstrap_servers is None else read.bootstrap_servers
        client = ClientSettings({**self.settings.client, **read.client})
        try:
            self.close()
        finally:
            self.settings = dataclasses.replace(self.settings, bootstrap_servers=servers, client=client)

    # -- in the caller's thread ---------------------------------------------------------------------------------------

    def testing(self, clock: FakeClock | None = None) -> TestingJobs:
        """For tests: ``with app.testing() as t:`` jobs are kept in memory, and run in the test's thread when the test
        says so (``t.run_all()``, ``t.advance(60)``). Time is that of ``clock``, a
        :class:`kafka.tasks.testing.FakeClock` (None: a new one). It holds for all threads, until the end of the block,
        or ``t.close()``.
        """
        from kafka.tasks.testing.jobs import TestingJobs  # with the worker, which most users of an app do not need

        return TestingJobs(self, clock)

    def eager(self) -> EagerJobs:
        """For a console or a script: ``with app.eager():`` each ``delay`` runs its job at once, in the caller's thread,
        with all its attempts, and waits for no delay. Its handle has the result, or raises :class:`JobFailed`. It holds
        for all threads, until the end of the block, or ``close()`` of what it returns.
        """
        from kafka.tasks.testing.eager import EagerJobs

        return EagerJobs(self)

    @property
    def declared(self) -> DeclaredEntries:
        """The periodic entries that :meth:`periodic` has declared."""
        from kafka.tasks.periodic import DeclaredEntries

        if self._declared is None:
            self._declared = DeclaredEntries(lambda: self._ordered_queues)
        return self._declared

    @property
    def schedule(self) -> Schedule:
        """Its periodic entries at run time: list, add, change, pause, resume, remove, run now."""
        from kafka.tasks.app_schedule import Schedule

        return Schedule(self)

    def open_route(self, queue: str) -> QueueRoute:
        """The route of a queue; creates its topics on first use, and blocks meanwhile."""
        return self._routes.get(queue) or self._route(queue)

    @property
    def is_connected(self) -> bool:
        """Whether it is connected."""
        return self._backend is not None

    def close(self, timeout: Seconds | None = None) -> None:
        """Flush and disconnect. Using the app again connects again.

        Raises :class:`JobsNotSent` as :meth:`flush` does, also for what was not acknowledged within ``timeout``
        seconds. It is disconnected then, too.
        """
        seconds = optional_timeout("timeout", timeout)
        if not self._has_been_used:
            return
        with self._lock:
            backend, self._backend = self._backend, None
            self._routes = {}
        if backend is not None:
            backend.close(seconds)
            _raise_not_sent(backend)

    # -- used by the task queue itself
    # ------------------------------------------------------------------------------------

    def backend(self) -> Backend:
        """The connected back end; connects on first use."""
        self._has_been_used = True
        with self._lock:
            if self._backend is None:
                self._backend = (self._connect or open_backend)(self.name, self.settings)
            return self._backend

    def find_task(self, name: str) -> Task[..., Any] | None:
        """The declared task of that name, or former name."""
        return self.tasks.get(name) or self._aliases.get(name)

    @property
    def is_in_process(self) -> bool:
        """Whether its jobs stay in this process: ``memory://``, and while :meth:`testing` or :meth:`eager` holds."""
        return self._connect is not None or scheme_of(self.settings.bootstrap_servers) in IN_PROCESS

    def replace_backend(self, connect: Connect) -> Callable[[], None]:
        """Use what ``connect`` returns, in all threads, until the returned function is called. A connection stays open
        meanwhile, and is used again afterwards."""
        with self._lock:
            replaced = self._connect, self._backend, self._routes
            self._connect, self._backend, self._routes = connect, None, {}

        def restore() -> None:
            with self._lock:
                self._connect, self._backend, self._routes = replaced

        return restore

    def check_queue(self, queue: str) -> str:
        """``queue`` itself when the app knows it; :class:`UnknownQueue` with the nearest name when not."""
        check_queue(queue)
        if queue not in self._queues:
            raise UnknownQueue(
                f"the app {self.name!r} has no queue {queue!r}{did_you_mean(queue, self._queues)}. Declare a task "
                "with it, or name it in App(queues=[...])"
            )
        return queue

    def codec_of(self, name: str) -> PayloadCodec:
        """How calls and results of a task of this name are written and read."""
        task = self.find_task(name)
        return self.codec if task is None else task.codec

    def enqueue(
        self,
        name: str,
        queue: str,
        headers: list[Header],
        expires_s: float | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        is_stored: bool,
        codec: PayloadCodec,
        serializer: PayloadFormat,
        start: StartTime | None = None,
        key: bytes | None = None,
    ) -> JobHandle[Any]:
        """Encode a call and pass it to the producer, or to the schedule when it starts later; raises the errors of
        :meth:`Task.delay`."""
        value = codec.encode_call(name, args, kwargs, serializer)
        route = self._routes.get(queue) or self._route(queue)
        if len(value) > route.max_payload_bytes:
            raise PayloadTooLarge(
                f"the arguments of task {name} are {len(value)} bytes, more than the {route.max_payload_bytes} that "
                f"{route.topic} accepts: store the data elsewhere and pass a reference, or raise max_payload_bytes "
                "and the topic's max.message.bytes"
            )
        backend = self._backend or self.backend()
        due_ms = None if start is None else start.due_ms(backend.clock, expires_s)
        job_id = backend.new_id() if due_ms is None else backend.new_id(due_ms)
        own: list[Header] = [("id", job_id.encode()), *headers]
        if expires_s is not None:
            own.append(("expires", b"%d" % (backend.clock.now_ms() + int(expires_s * 1000))))
        if due_ms is None:
            sent = backend.send(route.topic, value, own, key)
        else:
            own.append((GENERATION, b"1"))
            is_ordered = queue in self._ordered_queues
            headers = put_headers(queue, key, time_of(job_id), own, is_ordered=is_ordered)
            put = CommandRecord(job_id.encode(), value, headers)
            sent = backend.send_command(put, partition_of_job(job_id, backend.schedule_partitions()))
        handle: JobHandle[Any] = JobHandle(job_id, backend, codec, sent, is_stored)
        if self.handlers.enqueue_errors:
            sent.add_errback(self.handlers.not_enqueued, handle)
        if self.settings.track_queued and due_ms is None:
            backend.send_state(StateRecord(job_id, JobState.QUEUED))
        batch: Batch | None = getattr(self._local, "batch", None)
        if batch is not None:
            batch.jobs.append(handle)
        add_to_current_run(handle)
        return handle

    def _run_error_handlers(
        self,
        job_id: str,
        name: str,
        attempt: int,
        deliveries: int,
        payload: bytes,
        content_type: str | None,
        lost: Mapping[str, Any],
    ) -> None:
        """The hidden task (:data:`ERROR_TASK`), with what :class:`LostJobHandlers` has written down."""
        envelope = Envelope(job_id, name, payload, attempt, content_type=content_type)
        self.handlers.run_lost(finished_job(envelope, deliveries, self.codec_of(name)), lost)

    async def make_ready(self, queue: str, *, for_later: bool = False) -> None:
        """Return when a job for ``queue`` can be enqueued without a wait; what waits is in a thread."""
        import asyncio  # 30 ms that most processes do not need

        if queue not in self._routes:
            await asyncio.to_thread(self._route, queue)
        elif not self.backend().has_room():
            await asyncio.to_thread(self.backend().flush, None)
        if for_later and not self.backend().has_schedule:
            await asyncio.to_thread(self.backend().schedule_partitions)

    def _route(self, queue: str) -> QueueRoute:
        if not self._routes and _is_in_event_loop():
            log.warning(
                "app %s connects in a running event loop, which waits for that: use `await task.delay_async(...)`, or "
                "call app.warm_up() before the loop runs",
                self.name,
            )
        route = self.backend().route(queue, queue in self._queues)
        self._routes[queue] = route
        return route

    def _forget_connection(self) -> None:
        """In a forked child: the connection is the parent's, and another thread may have held the lock."""
        self._lock = threading.RLock()
        self._local = threading.local()
        self._backend = None
        self._routes = {}

    def __repr__(self) -> str:
        return f"<App {self.name} on {self.settings.bootstrap_servers}, {len(self.tasks)} tasks>"


class Batch:
    """The block of :meth:`App.batch`."""

    def __init__(self, app: App, timeout: float | None) -> None:
        self._app = app
        self._timeout = timeout
        self._outer: Batch | None = None
        self.jobs: list[JobHandle[Any]] = []

    def __enter__(self) -> Batch:
        self._app._has_been_used = True
        self._outer = getattr(self._app._local, "batch", None)
        self._app._local.batch = self
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._app._local.batch = self._outer
        if self._outer is not None:
            self._outer.jobs.extend(self.jobs)
        if kind is None:
            self._app.flush(self._timeout)
            errors = [error for job in self.jobs if (error := job.enqueue_error) is not None]
            if errors:  # another thread's flush has raised them, which may not look at these jobs
                raise JobsNotSent(len(errors), len(self.jobs), errors[0], "their topics")


def _raise_not_sent(backend: Backend) -> None:
    error = backend.take_not_sent()
    if error is not None:
        raise error


_apps: weakref.WeakSet[App] = weakref.WeakSet()


def _is_in_event_loop() -> bool:
    """Whether this thread runs an event loop of asyncio's."""
    asyncio: Any = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def _in_child() -> None:
    for app in list(_apps):
        if app._has_been_used:  # to make a lock and a thread's values anew is 18 page faults, in each process of a job
            app._forget_connection()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
