"""A migration that is killed, at each request that changes something: run again it comes to the same end."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from kafka import KafkaAdminClient
from kafka.errors import CoordinatorLoadInProgressError, IllegalStateError, KafkaConfigurationError
from kafka.share import KafkaShareConsumer, ShareRecord
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.tasks import App, run_worker
from kafka.tasks.format.offset_metadata import PartitionMarks, encode
from kafka.testing import EmbeddedBroker, running_worker
from test.support.waiting import WITHIN_S, eventually, look_until, until

numbers = itertools.count()
ENDED = (1, 2, 4)
"""Of ten jobs; the others are to run."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Which forgets members soon that were killed."""
    settings = {
        "group.share.min.session.timeout.ms": "500",
        "group.share.session.timeout.ms": "500",
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.heartbeat.interval.ms": "100",
    }
    with EmbeddedBroker(in_process=True, settings=settings) as running:
        yield running


class Queue:
    """Ten jobs in one partition."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.app = App(f"shop{next(numbers)}", bootstrap_servers=broker.bootstrap, partitions=1)
        self.runs: Counter[int] = Counter()
        self.ended = ENDED

        @self.app.task(name="run", queue="mail")
        def run(number: int) -> None:
            self.runs[number] += 1

        for number in range(10):
            run.delay(number)
        self.app.flush(WITHIN_S)
        self.topic = self.app.names.queue("mail")

    def end_in_a_consumer_group(self) -> None:
        """Some have ended, as a worker commits it that gives its partition up."""
        metadata = encode(0, PartitionMarks(((1, 2), (4, 4))))
        with closing(KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)) as admin:
            at = {TopicPartition(self.topic, 0): OffsetAndMetadata(0, metadata, -1)}
            admin.alter_group_offsets(self.app.names.group("mail"), at)

    def end_in_a_share_group(self) -> None:
        """Some have ended, and a worker that was given all of them is gone."""
        with closing(KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)) as admin:
            for topic in self.app.names.job_topics("mail"):
                admin.alter_share_group_offsets(topic, {TopicPartition(topic, 0): 0})
        with KafkaShareConsumer(
            self.topic,
            group_id=self.topic,
            bootstrap_servers=self.broker.bootstrap,
            share_acknowledgement_mode="explicit",
        ) as consumer:
            taken: list[ShareRecord] = []

            def look() -> list[ShareRecord]:
                taken.extend(record for records in consumer.poll(100).values() for record in records)
                return taken

            look_until(look, lambda found: len(found) >= 10)
            for record in taken:
                if record.offset in self.ended:
                    consumer.acknowledge(record)
            consumer.commit()

    def kill_at(self, to: str, api: str, when: str) -> None:
        """Run the command until this request is made, which has an effect (``after``) or none, and kill it."""
        command = [sys.executable, "-m", "kafka", "queue", "migrate", self.topic, "--to", to]
        with self.broker.faults.drop(api, when=when, first=1) as fault:
            process = subprocess.Popen([*command, "--bootstrap-server", self.broker.bootstrap])
            fault.wait(1, WITHIN_S)
            process.kill()
            process.wait(WITHIN_S)

    def migrate(self, to: str) -> None:
        """Until no member of the killed one is left."""

        def is_done() -> bool:
            try:
                self.app.backend().migrate("mail", to)
            except IllegalStateError as error:
                assert "has workers" in str(error)
                return False
            return True

        until(is_done)

    def check(self, most: int) -> None:
        """What has not ended runs, up to ``most`` times, and what has does not."""
        left = set(range(10)) - set(self.ended)
        with running_worker(self.app, broker=self.broker), closing(self.app.backend().snapshot_reader()) as reader:
            eventually(lambda: set(self.runs), left)
            until(lambda: not reader.backlogs(["mail"])[0].unfinished)
        assert set(self.runs) == left
        assert max(self.runs.values()) <= most


@pytest.fixture
def queue(broker: EmbeddedBroker) -> Iterator[Queue]:
    made = Queue(broker)
    yield made
    made.app.close()


TIMES = ("before", "after")


@pytest.mark.parametrize("when", TIMES)
@pytest.mark.parametrize("api", ["TxnOffsetCommit", "EndTxn", "AlterShareGroupOffsets", "DeleteGroups"])
def test_a_killed_migration_to_share_groups_goes_on(queue: Queue, api: str, when: str) -> None:
    queue.end_in_a_consumer_group()
    queue.kill_at("share", api, when)
    queue.migrate("share")
    queue.check(most=1)


@pytest.mark.parametrize("when", TIMES)
@pytest.mark.parametrize(
    ("api", "most"), [("Produce", 2), ("ShareAcknowledge", 2), ("OffsetCommit", 1), ("DeleteGroups", 1)]
)
def test_a_killed_migration_to_a_consumer_group_goes_on(queue: Queue, api: str, when: str, most: int) -> None:
    """A job that was written and not accepted is there twice."""
    queue.end_in_a_share_group()
    queue.kill_at("group", api, when)
    queue.migrate("group")
    queue.check(most)


@pytest.mark.parametrize(
    ("to", "api", "by"),
    [("share", "JoinGroup", "a share group"), ("group", "ShareGroupHeartbeat", "a consumer group")],
)
def test_a_worker_that_joins_after_a_migration_ends_with_one_line(queue: Queue, to: str, api: str, by: str) -> None:
    """It has chosen before."""
    if to == "share":
        queue.end_in_a_consumer_group()
    else:
        queue.ended = tuple(range(5))  # the migration is to join no share group
        queue.end_in_a_share_group()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            app = App(queue.app.name, bootstrap_servers=queue.broker.bootstrap, partitions=1, queues=["mail"])
            run_worker(app, ["mail"], "threads")
        except BaseException as error:
            errors.append(error)

    with queue.broker.faults.answer(api, CoordinatorLoadInProgressError) as join:
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        join.wait(1, WITHIN_S)
        queue.app.backend().migrate("mail", to)
    worker.join(WITHIN_S)
    (error,) = errors
    assert isinstance(error, KafkaConfigurationError)
    assert f"{queue.topic} are delivered by {by} by now: queue migrate has ended" in str(error)
    assert not queue.runs
    queue.check(most=1)


def test_a_worker_that_joins_share_groups_before_a_migration_commits_goes_on(queue: Queue) -> None:
    """It is noticed by its membership, right before its groups would be deleted."""
    queue.ended = tuple(range(5))
    queue.end_in_a_share_group()
    errors: list[BaseException] = []

    def migrate() -> None:
        try:
            queue.app.backend().migrate("mail", "group")
        except BaseException as error:
            errors.append(error)

    with ExitStack() as stack:
        with queue.broker.faults.answer("OffsetCommit", CoordinatorLoadInProgressError) as commit:
            migration = threading.Thread(target=migrate, daemon=True)
            migration.start()
            commit.wait(1, WITHIN_S)
            stack.enter_context(running_worker(queue.app, broker=queue.broker))
            eventually(lambda: set(queue.runs), set(range(5, 10)))
        migration.join(WITHIN_S)
    (error,) = errors
    assert isinstance(error, IllegalStateError)
    assert "has workers" in str(error)
    queue.check(most=1)
