"""The owners of the schedule: what is asked of it happens once, whatever becomes of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from kafka.tasks.backends.kafka.schedule_owner import OwnerStage
from kafka.tasks.format.job_id import time_of
from test.tasks.schedule_scene import Scene


@pytest.fixture
def scene(bootstrap: str, unique: Callable[[str], str]) -> Iterator[Scene]:
    made = Scene(bootstrap, unique("shop"))
    yield made
    made.close()


def test_a_job_arrives_in_its_queue_once_when_it_is_due(scene: Scene) -> None:
    scene.join()
    now, later = scene.put(), scene.put(0.5)
    scene.put(job_id=now)  # the same generation once more: a worker that died before its lease was accepted
    scene.until(lambda: later in scene.moved)
    assert scene.moved_at[later] >= time_of(later), "its id has the time when it is due"
    marker = scene.put()
    scene.until(lambda: marker in scene.moved)
    assert scene.count_moved() == {now: 1, later: 1, marker: 1}


def test_questions_about_jobs_are_answered_once(scene: Scene) -> None:
    scene.join()
    job, other = scene.put(3600), scene.put(3600)
    look, due_ms = scene.ask("LOOK", job), scene.now_ms() + 7_200_000
    reschedule = scene.ask("RESCHEDULE", other, due_ms)
    cancel, again = scene.ask("CANCEL", job), scene.ask("LOOK", job)
    unknown = scene.ask("CANCEL", scene.new_id())
    scene.until(lambda: len(scene.answers) >= 5)
    (seen,) = scene.answers_to(look)
    assert seen["state"] == "SCHEDULED"
    assert scene.answers_to(reschedule) == [{"rescheduled": True, "due": due_ms}]
    assert scene.answers_to(cancel) == [{"waiting": True}]
    assert [answer["state"] for answer in scene.answers_to(again)] == ["REVOKED"]
    assert scene.answers_to(unknown) == [{"waiting": False}]
    assert scene.moved == []


def test_what_waited_when_its_owner_was_killed_is_found_by_the_next(scene: Scene) -> None:
    first = scene.own()
    jobs = {scene.put(1.0) for _ in range(20)} | {scene.put(3600)}
    look = scene.ask("LOOK", scene.put(3600))
    scene.until(lambda: scene.answers_to(look))
    first.is_alive = False
    second = scene.own()
    scene.until(lambda: len(scene.moved) >= 20)
    assert scene.count_moved().keys() < jobs
    assert set(scene.count_moved().values()) == {1}
    assert len(second.owner.machine) == 22


@pytest.mark.parametrize("share", range(4))
def test_an_owner_that_is_killed_after_any_of_its_requests_moves_and_answers_each_once(
    bootstrap: str, unique: Callable[[str], str], share: int
) -> None:
    """The requests up to one arrive, and what follows does not; its answers are not seen."""
    for last in itertools.count(1 + share, 4):
        scene = Scene(bootstrap, unique("killed"))
        try:
            if run_until_killed(scene, last):
                return
        finally:
            scene.close()


def run_until_killed(scene: Scene, last: int) -> bool:
    """One life that ends after so many requests, and the next; whether the first got by with fewer."""
    first = scene.own(last)
    jobs = [scene.put() for _ in range(3)]
    waiting = scene.put(3600)
    cancel, look = scene.ask("CANCEL", waiting), scene.ask("LOOK", waiting)
    late = scene.put(0.15)
    moved = scene.ask("RESCHEDULE", scene.put(3600), scene.now_ms())

    def is_done() -> bool:
        answered = all(scene.answers_to(request) for request in (cancel, look, moved))
        return answered and len(scene.moved) >= 5

    scene.until(lambda: not first.is_alive or is_done())
    was_quick = first.is_alive
    first.is_alive = False
    scene.own()
    scene.until(is_done)
    marker = scene.ask("LOOK", late)
    scene.until(lambda: scene.answers_to(marker))
    assert {*jobs, late} <= set(scene.moved)
    assert set(scene.count_moved().values()) == {1}, last
    assert waiting not in scene.moved
    assert scene.answers_to(cancel) == [{"waiting": True}]
    assert len(scene.answers_to(look)) == 1
    assert scene.answers_to(moved)[0]["rescheduled"] is True
    return was_quick


def test_of_two_owners_of_a_partition_only_the_one_that_fenced_last_writes(scene: Scene) -> None:
    first = scene.own()
    scene.until(lambda: first.owner.stage is OwnerStage.RUNNING)
    second = scene.own()
    jobs = []
    for _ in range(30):  # both believe in it, and take it from one another
        jobs += [scene.put(), scene.put(0.1)]
        scene.turn()
    scene.until(lambda: set(jobs) <= set(scene.moved))
    first.owner.drop()
    look = scene.ask("LOOK", jobs[0])
    scene.until(lambda: scene.answers_to(look))
    assert set(scene.count_moved().values()) == {1}
    assert second.owner.stage is OwnerStage.RUNNING


def test_a_member_that_stops_hands_over_within_a_second(bootstrap: str, unique: Callable[[str], str]) -> None:
    scene = Scene(bootstrap, unique("shop"), partitions=4)
    try:
        first, second = scene.join(), scene.join()
        scene.until(lambda: [len(each.member.snapshot().partitions) for each in (first, second)] == [2, 2])
        scene.until(lambda: first.member.snapshot().running == second.member.snapshot().running == 2)
        began = time.monotonic()
        left = first.member.close()
        scene.until(lambda: left.is_done and second.member.snapshot().running == 4)
        assert time.monotonic() - began < 1.0
        jobs = {scene.put() for _ in range(8)}
        scene.until(lambda: jobs <= set(scene.moved))
    finally:
        scene.close()


def test_rebalances_between_and_within_rounds_move_each_job_once(bootstrap: str, unique: Callable[[str], str]) -> None:
    scene = Scene(bootstrap, unique("shop"), partitions=4)
    try:
        members = [scene.join()]
        scene.until(lambda: members[0].member.snapshot().running == 4)
        jobs = []
        for number in range(200):
            jobs.append(scene.put(0.05 * (number % 3)))
            if number in (20, 60):
                members.append(scene.join())
            if number == 120:
                members[0].member.close()
            scene.turn()
        scene.until(lambda: set(jobs) <= set(scene.moved))
        looks = [scene.ask("LOOK", job) for job in jobs]
        scene.until(lambda: all(scene.answers_to(look) for look in looks))
        assert set(scene.count_moved().values()) == {1}
    finally:
        scene.close()
