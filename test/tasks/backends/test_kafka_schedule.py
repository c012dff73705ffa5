"""Tests of the caller's side of the schedule on an embedded broker, with an owner that a test can look into."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from kafka import KafkaConsumer
from kafka.errors import KafkaConfigurationError
from kafka.structs import TopicPartition
from kafka.tasks import App, CancelResult, JobHandle, JobRevoked, JobState, JobTimeout
from kafka.tasks.backends.kafka import KafkaBackend
from kafka.tasks.format.commands import PUT, RESCHEDULE, partition_of_job
from kafka.tasks.format.job_id import time_of
from kafka.tasks.format.topics import TopicSize
from kafka.testing import EmbeddedBroker, running_worker
from test.support.waiting import until
from test.tasks.fake_owner import FakeOwner

SOON_S = 10.0
PARTITIONS = 3


@pytest.fixture
def app(broker: EmbeddedBroker) -> Iterator[App]:
    app = App(f"later-{uuid.uuid4().hex[:8]}", bootstrap_servers=broker.bootstrap, partitions=PARTITIONS)
    app.task(name="double")(lambda number: 2 * number)
    yield app
    app.close(SOON_S)


@pytest.fixture
def elsewhere(app: App, broker: EmbeddedBroker) -> Iterator[App]:
    """The same app in another process, as far as the broker can tell."""
    other = App(app.name, bootstrap_servers=broker.bootstrap, partitions=PARTITIONS)
    yield other
    other.close(SOON_S)


@pytest.fixture
def owner(app: App, broker: EmbeddedBroker) -> Iterator[FakeOwner]:
    with FakeOwner(app, broker.bootstrap) as running:
        yield running


def put_seen(owner: FakeOwner, job: JobHandle[object]) -> None:
    until(lambda: any(each.subject == job.id for each in owner.commands), "the owner has it", within_s=SOON_S)


def test_a_job_with_a_delay_runs_at_its_time_and_not_before(
    app: App, elsewhere: App, broker: EmbeddedBroker, owner: FakeOwner
) -> None:
    with running_worker(app, broker=broker):
        began = time.monotonic()
        job = app.send("double", (21,), delay=1.5)
        assert job.status() in (JobState.PENDING, JobState.SCHEDULED)
        app.flush(SOON_S)
        assert job.status() is JobState.SCHEDULED
        assert elsewhere.job(job.id).status() is JobState.SCHEDULED
        assert job.result(SOON_S) == 42
        assert time.monotonic() - began >= 1.5
        assert elsewhere.job(job.id).result(SOON_S) == 42
    assert owner.partitions[job.id] == {partition_of_job(job.id, PARTITIONS)}
    assert [each.due_ms for each in owner.commands if each.kind == PUT] == [time_of(job.id)]


def test_enqueueing_for_later_makes_the_topics_of_the_queue_and_of_the_schedule(app: App) -> None:
    app.send("double", (1,), delay=60)
    app.flush(SOON_S)
    backend = app.backend()
    assert isinstance(backend, KafkaBackend)
    names = [app.names.commands, app.names.schedule, app.names.due("default")]
    found = backend._connected().administration.existing(names)
    assert found == dict.fromkeys(names, TopicSize(PARTITIONS, replicas=1))
    assert backend.has_schedule


def test_topics_of_the_schedule_of_different_sizes_are_one_clear_error(app: App, broker: EmbeddedBroker) -> None:
    for topic, count in ((app.names.commands, 2), (app.names.schedule, 3)):
        policy = "compact" if topic == app.names.schedule else "delete"
        broker.create_topic(topic, count, **{"cleanup.policy": policy, "message.timestamp.type": "LogAppendTime"})
    with pytest.raises(KafkaConfigurationError, match="commands has 2 partitions and .*schedule has 3: "):
        app.send("double", (1,), delay=60)


@pytest.mark.parametrize("way", ["thread", "coroutine"])
def test_a_job_that_is_cancelled_before_its_time_has_ended_for_all_at_once(
    app: App, elsewhere: App, owner: FakeOwner, way: str
) -> None:
    job = app.send("double", (1,), delay=3600)
    bare = elsewhere.job(job.id)
    found = bare.cancel() if way == "thread" else asyncio.run(bare.cancel_async())
    assert found is CancelResult.CANCELLED
    for handle in (job, bare, app.job(job.id)):
        with pytest.raises(JobRevoked, match="cancelled"):
            handle.result(SOON_S)
        assert handle.status() is JobState.REVOKED
        assert handle.due_at() is None
        assert handle.cancel() is CancelResult.CANCELLED
        assert handle.reschedule(delay=5) is False


def test_who_waits_in_the_process_that_cancels_is_woken(app: App, owner: FakeOwner) -> None:
    job = app.send("double", (1,), delay=3600)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            job.result(SOON_S)
        except BaseException as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: len(owner.commands) >= 2, "it has asked where the job is", within_s=SOON_S)
    began = time.monotonic()
    assert job.cancel()
    waiting.join(SOON_S)
    assert time.monotonic() - began < 3
    assert isinstance(errors[0], JobRevoked)


def test_a_cancelled_job_is_revoked_in_the_log_at_its_time(app: App, elsewhere: App, owner: FakeOwner) -> None:
    job = app.send("double", (1,), delay=1.5)
    assert job.cancel()
    bare = elsewhere.job(job.id)
    until(lambda: not owner._places, "its time has come", within_s=SOON_S)
    until(lambda: elsewhere.backend().find(job.id, SOON_S) is not None, "the log says so", within_s=SOON_S)
    asked = len(owner.commands)
    with pytest.raises(JobRevoked, match="cancelled"):
        bare.result(SOON_S)
    assert len(owner.commands) == asked


def test_a_job_in_its_queue_is_cancelled_and_one_that_has_ended_is_not(
    app: App, elsewhere: App, broker: EmbeddedBroker, owner: FakeOwner
) -> None:
    job = app.send("double", (1,))
    app.flush(SOON_S)
    assert elsewhere.job(job.id).cancel() is CancelResult.CANCELLED
    with pytest.raises(JobRevoked, match="cancelled"):
        job.result(SOON_S)
    with running_worker(app, broker=broker):
        ended = app.send("double", (2,))
        assert ended.result(SOON_S) == 4
    for handle in (ended, elsewhere.job(ended.id)):
        assert handle.cancel() is CancelResult.TOO_LATE
        assert handle.result(SOON_S) == 4


def test_another_time_is_kept_by_the_owner_and_told_to_all(app: App, elsewhere: App, owner: FakeOwner) -> None:
    job = app.send("double", (1,), delay=3600)
    bare = elsewhere.job(job.id)
    announced = datetime.fromtimestamp(time_of(job.id) / 1000, timezone.utc)
    assert job.due_at() == bare.due_at() == announced
    at = announced + timedelta(days=2)
    assert bare.reschedule(at)
    assert job.due_at() == bare.due_at() == at
    assert asyncio.run(bare.reschedule_async(delay=7200))
    found = job.due_at()
    assert found is not None and timedelta(hours=1.9) < found - datetime.now(timezone.utc) < timedelta(hours=2.1)
    assert [job.status(), bare.status()] == [JobState.SCHEDULED] * 2


def test_a_job_that_is_put_off_says_so_in_the_log_when_its_first_time_comes(
    app: App, elsewhere: App, broker: EmbeddedBroker, owner: FakeOwner
) -> None:
    job = app.send("double", (21,), delay=1.2)
    assert job.reschedule(delay=3)
    until(lambda: elsewhere.backend().find(job.id, SOON_S), "its first time has come", within_s=SOON_S)
    record = elsewhere.backend().find(job.id, SOON_S)
    (reschedule,) = (command for command in owner.commands if command.kind == RESCHEDULE)
    assert record is not None
    assert (record.state, record.due_ms) == (JobState.SCHEDULED, reschedule.due_ms)
    assert elsewhere.job(job.id).status() is JobState.SCHEDULED
    with running_worker(app, broker=broker):
        assert elsewhere.job(job.id).result(SOON_S) == 42


def test_the_result_of_a_job_that_was_sent_early_is_found_before_its_time(
    app: App, elsewhere: App, broker: EmbeddedBroker, owner: FakeOwner
) -> None:
    with running_worker(app, broker=broker):
        job = app.send("double", (21,), delay=3600)
        assert job.reschedule(datetime(2020, 1, 1, tzinfo=timezone.utc)), "at once"
        assert job.result(SOON_S) == 42
    bare = elsewhere.job(job.id)
    assert bare.status() is JobState.SUCCESS
    assert bare.result(SOON_S) == 42
    assert bare.cancel() is CancelResult.TOO_LATE
    third = App(app.name, bootstrap_servers=broker.bootstrap, partitions=PARTITIONS)
    assert third.job(job.id).cancel() is CancelResult.TOO_LATE, "also where it was not asked for before"
    third.close(SOON_S)


def test_without_an_owner_a_job_is_scheduled_and_cannot_be_cancelled(app: App, elsewhere: App) -> None:
    job = app.send("double", (1,), delay=3600)
    app.flush(SOON_S)
    bare = elsewhere.job(job.id)
    began = time.monotonic()
    assert bare.status() is JobState.SCHEDULED
    assert bare.due_at() == datetime.fromtimestamp(time_of(job.id) / 1000, timezone.utc)
    assert time.monotonic() - began < 6, "two seconds for each question"
    for handle in (job, bare):
        with pytest.raises(JobTimeout, match="no owner of the schedule of app .* has answered CANCEL"):
            handle.cancel(timeout=1)
    assert job.status() is JobState.SCHEDULED


def test_no_job_starts_early_by_the_broker_s_clock(app: App, broker: EmbeddedBroker, owner: FakeOwner) -> None:
    """The append time of a job in its queue is the broker's, and not earlier than the time in its id."""
    jobs = [app.send("double", (number,), delay=0.001 + number / 100) for number in range(30)]
    app.flush(SOON_S)
    until(lambda: len(owner.commands) == 30 and not owner._places, "all are written", within_s=SOON_S)
    owner._producer.flush(SOON_S)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, auto_offset_reset="earliest")
    places = [TopicPartition(app.names.due("default"), number) for number in range(PARTITIONS)]
    consumer.assign(places)
    appended: dict[str, int] = {}
    while len(appended) < len(jobs):
        for records in consumer.poll(100).values():
            appended.update({dict(record.headers)["id"].decode(): record.timestamp for record in records})
    consumer.close()
    assert {job.id for job in jobs if appended[job.id] < time_of(job.id)} == set()
