"""Tests of ``kafka.tasks.delivery.finishing``: no lease is accepted before its records are durable."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.tasks.delivery.base import Appended, Ending, JobLease, JobSource, OutgoingRecord, SourceKind
from kafka.tasks.delivery.finishing import MOVING_S, RETRY_S, PublishThenAccept, UnwrittenEnding, next_ending, remedy
from kafka.tasks.delivery.records import StateRecords, result_too_large
from kafka.tasks.format.envelope import Envelope, dead_letter_of
from kafka.tasks.format.job_id import time_of
from kafka.tasks.format.records import StateRecord
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.rules.decide import JobHistory, JobPolicy, decide
from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ErrorInfo,
    InvalidRecord,
    JobSucceeded,
    NotStarted,
    Outcome,
    SuspectedCrash,
)
from kafka.tasks.states import JobState
from test.tasks.fakes import FakePublisher, Queues, a_job, pass_time, settle

NAMES = TopicNames("shop")
MAKER = StateRecords(NAMES, "host1", 4)
MAIN = JobSource("mail", "shop.mail")
SUSPECTS = JobSource("mail", "shop.mail.suspect", SourceKind.SUSPECT)
RESULTS, LATE, DUE, SUSPECT, DEAD = (
    "shop.results", "shop.results.late", "shop.mail.due", "shop.mail.suspect", "shop.mail.dead",
)  # fmt: skip
OK = JobSucceeded(b"1")
FAILED = AttemptFailed(ErrorInfo("OSError", "d" * 300, "Trace"))
TIMEOUT = KafkaTimeoutError("120 s")
TOO_LARGE = MessageSizeTooLargeError()
FORBIDDEN = TopicAuthorizationFailedError("no")


class Bench:
    """What finishes jobs, over topics in memory. ``accepted`` and ``over``: the leases, in order."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = Loop.simulated(self.clock)
        self.queues = Queues(self.clock)
        self.publisher = FakePublisher(self.queues, self.loop)
        self.accepted: list[JobLease] = []
        self.over: list[JobLease] = []
        self.moved: list[set[str]] = []
        self.replaced: list[Ending] = []
        self.is_mute = False
        self._unanswered: list[Callable[[], object]] = []
        self.finishing = PublishThenAccept(
            self.publisher, self._accept, NAMES, self, self.loop, self.moved.append
        )

    def _accept(self, leases: list[JobLease], answered: Callable[[], object] | None) -> None:
        self.accepted += leases
        if answered is not None and self.is_mute:
            self._unanswered.append(answered)
        elif answered is not None:
            self.loop.call_soon(answered)

    def answer(self) -> None:
        """The broker answers what it left unanswered while ``is_mute``."""
        unanswered, self._unanswered = self._unanswered, []
        for answered in unanswered:
            answered()

    # -- DeliveryEvents

    def leased(self, leases: list[JobLease]) -> None: ...
    def lost(self, leases: list[JobLease], reason: str) -> None: ...
    def failed(self, error: KafkaError) -> None: ...
    def left(self) -> None: ...

    def replace_result(self, ending: Ending, record: OutgoingRecord) -> Ending:
        self.replaced.append(ending)
        assert ending.envelope is not None
        return self._ending(result_too_large(ending.envelope, record), ending.envelope, ending.lease)

    # -- what is finished

    def ending(
        self, outcome: Outcome = OK, source: JobSource = MAIN, policy: JobPolicy | None = None
    ) -> Ending:
        envelope = a_job("f", clock=self.clock)
        lease = JobLease(source, envelope.value, envelope.headers(), 2, 0, 7)
        return self._ending(outcome, envelope, lease, policy)

    def _ending(
        self, outcome: Outcome, envelope: Envelope, lease: JobLease, policy: JobPolicy | None = None
    ) -> Ending:
        now_ms = int(self.clock.time() * 1000)
        decision = decide(outcome, JobHistory(), policy or JobPolicy(max_attempts=3), now_ms)
        records = MAKER.for_decision(decision, outcome, envelope, lease, now_ms)
        return Ending(lease, envelope, records, is_move=isinstance(outcome, SuspectedCrash))

    def no_job(self, job_id: str | None = None, text: str = "what is this") -> Ending:
        lease = JobLease(MAIN, b"x" * 900, [("x", b"1")], 1, 0, 3)
        now_ms = int(self.clock.time() * 1000)
        return Ending(lease, None, MAKER.no_job(lease, InvalidRecord("no-job", text), now_ms, job_id), is_dead=True)

    def finish(self, *endings: Ending) -> None:
        self.finishing.finish(endings, self.over.extend)
        settle(self.loop)

    def pass_time(self, seconds: float) -> None:
        pass_time(self.loop, self.clock, seconds)

    def states(self) -> list[StateRecord]:
        return self.queues.states(NAMES)

    def counts(self) -> dict[str, int]:
        """How many records are in each topic."""
        return {topic: len(records) for topic, records in self.queues.topics.items() if records}


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- the plain way ----------------------------------------------------------------------------------------------------


