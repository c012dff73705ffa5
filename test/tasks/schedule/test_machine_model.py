"""The machine of a partition in a simulated log, against a plain model (``schedule_model.py``): whatever is asked,
whenever owners and workers die, and however far the clock goes at a time.

``KAFKA_TEST_ROUNDS`` multiplies the examples.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kafka.tasks.format.commands import CANCEL, LOOK, RENEW, RESCHEDULE, encode_command
from kafka.tasks.format.envelope import Envelope
from kafka.tasks.schedule import machine as machine_module
from kafka.tasks.schedule.machine import PLACES
from test.support import seeds
from test.support.rounds import ROUNDS
from test.tasks.schedule.schedule_model import NEXT_PLACES
from test.tasks.schedule.schedule_world import RESULTS_PARTITIONS, SMALL, World

YEAR: Final = 365 * 86_400_000
DELAYS: Final = (-5_000, 0, 1, 500, 1_999, 5_000, 29_000, 31_000, 59_000, 61_000, 100_000, 400_000, 3_600_000, 5 * YEAR)
WAITS: Final = (1, 100, 1_000, 2_000, 10_000, 30_000, 60_000, 70_000, 300_000, 700_000, 4_000_000)
DOWN: Final = (1_000, 50_000, 200_000, 4_000_000, 6 * YEAR)
SIZES: Final = (0, 1, 1, 2, 5)


class Actions:
    """What happens to a world, by numbers that are drawn by chance; ``which`` chooses a job."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.jobs: list[str] = []

    def _job(self, which: int) -> str:
        if not self.jobs or which % 23 == 0:
            return self.world.new_id(self.world.now + which * 1000)
        return self.jobs[-1 - which % min(len(self.jobs), 60)]

    def put(self, delay: int, size: int, expires: int | None, queue: str) -> None:
        now = self.world.now
        self.jobs.append(self.world.new_job(delay, queue, None if expires is None else now + expires, size))

    def put_many(self, delay: int, step: int, count: int, size: int) -> None:
        for number in range(count):
            self.put(delay + number * step, size, None, "mail")

    def lease(self, delay: int, size: int) -> None:
        self.jobs.append(self.world.new_leased(delay, size))

    def put_for_nobody(self, delay: int) -> None:
        """Its id names a partition that the results topics have not."""
        due = self.world.now + delay
        strange = self.world.new_id(due, RESULTS_PARTITIONS)
        self.world.ask(LOOK, strange)
        self.world.append(
            encode_command(CANCEL, strange, request=self.world.new_id(self.world.now, RESULTS_PARTITIONS + 1))
        )

    def ask(self, kind: str, which: int, delay: int) -> None:
        due = self.world.now + delay if kind == RESCHEDULE else None
        self.world.ask(kind, self._job(which), due)

    def work(self, which: int, outcome: str, delay: int, is_accepted: bool) -> None:
        """A worker gets a job of a queue. Not accepted: it dies before that, and another one gets the same record."""
        queue = self.world.queue
        if not queue:
            return
        place = which % len(queue)
        envelope = queue[place]
        if outcome == "retry":
            self.world.retry(envelope, delay)
        elif outcome == "lease":
            self.world.lease(envelope, max(delay, 1))
        else:
            self.world.succeed(envelope)
        if is_accepted:
            del queue[place]

    def work_under_lease(self, which: int, outcome: str, delay: int) -> None:
        leases = self.world.leases
        if not leases:
            return
        leased = list(leases.values())[which % len(leases)]
        if outcome == "renew":
            due, generation = self.world.now + delay, leased.generation - (which % 7 == 0)
            self.world.append(encode_command(RENEW, leased.id, due_ms=due, generation=generation))
            return
        del leases[leased.id]
        if outcome == "retry":
            self.world.retry(leased, delay)
        elif outcome == "success":
            self.world.end_lease(leased)

    def miss(self, queues: frozenset[str]) -> None:
        self.world.run()
        self.world.model.missing = queues
        self.world.machine.set_missing_topics(self.world.model.missing_topics)

    def read(self, which: int) -> None:
        if self.jobs:
            self.world.check_reader(self._job(which or 1))

    def finish(self) -> None:
        """Everything ends: what is over is forgotten."""
        world = self.world
        world.wait(4_000_000)
        for job_id in self.jobs[-60:]:
            world.check_reader(job_id)
        world.wait(12 * YEAR)
        world.wait(1_000_000)
        certain = world.model.jobs.keys() - world.model.uncertain
        assert not [job_id for job_id in certain if world.model.next_at(world.model.jobs[job_id]) is not None]
        assert len(world.machine) == 0
        for job_id in self.jobs[-60:]:
            world.check_reader(job_id)


