"""Members against the embedded broker's own group, with lost and late messages, users who stall, members that die.

No partition has two owners who both can commit, at any time; and when the trouble is over everything is shared.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from kafka.broker.groups.classic_group import (
    COMPLETING,
    ClassicGroup,
    ClassicJoinRequest,
    ClassicLimits,
    ClassicSyncRequest,
    JoinGroupResult,
    SyncGroupResult,
)
from kafka.broker.groups.timers import GroupTimers
from kafka.core.connection import ByVersion
from kafka.core.group.assignors.strategy import make_assignors
from kafka.core.group.classic import ClassicMember
from kafka.core.group.machine import (
    Assign,
    GroupSubscription,
    Left,
    Lose,
    ReportError,
    Revoke,
    SendToCoordinator,
    TopicSnapshot,
)
from kafka.core.retry import Backoff
from kafka.errors import BrokerResponseError, KafkaConnectionError
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
from test.support.seeds import seeds

SESSION_S, BEAT_S, MAX_POLL_S = 10.0, 1.0, 30.0
TROUBLE_S, CALM_S = 150.0, 120.0


class World:
    """A clock, a wire, the coordinator and its members."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.is_calm = False
        self.partitions_count = 6
        self.members: list[Member] = []
        self._steps, self._stepped_at = 0, -1.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._timers = GroupTimers()
        self._ids = count()
        self.group = ClassicGroup(
            "g", lambda: ClassicLimits(initial_delay_ms=500), self._timers.of("g"), lambda *_: None,
            lambda stem: f"{stem}-{next(self._ids)}",
        )  # fmt: skip

    def at(self, after_s: float, what: Callable[[], object]) -> None:
        heapq.heappush(self._events, (self.now + after_s, next(self._numbers), what))

    def chance(self, likely: float) -> bool:
        return not self.is_calm and self.rng.random() < likely

    def run(self, until: float) -> None:
        while self.now < until:
            wakes = [member.machine.next_deadline for member in self.members if member.is_alive]
            due = self._timers.next_deadline
            following = min(
                [until, *wakes, *([due] if due is not None else []), *(each[0] for each in self._events[:1])]
            )
            self.now = max(self.now, following)
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            for _, kind, member_id in self._timers.pop_due(self.now):
                self.group.on_timeout(kind, member_id, self.now)
            self.answer()
            for member in self.members:
                member.pump()
            self.check()
            self._steps = self._steps + 1 if self.now == self._stepped_at else 0
            self._stepped_at = self.now
            assert self._steps < 1000, "somebody wants to be called again and again, and does nothing"

    def answer(self) -> None:
        for (member, ask), answer in self.group.take_completed_requests():
            member.back(ask, to_response(answer))

    def check(self) -> None:
        owners: Counter[TopicPartition] = Counter()
        for member in self.members:
            machine = member.machine
            is_member = machine.member_id in self.group.members and machine.generation == self.group.generation
            if member.is_alive and is_member and self.group.state is not COMPLETING:
                owners.update(machine.owned)
        assert all(number == 1 for number in owners.values()), f"two can commit at {self.now:.3f}: {owners}"


