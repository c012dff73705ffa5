"""Commits and look-ups of a group's offsets, with a coordinator that answers by a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from kafka.client import KafkaClient
from kafka.core import routing
from kafka.core.dialogue import Dialogue, Forget, Now, RefreshMetadata, Send, Sleep, Step
from kafka.core.group.offsets import (
    COMMIT_ERROR_ACTIONS,
    OFFSET_FETCH_ERROR_ACTIONS,
    OffsetDialogues,
    OffsetErrorAction,
)
from kafka.core.retry import Backoff
from kafka.errors import (
    ERRORS_BY_CODE,
    AuthenticationError,
    Cancelled,
    CommitFailedError,
    CommitInRebalanceError,
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
)
from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from test.core.retriable import RETRIABLE
from test.support.scripted import CLOSE, MODERN, SILENT, Answer, ScriptedBroker

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {"t": UUID(int=1), "u": UUID(int=2)}
LATEST = 10


@dataclass
class Coordinator:
    """Answers commits and fetches; ``codes`` has a list of error codes for each attempt, by partition or for all."""

    broker: ScriptedBroker
    loop: Loop
    client: KafkaClient
    codes: list[Any] = field(default_factory=list)
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    member: ConsumerGroupMetadata = ConsumerGroupMetadata("g", 5, "me", "one")
    fenced: list[KafkaError] = field(default_factory=list)
    ids: dict[str, UUID] = field(default_factory=lambda: dict(IDS))

    def speak(self, *, commit: int = LATEST, fetch: int = LATEST) -> None:
        self.broker.ranges[8] = (0, commit)
        self.broker.ranges[9] = (0, fetch)

    def code(self, partition: TopicPartition) -> int:
        now = self.codes[0] if self.codes else 0
        return now.get(partition, 0) if isinstance(now, dict) else now

    def commit(self, request: Any, version: int) -> Answer:
        if self.codes and self.codes[0] in (SILENT, CLOSE):
            return self.codes.pop(0)  # type: ignore[no-any-return]
        names = {topic_id: name for name, topic_id in IDS.items()}
        topics = []
        for topic in request.topics:
            name = topic.name or names[topic.topic_id]
            entries = []
            for entry in topic.partitions:
                where = TopicPartition(name, entry.partition_index)
                code = self.code(where)
                entries.append(
                    OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=where.partition, error_code=code)
                )
                if not code:
                    self.committed[where] = OffsetAndMetadata(
                        entry.committed_offset, entry.committed_metadata, entry.committed_leader_epoch
                    )
            topics.append(
                OffsetCommitResponse.OffsetCommitResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=entries
                )
            )
        if self.codes:
            self.codes.pop(0)
        return OffsetCommitResponse(topics=topics)

    def fetch(self, request: Any, version: int) -> Answer:
        names = {topic_id: name for name, topic_id in IDS.items()}
        whole = self.codes[0] if self.codes and isinstance(self.codes[0], int) else 0
        if version >= 8:
            group = request.groups[0]
            topics = []
            for topic in group.topics:
                name = topic.name or names[topic.topic_id]
                topics.append(
                    OffsetFetchResponse.OffsetFetchResponseTopics(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            OffsetFetchResponse.OffsetFetchResponsePartitions(**self._entry(name, number))
                            for number in topic.partition_indexes
                        ],
                    )
                )
            answer = OffsetFetchResponse(
                groups=[OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=whole)]
            )
        else:
            answer = OffsetFetchResponse(
                error_code=whole if version >= 2 else 0,
                topics=[
                    OffsetFetchResponse.OffsetFetchResponseTopic(
                        name=topic.name,
                        partitions=[
                            OffsetFetchResponse.OffsetFetchResponsePartition(**self._entry(topic.name, number))
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in request.topics
                ],
            )
        if self.codes:
            self.codes.pop(0)
        return answer

    def _entry(self, name: str, number: int) -> dict[str, Any]:
        where = TopicPartition(name, number)
        code = self.codes[0].get(where, 0) if self.codes and isinstance(self.codes[0], dict) else 0
        found = OffsetAndMetadata(-1) if code else self.committed.get(where, OffsetAndMetadata(-1))
        return {
            "partition_index": number,
            "committed_offset": found.offset,
            "committed_leader_epoch": found.leader_epoch,
            "metadata": found.metadata,
            "error_code": code,
        }

    def dialogues(self) -> OffsetDialogues:
        return OffsetDialogues(lambda: self.member, self.ids.get, self.client.retry_backoff, self.on_fenced)

    def run_commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_s: float = 20.0
    ) -> dict[TopicPartition, KafkaError]:
        future = self.client.run(self.dialogues().commit(offsets, timeout_s))
        assert self.loop.run_until(future, 100)
        return future.result()

    def run_fetch(self, *partitions: TopicPartition, as_member: bool = False, timeout_s: float = 20.0) -> Any:
        future = self.client.run(self.dialogues().fetch(partitions, timeout_s, as_member=as_member))
        assert self.loop.run_until(future, 100)
        return future.result()

    def on_fenced(self, error: KafkaError) -> None:
        self.fenced.append(error)

    def commits(self) -> list[Any]:
        return self.broker.requests(OffsetCommitRequest)


@pytest.fixture
def it() -> Iterator[Coordinator]:
    loop = Loop.simulated()
    network = MemoryNetwork(loop, "client")
    broker = ScriptedBroker(network.host("kafka"), ranges=MODERN)
    broker.topics = {"t": {0: 1, 1: 1}, "u": {0: 1}}
    client = KafkaClient(network=network, all_topics=False, bootstrap_servers="kafka:9092", request_timeout_ms=5000)
    made = Coordinator(broker, loop, client)
    broker.answers[OffsetCommitRequest] = made.commit
    broker.answers[OffsetFetchRequest] = made.fetch
    broker.ranges[10] = (0, 6)
    made.speak()
    try:
        yield made
    finally:
        client.close()
        loop.close()


WHAT = {A: OffsetAndMetadata(7, "half", 3), B: OffsetAndMetadata(0), C: OffsetAndMetadata(9, "", 1)}


@pytest.mark.parametrize("version", range(1, LATEST + 1))
def test_what_is_committed_is_found_again_in_every_version(it: Coordinator, version: int) -> None:
    it.speak(commit=version, fetch=version)
    assert it.run_commit(WHAT) == {}
    request, spoken = next(each for each in it.broker.received if isinstance(each[0], OffsetCommitRequest))
    assert spoken == version
    assert (request.generation_id_or_member_epoch, request.member_id) == (5, "me")
    assert request.group_instance_id == ("one" if version >= 7 else None)
    found = it.run_fetch(A, B, C, TopicPartition("u", 4))
    assert found.errors == {}
    fetch = it.broker.requests(OffsetFetchRequest)[0]
    assert fetch.require_stable is (version >= 7), "KIP-447"
    assert (request.group_id, fetch.groups[0].group_id if version >= 8 else fetch.group_id) == ("g", "g")
    kept = {where: what if version >= 6 else what._replace(leader_epoch=-1) for where, what in WHAT.items()}
    assert found.offsets == kept


def test_topics_go_by_their_names_when_an_id_is_not_known(it: Coordinator) -> None:
    del it.ids["u"]
    assert it.run_commit(WHAT) == {}
    assert it.run_fetch(A, C).offsets == {A: WHAT[A], C: WHAT[C]}
    versions = {version for request, version in it.broker.received if request.api_key in (8, 9)}
    assert versions == {9}


def test_members_of_the_new_protocol_say_who_looks_and_others_do_not(it: Coordinator) -> None:
    it.run_fetch(A, as_member=True)
    it.run_fetch(A)
    first, second = [each.groups[0] for each in it.broker.requests(OffsetFetchRequest)]
    assert (first.member_id, first.member_epoch) == ("me", 5)
    assert (second.member_id, second.member_epoch) == (None, -1)
    assert all(each.require_stable for each in it.broker.requests(OffsetFetchRequest))


FAIL, RETRY, BRIEFLY, FIND, EPOCH, FENCED, NOTHING = OffsetErrorAction
"""Final; wait; wait, and five times only; look for the coordinator; take the new epoch; no member; no offset."""


class Expected(NamedTuple):
    """What to do about an error of an OffsetCommit and of an OffsetFetch response. Never read from the tables under
    test. ``told``: what a user hears instead of the error itself when a commit ends with it."""

    commit: OffsetErrorAction
    fetch: OffsetErrorAction
    told: type[KafkaError] | None
    source: str


# By hand, from Apache Kafka 4.3.0: ConsumerCoordinator.OffsetCommitResponseHandler and OffsetFetchResponseHandler
# ("classic"), CommitRequestManager ("async"). The errors of a membership are the same for both requests.
# test/conformance/test_groups.py provokes on Apache Kafka 4.3.0: STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID,
# ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
EXPECTED: dict[str, Expected] = {
    "COORDINATOR_LOAD_IN_PROGRESS": Expected(RETRY, RETRY, None, "classic, async: just retry"),
    "COORDINATOR_NOT_AVAILABLE": Expected(FIND, FIND, None, "classic, async: markCoordinatorUnknown, retriable"),
    "NOT_COORDINATOR": Expected(FIND, FIND, None, "classic, async: markCoordinatorUnknown, retriable"),
    "REQUEST_TIMED_OUT": Expected(
        FIND, FIND, None, "classic, async: markCoordinatorUnknown for commits, retriable for look-ups; here for both"
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": Expected(
        BRIEFLY, NOTHING, None,
        "classic, async: commits retry until the time is up, here five times: it may have been deleted. Look-ups: "
        "KafkaException; here a topic that is not there has no offset, so that the reset policy counts",
    ),
    "UNKNOWN_TOPIC_ID": Expected(
        BRIEFLY, BRIEFLY, None, "async: as UNKNOWN_TOPIC_OR_PARTITION; here look-ups wait for the new id of the name"
    ),
    "STALE_MEMBER_EPOCH": Expected(
        EPOCH, EPOCH, None,
        "KIP-848: retry with the epoch of the next heartbeat. async: look-ups and commits before a revocation do, "
        "commitSync fails; here all do",
    ),
    "UNKNOWN_MEMBER_ID": Expected(FENCED, FENCED, CommitFailedError, "classic, async: CommitFailedException"),
    "ILLEGAL_GENERATION": Expected(
        FENCED, FENCED, CommitInRebalanceError,
        "classic: CommitFailedException, in a rebalance RebalanceInProgressException; here an error that is both",
    ),
    "REBALANCE_IN_PROGRESS": Expected(
        FENCED, FENCED, CommitInRebalanceError, "classic: requestRejoin, RebalanceInProgressException"
    ),
    "FENCED_INSTANCE_ID": Expected(FENCED, FENCED, None, "classic: raised as it is (KIP-345)"),
    "FENCED_MEMBER_EPOCH": Expected(FENCED, FENCED, CommitFailedError, "KIP-848: no member of the group any more"),
    "UNSTABLE_OFFSET_COMMIT": Expected(
        RETRY, RETRY, None, "KIP-447; classic, async: look-ups retry. Commits are never answered with it"
    ),
}  # fmt: skip
ONLY_FETCH = {"UNSTABLE_OFFSET_COMMIT"}
"""Errors that have a row of look-ups only, and are retriable besides."""
CODES = {error.message: code for code, error in ERRORS_BY_CODE.items() if code}


def expected(name: str) -> Expected:
    """Without a row: classic and async try look-ups again when Kafka calls the error retriable, and commits never; here
    both are. All else is final, as GROUP_AUTHORIZATION_FAILED and OFFSET_METADATA_TOO_LARGE are in Java, too."""
    default = RETRY if name in RETRIABLE else FAIL
    return EXPECTED.get(name, Expected(default, default, None, ""))


def test_the_tables_have_the_expected_row_for_every_error_and_no_other() -> None:
    wrong = []
    for name, code in CODES.items():
        commit, fetch, _, _ = expected(name)
        error = ERRORS_BY_CODE[code]("")
        for what, table, wanted in (
            ("commit", COMMIT_ERROR_ACTIONS, commit),
            ("fetch", OFFSET_FETCH_ERROR_ACTIONS, fetch),
        ):
            if table.action_for(error) is not wanted:
                wrong.append(f"{what} {name}: {table.action_for(error).name}, expected {wanted.name}")
    assert not wrong, "\n".join(wrong)
    rows = [{cls.message for cls in table} for table in (COMMIT_ERROR_ACTIONS.rows, OFFSET_FETCH_ERROR_ACTIONS.rows)]  # type: ignore[attr-defined]
    assert rows == [EXPECTED.keys() - ONLY_FETCH, EXPECTED.keys()]


AS_THEIR_CLASS = (
    "GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "OFFSET_METADATA_TOO_LARGE",
    "INVALID_COMMIT_OFFSET_SIZE", "LEADER_NOT_AVAILABLE",
)  # fmt: skip
"""Errors without a row that brokers do answer with."""
TIMEOUT_S = 4.0
"""Some more attempts than five, with the client's back-off."""


