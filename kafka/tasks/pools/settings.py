"""The knobs of a pool, each with its check. They are read by pools; who fills them is the command line, and the tests.

A new knob is a field of :class:`PoolSettings` and, when a value can be wrong, a line in its ``__post_init__``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka.errors import IllegalArgumentError
from kafka.tasks.errors import did_you_mean
from kafka.tasks.settings import LONGEST_S, check_limits

if TYPE_CHECKING:
    from kafka.tasks.app import App

MOST_CONCURRENCY = 1000
"""Slots of one worker; for more jobs at once, run more workers."""

MOST_PREFETCH = 1000

PROCESS_POOLS = frozenset({"fork", "prefork"})
"""Pools that need ``os.fork``, and an app that can be loaded by its path unless the start method is fork."""

START_METHODS: Mapping[str, tuple[str, ...]] = {
    "linux": ("fork", "forkserver", "spawn"),
    "darwin": ("spawn", "forkserver", "fork"),
    "win32": (),
}
"""Platform -> start methods that it has, the default first. Forking without exec is unsafe with macOS's own libraries,
so it is not the default there. Platforms without a row (the BSDs) are taken for Linux.
"""

_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?\s*", re.IGNORECASE)

LEAST_MEMORY = 1 << 20
"""No interpreter is smaller: a lower limit has its unit forgotten."""

_RANGES: Mapping[str, tuple[int, int]] = {
    "max_jobs_per_child": (1, 10**12),
    "prefetch": (1, MOST_PREFETCH),
    "breaker_failures": (1, 10**6),
}
"""Field of :class:`PoolSettings` that is an integer -> its least and its highest value."""


def start_methods(platform: str = sys.platform) -> tuple[str, ...]:
    """The start methods of a platform, its default first; none where there is no ``fork``."""
    return START_METHODS.get(platform, START_METHODS["linux"])


def check_start_method(method: str | None, platform: str = sys.platform) -> str:
    """``method``, or the platform's default for None; an error for one that it lacks."""
    methods = start_methods(platform)
    if not methods:
        raise IllegalArgumentError(f"the platform {platform!r} has no fork: its pools are inline, threads and asyncio")
    if method is None:
        return methods[0]
    if method not in START_METHODS["linux"]:
        raise IllegalArgumentError(f"unknown start method {method!r}{did_you_mean(method, START_METHODS['linux'])}")
    if method not in methods:
        raise IllegalArgumentError(
            f"the start method {method!r} is not available on {platform}: use {', '.join(methods)}"
        )
    return method


