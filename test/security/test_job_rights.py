"""The rights of a task queue's roles, as ``docs/job-delivery.rst`` has them, on Apache Kafka with an authorizer: each
role works with these, and without one of them a worker names it.

One principal has the rights of the role. What belongs to others is done by one that may do everything.
"""

from __future__ import annotations

import itertools
import pathlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, Final, NamedTuple

import pytest

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import KafkaError
from kafka.share import KafkaShareConsumer, ShareRecord
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.tasks import App, DeadJobs, DeadSelection, Directory, JobHandle, JobState, Retry, run_scheduler
from kafka.tasks.delivery.share_group import trimmer
from kafka.tasks.format.offset_metadata import PartitionMarks, encode
from kafka.tasks.pools import make_loop
from test.conformance.test_tasks import Service
from test.security.support import ALICE, Secured
from test.support.certificates import Certificates
from test.support.secure_listeners import secure_broker
from test.support.waiting import WITHIN_S, eventually, look_until, pause, until

pytestmark = [
    pytest.mark.deep("an authorizer, on a broker of its own; kept by test/tasks/backends/test_rights.py (the lines)"),
    pytest.mark.timeout(180),
]

PAGE: Final = pathlib.Path(__file__).resolve().parents[2] / "docs" / "job-delivery.rst"
RESOURCES: Final = {
    "topics": ResourceType.TOPIC,
    "groups": ResourceType.GROUP,
    "transactional ids": ResourceType.TRANSACTIONAL_ID,
}
CALLER: Final = "enqueues, and reads results"
SHARE: Final = "worker in a share group"
GROUP: Final = "worker in a consumer group"
SCHEDULE: Final = "owner of the schedule"
INSPECT: Final = "runs ``inspect``"
OPERATOR: Final = "runs ``queue`` and ``dead``"
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
}


class Right(NamedTuple):
    """An operation on everything whose name begins with an app's, and this."""

    resource: str
    suffix: str
    operation: str

    def rule(self, app: str) -> ACL:
        """For the principal of the tests."""
        prefixed = ResourcePattern(RESOURCES[self.resource], app + self.suffix, ACLResourcePatternType.PREFIXED)
        words = "".join(f"_{each}" if each.isupper() else each.upper() for each in self.operation).lstrip("_")
        return ACL(f"User:{ALICE}", "*", ACLOperation[words], ACLPermissionType.ALLOW, prefixed)

    def command(self, app: str) -> str:
        """The end of the command that grants it."""
        resource = self.resource.removesuffix("s").replace(" ", "-")
        return f"--operation {self.operation} --{resource} {app}{self.suffix}"


def rights_of_roles() -> dict[str, list[Right]]:
    """The table of the page."""
    lines = PAGE.read_text().partition("by role.")[2].splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("====")]
    role, found = "", dict[str, list[Right]]()
    _, second, third = (column.start() for column in re.finditer("=+", lines[rules[0]]))
    for line in lines[rules[1] + 1 : rules[2]]:
        name, place, operations = line[:second].strip(), line[second:third].strip(), line[third:]
        role = role if name == "\\" else name
        resource, _, prefix = place.rstrip("`").partition(" ``APP")
        found.setdefault(role, []).extend(Right(resource, prefix, each.strip()) for each in operations.split(","))
    return found


ROLES: Final = rights_of_roles()
_numbers = itertools.count()


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[Secured]:
    with secure_broker("apache", certificates, SETTINGS) as places:
        yield Secured(places)