def observe(it: Coordinator, code: int, run: Callable[[], dict[TopicPartition, KafkaError]]) -> tuple[Any, ...]:
    """What ``run`` does about ``code``, which every request is answered with: see :data:`SEEN`; and the error."""
    it.codes = []
    run()  # the coordinator is known again
    it.codes = [code] * 100
    it.fenced.clear()
    it.broker.received.clear()
    began = it.loop.time()
    errors = run()
    requests = [type(request) for request, _ in it.broker.received]
    attempts = sum(each in (OffsetCommitRequest, OffsetFetchRequest) for each in requests)
    looked_up = FindCoordinatorRequest in requests
    refreshed = MetadataRequest in requests
    fenced = {type(error) for error in it.fenced}
    assert fenced <= {ERRORS_BY_CODE[code]}
    assert it.loop.time() - began <= TIMEOUT_S
    (kind,) = {type(error) for error in errors.values()} or {None}
    times = attempts if attempts in (1, 5) else "many" if 5 < attempts < 12 else f"{attempts} attempts"
    return (times, looked_up, refreshed, bool(fenced)), kind


SEEN = {
    # reaction  attempts, coordinator looked up, metadata read, membership doubted
    FAIL: (1, False, False, False),
    NOTHING: (1, False, False, False),
    FENCED: (1, False, False, True),
    RETRY: ("many", False, False, False),
    FIND: ("many", True, False, False),
    EPOCH: ("many", False, False, True),
    BRIEFLY: (5, False, True, False),
}


