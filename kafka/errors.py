"""Every error that this package raises: four families, and one class for each of Kafka's error codes.

Whose fault it was decides the family:

* :class:`IllegalStateError`, :class:`IllegalArgumentError`, :class:`KafkaConfigurationError`: the caller misused us.
* :class:`KafkaProtocolError` and below: the peer's bytes broke the protocol.
* :class:`BrokerResponseError` and below: the broker returned an error; ``errno`` is its code.
* :class:`RetriableError` without an ``errno``: the network failed, or the response did not come in time.

Across the families, a transaction's errors say what can still be done: :class:`AbortableTransactionError`,
:class:`FatalTransactionError`.

Class names are those that users of kafka-python know. A new broker code is one more class here, and nothing else:
:func:`for_code` finds it by its ``errno``. Codes and their retriability are Kafka's ``Errors`` table of release 4.3.0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar


class KafkaError(Exception):
    """The root of all errors of this package.

    ``retriable``: the same call may succeed later, unchanged. ``invalid_metadata``: before that, what the client knows
    of the cluster has to be read anew.
    """

    retriable: bool = False
    invalid_metadata: bool = False

    def __str__(self) -> str:
        text = super().__str__()
        return f"{type(self).__name__}: {text}" if text else type(self).__name__

    def __eq__(self, other: object) -> bool:
        """Errors of one class with the same arguments are equal."""
        return type(self) is type(other) and self.args == getattr(other, "args", None)

    def __hash__(self) -> int:
        return hash(type(self))  # arguments may be what has no hash


# -- the caller misused us --------------------------------------------------------------------------------------------


class IllegalStateError(KafkaError):
    """The object cannot do this now (closed, wrong thread, used after fork, not subscribed)."""


class UnassignedPartitionError(IllegalStateError, ValueError, KeyError):
    """The partition is not assigned to this consumer, or none is. A member of a group is assigned some by ``poll()``.

    kafka-python raises one of these three by the call: IllegalStateError (position, highwater), ValueError (seek) or
    KeyError (pause, resume).
    """

    def __str__(self) -> str:
        return f"{type(self).__name__}: {Exception.__str__(self)}"  # KeyError's would quote the text


class IllegalArgumentError(KafkaError, ValueError):
    """An argument that cannot be."""


class KafkaConfigurationError(KafkaError, ValueError):
    """A setting that is unknown, of the wrong type or out of its range, or two that exclude one another."""


class UnsupportedCodecError(KafkaError):
    """A compression codec whose library is not installed, or that does not exist."""


class CommitFailedError(KafkaError):
    """The group has moved on: the offsets were not committed."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.args else f"{text}: {_MOVED_ON}"


_MOVED_ON = (
    "the group has rebalanced, and the partitions may be another member's: their offsets were not committed. If poll() "
    "comes too late, take less at a time (max_poll_records) or allow more time (max_poll_interval_ms)"
)


class NoOffsetForPartitionError(KafkaError):
    """No position is known, and ``auto_offset_reset`` is ``none``."""


class LogTruncationError(KafkaError):
    """The log was truncated below the consumer's position, by the election of a leader that lacked records which had
    been read (KIP-320). ``divergent_offsets``: for each partition where the logs part, an OffsetAndMetadata, or None
    where that is not known; ``positions``: where the consumer had read to. A seek leads on."""

    def __init__(self, divergent_offsets: Any = None, positions: Any = None) -> None:
        super().__init__(divergent_offsets, positions)
        self.divergent_offsets = dict(divergent_offsets or {})
        self.positions = dict(positions or {})

    def __str__(self) -> str:
        lines = [
            f"{topic}-{number}, read up to offset {self.positions.get((topic, number))}, "
            + ("does not know what was read" if divergent is None else f"was truncated to offset {divergent.offset}")
            for (topic, number), divergent in self.divergent_offsets.items()
        ]
        return "; ".join(lines) or "the log was truncated below the consumer's position"