def test_a_lease_is_accepted_after_its_records_are_durable(bench: Bench) -> None:
    bench.publisher.is_stuck = True
    ending = bench.ending()
    bench.finish(ending)
    assert (bench.accepted, bench.over) == ([], [])
    bench.publisher.advance()
    settle(bench.loop)
    assert bench.accepted == bench.over == [ending.lease]


def test_a_group_is_published_in_one_go(bench: Bench) -> None:
    endings = [bench.ending() for _ in range(50)]
    bench.finish(*endings)
    assert bench.publisher.sizes == [50]
    assert bench.accepted == bench.over == [ending.lease for ending in endings]


def test_what_writes_nothing_is_accepted_at_once(bench: Bench) -> None:
    bench.publisher.is_stuck = True
    bare = bench.ending(policy=JobPolicy(store_result=False))
    bench.finish(bench.ending(), bare)
    assert bench.accepted == bench.over == [bare.lease]


@pytest.mark.parametrize("outcome", [JobSucceeded(b"1"), SuspectedCrash()])
def test_a_lost_lease_is_over_and_not_accepted(bench: Bench, outcome: Outcome) -> None:
    ending = bench.ending(outcome)
    ending.lease.lost = True
    bench.finish(ending)
    assert (bench.accepted, bench.over) == ([], [ending.lease])
    assert not bench.finishing.is_moving


# -- what cannot be written -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [MAIN, SUSPECTS])
@pytest.mark.parametrize("error", [TIMEOUT, NotEnoughReplicasError(), FORBIDDEN, ValueError("no Kafka error")])
def test_one_ending_that_cannot_be_written_is_kept_and_keeps_no_other(
    bench: Bench, source: JobSource, error: Exception
) -> None:
    endings = [bench.ending(source=source) for _ in range(3)]
    bench.publisher.errors[RESULTS] = [error]
    bench.finish(*endings)
    first, *others = (ending.lease for ending in endings)
    assert bench.accepted == bench.over == others
    bench.pass_time(RETRY_S[0])
    assert bench.accepted == bench.over == [*others, first]
    assert len(bench.states()) == 3


def test_it_is_tried_again_after_longer_and_longer_times(bench: Bench) -> None:
    assert RETRY_S == (1.0, 2.0, 5.0, 10.0, 30.0)
    bench.publisher.errors[RESULTS] = [TIMEOUT] * 7
    bench.finish(bench.ending())
    tried_at, began = [], bench.clock.monotonic()
    while not bench.over:
        before = len(bench.publisher.sizes)
        bench.pass_time(0.5)
        if len(bench.publisher.sizes) > before:
            tried_at.append(bench.clock.monotonic() - began)
    assert tried_at == [1, 3, 8, 18, 48, 78, 108]
    bench.publisher.errors[RESULTS] = [TIMEOUT]
    bench.finish(bench.ending())
    bench.pass_time(RETRY_S[0])
    assert len(bench.over) == 2, "it begins anew after a success"


@pytest.mark.parametrize("topic", [RESULTS, DUE])
def test_only_what_is_missing_is_written_again(bench: Bench, topic: str) -> None:
    bench.publisher.errors[topic] = [TIMEOUT]
    ending = bench.ending(FAILED)
    bench.finish(ending)
    assert (len(bench.counts()), bench.over) == (1, [])
    bench.pass_time(RETRY_S[0])
    assert bench.over == [ending.lease]
    assert bench.counts() == {DUE: 1, RESULTS: 1}
    assert bench.states()[0].state is JobState.RETRY


def test_endings_that_are_kept_are_written_again_together(bench: Bench) -> None:
    bench.publisher.errors[RESULTS] = [TIMEOUT] * 3
    for _ in range(3):
        bench.finish(bench.ending())
    bench.pass_time(RETRY_S[0])
    assert bench.publisher.sizes == [1, 1, 1, 3]
    assert len(bench.over) == len(bench.accepted) == 3


