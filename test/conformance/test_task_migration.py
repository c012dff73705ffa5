"""``queue migrate``: from one way of delivery to the other and back, on brokers that have both. What workers leave
behind that are killed is written here as they write it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from kafka import KafkaAdminClient
from kafka.errors import IllegalStateError, KafkaConfigurationError
from kafka.share import KafkaShareConsumer, ShareRecord
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.tasks import App
from kafka.tasks.backends.base import QueueMigration
from kafka.tasks.format.envelope import Envelope, decode
from kafka.tasks.format.offset_metadata import MarkedJob, PartitionMarks, encode
from test.conformance.test_tasks import Bench, Service
from test.support.waiting import WITHIN_S, eventually, look_until

FAR_MS = 4_000_000_000_000
"""In the year 2096."""


class Runs:
    """An app of one partition whose jobs say when they run; those in ``stuck`` stay until the test lets them go on."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.counts: Counter[int] = Counter()
        self.stuck: set[int] = set()
        self.begun, self.gate = threading.Event(), threading.Event()

        @bench.app.task(name="run")
        def run(number: int) -> int:
            if number in self.stuck:
                self.begun.set()
                while not self.gate.wait(0.05):  # in which a worker that stops can interrupt it
                    pass
            self.counts[number] += 1
            return number

        self.run = run

    def work(self, delivery: str) -> Service:
        """A worker that delivers in this way."""
        self.bench.delivery = delivery
        return self.bench.work(concurrency=4)

    def migrate(self, to: str) -> QueueMigration:
        """What the command does."""
        with closing(App(self.bench.name, bootstrap_servers=self.bench.bootstrap, create_topics=False)) as app:
            return app.backend().migrate("default", to)


@pytest.fixture
def runs(bootstrap: str, unique: Callable[[str], str]) -> Iterator[Runs]:
    bench = Bench(bootstrap, unique("app"), "auto")
    bench.app = bench.another(partitions=1)
    made = Runs(bench)
    yield made
    made.gate.set()
    bench.close()


WAYS = [("group", "share"), ("share", "group")]


@pytest.mark.parametrize(("before", "after"), WAYS)
def test_jobs_that_have_ended_do_not_run_again_and_all_others_run_once(runs: Runs, before: str, after: str) -> None:
    """Also where the first one runs until its worker gives it up, and 20 behind it have ended."""
    runs.stuck = {0}
    jobs = [runs.run.delay(number) for number in range(21)]
    service = runs.work(before)
    assert runs.begun.wait(WITHIN_S)
    for job in jobs[1:]:
        assert job.wait(WITHIN_S)
    with pytest.raises(IllegalStateError, match=r"default has workers \(\d members?: 1 in the .* stop them and run"):
        runs.migrate(after)
    service.stop_soon()  # which waits for the stuck one, in vain
    late = [runs.run.delay(number) for number in range(21, 30)]
    runs.bench.app.flush(WITHIN_S)
    service.stop()
    runs.stuck = set()
    runs.gate.set()
    done = runs.migrate(after)
    assert (done.found, done.waiting) == (before, 10)
    assert done.moved <= 10
    assert runs.migrate(after) == QueueMigration(after)
    runs.work("auto")
    for job in late:
        assert job.result(WITHIN_S) is not None
    assert jobs[0].result(WITHIN_S) == 0
    assert runs.counts == Counter(range(30))


def enqueued(runs: Runs, count: int) -> list[str]:
    """So many jobs in a queue whose topics exist: their ids, by offset."""
    jobs = [runs.run.delay(number) for number in range(count)]
    runs.bench.app.flush(WITHIN_S)
    return [job.id for job in jobs]


def commit(runs: Runs, topic: str, offset: int, marks: PartitionMarks) -> None:
    """As the owner of the topic's only partition does."""
    at = {TopicPartition(topic, 0): OffsetAndMetadata(offset, encode(offset, marks), -1)}
    with closing(KafkaAdminClient(bootstrap_servers=runs.bench.bootstrap)) as admin:
        admin.alter_group_offsets(runs.bench.app.names.group("default"), at)


def jobs_in(runs: Runs, topic: str) -> dict[str, Envelope]:
    """The jobs in a topic by id."""
    found = [decode(record.value, record.headers, record.key) for record in runs.bench.records(topic)]
    return {job.id: job for job in found}


def test_what_a_killed_owner_had_started_is_a_suspect_and_what_it_held_goes_on_from_there(runs: Runs) -> None:
    names = runs.bench.app.names
    ids = enqueued(runs, 10)
    held = MarkedJob(attempt=3, crashes=1, due_ms=FAR_MS)
    marks = PartitionMarks(((4, 4), (6, 7)), started_below=4, jobs={5: held}, writer=f"{names.app}.worker.gone")
    commit(runs, names.queue("default"), 2, marks)
    done = runs.migrate("share")
    assert done == QueueMigration("group", 3, 5), "2, 3, 5, 8 and 9 have not ended, and nobody has begun with the last"
    assert set(jobs_in(runs, names.suspect("default"))) == {ids[2], ids[3]}
    due = jobs_in(runs, names.due("default"))
    assert set(due) == {ids[5]}
    assert (due[ids[5]].attempt, due[ids[5]].crashes, due[ids[5]].due_ms) == (3, 1, FAR_MS)
    runs.work("auto")
    eventually(lambda: runs.counts, Counter([2, 3, 8, 9]))


