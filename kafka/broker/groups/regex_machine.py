"""A tree of ``regex_syntax.py`` as a machine that reads a name once, from left to right.

    Chars set       take one character of the set       )
    Split a b       go on at both places                )  a program is a list of these; places are numbers in it
    Look kind       go on if this is such a place       )
    Match           the end                             )

The machine is at many places of the program at once, and at none of them twice: so a character costs at most the
program's length, whatever the expression is (Thompson's construction). Sets of places that have come up are kept with
where they lead, so that most characters cost one look into a dictionary. It does not say what a group has matched:
nobody asks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafka.broker.groups.regex_syntax import (
    BEGIN,
    EDGE,
    END,
    WORD,
    Chars,
    Choice,
    Look,
    Node,
    Repeat,
    Sequence,
)

MAX_INSTRUCTIONS: Final = 10_000


class TooLargeError(ValueError):
    """The expression has too many parts, written out."""


class TooMuchWorkError(Exception):
    """Matching has come to its limit."""


class Work:
    """How many steps are left."""

    __slots__ = ("left",)

    def __init__(self, limit: int) -> None:
        self.left = limit

    def spend(self, steps: int) -> None:
        """:class:`TooMuchWorkError` when none are left."""
        self.left -= steps
        if self.left < 0:
            raise TooMuchWorkError


class _Split(NamedTuple):
    first: int
    second: int


class _Match(NamedTuple):
    pass


class Program:
    """The instructions. Each goes on at the next one, but for :class:`_Split`."""

    __slots__ = ("instructions",)

    def __init__(self) -> None:
        self.instructions: list[Chars | Look | _Split | _Match] = []

    @classmethod
    def of(cls, tree: Node) -> Program:
        """:class:`TooLargeError`."""
        made = cls()
        made._emit(tree)
        made._add(_Match())
        return made

    def _add(self, instruction: Chars | Look | _Split | _Match) -> int:
        if len(self.instructions) >= MAX_INSTRUCTIONS:
            raise TooLargeError
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def _reserve(self) -> int:
        """A place for a :class:`_Split` whose ends are not known yet."""
        return self._add(_Match())

    @property
    def _next(self) -> int:
        return len(self.instructions)

    def _emit(self, node: Node) -> None:
        if isinstance(node, (Chars, Look)):
            self._add(node)
        elif isinstance(node, Sequence):
            for part in node.parts:
                self._emit(part)
        elif isinstance(node, Choice):
            self._emit_choice(node)
        else:
            self._emit_repeat(node)

    def _emit_choice(self, node: Choice) -> None:
        ends = []
        for part in node.parts[:-1]:
            split = self._reserve()
            self._emit(part)
            ends.append(self._reserve())
            self.instructions[split] = _Split(split + 1, self._next)
        self._emit(node.parts[-1])
        for end in ends:
            self.instructions[end] = _Split(self._next, self._next)

    def _emit_repeat(self, node: Repeat) -> None:
        for _ in range(node.low):
            self._emit(node.what)
            self._check_empty_repeat(node)
        if node.high is None:
            split = self._reserve()
            self._emit(node.what)
            self._add(_Split(split, split))
            self.instructions[split] = _Split(split + 1, self._next)
            return
        splits = []
        for _ in range(node.high - node.low):
            splits.append(self._reserve())
            self._emit(node.what)
        for split in splits:
            self.instructions[split] = _Split(split + 1, self._next)

    def _check_empty_repeat(self, node: Repeat) -> None:
        """``((){1000}){1000}`` emits nothing a million times: it counts all the same."""
        if isinstance(node.what, (Sequence, Repeat)):
            self._add(_Split(self._next + 1, self._next + 1))


class _Places:
    """A set of places where the machine may be, behind a character or at the beginning."""

    __slots__ = ("final", "is_after_word", "is_beginning", "next", "places")

    def __init__(self, places: frozenset[int], is_beginning: bool, is_after_word: bool) -> None:
        self.places = places
        self.is_beginning = is_beginning
        self.is_after_word = is_after_word
        self.next: dict[str, _Places | None] = {}
        self.final: bool | None = None


class Machine:
    """One expression at work; ``work`` is what it may cost."""

    def __init__(self, program: Program, work: Work) -> None:
        self._instructions = program.instructions
        self._work = work
        self._known: dict[tuple[frozenset[int], bool], _Places] = {}
        self._start = _Places(frozenset({0}), True, False)

    def matches(self, name: str) -> bool:
        """Whether the whole name matches. :class:`TooMuchWorkError`."""
        at: _Places | None = self._start
        for char in name:
            assert at is not None
            at = at.next[char] if char in at.next else self._step(at, char)
            if at is None:
                return False
        self._work.spend(1 + len(name) // 8)  # a look into a dictionary is an eighth of a step
        assert at is not None
        if at.final is None:
            at.final = any(isinstance(self._instructions[place], _Match) for place in self._reached(at, None))
        return at.final

    def _step(self, at: _Places, char: str) -> _Places | None:
        is_ascii = char < "\x80"
        places = set()
        for place in self._reached(at, char):
            found = self._instructions[place]
            if isinstance(found, Chars) and (char in found.ascii if is_ascii else found.others):
                places.add(place + 1)
        following = None
        if places:
            key = frozenset(places), char in WORD
            following = self._known.get(key)
            if following is None:
                following = self._known[key] = _Places(key[0], False, key[1])
        at.next[char] = following
        return following

    def _reached(self, at: _Places, char: str | None) -> set[int]:
        """All places that can be had without a character, before ``char`` (None: the end)."""
        instructions = self._instructions
        is_edge = at.is_after_word != (char is not None and char in WORD)
        reached: set[int] = set()
        left = list(at.places)
        while left:
            place = left.pop()
            if place in reached:
                continue
            reached.add(place)
            found = instructions[place]
            if isinstance(found, _Split):
                left += found
            elif isinstance(found, Look) and (
                (at.is_beginning if found.kind == BEGIN else char is None)
                if found.kind in (BEGIN, END)
                else (found.kind == EDGE) == is_edge
            ):
                left.append(place + 1)
        self._work.spend(len(reached))
        return reached
