"""``python -m test.mutation``: which mutants do the tests of the same directory not notice?

    python -m test.mutation                        every subject; exit code 1 when one is below 90 %
    python -m test.mutation core/share records     some of them
    python -m test.mutation --only kafka/core/share/acknowledgements.py[:LINE]
    python -m test.mutation --sample 40            so many mutants of each subject, drawn by KAFKA_TEST_SEED
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from test.mutation.mutants import Mutant, canonical, enums_of, mutants
from test.mutation.run import (
    ROOT,
    SLOWER,
    Child,
    Groups,
    module_of,
    modules_without,
    path_of,
    preload,
    seconds_unchanged,
    wait_for_one,
)
from test.support import seeds

LEAST: Final = 0.9
EQUIVALENT: Final = pathlib.Path(__file__).with_name("equivalent.txt")


class Subject(NamedTuple):
    """Modules, and the tests that have to notice a mutant of them. Directories are taken without what is below them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


def _mirrored(name: str) -> Subject:
    return Subject((f"kafka/{name}",), (f"test/{name}",))


_TASKS: Final = (
    "rules/decide", "rules/admit", "delivery/finishing", "worker/admission", "worker/leases", "results/view",
    "results/evicted", "results/lookup", "format/records", "schedule/cron", "schedule/times",
)  # fmt: skip
_TASKS_TESTS: Final = (
    "test/tasks", "test/tasks/rules", "test/tasks/delivery", "test/tasks/worker", "test/tasks/results",
    "test/tasks/format", "test/tasks/schedule",
)  # fmt: skip

SUBJECTS: Final[dict[str, Subject]] = {
    **{
        name: _mirrored(name)
        for name in (
            "core/produce", "core/group", "core/consume", "core/share", "core/admin", "broker/share", "broker/groups",
            "records", "wire",
        )
    },
    "tasks": Subject(tuple(f"kafka/tasks/{name}.py" for name in _TASKS), _TASKS_TESTS),
}  # fmt: skip

TOO_SLOW: Final = ("test/tasks/worker/test_worker_pools.py", "test/tasks/worker/test_driver.py")
"""Tests that start brokers or processes: a mutant has to be noticed without them."""


def files_of(paths: Sequence[str], pattern: str) -> list[str]:
    """The Python files that paths stand for."""
    found: list[str] = []
    for path in paths:
        full = ROOT / path
        inner = sorted(full.glob(pattern)) if full.is_dir() else [full]
        found += [str(each.relative_to(ROOT)) for each in inner]
    return found


def tests_for(path: str, tests: Sequence[str]) -> list[list[str]]:
    """The test files in groups: those of the module's name, those that import it, the others."""
    stem, name = pathlib.PurePosixPath(path).stem, module_of(path)
    groups: list[list[str]] = [[], [], []]
    for test in tests:
        if test not in TOO_SLOW:
            imports_it = f"{name} import" in (ROOT / test).read_text(encoding="utf-8")
            groups[0 if pathlib.PurePosixPath(test).stem == f"test_{stem}" else 1 if imports_it else 2].append(test)
    return [group for group in groups if group]


def mutants_of(path: str) -> list[Mutant]:
    """Every mutant of a module."""
    source = (ROOT / path).read_text(encoding="utf-8")

    def others(module: str) -> str | None:
        found = path_of(module)
        return None if found is None else found.read_text(encoding="utf-8")

    return list(mutants(path, source, enums_of(source, module_of(path), others)))


def equivalents() -> dict[tuple[str, str], str]:
    """(place, change) of mutants that behave like the module itself -> why."""
    lines = [line for line in EQUIVALENT.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    rows = [line.split(" | ") for line in lines]
    return {(place, change): reason for place, change, reason in rows}


def run_module(path: str, chosen: Sequence[Mutant], tests: Groups, jobs: int) -> tuple[list[Mutant], int]:
    """The mutants that survive, and how many were killed because they did not end. In a process of its own."""
    preload(modules_without(module_of(path), [test for group in tests for test in group]))
    source = canonical((ROOT / path).read_text(encoding="utf-8"))
    limit_s = 5.0 + SLOWER * seconds_unchanged(Mutant(path, 0, path, "", source), tests)
    alive: list[Mutant] = []
    endless = 0
    running: list[Child] = []
    for mutant in [*chosen, *[None] * jobs]:
        if len(running) == jobs or (mutant is None and running):
            child, code = wait_for_one(running)
            endless += code == -1
            if code == 0:
                alive.append(child.mutant)
                print(f"survives: line {child.mutant.line}: {child.mutant.place} | {child.mutant.change}", flush=True)
        if mutant is not None:
            running.append(Child(mutant, tests, limit_s))
    return alive, endless


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.mutation", usage=(__doc__ or "").replace("%", "%%"))
    parser.add_argument("subjects", nargs="*")
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    options = parser.parse_args()
    unknown = set(options.subjects) - SUBJECTS.keys()
    if unknown:
        parser.error(f"no subject {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    os.environ.update(KAFKA_PURE="1", KAFKA_TEST_SEED=os.environ.get("KAFKA_TEST_SEED", "0"))
    only, _, line = options.only.partition(":")
    known = equivalents()
    is_good = True
    for name in options.subjects or SUBJECTS:
        subject = SUBJECTS[name]
        counts: Counter[str] = Counter()
        began = time.monotonic()
        every = {path: mutants_of(path) for path in files_of(subject.modules, "*.py") if only in ("", path)}
        names = {(one.place, one.change) for found in every.values() for one in found}
        stale = {row for row in known if row[0].partition(":")[0] in every} - names
        for row in sorted(stale):
            print(f"equivalent.txt has a row that is no mutant any more: {' | '.join(row)}")
            is_good = False
        chosen = [one for found in every.values() for one in found if (one.place, one.change) not in known]
        counts["equivalent"] = sum(map(len, every.values())) - len(chosen)
        if line:
            chosen = [one for one in chosen if one.line == int(line)]
        if 0 < options.sample < len(chosen):
            chosen = seeds.rng(name).sample(chosen, options.sample)
        tests = files_of(subject.tests, "**/test_*.py" if name != "tasks" else "test_*.py")
        for path in every:
            of_path = [one for one in chosen if one.path == path]
            if options.list:
                print("\n".join(f"{path}:{one.line}: {one.change}" for one in of_path))
            elif of_path:
                alive, endless = _in_a_process(path, of_path, tests_for(path, tests), options.jobs)
                counts.update(mutants=len(of_path), survived=alive, endless=endless)
        if counts["mutants"]:
            share = 1 - counts["survived"] / counts["mutants"]
            is_good = is_good and share >= LEAST
            print(
                f"{name}: {counts['mutants']} mutants, {share:.1%} killed ({counts['endless']} did not end), "
                f"{counts['survived']} survive, {counts['equivalent']} equivalent, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    return 0 if is_good else 1


def _in_a_process(path: str, chosen: Sequence[Mutant], tests: Groups, jobs: int) -> tuple[int, int]:
    """:func:`run_module` in a fork, as what it loads depends on the module: how many survive, how many do not end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            alive, endless = run_module(path, chosen, tests, jobs)
            os.write(writer, f"{len(alive)} {endless}".encode())
            os._exit(0)
        except SystemExit as error:
            print(error, flush=True)
            os._exit(2)
    os.close(writer)
    told = os.read(reader, 100)
    os.close(reader)
    os.waitpid(pid, 0)
    if not told:
        raise SystemExit(2)
    survived, endless = map(int, told.split())
    return survived, endless


if __name__ == "__main__":
    sys.exit(main())
