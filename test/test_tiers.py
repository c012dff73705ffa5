"""Which tests a run selects, how they are dealt out, and what becomes of seeds: rules of ``test/support``."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest

from test.support import checkout, parts, seeds, tiers

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("nodeid", "part"),
    [
        ("test/net/test_loop.py::test_x", "test/net/test_loop.py"),
        ("test/peers/test_codecs.py::test_x[apache-none]", "test/peers/test_codecs.py [apache]"),
        ("test/conformance/test_a.py::test_x[None-apache 0.11.0.3]", "test/conformance/test_a.py [apache 0.11.0.3]"),
        ("test/conformance/test_a.py::test_x[embedded 2.8]", "test/conformance/test_a.py [embedded 2.8]"),
        ("test/core/test_x.py::test_embedded_things[apache_like]", "test/core/test_x.py"),
    ],
)
def test_a_part_is_a_file_and_its_broker(nodeid: str, part: str) -> None:
    assert parts.part_of(nodeid) == part


def test_a_process_gets_the_longest_part_that_needs_no_broker_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"test/a/test_1.py [apache]": 9.0, "test/a/test_2.py [apache]": 8.0, "test/b/test_3.py [apache]": 7.0}
    seconds |= {"test/a/test_4.py [apache 3.9.1]": 6.0, "test/a/test_5.py [embedded]": 5.0, "test/a/test_6.py": 4.0}
    monkeypatch.setattr(parts, "durations", lambda: seconds)
    waiting = {part: [] for part in reversed(seconds)}
    homes: dict[str, object] = {}
    dealt = []
    for process in ("one", "two", "two", "one", "two", "two"):
        part = parts.next_part(waiting, homes, process)
        del waiting[part]
        dealt.append((process, part.removeprefix("test/")))
        homes.setdefault(parts.started_broker(part) or "", process)
        homes.pop("", None)
    assert dealt == [
        ("one", "a/test_1.py [apache]"),
        ("two", "b/test_3.py [apache]"),  # test_2 would start another broker for the folder a
        ("two", "a/test_4.py [apache 3.9.1]"),
        ("one", "a/test_2.py [apache]"),
        ("two", "a/test_5.py [embedded]"),
        ("two", "a/test_6.py"),
    ]
    assert parts.next_part({"test/a/test_7.py [apache]": []}, homes, "two") == "test/a/test_7.py [apache]"


def test_every_deep_part_has_its_turn_once_in_a_rotation() -> None:
    known = {f"test/x/test_{number}.py" for number in range(50)}
    turns = [tiers.share_of(known, f"{turn:08x}" + "0" * 32) for turn in range(tiers.ROTATION)]
    assert sorted(part for turn in turns for part in turn) == sorted(known)
    assert tiers.share_of(known, "") == set(), "without a commit there is no turn"


def test_the_shares_of_a_rotation_take_about_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    taken_s = {f"part {number}": float(number) for number in range(1, 41)}
    monkeypatch.setattr(tiers, "durations", lambda: taken_s)
    shares = [sum(taken_s[part] for part in tiers.share_of(taken_s, f"{turn:08x}", 4)) for turn in range(4)]
    assert max(shares) - min(shares) <= 40


@pytest.mark.parametrize(
    ("part", "changed", "expected"),
    [
        ("test/broker/test_a.py", "test/broker/test_a.py", True),
        ("test/broker/test_a.py [apache]", "test/broker/test_a.py", True),
        ("test/broker/test_a.py", "test/broker/driver.py", True),
        ("test/broker/test_a.py", "test/broker/test_b.py", False),
        ("test/broker/test_a.py", "kafka/broker/log/segment.py", True),
        ("test/broker/log/test_a.py", "kafka/broker/server.py", False),
        ("test/broker/test_a.py", "kafka/client/connection.py", False),
        ("test/faults/test_pools_oom.py", "kafka/tasks/pools/child/main.py", True),
        ("test/faults/test_pools_oom.py", "kafka/broker/server.py", False),
        ("test/broker/test_a.py", "docs/broker.rst", False),
    ],
)
def test_a_deep_part_runs_when_its_file_its_helpers_or_its_subject_changed(
    part: str, changed: str, expected: bool
) -> None:
    assert tiers.has_changed(part, {changed}) is expected


def test_rows_of_the_deep_tier_name_files_that_exist() -> None:
    for row in tiers.DEEP:
        assert list(ROOT.glob(f"{row.path}*")), row
        assert row.why and row.kept_by
    for path in (*tiers.COMPILED_SHORT, *tiers.SUBJECTS):
        assert list(ROOT.glob(f"{path}*")), path


def run_pytest(folder: pathlib.Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Pytest with this project's plug-in over the tests in ``folder``."""
    known = {key: value for key, value in os.environ.items() if not key.startswith("KAFKA_TEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "test.support.running", *arguments]
    changed = {**known, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, cwd=folder, env=changed, capture_output=True, text=True, check=False)


def at_commit(folder: pathlib.Path, commit: str) -> None:
    """Runs in the folder take this for the commit of the checkout, whatever that of this run is."""
    (folder / "checkout.json").write_text(json.dumps({"commit": commit, "changed": []}))


@pytest.fixture
def project(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with three tests, one of them deep. That is of the first share of a rotation."""
    (tmp_path / "here").mkdir()
    (tmp_path / "conftest.py").write_text(
        "import pathlib\nfrom test.support import checkout\n"
        "checkout.FILE = pathlib.Path(__file__).parent / 'checkout.json'\n"
    )
    at_commit(tmp_path, "00000001")
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\nmarkers =\n    deep(reason): takes long\n")
    (tmp_path / "here" / "test_two.py").write_text(
        "import pytest, random\n"
        "from hypothesis import given, strategies as st\n"
        "from test.support import seeds\n"
        "def test_short():\n    print('drew', seeds.rng('a').random())\n"
        "@given(st.integers())\ndef test_hypothesis(number):\n    print('drew', number)\n"
        "@pytest.mark.deep('takes long')\ndef test_deep():\n    pass\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "passed", "deselected"),
    [(("here",), 2, 1), (("here", "--tier=deep"), 3, 0), (("here/test_two.py",), 3, 0),
     (("here/test_two.py", "--tier=short"), 2, 1), (("here/test_two.py::test_deep", "--tier=short"), 1, 0),
     (("here/test_two.py", "here/test_two.py::test_deep", "--tier=short"), 3, 0)],
)  # fmt: skip
def test_deep_tests_run_when_they_are_asked_for_or_named(
    project: pathlib.Path, arguments: tuple[str, ...], passed: int, deselected: int
) -> None:
    run = run_pytest(project, *arguments)
    last = run.stdout.splitlines()[-1]
    assert run.returncode == 0 and f"{passed} passed" in last, run.stdout + run.stderr
    assert (f"{deselected} deselected" in last) is (deselected > 0)


def test_deep_tests_run_when_it_is_their_turn(project: pathlib.Path) -> None:
    at_commit(project, "00000000")
    run = run_pytest(project, "here")
    assert "3 passed" in run.stdout.splitlines()[-1], run.stdout + run.stderr
    assert "deep, in this run: here/test_two.py" in run.stdout


def test_some_parts_never_have_a_turn(project: pathlib.Path) -> None:
    clusters = project / "test" / "faults" / "clusters"
    clusters.mkdir(parents=True)
    shutil.copy(project / "here" / "test_two.py", clusters / "test_two.py")
    at_commit(project, "00000000")
    run = run_pytest(project, "test")
    assert "2 passed, 1 deselected" in run.stdout.splitlines()[-1], run.stdout + run.stderr
    run = run_pytest(project, "test/faults/clusters/test_two.py")
    assert "3 passed" in run.stdout.splitlines()[-1], "but when they are named"


def test_a_seed_repeats_every_random_choice_and_another_changes_it(project: pathlib.Path) -> None:
    first, again, other = (
        [line for line in run_pytest(project, "-s", "here", KAFKA_TEST_SEED=seed).stdout.splitlines() if "drew" in line]
        for seed in ("11", "11", "12")
    )
    assert first and first == again
    assert not set(first) & set(other) - {"drew 0", "drew 1", ".drew 0"}


def test_a_limit_above_that_of_the_short_tier_is_refused(project: pathlib.Path) -> None:
    (project / "here" / "test_long.py").write_text(
        "import pytest\n@pytest.mark.timeout(301)\ndef test_long(): pass\n"
    )
    run = run_pytest(project, "here")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "here/test_long.py::test_long: 301 s" in run.stdout + run.stderr


def test_a_run_prints_failures_at_once_and_leaves_a_record(project: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (project / "here" / "test_red.py").write_text("def test_red():\n    assert 1 == 2\ndef test_green(): pass\n")
    record = tmp_path / "results.json"
    run = run_pytest(project, "here", KAFKA_TEST_RESULTS=str(record), KAFKA_TEST_SEED="5", TOX_ENV_NAME="py")
    lines = run.stdout.splitlines()
    at_once = next(number for number, line in enumerate(lines) if line.startswith("FAILED after 0:"))
    assert "assert 1 == 2" in run.stdout and at_once < lines.index(next(line for line in lines if "FAILURES" in line))
    found: dict[str, Any] = json.loads(record.read_text())
    assert found["environment"] == "py" and found["seed"] == 5 and found["complete"] and found["crashed"] == []
    assert list(found["failed"]) == ["here/test_red.py::test_red"]
    assert "KAFKA_TEST_SEED=5" in run.stdout


def test_numbers_of_a_run_belong_to_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(seeds.VARIABLE, "1")
    first = seeds.rng("a").random()
    assert seeds.rng("b").random() != first == seeds.rng("a").random()
    assert list(seeds.seeds("a", 3)) == [seeds.seed("a"), seeds.seed("a") + 1, seeds.seed("a") + 2]
    monkeypatch.setenv(seeds.VARIABLE, "2")
    assert seeds.rng("a").random() != first


def test_a_checkout_has_its_commit_and_what_differs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
        git("add", name)
        git("commit", "-q", "-m", name)
    (tmp_path / "d").write_text("d")
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    monkeypatch.setattr(checkout, "FILE", tmp_path / "checkout.json")
    monkeypatch.delenv(checkout.SINCE, raising=False)
    known = checkout.checkout.__wrapped__()
    assert known == (git("rev-parse", "HEAD"), {"c", "d"})
    monkeypatch.setenv(checkout.SINCE, "HEAD~2")
    assert checkout.checkout.__wrapped__().changed == {"b", "c", "d"}
