"""``queue migrate``: from one way of delivery to the other and back, on brokers that have both."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from kafka.errors import IllegalStateError
from kafka.tasks import App
from kafka.tasks.backends.base import QueueMigration
from test.conformance.test_tasks import Bench, Service
from test.support.waiting import WITHIN_S, eventually


class Runs:
    """An app of one partition whose jobs say when they run; those in ``stuck`` stay until the test lets them go on."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.counts: Counter[int] = Counter()
        self.stuck: set[int] = set()
        self.begun, self.gate = threading.Event(), threading.Event()

        @bench.app.task(name="run")
        def run(number: int) -> int:
            if number in self.stuck:
                self.begun.set()
                assert self.gate.wait(WITHIN_S)
            self.counts[number] += 1
            return number

        self.run = run

    def work(self, delivery: str) -> Service:
        """A worker that delivers in this way."""
        self.bench.delivery = delivery
        return self.bench.work(concurrency=4)

    def migrate(self, to: str) -> QueueMigration:
        """What the command does."""
        with closing(App(self.bench.name, bootstrap_servers=self.bench.bootstrap, create_topics=False)) as app:
            return app.backend().migrate("default", to)


@pytest.fixture
def runs(bootstrap: str, unique: Callable[[str], str]) -> Iterator[Runs]:
    bench = Bench(bootstrap, unique("app"), "auto")
    bench.app = bench.another(partitions=1)
    made = Runs(bench)
    yield made
    made.gate.set()
    bench.close()


WAYS = [("group", "share"), ("share", "group")]


@pytest.mark.parametrize(("before", "after"), WAYS)
def test_jobs_that_have_ended_do_not_run_again_and_all_others_run_once(runs: Runs, before: str, after: str) -> None:
    """Also where the first one runs until its worker gives it up, and 20 behind it have ended."""
    runs.stuck = {0}
    jobs = [runs.run.delay(number) for number in range(21)]
    service = runs.work(before)
    assert runs.begun.wait(WITHIN_S)
    for job in jobs[1:]:
        assert job.wait(WITHIN_S)
    with pytest.raises(IllegalStateError, match=r"default has workers \(\d members?: 1 in the .* stop them and run"):
        runs.migrate(after)
    service.stop_soon()  # which waits for the stuck one, in vain
    late = [runs.run.delay(number) for number in range(21, 30)]
    runs.bench.app.flush(WITHIN_S)
    service.stop()
    runs.stuck = set()
    runs.gate.set()
    done = runs.migrate(after)
    assert (done.found, done.waiting) == (before, 10)
    assert done.moved <= 10
    assert runs.migrate(after) == QueueMigration(after)
    eventually(lambda: runs.counts[0], 1)  # the thread that nobody waits for any more
    runs.work("auto")
    for job in late:
        assert job.result(WITHIN_S) is not None
    assert jobs[0].result(WITHIN_S) == 0
    assert runs.counts == Counter({0: 2, **dict.fromkeys(range(1, 30), 1)})


@pytest.mark.parametrize(("before", "after"), WAYS)
def test_where_none_has_ended_behind_another_nothing_moves(runs: Runs, before: str, after: str) -> None:
    first = [runs.run.delay(number) for number in range(10)]
    service = runs.work(before)
    assert [job.result(WITHIN_S) for job in first] == list(range(10))
    service.stop()
    rest = [runs.run.delay(number) for number in range(10, 20)]
    runs.bench.app.flush(WITHIN_S)
    assert runs.migrate(after)[:2] == (before, 0)
    runs.work("auto")
    assert [job.result(WITHIN_S) for job in rest] == list(range(10, 20))
    assert runs.counts == Counter(range(20))


def test_a_queue_goes_there_and_back(runs: Runs) -> None:
    for way, other in (*WAYS, *WAYS):
        job = runs.run.delay(len(runs.counts))
        service = runs.work(way)
        assert job.wait(WITHIN_S)
        service.stop()
        assert runs.migrate(other).found == way
    assert set(runs.counts.values()) == {1}


def test_a_queue_that_no_worker_has_read_has_nothing_to_migrate(runs: Runs) -> None:
    runs.run.delay(0)
    runs.bench.app.flush(WITHIN_S)
    assert runs.migrate("group") == runs.migrate("share") == QueueMigration(None)
