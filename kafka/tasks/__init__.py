"""Background jobs on Kafka: a queue is a topic, a job is a record, and the log is the truth.

``App`` declares tasks and enqueues jobs, ``JobHandle`` is what ``delay`` gives back, ``python -m kafka worker`` runs
them. What users import is in the modules of this package (``app task job options settings retry states errors``); the
rest by concern::

    format     every layout of what is written: envelope, payload, state records, job ids, topics   (pure)
    rules      tables: may a job run, what follows from an outcome                                   (pure)
    worker     the worker's state machine, its parts, the driver that runs it on a loop
    schedule   the times of periodic jobs                                                            (pure)
    delivery   how a worker gets jobs and finishes them: share groups
    results    states of jobs as readers see them: view, look-up, reader
    backends   where jobs are kept, by the scheme of ``bootstrap_servers``
    pools      how jobs run: in threads, on an event loop, in child processes
    health     probes, metrics, snapshots
    testing    jobs in the thread of a test, by its clock, and of a console
"""

from __future__ import annotations

import kafka._name_clash  # noqa: F401 (before another import fails for it)
from kafka.tasks.app import App, Batch
from kafka.tasks.app_schedule import PeriodicEntry, Schedule
from kafka.tasks.context import Context
from kafka.tasks.dead import DeadCounts, DeadJob, DeadJobs, DeadSelection
from kafka.tasks.errors import (
    BadRecord,
    Cancel,
    JobFailed,
    JobRevoked,
    JobsNotSent,
    JobTimeout,
    JobUnknown,
    LoadError,
    NoResult,
    NotSerialisable,
    PayloadTooLarge,
    PoolFailed,
    RetryAt,
    Snooze,
    SoftTimeLimit,
    TaskError,
    TaskInMain,
    TimeLimit,
    UnknownApp,
    UnknownQueue,
    WorkerLost,
)
from kafka.tasks.health import (
    ChildSnapshot,
    Directory,
    QueueDelivery,
    QueueExporter,
    QueueJobs,
    QueueLength,
    RunningJob,
    Seen,
    WorkerSnapshot,
)
from kafka.tasks.health import parse_address as parse_health_port
from kafka.tasks.hooks import FinishedJob
from kafka.tasks.job import CancelResult, JobHandle
from kafka.tasks.pools import (
    MOST_CONCURRENCY,
    POOLS,
    PoolSettings,
    check_pool,
    default_pool,
    parse_autoscale,
    parse_count,
    parse_memory,
    parse_seconds,
    start_methods,
)
from kafka.tasks.retry import Retry, expo
from kafka.tasks.settings import SETTINGS as APP_SETTINGS
from kafka.tasks.states import EXCEPTION, FULL_RUN, READY, UNREADY, JobState
from kafka.tasks.task import Call, Task
from kafka.tasks.worker.driver import check_queues, run_scheduler, run_worker
from kafka.tasks.worker.loader import load

__all__ = [
    "APP_SETTINGS",
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
    "CancelResult",
    "ChildSnapshot",
    "Context",
    "DeadCounts",
    "DeadJob",
    "DeadJobs",
    "DeadSelection",
    "Directory",
    "FinishedJob",
    "JobFailed",
    "JobHandle",
    "JobRevoked",
    "JobState",
    "JobTimeout",
    "JobUnknown",
    "JobsNotSent",
    "LoadError",
    "NoResult",
    "NotSerialisable",
    "PayloadTooLarge",
    "PeriodicEntry",
    "PoolFailed",
    "PoolSettings",
    "QueueDelivery",
    "QueueExporter",
    "QueueJobs",
    "QueueLength",
    "Retry",
    "RetryAt",
    "RunningJob",
    "Schedule",
    "Seen",
    "Snooze",
    "SoftTimeLimit",
    "Task",
    "TaskError",
    "TaskInMain",
    "TimeLimit",
    "UnknownApp",
    "UnknownQueue",
    "WorkerLost",
    "WorkerSnapshot",
    "check_pool",
    "check_queues",
    "default_pool",
    "expo",
    "load",
    "parse_autoscale",
    "parse_count",
    "parse_health_port",
    "parse_memory",
    "parse_seconds",
    "run_scheduler",
    "run_worker",
    "start_methods",
]
