"""The assignors that there are, and assignors out of what users say in ``partition_assignment_strategy``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kafka.core.group.assignors.base import Assignor, GroupMember, RebalanceProtocol
from kafka.core.group.assignors.range import RangeAssignor
from kafka.core.group.assignors.roundrobin import RoundRobinAssignor
from kafka.core.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from kafka.core.group.machine import TopicSnapshot
from kafka.core.group.protocol import (
    MemberAssignment,
    MemberSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kafka.core.partitions import by_topic
from kafka.errors import IllegalArgumentError
from kafka.structs import TopicPartition

# Assignors that users have written for kafka-python, of its generations 2 and 3, as assignors of ours.
#
#     kafka-python's                                   ours
#     metadata(topics) -> .user_data                   user_data(topics)
#     assign(cluster, members)                         assign(topics, members)
#     on_assignment(assignment[, generation])          on_assignment(assignment, generation)
#     supported_protocols() (3)                        rebalance_protocols; eager without it
#
# Generation 2 takes ``members`` for a dictionary of ids and metadata, generation 3 for a list of members: what we hand
# in can be read both ways. What comes back may be the objects of ``kafka.coordinator.protocol``, or topics with
# partitions in any simple form. A subscription's owned partitions, generation and rack are filled in by us, whatever
# ``metadata`` says of them: we know.


class ConsumerProtocolMemberMetadata:
    """What a member says of itself: kafka-python's object, by the names of both its generations."""

    def __init__(self, version: int = 0, topics: Iterable[str] = (), user_data: bytes | None = b"") -> None:
        self.version = version
        self.topics = list(topics)
        self.user_data = user_data
        self.owned_partitions: list[tuple[str, list[int]]] = []
        self.generation_id = -1
        self.rack_id: str | None = None

    @property
    def subscription(self) -> list[str]:
        """``topics``, by its name in the first releases."""
        return self.topics

    @classmethod
    def of(cls, subscription: MemberSubscription) -> ConsumerProtocolMemberMetadata:
        made = cls(3, subscription.topics, subscription.user_data)
        made.owned_partitions = list(by_topic(subscription.owned).items())
        made.generation_id = subscription.generation
        made.rack_id = subscription.rack or None
        return made

    def to_subscription(self) -> MemberSubscription:
        owned = tuple(TopicPartition(topic, number) for topic, numbers in self.owned_partitions for number in numbers)
        return MemberSubscription(tuple(self.topics), self.user_data, owned, self.generation_id, self.rack_id or "")

    def encode(self) -> bytes:
        """The bytes, in ``version``."""
        return write_subscription(self.to_subscription(), min(self.version, 3))

    @classmethod
    def decode(cls, data: bytes) -> ConsumerProtocolMemberMetadata:
        return cls.of(read_subscription(data))


class ConsumerProtocolMemberAssignment:
    """What a member is to read: kafka-python's object. ``assignment``: topics with the numbers of partitions."""

    def __init__(
        self,
        version: int = 0,
        assignment: Iterable[tuple[str, Iterable[int]]] = (),
        user_data: bytes | None = b"",
    ) -> None:
        self.version = version
        self.assignment = [(topic, list(numbers)) for topic, numbers in assignment]
        self.user_data = user_data

    @property
    def assigned_partitions(self) -> list[tuple[str, list[int]]]:
        """``assignment``, by Kafka's own name."""
        return self.assignment

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, numbers in self.assignment for number in numbers]

    @classmethod
    def of(cls, assignment: MemberAssignment) -> ConsumerProtocolMemberAssignment:
        return cls(0, by_topic(assignment.partitions).items(), assignment.user_data)

    def encode(self) -> bytes:
        """The bytes, in ``version``."""
        return write_assignment(MemberAssignment(tuple(self.partitions()), self.user_data), min(self.version, 3))

    @classmethod
    def decode(cls, data: bytes) -> ConsumerProtocolMemberAssignment:
        return cls.of(read_assignment(data))


class LegacyMember(str):
    """A member: its id, with what generation 3 has beside it."""

    member_id: str
    group_instance_id: str | None
    metadata: ConsumerProtocolMemberMetadata

    @classmethod
    def of(cls, member: GroupMember) -> LegacyMember:
        made = cls(member.member_id)
        made.member_id = member.member_id
        made.group_instance_id = member.instance_id
        made.metadata = ConsumerProtocolMemberMetadata.of(member.subscription)
        return made


class LegacyMembers(Mapping[str, ConsumerProtocolMemberMetadata]):
    """A dictionary of ids and metadata; gone through or asked for a number, a list of members."""

    def __init__(self, members: Sequence[GroupMember]) -> None:
        self._members = [LegacyMember.of(member) for member in members]
        self._by_id = {member.member_id: member for member in self._members}

    def __iter__(self) -> Iterator[LegacyMember]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, key: Any) -> Any:
        return self._members[key] if isinstance(key, (int, slice)) else self._by_id[key].metadata


