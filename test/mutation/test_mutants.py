"""What the mutation run changes, and that it can tell a test that notices from one that does not."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from test.mutation.mutants import enums_of, mutants

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

SOURCE = '''
from __future__ import annotations
import enum

class Action(enum.Enum):
    """What to do; 1 of 2."""
    RETRY = "retry"
    FAIL = "fail"

Row = tuple[int, Action]
Rows = tuple[int, Row] | dict[int, tuple[int, Row]]
TABLE = {3: Action.RETRY, 29: Action.FAIL}

def allowed(count: int = 0, most: int = 2) -> bool:
    """True: it may go on."""
    assert count is not None, "count == 1"
    if count < most and not (count == 1):
        return True
    raise ValueError(f"{count == 3}")
'''


def changes(source: str) -> list[str]:
    return [mutant.change for mutant in mutants("kafka/x.py", source, enums_of(source, "kafka.x", lambda name: None))]


def test_decisions_are_mutated_and_texts_are_not() -> None:
    assert sorted(changes(SOURCE)) == sorted(
        [
            "without 3: Action.RETRY", "without 29: Action.FAIL", "3 -> 4", "29 -> 30",
            "Action.RETRY -> Action.FAIL", "Action.FAIL -> Action.RETRY",
            "0 -> 1", "2 -> 3", "1 -> 2",
            "count < most -> count <= most", "count == 1 -> count != 1",
            "count < most and (not count == 1) -> count < most or not count == 1",
            "not count == 1 -> not not count == 1",
            "True -> False",
        ]
    )  # fmt: skip


def test_the_second_of_the_same_changes_in_a_function_has_a_number() -> None:
    found = mutants("kafka/x.py", "def one(n):\n    return n < 2 or 2\ndef two():\n    return 2\n", {})
    assert [(one.place, one.change) for one in found if one.change.startswith("2")] == [
        ("kafka/x.py:one", "2 -> 3"), ("kafka/x.py:one", "2 -> 3 (2)"), ("kafka/x.py:two", "2 -> 3"),
    ]  # fmt: skip


def test_a_change_is_taken_back_before_the_next_one() -> None:
    found = list(mutants("kafka/x.py", SOURCE, {}))
    assert len({mutant.source for mutant in found}) == len(found)
    texts = [mutant.source.splitlines() for mutant in found if not mutant.change.startswith("without")]
    unchanged = SOURCE.count("\n")
    assert unchanged
    for text in texts:
        others = [other for other in texts if len(other) == len(text)]
        different = sum(1 for one, two in zip(text, others[0], strict=True) if one != two)
        assert different <= 2, "two mutants differ in the two places that they change"


@pytest.mark.parametrize(("test", "code"), [("assert kind(3) == 'low' and kind(4) == 'high'", 0), ("kind(3)", 1)])
def test_a_test_that_asserts_nothing_lets_mutants_live(test: str, code: int, tmp_path: pathlib.Path) -> None:
    (tmp_path / "kafka" / "core" / "share").mkdir(parents=True)
    (tmp_path / "test" / "core" / "share").mkdir(parents=True)
    for package in ("kafka", "kafka/core", "kafka/core/share"):
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "kafka" / "core" / "share" / "kind.py").write_text(
        "def kind(count):\n    return 'low' if count < 4 else 'high'\n"
    )
    (tmp_path / "test" / "core" / "share" / "test_kind.py").write_text(
        f"from kafka.core.share.kind import kind\ndef test_kind():\n    {test}\n"
    )
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\n")
    for name in ("support", "mutation", "__init__.py"):
        (tmp_path / "test" / name).symlink_to(ROOT / "test" / name)
    program = (
        "import pathlib, runpy, sys; import test.mutation.run as run; run.ROOT = pathlib.Path.cwd();"
        "run.OPTIONS = ('-x', '-q', '-p', 'no:cacheprovider');"
        "sys.argv = ['mutation', 'core/share', '--jobs', '1'];"
        "runpy.run_module('test.mutation', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("survives: line 2: kafka/core/share/kind.py:kind | count < 4 -> count <= 4" in done.stdout) is bool(code)
    assert "core/share: 2 mutants" in done.stdout
