"""Tests of ``kafka.tasks.backends.kafka``: its parts by themselves, and over an embedded broker in this process.

The whole of it, with workers and on both brokers, is in ``test/conformance/test_tasks.py`` and ``test/faults``.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from kafka.client import ApiRanges, KafkaClient
from kafka.consumer import KafkaConsumer
from kafka.core.consume.partition import CompletedFetch, ReaderOptions
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CorruptRecordError,
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    InvalidRecordStateError,
    InvalidReplicationFactorError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NoBrokersAvailable,
    NonEmptyGroupError,
    NotCoordinatorError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka.future import Future
from kafka.log_limit import MOST
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.records import RecordBatchBuilder
from kafka.share import Acknowledged, AcknowledgeType, KafkaShareConsumer, ShareRecord
from kafka.structs import TopicPartition
from kafka.tasks import App, JobsNotSent, JobState, JobTimeout, PayloadTooLarge
from kafka.tasks import waiting as waiting_module
from kafka.tasks.backends.kafka import KafkaBackend
from kafka.tasks.backends.kafka import admin as admin_module
from kafka.tasks.backends.kafka import backend as backend_module
from kafka.tasks.backends.kafka.admin import (
    Administration,
    check_enqueueing,
    ensure_app_topics,
)
from kafka.tasks.backends.kafka.connection import RECONNECT_MAX_S, connect
from kafka.tasks.backends.kafka.enqueue_tally import EnqueueTally
from kafka.tasks.backends.kafka.publisher import KafkaPublisher
from kafka.tasks.deadline import Deadline, run_in_thread
from kafka.tasks.delivery.base import (
    Appended,
    Claim,
    ClaimKind,
    Ending,
    JobLease,
    OutgoingRecord,
    RecordKind,
    sources_of,
)
from kafka.tasks.delivery.share_group import delivery
from kafka.tasks.delivery.share_group.delivery import IDLE_CHECKS, ShareDelivery
from kafka.tasks.delivery.share_group.groups import begin_groups, prepare_groups
from kafka.tasks.format.envelope import MALFORMED
from kafka.tasks.format.job_id import BrokerTimeEstimate, make_id
from kafka.tasks.format.records import MOST_HEADERS, StateRecord, encode
from kafka.tasks.format.topics import TopicDefaults, TopicNames, TopicPlan, TopicSize, group_configs, queue_plans
from kafka.tasks.results import tails
from kafka.tasks.results.log_reader import MOST_PARSED, MOST_PARSED_BYTES, StateDecoder
from kafka.tasks.results.view import MOST_VIEW_BYTES
from kafka.tasks.settings import read_settings
from kafka.testing import EmbeddedBroker, running_worker
from test.support.waiting import until
from test.tasks.fakes import FakePublisher, Queues, pass_time, settle

SOON_S = 10.0


# -- reaching a broker -------------------------------------------------------------------------------------------------


def test_a_wrong_address_is_one_line_that_says_what_to_do() -> None:
    loop = Loop()
    with pytest.raises(NoBrokersAvailable) as caught:
        connect(read_settings({"bootstrap_servers": "127.0.0.1:1"}), loop)
    loop.close()
    text = caught.value.args[0]
    assert "127.0.0.1:1" in text
    assert "bootstrap_servers" in text
    assert "\n" not in text


@pytest.mark.parametrize("scheme", ["", "kafka://"])
def test_servers_may_be_given_with_and_without_a_scheme(broker: EmbeddedBroker, scheme: str) -> None:
    loop = Loop()
    client = connect(read_settings({"bootstrap_servers": f"{scheme}127.0.0.1:1, {broker.bootstrap}"}), loop)
    client.close()
    loop.close()


def test_a_broker_that_is_back_is_found_soon_however_long_it_was_away(broker: EmbeddedBroker) -> None:
    loop = Loop()
    client = connect(read_settings({"bootstrap_servers": broker.bootstrap}), loop)
    assert client.config["reconnect_backoff_max_ms"] == RECONNECT_MAX_S * 1000 == 5000
    client.close()
    loop.close()


def test_embedded_wants_a_directory() -> None:
    loop = Loop()
    with pytest.raises(KafkaConfigurationError, match="no directory"):
        connect(read_settings({"bootstrap_servers": "embedded:"}), loop)
    loop.close()


@pytest.mark.parametrize("release", ["0.9", "0.10"])
def test_enqueueing_on_a_broker_that_cannot_keep_jobs_is_one_clear_error_at_once(release: str) -> None:
    with EmbeddedBroker(in_process=True, emulate=release) as old:
        app = App("shop", bootstrap_servers=old.bootstrap)
        began_at = time.monotonic()
        with pytest.raises(IncompatibleBrokerVersion) as caught:
            app.backend().route("default", True)
        app.close()
    assert time.monotonic() - began_at < SOON_S
    assert f"cannot enqueue jobs: the broker (probably release {release}" in caught.value.args[0]
    assert "DescribeConfigs; use Apache Kafka 0.11 or later" in caught.value.args[0]


def test_where_topics_are_not_to_be_made_no_broker_has_to_be_able_to() -> None:
    class Client:
        def api_ranges(self) -> ApiRanges:
            return ApiRanges({32: (0, 4)}, {}, "2.8")

    client: Any = Client()
    check_enqueueing(client, creates_topics=False)
    with pytest.raises(IncompatibleBrokerVersion, match="does not support CreateTopics"):
        check_enqueueing(client, creates_topics=True)


# -- topics ------------------------------------------------------------------------------------------------------------


def test_the_smallest_topic_of_a_queue_limits_its_payloads_and_is_named_where_jobs_are_enqueued_and_run(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that no dead record could hold would be lost when it fails."""
    broker.create_topic(
        "small.default.dead", 2, **{"max.message.bytes": "165536", "message.timestamp.type": "LogAppendTime"}
    )
    app = App("small", bootstrap_servers=broker.bootstrap, partitions=2)
    big = app.task(name="big")(len)
    assert app.backend().route("default", True).max_payload_bytes == 100_000
    text = (
        "topic small.default.dead has max.message.bytes=165536, less than other topics of its queue: payloads of this "
        "queue are limited to 100000 bytes; set it to 1065536"
    )
    assert caplog.messages == [text]
    with pytest.raises(PayloadTooLarge, match="100000"):
        big.delay("x" * 100_000)
    caplog.clear()
    with running_worker(app, broker=broker):
        assert text in caplog.messages
    app.close(SOON_S)


# -- share groups' settings --------------------------------------------------------------------------------------------


class Groups:
    """A broker's settings of groups, which are seen ``lag`` looks after they were made; some names are refused."""

    def __init__(self, refused: Sequence[str] = (), lag: int = 2, there: Sequence[tuple[str, str]] = ()) -> None:
        self.there = dict(there)
        self.made: list[tuple[str, str]] = []
        self._refused = refused
        self._lag = lag
        self._looks = 0

    def group_configs(self, groups: Sequence[str]) -> dict[str, dict[str, str]]:
        self._looks += 1
        seen = dict(self.made) if self._looks > self._lag else {}
        return {group: {**self.there, **seen} for group in groups}

    def alter_group_config(self, groups: Sequence[str], name: str, value: str) -> list[str]:
        if name in self._refused:
            return list(groups)
        self.made.append((name, value))
        return []


