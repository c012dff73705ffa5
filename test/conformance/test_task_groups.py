"""What is of consumer groups alone in the delivery of jobs: owners come and go, and one job may take long.

Over brokers whose settings permit members of the protocol "consumer" (KIP-848), and over such as do not, where members
are classic. A test fails where its group is of the other protocol.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest

from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.tasks import Context, JobHandle, JobState, Retry
from kafka.tasks.delivery.base import MetadataUse
from kafka.tasks.delivery.consumer_group import delivery as delivery_module
from kafka.tasks.delivery.consumer_group import progress
from kafka.tasks.delivery.consumer_group.delivery import SESSION_S
from kafka.tasks.format.offset_metadata import decode
from test.conformance.conftest import SETTINGS
from test.conformance.test_tasks import Bench, Unique
from test.support.either_broker import SharedBrokers, first_release_of_jobs, group_members
from test.support.waiting import WITHIN_S, until

LEAVE_S = 2.0
"""So long at most no job of a partition starts when its owner leaves in good order."""


CLASSIC_SETTINGS = {name: value for name, value in SETTINGS.items() if not name.startswith("group.consumer.")}
"""With Kafka's own least times of members of the protocol "consumer", which are too long for workers."""


@pytest.fixture(scope="session")
def bootstrap(broker: str, members: str, shared_brokers: SharedBrokers) -> str:
    return shared_brokers.bootstrap(broker, SETTINGS if members == "consumer" else CLASSIC_SETTINGS)


@pytest.fixture
def bench(bootstrap: str, members: str, unique: Unique) -> Iterator[Bench]:
    made = Bench(bootstrap, unique("app"), "group")
    yield made
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        groups = {group["group_id"]: group["group_type"] or "classic" for group in admin.list_groups()}
    made.close()
    of_queues = {made.app.names.group(queue) for queue in ("default", *made.app._queues)}
    assert {kind for group, kind in groups.items() if group in of_queues} == {members}


def committed(bench: Bench, queue: str = "default") -> dict[TopicPartition, tuple[int, str]]:
    """What the queue's group has committed: offsets, and the text beside them."""
    names = bench.app.names
    with KafkaAdminClient(bootstrap_servers=bench.bootstrap) as admin:
        found = admin.list_group_offsets({names.group(queue): None})[names.group(queue)]
    return {place: (at.offset, at.metadata) for place, at in found.items() if place.topic == names.queue(queue)}


@first_release_of_jobs
def test_jobs_run_and_fail_on_the_first_release_that_keeps_them(bench: Bench) -> None:
    @bench.app.task
    def add(a: int, b: int) -> int:
        return a + b

    @bench.app.task(retry=Retry(max_attempts=2))
    def never() -> None:
        raise OSError("the disk is full")

    bench.work()
    bench.work()
    with bench.app.batch(WITHIN_S):
        jobs = [add.delay(n, 1) for n in range(200)]
        failing = never.delay()
    assert [job.result(WITHIN_S) for job in jobs] == [n + 1 for n in range(200)]
    assert failing.wait(WITHIN_S)
    assert failing.status() is JobState.FAILURE
    assert [death.cause for death in bench.dead()] == ["attempts"]


@group_members(matters=True, older=True)
def test_workers_that_come_and_go_stop_no_others_and_repeat_nothing(bench: Bench) -> None:
    ran: list[tuple[float, int]] = []
    lock = threading.Lock()

    @bench.app.task
    def step(n: int) -> int:
        with lock:
            ran.append((time.monotonic(), n))
        time.sleep(0.005)
        return n

    first = bench.work()
    jobs: list[JobHandle[int]] = [step.delay(-1)]
    assert jobs[0].wait(WITHIN_S)
    is_over = threading.Event()

    def enqueue() -> None:
        for number in itertools.count():
            if is_over.wait(0.005):
                return
            jobs.append(step.delay(number))

    producer = threading.Thread(target=enqueue)
    producer.start()
    try:
        second = bench.work()
        until(lambda: second.worker and second.worker.counts["done"] > 20, "the second has a share")
        third = bench.work()
        until(lambda: third.worker and third.worker.counts["done"] > 20, "the third has a share")
        counts = second.stop()
        until_count = len(jobs) + 200
        until(lambda: len(jobs) > until_count, "jobs go on")
        counts_of_first = first.stop()
    finally:
        is_over.set()
        producer.join()
    assert [job.result(WITHIN_S) for job in jobs] == [-1, *range(len(jobs) - 1)]
    numbers = [n for _, n in ran]
    assert sorted(numbers) == [-1, *range(len(jobs) - 1)], "each has run once"
    assert counts["unsettled"] == counts_of_first["unsettled"] == counts["locks_lost"] == 0
    times = sorted(at for at, _ in ran)
    pause_s = max(later - earlier for earlier, later in itertools.pairwise(times[1:]))
    assert pause_s < LEAVE_S, f"nothing started for {pause_s:.2f} s"
    assert bench.records(bench.app.names.suspect("default")) == []


