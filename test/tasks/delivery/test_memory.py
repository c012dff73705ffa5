"""Tests of ``kafka.tasks.delivery.memory``: what a worker sees of topics in memory, and what waits for states."""

from __future__ import annotations

import gc
import os
import weakref

import pytest

from kafka.errors import IllegalStateError, KafkaError
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.tasks.delivery.base import Ending, JobLease, OutgoingRecord, RecordKind
from kafka.tasks.delivery.memory import MemoryDelivery, MemoryPublisher, MemoryTopics
from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.records import StateRecord, encode
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.states import JobState
from test.tasks.fakes import settle

LOCK_S = 10.0
QUEUE, RESULTS = "shop.mail", "shop.results"
JOB_ID = make_id(1_700_000_000_000, 0, bytes(8))


class Member:
    """A delivery, and what it reports to its worker."""

    def __init__(self, topics: MemoryTopics, loop: Loop) -> None:
        self.leases: list[JobLease] = []
        self.losses: list[tuple[list[JobLease], str]] = []
        self.left_count = 0
        self.finished: list[JobLease] = []
        publisher = MemoryPublisher(topics, loop)
        self.delivery = MemoryDelivery(topics, loop, self, publisher, TopicNames("shop"), ["mail"], LOCK_S)
        self.main, self.due, self.suspect = self.delivery.sources

    def leased(self, leases: list[JobLease]) -> None:
        self.leases += leases

    def lost(self, leases: list[JobLease], reason: str) -> None:
        self.losses.append((leases, reason))

    def replace_result(self, ending: Ending, record: OutgoingRecord) -> Ending:
        raise AssertionError("no record is too large")

    def failed(self, error: KafkaError) -> None:
        raise error

    def left(self) -> None:
        self.left_count += 1

    def finish(self, *records: OutgoingRecord) -> None:
        """The oldest lease ends with these records."""
        self.delivery.finish([Ending(self.leases[0], None, list(records))], self.finished.extend)


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = Loop.simulated(self.clock)
        self.topics = MemoryTopics(lambda: int(self.clock.time() * 1000))

    def member(self, asks: int = 0) -> Member:
        member = Member(self.topics, self.loop)
        if asks:
            member.delivery.request(member.main, asks)
        settle(self.loop)
        return member

    def put(self, *values: bytes, topic: str = QUEUE) -> None:
        for value in values:
            self.topics.append(OutgoingRecord(RecordKind.JOB, topic, value, b"key", [("id", value)]))
        settle(self.loop)

    def put_state(self, state: JobState, attempt: int = 1, value: bytes = b"") -> None:
        key, value, headers = encode(StateRecord(JOB_ID, state, attempt, value=value))
        self.topics.append(OutgoingRecord(RecordKind.STATE, RESULTS, value, key, headers, 0))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_jobs_are_handed_out_in_order_and_no_more_than_were_asked_for(bench: Bench) -> None:
    member = bench.member(asks=2)
    bench.put(b"1", b"2", b"3")
    assert [(lease.value, lease.key, lease.headers, lease.offset) for lease in member.leases] == [
        (b"1", b"key", [("id", b"1")], 0),
        (b"2", b"key", [("id", b"2")], 1),
    ]
    member.delivery.request(member.main, 5)
    settle(bench.loop)
    assert [lease.value for lease in member.leases] == [b"1", b"2", b"3"]


def test_what_one_member_holds_no_other_gets(bench: Bench) -> None:
    first, second = bench.member(asks=1), bench.member(asks=5)
    bench.put(b"1", b"2")
    assert [lease.value for lease in first.leases] == [b"1"]
    assert [lease.value for lease in second.leases] == [b"2"]


def test_an_accepted_job_is_not_handed_out_again_and_its_records_are_there_before(bench: Bench) -> None:
    member = bench.member(asks=1)
    bench.put(b"1")
    member.finish(OutgoingRecord(RecordKind.JOB, "shop.mail.due", b"next"))
    assert [record.value for record in bench.topics.topics["shop.mail.due"]] == [b"next"]
    assert member.finished == []
    settle(bench.loop)
    assert member.finished == member.leases[:1]
    assert not bench.topics.has_unfinished(QUEUE)
    bench.clock.advance(LOCK_S)
    other = bench.member(asks=1)
    assert other.leases == []


def test_a_lock_ends_after_its_time_and_the_count_of_deliveries_rises(bench: Bench) -> None:
    first = bench.member(asks=1)
    bench.put(b"1")
    bench.clock.advance(LOCK_S - 0.001)
    early = bench.member(asks=1)
    bench.clock.advance(0.001)
    second = bench.member(asks=1)
    early.delivery.close()
    assert [lease.deliveries for lease in second.leases] == [2]
    first.finish()
    settle(bench.loop)
    assert first.losses == [(first.leases, "acquisition lock timed out")]
    assert bench.topics.has_unfinished(QUEUE)
    assert early.leases == []


def test_a_lease_of_an_earlier_delivery_accepts_nothing(bench: Bench) -> None:
    member = bench.member(asks=1)
    bench.put(b"1")
    bench.clock.advance(LOCK_S)
    member.delivery.request(member.main, 1)
    settle(bench.loop)
    assert [lease.deliveries for lease in member.leases] == [1, 2]
    member.finish()
    settle(bench.loop)
    assert (member.losses[0][0], bench.topics.has_unfinished(QUEUE)) == (member.leases[:1], True)