class LegacyCluster:
    """What an assignor may ask the cluster's metadata: topics and partitions."""

    def __init__(self, topics: Mapping[str, TopicSnapshot]) -> None:
        self._topics = topics

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """All that are known."""
        return set(self._topics)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of its partitions, or None."""
        picture = self._topics.get(topic)
        return None if picture is None else set(range(picture.partitions_count))

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The same: whether there is a leader just now is nothing to assign by."""
        return self.partitions_for_topic(topic)

    def racks_for_topic(self, topic: str) -> Sequence[frozenset[str]]:
        """The racks of each partition's replicas, in the order of their numbers; empty where brokers have none."""
        picture = self._topics.get(topic)
        return () if picture is None else picture.racks


class LegacyAssignorAdapter:
    """See the module. ``assignor``: a user's object."""

    def __init__(self, assignor: Any) -> None:
        self._assignor = assignor
        self._takes_generation = _takes(assignor.on_assignment, 2)
        supported = getattr(assignor, "supported_protocols", None)
        self._protocols = frozenset(
            RebalanceProtocol(int(one)) for one in (supported() if callable(supported) else [RebalanceProtocol.EAGER])
        )

    @property
    def name(self) -> str:
        name: str = self._assignor.name
        return name

    @property
    def rebalance_protocols(self) -> frozenset[RebalanceProtocol]:
        return self._protocols

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        said = self._assignor.metadata(topics)
        if isinstance(said, (bytes, bytearray, memoryview)):
            return read_subscription(bytes(said)).user_data
        return getattr(said, "user_data", None) or None

    def assign(
        self, topics: Mapping[str, TopicSnapshot], members: Sequence[GroupMember]
    ) -> Mapping[str, MemberAssignment]:
        found = self._assignor.assign(LegacyCluster(topics), LegacyMembers(members))
        return {str(member_id): self._read(given) for member_id, given in found.items()}

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        told = ConsumerProtocolMemberAssignment.of(assignment)
        if self._takes_generation:
            self._assignor.on_assignment(told, generation)
            return
        self._assignor.on_assignment(told)
        also = getattr(self._assignor, "on_generation_assignment", None)  # kafka-python 2's sticky ones
        if callable(also):
            also(generation)

    def _read(self, given: Any) -> MemberAssignment:
        if given is None or isinstance(given, MemberAssignment):
            return given or MemberAssignment()
        if isinstance(given, (bytes, bytearray, memoryview)):
            return read_assignment(bytes(given))
        user_data = getattr(given, "user_data", None) or None
        topics = getattr(given, "assignment", given)
        pairs = topics.items() if isinstance(topics, Mapping) else topics
        partitions: list[TopicPartition] = []
        try:
            for topic, numbers in pairs:
                numbers = (numbers,) if isinstance(numbers, int) else numbers  # partitions one by one
                partitions += [TopicPartition(topic, int(number)) for number in numbers]
        except (TypeError, ValueError):
            raise IllegalArgumentError(
                f"the assignor {self.name} returned {given!r} for a member, which is no assignment: "
                "ConsumerProtocolMemberAssignment, or topics with the numbers of partitions"
            ) from None
        return MemberAssignment(tuple(partitions), user_data)


def _takes(method: Any, count: int) -> bool:
    """It can be called with so many arguments."""
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # it has no signature to be read
        return True
    return True


ASSIGNORS: Final[Mapping[str, Callable[[], Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
"""By the names that the members of a group agree on."""


def make_assignors(strategy: Sequence[Any]) -> list[Assignor]:
    """Of each of ``strategy`` one for one member: a name of :data:`ASSIGNORS`; one of the classes in
    ``kafka.coordinator.assignors``; a class or an object of the user's, in the form of kafka-python's.

    IllegalArgumentError: what is none, or two of one name.
    """
    found = [_make(one) for one in strategy]
    names = [each.name for each in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise IllegalArgumentError(f"{', '.join(sorted(twice))}: more than once")
    return found


def _make(one: Any) -> Assignor:
    if isinstance(one, str):
        if one not in ASSIGNORS:
            known = ", ".join(ASSIGNORS)
            raise IllegalArgumentError(f"no assignor {one!r}; there are {known}")
        return ASSIGNORS[one]()
    # A built-in class that was not changed needs no translation of what goes in and comes out.
    own_name = getattr(one if isinstance(one, type) else type(one), "__dict__", {}).get("built_in")
    if own_name is not None:
        return ASSIGNORS[own_name]()
    instance = one() if isinstance(one, type) else one
    has_methods = all(callable(getattr(instance, name, None)) for name in ("metadata", "assign", "on_assignment"))
    if has_methods and isinstance(getattr(instance, "name", None), str):
        return LegacyAssignorAdapter(instance)
    raise IllegalArgumentError(
        f"{one!r} is no assignor: it takes a name and the methods metadata(topics), "
        "assign(cluster, members) and on_assignment(assignment, generation), as in kafka.coordinator.assignors.abstract"
    )
