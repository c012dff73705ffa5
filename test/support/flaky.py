"""The policy for tests that fail and then pass, as ``.ci/run`` applies it; ``test/README.rst`` explains it to people.

    python -m test.support.flaky check               are there rows in the ledger that are too old?
    python -m test.support.flaky rerun TOX LOG       a run of tox has failed: may its failures be rerun, do they pass?

A failed run is green all the same when nothing but tests failed, at most :data:`MOST_TESTS` of them in at most
:data:`MOST_PARTS` test files, and each of those files passes :data:`RERUNS` times when it runs alone. Every test that
failed is then printed as ``FLAKY`` with its first traceback and gets a row in the ledger, ``test/flaky.txt``: the date,
the test, the seed of the run. A row is a debt of :data:`GRACE`: after that it turns every run red.

There is no rerun for a test that has a row, for an interpreter that crashed, for tests of :data:`PURE` packages (their
tests touch nothing that varies but the seed), or for a test file that the change under test touches.
"""

from __future__ import annotations

import argparse
import datetime
import pathlib
import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from test.support.checkout import ROOT, checkout
from test.support.results import Results, read

LEDGER: Final = ROOT / "test" / "flaky.txt"
GRACE: Final = datetime.timedelta(days=14)
MOST_TESTS: Final = 3
MOST_PARTS: Final = 2
RERUNS: Final = 2
PURE: Final = tuple(f"test/{name}/" for name in ("core", "wire", "records", "protocol", "net"))


class Row(NamedTuple):
    """One row of the ledger."""

    date: datetime.date
    nodeid: str
    seed: int

    def __str__(self) -> str:
        return f"{self.date} {self.seed} {self.nodeid}"


class Rerun(NamedTuple):
    """What has to pass when it runs alone in one tox environment: the test files with failures, and the tests that have
    failed themselves, since those of the deep tier run when they are named."""

    environment: str
    paths: tuple[str, ...]
    nodeids: tuple[str, ...]


class Refused(Exception):
    """The failures are not rerun; the text says why."""


def rows_of(text: str) -> list[Row]:
    """The rows of a ledger; empty lines and comments are left out."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    parts = [line.split(" ", 2) for line in lines]
    return [Row(datetime.date.fromisoformat(date), nodeid, int(seed)) for date, seed, nodeid in parts]


def overdue(rows: Iterable[Row], today: datetime.date) -> list[Row]:
    """The rows that are older than :data:`GRACE`."""
    return [row for row in rows if today - row.date > GRACE]


def failed_environments(log: str) -> list[str]:
    """The environments that tox reports as failed at the end of a run."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    return re.findall(r"^  (\S+): FAIL\b", plain, re.MULTILINE)


def reruns(
    failed: Collection[str], found: Collection[Results], known: Collection[str], changed: Collection[str]
) -> list[Rerun]:
    """What has to be rerun, by environment; :class:`Refused` where the failures count as they are.

    ``failed``: environments that tox reports as failed. ``found``: the record of each. ``known``: tests that have a
    row in the ledger. ``changed``: files that the change under test touches.
    """
    broken = sorted(set(failed) - {results.environment for results in found if results.complete and results.failed})
    if broken or not failed:
        raise Refused(f"not only tests failed: {', '.join(broken) or 'tox'}")
    crashed = [nodeid for results in found for nodeid in results.crashed]
    if crashed:
        raise Refused(f"an interpreter crashed during {crashed[0]}")
    tests = {nodeid for results in found for nodeid in results.failed}
    paths = {path_of(nodeid) for nodeid in tests}
    if len(tests) > MOST_TESTS or len(paths) > MOST_PARTS:
        raise Refused(f"{len(tests)} tests in {len(paths)} files failed: more than {MOST_TESTS} in {MOST_PARTS}")
    for nodeid in sorted(tests):
        if nodeid in known:
            raise Refused(f"{nodeid} is in the ledger of flaky tests already")
        if nodeid.startswith(PURE):
            raise Refused(f"{nodeid} is a test of a pure package")
        if path_of(nodeid) in changed:
            raise Refused(f"this change touches {path_of(nodeid)}")
    return [
        Rerun(each.environment, tuple(sorted({path_of(nodeid) for nodeid in each.failed})), tuple(sorted(each.failed)))
        for each in found
    ]


def path_of(nodeid: str) -> str:
    """The test file of a test."""
    return nodeid.partition("::")[0]


def run_again(wanted: Iterable[Rerun], run: Callable[[Sequence[str]], int], tox: str) -> None:
    """Rerun, with new seeds; :class:`Refused` when something fails again."""
    for number in range(RERUNS):
        for environment, paths, nodeids in wanted:
            print(f"rerun {number + 1} of {RERUNS}: {environment}: {' '.join(paths)}", flush=True)
            if run([tox, "run", "-e", environment, "--", "--tier=short", *paths, *nodeids]) != 0:
                raise Refused(f"{' '.join(paths)} failed again")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.support.flaky")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    rerun = commands.add_parser("rerun")
    rerun.add_argument("tox")
    rerun.add_argument("log", type=pathlib.Path)
    options = parser.parse_args()
    rows = rows_of(LEDGER.read_text())
    today = datetime.datetime.now(datetime.timezone.utc).date()
    if options.command == "check":
        late = overdue(rows, today)
        for row in late:
            print(f"flaky for more than {GRACE.days} days (test/flaky.txt): {row}")
        return 1 if late else 0
    failed = failed_environments(options.log.read_text(errors="replace"))
    records = [read(ROOT / ".tox" / "results" / f"{name}.json") for name in failed]
    found = [record for record in records if record is not None]
    try:
        run_again(
            reruns(failed, found, {row.nodeid for row in rows}, checkout().changed),
            lambda command: subprocess.run(command, cwd=ROOT, check=False).returncode,
            options.tox,
        )
    except Refused as reason:
        print(f"The run is red. No rerun makes it green: {reason}")
        return 1
    for record in found:
        for nodeid, traceback in record.failed.items():
            row = Row(today, nodeid, record.seed)
            print(f"FLAKY {nodeid}\n{traceback}\nAdd this line to test/flaky.txt and mend the test: {row}")
            with LEDGER.open("a") as ledger:
                ledger.write(f"{row}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
