"""Running one job where it runs: arguments in, user code, an :class:`kafka.tasks.outcome.Outcome` out.

:func:`run` never raises and touches nothing but its job; every pool calls it, in a thread or (later) in a child. A
:class:`Job` is one attempt about to run: its envelope, its task, its limits, and what the pool notes about the run.
"""

from __future__ import annotations

import time
import traceback
from typing import Any

from kafka.tasks.context import Context
from kafka.tasks.delivery import Lease
from kafka.tasks.envelope import Envelope
from kafka.tasks.errors import BadRecord, Cancel, NotSerialisable
from kafka.tasks.outcome import Cancelled, Failed, Fault, Outcome, Succeeded
from kafka.tasks.payload import decode_call, encode_value
from kafka.tasks.task import Task

TEXT_CHARACTERS = 4_000
TRACEBACK_CHARACTERS = 16_000
TEXT_BYTES = 8_000
TRACEBACK_BYTES = 32_000
"""Longer texts of errors are cut, with a note of how much is gone. Both together fit into what a dead record may have
beside the largest payload (:data:`kafka.tasks.topics.HEADROOM_BYTES`): one that its topic refused would never end.
"""


class Job:
    """One attempt of a job in this worker.

    ``soft_s`` and ``hard_s`` are the limits that hold for it (None: none). ``cancelled`` is set by the worker and read
    by the task through its context; ``started_at`` and ``ran_s`` (monotonic seconds) are set by whoever runs it.
    """

    __slots__ = ("cancelled", "crashes", "envelope", "hard_s", "lease", "ran_s", "soft_s", "started_at", "task")

    def __init__(
        self,
        lease: Lease,
        envelope: Envelope,
        task: Task[..., Any],
        soft_s: float | None = None,
        hard_s: float | None = None,
        crashes: int = 0,
    ) -> None:
        self.lease = lease
        self.envelope = envelope
        self.task = task
        self.soft_s = soft_s
        self.hard_s = hard_s
        self.crashes = crashes
        self.cancelled = False
        self.started_at: float | None = None
        self.ran_s = 0.0

    def __repr__(self) -> str:
        return f"<Job {self.envelope.name} {self.envelope.id} attempt {self.envelope.attempt}>"


def run(job: Job) -> Outcome:
    """Run the job in this thread and say what came of it. Takes the time of the run down in ``job``."""
    job.started_at = started_at = time.monotonic()
    try:
        return _run(job, job.task)
    except BaseException as error:
        return Failed(fault_of(error, skip=2), job.task.retries(error))
    finally:
        job.ran_s = time.monotonic() - started_at


def _run(job: Job, task: Task[..., Any]) -> Outcome:
    envelope = job.envelope
    try:
        args, kwargs = decode_call(envelope.value)
    except BadRecord as error:
        return Failed(Fault("BadRecord", error.text), listed=False)
    try:
        if task.bind:
            context = Context(
                envelope.id, envelope.name, envelope.attempt, job.lease.deliveries, lambda: job.cancelled
            )
            value = task.function(context, *args, **kwargs)
        else:
            value = task.function(*args, **kwargs)
    except Cancel as cancel:
        return Cancelled(_text(cancel.reason))
    if isinstance(value, Cancel):
        return Cancelled(_text(value.reason))
    stored = envelope.store_result if envelope.store_result is not None else task.store_result
    if not stored:
        return Succeeded(b"")
    try:
        return Succeeded(encode_value(envelope.name, value))
    except NotSerialisable as error:
        return Failed(Fault("NotSerialisable", str(error.args[0])), listed=False)


def fault_of(error: BaseException, skip: int = 0) -> Fault:
    """An exception as data, without the first ``skip`` frames, which are ours."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    frames = error.__traceback__
    for _ in range(skip):
        frames = frames.tb_next if frames is not None and frames.tb_next is not None else frames
    try:
        lines = "".join(traceback.format_exception(kind, error, frames))
    except BaseException as second:
        lines = f"<its traceback cannot be made: {type(second).__name__}>"
    return Fault(name, _text(error), cut(lines, TRACEBACK_CHARACTERS, TRACEBACK_BYTES))


def _text(value: object) -> str:
    """What the user's object says of itself, whatever its ``__str__`` does."""
    try:
        text = str(value)
    except BaseException as error:
        text = f"<its text cannot be made: {type(error).__name__}>"
    return cut(text, TEXT_CHARACTERS, TEXT_BYTES)


def cut(text: str, most: int, most_bytes: int) -> str:
    """``text``, or its first and last part with a note of how many characters are left out between.

    ``most_bytes`` is that of the parts as UTF-8.
    """
    half = min(len(text), most) // 2
    if len(text) <= most and _size(text) <= most_bytes:
        return text
    while _size(text[:half] + text[-half:]) > most_bytes:
        half = half * 3 // 4
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))