def test_a_retry_may_be_brought_forward_and_is_not_made_twice(bench: Bench) -> None:
    bench.publisher.errors[RESULTS] = [TIMEOUT]
    ending = bench.ending()
    bench.finish(ending)
    bench.finishing.retry()
    settle(bench.loop)
    assert bench.over == [ending.lease]
    bench.pass_time(60)
    assert bench.publisher.sizes == [1, 1]


def test_what_is_lost_meanwhile_is_not_written_again(bench: Bench) -> None:
    endings = [bench.ending(source=SUSPECTS) for _ in range(2)]
    bench.publisher.errors[RESULTS] = [TIMEOUT] * 2
    bench.finish(*endings)
    endings[0].lease.lost = True
    bench.pass_time(RETRY_S[0])
    assert len(bench.states()) == 1
    assert Counter(bench.over) == Counter(ending.lease for ending in endings)
    assert bench.accepted == [endings[1].lease]


@pytest.mark.parametrize("error", [TIMEOUT, TOO_LARGE])
def test_nothing_follows_the_records_of_a_job_whose_lock_is_lost_meanwhile(bench: Bench, error: KafkaError) -> None:
    """Another worker runs it: a failure of this one would be its result (task-queue.md, "Topics of an app")."""
    bench.publisher.is_stuck = True
    bench.publisher.errors[RESULTS] = [error]
    ending = bench.ending()
    bench.finish(ending)
    ending.lease.lost = True
    bench.publisher.advance()
    bench.pass_time(60)
    assert (bench.counts(), bench.replaced, bench.accepted, bench.over) == ({}, [], [], [ending.lease])


def test_the_log_says_what_to_do_only_where_no_retry_mends_it(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "kafka.tasks.delivery.finishing")
    errors = {TIMEOUT: "", FORBIDDEN: "; grant this worker WRITE on topic shop.results"}
    for error, end in errors.items():
        bench.publisher.errors[RESULTS] = [error]
        bench.finish(bench.ending())
        (line,) = [record.getMessage() for record in caplog.records]
        assert line == (
            "could not write the records of job shop.mail:0:7, its lock is renewed until they are written: "
            f"{error}{end}"
        )
        caplog.clear()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MessageSizeTooLargeError(), "raise max.message.bytes of topic shop.mail.due"),
        (RecordListTooLargeError(), "raise max.message.bytes of topic shop.mail.due"),
        (FORBIDDEN, "grant this worker WRITE on topic shop.mail.due"),
        (ValueError("x"), "check that topic shop.mail.due can be written to"),
    ],
)
def test_what_an_operator_can_do(bench: Bench, error: Exception, text: str) -> None:
    assert remedy(bench.ending(FAILED).records[0], error) == text


def test_a_worker_that_leaves_logs_what_it_could_not_write_and_writes_nothing_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    kept, under_way = bench.ending(), bench.ending()
    bench.publisher.errors[RESULTS] = [TIMEOUT] * 2
    bench.finish(kept)
    bench.publisher.is_stuck = True
    bench.finish(under_way)
    bench.finishing.close()
    bench.publisher.advance()
    bench.pass_time(60)
    lines = [record.getMessage() for record in caplog.records if "stopping" in record.getMessage()]
    assert lines == [
        "stopping before the records of job shop.mail:0:7 could be written: it is delivered again, unless it was "
        "delivered too often already (2 times)"
    ]
    assert bench.publisher.sizes.count(1) == len(bench.publisher.sizes) == 3
    assert (bench.states(), bench.accepted, bench.over) == ([], [], [under_way.lease])


def test_a_worker_that_leaves_with_nothing_kept_logs_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.finish(bench.ending())
    bench.finishing.close()
    assert (len(bench.accepted), caplog.records) == (1, [])


# -- what is too large ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [MessageSizeTooLargeError(), RecordListTooLargeError()])
def test_a_result_that_its_topic_does_not_take_is_a_failure_that_says_so(bench: Bench, error: KafkaError) -> None:
    bench.publisher.errors[RESULTS] = [error]
    ending = bench.ending(JobSucceeded(b'"' + b"x" * 5000 + b'"'))
    bench.finish(ending)
    (state,) = bench.states()
    assert state.state is JobState.FAILURE
    assert state.detail()["type"] == "PayloadTooLarge"
    assert "5002 bytes, more than the topic shop.results accepts" in state.detail()["text"]
    assert bench.counts() == {RESULTS: 1, DEAD: 1}
    assert bench.accepted == bench.over == [ending.lease]


