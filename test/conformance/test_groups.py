"""Groups of consumers over raw requests: rebalances, static members, reconciliation, changes of protocol, offsets.

Members are sockets. A group's name is its test's own; what a real coordinator does on its first request (loading) is
waited for by the fixture.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest

from kafka.errors import MemberIdRequiredError
from kafka.protocol.configs import IncrementalAlterConfigsRequest
from kafka.protocol.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
)
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.share import ShareGroupHeartbeatRequest
from kafka.protocol.topics import CreatePartitionsRequest
from test.broker.groups.requests import (
    beat,
    codes,
    commit,
    consumer,
    delete_offsets,
    fetch,
    given,
    join,
    leave,
    offsets,
    read_assignment,
    sync,
    write_assignment,
    write_subscription,
)
from test.broker.raw_client import RawClient
from test.conformance.readiness import wait_for_coordinator
from test.support.optional import needs_re2
from test.support.waiting import until

DEADLINE_S = 30.0
INCONSISTENT, UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCE, NOT_EMPTY, NO_GROUP = 23, 25, 22, 27, 68, 69
ID_REQUIRED, FENCED_INSTANCE, SUBSCRIBED, FENCED_EPOCH, UNRELEASED, ASSIGNOR, STALE, REGEX = (
    79, 82, 86, 110, 111, 112, 113, 128,
)  # fmt: skip


@pytest.fixture
def port(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])


@pytest.fixture
def connect(port: int) -> Iterator[Callable[[], RawClient]]:
    """``connect()``: one more connection."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(RawClient(port))


@pytest.fixture
def raw(connect: Callable[[], RawClient]) -> RawClient:
    return connect()


@pytest.fixture
def group(raw: RawClient, unique: Callable[[str], str]) -> str:
    """A name whose coordinator is there."""
    name = unique("group")
    wait_for_coordinator(raw, name)
    until(lambda: raw.ask(beat(name, 1, "nobody"), 4).error_code == UNKNOWN_MEMBER)  # one that loads says 0
    return name


class Member:
    """A classic member on a socket of its own."""

    def __init__(self, client: RawClient, group: str, instance: str | None = None, **fields: Any) -> None:
        self.client = client
        self.group = group
        self.instance = instance
        self.fields = fields
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self._asked: Any = None

    def start_join(self, version: int = 9, **fields: Any) -> Member:
        """Ask, without waiting; a new member gets its id first."""
        if not self.member_id and self.instance is None and version >= 4:
            answer = self.client.ask(join(self.group, **{**self.fields, **fields}), version)
            assert answer.error_code == ID_REQUIRED, answer
            self.member_id = answer.member_id
        self._asked = join(self.group, self.member_id, self.instance, **{**self.fields, **fields}), version
        self.client.send(*self._asked)
        return self

    def joined(self) -> JoinGroupResponse:
        answer: JoinGroupResponse = self.client.receive(*self._asked)
        if answer.error_code == 0:
            self.member_id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
        return answer

    def join(self, version: int = 9, **fields: Any) -> JoinGroupResponse:
        return self.start_join(version, **fields).joined()

    def start_sync(self, assignments: Mapping[str, bytes] | None = None) -> Member:
        self._asked = sync(self.group, self.generation, self.member_id, assignments, self.instance), 5
        self.client.send(*self._asked)
        return self

    def synced(self) -> Any:
        return self.client.receive(*self._asked)

    def beat(self, generation: int | None = None) -> int:
        number = self.generation if generation is None else generation
        return self.client.ask(beat(self.group, number, self.member_id, self.instance), 4).error_code


def described(raw: RawClient, group: str) -> DescribeGroupsResponse.DescribedGroup:
    return raw.ask(DescribeGroupsRequest(groups=[group]), 6).groups[0]


def consumers(raw: RawClient, group: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
    return raw.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1).groups[0]


def alone(member: Member, assignment: bytes = b"mine") -> Member:
    """The only member of a stable group."""
    assert member.join().error_code == 0
    assert member.start_sync({member.member_id: assignment}).synced().error_code == 0
    return member


