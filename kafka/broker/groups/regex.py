"""Regular expressions of clients: subscriptions (KIP-848), patterns of transactional ids (KIP-1152), whom subscriptions
of metrics are for (KIP-714). Which are good, and which names they mean.

    text ──regex_syntax──> tree ──regex_machine──> program ──names of topics──> those whose whole name matches

Apache Kafka takes RE2/J's syntax, and so does this. As with RE2/J no expression is dear: the time goes up with the
length of the name and the size of the expression, and never beyond their product. What all expressions of one group may
cost at a time is limited besides (:data:`MAX_WORK`): here one loop serves everybody.

Different: an expression has at most :data:`MAX_LENGTH` characters and, written out (``a{3}`` is ``aaa``), 10,000 parts;
the rest is told in ``regex_syntax.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from kafka.broker.groups.regex_machine import Machine, Program, TooLargeError, TooMuchWorkError, Work
from kafka.broker.groups.regex_syntax import RegexSyntaxError, parse
from kafka.errors import InvalidRegularExpressionError

MAX_LENGTH: Final = 10_000
MAX_WORK: Final = 100_000
"""Steps of the matching machine for one group, or one request, at a time: about 60 ms."""


def check_regex(text: str) -> None:
    """Raise InvalidRegularExpressionError (128) with Kafka's text for an expression that is not RE2/J's."""
    _program(text)


def resolve(texts: Iterable[str], topics: Iterable[str]) -> Mapping[str, frozenset[str] | None]:
    """The topics whose whole name matches, for each expression of a group; None where there was no time for it."""
    names = list(topics)
    work = new_work()
    found: dict[str, frozenset[str] | None] = {}
    for text in texts:
        try:
            found[text] = _matching(text, names, work)
        except TooMuchWorkError:
            found[text] = None
    return found


def new_work() -> Work:
    """What all expressions of one request may cost together."""
    return Work(MAX_WORK)


def fits(text: str, name: str, work: Work) -> bool:
    """Whether the whole name matches, as far as ``work`` is enough to tell."""
    try:
        return Machine(_program(text), work).matches(name)
    except TooMuchWorkError:
        return False


def _matching(text: str, topics: Iterable[str], work: Work) -> frozenset[str]:
    machine = Machine(_program(text), work)
    return frozenset(name for name in topics if machine.matches(name))


@lru_cache(maxsize=16)  # a program has up to 3 MB
def _program(text: str) -> Program:
    if len(text) > MAX_LENGTH:
        raise _invalid(text[:80] + "...", f"longer than {MAX_LENGTH} characters")
    try:
        return Program.of(parse(text))
    except RegexSyntaxError as error:
        raise _invalid(text, str(error)) from None
    except TooLargeError:
        raise _invalid(text, "expression too large") from None


def _invalid(text: str, why: str) -> InvalidRegularExpressionError:
    return InvalidRegularExpressionError(f"SubscribedTopicRegex `{text}` is not a valid regular expression: {why}.")
