"""Cancelled jobs, as the schedule's owners tell workers of them: records of ``APP.cancelled``, in one partition.

::

    key       the job's id
    headers   terminate   1: the child process that runs it is to be ended
    value     empty
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from kafka.tasks.format.envelope import Header
from kafka.tasks.format.job_id import is_id

TERMINATE = "terminate"


class CancelledJob(NamedTuple):
    """A job that is not to run, or not to the end. ``kept_until_ms``: when the topic loses it, broker time."""

    id: str
    is_terminating: bool = False
    kept_until_ms: float = inf


def encode_cancelled(job_id: str, is_terminating: bool) -> tuple[bytes, list[Header]]:
    """Key and headers of a record."""
    return job_id.encode(), [(TERMINATE, b"1")] if is_terminating else []


def decode_cancelled(
    key: bytes | None, headers: Sequence[Header], kept_until_ms: float = inf
) -> CancelledJob | None:
    """The job in a record; None when it is of another kind."""
    job_id = str(key or b"", "ascii", "replace")
    return CancelledJob(job_id, (TERMINATE, b"1") in headers, kept_until_ms) if is_id(job_id) else None
