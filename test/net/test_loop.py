"""The select loop, with real descriptors and simulated."""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import threading
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.future import Future
from kafka.net.clock import ManualClock
from kafka.net.loop import DeadlineTimer, Loop, WakeupPipe


@pytest.fixture
def loop():
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def pair():
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    yield ends
    for end in ends:
        end.close()


# -- soon-callbacks ----------------------------------------------------------------------------------------------------


def test_soon_callbacks_run_in_order_and_are_counted(loop):
    seen: list[int] = []
    for number in range(3):
        loop.call_soon(seen.append, number)
    assert loop.run_once() == 3
    assert seen == [0, 1, 2]


def test_turn_ends_although_each_callback_asks_for_another(loop):
    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    assert loop.run_once() == 1
    assert loop.run_once() == 1


def test_errors_in_callbacks_are_logged_and_do_not_end_the_loop(loop, pair, caplog):
    seen: list[str] = []

    def fail() -> None:
        raise ValueError("broken callback")

    watch = loop.watch(pair[0], on_writable=fail)
    loop.call_soon(fail)
    loop.call_later(0, fail)
    loop.call_soon(seen.append, "after")
    with caplog.at_level(logging.ERROR):
        assert loop.run_once() == 4
    assert seen == ["after"]
    assert caplog.text.count("ValueError: broken callback") == 3
    watch.close()


def test_interrupt_passes_through_and_loses_nothing(loop):
    seen: list[str] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    now = loop.time()
    loop.call_at(now - 2, interrupt)
    loop.call_at(now - 1, seen.append, "timer")
    loop.call_soon(seen.append, "soon")
    with pytest.raises(KeyboardInterrupt):
        loop.run_once()
    assert loop.run_once() == 2
    assert seen == ["timer", "soon"]


def test_running_inside_a_callback_is_refused(loop):
    errors: list[str] = []

    def nested() -> None:
        for method in (loop.run_once, loop.close):
            try:
                method()
            except RuntimeError as error:
                errors.append(str(error))

    loop.call_soon(nested)
    loop.run_once()
    assert "running already" in errors[0]
    assert "stop() it first" in errors[1]


# -- timers ------------------------------------------------------------------------------------------------------------


def test_timers_run_in_time_order_and_ties_in_order_of_asking():
    clock = ManualClock()
    loop = Loop.simulated(clock)
    seen: list[tuple[str, float]] = []
    for name, when in (("c", 2.0), ("a", 1.0), ("d", 2.0), ("e", 3.0)):
        loop.call_at(when, lambda name=name: seen.append((name, clock.monotonic())))
    while loop.run_once():
        pass
    assert seen == [("a", 1.0), ("c", 2.0), ("d", 2.0), ("e", 3.0)]


def test_cancelled_timer_does_not_run_even_when_cancelled_by_another_of_the_same_turn():
    loop = Loop.simulated()
    seen: list[str] = []
    timers = []
    loop.call_at(1, lambda: timers[0].cancel())
    timers.append(loop.call_at(1, seen.append, "cancelled"))
    loop.call_at(1, seen.append, "kept")
    assert loop.run_once() == 2
    assert seen == ["kept"]


def test_timer_that_rearms_itself_in_the_past_starves_nobody():
    loop = Loop.simulated()
    seen: list[str] = []

    def rearm() -> None:
        loop.call_at(-100, rearm)

    rearm()
    loop.call_at(0, seen.append, "other")
    loop.run_once()
    loop.run_once()
    assert seen == ["other"]


def test_real_timer_ends_the_sleep(loop):
    seen: list[float] = []
    start = loop.time()
    loop.call_later(0.005, lambda: seen.append(loop.time() - start))
    assert loop.run_until(lambda: seen, 10)
    assert seen[0] >= 0.005


# -- waking ------------------------------------------------------------------------------------------------------------


def test_loop_with_nothing_to_do_sleeps_in_one_system_call(pair):
    import selectors

    class Counting(selectors.DefaultSelector):
        timeouts: list[float | None] = []

        def select(self, timeout=None):
            self.timeouts.append(timeout)
            return super().select(0)

    loop = Loop(selector=Counting())
    watch = loop.watch(pair[0], on_readable=lambda: None)
    loop.call_later(5, lambda: None)
    loop.run_once()
    watch.close()
    assert len(Counting.timeouts) == 1
    assert 4 < Counting.timeouts[0] <= 5
    loop.close()


