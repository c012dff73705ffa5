"""What processes of a test log at WARNING and above, by the kind of trouble: at most one line a minute is the promise.

A process calls :func:`note_troubles`; each line then leaves a row of JSON in a file of the process in that directory,
also from children that it forks. The kind is the logger with the message as it was before its arguments were put in,
and the class of the error that it names, if it names one: two errors have two causes.
:func:`worst_kinds` counts: the most lines of each kind that one process has logged within a minute.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from test.support.waiting import whole_lines

VARIABLE: Final = "KAFKA_TEST_TROUBLES"
"""Names the directory, for processes that are started with an environment of a test's own."""

MINUTE_S: Final = 59.5
"""A minute, but for what two clocks may differ by."""
_COUNTED: Final = re.compile(r"^suppressed %d similar lines, the last was: | \(%d more lines like this one .*\)$")
"""What ``kafka.log_limit`` puts around a message."""
_ERROR: Final = re.compile(r"\b[A-Z]\w+Error\b")


class Kind(NamedTuple):
    """The most lines of one kind that one process has logged within a minute, and these."""

    pid: int
    logger: str
    template: str
    lines: list[str]


class _Handler(logging.Handler):
    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__(logging.WARNING)
        self._directory = directory

    def emit(self, record: logging.LogRecord) -> None:
        template = _COUNTED.sub("", str(record.msg))
        row = {"at": record.created, "logger": record.name, "template": template, "text": record.getMessage()}
        file = os.open(self._directory / f"{os.getpid()}.troubles", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, f"{json.dumps(row)}\n".encode())
        finally:
            os.close(file)


def note_troubles(directory: str | pathlib.Path | None = None) -> None:
    """Note what the package logs from now on; where the environment names no directory either, nothing."""
    directory = directory or os.environ.get(VARIABLE)
    if directory:
        logging.getLogger("kafka").addHandler(_Handler(pathlib.Path(directory)))


def worst_kinds(directory: pathlib.Path) -> list[Kind]:
    """Of each process and kind the minute with the most lines, the most first."""
    found: dict[tuple[int, str, str, str | None], list[tuple[float, str]]] = defaultdict(list)
    for path in directory.glob("*.troubles"):
        for line in whole_lines(path):
            row = json.loads(line)
            error = _ERROR.search(row["text"])
            key = int(path.stem), row["logger"], row["template"], error and error[0]
            found[key].append((row["at"], row["text"]))
    kinds = [Kind(*key[:3], _densest_minute(sorted(lines))) for key, lines in found.items()]
    return sorted(kinds, key=lambda kind: (-len(kind.lines), kind))


def _densest_minute(lines: Iterable[tuple[float, str]]) -> list[str]:
    lines = list(lines)
    windows = [[text for at, text in lines[first:] if at - lines[first][0] < MINUTE_S] for first in range(len(lines))]
    return max(windows, key=len)