@group_members(matters=True)
def test_a_job_that_runs_for_longer_than_a_session_keeps_its_partition_and_runs_once(bench: Bench) -> None:
    runs: list[int] = []

    @bench.app.task
    def long(seconds: float) -> None:
        runs.append(1)
        time.sleep(seconds)

    @bench.app.task
    def short() -> None: ...

    services = [bench.work(), bench.work()]

    def have_run() -> bool:
        for job in [short.delay() for _ in range(9)]:
            assert job.wait(WITHIN_S)
        return all(service.worker is not None and service.worker.counts["done"] > 0 for service in services)

    until(have_run, "both have partitions")
    job = long.delay(SESSION_S + 1)
    assert job.result(WITHIN_S + SESSION_S) is None
    assert runs == [1]


@group_members()
def test_a_job_that_does_not_end_in_time_is_lost_with_its_partition_and_runs_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery_module, "REBALANCE_S", 0.4)
    go_on = threading.Event()
    runs: list[int] = []

    @bench.app.task
    def hold(n: int) -> int:
        runs.append(n)
        assert go_on.wait(WITHIN_S)
        return n

    bench.work(concurrency=30)
    with bench.app.batch(WITHIN_S):
        jobs = [hold.using(key=str(n)).delay(n) for n in range(30)]  # in all partitions
    until(lambda: len(runs) == 30, "all run")
    bench.work()
    until(lambda: "lost the partitions of" in caplog.text, "they are lost")
    (line,) = [line for line in caplog.messages if line.startswith("lost the partitions of")]
    topic = re.escape(bench.app.names.queue("default"))
    assert re.search(rf"jobs? \({topic}-\d was revoked, and they did not end in time\); their next owners", line)
    go_on.set()
    assert [job.result(WITHIN_S) for job in jobs] == list(range(30))


@group_members(older=True)
def test_behind_a_job_that_runs_for_long_the_others_end_and_none_of_them_runs_again(bench: Bench) -> None:
    """The metadata of the committed offset says what has ended."""
    go_on, is_held = threading.Event(), threading.Event()
    ran: list[int] = []

    @bench.app.task
    def step(n: int) -> int:
        ran.append(n)
        return n

    @bench.app.task
    def hold() -> str:
        is_held.set()
        assert go_on.wait(WITHIN_S)
        return "held"

    bench.app = bench.another(partitions=1)
    bench.app.tasks.update({task.name: task for task in (step, hold)})
    held = bench.app.send(hold.name)
    service = bench.work()
    assert is_held.wait(WITHIN_S)
    with bench.app.batch(WITHIN_S):
        jobs = [bench.app.send(step.name, (n,)) for n in range(1000)]
    assert [job.result(WITHIN_S) for job in jobs] == list(range(1000))
    ((place, (offset, text)),) = until(
        lambda: {each: at for each, at in committed(bench).items() if at[1] and decode(*at).completed}.items(),
        "what has ended is committed",
    )
    marks = decode(offset, text)
    assert marks is not None
    assert (place.partition, offset, marks.completed) == (0, 0, ((1, 1000),))
    assert len(text) < 100
    service.stop_soon()
    go_on.set()
    service.stop()
    assert held.result(WITHIN_S) == "held"
    assert committed(bench) == {place: (1001, "")}
    bench.work()
    after = bench.app.send(step.name, (1000,))
    assert after.result(WITHIN_S) == 1000
    assert ran == list(range(1001))


