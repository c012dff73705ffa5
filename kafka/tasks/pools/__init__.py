"""How a worker runs jobs: the pools by name, and the loop that they share with the worker.

A pool is imported when it is asked for: ``python -m kafka worker --help`` needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from kafka.errors import IllegalArgumentError
from kafka.net.loop import Loop
from kafka.tasks.errors import did_you_mean
from kafka.tasks.pools.base import ChildSnapshot, Finished, Pool, Run, Wake
from kafka.tasks.pools.runner import Job
from kafka.tasks.pools.runner import run as run_job
from kafka.tasks.pools.settings import (
    MOST_CONCURRENCY,
    PROCESS_POOLS,
    PoolSettings,
    check_start_method,
    parse_autoscale,
    parse_count,
    parse_memory,
    parse_seconds,
    start_methods,
)
from kafka.tasks.rules.outcome import Outcome

__all__ = [
    "MOST_CONCURRENCY",
    "POOLS",
    "PROCESS_POOLS",
    "ChildSnapshot",
    "Finished",
    "Pool",
    "PoolSettings",
    "Run",
    "Wake",
    "check_pool",
    "check_start_method",
    "default_pool",
    "make_loop",
    "make_pool",
    "parse_autoscale",
    "parse_count",
    "parse_memory",
    "parse_seconds",
    "start_methods",
]

POOLS: dict[str, str] = {
    "inline": "kafka.tasks.pools.inline:InlinePool",
    "threads": "kafka.tasks.pools.threads:ThreadPool",
    "asyncio": "kafka.tasks.pools.asyncio_pool:AsyncioPool",
    "fork": "kafka.tasks.pools.fork:ForkPool",
    "prefork": "kafka.tasks.pools.prefork:PreforkPool",
}
"""Name on the command line -> module:class. Those of PROCESS_POOLS are made from (settings, wake, loop), the others
from (run, concurrency, wake).
"""


def make_loop() -> Loop:
    """The select loop of a worker process: brokers' sockets, children's channels, signals and timers."""
    return Loop()


def make_pool(name: str, settings: PoolSettings, wake: Wake, loop: Loop | None = None, run: Run = run_job) -> Pool:
    """The pool of that name; :class:`IllegalArgumentError` for one that is unknown or that the platform lacks.

    ``loop`` (the worker's) is needed by pools of processes, which watch their children's channels on it; ``run`` is
    for those that run jobs in this process.
    """
    check_pool(name)
    module, _, attribute = POOLS[name].partition(":")
    make: Callable[..., Pool] = getattr(import_module(module), attribute)
    if name in PROCESS_POOLS:
        return make(settings, wake, loop)
    return make(_marked(run), settings.slots, wake)


def _marked(run: Run) -> Run:
    """The same, and what is logged meanwhile has the job's name and id."""
    from kafka.tasks.pools import job_logging

    def run_marked(job: Job) -> Outcome:
        job_logging.set_current_job(job.envelope.id, job.envelope.name)
        try:
            return run(job)
        finally:
            job_logging.clear_current_job()

    job_logging.tag_records()
    return run_marked


def check_pool(name: str) -> str:
    """``name`` itself when there is such a pool here; an error that lists the pools otherwise."""
    if name not in POOLS:
        raise IllegalArgumentError(f"unknown pool {name!r}{did_you_mean(name, POOLS)}")
    if name in PROCESS_POOLS:
        check_start_method(None)
    return name


def default_pool() -> str:
    """The default pool: prefork where the platform has it."""
    return "prefork" if start_methods() else "threads"