# -- classic ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_a_first_join_in_every_version(raw: RawClient, group: str, version: int) -> None:
    answer = raw.ask(join(group), version)
    if version < 4:
        assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, answer.member_id)
        assert [one.metadata for one in answer.members] == [b"r"]
    else:
        assert answer.error_code == ID_REQUIRED
        assert answer.member_id.startswith("raw-")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": ""}, 24),
        ({"session_ms": 99}, 26),
        ({"session_ms": 1_800_001}, 26),
        ({"protocols": ()}, INCONSISTENT),
        ({"protocol_type": ""}, INCONSISTENT),
        ({"member": "nobody"}, UNKNOWN_MEMBER),
    ],
)
def test_joins_that_are_refused(raw: RawClient, group: str, fields: dict[str, Any], code: int) -> None:
    answer = raw.ask(join(**{"group": group, **fields}), 9)
    assert (answer.error_code, answer.generation_id, answer.members) == (code, -1, [])


def test_a_whole_rebalance(connect: Callable[[], RawClient], raw: RawClient, group: str) -> None:
    first = alone(Member(connect(), group))
    assert described(raw, group).group_state == "Stable"
    second = Member(connect(), group).start_join()
    until(lambda: first.beat() == REBALANCE)
    shown = described(raw, group)
    assert (shown.group_state, shown.protocol_data, len(shown.members)) == ("PreparingRebalance", "", 2)
    assert raw.ask(sync(group, 1, first.member_id), 5).error_code == REBALANCE
    answers = first.join(), second.joined()
    assert [(one.error_code, one.generation_id, one.leader) for one in answers] == [(0, 2, first.member_id)] * 2
    assert [len(one.members) for one in answers] == [2, 0]
    second.start_sync()
    until(lambda: first.beat() == 0)
    assert described(raw, group).group_state == "CompletingRebalance"
    assert first.start_sync({first.member_id: b"1", second.member_id: b"2", "ghost": b"3"}).synced().assignment == b"1"
    answer = second.synced()
    assert (answer.error_code, answer.protocol_type, answer.protocol_name, answer.assignment) == (
        0, "consumer", "range", b"2",
    )  # fmt: skip
    assert {one.member_assignment for one in described(raw, group).members} == {b"1", b"2"}
    left = raw.ask(leave(group, (second.member_id, None), (second.member_id, None), ("", None)), 5)
    assert [one.error_code for one in left.members] == [0, UNKNOWN_MEMBER, UNKNOWN_MEMBER]
    assert first.beat() == REBALANCE
    assert first.join().generation_id == 3


def test_generations_and_ids_are_checked(connect: Callable[[], RawClient], raw: RawClient, group: str) -> None:
    member = Member(connect(), group)
    member.join()
    name = member.member_id
    assert [member.beat(0), member.beat(2), member.beat()] == [ILLEGAL_GENERATION, ILLEGAL_GENERATION, 0]
    assert [raw.ask(beat(group, 1, who), 4).error_code for who in ("x", "")] == [UNKNOWN_MEMBER] * 2
    for request, code in (
        (sync(group, 2, name), ILLEGAL_GENERATION),
        (sync(group, 1, "x"), UNKNOWN_MEMBER),
        (sync(group, 1, name, protocol="x"), INCONSISTENT),
        (sync(group, 1, name, protocol_type="x"), INCONSISTENT),
        (sync(group, 1, name, protocol=None), INCONSISTENT),
        (sync("", 1, name, protocol=None), INCONSISTENT),
        (sync("", 1, name), 24),
    ):
        assert raw.ask(request, 5).error_code == code


def test_groups_that_are_not_there(raw: RawClient, group: str) -> None:
    assert raw.ask(beat(group, 1, "x"), 4).error_code == UNKNOWN_MEMBER
    assert raw.ask(beat("", 1, "x"), 4).error_code == 24
    assert raw.ask(sync(group, 1, "x"), 5).error_code == UNKNOWN_MEMBER
    left = raw.ask(leave(group, ("x", None)), 5)
    assert (left.error_code, left.members[0].error_code) == (0, UNKNOWN_MEMBER)
    assert raw.ask(LeaveGroupRequest(group_id=group, member_id="x"), 2).error_code == UNKNOWN_MEMBER
    assert raw.ask(leave("", ("x", None)), 5).error_code == 24
    shown = described(raw, group)
    assert (shown.error_code, shown.error_message, shown.group_state) == (NO_GROUP, f"Group {group} not found.", "Dead")
    old = raw.ask(DescribeGroupsRequest(groups=[group]), 5).groups[0]
    assert (old.error_code, old.group_state) == (0, "Dead")
    results = raw.ask(DeleteGroupsRequest(groups_names=[group, ""]), 2).results
    assert [one.error_code for one in results] == [NO_GROUP] * 2
    assert raw.ask(delete_offsets("", "nope"), 0).error_code == 24
    assert raw.ask(delete_offsets(group, "nope"), 0).error_code == NO_GROUP
    assert consumers(raw, group).error_code == NO_GROUP
    assert consumers(raw, "").error_code == 24


