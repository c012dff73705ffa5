"""Tests of ``kafka.tasks.delivery.share_group.trimmer``: what is deleted and when, with answers by hand.

At the end with a worker on an embedded broker, and on both brokers in ``test/conformance/test_tasks.py``.
"""

from __future__ import annotations

import logging
import os
import pathlib
import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import pytest

from kafka import admin
from kafka.admin import SharePartitionOffset
from kafka.errors import (
    Cancelled,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
)
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.structs import TopicPartition
from kafka.tasks import App
from kafka.tasks.backends.kafka.connection import BACKGROUND
from kafka.tasks.delivery.share_group import trimmer
from kafka.tasks.delivery.share_group.trimmer import (
    DENIED_S,
    INTERVAL_S,
    CommittedTrimmer,
    QueueTrimmer,
    plan_deletions,
)
from kafka.tasks.format import topics
from kafka.testing import EmbeddedBroker, running_worker
from test.support.waiting import WITHIN_S, until

JOBS, OTHER_JOBS = TopicPartition("jobs", 0), TopicPartition("jobs", 1)
SUSPECT = TopicPartition("suspect", 0)


@pytest.mark.parametrize(
    ("start", "deleted_below", "expected"),
    [
        pytest.param(7, None, 7, id="this worker has not deleted yet"),
        pytest.param(9, 7, 9, id="the group went on"),
        pytest.param(7, 7, None, id="idle"),
        pytest.param(5, 7, 5, id="the group was reset backwards: its offset, not the old one"),
        pytest.param(0, 7, None, id="the group begins anew"),
        pytest.param(-1, 7, None, id="the group was deleted"),
        pytest.param(-1, None, None, id="the group has no offset yet"),
        pytest.param(0, None, None, id="nothing is settled"),
    ],
)
def test_what_is_settled_is_deleted_up_to_the_groups_start_offset(
    start: int, deleted_below: int | None, expected: int | None
) -> None:
    known = {} if deleted_below is None else {JOBS: deleted_below}
    assert plan_deletions({JOBS: start}, known) == ({} if expected is None else {JOBS: expected})


def test_partitions_that_are_not_reported_are_left_alone() -> None:
    assert plan_deletions({OTHER_JOBS: 3}, {JOBS: 7, SUSPECT: 2}) == {OTHER_JOBS: 3}


