"""Tests of ``kafka.tasks.format.job_id``."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.net.clock import ManualClock
from kafka.tasks.format.job_id import MOST_DRIFT_MS, BrokerTimeEstimate, IdMaker, is_id, make_id, partition_of, time_of


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**16 - 1), st.binary(min_size=8, max_size=8))
def test_an_id_gives_back_its_time_and_partition(ms: int, partition: int, random: bytes) -> None:
    job_id = make_id(ms, partition, random)
    assert is_id(job_id)
    assert (time_of(job_id), partition_of(job_id)) == (ms, partition)
    assert bytes.fromhex(job_id)[8:] == random


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "G" * 32, "A" * 32, " " + "0" * 31, "0" * 31 + "\n"])
def test_what_is_no_id_is_seen(text: str) -> None:
    assert not is_id(text)


def test_ids_of_one_millisecond_differ() -> None:
    clock = ManualClock()
    make = IdMaker(5, BrokerTimeEstimate(clock.time))
    ids = {make() for _ in range(1000)}
    assert len(ids) == 1000
    assert {partition_of(i) for i in ids} == {5}
    assert {time_of(i) for i in ids} == {int(clock.time() * 1000)}


def test_ids_are_later_than_what_they_are_to_come_after() -> None:
    clock = ManualClock()
    now_ms = int(clock.time() * 1000)
    make = IdMaker(5, BrokerTimeEstimate(clock.time), now_ms + 10)
    assert time_of(make()) == now_ms + 11
    clock.advance(1)
    assert time_of(make()) == now_ms + 1000


def test_an_id_for_later_carries_that_time_and_is_one_s_own() -> None:
    clock = ManualClock()
    now_ms = int(clock.time() * 1000)
    make = IdMaker(5, BrokerTimeEstimate(clock.time), now_ms)
    later = make(now_ms + 86_400_000)
    assert (time_of(later), partition_of(later)) == (now_ms + 86_400_000, 5)
    assert make.has_made(later)
    assert time_of(make(now_ms - 5)) == now_ms + 1, "none is earlier than its first"


def test_a_client_recognises_its_own_ids_and_hardly_any_others() -> None:
    clock = ManualClock()
    estimate = BrokerTimeEstimate(clock.time)
    after_ms = estimate.now_ms()
    make = IdMaker(5, estimate, after_ms)
    assert all(is_id(job_id) and make.has_made(job_id) for job_id in (make() for _ in range(100)))
    assert sum(make.has_made(IdMaker(5, estimate, after_ms)()) for _ in range(2000)) < 10, "one in 4,096"
    own = make()
    assert not make.has_made(f"{own[:12]}0006{own[16:]}")
    assert not make.has_made(f"{after_ms:012x}{own[12:]}"), "earlier than its first"
    assert make.has_made(f"{after_ms + 1:012x}{own[12:]}")
    assert len({make()[19:22] for _ in range(1000)}) > 500, "the other bits are random"


@pytest.mark.parametrize("partition", [-1, 65_536])
def test_a_partition_that_an_id_cannot_name_is_refused(partition: int) -> None:
    with pytest.raises(ValueError, match="results partition"):
        IdMaker(partition, BrokerTimeEstimate())


@pytest.mark.parametrize("ahead_ms", [-180_000, 180_000, 0])
def test_ids_carry_the_brokers_time_after_one_answer(ahead_ms: int) -> None:
    clock = ManualClock()
    broker = BrokerTimeEstimate(clock.time)
    sent = broker.local_ms()
    clock.advance(0.010)
    broker.observe(sent, broker.local_ms(), sent + 4 - ahead_ms)
    truth = broker.local_ms() - ahead_ms
    assert abs(broker.now_ms() - truth) <= 10


def test_a_slow_answer_does_not_move_the_clock() -> None:
    broker = BrokerTimeEstimate(ManualClock().time)
    broker.observe(1000, 1002, 1501)
    before = broker.offset_ms
    broker.observe(2000, 9000, 2501)
    assert broker.offset_ms == before


class SkewedBroker:
    """A broker whose clock differs from ours. ``skew_ms``: by how much, in fractions of a ms; it gains ``drift`` of the
    time that passes."""

    def __init__(self, skew_ms: float, drift: float = 0.0) -> None:
        self.clock = ManualClock()
        self.skew_ms = skew_ms
        self.drift = drift
        self.estimate = BrokerTimeEstimate(self.clock.time)

    def now_ms(self) -> int:
        return math.floor(self.clock.time() * 1000 + self.skew_ms)

    def answer(self, there_s: float, back_s: float) -> None:
        sent_ms = self.estimate.local_ms()
        self.advance(there_s)
        append_ms = self.now_ms()
        self.advance(back_s)
        self.estimate.observe(sent_ms, self.estimate.local_ms(), append_ms)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.skew_ms += seconds * 1000 * self.drift

    def check(self) -> None:
        assert self.estimate.earliest_ms() <= self.now_ms()
        if self.estimate.age_s() * NTP_DRIFT * 1000 < MOST_DRIFT_MS:  # more certainty is not worth a later start
            assert self.now_ms() <= self.estimate.latest_ms()


SLOWEST_MS = 200.0
NTP_DRIFT = 0.001
"""500 ppm of each clock: the most by which ``ntpd`` and the kernel's ``adjtime`` slew one (RFC 5905, section 11.3)."""
LONGEST_S = 1000.0
EVENTS = 30
skews = st.floats(-1e7, 1e7)
delays = st.floats(0, SLOWEST_MS / 2000)
steps = st.one_of(
    st.tuples(st.just("answer"), delays, delays),
    st.tuples(st.just("pass"), st.floats(0, LONGEST_S), st.just(0.0)),
    # One that is smaller than the answers are slow and the clocks may have drifted cannot be seen.
    st.tuples(
        st.just("step"),
        st.floats(2 * SLOWEST_MS + 4 + 2 * EVENTS * LONGEST_S * 1000 * NTP_DRIFT, 1e7),
        st.sampled_from((-1.0, 1.0)),
    ),
)


