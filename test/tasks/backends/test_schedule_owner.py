"""The owner of a partition of the schedule on the embedded broker: killed between any two requests, refused by the
broker, given what it cannot read."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient
from kafka.errors import (
    BrokerResponseError,
    GroupAuthorizationFailedError,
    InvalidTransactionTimeoutError,
    KafkaError,
    TransactionalIdAuthorizationFailedError,
    UnstableOffsetCommitError,
)
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.tasks import App, run_worker
from kafka.tasks.backends.kafka import schedule_owner, schedule_owners, transactions
from kafka.tasks.backends.kafka.schedule_owner import OWNER_STAGES, OwnerStage
from kafka.tasks.backends.kafka.transactions import check_transactions
from kafka.tasks.format.commands import ADD, CANCEL, DECLARE, LOOK, RUN, encode_command, put_headers
from kafka.tasks.format.envelope import Header
from kafka.tasks.format.job_id import time_of
from kafka.tasks.schedule import machine as machine_module
from kafka.tasks.schedule.entries import EntryDefinition
from kafka.tasks.worker.worker import Worker
from kafka.testing import EmbeddedBroker
from test.support.waiting import until
from test.tasks.schedule_scene import OwnerProcess, Scene

numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with EmbeddedBroker(in_process=True, settings=settings) as running:
        yield running


@pytest.fixture
def scene(broker: EmbeddedBroker) -> Iterator[Scene]:
    made = Scene(broker.bootstrap, f"shop{next(numbers)}")
    yield made
    broker.faults.clear()
    made.close()


def test_every_stage_but_the_last_can_begin_anew_or_end() -> None:
    assert OWNER_STAGES.keys() == set(OwnerStage)
    for stage in (OwnerStage.FENCING, OwnerStage.LOADING, OwnerStage.RUNNING):
        assert {OwnerStage.FENCING, OwnerStage.CLOSED} <= OWNER_STAGES[stage]
    assert not OWNER_STAGES[OwnerStage.CLOSED]


def test_an_owner_whose_clock_ran_ahead_while_it_was_idle_asks_for_the_time_and_starts_nothing_early(
    scene: Scene,
) -> None:
    """As drift does it in weeks, in one moment."""
    job = own_a_job_that_waits(scene, 1.0)
    clock = scene.backend.clock
    wall = clock._wall
    clock._wall = lambda: wall() + 600.0
    look = scene.ask(LOOK, job)
    scene.until(lambda: scene.answers_to(look))
    assert scene.moved == []
    scene.until(lambda: scene.moved)
    assert scene.moved_at[job] >= time_of(job)


@pytest.mark.parametrize("what", ["entry", "row"])
def test_what_is_next_is_not_late_where_little_is_known_of_the_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """After a day without a record; of a periodic entry, and of a job that is no object before it is near."""
    monkeypatch.setattr(machine_module, "KEEP_MS", 200)
    scene.own()
    scene.until(lambda: scene.owner().stage is OwnerStage.RUNNING)
    if what == "row":
        job = scene.put(1.0)
        look = scene.ask(LOOK, job)
    else:
        times = {"every_s": 1.0, "anchor_ms": 0}
        entry = EntryDefinition("e", times, "skip", "mail", "send", (("name", b"send"),), b"[]")
        scene.send_entry(encode_command(ADD, "e", request=(look := scene.new_id()), body=entry.to_bytes()))
    scene.until(lambda: scene.answers_to(look))
    scene.backend.clock._observed_ms -= 86_400_000
    scene.moved.clear()
    scene.until(lambda: scene.moved)
    moved = scene.moved[0]
    assert 0 <= scene.moved_at[moved] - time_of(moved) < 1_000


def test_an_owner_that_does_not_learn_the_time_starts_what_is_certainly_due(scene: Scene) -> None:
    job = own_a_job_that_waits(scene, 0.3)
    owner, clock = scene.owner(), scene.backend.clock
    asked: list[float] = []

    def never() -> Future[None]:
        asked.append(owner._loop.time())
        return Future()

    owner._context = owner._context._replace(learn_time=never)
    clock._observed_ms -= 60_000
    assert clock.earliest_ms() < clock.now_ms() - 25
    scene.until(lambda: scene.moved)
    assert scene.moved_at[job] >= time_of(job)
    assert len(asked) == 1


def test_an_owner_goes_on_where_the_broker_has_lost_the_end_of_a_transaction_in_the_offsets(
    broker: EmbeddedBroker, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As Apache Kafka 4.3.0 may when it is killed in the midst of a commit: it answers UNSTABLE_OFFSET_COMMIT for ever
    to those who ask for a stable offset."""
    first = scene.own()
    jobs = [scene.put() for _ in range(3)]
    scene.until(lambda: len(scene.moved) == 3)
    first.is_alive = False
    monkeypatch.setattr(schedule_owner, "UNSTABLE_S", 0.5)
    asked: list[bool] = []
    listed = schedule_owner.committed_offsets

    def list_committed(*given: Any, require_stable: bool = False) -> Coroutine[Any, Any, Any]:
        asked.append(require_stable)
        if not require_stable:
            broker.faults.clear()
        return listed(*given, require_stable=require_stable)

    monkeypatch.setattr(schedule_owner, "committed_offsets", list_committed)
    broker.faults.answer("OffsetFetch", UnstableOffsetCommitError, client_id="owner1")
    scene.own()
    jobs.append(scene.put())
    scene.until(lambda: len(scene.moved) == 4)
    assert asked == [True, False]
    assert set(scene.count_moved()) == set(jobs)
    assert "the brokers have lost the end of a transaction" in caplog.text


