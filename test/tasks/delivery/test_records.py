"""Tests of ``kafka.tasks.delivery.records`` and ``kafka.tasks.delivery.settlement``."""

from __future__ import annotations

import json

import pytest

from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError, NotEnoughReplicasError
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.tasks.delivery.base import JobLease, JobSource, OutgoingRecord
from kafka.tasks.delivery.records import StateRecords, result_too_large
from kafka.tasks.delivery.settlement import Settlement, Settler
from kafka.tasks.format.envelope import Envelope, dead_letter_of, decode
from kafka.tasks.format.records import StateRecord
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.rules.decide import JobHistory, JobPolicy, decide
from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ChildLost,
    ErrorInfo,
    InvalidRecord,
    JobSucceeded,
    Outcome,
    SuspectedCrash,
)
from kafka.tasks.states import JobState
from test.tasks.fakes import FakeDelivery, FakePublisher, Queues, a_job, settle

NAMES = TopicNames("shop")
MAKER = StateRecords(NAMES, "host1")
MAIN, SUSPECTS = JobSource("mail", "shop.mail"), JobSource("mail", "shop.mail.suspect", True)


class NoEvents:
    def leased(self, leases: list[JobLease]) -> None: ...
    def lost(self, leases: list[JobLease], reason: str) -> None: ...
    def left(self) -> None: ...


def a_lease(envelope: Envelope, source: JobSource = MAIN) -> JobLease:
    return JobLease(source, envelope.value, envelope.headers(), 1, 2, 77)


def test_a_success_is_one_record_keyed_by_the_id_in_the_ids_partition() -> None:
    envelope = a_job("f", partition=6)
    decision = decide(JobSucceeded(b"42"), JobHistory(), JobPolicy(), 0)
    (record,) = MAKER.for_decision(decision, JobSucceeded(b"42"), envelope, a_lease(envelope), envelope.enqueued_ms)
    assert (record.topic, record.partition, record.key, record.value) == (
        "shop.results",
        6,
        envelope.id.encode(),
        b"42",
    )


def test_a_job_that_ends_late_is_recorded_in_the_late_topic() -> None:
    envelope = a_job("f")
    decision = decide(JobSucceeded(b""), JobHistory(), JobPolicy(), 0)
    (record,) = MAKER.for_decision(
        decision, JobSucceeded(b""), envelope, a_lease(envelope), envelope.enqueued_ms + 60_001
    )
    assert record.topic == "shop.results.late"


def test_a_dead_job_keeps_its_headers_and_gets_its_cause() -> None:
    envelope = a_job("f", attempt=3)
    outcome = AttemptFailed(ErrorInfo("OSError", "disk", "Trace"))
    decision = decide(outcome, JobHistory(attempt=3), JobPolicy(max_attempts=3), 0)
    dead, state = MAKER.for_decision(decision, outcome, envelope, a_lease(envelope), envelope.enqueued_ms)
    assert dead.topic == "shop.mail.dead"
    assert decode(dead.value, dead.headers or []) == envelope
    death = dead_letter_of(dead.headers or [])
    assert death is not None
    assert (death.cause, death.type, death.origin, death.host) == ("attempts", "OSError", "shop.mail:2:77", "host1")
    assert dict(state.headers or [])["state"] == b"FAILURE"


def test_a_job_whose_child_died_too_often_says_of_what() -> None:
    envelope = a_job("f", crashes=2)
    outcome = ChildLost("memory", 9, None, 600 << 20, "above 512 MiB", peak_rss_bytes=800 << 20)
    decision = decide(outcome, JobHistory(crashes=2), JobPolicy(), 0)
    dead, state = MAKER.for_decision(decision, outcome, envelope, a_lease(envelope), envelope.enqueued_ms)
    death = dead_letter_of(dead.headers or [])
    assert death is not None
    assert (death.cause, death.type) == ("lost-memory", "WorkerLost")
    assert "signal 9 (SIGKILL); last RSS 600 MiB; peak RSS 800 MiB; above 512 MiB" in death.text
    assert decode(dead.value, dead.headers or []).crashes == 3
    assert dict(state.headers or [])["state"] == b"FAILURE"
    assert json.loads(state.value or b"")["text"] == death.text


