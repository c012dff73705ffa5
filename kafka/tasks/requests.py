"""Questions to the owners of the schedule: a command with a request id, and the answer to it.

The request id is one of this client's own, so the answer, a state record SUCCESS of that id with a JSON object, is
waited for as a job's result is. See :mod:`kafka.tasks.format.commands` for the commands.
"""

from __future__ import annotations

import json
from typing import Any

from kafka.tasks.backends.base import Backend, RecordFuture
from kafka.tasks.deadline import Deadline, run_in_thread
from kafka.tasks.errors import JobTimeout
from kafka.tasks.format.commands import OF_JOBS, encode_command, partition_of_entry, partition_of_job
from kafka.tasks.states import JobState
from kafka.tasks.waiting import Blocking, Dialogue, WaitForEnd, is_final, run


def ask(
    backend: Backend, kind: str, subject: str, timeout: float | None, *, partition: int | None = None, **fields: Any
) -> dict[str, Any]:
    """The answer of the schedule's owner to a command about ``subject``, a job's id or an entry's name, or to one
    about a ``partition``. ``fields``: those of :func:`kafka.tasks.format.commands.encode_command`.

    :class:`JobTimeout` when there is none within ``timeout`` seconds; the producer's error when the command could not
    be written.
    """
    return run(asking(backend, kind, subject, timeout, partition, **fields))


def asking(
    backend: Backend, kind: str, subject: str, timeout: float | None, partition: int | None = None, **fields: Any
) -> Dialogue[dict[str, Any]]:
    """The dialogue of :func:`ask`."""
    deadline = Deadline(timeout)
    yield from connecting(backend, timeout)
    request, sent = yield Blocking(lambda: _send(backend, kind, subject, partition, fields))

    def raise_if_not_sent() -> None:
        if sent.is_done and sent.exception is not None:
            raise sent.exception

    record = yield WaitForEnd(backend, request, deadline.left_s(), sent, check=raise_if_not_sent)
    if not is_final(record):
        about = f" of {subject}" if subject else ""
        limit = "" if timeout is None else f" within {round(timeout, 2):g} s"
        raise JobTimeout(
            f"no owner of the schedule of app {backend.app} has answered {kind}{about}{limit}: run "
            "`python -m kafka worker MODULE:APP` with a process pool, or `python -m kafka scheduler MODULE:APP`; the "
            "command is kept, and carried out then"
        )
    answer = json.loads(record.value) if record.state is JobState.SUCCESS else record.detail()
    return answer if isinstance(answer, dict) else {}


def connecting(backend: Backend, timeout: float | None) -> Dialogue[None]:
    """The dialogue after which commands can be sent, and the broker's time is known; :class:`JobTimeout` when that
    takes more than ``timeout`` seconds. It goes on in the background then."""
    if not backend.has_schedule:

        def connect() -> None:
            ready = run_in_thread("kafka-task-queue-schedule", backend.schedule_partitions)
            if not ready.wait(timeout):
                raise JobTimeout(f"the topics of the schedule were not ready at {backend.address} within {timeout} s")
            ready.result()

        yield Blocking(connect)


def _send(
    backend: Backend, kind: str, subject: str, partition: int | None, fields: dict[str, Any]
) -> tuple[str, RecordFuture]:
    request = backend.new_id()
    if partition is None:
        partition_of = partition_of_job if kind in OF_JOBS else partition_of_entry
        partition = partition_of(subject, backend.schedule_partitions())
    record = encode_command(kind, subject, request=request, **fields)
    return request, backend.send_command(record, partition)