class TransactionAbortedError(KafkaError):
    """A record whose transaction was aborted before it was sent."""


class TransactionError(KafkaError):
    """A transaction cannot go on. Never retriable: the same call would fail again. One of the two below says what can
    be done (KIP-1050); :func:`as_abortable` and :func:`as_fatal` make them of other errors."""

    retriable = False
    invalid_metadata = False


class AbortableTransactionError(TransactionError):
    """This transaction can only be aborted. After ``abort_transaction()`` the same producer may begin another."""


class FatalTransactionError(TransactionError):
    """This producer has no transactions any more: close it. Another one with the same transactional id may take over,
    unless one has already (:class:`ProducerFencedError`)."""


class QuotaViolationError(KafkaError):
    """A metric went over its quota."""


class UnrecognizedBrokerVersion(KafkaError):
    """No probe of ``check_version`` fitted what the broker did."""


class AuthenticationError(KafkaError):
    """Who we are, or who the broker is, could not be shown: a wrong password, a certificate that is refused, settings
    that do not fit the listener. The same call will fail again until they are changed, so nothing tries again.
    """


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed: a certificate was refused, by us or by the broker, or the other side speaks no TLS."""


class UnsupportedFieldError(KafkaError, ValueError):
    """A field was set that the negotiated version of the message does not have and that must not be left out."""


# -- the peer broke the protocol --------------------------------------------------------------------------------------


class KafkaProtocolError(KafkaError):
    """Bytes that are not what the protocol says.

    The text names what was being read and, where known, the ``node``, the ``api`` and the ``offset`` of the fault in
    bytes from the start of the frame or buffer.
    """

    def __init__(self, text: str = "", *, offset: int | None = None, api: str | None = None, node: str | None = None):
        super().__init__(text)
        self.text = text
        self.offset = offset
        self.api = api
        self.node = node

    def add_node(self, node: str | None) -> None:
        """Name the node, unless one is named already."""
        self.node = self.node or node or None

    def __str__(self) -> str:
        where = ", ".join(
            f"{name} {value}"
            for name, value in (("node", self.node), ("api", self.api), ("byte", self.offset))
            if value is not None
        )
        return f"{type(self).__name__}: {self.text}" + (f" ({where})" if where else "")


class InvalidReceiveError(KafkaProtocolError):
    """A frame whose length is negative or above ``receive_message_max_bytes``."""


# -- the network failed, or time ran out ------------------------------------------------------------------------------


class RetriableError(KafkaError):
    """The same call may succeed later."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """What the client knows of the cluster is out of date."""

    invalid_metadata = True


class KafkaConnectionError(InvalidMetadataError):
    """A connection could not be made, or ended before the response."""


class UnknownBrokerIdError(InvalidMetadataError):
    """No broker of this id is in the cluster's metadata: it has left, or was never there."""


class StaleMetadata(InvalidMetadataError):
    """The metadata at hand does not have what was asked for."""


class Cancelled(RetriableError):
    """The task or request was taken back before it ran."""


class CorrelationIdError(RetriableError, KafkaProtocolError):
    """A response that carries another request's correlation id."""


class KafkaTimeoutError(RetriableError):
    """The caller's time limit passed. The text says what was waited for."""


class InvalidTopicMetadataError(InvalidMetadataError, KafkaProtocolError):
    """A Metadata response whose partitions of a topic are invalid: they are not 0 to n-1, each of them once."""


class MetadataEmptyBrokerList(RetriableError):
    """The broker answered with no brokers at all."""


class NodeNotReadyError(RetriableError):
    """The node's connection is not ready for requests."""


class TooManyInFlightRequests(RetriableError):
    """The connection has as many requests in flight as it may have."""


class NoBrokersAvailable(RetriableError):
    """None of ``bootstrap_servers`` could be reached."""


# -- errors of the broker ---------------------------------------------------------------------------------------------