@pytest.mark.parametrize("what", ["commit", "fetch"])
def test_what_is_expected_about_each_error_is_done(it: Coordinator, what: str) -> None:
    def commit() -> dict[TopicPartition, KafkaError]:
        return it.run_commit(WHAT, TIMEOUT_S)

    def fetch() -> dict[TopicPartition, KafkaError]:
        return it.run_fetch(A, B, timeout_s=TIMEOUT_S).errors  # type: ignore[no-any-return]

    run = commit if what == "commit" else fetch
    wrong = []
    for name in [*EXPECTED, *AS_THEIR_CLASS]:
        row = expected(name)
        reaction = row.commit if what == "commit" else row.fetch
        told: type[KafkaError] | None = ERRORS_BY_CODE[CODES[name]]
        if reaction is NOTHING:
            told = None
        elif SEEN[reaction][0] == "many":
            told = KafkaTimeoutError
        elif what == "commit":
            told = row.told or told
        found = observe(it, CODES[name], run)
        if found != (SEEN[reaction], told):
            wrong.append(f"{what} {name}: {found}, expected {reaction.name} {(SEEN[reaction], told)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("what", [CLOSE, SILENT], ids=str)
def test_a_commit_that_is_not_answered_is_sent_again(it: Coordinator, what: Any) -> None:
    it.codes = [what, what]
    assert it.run_commit(WHAT) == {}
    assert it.committed == WHAT
    assert len(it.commits()) == 3
    assert len(it.broker.requests(FindCoordinatorRequest)) == 3, "the coordinator may be another one by now"
    assert it.fenced == []


def test_an_attempt_that_cannot_be_made_is_the_last(it: Coordinator) -> None:
    it.broker.ranges[8] = (20, 21)
    errors = it.run_commit(WHAT)
    assert {type(error) for error in errors.values()} == {IncompatibleBrokerVersion}
    assert (it.commits(), it.fenced) == ([], [])


def drive(dialogue: Dialogue[Any], code: int, on_refresh: KafkaError | None = None) -> tuple[Any, list[Step]]:
    """Run a commit of ``A`` by hand, each request of which is answered with ``code`` and each refresh with an error:
    its result, and its steps but Now. A wait takes its time on a clock that starts at 0."""
    now, value, steps = 0.0, None, []
    entry = OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=0, error_code=code)
    topic = OffsetCommitResponse.OffsetCommitResponseTopic(name="t", topic_id=IDS["t"], partitions=[entry])
    try:
        step = next(dialogue)
        while True:
            if not isinstance(step, Now):
                steps.append(step)
            value = OffsetCommitResponse(topics=[topic]) if isinstance(step, Send) else None
            if isinstance(step, Now):
                value = now
            elif isinstance(step, Sleep):
                now += step.seconds
            if isinstance(step, RefreshMetadata) and on_refresh is not None:
                step = dialogue.throw(on_refresh)
            else:
                step = dialogue.send(value)
    except StopIteration as end:
        return end.value, steps