def test_a_job_whose_child_died_goes_back_to_its_queue_with_one_crash_more() -> None:
    envelope = a_job("f", attempt=2)
    outcome = ChildLost("signal", 11)
    decision = decide(outcome, JobHistory(attempt=2), JobPolicy(), 0)
    record, state = MAKER.for_decision(decision, outcome, envelope, a_lease(envelope), envelope.enqueued_ms)
    assert record.topic == "shop.mail"
    moved = decode(record.value, record.headers or [])
    assert (moved.attempt, moved.crashes) == (2, 1)
    assert dict(state.headers or [])["state"] == b"RETRY"


def test_a_suspect_moves_unchanged() -> None:
    envelope = a_job("f", attempt=2)
    decision = decide(SuspectedCrash(), JobHistory(attempt=2, deliveries=2), JobPolicy(), 0)
    (record,) = MAKER.for_decision(decision, SuspectedCrash(), envelope, a_lease(envelope), 0)
    assert record.topic == "shop.mail.suspect"
    assert decode(record.value, record.headers or []) == envelope


def test_what_is_no_job_goes_to_the_dead_topic_as_it_was() -> None:
    lease = JobLease(MAIN, None, [("x", b"1"), ("dead-cause", b"older")], 1, 0, 3)
    record = MAKER.no_job(lease, InvalidRecord("no-job", "what is this"), 5)
    assert (record.topic, record.value) == ("shop.mail.dead", None)
    death = dead_letter_of(record.headers or [])
    assert death is not None
    assert (death.cause, death.text) == ("no-job", "what is this")
    assert (record.headers or [])[0] == ("x", b"1")


