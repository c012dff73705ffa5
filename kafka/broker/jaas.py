"""JAAS texts, as Kafka's settings ``sasl.jaas.config`` have them.

::

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob='it is "him"';
    ------------------- class of the login module --------- flag  ------------ options ------------------- end

Values may be quoted; within quotes a backslash takes the next character as it is, with Java's escapes for line ends and
tabs. Errors name the place and what was expected, never a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<end>;)|(?P<equals>=)|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<word>[^\s=;"']+))""",
    re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class JaasError(ValueError):
    """A text that is no JAAS configuration."""


class LoginModule(NamedTuple):
    """One entry; its options hold passwords and are not shown."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r}, {len(self.options)} options)"


def parse_jaas(text: str) -> LoginModule:
    """The one login module of a text. JaasError."""
    tokens = list(_tokens(text))
    if not tokens:
        raise JaasError("it is empty")
    if len(tokens) < 2 or tokens[0][0] != "text" or tokens[1][1].lower() not in FLAGS:
        raise JaasError(f"it begins with the class of a login module and one of {', '.join(sorted(FLAGS))}")
    name, rest = tokens[0][1], tokens[2:]
    options: dict[str, str] = {}
    while rest and rest[0][0] == "text":
        if len(rest) < 3 or rest[1][0] != "=" or rest[2][0] != "text":
            raise JaasError(f"option {len(options) + 1} is not of the form name=\"value\"")
        options[rest[0][1]] = rest[2][1]
        rest = rest[3:]
    if not rest or rest[0][0] != ";":
        raise JaasError("there is no semicolon at its end")
    if len(rest) > 1:
        raise JaasError("there is more than one login module in it")
    return LoginModule(name, options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise JaasError(f"a quote that is not closed at character {position + 1}")
        position = found.end()
        quoted = found["double"] if found["double"] is not None else found["single"]
        if found["end"]:
            yield ";", ""
        elif found["equals"]:
            yield "=", ""
        elif quoted is not None:
            yield "text", re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), quoted, flags=re.DOTALL)
        else:
            yield "text", found["word"]
