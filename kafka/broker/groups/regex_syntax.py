r"""RE2/J's syntax of regular expressions, read into a tree; its refusals in its own words.

    Chars                 one character of a set; sets are of ASCII characters, and of all others or none of them
    Look                  nothing, at a place: the beginning, the end, the edge of a word or anywhere else
    Sequence, Choice      one after the other; one of them
    Repeat                from so many to so many times, or without end

What does not matter for whether a whole name matches is read and dropped: names of groups, laziness (``*?``, ``(?U)``),
lines (``(?m)``: names have one). Different from RE2/J: Unicode is known as far as ASCII goes, which names of topics do;
of its classes the common ones are known, and rare ones are refused; groups are nested 100 deep at most; and where
several things are wrong with an expression, another one may be named.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_REPEAT: Final = 1000
MAX_DEPTH: Final = 100

ASCII: Final = frozenset(map(chr, range(128)))


def _between(*ranges: str) -> frozenset[str]:
    """Of ``"AZ"``: all from A to Z. One character stands for itself."""
    return frozenset(chr(code) for each in ranges for code in range(ord(each[0]), ord(each[-1]) + 1))


_DIGIT: Final = _between("09")
WORD: Final = _between("09", "AZ", "az", "_")
_SPACE: Final = frozenset("\t\n\f\r ")
_PERL: Final = {"d": _DIGIT, "w": WORD, "s": _SPACE}
_POSIX: Final = {
    "alnum": _between("09", "AZ", "az"), "alpha": _between("AZ", "az"), "ascii": ASCII, "blank": frozenset("\t "),
    "cntrl": _between("\x00\x1f", "\x7f"), "digit": _DIGIT, "graph": _between("!~"), "lower": _between("az"),
    "print": _between(" ~"), "punct": _between("!/", ":@", "[`", "{~"), "space": frozenset("\t\n\v\f\r "),
    "upper": _between("AZ"), "word": WORD, "xdigit": _between("09", "AF", "af"),
}  # fmt: skip
_LETTER: Final = _between("AZ", "az")
_UNICODE: Final = {
    "Any": ASCII, "L": _LETTER, "Lu": _between("AZ"), "Ll": _between("az"), "Latin": _LETTER, "N": _DIGIT, "Nd": _DIGIT,
    "P": frozenset("!\"#%&'()*,-./:;?@[\\]_{}"), "Pc": frozenset("_"), "Pd": frozenset("-"),
    "S": frozenset("$+<=>^`|~"), "Z": frozenset(" "), "Zs": frozenset(" "),
}  # fmt: skip
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
BEGIN, END, EDGE, NO_EDGE = "begin", "end", "edge", "no edge"
_LOOKS: Final = {"A": BEGIN, "z": END, "b": EDGE, "B": NO_EDGE}

_REPEAT: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_GROUP_NAME: Final = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
_FLAGS: Final = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_PROPERTY: Final = re.compile(r"\\([pP])(?:\{(\^?)(\w+)\}|(\w))")
_POSIX_CLASS: Final = re.compile(r"\[:(\^?)(\w+):\]")
_HEX: Final = re.compile(r"\\x(?:\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2}))")
_OCTAL: Final = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})")


class Chars(NamedTuple):
    """One character: of these, or (``others``) any that is not ASCII."""

    ascii: frozenset[str]
    others: bool = False

    def negated(self) -> Chars:
        return Chars(ASCII - self.ascii, not self.others)

    def united(self, other: Chars) -> Chars:
        return Chars(self.ascii | other.ascii, self.others or other.others)

    def folded(self) -> Chars:
        """Whatever the case."""
        return Chars(self.ascii | {char.swapcase() for char in self.ascii}, self.others)


class Look(NamedTuple):
    """Matches no character, but a place: ``BEGIN``, ``END``, ``EDGE`` or ``NO_EDGE``."""

    kind: str


class Repeat(NamedTuple):
    """``high`` None: without end."""

    what: Node
    low: int
    high: int | None


class Sequence(NamedTuple):
    """One after the other; of none of them: nothing."""

    parts: tuple[Node, ...]


class Choice(NamedTuple):
    """One of them."""

    parts: tuple[Node, ...]


Node = Chars | Look | Repeat | Sequence | Choice


class RegexSyntaxError(ValueError):
    """RE2/J's words for what is wrong."""