def test_wakeup_from_another_thread_ends_the_sleep_with_one_byte(loop):
    asleep = threading.Event()
    in_flight: list[int] = []
    select = loop._selector.select

    def slow_select(timeout=None):
        asleep.set()
        done.wait(30)
        in_flight.append(loop._wakeup.in_flight_bytes)
        return select(timeout)

    done = threading.Event()
    loop._selector.select = slow_select

    def wake() -> None:
        asleep.wait(30)
        for _ in range(1000):
            loop.wakeup()
        done.set()

    thread = threading.Thread(target=wake)
    thread.start()
    assert loop.run_once(10) == 0
    thread.join(30)
    assert in_flight == [1]
    assert loop._wakeup.in_flight_bytes == 0


def test_wakeup_before_the_turn_lets_it_end_at_once_and_only_that_one(loop):
    loop.wakeup()
    start = loop.time()
    assert loop.run_once(10) == 0
    assert loop.time() - start < 5
    assert loop._wakeup.may_sleep()


def test_calls_of_many_threads_all_arrive_and_each_threads_in_order(loop):
    seen: list[tuple[int, int]] = []
    count = 500

    def hand_over(name: int) -> None:
        for number in range(count):
            loop.call_soon_threadsafe(seen.append, (name, number))

    threads = [threading.Thread(target=hand_over, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    assert loop.run_until(lambda: len(seen) == 8 * count, 20)
    for thread in threads:
        thread.join(30)
    for name in range(8):
        assert [number for who, number in seen if who == name] == list(range(count))


def test_run_until_ends_when_another_thread_completes_the_future(loop):
    future: Future[int] = Future()
    thread = threading.Thread(target=future.success, args=(1,))
    loop.call_soon(thread.start)
    assert loop.run_until(future, 10)
    thread.join(30)


def test_run_until_on_another_thread_than_the_makers_is_woken_by_the_maker():
    """The maker completes the future after the runner has looked at it and before its first turn."""
    future: Future[int] = Future()
    looked, completed = threading.Event(), threading.Event()
    outcome: list[bool] = []

    class Late(Loop):
        def run_once(self, timeout_s=None, *, advance=True):
            looked.set()
            completed.wait(30)
            return super().run_once(timeout_s, advance=advance)

    loop = Late()
    thread = threading.Thread(target=lambda: outcome.append(loop.run_until(future)), daemon=True)
    thread.start()
    assert looked.wait(30)
    future.success(1)
    completed.set()
    thread.join(30)
    assert outcome == [True]
    loop.close()


def test_run_until_gives_up_in_time(loop):
    assert not loop.run_until(Future(), 0.001)
    assert not loop.run_until(lambda: False, 0)


def test_run_forever_runs_until_stop(loop):
    seen: list[int] = []
    loop.call_later(0.001, seen.append, 1)
    loop.call_later(0.002, loop.stop)
    loop.run_forever()
    assert seen == [1]


def test_owner_is_the_thread_that_ran_the_loop_last(loop):
    assert loop.in_loop_thread()
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: (loop.run_once(0), answers.append(loop.in_loop_thread())))
    thread.start()
    thread.join(30)
    assert answers == [True]
    assert not loop.in_loop_thread()


# -- descriptors -------------------------------------------------------------------------------------------------------


def test_watch_calls_back_while_there_is_something_to_read(loop, pair):
    seen: list[bytes] = []
    watch = loop.watch(pair[0], on_readable=lambda: seen.append(pair[0].recv(1)))
    pair[1].send(b"ab")
    assert loop.run_once(0) == 1
    assert loop.run_once(0) == 1
    assert loop.run_once(0) == 0
    assert seen == [b"a", b"b"]
    watch.close()


def test_side_that_is_turned_off_is_silent_until_turned_on(loop, pair):
    seen: list[str] = []
    watch = loop.watch(pair[0], on_readable=lambda: seen.append("r"), on_writable=lambda: seen.append("w"))
    pair[1].send(b"a")
    watch.set(read=False, write=False)
    assert loop.run_once(0) == 0
    watch.set(write=True)
    assert loop.run_once(0) == 1
    watch.set(read=True, write=False)
    assert loop.run_once(0) == 1
    assert seen == ["w", "r"]
    watch.close()


def test_side_without_a_callback_cannot_be_turned_on(loop, pair):
    watch = loop.watch(pair[0], on_readable=lambda: None)
    with pytest.raises(ValueError, match="no callback"):
        watch.set(write=True)
    watch.close()
    with pytest.raises(RuntimeError, match="closed"):
        watch.set(read=True)


def test_descriptor_cannot_be_watched_twice(loop, pair):
    watch = loop.watch(pair[0], on_readable=lambda: None)
    with pytest.raises(ValueError, match="watched already"):
        loop.watch(pair[0], on_readable=lambda: None)
    watch.close()
    loop.watch(pair[0], on_readable=lambda: None).close()


def test_descriptor_closed_and_given_out_again_in_a_callback_never_gets_the_stale_event(loop):
    """Both ends are readable at once; whichever runs first replaces the other by a new file of the same number."""
    first, second = socket.socketpair(), socket.socketpair()
    stale: list[int] = []
    watches = {}
    opened: list[socket.socket] = []

    def replace(own: str, other: str, victim: socket.socket) -> None:
        watches[own].close()
        number = victim.fileno()
        watches[other].close()
        victim.close()
        left, right = socket.socketpair()
        reused = left if left.fileno() == number else right
        assert reused.fileno() == number
        opened.extend((left, right))
        watches["new"] = loop.watch(reused, on_readable=lambda: stale.append(number))

    watches["first"] = loop.watch(first[0], on_readable=lambda: replace("first", "second", second[0]))
    watches["second"] = loop.watch(second[0], on_readable=lambda: replace("second", "first", first[0]))
    first[1].send(b"x")
    second[1].send(b"x")
    assert loop.run_once(0) == 1
    assert loop.run_once(0) == 0
    assert stale == []
    watches["new"].close()
    for end in (*first, *second, *opened):
        end.close()


def test_file_closed_without_its_watch_makes_way_for_the_next_of_its_number(loop):
    old = socket.socketpair()
    number = old[0].fileno()
    loop.watch(old[0], on_readable=lambda: None)
    old[0].close()
    new = socket.socketpair()
    reused = new[0] if new[0].fileno() == number else new[1]
    assert reused.fileno() == number
    seen: list[int] = []
    watch = loop.watch(reused, on_writable=lambda: seen.append(1))
    loop.run_once(0)
    assert seen == [1]
    watch.close()
    for end in (old[1], *new):
        end.close()


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from(["close", "off", "on"])), max_size=20))
def test_watches_may_be_changed_by_any_callback_of_the_same_turn(actions):
    loop = Loop()
    pairs = [socket.socketpair() for _ in range(5)]
    plans = {number: [entry[1:] for entry in actions if entry[0] == number] for number in range(5)}
    watches = []
    closed: set[int] = set()
    off: set[int] = set()
    wrong: list[int] = []

    def act(number: int) -> None:
        if number in closed or number in off:
            wrong.append(number)
        for target, action in plans[number]:
            if action == "close":
                watches[target].close()
                closed.add(target)
            elif target not in closed:
                watches[target].set(read=action == "on")
                (off.discard if action == "on" else off.add)(target)

    for number, pair in enumerate(pairs):
        pair[1].send(b"x")
        watches.append(loop.watch(pair[0], on_readable=lambda number=number: act(number)))
    for _ in range(3):
        loop.run_once(0)
    assert wrong == []
    loop.close()
    for pair in pairs:
        for end in pair:
            end.close()