def test_another_state_that_its_topic_does_not_take_is_written_without_its_texts(bench: Bench) -> None:
    bench.publisher.errors[RESULTS] = [TOO_LARGE]
    bench.finish(bench.ending(FAILED))
    (state,) = bench.states()
    assert state.state is JobState.RETRY
    assert (state.detail()["text"], state.detail()["traceback"]) == ("d" * 200 + "...", "")
    assert bench.counts() == {RESULTS: 1, DUE: 1}
    assert len(bench.accepted) == 1


def test_what_is_no_job_is_written_without_what_it_held(bench: Bench) -> None:
    bench.publisher.errors[DEAD] = [TOO_LARGE]
    bench.finish(bench.no_job())
    (record,) = bench.queues.topics[DEAD]
    death = dead_letter_of(record.headers)
    assert death is not None
    assert (record.value, death.cause, death.origin) == (None, "no-job", "shop.mail:0:3")
    assert len(bench.accepted) == 1


def test_the_failure_of_what_is_no_job_is_written_without_its_texts_and_copied_when_it_is_late(bench: Bench) -> None:
    job_id = a_job("f", clock=bench.clock).id
    bench.publisher.errors[RESULTS] = [TOO_LARGE]
    bench.finish(bench.no_job(job_id, "d" * 900))
    (state,) = bench.states()
    assert (state.id, state.state, state.detail()["text"]) == (job_id, JobState.FAILURE, "d" * 200 + "...")
    (record,) = bench.queues.topics[DEAD]
    assert record.value == b"x" * 900
    assert len(bench.accepted) == 1
    ending = bench.no_job(job_id)
    bench.clock.advance(61)
    bench.finish(ending)
    assert bench.counts() == {RESULTS: 2, DEAD: 2, LATE: 1}
    assert len(bench.accepted) == 2


def test_a_dead_record_that_its_topic_does_not_take_loses_its_traceback_first(bench: Bench) -> None:
    bench.publisher.errors[DEAD] = [TOO_LARGE]
    error = ErrorInfo("OSError", "disk " * 1000, "Traceback " * 1000)
    bench.finish(bench.ending(AttemptFailed(error, listed=False)))
    (record,) = bench.queues.topics[DEAD]
    death = dead_letter_of(record.headers)
    assert death is not None
    assert (death.type, death.traceback, len(death.text)) == ("OSError", "", 100)
    assert record.value is not None, "a replay needs the payload"
    assert len(bench.accepted) == 1


def test_what_is_too_large_a_second_time_or_cannot_be_shortened_is_kept(bench: Bench) -> None:
    # topic, how often it is too large -> what is written in the end
    rows: list[tuple[Ending, str, int, dict[str, int]]] = [
        (bench.ending(JobSucceeded(b"x" * 5000)), RESULTS, 2, {RESULTS: 1, DEAD: 1}),
        (bench.ending(FAILED), RESULTS, 2, {RESULTS: 1, DUE: 1}),
        (bench.ending(FAILED), DUE, 1, {RESULTS: 1, DUE: 1}),
        (bench.ending(AttemptFailed(FAILED.error_info, listed=False)), DEAD, 2, {RESULTS: 1, DEAD: 1}),
        (bench.ending(SuspectedCrash()), SUSPECT, 1, {SUSPECT: 1}),
        (bench.no_job(), DEAD, 2, {DEAD: 1}),
    ]
    for ending, topic, count, written in rows:
        bench = Bench()
        bench.publisher.errors[topic] = [TOO_LARGE] * count
        bench.finish(ending)
        assert (bench.accepted, bench.over) == ([], [])
        bench.pass_time(RETRY_S[0])
        assert bench.accepted == bench.over == [ending.lease]
        assert bench.counts() == written


# -- what comes late --------------------------------------------------------------------------------------------------


def test_a_state_that_was_appended_late_is_copied_to_the_late_topic_first(bench: Bench) -> None:
    bench.publisher.is_stuck = True
    ending = bench.ending()
    bench.finish(ending)
    bench.clock.advance(61)
    bench.publisher.errors[LATE] = [TIMEOUT]
    bench.publisher.advance()
    settle(bench.loop)
    assert (bench.counts(), bench.accepted) == ({RESULTS: 1}, [])
    bench.pass_time(RETRY_S[0])
    assert bench.counts() == {RESULTS: 1, LATE: 1}
    first, copy = bench.states()
    assert first._replace(time_ms=0, in_late=True) == copy._replace(time_ms=0)
    assert bench.accepted == [ending.lease]


