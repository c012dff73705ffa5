"""Tests of ``kafka.tasks.results.reader``, with its tails and look-ups, over topics in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka.errors import KafkaTimeoutError
from kafka.structs import TopicPartition
from kafka.tasks.format.job_id import make_id, partition_of, time_of
from kafka.tasks.format.records import StateRecord
from kafka.tasks.results.tails import IDLE_LOOK_S
from kafka.tasks.states import READY, JobState
from test.strategies import job_states
from test.tasks.results.fake_topics import NAMES, OWN, PARTITIONS, Topics

S = JobState
OTHER = 2
OWN_RESULTS = TopicPartition(NAMES.results, OWN)
OWN_LATE = TopicPartition(NAMES.late, OWN)


def foreign_id(topics: Topics, partition: int = OTHER, number: int = 1) -> str:
    """The id of another client's job, enqueued now."""
    return make_id(topics.now_ms(), partition, b"\xff" + bytes([number] * 7))


def evict(topics: Topics, count: int = 4) -> None:
    """So many results that a view of that capacity keeps nothing else."""
    for _ in range(count):
        topics.append(topics.reader.new_id(), S.SUCCESS)
    topics.deliver_all()


@pytest.fixture
def topics() -> Topics:
    return Topics(capacity=4)


def test_the_records_of_other_clients_jobs_are_not_kept(topics: Topics) -> None:
    ours, theirs = topics.reader.new_id(), foreign_id(topics, OWN)
    assert topics.reader.wait(ours, 0) is None
    expected = topics.append(theirs, S.SUCCESS)
    topics.append(ours, S.SUCCESS)
    topics.deliver_all()
    assert len(topics.reader._view) == 1
    assert topics.reader.find(theirs) == expected, "looked up"
    assert len(topics.reader._view) == 2, "it was asked for"
    before = topics.requests
    assert topics.reader.find(theirs) == expected
    assert topics.requests == before


def test_a_record_in_another_partition_than_its_id_says_is_none_of_the_job(topics: Topics) -> None:
    job_id = topics.reader.new_id()
    assert topics.reader.wait(job_id, 0) is None
    topics.reader.wait(foreign_id(topics), 0)
    topics.append(job_id, S.FAILURE, partition=OTHER)
    topics.deliver_all()
    assert topics.reader.find(job_id) is None
    expected = topics.append(job_id, S.SUCCESS)
    topics.deliver_all()
    assert topics.reader.find(job_id) == expected


def test_a_zombie_s_record_of_an_evicted_job_is_not_shown(topics: Topics) -> None:
    job_id = topics.reader.new_id()
    assert topics.reader.wait(job_id, 0) is None
    expected = topics.append(job_id, S.SUCCESS, b"1")
    topics.deliver_all()
    evict(topics)
    topics.append(job_id, S.FAILURE, attempt=2)
    topics.deliver_all()
    assert topics.reader.find(job_id) == expected
    assert topics.reader.wait(job_id, 0) == expected


