"""Tests of ``kafka.tasks.pools.gc_tuning``: a worker's process is calm, and its children are not."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest

from kafka.tasks.pools import gc_tuning


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc_tuning.restore_thresholds()
    gc.set_threshold(*before)


def test_a_calm_process_looks_seldom_and_not_at_what_is_there() -> None:
    gc.set_threshold(700, 11, 12)
    gc_tuning.reduce_collections()
    assert gc.get_threshold() == (gc_tuning.REDUCED_THRESHOLD, 11, 12)
    assert gc.get_freeze_count() > 1000


@pytest.mark.parametrize("youngest", [0, gc_tuning.REDUCED_THRESHOLD, 10 * gc_tuning.REDUCED_THRESHOLD])
def test_an_app_that_has_seen_to_it_is_left_alone(youngest: int) -> None:
    gc.set_threshold(youngest, 10, 10)
    gc_tuning.reduce_collections()
    gc_tuning.restore_thresholds()
    assert gc.get_threshold() == (youngest, 10, 10)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_child_has_the_thresholds_of_the_app() -> None:
    gc.set_threshold(900, 9, 8)
    gc_tuning.reduce_collections()
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            gc_tuning.restore_thresholds()
            os.write(writer, repr(gc.get_threshold()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as told:
        assert told.read() == b"(900, 9, 8)"
    os.waitpid(pid, 0)
    assert gc.get_threshold() == (gc_tuning.REDUCED_THRESHOLD, 9, 8)