class Desk:
    """An app, as the principal of the role has it and as one that may do everything."""

    def __init__(self, secured: Secured) -> None:
        self._secured = secured
        self._stack = ExitStack()
        self.name = f"desk{next(_numbers)}"
        self._admin = self._stack.enter_context(KafkaAdminClient(**secured.plain()))

    def grant(self, rights: list[Right]) -> None:
        rules = {right.rule(self.name) for right in rights}
        assert self._admin.create_acls(rules)["failed"] == []
        anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
        mine = ACLFilter(f"User:{ALICE}", None, ACLOperation.ANY, ACLPermissionType.ANY, anything)
        until(lambda: rules <= set(self._admin.describe_acls(mine)[0]), "the broker knows the rules")

    def app(self, delivery: str = "share", *, is_role: bool = False) -> App:
        client: dict[str, Any] = self._secured.settings("SASL") if is_role else self._secured.plain()
        app = App(self.name, partitions=1, stop_grace=3.0, kill_grace=1.0, delivery=delivery, **client)

        @app.task(name="add")
        def add(a: int, b: int) -> int:
            return a + b

        @app.task(name="fail", retry=Retry(max_attempts=2, backoff=lambda attempt: 0.1, jitter=False))
        def fail() -> None:
            raise OSError("the disk is full")

        self._stack.callback(app.close, 5)
        return app

    def end_in_a_consumer_group(self, first: int) -> None:
        """Two jobs behind this one."""
        marks = encode(first, PartitionMarks(((first + 1, first + 2),)))
        at = {TopicPartition(f"{self.name}.default", 0): OffsetAndMetadata(first, marks, -1)}
        self._admin.alter_group_offsets(f"{self.name}.default.group", at)

    def end_in_a_share_group(self) -> None:
        """Those behind the first two, but the last two."""
        topic = f"{self.name}.default"
        with KafkaShareConsumer(
            topic, group_id=topic, share_acknowledgement_mode="explicit", **self._secured.plain()
        ) as consumer:
            taken: list[ShareRecord] = []

            def look() -> list[ShareRecord]:
                taken.extend(record for records in consumer.poll(100).values() for record in records)
                return taken

            look_until(look, lambda found: len(found) >= 7)
            for record in taken[2:5]:
                consumer.acknowledge(record)
            consumer.commit()

    def work(self, delivery: str, *, is_role: bool = False, schedule: bool = False) -> Service:
        service = Service(self.app(delivery, is_role=is_role), schedule=schedule)
        self._stack.callback(service.stop)
        return service

    def schedule(self, *, is_role: bool = False) -> None:
        """Own the schedule in a thread; raises what keeps it from that."""
        loop, started, errors = make_loop(), threading.Event(), list[BaseException]()
        app = self.app(is_role=is_role)

        def run() -> None:
            with closing(loop):
                try:
                    run_scheduler(app, loop, lambda _: started.set())
                except BaseException as error:
                    errors.append(error)
                finally:
                    started.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert started.wait(WITHIN_S)
        if errors:
            thread.join(WITHIN_S)
            raise errors[0]
        self._stack.callback(thread.join, WITHIN_S)
        self._stack.callback(loop.call_soon_threadsafe, loop.stop)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def desk(secured: Secured) -> Iterator[Desk]:
    made = Desk(secured)
    yield made
    made.close()


def run_jobs(app: App) -> None:
    """A job that succeeds, one that is due later, and one that fails, is tried again, and is dead."""
    add, fail = app.tasks["add"], app.tasks["fail"]
    jobs: list[JobHandle[Any]] = [add.delay(1, 2), add.using(delay=0.5).delay(1, 2)]
    failing = fail.delay()
    assert [job.result(WITHIN_S) for job in jobs] == [3, 3]
    assert failing.wait(WITHIN_S)
    assert failing.status() is JobState.FAILURE


def call(desk: Desk) -> None:
    app = desk.app(is_role=True)
    app.tasks["add"].delay(1, 2).wait(0)


def inspect(desk: Desk) -> None:
    """With a worker, and a topic of pauses."""
    desk.work("group")
    desk.app().backend().set_paused("default", True)
    with Directory(desk.app(is_role=True)) as directory:
        assert [each.paused for each in directory.queue_lengths([])] == [True]
        assert until(directory.workers)
        assert [each.delivery for each in directory.deliveries()] == ["group"]


def operate(desk: Desk) -> None:
    """All that the commands do: with a job that is dead, and one that has not ended before others that have."""
    app = desk.app()
    service = desk.work("group", schedule=True)
    add, fail = app.tasks["add"], app.tasks["fail"]
    for failing in [fail.delay() for _ in range(3)]:
        assert failing.wait(WITHIN_S)
    service.stop()
    for number in range(10):
        add.delay(number, 1)
    app.flush(WITHIN_S)
    desk.end_in_a_consumer_group(3)
    backend = desk.app(is_role=True).backend()
    backend.set_paused("default", True)
    backend.set_paused("default", False)
    assert backend.migrate("default", "share").moved
    desk.end_in_a_share_group()
    assert backend.migrate("default", "group").moved
    with DeadJobs(desk.app(is_role=True), "default") as dead:
        jobs = [job.id for job in dead.select(DeadSelection())]
        dead.replay(DeadSelection(ids=jobs[1:2]))
        dead.drop(DeadSelection(ids=jobs[0:1]))
    with closing(backend.purge("default")) as purge:
        assert purge.jobs
        purge.delete()


