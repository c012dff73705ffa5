"""What a consumer does for its group, with a machine that says what the test tells it: on a loop, by a manual clock."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any

import pytest

from kafka.consumer import KafkaConsumer
from kafka.consumer import consumer as consumer_module
from kafka.core.group.machine import (
    NO_GENERATION,
    Assign,
    AssignmentStep,
    GroupEffect,
    GroupSubscription,
    Left,
    Lose,
    NeedMetadata,
    ReportError,
    Revoke,
    SendToCoordinator,
    TopicSnapshot,
)
from kafka.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    TopicAuthorizationFailedError,
    WakeupError,
)
from kafka.future import Future
from kafka.protocol.groups import HeartbeatRequest, HeartbeatResponse
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafka.testing import EmbeddedBroker
from test.consumer.test_consumer import ALL, A, B, Rig, rig
from test.support.scripted import SILENT, Answer
from test.support.waiting import until

BOTH = frozenset({A, B})


class ScriptedMachine:
    """A GroupMachine without a will: :attr:`effects` is what the next poll returns, :attr:`heard` what it was told."""

    def __init__(self) -> None:
        self.group_id = "g"
        self.group_instance_id: str | None = None
        self.member_id = "me"
        self.generation = 1
        self.next_deadline = inf
        self.polled_at = inf
        self.state_name = "stable"
        self.owned: frozenset[TopicPartition] = frozenset()
        self.effects: list[GroupEffect] = []
        self.heard: list[Any] = []
        self.subscriptions: list[GroupSubscription] = []
        self.topics: Mapping[str, TopicSnapshot] = {}
        self.then: dict[str, list[GroupEffect]] = {}
        """What follows when it was told this."""

    def on_poll_begin(self) -> None:
        self.polled_at = inf

    def on_poll_end(self, now: float) -> None:
        self.polled_at = now

    def _hear(self, what: str, *rest: Any) -> None:
        self.heard.append((what, *rest) if rest else what)
        self.effects += self.then.pop(what, [])

    def subscribe(self, subscription: GroupSubscription, now: float) -> None:
        self.subscriptions.append(subscription)

    def metadata_changed(self, topics: Mapping[str, TopicSnapshot], now: float) -> None:
        self.topics = topics

    def poll(self, now: float) -> list[GroupEffect]:
        effects, self.effects = self.effects, []
        return effects

    def answered(self, ask: SendToCoordinator, response: Any, now: float) -> None:
        self._hear("answered", ask.number, type(response))

    def failed(self, ask: SendToCoordinator, error: BaseException, now: float) -> None:
        self._hear("failed", ask.number, type(error))

    def carried_out(self, step: AssignmentStep, now: float) -> None:
        self._hear({Revoke: "revoked", Lose: "lost", Assign: "assigned"}[type(step)])

    def fenced(self, error: KafkaError, now: float) -> None:
        self._hear("fenced", type(error).__name__)

    def rejoin(self, reason: str, now: float) -> None:
        self._hear("rejoin", reason)

    def leave(self, now: float, reason: str = "") -> None:
        self._hear("leave")

    def leave_now(self, now: float) -> None:
        self._hear("hurry")


class Group:
    """A consumer with a scripted machine, and a broker that keeps offsets."""

    def __init__(self, it: Rig, machine: ScriptedMachine) -> None:
        self.it = it
        self.machine = machine
        self.committed: dict[TopicPartition, int] = {}
        self.codes: list[int] = []
        self.story: list[Any] = []
        it.broker.ranges |= {8: (2, 9), 9: (1, 9), 12: (0, 4)}
        it.broker.answers[OffsetCommitRequest] = self.commit
        it.broker.answers[OffsetFetchRequest] = self.fetch
        it.broker.answers[HeartbeatRequest] = lambda request, version: HeartbeatResponse(error_code=0)

    def consumer(self, **configs: Any) -> KafkaConsumer:
        return self.it.consumer(group_id="g", auto_offset_reset="earliest", **configs)

    def do(self, *effects: GroupEffect) -> None:
        self.machine.effects += effects
        self.driver.pump()

    @property
    def driver(self) -> Any:
        return self.made._group

    made: KafkaConsumer

    def subscribed(self, **configs: Any) -> KafkaConsumer:
        self.made = self.consumer(**configs)
        self.made.subscribe(["t"], listener=self)
        self.it.run(1)
        return self.made

    def commit(self, request: Any, version: int) -> Answer:
        code = self.codes.pop(0) if self.codes else 0
        topics = []
        for topic in request.topics:
            for entry in topic.partitions:
                if not code:
                    where = TopicPartition(topic.name, entry.partition_index)
                    self.committed[where] = entry.committed_offset
                    self.story.append(("commit", where, entry.committed_offset))
            entries = [
                OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=e.partition_index, error_code=code)
                for e in topic.partitions
            ]
            topics.append(OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, partitions=entries))
        return OffsetCommitResponse(topics=topics)

    def fetch(self, request: Any, version: int) -> Answer:
        topics = [
            OffsetFetchResponse.OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartitions(
                        partition_index=number,
                        committed_offset=self.committed.get(TopicPartition(topic.name, number), -1),
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.groups[0].topics
        ]
        group = OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=topics)
        return OffsetFetchResponse(groups=[group])

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.story.append(("revoked", revoked))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.story.append(("assigned", assigned))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.story.append(("lost", lost))


@contextmanager
def grouped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    machine = ScriptedMachine()
    monkeypatch.setattr(consumer_module, "make_member", lambda *_: machine)
    with rig() as it:
        yield Group(it, machine)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    with grouped(monkeypatch) as made:
        yield made


def test_what_the_machine_asks_goes_to_the_coordinator_and_comes_back(group: Group) -> None:
    group.subscribed()
    assert group.machine.subscriptions == [GroupSubscription(), GroupSubscription(frozenset({"t"}))][-1:]
    assert group.machine.topics["t"] == TopicSnapshot(2)
    group.do(SendToCoordinator(7, HeartbeatRequest(group_id="g", generation_id=1, member_id="me"), 5.0))
    group.it.run(1)
    group.it.broker.answers[HeartbeatRequest] = lambda request, version: SILENT
    group.do(SendToCoordinator(8, HeartbeatRequest(group_id="g", generation_id=1, member_id="me"), 2.0))
    group.it.run(3)
    assert group.machine.heard[0] == ("answered", 7, HeartbeatResponse)
    assert group.machine.heard[1][:2] == ("failed", 8)


def test_an_assignment_begins_at_committed_offsets_and_else_by_policy(group: Group) -> None:
    group.committed = {A: 5}
    consumer = group.subscribed()
    group.do(Assign(BOTH, BOTH))
    group.it.run(2)
    assert group.story[0] == ("assigned", set(BOTH))
    assert group.machine.heard == ["assigned"]
    assert consumer.assignment() == set(BOTH)
    assert sorted(group.it.got) == sorted([*ALL, *ALL[5:]])


def test_a_look_up_counts_for_the_assignment_that_it_was_made_for(group: Group) -> None:
    held: list[Answer] = [SILENT]
    answer_now = group.fetch

    def fetch(request: Any, version: int) -> Answer:
        return held.pop() if held else answer_now(request, version)

    group.it.broker.answers[OffsetFetchRequest] = fetch
    consumer = group.subscribed()
    group.do(Assign(frozenset({A}), frozenset({A})))
    group.it.run(1)
    group.do(Revoke(frozenset({A})))
    group.it.run(1)
    group.committed = {A: 5}  # by another member, which had it meanwhile
    group.do(Assign(frozenset({A}), frozenset({A})))
    group.it.run(1)
    assert consumer.assignment() == {A}
    assert group.it.got == ALL[5:]
    group.it.run(20)
    assert group.it.got == ALL[5:]


def test_who_waits_for_when_ready_polls(group: Group) -> None:
    consumer = KafkaConsumer("t", client=group.it.client, group_id="g", auto_offset_reset="earliest")
    group.made = consumer
    consumer.poll(0)
    assert group.machine.polled_at == group.it.loop.time()
    ready = consumer.when_ready()
    group.it.run(400)
    assert not ready.is_done and group.machine.polled_at == inf
    group.do(Assign(BOTH, BOTH))
    began = group.it.loop.time()
    group.it.run(1)
    assert ready.is_done and began <= group.machine.polled_at <= began + 1
    consumer.close()


def test_a_seek_of_the_listener_goes_before_the_committed_offset(group: Group) -> None:
    group.committed = {A: 5}
    consumer = group.subscribed()
    group.on_partitions_assigned = lambda assigned: consumer.seek(A, 6)  # type: ignore[method-assign]
    group.do(Assign(frozenset({A}), frozenset({A})))
    group.it.run(2)
    assert group.it.got == ALL[6:]


def test_a_listener_that_gets_no_partitions_may_seek_to_the_start_of_all(group: Group) -> None:
    consumer = group.subscribed()
    sought: list[set[TopicPartition]] = []

    def assigned(partitions: set[TopicPartition]) -> None:
        consumer.seek_to_beginning()
        sought.append(partitions)

    group.on_partitions_assigned = assigned  # type: ignore[method-assign]
    group.do(Assign(frozenset(), frozenset()))
    group.it.run(1)
    assert sought == [set()] and group.it.errors == []


def test_a_revocation_commits_first_then_calls_the_listener_then_the_machine(group: Group) -> None:
    consumer = group.subscribed()
    group.do(Assign(BOTH, BOTH))
    group.it.run(2)
    group.story.clear()
    group.do(Revoke(frozenset({A})))
    group.it.run(2)
    assert group.story == [("commit", A, 7), ("commit", B, 7), ("revoked", {A})]
    assert group.machine.heard == ["assigned", "revoked"]
    assert consumer.assignment() == {B}


def test_without_auto_commit_a_revocation_commits_nothing(group: Group) -> None:
    group.subscribed(enable_auto_commit=False)
    group.do(Assign(BOTH, BOTH))
    group.it.run(2)
    group.do(Revoke(BOTH))
    group.it.run(2)
    assert group.committed == {}


def test_a_commit_that_fails_does_not_hold_up_a_revocation(group: Group) -> None:
    group.subscribed()
    group.do(Assign(BOTH, BOTH))
    group.it.run(2)
    group.codes = [30]
    group.do(Revoke(BOTH))
    group.it.run(2)
    assert group.machine.heard == ["assigned", "revoked"]
    assert group.committed == {}


def test_nothing_is_handed_out_while_partitions_are_given_up(group: Group) -> None:
    group.subscribed()
    group.do(Assign(BOTH, BOTH))
    group.it.run(2)
    group.codes = [14] * 1000  # the coordinator is not ready for the commit
    group.do(Revoke(BOTH))
    count = len(group.it.got)
    group.it.values += [b"later"]
    group.it.run(4)
    assert len(group.it.got) == count
    assert group.machine.heard == ["assigned"]


def test_what_was_lost_is_not_committed_however_long_it_waits(group: Group) -> None:
    consumer = group.subscribed()
    group.do(Assign(BOTH, BOTH))
    group.it.run(2)
    group.codes = [14] * 3
    under_way = consumer.commit_async({A: 3})
    queued = consumer.commit_async({B: 4})
    group.it.run(0.05)
    group.do(Lose(BOTH))
    group.it.run(5)
    assert group.committed == {}
    for future in (under_way, queued):
        assert isinstance(future.exception, CommitFailedError)
    assert group.story[-1] == ("lost", set(BOTH))
    assert group.machine.heard == ["assigned", "lost"]
    assert consumer.assignment() == set()


def test_who_is_no_member_cannot_commit(group: Group) -> None:
    consumer = group.subscribed()
    group.machine.generation = NO_GENERATION
    group.machine.state_name = "unjoined"
    failed = consumer.commit_async({A: 3})
    group.it.run(1)
    assert isinstance(failed.exception, CommitFailedError)
    assert group.it.broker.requests(OffsetCommitRequest) == []


def test_commits_that_wait_go_out_together_and_no_offset_goes_back(group: Group) -> None:
    consumer = group.subscribed()
    calls: list[Any] = []
    for offset in range(1, 6):
        consumer.commit_async({A: offset}, lambda offsets, response: calls.append(offsets[A].offset))
    group.codes = [16, 14]
    group.it.run(5)
    assert [what[2] for what in group.story] == [1, 5]
    assert calls == [1, 2, 3, 4, 5]


def test_the_machine_hears_that_a_commit_was_fenced(group: Group) -> None:
    consumer = group.subscribed()
    group.codes = [25]
    failed = consumer.commit_async({A: 1})
    group.it.run(1)
    assert isinstance(failed.exception, CommitFailedError)
    assert group.machine.heard == [("fenced", "UnknownMemberIdError")]


def test_auto_commit_by_time_is_of_what_was_handed_out_and_only_of_news(group: Group) -> None:
    group.subscribed(auto_commit_interval_ms=1000)
    group.do(Assign(BOTH, BOTH))
    group.it.run(10)
    assert group.committed == {A: 7, B: 7}
    assert len(group.it.broker.requests(OffsetCommitRequest)) <= 2


def test_errors_of_the_group_reach_the_user(group: Group) -> None:
    consumer = group.subscribed()
    group.do(ReportError(TopicAuthorizationFailedError("t")))
    group.it.run(1)
    group.do(ReportError(FencedInstanceIdError("another one"), is_fatal=True))
    group.it.run(1)
    assert [type(error) for error in group.it.errors] == [TopicAuthorizationFailedError, FencedInstanceIdError]
    with pytest.raises(FencedInstanceIdError):
        consumer.poll(0)
    with pytest.raises(FencedInstanceIdError):
        consumer.poll(0)


def test_what_the_listener_raises_is_reported_and_the_step_is_done(group: Group) -> None:
    group.subscribed()

    def fail(assigned: set[TopicPartition]) -> None:
        raise ValueError("oops")

    group.on_partitions_assigned = fail  # type: ignore[method-assign]
    group.do(Assign(BOTH, BOTH))
    group.it.run(2)
    assert group.machine.heard == ["assigned"]
    assert [repr(error.__cause__) for error in group.it.errors] == ["ValueError('oops')"]
    assert sorted(group.it.got) == sorted(ALL + ALL)


def test_metadata_that_the_machine_lacks_is_read(group: Group) -> None:
    group.subscribed()
    group.it.broker.topics["other"] = {0: 1, 1: 1, 2: 1}
    group.do(NeedMetadata(frozenset({"other"})))
    group.it.run(2)
    assert group.machine.topics["other"] == TopicSnapshot(3)


def test_closing_on_a_loop_leaves_the_group_when_everything_was_carried_out(group: Group) -> None:
    consumer = group.subscribed()
    group.do(Assign(BOTH, BOTH))
    group.it.run(2)
    group.machine.then = {"leave": [Revoke(BOTH)], "revoked": [Left()]}
    done = consumer.close_async()
    assert not done.is_done
    group.it.run(1)
    assert done.is_done
    assert group.committed == {A: 7, B: 7}
    assert group.machine.heard == ["assigned", "leave", "revoked"]
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.poll(0)


def test_closing_on_a_loop_gives_partitions_up_first_when_the_member_is_fenced_meanwhile(group: Group) -> None:
    consumer = group.subscribed()
    group.do(Assign(BOTH, BOTH))
    group.it.run(2)
    group.machine.then = {"leave": [Revoke(BOTH)], "revoked": [Left()]}
    done = consumer.close_async()
    group.do(ReportError(FencedInstanceIdError("another one"), is_fatal=True))
    assert not done.is_done
    group.it.run(1)
    assert done.is_done
    assert group.story[-1] == ("revoked", set(BOTH))
    assert group.machine.heard == ["assigned", "leave", "revoked"]


def test_closing_right_after_unsubscribing_ends_once_and_in_silence(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = group.subscribed()
    group.do(Assign(BOTH, BOTH))
    group.it.run(2)
    consumer.unsubscribe()
    group.do(Revoke(BOTH))
    done = consumer.close_async()
    group.it.run(1)
    assert done.is_done
    assert [record for record in caplog.records if record.levelname != "INFO"] == []


def test_unsubscribing_on_a_loop_gives_the_partitions_up_in_good_order(group: Group) -> None:
    consumer = group.subscribed()
    group.do(Assign(BOTH, BOTH))
    group.it.run(2)
    consumer.unsubscribe()
    assert group.machine.subscriptions[-1] == GroupSubscription()
    group.do(Revoke(BOTH))
    group.it.run(1)
    assert group.story[-3:] == [("commit", A, 7), ("commit", B, 7), ("revoked", set(BOTH))]
    assert consumer.assignment() == set() and consumer.subscription() is None
    group.machine.generation = NO_GENERATION
    consumer.assign([A])
    group.it.run(1)
    assert group.it.broker.requests(OffsetFetchRequest)
    consumer.commit_async({A: 4})
    group.it.run(1)
    request: Any = group.it.broker.requests(OffsetCommitRequest)[-1]
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")


def test_a_rebalance_in_the_way_of_an_auto_commit_is_no_trouble_and_it_comes_soon(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    group.made = group.consumer(auto_commit_interval_ms=5000)
    group.made.subscribe(["t"])
    group.it.run(1)
    group.do(Assign(BOTH, BOTH))
    group.it.run(2)
    group.codes = [27, 27]
    began = group.it.loop.time()
    group.it.loop.run_until(lambda: group.committed, 20)
    assert group.committed == {A: 7, B: 7}
    assert group.it.loop.time() - began < 9
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_closing_ends_in_time_when_the_coordinator_is_silent(group: Group) -> None:
    consumer = group.subscribed()
    done = consumer.close_async(timeout_s=3)
    began = group.it.loop.time()
    group.it.loop.run_until(done, 60)
    assert done.is_done and group.it.loop.time() - began <= 3.01


def test_a_pattern_is_matched_against_all_topics_again_and_again(group: Group) -> None:
    group.made = group.consumer(metadata_max_age_ms=1000)
    group.it.broker.topics |= {"other": {0: 1}, "t2": {0: 1}}
    group.made.subscribe(pattern="t")
    group.it.run(0.5)
    assert group.machine.subscriptions[-1].topics == {"t", "t2"}
    group.it.broker.topics["t3"] = {0: 1}
    del group.it.broker.topics["t2"]
    group.it.run(2)
    assert group.machine.subscriptions[-1].topics == {"t", "t3"}
    assert group.made.subscription() == {"t", "t3"}
    asked = {name.name for name in group.it.broker.requests(MetadataRequest)[-1].topics or ()}  # type: ignore[attr-defined]
    assert "t2" not in asked  # or the broker might make it again


def test_a_topic_that_may_not_be_read_is_reported_and_again_later(group: Group) -> None:
    answer = group.it.broker.metadata

    def forbid(request: Any, version: int) -> Answer:
        found: Any = answer(request, version)
        for topic in found.topics:
            topic.error_code = 29
        return found  # type: ignore[no-any-return]

    group.it.broker.answers[MetadataRequest] = forbid
    group.made = group.consumer(metadata_max_age_ms=10_000)
    group.made.subscribe(["t"])
    group.it.run(5)
    assert [type(error) for error in group.it.errors] == [TopicAuthorizationFailedError]
    group.it.run(6)
    group.it.client.refresh_metadata(["t"])
    group.it.run(1)
    assert len(group.it.errors) == 2


def test_wrong_use_of_groups_is_a_clear_error_at_the_call(group: Group) -> None:
    alone = group.it.consumer()
    for call in (alone.commit, alone.commit_async, lambda: alone.committed(A), alone.enforce_rebalance):
        with pytest.raises(IllegalStateError, match="group_id"):
            call()
    assert alone.group_metadata() == ConsumerGroupMetadata(None)
    with pytest.raises(IllegalStateError, match="without group_id"):
        alone.subscribe(["t"], listener=group)
    member = group.subscribed()
    for offsets in ({A: -1}, {A: True}, {A: None}, {A: 2**63}):
        with pytest.raises(IllegalArgumentError, match="is not an offset"):
            member.commit_async(offsets)
    with pytest.raises(TypeError, match="dict"):
        member.commit_async([A])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="TopicPartition"):
        member.commit_async({"t": 1})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="leader epoch"):
        member.commit_async({A: OffsetAndMetadata(1, "", "x")})  # type: ignore[arg-type]
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        member.assign([A])
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        member.subscribe(pattern="t")
    with pytest.raises(IllegalStateError, match="not both"):
        member.subscribe(["t"], pattern="t")
    with pytest.raises(IllegalArgumentError, match="topics or a pattern"):
        member.subscribe([])
    with pytest.raises(IllegalArgumentError, match="characters"):
        member.subscribe(["no spaces"])
    with pytest.raises(IllegalArgumentError, match="regular expression"):
        group.consumer().subscribe(pattern="(")
    with pytest.raises(TypeError, match="on_partitions_revoked"):
        member.subscribe(["t"], listener=object())
    with pytest.raises(TypeError, match="the class Heard"):
        member.subscribe(["t"], listener=Heard)
    with pytest.raises(IllegalStateError, match="loop"):
        member.commit({A: 1})
    with pytest.raises(IllegalArgumentError, match="timeout_ms"):
        member.poll(-1)


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ({"group_instance_id": "one"}, "group_instance_id: .* there is no group_id"),
        ({"group_protocol": "consumer"}, "group_protocol: .* there is no group_id"),
        ({"group_id": "g", "heartbeat_interval_ms": 50_000}, "has to be below session_timeout_ms"),
        ({"group_id": "g", "group_instance_id": "a b"}, "group_instance_id"),
        ({"group_id": "g", "group_protocol": "consumer", "session_timeout_ms": 9000}, "the broker decides"),
        ({"group_id": "g", "group_protocol": "consumer", "partition_assignment_strategy": ["range"]}, "not with"),
        ({"group_id": "g", "group_remote_assignor": "uniform"}, "group_protocol='consumer'"),
        ({"group_id": "g", "group_protocol": "newest"}, "'classic', 'consumer'"),
        ({"group_id": "g", "partition_assignment_strategy": ["no-such"]}, "no-such"),
        ({"group_id": "g", "partition_assignment_strategy": []}, "assignors"),
    ],
)
def test_settings_of_groups_that_do_not_fit_are_refused(configs: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=text):
        KafkaConsumer(**configs)


def test_settings_of_groups_without_a_group_are_a_warning(
    served: str, caplog: pytest.LogCaptureFixture
) -> None:
    with KafkaConsumer(
        bootstrap_servers=served, enable_auto_commit=True, auto_commit_interval_ms=1000, session_timeout_ms=30_000
    ) as consumer:
        assert consumer.topics() is not None
    warning = "nothing is committed, and enable_auto_commit, auto_commit_interval_ms, session_timeout_ms have no effect"
    assert [record.message for record in caplog.records if record.name.endswith("consumer.group_driver")] == [
        f"no group_id is set: {warning}"
    ]
    caplog.clear()
    KafkaConsumer(bootstrap_servers=served, enable_auto_commit=False).close()
    assert not [record for record in caplog.records if record.name.endswith("group_settings")]


# -- in a thread ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with EmbeddedBroker(in_process=True, topics=["t", "peeked"], settings=settings) as broker:
        yield broker.bootstrap


def test_who_does_not_poll_is_no_member(served: str) -> None:
    with KafkaConsumer("t", bootstrap_servers=served, group_id="lazy") as consumer:
        assert consumer.beginning_offsets([A]) == {A: 0}
        assert consumer.group_metadata().generation_id == -1
        until(consumer.assignment, meanwhile=lambda: consumer.poll(100))
        assert consumer.group_metadata().generation_id == 1


def test_who_polls_too_seldom_loses_its_partitions_and_gets_them_again(served: str) -> None:
    listener = Heard()
    with KafkaConsumer(bootstrap_servers=served, group_id="slow", max_poll_interval_ms=300) as consumer:
        consumer.subscribe(["t"], listener=listener)
        until(consumer.assignment, meanwhile=lambda: consumer.poll(100))
        until(lambda: consumer.group_metadata().generation_id == -1)
        with pytest.raises(CommitFailedError):
            consumer.commit({A: 1})
        until(lambda: "lost" in listener.heard and consumer.assignment(), meanwhile=lambda: consumer.poll(50))
        until(partial(commits, consumer), meanwhile=lambda: consumer.poll(50))  # the next interval may be over as well
    assert listener.heard[:3] == ["assigned", "lost", "assigned"]


def commits(consumer: KafkaConsumer) -> bool:
    try:
        consumer.commit({A: 1})
    except CommitFailedError:
        return False
    return True


class Heard:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.heard.append("revoked")

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.heard.append("assigned")

    def on_partitions_lost(self, lost: Any) -> None:
        self.heard.append("lost")


def test_a_member_that_is_forgotten_leaves_its_group_without_a_commit_and_its_thread_ends(served: str) -> None:
    consumer = KafkaConsumer("t", bootstrap_servers=served, group_id="forgotten")
    until(consumer.assignment, meanwhile=partial(consumer.poll, 100))
    thread = consumer._host._thread  # type: ignore[attr-defined]
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert gone() is None
    thread.join(40)
    assert not thread.is_alive()
    with KafkaConsumer("t", bootstrap_servers=served, group_id="forgotten") as after:
        began = time.monotonic()
        until(lambda: len(after.assignment()) > 0, meanwhile=lambda: after.poll(100))
        assert time.monotonic() - began < 30  # nobody waits for the session to end
        assert after.committed(A) is None


def test_a_listener_must_not_poll_or_unsubscribe(served: str) -> None:
    outcome: list[str] = []

    class Nosy(Heard):
        def on_partitions_assigned(self, assigned: Any) -> None:
            for call in (consumer.poll, consumer.unsubscribe):
                try:
                    call()
                except IllegalStateError as error:
                    outcome.append(str(error))

    with KafkaConsumer(bootstrap_servers=served, group_id="nosy") as consumer:
        consumer.subscribe(["t"], listener=Nosy())
        until(lambda: outcome, meanwhile=lambda: consumer.poll(100))
        assert consumer.assignment()
        consumer.poll(0)  # refused, the call has ended nothing
    assert len(outcome) == 2 and all("must not poll" in text for text in outcome)


def test_wakeup_ends_a_poll_that_waits_for_a_rebalance_step(served: str) -> None:
    with KafkaConsumer("t", bootstrap_servers=served, group_id="woken") as consumer:
        until(consumer.assignment, meanwhile=lambda: consumer.poll(100))
        commits = consumer._commits
        assert commits is not None
        asked, commit = threading.Event(), commits.commit

        def never(*_: Any) -> Future[None]:
            asked.set()
            consumer.wakeup()
            return Future()

        commits.commit = never  # type: ignore[method-assign]
        consumer.enforce_rebalance()
        with pytest.raises(WakeupError):
            consumer.poll(3_600_000)
        assert asked.is_set()
        commits.commit = commit  # type: ignore[method-assign]
        waited = consumer._membership._waits_for
        assert waited is not None and consumer.assignment()  # the step goes on with the next poll
        waited.success(None)
        until(lambda: consumer.group_metadata().generation_id == 2, meanwhile=lambda: consumer.poll(100))


def test_a_poll_that_may_not_wait_gets_its_partitions_all_the_same(served: str) -> None:
    with KafkaConsumer("t", bootstrap_servers=served, group_id="impatient") as consumer:
        until(consumer.assignment, meanwhile=lambda: (consumer.poll(0), threading.Event().wait(0.01)))


def test_records_that_poll_only_showed_come_again(served: str) -> None:
    from kafka.producer import KafkaProducer

    with KafkaProducer(bootstrap_servers=served) as producer:
        for n in range(3):
            producer.send("peeked", b"%d" % n, partition=0)
    with KafkaConsumer("peeked", bootstrap_servers=served, auto_offset_reset="earliest", group_id="peek") as consumer:
        seen: dict[TopicPartition, list[Any]] = {}
        until(lambda: seen, meanwhile=lambda: seen.update(consumer.poll(100, update_offsets=False)))
        (where,) = seen
        assert consumer.position(where) == 0
        assert next(consumer).offset == 0
        consumer.seek(where, OffsetAndMetadata(2, "", 0))
        assert next(consumer).offset == 2