@group_members()
def test_no_more_is_taken_than_can_be_said_and_goes_on_when_jobs_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each job that ends between others that have not takes some characters: there is room for fifty."""
    most = progress.OTHER_CHARACTERS + 50 * progress.RUN_CHARACTERS
    monkeypatch.setattr(progress, "MOST_CHARACTERS", most)
    monkeypatch.setattr(progress, "BITMAP_OFFSETS", 0)
    gates = {number: threading.Event() for number in range(0, 400, 2)}
    running: set[int] = set()

    @bench.app.task
    def step(n: int) -> int:
        running.add(n)
        assert n not in gates or gates[n].wait(WITHIN_S)
        return n

    bench.app = bench.another(partitions=1)
    bench.app.tasks[step.name] = step
    with bench.app.batch(WITHIN_S):
        jobs = [bench.app.send(step.name, (n,)) for n in range(400)]
    service = bench.work(concurrency=200)
    until(lambda: "no more jobs are taken" in caplog.text, "the partition is full")
    worker = service.worker
    assert worker is not None

    def is_told() -> bool:
        longest = max(len(text) for _, text in committed(bench).values())
        return worker.metadata_use() == [MetadataUse("default", 1, longest)]

    until(is_told, "the worker says how full it is")
    assert 25 <= len(running) <= 100
    assert max(len(text) for _, text in committed(bench).values()) <= most
    for gate in gates.values():
        gate.set()
    assert [job.result(WITHIN_S) for job in jobs] == list(range(400))
    until(lambda: committed(bench)[TopicPartition(bench.app.names.queue("default"), 0)][0] == 400, "all is committed")


@group_members(older=True)
def test_jobs_of_a_key_run_in_order_and_one_that_fails_holds_its_key_alone(bench: Bench) -> None:
    ran: dict[str, list[tuple[int, int]]] = defaultdict(list)
    lock = threading.Lock()
    ledger = bench.app.queue("ledger", ordered=True)

    @bench.app.task(bind=True, queue=ledger, retry=Retry(max_attempts=3, backoff=lambda attempt: 0.3, jitter=False))
    def append(context: Context, user: str, n: int) -> int:
        with lock:
            ran[user].append((n, context.attempt))
        if user == "failing" and n == 5 and context.attempt < 3:
            raise OSError("try again")
        if user == "dead" and n == 5:
            raise OSError("never")
        return n

    users = ["failing", "dead", *(f"user-{number}" for number in range(20))]
    bench.work(concurrency=8)
    with bench.app.batch(WITHIN_S):
        jobs = [(user, n, append.using(key=user).delay(user, n)) for n in range(30) for user in users]
    for user, n, job in jobs:
        if (user, n) == ("dead", 5):
            assert job.wait(WITHIN_S)
            assert job.status() is JobState.FAILURE
        else:
            assert job.result(WITHIN_S) == n
    once = [(n, 1) for n in range(30)]
    assert ran["failing"] == [*once[:5], (5, 1), (5, 2), (5, 3), *once[6:]]
    assert ran["dead"] == [*once[:5], (5, 1), (5, 2), (5, 3), *once[6:]]
    assert all(ran[user] == once for user in users[2:])
    (death,) = bench.dead(queue="ledger")
    assert (death.cause, death.origin.rsplit(":", 2)[0]) == ("attempts", bench.app.names.queue("ledger"))
    assert bench.records(bench.app.names.due("ledger")) == []


@group_members(matters=True, older=True)
def test_jobs_of_a_key_keep_their_order_when_workers_come_and_go(bench: Bench) -> None:
    ran: dict[str, list[int]] = defaultdict(list)
    ledger = bench.app.queue("ledger", ordered=True)

    @bench.app.task(queue=ledger, ordered_by=lambda user, n: user)
    def append(user: str, n: int) -> int:
        ran[user].append(n)
        time.sleep(0.002)
        return n

    users = [f"user-{number}" for number in range(20)]
    services = [bench.work(concurrency=4)]
    jobs = []
    for n in range(100):
        jobs += [append.delay(user, n) for user in users]
        if n == 20:
            services.append(bench.work(concurrency=4))
        if n == 60:
            services[0].stop_soon()
            services.append(bench.work(concurrency=4))
        time.sleep(0.01)
    for job in jobs:
        assert job.wait(WITHIN_S)
    services[0].stop()
    assert {user: ran[user] for user in users} == dict.fromkeys(users, list(range(100)))


@group_members()
def test_a_job_of_an_ordered_queue_that_is_due_later_goes_behind_those_of_its_key(bench: Bench) -> None:
    ran: list[str] = []
    ledger = bench.app.queue("ledger", ordered=True)

    @bench.app.task(queue=ledger)
    def append(what: str) -> None:
        ran.append(what)

    bench.work()
    later = append.using(key="user", delay=1.0).delay("later")
    now = append.using(key="user").delay("now")
    assert now.wait(WITHIN_S)
    assert later.wait(WITHIN_S)
    assert ran == ["now", "later"]
    assert bench.records(bench.app.names.due("ledger")) == []


@group_members()
def test_what_is_no_jobs_metadata_is_ignored_and_jobs_run(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    @bench.app.task
    def step(n: int) -> int:
        return n

    jobs = [step.delay(n) for n in range(9)]
    bench.app.flush(WITHIN_S)
    names = bench.app.names
    with KafkaAdminClient(bootstrap_servers=bench.bootstrap) as admin:
        place = TopicPartition(names.queue("default"), 0)
        admin.alter_group_offsets(names.group("default"), {place: OffsetAndMetadata(0, "2:from a release to come", -1)})
    bench.work()
    assert [job.result(WITHIN_S) for job in jobs] == list(range(9))
    assert "is not understood; jobs behind it run again" in caplog.text


@group_members()
def test_a_result_that_comes_late_is_found_by_its_bare_id(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record has a copy in the topic for late ones, of the same transaction."""
    monkeypatch.setattr("kafka.tasks.delivery.finishing.LATE_AFTER_MS", -1)

    @bench.app.task
    def step() -> str:
        return "late"

    job = step.delay()
    bench.work()
    assert job.result(WITHIN_S) == "late"
    assert [record.key.decode() for record in bench.records(bench.app.names.late)] == [job.id]