def prepare(groups: Any, pauses: list[float] | None = None) -> None:
    prepare_groups(groups, ["a", "b"], lambda _: group_configs(), (pauses if pauses is not None else []).append, 0.1)


def test_the_settings_of_groups_are_made_and_seen() -> None:
    groups, pauses = Groups(), list[float]()
    prepare(groups, pauses)
    assert tuple(groups.made) == group_configs()
    assert len(pauses) == 2


def test_what_holds_already_is_left_alone() -> None:
    groups = Groups(there=group_configs())
    prepare(groups)
    assert groups.made == []


def test_settings_that_the_broker_lacks_are_done_without() -> None:
    groups = Groups([name for name, _ in group_configs()[2:]])
    prepare(groups)
    assert [name for name, _ in groups.made] == ["share.auto.offset.reset", "share.isolation.level"]


def test_a_group_that_would_begin_at_the_end_of_its_topic_is_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="jobs that wait already would be skipped"):
        prepare(Groups(["share.auto.offset.reset"]))


def test_a_group_of_due_jobs_that_would_run_aborted_ones_is_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="jobs of transactions that were aborted would run"):
        refusing: Any = Groups(["share.isolation.level"])
        prepare_groups(refusing, ["a"], lambda _: group_configs(is_committed=True), list[float]().append, 0.1)


def test_settings_that_are_never_seen_are_an_error() -> None:
    with pytest.raises(KafkaTimeoutError, match="a, b"):
        prepare(Groups(lag=1000))


class Places:
    """Where groups stand, for begin_groups. ``errors``: what comes of the first attempts to begin; with ``lost`` these
    have done their work, only the answer is not known. ``unlisted``: errors of groups that are asked about.
    ``silent``: groups whose coordinator does not answer.
    """

    def __init__(
        self,
        missing: Sequence[TopicPartition],
        errors: Sequence[Exception] = (),
        lost: bool = False,
        unlisted: Mapping[str, KafkaError] = {},
        silent: str = "",
    ) -> None:
        self.begun: dict[str, dict[TopicPartition, int]] = {}
        self.listed: list[list[str]] = []
        self.attempts = 0
        self._missing = missing
        self._errors = list(errors)
        self._lost = lost
        self._unlisted = unlisted
        self._silent = silent

    def partitions_without_start(
        self, groups: Mapping[str, Sequence[TopicPartition]]
    ) -> dict[str, list[TopicPartition] | KafkaError]:
        self.listed.append(list(groups))
        if set(groups).intersection(self._silent):
            raise KafkaTimeoutError("no answer")
        found: dict[str, list[TopicPartition] | KafkaError] = {}
        for group, places in groups.items():
            begun = self.begun.get(group, {})
            found[group] = [place for place in places if place in self._missing and place not in begun]
        return {**found, **{group: error for group, error in self._unlisted.items() if group in groups}}

    def set_start_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.attempts += 1
        if self._errors:
            if self._lost:
                self.begun[group] = dict(offsets)
            raise self._errors.pop(0)
        self.begun[group] = dict(offsets)


A_PLACES = [TopicPartition("a", 0), TopicPartition("a", 1)]


def begin(places: Any, pauses: list[float] | None = None, groups: str = "a") -> None:
    passed: list[float] = [] if pauses is None else pauses
    wanted = {group: [TopicPartition(group, number) for number in range(2)] for group in groups}
    begin_groups(places, wanted, passed.append, lambda: sum(passed), 0.1)


def test_groups_begin_where_they_have_no_place_yet() -> None:
    places = Places(A_PLACES[1:])
    begin(places)
    assert places.begun == {"a": {A_PLACES[1]: 0}}
    places = Places([])
    begin(places)
    assert places.begun == {}


def test_a_group_with_members_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    places = Places(A_PLACES, [NonEmptyGroupError("a")])
    begin(places)
    assert (places.begun, caplog.records) == ({}, [])


def test_a_topic_that_the_coordinator_does_not_know_yet_is_waited_for() -> None:
    places, pauses = Places(A_PLACES, [UnknownTopicOrPartitionError("a-1")] * 2), list[float]()
    begin(places, pauses)
    assert (set(places.begun), len(pauses)) == ({"a"}, 2)


def test_state_that_is_on_its_way_to_another_broker_is_waited_for() -> None:
    errors = [NotCoordinatorError("a-1"), CoordinatorLoadInProgressError("a-1")]
    places, pauses = Places(A_PLACES, errors), list[float]()
    begin(places, pauses)
    assert (set(places.begun), len(pauses)) == ({"a"}, 2)


@pytest.mark.parametrize("error", [KafkaConnectionError("gone"), RequestTimedOutError("late")])
def test_a_group_whose_answer_was_lost_is_looked_at_again_before_anything_is_repeated(error: KafkaError) -> None:
    places = Places(A_PLACES, [error], lost=True)
    begin(places)
    assert (places.attempts, places.listed) == (1, [["a"], ["a"]])
    places = Places(A_PLACES, [error])
    begin(places)
    assert (places.attempts, set(places.begun)) == (2, {"a"})


def test_all_groups_are_asked_about_at_once_and_those_in_error_again() -> None:
    b_places = [TopicPartition("b", number) for number in range(2)]
    places, pauses = Places([*A_PLACES, *b_places], [NotCoordinatorError("a")]), list[float]()
    begin(places, pauses, "abc")
    assert (set(places.begun), places.listed) == ({"a", "b"}, [["a", "b", "c"], ["a"]])


def test_an_error_of_one_group_is_not_that_of_another(caplog: pytest.LogCaptureFixture) -> None:
    c_place = TopicPartition("c", 0)
    unlisted = {"a": GroupAuthorizationFailedError("no"), "b": CoordinatorLoadInProgressError("wait")}
    for places in (Places([c_place], unlisted=unlisted), Places([c_place], silent="ab")):
        caplog.clear()
        begin(places, groups="abc")
        assert set(places.begun) == {"c"}
        lines = [line.partition(", it starts where")[0] for line in caplog.messages]
        assert sorted(lines) == [
            "could not set the start offsets of group a",
            "could not set the start offsets of group b",
        ]


def test_a_worker_starts_though_a_broker_does_not_know_a_topic_yet_that_another_has_just_created(
    broker: EmbeddedBroker,
) -> None:
    """Seen on three brokers of 3.9.1, when two workers of a new app start together: one ended with an error."""
    app = App("fresh", bootstrap_servers=broker.bootstrap)
    unknown = broker.faults.answer("DescribeConfigs", UnknownTopicOrPartitionError, topic="fresh.results", first=2)
    with contextlib.closing(app), unknown as late:
        app.warm_up()
    assert late.hits == 2


