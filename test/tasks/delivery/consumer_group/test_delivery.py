"""Workers in consumer groups in simulated worlds, by seeds (``delivery_story.py``), and single cases that seeds have
found.

``KAFKA_TEST_ROUNDS`` multiplies the number of seeds; ``KAFKA_TEST_SEED`` repeats those of a run. A seed that fails
prints the command that replays it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka import is_compiled
from kafka.broker.error_places import ErrorResponse
from kafka.broker.responses import ConnectionContext
from kafka.errors import KafkaError
from kafka.protocol.framing import ReceivedRequest
from kafka.protocol.topics import DeleteRecordsRequest
from kafka.tasks.delivery.consumer_group.delivery import SESSION_S, STABLE_S, GroupDelivery, Member
from kafka.tasks.delivery.consumer_group.settling import CLOSE_S
from kafka.tasks.format.records import LATE_AFTER_MS
from kafka.tasks.worker.shutdown import LEAVE_S
from test.simulation.test_simulation import simulate
from test.simulation.world import World
from test.support import seeds
from test.tasks.delivery.consumer_group.delivery_story import (
    CONCURRENT,
    END_TXN,
    GENERATION,
    HEARTBEAT,
    LOADING,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCER_FENCED,
    TXN_OFFSET_COMMIT,
    DeliveryStory,
    Plan,
)
from test.tasks.delivery.consumer_group.simulated_workers import SimulatedWorker

SEEDS = 4
DEEP_SEEDS = 100
"""A minute of one core; ``tox -e deep`` has five times as many."""
PARTITIONS_EACH = 3
"""Of the three topics of a queue."""


@pytest.fixture
def story(tmp_path: Path) -> Iterator[DeliveryStory]:
    """A world in which nothing goes wrong by chance, with two partitions and without a worker or a job."""
    world = World("found", 0, str(tmp_path))
    world.faults._spike = world.faults._total = 0.0
    world.story = story = DeliveryStory(world)
    story.queues, story.ordered, story.partitions = ("line",), {"line"}, 2
    story.protocol, story.by_generation = "classic", True
    story.make_topics()
    yield story
    world.close()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_has_to_hold_holds_in_every_world(rounds: int) -> None:
    assert_all_hold(SEEDS * rounds)


@pytest.mark.deep("minutes; a few seeds, other ones each time, are in the short tier")
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_what_has_to_hold_holds_in_many_worlds(rounds: int) -> None:
    assert_all_hold(DEEP_SEEDS * rounds)


def assert_all_hold(count: int) -> None:
    of_run = seeds.seeds(DeliveryStory.kind, count)
    arguments = ("--kind", DeliveryStory.kind, "--seeds", f"{of_run.start}:{of_run.stop}")
    run = simulate(*arguments, timeout_s=60 + 3 * count)
    print(run.stdout[-400:])
    assert run.returncode == 0, f"{run.stdout[-20_000:]}\n{run.stderr[-4000:]}"


def test_a_worker_that_gets_a_partition_while_it_leaves_gives_it_up(
    story: DeliveryStory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stop at once, and the last commit of one takes until the other has left."""
    loop, (first, second) = story.world.loop, (story.join(), story.join())
    assert loop.run_until(lambda: all(each.owned == PARTITIONS_EACH for each in (first, second)), 30)

    def refuse(connection: ConnectionContext, received: ReceivedRequest) -> ErrorResponse | None:
        is_last = received.request.api_key == OFFSET_COMMIT and connection.host == first.host.name
        if is_last and first.owned == PARTITIONS_EACH:
            return ErrorResponse(received.request, received.version, LOADING)
        return None

    monkeypatch.setattr(story, "on_request", refuse)
    with caplog.at_level(logging.ERROR, "kafka"):
        first.stop()
        second.stop()
        assert loop.run_until(lambda: first.has_left and second.has_left, 30)
    assert not caplog.records


