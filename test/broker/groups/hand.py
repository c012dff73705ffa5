"""A group of the consumer group protocol, a clock and a set of topics, moved by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from kafka.broker.group_settings import ConsumerSettings
from kafka.broker.groups.consumer_group import ConsumerGroup, ConsumerHeartbeat, ConsumerHeartbeatResult
from kafka.broker.groups.timers import GroupTimers
from kafka.broker.topics import TopicIdPartition, TopicInfo


class HandTopics:
    """Topics by name; ids are numbers."""

    def __init__(self) -> None:
        self.all: dict[str, TopicInfo] = {}

    def make(self, name: str, partitions: int = 1) -> UUID:
        self.all[name] = TopicInfo(UUID(int=len(self.all) + 1), partitions)
        return self.all[name].topic_id

    def infos(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        return {name: self.all[name] for name in names if name in self.all}

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, info in self.all.items() if info.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self.all)


class HandGroup:
    """``all_of``: what each member was last told that it has, as a client that obeys keeps it."""

    def __init__(self, partitions: int = 4, **settings: int) -> None:
        self.now = 100.0
        self.timers = GroupTimers()
        self.topics = HandTopics()
        self.topic_id = self.topics.make("t", partitions)
        self.settings = ConsumerSettings(**settings)  # type: ignore[arg-type]
        self.group = ConsumerGroup(
            "g", lambda: self.settings, self.timers.of("g"), self.topics, lambda: int(self.now * 1000)
        )
        self.all_of: dict[str, frozenset[TopicIdPartition]] = {}

    def join(self, member: str, *topics: str, **fields: object) -> ConsumerHeartbeatResult:
        names = frozenset(topics or (() if "regex" in fields else ("t",)))
        heartbeat = ConsumerHeartbeat(
            member, 0, rebalance_timeout_ms=20_000, topics=names, owned=frozenset()
        )._replace(**fields)  # type: ignore[arg-type]
        return self._send(heartbeat)

    def beat(self, member: str, epoch: int | None = None, **fields: object) -> ConsumerHeartbeatResult:
        """Epoch: the member's, unless said otherwise."""
        known = self.group.members[member].epoch if epoch is None else epoch
        return self._send(ConsumerHeartbeat(member, known)._replace(**fields))  # type: ignore[arg-type]

    def obey(self, member: str) -> ConsumerHeartbeatResult:
        """Say what one has, which is what one was told."""
        return self.beat(member, owned=self.all_of.get(member, frozenset()))

    def settle(self, *members: str) -> None:
        """Have everybody do as they are told until nothing moves."""
        self.advance(1.1)
        for _ in range(6):
            for member in members:
                self.obey(member)

    def numbers(self, member: str) -> list[int]:
        """The partitions that it was told that it has."""
        return sorted(number for _, number in self.all_of.get(member, ()))

    def advance(self, seconds: float) -> list[str]:
        """Let time pass; the members that were thrown out."""
        gone = []
        end = self.now + seconds
        while (due := self.timers.next_deadline) is not None and due <= end:
            self.now = max(self.now, due)
            for _, _, member in self.timers.pop_due(self.now):
                if member in self.group.members:
                    self.group.remove([member])
                    gone.append(member)
        self.now = end
        return gone

    def _send(self, wanted: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        answer = self.group.heartbeat(wanted, self.now)
        if answer.assignment is not None:
            self.all_of[wanted.member_id] = answer.assignment
        return answer
