"""The worst time and memory that a request of n bytes can cost the broker: measured, as a table.

    python -m test.hostile.measure                            # the worst case of each API and size
    python -m test.hostile.measure --only Fetch --profile     # with the functions where the time goes
    python -m test.hostile.measure --write docs/_hostile_input.txt

Each case (``generator.py``) runs in a process of its own, on a broker of its own with a copy of the same directory
(``scene.py``). Time is CPU time of the longest turn of the loop, memory the peak of the process above what it had
before the request came. So another machine's numbers differ, and another load's do not. Linux only.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import io
import json
import logging
import os
import pstats
import re
import resource
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from kafka.broker.registry import MOST_ELEMENTS, load
from kafka.wire.source import MAX_ELEMENTS
from test.hostile.generator import Case, cases
from test.hostile.scene import Scene

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
"""Bytes of a request. Elements of arrays have a limit of their own, which the largest size reaches in most APIs."""
MOST_S: Final = 0.1
MOST_MB: Final = 64
MOST_TIMES: Final = 30
GIVE_UP_S: Final = 3.0
"""A case that took so long is not tried with more bytes."""
CPU_LIMIT_S: Final = 60
MEMORY_LIMIT_BYTES: Final = 3 << 30


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
        return max(self.ms / 1000 / MOST_S, self.mb / (MOST_MB + MOST_TIMES * self.request_bytes / 1e6))


def measure(chosen: Iterable[Case], sizes: Sequence[int], *, profile: bool = False) -> Iterator[Cost]:
    """All costs, case by case."""
    load()
    with tempfile.TemporaryDirectory() as folder:
        origin = Path(folder, "origin")
        Scene(origin).hand.broker.close()
        gc.collect()
        gc.freeze()
        for case in chosen:
            rest = list(sizes if case.has_size else sizes[:1])
            for row in in_a_child(lambda scene: _run(scene, case, rest, profile), origin, Path(folder, "copy")):  # noqa: B023
                if isinstance(row, list):
                    del rest[0]
                    yield Cost(*row)
                else:
                    yield Cost(case.title, case.api, rest[0], CPU_LIMIT_S * 1e3, 0.0, 0, f"killed: status {row}")


def in_a_child(work: Callable[[Scene], Iterable[tuple[Any, ...]]], origin: Path, copy: Path) -> Iterator[Any]:
    """What ``work`` gives, run in a process of its own on a copy of the scene at ``origin``: rows as lists, and behind
    them the exit status where that is not 0."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.close(reading)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
            shutil.copytree(origin, copy)
            with os.fdopen(writing, "w") as out:
                for row in work(Scene(copy)):
                    print(json.dumps(row), file=out, flush=True)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as lines:
        found = [json.loads(line) for line in lines]
    _, status = os.waitpid(pid, 0)
    shutil.rmtree(copy, ignore_errors=True)
    yield from found
    if status:
        yield status


def _run(scene: Scene, case: Case, sizes: Sequence[int], profile: bool) -> Iterator[Cost]:
    for number, size in enumerate(sizes):
        frame = scene.frame(case.make(size, f"z{number}y"), case.version)
        scene.turn(scene.frame(case.make(100, f"w{number}y"), case.version))  # compiles codecs, imports modules
        if profile:
            profiler = cProfile.Profile()
            profiler.enable()
        gc.collect()
        before = _reset_peak()
        turn = scene.turn(frame)
        mb = (_peak() - before) / 1e6
        where = ""
        if profile:
            profiler.disable()
            where = _dearest(profiler)
        yield Cost(case.title, case.api, len(frame), turn.cpu_s * 1e3, mb, turn.answer_bytes, turn.outcome, where)
        if turn.cpu_s > GIVE_UP_S:
            break


def _reset_peak() -> int:
    """Forget the process's peak of memory; what it has now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    return _peak()


def _peak() -> int:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmHWM in /proc/self/status")


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
    yield ".. list-table::\n   :header-rows: 1\n"
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
    for row in cells:
        yield "\n" + "".join(f"   {'*' if not at else ' '} - {cell}\n" for at, cell in enumerate(row))


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