def test_hang_up_of_the_peer_is_seen_by_a_reader(loop, pair):
    seen: list[bytes] = []
    watch = loop.watch(pair[0], on_readable=lambda: seen.append(pair[0].recv(10)))
    pair[1].close()
    assert loop.run_once(0) == 1
    assert seen == [b""]
    watch.close()


# -- end ---------------------------------------------------------------------------------------------------------------


def test_closed_loop_refuses_everything_but_close_and_wakeup(pair):
    loop = Loop()
    watch = loop.watch(pair[0], on_readable=lambda: None)
    loop.close()
    loop.close()
    loop.wakeup()
    watch.close()
    assert not loop.is_usable
    for attempt in (
        lambda: loop.call_soon(print),
        lambda: loop.call_soon_threadsafe(print),
        lambda: loop.call_later(1, print),
        lambda: loop.watch(pair[0], on_readable=print),
        lambda: loop.run_once(0),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            attempt()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_is_refused_and_the_parents_loop_goes_on(loop, pair):
    seen: list[bytes] = []
    watch = loop.watch(pair[0], on_readable=lambda: seen.append(pair[0].recv(10)))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            loop.call_soon(print)
        except RuntimeError as error:
            code = 0 if "parent process" in str(error) else 2
        watch.close()
        loop.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pair[1].send(b"watched")
    assert loop.run_once(10) == 1
    assert seen == [b"watched"]
    watch.close()


# -- simulated ---------------------------------------------------------------------------------------------------------


def test_the_next_timer_is_the_earliest_that_is_not_cancelled():
    loop = Loop.simulated()
    assert loop.next_timer_at() is None
    early, _ = loop.call_at(1.0, print), loop.call_at(2.0, print)
    assert loop.next_timer_at() == 1.0
    early.cancel()
    assert loop.next_timer_at() == 2.0


def test_simulated_loop_jumps_to_the_next_timer_and_no_further():
    clock = ManualClock()
    loop = Loop.simulated(clock)
    loop.call_later(100, lambda: None)
    assert loop.run_once(30) == 0
    assert clock.monotonic() == 30
    assert loop.run_once(advance=False) == 0
    assert clock.monotonic() == 30
    assert loop.run_once() == 1
    assert clock.monotonic() == 100
    assert loop.run_once() == 0
    assert clock.monotonic() == 100


def test_simulated_loop_does_not_jump_while_there_is_something_to_do_now():
    loop = Loop.simulated()
    seen: list[float] = []
    loop.call_later(10, lambda: seen.append(loop.time()))
    loop.call_soon(lambda: seen.append(loop.time()))
    loop.run_once()
    assert seen == [0]


def test_simulated_run_until_gives_up_when_nothing_can_happen_any_more():
    loop = Loop.simulated()
    loop.call_later(10, lambda: None)
    assert not loop.run_until(Future())
    assert loop.time() == 10
    assert not loop.run_until(Future(), 5)
    assert loop.time() == 15


def test_simulated_loop_has_no_descriptors(pair):
    with pytest.raises(RuntimeError, match="no file descriptors"):
        Loop.simulated().watch(pair[0], on_readable=lambda: None)


# -- the wakeup pipe ---------------------------------------------------------------------------------------------------


@pytest.fixture
def pipe():
    pipe = WakeupPipe()
    yield pipe
    pipe.close()


def _is_readable(pipe: WakeupPipe) -> bool:
    return bool(select.select([pipe], [], [], 0)[0])


def test_thousand_wakeups_put_one_byte_in_flight(pipe):
    assert pipe.may_sleep()
    for _ in range(1000):
        pipe.wake()
    assert pipe.in_flight_bytes == 1
    pipe.awoke()
    assert pipe.in_flight_bytes == 0


def test_thousand_wakeups_from_many_threads_put_one_byte_in_flight(pipe):
    assert pipe.may_sleep()
    barrier = threading.Barrier(8)

    def wake() -> None:
        barrier.wait(30)
        for _ in range(125):
            pipe.wake()

    threads = [threading.Thread(target=wake) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert pipe.in_flight_bytes == 1


def test_loop_that_is_awake_is_woken_without_a_byte(pipe):
    pipe.wake()
    assert pipe.in_flight_bytes == 0
    assert not pipe.may_sleep()
    pipe.awoke()
    assert pipe.may_sleep()


def test_each_sleep_can_be_ended_anew(pipe):
    for _ in range(3):
        assert pipe.may_sleep()
        assert not _is_readable(pipe)
        pipe.wake()
        assert _is_readable(pipe)
        pipe.awoke()


def test_full_pipe_is_no_error_and_is_drained_whole(pipe):
    with pytest.raises(BlockingIOError):
        while True:
            pipe._writer.send(b"x" * 4096)
    assert pipe.may_sleep()
    pipe.wake()
    pipe.awoke()
    assert not _is_readable(pipe)


def test_wakeup_after_close_does_nothing(pipe):
    pipe.close()
    pipe.wake()


def test_descriptors_are_not_inherited(pipe):
    assert not pipe._reader.get_inheritable()
    assert not pipe._writer.get_inheritable()


def test_a_signal_handler_may_wake_the_loop_that_it_broke_into(pipe: WakeupPipe) -> None:
    def interrupted() -> None:
        with pipe._lock:  # as inside may_sleep(), when a signal's handler runs
            pipe.wake()

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert not pipe.may_sleep()


# -- deadlineTimer -----------------------------------------------------------------------------------------------------


def test_only_the_last_instant_counts_and_infinity_is_never() -> None:
    clock = ManualClock()
    loop = Loop.simulated(clock)
    rang: list[float] = []
    alarm = DeadlineTimer(loop, lambda: rang.append(clock.monotonic()))
    for when in (5.0, 3.0, 3.0, 4.0):
        alarm.set(when)
    loop.run_until(lambda: rang, 10.0)
    assert rang == [4.0]
    alarm.set(6.0)
    alarm.set(inf)
    loop.run_until(lambda: len(rang) > 1, 10.0)
    assert rang == [4.0]
    alarm.set(clock.monotonic() + 1)
    loop.run_until(lambda: len(rang) > 1, 10.0)
    assert len(rang) == 2


def test_an_alarm_that_is_put_off_again_and_again_sets_one_timer() -> None:
    clock = ManualClock()
    loop = Loop.simulated(clock)
    rang: list[float] = []
    alarm = DeadlineTimer(loop, lambda: rang.append(clock.monotonic()))
    for number in range(1000):
        alarm.set(5.0 + number)
    assert loop._timers.stored_count == 1
    loop.run_until(lambda: rang, 2000.0)
    assert rang == [1004.0]


# -- signals as events of the loop -------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="needs signals that one can send to oneself")
def test_signal_becomes_a_callback_on_the_loop(loop):
    seen: list[int] = []
    watch = loop.watch_signals(seen.append, signal.SIGUSR1, signal.SIGUSR2)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == []
        assert loop.run_until(lambda: seen, 10)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert loop.run_until(lambda: len(seen) == 2, 10)
        assert seen == [signal.SIGUSR1, signal.SIGUSR2]
    finally:
        watch.close()


@pytest.mark.skipif(os.name != "posix", reason="needs signals that one can send to oneself")
def test_signal_ends_the_loops_sleep(loop):
    seen: list[int] = []
    watch = loop.watch_signals(seen.append, signal.SIGALRM)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        assert loop.run_until(lambda: seen, 10)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        watch.close()


@pytest.mark.skipif(os.name != "posix", reason="needs signals that one can send to oneself")
def test_close_puts_the_former_handlers_back(loop):
    former = signal.getsignal(signal.SIGUSR1)
    watch = loop.watch_signals(lambda signum: None, signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) != former
    watch.close()
    watch.close()
    assert signal.getsignal(signal.SIGUSR1) == former
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.skipif(os.name != "posix", reason="needs signals that one can send to oneself")
def test_second_owner_of_the_wakeup_fd_is_refused_and_the_first_goes_on(loop):
    seen: list[int] = []
    watch = loop.watch_signals(seen.append, signal.SIGUSR1)
    try:
        with pytest.raises(RuntimeError, match="watched already"):
            loop.watch_signals(lambda signum: None, signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert loop.run_until(lambda: seen, 10)
    finally:
        watch.close()


@pytest.mark.skipif(os.name != "posix", reason="needs signals that one can send to oneself")
def test_other_threads_than_the_main_one_are_refused(loop):
    errors: list[Exception] = []

    def attempt() -> None:
        try:
            loop.watch_signals(lambda signum: None, signal.SIGUSR1)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join(30)
    assert "main thread" in str(errors[0])


@pytest.mark.skipif(os.name != "posix", reason="needs signals that one can send to oneself")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_has_the_former_handlers_and_sends_the_parent_nothing(loop):
    seen: list[int] = []
    watch = loop.watch_signals(seen.append, signal.SIGUSR1)
    try:
        child = os.fork()
        if child == 0:
            restored = signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL and signal.set_wakeup_fd(-1) == -1
            os._exit(0 if restored else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        os.kill(os.getpid(), signal.SIGUSR1)
        assert loop.run_until(lambda: seen, 10)
        assert seen == [signal.SIGUSR1]
    finally:
        watch.close()
