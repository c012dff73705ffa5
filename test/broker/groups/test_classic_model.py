"""A classic group against clients that do anything: join, crash, leave, dawdle, come back, while writes fail.

What is promised: generations only go up; no partition is with two clients that may both commit it; and when everybody
behaves again, the group is stable after a bounded time, with everything assigned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka.broker.groups.classic_group import (
    ClassicGroup,
    ClassicJoinRequest,
    ClassicLimits,
    ClassicState,
    ClassicSyncRequest,
    JoinGroupResult,
    SyncGroupResult,
)
from kafka.broker.groups.timers import GroupTimers
from kafka.errors import BrokerResponseError, KafkaStorageError

PARTITIONS = 5
NAMES = ("a", "b", "c", "static")
NAME = st.sampled_from(NAMES)


class Client:
    """A consumer. ``waits``: its callback in flight; ``owns`` is what it reads, and would commit under
    ``generation``."""

    def __init__(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.members: tuple[str, ...] | None = None
        self.has_to_sync = False
        self.waits: Any = None
        self.owns: frozenset[int] = frozenset()

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]


class ClassicModel(RuleBasedStateMachine):
    @initialize(delay=st.sampled_from([0, 3000]), max_size=st.sampled_from([2, 100]))
    def start(self, delay: int, max_size: int) -> None:
        self.now = 0.0
        self.timers = GroupTimers()
        self.fails = False
        self.count = 0
        self.highest = 0
        self.clients = {name: Client() for name in NAMES}
        limits = ClassicLimits(max_size, delay)
        self.group = ClassicGroup("g", lambda: limits, self.timers.of("g"), self.store, self.new_id)

    def store(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        if self.fails:
            raise KafkaStorageError("full")

    def new_id(self, stem: str) -> str:
        self.count += 1
        return f"{stem}-{self.count}"

    def deliver(self) -> None:
        for (name, number), answer in self.group.take_completed_requests():
            client = self.clients[name]
            if client.waits != number:
                continue  # the client that asked is gone
            client.waits = None
            if isinstance(answer, JoinGroupResult):
                self.joined(client, answer)
            else:
                self.synced(client, answer)

    def joined(self, client: Client, answer: JoinGroupResult) -> None:
        client.member_id = answer.member_id
        if answer.error is not None:
            client.has_to_sync = False
            return
        assert answer.generation <= self.group.generation
        client.generation = answer.generation
        client.has_to_sync = True
        client.members = None
        if answer.leader == answer.member_id and not answer.skip_assignment:
            client.members = tuple(member for member, _, _ in answer.members)

    def synced(self, client: Client, answer: SyncGroupResult) -> None:
        client.has_to_sync = False
        if answer.error is None:
            client.owns = frozenset(answer.assignment)

    def callback(self, name: str) -> Any:
        self.count += 1
        self.clients[name].waits = self.count
        return name, self.count

    @rule(name=NAME, known=st.booleans(), session=st.sampled_from([4000, 10_000]))
    def join(self, name: str, known: bool, session: int) -> None:
        client = self.clients[name]
        if client.waits is not None:
            return
        client.owns = frozenset()  # whoever joins has let go (the eager protocol)
        instance = "i" if name == "static" else None
        join = ClassicJoinRequest(
            client.member_id, instance, name, "/h", "consumer", (("range", b""),), session, 6000, known, True
        )
        self.group.join(join, self.callback(name), self.now)
        self.deliver()

    @rule(name=NAME)
    def sync(self, name: str) -> None:
        client = self.clients[name]
        if client.waits is not None or not client.has_to_sync:
            return
        assigned: dict[str, bytes] = {}
        if client.members is not None:
            for number in range(PARTITIONS):
                owner = client.members[number % len(client.members)]
                assigned[owner] = assigned.get(owner, b"") + bytes([number])
        instance = "i" if name == "static" else None
        sync = ClassicSyncRequest(client.member_id, instance, client.generation, "consumer", "range", assigned)
        self.group.sync(sync, self.callback(name), self.now)
        self.deliver()

    @rule(name=NAME)
    def heartbeat(self, name: str) -> None:
        self.beat(name)

    def beat(self, name: str) -> type[BrokerResponseError] | None:
        client = self.clients[name]
        instance = "i" if name == "static" else None
        try:
            self.group.heartbeat(client.member_id, instance, client.generation, self.now)
        except BrokerResponseError as error:
            return type(error)
        return None

    @rule(name=NAME)
    def leave(self, name: str) -> None:
        client = self.clients[name]
        try:
            self.group.leave(client.member_id, "i" if name == "static" else None)
        except BrokerResponseError:
            pass
        else:
            self.group.members_left(self.now)
        client.forget()
        self.deliver()

    @rule(name=NAME)
    def crash(self, name: str) -> None:
        self.clients[name].forget()

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.timers.next_deadline) is not None and due <= end:
            self.now = max(self.now, due)
            for _, kind, member_id in self.timers.pop_due(self.now):
                self.group.on_timeout(kind, member_id, self.now)
                self.deliver()
        self.now = end

    @rule(fails=st.booleans())
    def disk(self, fails: bool) -> None:
        self.fails = fails

    @invariant()
    def generations_never_go_back(self) -> None:
        if hasattr(self, "group"):
            assert self.group.generation >= self.highest
            self.highest = self.group.generation

    @invariant()
    def no_partition_has_two_clients_that_may_commit(self) -> None:
        if not hasattr(self, "group"):
            return
        taken: dict[int, str] = {}
        for name, client in self.clients.items():
            if client.owns and self.may_commit(name, client):
                for number in client.owns:
                    assert number not in taken, f"{number} is with {name} and {taken[number]}"
                    taken[number] = name

    def may_commit(self, name: str, client: Client) -> bool:
        instance = "i" if name == "static" else None
        held = {key: when for of_group in self.timers._when.values() for key, when in of_group.items()}
        try:
            self.group.check_commit(client.member_id, instance, client.generation, False, self.now)
        except BrokerResponseError:
            return False
        finally:  # asking here is no sign of life
            for key, when in held.items():
                self.timers.set(key, when)
        return True

    @invariant()
    def state_and_members_agree(self) -> None:
        if hasattr(self, "group"):
            assert (self.group.state is ClassicState.EMPTY) <= (not self.group.members)
            assert set(self.group.static.values()) <= set(self.group.members)
            assert self.group.leader is None or self.group.leader in self.group.members

    def teardown(self) -> None:
        if not hasattr(self, "group"):
            return
        self.fails = False
        for _ in range(60):
            for name, client in self.clients.items():
                if client.waits is None and not client.has_to_sync and self.beat(name) is not None:
                    if client.member_id not in self.group.members and client.member_id not in self.group.pending:
                        client.member_id = ""
                    self.join(name, True, 10_000)
                if client.has_to_sync:
                    self.sync(name)
            self.time_passes(1.0)
        assert self.group.state is ClassicState.STABLE, self.group.state
        owned = sorted(number for client in self.clients.values() for number in client.owns)
        assert owned == list(range(PARTITIONS))


TestClassicModel = ClassicModel.TestCase
TestClassicModel.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
