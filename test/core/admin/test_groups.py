"""Dialogues about groups, step by step: which there are, what they are, and how their members leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka.core.admin.groups import (
    alter_group_offsets,
    delete_group_offsets,
    delete_groups,
    describe_groups,
    describe_share_groups,
    list_group_offsets,
    list_groups,
    remove_group_members,
)
from kafka.core.admin.responses import operations_of
from kafka.core.admin.routing import find_coordinators
from kafka.core.admin.values import GroupState, GroupType, MemberToRemove, texts
from kafka.core.connection import ByVersion
from kafka.core.dialogue import Send
from kafka.core.group.protocol import MemberAssignment, MemberSubscription, write_assignment, write_subscription
from kafka.core.routing import AnyNode
from kafka.errors import (
    GroupAuthorizationFailedError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    KafkaTimeoutError,
    NoError,
    NonEmptyGroupError,
    UnknownBrokerIdError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsResponse,
)
from kafka.protocol.metadata import DescribeClusterResponse
from kafka.protocol.offsets import OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.share import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from kafka.structs import OffsetAndMetadata, TopicPartition
from test.core.admin.driving import BACKOFF, asked
from test.core.test_retry import drive

Handler = Callable[[Send, Any], Any]


class Brokers:
    """Answers by hand: who coordinates what, and what each API answers."""

    def __init__(self, where: dict[str, int], version: int = 6) -> None:
        self.where = where
        self.version = version
        self.handlers: dict[type, Handler] = {}
        self.sent: list[Send] = []

    def run(self, dialogue: Any) -> Any:
        result, _ = drive(dialogue, lambda step: self.answer(step) if isinstance(step, Send) else None)
        return result

    def answer(self, step: Send) -> Any:
        self.sent.append(step)
        request: Any = step.request
        if isinstance(request, ByVersion):
            request = request.build(min(self.version, step.max_version or self.version))
        handler = self.find if isinstance(request, FindCoordinatorRequest) else self.handlers.get(type(request))
        if handler is None:
            raise IncompatibleBrokerVersion(type(request).__name__)
        return handler(step, request)

    def find(self, step: Send, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        assert step.target == AnyNode()
        if step.min_version is not None and step.min_version > self.version:
            raise IncompatibleBrokerVersion("FindCoordinator")
        if self.version < 4:
            return FindCoordinatorResponse(node_id=self.where[request.key])
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=self.where[key], error_code=-self.where[key] if self.where[key] < 0 else 0
                )
                for key in request.coordinator_keys
            ]
        )

    def asked(self, kind: type) -> list[tuple[Any, Any]]:
        return [(send.target, send.request) for send in self.sent if isinstance(send.request, kind)]


def deleted(**codes: int | tuple[int, ...]) -> Handler:
    left = {group: [given] if isinstance(given, int) else list(given) for group, given in codes.items()}

    def answer(step: Send, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        result = DeleteGroupsResponse.DeletableGroupResult
        return DeleteGroupsResponse(
            throttle_time_ms=0,
            results=[
                result(group_id=group, error_code=left[group].pop(0) if len(left[group]) > 1 else left[group][0])
                for group in request.groups_names
            ],
        )

    return answer


def test_coordinators_of_many_groups_are_looked_up_with_one_request_and_each_is_asked_once() -> None:
    brokers = Brokers({"a": 1, "b": 2, "c": 1})
    brokers.handlers[DeleteGroupsRequest] = deleted(a=0, b=68, c=0)
    found = brokers.run(delete_groups(["a", "b", "c", "a"], backoff=BACKOFF))
    assert found == {"a": NoError, "b": NonEmptyGroupError, "c": NoError}
    assert len(brokers.asked(FindCoordinatorRequest)) == 1
    assert [(node, request.groups_names) for node, request in brokers.asked(DeleteGroupsRequest)] == [
        (1, ["a", "c"]), (2, ["b"]),
    ]  # fmt: skip


def test_brokers_that_take_one_key_are_asked_for_each() -> None:
    brokers = Brokers({"a": 1, "b": 2}, version=3)
    assert brokers.run(find_coordinators(["a", "b"])) == {"a": 1, "b": 2}
    assert brokers.run(find_coordinators([])) == {}


def test_only_the_groups_that_came_to_the_wrong_broker_are_asked_again() -> None:
    brokers = Brokers({"a": 1, "b": 2})
    brokers.handlers[DeleteGroupsRequest] = deleted(a=0, b=(16, 14, 0))
    assert brokers.run(delete_groups(["a", "b"], backoff=BACKOFF)) == {"a": NoError, "b": NoError}
    assert [request.groups_names for _, request in brokers.asked(DeleteGroupsRequest)] == [["a"], ["b"], ["b"], ["b"]]


def test_a_group_without_a_known_coordinator_has_an_error_of_its_own() -> None:
    brokers = Brokers({"a": 1, "b": -30})
    brokers.handlers[DeleteGroupsRequest] = deleted(a=0)
    assert brokers.run(delete_groups(["a", "b"], backoff=BACKOFF)) == {"a": NoError, "b": GroupAuthorizationFailedError}
    with pytest.raises(GroupAuthorizationFailedError, match="group b"):
        brokers.run(alter_group_offsets("b", {TopicPartition("t", 0): OffsetAndMetadata(1)}, backoff=BACKOFF))


def test_a_coordinator_that_never_comes_ends_with_the_time() -> None:
    brokers = Brokers({"a": -15})
    with pytest.raises(KafkaTimeoutError, match="deleting groups"):
        brokers.run(delete_groups(["a"], backoff=BACKOFF, timeout_s=1.0))


def test_a_node_that_is_given_is_asked_and_nobody_looked_for() -> None:
    brokers = Brokers({})
    brokers.handlers[DeleteGroupsRequest] = deleted(a=0)
    assert brokers.run(delete_groups(["a"], backoff=BACKOFF, node_id=7)) == {"a": NoError}
    assert [send.target for send in brokers.sent] == [7]


def test_a_group_that_is_left_out_of_an_answer_has_an_error_of_its_own() -> None:
    brokers = Brokers({"a": 1, "b": 1})
    brokers.handlers[DescribeGroupsRequest] = lambda step, request: DescribeGroupsResponse(
        groups=[described("a", "Stable")]
    )
    found = brokers.run(describe_groups(["a", "b"], backoff=BACKOFF))
    assert found["a"]["group_state"] == "Stable"
    assert "node 1 left group b out of its answer" in found["b"]["error"]


def described(group_id: str, state: str, code: int = 0) -> DescribeGroupsResponse.DescribedGroup:
    return DescribeGroupsResponse.DescribedGroup(
        error_code=code, error_message="", group_id=group_id, group_state=state, protocol_type="", protocol_data="",
        members=[],
    )  # fmt: skip


@pytest.mark.parametrize("next_code", [69, 35])
@pytest.mark.parametrize(("state", "code"), [("Dead", 0), ("Dead", 69), ("", 69)])
def test_a_group_that_one_api_does_not_know_is_asked_of_the_next(state: str, code: int, next_code: int) -> None:
    brokers = Brokers({"old": 1, "new": 1, "none": 1})
    brokers.handlers[DescribeGroupsRequest] = lambda step, request: DescribeGroupsResponse(
        groups=[described(each, *(("Stable", 0) if each == "old" else (state, code))) for each in request.groups]
    )
    brokers.handlers[ConsumerGroupDescribeRequest] = lambda step, request: ConsumerGroupDescribeResponse(
        throttle_time_ms=0,
        groups=[
            ConsumerGroupDescribeResponse.DescribedGroup(
                error_code=0 if each == "new" else next_code, group_id=each, group_epoch=4, assignment_epoch=4,
                group_state="Empty" if each == "new" else "Dead", assignor_name="uniform", members=[],
            )
            for each in request.group_ids
        ],
    )  # fmt: skip
    found = brokers.run(describe_groups(["old", "new", "none"], backoff=BACKOFF))
    assert [(found[each]["group_state"], found[each].get("group_type")) for each in ("old", "new")] == [
        ("Stable", "classic"), ("Empty", "consumer"),
    ]  # fmt: skip
    assert found["none"]["group_state"] == "Dead"
    assert (found["none"]["error"] is None) is (code == 0), "as the first API told it"
    asked = [type(send.request) for send in brokers.sent if not isinstance(send.request, ByVersion)]
    assert asked[1:] == [ConsumerGroupDescribeRequest, ShareGroupDescribeRequest], "the last one is not spoken there"
    (only_unknown,) = [request.group_ids for _, request in brokers.asked(ConsumerGroupDescribeRequest)]
    assert only_unknown == ["new", "none"]


def test_a_group_that_one_api_knows_is_not_asked_of_the_next() -> None:
    """Not one without members either."""
    brokers = Brokers({"empty": 1})
    brokers.handlers[DescribeGroupsRequest] = lambda step, request: DescribeGroupsResponse(
        groups=[described("empty", "Empty")]
    )
    found = brokers.run(describe_groups(["empty"], backoff=BACKOFF))
    assert (found["empty"]["group_state"], found["empty"]["error"]) == ("Empty", None)
    assert found["empty"]["authorized_operations"] is None
    assert brokers.asked(ConsumerGroupDescribeRequest) == []


def test_a_group_that_one_api_leaves_out_is_asked_of_the_next() -> None:
    brokers = Brokers({"a": 1})
    brokers.handlers[DescribeGroupsRequest] = lambda step, request: DescribeGroupsResponse(groups=[])
    brokers.handlers[ConsumerGroupDescribeRequest] = lambda step, request: ConsumerGroupDescribeResponse(
        throttle_time_ms=0, groups=[of_consumers("a")]
    )
    found = brokers.run(describe_groups(["a"], backoff=BACKOFF))
    assert (found["a"]["group_type"], found["a"]["group_state"]) == ("consumer", "Stable")


def of_consumers(group_id: str, code: int = 0, text: str | None = None) -> ConsumerGroupDescribeResponse.DescribedGroup:
    return ConsumerGroupDescribeResponse.DescribedGroup(
        error_code=code, error_message=text, group_id=group_id, group_state="Stable", group_epoch=4,
        assignment_epoch=4, assignor_name="uniform", members=[], authorized_operations=1 << 3,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("code", "error", "requests"),
    [
        (14, None, 2),
        (7, "[Error 7] RequestTimedOutError: late", 1),
        (30, "[Error 30] GroupAuthorizationFailedError: late", 1),
    ],
)
def test_a_group_that_is_loading_is_asked_for_again_and_another_error_is_reported(
    code: int, error: str | None, requests: int
) -> None:
    brokers = Brokers({"a": 1})
    answers = [of_consumers("a", code, "late"), of_consumers("a")]
    brokers.handlers[ConsumerGroupDescribeRequest] = lambda step, request: ConsumerGroupDescribeResponse(
        throttle_time_ms=0, groups=[answers.pop(0)]
    )
    brokers.handlers[ShareGroupDescribeRequest] = lambda step, request: pytest.fail("asked of the next API")
    found = brokers.run(describe_groups(["a"], backoff=BACKOFF))
    assert found["a"]["error"] == error
    assert len(brokers.asked(ConsumerGroupDescribeRequest)) == requests


def test_share_groups_are_described_by_their_own_api_alone() -> None:
    brokers = Brokers({"a": 1})
    brokers.handlers[ShareGroupDescribeRequest] = lambda step, request: ShareGroupDescribeResponse(
        throttle_time_ms=0,
        groups=[
            ShareGroupDescribeResponse.DescribedGroup(
                error_code=0, group_id="a", group_state="Empty", group_epoch=1, assignment_epoch=1,
                assignor_name="simple", members=[],
            )
        ],
    )  # fmt: skip
    assert brokers.run(describe_share_groups(["a"], backoff=BACKOFF))["a"]["group_type"] == "share"
    ((_, request),) = brokers.asked(ShareGroupDescribeRequest)
    assert (request.group_ids, request.include_authorized_operations) == (["a"], False)
    del brokers.handlers[ShareGroupDescribeRequest]
    with pytest.raises(IncompatibleBrokerVersion, match="ShareGroupDescribe"):
        brokers.run(describe_share_groups(["a"], backoff=BACKOFF))


@pytest.mark.parametrize("is_wanted", [None, False, True])
def test_operations_are_asked_for_where_that_is_requested_and_the_version_can(is_wanted: bool | None) -> None:
    """In DescribeGroups since version 3 (KIP-430)."""
    brokers = Brokers({"a": 1})
    brokers.handlers[ConsumerGroupDescribeRequest] = lambda step, request: ConsumerGroupDescribeResponse(
        throttle_time_ms=0, groups=[of_consumers("a")]
    )
    options: Any = {} if is_wanted is None else {"include_authorized_operations": is_wanted}
    found = brokers.run(describe_groups(["a"], backoff=BACKOFF, **options))
    assert found["a"]["authorized_operations"] == ["READ"]
    (classic,) = (each.request for each in brokers.sent if isinstance(each.request, ByVersion))
    built: Any = [classic.build(version) for version in (2, 3)]
    assert [each.include_authorized_operations for each in built] == [False, bool(is_wanted)]
    ((_, request),) = brokers.asked(ConsumerGroupDescribeRequest)
    assert request.include_authorized_operations is bool(is_wanted)


@pytest.mark.parametrize(("rack", "told"), [("r", "r"), ("", None)])
def test_subscriptions_and_assignments_are_returned_as_dictionaries(rack: str, told: str | None) -> None:
    owned = (TopicPartition("t", 1), TopicPartition("t", 0))
    metadata = write_subscription(MemberSubscription(("t", "u"), b"mine", owned, 5, rack))
    assignment = write_assignment(MemberAssignment((TopicPartition("u", 2),), None))
    member = DescribeGroupsResponse.DescribedGroupMember(
        member_id="m", client_id="c", client_host="h", member_metadata=metadata, member_assignment=assignment
    )
    for kind in ("consumer", "connect"):
        brokers = Brokers({"a": 1})
        group = described("a", "Stable")
        group.protocol_type, group.members = kind, [member]
        brokers.handlers[DescribeGroupsRequest] = lambda step, request, group=group: DescribeGroupsResponse(
            groups=[group]
        )
        (found,) = brokers.run(describe_groups(["a"], backoff=BACKOFF))["a"]["members"]
        if kind == "connect":
            assert (found["member_metadata"], found["member_assignment"]) == (metadata, assignment)
            continue
        assert found["member_metadata"] == {
            "topics": ["t", "u"], "user_data": b"mine", "owned_partitions": [{"topic": "t", "partitions": [0, 1]}],
            "generation_id": 5, "rack_id": told,
        }  # fmt: skip
        assert found["member_assignment"] == {
            "assigned_partitions": [{"topic": "u", "partitions": [2]}], "user_data": None,
        }  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"\x00"])
def test_bytes_that_no_consumer_wrote_are_left_as_they_are(data: bytes) -> None:
    member = DescribeGroupsResponse.DescribedGroupMember(
        member_id="m", client_id="c", client_host="h", member_metadata=data, member_assignment=data
    )
    brokers = Brokers({"a": 1})
    group = described("a", "Stable")
    group.protocol_type, group.members = "consumer", [member]
    brokers.handlers[DescribeGroupsRequest] = lambda step, request: DescribeGroupsResponse(groups=[group])
    (found,) = brokers.run(describe_groups(["a"], backoff=BACKOFF))["a"]["members"]
    assert (found["member_metadata"], found["member_assignment"]) == (data, data)


def listed(*names: str, code: int = 0) -> ListGroupsResponse:
    group = ListGroupsResponse.ListedGroup
    facts: Any = {"protocol_type": "consumer", "group_state": "Empty", "group_type": "classic"}
    return ListGroupsResponse(error_code=code, groups=[group(group_id=name, **facts) for name in names])


def test_all_brokers_list_the_groups_that_they_coordinate() -> None:
    broker = DescribeClusterResponse.DescribeClusterBroker
    cluster = DescribeClusterResponse(
        throttle_time_ms=0, error_code=0, cluster_id="c",
        brokers=[broker(broker_id=number, host="h", port=1) for number in (1, 2)],
    )  # fmt: skip
    found, sends = asked(list_groups(backoff=BACKOFF), cluster, listed("a", "b"), listed("c"))
    assert [send.target for send in sends[1:]] == [1, 2]
    assert [group["group_id"] for group in found] == ["a", "b", "c"]
    assert found[0] == {
        "group_id": "a", "protocol_type": "consumer", "group_state": "Empty", "group_type": "classic",
    }  # fmt: skip
    found, (send,) = asked(list_groups([7], backoff=BACKOFF), listed("a"))
    assert (send.target, [group["group_id"] for group in found]) == (7, ["a"])
    unknown = UnknownBrokerIdError("node 7")  # it has just joined
    found, sends = asked(list_groups([7], backoff=BACKOFF), unknown, listed("a"))
    assert ([group["group_id"] for group in found], [send.target for send in sends]) == (["a"], [7, 7])
    with pytest.raises(GroupAuthorizationFailedError, match="list_groups at node 7"):
        asked(list_groups([7], backoff=BACKOFF), listed(code=30))


@pytest.mark.parametrize(
    ("states", "types", "least", "sent"),
    [
        ([], [], None, ([], [])),
        (["stable"], [], 4, (["Stable"], [])),
        ([], ["share"], 5, ([], ["share"])),
        (["not-ready", "empty"], ["STREAMS"], 5, (["NotReady", "Empty"], ["streams"])),
    ],
)
def test_a_filter_needs_a_version_that_has_it(states: Any, types: Any, least: int | None, sent: Any) -> None:
    """States since version 4 of ListGroups (KIP-518), types since 5 (KIP-848)."""
    _, (send,) = asked(list_groups([7], states, types, backoff=BACKOFF), listed())
    request: Any = send.request
    assert (send.min_version, (request.states_filter, request.types_filter)) == (least, sent)


def test_offsets_of_many_groups_are_one_request_and_before_3_0_one_for_each() -> None:
    for version, requests in ((9, 1), (5, 2)):
        brokers = Brokers({"a": 1, "b": 1})

        def fetch(step: Send, request: OffsetFetchRequest, version: int = version) -> OffsetFetchResponse:
            if step.min_version is not None and step.min_version > version:
                raise IncompatibleBrokerVersion("OffsetFetch")
            groups = OffsetFetchResponse.OffsetFetchResponseGroup
            if version < 8:
                return OffsetFetchResponse(error_code=0, topics=[])
            return OffsetFetchResponse(groups=[groups(group_id=each.group_id, topics=[]) for each in request.groups])

        brokers.handlers[OffsetFetchRequest] = fetch
        specs = {"a": None, "b": [TopicPartition("t", 0)]}
        assert brokers.run(list_group_offsets(specs, backoff=BACKOFF)) == {"a": {}, "b": {}}
        asked = [send for send in brokers.sent if isinstance(send.request, OffsetFetchRequest)]
        assert len(asked) == requests + (version < 8)
        assert all(send.max_version is not None and send.max_version <= 9 for send in asked), "by names, not by ids"


def test_members_leave_together_and_before_2_3_one_by_one() -> None:
    brokers = Brokers({"g": 1})
    brokers.handlers[LeaveGroupRequest] = lambda step, request: LeaveGroupResponse(
        error_code=0,
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=0
            )
            for each in request.members
        ],
    )
    members = [MemberToRemove("m"), MemberToRemove(group_instance_id="i", reason="why")]
    assert brokers.run(remove_group_members("g", members, backoff=BACKOFF)) == {"m": NoError, "i": NoError}
    (batched,) = (send for send in brokers.sent if isinstance(send.request, ByVersion))
    assert (batched.target, batched.min_version) == (1, 3), "several members came with version 3 (KIP-345)"
    built: Any = [batched.request.build(version) for version in (4, 5)]  # type: ignore[union-attr]
    assert [[(each.member_id, each.group_instance_id, each.reason) for each in one.members] for one in built] == [
        [("m", None, None), ("", "i", None)],
        [("m", None, None), ("", "i", "why")],
    ], "reasons came with version 5 (KIP-800)"
    old = Brokers({"g": 1}, version=2)

    def leave(step: Send, request: LeaveGroupRequest) -> LeaveGroupResponse:
        if step.min_version is not None:
            raise IncompatibleBrokerVersion("LeaveGroup")
        return LeaveGroupResponse(error_code=0 if request.member_id == "m" else 25)

    old.handlers[LeaveGroupRequest] = leave
    found = old.run(remove_group_members("g", [MemberToRemove("m"), MemberToRemove("x")], backoff=BACKOFF))
    assert found == {"m": NoError, "x": UnknownMemberIdError}
    assert [(send.min_version, send.max_version) for send in old.sent[-2:]] == [(None, 2), (None, 2)]
    for static in (members, [MemberToRemove("m", "i")]):
        with pytest.raises(UnsupportedVersionError, match="before 2.3"):
            old.run(remove_group_members("g", static, backoff=BACKOFF))
    assert Brokers({}).run(remove_group_members("g", [], backoff=BACKOFF)) == {}


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    brokers = Brokers({})
    partition = TopicPartition("t", 0)
    for dialogue in (
        delete_groups("jobs", backoff=BACKOFF),
        delete_groups([7], backoff=BACKOFF),  # type: ignore[list-item]
        remove_group_members("g", [MemberToRemove()], backoff=BACKOFF),
        alter_group_offsets("g", {partition: OffsetAndMetadata(-1)}, backoff=BACKOFF),
    ):
        with pytest.raises(IllegalArgumentError):
            brokers.run(dialogue)
    assert brokers.sent == []


ONE: Any = "orders"
PARTITION: Any = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("dialogue", "text"),
    [
        (list_groups(states_filter=ONE, backoff=BACKOFF), "states_filter='orders': a list of states"),
        (list_groups(types_filter=ONE, backoff=BACKOFF), "types_filter='orders': a list of types"),
        (remove_group_members("g", ONE, backoff=BACKOFF), "members='orders': a list of MemberToRemove"),
        (remove_group_members("g", [ONE], backoff=BACKOFF), "members: 'orders': a MemberToRemove"),
        (delete_group_offsets("g", ONE, backoff=BACKOFF), "partitions='orders': a list of TopicPartition"),
        (delete_group_offsets("g", PARTITION, backoff=BACKOFF), "partitions: 'orders': a TopicPartition"),
        (list_group_offsets({"g": ONE}, backoff=BACKOFF), "partitions of g='orders': a list of TopicPartition"),
        (list_group_offsets({"g": PARTITION}, backoff=BACKOFF), "partitions of g: 'orders': a TopicPartition"),
    ],
)
def test_one_text_or_partition_is_no_list_of_them(dialogue: Any, text: str) -> None:
    brokers = Brokers({})
    with pytest.raises(IllegalArgumentError, match=text):
        brokers.run(dialogue)
    assert brokers.sent == []


def test_states_types_and_operations_have_kafkas_names() -> None:
    assert texts(GroupState, ["stable", "preparing-rebalance", GroupState.EMPTY]) == [
        "Stable", "PreparingRebalance", "Empty",
    ]  # fmt: skip
    assert texts(GroupType, ["SHARE", "classic"]) == ["share", "classic"]
    with pytest.raises(IllegalArgumentError, match="'queue': one of classic, consumer, share, streams$"):
        texts(GroupType, ["queue"])
    assert operations_of(-2_147_483_648) is None
    assert operations_of(0b1_0100_1000) == ["READ", "DELETE", "DESCRIBE"]
    assert OffsetCommitRequest.max_version == 10, "of which only those up to 9 name topics"