def parse_size(name: str, text: str) -> int:
    """``512M`` as bytes: a number with K, M, G or T (powers of 1024), or plain bytes."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise IllegalArgumentError(f"{name} must be a size such as 512M, 1.5G or plain bytes, not {text!r}")
    return int(float(match[1]) * _SUFFIXES[match[2].upper()])


def parse_memory(name: str, text: str) -> tuple[int, int | None]:
    """``SOFT[,HARD]`` as two sizes, checked as :class:`PoolSettings` does; errors name ``name`` and no field."""
    soft_text, comma, hard_text = text.partition(",")
    soft, hard = parse_size(name, soft_text), parse_size(name, hard_text) if comma else None
    _check_memory(name, name, soft, hard)
    return soft, hard


def parse_autoscale(name: str, text: str) -> tuple[int, int]:
    """``MIN,MAX`` as two numbers of slots, checked as :class:`PoolSettings` does."""
    least, comma, most = text.partition(",")
    if not comma or not least.strip().isdecimal() or not most.strip().isdecimal():
        raise IllegalArgumentError(f"{name} must be MIN,MAX, two numbers of slots such as 2,8, not {text!r}")
    autoscale = int(least), int(most)
    _check_autoscale(name, autoscale)
    return autoscale


def parse_count(name: str, field: str, text: str) -> int:
    """The text as a value of a field of :class:`PoolSettings` that is an integer; errors name ``name``."""
    try:
        value = int(text)
    except ValueError:
        raise IllegalArgumentError(f"{name} must be an integer, not {text!r}") from None
    _whole(name, value, *_RANGES[field])
    return value


def parse_seconds(name: str, text: str) -> float:
    """The text as a value of a field of :class:`PoolSettings` that is a time in seconds; errors name ``name``."""
    try:
        value = float(text)
    except ValueError:
        raise IllegalArgumentError(f"{name} must be a number of seconds, not {text!r}") from None
    _seconds(name, value, optional=False)
    return value


@dataclass(frozen=True)
class PoolSettings:
    """How a pool runs its jobs. :class:`IllegalArgumentError` for what makes no sense.

    ``app`` and ``app_path`` (MODULE:APP) are for pools of processes: start method ``fork`` uses the first, the others
    load the second. ``timeout`` and ``soft_timeout`` are the worker's, for jobs whose call and task say nothing; a
    :class:`kafka.tasks.pools.runner.Job` carries what holds for it, and pools read that only.
    """

    concurrency: int = 1
    app: App | None = None
    app_path: str | None = None
    start_method: str | None = None
    """None: the platform's default."""
    timeout: float | None = None
    soft_timeout: float | None = None
    kill_grace: float = 5.0
    """Seconds between SIGTERM and SIGKILL."""
    max_jobs_per_child: int | None = None
    """A child is replaced after so many jobs, 10 % more or less."""
    max_memory_soft: int | None = None
    """Bytes of RSS above which a child is replaced after its job."""
    max_memory_hard: int | None = None
    """Bytes of RSS above which a child is killed."""
    autoscale: tuple[int, int] | None = None
    """Fewest and most slots; ``concurrency`` is then where to begin, and is put between them."""
    prefetch: int | None = None
    """Jobs with one child at once, the running one included. 1: only idle children are given jobs (fair). None: as
    many as the worker lets the pool hold, which is 1 each while jobs are long; an idle child takes those of a busy one.
    """
    start_limit: float = 60.0
    """Seconds from the start of a child until it must be up."""
    breaker_failures: int = 5
    """So many starts that failed one after another, with no child up, open the breaker."""
    process_per_job: bool = False
    """Children fork a process for each job (Linux); the pool ``fork`` sets it."""

    def __post_init__(self) -> None:
        """Checks each number's range, then what has to fit together: soft below hard limits, MIN not above MAX, /proc
        for memory limits."""
        _whole("the concurrency of a pool", self.concurrency, 1, MOST_CONCURRENCY)
        for name in ("timeout", "soft_timeout", "kill_grace", "start_limit"):
            _seconds(name, getattr(self, name), optional=name in ("timeout", "soft_timeout"))
        check_limits(self.soft_timeout, self.timeout)
        for name, (least, most) in _RANGES.items():
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), least, most)
        soft, hard = self.max_memory_soft, self.max_memory_hard
        _check_memory("max_memory_soft", "max_memory_hard", soft, hard)
        if (soft is not None or hard is not None) and not os.path.exists("/proc/self/stat"):
            raise IllegalArgumentError("a memory limit for children needs /proc, which this system does not have")
        if self.start_method is not None:
            check_start_method(self.start_method)
        if self.autoscale is not None:
            _check_autoscale("autoscale", self.autoscale)

    @property
    def slots(self) -> int:
        """How many slots to begin with."""
        if self.autoscale is None:
            return self.concurrency
        return min(max(self.concurrency, self.autoscale[0]), self.autoscale[1])


def _check_memory(soft_name: str, hard_name: str, soft: int | None, hard: int | None) -> None:
    for name, limit in ((soft_name, soft), (hard_name, hard)):
        if limit is not None:
            _whole(name, limit, LEAST_MEMORY, 1 << 60, " bytes")
    if hard is not None and soft is not None and soft >= hard:
        names = soft_name if soft_name == hard_name else f"{soft_name} and {hard_name}"
        raise IllegalArgumentError(
            f"{names}: the soft memory limit of a child ({soft:,} bytes) must be below the hard one ({hard:,} bytes)"
        )


def _check_autoscale(name: str, autoscale: tuple[int, int]) -> None:
    least, most = autoscale
    _whole(f"the least of {name}", least, 1, MOST_CONCURRENCY)
    _whole(f"the most of {name}", most, 1, MOST_CONCURRENCY)
    if least > most:
        raise IllegalArgumentError(f"{name} must be MIN,MAX with MIN not above MAX, not {least},{most}")


def _whole(name: str, value: Any, least: int, most: int, unit: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise IllegalArgumentError(f"{name} must be an integer from {least} to {most}{unit}, not {value!r}")


def _seconds(name: str, value: Any, optional: bool) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LONGEST_S:
        raise IllegalArgumentError(f"{name} must be a number of seconds above 0 (and below a century), not {value!r}")
