"""What to do when a broker refuses a batch, or the producer's id: tables first, small functions that read them.

:data:`RECOVERIES` names every error that Produce answers, :data:`IDENTITY_RECOVERIES` those of InitProducerId as an
idempotent producer asks it. The documentation's tables are drawn from them, and tests walk them. An error that is not
named goes by its class: retriable ones RETRY (or ASK_AGAIN), others FAIL (or END).

A transaction changes two things, and its machine decides them (``transactions.py``): RENUMBER is FAIL there, since
sequences of a transaction are never begun anew, and what fails makes the transaction abortable or the producer fatal.

Source: the Java client's ``Sender.completeBatch``, ``TransactionManager.canRetry`` and ``InitProducerIdHandler``;
KIP-98, KIP-360, KIP-588; what brokers answer: ``ProduceResponse``, ``ReplicaManager`` and ``ProducerAppendInfo``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafka.errors import (
    AuthorizationError,
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptRecordError,
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidRequiredAcksError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaStorageError,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    NetworkExceptionError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
    PolicyViolationError,
    ProducerFencedError,
    RecordListTooLargeError,
    RequestTimedOutError,
    ThrottlingQuotaExceededError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownError,
    UnknownProducerIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)


class Fate(enum.Enum):
    """What becomes of a refused batch."""

    SUCCEEDED = "the records are in the log; where is not known"
    RETRY = "sent again, as it is, after the back-off"
    RENUMBER = "sent again under the producer's next epoch, counted from 0"
    SPLIT = "sent again in two halves; a single record fails"
    FAIL = "its records fail with the error; what follows goes on under the next epoch"
    FATAL = "its records fail with the error, and so does all else: this producer may not go on"


class Recovery(NamedTuple):
    """One row. ``leaves_doubt``: the batch may be in the log nevertheless."""

    fate: Fate
    leaves_doubt: bool = False
    note: str = ""


_RETRY: Final = Recovery(Fate.RETRY, True)
_FAIL: Final = Recovery(Fate.FAIL)
_FATAL: Final = Recovery(Fate.FATAL)

RECOVERIES: Final[Mapping[type[BaseException], Recovery]] = {
    UnknownError: Recovery(Fate.FAIL, True),
    CorruptRecordError: Recovery(Fate.RETRY, note="it was damaged on its way"),
    UnknownTopicOrPartitionError: _RETRY,
    LeaderNotAvailableError: _RETRY,
    NotLeaderForPartitionError: Recovery(Fate.RETRY, True, "at once when the metadata names another leader (KIP-951)"),
    RequestTimedOutError: Recovery(Fate.RETRY, True, "it is in the leader's log"),
    MessageSizeTooLargeError: Recovery(Fate.SPLIT),
    NetworkExceptionError: _RETRY,
    InvalidTopicError: _FAIL,
    RecordListTooLargeError: Recovery(Fate.SPLIT, note="larger than a log segment"),
    NotEnoughReplicasError: Recovery(Fate.RETRY),
    NotEnoughReplicasAfterAppendError: Recovery(Fate.RETRY, True, "it is in the leader's log"),
    InvalidRequiredAcksError: _FAIL,
    TopicAuthorizationFailedError: _FAIL,
    ClusterAuthorizationFailedError: _FATAL,
    InvalidTimestampError: _FAIL,
    UnsupportedVersionError: _FAIL,
    InvalidRequestError: _FAIL,
    UnsupportedForMessageFormatError: _FAIL,
    PolicyViolationError: _FAIL,
    OutOfOrderSequenceNumberError: Recovery(
        Fate.RENUMBER, note="behind an unanswered batch of the partition: sent again as it is"
    ),
    DuplicateSequenceNumberError: Recovery(Fate.SUCCEEDED),
    InvalidProducerEpochError: Recovery(Fate.RENUMBER),
    InvalidTxnStateError: _FAIL,
    InvalidProducerIdMappingError: _FAIL,
    ConcurrentTransactionsError: Recovery(Fate.RETRY),
    TransactionalIdAuthorizationFailedError: _FATAL,
    KafkaStorageError: _RETRY,
    UnknownProducerIdError: Recovery(
        Fate.RENUMBER, note="sent again as it is when the answer has no log_start_offset: the leader has moved"
    ),
    UnsupportedCompressionTypeError: _FAIL,
    InvalidRecordError: _FAIL,
    ThrottlingQuotaExceededError: Recovery(Fate.RETRY),
    ProducerFencedError: _FATAL,
    UnknownTopicIdError: _RETRY,
    TransactionAbortableError: _FAIL,
}
"""By error, in the order of the codes."""


def recovery_for(error: BaseException) -> Recovery:
    """The row of ``error``, or what its class says."""
    found = RECOVERIES.get(type(error))
    if found is not None:
        return found
    if getattr(error, "retriable", False):
        return _RETRY
    return _FAIL


def fate_for(error: BaseException, *, is_first: bool, is_numbered: bool, log_start_offset: int = -1) -> Fate:
    """What to do about ``error``. ``is_first``: no earlier batch of the partition is still unanswered; otherwise a gap
    in the sequence only says that the earlier one failed too, and both are to be sent again. ``is_numbered``: the batch
    has a sequence."""
    fate = recovery_for(error).fate
    if fate is not Fate.RENUMBER:
        return fate
    if not is_numbered:
        return Fate.FAIL
    if isinstance(error, OutOfOrderSequenceNumberError) and not is_first:
        return Fate.RETRY
    if isinstance(error, UnknownProducerIdError) and log_start_offset < 0:
        return Fate.RETRY
    return Fate.RENUMBER


class IdentityFate(enum.Enum):
    """What becomes of a producer that was not given an id."""

    ASK_AGAIN = "asked for again after the back-off"
    FAIL_WAITING = "the records that wait fail with the error; asked for again with the next record"
    END = "all records fail with the error: this producer may not go on"


IDENTITY_RECOVERIES: Final[Mapping[type[BaseException], IdentityFate]] = {
    RequestTimedOutError: IdentityFate.ASK_AGAIN,
    NetworkExceptionError: IdentityFate.ASK_AGAIN,
    CoordinatorLoadInProgressError: IdentityFate.ASK_AGAIN,
    CoordinatorNotAvailableError: IdentityFate.ASK_AGAIN,
    NotCoordinatorError: IdentityFate.ASK_AGAIN,
    ClusterAuthorizationFailedError: IdentityFate.FAIL_WAITING,
    InvalidRequestError: IdentityFate.END,
    InvalidProducerEpochError: IdentityFate.END,
    InvalidTransactionTimeoutError: IdentityFate.END,
    ConcurrentTransactionsError: IdentityFate.ASK_AGAIN,
    TransactionalIdAuthorizationFailedError: IdentityFate.FAIL_WAITING,
    ProducerFencedError: IdentityFate.END,
    TransactionAbortableError: IdentityFate.END,
    UnknownError: IdentityFate.END,
}
"""By error, in the order of the codes."""


def identity_fate_for(error: BaseException) -> IdentityFate:
    """The row of ``error``, or what its class says."""
    found = IDENTITY_RECOVERIES.get(type(error))
    if found is not None:
        return found
    if isinstance(error, AuthorizationError):
        return IdentityFate.FAIL_WAITING
    return IdentityFate.ASK_AGAIN if getattr(error, "retriable", False) else IdentityFate.END
