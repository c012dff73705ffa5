"""What stays in the broker's memory when a request was answered and its connection is gone, and what ends it.

    python -m test.hostile.retained                   # per API: bytes kept for each byte sent, and after 8 days

Each case (``generator.py``) asks some times with names of its own. Memory is that of Python's objects (tracemalloc).
"""

from __future__ import annotations

import argparse
import functools
import gc
import logging
import re
import sys
import tempfile
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kafka.broker.registry import load
from kafka.wire import codec
from test.hostile.generator import Case
from test.hostile.measure import all_cases, on_a_copy
from test.hostile.scene import Scene

SIZE: Final = 5_000
ROUNDS: Final = 4
WORTH_TELLING: Final = 0.2
"""Bytes kept for each byte sent: less than this is told by ``--all`` alone."""
HOURS: Final = (1 / 60, 1, 24, 24 * 8)


class Kept(NamedTuple):
    """``sent``, ``at_once``: bytes of one request, and how many of memory stay when it is over. ``after``: the same
    after :data:`HOURS`."""

    title: str
    api: str
    sent: int
    at_once: int
    after: list[int]


def measure(chosen: Iterable[Case]) -> Iterator[Kept]:
    """All cases that ask with other names each time."""
    load()
    with tempfile.TemporaryDirectory() as folder:
        origin = Path(folder, "origin")
        Scene(origin).hand.broker.close()
        for case in chosen:
            for row in on_a_copy(functools.partial(_run, case=case), origin, Path(folder, "copy")):
                yield Kept(*row) if isinstance(row, list) else Kept(case.title, case.api, 0, -1, [])


def _run(scene: Scene, case: Case) -> Iterator[Kept]:
    sent, levels = 0, []
    scene.turn(scene.frame(case.make(SIZE, "w"), case.version))
    tracemalloc.start()
    for number in range(ROUNDS):
        frame = scene.frame(case.make(SIZE, f"z{number}y"), case.version)
        sent = len(frame)
        scene.turn(frame)
        del frame
        levels.append(_level())
    at_once = (levels[-1] - levels[0]) // (ROUNDS - 1)
    after, hours = [], 0.0
    for until in HOURS:
        for _ in range(4):
            scene.hand.now += (until - hours) * 3600 / 4
            scene.hand.tick()
        hours = until
        after.append(max(0, (_level() - levels[0]) // (ROUNDS - 1)))
    yield Kept(case.title, case.api, sent, at_once, after)


def _level() -> int:
    codec._uuid.cache_clear()  # type: ignore[attr-defined]  # bounded, and kept over all requests
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.hostile.retained", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="cases whose title matches this regular expression")
    parser.add_argument("--all", action="store_true", help="also what leaves next to nothing")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    wanted = re.compile(options.only or "all different|nested|long|differ|regex|metrics")
    for kept in measure(case for case in all_cases() if case.has_size and wanted.search(case.title)):
        if options.all or kept.at_once > WORTH_TELLING * kept.sent:
            then = ", ".join(f"{hours:g} h: {left:,}" for hours, left in zip(HOURS, kept.after, strict=False))
            print(f"{kept.at_once:10,} bytes kept of {kept.sent:7,} sent: {kept.title}; {then}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
