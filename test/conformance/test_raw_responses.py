"""Exact error codes, request by request, over a client that is nothing but a socket and the codec.

The public clients never send most of these requests, and hide the codes of the others. Each table is the same for both
brokers: what it says was measured on Apache Kafka 4.3.0. Where the embedded broker is different on purpose (a topic id
that nobody knows in ShareFetch, a group that nobody joined), its handlers' docstrings say so, and no row is here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from kafka.protocol.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.share import ShareAcknowledgeRequest, ShareFetchRequest, ShareGroupHeartbeatRequest
from kafka.protocol.topics import CreatePartitionsRequest, CreateTopicsRequest
from kafka.wire.message import Struct
from test.broker.driver import batch, produce_request
from test.broker.raw_client import RawClient
from test.conformance.readiness import produce_to_leader
from test.support.waiting import look_until, until

UNKNOWN_ID = UUID(int=12345)
TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
DEADLINE_S = 30.0
COORDINATOR_STARTS = (14, 15, 16)

FIRST = 1
"""Where a group of the fixture stands: the record before it was used to see that the group is there. Offsets in the
tests of share groups count from here."""

Acks = Sequence[tuple[int, int, list[int]]]
"""First offset, last offset, types."""


@pytest.fixture
def port(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])


@pytest.fixture
def raw(port: int) -> Iterator[RawClient]:
    with RawClient(port) as client:
        yield client


def creatable(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: Sequence[tuple[int, list[int]]] = (),
    **settings: str | None,
) -> CreateTopicsRequest.CreatableTopic:
    """``settings`` with ``_`` for ``.``."""
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in assignments
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in settings.items()
        ],
    )


@pytest.fixture
def topic(raw: RawClient, unique: Callable[[str], str]) -> tuple[str, UUID]:
    """Name and id of a topic of two partitions, with a record and three batches of ten in the first one."""
    name = unique("raw")
    made = raw.ask(CreateTopicsRequest(topics=[creatable(name, 2)], timeout_ms=10_000)).topics[0]
    assert made.error_code == 0
    for count in (FIRST, 10, 10, 10):
        values = [b"%d" % number for number in range(count)]
        produce_to_leader(raw, produce_request(name, batch(*values, timestamp=int(time.time() * 1000))))
    return name, made.topic_id


# -- topics and their settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (creatable("fine"), 0),
        (creatable("fine", -1, -1), 0),
        (creatable("a b"), 17),
        (creatable("."), 17),
        (creatable(""), 17),
        (creatable("x" * 250), 17),
        (creatable("fine", 0), 37),
        (creatable("fine", -2), 37),
        (creatable("fine", 10_000), 44),
        (creatable("fine", 10_001), 44),
        (creatable("fine", 1, 0), 38),
        (creatable("fine", 1, 2), 38),
        (creatable("fine", 1, -3), 38),
        (creatable("fine", nope="1"), 40),
        (creatable("fine", retention_ms=None), 40),
        (creatable("fine", retention_ms=""), 40),
        (creatable("fine", retention_ms="x"), 40),
        (creatable("fine", retention_ms="5.0"), 40),
        (creatable("fine", retention_ms="1_000"), 40),
        (creatable("fine", retention_ms="+5"), 0),
        (creatable("fine", retention_ms=" 5 "), 0),
        (creatable("fine", segment_bytes="1"), 40),
        (creatable("fine", segment_bytes="99999999999"), 40),
        (creatable("fine", min_insync_replicas="0"), 40),
        (creatable("fine", preallocate="TRUE"), 0),
        (creatable("fine", preallocate="yes"), 40),
        (creatable("fine", min_cleanable_dirty_ratio="1.5"), 40),
        (creatable("fine", min_cleanable_dirty_ratio="nan"), 40),
        (creatable("fine", cleanup_policy="compact,delete"), 0),
        (creatable("fine", cleanup_policy=""), 0),
        (creatable("fine", cleanup_policy="foo"), 40),
        (creatable("fine", compression_type="brotli"), 40),
        (creatable("fine", message_timestamp_type="X"), 40),
        (creatable("fine", min_compaction_lag_ms="10", max_compaction_lag_ms="5"), 40),
        (creatable("fine", remote_storage_enable="true"), 40),
        (creatable("fine", -1, -1, [(0, [1])]), 0),
        (creatable("fine", -1, 1, [(0, [1])]), 42),
        (creatable("fine", 1, -1, [(0, [1])]), 42),
        (creatable("fine", -1, -1, [(1, [1])]), 39),
        (creatable("fine", -1, -1, [(0, [9])]), 39),
        (creatable("fine", -1, -1, [(0, [])]), 39),
        (creatable("fine", -1, -1, [(0, [1, 1])]), 39),
        (creatable("fine", -1, -1, [(0, [1]), (0, [1])]), 39),
    ],
    ids=str,
)
def test_create_topics(raw: RawClient, wanted: CreateTopicsRequest.CreatableTopic, code: int) -> None:
    answer = raw.ask(CreateTopicsRequest(topics=[wanted], validate_only=True, timeout_ms=10_000))
    assert [found.error_code for found in answer.topics] == [code]


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (3, None, 0),
        (3, [[1]], 0),
        (3, [], 39),
        (3, [[9]], 39),
        (2, None, 37),
        (1, None, 37),
        (0, None, 37),
        (-1, None, 37),
        (10_001, None, 0),
        (10_003, None, -1),
        (2**31 - 1, None, -1),
    ],
)
def test_create_partitions(
    raw: RawClient, topic: tuple[str, UUID], count: int, assignments: list[list[int]] | None, code: int
) -> None:
    topic_request = CreatePartitionsRequest.CreatePartitionsTopic(
        name=topic[0],
        count=count,
        assignments=None
        if assignments is None
        else [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
    )
    answer = raw.ask(CreatePartitionsRequest(topics=[topic_request], validate_only=True, timeout_ms=10_000))
    assert [found.error_code for found in answer.results] == [code]


Change = tuple[str, int, "str | None"]


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (TOPIC, "", [], 0),
        (TOPIC, "", [("retention.ms", SET, "5")], 0),
        (TOPIC, "", [("retention.ms", SET, "x")], 40),
        (TOPIC, "", [("retention.ms", SET, None)], 42),
        (TOPIC, "", [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)], 42),
        (TOPIC, "", [("retention.ms", APPEND, "5")], 40),
        (TOPIC, "", [("retention.ms", 9, "5")], -1),
        (TOPIC, "", [("nope", SET, "5")], 40),
        (TOPIC, "", [("nope", DELETE, None)], 0),
        (TOPIC, "", [("cleanup.policy", APPEND, "compact")], 0),
        (TOPIC, "", [("cleanup.policy", APPEND, "foo")], 40),
        (TOPIC, "", [("cleanup.policy", SUBTRACT, "delete")], 0),
        (TOPIC, "no-such-topic", [("retention.ms", SET, "5")], 3),
        (TOPIC, "a b", [("retention.ms", SET, "5")], 17),
        (77, "x", [("a", SET, "b")], 42),
        (GROUP, "", [("share.auto.offset.reset", SET, "earliest")], 42),
        (GROUP, "g", [("share.auto.offset.reset", SET, "by_duration:PT1H")], 0),
        (GROUP, "g", [("share.auto.offset.reset", SET, "by_duration:-PT1H")], 40),
        (GROUP, "g", [("share.auto.offset.reset", SET, "foo")], 40),
        (GROUP, "g", [("share.auto.offset.reset", APPEND, "latest")], 40),
        (GROUP, "g", [("share.record.lock.duration.ms", SET, "5")], 40),
        (GROUP, "g", [("share.record.lock.duration.ms", SET, "99999999")], 40),
        (GROUP, "g", [("share.delivery.count.limit", SET, "1")], 40),
        (GROUP, "g", [("share.delivery.count.limit", SET, "11")], 40),
        (GROUP, "g", [("share.session.timeout.ms", SET, "1")], 40),
        (GROUP, "g", [("share.heartbeat.interval.ms", SET, "1")], 40),
        (GROUP, "g", [("share.isolation.level", SET, "x")], 40),
        (GROUP, "g", [("share.partition.max.record.locks", SET, "5")], 40),
        (GROUP, "g", [("share.renew.acknowledge.enable", SET, "maybe")], 40),
        (GROUP, "g", [("nope", SET, "1")], 40),
        (BROKER, "1", [("nope.x", SET, "1")], 0),
        (BROKER, "7", [("log.retention.ms", SET, "1")], 42),
        (BROKER, "x", [("log.retention.ms", SET, "1")], 42),
        (BROKER, "", [("log.retention.ms", SET, "x")], 42),
        (BROKER, "", [("num.partitions", SET, "3")], 42),
    ],
)
def test_incremental_alter_configs(
    raw: RawClient, topic: tuple[str, UUID], kind: int, name: str, changes: list[Change], code: int
) -> None:
    """An empty name of a topic stands for one that is there."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=topic[0] if kind == TOPIC and not name else name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    answer = raw.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True))
    assert [found.error_code for found in answer.responses] == [code]


