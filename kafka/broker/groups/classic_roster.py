"""Who is in a classic group, who leads it, what they agree on: the facts. What happens to them is in
``classic_group.py``.
"""

from __future__ import annotations

from collections import Counter

from kafka.broker.groups.assignors import java_order
from kafka.broker.groups.classic_member import ClassicMember, Protocols
from kafka.broker.groups.embedded_protocol import PROTOCOL_TYPE, read_subscription
from kafka.errors import BrokerResponseError, FencedInstanceIdError, KafkaProtocolError, UnknownMemberIdError


class ClassicRoster:
    """The members of one classic group."""

    def __init__(self) -> None:
        self.members: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}
        """Instance id -> member id."""
        self.pending: set[str] = set()
        """Ids that were given out to members that have to come again."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.subscribed: frozenset[str] | None = None
        """The topics that the members are subscribed to; None: not known."""

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == PROTOCOL_TYPE

    @property
    def rebalance_timeout_s(self) -> float:
        """The longest of all members'."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0) / 1000

    def in_order(self) -> list[ClassicMember]:
        """The members as Kafka lists them."""
        return [self.members[member_id] for member_id in java_order(self.members)]

    def is_subscribed_to(self, topic: str) -> bool:
        return self.is_of_consumers if self.subscribed is None else topic in self.subscribed

    def put(self, member: ClassicMember) -> None:
        """Make it a member; the first one is the leader and decides on the group's type."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self.pending.discard(member.member_id)

    def drop(self, member_id: str) -> ClassicMember:
        """Take a member out; somebody else leads, if it was the leader."""
        member = self.members.pop(member_id)
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(java_order(self.members)), None)
        return member

    def shares_protocol(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether somebody with these has one that everybody has."""
        return protocol_type == self.protocol_type and any(
            all(member.supports(name) for member in self.members.values()) for name, _ in protocols
        )

    def member_error(self, member_id: str, instance_id: str | None) -> type[BrokerResponseError] | None:
        """Why this is no member, or None."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                return UnknownMemberIdError
            if known != member_id:
                return FencedInstanceIdError
        return None if member_id in self.members else UnknownMemberIdError

    def vote(self) -> str:
        """The one of those that all have which most members like best; of equals, the leader's choice is as good as
        any."""
        candidates = set.intersection(*({name for name, _ in one.protocols} for one in self.members.values()))
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def select_protocol(self) -> None:
        """Take the protocol that the members vote for; for a group that was another kind before."""
        self.protocol_name = self.vote()
        self.subscribed = self.subscription()

    def subscription(self) -> frozenset[str] | None:
        """The topics of all members, as far as they can be read."""
        if not self.is_of_consumers:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(read_subscription(member.metadata(self.protocol_name)).topics)
            except KafkaProtocolError:
                return None
        return frozenset(topics)

    def members_for_leader(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """Id, instance id and metadata of each."""
        return tuple(
            (member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.in_order()
        )