@given(skews, st.floats(-NTP_DRIFT, NTP_DRIFT), st.lists(steps, max_size=EVENTS))
def test_the_certain_bounds_hold_whatever_the_broker_s_clock_says(
    skew_ms: float, drift: float, events: list[tuple[str, float, float]]
) -> None:
    """From the first answer on, and after a step of its clock from the next answer on."""
    broker = SkewedBroker(skew_ms, drift)
    is_known = False
    for kind, first, second in events:
        if kind == "answer":
            broker.answer(first, second)
            is_known = True
        elif kind == "pass":
            broker.advance(first)
        else:
            broker.skew_ms += first * second
            is_known = False
        if is_known:
            broker.check()


def test_what_is_not_certain_grows_with_time_and_the_next_answer_ends_it() -> None:
    broker = SkewedBroker(0.0, NTP_DRIFT)
    assert broker.estimate.age_s() == math.inf
    broker.answer(0.001, 0.001)
    for hours in (1, 24):
        broker.advance(hours * 3600.0)
        assert broker.estimate.age_s() == hours * 3600.0
        assert broker.now_ms() - broker.estimate.earliest_ms() >= hours * 3600
        assert MOST_DRIFT_MS <= broker.estimate.latest_ms() - broker.estimate.now_ms() <= MOST_DRIFT_MS + 5
        broker.answer(0.001, 0.001)
        assert broker.estimate.latest_ms() - broker.estimate.earliest_ms() <= 6
        broker.check()


def test_one_quick_answer_narrows_the_bounds_and_a_slow_one_widens_them_by_drift_alone() -> None:
    broker = SkewedBroker(-5_000.0)
    assert broker.estimate.earliest_ms() == broker.estimate.now_ms() == broker.estimate.latest_ms()
    broker.answer(0.5, 0.5)
    assert broker.estimate.latest_ms() - broker.estimate.earliest_ms() >= 1000
    for delay_s in (0.001, 2.0):
        broker.answer(delay_s, delay_s)
        drift_ms = 2 * delay_s * 1000 * NTP_DRIFT
        assert broker.estimate.latest_ms() - broker.estimate.earliest_ms() <= 5 + 2 * drift_ms
        broker.check()


def test_a_step_of_the_wall_clock_does_not_move_the_brokers_time(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerTimeEstimate()
    assert abs(broker.local_ms() / 1000 - time.time()) < 60
    before_ms = broker.now_ms()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert before_ms <= broker.now_ms() < before_ms + 60_000