@pytest.mark.parametrize("fault", ["close", "drop"])
def test_a_place_is_written_by_one_request_though_its_answer_is_lost(broker: EmbeddedBroker, fault: str) -> None:
    """Members may begin and leave meanwhile, and a second request would let all of it run once more."""
    loop = Loop()
    settings = read_settings({"bootstrap_servers": broker.bootstrap, "request_timeout": 1.0})
    client = connect(settings, loop)

    def wait(dialogue: Any) -> Any:
        future = client.run(dialogue)
        loop.run_until(future)
        return future.result()

    administration = Administration(client, wait, settings.request_timeout, "shop")
    group = f"once-{fault}"
    place = TopicPartition(group, 0)
    assert administration.create([TopicPlan(group, 1)]) == {group: TopicSize(1, replicas=1)}
    both = [TopicPlan(group, 1), TopicPlan(f"{group}-new", 2)]
    assert administration.create(both) == {f"{group}-new": TopicSize(2, replicas=1)}, "the other one is there"
    with pytest.raises(InvalidReplicationFactorError, match=f"creating topic {group}-r: "):
        administration.create([TopicPlan(f"{group}-r", 1, replication_factor=3)])
    with getattr(broker.faults, fault)("AlterShareGroupOffsets", when="after") as lost, pytest.raises(KafkaError):
        administration.set_start_offsets(group, {place: 0})
    assert lost.hits == 1
    assert administration.partitions_without_start({group: [place]}) == {group: []}
    client.close()
    loop.close()