whiches = st.integers(0, 1000)
delays = st.sampled_from(DELAYS)
sizes = st.sampled_from(SIZES)


class MachineAgainstModel(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()

    @initialize(is_small=st.sampled_from([True, True, True, False]), batch=st.integers(1, 7))
    def begin(self, is_small: bool, batch: int) -> None:
        if is_small:
            for name, limit in SMALL.items():
                self.patch.setattr(machine_module, name, limit)
        self.lost: list[str] = []
        self.world = World(self._is_lost, batch)
        self.actions = Actions(self.world)

    def _is_lost(self, place: str) -> bool:
        if self.lost and self.lost[-1] == place:
            self.lost.pop()
            return True
        return False

    @rule(delay=delays, size=sizes, expires=st.none() | delays, queue=st.sampled_from(["mail", "mail", "gone"]))
    def put(self, delay: int, size: int, expires: int | None, queue: str) -> None:
        self.actions.put(delay, size, None if expires is None else max(expires, 0), queue)

    @rule(delay=delays, step=st.sampled_from([0, 0, 1, 7_000]), count=st.integers(2, 30), size=sizes)
    def put_many(self, delay: int, step: int, count: int, size: int) -> None:
        self.actions.put_many(delay, step, count, size)

    @rule(delay=delays, size=sizes)
    def lease(self, delay: int, size: int) -> None:
        self.actions.lease(delay, size)

    @rule(delay=delays)
    def put_for_nobody(self, delay: int) -> None:
        self.actions.put_for_nobody(delay)

    @rule(kind=st.sampled_from([CANCEL, RESCHEDULE, RESCHEDULE, LOOK]), which=whiches, delay=delays)
    def ask(self, kind: str, which: int, delay: int) -> None:
        self.actions.ask(kind, which, max(0, delay))

    @rule(
        which=whiches, outcome=st.sampled_from(["retry", "lease", "success"]), delay=delays, is_accepted=st.booleans()
    )
    def work(self, which: int, outcome: str, delay: int, is_accepted: bool) -> None:
        self.actions.work(which, outcome, delay, is_accepted)

    @rule(which=whiches, outcome=st.sampled_from(["renew", "retry", "success", "lost"]), delay=delays)
    def work_under_lease(self, which: int, outcome: str, delay: int) -> None:
        self.actions.work_under_lease(which, outcome, delay)

    @rule(ms=st.sampled_from(WAITS))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule(ms=st.sampled_from(DOWN))
    def stand_still(self, ms: int) -> None:
        self.world.stand_still(ms)

    @rule(place=st.sampled_from(["before", "after"]))
    def lose(self, place: str) -> None:
        self.lost.append(place)

    @rule()
    def step(self) -> None:
        self.world.step()

    @rule(queues=st.sampled_from([frozenset(), frozenset(["gone"])]))
    def miss(self, queues: frozenset[str]) -> None:
        self.actions.miss(queues)

    @rule()
    def compact(self) -> None:
        self.world.compact()

    @rule(which=whiches)
    def read(self, which: int) -> None:
        self.actions.read(which)

    def teardown(self) -> None:
        try:
            if hasattr(self, "actions"):
                self.actions.finish()
        finally:
            self.patch.undo()


TestMachineAgainstModel = MachineAgainstModel.TestCase
TestMachineAgainstModel.settings = settings(max_examples=100 * ROUNDS, stateful_step_count=30, deadline=None)


# -- from place to place -----------------------------------------------------------------------------------------------


def sent(world: World) -> Envelope:
    """A job that was announced for an hour later, and written to its queue before."""
    job_id = world.new_job(3_600_000)
    world.run()
    world.ask(RESCHEDULE, job_id, world.now + 1)
    world.wait(1)
    return world.queue.pop()


def expired(world: World) -> Envelope:
    """A job in its queue that has an end, which passes."""
    world.new_job(0, expires_ms=world.now + 1)
    world.run()
    world.stand_still(10)
    return world.queue.pop()


def lease_fires(world: World, missing: frozenset[str]) -> None:
    world.lease(sent(world), 1)
    world.run()
    Actions(world).miss(missing)
    world.wait(1)


def put_while_missing(world: World) -> None:
    envelope = sent(world)
    Actions(world).miss(frozenset(["mail"]))
    world.retry(envelope, -1)


def lease_of_a_waiting_job(world: World) -> None:
    """No worker has a job that waits; the schedule does not rely on it."""
    world.new_job(1_000)
    world.run()
    job_id = next(iter(world.model.jobs))
    world.lease(Envelope(job_id, "f", job_id.encode(), generation=1), 1_000)


RARE_MOVES: Final[dict[tuple[str, str], Callable[[World], object]]] = {
    ("PUT", "ENDED"): lambda world: world.new_job(1_000, expires_ms=world.now),
    ("WAITING", "LEASED"): lease_of_a_waiting_job,
    ("LEASED", "SENT"): lambda world: lease_fires(world, frozenset()),
    ("LEASED", "ENDED"): lambda world: lease_fires(world, frozenset(["mail"])),
    ("SENT", "WAITING"): lambda world: world.retry(sent(world), 1_000),
    ("SENT", "LEASED"): lambda world: world.lease(sent(world), 1_000),
    ("SENT", "SENT"): lambda world: world.retry(sent(world), -1),
    ("SENT", "ENDED"): put_while_missing,
    ("MOVED", "ENDED"): lambda world: world.retry(expired(world), 1_000),
}


@pytest.mark.parametrize("move", RARE_MOVES, ids="-".join)
def test_rare_moves(move: tuple[str, str]) -> None:
    world = World()
    RARE_MOVES[move](world)
    world.run()
    assert move in world.moves


def test_the_table_of_places_is_that_of_the_model() -> None:
    assert {place: set(following) for place, following in PLACES.items()} == NEXT_PLACES


# -- the same for longer -----------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, limit in SMALL.items():
        monkeypatch.setattr(machine_module, name, limit)
    yield


def simulate(rng: random.Random, command_count: int) -> World:
    """So many commands by chance."""
    loss = {"before": 0.01, "after": 0.01}
    world = World(lambda place: rng.random() < loss[place], batch=rng.choice([1, 5, 20]))
    actions = Actions(world)
    pick = rng.choice

    def delay() -> int:
        return pick(DELAYS) + rng.randrange(2_000)

    rows: list[tuple[int, Any]] = [
        (20, lambda: actions.put(delay(), pick(SIZES), pick((None, None, abs(delay()))),
                                 pick(("mail", "mail", "gone")))),
        (2, lambda: actions.put_many(delay(), pick((0, 1, 7_000)), rng.randrange(2, 30), pick(SIZES))),
        (5, lambda: actions.lease(delay(), pick(SIZES))),
        (1, lambda: actions.put_for_nobody(delay())),
        (25, lambda: actions.ask(pick((CANCEL, RESCHEDULE, LOOK)), rng.randrange(1000), abs(delay()))),
        (25, lambda: actions.work(rng.randrange(1000), pick(("retry", "lease", "success", "success")), delay(),
                                  rng.random() < 0.9)),
        (10, lambda: actions.work_under_lease(rng.randrange(1000), pick(("renew", "retry", "success", "lost")),
                                              delay())),
        (20, lambda: world.wait(pick(WAITS[:-1]))),
        (1, lambda: world.wait(WAITS[-1])),
        (4, lambda: world.stand_still(pick(DOWN[:-1]))),
        (20, world.step),
        (1, lambda: actions.miss(frozenset(pick(((), ("gone",)))))),
        (4, world.compact),
        (10, lambda: actions.read(rng.randrange(1000))),
    ]  # fmt: skip
    choices, weights = [act for _, act in rows], [weight for weight, _ in rows]
    while len(world.commands) < command_count:
        rng.choices(choices, weights)[0]()
        del world.queue[:-200]
    actions.finish()
    return world


@pytest.mark.parametrize("turn", range(4))
def test_a_long_life_goes_by_the_model(turn: int, small: None) -> None:
    simulate(seeds.rng(f"schedule {turn}"), 1_000 * ROUNDS)


@pytest.mark.deep("a minute; kept by the same test with fewer commands")
@pytest.mark.timeout(1800)
def test_a_very_long_life_goes_by_the_model(small: None) -> None:
    simulate(seeds.rng("schedule, long"), 10_000)