def test_jobs_that_are_due_soon_after_a_round_share_the_next_one(broker: EmbeddedBroker, scene: Scene) -> None:
    own_a_job_that_waits(scene, 3600)
    jobs = {scene.put(1.0 + 0.01 * number) for number in range(30)}
    look = scene.ask(LOOK, max(jobs))
    scene.until(lambda: scene.answers_to(look))
    assert scene.moved == []
    before = broker.requests.count
    scene.until(lambda: len(scene.moved) == len(jobs))
    rounds = len(broker.requests.find("EndTxn", client_id="owner0", after=before))
    assert 1 <= rounds <= 0.3 / schedule_owner.LINGER_S + 2


def own_a_job_that_waits(scene: Scene, delay_s: float) -> str:
    """Of an owner that has it."""
    scene.own()
    job = scene.put(delay_s)
    look = scene.ask(LOOK, job)
    scene.until(lambda: scene.answers_to(look))
    assert scene.moved == []
    return job


@pytest.mark.parametrize("api", ["Produce", "TxnOffsetCommit", "EndTxn"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_that_is_lost_within_a_transaction_costs_and_doubles_nothing(
    broker: EmbeddedBroker, scene: Scene, api: str, when: str
) -> None:
    owner = scene.own()
    scene.until(lambda: owner.owner.stage is OwnerStage.RUNNING)
    broker.faults.close(api, when=when, client_id="owner0", first=2)
    jobs = [scene.put() for _ in range(5)]
    scene.until(lambda: set(jobs) <= set(scene.moved))
    marker = scene.ask(LOOK, jobs[0])
    scene.until(lambda: scene.answers_to(marker))
    assert set(scene.count_moved().values()) == {1}


def test_offsets_that_the_group_refuses_are_sent_again_without_a_restart(
    broker: EmbeddedBroker, scene: Scene
) -> None:
    """ILLEGAL_GENERATION (22): the group has rebalanced since the owner's member has heard of it."""
    owner = scene.own()
    scene.until(lambda: owner.owner.stage is OwnerStage.RUNNING)
    machine = owner.owner.machine
    refused = broker.faults.answer("TxnOffsetCommit", 22, first=2)
    job = scene.put()
    scene.until(lambda: job in scene.moved)
    assert refused.hits == 2
    assert scene.count_moved() == {job: 1}
    assert owner.owner.machine is machine


def test_commands_that_the_last_owner_applied_while_the_next_one_took_over_are_not_applied_twice(
    broker: EmbeddedBroker, scene: Scene
) -> None:
    first = scene.own()
    scene.until(lambda: first.owner.stage is OwnerStage.RUNNING)
    held = broker.faults.delay("InitProducerId", seconds=0.5, when="before", client_id="owner1")
    second = scene.own()
    scene.until(lambda: second.request_count and second.owner.stage is OwnerStage.FENCING)
    cancel = scene.ask(CANCEL, scene.put(3600))
    scene.until(lambda: scene.answers_to(cancel))
    scene.until(lambda: held.hits and second.owner.stage is OwnerStage.RUNNING)
    first.owner.drop()
    marker = scene.ask(LOOK, scene.new_id())
    scene.until(lambda: scene.answers_to(marker))
    assert scene.answers_to(cancel) == [{"waiting": True}]


def test_a_fenced_owner_starts_again_and_logs_it_once(
    broker: EmbeddedBroker, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    owner = scene.own()
    scene.until(lambda: owner.owner.stage is OwnerStage.RUNNING)
    fenced = broker.faults.answer("EndTxn", 90, first=3)
    job = scene.put()
    scene.until(lambda: job in scene.moved)
    assert fenced.hits == 3
    assert scene.count_moved() == {job: 1}
    lines = [record for record in caplog.records if record.name == schedule_owners.__name__]
    assert [(line.levelname, "starts again" in line.getMessage()) for line in lines] == [("WARNING", True)]


def test_jobs_of_a_queue_without_topics_end_as_failures_and_hold_up_no_others(scene: Scene) -> None:
    scene.own()
    lost, _, job = scene.put(queue="nowhere"), scene.put(queue="a b/c"), scene.put()  # that is no queue's name
    scene.until(lambda: job in scene.moved and scene.states)
    assert scene.states == [(lost, "FAILURE")]
    assert scene.moved == [job]


PARTITION_OF_KEY = {
    "21": 0,
    "foobar": 2,
    "a-little-bit-long-string": 0,
    "a-little-bit-longer-string": 3,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": 1,
    "abc": 3,
}
"""The keys of Java's UtilsTest.testMurmur2, and their hashes there without the sign, modulo 4."""


def test_a_job_of_an_ordered_queue_comes_to_the_partition_of_its_key_by_its_client_and_by_the_schedule(
    broker: EmbeddedBroker
) -> None:
    scene = Scene(broker.bootstrap, f"shop{next(numbers)}", partitions=4)
    app, topic, found = scene.app, scene.names.queue("mail"), []
    app.queue("mail", ordered=True)
    app.task(name="send", queue="mail")(lambda: None)
    options: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with KafkaConsumer(topic, scene.names.due("mail"), bootstrap_servers=scene.bootstrap, **options) as reader:
        try:
            scene.join()
            for key in PARTITION_OF_KEY:
                app.send("send", key=key)
                app.send("send", key=key, delay=0.001)
            app.flush(20)

            def is_done() -> bool:
                for records in reader.poll(0).values():
                    found.extend((record.topic, (record.key or b"").decode(), record.partition) for record in records)
                return len(found) == 2 * len(PARTITION_OF_KEY)

            scene.until(is_done, within_s=30)
        finally:
            scene.close()
    assert sorted(found) == sorted(2 * [(topic, key, partition) for key, partition in PARTITION_OF_KEY.items()])


def test_jobs_of_an_ordered_queue_without_a_topic_end_as_failures(scene: Scene) -> None:
    scene.own()
    lost = scene.new_id()
    own: list[Header] = [("name", b"send"), ("id", lost.encode()), ("generation", b"1")]
    scene.send(lost, b"{}", put_headers("nowhere", b"k", scene.now_ms(), own, is_ordered=True))
    job = scene.put()
    scene.until(lambda: job in scene.moved and scene.states)
    assert scene.states == [(lost, "FAILURE")]


def test_an_entry_that_runs_as_soon_as_it_is_added_does_so_where_its_queue_has_no_topics(scene: Scene) -> None:
    entry = EntryDefinition("e", {"every_s": 60, "anchor_ms": 0}, "skip", "gone", "send", (("name", b"send"),), b"[]")
    for kind, body in ((ADD, entry.to_bytes()), (RUN, b"")):
        record = encode_command(kind, "e", request=scene.new_id(), body=body)
        scene.send_entry(record)
    owner = scene.own()
    job = scene.put()
    scene.until(lambda: job in scene.moved and len(scene.answers) == 2)
    run_now = scene.answers[1][1]["job"]
    scene.until(lambda: (run_now, "FAILURE") in scene.states)
    assert owner.owner.moved_count == 1


def test_a_queue_whose_topics_are_deleted_holds_up_the_others_for_one_timeout_only(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "REQUEST_TIMEOUT_S", 0.5)
    scene.backend.route("print", True)
    scene.own()
    first = scene.put(queue="print")
    scene.until(lambda: scene.owner().moved_count == 1)
    lost = scene.put(1.0, queue="print")
    with KafkaAdminClient(bootstrap_servers=scene.bootstrap) as admin:
        admin.delete_topics([scene.names.due("print")])
    job = scene.put(1.0)
    scene.until(lambda: job in scene.moved and scene.states)
    assert scene.states == [(lost, "FAILURE")]
    assert first not in scene.moved  # it was in that topic


def test_what_is_no_command_is_logged_and_skipped(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.own()
    scene.send(scene.new_id(), b"", [])
    scene.send(scene.new_id(), b"", [("schedule-command", b"DANCE")])
    job = scene.put()
    scene.until(lambda: job in scene.moved)
    assert any("ignoring a command for the schedule" in message for message in caplog.messages)


def test_the_offset_of_commands_that_change_nothing_is_committed_within_a_second_or_so(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_owner, "OFFSET_LAG_S", 0.05)
    owner = scene.own()
    job = scene.put()
    scene.until(lambda: job in scene.moved and owner.owner.committed == 1)
    scene.put(job_id=job)  # it is known
    scene.until(lambda: owner.owner.committed == 2)


def test_more_commands_than_an_owner_holds_wait_at_the_broker(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_owner, "MOST_WAITING", 20)
    monkeypatch.setattr(schedule_owner, "ROUND_COMMANDS", 10)
    owner = scene.own()
    most = 0
    jobs = {scene.put() for _ in range(2_000)}

    def is_done() -> bool:
        nonlocal most
        most = max(most, len(owner.owner._waiting))
        return jobs <= set(scene.moved)

    scene.until(is_done)
    assert set(scene.count_moved().values()) == {1}
    assert most <= 20 + 500  # what comes at once is max_poll_records at most


def test_records_that_do_not_fit_are_read_by_turns(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafka.tasks.schedule import machine

    first = scene.own()
    jobs = [scene.put(3600) for _ in range(30)]
    look = scene.ask(LOOK, jobs[-1])
    scene.until(lambda: scene.answers_to(look))
    first.is_alive = False
    monkeypatch.setattr(machine, "MOST_KEPT_BYTES", 1)
    scene.own()
    cancels = [scene.ask(CANCEL, job) for job in jobs]
    scene.until(lambda: all(scene.answers_to(cancel) for cancel in cancels))
    assert [scene.answers_to(cancel) for cancel in cancels] == [[{"waiting": True}]] * 30


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TransactionalIdAuthorizationFailedError, r"--operation Write --transactional-id shop\d+. --resource"),
        (InvalidTransactionTimeoutError, "transaction.max.timeout.ms to 10000 or more"),
    ],
)
def test_transactions_that_cannot_work_are_an_error_before_anything_begins(
    broker: EmbeddedBroker, scene: Scene, error: type[BrokerResponseError], text: str
) -> None:
    process = scene.join()
    settings = scene.app.settings
    check_transactions(process.client, scene.names, settings, "the schedule")
    broker.faults.answer("InitProducerId", error)
    with pytest.raises(KafkaError, match=text):
        check_transactions(process.client, scene.names, settings, "the schedule")


def test_a_cluster_without_a_coordinator_of_transactions_is_an_error_after_a_while(
    broker: EmbeddedBroker, scene: Scene
) -> None:
    process = scene.join()
    broker.faults.answer("InitProducerId", 15)  # COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError, match="transaction.state.log.replication.factor"):
        check_transactions(process.client, scene.names, scene.app.settings, "the schedule", 0.3)


def test_who_may_not_be_a_member_says_so_and_tries_again_later(
    broker: EmbeddedBroker, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schedule_owners, "REJOIN_S", 0.1)
    caplog.set_level(logging.WARNING)
    denied = broker.faults.answer("JoinGroup", GroupAuthorizationFailedError, first=2)
    process = scene.join()
    scene.until(lambda: process.member.snapshot().running == 1)
    assert denied.hits == 2
    (line,) = [message for message in caplog.messages if "cannot own partitions" in message]
    assert "--operation Read --group shop" in line


def declaring(scene: Scene, body: bytes = b'{"version":"1","entries":[]}') -> OwnerProcess:
    """A process that is to say to the partition which periodic jobs its code declares."""
    process = scene.start()
    process.member._declared = [(0, encode_command(DECLARE, "", body=body))]
    return process


def test_periodic_jobs_that_fit_no_record_cost_no_partition(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    process = declaring(scene, bytes(2_000_000))
    process.member.start()
    job = scene.put()
    scene.until(lambda: job in scene.moved)
    assert [line for line in caplog.messages if "periodic jobs" in line]


def test_periodic_jobs_that_cannot_be_declared_now_cost_no_partition(
    broker: EmbeddedBroker, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """TOPIC_AUTHORIZATION_FAILED (29)."""
    refused = broker.faults.answer("Produce", 29, client_id="owner0", first=1)
    process = declaring(scene)
    process.member.start()
    scene.until(lambda: refused.hits and process.member.snapshot().running)
    scene.until(lambda: [line for line in caplog.messages if "periodic jobs" in line])
    job = scene.put()
    scene.until(lambda: job in scene.moved)
    assert not [line for line in caplog.messages if "cannot own partitions" in line]


def test_a_member_that_is_closed_while_it_declares_warns_of_nothing(
    broker: EmbeddedBroker, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    held = broker.faults.delay("Produce", seconds=0.5, when="before", client_id="owner0")
    process = declaring(scene)
    process.member.start()
    scene.until(lambda: held.hits)
    closed = process.member.close()
    scene.until(lambda: closed.is_done)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_owner_that_still_waits_for_its_transactional_id_gives_up_at_once(
    broker: EmbeddedBroker, scene: Scene
) -> None:
    asked = broker.faults.answer("InitProducerId", 15)  # COORDINATOR_NOT_AVAILABLE, again and again
    owner = scene.own()
    scene.until(lambda: asked.hits)
    assert owner.owner.close().is_done
    assert owner.owner.stage is OwnerStage.CLOSED


def test_a_member_is_closed_before_it_has_started_and_twice(scene: Scene) -> None:
    process = scene.join()
    left = process.member.close()
    assert process.member.close() is left
    scene.until(lambda: left.is_done)
    process.member.start()
    assert process.member.snapshot().partitions == ()


def test_a_job_whose_own_headers_are_no_numbers_stops_nothing(scene: Scene) -> None:
    """Anybody may write a command, and one that an owner could not get past would be met again and again."""
    scene.own()
    for kind in ("PUT", "LEASE"):
        job_id = scene.new_id()
        headers: list[Header] = [("schedule-command", kind.encode()), ("schedule-queue", b"mail"), ("due", b"1")]
        headers += [("name", b"x"), ("id", job_id.encode()), ("generation", b"1")]
        scene.send(job_id, b"{}", [*headers, ("attempt", b"one"), ("crashes", b"\xff")])
    job = scene.put()
    scene.until(lambda: job in scene.moved)
    assert len(scene.moved) == 3


def test_a_worker_that_owns_the_schedule_runs_what_it_writes_and_hands_over_when_it_stops(scene: Scene) -> None:
    app = App(scene.app.name, bootstrap_servers=scene.bootstrap, partitions=1)
    ran = []
    app.task(name="send", queue="mail")(lambda: ran.append("ran"))
    loop, workers = Loop(), list[Worker]()
    thread = threading.Thread(
        target=run_worker, args=(app, ["mail"], "threads", 1, loop, workers.append), kwargs={"schedule": True}
    )
    thread.start()
    try:
        job = scene.put(0.2, value=b'{"args": [], "kwargs": {}}')
        scene.until(lambda: ran and scene.moved)
        assert scene.moved == [job]
    finally:
        until(lambda: workers, "the worker has started")
        loop.call_soon_threadsafe(workers[0].stop)
        thread.join(30)
    assert not thread.is_alive()
    loop.close()
    with KafkaAdminClient(bootstrap_servers=scene.bootstrap) as admin:
        (group,) = admin.describe_groups([scene.names.commands]).values()
    assert group["members"] == []


def test_what_was_asked_while_there_was_no_owner_is_heard_before_what_is_due_starts(scene: Scene) -> None:
    """docs/schedule.rst "Cancel and reschedule": a command is carried out before jobs start whose time has passed."""
    first = scene.own()
    kept, put_off, cancelled = (scene.put(0.5) for _ in range(3))
    look = scene.ask("LOOK", kept)
    scene.until(lambda: scene.answers_to(look))
    first.is_alive = False
    late = scene.put(0.1)
    for _ in range(600):  # more than one round
        scene.ask("LOOK", kept)
    reschedule = scene.ask("RESCHEDULE", put_off, scene.now_ms() + 3_600_000)
    cancel, cancel_late = scene.ask("CANCEL", cancelled), scene.ask("CANCEL", late)
    until(lambda: scene.now_ms() > time_of(kept) + 200, "the time of all has passed")
    scene.own()
    scene.until(lambda: scene.answers_to(cancel_late) and kept in scene.moved)
    assert [answer["rescheduled"] for answer in scene.answers_to(reschedule)] == [True]
    assert scene.answers_to(cancel) == scene.answers_to(cancel_late) == [{"waiting": True}]
    assert scene.moved == [kept]