@pytest.mark.parametrize(
    "errors",
    [[KafkaTimeoutError("a")], [UnknownTopicOrPartitionError("a-1")] * 100, [GroupAuthorizationFailedError("a")]],
    ids=["no answer", "late", "other"],
)
def test_a_group_that_cannot_be_placed_is_left_to_its_setting(
    errors: list[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    places = Places(A_PLACES, errors)
    begin(places)
    assert places.begun == {}
    assert ["start offsets of group a, it starts where" in line for line in caplog.messages] == [True]


# -- delivery ----------------------------------------------------------------------------------------------------------


class Member:
    """In the place of a share consumer."""

    made: list[Member] = []
    joined = True

    def __init__(self, topic: str, **options: Any) -> None:
        self.options = options
        self.wants: list[tuple[int, bool]] = []
        self.said: list[tuple[Any, AcknowledgeType]] = []
        self.lock_s = 30.0
        self.lost: set[Any] = set()
        self.flushed: Future[None] = Future()
        self.quiet: Future[None] = Future()
        self.closed: Future[None] = Future()
        self.is_closing = False
        self.looks = 0
        self.answered_at: float | None = None
        self.heartbeat_interval_s = 5.0
        self.has_joined = self.joined
        self.made.append(self)

    def request_records(self, count: int, exactly: bool) -> None:
        self.wants.append((count, exactly))

    def acknowledge_all(self, records: list[Any], kind: AcknowledgeType) -> list[Any]:
        if self.is_closing:
            raise IllegalStateError("the share consumer is closed")
        self.said += [(record, kind) for record in records if record not in self.lost]
        return [record for record in records if record in self.lost]

    def look(self) -> None:
        self.looks += 1

    def commit_async(self) -> Future[None]:
        return self.flushed

    def quiet_async(self) -> Future[None]:
        return self.quiet

    def close_async(self) -> Future[None]:
        self.is_closing = True
        return self.closed


def a_record(offset: int) -> ShareRecord:
    return ShareRecord("app.q", 0, 0, offset, 0, 0, None, b"{}", [], 1, 30.0, None)


class Events:
    """What a worker is told."""

    def __init__(self) -> None:
        self.leases: list[JobLease] = []
        self.gone: list[tuple[list[JobLease], str]] = []
        self.errors: list[KafkaError] = []
        self.has_left = 0

    def leased(self, leases: list[JobLease]) -> None:
        self.leases += leases

    def lost(self, leases: list[JobLease], reason: str) -> None:
        self.gone.append((leases, reason))

    def failed(self, error: KafkaError) -> None:
        self.errors.append(error)

    def left(self) -> None:
        self.has_left += 1


    def replace_result(self, ending: Ending, record: OutgoingRecord) -> Ending:
        raise AssertionError("no result is too large")


MAIN, DUE, SUSPECT = sources_of(TopicNames("app"), ["q"])


class Stage:
    """A delivery over two members, and three leases of the first one. ``suspects``: topics that have some, when it
    looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, is_checked: bool = True) -> None:
        Member.made = []
        monkeypatch.setattr(delivery, "KafkaShareConsumer", Member)
        self.clock = ManualClock()
        self.loop = Loop.simulated(self.clock)
        self.events = Events()
        self.suspects: set[str] = set()
        self.looks: list[list[str]] = []
        self.checks: list[Callable[[Any], object]] = []
        self.publisher = FakePublisher(Queues(self.clock), self.loop)
        client: Any = type("Client", (), {"loop": self.loop})()
        self.delivery = ShareDelivery(
            client, [MAIN, DUE, SUSPECT], self.events, self.publisher, TopicNames("app"), self._find, self.checks.append
        )
        settle(self.loop)
        if is_checked:
            self.checks.pop()(None)
        self.main, self.due = Member.made
        self.main.options["on_records"]([a_record(offset) for offset in range(3)])
        self.leases = self.events.leases

    def _find(self, topics: list[str], found: Callable[[set[str]], object]) -> None:
        self.looks.append(topics)
        found(self.suspects.intersection(topics))

    def suspect(self) -> Member:
        """The member for suspects: there are some."""
        self.suspects = {SUSPECT.topic}
        self.delivery.look_for_suspects()
        return Member.made[-1]

    def move(self, *leases: JobLease, done: Callable[[list[JobLease]], object] = lambda _: None) -> None:
        """Move these jobs to the suspects, or within them."""
        record = OutgoingRecord(RecordKind.JOB, SUSPECT.topic, b"{}", None, [])
        self.delivery.finish([Ending(lease, None, [record], is_move=True) for lease in leases], done)
        settle(self.loop)

    def accept(self, *leases: JobLease) -> None:
        """Finish these, which have nothing to be written."""
        self.delivery.finish([Ending(lease, None, []) for lease in leases], lambda _: None)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(monkeypatch)
    yield made
    made.loop.close()


def record_of(lease: JobLease) -> ShareRecord:
    assert lease.claim is not None
    assert lease.claim.kind is ClaimKind.SHARE_LOCK
    found: ShareRecord = lease.claim.token
    return found


def test_each_topic_has_a_member_in_a_group_of_its_name(stage: Stage) -> None:
    assert [member.options["group_id"] for member in Member.made] == ["app.q", "app.q.due"]
    stage.delivery.request(MAIN, 64)
    stage.delivery.request(DUE, 1)
    assert (stage.main.wants, stage.due.wants) == ([(64, True)], [(1, True)])
    stage.due.lock_s = 15.0
    assert stage.delivery.lock_s == 15.0


def test_suspects_have_a_member_while_there_are_some(stage: Stage) -> None:
    settle(stage.loop)
    stage.delivery.request(SUSPECT, 2)
    assert (len(Member.made), stage.looks) == (2, [[SUSPECT.topic]])
    stage.suspects = {SUSPECT.topic}
    pass_time(stage.loop, stage.clock, 5.0)
    suspect = Member.made[-1]
    assert (suspect.options["group_id"], suspect.wants) == (SUSPECT.topic, [(2, True)])
    suspect.options["on_records"]([a_record(0)])
    pass_time(stage.loop, stage.clock, 60.0)
    assert not suspect.is_closing  # it holds one
    stage.suspects = set()
    stage.accept(stage.leases[-1])
    suspect.options["on_acknowledged"]([Acknowledged(record_of(stage.leases[-1]), AcknowledgeType.ACCEPT, None)])
    pass_time(stage.loop, stage.clock, 25.0)
    assert suspect.is_closing
    assert len(Member.made) == 3
    assert SUSPECT not in [contact.source for contact in stage.delivery.contacts()]


def test_a_move_to_the_suspects_makes_a_member_when_it_is_answered_and_no_look_is_needed(stage: Stage) -> None:
    settle(stage.loop)
    stage.delivery.request(SUSPECT, 1)
    done: list[JobLease] = []
    stage.move(stage.leases[0], done=done.extend)
    assert (len(Member.made), done) == (2, [])
    stage.main.flushed.success(None)
    settle(stage.loop)
    suspect = Member.made[-1]
    assert (done, suspect.options["group_id"], suspect.wants[-1]) == ([stage.leases[0]], SUSPECT.topic, (1, True))
    assert suspect.looks == 1


def test_nothing_is_asked_for_before_all_have_joined_and_no_queue_was_migrated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Member, "joined", False)
    stage = Stage(monkeypatch, is_checked=False)
    stage.delivery.request(MAIN, 64)
    stage.main.has_joined = True
    stage.clock.advance(1.0)
    settle(stage.loop)
    assert not stage.checks
    stage.due.has_joined = True
    stage.clock.advance(1.0)
    settle(stage.loop)
    stage.checks.pop()(KafkaTimeoutError("no answer"))
    stage.clock.advance(2.0)
    settle(stage.loop)
    assert stage.main.wants == []
    stage.checks.pop()(None)
    assert (stage.main.wants, stage.due.wants) == ([(64, True)], [])


def test_a_queue_that_was_migrated_while_its_members_joined_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, is_checked=False)
    stage.delivery.request(MAIN, 64)
    error = KafkaConfigurationError("delivered by a consumer group by now")
    stage.checks.pop()(error)
    assert stage.events.errors == [error]
    assert stage.main.wants == []


def test_suspects_are_not_asked_for_while_a_move_is_not_answered(stage: Stage) -> None:
    suspect = stage.suspect()
    stage.move(stage.leases[0])
    stage.delivery.request(SUSPECT, 3)
    assert (3, True) not in suspect.wants
    stage.main.flushed.success(None)
    settle(stage.loop)
    assert suspect.wants[-1] == (3, True)


def test_a_move_that_cannot_be_written_keeps_no_suspects_waiting_for_long(stage: Stage) -> None:
    suspect = stage.suspect()
    stage.publisher.is_stuck = True
    stage.move(stage.leases[0])
    stage.delivery.request(SUSPECT, 3)
    pass_time(stage.loop, stage.clock, 4.5)
    assert (3, True) not in suspect.wants
    pass_time(stage.loop, stage.clock, 5.5)
    assert suspect.wants[-1] == (3, True)


def test_a_lease_has_the_records_key(stage: Stage) -> None:
    record = a_record(3)
    record.key = b"user-7"
    stage.main.options["on_records"]([record])
    assert [lease.key for lease in stage.leases] == [None, None, None, b"user-7"]


def test_headers_of_a_record_that_has_too_many_for_a_job_are_not_made(stage: Stage) -> None:
    few, many = a_record(3), a_record(4)
    few._headers, many._headers = [("x", b"")] * 128, b"\x82\x02" + b"\x00\x01" * 129
    stage.main.options["on_records"]([few, many])
    assert [(len(lease.headers), lease.headers_left_out) for lease in stage.leases[3:]] == [(128, 0), (0, 129)]
    assert isinstance(many._headers, bytes)


@pytest.mark.parametrize("headers", [b"\xff", b"\x02\x02x", b"\x02\x02x\x01\x00", b"\xff\xff\xff\xff\xff\x01"])
def test_headers_that_cannot_be_read_make_a_record_no_job_and_harm_no_other(stage: Stage, headers: bytes) -> None:
    malformed, good = a_record(3), a_record(4)
    malformed._headers, good._headers = headers, [("x", b"")]
    stage.main.options["on_records"]([malformed, good])
    assert [(len(lease.headers), lease.headers_left_out) for lease in stage.leases[3:]] == [(0, MALFORMED), (1, 0)]


def test_a_lease_is_renewed_and_accepted_once_its_records_are_written(stage: Stage) -> None:
    first = stage.leases[0]
    stage.delivery.renew([first])
    stage.publisher.is_stuck = True
    record = OutgoingRecord(RecordKind.DEAD, "app.q.dead", b"{}")
    stage.delivery.finish([Ending(first, None, [record])], lambda _: None)
    settle(stage.loop)
    assert [kind for _, kind in stage.main.said] == [AcknowledgeType.RENEW]
    stage.publisher.advance()
    settle(stage.loop)
    assert [kind for _, kind in stage.main.said] == [AcknowledgeType.RENEW, AcknowledgeType.ACCEPT]


def test_locks_that_the_broker_says_are_gone_are_reported_once(stage: Stage) -> None:
    first, second, third = stage.leases
    error = InvalidRecordStateError("offset 0 is not acquired")
    stage.accept(third)
    stage.main.options["on_acknowledged"](
        [
            Acknowledged(record_of(first), AcknowledgeType.RENEW, error),
            Acknowledged(record_of(second), AcknowledgeType.RENEW, None),
            Acknowledged(record_of(third), AcknowledgeType.ACCEPT, error),
        ]
    )
    assert [leases for leases, _ in stage.events.gone] == [[first]]
    stage.main.options["on_lost"]([record_of(first), record_of(second)], None)
    assert [leases for leases, _ in stage.events.gone] == [[first], [second]]
    assert "timed out" in stage.events.gone[1][1]


def test_rejected_acknowledgements_are_one_line_in_a_minute_however_many_brokers_go(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.accept(*stage.leases)
    answer, error = stage.main.options["on_acknowledged"], InvalidRecordStateError("offset 0 is not acquired")
    for lease in stage.leases:
        answer([Acknowledged(record_of(lease), AcknowledgeType.ACCEPT, error)])
    assert len([line for line in caplog.messages if "finished job were rejected" in line]) == 1


def test_a_finished_suspect_that_is_delivered_again_is_reported(stage: Stage) -> None:
    suspect = stage.suspect()
    suspect.options["on_records"]([a_record(offset) for offset in range(3)])
    taken, refused, later = stage.leases[3:]
    stage.accept(taken, refused, later)
    accepted, error = AcknowledgeType.ACCEPT, InvalidRecordStateError("offset 1 is not acquired")
    answer = suspect.options["on_acknowledged"]
    answer([Acknowledged(record_of(taken), accepted, None), Acknowledged(record_of(refused), accepted, error)])
    answer([Acknowledged(record_of(taken), accepted, error)])
    assert [leases for leases, _ in stage.events.gone] == [[refused]]
    answer([Acknowledged(record_of(later), accepted, error)])
    assert [leases for leases, _ in stage.events.gone] == [[refused], [later]]


def test_a_job_that_goes_on_by_another_claim_is_reported_when_the_broker_delivers_it_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    refused, taken, _ = stage.leases
    records = [record_of(lease) for lease in stage.leases]
    stage.delivery.accept([refused, taken])
    for lease in (refused, taken):
        lease.claim = Claim(ClaimKind.SCHEDULE)
    accepted, error = AcknowledgeType.ACCEPT, InvalidRecordStateError("offset 0 is not acquired")
    answer = stage.main.options["on_acknowledged"]
    answer([Acknowledged(records[0], accepted, error), Acknowledged(records[1], accepted, None)])
    assert [leases for leases, _ in stage.events.gone] == [[refused]]
    assert "finished job" not in caplog.text


def test_a_lock_that_turns_out_to_be_gone_is_reported_on_a_later_turn(stage: Stage) -> None:
    stage.main.lost.add(record_of(stage.leases[0]))
    stage.delivery.renew(stage.leases)
    assert stage.events.gone == []
    settle(stage.loop)
    assert [leases for leases, _ in stage.events.gone] == [[stage.leases[0]]]
    assert len(stage.main.said) == 2


def test_what_is_finished_after_the_end_is_reported_as_lost(stage: Stage) -> None:
    stage.delivery.close()
    stage.accept(*stage.leases)
    stage.delivery.renew(stage.leases)
    settle(stage.loop)
    assert [leases for leases, _ in stage.events.gone] == [stage.leases, stage.leases]


@pytest.mark.parametrize("is_answered", [True, False])
def test_it_is_drained_when_nothing_more_can_come_or_the_brokers_are_silent(stage: Stage, is_answered: bool) -> None:
    told: list[int] = []
    stage.delivery.drain(lambda: told.append(1))
    stage.main.quiet.success(None)
    settle(stage.loop)
    assert told == []
    if is_answered:
        stage.due.quiet.success(None)
    else:
        pass_time(stage.loop, stage.clock, 2.0)
    settle(stage.loop)
    assert told == [1]


def test_it_has_left_when_all_its_members_have(stage: Stage) -> None:
    stage.delivery.close()
    stage.main.closed.success(None)
    assert stage.events.has_left == 0
    stage.due.closed.success(None)
    assert stage.events.has_left == 1
    stage.delivery.request(MAIN, 1)
    assert stage.main.wants == []


def test_a_group_that_cannot_be_joined_is_reported(stage: Stage) -> None:
    error = KafkaError("the group is a consumer group")
    stage.main.options["on_error"](error)
    assert stage.events.errors == [error]


# -- publisher ---------------------------------------------------------------------------------------------------------


def test_records_are_answered_in_order_with_their_append_times_or_errors(broker: EmbeddedBroker) -> None:
    app = App("published", bootstrap_servers=broker.bootstrap, max_payload_bytes=2000, partitions=2)
    app.send("x", queue="default").raise_if_not_sent()
    settings = read_settings({"bootstrap_servers": broker.bootstrap, "max_payload_bytes": 2000})
    loop, clock = Loop(), BrokerTimeEstimate()
    client: KafkaClient = connect(settings, loop)
    names = TopicNames("published")
    publisher = KafkaPublisher(client, settings, clock, names.results)
    answered: Future[Sequence[Appended | BaseException]] = Future()

    def note(answers: Sequence[Appended | BaseException]) -> None:
        answered.success(answers)

    before_ms = int(time.time() * 1000)  # the broker's clock is this one
    publisher.publish(
        [
            OutgoingRecord(RecordKind.JOB, names.queue("default"), b"1", None, [("id", b"x")]),
            OutgoingRecord(RecordKind.STATE, names.results, b"2" * 200_000, b"key", [], 1),
            OutgoingRecord(RecordKind.STATE, names.results, b"3" * 2_000_000, b"key", [], 1),
            OutgoingRecord(RecordKind.STATE, names.results, b"4", b"key", [], 1),
        ],
        note,
    )
    assert loop.run_until(answered, SOON_S)
    first, too_large, larger_still, last = answered.result()
    assert isinstance(first, Appended)
    assert isinstance(last, Appended)
    assert before_ms <= first.time_ms <= last.time_ms <= time.time() * 1000
    assert last.time_ms <= clock.latest_ms()
    assert min(first.offset, last.offset) >= 0
    assert isinstance(too_large, MessageSizeTooLargeError)
    assert isinstance(larger_still, MessageSizeTooLargeError)
    publisher.close()
    client.close()
    loop.close()
    app.close(SOON_S)


def test_state_records_that_come_while_others_are_written_go_together(broker: EmbeddedBroker) -> None:
    """Each request costs worker and broker as much as the records of several jobs."""
    app = App("together", bootstrap_servers=broker.bootstrap, partitions=1)
    app.send("x", queue="default").raise_if_not_sent()
    settings = read_settings({"bootstrap_servers": broker.bootstrap})
    loop = Loop()
    client: KafkaClient = connect(settings, loop)
    topic = TopicNames("together").results
    publisher = KafkaPublisher(client, settings, BrokerTimeEstimate(), topic)

    def publish() -> Future[None]:
        answered: Future[None] = Future()
        record = OutgoingRecord(RecordKind.STATE, topic, b"1", b"key", [], 0)
        publisher.publish([record], lambda answers: answered.success(None))
        return answered

    assert loop.run_until(publish(), SOON_S)  # it has connected
    last = broker.requests.count
    broker.clock.freeze()
    with broker.faults.delay("Produce", seconds=1.0, topic=topic) as late:
        published = [publish()]
        while not late.seen:
            loop.run_once(0.01)
        for _ in range(4):
            published.append(publish())
            loop.run_once(0.0)
    broker.clock.advance(1.0)
    broker.clock.resume()
    for each in published:
        assert loop.run_until(each, SOON_S)
    assert len(broker.requests.find("Produce", topic=topic, after=last)) == 2
    publisher.close()
    client.close()
    loop.close()
    app.close(SOON_S)


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def app(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Iterator[App]:
    made = App(
        f"app-{abs(hash(request.node.name)) % 10**8}",
        bootstrap_servers=broker.bootstrap,
        partitions=2,
        result_view=100,
    )
    yield made
    made.close(SOON_S)


@pytest.fixture
def say(app: App) -> Callable[..., None]:
    """Write a state record as a worker would."""
    backend = app.backend()
    assert isinstance(backend, KafkaBackend)

    def write(job_id: str, state: JobState, value: bytes = b"", **fields: int) -> None:
        key, body, headers = encode(StateRecord(job_id, state, value=value, **fields))
        front = backend._connected()
        front.send(app.names.results, body, key, headers, int(job_id[12:16], 16)).get(SOON_S)

    return write


def test_the_first_end_of_a_job_holds_for_those_who_saw_it_and_for_those_who_look_it_up(
    app: App, broker: EmbeddedBroker, say: Callable[..., None]
) -> None:
    job = app.send("x")
    assert not job.wait(0)
    say(job.id, JobState.SUCCESS, b"1")
    say(job.id, JobState.FAILURE, b"{}")
    assert job.result(SOON_S) == 1
    elsewhere = App(app.name, bootstrap_servers=broker.bootstrap, partitions=2)
    assert elsewhere.job(job.id).status() is JobState.SUCCESS
    say(job.id, JobState.FAILURE, b"{}")
    assert elsewhere.job(job.id).result(SOON_S) == 1
    elsewhere.close(SOON_S)


def test_what_was_pushed_out_of_memory_is_looked_up(app: App, say: Callable[..., None]) -> None:
    jobs = [app.send("x") for _ in range(120)]
    assert not jobs[-1].wait(0)
    for number, job in enumerate(jobs):
        say(job.id, JobState.SUCCESS, b"%d" % number)
    assert jobs[-1].result(SOON_S) == 119
    assert [job.result(SOON_S) for job in jobs] == list(range(120))
    assert jobs[0].status() is JobState.SUCCESS


def test_a_zombie_s_record_of_a_job_that_was_pushed_out_of_memory_is_not_shown(
    app: App, say: Callable[..., None]
) -> None:
    jobs = [app.send("x") for _ in range(110)]
    assert not jobs[-1].wait(0)
    for number, job in enumerate(jobs):
        say(job.id, JobState.SUCCESS, b"%d" % number)
    assert jobs[-1].result(SOON_S) == 109
    for job in jobs[:3]:
        say(job.id, JobState.FAILURE, b"{}", attempt=2)
    latest = app.send("x")
    say(latest.id, JobState.SUCCESS, b"1")
    assert latest.result(SOON_S) == 1, "the zombies' records have been read"
    assert [job.status() for job in jobs[:3]] == [JobState.SUCCESS] * 3
    assert [job.result(SOON_S) for job in jobs[:3]] == [0, 1, 2]


def test_the_partition_of_another_client_is_followed_while_a_job_of_it_is_waited_for(
    app: App, say: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "IDLE_LOOK_S", 0.02)
    backend = app.backend()
    assert isinstance(backend, KafkaBackend)
    front = backend._connected()
    tailing = front.results._tails._consumer
    other = 1 - front.partition
    for number in range(2):
        job = app.job(make_id(backend.clock.now_ms(), other, b"\xff" + bytes([number] * 7)))
        ended: list[bool] = []
        waiting = threading.Thread(target=lambda job=job, ended=ended: ended.append(job.wait(SOON_S)))
        waiting.start()
        until(lambda: {each.partition for each in tailing.assignment()} >= {other}, "it is followed", within_s=SOON_S)
        say(job.id, JobState.SUCCESS, b"1")
        waiting.join(SOON_S)
        assert ended == [True]
        until(lambda: other not in {each.partition for each in tailing.assignment()}, "it stops", within_s=SOON_S)
    own = app.send("x")
    say(own.id, JobState.SUCCESS, b"2")
    assert own.result(SOON_S) == 2, "its own partition goes on"


@pytest.mark.deep("writes 1 GB; test_view.py feeds the view with as much")
@pytest.mark.timeout(300)
def test_a_thousand_results_of_1_mb_take_64_mb_of_a_client(broker: EmbeddedBroker) -> None:
    app = App("large", bootstrap_servers=broker.bootstrap, partitions=1, result_ttl=600)
    backend = app.backend()
    assert isinstance(backend, KafkaBackend)
    front = backend._connected()
    view = front.results._view
    value = b'"' + b"x" * 999_000 + b'"'
    jobs = [app.send("x") for _ in range(1000)]
    assert not jobs[0].wait(0)
    for job in jobs:
        backend.send_state(StateRecord(job.id, JobState.SUCCESS, value=value)).get(SOON_S)
        assert view.byte_count <= MOST_VIEW_BYTES
    assert len(jobs[-1].result(SOON_S)) == 999_000
    until(lambda: len(view) + view.evicted >= 1000, "all are read", within_s=SOON_S)
    assert MOST_VIEW_BYTES - 4_000_000 < view.byte_count <= MOST_VIEW_BYTES
    assert len(jobs[0].result(SOON_S)) == 999_000, "looked up"
    app.close(SOON_S)


def test_ones_own_jobs_are_not_looked_up_however_soon_they_begin(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = app.backend()
    assert isinstance(backend, KafkaBackend)
    front = backend._connected()
    job_id = front.new_id()
    looked_up: list[object] = []
    monkeypatch.setattr(front.results._log, "look_up", lambda *asked: looked_up.append(asked))
    assert backend.add_waiter(job_id, lambda _: None, SOON_S) is None
    assert looked_up == []


def test_a_broker_that_stops_answering_while_it_is_connected_to_is_given_up_after_the_request_timeout(
    broker: EmbeddedBroker,
) -> None:
    app = App("unheard", bootstrap_servers=broker.bootstrap, partitions=2, request_timeout=1)
    with broker.faults.drop("Produce", topic=app.names.results), pytest.raises(KafkaTimeoutError, match="within 1"):
        app.send("x")
    app.close(SOON_S)


def test_a_caller_has_its_answer_in_time_though_the_broker_hangs(
    app: App, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP: connections stay open, nothing is answered."""
    monkeypatch.setattr(waiting_module, "LEAST_ASK_S", 0.0)
    job = app.send("x")
    app.flush(SOON_S)
    elsewhere = App(app.name, bootstrap_servers=broker.bootstrap, partitions=2, request_timeout=60, connect_timeout=60)
    bare = elsewhere.job(job.id)
    began_at = time.monotonic()
    broker.pause()
    try:
        for text, ask in (
            ("no connection to", lambda: bare.result(timeout=0.05)),
            ("no connection to", lambda: bare.status(timeout=0.05)),
            ("no offsets for", lambda: job.result(timeout=0.05)),
            ("no offsets for", lambda: job.wait(timeout=0.05)),
            ("no offsets for", lambda: job.status(timeout=0.05)),
        ):
            with pytest.raises(JobTimeout, match=text) as caught:
                ask()
            assert isinstance(caught.value.__cause__, KafkaTimeoutError)
        with pytest.raises(KafkaTimeoutError, match="is not connected to .* within 0.05 s"):
            elsewhere.warm_up(timeout=0.05)
    finally:
        broker.resume()
    assert time.monotonic() - began_at < SOON_S
    assert bare.status() is JobState.UNKNOWN, "the connection was made in the background"
    assert job.status() is JobState.QUEUED
    elsewhere.close(SOON_S)


def test_the_first_job_of_an_app_asks_for_all_topics_at_once(broker: EmbeddedBroker) -> None:
    for makes_topics in (True, False):
        with contextlib.closing(App("first", bootstrap_servers=broker.bootstrap, partitions=2)) as app:
            before = len(broker.requests.find())
            app.send("x")
            app.flush(SOON_S)
            apis = collections.Counter(each.api for each in broker.requests.find()[before:])
            assert (apis["CreateTopics"], apis["DescribeConfigs"]) == (2 * makes_topics, 2)
            assert apis["ListOffsets"] == 1


def test_a_job_is_at_hand_once_its_partition_is_tailed(app: App, say: Callable[..., None]) -> None:
    backend, job = app.backend(), app.send("x")
    assert not backend.is_at_hand(job.id)
    assert backend.known(job.id) is None
    assert not job.wait(0)
    assert backend.is_at_hand(job.id)
    assert not backend.is_at_hand("0" * 12 + job.id[12:]), "it began before the tail"
    say(job.id, JobState.SUCCESS, b"1")
    assert job.result(SOON_S) == 1
    found = backend.known(job.id)
    assert found is not None and found.state is JobState.SUCCESS
    assert asyncio.run(job.result_async(SOON_S)) == 1


def test_a_coroutine_awaits_jobs_on_a_real_connection(app: App, say: Callable[..., None]) -> None:
    task = app.task(name="x")(lambda number: number)

    async def main() -> list[int]:
        jobs = [await task.delay_async(number) for number in range(50)]
        waiting = asyncio.gather(*jobs)
        for number, job in enumerate(jobs):
            await asyncio.to_thread(say, job.id, JobState.SUCCESS, b"%d" % number)
        return await asyncio.wait_for(waiting, SOON_S)

    assert asyncio.run(main()) == list(range(50))


def test_a_connection_that_is_made_after_the_app_was_closed_is_closed_too(app: App, broker: EmbeddedBroker) -> None:
    elsewhere = App(app.name, bootstrap_servers=broker.bootstrap, partitions=2)
    backend = elsewhere.backend()
    assert isinstance(backend, KafkaBackend)
    broker.pause()
    try:
        with pytest.raises(KafkaTimeoutError):
            backend._connected(Deadline(0.01))
        connecting = backend._connecting
        elsewhere.close(0)
    finally:
        broker.resume()
    assert connecting is not None and connecting.wait(SOON_S)
    assert isinstance(connecting.exception, IllegalStateError)
    assert backend._front is None


def test_closing_waits_for_a_connection_that_is_being_made(
    app: App, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def ensure_later(*args: Any, **options: Any) -> Any:
        begun.set()
        assert may_go_on.wait(SOON_S)
        return ensure_app_topics(*args, **options)

    monkeypatch.setattr(backend_module, "ensure_app_topics", ensure_later)
    monkeypatch.setattr(backend_module, "CLOSE_CONNECTING_S", SOON_S)
    elsewhere = App(app.name, bootstrap_servers=broker.bootstrap, partitions=2)
    backend = elsewhere.backend()
    assert isinstance(backend, KafkaBackend)
    with pytest.raises(KafkaTimeoutError):
        backend._connected(Deadline(0.01))
    assert begun.wait(SOON_S) and backend._connecting is not None
    closing = run_in_thread("closing", elsewhere.close)
    until(lambda: backend._is_closed)
    assert not closing.is_done
    may_go_on.set()
    assert closing.wait(SOON_S) and backend._connecting.is_done
    closing.result()


# -- jobs that are not written -----------------------------------------------------------------------------------------


def test_jobs_that_the_broker_refuses_are_the_error_of_the_next_flush_and_a_line_of_log(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("refused", bootstrap_servers=broker.bootstrap, partitions=2, queues=["mail"], track_queued=True)
    seen: list[str] = []
    app.on_enqueue_error(lambda job, error: seen.append(job.id))
    for _ in range(5):
        app.send("x", queue="mail")
    app.flush(SOON_S)
    for _ in range(3):
        app.send("x", queue="mail")
    with broker.faults.answer("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="refused.mail"):
        app.backend().flush(SOON_S)
        jobs = [app.send("x", queue="mail") for _ in range(200)]
        app.backend().flush(SOON_S)
    app.send("x")
    with pytest.raises(JobsNotSent, match="to refused.mail: ") as caught, app.batch():
        pass
    error = caught.value
    assert "TopicAuthorizationFailedError" in str(error)
    assert isinstance(error.cause, TopicAuthorizationFailedError)
    assert (error.count, error.total) == (len(seen), 204)
    assert 200 <= error.count <= 203
    assert sorted(job.id for job in jobs) == sorted(seen[-200:])  # two partitions have no order between them
    assert {job.status() for job in jobs} == {JobState.FAILURE}
    with pytest.raises(TopicAuthorizationFailedError):
        jobs[0].result()
    app.flush(SOON_S)
    lines = [record for record in caplog.records if "not written to refused.mail" in record.getMessage()]
    assert 1 <= len(lines) <= MOST + 1
    assert lines[0].levelno == logging.ERROR
    app.close(SOON_S)


def test_jobs_that_are_still_under_way_when_the_app_is_closed_are_its_error(broker: EmbeddedBroker) -> None:
    app = App("closed", bootstrap_servers=broker.bootstrap, partitions=2)
    app.send("x")
    app.flush(SOON_S)
    with broker.faults.drop("Produce", topic="closed.default"):
        job = app.send("x")
        with pytest.raises(JobsNotSent, match="1 of 1 job was not written to closed.default"):
            app.close(0)
    assert not app.is_connected
    assert job.enqueue_error is not None
    app.close()


def test_a_tally_counts_jobs_alone_and_names_the_first_cause(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    tally = EnqueueTally(frozenset(["shop.results"]), lambda: now[0])
    assert tally.take() is None
    tally.batch_done("shop.mail", 60, None)
    tally.batch_done("shop.results", 5, KafkaTimeoutError("states are not jobs"))
    assert tally.take() is None
    tally.batch_done("shop.mail", 60, None)
    tally.batch_done("shop.mail", 2, OSError("first\nand more"))
    for _ in range(MOST + 5):
        tally.batch_done("shop.other", 1, KafkaTimeoutError("second"))
    error = tally.take()
    assert error is not None
    assert (error.count, error.total) == (2 + MOST + 5, 60 + 2 + MOST + 5)
    assert "not written to shop.mail, shop.other: OSError: first; " in str(error)
    assert tally.take() is None
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "2 jobs were not written to shop.mail: OSError: first; the status() of their handles is FAILURE"
    assert lines[1].startswith("1 job was not written to shop.other: KafkaTimeoutError: second; ")
    assert len(lines) == 1 + MOST + 1, "the rest as one line, when they are taken"


def test_many_threads_wait_each_for_its_own_job(app: App, say: Callable[..., None]) -> None:
    jobs = [app.send("x") for _ in range(20)]
    found: dict[int, int] = {}
    waiting = [
        threading.Thread(target=lambda n=number: found.update({n: jobs[n].result(SOON_S)})) for number in range(20)
    ]
    for thread in waiting:
        thread.start()
    for number, job in reversed(list(enumerate(jobs))):
        say(job.id, JobState.SUCCESS, b"%d" % number)
    for thread in waiting:
        thread.join(SOON_S)
    assert found == {number: number for number in range(20)}


def test_a_handle_whose_app_was_closed_says_so_and_connects_to_nothing(app: App) -> None:
    job = app.send("x")
    app.close(SOON_S)
    with pytest.raises(IllegalStateError, match="closed"):
        job.wait(0)
    assert app.job(job.id).status() is JobState.UNKNOWN


def test_closing_lets_go_of_those_who_wait(app: App) -> None:
    job = app.send("x")
    ended = threading.Event()

    def wait() -> None:
        try:
            job.wait(SOON_S)
        except KafkaError:
            pass
        finally:
            ended.set()

    backend = app.backend()
    assert isinstance(backend, KafkaBackend)
    threading.Thread(target=wait, daemon=True).start()
    results = backend._connected().results
    while not results._waiters and not ended.is_set():
        ended.wait(0.005)
    app.close(SOON_S)
    assert ended.wait(SOON_S / 2)


def test_headers_of_a_record_that_has_too_many_for_a_state_are_not_made() -> None:
    """A poll of the tail may bring 2,000 records of 16,384 headers: seconds of the loop, and hundreds of MB."""
    job_id = make_id(1_000, 0, bytes(8))
    builder = RecordBatchBuilder(1 << 20)
    for count in (MOST_HEADERS, MOST_HEADERS + 1):
        state: list[tuple[str, bytes | None]] = [("state", b"SUCCESS")]
        builder.append(1_000, job_id.encode(), b"", state + [("h", b"")] * (count - 1))
    good, bad = CompletedFetch(TopicPartition("r", 0), 0, builder.build()).read(2, ReaderOptions())
    decoder = StateDecoder()
    assert decoder.decode(good, False) == StateRecord(job_id, JobState.SUCCESS, time_ms=1_000)
    assert decoder.decode(bad, False) is None
    assert isinstance(bad._headers, bytes)


def test_what_headers_of_states_say_is_kept_in_bounded_memory() -> None:
    """A producer of records may give each other headers, or long ones, which are no state's."""
    job_id = make_id(1_000, 0, bytes(8))
    builder = RecordBatchBuilder(1 << 20)
    state = [("state", b"SUCCESS"), ("attempt", b"2")]
    builder.append(1_000, job_id.encode(), b"", [*state, ("more", b"h" * MOST_PARSED_BYTES)])
    for number in range(MOST_PARSED + 1):
        builder.append(1_000, job_id.encode(), b"", [*state, ("more", b"%d" % number)])
    builder.append(1_000, job_id.encode(), b"", [("state", b"LATER")])
    records = CompletedFetch(TopicPartition("r", 0), 0, builder.build()).read(MOST_PARSED + 3, ReaderOptions())
    decoder = StateDecoder()
    expected = StateRecord(job_id, JobState.SUCCESS, 2, time_ms=1_000)
    assert decoder.decode(records[0], False) == expected
    assert len(decoder._parsed) == 0
    for record in records[1:-1]:
        decoded = decoder.decode(record, False)
        assert decoded == expected._replace(offset=record.offset)
        assert len(decoder._parsed) <= MOST_PARSED
    for _ in range(2):
        assert decoder.decode(records[-1], False) is None


def test_damaged_states_of_a_job_are_some_lines_of_log_and_hide_nothing(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(App("damaged", bootstrap_servers=broker.bootstrap)) as app:
        backend = app.backend()
        assert isinstance(backend, KafkaBackend)
        job_id = backend.new_id()
        front = backend._connected()
        bad = [("state", b"SUCCESS"), ("attempt", b"x")]
        for _ in range(300):
            front.send(app.names.results, b"", job_id.encode(), bad, front.partition)
        for attempt in (1, 3, 2):
            backend.send_state(StateRecord(job_id, JobState.STARTED, attempt))
        backend.flush(SOON_S)
        with caplog.at_level(logging.WARNING, "kafka.tasks"):
            found = front.results.find(job_id, SOON_S)
        assert found is not None
        assert (found.state, found.attempt) == (JobState.STARTED, 3)
        assert 0 < sum(": malformed state record" in record.getMessage() for record in caplog.records) < 30


# -- full groups -------------------------------------------------------------------------------------------------------


def refuse(stage: Stage, member: Member, seconds: float) -> None:
    """The member's group is full for so long."""
    for _ in range(int(seconds / 5) + 1):
        member.options["on_trouble"](GroupMaxSizeReachedError("full"))
        stage.clock.advance(5)


def test_a_worker_that_gets_no_place_in_a_full_group_when_it_starts_ends_after_a_killed_members_session(
    stage: Stage,
) -> None:
    refuse(stage, stage.due, 50)  # a session is 45 s: group.share.session.timeout.ms
    assert stage.events.errors == []
    refuse(stage, stage.due, 5)
    assert [type(error) for error in stage.events.errors] == [GroupMaxSizeReachedError]


def test_a_worker_that_had_a_place_waits_for_another_one(stage: Stage) -> None:
    stage.main.answered_at = 0.0
    refuse(stage, stage.main, 600)
    assert stage.events.errors == []


def test_a_full_group_of_suspects_ends_no_worker_and_its_member_waits_for_a_place(stage: Stage) -> None:
    member = stage.suspect()
    refuse(stage, member, 600)
    for _ in range(2 * IDLE_CHECKS):
        stage.delivery.look_for_suspects()
    assert stage.events.errors == [] and not member.is_closing
    member.answered_at = 0.0
    for _ in range(2 * IDLE_CHECKS):
        stage.delivery.look_for_suspects()
    assert member.is_closing, "it has a place, and got nothing there"


def test_other_errors_that_a_member_retries_end_no_worker(stage: Stage) -> None:
    stage.main.options["on_trouble"](CorruptRecordError("damaged"))
    stage.clock.advance(600)
    stage.main.options["on_trouble"](CorruptRecordError("damaged"))
    assert stage.events.errors == []


# -- several brokers ---------------------------------------------------------------------------------------------------


class ReplicatedAdmin:
    """A cluster of three brokers where all topics have so many replicas."""

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas

    def broker_count(self) -> int:
        return 3

    def existing(self, names: Iterable[str]) -> dict[str, TopicSize]:
        return {name: TopicSize(8, self._replicas) for name in names}

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return {name: {"min.insync.replicas": "1"} for name in names}


@pytest.mark.parametrize(("replicas", "words"), [(1, "one replica on a cluster of 3 brokers"), (3, "min.insync.repl")])
def test_topics_that_could_be_safer_are_one_warning_for_each_app(
    replicas: int, words: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_module, "_logged_warnings", set())
    admin: Any = ReplicatedAdmin(replicas)
    for app in ("a", "b", "a"):
        for queue in ("mail", "default"):
            plans = queue_plans(TopicNames(app), queue, TopicDefaults())
            ensure_app_topics(admin, app, plans, create=False)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2 and all(words in line for line in lines)
    assert lines[0].startswith("app a has topics ") and "(a.mail, a.mail.due, a.mail.suspect and 1 more)" in lines[0]
    assert lines[1].startswith("app b has topics ")


@pytest.mark.parametrize("own", ["", "own"])
def test_all_consumers_on_a_shared_client_are_in_its_rack_unless_they_say_another(
    own: str, broker: EmbeddedBroker
) -> None:
    loop = Loop()
    client = connect(read_settings({"bootstrap_servers": broker.bootstrap, "client_rack": "left"}), loop)
    consumer = KafkaConsumer(client=client, client_rack=own)
    share = KafkaShareConsumer(client=client, group_id="racks", client_rack=own)
    assert consumer._fetcher._limits.rack == (own or "left")
    assert share._driver._membership._rack_id == (own or "left")
    consumer.close_async()
    share.close_async()
    client.close()
    loop.close()