# -- share groups ----------------------------------------------------------------------------------------------------


Fetched = tuple[int, dict[int, tuple[int, int, list[tuple[int, int, int]]]]]


def has_acquired(found: Fetched) -> bool:
    """Whether partition 0 gave anything. It may be missing in the answer while its state is read."""
    return 0 in found[1] and bool(found[1][0][2])


class Member:
    """One member of a share group on a connection of its own, which counts its session's epochs."""

    def __init__(self, port: int, group: str, name: str | None = "m") -> None:
        self.client = RawClient(port)
        self.group = group
        self.name = name
        self.epoch = 0

    def heartbeat(self, epoch: int, topics: list[str] | None, rack: str | None = None) -> int:
        """The error code, once the coordinator is there: the first one of a new cluster is made when it is looked for.
        """
        self.client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group or "none"]))
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name or "",
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=topics,
        )
        return look_until(lambda: self.client.ask(request).error_code, lambda code: code not in COORDINATOR_STARTS)

    def fetch(
        self,
        partitions: Sequence[tuple[UUID, int]] = (),
        *,
        epoch: int | None = None,
        acks: dict[tuple[UUID, int], Acks] | None = None,
        max_records: int = 100,
        mode: int = 1,
        max_wait_ms: int = 0,
        nothing: bool = False,
        renew: bool = False,
    ) -> Fetched:
        """The error code, and of each partition the codes of fetch and acknowledgement, and what was acquired."""
        F = ShareFetchRequest
        request = F(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=0 if nothing else 1,
            max_bytes=0 if nothing else 1 << 20,
            max_records=0 if nothing else max_records,
            batch_size=100,
            share_acquire_mode=mode,
            is_renew_ack=renew,
            topics=self._topics(F.FetchTopic, F.FetchPartition, F.AcknowledgementBatch, partitions, acks or {}),
            forgotten_topics_data=[],
        )
        answer = self.client.ask(request)
        self._count(epoch, answer.error_code)
        return answer.error_code, {
            one.partition_index: (
                one.error_code,
                one.acknowledge_error_code,
                [
                    (found.first_offset - FIRST, found.last_offset - FIRST, found.delivery_count)
                    for found in one.acquired_records
                ],
            )
            for found_topic in answer.responses
            for one in found_topic.partitions
        }

    def acknowledge(
        self, acks: dict[tuple[UUID, int], Acks], *, epoch: int | None = None, renew: bool = False
    ) -> tuple[int, list[int]]:
        """The error code, and each partition's."""
        A = ShareAcknowledgeRequest
        request = A(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renew,
            topics=self._topics(A.AcknowledgeTopic, A.AcknowledgePartition, A.AcknowledgementBatch, (), acks),
        )
        answer = self.client.ask(request)
        self._count(epoch, answer.error_code)
        return answer.error_code, [one.error_code for found in answer.responses for one in found.partitions]

    def _count(self, epoch: int | None, code: int) -> None:
        if epoch is None and code not in (122, 123):
            self.epoch += 1

    @staticmethod
    def _topics(
        topic: type[Struct],
        partition: type[Struct],
        acknowledgement: type[Struct],
        partitions: Sequence[tuple[UUID, int]],
        acks: dict[tuple[UUID, int], Acks],
    ) -> list[Any]:
        make_topic: Any = topic
        make_partition: Any = partition
        make_batch: Any = acknowledgement
        return [
            make_topic(
                topic_id=topic_id,
                partitions=[
                    make_partition(
                        partition_index=number,
                        acknowledgement_batches=[
                            make_batch(
                                first_offset=first + FIRST, last_offset=last + FIRST, acknowledge_types=types
                            )
                            for first, last, types in acks.get((topic_id, number), ())
                        ],
                    )
                ],
            )
            for topic_id, number in dict.fromkeys((*partitions, *acks))
        ]