def test_a_group_is_listed_by_state_and_type(connect: Callable[[], RawClient], raw: RawClient, group: str) -> None:
    def listed(states: list[str], types: list[str]) -> list[tuple[str, str, str]]:
        answer = raw.ask(ListGroupsRequest(states_filter=states, types_filter=types), 5)
        assert answer.error_code == 0
        return [
            (one.protocol_type, one.group_state, one.group_type) for one in answer.groups if one.group_id == group
        ]

    assert listed([], []) == []
    member = Member(connect(), group)
    until(lambda: raw.ask(join(group), 9).error_code == MemberIdRequiredError.errno)  # the coordinator may be loading
    assert listed([], []) == [("", "Empty", "classic")], "an id was given out, and so there is a group"
    raw.ask(DeleteGroupsRequest(groups_names=[group]), 2)
    alone(member)
    stable = [("consumer", "Stable", "classic")]
    assert listed([], []) == listed(["sTABLE"], ["Classic"]) == stable
    assert listed(["Empty"], []) == listed([], ["consumer"]) == listed(["nonsense"], []) == []
    raw.ask(leave(group, (member.member_id, None)), 5)
    assert listed(["empty"], []) == [("consumer", "Empty", "classic")]


def test_who_stays_away_loses_its_place_in_time(connect: Callable[[], RawClient], raw: RawClient, group: str) -> None:
    alone(Member(connect(), group, rebalance_ms=2000, session_ms=60_000))
    second = Member(connect(), group, rebalance_ms=500)
    began = time.monotonic()
    answer = second.join()
    assert answer.generation_id == 2
    assert answer.leader == answer.member_id, "the first one did not come"
    assert 1.8 < time.monotonic() - began < 30, "the rebalance time of the first one, no session"
    until(lambda: described(raw, group).group_state == "Empty")  # it did not fetch its assignment
    assert 1.8 + 0.4 < time.monotonic() - began < 45


def test_a_session_ends(connect: Callable[[], RawClient], raw: RawClient, group: str) -> None:
    member = alone(Member(connect(), group, session_ms=2000))
    until(lambda: described(raw, group).group_state == "Empty")
    assert member.beat() == UNKNOWN_MEMBER


def test_static_members_come_back_without_a_rebalance(
    connect: Callable[[], RawClient], raw: RawClient, group: str
) -> None:
    first = alone(Member(connect(), group, "i"))
    assert first.member_id.startswith("i-")
    back = Member(connect(), group, "i")
    answer = back.join()
    assert (answer.error_code, answer.generation_id, answer.skip_assignment) == (0, 1, True)
    assert answer.leader == answer.member_id != first.member_id
    assert back.start_sync().synced().assignment == b"mine"
    assert first.beat() == FENCED_INSTANCE
    assert raw.ask(beat(group, 1, first.member_id), 4).error_code == UNKNOWN_MEMBER
    assert raw.ask(beat(group, 1, back.member_id, "other"), 4).error_code == UNKNOWN_MEMBER
    assert raw.ask(sync(group, 1, first.member_id, instance="i"), 5).error_code == FENCED_INSTANCE
    assert raw.ask(join(group, first.member_id, "i"), 9).error_code == FENCED_INSTANCE
    older = Member(connect(), group, "i")
    answer = older.join(8)
    assert (answer.skip_assignment, answer.leader, answer.members) == (False, back.member_id, [])
    assert described(raw, group).group_state == "Stable"
    left = raw.ask(leave(group, ("nobody", "i"), ("", "i"), ("", "i")), 5)
    assert [one.error_code for one in left.members] == [FENCED_INSTANCE, 0, UNKNOWN_MEMBER]


