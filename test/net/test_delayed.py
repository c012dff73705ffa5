"""The timer heap and the queue of scheduled tasks."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import Cancelled
from kafka.net.clock import ManualClock
from kafka.net.loop import NEVER_S, DelayedTaskQueue, TimerHeap


def _queue() -> tuple[DelayedTaskQueue, ManualClock]:
    clock = ManualClock()
    return DelayedTaskQueue(clock), clock


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(0, 20)),
            st.tuples(st.just("cancel"), st.integers(0, 200)),
            st.tuples(st.just("pop"), st.integers(0, 20)),
        ),
        max_size=200,
    )
)
def test_heap_does_what_a_sorted_list_does_in_any_interleaving(steps):
    heap: TimerHeap[int] = TimerHeap()
    timers = []
    model: list[tuple[int, int]] = []
    for step, value in steps:
        if step == "push":
            model.append((value, len(timers)))
            timers.append(heap.push(value, len(timers)))
        elif step == "cancel" and timers:
            number = value % len(timers)
            timers[number].cancel()
            model = [entry for entry in model if entry[1] != number]
        elif step == "pop":
            due = sorted(entry for entry in model if entry[0] <= value)
            popped = []
            while (timer := heap.pop_due(value)) is not None:
                popped.append((timer.when, timer.item))
                timer.item = None
            assert popped == due
            model = [entry for entry in model if entry[0] > value]
        assert len(heap) == len(model)
        assert heap.next_when() == (min(model)[0] if model else None)


def test_cancelled_timers_do_not_pile_up():
    heap: TimerHeap[int] = TimerHeap()
    heap.push(0, -1)
    for number in range(100_000):
        heap.push(1000 + number, number).cancel()
    assert len(heap) == 1
    assert heap.stored_count <= 130


def test_cancel_lets_go_of_the_item_and_may_be_repeated():
    heap: TimerHeap[object] = TimerHeap()
    timer = heap.push(1, object())
    timer.cancel()
    timer.cancel()
    assert not timer.is_pending
    assert timer.item is None
    assert len(heap) == 0
    assert heap.pop_due(5) is None


def test_cancel_after_pop_does_not_count_twice():
    heap: TimerHeap[int] = TimerHeap()
    heap.push(1, 1)
    heap.push(2, 2)
    timer = heap.pop_due(1)
    assert timer is not None
    timer.cancel()
    assert len(heap) == 1


def test_heap_refuses_an_instant_that_is_no_number():
    with pytest.raises(ValueError, match="not a number"):
        TimerHeap[int]().push(float("nan"), 1)


def test_cleared_heap_is_empty_and_its_timers_are_cancelled():
    heap: TimerHeap[int] = TimerHeap()
    timer = heap.push(1, 1)
    heap.clear()
    timer.cancel()
    assert len(heap) == 0
    assert not timer.is_pending


def test_next_at_is_seconds_until_the_next_task():
    queue, clock = _queue()
    assert queue.next_at() == NEVER_S == 9999999999
    queue.add("late", clock.time() + 10)
    queue.add("soon", clock.time() + 4)
    assert queue.next_at() == pytest.approx(4)
    clock.advance(4)
    assert queue.next_at() == 0
    clock.advance(100)
    assert queue.next_at() == 0


def test_pop_ready_gives_what_is_due_in_time_order_and_ties_in_order_of_adding():
    queue, clock = _queue()
    at = clock.time() + 5.1
    futures = {}
    for name, when in (("c", at), ("a", at - 1), ("d", at), ("later", at + 1), ("e", at)):
        clock.advance(0.01)
        futures[name] = queue.add(name, when)
    clock.advance(5.05)
    assert queue.pop_ready() == [(name, futures[name]) for name in ("a", "c", "d", "e")]
    assert queue.pop_ready() == []
    assert len(queue) == 1
    assert not futures["a"].is_done


@given(st.floats(0.001, 1000), st.floats(1.0e9, 2.0e9))
def test_task_is_due_once_its_time_has_come_whatever_the_rounding(delay, epoch):
    clock = ManualClock(time=epoch)
    queue = DelayedTaskQueue(clock)
    queue.add("task", clock.time() + delay)
    clock.advance(delay)
    assert queue.next_at() == 0
    assert [task for task, _ in queue.pop_ready()] == ["task"]


def test_task_of_the_past_is_due_at_once():
    queue, clock = _queue()
    queue.add("old", clock.time() - 1000)
    assert queue.next_at() == 0
    assert [task for task, _ in queue.pop_ready()] == ["old"]


def test_remove_fails_the_future_with_cancelled_and_knows_no_strangers():
    queue, clock = _queue()
    future = queue.add("task", clock.time() + 1)
    queue.remove("task")
    assert isinstance(future.exception, Cancelled)
    assert queue.next_at() == NEVER_S
    with pytest.raises(KeyError):
        queue.remove("task")


def test_popped_task_can_no_longer_be_removed():
    queue, clock = _queue()
    queue.add("task", clock.time())
    queue.pop_ready()
    with pytest.raises(KeyError):
        queue.remove("task")


def test_adding_a_task_again_cancels_the_former():
    queue, clock = _queue()
    first = queue.add("task", clock.time() + 1)
    second = queue.add("task", clock.time() + 9)
    assert isinstance(first.exception, Cancelled)
    clock.advance(5)
    assert queue.pop_ready() == []
    clock.advance(5)
    assert queue.pop_ready() == [("task", second)]


def test_callback_of_a_cancelled_task_may_schedule_it_anew():
    queue, clock = _queue()
    queue.add("task", clock.time() + 1).add_errback(lambda _: queue.add("task", clock.time() + 2))
    queue.remove("task")
    assert "task" in queue
    assert queue.next_at() == pytest.approx(2)


@pytest.mark.parametrize("step", [-86400.0, 86400.0])
def test_step_of_the_wall_clock_neither_fires_nor_holds_what_was_added(step):
    queue, clock = _queue()
    queue.add("before", clock.time() + 10)
    clock.step(step)
    queue.add("after", clock.time() + 20)
    clock.advance(9)
    assert queue.pop_ready() == []
    clock.advance(1)
    assert [task for task, _ in queue.pop_ready()] == ["before"]
    clock.advance(10)
    assert [task for task, _ in queue.pop_ready()] == ["after"]


def test_equal_times_tie_although_the_clocks_are_read_at_different_instants():
    class Ragged(ManualClock):
        """Takes a while between any two readings, as a busy machine does."""

        def __init__(self) -> None:
            super().__init__()
            self.reads = 0

        def _drag(self) -> None:
            self.reads += 1
            self.advance((self.reads * 7919 % 13) * 1e-5)

        def monotonic(self) -> float:
            self._drag()
            return super().monotonic()

        def time(self) -> float:
            self._drag()
            return super().time()

    clock = Ragged()
    queue = DelayedTaskQueue(clock)
    at = clock.time() + 1
    for number in range(50):
        queue.add(number, at)
    clock.advance(2)
    assert [task for task, _ in queue.pop_ready()] == list(range(50))


def test_queue_uses_the_machines_clock_by_default():
    queue = DelayedTaskQueue()
    queue.add("due", time.time())
    queue.add("far", time.time() + 1000)
    assert [task for task, _ in queue.pop_ready()] == ["due"]
    assert 990 < queue.next_at() <= 1000
