"""The policy for tests that fail and then pass: what is rerun, what is not, and what a row of the ledger costs."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pytest

from test.support import flaky
from test.support.flaky import Refused, Rerun, Row
from test.support.results import Results

TODAY = datetime.date(2026, 3, 20)


def results(*failed: str, environment: str = "py", **changes: Any) -> Results:
    rows = {nodeid: f"traceback of {nodeid}" for nodeid in failed}
    return Results(environment, 7, 100, rows, (), True)._replace(**changes)


def test_what_failed_is_rerun_file_by_file() -> None:
    plain = results("test/tasks/test_a.py::test_x", "test/tasks/test_a.py::test_y[1]")
    compiled = results("test/cli/test_b.py::test_z", environment="compiled")
    assert flaky.reruns(["py", "compiled"], [plain, compiled], [], []) == [
        Rerun("py", ("test/tasks/test_a.py",), ("test/tasks/test_a.py::test_x", "test/tasks/test_a.py::test_y[1]")),
        Rerun("compiled", ("test/cli/test_b.py",), ("test/cli/test_b.py::test_z",)),
    ]


X = "test/tasks/test_a.py::test_x"


@pytest.mark.parametrize(
    ("failed", "found", "known", "changed", "reason"),
    [
        (["py", "types"], [results(X)], [], [], "not only tests failed: types"),
        (["py"], [], [], [], "not only tests failed: py"),
        (["py"], [results(X, complete=False)], [], [], "not only tests failed: py"),
        (["py"], [results()], [], [], "not only tests failed: py"),
        ([], [], [], [], "not only tests failed: tox"),
        (["py"], [results(X, crashed=(X,))], [], [], "an interpreter crashed during " + X),
        (["py"], [results(*(f"{X}[{n}]" for n in range(4)))], [], [], "4 tests in 1 files failed"),
        (["py"], [results(*(f"test/tasks/test_{n}.py::x" for n in range(3)))], [], [], "3 tests in 3 files failed"),
        (["py"], [results(X)], [X], [], "in the ledger"),
        (["py"], [results(X)], [], ["test/tasks/test_a.py"], "this change touches test/tasks/test_a.py"),
        *(
            (["py"], [results(f"test/{name}/test_a.py::x")], [], [], "a pure package")
            for name in ("core", "wire", "records", "protocol", "net")
        ),
    ],
)
def test_these_failures_count_as_they_are(
    failed: list[str], found: list[Results], known: list[str], changed: list[str], reason: str
) -> None:
    with pytest.raises(Refused, match=reason.replace("[", r"\[")):
        flaky.reruns(failed, found, known, changed)


def test_three_tests_in_two_files_are_still_rerun() -> None:
    nodeids = ["test/tasks/test_a.py::x", "test/tasks/test_a.py::y", "test/cli/test_b.py::z"]
    assert flaky.reruns(["py"], [results(*nodeids)], [], []) == [
        Rerun("py", ("test/cli/test_b.py", "test/tasks/test_a.py"), tuple(sorted(nodeids)))
    ]


def test_each_file_has_to_pass_twice() -> None:
    commands: list[Sequence[str]] = []
    codes = iter([0, 1])

    def run(command: Sequence[str]) -> int:
        commands.append(command)
        return next(codes)

    wanted = [Rerun("py", ("test/tasks/test_a.py",), (X,))]
    with pytest.raises(Refused, match="failed again"):
        flaky.run_again(wanted, run, "tox")
    assert commands == [["tox", "run", "-e", "py", "--", "--tier=short", "test/tasks/test_a.py", X]] * 2
    codes = iter([0, 0])
    flaky.run_again(wanted, run, "tox")
    assert len(commands) == 4


def test_failed_environments_are_read_from_the_end_of_tox_output() -> None:
    last = "  lint: OK (1.0=setup)\n  py: \x1b[31mFAIL\x1b[0m code 1 (9.5=setup)\n  evaluation failed :(\n"
    assert flaky.failed_environments("types: exit 1 (3 seconds)\n" + last) == ["py"]


def test_a_row_is_overdue_after_fourteen_days() -> None:
    rows = flaky.rows_of("# a comment\n\n2026-03-06 12 test/a.py::x[a b]\n2026-03-05 13 test/b.py::y\n")
    assert rows == [
        Row(datetime.date(2026, 3, 6), "test/a.py::x[a b]", 12),
        Row(datetime.date(2026, 3, 5), "test/b.py::y", 13),
    ]
    assert flaky.overdue(rows, TODAY) == [rows[1]]
    assert flaky.rows_of("".join(f"{row}\n" for row in rows)) == rows


def test_the_ledger_can_be_read() -> None:
    for row in flaky.rows_of(flaky.LEDGER.read_text()):
        assert row.nodeid.startswith("test/")
