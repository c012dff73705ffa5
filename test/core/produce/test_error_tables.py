"""What a producer does about each error that a broker may answer, against a list by hand.

Sources: Apache Kafka 4.3.0's Java client, ``Sender.completeBatch`` and ``canRetry`` and the handlers of
``TransactionManager`` (named below by their class), and the KIPs. Where this producer differs on purpose, the row says
why. Nothing here is read from the tables under test; every one of their rows has to be expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafka.core.produce import errors
from kafka.core.produce.errors import (
    PRODUCER_ID_ERROR_ACTIONS,
    ProduceErrorAction,
    ProducerIdErrorAction,
    TransactionErrorAction,
    TransactionRequestKind,
    produce_error_action,
)
from kafka.errors import (
    ERRORS_BY_CODE,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaTimeoutError,
    OutOfOrderSequenceNumberError,
    RequestTimedOutError,
    UnknownBrokerIdError,
    UnknownProducerIdError,
)
from test.core.retriable import RETRIABLE

BY_NAME = {error.message: error for code, error in ERRORS_BY_CODE.items() if code}

# -- Produce ---------------------------------------------------------------------------------------------------------

PRODUCE_ACTIONS: dict[str, tuple[ProduceErrorAction, str]] = {
    "MESSAGE_TOO_LARGE": (ProduceErrorAction.SPLIT, "Sender.completeBatch: splitAndReenqueue"),
    "RECORD_LIST_TOO_LARGE": (
        ProduceErrorAction.SPLIT,
        "Java fails it; a batch above segment.bytes fits when it is halved",
    ),
    "DUPLICATE_SEQUENCE_NUMBER": (
        ProduceErrorAction.SUCCEEDED,
        "Sender.completeBatch: success without an offset (KIP-98)",
    ),
    "OUT_OF_ORDER_SEQUENCE_NUMBER": (
        ProduceErrorAction.RENUMBER,
        "KIP-360; TransactionManager.canRetry, requestEpochBump",
    ),
    "UNKNOWN_PRODUCER_ID": (ProduceErrorAction.RENUMBER, "KIP-360; TransactionManager.canRetry"),
    "INVALID_PRODUCER_EPOCH": (ProduceErrorAction.RENUMBER, "KIP-588: the next epoch, not the end"),
    "CLUSTER_AUTHORIZATION_FAILED": (ProduceErrorAction.FATAL, "TransactionManager.maybeTransitionToErrorState"),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        ProduceErrorAction.FATAL,
        "TransactionManager.maybeTransitionToErrorState",
    ),
    "PRODUCER_FENCED": (ProduceErrorAction.FATAL, "TransactionManager.maybeTransitionToErrorState"),
}
"""Of the others those in ``RETRIABLE`` are sent again (``Sender.canRetry``), and what is left fails."""

MAY_BE_IN_THE_LOG = {
    "UNKNOWN_SERVER_ERROR",  # it may have come up behind the append
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",  # its description says so
    "REQUEST_TIMED_OUT",  # ReplicaManager.appendRecords: not replicated in time, but appended
    "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "NETWORK_EXCEPTION",
    "KAFKA_STORAGE_ERROR", "UNKNOWN_TOPIC_ID",  # DelayedProduce answers these when the leader changes while it waits
}  # fmt: skip
NOT_IN_THE_LOG_THOUGH_RETRIED = {
    "CORRUPT_MESSAGE",  # LogValidator: before the append
    "NOT_ENOUGH_REPLICAS",  # Partition.appendRecordsToLeader: before the append
    "CONCURRENT_TRANSACTIONS",  # AddPartitionsToTxnManager, KIP-890: before the append
    "THROTTLING_QUOTA_EXCEEDED",  # ClientQuotaManager
}


def expected_fate(name: str) -> ProduceErrorAction:
    return (
        PRODUCE_ACTIONS[name][0]
        if name in PRODUCE_ACTIONS
        else ProduceErrorAction.RETRY
        if name in RETRIABLE
        else ProduceErrorAction.FAIL
    )


def test_of_each_error_the_batch_has_the_fate_that_java_gives_it() -> None:
    context = {"is_first": True, "is_numbered": True, "log_start_offset": 5}
    found = {name: produce_error_action(error(), **context) for name, error in BY_NAME.items()}
    assert found == {name: expected_fate(name) for name in BY_NAME}
    assert {error.message for error in errors.PRODUCE_ERROR_HANDLING.rows} <= set(BY_NAME)  # type: ignore[attr-defined]
    assert produce_error_action(ValueError(), **context) is ProduceErrorAction.FAIL, "no error of a broker"
    # Java: a node that has left the cluster is a disconnect (NetworkClient.handleDisconnections).
    assert (
        produce_error_action(KafkaConnectionError(), **context)
        is produce_error_action(UnknownBrokerIdError(), **context)
        is ProduceErrorAction.RETRY
    )


def test_of_each_error_it_is_known_whether_the_batch_may_be_in_the_log() -> None:
    rows = {error.message: row.leaves_doubt for error, row in errors.PRODUCE_ERROR_HANDLING.rows.items()}  # type: ignore[attr-defined]
    assert rows == {name: name in MAY_BE_IN_THE_LOG for name in rows}
    assert set(rows) >= MAY_BE_IN_THE_LOG | NOT_IN_THE_LOG_THOUGH_RETRIED
    others = set(BY_NAME) - set(rows)
    assert {
        name for name in others if errors.PRODUCE_ERROR_HANDLING.action_for(BY_NAME[name]()).leaves_doubt
    } == others & RETRIABLE


@pytest.mark.parametrize(
    ("error", "arguments", "expected"),
    [
        # TransactionManager.canRetry: a later batch fails only because an earlier one has.
        (OutOfOrderSequenceNumberError, {"is_first": False, "is_numbered": True}, ProduceErrorAction.RETRY),
        (OutOfOrderSequenceNumberError, {"is_first": True, "is_numbered": True}, ProduceErrorAction.RENUMBER),
        # canRetry: "if the log start offset is -1, the leader has changed": as it is, also behind others
        (UnknownProducerIdError, {"is_first": True, "is_numbered": True, "log_start_offset": -1},
         ProduceErrorAction.RETRY),
        (UnknownProducerIdError, {"is_first": True, "is_numbered": True, "log_start_offset": 0},
         ProduceErrorAction.RENUMBER),
        (UnknownProducerIdError, {"is_first": False, "is_numbered": True, "log_start_offset": 0},
         ProduceErrorAction.RENUMBER),
        # Sender.canRetry without a transaction manager: none of the three is a RetriableException.
        (OutOfOrderSequenceNumberError, {"is_first": False, "is_numbered": False}, ProduceErrorAction.FAIL),
        (UnknownProducerIdError, {"is_first": True, "is_numbered": False, "log_start_offset": -1},
         ProduceErrorAction.FAIL),
        (RequestTimedOutError, {"is_first": True, "is_numbered": False}, ProduceErrorAction.RETRY),
    ],
)  # fmt: skip
def test_a_sequence_that_does_not_fit_depends_on_what_was_sent_before(
    error: type[BaseException], arguments: dict[str, Any], expected: ProduceErrorAction
) -> None:
    assert produce_error_action(error(), **arguments) is expected


# -- InitProducerId of an idempotent producer ------------------------------------------------------------------------

PRODUCER_ID_ACTIONS: dict[str, tuple[ProducerIdErrorAction, str]] = {
    "CLUSTER_AUTHORIZATION_FAILED": (
        ProducerIdErrorAction.FAIL_WAITING,
        "KIP-98 and KAFKA-9242: abortable, asked again",
    ),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (ProducerIdErrorAction.FAIL_WAITING, "InitProducerIdHandler: abortable"),
    "TOPIC_AUTHORIZATION_FAILED": (
        ProducerIdErrorAction.FAIL_WAITING,
        "never answered; as every right, it may be granted",
    ),
    "GROUP_AUTHORIZATION_FAILED": (ProducerIdErrorAction.FAIL_WAITING, "the same"),
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": (ProducerIdErrorAction.FAIL_WAITING, "the same"),
}
"""Of the others those in ``RETRIABLE`` are asked for again (``InitProducerIdHandler``: reenqueue), and the rest are
the end: "Unexpected error in InitProducerIdResponse", PRODUCER_FENCED and INVALID_PRODUCER_EPOCH are fatal there."""


def test_of_each_error_of_an_id_the_producer_does_what_java_does() -> None:
    def expected(name: str) -> ProducerIdErrorAction:
        if name in PRODUCER_ID_ACTIONS:
            return PRODUCER_ID_ACTIONS[name][0]
        return ProducerIdErrorAction.ASK_AGAIN if name in RETRIABLE else ProducerIdErrorAction.END

    assert {name: PRODUCER_ID_ERROR_ACTIONS.action_for(error()) for name, error in BY_NAME.items()} == {
        name: expected(name) for name in BY_NAME
    }
    assert PRODUCER_ID_ERROR_ACTIONS.action_for(ValueError()) is ProducerIdErrorAction.END, "no error of a broker"
    assert {error.message for error in errors.PRODUCER_ID_ERROR_ACTIONS.rows} <= set(BY_NAME)  # type: ignore[attr-defined]


# -- transactions ----------------------------------------------------------------------------------------------------

R = TransactionErrorAction
COORDINATOR: dict[str, TransactionErrorAction] = {
    "COORDINATOR_NOT_AVAILABLE": R.FIND,  # every handler: lookupCoordinator, reenqueue
    "NOT_COORDINATOR": R.FIND,
    # Every handler: a RetriableException, reenqueue; AddPartitionsToTxnHandler with a shorter back-off, which is used
    # for all requests here: the coordinator is writing the last transaction's markers.
    "CONCURRENT_TRANSACTIONS": R.QUICKLY,
    "INVALID_PRODUCER_EPOCH": R.FENCED,  # every handler: fatalError(PRODUCER_FENCED)
    "PRODUCER_FENCED": R.FENCED,
    "TRANSACTION_ABORTABLE": R.ABORT,  # KIP-890; every handler: abortableError
    "REQUEST_TIMED_OUT": R.FIND,  # TxnOffsetCommitHandler looks the coordinator up; so do all here: it was silent
}
EXPECTED: dict[TransactionRequestKind, Mapping[str, TransactionErrorAction]] = {
    TransactionRequestKind.INIT: {
        **COORDINATOR,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": R.AGAIN,  # InitProducerIdHandler: abortable; KAFKA-9242
        "CLUSTER_AUTHORIZATION_FAILED": R.AGAIN,  # the same
        "TRANSACTION_ABORTABLE": R.RETRY,  # Java: abortable; but before the first transaction there is nothing to abort
    },
    TransactionRequestKind.ADD_PARTITIONS: {
        **COORDINATOR,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": R.FATAL,  # AddPartitionsToTxnHandler: fatalError
        "INVALID_TXN_STATE": R.FATAL,  # fatalError
        "INVALID_PRODUCER_ID_MAPPING": R.FATAL,  # fatalError since 4.0
        "UNKNOWN_PRODUCER_ID": R.BUMP,  # abortableErrorIfPossible
        "TOPIC_AUTHORIZATION_FAILED": R.ABORT,  # abortableError(TopicAuthorizationException)
        "OPERATION_NOT_ATTEMPTED": R.ABORT,  # abortableError with the others of the request
        "UNSUPPORTED_VERSION": R.FATAL,  # TxnRequestHandler.onComplete: versionMismatch is fatal
    },
    TransactionRequestKind.ADD_OFFSETS: {
        **COORDINATOR,
        "UNKNOWN_PRODUCER_ID": R.BUMP,  # AddOffsetsToTxnHandler: abortableErrorIfPossible
        "GROUP_AUTHORIZATION_FAILED": R.ABORT,  # abortableError
    },
    TransactionRequestKind.COMMIT_OFFSETS: {
        **COORDINATOR,
        "GROUP_AUTHORIZATION_FAILED": R.ABORT,  # TxnOffsetCommitHandler: abortableError
        "FENCED_INSTANCE_ID": R.ABORT,  # abortableError (KIP-447)
        "UNKNOWN_MEMBER_ID": R.ABORT,  # abortableError(CommitFailedException), KIP-447
        "ILLEGAL_GENERATION": R.ABORT,  # the same
    },
    TransactionRequestKind.END: {
        **COORDINATOR,
        "UNKNOWN_PRODUCER_ID": R.BUMP,  # EndTxnHandler: abortableErrorIfPossible
    },
    TransactionRequestKind.FIND: {
        "PRODUCER_FENCED": R.FENCED,  # never answered; fatal, as in every handler
        "GROUP_AUTHORIZATION_FAILED": R.ABORT,  # FindCoordinatorHandler: abortableError
        "TRANSACTION_ABORTABLE": R.ABORT,  # abortableError
        "REQUEST_TIMED_OUT": R.FIND,
    },
    # TransactionManager.maybeTransitionToErrorState: these end the producer, all others the transaction.
    TransactionRequestKind.PRODUCE: {
        "CLUSTER_AUTHORIZATION_FAILED": R.FATAL,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": R.FATAL,
        "PRODUCER_FENCED": R.FENCED,
        "UNSUPPORTED_VERSION": R.FATAL,
        "INVALID_PRODUCER_ID_MAPPING": R.FATAL,
    },
}
"""By request. Of the others those in ``RETRIABLE`` are sent again, except of Produce, where what is not retried any
more aborts; what is left is fatal ("Unexpected error in ..."), except of AddPartitionsToTxn ("Could not add partitions
to transaction due to errors": abortable) and Produce."""


def expected_recovery(api: TransactionRequestKind, name: str) -> TransactionErrorAction:
    if name in EXPECTED[api]:
        return EXPECTED[api][name]
    if api is TransactionRequestKind.PRODUCE:
        return R.ABORT
    if name in RETRIABLE:
        # A NETWORK_EXCEPTION is what Java's client calls a lost connection: the coordinator may have moved.
        return R.FIND if issubclass(BY_NAME[name], KafkaConnectionError) else R.RETRY
    return R.ABORT if api is TransactionRequestKind.ADD_PARTITIONS else R.FATAL


@pytest.mark.parametrize("api", TransactionRequestKind)
def test_of_each_error_a_transaction_does_what_java_does(api: TransactionRequestKind) -> None:
    found = {name: errors.TRANSACTION_ERROR_ACTIONS[api].action_for(error()) for name, error in BY_NAME.items()}
    assert found == {name: expected_recovery(api, name) for name in BY_NAME}


LOCAL: dict[Callable[[], BaseException], Mapping[TransactionRequestKind, TransactionErrorAction]] = {
    # TxnRequestHandler.onComplete: disconnected, so lookupCoordinator and reenqueue.
    KafkaConnectionError: dict.fromkeys(TransactionRequestKind, R.FIND) | {TransactionRequestKind.PRODUCE: R.ABORT},
    UnknownBrokerIdError: dict.fromkeys(TransactionRequestKind, R.FIND) | {TransactionRequestKind.PRODUCE: R.ABORT},
    KafkaTimeoutError: dict.fromkeys(TransactionRequestKind, R.FIND) | {TransactionRequestKind.PRODUCE: R.ABORT},
    # onComplete: versionMismatch is fatalError; maybeTransitionToErrorState: UnsupportedVersionException is fatal.
    IncompatibleBrokerVersion: dict.fromkeys(TransactionRequestKind, R.FATAL)
    | {TransactionRequestKind.ADD_PARTITIONS: R.FATAL},
    # A fault of ours is not sent again: as an error that the request does not expect.
    ValueError: dict.fromkeys(TransactionRequestKind, R.FATAL)
    | {TransactionRequestKind.ADD_PARTITIONS: R.ABORT, TransactionRequestKind.PRODUCE: R.ABORT},
}
"""Errors that no broker answers."""


@pytest.mark.parametrize("api", TransactionRequestKind)
def test_of_an_error_of_the_connection_or_the_version_a_transaction_does_what_java_does(
    api: TransactionRequestKind,
) -> None:
    found = {make: errors.TRANSACTION_ERROR_ACTIONS[api].action_for(make()) for make in LOCAL}
    assert found == {make: row[api] for make, row in LOCAL.items()}


def test_only_three_recoveries_send_the_request_again() -> None:
    assert {recovery for recovery in TransactionErrorAction if recovery.is_retry} == {R.RETRY, R.QUICKLY, R.FIND}