class Bench:
    """A settler over a queue in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = Loop.simulated(self.clock)
        self.queues = Queues(self.clock)
        self.delivery = FakeDelivery(self.queues, self.loop, NoEvents())
        self.publisher = FakePublisher(self.queues, self.loop)
        self.over: list[tuple[JobLease, bool]] = []
        self.refused: list[JobLease] = []
        self.settler = Settler(
            self.delivery,
            self.publisher,
            MAKER,
            lambda leases, well: self.over.extend((lease, well) for lease in leases),
            self._too_large,
            self.refused.extend,
        )

    def now_ms(self) -> int:
        return int(self.clock.time() * 1000)

    def _too_large(self, settlement: Settlement, record: OutgoingRecord) -> Settlement:
        assert settlement.envelope is not None
        outcome = result_too_large(settlement.envelope, record)
        decision = decide(outcome, JobHistory(), JobPolicy(), 0)
        return Settlement(
            settlement.lease,
            settlement.envelope,
            MAKER.for_decision(decision, outcome, settlement.envelope, settlement.lease, self.now_ms()),
        )

    def settlement(
        self, value: bytes = b"1", source: JobSource = MAIN, deliveries: int = 1, outcome: Outcome | None = None
    ) -> Settlement:
        outcome = outcome or JobSucceeded(value)
        envelope = a_job("f", clock=self.clock)
        lease = a_lease(envelope, source)
        lease.deliveries = deliveries
        self.queues.append(
            MAKER.for_decision(
                decide(SuspectedCrash(), JobHistory(), JobPolicy(), 0), SuspectedCrash(), envelope, lease, 0
            )[0]
        )
        record = self.queues.topics["shop.mail.suspect"][-1]
        record.holder, record.deliveries, record.locked_until = self.delivery, deliveries, 1e9
        lease.token = record
        decision = decide(outcome, JobHistory(), JobPolicy(max_attempts=3), 0)
        return Settlement(lease, envelope, MAKER.for_decision(decision, outcome, envelope, lease, self.now_ms()))

    def states(self) -> list[StateRecord]:
        return self.queues.states(NAMES)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_lease_is_accepted_after_its_records_are_durable(bench: Bench) -> None:
    bench.publisher.is_stuck = True
    settlement = bench.settlement()
    bench.settler.settle([settlement])
    settle(bench.loop)
    assert bench.delivery.settled == []
    bench.publisher.advance()
    settle(bench.loop)
    assert [lease for lease, _ in bench.delivery.settled] == [settlement.lease]
    assert bench.over == [(settlement.lease, True)]


def test_a_group_is_published_in_one_go(bench: Bench) -> None:
    bench.settler.settle([bench.settlement() for _ in range(50)])
    settle(bench.loop)
    assert bench.publisher.sizes == [50]
    assert len(bench.delivery.settled) == 50


def test_one_lease_that_fails_takes_no_other_with_it(bench: Bench) -> None:
    settlements = [bench.settlement() for _ in range(3)]
    bench.publisher.errors["shop.results"] = [KafkaTimeoutError("120 s")]
    bench.settler.settle(settlements)
    settle(bench.loop)
    assert [lease for lease, _ in bench.delivery.settled] == [settlements[1].lease, settlements[2].lease]
    assert (settlements[0].lease, False) in bench.over


@pytest.mark.parametrize(("source", "deliveries"), [(SUSPECTS, 1), (MAIN, 2)])
def test_what_must_not_be_delivered_once_more_is_written_again_until_it_is_there(
    bench: Bench, source: JobSource, deliveries: int
) -> None:
    settlement = bench.settlement(source=source, deliveries=deliveries)
    bench.publisher.errors["shop.results"] = [KafkaTimeoutError("120 s"), NotEnoughReplicasError()]
    bench.settler.settle([settlement])
    settle(bench.loop)
    bench.settler.retry_refused()
    settle(bench.loop)
    assert (bench.refused, bench.over, bench.delivery.settled) == ([settlement.lease] * 2, [], [])
    bench.settler.retry_refused()
    settle(bench.loop)
    assert [lease for lease, _ in bench.delivery.settled] == [settlement.lease]
    assert bench.over == [(settlement.lease, True)]
    bench.settler.retry_refused()
    settle(bench.loop)
    assert len(bench.states()) == 1


def test_only_what_is_missing_is_written_again(bench: Bench) -> None:
    settlement = bench.settlement(source=SUSPECTS, outcome=AttemptFailed(ErrorInfo("OSError")))
    bench.publisher.errors["shop.results"] = [KafkaTimeoutError("120 s")]
    bench.settler.settle([settlement])
    settle(bench.loop)
    bench.settler.retry_refused()
    settle(bench.loop)
    assert len(bench.queues.topics["shop.mail"]) == len(bench.states()) == 1
    assert bench.over == [(settlement.lease, True)]


def test_what_is_lost_meanwhile_is_not_written_again(bench: Bench) -> None:
    settlement = bench.settlement(source=SUSPECTS)
    bench.publisher.errors["shop.results"] = [KafkaTimeoutError("120 s")]
    bench.settler.settle([settlement])
    settle(bench.loop)
    settlement.lease.lost = True
    bench.settler.retry_refused()
    settle(bench.loop)
    assert (bench.states(), bench.over) == ([], [(settlement.lease, False)])


def test_a_result_that_its_topic_does_not_take_is_a_failure_that_says_so(bench: Bench) -> None:
    bench.publisher.errors["shop.results"] = [MessageSizeTooLargeError()]
    bench.settler.settle([bench.settlement(b'"' + b"x" * 5000 + b'"')])
    settle(bench.loop)
    (state,) = bench.states()
    assert state.state is JobState.FAILURE
    assert state.detail()["type"] == "PayloadTooLarge"
    assert "5002 bytes, more than the topic shop.results accepts" in state.detail()["text"]
    assert len(bench.queues.topics["shop.mail.dead"]) == 1
    assert len(bench.delivery.settled) == 1


@pytest.mark.parametrize("source", [MAIN, SUSPECTS])
def test_a_failure_that_its_topic_does_not_take_either_ends_there(bench: Bench, source: JobSource) -> None:
    bench.publisher.errors["shop.results"] = [MessageSizeTooLargeError(), MessageSizeTooLargeError()]
    bench.settler.settle([bench.settlement(b'"' + b"x" * 5000 + b'"', source)])
    settle(bench.loop)
    assert [well for _, well in bench.over] == [False]


def test_a_record_that_was_appended_late_is_copied_to_the_late_topic(bench: Bench) -> None:
    bench.publisher.is_stuck = True
    bench.settler.settle([bench.settlement()])
    bench.clock.advance(61)
    bench.publisher.advance()
    settle(bench.loop)
    assert len(bench.queues.topics["shop.results"]) == len(bench.queues.topics["shop.results.late"]) == 1
    assert len(bench.delivery.settled) == 1


def test_a_lost_lease_is_not_accepted(bench: Bench) -> None:
    settlement = bench.settlement()
    settlement.lease.lost = True
    bench.settler.settle([settlement])
    settle(bench.loop)
    assert bench.delivery.settled == []
