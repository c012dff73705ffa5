"""A declared task, and a call of it with options of its own.

:class:`Task` is what ``@app.task`` puts in the function's place: calling it calls the function, ``delay`` enqueues a
job. :class:`Call` is what ``task.using(...)`` gives: the same ``delay``, with other options, which so never share the
user's keyword space. What both send besides the payload is made once, at the declaration: a job costs its JSON, its id
and one list. How a payload reaches the broker is the app's affair (:class:`JobEnqueuer`).
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from kafka.errors import IllegalArgumentError
from kafka.tasks.context import Context
from kafka.tasks.errors import PayloadTooLarge, TaskInMain
from kafka.tasks.format.annotations import TaskTypes
from kafka.tasks.format.envelope import Envelope, Header
from kafka.tasks.format.payload import PayloadCodec
from kafka.tasks.format.serializers import PayloadFormat
from kafka.tasks.functions import FunctionName, is_coroutine_function, kind_of, refusal_of_main
from kafka.tasks.options import CallKeywords, KeyFunction, TaskOptions, call_options, check_key
from kafka.tasks.retry import Retry
from kafka.tasks.settings import check_limits
from kafka.tasks.start_time import StartTime

if TYPE_CHECKING:
    from typing_extensions import Unpack  # typing has it from 3.11 on

    from kafka.tasks.hooks import Handlers
    from kafka.tasks.job import JobHandle
    from kafka.tasks.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")

_NO_ID = "0" * 32


class JobEnqueuer(Protocol):
    """The interface of an app to its tasks."""

    handlers: Handlers
    settings: Settings

    @property
    def is_in_process(self) -> bool:
        """Whether jobs run in this process alone, so that they know the tasks of its ``__main__``."""

    def check_queue(self, queue: str) -> str:
        """``queue`` itself when the app knows it; an error that names the nearest else."""

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
        """Encode the call and pass it to the producer. ``is_stored``: for the handle, whether its result is kept;
        ``codec``: how the arguments are written and the result is read; ``start`` None: at once."""

    async def make_ready(self, queue: str, *, for_later: bool = False) -> None:
        """Return when a job for ``queue`` can be enqueued without a wait; what waits is in a thread."""

    def close(self, timeout: float | None = None) -> None:
        """Flush and disconnect, within so many seconds."""


class Task(Generic[P, R]):
    """A function that can be run in the background.

    ``options`` are its own with the app's settings filled in where it says nothing; ``own_options`` are its own alone.
    """

    def __init__(
        self, app: JobEnqueuer, function: Callable[..., R], options: TaskOptions, own_options: TaskOptions | None = None
    ) -> None:
        self.app = app
        self.function = function
        self.options = options
        self.own_options = options if own_options is None else own_options
        name = FunctionName.of(function)
        self.origin = str(name)
        """Where the function is."""
        if not options.name and not name.is_own:
            raise IllegalArgumentError(
                f'{kind_of(function)} has no name for its task: app.task(name="MODULE.NAME")(...)'
            )
        self.name = options.name or self.origin
        self.aliases = tuple(alias for alias in dict.fromkeys(options.aliases) if alias != self.name)
        """Its former names: jobs of these names are run, too."""
        self.queue = options.queue or "default"
        self.bind = options.bind
        self.is_coroutine = is_coroutine_function(function)
        self.store_result = options.store_result is not False
        self._refusal = refusal_of_main(name)
        self._arguments = Arguments(function, name.qualname, bound=options.bind)
        types = TaskTypes(self._arguments.signature, function)
        self.codec = PayloadCodec(types, frozenset(app.settings.accept_content))
        """How its calls and results are written and read."""
        self.serializer = self.codec.writer(options.serializer or app.settings.serializer)
        self._call: Call[P, R] = Call(self, {})
        functools.update_wrapper(self, function, updated=())
        if inspect.isroutine(function):  # not those of an object, which are not for the task
            for attribute, value in getattr(function, "__dict__", {}).items():
                self.__dict__.setdefault(attribute, value)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now, as if it had no decorator."""
        if self.bind:
            return self.function(Context(_NO_ID, self.name), *args, **kwargs)
        return self.function(*args, **kwargs)

    @overload  # what a coroutine function returns when it is called is not what its job returns
    def delay(
        self: Task[P, Coroutine[Any, Any, V]], *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[V]: ...

    @overload
    def delay(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]: ...

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[Any]:
        """Enqueue a job and return its handle at once; the record is sent with others.

        Raises :class:`kafka.tasks.errors.NotSerialisable`, :class:`kafka.tasks.errors.PayloadTooLarge`,
        :class:`kafka.tasks.errors.TaskInMain`, ``TypeError`` for arguments that do not fit the function, and on the
        first use what connecting raises. Whether the record arrived is known after ``app.flush()``.
        """
        return self._call.delay(*args, **kwargs)

    @overload
    async def delay_async(
        self: Task[P, Coroutine[Any, Any, V]], *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[V]: ...

    @overload
    async def delay_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]: ...

    async def delay_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[Any]:
        """:meth:`delay` for a coroutine: where that would wait (for the connection at first, for memory when the broker
        is slower than the caller), the event loop goes on."""
        return await self._call.delay_async(*args, **kwargs)

    def using(self, **options: Unpack[CallKeywords]) -> Call[P, R]:
        """The same task with other options for this call: ``queue timeout soft_timeout expires store_result
        serializer``; ``delay``, the seconds after which the job starts, or ``eta``, an aware ``datetime`` before which
        it does not start; ``key``, a str or bytes: jobs of the same key go to the same partition of their queue, and
        run one after another where that queue is ordered (:meth:`kafka.tasks.App.queue`); and ``headers``: names with
        str or bytes that travel with the job, such as a trace context; the task finds them in ``ctx.headers``. Raises
        :class:`kafka.errors.IllegalArgumentError`."""
        return Call(self, options)

    @property
    def retry(self) -> Retry | None:
        """The policy that holds for this task."""
        return self.options.retry

    def retries(self, error: BaseException) -> bool:
        """Whether the policy lists ``error`` as worth another attempt."""
        return self.options.retry is not None and self.options.retry.lists(error)

    def check_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse calls that can never run: a task of ``__main__`` elsewhere, arguments that do not fit."""
        if self._refusal is not None and not self.app.is_in_process:
            raise TaskInMain(self._refusal)
        self._arguments.check(args, kwargs)

    def key_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
        """The key that ``ordered_by`` returns for these arguments; None without one, and when it returns None. Raises
        what it raises, and :class:`kafka.errors.IllegalArgumentError` when it returns what is no key."""
        function = self.options.ordered_by
        found = None if function is None else function(*args, **kwargs)
        return None if found is None else check_key(f"what ordered_by of task {self.name} returns", found)

    def check_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """``TypeError`` when the arguments do not fit the function."""
        self._arguments.check(args, kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name} on queue {self.queue}>"


class Call(Generic[P, R]):
    """A task with the options of one call."""

    __slots__ = (
        "_expires_s", "_headers", "_is_stored", "_key", "_ordered_by", "_queue", "_serializer", "_start", "_task",
    )  # fmt: skip

    def __init__(self, task: Task[P, R], given: Mapping[str, Any]) -> None:
        options = call_options(given)
        own = task.options
        check_limits(options.soft_timeout or own.soft_timeout, options.timeout or own.timeout)
        self._task = task
        self._queue = task.app.check_queue(options.queue) if options.queue else task.queue
        self._expires_s = options.expires if options.expires is not None else own.expires
        self._start = options.start
        self._key = options.key
        self._ordered_by: KeyFunction | None = own.ordered_by if options.key is None else None
        self._is_stored = task.store_result if options.store_result is None else options.store_result
        self._serializer = task.codec.writer(options.serializer) if options.serializer else task.serializer
        self._headers = Envelope(
            _NO_ID,
            task.name,
            b"",
            timeout=options.timeout,
            soft_timeout=options.soft_timeout,
            store_result=options.store_result,
            content_type=self._serializer.media_type,
            extra=options.headers,
        ).headers()[1:]

    @overload
    def delay(
        self: Call[P, Coroutine[Any, Any, V]], *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[V]: ...

    @overload
    def delay(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]: ...

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[Any]:
        """As :meth:`Task.delay`."""
        task = self._task
        task.check_call(args, kwargs)
        return task.app.enqueue(
            task.name,
            self._queue,
            self._headers,
            self._expires_s,
            args,
            kwargs,
            self._is_stored,
            task.codec,
            self._serializer,
            self._start,
            self._key if self._ordered_by is None else task.key_of(args, kwargs),
        )

    @overload
    async def delay_async(
        self: Call[P, Coroutine[Any, Any, V]], *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[V]: ...

    @overload
    async def delay_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]: ...

    async def delay_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[Any]:
        """As :meth:`Task.delay_async`."""
        self._task.check_call(args, kwargs)
        await self._task.app.make_ready(self._queue, for_later=self._start is not None)
        return self.delay(*args, **kwargs)

    def template(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallTemplate:
        """This call, to be made by others. :class:`kafka.errors.IllegalArgumentError` when the arguments do not fit;
        other errors as of :meth:`delay`."""
        task = self._task
        if self._start is not None:
            raise IllegalArgumentError("delay and eta are for a single call; a periodic entry has its own times")
        try:
            task.check_arguments(args, kwargs)
        except TypeError as error:
            raise IllegalArgumentError(f"{error}; give them as args=(...) or kwargs={{...}}") from None
        payload = task.codec.encode_call(task.name, args, kwargs, self._serializer)
        most = task.app.settings.max_payload_bytes
        if len(payload) > most:
            raise PayloadTooLarge(f"the arguments of task {task.name} are {len(payload)} bytes, more than {most}")
        key = self._key if self._ordered_by is None else task.key_of(args, kwargs)
        return CallTemplate(task.name, self._queue, self._headers, payload, key, self._expires_s)


class CallTemplate(NamedTuple):
    """One call as its jobs have it, each with an id of its own: name of the task, queue, headers without an id,
    payload, key, and the seconds after which a job expires."""

    task: str
    queue: str
    headers: list[Header]
    payload: bytes
    key: bytes | None
    expires_s: float | None


class Arguments:
    """Whether arguments fit a function, fast when they do; when not, ``inspect`` words the error.

    (``Signature.bind`` for each call costs 4 to 6 µs, this under 1.)
    """

    __slots__ = (
        "_index",
        "_keyword_only",
        "_most",
        "_needed",
        "_positional",
        "_qualname",
        "_var_keyword",
        "signature",
    )

    def __init__(self, function: Callable[..., Any], qualname: str, bound: bool) -> None:
        """Sorts the function's parameters by kind, without the context that ``bind=True`` takes as the first one.
        IllegalArgumentError if there is no such parameter, or if the function does not say which it has."""
        self._qualname = qualname
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise IllegalArgumentError(
                f"{qualname} does not say which arguments it takes ({error}): call it in a function of your own, and "
                "make that the task"
            ) from None
        parameters = list(signature.parameters.values())
        if bound:
            if not parameters or parameters[0].kind not in (
                inspect.Parameter.POSITIONAL_ONLY,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
            ):
                raise IllegalArgumentError(
                    f"{qualname} is declared with bind=True but takes no first argument for the context"
                )
            parameters = parameters[1:]
        self.signature = signature.replace(parameters=parameters)
        plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._positional = [p.name for p in plain]
        self._index = {p.name: i for i, p in enumerate(plain) if p.kind is p.POSITIONAL_OR_KEYWORD}
        self._needed = sum(p.default is p.empty for p in plain)
        var_positional = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self._most = sys.maxsize if var_positional else len(plain)
        only = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        self._keyword_only = {p.name: p.default is p.empty for p in only}
        self._var_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """``TypeError`` with the function's name when the arguments do not fit."""
        if not self._fits(len(args), kwargs):
            try:
                self.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self._qualname}(): {error}") from None

    def _fits(self, count: int, kwargs: dict[str, Any]) -> bool:
        """True: they fit. False: probably not."""
        if count > self._most:
            return False
        for name in kwargs:
            position = self._index.get(name)
            if position is None:
                if name not in self._keyword_only and not self._var_keyword:
                    return False
            elif position < count:
                return False
        for position in range(count, self._needed):
            name = self._positional[position]
            if name not in kwargs or name not in self._index:  # a name of the positional ones may be one of ``**named``
                return False
        return all(not needed or name in kwargs for name, needed in self._keyword_only.items())