class BrokerResponseError(KafkaError):
    """An error code in a broker's response: ``errno`` is the code, ``message`` its name in Kafka's documentation,
    ``description`` the same in words."""

    errno: int | None = None
    message: str = ""
    description: str = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "message" in vars(cls):
            cls.description = cls.message.replace("_", " ").capitalize()

    def __str__(self) -> str:
        text = Exception.__str__(self)
        return f"[Error {self.errno}] {type(self).__name__}" + (f": {text}" if text else "")


class AuthorizationError(BrokerResponseError):
    """The principal may not do this."""


class UnknownError(BrokerResponseError):
    errno = -1
    message = "UNKNOWN_SERVER_ERROR"


class NoError(BrokerResponseError):
    errno = 0
    message = "NONE"


class OffsetOutOfRangeError(BrokerResponseError):
    errno = 1
    message = "OFFSET_OUT_OF_RANGE"


class CorruptRecordError(RetriableError, BrokerResponseError):
    errno = 2
    message = "CORRUPT_MESSAGE"


class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerResponseError):
    errno = 3
    message = "UNKNOWN_TOPIC_OR_PARTITION"


class InvalidFetchRequestError(BrokerResponseError):
    errno = 4
    message = "INVALID_FETCH_SIZE"


class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    errno = 5
    message = "LEADER_NOT_AVAILABLE"


class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError):
    errno = 6
    message = "NOT_LEADER_OR_FOLLOWER"


class RequestTimedOutError(RetriableError, BrokerResponseError):
    errno = 7
    message = "REQUEST_TIMED_OUT"


class BrokerNotAvailableError(BrokerResponseError):
    errno = 8
    message = "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError):
    errno = 9
    message = "REPLICA_NOT_AVAILABLE"


class MessageSizeTooLargeError(BrokerResponseError):
    errno = 10
    message = "MESSAGE_TOO_LARGE"


class StaleControllerEpochError(BrokerResponseError):
    errno = 11
    message = "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLargeError(BrokerResponseError):
    errno = 12
    message = "OFFSET_METADATA_TOO_LARGE"


class NetworkExceptionError(InvalidMetadataError, BrokerResponseError):
    errno = 13
    message = "NETWORK_EXCEPTION"


class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError):
    errno = 14
    message = "COORDINATOR_LOAD_IN_PROGRESS"


class CoordinatorNotAvailableError(RetriableError, BrokerResponseError):
    errno = 15
    message = "COORDINATOR_NOT_AVAILABLE"


class NotCoordinatorError(RetriableError, BrokerResponseError):
    errno = 16
    message = "NOT_COORDINATOR"


class InvalidTopicError(BrokerResponseError):
    errno = 17
    message = "INVALID_TOPIC_EXCEPTION"


class RecordListTooLargeError(BrokerResponseError):
    errno = 18
    message = "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicasError(RetriableError, BrokerResponseError):
    errno = 19
    message = "NOT_ENOUGH_REPLICAS"


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError):
    errno = 20
    message = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class InvalidRequiredAcksError(BrokerResponseError):
    errno = 21
    message = "INVALID_REQUIRED_ACKS"


class IllegalGenerationError(BrokerResponseError):
    errno = 22
    message = "ILLEGAL_GENERATION"


class InconsistentGroupProtocolError(BrokerResponseError):
    errno = 23
    message = "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupIdError(BrokerResponseError):
    errno = 24
    message = "INVALID_GROUP_ID"


class UnknownMemberIdError(BrokerResponseError):
    errno = 25
    message = "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeoutError(BrokerResponseError):
    errno = 26
    message = "INVALID_SESSION_TIMEOUT"


class RebalanceInProgressError(BrokerResponseError):
    errno = 27
    message = "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSizeError(BrokerResponseError):
    errno = 28
    message = "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailedError(AuthorizationError):
    errno = 29
    message = "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailedError(AuthorizationError):
    errno = 30
    message = "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailedError(AuthorizationError):
    errno = 31
    message = "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestampError(BrokerResponseError):
    errno = 32
    message = "INVALID_TIMESTAMP"


