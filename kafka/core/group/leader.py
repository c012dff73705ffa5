"""What the leader of a classic group does: read what the members say, run the assignor, watch the topics.

Nothing here sends anything; ``classic.py`` does, when :attr:`Leadership.missing` is known or will not be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka.core.group.assignors.base import Assignor, GroupMember, RebalanceProtocol
from kafka.core.group.machine import TopicPicture
from kafka.core.group.protocol import Assignment, read_subscription, write_assignment
from kafka.errors import IllegalStateError, KafkaProtocolError
from kafka.protocol.groups import JoinGroupResponse, SyncGroupRequest
from kafka.structs import TopicPartition

_KEEPS_ITS_PROMISE: Final = "cooperative-sticky"
"""The built-in one looks at the generations in which partitions were owned, too: an old claim is none."""


class Leadership:
    """The leader of one generation. ``topics``: all that the group reads."""

    def __init__(self, response: JoinGroupResponse, assignor: Assignor, looks_at_racks: bool) -> None:
        self._assignor = assignor
        self._looks_at_racks = looks_at_racks
        self._members = [_member(one) for one in response.members]
        self._skips = response.skip_assignment
        self.topics = frozenset(topic for member in self._members for topic in member.subscription.topics)
        self._picture: dict[str, TopicPicture] = {}

    def missing(self, known: Mapping[str, TopicPicture]) -> frozenset[str]:
        """Topics of the group of which nothing is known yet; empty when there is nothing to assign."""
        return frozenset() if self._skips else self.topics - known.keys()

    def assign(
        self, known: Mapping[str, TopicPicture], protocol: RebalanceProtocol
    ) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        """Run the assignor. What a user's own one raises comes out as it is; IllegalStateError: it broke its promise.

        Nothing for a static leader that came back to its group: everybody keeps what he has (KIP-814)."""
        self._picture = self._view(known)
        if self._skips:
            return []
        found = self._assignor.assign(known, self._members)
        strangers = found.keys() - {member.member_id for member in self._members}
        if strangers:
            raise IllegalStateError(f"the assignor {self._assignor.name} assigned to {sorted(strangers)}: no members")
        if protocol is RebalanceProtocol.COOPERATIVE and self._assignor.name != _KEEPS_ITS_PROMISE:
            self._check_nothing_is_taken(found)
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member.member_id,
                assignment=write_assignment(found.get(member.member_id, Assignment())),
            )
            for member in self._members
        ]

    def has_changed(self, known: Mapping[str, TopicPicture], own: frozenset[str]) -> bool:
        """Whether the topics are others than when it was assigned: more partitions, made, deleted, on other racks.
        Only of ``own`` it counts that they are gone: of the others' topics maybe nobody has asked lately."""
        now = self._view(known)
        return any(now.get(topic) != self._picture.get(topic) for topic in (self.topics & own) | now.keys())

    def _view(self, known: Mapping[str, TopicPicture]) -> dict[str, TopicPicture]:
        racks = self._looks_at_racks
        return {
            topic: TopicPicture(known[topic].partitions_count, tuple(known[topic].racks) if racks else ())
            for topic in self.topics
            if topic in known
        }

    def _check_nothing_is_taken(self, found: Mapping[str, Assignment]) -> None:
        """KIP-429: who loses a partition has to give it up in one generation, before another gets it in the next."""
        revoked: set[TopicPartition] = set()
        added: set[TopicPartition] = set()
        for member in self._members:
            owned = set(member.subscription.owned)
            given = set(found.get(member.member_id, Assignment()).partitions)
            revoked |= owned - given
            added |= given - owned
        if revoked & added:
            raise IllegalStateError(
                f"the assignor {self._assignor.name} is cooperative and gave away what others still own: "
                f"{sorted(revoked & added)[:5]}; leave such partitions out for one generation"
            )


def _member(one: JoinGroupResponse.JoinGroupResponseMember) -> GroupMember:
    try:
        subscription = read_subscription(one.metadata)
    except KafkaProtocolError as error:
        raise KafkaProtocolError(f"member {one.member_id} of the group says what is no subscription: {error}") from None
    return GroupMember(one.member_id, one.group_instance_id, subscription)
