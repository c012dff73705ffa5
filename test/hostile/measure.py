"""The worst time and memory that a request of n bytes can cost the broker: measured, as a table.

    python -m test.hostile.measure                            # the worst case of each API and size
    python -m test.hostile.measure --only Fetch --profile     # with the functions where the time goes
    python -m test.hostile.measure --write docs/_hostile_input.txt

Each case (``generator.py``) runs in a process of its own, on a broker of its own with a copy of the same directory
(``scene.py``), with the garbage collector set as in a broker's process. Time is CPU time of the longest turn of the
loop, memory the peak of the process above what it had before the request came. So another machine's numbers differ, and
another load's do not, as far as processors have no neighbours. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import gc
import io
import logging
import pstats
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from kafka.broker.process import tune_garbage_collector
from kafka.broker.registry import MOST_ELEMENTS, load
from kafka.wire.codec import MAX_ELEMENTS
from test.hostile.costs import (
    CPU_LIMIT_S,
    GIVE_UP_S,
    MOST_MB,
    MOST_S,
    MOST_TIMES,
    badness,
    in_a_child,
    list_table,
    peak,
    reset_peak,
)
from test.hostile.generator import Case, cases
from test.hostile.scene import Scene, Turn

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
"""Bytes of a request. Elements of arrays have a limit of their own, which the largest size reaches in most APIs."""

TRIES: Final = 3


class Cost(NamedTuple):
    """Of one request. ``mb``: peak memory beside the request itself, in 1e6 bytes. ``where``: the dearest functions."""

    title: str
    api: str
    request_bytes: int
    ms: float
    mb: float
    answer_bytes: int
    outcome: str
    where: str = ""

    @property
    def badness(self) -> float:
        """Above 1 the bound is missed."""
        return badness(self.request_bytes, self.ms, self.mb)


def measure(chosen: Iterable[Case], sizes: Sequence[int], *, profile: bool = False) -> Iterator[Cost]:
    """All costs, case by case."""
    load()
    with tempfile.TemporaryDirectory() as folder:
        origin = Path(folder, "origin")
        Scene(origin).hand.broker.close()
        gc.collect()
        tune_garbage_collector()
        for case in chosen:
            rest = list(sizes if case.has_size else sizes[:1])
            for row in on_a_copy(lambda scene: _run(scene, case, rest, profile), origin, Path(folder, "copy")):  # noqa: B023
                if isinstance(row, list):
                    del rest[0]
                    yield Cost(*row)
                else:
                    yield Cost(case.title, case.api, rest[0], CPU_LIMIT_S * 1e3, 0.0, 0, f"killed: status {row}")


def on_a_copy(work: Callable[[Scene], Iterable[tuple[Any, ...]]], origin: Path, copy: Path) -> Iterator[Any]:
    """What ``work`` gives, run in a process of its own (``costs.in_a_child``) on a copy of the scene at ``origin``."""

    def run() -> Iterable[tuple[Any, ...]]:
        shutil.copytree(origin, copy)
        return work(Scene(copy))

    yield from in_a_child(run)
    shutil.rmtree(copy, ignore_errors=True)


def _run(scene: Scene, case: Case, sizes: Sequence[int], profile: bool) -> Iterator[Cost]:
    for number, size in enumerate(sizes):
        scene.turn(scene.frame(case.make(100, f"w{number}y"), case.version))  # compiles codecs, imports modules
        profiler = cProfile.Profile() if profile else None
        turn, mb, request_bytes = _least(scene, case, size, number, profiler)
        where = _dearest(profiler) if profiler is not None else ""
        yield Cost(case.title, case.api, request_bytes, turn.cpu_s * 1e3, mb, turn.answer_bytes, turn.outcome, where)
        if turn.cpu_s > GIVE_UP_S:
            break


def _least(
    scene: Scene, case: Case, size: int, number: int, profiler: cProfile.Profile | None
) -> tuple[Turn, float, int]:
    """What a request of this size costs, its memory in MB, and its bytes. One above the bound of time is tried again,
    with other names, and the least counts: a machine that is shared adds to it and takes nothing away."""
    tries: list[tuple[Turn, float, int]] = []
    while len(tries) < TRIES and (not tries or MOST_S < tries[-1][0].cpu_s < GIVE_UP_S):
        frame = scene.frame(case.make(size, f"z{number}{len(tries)}y"), case.version)
        gc.collect()
        before = reset_peak()
        with profiler or contextlib.nullcontext():
            turn = scene.turn(frame)
        tries.append((turn, (peak() - before) / 1e6, len(frame)))
    turn, _, request_bytes = min(tries, key=lambda one: one[0].cpu_s)
    return turn, max(mb for _, mb, _ in tries), request_bytes


def _dearest(profiler: cProfile.Profile, count: int = 4) -> str:
    stats = pstats.Stats(profiler, stream=io.StringIO())
    rows = sorted(stats.stats.items(), key=lambda row: -row[1][2])  # type: ignore[attr-defined]
    return "; ".join(
        f"{Path(path).name}:{line} {name} {1e3 * row[2]:.0f} ms" for (path, line, name), row in rows[:count]
    )


def worst(costs: Iterable[Cost]) -> list[Cost]:
    """Of each API and size the worst by time and the worst by memory, the worst APIs first."""
    by_api: dict[str, dict[tuple[int, bool], Cost]] = {}
    for cost in costs:
        size = _size_of(cost)
        found = by_api.setdefault(cost.api, {})
        for by_memory in (False, True):
            best = found.get((size, by_memory))
            if best is None or (cost.mb > best.mb if by_memory else cost.ms > best.ms):
                found[size, by_memory] = cost
    rows = sorted(by_api.values(), key=lambda found: -max(cost.badness for cost in found.values()))
    return [cost for found in rows for cost in dict.fromkeys(found[key] for key in sorted(found))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.hostile.measure", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="cases whose title matches this regular expression")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--profile", action="store_true", help="also where the time goes; times are longer then")
    parser.add_argument("--all", action="store_true", help="every case, not the worst alone")
    parser.add_argument("--write", type=Path, help="also a table for the documentation")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    chosen = [case for case in all_cases() if options.only is None or re.search(options.only, case.title)]
    costs = []
    for cost in measure(chosen, options.sizes, profile=options.profile):
        costs.append(cost)
        if cost.badness > 1:
            print(_line(cost), file=sys.stderr, flush=True)
    print(f"{len(chosen)} cases, {len(costs)} requests")
    for cost in sorted(costs, key=lambda cost: -cost.badness) if options.all else worst(costs):
        print(_line(cost))
    if options.write is not None:
        options.write.write_text("".join(table(costs)), "utf-8")
    missed = sum(cost.badness > 1 for cost in costs)
    print(f"{missed} above {MOST_S * 1e3:g} ms or {MOST_TIMES} times the request and {MOST_MB} MB")
    return 1 if missed else 0


def table(costs: Iterable[Cost]) -> Iterator[str]:
    """Lines of reStructuredText: for each API and size the worst time, memory and answer of all its cases."""
    yield ".. Written by python -m test.hostile.measure --write; a file to be included.\n\n"
    heads = ("request", "bytes", "loop time", "memory", "answer", "most elements of a request")
    rows: dict[tuple[str, int], list[Cost]] = {}
    for cost in costs:
        rows.setdefault((cost.api, _size_of(cost)), []).append(cost)
    cells = [heads]
    for (api, size), found in sorted(rows.items(), key=lambda row: (row[0][0], row[0][1])):
        ms, mb = max(cost.ms for cost in found), max(cost.mb for cost in found)
        answer = max(cost.answer_bytes for cost in found)
        most = MOST_ELEMENTS.get(api, MAX_ELEMENTS)
        cells.append((api, f"{size:,}", f"{ms:.0f} ms", f"{mb:.0f} MB", f"{answer:,} bytes", f"{most:,}"))
    yield from list_table(cells)


def _size_of(cost: Cost) -> int:
    """The size of :data:`SIZES` that it belongs to."""
    return next((one for one in reversed(SIZES) if cost.request_bytes > one // 2), SIZES[0])


def all_cases() -> list[Case]:
    """Those of all requests that a broker of the newest release serves."""
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder, "d"))
        try:
            return list(cases(scene.hand.broker.release.apis()))
        finally:
            scene.hand.broker.close()


def _line(cost: Cost) -> str:
    shown = f"{cost.ms:8.1f} ms {cost.mb:7.1f} MB for {cost.request_bytes:9,} bytes, answer {cost.answer_bytes:9,}: "
    return shown + cost.title + ("" if cost.outcome == "answered" else f" ({cost.outcome})") + (
        f"\n{cost.where:>30}" if cost.where else ""
    )


if __name__ == "__main__":
    sys.exit(main())
