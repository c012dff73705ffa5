"""The producer's lock: for one thread at a time, and for each in the end."""

from __future__ import annotations

import threading
import time

from kafka.producer.sending import SpinLock


def test_one_thread_at_a_time_has_it() -> None:
    latch, inside, most, count = SpinLock(), 0, 0, 0

    def run() -> None:
        nonlocal inside, most, count
        for _ in range(200):
            with latch:
                inside += 1
                time.sleep(0)  # lets the others look
                most = max(most, inside)
                count += 1
                inside -= 1

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert (most, count) == (1, 1600)


def test_all_who_wait_get_it_when_it_is_let_go() -> None:
    latch, order = SpinLock(), []

    def run(number: int) -> None:
        with latch:
            order.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(5)]
    with latch:
        for thread in threads:
            thread.start()
        assert not order
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(order) == list(range(5))
    with latch:
        pass