BEGIN: Final[dict[str, Callable[[Desk], object]]] = {
    SHARE: lambda desk: desk.work("share", is_role=True),
    GROUP: lambda desk: desk.work("group", is_role=True),
    SCHEDULE: lambda desk: desk.schedule(is_role=True),
}
"""Of those that run for long."""
DO: Final[dict[str, Callable[[Desk], object]]] = {CALLER: call, INSPECT: inspect, OPERATOR: operate}


def test_the_table_has_these_roles() -> None:
    assert list(ROLES) == [CALLER, SHARE, GROUP, SCHEDULE, INSPECT, OPERATOR]


def test_a_caller_enqueues_reads_results_and_cancels_with_its_rights(desk: Desk) -> None:
    desk.grant(ROLES[CALLER])
    app = desk.app(is_role=True)
    first = app.tasks["add"].delay(1, 2)  # this makes the topics
    desk.work("share")
    desk.schedule()
    run_jobs(app)
    assert first.result(WITHIN_S) == 3
    assert desk.app(is_role=True).job(first.id).result(WITHIN_S) == 3
    later = app.tasks["add"].using(delay=100).delay(1, 2)
    later.cancel()
    eventually(later.status, JobState.REVOKED)
    assert app.schedule.list() == []


@pytest.mark.parametrize("role", BEGIN)
def test_a_role_that_runs_for_long_works_with_its_rights(
    desk: Desk, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk.grant(ROLES[role])
    BEGIN[role](desk)
    if role == SCHEDULE:
        desk.work("share")
    else:
        desk.schedule()
    run_jobs(desk.app("group" if role == GROUP else "share"))
    assert "not authorized" not in caplog.text.replace("members of groups use the classic protocol: not authorized", "")


def test_a_worker_in_a_consumer_group_uses_kip_848_with_one_more_right(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    more = Right("groups", ".", "AlterConfigs")
    desk.grant(ROLES[GROUP])
    service = desk.work("group", is_role=True)
    assert service.worker is not None
    assert service.worker._delivery.protocol == "classic"  # type: ignore[attr-defined]
    assert more.command(desk.name) in caplog.text
    service.stop()
    desk.grant([more])
    service = desk.work("group", is_role=True)
    assert service.worker is not None
    assert service.worker._delivery.protocol == "consumer"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("role", "command"), [(INSPECT, inspect), (OPERATOR, operate)])
def test_commands_work_with_their_rights(desk: Desk, role: str, command: Callable[[Desk], None]) -> None:
    desk.grant(ROLES[role])
    command(desk)


LACKS: Final = [(role, right) for role in (*BEGIN, *DO) for right in ROLES[role]]


@pytest.mark.parametrize(("role", "right"), LACKS, ids=lambda each: each if isinstance(each, str) else "-".join(each))
def test_without_a_right_one_line_names_it(
    desk: Desk, role: str, right: Right, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimmer, "INTERVAL_S", 0.5)
    desk.grant([each for each in ROLES[role] if each != right])
    try:
        begun = {**BEGIN, **DO}[role](desk)
    except KafkaError as error:
        text = str(error)
    else:
        if right.operation == "Delete" and role == SCHEDULE:
            desk.work("share")
        add = desk.app("group" if role == GROUP else "share").tasks["add"]

        def give_work() -> None:
            if right.operation == "Delete":  # of what is settled, and of commands
                job = add.using(delay=0.1).delay(1, 2) if role == SCHEDULE else add.delay(1, 2)
                assert job.result(WITHIN_S) == 3
            else:
                pause()

        until(
            lambda: right.command(desk.name) in caplog.text,
            "the line", meanwhile=give_work, shown=lambda: caplog.text,
        )  # fmt: skip
        text = next(line for line in caplog.messages if right.command(desk.name) in line)
        if isinstance(begun, Service) and right.operation != "Delete":
            begun._thread.join(WITHIN_S)
            assert isinstance(begun._error, KafkaError), "the worker ends"
    assert right.command(desk.name) in text
    assert "\n" not in text
