"""Background jobs on Kafka: a queue is a topic, a job is a record, and the log is the truth.

``App`` declares tasks and enqueues jobs, ``JobHandle`` is what ``delay`` gives back, ``python -m kafka worker`` runs
them. Inside, each module says what it is. From the caller to the broker: ``app task options settings payload envelope
ids jobs backend``; from the broker to the user's function and back: ``delivery worker pace admission outcome runner
context pools consequences settling``; ``results`` and ``topics`` are shared by both, ``serve`` and ``loader`` start it.
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
    NotSerialisable,
    PayloadTooLarge,
    SoftTimeLimit,
    TaskError,
    TaskInMain,
    TimeLimit,
    UnknownQueue,
)
from kafka.tasks.jobs import JobHandle
from kafka.tasks.loader import load
from kafka.tasks.pools import MOST_CONCURRENCY, check_pool
from kafka.tasks.retry import Retry, expo
from kafka.tasks.serve import check_queues, run_worker
from kafka.tasks.states import EXCEPTION, FULL_RUN, READY, UNREADY, JobState
from kafka.tasks.task import Call, Task

__all__ = [
    "EXCEPTION",
    "FULL_RUN",
    "MOST_CONCURRENCY",
    "READY",
    "UNREADY",
    "App",
    "BadRecord",
    "Batch",
    "Call",
    "Cancel",
    "Context",
    "JobFailed",
    "JobHandle",
    "JobRevoked",
    "JobState",
    "JobTimeout",
    "JobUnknown",
    "LoadError",
    "NotSerialisable",
    "PayloadTooLarge",
    "Retry",
    "SoftTimeLimit",
    "Task",
    "TaskError",
    "TaskInMain",
    "TimeLimit",
    "UnknownQueue",
    "check_pool",
    "check_queues",
    "expo",
    "load",
    "run_worker",
]
