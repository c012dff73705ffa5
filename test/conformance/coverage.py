"""Which answers the conformance tests have seen: (API, version, error code), printed when they have run.

Everything that reads an answer in this process goes through ``framing.decode_response``; :func:`watch` puts a counter
around it, which counts inside :func:`counted` only: other tests in the process make up answers of their own. Broker by
broker is not told apart: each test runs over both and expects the same.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka.protocol import framing
from kafka.protocol.registry import NAMES
from kafka.wire.message import Struct, fields_of

_seen: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
"""API key -> version -> error codes."""

_is_counting = False


@contextmanager
def counted() -> Iterator[None]:
    """Count the answers that come meanwhile."""
    global _is_counting
    _is_counting = True
    try:
        yield
    finally:
        _is_counting = False


def watch() -> None:
    """Be able to count, in every module that has taken the function by its name, too."""
    original = framing.decode_response

    def watched(cls: Any, version: int, frame: Any) -> Any:
        answer = original(cls, version, frame)
        if _is_counting:
            _seen[cls.api_key][version].update(error_codes(answer))
        return answer

    for module in list(sys.modules.values()):
        if getattr(module, "decode_response", None) is original:
            module.decode_response = watched  # type: ignore[attr-defined]


def error_codes(value: Any) -> Iterator[int]:
    """Every error code in an answer; 0 for one that has none to give."""
    found = list(_codes(value))
    return iter(found or [0])


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _codes(each)
    elif isinstance(value, Struct):
        for field in fields_of(type(value)):
            if field.name.endswith("error_code"):
                yield getattr(value, field.name)
            elif field.type.cls is not None:
                yield from _codes(getattr(value, field.name))


def seen() -> dict[str, dict[str, list[int]]]:
    """What was counted, for another process (in what pytest-xdist can send)."""
    return {str(key): {str(v): sorted(codes) for v, codes in versions.items()} for key, versions in _seen.items()}


def add(others: Mapping[str, Mapping[str, Iterable[int]]]) -> None:
    """What another process has :func:`seen`."""
    for key, versions in others.items():
        for version, codes in versions.items():
            _seen[int(key)][int(version)].update(codes)


def report() -> list[str]:
    """A line for each API: its versions, and the codes with the versions that gave them."""
    lines = []
    for key in sorted(_seen):
        versions = _seen[key]
        codes: dict[int, set[int]] = defaultdict(set)
        for version, found in versions.items():
            for code in found:
                codes[code].add(version)
        told = ", ".join(
            f"{code}" if found == set(versions) else f"{code} ({_spans(found)})"
            for code, found in sorted(codes.items())
        )
        lines.append(f"{NAMES[key]} {_spans(set(versions))}: {told}")
    triples = sum(len(found) for versions in _seen.values() for found in versions.values())
    pairs = sum(len(versions) for versions in _seen.values())
    lines.append(f"{len(_seen)} APIs, {pairs} versions, {triples} (API, version, error code)")
    return lines


def _spans(numbers: set[int]) -> str:
    """{0, 1, 2, 5} -> "v0-2 v5"."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return " ".join(f"v{low}" if low == high else f"v{low}-{high}" for low, high in spans)