def test_a_static_member_that_wants_another_protocol_starts_a_rebalance(
    connect: Callable[[], RawClient], group: str
) -> None:
    alone(Member(connect(), group, "i", protocols=(("range", b""), ("other", b""))))
    answer = Member(connect(), group, "i").join(protocols=(("other", b""),))
    assert (answer.generation_id, answer.protocol_name, len(answer.members)) == (2, "other", 1)


def test_the_protocol_with_most_votes(connect: Callable[[], RawClient], raw: RawClient, group: str) -> None:
    mine, theirs = (("b", b"1"), ("a", b"2")), (("a", b"3"), ("b", b"4"), ("c", b""))
    first = Member(connect(), group, protocols=mine)
    assert first.join().protocol_name == "b"
    first.start_sync({}).synced()
    others = [Member(connect(), group, protocols=theirs).start_join() for _ in range(2)]
    until(lambda: len(described(raw, group).members) == 3)
    answer = first.join()
    assert answer.protocol_name == "a"
    assert sorted(one.metadata for one in answer.members) == [b"2", b"3", b"3"]
    assert [other.joined().protocol_name for other in others] == ["a", "a"]


# -- the consumer group protocol
# ------------------------------------------------------------------------------------------------


class Consumer:
    """A member of the consumer group protocol: what it was told it remembers."""

    def __init__(self, client: RawClient, group: str) -> None:
        self.client = client
        self.group = group
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.told: dict[UUID, list[int]] = {}

    def ask(self, epoch: int | None = None, *args: Any, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        number = self.epoch if epoch is None else epoch
        answer: ConsumerGroupHeartbeatResponse = self.client.ask(
            consumer(self.group, self.member_id, number, *args, **fields), 1
        )
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            self.told = self.told if (new := given(answer)) is None else new
        return answer

    def join(self, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        return self.ask(0, list(topics) if topics else None, **fields)

    def obey(self) -> ConsumerGroupHeartbeatResponse:
        """Say that one has what one was told."""
        return self.ask(owned=self.told)

    def partitions(self) -> list[int]:
        return sorted(number for numbers in self.told.values() for number in numbers)


@pytest.fixture
def topic(new_topic: Callable[..., str], raw: RawClient, connect: Callable[[], RawClient]) -> str:
    """A topic of four partitions that group coordinators know of."""
    name = new_topic(4)
    client = connect()
    probe = f"probe-{name}"

    def known() -> bool:
        member = Consumer(client, probe)
        answer = member.join(name)
        member.ask(-1)
        client.ask(DeleteGroupsRequest(groups_names=[probe]), 2)
        return answer.error_code == 0 and bool(given(answer))

    until(known)
    return name


def test_the_first_heartbeat_assigns_everything(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str
) -> None:
    member = Consumer(connect(), group)
    answer = member.join(topic)
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (0, 2, 5000)
    assert member.partitions() == [0, 1, 2, 3]
    shown = consumers(raw, group)
    assert (shown.group_state, shown.group_epoch, shown.assignment_epoch, shown.assignor_name) == (
        "Stable", 2, 2, "uniform",
    )  # fmt: skip
    one = shown.members[0]
    assert (one.subscribed_topic_names, one.subscribed_topic_regex, one.member_type) == ([topic], "", 1)
    assert one.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
    assert member.ask().assignment is None
    assert described(raw, group).error_message == f"Group {group} is not a classic group."
    assert raw.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == NOT_EMPTY
    assert member.ask(-1).member_epoch == -1
    shown = consumers(raw, group)
    assert (shown.group_state, shown.group_epoch, shown.assignment_epoch) == ("Empty", 3, 2)
    assert raw.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == 0


def test_partitions_change_hands_only_when_they_were_let_go(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str
) -> None:
    first, second = Consumer(connect(), group), Consumer(connect(), group)
    first.join(topic)
    had = first.told
    second.join(topic)
    until(lambda: second.ask().error_code == 0 and second.epoch == 3)  # the assignment interval
    assert second.partitions() == []
    assert consumers(raw, group).group_state == "Reconciling"
    answer = first.ask()
    assert (answer.member_epoch, len(first.partitions())) == (2, 2)
    assert first.ask().assignment is None
    assert first.ask(owned=had).member_epoch == 2, "it says that it has not let go"
    assert (given(second.ask()), second.epoch) == (None, 3)
    assert first.obey().member_epoch == 3
    kept = first.told
    second.ask()
    assert sorted(first.partitions() + second.partitions()) == [0, 1, 2, 3]
    assert consumers(raw, group).group_state == "Stable"
    # a lost answer is forgiven to whoever has nothing that it was not given
    assert first.ask(2, owned=kept).error_code == 0
    for epoch, owned in ((2, None), (2, had), (1, kept), (9, kept)):
        assert raw.ask(consumer(group, first.member_id, epoch, owned=owned), 1).error_code == FENCED_EPOCH
    assert second.ask(-1).error_code == 0
    until(lambda: first.obey().error_code == 0 and len(first.partitions()) == 4)


def test_heartbeats_that_are_refused(raw: RawClient, group: str, topic: str) -> None:
    unknown = {UUID(int=1): [0]}
    for request, code in (
        (consumer("", "m", 0, [topic]), 42),
        (consumer(group, "", 0, [topic]), 42),
        (consumer(group, "m", 0), 42),
        (consumer(group, "m", 0, [topic], owned=unknown), 42),
        (consumer(group, "m", 0, [topic], instance=""), 42),
        (consumer(group, "m", -3), 42),
        (consumer(group, "m", -2), 42),
        (consumer(group, "m", 0, [topic], assignor="nope"), ASSIGNOR),
        (consumer(group, "m", 0, regex="["), REGEX),
        (consumer(group, "m", 0, regex=r"(a)\1"), REGEX),
        (consumer(group, "m", 1), NO_GROUP),
        (consumer(group, "m", -1), NO_GROUP),
    ):
        answer = raw.ask(request, 1)
        assert (answer.error_code, answer.member_id, answer.assignment) == (code, None, None), request
        assert answer.error_message
    raw.ask(consumer(group, "m", 0, [topic]), 1)
    assert raw.ask(consumer(group, "x", 1), 1).error_code == UNKNOWN_MEMBER
    assert raw.ask(consumer(group, "m", 2, instance="i"), 1).error_code == UNKNOWN_MEMBER


def test_static_members_of_the_new_protocol(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str
) -> None:
    first, second = Consumer(connect(), group), Consumer(connect(), group)
    first.join(topic, instance="i")
    assert second.join(topic, instance="i").error_code == UNRELEASED
    assert first.ask(-2, instance="i").member_epoch == -2
    assert consumers(raw, group).members[0].member_epoch == -2
    assert first.ask(2).error_code == FENCED_EPOCH
    answer = second.join(topic, instance="i")
    assert (answer.error_code, answer.member_epoch, second.partitions()) == (0, 2, [0, 1, 2, 3])
    assert consumers(raw, group).group_epoch == 2
    assert first.ask(2, instance="i").error_code == FENCED_INSTANCE
    assert first.ask(2).error_code == UNKNOWN_MEMBER


def test_who_does_not_let_go_in_time_is_out(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str
) -> None:
    first, second = Consumer(connect(), group), Consumer(connect(), group)
    first.join(topic, rebalance_ms=500)
    second.join(topic)
    until(lambda: second.ask().error_code == 0 and second.epoch == 3)
    until(lambda: first.ask().error_code == UNKNOWN_MEMBER)
    until(lambda: second.obey().error_code == 0 and len(second.partitions()) == 4)


def test_a_groups_own_session_timeout(connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str) -> None:
    def set_for_group(**values: str) -> int:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=32,
            resource_name=group,
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(
                    name=name.replace("_", "."), config_operation=0, value=value
                )
                for name, value in values.items()
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        return raw.ask(request, 1).responses[0].error_code

    assert set_for_group(consumer_session_timeout_ms="999") == 40
    assert set_for_group(consumer_session_timeout_ms="60001") == 40
    assert set_for_group(consumer_nonsense="1") == 40
    assert set_for_group(consumer_session_timeout_ms="1000") == 40, "it has to be above the heartbeat interval"
    assert set_for_group(consumer_session_timeout_ms="1000", consumer_heartbeat_interval_ms="700") == 0
    member = Consumer(connect(), group)
    until(lambda: member.join(topic).heartbeat_interval_ms == 700)
    until(lambda: consumers(raw, group).group_state == "Empty")


@needs_re2
def test_regular_expressions(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str
) -> None:
    member = Consumer(connect(), group)
    answer = member.join(regex=topic[:-1] + "[" + topic[-1] + "]")
    assert (answer.error_code, answer.member_epoch, given(answer)) == (0, 1, {})
    until(lambda: member.ask().error_code == 0 and member.partitions() == [0, 1, 2, 3])
    assert member.epoch == 2
    part = Consumer(connect(), group)
    part.join(regex=topic[:-1])
    assert consumers(raw, group).group_epoch == 2, "only whole names match"


def test_a_topic_that_grows_makes_a_new_epoch(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str
) -> None:
    member = Consumer(connect(), group)
    member.join(topic)
    topic_request = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=6, assignments=None)
    raw.ask(CreatePartitionsRequest(topics=[topic_request], timeout_ms=5000, validate_only=False), 3)
    until(lambda: member.obey().error_code == 0 and member.partitions() == [0, 1, 2, 3, 4, 5])
    assert member.epoch == 3


@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_both_assignors_share_out_evenly(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str, assignor: str
) -> None:
    members = [Consumer(connect(), group) for _ in range(3)]
    for number, member in enumerate(sorted(members, key=lambda one: one.member_id)):
        member.member_id = f"member-{number}"
        member.join(topic, assignor=assignor)

    def settled() -> bool:
        for member in members:
            member.obey()
        return consumers(raw, group).group_state == "Stable"

    until(settled)
    found = {member.member_id: member.partitions() for member in members}
    assert sorted(number for numbers in found.values() for number in numbers) == [0, 1, 2, 3]
    assert found["member-0"] == [0, 1]
    if assignor == "range":
        assert found == {"member-0": [0, 1], "member-1": [2], "member-2": [3]}


# -- both protocols, one name space ----------------------------------------------------------------------------------


def test_a_classic_member_in_a_group_of_the_new_protocol_and_back(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str
) -> None:
    new = Consumer(connect(), group)
    new.join(topic)
    assert raw.ask(join(group, protocol_type="other"), 9).error_code == INCONSISTENT
    old = Member(connect(), group, protocols=(("range", write_subscription([topic])),))

    def joined_new_epoch() -> bool:
        answer = old.join()
        return answer.error_code == 0 and answer.generation_id == 3 and answer.leader == ""

    until(joined_new_epoch)
    answer = old.start_sync().synced()
    assert (answer.error_code, read_assignment(answer.assignment)) == (0, {})
    assert [old.beat(), old.beat(99)] == [0, ILLEGAL_GENERATION]
    assert {one.member_type for one in consumers(raw, group).members} == {0, 1}
    new.ask()
    new.obey()
    assert old.beat() == REBALANCE, "partitions were let go for it"
    assert old.join().generation_id == 3
    theirs = read_assignment(old.start_sync().synced().assignment)[topic]
    assert sorted(theirs + new.partitions()) == [0, 1, 2, 3]
    assert codes(raw.ask(commit(group, topic, {theirs[0]: 5}, 3, old.member_id), 9)) == [0]
    assert codes(raw.ask(commit(group, topic, {theirs[0]: 5}, 2, old.member_id), 9)) == [ILLEGAL_GENERATION]
    assert new.ask(-1).error_code == 0
    assert consumers(raw, group).error_code == NO_GROUP
    assert described(raw, group).group_state == "PreparingRebalance"
    assert old.beat() == REBALANCE
    answer = old.join()
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 4, old.member_id)


