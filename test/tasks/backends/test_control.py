"""Paused queues on a broker: what an operator writes, and what workers make of it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

import pytest

from kafka.admin import ConfigResource, KafkaAdminClient
from kafka.tasks import App, Directory, JobState, UnknownQueue
from kafka.tasks.backends.kafka import control
from kafka.testing import EmbeddedBroker, running_worker
from test.support.waiting import until

SOON_S = 20.0
numbers = itertools.count()


@pytest.fixture
def app(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """An app with the queues mail and default, whose topics exist; its workers look for pauses at once."""
    monkeypatch.setattr(control, "CHECK_S", 0.02)
    made = App(f"shop{next(numbers)}", bootstrap_servers=broker.bootstrap, partitions=1)

    @made.task(name="send", queue="mail")
    def send(number: int) -> int:
        return number

    @made.task(name="print")
    def print_(number: int) -> int:
        return number

    made.backend().route("mail", True)
    made.backend().route("default", True)
    yield made
    made.close()


def set_paused(app: App, is_paused: bool) -> bool:
    return app.backend().set_paused("mail", is_paused)


def topics(broker: EmbeddedBroker) -> list[str]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        return admin.list_topics()


def test_a_running_worker_learns_of_a_pause_and_of_its_end(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, control.__name__)
    with running_worker(app):
        assert set_paused(app, True)
        until(lambda: "queue mail is paused" in caplog.text, "the worker knows of the pause")
        first = app.send("send", [1])  # a fetch that was under way may bring this one, and no further one
        assert app.send("print", [2]).result(SOON_S) == 2
        paused = app.send("send", [3])
        assert app.send("print", [4]).result(SOON_S) == 4
        assert paused.status() is JobState.QUEUED
        assert set_paused(app, False)
        assert [first.result(SOON_S), paused.result(SOON_S)] == [1, 3]
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == control.__name__]
    assert lines == [
        ("WARNING", "queue mail is paused; leasing none of its jobs until it is resumed"),
        ("INFO", "queue mail is not paused any more; leasing its jobs again"),
    ]


def test_who_inspects_the_queues_sees_which_are_paused(app: App) -> None:
    with Directory(app) as directory:

        def paused() -> list[tuple[str, bool]]:
            return [(each.queue, each.paused) for each in directory.queue_lengths([])]

        assert paused() == [("default", False), ("mail", False)], "there is no topic yet"
        set_paused(app, True)
        until(lambda: ("mail", True) in paused(), "the new topic is seen")
        for is_paused in (False, True):
            set_paused(app, is_paused)
            assert paused() == [("default", False), ("mail", is_paused)]


def test_when_the_topic_is_deleted_no_queue_is_paused_and_the_lengths_are_still_known(
    app: App, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "READ_S", 0.5)
    set_paused(app, True)
    with Directory(app) as directory, KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:

        def paused() -> list[tuple[str, bool]]:
            return [(each.queue, each.paused) for each in directory.queue_lengths([])]

        set_paused(app, False)
        set_paused(app, True)
        assert paused() == [("default", False), ("mail", True)]
        admin.delete_topics([app.names.control])
        assert paused() == [("default", False), ("mail", False)]
        set_paused(app, True)
        until(lambda: ("mail", True) in paused(), "the new topic is read from its beginning")


def test_who_may_not_read_which_are_paused_sees_the_lengths_all_the_same(
    app: App, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    set_paused(app, True)
    refusal = broker.faults.answer("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", topic=app.names.control)
    with refusal, Directory(app) as directory:
        for _ in range(2):
            lengths = directory.queue_lengths([])
            assert [(each.queue, each.available, each.paused) for each in lengths] == [
                ("default", 0, None), ("mail", 0, None),
            ]  # fmt: skip
    warnings = [record.getMessage() for record in caplog.records if "which queues are paused" in record.getMessage()]
    assert len(warnings) == 1


def test_a_worker_that_starts_knows_of_a_pause_before_it_leases(app: App, broker: EmbeddedBroker) -> None:
    set_paused(app, True)
    paused = app.send("send", [1])
    app.flush(SOON_S)
    with running_worker(app, broker=broker) as worker:
        assert app.send("print", [2]).result(SOON_S) == 2
        assert worker.counts["leased"] == 1
        assert paused.status() is JobState.QUEUED
        set_paused(app, False)
        worker.drain()
        assert paused.result(SOON_S) == 1


def test_saying_it_again_changes_nothing(app: App) -> None:
    assert [set_paused(app, state) for state in (False, True, True, False, False, True)] == [
        False, True, False, True, False, True,
    ]  # fmt: skip


def test_there_is_no_topic_until_a_queue_is_paused(app: App, broker: EmbeddedBroker) -> None:
    set_paused(app, False)
    with running_worker(app):
        assert app.send("send", [1]).result(SOON_S) == 1
    assert app.names.control not in topics(broker)
    set_paused(app, True)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        (described,) = admin.describe_topics([app.names.control])
        configs = admin.describe_configs([ConfigResource("topic", app.names.control)])["topic"][app.names.control]
    assert len(described["partitions"]) == 1
    assert configs["cleanup.policy"]["value"] == "compact"


def test_a_worker_that_may_not_read_it_says_so_once_and_leases_all(
    app: App, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    set_paused(app, True)
    refusal = broker.faults.answer("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", topic=app.names.control)
    with refusal, running_worker(app):
        assert app.send("send", [1]).result(SOON_S) == 1
    assert [record.levelname for record in caplog.records if "which queues are paused" in record.getMessage()] == [
        "WARNING"
    ]


def test_a_reading_that_takes_too_long_is_repeated(
    app: App, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "READ_S", 0.2)
    caplog.set_level(logging.DEBUG, "kafka.tasks")
    set_paused(app, True)
    slow = broker.faults.delay("Fetch", 0.6, first=1, topic=app.names.control)
    with slow, running_worker(app):
        until(lambda: "queue mail is paused" in caplog.text, "the worker knows of the pause")
        assert slow.hits == 1
    assert "cannot read which queues are paused: could not read topic" in caplog.text


def test_without_its_topic_nothing_is_paused(
    app: App, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "READ_S", 0.3)
    set_paused(app, True)
    with running_worker(app):
        paused = app.send("send", [1])
        app.flush(SOON_S)
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
            admin.delete_topics([app.names.control])
        assert paused.result(SOON_S) == 1


def test_a_missing_queue_is_named_with_the_nearest_one(app: App) -> None:
    with pytest.raises(UnknownQueue, match=rf"no topic {app.name}\.mial; did you mean '{app.name}\.mail'"):
        app.backend().set_paused("mial", True)