class UnsupportedSaslMechanismError(AuthenticationError, BrokerResponseError):
    errno = 33
    message = "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslStateError(AuthenticationError, BrokerResponseError):
    errno = 34
    message = "ILLEGAL_SASL_STATE"


class UnsupportedVersionError(BrokerResponseError):
    errno = 35
    message = "UNSUPPORTED_VERSION"


class TopicAlreadyExistsError(BrokerResponseError):
    errno = 36
    message = "TOPIC_ALREADY_EXISTS"


class InvalidPartitionsError(BrokerResponseError):
    errno = 37
    message = "INVALID_PARTITIONS"


class InvalidReplicationFactorError(BrokerResponseError):
    errno = 38
    message = "INVALID_REPLICATION_FACTOR"


class InvalidReplicationAssignmentError(BrokerResponseError):
    errno = 39
    message = "INVALID_REPLICA_ASSIGNMENT"


class InvalidConfigurationError(BrokerResponseError):
    errno = 40
    message = "INVALID_CONFIG"


class NotControllerError(RetriableError, BrokerResponseError):
    errno = 41
    message = "NOT_CONTROLLER"


class InvalidRequestError(BrokerResponseError):
    errno = 42
    message = "INVALID_REQUEST"


class UnsupportedForMessageFormatError(BrokerResponseError):
    errno = 43
    message = "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolationError(BrokerResponseError):
    errno = 44
    message = "POLICY_VIOLATION"


class OutOfOrderSequenceNumberError(BrokerResponseError):
    errno = 45
    message = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumberError(BrokerResponseError):
    errno = 46
    message = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpochError(BrokerResponseError):
    errno = 47
    message = "INVALID_PRODUCER_EPOCH"


class InvalidTxnStateError(BrokerResponseError):
    errno = 48
    message = "INVALID_TXN_STATE"


class InvalidProducerIdMappingError(BrokerResponseError):
    errno = 49
    message = "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeoutError(BrokerResponseError):
    errno = 50
    message = "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactionsError(RetriableError, BrokerResponseError):
    errno = 51
    message = "CONCURRENT_TRANSACTIONS"


class TransactionCoordinatorFencedError(BrokerResponseError):
    errno = 52
    message = "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailedError(AuthorizationError):
    errno = 53
    message = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabledError(BrokerResponseError):
    errno = 54
    message = "SECURITY_DISABLED"


class OperationNotAttemptedError(BrokerResponseError):
    errno = 55
    message = "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(InvalidMetadataError, BrokerResponseError):
    errno = 56
    message = "KAFKA_STORAGE_ERROR"


class LogDirNotFoundError(BrokerResponseError):
    errno = 57
    message = "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailedError(AuthenticationError, BrokerResponseError):
    errno = 58
    message = "SASL_AUTHENTICATION_FAILED"


class UnknownProducerIdError(BrokerResponseError):
    errno = 59
    message = "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgressError(BrokerResponseError):
    errno = 60
    message = "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenAuthDisabledError(BrokerResponseError):
    errno = 61
    message = "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFoundError(BrokerResponseError):
    errno = 62
    message = "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatchError(BrokerResponseError):
    errno = 63
    message = "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowedError(BrokerResponseError):
    errno = 64
    message = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailedError(AuthorizationError):
    errno = 65
    message = "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpiredError(BrokerResponseError):
    errno = 66
    message = "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalTypeError(BrokerResponseError):
    errno = 67
    message = "INVALID_PRINCIPAL_TYPE"


class NonEmptyGroupError(BrokerResponseError):
    errno = 68
    message = "NON_EMPTY_GROUP"


class GroupIdNotFoundError(BrokerResponseError):
    errno = 69
    message = "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError):
    errno = 70
    message = "FETCH_SESSION_ID_NOT_FOUND"


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError):
    errno = 71
    message = "INVALID_FETCH_SESSION_EPOCH"


class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError):
    errno = 72
    message = "LISTENER_NOT_FOUND"


