"""What jobs write: log lines that carry the job's id and name, and ``print`` in the order in which it happened.

Every log record made while a job runs has the attributes ``job_id`` and ``job_name`` (empty at other times), for the
formats of those who have their own. Handlers with a plain formatter, or none, get them in front of the message: all in
a child, and those of ``python -m kafka worker`` where jobs run in the worker's own process (a program that runs a pool
itself keeps its handlers as they are). A line that is printed is written at once and as one piece, so what several
children print does not mix within a line.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""Of a child whose parent's format is not known."""


class JobLogContext:
    """Which job runs now, for the log."""

    def __init__(self) -> None:
        self.job_id = ""
        self.job_name = ""

    def install(self) -> None:
        """Mark all records from now on, and show the mark in all handlers that are there."""
        _install_record_factory(lambda: (self.job_id, self.job_name))
        show_jobs()

    def begin(self, job_id: str, job_name: str) -> None:
        """A job is about to run."""
        self.job_id = job_id
        self.job_name = job_name

    def end(self) -> None:
        """It has ended: what it has printed is out before its outcome is."""
        self.job_id = self.job_name = ""
        flush_streams()


_NO_JOB = ("", "")
_current_job: ContextVar[tuple[str, str]] = ContextVar("kafka_tasks_job", default=_NO_JOB)
_is_tagging = False


def tag_records() -> None:
    """Mark all records from now on with the job that runs in their thread, or in their coroutine's task."""
    global _is_tagging
    if not _is_tagging:
        _is_tagging = True
        _install_record_factory(_current_job.get)


def set_current_job(job_id: str, job_name: str) -> None:
    """A job is about to run in this thread, or in this coroutine's task."""
    _current_job.set((job_id, job_name))


def clear_current_job() -> None:
    """It has ended."""
    _current_job.set(_NO_JOB)


def _install_record_factory(which: Callable[[], tuple[str, str]]) -> None:
    make = logging.getLogRecordFactory()

    def marked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        record.job_id, record.job_name = which()
        return record

    logging.setLogRecordFactory(marked)


def show_jobs() -> None:
    """Show the mark in all handlers that are there."""
    for handler in _handlers():
        _show_job(handler)


class JobFormatter(logging.Formatter):
    """A plain formatter with ``name[id]`` in front of the message."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        job_id = getattr(record, "job_id", "")
        if not job_id or record.name == "kafka.tasks.job":  # ctx.log() says it itself
            return super().formatMessage(record)
        message = record.message
        record.message = f"{getattr(record, 'job_name', '')}[{job_id}] {message}"
        try:
            return super().formatMessage(record)
        finally:
            record.message = message


def _show_job(handler: logging.Handler) -> None:
    formatter = handler.formatter
    if formatter is None:
        handler.setFormatter(JobFormatter())
    elif type(formatter) is logging.Formatter and "%(job_" not in str(formatter._fmt):
        shown = copy.copy(formatter)
        shown.__class__ = JobFormatter
        handler.setFormatter(shown)


def _handlers() -> Iterator[logging.Handler]:
    if logging.lastResort is not None:
        yield logging.lastResort
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for logger in loggers:
        yield from getattr(logger, "handlers", ())


def use_line_buffering() -> None:
    """Write what is printed line by line, also into a pipe or a file."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(Exception):
                stream.reconfigure(line_buffering=True)


def flush_streams() -> None:
    """Write out what was printed without the end of a line; whatever user code has made of the streams."""
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105  # each process of a job would copy the pages of contextlib for it
            stream.flush()
        except Exception:  # closed, or none of ours
            pass


def logging_config() -> dict[str, Any]:
    """How this process logs, for a child that is not forked from it: levels, and the format of its plain handler."""
    root = logging.getLogger()
    formats = [str(h.formatter._fmt) for h in root.handlers if h.formatter is not None and h.formatter._fmt]
    levels = {
        name: logger.level
        for name, logger in logging.Logger.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and logger.level
    }
    return {"on": bool(root.handlers), "level": root.level, "format": (formats or [FORMAT])[0], "levels": levels}


def apply_logging_config(logs: dict[str, Any]) -> None:
    """Log to stderr as the parent does; the app may change it while it is imported."""
    if logs["on"]:
        logging.basicConfig(level=logs["level"], format=logs["format"])
    for name, level in logs["levels"].items():
        logging.getLogger(name).setLevel(level)