def test_a_job_whose_time_has_come_waits_for_a_paused_queue_without_a_busy_loop(
    story: DeliveryStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[float] = []
    serve = GroupDelivery._serve

    def counted(self: GroupDelivery) -> None:
        served.append(story.world.now)
        serve(self)

    monkeypatch.setattr(GroupDelivery, "_serve", counted)
    plan = Plan(0, "line", 0, task="later", failures=1)
    story.put(plan)
    loop, worker = story.world.loop, story.join()
    assert loop.run_until(lambda: plan.runs and plan.runs[0].ended_at is not None, 30)
    worker.worker.paused(frozenset({"line"}))
    loop.run_until(lambda: False, 10)
    assert len(served) < 30
    worker.worker.paused(frozenset())
    assert loop.run_until(lambda: len(plan.runs) == 2, 1)


@pytest.mark.parametrize(("seconds", "runs"), [(SESSION_S - 1, 1), (SESSION_S + 5, 2)])
def test_a_job_runs_again_after_a_standstill_only_if_that_was_longer_than_the_session(
    story: DeliveryStory, seconds: float, runs: int
) -> None:
    plan = Plan(0, "line", 0, lasts_s=20.0)
    story.put(plan)
    loop, worker = story.world.loop, story.join()
    assert loop.run_until(lambda: plan.runs, 30)
    loop.run_until(lambda: False, 5)
    worker.host.loop.pause()
    loop.run_until(lambda: False, seconds)
    worker.host.loop.resume()
    story.read_results()
    assert loop.run_until(lambda: plan.end, 60)
    assert len(plan.runs) == runs


def test_a_worker_that_gets_its_partition_back_does_not_fence_itself(
    story: DeliveryStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own transaction decides about the offset still, and goes on to its end."""
    plan = Plan(0, "line", 0, lasts_s=1.0)
    story.put(plan)
    loop, worker = story.world.loop, story.join()
    seen: list[int] = []
    expelled: list[float] = []

    def refuse(connection: ConnectionContext, received: ReceivedRequest) -> ErrorResponse | None:
        request, key, now = received.request, received.request.api_key, story.world.now
        seen.append(key)
        if END_TXN in seen and key == HEARTBEAT and not expelled:
            expelled.append(now)
            return ErrorResponse(request, received.version, GENERATION)
        if key == END_TXN and (not expelled or now < expelled[0] + 2 * STABLE_S):
            return ErrorResponse(request, received.version, CONCURRENT)
        return None

    monkeypatch.setattr(story, "on_request", refuse)
    story.read_results()
    assert loop.run_until(lambda: plan.end, 60)
    assert loop.run_until(lambda: worker.owned == 2 * PARTITIONS_EACH, 60)
    assert expelled
    assert len(plan.runs) == 1
    assert seen.count(OFFSET_FETCH) > 2, "it has taken the partition over again, and waited for the transaction"


def test_a_transaction_that_was_committed_is_not_made_again_when_its_end_is_refused(
    story: DeliveryStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was lost, and before the end was asked for again another producer had taken the id over."""
    plan = Plan(0, "line", 0)
    story.put(plan)
    loop, worker, ends = story.world.loop, story.join(), []

    def refuse(connection: ConnectionContext, received: ReceivedRequest) -> ErrorResponse | None:
        if received.request.api_key != END_TXN or ends:
            return None
        assert story.world.broker is not None
        ends.append(story.world.broker.handle_without_faults(connection, received, loop.time()))
        return ErrorResponse(received.request, received.version, PRODUCER_FENCED)

    monkeypatch.setattr(story, "on_request", refuse)
    story.read_results()
    assert loop.run_until(lambda: plan.end and not worker.delivery._members["line"].owned()[0].leases, 30)
    worker.stop()
    assert loop.run_until(lambda: worker.has_left, 30)
    assert ends
    assert not story.world.violations
    assert len(plan.runs) == 1


def test_a_job_that_has_ended_when_the_grace_period_is_over_is_settled_all_the_same(
    story: DeliveryStory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is late is the transaction, and not the job."""
    grace_s = 8.0
    story.settings = dataclasses.replace(story.settings, stop_grace=grace_s)
    plans = [Plan(number, "line", number, lasts_s=5.0) for number in range(2)]
    for plan in plans:
        story.put(plan)
    loop, first = story.world.loop, story.join(concurrency=2)
    refused: list[float] = []

    def refuse(connection: ConnectionContext, received: ReceivedRequest) -> ErrorResponse | None:
        returning_at = min(first._returning_at.values(), default=None)
        if received.request.api_key != TXN_OFFSET_COMMIT or connection.host != first.host.name:
            return None
        if returning_at is not None and story.world.now > returning_at + grace_s + 1.0:
            return None
        refused.append(story.world.now)
        return ErrorResponse(received.request, received.version, LOADING)

    monkeypatch.setattr(story, "on_request", refuse)
    assert loop.run_until(lambda: all(plan.runs for plan in plans), 30)
    second = story.join()
    story.read_results()
    assert loop.run_until(lambda: all(plan.end for plan in plans), 60)
    assert loop.run_until(lambda: first.owned == second.owned == PARTITIONS_EACH, 30)
    assert refused[-1] > min(first._returning_at.values()) + grace_s
    assert [len(plan.runs) for plan in plans] == [1, 1]
    assert not [record.getMessage() for record in caplog.records if "lost the partitions" in record.message]
    assert not story.world.violations


def test_a_result_is_copied_once_to_the_late_ones_though_its_transaction_is_made_again(
    story: DeliveryStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(0, "line", 0, lasts_s=1.0)
    story.put(plan)
    loop, worker, refused = story.world.loop, story.join(), []

    def refuse(connection: ConnectionContext, received: ReceivedRequest) -> ErrorResponse | None:
        if received.request.api_key != TXN_OFFSET_COMMIT or refused:
            return None
        refused.append(story.world.now)
        return ErrorResponse(received.request, received.version, GENERATION)

    monkeypatch.setattr(story, "on_request", refuse)
    assert loop.run_until(lambda: plan.runs, 30)
    clock: Any = story.world.broker_host.loop.clock
    clock.step(2 * LATE_AFTER_MS / 1000)  # which the worker does not know
    story.read_results()
    assert loop.run_until(lambda: plan.end and not worker.delivery._members["line"].owned()[0].leases, 30)
    loop.run_until(lambda: False, 2)  # read all that there is
    assert refused
    assert list(story.copies) == [(plan.id, False), (plan.id, True)]
    assert not story.world.violations


def test_a_worker_whose_ends_are_refused_stops_after_its_grace_period_and_not_after_two(
    story: DeliveryStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    grace_s, kill_s = 20.0, 2.0
    story.settings = dataclasses.replace(story.settings, stop_grace=grace_s, kill_grace=kill_s)
    plan = Plan(0, "line", 0, lasts_s=1.0)
    story.put(plan)
    loop, worker = story.world.loop, story.join()

    def refuse(connection: ConnectionContext, received: ReceivedRequest) -> ErrorResponse | None:
        if received.request.api_key == TXN_OFFSET_COMMIT and plan.runs:
            return ErrorResponse(received.request, received.version, LOADING)
        return None

    monkeypatch.setattr(story, "on_request", refuse)
    assert loop.run_until(lambda: plan.runs and plan.runs[0].ended_at is not None, 30)
    stopped_at = story.world.now
    worker.stop()
    assert loop.run_until(lambda: worker.has_left, 60)
    assert grace_s <= story.world.now - stopped_at <= grace_s + kill_s + LEAVE_S + CLOSE_S + 1.0


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_a_group_that_has_lost_its_offsets_says_that_jobs_run_again(
    story: DeliveryStory, caplog: pytest.LogCaptureFixture, is_trimmed: bool
) -> None:
    """A log that begins at 0 may be that of a new queue."""
    plans = [Plan(number, "line", 0) for number in range(3)]
    for plan in plans:
        story.put(plan)
    topic = story.names.queue("line")
    if is_trimmed:
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=1)
        trimmed = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition])
        story.world.ask(DeleteRecordsRequest(topics=[trimmed], timeout_ms=1000))
    story.join()
    assert story.world.loop.run_until(lambda: all(plan.runs for plan in plans[is_trimmed:]), 30)
    said = [record.getMessage() for record in caplog.records if "has no committed offsets" in record.getMessage()]
    assert len(said) == is_trimmed
    assert all(text.endswith("reading from the log start: jobs that have ended run again") for text in said)


@pytest.mark.skipif(is_compiled(), reason="methods of compiled classes cannot be replaced")
def test_a_fault_of_the_program_while_a_partition_is_taken_over_ends_the_worker(
    story: DeliveryStory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partitions would stay paused, and nobody would know."""

    async def fail(member: Member, places: object) -> None:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(Member, "_find_committed", fail)
    failed: list[KafkaError] = []
    monkeypatch.setattr(SimulatedWorker, "failed", lambda worker, error: failed.append(error))
    story.join()
    assert story.world.loop.run_until(lambda: failed, 30)
    assert str(failed[0]) == "KafkaError: a fault of this program: ZeroDivisionError('odd')"
    assert "ZeroDivisionError" in caplog.text