def test_a_run_of_a_suspect_that_was_not_seen_to_end_is_a_crash(runs: Runs) -> None:
    names = runs.bench.app.names
    (job_id,) = enqueued(runs, 1)
    (record,) = runs.bench.records(names.queue("default"))
    runs.bench.app.backend().send(names.suspect("default"), record.value, record.headers, record.key)
    runs.bench.app.flush(WITHIN_S)
    commit(runs, names.queue("default"), 1, PartitionMarks())
    marks = PartitionMarks(jobs={0: MarkedJob(losses=1, is_started=True, is_suspect=True)}, writer="app.worker.gone")
    commit(runs, names.suspect("default"), 0, marks)
    assert runs.migrate("share") == QueueMigration("group", 1, 1)
    assert jobs_in(runs, names.suspect("default"))[job_id].crashes == 2


def test_what_a_share_group_had_handed_out_to_a_killed_worker_is_a_suspect(runs: Runs) -> None:
    names = runs.bench.app.names
    topic = names.queue("default")
    service = runs.work("share")
    assert runs.run.delay(99).result(WITHIN_S) == 99
    service.stop()
    ids = enqueued(runs, 6)
    with KafkaShareConsumer(
        topic, group_id=topic, bootstrap_servers=runs.bench.bootstrap, share_acknowledgement_mode="explicit"
    ) as consumer:
        taken: list[ShareRecord] = []

        def look() -> list[ShareRecord]:
            taken.extend(record for records in consumer.poll(200).values() for record in records)
            return taken

        look_until(look, lambda found: len(found) >= 6)
        for record in taken:
            if record.offset not in (taken[0].offset, taken[3].offset):
                consumer.acknowledge(record)
        consumer.commit()
    enqueued(runs, 3)
    done = runs.migrate("group")  # the consumer that was closed has given back what it held
    assert (done.found, done.waiting) == ("share", 5)
    assert {ids[0], ids[3]} <= set(jobs_in(runs, names.suspect("default")))
    runs.work("auto")
    eventually(lambda: runs.counts, Counter([99, 0, 3, 0, 1, 2]))


def test_suspects_that_no_worker_was_given_have_no_more_crashes_then(runs: Runs) -> None:
    names = runs.bench.app.names
    service = runs.work("share")
    assert runs.run.delay(7).result(WITHIN_S) == 7
    service.stop()
    (record,) = runs.bench.records(names.queue("default"))
    for _ in range(3):
        runs.bench.app.backend().send(names.suspect("default"), record.value, record.headers, record.key)
    runs.bench.app.flush(WITHIN_S)
    assert runs.migrate("group").waiting == 3
    moved = runs.bench.records(names.suspect("default"))[3:]
    assert moved
    assert {decode(each.value, each.headers, each.key).crashes for each in moved} == {0}
    runs.work("auto")
    eventually(lambda: runs.counts[7], 4)


@pytest.mark.parametrize(("before", "after"), WAYS)
def test_where_none_has_ended_behind_another_nothing_moves(runs: Runs, before: str, after: str) -> None:
    first = [runs.run.delay(number) for number in range(10)]
    service = runs.work(before)
    assert [job.result(WITHIN_S) for job in first] == list(range(10))
    service.stop()
    rest = [runs.run.delay(number) for number in range(10, 20)]
    runs.bench.app.flush(WITHIN_S)
    assert runs.migrate(after)[:2] == (before, 0)
    runs.work("auto")
    assert [job.result(WITHIN_S) for job in rest] == list(range(10, 20))
    assert runs.counts == Counter(range(20))


def test_an_ordered_queue_that_went_to_share_groups_is_refused_until_it_is_back(runs: Runs) -> None:
    """The brokers do not know that it is ordered."""
    runs.bench.app.queue("default", ordered=True)
    jobs = [runs.run.using(key="account").delay(number) for number in range(10)]
    service = runs.work("auto")
    assert jobs[0].wait(WITHIN_S)
    service.stop()
    assert runs.migrate("share").found == "group"
    with pytest.raises(KafkaConfigurationError, match=r"\(it is ordered\): .* queue migrate \S+ --to group") as caught:
        runs.work("auto")
    assert "\n" not in str(caught.value)
    assert runs.migrate("group").found == "share"
    runs.work("auto")
    for job in jobs:
        assert job.wait(WITHIN_S)
    assert runs.counts == Counter(range(10))


def test_a_queue_goes_there_and_back(runs: Runs) -> None:
    for way, other in (*WAYS, *WAYS):
        job = runs.run.delay(len(runs.counts))
        service = runs.work(way)
        assert job.wait(WITHIN_S)
        service.stop()
        assert runs.migrate(other).found == way
    assert set(runs.counts.values()) == {1}


def test_a_queue_that_no_worker_has_read_has_nothing_to_migrate(runs: Runs) -> None:
    runs.run.delay(0)
    runs.bench.app.flush(WITHIN_S)
    assert runs.migrate("group") == runs.migrate("share") == QueueMigration(None)
