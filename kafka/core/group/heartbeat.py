"""What a member does about the errors of its heartbeats where the broker assigns: ConsumerGroupHeartbeat (KIP-848) and
ShareGroupHeartbeat (KIP-932).

The same as Apache Kafka's Java client does, but for a group that has vanished, which is joined anew, and a static
member that finds itself in its own place (:class:`kafka.core.group.consumer.ConsumerMember`). A code without a row is
tried again if Kafka calls it retriable, and final otherwise. Another code is one more row.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from kafka.core.retry import ErrorTable, RetryAction
from kafka.errors import (
    AuthenticationError,
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidGroupIdError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    NotCoordinatorError,
    RetriableError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)

UNASSIGNED_HEARTBEAT_S: Final = 0.1
"""To the next heartbeat of a member without partitions: brokers resolve regular expressions and make the state of a
fresh group after their answer, so the next one often has what this one lacks."""


class HeartbeatErrorAction(Enum):
    """What to do."""

    RETRY = "say everything again, later"
    REJOIN = "the partitions are lost; join anew, with epoch 0"
    GIVE_UP = "the partitions are lost; the error is raised to the user"


class HeartbeatErrorHandling(NamedTuple):
    """``at_once``: the first in a row is not waited after. ``after_s``: wait at least so long. ``coordinator``: it is
    another one. ``is_reported``: the error is raised to the user though the member goes on. ``is_member``: the group
    still has this member."""

    action: HeartbeatErrorAction
    at_once: bool = False
    after_s: float = 0.0
    coordinator: bool = False
    is_reported: bool = False
    is_member: bool = True


_RETRY: Final = HeartbeatErrorHandling(HeartbeatErrorAction.RETRY)
_GIVE_UP: Final = HeartbeatErrorHandling(HeartbeatErrorAction.GIVE_UP)
_REPORT: Final = _RETRY._replace(is_reported=True)
_NO_MEMBER: Final = HeartbeatErrorHandling(HeartbeatErrorAction.GIVE_UP, is_member=False)

_HEARTBEAT_ERRORS: Final = ErrorTable(
    {
        CoordinatorLoadInProgressError: _RETRY,
        CoordinatorNotAvailableError: HeartbeatErrorHandling(HeartbeatErrorAction.RETRY, coordinator=True),
        NotCoordinatorError: HeartbeatErrorHandling(HeartbeatErrorAction.RETRY, at_once=True, coordinator=True),
        # its session was over
        UnknownMemberIdError: HeartbeatErrorHandling(HeartbeatErrorAction.REJOIN, at_once=True, is_member=False),
        FencedMemberEpochError: HeartbeatErrorHandling(HeartbeatErrorAction.REJOIN, at_once=True),
        # the group was deleted; to a join: it is of another type
        GroupIdNotFoundError: HeartbeatErrorHandling(HeartbeatErrorAction.REJOIN, at_once=True, is_member=False),
        InvalidGroupIdError: _NO_MEMBER,
        GroupAuthorizationFailedError: _GIVE_UP,
        UnsupportedVersionError: _NO_MEMBER,  # the feature group.version or share.version is off
        InvalidRequestError: _GIVE_UP,
    },
    retry=_RETRY,
    otherwise=_GIVE_UP,
    exact=True,
)
CONSUMER_HEARTBEAT_ERRORS: Final = _HEARTBEAT_ERRORS.extended(
    {
        # rights may be granted
        TopicAuthorizationFailedError: _REPORT._replace(after_s=1.0),
        # the response to the next one has the epoch
        StaleMemberEpochError: HeartbeatErrorHandling(HeartbeatErrorAction.RETRY, at_once=True),
        GroupMaxSizeReachedError: _NO_MEMBER,
        FencedInstanceIdError: _NO_MEMBER,  # another one has the instance id now
        UnreleasedInstanceIdError: _NO_MEMBER,  # another one has the instance id still
        UnsupportedAssignorError: _GIVE_UP,
        InvalidRegularExpressionError: _GIVE_UP,
    }
)
SHARE_HEARTBEAT_ERRORS: Final = _HEARTBEAT_ERRORS.extended(
    {
        # rights may be granted
        TopicAuthorizationFailedError: _REPORT._replace(after_s=5.0),
        # members may leave
        GroupMaxSizeReachedError: HeartbeatErrorHandling(HeartbeatErrorAction.REJOIN, after_s=5.0, is_reported=True),
    }
)
CONSUMER_JOIN_ERRORS: Final = CONSUMER_HEARTBEAT_ERRORS.extended({GroupIdNotFoundError: _GIVE_UP})
SHARE_JOIN_ERRORS: Final = SHARE_HEARTBEAT_ERRORS.extended({GroupIdNotFoundError: _GIVE_UP})
"""For an answer to a heartbeat with epoch 0."""

NO_RESPONSE_ACTIONS: Final = ErrorTable(
    {
        RetriableError: RetryAction.FIND_COORDINATOR,
        AuthenticationError: RetryAction.GIVE_UP,
        BrokerResponseError: RetryAction.GIVE_UP,
        IllegalArgumentError: RetryAction.GIVE_UP,
        IllegalStateError: RetryAction.GIVE_UP,
    },
    otherwise=RetryAction.FIND_COORDINATOR,
)
"""For an error that comes instead of an answer. Final: the broker lacks the API or refuses to name a coordinator, the
request cannot be written, the client is closed."""