def test_of_more_jobs_than_fit_only_those_that_were_pushed_out_are_looked_up(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [topics.reader.new_id() for _ in range(6)]
    topics.reader.wait(jobs[0], 0)
    expected = [topics.append(job_id, S.SUCCESS) for job_id in jobs]
    topics.deliver_all()
    looked_up: list[str] = []
    look_up = topics.reader._log.look_up

    def note(job_id: str, until: float, since_ms: int | None = None) -> StateRecord | None:
        looked_up.append(job_id)
        return look_up(job_id, until)

    monkeypatch.setattr(topics.reader._log, "look_up", note)
    assert [topics.reader.find(job_id) for job_id in jobs] == expected
    assert [topics.reader.wait(job_id, 1) for job_id in jobs] == expected
    assert looked_up == 2 * jobs[:2]


def test_who_waits_for_an_evicted_job_gets_its_first_end_though_a_zombie_s_comes_meanwhile(topics: Topics) -> None:
    job_id = topics.reader.new_id()
    assert topics.reader.wait(job_id, 0) is None
    topics.append(job_id, S.STARTED)
    topics.deliver_all()
    evict(topics)
    answers: list[StateRecord | None] = []
    started = topics.reader.add_waiter(job_id, answers.append)
    assert started is not None and started.state is S.STARTED
    expected = topics.append(job_id, S.SUCCESS)
    topics.append(job_id, S.FAILURE, attempt=2)
    topics.deliver_all()
    assert answers == [expected]
    assert topics.reader.find(job_id) == expected


def test_a_waiter_is_called_with_the_record_that_ends_the_job_and_once(topics: Topics) -> None:
    for job_id in (topics.reader.new_id(), foreign_id(topics), foreign_id(topics, OWN)):
        answers: list[StateRecord | None] = []
        assert topics.reader.add_waiter(job_id, answers.append) is None
        started = topics.append(job_id, S.STARTED)
        topics.deliver_all()
        assert (answers, topics.reader.find(job_id)) == ([], started)
        expected = topics.append(job_id, S.SUCCESS)
        topics.append(job_id, S.FAILURE)
        topics.deliver_all()
        topics.append(job_id, S.FAILURE)
        topics.deliver_all()
        assert answers == [expected]
        assert topics.reader.add_waiter(job_id, answers.append) == expected
        assert job_id not in topics.reader._waiters


def test_a_waiter_is_called_though_a_look_up_finds_the_end_before_the_tail_does(topics: Topics) -> None:
    job_id = foreign_id(topics)
    answers: list[StateRecord | None] = []
    topics.reader.add_waiter(job_id, answers.append)
    topics.reader.wait(topics.reader.new_id(), 0)
    evict(topics)
    expected = topics.append(job_id, S.SUCCESS)
    assert topics.reader.find(job_id) == expected
    topics.deliver_all()
    assert answers == [expected]


def test_a_waiter_that_was_removed_is_not_called(topics: Topics) -> None:
    job_id = topics.reader.new_id()
    answers: list[StateRecord | None] = []
    topics.reader.add_waiter(job_id, answers.append)
    topics.reader.remove_waiter(job_id, answers.append)
    topics.append(job_id, S.SUCCESS)
    topics.deliver_all()
    assert answers == []


def test_closing_calls_all_waiters_with_none(topics: Topics) -> None:
    answers: list[StateRecord | None] = []
    topics.reader.add_waiter(topics.reader.new_id(), answers.append)
    topics.reader.close()
    assert answers == [None]
    assert all(consumer.is_closed for consumer in topics.consumers)


def test_the_end_in_the_late_topic_waits_for_what_results_may_still_have(topics: Topics) -> None:
    """The tail reads the two topics independently: here the first is far behind."""
    job_id = topics.reader.new_id()
    answers: list[StateRecord | None] = []
    topics.reader.add_waiter(job_id, answers.append)
    topics.pass_time(59)
    first = topics.append(job_id, S.SUCCESS)
    topics.pass_time(30)
    topics.append(job_id, S.FAILURE, late=True)
    topics.deliver(OWN_LATE, 1)
    assert answers == [None], "it has ended; how is to be asked"
    assert topics.reader.find(job_id) == first


def test_the_end_in_the_late_topic_is_enough_when_results_has_been_read_past_its_time(topics: Topics) -> None:
    job_id = topics.reader.new_id()
    answers: list[StateRecord | None] = []
    topics.reader.add_waiter(job_id, answers.append)
    topics.pass_time(66)
    topics.append(topics.reader.new_id(), S.SUCCESS)
    expected = topics.append(job_id, S.SUCCESS, late=True)
    topics.deliver(OWN_RESULTS, 1)
    topics.deliver(OWN_LATE, 1)
    assert answers == [expected]


def test_the_end_in_the_late_topic_is_not_final_while_results_may_get_an_earlier_one(topics: Topics) -> None:
    job_id = foreign_id(topics)
    topics.pass_time(62)
    late = topics.append(job_id, S.SUCCESS, late=True)
    assert topics.reader.find(job_id) == late
    first = topics.append(job_id, S.FAILURE, age_ms=3000)
    assert topics.reader.find(job_id) == first


def test_a_record_that_comes_while_another_client_s_job_is_looked_up_is_not_missed(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = foreign_id(topics)
    topics.reader.wait(foreign_id(topics, number=2), 0)
    look_up = topics.reader._log.look_up
    written: list[StateRecord] = []

    def look_up_slowly(job_id: str, until: float, since_ms: int | None = None) -> StateRecord | None:
        found = look_up(job_id, until)
        written.append(topics.append(job_id, S.SUCCESS))
        topics.deliver_all()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(topics.reader._log, "look_up", look_up_slowly)
        assert topics.reader.find(job_id) is None
    assert topics.reader.find(job_id) == written[0]


@pytest.mark.parametrize("after_s", [60.1, 64, 66, 1000])
def test_many_late_ends_take_one_request(after_s: float) -> None:
    topics = Topics(capacity=100)
    jobs = [topics.reader.new_id() for _ in range(20)]
    topics.reader.wait(jobs[0], 0)
    topics.pass_time(after_s)
    expected = [topics.append(job_id, S.SUCCESS, late=True) for job_id in jobs]
    topics.deliver_all()
    before = topics.requests
    assert [topics.reader.find(job_id) for job_id in jobs] == expected
    assert topics.requests == before + 1


def test_the_tail_of_another_partition_stops_when_no_job_of_it_is_waited_for(topics: Topics) -> None:
    other = {TopicPartition(NAMES.results, OTHER), TopicPartition(NAMES.late, OTHER)}
    own = {OWN_RESULTS, OWN_LATE}
    ours, theirs = topics.reader.new_id(), foreign_id(topics)
    topics.reader.wait(ours, 0)
    topics.reader.add_waiter(theirs, print)
    topics.append(theirs, S.STARTED)
    topics.deliver_all()
    for _ in range(3):
        topics.pass_time(IDLE_LOOK_S)
        assert topics.tail.assignment() == own | other, "it is waited for"
    topics.reader.remove_waiter(theirs, print)
    topics.pass_time(IDLE_LOOK_S)
    assert topics.tail.assignment() == own | other, "for a moment more"
    topics.reader.add_waiter(theirs, print)
    topics.pass_time(IDLE_LOOK_S)
    topics.reader.remove_waiter(theirs, print)
    for _ in range(2):
        assert topics.tail.assignment() == own | other
        topics.pass_time(IDLE_LOOK_S)
    assert topics.tail.assignment() == own
    expected = topics.append(theirs, S.SUCCESS, late=True)
    topics.deliver_all()
    assert topics.reader.find(theirs) == expected, "and not what was known before"
    answers: list[StateRecord | None] = []
    another = foreign_id(topics, number=2)
    assert topics.reader.add_waiter(another, answers.append) is None
    assert topics.tail.assignment() == own | other
    expected = topics.append(another, S.SUCCESS)
    topics.deliver_all()
    assert answers == [expected]


def test_a_broker_that_does_not_answer_ends_no_question_later_than_its_timeout_or_a_second(topics: Topics) -> None:
    topics.is_silent = True
    questions: list[tuple[Callable[[], object], int]] = [
        (lambda: topics.reader.wait(topics.reader.new_id(), 3), 3000),
        (lambda: topics.reader.find(foreign_id(topics), 3), 3000),
        (lambda: topics.reader.add_waiter(foreign_id(topics), print, 3), 3000),
        (lambda: topics.reader.wait(topics.reader.new_id(), 0), 1000),
        (lambda: topics.reader.find(foreign_id(topics)), 5000),
    ]
    for question, expected_ms in questions:
        with pytest.raises(KafkaTimeoutError):
            question()
        assert topics.asked_ms is not None
        assert 0 < topics.asked_ms <= expected_ms
    assert not topics.reader._waiters


def test_a_question_that_another_thread_s_look_up_holds_up_is_given_up_in_time() -> None:
    topics = Topics(timeout_s=0.01)
    with topics.reader._log._turn(threading.TIMEOUT_MAX / 1000), pytest.raises(KafkaTimeoutError, match="in time"):
        topics.reader._log.look_up(foreign_id(topics), 0)


def test_a_tail_that_cannot_read_on_is_given_up_in_time() -> None:
    topics = Topics(timeout_s=0.02)
    job_id = topics.reader.new_id()
    topics.reader.wait(job_id, 0)
    topics.deliver_all()
    topics.pass_time(100)
    topics.append(topics.reader.new_id(), S.SUCCESS, age_ms=39_000)
    topics.append(job_id, S.SUCCESS, late=True)
    topics.deliver(OWN_LATE, 1)
    topics.is_stuck = True
    with pytest.raises(KafkaTimeoutError, match="partition 1 of the results topics"):
        topics.reader.find(job_id)


def test_an_id_of_a_partition_that_does_not_exist_is_nothing_to_wait_for(topics: Topics) -> None:
    job_id = foreign_id(topics, PARTITIONS)
    assert topics.reader.wait(job_id, None) is None
    assert topics.reader.find(job_id) is None
    assert topics.reader.add_waiter(job_id, print) is None
    assert not topics.reader._waiters


def holds(log: list[StateRecord]) -> StateRecord | None:
    """The plain model: what the whole log says of a job. ``log``: its records in both topics."""
    counted = [each for each in log if each.in_late or each.time_ms - time_of(each.id) <= 60_000]
    in_order = sorted(counted, key=lambda each: (each.in_late, each.offset))
    for record in in_order:
        if record.state in READY:
            return record
    best: StateRecord | None = None
    for record in in_order:
        if best is None or (record.attempt, record.delivery) >= (best.attempt, best.delivery):
            best = record
    return best


SLOTS = [(OWN, True), (OWN, True), (OWN, False), (OTHER, False)]
"""Jobs of which the machine has one each: their partition, and whether this client enqueued them."""

slots = st.integers(0, len(SLOTS) - 1)
states = st.one_of(job_states(), st.sampled_from([S.SUCCESS, S.FAILURE]))


class ReaderAgainstLog(RuleBasedStateMachine):
    """Whatever is written, read, evicted, waited for and stopped, in whatever order: an end that is reported is the one
    that the log says, and who has read everything reports all.
    """

    @initialize()
    def begin(self) -> None:
        self.topics = Topics(capacity=2)
        self.number = 0
        self.jobs = [""] * len(SLOTS)
        self.log: dict[str, list[StateRecord]] = {}
        self.answers: dict[str, list[StateRecord | None]] = {}
        for slot in range(len(SLOTS)):
            self.enqueue(slot)
        self.wait(0)
        self.wait(3)

    @rule(slot=slots)
    def enqueue(self, slot: int) -> None:
        self.stop_waiting(slot)
        partition, is_own = SLOTS[slot]
        self.number += 1
        job_id = self.topics.reader.new_id() if is_own else foreign_id(self.topics, partition, self.number % 256)
        self.jobs[slot] = job_id
        self.log[job_id] = []

    @rule(slot=slots, state=states, attempt=st.integers(1, 2), late=st.booleans(), age_ms=st.integers(0, 9))
    def write(self, slot: int, state: JobState, attempt: int, late: bool, age_ms: int) -> None:
        job_id = self.jobs[slot]
        place = TopicPartition(NAMES.late if late else NAMES.results, partition_of(job_id))
        newest_ms = max((record.timestamp for record in self.topics.logs[place]), default=0)
        age_ms = min(age_ms, self.topics.now_ms() - newest_ms + 9)  # append times may step back
        self.log[job_id].append(self.topics.append(job_id, state, attempt=attempt, late=late, age_ms=age_ms))

    @rule(seconds=st.sampled_from([0.01, 30.0, 59.99, 60.0, 65.0]))
    def pass_time(self, seconds: float) -> None:
        self.topics.pass_time(seconds)

    @rule(late=st.booleans(), partition=st.sampled_from([OWN, OWN, OTHER]), count=st.sampled_from([1, 2, 100]))
    def deliver(self, late: bool, partition: int, count: int) -> None:
        self.topics.deliver(TopicPartition(NAMES.late if late else NAMES.results, partition), count)

    @rule(late=st.booleans())
    def evict(self, late: bool) -> None:
        """So many ends of other jobs of this client that nothing else is kept."""
        for _ in range(2):
            self.topics.append(self.topics.reader.new_id(), S.SUCCESS, late=late)
        self.deliver(late, OWN, 100)

    @rule(slot=slots)
    def find(self, slot: int) -> None:
        self.check(self.jobs[slot], self.topics.reader.find(self.jobs[slot]))

    @rule(slot=slots)
    def wait(self, slot: int) -> None:
        self.stop_waiting(slot)
        answers: list[StateRecord | None] = []
        found = self.topics.reader.add_waiter(self.jobs[slot], answers.append)
        self.check(self.jobs[slot], found)
        if found is None or found.state not in READY:
            self.answers[self.jobs[slot]] = answers

    @rule(slot=slots)
    def stop_waiting(self, slot: int) -> None:
        answers = self.answers.pop(self.jobs[slot], None)
        if answers is not None:
            self.topics.reader.remove_waiter(self.jobs[slot], answers.append)

    @rule()
    def stop_idle_tails(self) -> None:
        for _ in range(2):
            self.topics.pass_time(IDLE_LOOK_S)
        waited = {partition_of(job_id) for job_id in self.answers}
        assert {place.partition for place in self.topics.tail.assignment()} == {OWN} | waited

    @rule()
    def read_all(self) -> None:
        self.topics.deliver_all()
        for job_id in self.jobs:
            assert self.topics.reader.find(job_id) == holds(self.log[job_id])
        for job_id, answers in self.answers.items():
            found = holds(self.log[job_id])
            assert bool(answers) is (found is not None and found.state in READY)

    @invariant()
    def each_answer_is_the_end_that_the_log_says(self) -> None:
        for job_id, answers in list(self.answers.items()):
            if answers:
                (answer,) = answers
                if answer is not None:
                    assert answer == holds(self.log[job_id])
                self.check(job_id, self.topics.reader.find(job_id), is_final=True)
                del self.answers[job_id]

    @invariant()
    def no_more_is_kept_than_fits(self) -> None:
        assert len(self.topics.reader._view) <= 2

    def check(self, job_id: str, found: StateRecord | None, is_final: bool = False) -> None:
        if found is not None and found.state in READY:
            assert found == holds(self.log[job_id])
        else:
            assert not is_final
            assert found is None or found in self.log[job_id]


TestReaderAgainstLog = ReaderAgainstLog.TestCase
TestReaderAgainstLog.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_a_look_up_does_not_read_what_lies_between_its_job_and_the_one_before(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A web server that is asked for an old result, and then for one of now."""
    old = foreign_id(topics)
    expected_old = topics.append(old, S.SUCCESS)
    for number in range(50):
        topics.pass_time(600)
        topics.append(foreign_id(topics, number=number), S.SUCCESS)
    topics.pass_time(600)
    new = foreign_id(topics)
    expected_new = topics.append(new, S.SUCCESS)
    read: list[int] = []
    consumer = topics.reader._log._consumer
    take = consumer.take  # type: ignore[attr-defined]

    def counting(place: TopicPartition, count: int) -> list[object]:
        records: list[object] = take(place, count)
        read.append(len(records))
        return records

    monkeypatch.setattr(consumer, "take", counting)
    assert topics.reader.find(old) == expected_old
    assert topics.reader.find(new) == expected_new
    assert sum(read) <= 4



def test_a_result_in_a_topic_that_was_deleted_and_created_again_is_found(topics: Topics) -> None:
    """Its offsets begin at 0 again, before those that a look-up has passed."""
    place = TopicPartition(NAMES.results, OTHER)
    for number in range(10):
        topics.append(foreign_id(topics, number=number), S.SUCCESS)
    assert topics.reader.find(foreign_id(topics, number=11)) is None
    topics.logs[place].clear()
    job_id = foreign_id(topics, number=12)
    expected = topics.append(job_id, S.SUCCESS)
    assert topics.reader.find(job_id) == expected


# -- jobs that wait in between -----------------------------------------------------------------------------------------


def test_the_result_of_a_later_attempt_is_found_without_reading_what_lies_between(topics: Topics) -> None:
    job_id = foreign_id(topics)
    retry = topics.append(job_id, S.RETRY, due_ms=topics.now_ms() + 3_600_000)
    assert topics.reader.find(job_id) == retry
    topics.pass_time(70)
    for number in range(1000):
        topics.append(foreign_id(topics, number=number % 256), S.SUCCESS, late=True)
        topics.pass_time(3)
    topics.pass_time(3_600_000 / 1000 - 3070)
    expected = topics.append(job_id, S.SUCCESS, attempt=2, late=True)
    topics.read_count = 0
    assert topics.reader.find(job_id) == expected
    assert topics.read_count < 10


def test_a_job_that_was_sent_early_is_found_by_the_record_that_says_when(topics: Topics) -> None:
    """Its id carries the time for which it was enqueued; the record at that time leads back."""
    job_id = make_id(topics.now_ms() + 3_600_000, OTHER, b"\xff" * 8)
    topics.pass_time(100)
    sent_ms = topics.now_ms()
    topics.append(job_id, S.STARTED)
    expected = topics.append(job_id, S.SUCCESS)
    assert topics.reader.find(job_id) is None, "its time has not come, and only the owner knows"
    assert topics.reader.find(job_id, since_ms=sent_ms) == expected
    other = make_id(time_of(job_id), OTHER, b"\xfe" * 8)
    other_end = topics.append(other, S.FAILURE)
    topics.pass_time(3_500)
    for each in (job_id, other):
        topics.append(each, S.QUEUED, due_ms=sent_ms)
    assert topics.reader.find(other) == other_end
    scan = topics.reader._log._scan
    assert topics.reader.find(job_id) == expected
    assert topics.reader._log._scan is scan, "that of the minutes of their ids"


def test_what_the_owner_has_told_ends_the_waiting_and_holds(topics: Topics) -> None:
    for job_id in (topics.reader.new_id(topics.now_ms() + 60_000), make_id(topics.now_ms() + 60_000, OTHER, b"\1" * 8)):
        answers: list[StateRecord | None] = []
        assert topics.reader.add_waiter(job_id, answers.append) is None
        revoked = StateRecord(job_id, S.REVOKED, value=b"{}")
        topics.reader.settle(revoked)
        assert answers == [revoked]
        topics.append(job_id, S.REVOKED, b"the same, at its time")
        topics.deliver_all()
        assert topics.reader.find(job_id) == revoked