def test_a_consumer_of_the_new_protocol_takes_a_classic_group_over(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str
) -> None:
    mine = (("range", write_subscription([topic])),)
    old = alone(Member(connect(), group, protocols=mine), write_assignment({topic: [0, 1, 2, 3]}, 1))
    new = Consumer(connect(), group)
    answer = new.join(topic)
    assert (answer.error_code, answer.member_epoch, given(answer)) == (0, 2, {})
    shown = consumers(raw, group)
    assert (shown.group_state, {one.member_epoch for one in shown.members}) == ("Reconciling", {1, 2})
    assert old.beat() == REBALANCE
    assert old.join(protocols=(("range", write_subscription([topic], {topic: [0, 1, 2, 3]})),)).generation_id == 1
    kept = read_assignment(old.start_sync().synced().assignment)[topic]
    assert len(kept) == 2
    assert given(new.ask()) is None
    assert old.join(protocols=(("range", write_subscription([topic], {topic: kept})),)).generation_id == 2
    new.ask()
    assert sorted(kept + new.partitions()) == [0, 1, 2, 3]
    assert consumers(raw, group).group_state == "Stable"


def test_classic_groups_that_cannot_be_taken_over(connect: Callable[[], RawClient], raw: RawClient, group: str) -> None:
    member = Member(connect(), group, protocol_type="connect")
    member.join()
    answer = raw.ask(consumer(group, "m", 0, ["t"]), 1)
    assert (answer.error_code, answer.error_message) == (
        NO_GROUP,
        f"Cannot upgrade classic group {group} to consumer group because the group does not use the consumer embedded "
        "protocol.",
    )
    malformed = group + "-malformed"
    Member(connect(), malformed).join()
    answer = raw.ask(consumer(malformed, "m", 0, ["t"]), 1)
    assert answer.error_code == NO_GROUP
    assert "because the embedded consumer protocol is malformed." in (answer.error_message or "")


