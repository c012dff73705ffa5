"""Tests of ``kafka.tasks.pools.collector``: a worker's process is calm, and its children are not."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest

from kafka.tasks.pools import collector


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    collector.as_before()
    gc.set_threshold(*before)


def test_a_calm_process_looks_seldom_and_not_at_what_is_there() -> None:
    gc.set_threshold(700, 11, 12)
    collector.calm()
    assert gc.get_threshold() == (collector.CALM, 11, 12)
    assert gc.get_freeze_count() > 1000


@pytest.mark.parametrize("youngest", [0, collector.CALM, 10 * collector.CALM])
def test_an_app_that_has_seen_to_it_is_left_alone(youngest: int) -> None:
    gc.set_threshold(youngest, 10, 10)
    collector.calm()
    collector.as_before()
    assert gc.get_threshold() == (youngest, 10, 10)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_child_has_the_thresholds_of_the_app() -> None:
    gc.set_threshold(900, 9, 8)
    collector.calm()
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            collector.as_before()
            os.write(writer, repr(gc.get_threshold()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as told:
        assert told.read() == b"(900, 9, 8)"
    os.waitpid(pid, 0)
    assert gc.get_threshold() == (collector.CALM, 9, 8)