class NoChance:
    def random(self) -> float:
        return 0.5


def commit_of_a(who: Callable[[], ConsumerGroupMetadata], timeout_s: float = 60.0) -> Dialogue[Any]:
    backoff = Backoff(1.0, 1.0, NoChance())
    return OffsetDialogues(who, IDS.get, backoff).commit({A: WHAT[A]}, timeout_s)


def as_me() -> ConsumerGroupMetadata:
    return ConsumerGroupMetadata("g", 5, "me", "one")


def test_metadata_that_cannot_be_read_now_ends_no_commit_and_metadata_that_never_can_does() -> None:
    errors, steps = drive(commit_of_a(as_me), 3, KafkaTimeoutError("late"))
    assert isinstance(errors[A], UnknownTopicOrPartitionError)
    assert [type(each) for each in steps] == [Send, *[Sleep, RefreshMetadata, Send] * 4]
    assert [each.topics for each in steps if isinstance(each, RefreshMetadata)] == [["t"]] * 4
    final = AuthenticationError("no")
    assert drive(commit_of_a(as_me), 3, final)[0] == {A: final}
    with pytest.raises(Cancelled):
        drive(commit_of_a(as_me), 3, Cancelled("closed"))


@pytest.mark.parametrize(("timeout_s", "attempts"), [(2.999, 3), (3.0, 4), (3.001, 4)])
def test_an_attempt_is_made_until_the_time_is_up_and_none_later(timeout_s: float, attempts: int) -> None:
    errors, steps = drive(commit_of_a(as_me, timeout_s), 14)
    assert isinstance(errors[A], KafkaTimeoutError)
    assert sum(isinstance(each, Send) for each in steps) == attempts


