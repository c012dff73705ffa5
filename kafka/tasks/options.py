"""The options of a task (``@app.task(...)``) and of one call (``task.using(...)``), checked where they are written; and
the numbers of a worker, which come from an app's settings and the command line.

An unknown option, one that makes no sense, and one that this release does not carry yet each raise at once:
nothing is cut or ignored silently. A new option is one more row of a table here, a field of its class, and a keyword:
of :class:`CallKeywords` for calls, of ``App.task`` for declarations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, TypedDict

from kafka.errors import IllegalArgumentError
from kafka.tasks.errors import did_you_mean
from kafka.tasks.format.envelope import MOST_EXTRA, OWN_HEADERS, RESERVED, Header
from kafka.tasks.format.serializers import check_serializer
from kafka.tasks.format.topics import check_queue
from kafka.tasks.retry import Retry
from kafka.tasks.settings import Seconds, check_limits, flag, optional, retry_policy, seconds
from kafka.tasks.start_time import StartTime, instant_ms, start_time

MOST_HEADER_NAME = 250
"""Characters of a header's name."""

KeyFunction: TypeAlias = "Callable[..., str | bytes | None]"
"""Returns the key of a job from the arguments of its task; None: it has no key."""

LATER: Mapping[str, str] = {
    "unique": "the schedule",
    "debounce": "the schedule",
    "debounce_always_delay": "the schedule",
    "rate": "the schedule",
    "concurrency": "the schedule",
    "can_overlap": "the schedule",
    "fair_by": "the schedule",
    "fencing": "the schedule",
}
"""Options of the design that this release refuses, and what they wait for."""

_ELSEWHERE: Mapping[str, str] = {
    "ordered": 'a queue is ordered, not {what}: ledger = app.queue("ledger", ordered=True), and queue=ledger',
    "ordered_by": "ordered_by is an option of a task; {what} says its key itself: key=...",
    "key": 'key is an option of a call: task.using(key="user-7").delay(...); for all calls of a task, ordered_by=',
}
"""Where an option is that others than those of the table do not have; ``what`` has not."""

MOST_KEY_BYTES = 1_000
"""Of a job's key, in UTF-8."""


@dataclass(frozen=True)
class TaskOptions:
    """What a task's declaration says. None: the app's setting holds; ``expires`` None: never."""

    name: str | None = None
    queue: str | None = None
    retry: Retry | None = None
    timeout: float | None = None
    soft_timeout: float | None = None
    expires: float | None = None
    bind: bool = False
    store_result: bool | None = None
    serializer: str | None = None
    aliases: tuple[str, ...] = ()
    ordered_by: KeyFunction | None = None


@dataclass(frozen=True)
class CallOptions:
    """What one call says. None: the task's option holds. ``headers``: of the caller's own. ``delay``: in seconds, and
    ``eta``: in ms since the epoch; None: it starts at once. ``key``: as the record has it."""

    queue: str | None = None
    timeout: float | None = None
    soft_timeout: float | None = None
    expires: float | None = None
    store_result: bool | None = None
    serializer: str | None = None
    headers: tuple[Header, ...] = ()
    delay: float | None = None
    eta: int | None = None
    key: bytes | None = None

    @property
    def start(self) -> StartTime | None:
        """When it starts, if it says so."""
        return start_time(self.delay, self.eta)


class SendKeywords(TypedDict, total=False):
    """What ``app.send`` takes besides its parameters, for editors and type checkers."""

    timeout: Seconds | None
    soft_timeout: Seconds | None
    expires: Seconds | None
    store_result: bool | None
    serializer: str | None
    headers: Mapping[str, str | bytes] | None
    delay: Seconds | None
    eta: datetime | None
    key: str | bytes | None


class CallKeywords(SendKeywords, total=False):
    """What ``task.using`` takes."""

    queue: str | None


@dataclass(frozen=True)
class WorkerOptions:
    """Numbers of a worker; seconds. ``timeout_s`` and ``soft_timeout_s`` hold where neither call nor task says any."""

    crash_limit: int = 3
    stop_grace_s: float = 20.0
    kill_grace_s: float = 5.0
    track_started: bool = False
    timeout_s: float | None = None
    soft_timeout_s: float | None = None
    unknown_ttl_s: float = 86_400.0


def is_task_name(text: str) -> bool:
    """Whether a task can be called so."""
    return 0 < len(text) <= 250 and text.isprintable()


def check_task_name(option: str, value: Any) -> str:
    """``value`` itself when a task can be called so."""
    if not isinstance(value, str) or not is_task_name(value):
        raise IllegalArgumentError(f"{option} must be a str of 1 to 250 printable characters, not {value!r}")
    return value


def _queue(option: str, value: Any) -> str:
    return check_queue(value)


