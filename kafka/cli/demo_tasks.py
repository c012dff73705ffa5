"""The demo's app and its one task: what its workers import.

Each run of the demo has an app of its own, and so topics and groups of its own, which it can delete afterwards and in
which no other run takes its jobs (another machine has not the same files). Workers learn the run's name from the
environment (:data:`NAME_VARIABLE`), and end when their stdin does, which is a pipe that the demo holds open: so none
outlives a demo that was killed.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import signal
import stat
import sys
import threading
from collections import Counter
from typing import Any, Final, NamedTuple

from kafka.tasks import App, Task

# -- counting words: one file as a job's result, and the sum of all results --------------------------------------------
#
# A result is ``{"words": n, "counts": {word: n}}``, with the counts of *all* words of the file, so that the commonest
# words of all files are exact when results are added up. A payload has a limit, though, and a file may have any number
# of different words: above :data:`COUNTS_BYTES` the counts are omitted (None) and the total alone is returned;
# :meth:`Tally.commonest` then counts that file again. Sending only the commonest words of each file would not be
# enough: a word that is eleventh everywhere may be the first of all.


WORD: Final = re.compile(r"[^\W\d_]+")
"""Letters of any script: neither digits nor what stands between words."""

CHUNK_BYTES: Final = 1 << 20
COUNTS_BYTES: Final = 500_000
"""The most that a result's counts may take as JSON; half of what a payload may have. About 30,000 words."""


def count_words(path: str) -> Counter[str]:
    """How often each word is in a file: the runs of letters of the file read as UTF-8, undecodable bytes replaced.

    What stands between spaces is counted first, and taken apart once for all its times: to look for letters
    everywhere takes three times as long (44 MB of "some words": 2.5 s for 0.7 s).
    """
    counts: Counter[str] = Counter()
    for text, times in _count_spaced(path).items():
        for word in WORD.findall(text):
            counts[word] += times
    return counts


def _count_spaced(path: str) -> Counter[str]:
    """``text.split()`` of the file, counted. Read piece by piece: memory goes with the number of different words, not
    with the file's size.
    """
    counts: Counter[str] = Counter()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    begun: list[str] = []  # pieces of a word whose end has not been read yet
    with open(path, "rb") as file:
        while True:
            data = file.read(CHUNK_BYTES)
            text = decoder.decode(data, final=not data)
            words = text.split()
            if words and begun and not text[0].isspace():
                if len(words) == 1 and words[0] == text:
                    begun.append(text)
                    words = []
                else:
                    words[0] = "".join([*begun, words[0]])
                    begun = []
            elif text and begun:
                counts["".join(begun)] += 1
                begun = []
            if words and not text[-1].isspace():
                begun = [words.pop()]
            counts.update(words)
            if not data:
                break
    if begun:
        counts["".join(begun)] += 1
    return counts


def result_of(counts: Counter[str], most_bytes: int = COUNTS_BYTES) -> dict[str, Any]:
    """What a job returns for a file's counts."""
    fits = len(json.dumps(counts, separators=(",", ":"))) <= most_bytes
    return {"words": counts.total(), "counts": dict(counts) if fits else None}


class Common(NamedTuple):
    """A word and how often it is there."""

    word: str
    times: int


class Tally:
    """The results of many files, added up. ``words`` is their total."""

    def __init__(self) -> None:
        self.words = 0
        self._counts: Counter[str] = Counter()
        self._again: list[str] = []

    def add(self, path: str, result: dict[str, Any]) -> None:
        """Take in the result of a file's job."""
        self.words += result["words"]
        if result["counts"] is None:
            self._again.append(path)
        else:
            self._counts.update(result["counts"])

    def commonest(self, number: int) -> list[Common]:
        """The ``number`` commonest words, equally common ones by the alphabet.

        Counts the files again whose results had no counts; OSError when one of them is gone.
        """
        while self._again:
            self._counts.update(count_words(self._again[-1]))
            self._again.pop()
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return [Common(word, times) for word, times in ranked[:number]]


# -- files: the text files under a path --------------------------------------------------------------------------------
#
# Regular files only, found without following links; nothing inside hidden directories or ``__pycache__`` (the path
# itself may be in one: that was asked for); no file with a NUL byte in its first 8 KiB. Unreadable
# files are reported.


LOOK_BYTES: Final = 8192
"""A NUL byte in so much of a file's beginning makes it no text."""

SKIPPED_DIRECTORIES: Final = frozenset({"__pycache__"})


class DemoFiles(NamedTuple):
    """Absolute paths in the order of their names, the size of the largest, and what could not be read (and why)."""

    files: list[str]
    largest_bytes: int
    unreadable: list[str]


def text_files(path: str) -> DemoFiles:
    """The text files under ``path``, which is a directory or one regular file. OSError when it is neither."""
    top = os.path.abspath(path)
    if not path or not os.path.isdir(top):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(f"{path} is neither a directory nor a regular file")
    files: list[str] = []
    unreadable: list[str] = []
    largest = 0
    for candidate in _candidates(top, unreadable):
        try:
            size = _size_if_text(candidate)
        except OSError as error:
            unreadable.append(f"{candidate}: {error.strerror or error}")
            continue
        if size is not None:
            files.append(candidate)
            largest = max(largest, size)
    return DemoFiles(files, largest, unreadable)


def _candidates(top: str, unreadable: list[str]) -> list[str]:
    """All that is not a directory under ``top``. An error of ``top`` itself is raised, of one below it noted."""
    if not os.path.isdir(top):
        return [os.path.realpath(top)]

    def failed(error: OSError) -> None:
        if error.filename == top:
            raise error
        unreadable.append(f"{error.filename}: {error.strerror or error}")

    paths: list[str] = []
    for directory, names, files in os.walk(top, onerror=failed):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in SKIPPED_DIRECTORIES)
        paths.extend(os.path.join(directory, name) for name in sorted(files))
    return paths


def _size_if_text(path: str) -> int | None:
    """The size of a regular file of text, else None. A pipe is not opened: that would wait for a writer."""
    about = os.lstat(path)
    if not stat.S_ISREG(about.st_mode):
        return None
    with open(path, "rb") as file:
        return None if b"\0" in file.read(LOOK_BYTES) else about.st_size


NAME_VARIABLE: Final = "KAFKA_DEMO_APP"
QUEUE: Final = "files"
TASK: Final = "count"
WINDOW: Final = 2_000
"""Jobs of a run that are under way at once; results are kept by the client for somewhat more."""

REQUEST_S: Final = 15
"""Less than usual: a user is waiting."""


def count(path: str) -> dict[str, Any]:
    """The words of one file, as described above."""
    return result_of(count_words(path))


def make_app(name: str) -> App:
    """The app of one run."""
    app = App(
        name, default_queue=QUEUE, partitions=4, result_view=2 * WINDOW, result_ttl=3600, request_timeout=REQUEST_S
    )
    app.task(name=TASK)(count)
    return app


def task_of(app: App) -> Task[[str], dict[str, Any]]:
    """The app's task."""
    return app.tasks[TASK]


def _end_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 64):
        pass
    os.kill(os.getpid(), signal.SIGKILL)  # no client waits for its jobs any more, and its broker is probably gone, too


if NAME_VARIABLE in os.environ:
    threading.Thread(target=_end_with_stdin, name="demo-lifeline", daemon=True).start()

app = make_app(os.environ.get(NAME_VARIABLE, "kafka-demo"))