def test_a_result_that_is_there_is_no_failure_because_its_copy_is_too_large(bench: Bench) -> None:
    """The first terminal record wins: a reader of the results has it, so the job is not to die in the dead topic."""
    bench.publisher.is_stuck = True
    bench.finish(bench.ending())
    bench.clock.advance(61)
    bench.publisher.errors[LATE] = [TOO_LARGE]
    bench.publisher.advance()
    settle(bench.loop)
    assert bench.over == []
    bench.pass_time(RETRY_S[0])
    assert bench.replaced == []
    assert [state.state for state in bench.states()] == [JobState.SUCCESS] * 2
    assert len(bench.accepted) == 1


# -- jobs that move to the suspects -----------------------------------------------------------------------------------


def test_a_move_is_over_when_the_broker_has_answered_its_accept(bench: Bench) -> None:
    bench.is_mute = True
    ending, other = bench.ending(SuspectedCrash()), bench.ending()
    bench.finish(ending, other)
    assert bench.accepted == [other.lease, ending.lease]
    assert (bench.over, bench.finishing.is_moving, bench.moved) == ([other.lease], True, [])
    bench.answer()
    assert (bench.over, bench.finishing.is_moving, bench.moved) == ([other.lease, ending.lease], False, [{"mail"}])


def test_jobs_are_moving_from_the_first_write_to_the_last_answer(bench: Bench) -> None:
    assert not bench.finishing.is_moving
    bench.publisher.is_stuck = True
    bench.finish(bench.ending(SuspectedCrash()))
    assert bench.finishing.is_moving
    bench.is_mute = True
    bench.publisher.advance()
    settle(bench.loop)
    bench.publisher.errors[SUSPECT] = [TIMEOUT]
    bench.finish(bench.ending(SuspectedCrash()))
    bench.answer()
    assert (bench.finishing.is_moving, bench.moved) == (True, []), "one is to be written again"
    bench.pass_time(RETRY_S[0])
    bench.answer()
    assert (bench.finishing.is_moving, bench.moved, len(bench.over)) == (False, [{"mail"}], 2)


def test_a_move_that_is_lost_is_waited_for_no_longer(bench: Bench) -> None:
    ending = bench.ending(SuspectedCrash())
    bench.is_mute = True
    bench.finish(ending)
    bench.publisher.errors[SUSPECT] = [TIMEOUT]
    lost = bench.ending(SuspectedCrash())
    bench.finish(lost)
    bench.answer()
    lost.lease.lost = True
    assert bench.moved == []
    bench.pass_time(RETRY_S[0])
    assert (bench.finishing.is_moving, bench.moved) == (False, [{"mail"}]), "the one that moved can start"
    assert bench.over == [ending.lease, lost.lease]


def test_a_move_without_an_answer_is_waited_for_some_seconds(bench: Bench) -> None:
    assert MOVING_S == 5.0
    bench.is_mute = True
    bench.finish(bench.ending(SuspectedCrash()))
    bench.pass_time(4.5)
    assert bench.finishing.is_moving
    bench.pass_time(0.5)
    assert not bench.finishing.is_moving
    assert bench.over == []
    bench.answer()
    assert (len(bench.over), bench.moved) == (1, [{"mail"}])


# -- the pure step ----------------------------------------------------------------------------------------------------


def no_replacement(ending: Ending, record: OutgoingRecord) -> Ending:
    raise AssertionError("no result is too large")


def test_what_follows_the_answers_is_a_pure_step(bench: Bench) -> None:
    ending = bench.ending(FAILED)
    assert ending.envelope is not None
    job, state = ending.records
    began_ms = time_of(ending.envelope.id)
    in_time, late = Appended(began_ms + 60_000, 5), Appended(began_ms + 60_001, 5)

    def step(*answers: Appended | BaseException) -> Ending | UnwrittenEnding | None:
        return next_ending(ending, answers, NAMES, no_replacement)

    assert step(in_time, in_time) is None
    assert step(late, in_time) is None, "only look-ups of states have a time"
    after = step(in_time, late)
    assert isinstance(after, Ending)
    assert (after.lease, after.records) == (ending.lease, [state._replace(topic=LATE)])
    after = step(FORBIDDEN, TIMEOUT)
    assert isinstance(after, UnwrittenEnding)
    assert (after.rest.records, after.record, after.error) == ([job, state], job, FORBIDDEN)
    after = step(TIMEOUT, late)
    assert isinstance(after, UnwrittenEnding)
    assert (after.rest.records, after.error) == ([job, state._replace(topic=LATE)], TIMEOUT)
    after = step(TOO_LARGE, TOO_LARGE)
    assert isinstance(after, UnwrittenEnding)
    assert (after.rest.is_shortened, after.record, after.error) == (True, job, TOO_LARGE)
    assert [record.topic for record in after.rest.records] == [DUE, RESULTS]
    assert len(after.rest.records[1].value or b"") < len(state.value or b"")