class TopicDeletionDisabledError(BrokerResponseError):
    errno = 73
    message = "TOPIC_DELETION_DISABLED"


class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    errno = 74
    message = "FENCED_LEADER_EPOCH"


class UnknownLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    errno = 75
    message = "UNKNOWN_LEADER_EPOCH"


class UnsupportedCompressionTypeError(BrokerResponseError):
    errno = 76
    message = "UNSUPPORTED_COMPRESSION_TYPE"


class StaleBrokerEpochError(BrokerResponseError):
    errno = 77
    message = "STALE_BROKER_EPOCH"


class OffsetNotAvailableError(RetriableError, BrokerResponseError):
    errno = 78
    message = "OFFSET_NOT_AVAILABLE"


class MemberIdRequiredError(BrokerResponseError):
    errno = 79
    message = "MEMBER_ID_REQUIRED"


class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    errno = 80
    message = "PREFERRED_LEADER_NOT_AVAILABLE"


class GroupMaxSizeReachedError(BrokerResponseError):
    errno = 81
    message = "GROUP_MAX_SIZE_REACHED"


class FencedInstanceIdError(BrokerResponseError):
    errno = 82
    message = "FENCED_INSTANCE_ID"


class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerResponseError):
    errno = 83
    message = "ELIGIBLE_LEADERS_NOT_AVAILABLE"


class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError):
    errno = 84
    message = "ELECTION_NOT_NEEDED"


class NoReassignmentInProgressError(BrokerResponseError):
    errno = 85
    message = "NO_REASSIGNMENT_IN_PROGRESS"


class GroupSubscribedToTopicError(BrokerResponseError):
    errno = 86
    message = "GROUP_SUBSCRIBED_TO_TOPIC"


class InvalidRecordError(BrokerResponseError):
    errno = 87
    message = "INVALID_RECORD"


class UnstableOffsetCommitError(RetriableError, BrokerResponseError):
    errno = 88
    message = "UNSTABLE_OFFSET_COMMIT"


class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError):
    errno = 89
    message = "THROTTLING_QUOTA_EXCEEDED"


class ProducerFencedError(FatalTransactionError, BrokerResponseError):
    errno = 90
    message = "PRODUCER_FENCED"


class ResourceNotFoundError(BrokerResponseError):
    errno = 91
    message = "RESOURCE_NOT_FOUND"


class DuplicateResourceError(BrokerResponseError):
    errno = 92
    message = "DUPLICATE_RESOURCE"


class UnacceptableCredentialError(BrokerResponseError):
    errno = 93
    message = "UNACCEPTABLE_CREDENTIAL"


class InconsistentVoterSetError(BrokerResponseError):
    errno = 94
    message = "INCONSISTENT_VOTER_SET"


class InvalidUpdateVersionError(BrokerResponseError):
    errno = 95
    message = "INVALID_UPDATE_VERSION"


class FeatureUpdateFailedError(BrokerResponseError):
    errno = 96
    message = "FEATURE_UPDATE_FAILED"


class PrincipalDeserializationFailureError(BrokerResponseError):
    errno = 97
    message = "PRINCIPAL_DESERIALIZATION_FAILURE"


class SnapshotNotFoundError(BrokerResponseError):
    errno = 98
    message = "SNAPSHOT_NOT_FOUND"


class PositionOutOfRangeError(BrokerResponseError):
    errno = 99
    message = "POSITION_OUT_OF_RANGE"


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError):
    errno = 100
    message = "UNKNOWN_TOPIC_ID"


class DuplicateBrokerRegistrationError(BrokerResponseError):
    errno = 101
    message = "DUPLICATE_BROKER_REGISTRATION"


class BrokerIdNotRegisteredError(BrokerResponseError):
    errno = 102
    message = "BROKER_ID_NOT_REGISTERED"


class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError):
    errno = 103
    message = "INCONSISTENT_TOPIC_ID"


class InconsistentClusterIdError(BrokerResponseError):
    errno = 104
    message = "INCONSISTENT_CLUSTER_ID"