class Member:
    """One process: a machine, and a user who polls when he feels like it."""

    def __init__(self, world: World, strategy: tuple[str, ...], instance_id: str | None) -> None:
        self.world = world
        self.is_alive = True
        self.is_done = False
        self.machine = ClassicMember(
            "g", group_instance_id=instance_id, assignors=make_assignors(strategy), session_timeout_s=SESSION_S,
            heartbeat_interval_s=BEAT_S, max_poll_interval_s=MAX_POLL_S, request_timeout_s=8.0,
            retry_backoff=Backoff(0.1, 1.0, world.rng),
        )  # fmt: skip
        self.machine.polled_at = world.now
        self.tell_metadata()
        self.machine.subscribe(GroupSubscription(frozenset({"t"})), world.now)
        self.user_polls()

    def tell_metadata(self) -> None:
        self.machine.metadata_changed({"t": TopicSnapshot(self.world.partitions_count)}, self.world.now)

    def user_polls(self) -> None:
        """Now and then somebody works for longer than he may."""
        if self.is_alive:
            self.machine.polled_at = self.world.now
            self.world.at(40.0 if self.world.chance(0.02) else 1.0, self.user_polls)

    def pump(self) -> None:
        if not self.is_alive:
            return
        for effect in self.machine.poll(self.world.now):
            if isinstance(effect, SendToCoordinator):
                self.send(effect)
            elif isinstance(effect, (Revoke, Lose, Assign)):
                slow_s = self.world.rng.choice((0.0, 0.01, 1.0, 12.0)) if not self.world.is_calm else 0.01
                self.world.at(slow_s, lambda effect=effect: self.carry_out(effect))  # type: ignore[misc]
            elif isinstance(effect, Left):
                self.is_alive, self.is_done = False, True
            elif isinstance(effect, ReportError):
                raise AssertionError(effect.error)

    def carry_out(self, effect: Revoke | Lose | Assign) -> None:
        if self.is_alive:
            self.machine.carried_out(effect, self.world.now)

    def send(self, ask: SendToCoordinator) -> None:
        world = self.world
        if world.chance(0.05):
            world.at(world.rng.choice((0.0, ask.timeout_s)), lambda: self.fail(ask))
        else:
            world.at(world.rng.uniform(0.0, 0.02), lambda: self.arrive(ask))

    def fail(self, ask: SendToCoordinator) -> None:
        if self.is_alive:
            self.machine.failed(ask, KafkaConnectionError("lost"), self.world.now)

    def back(self, ask: SendToCoordinator, response: Response) -> None:
        world = self.world
        if world.chance(0.05):
            world.at(world.rng.choice((0.0, ask.timeout_s)), lambda: self.fail(ask))
        else:
            world.at(world.rng.uniform(0.0, 0.02), lambda: self.is_alive and self.answered(ask, response))

    def answered(self, ask: SendToCoordinator, response: Response) -> None:
        self.machine.answered(ask, response, self.world.now)

    def arrive(self, ask: SendToCoordinator) -> None:
        group, now = self.world.group, self.world.now
        request: Any = ask.request.build(5) if isinstance(ask.request, ByVersion) else ask.request
        callback = (self, ask)
        if isinstance(request, JoinGroupRequest):
            protocols = tuple((each.name, bytes(each.metadata)) for each in request.protocols)
            group.join(
                ClassicJoinRequest(
                    request.member_id, request.group_instance_id, "c", "/h", "consumer", protocols,
                    request.session_timeout_ms, request.rebalance_timeout_ms,
                ), callback, now,
            )  # fmt: skip
        elif isinstance(request, SyncGroupRequest):
            given = {each.member_id: bytes(each.assignment) for each in request.assignments}
            group.sync(
                ClassicSyncRequest(
                    request.member_id, request.group_instance_id, request.generation_id, request.protocol_type,
                    request.protocol_name, given,
                ), callback, now,
            )  # fmt: skip
        elif isinstance(request, HeartbeatRequest):
            code = 0
            try:
                group.heartbeat(request.member_id, request.group_instance_id, request.generation_id, now)
            except BrokerResponseError as error:
                code = error.errno or 0
            self.back(ask, HeartbeatResponse(error_code=code))
        elif isinstance(request, LeaveGroupRequest):
            try:
                group.leave(request.members[0].member_id, request.members[0].group_instance_id)
                group.members_left(now)
            except BrokerResponseError:
                pass
            self.back(ask, LeaveGroupResponse(error_code=0, members=[]))
        self.world.answer()


def to_response(answer: JoinGroupResult | SyncGroupResult) -> Response:
    code = answer.error.errno if answer.error is not None else 0
    if isinstance(answer, SyncGroupResult):
        return SyncGroupResponse(
            error_code=code, protocol_type=answer.protocol_type, protocol_name=answer.protocol_name,
            assignment=answer.assignment,
        )  # fmt: skip
    return JoinGroupResponse(
        error_code=code, generation_id=answer.generation, protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name, leader=answer.leader, skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(member_id=one, group_instance_id=instance_id, metadata=data)
            for one, instance_id, data in answer.members
        ],
    )  # fmt: skip


def trouble(world: World, strategy: tuple[str, ...], has_static: bool) -> None:
    """Members come, leave, die. The topic grows, but not in a group with static members: its leader, coming back, skips
    the assignment and does not know with how many partitions it was made (KIP-814); Java's does not, either."""
    names = [f"i{number}" for number in range(3)] if has_static else []
    while world.now < TROUBLE_S:
        alive = [member for member in world.members if member.is_alive]
        what = world.rng.random()
        if len(alive) < 2 or (what < 0.4 and len(alive) < 6):
            taken = {member.machine.group_instance_id for member in alive}
            free = [name for name in names if name not in taken]
            world.members.append(Member(world, strategy, free[0] if free and world.rng.random() < 0.5 else None))
        elif what < 0.55:
            world.rng.choice(alive).machine.leave(world.now)
        elif what < 0.7:
            world.rng.choice(alive).is_alive = False
        elif what < 0.8 and world.partitions_count < 12 and not has_static:
            world.partitions_count += 1
            for member in alive:
                world.at(world.rng.uniform(0, 5), member.tell_metadata)
        world.run(world.now + world.rng.choice((0.05, 1.0, 4.0, 15.0)))


@pytest.mark.parametrize("has_static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("strategy", [("range",), ("roundrobin",), ("sticky",), ("cooperative-sticky",)])
def test_no_partition_has_two_owners_and_in_the_end_everything_is_shared(
    strategy: tuple[str, ...], has_static: bool
) -> None:
    for seed in seeds("classic walk", 3):
        world = World(seed)
        trouble(world, strategy, has_static)
        world.is_calm = True
        for member in world.members:
            if member.is_alive:
                member.tell_metadata()
        world.run(world.now + CALM_S)
        if not any(member.is_alive for member in world.members):  # all have died or left: the group is the next one's
            world.members.append(Member(world, strategy, None))
            world.run(world.now + CALM_S)
        alive = [member for member in world.members if member.is_alive]
        owned = Counter(partition for member in alive for partition in member.machine.owned)
        what = f"seed {seed}: {[(one.machine.state_name, len(one.machine.owned)) for one in alive]}"
        assert {one.machine.state_name for one in alive} == {"stable"}, what
        assert owned == Counter(TopicPartition("t", number) for number in range(world.partitions_count)), what
