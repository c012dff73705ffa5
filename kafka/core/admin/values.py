"""What users hand to the admin client. Names and numbers are Kafka's (``ConfigResource.Type``, ``AlterConfigOp``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import Any, NamedTuple, TypeVar

from kafka.errors import IllegalArgumentError
from kafka.structs import EnumHelper, TopicPartition

Kind = TypeVar("Kind", bound=IntEnum)


def kind_of(kinds: type[Kind], given: Kind | str | int, what: str) -> Kind:
    """The member that is given by itself, its number, or its name in any case. IllegalArgumentError, for True and
    False, too; ``what`` names the argument."""
    try:
        if isinstance(given, str):
            return kinds[given.strip().upper().replace("-", "_")]
        if isinstance(given, bool):
            raise ValueError
        return kinds(given)
    except (KeyError, ValueError):
        names = ", ".join(kind.name.lower() for kind in kinds)
        raise IllegalArgumentError(f"{what} {given!r}: one of {names}") from None


def known(kinds: type[Kind], number: int) -> Kind:
    """The member with that number; UNKNOWN, 0, for one that this client does not know."""
    return kinds(number) if number in kinds._value2member_map_ else kinds(0)


class ConfigResourceType(EnumHelper, IntEnum):
    """What has settings."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSourceType(EnumHelper, IntEnum):
    """Where a setting's value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def of(cls, number: int) -> ConfigSourceType:
        """The source with that number; UNKNOWN for one that is not known."""
        return known(cls, number)


class ConfigType(EnumHelper, IntEnum):
    """A setting's type."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigFilterType(EnumHelper, IntEnum):
    """Which settings ``describe_configs`` returns: MODIFIED those that were set for this very resource, STATIC those
    of the broker's file, DEFAULT those that are not MODIFIED, DYNAMIC those that may be altered."""

    ALL = 0
    DYNAMIC = 1
    MODIFIED = 2
    DEFAULT = 3
    STATIC = 4


class AlterConfigOp(EnumHelper, IntEnum):
    """What to do with a setting (KIP-339). APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ElectionType(IntEnum):
    """Who may be elected (KIP-460): PREFERRED the first replica in the partition's list, if it is in sync; UNCLEAN,
    where there is no leader, a replica that is not in sync, too: records may be lost."""

    PREFERRED = 0
    UNCLEAN = 1


class ConfigResource:
    """A topic, broker or group whose settings are meant.

    ``resource_type``: a :class:`ConfigResourceType`, its name or its number. ``configs``: to describe, the names wanted
    (None: all); to alter, ``{name: value}``, where None deletes and ``(operation, value)`` says what to do: an
    :class:`AlterConfigOp`, its name or its number; to reset, the names (none: all).
    """

    def __init__(
        self,
        resource_type: ConfigResourceType | str | int,
        name: str,
        configs: Mapping[str, Any] | Iterable[str] | None = None,
    ) -> None:
        self.resource_type = kind_of(ConfigResourceType, resource_type, "resource_type")
        if isinstance(configs, (str, bytes)):
            raise IllegalArgumentError(f"configs={configs!r}: a list of names or {{name: value}}, not one text")
        self.name = name
        self.configs = configs

    def __repr__(self) -> str:
        return f"ConfigResource({self.resource_type.name}, {self.name!r}, {self.configs!r})"


class NewTopic:
    """A topic to be created. -1: the broker's default (2.4 and later), or as ``replica_assignments`` say
    (``{partition: [broker id]}``). ``topic_configs``: ``{name: value}``."""

    def __init__(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignments: Mapping[int, list[int]] | None = None,
        topic_configs: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = dict(replica_assignments or {})
        self.topic_configs = dict(topic_configs or {})

    def __repr__(self) -> str:
        return f"NewTopic({self.name!r}, {self.num_partitions}, {self.replication_factor})"


class NewPartitions:
    """How many partitions a topic is to have; ``new_assignments``: the brokers of each added one."""

    def __init__(self, total_count: int, new_assignments: list[list[int]] | None = None) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments


# What users hand to calls about groups. Names and texts are Kafka's, the classes kafka-python's.


E = TypeVar("E", bound=Enum)


class GroupState(EnumHelper, str, Enum):
    """Where a group stands (KIP-518, KIP-848)."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


class GroupType(EnumHelper, str, Enum):
    """The protocol that a group speaks (KIP-848, KIP-932, KIP-1071)."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class OffsetSpec(EnumHelper, IntEnum):
    """An offset by what it is: the end, the start, that of the latest timestamp (KIP-734), of what is local
    (KIP-405), of what was tiered (KIP-1005)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class OffsetTimestamp(int):
    """Milliseconds since the epoch, where a plain number would be an offset: the first offset that is not older."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"OffsetTimestamp({int(self)})"


class MemberToRemove(NamedTuple):
    """A member of a group, by its id, or by ``group_instance_id`` when it is a static one (2.3). ``reason`` is for the
    broker's log (KIP-800)."""

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None


def texts(kind: type[E], given: Iterable[Any]) -> list[str]:
    """The protocol's texts of members of ``kind``, of their names, or of texts in any case."""
    known = {_normalized(each.value): each for each in kind}
    found = []
    for each in given:
        member = each if isinstance(each, kind) else known.get(_normalized(str(each)))
        if member is None:
            names = ", ".join(sorted(each.value for each in kind if each.value != "Unknown"))
            raise IllegalArgumentError(f"{each!r}: one of {names}")
        found.append(str(member.value))
    return found


def _normalized(text: str) -> str:
    return text.lower().replace("-", "").replace("_", "")


# What calls about transactions take and return. Names and texts are Kafka's, the classes kafka-python's (KIP-664).


class TransactionState(EnumHelper, str, Enum):
    """Where a transaction stands at its coordinator."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"

    @classmethod
    def of(cls, text: str) -> TransactionState:
        """The state of that name; UNKNOWN for one that is not known."""
        return cls(text) if text in cls._value2member_map_ else cls.UNKNOWN


class TransactionListing(NamedTuple):
    """A transactional id, as the broker lists it that coordinates it."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """What a coordinator knows of a transactional id. ``transaction_start_time_ms`` is -1 when none was begun;
    ``topic_partitions`` are those of the transaction that is open, or being ended."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class ProducerState(NamedTuple):
    """What a partition remembers of a producer. ``last_timestamp`` in ms; ``current_transaction_start_offset`` is -1
    without an open transaction, ``coordinator_epoch`` before the first marker, ``last_sequence`` behind one."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The producers that a partition remembers."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """Which transaction to abort: that of this producer in this partition. ``coordinator_epoch`` -1: whatever the
    partition has seen."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1
