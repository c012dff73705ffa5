"""A member of a classic group on a bench: its clock, and answers by hand in the coordinator's place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.core.connection import ByVersion
from kafka.core.group.assignors.strategy import make_assignors
from kafka.core.group.classic import ClassicMember
from kafka.core.group.machine import (
    Assign,
    GroupEffect,
    GroupMachine,
    GroupSubscription,
    Lose,
    Revoke,
    SendToCoordinator,
    TopicSnapshot,
)
from kafka.core.group.protocol import (
    MemberAssignment,
    MemberSubscription,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kafka.core.retry import Backoff
from kafka.protocol.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.structs import TopicPartition
from kafka.wire.message import Response

SESSION_S = 45.0
BEAT_S = 3.0
MAX_POLL_S = 300.0
REQUEST_S = 30.0
BACKOFF_S = 0.1


class NoChance:
    def random(self) -> float:
        return 0.5


def parts(*numbers: int, topic: str = "jobs") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def joined(
    generation: int = 1,
    member_id: str = "me",
    leader: str = "other",
    others: Mapping[str, MemberSubscription] | None = None,
    protocol: str | None = "range",
    **more: Any,
) -> JoinGroupResponse:
    """An answer to a join; with ``others`` this member is told of them, as the leader."""
    members = [
        JoinGroupResponse.JoinGroupResponseMember(member_id=each, metadata=write_subscription(said))
        for each, said in (others or {}).items()
    ]
    fields: dict[str, Any] = {
        "error_code": 0, "generation_id": generation, "protocol_type": "consumer", "protocol_name": protocol,
        "leader": leader, "member_id": member_id, "members": members, **more,
    }  # fmt: skip
    return JoinGroupResponse(**fields)


def join_error(code: int, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None, leader="", member_id=member_id, members=[])


def synced(*numbers: int, topic: str = "jobs", code: int = 0, **more: Any) -> SyncGroupResponse:
    data = write_assignment(MemberAssignment(tuple(sorted(parts(*numbers, topic=topic)))))
    return SyncGroupResponse(error_code=code, assignment=b"" if code else data, **more)


def beat(code: int = 0) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


def gone() -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=0, members=[])


class Seen(list[GroupEffect]):
    """Effects that are equal only to those of their own kind: as tuples a Lose is equal to a Revoke."""

    def __eq__(self, other: object) -> bool:
        return list.__eq__(self, other) and [type(each) for each in self] == [type(each) for each in Seen(other)]  # type: ignore[call-overload]

    def __contains__(self, effect: object) -> bool:
        return any(each == effect and type(each) is type(effect) for each in self)


class Bench:
    """``asked``: the request that waits for an answer; ``seen``: the other effects since the last look."""

    def __init__(
        self, strategy: Sequence[Any] = ("range",), max_poll_interval_s: float = MAX_POLL_S, **options: Any
    ) -> None:
        self.now = 1000.0
        self.member = ClassicMember(
            "g",
            assignors=make_assignors(strategy),
            session_timeout_s=SESSION_S,
            heartbeat_interval_s=BEAT_S,
            max_poll_interval_s=max_poll_interval_s,
            request_timeout_s=REQUEST_S,
            retry_backoff=Backoff(BACKOFF_S, 1.0, NoChance()),
            **options,
        )
        machine: GroupMachine = self.member  # it is one, as a type checker sees
        assert machine.next_deadline == float("inf")
        self.asked: SendToCoordinator | None = None
        self.seen = Seen()

    # -- time ---------------------------------------------------------------------------------------------------------

    def poll(self, after_s: float = 0.0) -> Seen:
        """What there is to do ``after_s`` later but requests, which are kept in ``asked``."""
        self.now += after_s
        found = self.member.poll(self.now)
        for each in found:
            if isinstance(each, SendToCoordinator):
                is_leave = isinstance(each.request, ByVersion)
                assert self.asked is None or is_leave, "only a leave goes out beside another request"
                self.asked = each
        self.seen = Seen(each for each in found if not isinstance(each, SendToCoordinator))
        assert self.member.next_deadline > self.now, "or the loop would spin"
        return self.seen

    def until_deadline(self) -> Seen:
        """What there is to do when the machine wants to be called."""
        return self.poll(max(self.member.next_deadline - self.now, 0.0))

    # -- requests -----------------------------------------------------------------------------------------------------

    @property
    def request(self) -> Any:
        """The request that waits, in its latest version; None: there is none."""
        if self.asked is None:
            return None
        request = self.asked.request
        return request.build(request.request_type.max_version) if isinstance(request, ByVersion) else request

    def answer(self, response: Response, after_s: float = 0.0) -> Seen:
        """Answer it, and see what comes of that."""
        ask, self.asked = self.asked, None
        assert ask is not None, "nothing was asked"
        self.now += after_s
        self.member.answered(ask, response, self.now)
        assert self.member.next_deadline <= self.now
        return self.poll()

    def fail(self, error: BaseException, after_s: float = 0.0) -> Seen:
        """There is no answer."""
        ask, self.asked = self.asked, None
        assert ask is not None, "nothing was asked"
        self.now += after_s
        self.member.failed(ask, error, self.now)
        return self.poll()

    # -- the user -----------------------------------------------------------------------------------------------------

    def carry_out(self, after_s: float = 0.0) -> Seen:
        """The user carries out what was seen last."""
        self.now += after_s
        for each in self.seen:
            if isinstance(each, (Revoke, Lose, Assign)):
                self.member.carried_out(each, self.now)
        return self.poll()

    def subscribe(self, *topics: str) -> Seen:
        self.member.subscribe(GroupSubscription(frozenset(topics)), self.now)
        return self.poll()

    def metadata(self, **counts: int) -> Seen:
        self.member.metadata_changed({topic: TopicSnapshot(count) for topic, count in counts.items()}, self.now)
        return self.poll()

    # -- the way to a member ------------------------------------------------------------------------------------------

    def join(self, *numbers: int, generation: int = 1, protocol: str = "range") -> Bench:
        """A follower that owns these of ``jobs``."""
        if self.asked is None:
            self.subscribe("jobs")
        assert isinstance(self.request, JoinGroupRequest), self.request
        self.answer(joined(generation, protocol=protocol))
        assert isinstance(self.request, SyncGroupRequest)
        found = self.answer(synced(*numbers))
        assert found == [Assign(parts(*numbers), parts(*numbers))]
        assert not self.carry_out()
        assert self.member.owned == parts(*numbers)
        assert self.member.state_name == "stable"
        return self

    def lead(self, count: int, protocol: str = "range", **others: MemberSubscription) -> Bench:
        """The leader of a group, alone or with ``others``; the assignor's answer is in ``request``."""
        self.metadata(jobs=count)
        if self.asked is None:
            self.subscribe("jobs")
        subscription = read_subscription(dict(self.protocol_metadata())[protocol])
        self.answer(joined(1, "me", "me", {"me": subscription, **others}, protocol))
        return self

    def protocol_metadata(self) -> list[tuple[str, bytes]]:
        """The assignors of a waiting join, and the metadata for each."""
        return [(each.name, bytes(each.metadata)) for each in self.request.protocols]


__all__ = [
    "Bench", "HeartbeatRequest", "JoinGroupRequest", "LeaveGroupRequest", "SyncGroupRequest", "beat", "gone",
    "join_error", "joined", "parts", "synced",
]  # fmt: skip