def _aliases(option: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise IllegalArgumentError(f"{option} must be a tuple of former names of the task, not {value!r}")
    return tuple(check_task_name("an alias", name) for name in value)


def _headers(option: str, value: Any) -> tuple[Header, ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping) or len(value) > MOST_EXTRA:
        most = f"a dict of at most {MOST_EXTRA} names with str or bytes"
        raise IllegalArgumentError(f"{option} must be {most}, not {value!r:.100}")
    return tuple((_header_name(option, name), _header_value(option, name, each)) for name, each in value.items())


def _header_name(option: str, name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MOST_HEADER_NAME or not name.isprintable():
        raise IllegalArgumentError(
            f"{option}: a name must be a str of 1 to {MOST_HEADER_NAME} printable characters, not {name!r}"
        )
    if name in OWN_HEADERS or name.startswith(RESERVED):
        raise IllegalArgumentError(f"{option}: a job has a header {name!r} of its own; choose another name")
    return name


def _header_value(option: str, name: str, value: Any) -> bytes:
    with contextlib.suppress(UnicodeEncodeError):
        if isinstance(value, (str, bytes)):
            return value.encode() if isinstance(value, str) else value
    raise IllegalArgumentError(f"{option}: the value of {name!r} must be str (of valid UTF-8) or bytes, not {value!r}")


def _function(option: str, value: Any) -> KeyFunction:
    if not callable(value):
        example = "ordered_by=lambda user_id: f'user-{user_id}'"
        raise IllegalArgumentError(
            f"{option} must be a function of the task's arguments that returns a job's key, such as {example}, "
            f"not {value!r:.100}"
        )
    function: KeyFunction = value
    return function


def check_key(option: str, value: Any) -> bytes:
    """``value`` as the key of a record when it can be a job's key."""
    with contextlib.suppress(UnicodeEncodeError):
        key = value.encode() if isinstance(value, str) else value
        if isinstance(key, bytes) and 0 < len(key) <= MOST_KEY_BYTES:
            return key
    hint = f": use str({value!r})" if isinstance(value, int) else ""
    raise IllegalArgumentError(
        f"{option} must be a str or bytes of 1 to {MOST_KEY_BYTES:,} bytes, such as 'user-7', which says which jobs "
        f"belong together (jobs of the same key run in order in an ordered queue), not {value!r:.100}{hint}"
    )


_CALL: dict[str, Callable[[str, Any], Any]] = {
    "queue": optional(_queue),
    "timeout": optional(seconds),
    "soft_timeout": optional(seconds),
    "expires": optional(seconds),
    "store_result": optional(flag),
    "serializer": optional(check_serializer),
    "headers": _headers,
    "delay": optional(seconds),
    "eta": optional(instant_ms),
    "key": optional(check_key),
}
_OF_CALLS = frozenset({"headers", "delay", "eta", "key"})
_TASK: dict[str, Callable[[str, Any], Any]] = {
    **{name: check for name, check in _CALL.items() if name not in _OF_CALLS},
    "aliases": _aliases,
    "name": optional(check_task_name),
    "retry": optional(retry_policy),
    "bind": flag,
    "ordered_by": optional(_function),
}


def task_options(given: Mapping[str, Any]) -> TaskOptions:
    """The options of a declaration; :class:`IllegalArgumentError` for what cannot be."""
    return TaskOptions(**_checked("a task", given, _TASK))


def call_options(given: Mapping[str, Any]) -> CallOptions:
    """The options of a call; :class:`IllegalArgumentError` for what cannot be."""
    options = CallOptions(**_checked("a call", given, _CALL))
    if options.delay is not None and options.eta is not None:
        raise IllegalArgumentError("delay and eta both say when the job starts: give one of them")
    return options


def _checked(what: str, given: Mapping[str, Any], table: Mapping[str, Callable[[str, Any], Any]]) -> dict[str, Any]:
    for name in given:
        if name in LATER:
            raise IllegalArgumentError(
                f"the option {name!r} of {what} needs {LATER[name]}, which this release does not have yet"
            )
        if name not in table and name in _ELSEWHERE:
            raise IllegalArgumentError(_ELSEWHERE[name].format(what=what))
        if name not in table and name in _OF_CALLS:
            raise IllegalArgumentError(f"{name} is an option of a call: task.using({name}=...).delay(...)")
        if name not in table:
            raise IllegalArgumentError(f"{what} has no option {name!r}{did_you_mean(name, table)}")
    values = {name: table[name](name, value) for name, value in given.items()}
    check_limits(values.get("soft_timeout"), values.get("timeout"))
    return values


def limits(*nearest_first: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
    """The soft and the hard limit that hold for a run: of each, the nearest that is said (call, task, worker, app).

    They may come from different places, which were checked apart. A soft limit that is not below the hard one would
    never be reached, and is left out.
    """
    soft = next((soft for soft, _ in nearest_first if soft is not None), None)
    hard = next((hard for _, hard in nearest_first if hard is not None), None)
    if soft is not None and hard is not None and soft >= hard:
        return None, hard
    return soft, hard