def test_one_name_is_one_group_of_one_kind(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str
) -> None:
    def share(name: str) -> tuple[int, str | None]:
        answer = raw.ask(
            ShareGroupHeartbeatRequest(
                group_id=name, member_id=str(uuid.uuid4()), member_epoch=0, subscribed_topic_names=[topic]
            ),
            1,
        )
        return answer.error_code, answer.error_message

    assert share(group) == (0, None)
    assert raw.ask(join(group), 9).error_code == INCONSISTENT
    assert raw.ask(beat(group, 1, "x"), 4).error_code == UNKNOWN_MEMBER
    assert raw.ask(sync(group, 1, "x"), 5).error_code == UNKNOWN_MEMBER
    answer = raw.ask(consumer(group, "m", 0, [topic]), 1)
    assert (answer.error_code, answer.error_message) == (NO_GROUP, f"Group {group} is not a consumer group.")
    assert described(raw, group).error_message == f"Group {group} is not a classic group."
    assert codes(raw.ask(commit(group, topic, {0: 1}), 9)) == [NO_GROUP]
    assert offsets(raw.ask(fetch(group, topic), 9)) == [-1]
    assert raw.ask(delete_offsets(group, topic), 0).error_code == NO_GROUP
    simple, new, pending = group + "-simple", group + "-new", group + "-pending"
    raw.ask(commit(simple, topic, {0: 1}), 9)
    raw.ask(consumer(new, "m", 0, [topic]), 1)
    raw.ask(join(pending), 9)
    for name in (simple, new, pending):
        assert share(name) == (NO_GROUP, f"Group {name} is not a share group.")
    raw.ask(consumer(new, "m", -1), 1)
    assert share(new)[0] == NO_GROUP, "it is empty, and still there"


