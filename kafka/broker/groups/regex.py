"""Regular expressions of clients in RE2's syntax: subscriptions (KIP-848), patterns of transactional ids (KIP-1152),
and which clients a subscription to metrics is for (KIP-714).

Apache Kafka uses RE2/J. Here google-re2 evaluates them, an extra of the package; without it every expression is refused
with INVALID_REGULAR_EXPRESSION (128), or INVALID_CONFIG (40) for client metrics, and a text that says what to install.
What google-re2 accepts and RE2/J does not is refused (:func:`_check_syntax`), and its errors are given in RE2/J's
words.

The time that a match takes is at most proportional to the size of the program and the length of the name. One loop
serves all clients, so the program of an expression has at most :data:`MAX_PROGRAM_SIZE` instructions, and what all
expressions of one group, or of one request, may cost together is limited by :data:`MAX_WORK`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from kafka.errors import InvalidRegularExpressionError

MAX_LENGTH: Final = 10_000
"""Characters of an expression."""
MAX_PROGRAM_SIZE: Final = 10_000
MAX_DEPTH: Final = 100
"""Parentheses within parentheses."""
MAX_WORK: Final = 40_000_000
"""Instructions times characters, for one group or one request at a time: 100 ms at worst (measured with
``(.*a.{12}){8}b``); an ordinary expression needs much less time."""
_MAX_MEM: Final = 1_000_000
"""Bytes of one program and its automaton."""

INSTALL: Final = "regular expressions need the package google-re2: pip install 'kafka-taskloop[re2]'"

_JAVA_WORDS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "regexp/syntax: internal error",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
    "pattern too large - compile failed": "expression too large",
}
"""google-re2's error -> RE2/J's, where they differ."""

_TOKEN: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\C|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\(\?P?<(?P<name>\w+)>|\(\?\)|\(|\)", re.DOTALL
)


class WorkLimit:
    """What the expressions of one request may still cost together."""

    def __init__(self, left: int = MAX_WORK) -> None:
        self.left = left

    def spend(self, work: int) -> bool:
        """Take this much; False, and nothing is left, when it is more than is left."""
        is_enough = work <= self.left
        self.left = self.left - work if is_enough else 0
        return is_enough


def is_available() -> bool:
    """Whether google-re2 is installed."""
    try:
        import_module("re2")
    except ImportError:
        return False
    return True


def check_regex(text: str) -> None:
    """Raise InvalidRegularExpressionError (128) with Kafka's text for an expression that is not RE2/J's."""
    _program(text)


def resolve(texts: Iterable[str], topics: Iterable[str]) -> Mapping[str, frozenset[str] | None]:
    """The topics whose whole name matches, for each expression of a group; None where that costs too much, and for
    expressions of an earlier start with google-re2."""
    names = list(topics)
    characters = sum(map(len, names)) + len(names)
    limit = WorkLimit()
    found: dict[str, frozenset[str] | None] = {}
    for text in texts:
        try:
            program = _program(text)
        except InvalidRegularExpressionError:
            found[text] = None
            continue
        is_enough = limit.spend(program.programsize * characters)
        found[text] = frozenset(filter(program.fullmatch, names)) if is_enough else None
    return found


def matches(text: str, name: str, limit: WorkLimit) -> bool:
    """Whether the whole name matches; False also where that costs more than is left."""
    program = _program(text)
    return limit.spend(program.programsize * (len(name) + 1)) and program.fullmatch(name) is not None


@lru_cache(maxsize=16)  # a program has up to 1 MB
def _program(text: str) -> Any:
    """The compiled expression; InvalidRegularExpressionError (128)."""
    try:
        re2: Any = import_module("re2")  # it has no types
    except ImportError:
        raise InvalidRegularExpressionError(f"SubscribedTopicRegex `{text[:80]}`: {INSTALL}.") from None
    if len(text) > MAX_LENGTH:
        raise _invalid(text[:80] + "...", f"longer than {MAX_LENGTH} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEM
    try:
        program = re2.compile(text, options)
    except re2.error as error:
        raise _invalid(text, _java_words(text, error.args[0].decode("utf-8", "replace"))) from None
    re2.purge()  # its own cache keeps 128 programs
    _check_syntax(text)
    if program.programsize > MAX_PROGRAM_SIZE:
        raise _invalid(text, "expression too large")
    return program


def _check_syntax(text: str) -> None:
    """Refuse what google-re2 accepts and RE2/J does not. Only for what it has accepted: with brackets that nothing
    closes, the search for tokens would take time proportional to the square of the length."""
    names: set[str] = set()
    depth = 0
    for token in _TOKEN.finditer(text):
        found, name = token[0], token["name"]
        if found == "\\C":
            raise _invalid(text, "invalid escape sequence")
        if found == "(?)":
            raise _invalid(text, "invalid or unsupported Perl syntax")
        if name is not None and name in names:
            raise _invalid(text, "duplicate capture group name")
        if name is not None:
            names.add(name)
        depth += found.startswith("(") - (found == ")")
        if depth > MAX_DEPTH:
            raise _invalid(text, "expression nests too deeply")


def _java_words(text: str, error: str) -> str:
    """RE2/J's error for an expression, by google-re2's."""
    kind, _, argument = error.partition(": ")
    if kind == "invalid perl operator" and argument.startswith("(?<"):
        return "invalid named capture"
    if kind == "trailing \\" and _is_in_class(text):
        return "invalid escape sequence"
    if kind == "invalid repetition size":
        low, _, high = argument.rstrip("?").strip("{}").partition(",")
        if int(low) <= int(high or low) <= 1000:
            return "expression too large"  # by repetition within repetition
    return _JAVA_WORDS.get(kind, kind)


def _is_in_class(text: str) -> bool:
    """Whether the backslash that ends an expression is in a character class."""
    try:
        _program(text[:-1])
    except InvalidRegularExpressionError as error:
        return "missing closing ]" in str(error.args[0])
    return False


def _invalid(text: str, why: str) -> InvalidRegularExpressionError:
    return InvalidRegularExpressionError(f"SubscribedTopicRegex `{text}` is not a valid regular expression: {why}.")
