"""A worker at one instant: what ``inspect`` shows and Prometheus scrapes, as data and as JSON.

JSON is what travels between machines and releases: a reader ignores what it does not know and takes defaults for what
it misses, and refuses (:class:`kafka.tasks.errors.BadRecord`) what has a wrong type. Texts are the user's own (names of
jobs) or a broker's: they are cut, and what a terminal would obey is taken out when they are read. A new field is a
field here, with a default.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from kafka.tasks.errors import BadRecord
from kafka.tasks.pools.base import ChildSnapshot

MOST_BYTES: Final = 60_000
"""Of the JSON text: the smallest messages that an app's topics can be set to take. Longer lists are cut."""
MOST_CHARACTERS: Final = 500
"""Of one text."""

_NUMBERS: Final[dict[Any, Any]] = {int: int, float: (int, float)}
_MOST: Final[dict[Any, float]] = {int: 1 << 63, float: 1e15}
"""Of numbers that are believed; NaN is not below it."""

T = TypeVar("T")


@dataclass(frozen=True)
class RunningJob:
    """One job that runs now; ``pid`` and ``rss_bytes`` are those of the process that it runs in."""

    id: str
    name: str
    age_s: float = 0.0
    rss_bytes: int | None = None
    pid: int | None = None


@dataclass(frozen=True)
class QueueJobs:
    """Jobs of one queue that a worker holds. ``running``: with its pool, or being settled. Of a queue that is delivered
    by a consumer group also the partitions that are full, and the most characters of offset metadata that one of its
    partitions uses; None: it is not."""

    queue: str
    running: int = 0
    full_partitions: int | None = None
    metadata_characters: int | None = None


@dataclass(frozen=True)
class WorkerSnapshot:
    """One worker. Times in seconds, ``started_ms`` by its own wall clock."""

    id: str
    app: str = ""
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    pool: str = ""
    concurrency: int = 0
    busy: int = 0
    held: int = 0
    """Jobs leased and not settled: running, waiting and being settled."""
    stage: str = ""
    reasons: tuple[str, ...] = ()
    """Why it is not ready; empty when it is."""
    version: str = ""
    started_ms: int = 0
    uptime_s: float = 0.0
    contact_age_s: float | None = None
    """Since the brokers' last answer; None when there was none."""
    rss_bytes: int | None = None
    """Of the worker's own process."""
    counts: dict[str, int] = field(default_factory=dict)
    """Jobs by what became of them: leased, done, ..."""
    pool_counts: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    """Jobs that were lost with their child, by cause."""
    queue_jobs: tuple[QueueJobs, ...] = ()
    """What it holds of each of its queues."""
    children: tuple[ChildSnapshot, ...] = ()
    running: tuple[RunningJob, ...] = ()
    left_out: int = 0
    """Children and running jobs that did not fit in."""

    @property
    def is_ready(self) -> bool:
        """Whether jobs that it leases now would be begun."""
        return not self.reasons

    def aged(self, seconds: float) -> WorkerSnapshot:
        """The same ``seconds`` later, as far as ages go."""
        older = dataclasses.replace
        return older(
            self,
            uptime_s=self.uptime_s + seconds,
            contact_age_s=None if self.contact_age_s is None else self.contact_age_s + seconds,
            children=tuple(
                older(
                    child,
                    age_s=None if child.age_s is None else child.age_s + seconds,
                    last_activity_s=child.last_activity_s + seconds,
                )
                for child in self.children
            ),
            running=tuple(older(job, age_s=job.age_s + seconds) for job in self.running),
        )


def to_dict(snapshot: WorkerSnapshot) -> dict[str, Any]:
    """For JSON."""
    return dataclasses.asdict(snapshot)


def to_json(snapshot: WorkerSnapshot, most_bytes: int = MOST_BYTES) -> bytes:
    """The snapshot as UTF-8 JSON of at most ``most_bytes``; the lists are cut until it fits."""
    whole = len(snapshot.children) + len(snapshot.running)
    while True:
        text = json.dumps(_shortened(to_dict(snapshot)), ensure_ascii=False, separators=(",", ":"))
        data = text.encode("utf-8", "backslashreplace")
        if len(data) <= most_bytes or not (snapshot.children or snapshot.running):
            return data
        children = snapshot.children[: len(snapshot.children) // 2]
        running = snapshot.running[: len(snapshot.running) // 2]
        left_out = snapshot.left_out + whole - len(children) - len(running)
        snapshot = dataclasses.replace(snapshot, children=children, running=running, left_out=left_out)
        whole = len(children) + len(running)


def from_json(data: bytes) -> WorkerSnapshot:
    """What :func:`to_json` wrote, in this release or another; :class:`BadRecord` for anything else."""
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadRecord("snapshot", f"a worker's snapshot is not JSON: {error}") from None
    return _read(WorkerSnapshot, given)


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MOST_CHARACTERS else value[: MOST_CHARACTERS - 3] + "..."
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shortened(each) for each in value]
    return value


def _read(cls: type[T], given: Any) -> T:
    if not isinstance(given, Mapping):
        raise BadRecord("snapshot", f"{cls.__name__} must be a JSON object, not {type(given).__name__}")
    hints = get_type_hints(cls)
    known = {each.name: each for each in dataclasses.fields(cls)}  # type: ignore[arg-type]
    missing = [
        name
        for name, each in known.items()
        if name not in given and each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise BadRecord("snapshot", f"{cls.__name__} has no field {missing[0]}")
    return cls(**{name: _value(name, hints[name], given[name]) for name in known if name in given})


def _value(name: str, hint: Any, value: Any) -> Any:
    """``value`` as the type that the field has."""
    arguments = get_args(hint)
    if type(None) in arguments:
        return None if value is None else _value(name, arguments[0], value)
    origin = get_origin(hint)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(name, arguments[0], each) for each in value)
    if origin is dict and isinstance(value, dict):
        return {_clean(key): _value(name, arguments[1], each) for key, each in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _read(hint, value)
    if hint is str and isinstance(value, str):
        return _clean(value)
    most = _MOST.get(hint)
    if most is not None and isinstance(value, _NUMBERS[hint]) and not isinstance(value, bool) and abs(value) < most:
        return hint(value)
    raise BadRecord("snapshot", f"invalid value of {name} in a worker's snapshot: {str(value)[:100]!r}")


def _clean(text: str) -> str:
    """Without what a terminal takes for a command."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)