def test_a_coordinator_that_has_left_the_cluster_is_looked_for() -> None:
    dialogue = commit_of_a(as_me)
    assert isinstance(next(dialogue), Now)
    assert isinstance(dialogue.send(0.0), Send)
    assert isinstance(dialogue.throw(UnknownBrokerIdError("node 3: not in the cluster's metadata")), Now)
    assert dialogue.send(0.0) == Forget(routing.Coordinator("g"))
    assert isinstance(dialogue.send(None), Sleep)
    assert isinstance(dialogue.send(None), Send)


def test_a_member_that_is_none_any_more_when_its_epoch_was_stale_hears_so_at_once() -> None:
    left = [as_me()]

    def who() -> ConsumerGroupMetadata:
        if not left:
            raise CommitFailedError("gone")
        return left.pop()

    errors, steps = drive(commit_of_a(who), 113)
    assert str(errors[A]) == "CommitFailedError: gone"
    assert [type(each) for each in steps] == [Send], "it waits for no epoch"


def test_only_what_failed_is_tried_again(it: Coordinator) -> None:
    it.codes = [{B: 14}]
    assert it.run_commit(WHAT) == {}
    assert [entry.partition_index for entry in it.commits()[1].topics[0].partitions] == [1]
    assert len(it.commits()[1].topics) == 1


def test_a_topic_that_is_not_there_is_tried_some_times_and_not_for_the_whole_time(it: Coordinator) -> None:
    it.codes = [{C: 3}] * 20
    errors = it.run_commit(WHAT)
    assert list(errors) == [C]
    assert isinstance(errors[C], UnknownTopicOrPartitionError)
    assert len(it.commits()) == 5
    assert it.broker.requests(MetadataRequest)
    assert it.committed == {A: WHAT[A], B: WHAT[B]}