def test_an_empty_group_changes_its_kind_and_keeps_its_offsets(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str
) -> None:
    assert codes(raw.ask(commit(group, topic, {0: 7}), 9)) == [0]
    shown = described(raw, group)
    assert (shown.error_code, shown.group_state, shown.protocol_type) == (0, "Empty", "")
    new = Consumer(connect(), group)
    assert new.join(topic).error_code == 0
    assert offsets(raw.ask(fetch(group, topic), 9)) == [7]
    new.ask(-1)
    old = Member(connect(), group)
    assert old.join().generation_id == 1
    assert offsets(raw.ask(fetch(group, topic), 9)) == [7]


# -- offsets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 10))
def test_commits_of_classic_members_in_every_version(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str, version: int
) -> None:
    member = alone(Member(connect(), group))
    for generation, who, code in (
        (1, member.member_id, 0),
        (0, member.member_id, ILLEGAL_GENERATION),
        (2, member.member_id, ILLEGAL_GENERATION),
        (-1, member.member_id, ILLEGAL_GENERATION),
        (1, "x", UNKNOWN_MEMBER),
        (-1, "", UNKNOWN_MEMBER),
        (1, "", UNKNOWN_MEMBER),
    ):
        assert codes(raw.ask(commit(group, topic, {0: 1}, generation, who), version)) == [code], (generation, who)
    raw.ask(leave(group, (member.member_id, None)), 5)
    assert codes(raw.ask(commit(group, topic, {0: 1}, 1, member.member_id), version)) == [UNKNOWN_MEMBER]
    assert codes(raw.ask(commit(group, topic, {0: 1}, -1, "anybody"), version)) == [0]
    assert codes(raw.ask(commit(group + "-none", topic, {0: 1}, 1, "x"), version)) == [
        ILLEGAL_GENERATION if version < 9 else NO_GROUP
    ]