@group_members()
def test_records_that_are_refused_are_written_when_that_is_mended(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The jobs beside them are settled meanwhile."""

    @bench.app.task
    def fine() -> str:
        return "fine"

    @bench.app.task
    def bad() -> None:
        raise OSError("x" * 100_000)

    bench.work()
    assert fine.delay().result(WITHIN_S) == "fine"
    dead = bench.app.names.dead("default")
    with KafkaAdminClient(bootstrap_servers=bench.bootstrap) as admin:
        from kafka.admin import ConfigResource, ConfigResourceType

        def limit(size: int) -> None:
            configs = {"max.message.bytes": str(size)}
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, dead, configs)])

        limit(100)
        failing = bad.delay()
        until(lambda: f"raise max.message.bytes of topic {dead}" in caplog.text, "it is said")
        assert fine.delay().result(WITHIN_S) == "fine"
        limit(1_000_000)
    assert failing.wait(WITHIN_S)
    assert failing.status() is JobState.FAILURE
    assert len(bench.dead()) == 1


@group_members()
def test_a_partition_that_was_cut_off_is_read_from_where_it_begins(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Its topic was deleted and made anew while the queue had no worker."""

    @bench.app.task
    def step(n: int) -> int:
        return n

    service = bench.work()
    for n in range(30):
        assert step.delay(n).result(WITHIN_S) == n
    service.stop()
    topic = bench.app.names.queue("default")
    with KafkaAdminClient(bootstrap_servers=bench.bootstrap) as admin:
        admin.delete_topics([topic])

        def is_gone() -> bool:
            return topic not in admin.list_topics()

        until(is_gone, "the topic is gone")
    bench.app.close(5)
    bench.app = bench.another()
    bench.app.tasks[step.name] = step
    jobs = [bench.app.send(step.name, (n,)) for n in range(9)]
    bench.work()
    assert [job.result(WITHIN_S) for job in jobs] == list(range(9))


