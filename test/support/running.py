"""How a run of pytest goes: its options, its seed, which tests it selects, what it prints and leaves.

A plug-in of pytest, which ``test/conftest.py`` names. ``--tier`` chooses between the short and the deep tier
(``tiers.py``), ``KAFKA_TEST_SEED`` repeats the random choices of a run (``seeds.py``), ``KAFKA_TEST_RESULTS`` names
the file for the record (``reader.py``). ``pytest -n auto`` runs tests in several processes by parts (``parts.py``).
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from typing import Any

import hypothesis
import hypothesis.core
import pytest

from test.support import parts, results, seeds, tiers
from test.support.apache_kafka import starts_s

# In CI nothing is kept from one run to the next; what repeats a failure is printed. (Where hypothesis sees that it runs
# in CI, its own default is to draw the same examples in every run.)
hypothesis.settings.register_profile("ci", derandomize=False, deadline=None, database=None, print_blob=True)
hypothesis.settings.register_profile("here", derandomize=False, deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")

RUN_DIRECTORY = "KAFKA_TEST_RUN_DIRECTORY"
"""Names a directory that all processes of a run share, and that ends with it."""

_DIRECTORY = pytest.StashKey[str]()
_PART = pytest.StashKey[str]()
_INCLUDED = pytest.StashKey[set[str]]()
_STARTS_S = pytest.StashKey[list[float]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of ``support/tiers.py`` and ``support/parts.py``."""
    group = parser.getgroup("kafka-taskloop")
    group.addoption(
        "--tier",
        choices=tiers.TIERS,
        default=os.environ.get(tiers.VARIABLE),
        help="which tests run; default: the short tier, and all of a test file that is named",
    )
    group.addoption(
        "--record-durations", action="store_true", help="write test/durations.json, by which tests are dealt out"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the run's seed before any process is started and any test file is imported."""
    # A shell starts background commands with SIGINT ignored, nohup with SIGHUP: tests that send them would wait.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    hypothesis.core.global_force_seed = seeds.run_seed()  # type: ignore[assignment]  # what --hypothesis-seed sets
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(results.Recorder(config), "kafka-results")
        config.stash[_DIRECTORY] = os.environ[RUN_DIRECTORY] = tempfile.mkdtemp(prefix="kafka-taskloop-run-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what the processes of the run have shared."""
    directory = config.stash.get(_DIRECTORY, None)
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def pytest_report_header() -> list[str]:
    """How to repeat this run."""
    return [f"{seeds.VARIABLE}={seeds.run_seed()} repeats the random choices of this run"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the deep tier, except what is named, what has changed and what is due with this commit."""
    paths = [argument.partition("::") for argument in config.args]
    named = {
        os.path.relpath(os.path.abspath(path), config.rootpath) + rest
        for path, colons, name in paths
        for rest in ("", colons + name)
        if path.endswith(".py")
    }
    tier = config.getoption("--tier")
    too_long = tiers.limits_that_are_too_long(items) if tier != "deep" else []
    if too_long:
        raise pytest.UsageError(f"time limits above {tiers.LIMIT_S} s belong to the deep tier: {', '.join(too_long)}")
    selected, left_out, included = tiers.select(items, tier, named)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    config.stash[_INCLUDED] = set(included)
    items[:] = selected


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Freeze what is alive at the beginning of each part, above all the collected tests.

    Otherwise each garbage collection visits millions of objects, in this process and in every child that it forks:
    tests of pools took five times the CPU time.
    """
    part = parts.part_of(item.nodeid)
    if item.config.stash.get(_PART, "") != part:
        item.config.stash[_PART] = part
        gc.collect()
        gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell what is reported at the end to the process that reports."""
    worker_output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if worker_output is not None:
        worker_output["included"] = sorted(session.config.stash.get(_INCLUDED, ()))
        worker_output["starts_s"] = list(starts_s())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """What a process of several had counts for the run."""
    worker_output = getattr(node, "workeroutput", {})
    stash = node.config.stash
    stash.setdefault(_INCLUDED, set()).update(worker_output.get("included", ()))
    stash.setdefault(_STARTS_S, []).extend(worker_output.get("starts_s", ()))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Which deep parts a short run had, and what starting Apache Kafka has cost."""
    for part in sorted(config.stash.get(_INCLUDED, ())):
        terminalreporter.write_line(f"deep, in this run: {part}")
    taken_s = [*config.stash.get(_STARTS_S, []), *starts_s()]
    if taken_s:
        terminalreporter.write_line(f"Apache Kafka was started {len(taken_s)} times, in {sum(taken_s):.0f} s")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """With ``-n auto``: three processes for two processors, since many tests wait for brokers and processes."""
    return (os.cpu_count() or 1) * 3 // 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Asked for where pytest-xdist is installed, with ``-n``."""
    return parts.PartScheduling(config, log)