@pytest.mark.parametrize(
    ("code", "kind"),
    [(12, OffsetMetadataTooLargeError), (30, GroupAuthorizationFailedError), (29, TopicAuthorizationFailedError)],
)
def test_what_cannot_be_mended_fails_at_once(it: Coordinator, code: int, kind: type[KafkaError]) -> None:
    it.codes = [{A: code}]
    errors = it.run_commit(WHAT)
    assert list(errors) == [A]
    assert isinstance(errors[A], kind)
    assert "t-0" in str(errors[A])
    assert len(it.commits()) == 1


def test_a_stale_epoch_is_answered_with_the_new_one_at_once(it: Coordinator) -> None:
    def stale(request: Any, version: int) -> Answer:
        if request.generation_id_or_member_epoch == 5:
            it.member = it.member._replace(generation_id=6)
            it.codes = [113]
        return it.commit(request, version)

    it.broker.answers[OffsetCommitRequest] = stale
    began = it.loop.time()
    assert it.run_commit(WHAT) == {}
    assert [each.generation_id_or_member_epoch for each in it.commits()] == [5, 6]
    assert it.loop.time() - began < 0.05
    assert len(it.fenced) == 1


def test_a_stale_epoch_without_a_new_one_waits_for_it_for_the_time_there_is(it: Coordinator) -> None:
    it.codes = [113] * 100
    errors = it.run_commit(WHAT, 3.0)
    assert all(isinstance(error, KafkaTimeoutError) for error in errors.values())
    assert "STALE_MEMBER_EPOCH" in str(errors[A]) or "StaleMemberEpochError" in str(errors[A])


def test_who_is_no_member_any_more_sends_nothing(it: Coordinator) -> None:
    def nobody() -> ConsumerGroupMetadata:
        raise CommitFailedError("gone")

    dialogues = OffsetDialogues(nobody, it.ids.get, it.client.retry_backoff)
    future = it.client.run(dialogues.commit(WHAT, 1.0))
    assert it.loop.run_until(future, 10)
    assert {str(error) for error in future.result().values()} == {"CommitFailedError: gone"}
    assert it.commits() == []


def test_the_time_limit_holds_when_nobody_answers(it: Coordinator) -> None:
    it.codes = [SILENT] * 100
    began = it.loop.time()
    errors = it.run_commit(WHAT, 7.0)
    assert set(errors) == set(WHAT)
    assert it.loop.time() - began <= 7.01


def test_offsets_of_an_open_transaction_are_waited_for(it: Coordinator) -> None:
    it.committed = dict(WHAT)
    it.codes = [{A: 88}, {A: 88}]
    found = it.run_fetch(A, B)
    assert found.offsets == {A: WHAT[A], B: WHAT[B]}
    assert len(it.broker.requests(OffsetFetchRequest)) == 3


def test_an_answer_that_leaves_a_partition_out_does_not_say_that_it_has_no_offset(it: Coordinator) -> None:
    it.committed = dict(WHAT)

    def forgetful(request: Any, version: int) -> Answer:
        answer = it.fetch(request, version)
        if len(it.broker.requests(OffsetFetchRequest)) == 1:
            answer.groups[0].topics.pop()  # type: ignore[union-attr]
        return answer

    it.broker.answers[OffsetFetchRequest] = forgetful
    assert it.run_fetch(A, C) == ({A: WHAT[A], C: WHAT[C]}, {})
    assert [len(each.groups[0].topics) for each in it.broker.requests(OffsetFetchRequest)] == [2, 1]


def test_a_topic_that_is_not_there_has_no_offset(it: Coordinator) -> None:
    it.codes = [{A: 3}]
    found = it.run_fetch(A)
    assert found == ({}, {})


@pytest.mark.parametrize("version", [5, 9])
def test_errors_of_the_whole_group_are_those_of_each_partition(it: Coordinator, version: int) -> None:
    it.speak(fetch=version)
    it.codes = [16, 14, 30]
    found = it.run_fetch(A, B)
    assert all(isinstance(found.errors[each], GroupAuthorizationFailedError) for each in (A, B))
    assert len(it.broker.requests(OffsetFetchRequest)) == 3
