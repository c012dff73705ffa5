"""The worst time and memory that n bytes can cost a client or a worker: measured, as a table.

    python -m test.hostile.measure_clients                       # the worst case of each input and size
    python -m test.hostile.measure_clients --only ShareFetch --all
    python -m test.hostile.measure_clients --write docs/_hostile_input_clients.txt

Each case (``client_cases.py``) runs in a process of its own. Time is CPU time of the longest single step, memory the
peak of the process above what it had when the input was there. Of answers, which are thousands of arrays, all are read
with few bytes, and those with more that were the dearest then. Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import logging
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from test.hostile.client_cases import Case, answers, cases
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

SIZES: Final = (10_000, 100_000, 1_000_000, 10_000_000)
SAMPLE: Final = 10_000
"""Bytes of each answer when the dearest are looked for."""
DEAREST: Final = 12
"""So many answers, by time and by excess."""


class Cost(NamedTuple):
    """Of one case with ``size`` bytes, or about: ``input_bytes``."""

    title: str
    input: str
    size: int
    input_bytes: int
    ms: float
    mb: float
    limit: str
    is_on_loop: bool
    outcome: str = "done"

    @property
    def badness(self) -> float:
        """Above 1 the bound is missed. A user's thread has none for its time."""
        return badness(self.input_bytes, self.ms if self.is_on_loop else 0.0, self.mb)


def cost(case: Case, size: int) -> Cost:
    """Of one case in this process, which has run it with less before."""
    input_bytes, steps = case.make(size)
    gc.collect()
    _trim()
    before, longest_s = reset_peak(), 0.0
    for step in steps:
        started = time.process_time()
        step()
        longest_s = max(longest_s, time.process_time() - started)
    mb = max(0, peak() - before) / 1e6
    return Cost(case.title, case.input, size, input_bytes, longest_s * 1e3, mb, case.bound, case.is_on_loop)


def run_small(case: Case) -> None:
    """Once with little: codecs are compiled, and modules imported."""
    for step in case.make(200)[1]:
        step()


def _trim() -> None:
    """Give back what making the input took, or it would hide as much of what follows."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def measure(chosen: Iterable[Case], sizes: Sequence[int]) -> Iterator[Cost]:
    """All costs, case by case."""

    def run(case: Case) -> Iterator[Cost]:
        run_small(case)
        for size in sizes:
            found = cost(case, size)
            yield found
            if found.ms > GIVE_UP_S * 1e3:
                break

    gc.collect()
    gc.freeze()
    for case in chosen:
        done = 0
        for row in in_a_child(lambda: run(case)):  # noqa: B023
            if isinstance(row, list):
                done += 1
                yield Cost(*row)
            else:
                size, why = sizes[min(done, len(sizes) - 1)], f"killed: status {row}"
                yield Cost(case.title, case.input, size, size, CPU_LIMIT_S * 1e3, 0.0, case.bound, True, why)


def dearest_answers() -> list[Case]:
    """Those of all answers that take the most time, or have the most excess."""
    rows = []
    for excess, case in answers():
        run_small(case)
        _, steps = case.make(SAMPLE)
        started = time.process_time()
        for step in steps:
            step()
        rows.append((time.process_time() - started, excess, case))
    by_time = sorted(rows, key=lambda row: -row[0])[:DEAREST]
    by_excess = sorted(rows, key=lambda row: -row[1])[:DEAREST]
    return list({case.title: case for _, _, case in by_time + by_excess}.values())


def worst(costs: Iterable[Cost]) -> dict[tuple[str, int], tuple[Cost, Cost]]:
    """Of each input and size the worst by time and the worst by memory."""
    found: dict[tuple[str, int], tuple[Cost, Cost]] = {}
    for each in costs:
        key = each.input, each.size
        by_time, by_memory = found.get(key, (each, each))
        found[key] = max(by_time, each, key=lambda one: one.ms), max(by_memory, each, key=lambda one: one.mb)
    return found


def table(costs: Iterable[Cost]) -> Iterator[str]:
    """Lines of reStructuredText: for each input and size the worst time and the worst memory of all its cases."""
    yield ".. Written by python -m test.hostile.measure_clients --write; a file to be included.\n\n"
    rows = [("input", "bytes", "longest step", "memory", "limit")]
    for (what, size), (by_time, by_memory) in worst(costs).items():
        time_cell = f"{by_time.ms:.0f} ms ({by_time.title.removeprefix(what + ', ')})"
        memory_cell = f"{by_memory.mb:.0f} MB ({by_memory.title.removeprefix(what + ', ')})"
        rows.append((what, f"{size:,}", time_cell, memory_cell, by_time.limit))
    yield from list_table(rows)


def _line(each: Cost) -> str:
    where = "" if each.is_on_loop else ", in a user's thread"
    shown = f"{each.ms:8.1f} ms {each.mb:7.1f} MB for {each.input_bytes:10,} bytes: {each.title}{where}"
    return shown + ("" if each.outcome == "done" else f" ({each.outcome})") + f"; {each.limit}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m test.hostile.measure_clients", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--only", help="cases whose title matches this regular expression")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--all", action="store_true", help="every case, not the worst alone")
    parser.add_argument("--write", type=Path, help="also a table for the documentation")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    wanted = re.compile(options.only or "")
    chosen = [case for case in (*dearest_answers(), *cases()) if wanted.search(case.title)]
    costs = []
    for each in measure(chosen, options.sizes):
        costs.append(each)
        if each.badness > 1:
            print(_line(each), file=sys.stderr, flush=True)
    print(f"{len(chosen)} cases, {len(costs)} inputs")
    shown = costs if options.all else dict.fromkeys(one for both in worst(costs).values() for one in both)
    for each in shown:
        print(_line(each))
    if options.write is not None:
        options.write.write_text("".join(table(costs)), "utf-8")
    missed = sum(each.badness > 1 for each in costs)
    print(f"{missed} above {MOST_S * 1e3:g} ms of a loop or {MOST_TIMES} times the input and {MOST_MB} MB")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