class Cluster:
    """Start offsets and answers of a cluster; it is also the client. Everything is answered at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = Loop.simulated()
        self.rng = random.Random(0)
        self.retry_backoff = None
        self.starts = {JOBS: 0, OTHER_JOBS: 0, SUSPECT: 0}
        self.group_errors: dict[str, KafkaError] = {}
        self.silent: set[str] = set()
        self.errors: dict[TopicPartition, BaseException] = {}
        self.asked: list[list[str]] = []
        self.deleted: list[dict[TopicPartition, int]] = []
        self.residents: list[object] = []
        monkeypatch.setattr(admin.dialogues, "share_group_offsets", self._share_group_offsets)
        monkeypatch.setattr(admin.dialogues, "delete_records", self._delete_records)
        client: Any = self
        self.trimmer = QueueTrimmer(client, {"jobs": [JOBS, OTHER_JOBS], "suspect": [SUSPECT]})

    def run(self, dialogue: Generator[object, None, None], lane: str) -> Future[None]:
        assert lane == BACKGROUND
        try:
            next(dialogue)
        except StopIteration as end:
            return Future[None]().success(end.value)
        except Exception as error:
            return Future[None]().failure(error)
        raise AssertionError("a step that is not answered at once")

    def add_resident(self, resident: object) -> None:
        self.residents.append(resident)

    def remove_resident(self, resident: object) -> None:
        if resident in self.residents:
            self.residents.remove(resident)

    def trim(self) -> list[dict[TopicPartition, int]]:
        """A round; what it deleted, by request."""
        self.deleted = []
        self.trimmer.trim().result()
        return self.deleted

    def _share_group_offsets(
        self, groups: Mapping[str, Sequence[TopicPartition]], **_: object
    ) -> Generator[object, None, dict[str, object]]:
        self.asked.append(list(groups))
        if self.silent.intersection(groups):
            raise KafkaTimeoutError("no answer")
        found: dict[str, object] = {
            group: {place: SharePartitionOffset(self.starts[place]) for place in places if place in self.starts}
            for group, places in groups.items()
        }
        return {**found, **{group: error for group, error in self.group_errors.items() if group in groups}}
        yield

    def _delete_records(self, offsets: Mapping[TopicPartition, int], **_: object) -> Iterator[object]:
        for place in offsets:
            if place in self.errors:
                raise self.errors[place]
        self.deleted.append(dict(offsets))
        yield from ()


def test_commands_are_deleted_up_to_what_the_owners_of_this_process_have_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch)
    committed = {JOBS: 7, OTHER_JOBS: -1}
    client: Any = cluster
    trimmer = CommittedTrimmer(client, ["jobs"], "old commands", lambda: committed)
    trimmer.trim().result()
    assert cluster.deleted == [{JOBS: 7}]
    assert cluster.asked == []
    del committed[JOBS]  # owned by another process now
    trimmer.trim().result()
    assert cluster.deleted == [{JOBS: 7}]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster(monkeypatch)
    yield made
    made.loop.close()


# -- rounds ------------------------------------------------------------------------------------------------------------


def test_a_round_asks_once_about_all_groups_and_deletes_in_each_topic_what_is_settled(cluster: Cluster) -> None:
    cluster.starts = {JOBS: 10, OTHER_JOBS: 20, SUSPECT: 3}
    assert cluster.trim() == [{JOBS: 10, OTHER_JOBS: 20}, {SUSPECT: 3}]
    assert cluster.asked == [["jobs", "suspect"]]


def test_an_idle_queue_costs_the_one_question(cluster: Cluster) -> None:
    cluster.starts = {JOBS: 10, SUSPECT: -1}
    cluster.trim()
    cluster.asked = []
    assert cluster.trim() == []
    assert cluster.asked == [["jobs", "suspect"]]
    cluster.starts[JOBS] = 12
    assert cluster.trim() == [{JOBS: 12}]


def test_a_group_that_was_reset_and_goes_on_is_never_deleted_beyond(cluster: Cluster) -> None:
    cluster.starts = {JOBS: 1000}
    cluster.trim()
    for start, expected in ((400, [{JOBS: 400}]), (400, []), (-1, []), (500, [{JOBS: 500}]), (1000, [{JOBS: 1000}])):
        cluster.starts = {JOBS: start}
        assert cluster.trim() == expected


# -- failures ----------------------------------------------------------------------------------------------------------


def test_an_error_of_one_group_is_logged_and_the_others_are_trimmed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.starts = {JOBS: 10, SUSPECT: 3}
    cluster.group_errors = {"jobs": GroupAuthorizationFailedError("no")}
    assert cluster.trim() == [{SUSPECT: 3}]
    (line,) = caplog.messages
    assert line.startswith("could not delete the settled jobs of topic jobs, trying again in a minute:")
    cluster.group_errors = {}
    assert cluster.trim() == [{JOBS: 10}]


def test_a_coordinator_that_does_not_answer_keeps_no_other_group_from_being_trimmed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.starts = {JOBS: 10, SUSPECT: 3}
    cluster.silent = {"jobs"}
    assert cluster.trim() == [{SUSPECT: 3}]
    assert cluster.asked == [["jobs", "suspect"], ["jobs"], ["suspect"]]
    assert len(caplog.messages) == 1


def test_a_partition_without_a_leader_keeps_no_other_from_being_trimmed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.starts = {JOBS: 10, OTHER_JOBS: 20}
    cluster.errors = {JOBS: LeaderNotAvailableError("jobs-0")}
    assert cluster.trim() == [{OTHER_JOBS: 20}]
    assert len(caplog.messages) == 1
    cluster.errors = {}
    assert cluster.trim() == [{JOBS: 10}]


def test_an_error_is_logged_once_a_minute(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.group_errors = {topic: GroupAuthorizationFailedError("no") for topic in ("jobs", "suspect")}
    for _ in range(3):
        cluster.trim()
    assert len(caplog.messages) == 1
    cluster.loop.run_until(lambda: False, INTERVAL_S)
    cluster.trim()
    assert len(caplog.messages) == 2


def test_a_topic_whose_records_may_not_be_deleted_is_one_line_with_the_remedy_and_then_an_hours_silence(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.starts = {JOBS: 10, OTHER_JOBS: 20, SUSPECT: 3}
    cluster.errors = {place: TopicAuthorizationFailedError("jobs") for place in (JOBS, OTHER_JOBS)}
    assert cluster.trim() == [{SUSPECT: 3}]
    (line,) = caplog.messages
    assert caplog.records[0].levelno == logging.WARNING
    assert "topic jobs" in line
    assert "kafka-acls.sh --add --allow-principal User:WORKER --operation Delete --topic jobs" in line
    cluster.starts[SUSPECT] = 4
    assert cluster.trim() == [{SUSPECT: 4}]
    assert cluster.asked[-1] == ["suspect"]
    cluster.loop.run_until(lambda: False, DENIED_S)
    cluster.errors = {}
    assert cluster.trim() == [{JOBS: 10, OTHER_JOBS: 20}]
    assert len(caplog.messages) == 1


# -- time --------------------------------------------------------------------------------------------------------------


def test_rounds_come_about_once_a_minute_until_the_client_closes_it(cluster: Cluster) -> None:
    cluster.trimmer.start()
    assert cluster.residents == [cluster.trimmer]
    times: list[float] = []
    for _ in range(10):
        assert cluster.loop.run_until(lambda: len(cluster.asked) > len(times), 2 * INTERVAL_S)
        times.append(cluster.loop.time())
    waits = [after - before for before, after in zip(times, times[1:], strict=False)]
    assert all(0.5 * INTERVAL_S <= wait <= 1.5 * INTERVAL_S for wait in waits)
    assert len(set(waits)) == len(waits)
    cluster.trimmer.close()
    assert cluster.residents == []
    assert not cluster.loop.run_until(lambda: len(cluster.asked) > 10, 10 * INTERVAL_S)


def test_workers_that_start_together_do_not_ask_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_at(seed: int) -> float:
        other = Cluster(monkeypatch)
        other.rng = random.Random(seed)
        other.trimmer.start()
        assert other.loop.run_until(lambda: other.asked, INTERVAL_S)
        at = other.loop.time()
        other.loop.close()
        return at

    assert len({first_at(seed) for seed in range(5)}) == 5


def test_a_fault_in_a_round_is_logged_and_does_not_end_the_rounds(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.starts = {JOBS: 10}
    cluster.errors = {JOBS: ValueError("a fault of ours")}
    cluster.trimmer.start()
    assert cluster.loop.run_until(lambda: cluster.asked, INTERVAL_S)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    cluster.errors = {}
    assert cluster.loop.run_until(lambda: cluster.deleted == [{JOBS: 10}], 2 * INTERVAL_S)


def test_a_round_that_the_clients_end_cuts_off_is_silent_and_the_last(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = Future[None]()
    monkeypatch.setattr(cluster, "run", lambda dialogue, lane: under_way)
    cluster.trimmer.start()
    assert not cluster.loop.run_until(lambda: False, 2 * INTERVAL_S)
    cluster.trimmer.close()
    under_way.failure(Cancelled("the client was closed"))
    monkeypatch.undo()
    assert not cluster.loop.run_until(lambda: cluster.asked, 10 * INTERVAL_S)
    assert caplog.messages == []


def test_a_request_that_is_cancelled_ends_its_round_and_no_other(cluster: Cluster) -> None:
    cluster.starts = {JOBS: 10}
    cluster.errors = {JOBS: Cancelled("the connection was closed")}
    cluster.trimmer.start()
    assert cluster.loop.run_until(lambda: cluster.asked, INTERVAL_S)
    cluster.errors = {}
    assert cluster.loop.run_until(lambda: cluster.deleted == [{JOBS: 10}], 2 * INTERVAL_S)


# -- with a worker -----------------------------------------------------------------------------------------------------

SEGMENT_BYTES = 1 << 20
PAYLOAD_BYTES = 200_000


def noop(text: str) -> None:
    """Does nothing."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments and rounds without a pause."""
    monkeypatch.setattr(topics, "SEGMENT_BYTES", SEGMENT_BYTES)
    monkeypatch.setattr(trimmer, "INTERVAL_S", 0.02)