@pytest.fixture
def members(port: int) -> Iterator[Callable[..., Member]]:
    """``members(group, name)``: members whose connections end with the test."""
    made: list[Member] = []

    def member(group: str, name: str | None = "m") -> Member:
        made.append(Member(port, group, name))
        return made[-1]

    yield member
    for one in made:
        one.client.close()


@pytest.fixture
def group(
    raw: RawClient, topic: tuple[str, UUID], unique: Callable[[str], str], members: Callable[..., Member]
) -> str:
    """A share group that begins at the first record, and whose state is there."""
    name = unique("group")
    setting = IncrementalAlterConfigsRequest.AlterableConfig(
        name="share.auto.offset.reset", config_operation=SET, value="earliest"
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP, resource_name=name, configs=[setting]
    )
    answer = raw.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    assert answer.responses[0].error_code == 0
    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=GROUP, resource_name=name, configuration_keys=["share.auto.offset.reset"]
    )
    shown = DescribeConfigsRequest(resources=[wanted])
    until(lambda: raw.ask(shown).results[0].configs[0].value == "earliest")
    assert members(name, "first").heartbeat(0, [topic[0]]) == 0
    probe = members(name, "probe")
    until(lambda: has_acquired(probe.fetch([(topic[1], 0)], epoch=0, max_records=1)))
    assert probe.acknowledge({(topic[1], 0): [(-FIRST, -1, [1])]}, epoch=-1) == (0, [0])
    return name