class _Group:
    """One that is open: its alternatives so far, the parts of the one that is being read, the flags to go back to."""

    def __init__(self, flags: frozenset[str]) -> None:
        self.flags_outside = flags
        self.done: list[Node] = []
        self.parts: list[Node] = []

    def alternative(self) -> None:
        self.done.append(Sequence(tuple(self.parts)))
        self.parts = []

    def node(self) -> Node:
        self.alternative()
        return self.done[0] if len(self.done) == 1 else Choice(tuple(self.done))


def parse(text: str) -> Node:
    """The tree of an expression; :class:`RegexSyntaxError`."""
    return _Parser(text).run()


class _Parser:
    """One pass, one method for each thing that there is in an expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._names: set[str] = set()
        self._flags: frozenset[str] = frozenset()
        self._groups = [_Group(self._flags)]

    def run(self) -> Node:
        can_repeat = False
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in "*+?" or _REPEAT.match(self._text, self._at):
                if not can_repeat:
                    raise RegexSyntaxError("missing argument to repetition operator")
                self._repeat()
            elif char == "(":
                self._open()
                can_repeat = False
            elif char == ")":
                self._close()
                can_repeat = True
            elif char == "|":
                self._groups[-1].alternative()
                self._at += 1
                can_repeat = False
            elif char == "\\":
                can_repeat = self._escape()
            else:
                self._put(self._class() if char == "[" else self._plain(char))
                can_repeat = True
        if len(self._groups) > 1:
            raise RegexSyntaxError("missing closing )")
        return self._groups[0].node()

    def _put(self, node: Node) -> None:
        self._groups[-1].parts.append(node)

    def _plain(self, char: str) -> Node:
        self._at += 1
        if char == "^":
            return Look(BEGIN)
        if char == "$":
            return Look(END)
        if char == ".":
            return Chars(ASCII if "s" in self._flags else ASCII - {"\n"}, True)
        return self._literal(char)

    def _literal(self, char: str) -> Chars:
        found = Chars(frozenset(char)) if char in ASCII else Chars(frozenset(), True)
        return found.folded() if "i" in self._flags else found

    # -- repeats -----------------------------------------------------------------------------------------------------

    def _repeat(self) -> None:
        found = _REPEAT.match(self._text, self._at)
        low: int
        high: int | None
        if found:
            low = int(found[1])
            high = low if found[2] is None else int(found[2]) if found[2] else None
            if low > MAX_REPEAT or (high is not None and not low <= high <= MAX_REPEAT):
                raise RegexSyntaxError("invalid repeat count")
            self._at = found.end()
        else:
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self._text[self._at]]
            self._at += 1
        if self._text.startswith("?", self._at):
            self._at += 1
        if self._at < len(self._text) and (self._text[self._at] in "*+?" or _REPEAT.match(self._text, self._at)):
            raise RegexSyntaxError("invalid nested repetition operator")
        parts = self._groups[-1].parts
        parts[-1] = Repeat(parts[-1], low, high)

    # -- groups ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        text, at = self._text, self._at
        named = _GROUP_NAME.match(text, at)
        flags = _FLAGS.match(text, at)
        group = _Group(self._flags)
        if named:
            if named[1] in self._names:
                raise RegexSyntaxError("duplicate capture group name")
            self._names.add(named[1])
            self._at = named.end()
        elif flags and (flags[1] or flags[2] or flags[3] == ":"):
            self._flags = (self._flags | set(flags[1])) - set(flags[2] or "")
            self._at = flags.end()
            if flags[3] == ")":  # for the rest of the group that is open
                return
        elif text.startswith(("(?<", "(?P<"), at):
            raise RegexSyntaxError("invalid named capture")
        elif text.startswith("(?", at):
            raise RegexSyntaxError("invalid or unsupported Perl syntax")
        else:
            self._at += 1
        if len(self._groups) > MAX_DEPTH:
            raise RegexSyntaxError("expression nests too deeply")
        self._groups.append(group)

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise RegexSyntaxError("regexp/syntax: internal error")
        group = self._groups.pop()
        self._flags = group.flags_outside
        self._put(group.node())
        self._at += 1

    # -- escapes -----------------------------------------------------------------------------------------------------

    def _escape(self) -> bool:
        """What a backslash begins; whether it can be repeated."""
        text = self._text
        following = text[self._at + 1 : self._at + 2]
        if following == "":
            raise RegexSyntaxError("trailing backslash at end of expression")
        if following == "Q":
            literal, end, _ = text[self._at + 2 :].partition("\\E")
            self._groups[-1].parts += [self._literal(char) for char in literal]
            self._at += len("\\Q") + len(literal) + len(end)
            return bool(literal)
        if following in _LOOKS:
            self._at += 2
            self._put(Look(_LOOKS[following]))
            return True
        known = self._known_class()
        self._put(known if known is not None else self._literal(self._escaped_char()))
        return True

    def _known_class(self) -> Chars | None:
        r"""The class that begins here: ``\d``, ``\pN``, ``\P{Lu}``; None for anything else."""
        found = _PROPERTY.match(self._text, self._at)
        if found:
            name = found[3] or found[4]
            if name not in _UNICODE:
                raise RegexSyntaxError("invalid character class range")
            self._at = found.end()
            chars = Chars(_UNICODE[name], name in ("Any", "L", "Lu", "Ll", "N"))
            chars = chars.folded() if "i" in self._flags else chars
            if (found[1] == "P") == bool(found[2]):
                return chars
            return Chars(ASCII - chars.ascii, True)  # of what is not ASCII there is always something else, too
        letter = self._text[self._at + 1 : self._at + 2]
        if self._text[self._at] == "\\" and letter.lower() in _PERL:
            self._at += 2
            chars = Chars(_PERL[letter.lower()])
            return chars.negated() if letter.isupper() else chars
        return None

    def _escaped_char(self) -> str:
        text = self._text
        number = _HEX.match(text, self._at) or _OCTAL.match(text, self._at)
        if number:
            self._at = number.end()
            code = int(number[1], 8) if number.re is _OCTAL else int(number[1] or number[2], 16)
            if code > 0x10FFFF:
                raise RegexSyntaxError("invalid escape sequence")
            return chr(code)
        following = text[self._at + 1 : self._at + 2]
        if following in _CONTROLS:
            following = _CONTROLS[following]
        elif following == "" or following.isalnum() or following not in ASCII:
            raise RegexSyntaxError("invalid escape sequence")
        self._at += 2
        return following

    # -- classes -----------------------------------------------------------------------------------------------------

    def _class(self) -> Chars:
        text = self._text
        self._at += 1
        is_negated = text.startswith("^", self._at)
        self._at += is_negated
        found = Chars(frozenset())
        is_first = True
        while is_first or not text.startswith("]", self._at):
            is_first = False
            if self._at >= len(text):
                raise RegexSyntaxError("missing closing ]")
            found = found.united(self._class_part())
        self._at += 1
        if "i" in self._flags:
            found = found.folded()
        return found.negated()._replace(others=True) if is_negated else found

    def _class_part(self) -> Chars:
        """A class in the class, a range, or one character."""
        posix = _POSIX_CLASS.match(self._text, self._at)
        if posix:
            if posix[2] not in _POSIX:
                raise RegexSyntaxError("invalid character class range")
            self._at = posix.end()
            chars = Chars(_POSIX[posix[2]])
            return chars.negated() if posix[1] else chars
        known = self._known_class()
        if known is not None:
            return known
        low = self._class_char()
        if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
            self._at += 1
            high = self._class_char()
            if high < low:
                raise RegexSyntaxError("invalid character class range")
            return Chars(_between(low + min(high, "\x7f")) if low in ASCII else frozenset(), high not in ASCII)
        return Chars(frozenset(low)) if low in ASCII else Chars(frozenset(), True)

    def _class_char(self) -> str:
        if self._text[self._at] == "\\":
            return self._escaped_char()
        self._at += 1
        return self._text[self._at - 1]
