"""What a fetcher does about the error code of a partition, as the Java consumer does. One more code is one more row.

A code that is not here goes by what its error says of itself: ``invalid_metadata``, ``retriable``, or neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kafka.errors import (
    BrokerResponseError,
    CorruptRecordError,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    KafkaStorageError,
    NotLeaderForPartitionError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
    UnknownError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)


class Reaction(Enum):
    """What to do about it."""

    RETRY = "fetch again after the back-off"
    MOVED = "read the metadata anew, trust no read replica, fetch again: at once if there is another leader by now"
    RESET = "go back from a read replica to the leader; at the leader, find the position anew by auto_offset_reset"
    RAISE = "the reader has to know"


REACTIONS: Final[Mapping[type[BrokerResponseError], Reaction]] = {
    OffsetOutOfRangeError: Reaction.RESET,
    NotLeaderForPartitionError: Reaction.MOVED,
    ReplicaNotAvailableError: Reaction.MOVED,
    KafkaStorageError: Reaction.MOVED,
    FencedLeaderEpochError: Reaction.MOVED,
    OffsetNotAvailableError: Reaction.MOVED,
    UnknownTopicOrPartitionError: Reaction.MOVED,
    UnknownTopicIdError: Reaction.MOVED,
    InconsistentTopicIdError: Reaction.MOVED,
    UnknownLeaderEpochError: Reaction.RETRY,  # the broker is behind: it hears of the election later than we did
    UnknownError: Reaction.RETRY,
    CorruptRecordError: Reaction.RAISE,  # what lies there on the broker's disk: no other attempt makes it better
}


def reaction_to(error: BrokerResponseError) -> Reaction:
    """The row of the error's class, or what the error says of itself."""
    found = REACTIONS.get(type(error))
    if found is not None:
        return found
    if error.invalid_metadata:
        return Reaction.MOVED
    return Reaction.RETRY if error.retriable else Reaction.RAISE
