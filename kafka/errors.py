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
    ``description`` the same in words. Classes without a code are bases of others; their ``errno`` is None."""

    errno: int = None  # type: ignore[assignment]
    message: str = ""
    description: str = ""

    def __init_subclass__(cls, *, code: int | None = None, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if code is not None:
            cls.errno = code
        if name is not None:
            cls.message = name
        if "message" in vars(cls):
            cls.description = cls.message.replace("_", " ").capitalize()

    def __str__(self) -> str:
        text = Exception.__str__(self)
        return f"[Error {self.errno}] {type(self).__name__}" + (f": {text}" if text else "")


class AuthorizationError(BrokerResponseError):
    """The principal may not do this."""


# -- Kafka's error codes, in their order ------------------------------------------------------------------------------

class UnknownError(BrokerResponseError, code=-1, name="UNKNOWN_SERVER_ERROR"): ...
class NoError(BrokerResponseError, code=0, name="NONE"): ...
class OffsetOutOfRangeError(BrokerResponseError, code=1, name="OFFSET_OUT_OF_RANGE"): ...
class CorruptRecordError(RetriableError, BrokerResponseError, code=2, name="CORRUPT_MESSAGE"): ...
class UnknownTopicOrPartitionError(
    InvalidMetadataError, BrokerResponseError, code=3, name="UNKNOWN_TOPIC_OR_PARTITION"
): ...
class InvalidFetchRequestError(BrokerResponseError, code=4, name="INVALID_FETCH_SIZE"): ...
class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError, code=5, name="LEADER_NOT_AVAILABLE"): ...
class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError, code=6, name="NOT_LEADER_OR_FOLLOWER"): ...
class RequestTimedOutError(RetriableError, BrokerResponseError, code=7, name="REQUEST_TIMED_OUT"): ...
class BrokerNotAvailableError(BrokerResponseError, code=8, name="BROKER_NOT_AVAILABLE"): ...
class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError, code=9, name="REPLICA_NOT_AVAILABLE"): ...
class MessageSizeTooLargeError(BrokerResponseError, code=10, name="MESSAGE_TOO_LARGE"): ...
class StaleControllerEpochError(BrokerResponseError, code=11, name="STALE_CONTROLLER_EPOCH"): ...
class OffsetMetadataTooLargeError(BrokerResponseError, code=12, name="OFFSET_METADATA_TOO_LARGE"): ...
class NetworkExceptionError(InvalidMetadataError, BrokerResponseError, code=13, name="NETWORK_EXCEPTION"): ...
class CoordinatorLoadInProgressError(
    RetriableError, BrokerResponseError, code=14, name="COORDINATOR_LOAD_IN_PROGRESS"
): ...
class CoordinatorNotAvailableError(RetriableError, BrokerResponseError, code=15, name="COORDINATOR_NOT_AVAILABLE"): ...
class NotCoordinatorError(RetriableError, BrokerResponseError, code=16, name="NOT_COORDINATOR"): ...
class InvalidTopicError(BrokerResponseError, code=17, name="INVALID_TOPIC_EXCEPTION"): ...
class RecordListTooLargeError(BrokerResponseError, code=18, name="RECORD_LIST_TOO_LARGE"): ...
class NotEnoughReplicasError(RetriableError, BrokerResponseError, code=19, name="NOT_ENOUGH_REPLICAS"): ...
class NotEnoughReplicasAfterAppendError(
    RetriableError, BrokerResponseError, code=20, name="NOT_ENOUGH_REPLICAS_AFTER_APPEND"
): ...
class InvalidRequiredAcksError(BrokerResponseError, code=21, name="INVALID_REQUIRED_ACKS"): ...
class IllegalGenerationError(BrokerResponseError, code=22, name="ILLEGAL_GENERATION"): ...
class InconsistentGroupProtocolError(BrokerResponseError, code=23, name="INCONSISTENT_GROUP_PROTOCOL"): ...
class InvalidGroupIdError(BrokerResponseError, code=24, name="INVALID_GROUP_ID"): ...
class UnknownMemberIdError(BrokerResponseError, code=25, name="UNKNOWN_MEMBER_ID"): ...
class InvalidSessionTimeoutError(BrokerResponseError, code=26, name="INVALID_SESSION_TIMEOUT"): ...
class RebalanceInProgressError(BrokerResponseError, code=27, name="REBALANCE_IN_PROGRESS"): ...
class InvalidCommitOffsetSizeError(BrokerResponseError, code=28, name="INVALID_COMMIT_OFFSET_SIZE"): ...
class TopicAuthorizationFailedError(AuthorizationError, code=29, name="TOPIC_AUTHORIZATION_FAILED"): ...
class GroupAuthorizationFailedError(AuthorizationError, code=30, name="GROUP_AUTHORIZATION_FAILED"): ...
class ClusterAuthorizationFailedError(AuthorizationError, code=31, name="CLUSTER_AUTHORIZATION_FAILED"): ...
class InvalidTimestampError(BrokerResponseError, code=32, name="INVALID_TIMESTAMP"): ...
class UnsupportedSaslMechanismError(
    AuthenticationError, BrokerResponseError, code=33, name="UNSUPPORTED_SASL_MECHANISM"
): ...
class IllegalSaslStateError(AuthenticationError, BrokerResponseError, code=34, name="ILLEGAL_SASL_STATE"): ...
class UnsupportedVersionError(BrokerResponseError, code=35, name="UNSUPPORTED_VERSION"): ...
class TopicAlreadyExistsError(BrokerResponseError, code=36, name="TOPIC_ALREADY_EXISTS"): ...
class InvalidPartitionsError(BrokerResponseError, code=37, name="INVALID_PARTITIONS"): ...
class InvalidReplicationFactorError(BrokerResponseError, code=38, name="INVALID_REPLICATION_FACTOR"): ...
class InvalidReplicationAssignmentError(BrokerResponseError, code=39, name="INVALID_REPLICA_ASSIGNMENT"): ...
class InvalidConfigurationError(BrokerResponseError, code=40, name="INVALID_CONFIG"): ...
class NotControllerError(RetriableError, BrokerResponseError, code=41, name="NOT_CONTROLLER"): ...
class InvalidRequestError(BrokerResponseError, code=42, name="INVALID_REQUEST"): ...
class UnsupportedForMessageFormatError(BrokerResponseError, code=43, name="UNSUPPORTED_FOR_MESSAGE_FORMAT"): ...
class PolicyViolationError(BrokerResponseError, code=44, name="POLICY_VIOLATION"): ...
class OutOfOrderSequenceNumberError(BrokerResponseError, code=45, name="OUT_OF_ORDER_SEQUENCE_NUMBER"): ...
class DuplicateSequenceNumberError(BrokerResponseError, code=46, name="DUPLICATE_SEQUENCE_NUMBER"): ...
class InvalidProducerEpochError(BrokerResponseError, code=47, name="INVALID_PRODUCER_EPOCH"): ...
class InvalidTxnStateError(BrokerResponseError, code=48, name="INVALID_TXN_STATE"): ...
class InvalidProducerIdMappingError(BrokerResponseError, code=49, name="INVALID_PRODUCER_ID_MAPPING"): ...
class InvalidTransactionTimeoutError(BrokerResponseError, code=50, name="INVALID_TRANSACTION_TIMEOUT"): ...
class ConcurrentTransactionsError(RetriableError, BrokerResponseError, code=51, name="CONCURRENT_TRANSACTIONS"): ...
class TransactionCoordinatorFencedError(BrokerResponseError, code=52, name="TRANSACTION_COORDINATOR_FENCED"): ...
class TransactionalIdAuthorizationFailedError(
    AuthorizationError, code=53, name="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
): ...
class SecurityDisabledError(BrokerResponseError, code=54, name="SECURITY_DISABLED"): ...
class OperationNotAttemptedError(BrokerResponseError, code=55, name="OPERATION_NOT_ATTEMPTED"): ...
class KafkaStorageError(InvalidMetadataError, BrokerResponseError, code=56, name="KAFKA_STORAGE_ERROR"): ...
class LogDirNotFoundError(BrokerResponseError, code=57, name="LOG_DIR_NOT_FOUND"): ...
class SaslAuthenticationFailedError(
    AuthenticationError, BrokerResponseError, code=58, name="SASL_AUTHENTICATION_FAILED"
): ...
class UnknownProducerIdError(BrokerResponseError, code=59, name="UNKNOWN_PRODUCER_ID"): ...
class ReassignmentInProgressError(BrokerResponseError, code=60, name="REASSIGNMENT_IN_PROGRESS"): ...
class DelegationTokenAuthDisabledError(BrokerResponseError, code=61, name="DELEGATION_TOKEN_AUTH_DISABLED"): ...
class DelegationTokenNotFoundError(BrokerResponseError, code=62, name="DELEGATION_TOKEN_NOT_FOUND"): ...
class DelegationTokenOwnerMismatchError(BrokerResponseError, code=63, name="DELEGATION_TOKEN_OWNER_MISMATCH"): ...
class DelegationTokenRequestNotAllowedError(
    BrokerResponseError, code=64, name="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
): ...
class DelegationTokenAuthorizationFailedError(
    AuthorizationError, code=65, name="DELEGATION_TOKEN_AUTHORIZATION_FAILED"
): ...
class DelegationTokenExpiredError(BrokerResponseError, code=66, name="DELEGATION_TOKEN_EXPIRED"): ...
class InvalidPrincipalTypeError(BrokerResponseError, code=67, name="INVALID_PRINCIPAL_TYPE"): ...
class NonEmptyGroupError(BrokerResponseError, code=68, name="NON_EMPTY_GROUP"): ...
class GroupIdNotFoundError(BrokerResponseError, code=69, name="GROUP_ID_NOT_FOUND"): ...
class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError, code=70, name="FETCH_SESSION_ID_NOT_FOUND"): ...
class InvalidFetchSessionEpochError(
    RetriableError, BrokerResponseError, code=71, name="INVALID_FETCH_SESSION_EPOCH"
): ...
class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError, code=72, name="LISTENER_NOT_FOUND"): ...
class TopicDeletionDisabledError(BrokerResponseError, code=73, name="TOPIC_DELETION_DISABLED"): ...
class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError, code=74, name="FENCED_LEADER_EPOCH"): ...
class UnknownLeaderEpochError(InvalidMetadataError, BrokerResponseError, code=75, name="UNKNOWN_LEADER_EPOCH"): ...
class UnsupportedCompressionTypeError(BrokerResponseError, code=76, name="UNSUPPORTED_COMPRESSION_TYPE"): ...
class StaleBrokerEpochError(BrokerResponseError, code=77, name="STALE_BROKER_EPOCH"): ...
class OffsetNotAvailableError(RetriableError, BrokerResponseError, code=78, name="OFFSET_NOT_AVAILABLE"): ...
class MemberIdRequiredError(BrokerResponseError, code=79, name="MEMBER_ID_REQUIRED"): ...
class PreferredLeaderNotAvailableError(
    InvalidMetadataError, BrokerResponseError, code=80, name="PREFERRED_LEADER_NOT_AVAILABLE"
): ...
class GroupMaxSizeReachedError(BrokerResponseError, code=81, name="GROUP_MAX_SIZE_REACHED"): ...
class FencedInstanceIdError(BrokerResponseError, code=82, name="FENCED_INSTANCE_ID"): ...
class EligibleLeadersNotAvailableError(
    InvalidMetadataError, BrokerResponseError, code=83, name="ELIGIBLE_LEADERS_NOT_AVAILABLE"
): ...
class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError, code=84, name="ELECTION_NOT_NEEDED"): ...
class NoReassignmentInProgressError(BrokerResponseError, code=85, name="NO_REASSIGNMENT_IN_PROGRESS"): ...
class GroupSubscribedToTopicError(BrokerResponseError, code=86, name="GROUP_SUBSCRIBED_TO_TOPIC"): ...
class InvalidRecordError(BrokerResponseError, code=87, name="INVALID_RECORD"): ...
class UnstableOffsetCommitError(RetriableError, BrokerResponseError, code=88, name="UNSTABLE_OFFSET_COMMIT"): ...
class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError, code=89, name="THROTTLING_QUOTA_EXCEEDED"): ...
class ProducerFencedError(FatalTransactionError, BrokerResponseError, code=90, name="PRODUCER_FENCED"): ...
class ResourceNotFoundError(BrokerResponseError, code=91, name="RESOURCE_NOT_FOUND"): ...
class DuplicateResourceError(BrokerResponseError, code=92, name="DUPLICATE_RESOURCE"): ...
class UnacceptableCredentialError(BrokerResponseError, code=93, name="UNACCEPTABLE_CREDENTIAL"): ...
class InconsistentVoterSetError(BrokerResponseError, code=94, name="INCONSISTENT_VOTER_SET"): ...
class InvalidUpdateVersionError(BrokerResponseError, code=95, name="INVALID_UPDATE_VERSION"): ...
class FeatureUpdateFailedError(BrokerResponseError, code=96, name="FEATURE_UPDATE_FAILED"): ...
class PrincipalDeserializationFailureError(BrokerResponseError, code=97, name="PRINCIPAL_DESERIALIZATION_FAILURE"): ...
class SnapshotNotFoundError(BrokerResponseError, code=98, name="SNAPSHOT_NOT_FOUND"): ...
class PositionOutOfRangeError(BrokerResponseError, code=99, name="POSITION_OUT_OF_RANGE"): ...
class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError, code=100, name="UNKNOWN_TOPIC_ID"): ...
class DuplicateBrokerRegistrationError(BrokerResponseError, code=101, name="DUPLICATE_BROKER_REGISTRATION"): ...
class BrokerIdNotRegisteredError(BrokerResponseError, code=102, name="BROKER_ID_NOT_REGISTERED"): ...
class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError, code=103, name="INCONSISTENT_TOPIC_ID"): ...
class InconsistentClusterIdError(BrokerResponseError, code=104, name="INCONSISTENT_CLUSTER_ID"): ...
class TransactionalIdNotFoundError(BrokerResponseError, code=105, name="TRANSACTIONAL_ID_NOT_FOUND"): ...
class FetchSessionTopicIdError(RetriableError, BrokerResponseError, code=106, name="FETCH_SESSION_TOPIC_ID_ERROR"): ...
class IneligibleReplicaError(BrokerResponseError, code=107, name="INELIGIBLE_REPLICA"): ...
class NewLeaderElectedError(BrokerResponseError, code=108, name="NEW_LEADER_ELECTED"): ...
class OffsetMovedToTieredStorageError(BrokerResponseError, code=109, name="OFFSET_MOVED_TO_TIERED_STORAGE"): ...
class FencedMemberEpochError(BrokerResponseError, code=110, name="FENCED_MEMBER_EPOCH"): ...
class UnreleasedInstanceIdError(BrokerResponseError, code=111, name="UNRELEASED_INSTANCE_ID"): ...
class UnsupportedAssignorError(BrokerResponseError, code=112, name="UNSUPPORTED_ASSIGNOR"): ...
class StaleMemberEpochError(BrokerResponseError, code=113, name="STALE_MEMBER_EPOCH"): ...
class MismatchedEndpointTypeError(BrokerResponseError, code=114, name="MISMATCHED_ENDPOINT_TYPE"): ...
class UnsupportedEndpointTypeError(BrokerResponseError, code=115, name="UNSUPPORTED_ENDPOINT_TYPE"): ...
class UnknownControllerIdError(BrokerResponseError, code=116, name="UNKNOWN_CONTROLLER_ID"): ...
class UnknownSubscriptionIdError(BrokerResponseError, code=117, name="UNKNOWN_SUBSCRIPTION_ID"): ...
class TelemetryTooLargeError(BrokerResponseError, code=118, name="TELEMETRY_TOO_LARGE"): ...
class InvalidRegistrationError(BrokerResponseError, code=119, name="INVALID_REGISTRATION"): ...
class TransactionAbortableError(
    AbortableTransactionError, BrokerResponseError, code=120, name="TRANSACTION_ABORTABLE"
): ...
class InvalidRecordStateError(BrokerResponseError, code=121, name="INVALID_RECORD_STATE"): ...
class ShareSessionNotFoundError(RetriableError, BrokerResponseError, code=122, name="SHARE_SESSION_NOT_FOUND"): ...
class InvalidShareSessionEpochError(
    RetriableError, BrokerResponseError, code=123, name="INVALID_SHARE_SESSION_EPOCH"
): ...
class FencedStateEpochError(BrokerResponseError, code=124, name="FENCED_STATE_EPOCH"): ...
class InvalidVoterKeyError(BrokerResponseError, code=125, name="INVALID_VOTER_KEY"): ...
class DuplicateVoterError(BrokerResponseError, code=126, name="DUPLICATE_VOTER"): ...
class VoterNotFoundError(BrokerResponseError, code=127, name="VOTER_NOT_FOUND"): ...
class InvalidRegularExpressionError(BrokerResponseError, code=128, name="INVALID_REGULAR_EXPRESSION"): ...
class RebootstrapRequiredError(BrokerResponseError, code=129, name="REBOOTSTRAP_REQUIRED"): ...
class StreamsInvalidTopologyError(BrokerResponseError, code=130, name="STREAMS_INVALID_TOPOLOGY"): ...
class StreamsInvalidTopologyEpochError(BrokerResponseError, code=131, name="STREAMS_INVALID_TOPOLOGY_EPOCH"): ...
class StreamsTopologyFencedError(BrokerResponseError, code=132, name="STREAMS_TOPOLOGY_FENCED"): ...
class ShareSessionLimitReachedError(
    RetriableError, BrokerResponseError, code=133, name="SHARE_SESSION_LIMIT_REACHED"
): ...


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
        if isinstance(value, type) and issubclass(value, BrokerResponseError) and vars(value).get("errno") is not None:
            classes[vars(value)["errno"]] = value
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
    return type("UnknownError", (UnknownError,), {}, code=code, name=f"UNKNOWN_CODE_{code}")


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
