"""What a member of a group of the new protocol makes of the broker's error codes (KIP-848, "ConsumerGroupHeartbeat").

    RETRY    say everything again, later            REJOIN   the partitions are lost; join anew, with epoch 0
    GIVE_UP  the partitions are lost; the user is told

The same as Apache Kafka's Java client does, but for a group that has vanished, which is joined anew, and a static
member that finds itself in its own place (``consumer.py``). Another code is one more row; one that is in no row goes by
its ``retriable``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from kafka.errors import BrokerResponseError

COORDINATOR_LOAD_IN_PROGRESS: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
UNSUPPORTED_VERSION: Final = 35
GROUP_ID_NOT_FOUND: Final = 69
FENCED_MEMBER_EPOCH: Final = 110
UNRELEASED_INSTANCE_ID: Final = 111


class Then(Enum):
    """See the module."""

    RETRY = "retry"
    REJOIN = "rejoin"
    GIVE_UP = "give up"


class Reaction(NamedTuple):
    """``at_once``: the first in a row is not waited after. ``after_s``: wait at least so long. ``coordinator``: it is
    another one. ``tell``: the user is to hear of it though it goes on. ``is_member``: the group still has this member.
    """

    then: Then
    at_once: bool = False
    after_s: float = 0.0
    coordinator: bool = False
    tell: bool = False
    is_member: bool = True


REACTIONS: Final[Mapping[int, Reaction]] = {
    COORDINATOR_LOAD_IN_PROGRESS: Reaction(Then.RETRY),
    COORDINATOR_NOT_AVAILABLE: Reaction(Then.RETRY, coordinator=True),
    NOT_COORDINATOR: Reaction(Then.RETRY, at_once=True, coordinator=True),
    29: Reaction(Then.RETRY, after_s=1.0, tell=True),  # TOPIC_AUTHORIZATION_FAILED: rights may be granted
    113: Reaction(Then.RETRY, at_once=True),  # STALE_MEMBER_EPOCH: the answer to the next one tells the epoch
    25: Reaction(Then.REJOIN, at_once=True, is_member=False),  # UNKNOWN_MEMBER_ID: its session was over
    FENCED_MEMBER_EPOCH: Reaction(Then.REJOIN, at_once=True),
    24: Reaction(Then.GIVE_UP, is_member=False),  # INVALID_GROUP_ID
    30: Reaction(Then.GIVE_UP),  # GROUP_AUTHORIZATION_FAILED
    UNSUPPORTED_VERSION: Reaction(Then.GIVE_UP, is_member=False),  # the feature group.version is off
    42: Reaction(Then.GIVE_UP),  # INVALID_REQUEST
    81: Reaction(Then.GIVE_UP, is_member=False),  # GROUP_MAX_SIZE_REACHED
    82: Reaction(Then.GIVE_UP, is_member=False),  # FENCED_INSTANCE_ID: another one has the instance id now
    UNRELEASED_INSTANCE_ID: Reaction(Then.GIVE_UP, is_member=False),  # another one has the instance id still
    112: Reaction(Then.GIVE_UP),  # UNSUPPORTED_ASSIGNOR
    128: Reaction(Then.GIVE_UP),  # INVALID_REGULAR_EXPRESSION
}
_VANISHED: Final = Reaction(Then.REJOIN, at_once=True, is_member=False)
_OF_ANOTHER_KIND: Final = Reaction(Then.GIVE_UP)


def reaction_to(error: BrokerResponseError, is_member: bool) -> Reaction:
    """What to do about an answer. ``is_member``: the request was of one who has an epoch, and joins no more."""
    code = error.errno or 0
    if code == GROUP_ID_NOT_FOUND:
        return _VANISHED if is_member else _OF_ANOTHER_KIND
    return REACTIONS.get(code) or Reaction(Then.RETRY if error.retriable else Then.GIVE_UP)
