"""Words of files, counted: one file as a job's result, and all results put together.

A result is ``{"words": n, "counts": {word: n}}``, with the counts of *all* words of the file, so that the commonest
words of all files are exact when results are added up. A payload has a limit, though, and a file may have any number
of different words: above :data:`COUNTS_BYTES` the counts are left out (None) and the total alone comes back. Whoever
wants the commonest words then counts that file again (:meth:`Tally.commonest`). Sending the commonest words of each
file only would not do: a word that is eleventh everywhere may well be the first of all.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from typing import Any, Final, NamedTuple

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