def test_a_renewed_lock_lasts_from_then_on(bench: Bench) -> None:
    member = bench.member(asks=1)
    bench.put(b"1")
    bench.clock.advance(LOCK_S - 1)
    member.delivery.renew(member.leases)
    bench.clock.advance(LOCK_S - 1)
    assert bench.member(asks=1).leases == []
    member.finish()
    settle(bench.loop)
    assert (member.losses, bench.topics.has_unfinished(QUEUE)) == ([], False)


def test_a_member_that_leaves_releases_what_it_holds(bench: Bench) -> None:
    first, second = bench.member(asks=1), bench.member(asks=1)
    bench.put(b"1")
    assert second.leases == []
    first.delivery.close()
    settle(bench.loop)
    assert [(lease.value, lease.deliveries) for lease in second.leases] == [(b"1", 2)]
    assert first.left_count == 1
    bench.put(b"2")
    assert len(first.leases) == 1


def test_a_member_that_leaves_releases_nothing_of_others(bench: Bench) -> None:
    first, second = bench.member(asks=1), bench.member(asks=1)
    bench.put(b"1", b"2")
    first.delivery.close()
    third = bench.member(asks=5)
    assert [lease.value for lease in third.leases] == [b"1"]
    second.finish()
    settle(bench.loop)
    assert second.losses == []


def test_a_member_that_has_left_is_not_kept(bench: Bench) -> None:
    member = bench.member(asks=1)
    delivery = weakref.ref(member.delivery)
    member.delivery.close()
    settle(bench.loop)
    del member
    gc.collect()
    assert delivery() is None


def test_a_job_is_lost_before_it_is_handed_out_again(bench: Bench) -> None:
    member = bench.member(asks=1)
    bench.put(b"1")
    member.delivery.request(member.main, 1)
    bench.clock.advance(LOCK_S)
    member.finish()
    member.delivery.look_soon()
    calls: list[str] = []
    member.lost = lambda leases, reason: calls.append("lost")  # type: ignore[method-assign]
    member.leased = lambda leases: calls.append("leased")  # type: ignore[method-assign]
    settle(bench.loop)
    assert calls == ["lost", "leased"]


def test_suspects_are_not_handed_out_while_a_job_moves_there(bench: Bench) -> None:
    member = bench.member(asks=1)
    bench.put(b"1")
    member.delivery.request(member.suspect, 1)
    moved = OutgoingRecord(RecordKind.JOB, "shop.mail.suspect", b"moved")
    member.delivery.finish([Ending(member.leases[0], None, [moved], is_move=True)], member.finished.extend)
    states = []
    while bench.loop.run_once(0, advance=False):
        states.append((bench.topics.has_unfinished(QUEUE), len(member.leases)))
    assert (False, 1) in states
    assert (True, 2) not in states
    assert member.leases[-1].value == b"moved"


def test_the_first_final_state_holds_and_wakes_who_waits(bench: Bench) -> None:
    states: list[StateRecord] = []
    assert bench.topics.state_of(JOB_ID) is None
    assert bench.topics.add_waiter(JOB_ID, states.append) is None
    bench.put_state(JobState.RETRY, 1)
    retried = bench.topics.state_of(JOB_ID)
    assert retried is not None
    assert (states, retried.state, retried.time_ms) == ([], JobState.RETRY, 1_700_000_000_000)
    bench.put_state(JobState.SUCCESS, 2, b"7")
    bench.put_state(JobState.FAILURE, 2)
    assert [(state.state, state.value) for state in states] == [(JobState.SUCCESS, b"7")]
    assert bench.topics.state_of(JOB_ID) == states[0]
    assert bench.topics.add_waiter(JOB_ID, states.append) == states[0]
    bench.put_state(JobState.SUCCESS, 3)
    assert len(states) == 1


def test_a_state_that_is_written_long_after_the_enqueue_counts(bench: Bench) -> None:
    bench.clock.advance(3600)
    bench.put_state(JobState.RETRY, 2)
    bench.put_state(JobState.RETRY, 1)
    state = bench.topics.state_of(JOB_ID)
    assert state is not None
    assert state.attempt == 2


def test_who_does_not_wait_any_more_is_not_called(bench: Bench) -> None:
    states: list[StateRecord] = []
    kept: list[StateRecord] = []
    bench.topics.add_waiter(JOB_ID, states.append)
    bench.topics.add_waiter(JOB_ID, kept.append)
    bench.topics.remove_waiter(JOB_ID, states.append)
    bench.topics.remove_waiter(JOB_ID, states.append)
    bench.put_state(JobState.SUCCESS)
    assert (states, len(kept)) == ([], 1)


def test_a_record_that_is_no_state_is_none(bench: Bench) -> None:
    bench.topics.append(OutgoingRecord(RecordKind.STATE, RESULTS, None, JOB_ID.encode(), [("clock", None)], 0))
    assert bench.topics.state_of(JOB_ID) is None
    assert bench.topics.topics[RESULTS][0].header("state") is None


def test_a_fork_of_the_process_has_none_of_the_jobs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.topics.check_process()
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with pytest.raises(IllegalStateError, match=f"memory of process {pid}, and this is its child {pid + 1}: run "):
        bench.topics.check_process()
