"""What to do about an error in a transaction: data first, one function that reads it.

    RETRY     wait, then send the same request again
    QUICKLY   the same after a shorter wait: the broker is about to be done with the last transaction
    FIND      forget who the coordinator is, wait, send again
    AGAIN     the user's call fails, and nothing has changed: it may be made again
    ABORT     the transaction can only be aborted (an AbortableTransactionError)
    BUMP      the same, and the next transaction needs another epoch; where nobody can give one, FATAL
    FENCED    another producer has the transactional id (ProducerFencedError, which is fatal)
    FATAL     this producer has no transactions any more (a FatalTransactionError)

An error that is not named goes by its class: retriable ones RETRY (connections that fail: FIND); others as the
request's row in :data:`OTHERWISE`. The documentation's table is drawn from here. During an abort nothing is left to
abort: then ABORT and BUMP of EndTxn are FATAL (:meth:`TransactionManager.failed`).

A new code, or a request that learns one, is an entry in :data:`RECOVERIES`; the test walks all of it.

Source: what the Java client 4.3.0 does with each; KIP-98, KIP-360, KIP-588 (47 in Produce), KIP-890 (120), KIP-1050.
"""

from __future__ import annotations

import enum
from typing import Final

from kafka.errors import (
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    IncompatibleBrokerVersion,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotCoordinatorError,
    OperationNotAttemptedError,
    ProducerFencedError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownBrokerIdError,
    UnknownMemberIdError,
    UnknownProducerIdError,
    UnsupportedVersionError,
)


class Api(enum.Enum):
    """The requests of a transaction."""

    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"
    FIND = "FindCoordinator"
    PRODUCE = "Produce"


class Recovery(enum.Enum):
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
        return self in (Recovery.RETRY, Recovery.QUICKLY, Recovery.FIND)


_COORDINATOR: Final[dict[type[BaseException], Recovery]] = {
    CoordinatorNotAvailableError: Recovery.FIND,
    NotCoordinatorError: Recovery.FIND,
    ConcurrentTransactionsError: Recovery.QUICKLY,
    InvalidProducerEpochError: Recovery.FENCED,  # what coordinators before 2.7 call it
    ProducerFencedError: Recovery.FENCED,
    TransactionAbortableError: Recovery.ABORT,
}

RECOVERIES: Final[dict[Api, dict[type[BaseException], Recovery]]] = {
    Api.INIT: {
        **_COORDINATOR,
        TransactionalIdAuthorizationFailedError: Recovery.AGAIN,
        ClusterAuthorizationFailedError: Recovery.AGAIN,
        TransactionAbortableError: Recovery.RETRY,  # there is nothing to abort yet
    },
    Api.ADD_PARTITIONS: {
        **_COORDINATOR,
        TransactionalIdAuthorizationFailedError: Recovery.FATAL,
        InvalidTxnStateError: Recovery.FATAL,
        InvalidProducerIdMappingError: Recovery.FATAL,
        UnknownProducerIdError: Recovery.BUMP,
        TopicAuthorizationFailedError: Recovery.ABORT,
        OperationNotAttemptedError: Recovery.ABORT,
    },
    Api.ADD_OFFSETS: {
        **_COORDINATOR,
        UnknownProducerIdError: Recovery.BUMP,
        GroupAuthorizationFailedError: Recovery.ABORT,
    },
    Api.COMMIT_OFFSETS: {
        **_COORDINATOR,
        RequestTimedOutError: Recovery.FIND,
        GroupAuthorizationFailedError: Recovery.ABORT,
        FencedInstanceIdError: Recovery.ABORT,
        UnknownMemberIdError: Recovery.ABORT,
        IllegalGenerationError: Recovery.ABORT,
    },
    Api.END: {
        **_COORDINATOR,
        UnknownProducerIdError: Recovery.BUMP,
    },
    Api.FIND: {
        ProducerFencedError: Recovery.FENCED,
        GroupAuthorizationFailedError: Recovery.ABORT,
        TransactionAbortableError: Recovery.ABORT,
    },
    Api.PRODUCE: {
        ProducerFencedError: Recovery.FENCED,
        ClusterAuthorizationFailedError: Recovery.FATAL,
        TransactionalIdAuthorizationFailedError: Recovery.FATAL,
        InvalidProducerIdMappingError: Recovery.FATAL,
        UnsupportedVersionError: Recovery.FATAL,
        IncompatibleBrokerVersion: Recovery.FATAL,
    },
}
"""Request -> error -> recovery, where it does not follow from the error's class. For Produce: of a batch that is not
tried any more, whatever its error is (what is tried again, ``fate.py`` says)."""

OTHERWISE: Final[dict[Api, Recovery]] = {
    Api.INIT: Recovery.FATAL,
    Api.ADD_PARTITIONS: Recovery.ABORT,
    Api.ADD_OFFSETS: Recovery.FATAL,
    Api.COMMIT_OFFSETS: Recovery.FATAL,
    Api.END: Recovery.FATAL,
    Api.FIND: Recovery.FATAL,
    Api.PRODUCE: Recovery.ABORT,
}
"""For an error that is neither named nor retriable."""

LOST: Final = (KafkaConnectionError, KafkaTimeoutError, RequestTimedOutError, UnknownBrokerIdError)
"""No answer from the coordinator: another may have taken its place."""


def recovery_for(api: Api, error: BaseException) -> Recovery:
    """What to do about the error of this request."""
    found = RECOVERIES[api].get(type(error))
    if found is not None:
        return found
    if api is not Api.PRODUCE:
        if isinstance(error, LOST):
            return Recovery.FIND
        if getattr(error, "retriable", False):
            return Recovery.RETRY
        if isinstance(error, UnsupportedVersionError):
            return Recovery.FATAL
    return OTHERWISE[api]
