"""Tests of ``kafka.tasks.backends.kafka.snapshot_publisher`` and ``snapshot_reader``, and of ``Directory``, over an
embedded broker."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaTimeoutError
from kafka.net.loop import Loop
from kafka.tasks import App, Directory, WorkerSnapshot
from kafka.tasks.backends.kafka import snapshot_publisher, snapshot_reader
from kafka.tasks.backends.kafka.connection import connect, last_connect_error
from kafka.tasks.backends.kafka.snapshot_publisher import KafkaSnapshotPublisher
from kafka.tasks.backends.kafka.snapshot_reader import KafkaSnapshotReader
from kafka.tasks.format.topics import TopicDefaults, TopicNames, workers_plan
from kafka.tasks.health.snapshot import to_json
from kafka.testing import EmbeddedBroker
from test.support.waiting import eventually

SOON_S = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True) as running:
        yield running


@pytest.fixture
def app(broker: EmbeddedBroker) -> Iterator[App]:
    app = App(f"shop-{uuid.uuid4().hex[:8]}", bootstrap_servers=broker.bootstrap)
    yield app
    app.close()


class AWorker:
    """A worker as far as its board goes: a loop of its own."""

    def __init__(self, app: App) -> None:
        self.loop = Loop()
        self.client = connect(app.settings, self.loop)
        self.snapshots = KafkaSnapshotPublisher(
            self.client, workers_plan(TopicNames(app.name), TopicDefaults()), app.settings
        )

    def say(self, name: str, **fields: str) -> None:
        self.snapshots.publish(name, to_json(WorkerSnapshot(name, **fields)))

    def wait(self, is_so: Callable[[], object]) -> None:
        assert self.loop.run_until(is_so, SOON_S), "it did not come about"

    def say_and_wait(self, name: str, **fields: str) -> None:
        self.say(name, **fields)
        self.wait(lambda: not self.snapshots._is_busy)

    def close(self) -> None:
        self.snapshots.close(SOON_S)
        self.client.close()
        self.loop.close()


@contextmanager
def a_worker(app: App) -> Iterator[AWorker]:
    with closing(AWorker(app)) as worker:
        yield worker


def names(directory: Directory) -> list[str]:
    return [seen.worker.id for seen in directory.workers()]


def test_workers_on_any_machine_are_found_by_their_snapshots(app: App) -> None:
    with a_worker(app) as one, a_worker(app) as other:
        one.say_and_wait("a", host="web", stage="WORKING")
        other.say_and_wait("b", host="db")
        one.say_and_wait("a", host="web", stage="DRAINING")
        with Directory(app) as directory:
            found = directory.workers()
            assert [(seen.worker.id, seen.worker.host) for seen in found] == [("b", "db"), ("a", "web")]
            assert found[1].worker.stage == "DRAINING"
            assert all(seen.age_s < SOON_S for seen in found)


def test_a_directory_takes_in_news_and_those_who_leave(app: App) -> None:
    with a_worker(app) as worker:
        worker.say_and_wait("a")
        with Directory(app) as directory:
            assert names(directory) == ["a"]
            worker.say_and_wait("b")
            worker.snapshots.publish("a", None)
            worker.wait(lambda: not worker.snapshots._is_busy)
            eventually(lambda: names(directory), ["b"])


def test_the_last_word_of_a_worker_arrives_before_it_lets_go(app: App) -> None:
    with a_worker(app) as worker:
        worker.say("a")
        worker.snapshots.publish("a", None)
    with Directory(app) as directory:
        assert names(directory) == []
        assert len(directory._reader._snapshots) == 0  # type: ignore[attr-defined]
    with a_worker(app) as worker:
        worker.say("a")
    with Directory(app) as directory:
        assert names(directory) == ["a"]


def test_a_snapshot_published_while_one_is_being_sent_replaces_the_waiting_one(app: App) -> None:
    with a_worker(app) as worker:
        worker.say_and_wait("a", host="first")
        for n in range(100):
            worker.say("a", host=f"host-{n}")
    with Directory(app) as directory:
        assert [seen.worker.host for seen in directory.workers()] == ["host-99"]
        reader = directory._reader
        assert isinstance(reader, KafkaSnapshotReader)
        assert reader._consumer.end_offsets([reader._place])[reader._place] == 3


def test_an_app_without_workers_has_none_and_asking_makes_no_topic(app: App, broker: EmbeddedBroker) -> None:
    with Directory(app) as directory:
        assert directory.workers() == []
        assert directory.workers(0.01) == []
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        assert not [name for name in admin.list_topics() if name.startswith(app.name)]


def test_a_directory_that_was_there_first_finds_workers_when_they_come(app: App) -> None:
    with Directory(app) as directory:
        assert directory.workers() == []
        with a_worker(app) as worker:
            worker.say_and_wait("a")
            eventually(lambda: names(directory), ["a"])


def test_a_record_that_is_no_snapshot_is_reported_once_and_left_out(app: App, caplog: pytest.LogCaptureFixture) -> None:
    with a_worker(app) as worker:
        worker.say_and_wait("a")
        worker.snapshots.publish("evil", b"{")
        worker.wait(lambda: not worker.snapshots._is_busy)
    with Directory(app) as directory, caplog.at_level(logging.WARNING, "kafka.tasks.health"):
        assert names(directory) == ["a"]
        assert names(directory) == ["a"]
    assert caplog.text.count("could not decode the snapshot of worker 'evil'") == 1


def test_only_the_last_minute_is_read() -> None:
    with EmbeddedBroker(in_process=True) as broker:
        app = App("shop", bootstrap_servers=broker.bootstrap)
        with a_worker(app) as worker:
            worker.say_and_wait("old")
            broker.clock.advance(snapshot_reader.KEPT_S)
            worker.say_and_wait("new")
            worker.say_and_wait("newer")
            with Directory(app) as directory:
                assert names(directory) == ["new", "newer"]
                reader = directory._reader
                assert isinstance(reader, KafkaSnapshotReader)
                assert reader._first_offset == 1


@pytest.mark.parametrize("skew_s", [-300.0, 300.0])
def test_clocks_that_differ_hide_no_worker_that_lives(app: App, monkeypatch: pytest.MonkeyPatch, skew_s: float) -> None:
    with a_worker(app) as worker:
        worker.say_and_wait("a")
        monkeypatch.setattr(snapshot_reader, "_now_ms", lambda: int((time.time() + skew_s) * 1000))
        with Directory(app) as directory:
            reader = directory._reader
            assert isinstance(reader, KafkaSnapshotReader)
            polled = reader._poll

            def poll(wait_s: float, is_new: bool) -> None:
                worker.say_and_wait("a")  # as a living worker does every few seconds
                polled(wait_s, is_new)

            monkeypatch.setattr(reader, "_poll", poll)
            (seen,) = directory.workers()
            assert seen.age_s < 20
            assert not seen.is_silent


def test_workers_that_are_dead_are_silent_and_then_gone(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_reader, "FIRST_SNAPSHOT_WAIT_S", 0.0)
    with a_worker(app) as worker:
        worker.say_and_wait("a")
        with Directory(app) as directory:
            assert not directory.workers()[0].is_silent
            real = snapshot_reader._now_ms
            monkeypatch.setattr(snapshot_reader, "_now_ms", lambda: real() + 20_000)
            (seen,) = directory.workers()
            assert seen.is_silent
            assert seen.worker.uptime_s >= 20.0
            monkeypatch.setattr(snapshot_reader, "_now_ms", lambda: real() + 61_000)
            assert directory.workers() == []


def test_the_topic_is_made_with_its_retention_and_one_partition(app: App, broker: EmbeddedBroker) -> None:
    with a_worker(app) as worker:
        worker.say_and_wait("a")
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        (topic,) = admin.describe_topics([f"{app.name}.workers"])
        assert len(topic["partitions"]) == 1


def test_where_topics_may_not_be_made_a_worker_says_once_what_is_missing(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(f"shop-{uuid.uuid4().hex[:8]}", bootstrap_servers=broker.bootstrap, create_topics=False)
    with a_worker(app) as worker, caplog.at_level(logging.WARNING, "kafka.tasks"):
        worker.say_and_wait("a")
        worker.say_and_wait("a")
    assert caplog.text.count(f"topic {app.name}.workers does not exist") == 1
    assert "--partitions 1" in caplog.text


def test_a_broker_that_refuses_for_now_costs_one_line(app: App, caplog: pytest.LogCaptureFixture) -> None:
    with a_worker(app) as worker, caplog.at_level(logging.WARNING, "kafka.tasks"):
        worker.say_and_wait("a")
        worker.snapshots._failed(KafkaTimeoutError("not delivered"))
        assert "does not show it" not in caplog.text, "it may be the last of an outage"
        for _ in range(2):
            worker.snapshots._failed(KafkaTimeoutError("not delivered"))
        assert caplog.text.count("python -m kafka inspect does not show it for now: not delivered") == 1
        worker.say_and_wait("a")
        for _ in range(2):
            worker.snapshots._failed(KafkaTimeoutError("not delivered"))
    assert caplog.text.count("python -m kafka inspect does not show it for now") == 2


def test_a_broker_that_is_away_costs_no_wait_and_no_line_beside_the_workers_own(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_publisher, "STALE_S", 2.4)
    with EmbeddedBroker(in_process=True) as short_lived:
        lonely = App("shop", bootstrap_servers=short_lived.bootstrap, request_timeout=2)
        worker = AWorker(lonely)
        worker.say_and_wait("a")
        assert last_connect_error(worker.client) is None
    with closing(worker), caplog.at_level(logging.WARNING, "kafka.tasks"):
        worker.say("a")
        worker.wait(lambda: not worker.snapshots._is_busy)
        assert last_connect_error(worker.client)
        worker.say("a")
        began_at = time.monotonic()
    assert time.monotonic() - began_at < SOON_S / 2, "after a failure nothing is waited for"
    assert "python -m kafka inspect does not show it" not in caplog.text


def test_other_peoples_records_in_the_topic_hurt_nobody(app: App, broker: EmbeddedBroker) -> None:
    with a_worker(app) as worker:
        worker.say_and_wait("a")
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        topic = f"{app.name}.workers"
        for key, value in ((None, b"x"), (b"\xff", b"{}"), (None, None), (b"b", b'{"id": "b"}')):
            producer.send(topic, value, key, partition=0).get(SOON_S)
    with Directory(app) as directory:
        assert names(directory) == ["a", "b"]


def test_of_endless_snapshots_the_latest_are_kept_and_large_ones_never(
    app: App, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_reader, "MAX_WORKERS", 3)
    with a_worker(app) as worker:
        worker.say_and_wait("a")
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        topic = f"{app.name}.workers"
        for number in range(20):
            name = b"w%02d" % number
            producer.send(topic, b'{"id": "%b"}' % name, name, partition=0)
        producer.send(topic, b" " * (snapshot_reader.MAX_SNAPSHOT_BYTES + 1), b"large", partition=0)
        producer.send(topic, b'{"id": "w17"}', b"w17", partition=0)
        producer.send(topic, b"{}", b"x" * 1000, partition=0).get(SOON_S)
    with Directory(app) as directory:
        assert sorted(names(directory)) == ["w17", "w18", "w19"]