@pytest.mark.parametrize(
    ("member", "epoch", "with_topics", "rack", "code"),
    [
        ("", 0, True, None, 42),
        ("x" * 37, 0, True, None, 42),
        ("m", 0, False, None, 42),
        ("m", -2, True, None, 42),
        ("m", 0, True, "", 42),
        ("m", 0, True, None, 0),
        ("nobody", 3, False, None, 25),
        ("nobody", -1, False, None, 25),
        ("first", 99, False, None, 110),
    ],
)
def test_share_group_heartbeat(
    members: Callable[..., Member],
    group: str,
    topic: tuple[str, UUID],
    member: str,
    epoch: int,
    with_topics: bool,
    rack: str | None,
    code: int,
) -> None:
    assert members(group, member).heartbeat(epoch, [topic[0]] if with_topics else None, rack) == code


@pytest.mark.parametrize(("epoch", "code"), [(5, 69), (-1, 69)])
def test_share_group_heartbeat_to_a_group_that_is_not_there(
    members: Callable[..., Member], unique: Callable[[str], str], epoch: int, code: int
) -> None:
    assert members(unique("none")).heartbeat(epoch, None) == code


def test_share_group_heartbeat_with_an_empty_list_of_topics(members: Callable[..., Member], group: str) -> None:
    assert members(group).heartbeat(0, []) == 42
    assert members("").heartbeat(0, ["t"]) == 42


@pytest.mark.parametrize(
    ("name", "epoch", "code"),
    [("", 0, 42), (None, 0, 42), ("x" * 37, 0, 42), ("m", 5, 122), ("m", -1, 122), ("m", -2, 122)],
)
def test_share_fetch_without_a_session(
    members: Callable[..., Member], group: str, topic: tuple[str, UUID], name: str | None, epoch: int, code: int
) -> None:
    assert members(group, name).fetch([(topic[1], 0)], epoch=epoch) == (code, {})


@pytest.mark.parametrize("number", [77, -1])
def test_share_fetch_of_a_partition_that_is_not_there(
    members: Callable[..., Member], group: str, topic: tuple[str, UUID], number: int
) -> None:
    assert members(group).fetch([(topic[1], number)]) == (0, {number: (3, 0, [])})


def test_share_fetch_counts_its_session(members: Callable[..., Member], group: str, topic: tuple[str, UUID]) -> None:
    name = (topic[1], 0)
    member = members(group)
    assert member.fetch(acks={name: [(0, 0, [1])]}, epoch=0) == (42, {}), "no acknowledgement opens a session"
    code, found = member.fetch([name], max_records=5)
    assert (code, found[0][0], found[0][2][0][:2]) == (0, 0, (0, 4))
    assert member.fetch(epoch=7) == (123, {})
    assert member.fetch(mode=7) == (-1, {})
    assert member.fetch(max_records=-1) == (0, {}), "the one before has counted"


def test_share_fetch_that_renews(members: Callable[..., Member], group: str, topic: tuple[str, UUID]) -> None:
    name = (topic[1], 0)
    renewal: dict[tuple[UUID, int], Acks] = {name: [(0, 0, [4])]}
    member = members(group)
    member.fetch([name], max_records=5)
    assert member.fetch(acks=renewal, renew=True, epoch=1) == (42, {}), "it asks for records, too"
    assert member.fetch(acks=renewal, nothing=True) == (0, {0: (0, 42, [])}), "it does not say that it renews"
    assert member.fetch(acks=renewal, nothing=True, renew=True) == (0, {0: (0, 0, [])})
    assert member.fetch(nothing=True, renew=True) == (0, {})


