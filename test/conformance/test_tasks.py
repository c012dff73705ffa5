"""The task queue, from ``delay()`` to the result and to the dead topic, with workers in threads of the test."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaConfigurationError
from kafka.share import KafkaShareConsumer
from kafka.tasks import (
    App,
    Cancel,
    Context,
    JobFailed,
    JobRevoked,
    JobState,
    JobUnknown,
    PayloadTooLarge,
    Retry,
    UnknownQueue,
    run_worker,
)
from kafka.tasks.backends.kafka.admin import Administration
from kafka.tasks.backends.kafka.connection import connect
from kafka.tasks.delivery.share_group.groups import begin_groups
from kafka.tasks.delivery.share_group.trimmer import QueueTrimmer
from kafka.tasks.format.envelope import DeadLetter, dead_letter_of
from kafka.tasks.format.job_id import make_id
from kafka.tasks.pools import make_loop
from kafka.tasks.settings import read_settings
from kafka.tasks.worker.worker import Worker
from test.conformance.reading import poll_until
from test.support.either_broker import every_way
from test.support.waiting import WITHIN_S, eventually, look_until, until

Unique = Callable[[str], str]


class Service:
    """A worker in a thread."""

    def __init__(self, app: App, pool: str = "threads", concurrency: int = 2, schedule: bool = True) -> None:
        self.loop = make_loop()
        self.worker: Worker | None = None
        self._is_stopping = False
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(app, pool, concurrency, schedule), daemon=True)
        self._thread.start()
        assert self._started.wait(WITHIN_S), "the worker does not start"
        if self._error is not None:
            raise self._error

    def _run(self, app: App, pool: str, concurrency: int, schedule: bool) -> None:
        def note(worker: Worker) -> None:
            self.worker = worker
            self._started.set()

        try:
            run_worker(app, (), pool, concurrency, self.loop, note, schedule=schedule)
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()
            self.loop.close()

    def stop_soon(self) -> None:
        """Begin to stop; the second call does nothing: it would be the signal that interrupts what runs."""
        if self._thread.is_alive() and self.worker is not None and not self._is_stopping:
            self._is_stopping = True
            self.loop.call_soon_threadsafe(self.worker.stop)

    def stop(self) -> dict[str, int]:
        """Stop and wait for that; its counts."""
        self.stop_soon()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive(), "the worker does not stop"
        assert self.worker is not None
        return self.worker.counts


class Bench:
    """An app, other views of the same app, its workers, and its topics as a consumer sees them."""

    def __init__(self, bootstrap: str, name: str, delivery: str = "auto") -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.delivery = delivery
        self._apps: list[App] = []
        self._services: list[Service] = []
        self.app = self.another()

    def another(self, **settings: Any) -> App:
        """An App of the same name, with a connection of its own."""
        settings = {"partitions": 3, "stop_grace": 3.0, "kill_grace": 1.0, "delivery": self.delivery, **settings}
        self._apps.append(App(self.name, bootstrap_servers=self.bootstrap, **settings))
        return self._apps[-1]

    def work(self, app: App | None = None, **options: Any) -> Service:
        """Start a worker. It works for a copy of the app: a worker closes the app that it had."""
        given = app or self.app
        own = self.another(crash_limit=given.settings.crash_limit, max_payload_bytes=given.settings.max_payload_bytes)
        own.tasks.update(given.tasks)
        own._queues.update(given._queues)
        for queue in given.ordered_queues:
            own.queue(queue, ordered=True)
        self._services.append(Service(own, **options))
        return self._services[-1]

    def records(self, topic: str) -> list[Any]:
        """All records of a topic, up to its present end."""
        with KafkaConsumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
            ends = {place: end for place, end in consumer.end_offsets(places).items() if end}
            consumer.assign(ends)
            return poll_until(lambda: all(consumer.position(place) >= end for place, end in ends.items()), consumer)

    def dead(self, count: int = 1, queue: str = "default") -> list[DeadLetter]:
        """The deaths in the dead topic, once there are ``count``."""

        def look() -> list[DeadLetter | None]:
            found = [dead_letter_of(record.headers) for record in self.records(self.app.names.dead(queue))]
            return found if len(found) >= count else []

        return [death for death in until(look, f"{count} deaths") if death is not None]

    def close(self) -> None:
        for service in self._services:
            service.stop_soon()
        for service in self._services:
            service.stop()
        for app in self._apps:
            app.close(5)


@pytest.fixture
def bench(bootstrap: str, delivery: str, unique: Unique) -> Iterator[Bench]:
    made = Bench(bootstrap, unique("app"), delivery)
    yield made
    made.close()


# -- results -----------------------------------------------------------------------------------------------------------


def test_groups_begin_at_the_first_records_without_their_setting(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    """Which a leader may hear of later than the first member fetches; also where the first records are gone."""
    whole, cut = topics = [new_topic(2), new_topic(2)]
    places = {topic: [TopicPartition(topic, number) for number in (0, 1)] for topic in topics}
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for topic in topics:
            for number in range(6):
                producer.send(topic, str(number).encode(), partition=number % 2)
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({TopicPartition(cut, 0): 2})
    loop = make_loop()
    client = connect(read_settings({"bootstrap_servers": bootstrap}), loop)

    def wait(dialogue: Any) -> Any:
        loop.run_until(future := client.run(dialogue))
        return future.result()

    administration = Administration(client, wait, WITHIN_S, "shop")
    for _ in range(2):
        begin_groups(administration, places, lambda seconds: loop.run_until(lambda: False, seconds), loop.time)
        assert administration.partitions_without_start(places) == {whole: [], cut: []}
    client.close()
    loop.close()
    for topic, expected in ((whole, {b"0", b"1", b"2", b"3", b"4", b"5"}), (cut, {b"1", b"3", b"4", b"5"})):
        values = set[bytes | None]()
        with KafkaShareConsumer(topic, bootstrap_servers=bootstrap, group_id=topic) as consumer:

            def look(consumer: Any = consumer, values: set[bytes | None] = values) -> set[bytes | None]:
                values.update(each.value for records in consumer.poll(200).values() for each in records)
                return values

            eventually(look, expected)


@every_way
@pytest.mark.parametrize("pool", ["threads", "inline"])
def test_jobs_that_were_there_before_the_first_worker_have_their_results(bench: Bench, pool: str) -> None:
    @bench.app.task
    def add(a: int, b: int) -> int:
        return a + b

    with bench.app.batch(WITHIN_S):
        jobs = [add.delay(n, b=1) for n in range(300)]
    assert jobs[0].status() is JobState.QUEUED
    bench.work(pool=pool)
    assert [job.result(WITHIN_S) for job in jobs] == [n + 1 for n in range(300)]
    assert jobs[0].status() is JobState.SUCCESS


@every_way
def test_a_job_is_found_by_its_bare_id_from_elsewhere(bench: Bench) -> None:
    go_on = threading.Event()

    @bench.app.task
    def wait() -> str:
        assert go_on.wait(WITHIN_S)
        return "waited"

    @bench.app.task
    def quick() -> None: ...

    first, second = quick.delay(), wait.delay()
    elsewhere = bench.another()
    assert elsewhere.job(second.id).status() is JobState.UNKNOWN
    bench.work()
    assert first.wait(WITHIN_S)
    assert elsewhere.job(first.id).status() is JobState.SUCCESS
    assert elsewhere.job(first.id).result(0) is None
    assert not elsewhere.job(second.id).wait(0.05)
    threading.Timer(0.1, go_on.set).start()
    assert elsewhere.job(second.id).result(WITHIN_S) == "waited"
    assert second.result(WITHIN_S) == "waited"
    with pytest.raises(JobUnknown):
        elsewhere.job(make_id(int(time.time() * 1000), 0, b"12345678")).result(0.05)
    with pytest.raises(JobUnknown):
        elsewhere.job(make_id(int(time.time() * 1000), 77, b"12345678")).result(0.05)


@every_way
def test_jobs_by_name_and_their_states(bench: Bench) -> None:
    bench.app = bench.another(track_queued=True)

    @bench.app.task(name="double")
    def double(n: int) -> int:
        return n * 2

    @bench.app.task(name="refuse")
    def refuse() -> None:
        raise Cancel("not today")

    job, refused = bench.app.send("double", (4,)), bench.app.send("refuse")
    late = bench.app.send("double", (5,), expires=0.001)
    bench.app.flush(WITHIN_S)
    assert bench.another().job(job.id).status() is JobState.QUEUED
    bench.work()
    assert job.result(WITHIN_S) == 8
    with pytest.raises(JobRevoked, match="not today"):
        refused.result(WITHIN_S)
    with pytest.raises(JobRevoked, match="expired"):
        late.result(WITHIN_S)


@every_way
@pytest.mark.parametrize("most_bytes", [2000, 1_000_000], ids=["the setting", "the topic"])
def test_a_result_that_is_too_large_is_a_failure_that_says_so_and_is_dead(bench: Bench, most_bytes: int) -> None:
    bench.another(max_payload_bytes=2000).backend().new_id()  # it connects, which makes the results topics
    bench.app = bench.another(max_payload_bytes=most_bytes)

    @bench.app.task
    def big() -> str:
        return os.urandom(100_000).hex()  # which no compression makes small enough

    job = big.delay()
    bench.work()
    with pytest.raises(JobFailed, match="200002 bytes") as caught:
        job.result(WITHIN_S)
    assert caught.value.type == "PayloadTooLarge"
    assert [death.type for death in bench.dead()] == ["PayloadTooLarge"]


# -- failures ----------------------------------------------------------------------------------------------------------


@every_way
def test_all_attempts_are_counted_and_the_last_failure_is_dead_with_its_cause(bench: Bench) -> None:
    attempts: list[int] = []

    @bench.app.task(bind=True, retry=Retry(max_attempts=3, on=(OSError,)))
    def never(context: Context) -> None:
        attempts.append(context.attempt)
        raise OSError("the disk is full")

    @bench.app.task(bind=True, retry=Retry(max_attempts=3))
    def at_last(context: Context) -> int:
        if context.attempt < 3:
            raise ValueError
        return context.attempt

    job, other = never.delay(), at_last.delay()
    bench.work()
    with pytest.raises(JobFailed, match="OSError: the disk is full"):
        job.result(WITHIN_S)
    assert attempts == [1, 2, 3]
    assert other.result(WITHIN_S) == 3
    (death,) = bench.dead()
    assert (death.cause, death.type, death.text) == ("attempts", "OSError", "the disk is full")
    assert "never" in death.traceback
    assert death.origin.startswith(f"{bench.name}.default.due:")


@every_way
def test_a_record_that_is_no_job_is_dead_and_the_worker_goes_on(bench: Bench) -> None:
    @bench.app.task
    def fine() -> str:
        return "fine"

    assert not fine.delay().wait(0)
    with KafkaProducer(bootstrap_servers=bench.bootstrap) as producer:
        topic = bench.app.names.queue("default")
        producer.send(topic, b"hello")
        producer.send(topic, b"hello", headers=[("id", b"no id"), ("name", b"fine")])
        producer.send(topic, None, headers=[("id", b"0" * 32), ("name", b"fine")])
        producer.flush()
    bench.work()
    assert fine.delay().result(WITHIN_S) == "fine"
    assert sorted(death.cause for death in bench.dead(3)) == ["bad-id", "no-job", "no-payload"]


@every_way
def test_a_task_that_one_worker_does_not_know_is_left_to_one_that_does(bench: Bench) -> None:
    @bench.app.task(name="new")
    def new() -> str:
        return "done"

    job = new.delay()
    bench.app.flush(WITHIN_S)
    old_service = bench.work(bench.another())
    until(lambda: old_service.worker.counts["leased"] > 0, "the old worker has the job")
    assert not job.wait(0.3)
    bench.work()
    old_service.stop()  # with luck it would get the job again and again, and the delays grow
    assert job.result(WITHIN_S) == "done"


# -- leases ------------------------------------------------------------------------------------------------------------


def test_a_job_that_runs_for_longer_than_its_lock_runs_once(bench: Bench) -> None:
    runs: list[int] = []

    @bench.app.task(bind=True)
    def long(context: Context) -> bool:
        runs.append(context.deliveries)
        time.sleep(6.6)
        return context.cancelled

    with KafkaAdminClient(bootstrap_servers=bench.bootstrap) as admin:
        lock = {"share.record.lock.duration.ms": "6000"}
        admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, bench.app.names.queue("default"), lock)])
    job = long.delay()
    bench.work()
    bench.work()
    assert job.result(WITHIN_S) is False
    assert runs == [1]


@every_way
def test_a_stopping_worker_ends_what_runs_and_gives_back_the_rest_unsuspected(bench: Bench) -> None:
    started, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    @bench.app.task
    def step(n: int) -> int:
        ran.append(n)
        if len(ran) == 50:
            started.set()
            assert go_on.wait(WITHIN_S)
        return n

    with bench.app.batch(WITHIN_S):
        jobs = [step.delay(n) for n in range(400)]
    first = bench.work(concurrency=1)
    assert started.wait(WITHIN_S)
    assert first.worker is not None
    worker = first.worker
    until(lambda: worker.statistics()["held"] > 1)
    first.stop_soon()
    until(lambda: worker.counts["given_back"] > 0)  # while one runs: else all that is held might have been done by then
    go_on.set()
    counts = first.stop()
    assert counts["locks_lost"] == counts["unsettled"] == 0
    bench.work()
    assert [job.result(WITHIN_S) for job in jobs] == list(range(400))
    assert sorted(ran) == list(range(400))
    assert bench.records(bench.app.names.suspect("default")) == []


# -- topics ------------------------------------------------------------------------------------------------------------


def test_settled_jobs_are_deleted_up_to_the_groups_start_offset_and_what_waits_still_runs(bench: Bench) -> None:
    @bench.app.task
    def double(n: int) -> int:
        return 2 * n

    topic = bench.app.names.queue("default")
    places = [TopicPartition(topic, number) for number in range(3)]
    loop = make_loop()
    client = connect(read_settings({"bootstrap_servers": bench.bootstrap}), loop)
    trimmer = QueueTrimmer(client, {topic: places})

    def run_jobs() -> None:
        with bench.app.batch(WITHIN_S):
            jobs = [double.delay(n) for n in range(100)]
        assert [job.result(WITHIN_S) for job in jobs] == [2 * n for n in range(100)]

    def group_starts() -> dict[TopicPartition, int]:
        with KafkaAdminClient(bootstrap_servers=bench.bootstrap) as admin:
            offsets = admin.list_share_group_offsets({topic: places})[topic]
        return {place: max(offset.start_offset, 0) for place, offset in offsets.items()}

    def trim() -> dict[TopicPartition, int]:
        """A round; where the logs start afterwards."""
        trimmed = trimmer.trim()
        assert loop.run_until(trimmed, WITHIN_S)
        trimmed.result()
        with KafkaConsumer(bootstrap_servers=bench.bootstrap) as consumer:
            return consumer.beginning_offsets(places)

    service = bench.work()
    # What was settled last is stored with the next acknowledgement in its partition.
    look_until(
        group_starts, lambda starts: all(starts.values()), "settled jobs in each partition", meanwhile=run_jobs
    )
    service.stop()
    with bench.app.batch(WITHIN_S):
        waiting = [double.delay(n) for n in range(30)]
    log_starts = trim()
    assert log_starts == group_starts()
    assert all(log_starts.values())
    assert trim() == log_starts
    bench.work()
    assert [job.result(WITHIN_S) for job in waiting] == [2 * n for n in range(30)]
    client.close()
    loop.close()


@every_way
def test_what_cannot_be_enqueued_is_reported_at_once(bench: Bench) -> None:
    app = bench.another(max_payload_bytes=2000)

    @app.task(name="echo")
    def echo(text: str) -> str:
        return text

    with pytest.raises(UnknownQueue, match="no topic"):
        app.send("echo", ("a",), queue="nowhere")
    with pytest.raises(PayloadTooLarge, match="2000"):
        echo.delay("x" * 3000)
    strict = bench.another(create_topics=False, default_queue="elsewhere")
    with pytest.raises(KafkaConfigurationError, match=r"elsewhere.*--topic"):
        strict.send("echo", ("a",))
    foreign = bench.another(default_queue="other")
    foreign.send("echo", ("a",)).raise_if_not_sent()
    assert not app.send("echo", ("a",), queue="other").wait(0)
