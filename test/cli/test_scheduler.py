"""``python -m kafka scheduler``: owns a schedule until it is stopped, and is replaced when it is killed."""

from __future__ import annotations

import itertools
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from kafka.testing import EmbeddedBroker
from test.support.commands import started_command
from test.tasks.schedule_scene import Scene

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")

numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True, settings={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def scene(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Scene]:
    name = f"shop{next(numbers)}"
    scene = Scene(broker.bootstrap, name, partitions=2)
    (tmp_path / "tasks.py").write_text(
        f"from kafka.tasks import App\napp = App('{name}', bootstrap_servers='{broker.bootstrap}', partitions=2)\n"
    )
    yield scene
    scene.close()


def read_until(errors: IO[str], text: str) -> None:
    while text not in (line := errors.readline()):
        assert line, f"it has ended without {text!r}"


def test_it_owns_the_schedule_and_leaves_with_a_signal(scene: Scene, tmp_path: Path) -> None:
    with started_command(tmp_path, "scheduler", "tasks:app") as (process, errors):
        read_until(errors, "scheduler started: app shop")
        jobs = {scene.put(), scene.put(0.2)}
        scene.until(lambda: jobs <= set(scene.moved))
        process.send_signal(signal.SIGTERM)
        read_until(errors, "scheduler stopped: 2 jobs written to their queues")
        assert process.wait(20) == 0


@pytest.mark.deep("waits for a session; kept by test/conformance/test_schedule.py")
def test_one_that_is_killed_is_replaced_within_ten_seconds(scene: Scene, tmp_path: Path) -> None:
    with started_command(tmp_path, "scheduler", "tasks:app") as (first, errors):
        read_until(errors, "owning the partitions [0, 1]")
        with started_command(tmp_path, "scheduler", "tasks:app") as (_, others):
            read_until(others, "owning the partitions")
            jobs = {scene.put(1.0) for _ in range(20)}
            first.kill()
            killed_at = time.monotonic()
            scene.until(lambda: jobs <= set(scene.moved), within_s=20.0)
            assert time.monotonic() - killed_at < 10.0
            assert set(scene.count_moved().values()) == {1}


def test_an_app_in_memory_has_nothing_to_own(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("from kafka.tasks import App\napp = App('shop', bootstrap_servers='memory://')\n")
    with started_command(tmp_path, "scheduler", "tasks:app") as (process, errors):
        assert "memory of one process" in errors.read()
        assert process.wait(20) == 2
