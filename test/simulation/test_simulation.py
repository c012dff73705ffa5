"""Thousands of worlds, each with bad luck of its own; see the package. A failing seed prints how to have it again.

``KAFKA_TEST_ROUNDS`` multiplies the number of seeds. They run in a process of their own, with a fixed hash seed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from test.support import seeds

ROOT = Path(__file__).resolve().parents[2]
SEEDS = {"share": 90, "plain": 90, "producer": 140, "classic": 50, "consumer": 50}
"""How many of each kind a short run has, other ones each time: all together about twelve seconds of one core."""


def simulate(*arguments: str, hash_seed: str = "0", timeout_s: float = 140) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "test.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", SEEDS)
def test_what_has_to_hold_holds_in_every_world(kind: str, rounds: int) -> None:
    seeds_of_run = seeds.seeds(kind, SEEDS[kind] * rounds)
    numbers = f"{seeds_of_run.start}:{seeds_of_run.stop}"
    run = simulate("--kind", kind, "--seeds", numbers, timeout_s=280 * rounds)
    print(run.stdout[-400:])
    assert run.returncode == 0, f"{run.stdout[-20_000:]}\n{run.stderr[-4000:]}"


@pytest.mark.deep("a test of the simulation itself")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", SEEDS)
def test_a_seed_gives_the_same_world_again_to_the_last_event(kind: str) -> None:
    """In another process, with other addresses of objects: what is told of a seed can be looked at as often as one
    likes. Without a fixed hash seed the command starts itself again with one."""
    first, second = (simulate("--kind", kind, "--seed", "5", "--digest", hash_seed=seed) for seed in ("0", "random"))
    assert first.returncode == second.returncode == 0, first.stdout + first.stderr + second.stdout + second.stderr
    assert first.stdout == second.stdout
    assert first.stdout.startswith(f"{kind} 5 ")