@pytest.mark.parametrize(
    ("acks", "renew", "code"),
    [
        ([(0, 0, [9])], False, 42),
        ([(0, 0, [-1])], False, 42),
        ([(0, 0, [])], False, 42),
        ([(0, 3, [1, 1])], False, 42),
        ([(3, 2, [1])], False, 42),
        ([(-5, -3, [1])], False, 42),
        ([(3, 3, [1]), (1, 1, [1])], False, 42),
        ([(1, 2, [1]), (2, 3, [1])], False, 121),
        ([(4, 6, [1])], False, 121),
        ([(4, 5000, [1])], False, 42),
        ([(5000, 5001, [1])], False, 42),
        ([(1, 1, [4])], False, 42),
        ([(1, 1, [4])], True, 0),
        ([(1, 1, [1])], True, 0),
        ([(0, 1, [1]), (2, 2, [2]), (3, 4, [3, 0])], False, 0),
    ],
)
def test_share_acknowledge(
    members: Callable[..., Member], group: str, topic: tuple[str, UUID], acks: Acks, renew: bool, code: int
) -> None:
    name = (topic[1], 0)
    member = members(group)
    member.fetch([name], max_records=5)
    assert member.acknowledge({name: acks}, renew=renew) == (0, [code])


def test_share_acknowledge_twice_is_fine_below_the_start_and_refused_above_it(
    members: Callable[..., Member], group: str, topic: tuple[str, UUID]
) -> None:
    name = (topic[1], 0)
    member = members(group)
    member.fetch([name], max_records=5)
    for acks, code in (([(3, 3, [1])], 0), ([(3, 3, [1])], 121), ([(0, 0, [1])], 0), ([(0, 0, [1])], 0)):
        assert member.acknowledge({name: acks}) == (0, [code])


def test_share_acknowledge_of_what_is_not_there(
    members: Callable[..., Member], group: str, topic: tuple[str, UUID]
) -> None:
    member = members(group)
    member.fetch([(topic[1], 0)], max_records=5)
    one: Acks = [(0, 0, [1])]
    assert member.acknowledge({}) == (0, [])
    assert member.acknowledge({(UNKNOWN_ID, 0): one}) == (0, [100])
    assert member.acknowledge({(topic[1], 77): one}) == (0, [3])
    assert member.acknowledge({(topic[1], 1): one}) == (0, [3]), "nobody has fetched from it"


def test_share_acknowledge_of_anothers_records(
    members: Callable[..., Member], group: str, topic: tuple[str, UUID]
) -> None:
    name = (topic[1], 0)
    holder, other = members(group, "holder"), members(group, "other")
    holder.fetch([name], max_records=5)
    other.fetch([name], nothing=True)
    assert other.acknowledge({name: [(0, 0, [1])]}) == (0, [121])
    assert holder.acknowledge({name: [(0, 0, [1])]}) == (0, [0])


@pytest.mark.parametrize(
    ("name", "epoch", "code"),
    [("m", 0, 123), ("m", 99, 123), ("m", -2, 123), ("nobody", 4, 122), (None, 4, 42), ("x" * 37, 4, 42)],
)
def test_share_acknowledge_with_a_wrong_epoch_or_member(
    members: Callable[..., Member], group: str, topic: tuple[str, UUID], name: str | None, epoch: int, code: int
) -> None:
    members(group).fetch([(topic[1], 0)], max_records=1)
    assert members(group, name).acknowledge({}, epoch=epoch) == (code, [])


def test_closing_a_share_session_takes_the_last_acknowledgements(
    members: Callable[..., Member], group: str, topic: tuple[str, UUID]
) -> None:
    name = (topic[1], 0)
    member = members(group)
    member.fetch([name], max_records=5)
    assert member.acknowledge({name: [(0, 2, [1])]}, epoch=-1) == (0, [0])
    assert member.acknowledge({}, epoch=-1) == (122, [])
    again = members(group)

    def has_what_was_released() -> bool:  # it is free a moment after the answer; those behind it are so before
        found = again.fetch([name], epoch=0, max_records=2)
        return has_acquired(found) and found[1][0][2][0][0] == 3

    until(has_what_was_released)
