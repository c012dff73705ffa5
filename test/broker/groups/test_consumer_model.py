"""A group of the consumer group protocol against clients that do anything: join, crash, dawdle, lose answers, leave,
come back.

What is promised: epochs only go up; the broker never gives a partition to two members; no partition is with two clients
that may both commit it; and when everybody behaves again, everything is assigned and nothing moves any more.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka.broker.groups.consumer_group import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DurableGroupState,
)
from kafka.broker.groups.records import CONSUMER_RECORDS, DurableGroupStateBuilder, changes
from kafka.broker.state.records import StateEvent, read_records
from kafka.broker.topics import TopicIdPartition, TopicInfo
from kafka.errors import BrokerResponseError, FencedMemberEpochError, UnknownMemberIdError
from kafka.protocol.constants import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from test.broker.groups.hand import HandGroup

NAMES = ("a", "b", "c", "static")
NAME = st.sampled_from(NAMES)


class Client:
    """A consumer of the consumer group protocol. ``told``: the assignment it heard of last; ``owns``: what it reads;
    ``in_full``: a heartbeat got no good answer, so the next one says everything, and its answer will say the assignment
    (as Java's HeartbeatRequestManager does; the broker tells an assignment that it has told once only in answer to
    that)."""

    def __init__(self) -> None:
        self.member_id = ""
        self.epoch = JOIN_EPOCH
        self.in_full = False
        self.topics = frozenset[str]()
        self.regex = ""
        self.told: frozenset[TopicIdPartition] = frozenset()
        self.owns: frozenset[TopicIdPartition] = frozenset()

    def fenced(self) -> None:
        """Let everything go and join again."""
        self.epoch, self.told, self.owns = JOIN_EPOCH, frozenset(), frozenset()


class ConsumerModel(RuleBasedStateMachine):
    @initialize(interval=st.sampled_from([0, 1000]))
    def start(self, interval: int) -> None:
        self.hand = HandGroup(5, assignment_interval_ms=interval)
        self.clients = {name: Client() for name in NAMES}
        self.count = 0
        self.epochs = (0, 0)
        self.written = DurableGroupState()
        self.disk = DurableGroupStateBuilder()

    @property
    def group(self):  # type: ignore[no-untyped-def]
        return self.hand.group

    @rule(name=NAME, assignor=st.sampled_from([None, "range"]), regex=st.booleans())
    def join(self, name: str, assignor: str | None, regex: bool) -> None:
        client = self.clients[name]
        if client.epoch > 0:
            return
        if not client.member_id:
            self.count += 1
            client.member_id = f"{name}{self.count}"
        client.fenced()
        client.topics, client.regex = (frozenset(), "t+") if regex else (frozenset({"t"}), "")
        heartbeat = ConsumerHeartbeat(
            client.member_id,
            JOIN_EPOCH,
            "i" if name == "static" else None,
            rebalance_timeout_ms=8000,
            topics=client.topics,
            regex=client.regex,
            assignor=assignor,
            owned=frozenset(),
        )
        self.send(client, heartbeat)

    @rule(name=NAME, lost=st.booleans(), obeys=st.booleans(), silent=st.booleans())
    def beat(self, name: str, lost: bool, obeys: bool, silent: bool) -> None:
        """``lost``: the answer does not arrive. ``obeys``: it lets go what it has to, and takes what it was given."""
        client = self.clients[name]
        if client.epoch <= 0:
            return
        if obeys:
            client.owns = client.told
        instance = "i" if name == "static" else None
        heartbeat = ConsumerHeartbeat(client.member_id, client.epoch, instance, owned=None if silent else client.owns)
        if client.in_full:
            heartbeat = heartbeat._replace(
                owned=client.owns, rebalance_timeout_ms=8000, topics=client.topics, regex=client.regex
            )
        self.send(client, heartbeat, lost)

    def send(self, client: Client, wanted: ConsumerHeartbeat, lost: bool = False) -> None:
        client.in_full = True
        try:
            answer: ConsumerHeartbeatResult = self.group.heartbeat(wanted, self.hand.now)
        except (FencedMemberEpochError, UnknownMemberIdError):
            client.fenced()
        except BrokerResponseError:
            pass
        else:
            assert answer.epoch >= client.epoch or wanted.epoch == JOIN_EPOCH
            if not lost:
                client.in_full = False
                client.epoch = answer.epoch
                if answer.assignment is not None:
                    client.told = answer.assignment
                    client.owns &= client.told if wanted.owned is None else client.owns

    @rule(name=NAME, will_return=st.booleans())
    def leave(self, name: str, will_return: bool) -> None:
        client = self.clients[name]
        if client.epoch <= 0:
            return
        try:
            member = self.group.find_leaving_member(client.member_id, "i" if name == "static" else None)
        except BrokerResponseError:
            pass
        else:
            if name == "static" and will_return:
                self.group.static_leave(member)
                assert self.group.members[member.member_id].epoch == STATIC_LEAVE_EPOCH
            else:
                self.group.remove([member.member_id])
        self.clients[name] = Client()

    @rule(name=NAME)
    def crash(self, name: str) -> None:
        self.clients[name] = Client()

    @rule()
    def topic_grows(self) -> None:
        info = self.hand.topics.all["t"]
        if info.partition_count < 9:
            self.hand.topics.all["t"] = TopicInfo(info.topic_id, info.partition_count + 1)
            self.group.topics_changed({"t"})

    @rule(seconds=st.sampled_from([0.4, 1.5, 9.0, 46.0]))
    def time_passes(self, seconds: float) -> None:
        self.hand.advance(seconds)

    @invariant()
    def epochs_never_go_back(self) -> None:
        if hasattr(self, "hand"):
            now = (self.group.epoch, self.group.durable.assignment_epoch)
            assert now[0] >= self.epochs[0]
            assert now[1] >= self.epochs[1]
            assert now[1] <= now[0]
            self.epochs = now

    @invariant()
    def no_partition_is_with_two_members(self) -> None:
        if hasattr(self, "hand"):
            held = [one for member in self.group.members.values() for one in member.holds()]
            assert len(held) == len(set(held))

    @invariant()
    def no_partition_has_two_clients_that_may_commit(self) -> None:
        if not hasattr(self, "hand"):
            return
        taken: dict[TopicIdPartition, str] = {}
        for name, client in self.clients.items():
            for one in client.owns:
                try:
                    self.group.check_commit(client.member_id, client.epoch, 9, False, [one])
                except BrokerResponseError:
                    continue
                assert one not in taken, f"{one} is with {name} and {taken[one]}"
                taken[one] = name

    @invariant()
    def the_disk_says_the_same(self) -> None:
        """After each step what was written, and nothing else, gives the group back."""
        if not hasattr(self, "hand"):
            return
        written = changes("g", self.written, self.group.durable)
        read_records(
            ((0, StateEvent(key, value, None)) for key, value in written),
            {
                key: (value, lambda _partition, name, found, _producer: self.disk.feed(name, found))
                for key, value in CONSUMER_RECORDS.items()
            },
        )
        self.written = self.group.durable
        found = self.disk.state()
        assert dict(found.members) == dict(self.written.members)
        assert found[:4] == self.written[:4]
        assert {k: v for k, v in found.target.items() if v} == {k: v for k, v in self.written.target.items() if v}
        assert found.regexes == self.written.regexes

    def teardown(self) -> None:
        if not hasattr(self, "hand"):
            return
        self.hand.advance(100.0)  # sessions of the dead
        for name in NAMES:
            self.join(name, None, False)
        for _ in range(30):
            self.hand.advance(1.5)
            for name in NAMES:
                self.join(name, None, False)
                self.beat(name, False, True, False)
        assert self.group.state == "Stable"
        count = self.hand.topics.all["t"].partition_count
        owned = sorted(number for client in self.clients.values() for _, number in client.owns)
        assert owned == list(range(count))
        assert all(client.owns == client.told for client in self.clients.values())


TestConsumerModel = ConsumerModel.TestCase
TestConsumerModel.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
