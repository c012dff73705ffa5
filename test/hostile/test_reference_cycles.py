"""No request is kept by a cycle: that of an error and the frame that holds it keeps 100 MB of batches until the garbage
collector comes, which in a broker's process is seldom (``tune_garbage_collector``)."""

from __future__ import annotations

import gc
import logging
import random
import subprocess
import sys
from pathlib import Path

import pytest

from kafka.broker.registry import load
from kafka.wire.message import Request
from test.hostile.generator import Case, cases
from test.hostile.scene import Scene

SAMPLE = 60
KEPT_ONCE = ("Produce", "AlterUserScramCredentials")
"""They kept their errors, and are tried with all cases."""


def chosen(scene: Scene) -> list[Case]:
    """All cases of some APIs, and of the others a few in each run."""
    every = list(cases(scene.hand.broker.release.apis()))
    others = [case for case in every if case.api not in KEPT_ONCE]
    return [case for case in every if case.api in KEPT_ONCE] + random.Random().sample(others, SAMPLE)


def test_no_request_is_kept_when_it_has_been_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    load()
    scene = Scene(tmp_path, partitions=10)
    kept = []
    gc.collect()
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for number, case in enumerate(chosen(scene)):
            scene.turn(scene.frame(case.make(1000, f"z{number}y"), case.version))
            gc.collect()
            kept += [case.title for each in gc.garbage if isinstance(each, Request)]
            gc.garbage.clear()
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.unfreeze()
        scene.hand.broker.close()
    assert not kept


def test_the_collector_of_a_brokers_process_looks_seldom_and_not_at_what_is_there() -> None:
    script = """
import gc
from kafka.broker.process import COLLECT_AFTER, tune_garbage_collector
_, older, oldest = gc.get_threshold()
tune_garbage_collector()
assert gc.get_threshold() == (COLLECT_AFTER, older, oldest)
assert gc.get_freeze_count() > 10_000 and gc.isenabled()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