def test_a_worker_deletes_the_files_of_settled_jobs(tmp_path: pathlib.Path, small: None) -> None:
    with EmbeddedBroker(tmp_path, in_process=True) as broker:
        app = App("trimmed", bootstrap_servers=broker.bootstrap, partitions=1, max_payload_bytes=PAYLOAD_BYTES + 100)
        send = app.task(name="noop", store_result=False)(noop).delay
        with running_worker(app, broker=broker) as worker:
            for _ in range(20):
                send(os.urandom(PAYLOAD_BYTES // 2).hex())
            app.flush(WITHIN_S)
            worker.drain()

            def has_two_segments_at_most() -> bool:
                send("x")  # what was settled last is seen with the next acknowledgement
                worker.drain()
                return sum(_segments(tmp_path)) <= 2 * SEGMENT_BYTES

            until(has_two_segments_at_most)
            assert len(_segments(tmp_path)) <= 2
        app.close(WITHIN_S)


def test_a_worker_without_the_right_to_delete_works_and_says_what_to_do(
    small: None, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(in_process=True) as broker:
        app = App("denied", bootstrap_servers=broker.bootstrap, partitions=2)
        send = app.task(name="noop", store_result=False)(noop).delay
        broker.faults.answer("DeleteRecords", TopicAuthorizationFailedError)
        with running_worker(app, broker=broker) as worker:

            def lines_after_a_job() -> list[str]:
                send("x")
                worker.drain()
                return [line for line in caplog.messages if "settled jobs" in line]

            until(lines_after_a_job)
            (line,) = lines_after_a_job()
        app.close(WITHIN_S)
    assert "topic denied.default" in line
    assert "--operation Delete" in line


def _segments(directory: pathlib.Path) -> list[int]:
    """The sizes of the queue's segments, in bytes."""
    sizes = []
    for path in directory.glob("topics/trimmed.default.*/0/*.log"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:  # it was deleted meanwhile
            continue
    return sizes
