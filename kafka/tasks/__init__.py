"""Background jobs on Kafka: a queue is a topic, a job is a record, and the log is the truth.

``App`` declares tasks and enqueues jobs, ``JobHandle`` is what ``delay`` gives back, ``python -m kafka worker`` runs
them. Modules from the caller to the broker: ``app task options settings payload envelope ids jobs backend``; from the
broker to the user's function and back: ``delivery worker leases admission outcome source_buffers runtime_estimate
suspects dispatcher pools runner context hooks completion state_records settlement shutdown``; ``results`` and
``topics`` are shared by both, ``serve`` and ``loader`` start a worker, ``health`` and ``dump`` report on it.
"""

from __future__ import annotations

from kafka.tasks.app import App, Batch
from kafka.tasks.context import Context
from kafka.tasks.errors import (
    BadRecord,
    Cancel,
    JobFailed,
    JobRevoked,
    JobTimeout,
    JobUnknown,
    LoadError,
    NoResult,
    NotSerialisable,
    PayloadTooLarge,
    PoolFailed,
    SoftTimeLimit,
    TaskError,
    TaskInMain,
    TimeLimit,
    UnknownQueue,
    WorkerLost,
)
from kafka.tasks.health import ChildSnapshot, Directory, RunningJob, Seen, WorkerSnapshot
from kafka.tasks.health import parse_address as parse_health_port
from kafka.tasks.hooks import FinishedJob
from kafka.tasks.jobs import JobHandle
from kafka.tasks.loader import load
from kafka.tasks.pools import (
    MOST_CONCURRENCY,
    POOLS,
    PoolSettings,
    check_pool,
    default_pool,
    parse_autoscale,
    parse_memory,
    start_methods,
)
from kafka.tasks.retry import Retry, expo
from kafka.tasks.serve import check_queues, run_worker
from kafka.tasks.states import EXCEPTION, FULL_RUN, READY, UNREADY, JobState
from kafka.tasks.task import Call, Task

__all__ = [
    "EXCEPTION",
    "FULL_RUN",
    "MOST_CONCURRENCY",
    "POOLS",
    "READY",
    "UNREADY",
    "App",
    "BadRecord",
    "Batch",
    "Call",
    "Cancel",
    "ChildSnapshot",
    "Context",
    "Directory",
    "FinishedJob",
    "JobFailed",
    "JobHandle",
    "JobRevoked",
    "JobState",
    "JobTimeout",
    "JobUnknown",
    "LoadError",
    "NoResult",
    "NotSerialisable",
    "PayloadTooLarge",
    "PoolFailed",
    "PoolSettings",
    "Retry",
    "RunningJob",
    "Seen",
    "SoftTimeLimit",
    "Task",
    "TaskError",
    "TaskInMain",
    "TimeLimit",
    "UnknownQueue",
    "WorkerLost",
    "WorkerSnapshot",
    "check_pool",
    "check_queues",
    "default_pool",
    "expo",
    "load",
    "parse_autoscale",
    "parse_health_port",
    "parse_memory",
    "run_worker",
    "start_methods",
]
