"""Jobs are settled with their results, whatever the brokers answer on the way: on the embedded broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaConfigurationError, KafkaError
from kafka.structs import TopicPartition
from kafka.tasks import READY, JobFailed, JobHandle, JobState, Retry, run_worker
from kafka.tasks.format.records import decode
from kafka.testing import EmbeddedBroker
from test.conformance.test_tasks import Bench
from test.support.waiting import WITHIN_S, until

JOBS = 40


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True) as broker:
        yield broker


@pytest.fixture
def bench(broker: EmbeddedBroker) -> Iterator[Bench]:
    made = Bench(broker.bootstrap, "shop", "group")
    yield made
    made.close()


def ends(bench: Bench) -> Counter[str]:
    """Committed terminal records, by job."""
    found: Counter[str] = Counter()
    for topic in (bench.app.names.results, bench.app.names.late):
        for record in bench.records(topic):
            state = decode(record.key, record.value, record.headers)
            if state is not None and state.state in READY:
                found[state.id] += 1
    return found


def enqueue(bench: Bench) -> tuple[list[JobHandle[int]], Counter[int]]:
    """Jobs that return their numbers, and how often each has run."""
    ran: Counter[int] = Counter()

    @bench.app.task
    def step(n: int) -> int:
        ran[n] += 1
        return n

    jobs = [step.delay(n) for n in range(JOBS)]
    bench.app.flush(WITHIN_S)
    return jobs, ran


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("TxnOffsetCommit", "ILLEGAL_GENERATION"),
        ("TxnOffsetCommit", "REBALANCE_IN_PROGRESS"),
        ("TxnOffsetCommit", "NOT_COORDINATOR"),
        ("EndTxn", "CONCURRENT_TRANSACTIONS"),
        ("EndTxn", "PRODUCER_FENCED"),
        ("EndTxn", "INVALID_PRODUCER_EPOCH"),
        ("Produce", "NOT_LEADER_OR_FOLLOWER"),
        ("Produce", "INVALID_PRODUCER_EPOCH"),
        ("OffsetCommit", "REBALANCE_IN_PROGRESS"),
        ("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
def test_after_an_error_the_batch_is_made_again_and_nothing_runs_twice(
    broker: EmbeddedBroker, bench: Bench, api: str, error: str
) -> None:
    jobs, ran = enqueue(bench)
    matched: dict[str, Any] = {"topic": bench.app.names.results} if api == "Produce" else {}
    refused = broker.faults.answer(api, error, first=2, **matched)
    bench.work()
    assert [job.result(WITHIN_S) for job in jobs] == list(range(JOBS))
    assert refused.hits == 2
    assert ran == Counter(range(JOBS))
    assert ends(bench) == Counter(job.id for job in jobs)


def test_an_answer_that_is_lost_costs_no_second_run(broker: EmbeddedBroker, bench: Bench) -> None:
    """Of the end of a transaction: it is committed, and the worker does not know."""
    jobs, ran = enqueue(bench)
    lost = broker.faults.close("EndTxn", when="after", first=1)
    bench.work()
    assert [job.result(WITHIN_S) for job in jobs] == list(range(JOBS))
    assert lost.hits == 1
    assert ran == Counter(range(JOBS))


def test_an_epoch_that_is_over_is_no_fault_of_the_record(
    broker: EmbeddedBroker, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """It is written in another transaction, and nobody is told to look at its topic."""

    @bench.app.task
    def step() -> None: ...

    bench.work()
    assert step.delay().result(WITHIN_S) is None
    refused = broker.faults.answer("Produce", "INVALID_PRODUCER_EPOCH", first=1, topic=bench.app.names.results)
    assert step.delay().result(WITHIN_S) is None
    assert refused.hits == 1
    assert "could not write" not in caplog.text


@pytest.mark.parametrize("is_fenced", [False, True])
def test_an_ending_whose_records_are_refused_is_written_once(
    broker: EmbeddedBroker, bench: Bench, is_fenced: bool
) -> None:
    """The job has failed: it has a dead record, and one of its state. ``is_fenced``: nor can the transaction end."""

    @bench.app.task
    def fail() -> None:
        raise ValueError("no")

    job = fail.delay()
    bench.app.flush(WITHIN_S)
    names = bench.app.names
    topics = {names.dead("default"): 1, names.results: 2}  # the second has a record of the worker's clock, too
    refused = [
        broker.faults.answer("Produce", "TOPIC_AUTHORIZATION_FAILED", first=count, topic=topic)
        for topic, count in topics.items()
    ]
    fenced = broker.faults.answer("EndTxn", "PRODUCER_FENCED", first=1) if is_fenced else None
    service = bench.work()
    with pytest.raises(JobFailed):
        job.result(WITHIN_S)
    service.stop()
    assert [each.hits for each in refused] == [*topics.values()]
    assert fenced is None or fenced.hits == 1
    assert ends(bench) == {job.id: 1}
    assert len(bench.records(names.dead("default"))) == 1


def test_without_the_right_to_transactions_no_worker_starts(broker: EmbeddedBroker, bench: Bench) -> None:
    @bench.app.task
    def step() -> None: ...

    broker.faults.answer("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", first=20)
    with pytest.raises(KafkaError, match=r"--operation Write --transactional-id shop\. --resource-"):
        run_worker(bench.app, (), "inline", schedule=False)


def test_who_may_not_be_a_member_ends_with_one_line(broker: EmbeddedBroker, bench: Bench) -> None:
    @bench.app.task
    def step() -> None: ...

    broker.faults.answer("JoinGroup", "GROUP_AUTHORIZATION_FAILED", first=20)
    with pytest.raises(KafkaError, match=r"member of group shop\.default\.group: .* --operation Read --group shop\. "):
        run_worker(bench.app, (), "inline", schedule=False)


def test_a_group_that_cannot_commit_keeps_no_other_queue_of_its_worker(broker: EmbeddedBroker, bench: Bench) -> None:
    @bench.app.task(queue="one")
    def first(n: int) -> int:
        return n

    @bench.app.task(queue="other")
    def second(n: int) -> int:
        return n

    bench.work()
    assert [first.delay(0).result(WITHIN_S), second.delay(0).result(WITHIN_S)] == [0, 0]
    refused = broker.faults.answer("TxnOffsetCommit", "REBALANCE_IN_PROGRESS", topic="shop.one")
    waiting = first.delay(1)
    until(lambda: refused.hits)
    assert [second.delay(n).result(WITHIN_S) for n in range(4)] == list(range(4))
    assert not waiting.wait(0)
    refused.remove()
    assert waiting.result(WITHIN_S) == 1


def test_a_queue_without_an_ended_job_is_known_to_be_read_by_a_group(bench: Bench) -> None:
    """Or a worker that chooses anew would run the same jobs by another delivery."""

    @bench.app.task
    def step(n: int) -> int:
        return n

    bench.work()
    group, place = bench.app.names.group("default"), TopicPartition(bench.app.names.queue("default"), 0)
    with KafkaAdminClient(bootstrap_servers=bench.bootstrap) as admin:
        until(lambda: place in admin.list_consumer_group_offsets(group))
    other = bench.another(delivery="share")
    other.tasks.update(bench.app.tasks)
    with pytest.raises(KafkaConfigurationError, match="migrate"):
        run_worker(other, (), "inline", schedule=False)
    assert step.delay(1).result(WITHIN_S) == 1


def test_a_job_that_is_cancelled_while_it_waits_for_another_attempt_frees_its_key(bench: Bench) -> None:
    line = bench.app.queue("line", ordered=True)

    @bench.app.task(queue=line, retry=Retry(max_attempts=2, backoff=lambda attempt: 600.0))
    def fails() -> None:
        raise OSError

    @bench.app.task(queue=line)
    def works() -> int:
        return 1

    bench.work()
    first, second = fails.using(key="k").delay(), works.using(key="k").delay()
    until(lambda: first.status() is JobState.RETRY)
    first.cancel()
    assert second.result(WITHIN_S) == 1
    assert first.status() is JobState.REVOKED
