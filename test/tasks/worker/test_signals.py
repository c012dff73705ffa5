"""Tests of ``kafka.tasks.worker.signals``."""

from __future__ import annotations

import logging
import signal

import pytest

from kafka.tasks.worker import signals
from kafka.tasks.worker.signals import REPEAT_S, SignalHandler
from kafka.tasks.worker.worker import WorkerOptions, WorkerStage
from test.tasks.worker.test_worker import Bench, Process

TERM, INT, HUP = int(signal.SIGTERM), int(signal.SIGINT), int(signal.SIGHUP)


@pytest.fixture
def bench() -> Bench:
    return Bench()


class Signalled:
    """A worker with two running jobs, on a clock that the test moves."""

    def __init__(self, bench: Bench, caplog: pytest.LogCaptureFixture, jobs: int = 2) -> None:
        caplog.set_level(logging.INFO, signals.__name__)
        self._bench, self._caplog = bench, caplog
        for number in range(jobs):
            bench.put("note", number)
        self.process = Process(bench, concurrency=2, options=WorkerOptions(stop_grace_s=20, kill_grace_s=5))
        self.process.manual.has_processes = True
        bench.settle()
        self.handler = SignalHandler()
        self.handler.attach(self.process.worker)

    def send(self, *signums: int) -> WorkerStage:
        for signum in signums:
            self.handler.received(signum, self._bench.loop.time())
        return self.process.worker.stage

    def line(self) -> str:
        """The last line of the log."""
        return [record.getMessage() for record in self._caplog.records if record.name == signals.__name__][-1]


def test_two_equal_signals_within_a_second_are_one(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    run = Signalled(bench, caplog)
    assert run.send(TERM, TERM) is WorkerStage.DRAINING
    assert run.line() == "ignored a second SIGTERM within 1 s of the first"
    bench.pass_time(REPEAT_S - 0.1, step=0.1)
    assert run.send(TERM) is WorkerStage.DRAINING
    bench.pass_time(0.1, step=0.1)
    assert run.send(TERM) is WorkerStage.INTERRUPTING, "ignored ones make the second no longer"
    assert run.send(TERM) is WorkerStage.INTERRUPTING
    bench.pass_time(REPEAT_S)
    assert run.send(TERM) is WorkerStage.ABANDONING


def test_signals_of_two_kinds_are_two_also_when_each_comes_twice(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    run = Signalled(bench, caplog)
    assert run.send(TERM, INT, TERM, INT) is WorkerStage.INTERRUPTING


def test_the_log_says_what_each_stop_signal_does_and_what_the_next_one_does(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    run = Signalled(bench, caplog)
    run.send(HUP)
    waiting = "waiting up to 20 s for 2 running jobs; "
    assert run.line() == f"received SIGHUP: {waiting}send SIGTERM to raise SoftTimeLimit in them"
    bench.pass_time(2.0)
    run.process.end()
    bench.settle()
    run.send(HUP)
    waiting = "waiting up to 18 s for 1 running job; "
    assert run.line() == f"received SIGHUP: {waiting}send SIGTERM to raise SoftTimeLimit in it"
    run.send(TERM)
    raised = "raised SoftTimeLimit in 1 running job, waiting up to 5 s for it"
    assert run.line() == f"received SIGTERM: {raised}; send it again to kill it"
    run.send(INT)
    ending = "ending the running jobs, which return to their queues"
    assert run.line() == f"received SIGINT: {ending}; send it again to leave at once"
    bench.pass_time(REPEAT_S)
    run.send(INT)
    assert run.line() == "received SIGINT: leaving, while jobs are running"


def test_a_worker_without_jobs_says_that_it_leaves(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    run = Signalled(bench, caplog, jobs=0)
    run.send(TERM)
    assert run.line() == "received SIGTERM: no job is running, leaving"


def test_two_signals_for_a_slot_more_are_two(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    run = Signalled(bench, caplog)
    run.send(int(signal.SIGTTIN), int(signal.SIGTTIN))
    assert run.process.manual.concurrency == 4


def test_a_worker_that_is_stopped_while_it_starts_says_so_and_leaves(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, signals.__name__)
    handler = SignalHandler()
    handler.received(TERM, 0.0)
    assert caplog.messages == [
        "received SIGTERM: the worker is starting, and leaves when it has started; send it again to leave at once"
    ]
    worker = Process(bench).worker
    handler.attach(worker)
    assert worker.stage is WorkerStage.DRAINING
    handler.received(TERM, REPEAT_S - 0.1)
    assert worker.stage is WorkerStage.DRAINING, "it was the same signal"


@pytest.mark.parametrize(
    ("first", "then"), [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT), (signal.SIGHUP, TERM)]
)
def test_a_further_stop_signal_does_not_wait_for_the_start(
    caplog: pytest.LogCaptureFixture, first: int, then: int
) -> None:
    caplog.set_level(logging.INFO, signals.__name__)
    handler = SignalHandler()
    handler.received(first, 0.0)
    handler.received(first, REPEAT_S - 0.1)
    handler.received(signal.SIGHUP, 2 * REPEAT_S)
    with pytest.raises(SystemExit) as ended:
        handler.received(then, 4 * REPEAT_S)
    assert ended.value.code == 0
    assert caplog.messages[1] == f"ignored a second {signal.Signals(first).name} within 1 s of the first"
    assert caplog.messages[-1].endswith("the worker has not started yet, and leaves at once")


def test_a_worker_that_starts_takes_no_slots_and_shows_its_stacks(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    handler = SignalHandler()
    for signum in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1):
        handler.received(int(signum), 0.0)
    (dumped,) = caplog.messages
    assert dumped.startswith("the worker has not started\nthread ")
    assert "\nthread MainThread:\n" in dumped
    worker = Process(bench).worker
    handler.attach(worker)
    assert (worker.stage, worker.pool.concurrency) == (WorkerStage.WORKING, 2)