def test_commits_during_a_rebalance(connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str) -> None:
    member = Member(connect(), group)
    member.join()
    assert codes(raw.ask(commit(group, topic, {0: 1}, 1, member.member_id), 9)) == [REBALANCE]
    member.start_sync({}).synced()
    Member(connect(), group).start_join()
    until(lambda: member.beat() == REBALANCE)
    assert codes(raw.ask(commit(group, topic, {0: 1}, 1, member.member_id), 9)) == [0], "it still has its partitions"


def test_commits_of_members_of_the_new_protocol(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str
) -> None:
    first, second = Consumer(connect(), group), Consumer(connect(), group)
    first.join(topic)

    def committed(member: Consumer, epoch: int, *numbers: int, version: int = 9) -> list[int]:
        return codes(raw.ask(commit(group, topic, dict.fromkeys(numbers, 1), epoch, member.member_id), version))

    assert committed(first, 2, 0, 3) == [0, 0]
    assert committed(first, 1, 0) == committed(first, 3, 0) == committed(first, -1, 0) == [STALE]
    assert committed(first, 2, 0, version=8) == [35]
    assert committed(second, 2, 0) == [UNKNOWN_MEMBER]
    second.join(topic)
    until(lambda: second.ask().error_code == 0 and second.epoch == 3)
    first.ask()
    first.obey()
    second.ask()
    (kept, _), (lost, _) = first.partitions(), second.partitions()
    assert committed(first, 2, kept) == [0], "an epoch behind, and its own all the time"
    assert committed(first, 2, lost) == [STALE]
    assert committed(first, 2, kept, lost) == [STALE, STALE]
    assert committed(second, 2, lost) == [STALE]
    assert committed(second, 3, lost) == [0]
    for who, epoch, code in (
        (None, -1, 0),
        (first.member_id, 3, 0),
        (first.member_id, 2, STALE),
        ("x", 3, UNKNOWN_MEMBER),
        ("", -1, UNKNOWN_MEMBER),
    ):
        answer = raw.ask(fetch(group, topic, (kept,), who, epoch), 9).groups[0]
        assert (answer.error_code, len(answer.topics)) == (code, 0 if code else 1), who
    assert raw.ask(delete_offsets(group, topic), 0).topics[0].partitions[0].error_code == SUBSCRIBED


def test_offsets_are_deleted_where_nobody_is_subscribed(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str, new_topic: Callable[..., str]
) -> None:
    other = new_topic(1)
    member = Member(connect(), group, protocols=(("range", write_subscription([topic])),))
    alone(member)
    for name in (topic, other):
        assert codes(raw.ask(commit(group, name, {0: 1}, 1, member.member_id), 9)) == [0]

    def deleted(name: str, number: int = 0) -> int:
        answer = raw.ask(delete_offsets(group, name, (number,)), 0)
        return answer.error_code or answer.topics[0].partitions[0].error_code

    assert [deleted(topic), deleted(other), deleted(other, 9), deleted("nope")] == [SUBSCRIBED, 0, 3, 3]
    assert offsets(raw.ask(fetch(group, other), 9)) == [-1]
    assert raw.ask(delete_offsets("", topic), 0).error_code == 24
    assert raw.ask(delete_offsets(group + "-none", topic), 0).error_code == NO_GROUP
    connect_group = group + "-connect"
    Member(connect(), connect_group, protocol_type="connect").join()
    assert raw.ask(delete_offsets(connect_group, topic), 0).error_code == NOT_EMPTY


def test_topic_ids_in_metadata_are_those_of_assignments(
    connect: Callable[[], RawClient], raw: RawClient, group: str, topic: str
) -> None:
    member = Consumer(connect(), group)
    member.join(topic)
    wanted = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    assert list(member.told) == [raw.ask(wanted, 12).topics[0].topic_id]