def test_there_is_an_answer_to_each_record(bench: Bench) -> None:
    with pytest.raises(ValueError, match="shorter"):
        next_ending(bench.ending(FAILED), [TIMEOUT], NAMES, no_replacement)


def test_what_is_written_of_a_move_again_is_a_move(bench: Bench) -> None:
    ending = bench.ending(SuspectedCrash())
    after = next_ending(ending, [TIMEOUT], NAMES, no_replacement)
    assert isinstance(after, UnwrittenEnding)
    assert (after.rest.is_move, after.rest.lease, after.rest.envelope) == (True, ending.lease, ending.envelope)


# -- whatever happens -------------------------------------------------------------------------------------------------

ENDINGS: Final[dict[str, tuple[str, ...]]] = {
    "success": (f"{RESULTS} SUCCESS",),
    "retry": (DUE, f"{RESULTS} RETRY"),
    "dead": (DEAD, f"{RESULTS} FAILURE"),
    "back": (DUE,),
    "move": (SUSPECT,),
    "bare": (),
}
"""The records of each kind of ending."""
OUTCOMES: Final[dict[str, Outcome]] = {
    "success": JobSucceeded(b"1"),
    "retry": FAILED,
    "dead": AttemptFailed(FAILED.error_info, listed=False),
    "back": NotStarted(),
    "move": SuspectedCrash(),
    "bare": JobSucceeded(b""),
}
ANSWERS = st.sampled_from((None, None, TIMEOUT, FORBIDDEN, TOO_LARGE))


def written_of(bench: Bench, ending: Ending) -> Counter[str]:
    """Topics of an ending's records, with the state; late ones as those of the results."""
    assert ending.envelope is not None
    job_id = ending.envelope.id
    found = Counter(
        topic
        for topic in (DUE, DEAD, SUSPECT)
        for record in bench.queues.topics[topic]
        if record.header("id") == job_id
    )
    found.update({f"{RESULTS} {state.state.name}" for state in bench.states() if state.id == job_id})
    return found


class ScriptedPublisher(FakePublisher):
    """Each record meets the next of ``script``; None: it is appended. At the end of the script all are."""

    script: Sequence[BaseException | None] = ()

    def publish(
        self, records: Sequence[OutgoingRecord], done: Callable[[Sequence[Appended | BaseException]], None]
    ) -> None:
        answers: list[Appended | BaseException] = []
        for record in records:
            error, self.script = (self.script[0], self.script[1:]) if self.script else (None, ())
            answers.append(error or self._queues.append(record))
        self._loop.call_soon(done, answers)


@given(st.lists(st.sampled_from(sorted(ENDINGS)), min_size=1, max_size=6), st.lists(ANSWERS, max_size=25))
def test_whatever_is_answered_all_records_of_an_ending_are_written_once_or_it_is_kept(
    kinds: list[str], script: list[KafkaError | None]
) -> None:
    bench = Bench()
    publisher = ScriptedPublisher(bench.queues, bench.loop)
    publisher.script = script
    bench.finishing = PublishThenAccept(publisher, bench._accept, NAMES, bench, bench.loop)
    endings = [
        (kind, bench.ending(OUTCOMES[kind], policy=JobPolicy(max_attempts=3, store_result=kind != "bare")))
        for kind in kinds
    ]
    bench.finish(*(ending for _, ending in endings))
    for _ in range(len(script) + 1):
        for kind, ending in endings:
            expected, found = Counter(ENDINGS[kind]), written_of(bench, ending)
            if any(replaced.lease is ending.lease for replaced in bench.replaced):
                expected = Counter(ENDINGS["dead"])
            assert found <= expected, "none is written twice"
            is_over = found == expected
            assert (ending.lease in bench.over) is is_over
            assert (ending.lease in bench.accepted) is is_over
        bench.finishing.retry()
        settle(bench.loop)
    assert Counter(bench.over) == Counter(bench.accepted) == Counter(ending.lease for _, ending in endings)
    assert not bench.finishing.is_moving