class TransactionalIdNotFoundError(BrokerResponseError):
    errno = 105
    message = "TRANSACTIONAL_ID_NOT_FOUND"


class FetchSessionTopicIdError(RetriableError, BrokerResponseError):
    errno = 106
    message = "FETCH_SESSION_TOPIC_ID_ERROR"


class IneligibleReplicaError(BrokerResponseError):
    errno = 107
    message = "INELIGIBLE_REPLICA"


class NewLeaderElectedError(BrokerResponseError):
    errno = 108
    message = "NEW_LEADER_ELECTED"


class OffsetMovedToTieredStorageError(BrokerResponseError):
    errno = 109
    message = "OFFSET_MOVED_TO_TIERED_STORAGE"


class FencedMemberEpochError(BrokerResponseError):
    errno = 110
    message = "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceIdError(BrokerResponseError):
    errno = 111
    message = "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignorError(BrokerResponseError):
    errno = 112
    message = "UNSUPPORTED_ASSIGNOR"


class StaleMemberEpochError(BrokerResponseError):
    errno = 113
    message = "STALE_MEMBER_EPOCH"


class MismatchedEndpointTypeError(BrokerResponseError):
    errno = 114
    message = "MISMATCHED_ENDPOINT_TYPE"


class UnsupportedEndpointTypeError(BrokerResponseError):
    errno = 115
    message = "UNSUPPORTED_ENDPOINT_TYPE"


class UnknownControllerIdError(BrokerResponseError):
    errno = 116
    message = "UNKNOWN_CONTROLLER_ID"


class UnknownSubscriptionIdError(BrokerResponseError):
    errno = 117
    message = "UNKNOWN_SUBSCRIPTION_ID"


class TelemetryTooLargeError(BrokerResponseError):
    errno = 118
    message = "TELEMETRY_TOO_LARGE"


class InvalidRegistrationError(BrokerResponseError):
    errno = 119
    message = "INVALID_REGISTRATION"


class TransactionAbortableError(AbortableTransactionError, BrokerResponseError):
    errno = 120
    message = "TRANSACTION_ABORTABLE"


class InvalidRecordStateError(BrokerResponseError):
    errno = 121
    message = "INVALID_RECORD_STATE"


class ShareSessionNotFoundError(RetriableError, BrokerResponseError):
    errno = 122
    message = "SHARE_SESSION_NOT_FOUND"


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError):
    errno = 123
    message = "INVALID_SHARE_SESSION_EPOCH"


class FencedStateEpochError(BrokerResponseError):
    errno = 124
    message = "FENCED_STATE_EPOCH"


class InvalidVoterKeyError(BrokerResponseError):
    errno = 125
    message = "INVALID_VOTER_KEY"


class DuplicateVoterError(BrokerResponseError):
    errno = 126
    message = "DUPLICATE_VOTER"


class VoterNotFoundError(BrokerResponseError):
    errno = 127
    message = "VOTER_NOT_FOUND"


class InvalidRegularExpressionError(BrokerResponseError):
    errno = 128
    message = "INVALID_REGULAR_EXPRESSION"


class RebootstrapRequiredError(BrokerResponseError):
    errno = 129
    message = "REBOOTSTRAP_REQUIRED"


class StreamsInvalidTopologyError(BrokerResponseError):
    errno = 130
    message = "STREAMS_INVALID_TOPOLOGY"


class StreamsInvalidTopologyEpochError(BrokerResponseError):
    errno = 131
    message = "STREAMS_INVALID_TOPOLOGY_EPOCH"


class StreamsTopologyFencedError(BrokerResponseError):
    errno = 132
    message = "STREAMS_TOPOLOGY_FENCED"


class ShareSessionLimitReachedError(RetriableError, BrokerResponseError):
    errno = 133
    message = "SHARE_SESSION_LIMIT_REACHED"


class IllegalTopicError(InvalidTopicError, IllegalArgumentError):
    """A topic's name that no broker takes, refused at the call."""


