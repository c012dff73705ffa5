"""Seeds one after another: a world each, and what became of it."""

from __future__ import annotations

import gc
import logging
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Iterable
from typing import Final, NamedTuple

from test.simulation.consumers import ClassicStory, ConsumerProtocolStory
from test.simulation.hermetic import hermetic
from test.simulation.plain import PlainStory
from test.simulation.producing import ProducerStory
from test.simulation.share import ShareStory
from test.simulation.trace import LogCapture, shown
from test.simulation.world import Story, World
from test.tasks.delivery.consumer_group.delivery_story import DeliveryStory

STORIES: Final[tuple[type[Story], ...]] = (
    ShareStory,
    PlainStory,
    ProducerStory,
    ClassicStory,
    ConsumerProtocolStory,
    DeliveryStory,
)
KINDS: Final = {each.kind: each for each in STORIES}

_COLLECT_EVERY: Final = 25
"""Worlds between two looks of the garbage collector: a world is full of cycles, and none of it is long-lived."""


HANG_S: Final = 30
"""Real seconds after which a world runs in a circle without end. The only thing that is not simulated: a good world
takes some hundredths of a second."""


hang_s = 0
"""0: not watched."""


class _Hangs(BaseException):
    """Passes the loop, which logs errors and goes on."""


def _hangs(signum: int, frame: object) -> None:
    raise _Hangs(f"after {HANG_S} s of real time the world has not come to an end")


class Outcome(NamedTuple):
    """What became of one seed. ``digest``: of everything that happened, where all of it was kept."""

    kind: str
    seed: int
    violations: list[str]
    trace: list[str]
    events: int
    simulated_s: float
    digest: str | None

    @property
    def replay(self) -> str:
        return f"python -m test.simulation --kind {self.kind} --seed {self.seed} -v"


def end_worlds_that_hang() -> None:
    """From now on a world that runs in a circle without end fails, after :data:`HANG_S`. For a process of our own."""
    global hang_s
    signal.signal(signal.SIGALRM, _hangs)
    hang_s = HANG_S


def run_seed(kind: str, seed: int, directory: str, *, keeps_all: bool = False) -> Outcome:
    """One world, from its beginning to its end."""
    path = os.path.join(directory, f"{kind}-{seed}")
    random.seed(seed)
    rng = random.Random(f"chance of {kind}:{seed}")
    log = logging.getLogger("kafka")
    clock = [lambda: 0.0, lambda: 1_700_000_000.0]
    with hermetic(rng, lambda: clock[0](), lambda: clock[1]()):
        world = World(kind, seed, path, keeps_all=keeps_all)
        clock[:] = [world.loop.time, world.loop.clock.time]
        story = KINDS[kind](world)
        handler = LogCapture(world, story.allowed_errors)
        log.addHandler(handler)
        if hang_s:
            signal.alarm(hang_s)
        try:
            world.run(story)
        except (Exception, _Hangs):
            world.violate(f"an error in the story: {traceback.format_exc()}")
        finally:
            if hang_s:
                signal.alarm(0)
            trace = [shown(event) for event in world.trace] if world.violations or keeps_all else []
            world.close()
            log.removeHandler(handler)
            shutil.rmtree(path, ignore_errors=True)
    digest = None if world.digest is None else world.digest.hexdigest()
    return Outcome(kind, seed, world.violations, trace, world.events, world.loop.time(), digest)


def run_seeds(kind: str, seeds: Iterable[int], *, stop_after: int = 1) -> tuple[int, list[Outcome], float]:
    """How many were run, those that failed (the first ``stop_after``), and the seconds of a processor that it took."""
    began = time.process_time()
    failed: list[Outcome] = []
    count = 0
    log = logging.getLogger("kafka")
    propagated, log.propagate = log.propagate, False
    with tempfile.TemporaryDirectory(dir=memory_directory()) as directory:
        run_seed(kind, next(iter(seeds), 0), directory)  # what is imported or made once is there after it
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            for seed in seeds:
                count += 1
                outcome = run_seed(kind, seed, directory)
                if outcome.violations:
                    failed.append(outcome)
                    if len(failed) >= stop_after:
                        break
                if count % _COLLECT_EVERY == 0:
                    gc.collect()
        finally:
            gc.enable()
            gc.unfreeze()
            log.propagate = propagated
    return count, failed, time.process_time() - began


def memory_directory() -> str | None:
    """Where files cost least; None: where temporary ones go."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
