"""What a member of a classic group does about each error: a table for each request, and a rule for no answer.

Apache Kafka's Java client is the reference. Where that throws out of every ``poll`` and tries again in the next, the
error is reported and tried again after a pause (``REPORT``); only what cannot become better by itself is final. What a
table lacks is reported if Kafka does not call it retriable. A test walks the tables (``test_classic_errors.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kafka.core.retry import RetryAction, classify
from kafka.errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnsupportedVersionError,
    for_code,
)


class Reaction(Enum):
    """What to do. The first of several failures in a row is reacted to as its line says, the next ones wait."""

    RETRY = "wait, and say it again"
    FIND_COORDINATOR = "look for the coordinator, and say it again"
    TAKE_ID = "join again with the id that came with the answer"
    REJOIN = "the group rebalances: join again"
    NEW_GENERATION = "no member of this generation any more: what was owned is lost; join again with the same id"
    NEW_MEMBER = "no member any more: what was owned is lost; join again without an id"
    REPORT = "tell the user, and try again after a pause"
    GIVE_UP = "tell the user; this member is at its end"


Table = Mapping[type[KafkaError], Reaction]

_ANY_REQUEST: Final[Table] = {
    CoordinatorLoadInProgressError: Reaction.RETRY,
    CoordinatorNotAvailableError: Reaction.FIND_COORDINATOR,
    NotCoordinatorError: Reaction.FIND_COORDINATOR,
    GroupAuthorizationFailedError: Reaction.REPORT,  # the right may be granted
    InvalidGroupIdError: Reaction.GIVE_UP,
    UnsupportedVersionError: Reaction.GIVE_UP,
    InvalidRequestError: Reaction.GIVE_UP,
    FencedInstanceIdError: Reaction.GIVE_UP,  # another process has this group_instance_id: never fight for it (KIP-345)
    UnknownMemberIdError: Reaction.NEW_MEMBER,
    IllegalGenerationError: Reaction.NEW_GENERATION,  # the id may still be good: nobody has to wait for its expiry
    RebalanceInProgressError: Reaction.REJOIN,
}
JOIN: Final[Table] = {
    **_ANY_REQUEST,
    MemberIdRequiredError: Reaction.TAKE_ID,  # KIP-394
    InconsistentGroupProtocolError: Reaction.REPORT,  # the others may change or leave
    GroupMaxSizeReachedError: Reaction.REPORT,
    InvalidSessionTimeoutError: Reaction.GIVE_UP,
}
SYNC: Final[Table] = {**_ANY_REQUEST, InconsistentGroupProtocolError: Reaction.REPORT}  # KIP-559
HEARTBEAT: Final[Table] = _ANY_REQUEST


HINTS: Final[Mapping[type[KafkaError], str]] = {
    FencedInstanceIdError: "another process has joined with this group_instance_id; give each process one of its own",
    GroupAuthorizationFailedError: "this user may not read the group",
    GroupMaxSizeReachedError: "the broker's group.max.size members are there; this one joins when one leaves",
    InconsistentGroupProtocolError: "the members of the group, or the group itself, have another protocol than this "
    "one: all need an assignor of partition_assignment_strategy in common, and one group_protocol",
    InvalidSessionTimeoutError: "session_timeout_ms is not between the broker's group.min.session.timeout.ms and "
    "group.max.session.timeout.ms",
}
"""Whose fault it is, and what to do; for errors that users are told of."""


def described(code: int, text: str) -> KafkaError:
    """The error of ``code``, with its hint behind ``text``."""
    cls = for_code(code)
    return cls(f"{text}: {HINTS[cls]}" if cls in HINTS else text)


def reaction_to(error: BaseException, table: Table) -> Reaction:
    """What ``table`` says about it, the nearest base class first; else what its kind suggests."""
    for cls in type(error).__mro__:
        found = table.get(cls)
        if found is not None:
            return found
    recovery = classify(error)
    if isinstance(error, KafkaTimeoutError) or recovery in (RetryAction.FIND_COORDINATOR, RetryAction.REFRESH):
        return Reaction.FIND_COORDINATOR  # no answer, or a broker's: it may be another one by now
    if recovery is RetryAction.RETRY:
        return Reaction.RETRY
    # What is no answer of a broker's: the request cannot be written, the client is closed, nobody lets us in.
    return Reaction.REPORT if isinstance(error, BrokerResponseError) else Reaction.GIVE_UP
