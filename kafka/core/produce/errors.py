"""What to do when a broker refuses a batch, or the producer's id: tables first, small functions that read them.

:data:`PRODUCE_ERROR_HANDLING` names every error that Produce answers, :data:`PRODUCER_ID_ERROR_ACTIONS` those of
InitProducerId as an idempotent producer asks it. The documentation's tables are drawn from them, and tests walk them.
An error that is not named goes by its class: retriable ones RETRY (or ASK_AGAIN), others FAIL (or END).

A transaction changes two things, and its machine decides them (``transactions.py``): RENUMBER is FAIL there, since
sequences of a transaction are never begun anew, and what fails makes the transaction abortable or the producer fatal.

Source: the Java client's ``Sender.completeBatch``, ``TransactionManager.canRetry`` and ``InitProducerIdHandler``;
KIP-98, KIP-360, KIP-588; what brokers answer: ``ProduceResponse``, ``ReplicaManager`` and ``ProducerAppendInfo``.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from kafka.core.retry import ErrorTable
from kafka.errors import (
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptRecordError,
    DelegationTokenAuthorizationFailedError,
    DuplicateSequenceNumberError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    IncompatibleBrokerVersion,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidRequiredAcksError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaConnectionError,
    KafkaStorageError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    NetworkExceptionError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OperationNotAttemptedError,
    OutOfOrderSequenceNumberError,
    PolicyViolationError,
    ProducerFencedError,
    RecordListTooLargeError,
    RequestTimedOutError,
    ThrottlingQuotaExceededError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownBrokerIdError,
    UnknownError,
    UnknownMemberIdError,
    UnknownProducerIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)


class ProduceErrorAction(enum.Enum):
    """What becomes of a refused batch."""

    SUCCEEDED = "the records are in the log; where is not known"
    RETRY = "sent again, as it is, after the back-off"
    RENUMBER = "sent again under the producer's next epoch, counted from 0"
    SPLIT = "sent again in two halves; a single record fails"
    FAIL = "its records fail with the error; what follows goes on under the next epoch"
    FATAL = "all records fail with the error: this producer may not go on"


class ProduceErrorHandling(NamedTuple):
    """One row. ``leaves_doubt``: the batch may be in the log nevertheless."""

    action: ProduceErrorAction
    leaves_doubt: bool = False
    note: str = ""


_RETRY: Final = ProduceErrorHandling(ProduceErrorAction.RETRY, True)
_FAIL: Final = ProduceErrorHandling(ProduceErrorAction.FAIL)
_FATAL: Final = ProduceErrorHandling(ProduceErrorAction.FATAL)

PRODUCE_ERROR_HANDLING: Final = ErrorTable(
    {
        UnknownError: ProduceErrorHandling(ProduceErrorAction.FAIL, True),
        CorruptRecordError: ProduceErrorHandling(ProduceErrorAction.RETRY, note="it was damaged on its way"),
        UnknownTopicOrPartitionError: _RETRY,
        LeaderNotAvailableError: _RETRY,
        NotLeaderForPartitionError: ProduceErrorHandling(
            ProduceErrorAction.RETRY, True, "at once when the metadata names another leader (KIP-951)"
        ),
        RequestTimedOutError: ProduceErrorHandling(ProduceErrorAction.RETRY, True, "it is in the leader's log"),
        MessageSizeTooLargeError: ProduceErrorHandling(ProduceErrorAction.SPLIT),
        NetworkExceptionError: _RETRY,
        InvalidTopicError: _FAIL,
        RecordListTooLargeError: ProduceErrorHandling(ProduceErrorAction.SPLIT, note="larger than a log segment"),
        NotEnoughReplicasError: ProduceErrorHandling(ProduceErrorAction.RETRY),
        NotEnoughReplicasAfterAppendError: ProduceErrorHandling(
            ProduceErrorAction.RETRY, True, "it is in the leader's log"
        ),
        InvalidRequiredAcksError: _FAIL,
        TopicAuthorizationFailedError: _FAIL,
        ClusterAuthorizationFailedError: _FATAL,
        InvalidTimestampError: _FAIL,
        UnsupportedVersionError: _FAIL,
        InvalidRequestError: _FAIL,
        UnsupportedForMessageFormatError: _FAIL,
        PolicyViolationError: _FAIL,
        OutOfOrderSequenceNumberError: ProduceErrorHandling(
            ProduceErrorAction.RENUMBER, note="behind an unanswered batch of the partition: sent again as it is"
        ),
        DuplicateSequenceNumberError: ProduceErrorHandling(ProduceErrorAction.SUCCEEDED),
        InvalidProducerEpochError: ProduceErrorHandling(ProduceErrorAction.RENUMBER),
        InvalidTxnStateError: _FAIL,
        InvalidProducerIdMappingError: _FAIL,
        ConcurrentTransactionsError: ProduceErrorHandling(ProduceErrorAction.RETRY),
        TransactionalIdAuthorizationFailedError: _FATAL,
        KafkaStorageError: _RETRY,
        UnknownProducerIdError: ProduceErrorHandling(
            ProduceErrorAction.RENUMBER,
            note="sent again as it is when the answer has no log_start_offset: the leader has moved",
        ),
        UnsupportedCompressionTypeError: _FAIL,
        InvalidRecordError: _FAIL,
        ThrottlingQuotaExceededError: ProduceErrorHandling(ProduceErrorAction.RETRY),
        ProducerFencedError: _FATAL,
        UnknownTopicIdError: _RETRY,
        TransactionAbortableError: _FAIL,
    },
    retry=_RETRY,
    otherwise=_FAIL,
    exact=True,
)
"""By error, in the order of the codes."""


def produce_error_action(
    error: BaseException, *, is_first: bool, is_numbered: bool, log_start_offset: int = -1
) -> ProduceErrorAction:
    """What to do about ``error``. ``is_first``: no earlier batch of the partition is still unanswered; otherwise a gap
    in the sequence only says that the earlier one failed too, and both are to be sent again. ``is_numbered``: the batch
    has a sequence."""
    action = PRODUCE_ERROR_HANDLING.action_for(error).action
    if action is not ProduceErrorAction.RENUMBER:
        return action
    if not is_numbered:
        return ProduceErrorAction.FAIL
    if isinstance(error, OutOfOrderSequenceNumberError) and not is_first:
        return ProduceErrorAction.RETRY
    if isinstance(error, UnknownProducerIdError) and log_start_offset < 0:
        return ProduceErrorAction.RETRY
    return ProduceErrorAction.RENUMBER


class ProducerIdErrorAction(enum.Enum):
    """What becomes of a producer that was not given an id."""

    ASK_AGAIN = "asked for again after the back-off"
    FAIL_WAITING = "the records that wait fail with the error; asked for again with the next record"
    END = "all records fail with the error: this producer may not go on"


PRODUCER_ID_ERROR_ACTIONS: Final = ErrorTable(
    {
        RequestTimedOutError: ProducerIdErrorAction.ASK_AGAIN,
        NetworkExceptionError: ProducerIdErrorAction.ASK_AGAIN,
        CoordinatorLoadInProgressError: ProducerIdErrorAction.ASK_AGAIN,
        CoordinatorNotAvailableError: ProducerIdErrorAction.ASK_AGAIN,
        NotCoordinatorError: ProducerIdErrorAction.ASK_AGAIN,
        ClusterAuthorizationFailedError: ProducerIdErrorAction.FAIL_WAITING,
        InvalidRequestError: ProducerIdErrorAction.END,
        InvalidProducerEpochError: ProducerIdErrorAction.END,
        InvalidTransactionTimeoutError: ProducerIdErrorAction.END,
        ConcurrentTransactionsError: ProducerIdErrorAction.ASK_AGAIN,
        TransactionalIdAuthorizationFailedError: ProducerIdErrorAction.FAIL_WAITING,
        ProducerFencedError: ProducerIdErrorAction.END,
        TransactionAbortableError: ProducerIdErrorAction.END,
        UnknownError: ProducerIdErrorAction.END,
        # any other right that is missing
        TopicAuthorizationFailedError: ProducerIdErrorAction.FAIL_WAITING,
        GroupAuthorizationFailedError: ProducerIdErrorAction.FAIL_WAITING,
        DelegationTokenAuthorizationFailedError: ProducerIdErrorAction.FAIL_WAITING,
    },
    retry=ProducerIdErrorAction.ASK_AGAIN,
    otherwise=ProducerIdErrorAction.END,
    exact=True,
)
"""By error, in the order of the codes."""


# What to do about an error in a transaction: a table for each request.
#
#     RETRY     wait, then send the same request again
#     QUICKLY   the same after a shorter wait: the broker is about to be done with the last transaction
#     FIND      forget who the coordinator is, wait, send again
#     AGAIN     the user's call fails, and nothing has changed: it may be made again
#     ABORT     the transaction can only be aborted (an AbortableTransactionError)
#     BUMP      the same, and the next transaction needs another epoch; where no coordinator can give one, FATAL
#     FENCED    another producer has the transactional id (ProducerFencedError, which is fatal)
#     FATAL     this producer has no transactions any more (a FatalTransactionError)
#
# The documentation's table is drawn from here. During an abort nothing is left to abort: then ABORT and BUMP of EndTxn
# are FATAL (:meth:`TransactionManager.failed`).
#
# A new code, or a request that learns one, is a row of its table in :data:`TRANSACTION_ERROR_ACTIONS`; the test walks
# all of it.
#
# INVALID_PRODUCER_EPOCH in Produce is abortable: after a timeout at the broker it looks like a fence, and the abort
# finds out which it is (KIP-588).
#
# Source: what the Java client 4.3.0 does with each; KIP-98, KIP-360, KIP-588 (47 in Produce), KIP-890 (120), KIP-1050.


class TransactionRequestKind(enum.Enum):
    """The requests of a transaction."""

    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"
    FIND = "FindCoordinator"
    PRODUCE = "Produce"


class TransactionErrorAction(enum.Enum):
    """What to do about an error; see the module."""

    RETRY = "retry"
    QUICKLY = "quickly"
    FIND = "find the coordinator"
    AGAIN = "call again"
    ABORT = "abort"
    BUMP = "abort, then another epoch"
    FENCED = "fenced"
    FATAL = "fatal"

    @property
    def is_retry(self) -> bool:
        return self in (TransactionErrorAction.RETRY, TransactionErrorAction.QUICKLY, TransactionErrorAction.FIND)


_NO_RESPONSE_ROWS: Final[dict[type[BaseException], TransactionErrorAction]] = {
    # another coordinator may have taken the place of this one
    KafkaConnectionError: TransactionErrorAction.FIND,
    KafkaTimeoutError: TransactionErrorAction.FIND,
    RequestTimedOutError: TransactionErrorAction.FIND,
    UnknownBrokerIdError: TransactionErrorAction.FIND,
}
_COORDINATOR_ERRORS: Final = ErrorTable(
    {
        **_NO_RESPONSE_ROWS,
        CoordinatorNotAvailableError: TransactionErrorAction.FIND,
        NotCoordinatorError: TransactionErrorAction.FIND,
        ConcurrentTransactionsError: TransactionErrorAction.QUICKLY,
        InvalidProducerEpochError: TransactionErrorAction.FENCED,  # what coordinators before 2.7 call it
        ProducerFencedError: TransactionErrorAction.FENCED,
        TransactionAbortableError: TransactionErrorAction.ABORT,
    },
    retry=TransactionErrorAction.RETRY,
    otherwise=TransactionErrorAction.FATAL,
)

TRANSACTION_ERROR_ACTIONS: Final[dict[TransactionRequestKind, ErrorTable[TransactionErrorAction]]] = {
    TransactionRequestKind.INIT: _COORDINATOR_ERRORS.extended(
        {
            TransactionalIdAuthorizationFailedError: TransactionErrorAction.AGAIN,
            ClusterAuthorizationFailedError: TransactionErrorAction.AGAIN,
            TransactionAbortableError: TransactionErrorAction.RETRY,  # there is nothing to abort yet
        }
    ),
    TransactionRequestKind.ADD_PARTITIONS: ErrorTable(
        {
            **_COORDINATOR_ERRORS.rows,
            TransactionalIdAuthorizationFailedError: TransactionErrorAction.FATAL,
            InvalidTxnStateError: TransactionErrorAction.FATAL,
            InvalidProducerIdMappingError: TransactionErrorAction.FATAL,
            UnsupportedVersionError: TransactionErrorAction.FATAL,
            UnknownProducerIdError: TransactionErrorAction.BUMP,
            TopicAuthorizationFailedError: TransactionErrorAction.ABORT,
            OperationNotAttemptedError: TransactionErrorAction.ABORT,
        },
        retry=TransactionErrorAction.RETRY,
        otherwise=TransactionErrorAction.ABORT,
    ),
    TransactionRequestKind.ADD_OFFSETS: _COORDINATOR_ERRORS.extended(
        {
            UnknownProducerIdError: TransactionErrorAction.BUMP,
            GroupAuthorizationFailedError: TransactionErrorAction.ABORT,
        }
    ),
    TransactionRequestKind.COMMIT_OFFSETS: _COORDINATOR_ERRORS.extended(
        {
            GroupAuthorizationFailedError: TransactionErrorAction.ABORT,
            FencedInstanceIdError: TransactionErrorAction.ABORT,
            UnknownMemberIdError: TransactionErrorAction.ABORT,
            IllegalGenerationError: TransactionErrorAction.ABORT,
        }
    ),
    TransactionRequestKind.END: _COORDINATOR_ERRORS.extended({UnknownProducerIdError: TransactionErrorAction.BUMP}),
    TransactionRequestKind.FIND: ErrorTable(
        {
            **_NO_RESPONSE_ROWS,
            ProducerFencedError: TransactionErrorAction.FENCED,
            GroupAuthorizationFailedError: TransactionErrorAction.ABORT,
            TransactionAbortableError: TransactionErrorAction.ABORT,
        },
        retry=TransactionErrorAction.RETRY,
        otherwise=TransactionErrorAction.FATAL,
    ),
    # Of a batch that is not tried any more, whatever its error is; which are tried again, PRODUCE_ERROR_HANDLING says.
    TransactionRequestKind.PRODUCE: ErrorTable(
        {
            ProducerFencedError: TransactionErrorAction.FENCED,
            ClusterAuthorizationFailedError: TransactionErrorAction.FATAL,
            TransactionalIdAuthorizationFailedError: TransactionErrorAction.FATAL,
            InvalidProducerIdMappingError: TransactionErrorAction.FATAL,
            UnsupportedVersionError: TransactionErrorAction.FATAL,
            IncompatibleBrokerVersion: TransactionErrorAction.FATAL,
        },
        otherwise=TransactionErrorAction.ABORT,
        exact=True,
    ),
}