class IncompatibleBrokerVersion(UnsupportedVersionError):
    """The broker and this client share no version of the API that the call needs."""


class CommitInRebalanceError(RebalanceInProgressError, CommitFailedError):
    """The offsets were not committed because the group is being rebalanced: after the next ``poll()``, commit again
    what is still assigned. Both of its families are what clients call this."""

    retriable = True


class WakeupError(KafkaError):
    """:meth:`KafkaConsumer.wakeup` ended the call that waited."""


# -- names of other generations ---------------------------------------------------------------------------------------

CorruptRecordException = CorruptRecordError
ConnectionError = KafkaConnectionError
InvalidMessageError = CorruptRecordError
NotLeaderOrFollowerError = NotLeaderForPartitionError
NoBrokersAvailableError = NoBrokersAvailable
GroupLoadInProgressError = CoordinatorLoadInProgressError
GroupCoordinatorNotAvailableError = CoordinatorNotAvailableError
NotCoordinatorForGroupError = NotCoordinatorError
RecordTooLargeError = MessageSizeTooLargeError


def _by_code() -> dict[int, type[BrokerResponseError]]:
    classes: dict[int, type[BrokerResponseError]] = {}
    for value in list(globals().values()):
        if isinstance(value, type) and issubclass(value, BrokerResponseError) and "errno" in vars(value):
            code = value.errno
            if code is not None:
                classes[code] = value
    return classes


ERRORS_BY_CODE: dict[int, type[BrokerResponseError]] = _by_code()
"""Kafka's error code -> class, for all codes of release 4.3.0."""
kafka_errors = ERRORS_BY_CODE  # kafka-python's name for it


def for_code(code: int) -> type[BrokerResponseError]:
    """The class for a broker's error code; an unheard-of code gives a class of its own under :class:`UnknownError`.

    Source: the protocol guide's section "Error Codes".
    """
    return ERRORS_BY_CODE.get(code) or _unheard_of(code)


@lru_cache(maxsize=1024)  # a response of a million partitions may have a different code for each
def _unheard_of(code: int) -> type[BrokerResponseError]:
    return type("UnknownError", (UnknownError,), {"errno": code, "message": f"UNKNOWN_CODE_{code}"})


def as_abortable(error: BaseException, hint: str = "") -> AbortableTransactionError:
    """The error as one after which the transaction can be aborted: still of its own class, and an
    :class:`AbortableTransactionError`, too. A new object, caused by ``error``, with ``hint`` behind its text."""
    return _regrouped(error, AbortableTransactionError, hint)


def as_fatal(error: BaseException, hint: str = "") -> FatalTransactionError:
    """The same with :class:`FatalTransactionError`."""
    return _regrouped(error, FatalTransactionError, hint)


_G = TypeVar("_G", bound=TransactionError)


def _regrouped(error: BaseException, group: type[_G], hint: str) -> _G:
    error_class: Any = type(error)
    if issubclass(error_class, TransactionError) and not issubclass(error_class, group):
        error_class = group  # an error of the other group: its class would say both
    if not issubclass(error_class, group):
        other: Any = group
        error_class = _class_in_both(error_class, other)
    constructor: Any = error_class
    again: _G = constructor.__new__(constructor)
    again.__dict__.update(error.__dict__)
    text = str(error.args[0]) if error.args else ""
    again.args = (f"{text}; {hint}" if text and hint else text or hint, *error.args[1:])
    again.__cause__ = error.__cause__ if isinstance(error, TransactionError) and error.__cause__ else error
    return again


@lru_cache(maxsize=1024)
def _class_in_both(error_class: Any, group: Any) -> type[Any]:
    bases = (group,) if issubclass(group, error_class) else (group, error_class)
    return type(error_class.__name__, bases, {"__doc__": error_class.__doc__, "__module__": __name__})


def raise_for_code(code: int, text: str = "") -> None:
    """Raise the error of ``code`` with ``text``; do nothing for 0."""
    if code:
        raise for_code(code)(text)
