"""The machine of transactions, alone: what may be called when, and what errors make of it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from kafka.core.produce.batch import PartitionQueue, ProducerBatch, ProducerIdAndEpoch
from kafka.core.produce.errors import (
    TRANSACTION_ERROR_ACTIONS,
    TransactionErrorAction,
    TransactionRequestKind,
)
from kafka.core.produce.transactions import TransactionManager
from kafka.core.states import TRANSACTION_PHASES, TransactionPhase
from kafka.errors import (
    ERRORS_BY_CODE,
    AbortableTransactionError,
    ClusterAuthorizationFailedError,
    FatalTransactionError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationFailedError,
    UnknownProducerIdError,
)
from kafka.records import RecordBatchBuilder
from test.support.seeds import each_seed

IDENTITY = ProducerIdAndEpoch(7, 3)
ABORTABLE = TopicAuthorizationFailedError("t")
FATAL = TransactionalIdAuthorizationFailedError("id")


def machine(
    state: TransactionPhase = TransactionPhase.READY, *, version: int = 2, can_bump: bool = True
) -> TransactionManager:
    """One that has come to ``state`` on the usual way."""
    made = TransactionManager("id")
    if state is TransactionPhase.UNINITIALIZED:
        return made
    made.begin_initializing()
    if state is TransactionPhase.INITIALIZING:
        return made
    made.initialized(IDENTITY, can_bump=can_bump, version=version)
    if state is TransactionPhase.READY:
        return made
    made.begin()
    steps: dict[TransactionPhase, Callable[[], object]] = {
        TransactionPhase.IN_TRANSACTION: lambda: None,
        TransactionPhase.COMMITTING: made.begin_commit,
        TransactionPhase.ABORTING: made.begin_abort,
        TransactionPhase.ABORTABLE_ERROR: lambda: made.failed(TransactionRequestKind.ADD_PARTITIONS, ABORTABLE),
        TransactionPhase.FATAL_ERROR: lambda: made.failed(TransactionRequestKind.ADD_PARTITIONS, FATAL),
    }
    steps[state]()
    assert made.state is state
    return made


def queue(partition: int = 0) -> PartitionQueue:
    return PartitionQueue("t", partition)


def batch(where: PartitionQueue, sequence: int = -1, *, in_doubt: bool = False) -> ProducerBatch:
    made = ProducerBatch(where, 1, RecordBatchBuilder(1000), 0.0, lambda: None)
    if sequence >= 0:
        made.number(*IDENTITY, sequence)
        made.in_doubt = in_doubt
        where.numbers.has_gap = True
        where.numbers.next_sequence = sequence + 5
    return made


CALLS: dict[str, tuple[Callable[[TransactionManager], object], set[TransactionPhase]]] = {
    "init": (TransactionManager.begin_initializing, {TransactionPhase.UNINITIALIZED}),
    "begin": (TransactionManager.begin, {TransactionPhase.READY}),
    "send": (TransactionManager.check_sending, {TransactionPhase.IN_TRANSACTION}),
    "commit": (TransactionManager.begin_commit, {TransactionPhase.IN_TRANSACTION}),
    "abort": (TransactionManager.begin_abort, {TransactionPhase.IN_TRANSACTION, TransactionPhase.ABORTABLE_ERROR}),
}


@pytest.mark.parametrize("state", TransactionPhase)
@pytest.mark.parametrize("call", CALLS)
def test_each_call_is_taken_in_its_states_and_refused_in_all_others_by_an_error_that_says_what_is_left(
    state: TransactionPhase, call: str
) -> None:
    made = machine(state)
    run, allowed = CALLS[call]
    if state in allowed:
        run(made)
        return
    wanted: type[Exception] = IllegalStateError
    if state is TransactionPhase.FATAL_ERROR:
        wanted = FatalTransactionError
    elif state is TransactionPhase.ABORTABLE_ERROR:
        wanted = AbortableTransactionError
    with pytest.raises(wanted) as raised:
        run(made)
    assert made.state is state, "a refused call changes nothing"
    if wanted is not IllegalStateError:
        assert not raised.value.retriable  # type: ignore[attr-defined]
        assert isinstance(raised.value, FatalTransactionError) != isinstance(raised.value, AbortableTransactionError)


@pytest.mark.parametrize(
    ("state", "call", "text"),
    [
        (TransactionPhase.UNINITIALIZED, "begin", "init_transactions() has to be called first"),
        (TransactionPhase.INITIALIZING, "begin", "init_transactions() is not done yet"),
        (TransactionPhase.READY, "send", "no transaction has begun: begin_transaction() first"),
        (
            TransactionPhase.IN_TRANSACTION,
            "begin",
            "a transaction is under way: commit_transaction() or abort_transaction()",
        ),
        (TransactionPhase.COMMITTING, "begin", "the transaction is being committed"),
        (TransactionPhase.ABORTING, "begin", "the transaction is being aborted"),
        (TransactionPhase.READY, "init", "init_transactions() has been called already"),
    ],
)
def test_a_call_out_of_turn_is_an_error_with_what_is_missing(state: TransactionPhase, call: str, text: str) -> None:
    with pytest.raises(IllegalStateError, match=re.escape(text)):
        CALLS[call][0](machine(state))


def test_a_new_machine_has_nothing_to_end_and_speaks_version_1_by_default() -> None:
    made = TransactionManager("id")
    assert (made.state, made.identity, made.version) == (TransactionPhase.UNINITIALIZED, (-1, -1), 1)
    assert not made.can_bump and not made.needs_bump and not made.is_started and not made.has_new_partitions


@pytest.mark.parametrize("state", TransactionPhase)
def test_a_transaction_can_be_aborted_before_its_end_is_under_way(state: TransactionPhase) -> None:
    assert machine(state).is_open == (state in (TransactionPhase.IN_TRANSACTION, TransactionPhase.ABORTABLE_ERROR))


@pytest.mark.parametrize("state", TransactionPhase)
def test_a_request_makes_sense_until_the_producer_is_over_and_offsets_only_in_a_transaction(
    state: TransactionPhase,
) -> None:
    made = machine(state)
    is_over = state is TransactionPhase.FATAL_ERROR
    assert {made.allows(api) for api in TransactionRequestKind if api is not TransactionRequestKind.COMMIT_OFFSETS} == {
        not is_over
    }
    assert made.allows(TransactionRequestKind.COMMIT_OFFSETS) == (
        state in (TransactionPhase.IN_TRANSACTION, TransactionPhase.COMMITTING)
    )
    refusal = made.refusal()
    assert isinstance(refusal, FatalTransactionError if is_over else AbortableTransactionError)
    if state is TransactionPhase.ABORTABLE_ERROR:
        assert isinstance(refusal, TopicAuthorizationFailedError)
    elif is_over:
        assert isinstance(refusal, TransactionalIdAuthorizationFailedError)
    else:
        assert isinstance(refusal, TransactionAbortedError)


def test_an_error_keeps_its_own_class_beside_its_group() -> None:
    made = machine(TransactionPhase.ABORTABLE_ERROR)
    with pytest.raises(TopicAuthorizationFailedError, match="can only be aborted: abort_transaction"):
        made.begin_commit()
    with pytest.raises(AbortableTransactionError):
        made.begin_commit()


def test_every_call_of_a_fenced_producer_names_its_transactional_id() -> None:
    made = machine(TransactionPhase.IN_TRANSACTION)
    made.failed(TransactionRequestKind.END, InvalidProducerEpochError("EndTxn"))
    for run, _ in CALLS.values():
        with pytest.raises(ProducerFencedError, match="another producer has taken over the transactional id 'id'"):
            run(made)


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", TRANSACTION_ERROR_ACTIONS)
@pytest.mark.parametrize(
    "state", [TransactionPhase.IN_TRANSACTION, TransactionPhase.COMMITTING, TransactionPhase.ABORTING]
)
@pytest.mark.parametrize(("version", "can_bump"), [(2, True), (1, True), (1, False)])
def test_whatever_code_comes_the_machine_takes_a_step_that_its_table_has(
    api: TransactionRequestKind, version: int, can_bump: bool, state: TransactionPhase
) -> None:
    for cls in ERRORS_BY_CODE.values():
        made = machine(state, version=version, can_bump=can_bump)
        recovery = TRANSACTION_ERROR_ACTIONS[api].action_for(cls("x"))
        if recovery.is_retry:
            continue
        raised = made.failed(api, cls("x"))
        assert made.state is state or made.state in TRANSACTION_PHASES[state]
        assert isinstance(raised, (AbortableTransactionError, FatalTransactionError))
        is_fatal = isinstance(raised, FatalTransactionError)
        assert is_fatal == (made.state is TransactionPhase.FATAL_ERROR)
        assert is_fatal == (
            recovery in (TransactionErrorAction.FATAL, TransactionErrorAction.FENCED, TransactionErrorAction.AGAIN)
            or (recovery is TransactionErrorAction.BUMP and version < 2 and not can_bump)
            or (state is TransactionPhase.ABORTING and api is TransactionRequestKind.END)
        )
        assert isinstance(raised, ProducerFencedError) == (recovery is TransactionErrorAction.FENCED)


@pytest.mark.parametrize("api", TransactionRequestKind)
def test_each_request_has_its_rows_and_what_is_not_named_goes_by_its_class(api: TransactionRequestKind) -> None:
    assert api in TRANSACTION_ERROR_ACTIONS
    assert not TRANSACTION_ERROR_ACTIONS[api].otherwise.is_retry
    if api is not TransactionRequestKind.PRODUCE:
        assert TRANSACTION_ERROR_ACTIONS[api].action_for(KafkaConnectionError("x")) is TransactionErrorAction.FIND
        assert TRANSACTION_ERROR_ACTIONS[api].action_for(ERRORS_BY_CODE[14]("loading")) is TransactionErrorAction.RETRY


def test_what_initializing_is_refused_for_may_be_asked_again() -> None:
    made = machine(TransactionPhase.INITIALIZING)
    error = TransactionalIdAuthorizationFailedError("x")
    assert made.failed(TransactionRequestKind.INIT, error) is error
    assert made.state is TransactionPhase.UNINITIALIZED
    made.begin_initializing()
    made.initialized(IDENTITY, can_bump=True, version=2)
    assert made.state is TransactionPhase.READY


def test_the_error_that_comes_second_changes_nothing() -> None:
    made = machine(TransactionPhase.ABORTABLE_ERROR)
    error_of_call = made.failed(TransactionRequestKind.COMMIT_OFFSETS, TransactionAbortableError("second"))
    assert isinstance(error_of_call, TopicAuthorizationFailedError)
    made.failed(TransactionRequestKind.END, InvalidProducerEpochError("x"))
    assert isinstance(made.failed(TransactionRequestKind.ADD_PARTITIONS, ABORTABLE), ProducerFencedError)


# -- batches ----------------------------------------------------------------------------------------------------------


def test_version_2_sends_at_once_and_version_1_asks_for_partitions_first() -> None:
    new, old = machine(TransactionPhase.IN_TRANSACTION, version=2), machine(TransactionPhase.IN_TRANSACTION, version=1)
    assert new.may_send(queue(), in_doubt=False)
    assert new.is_started
    assert not new.has_new_partitions
    assert not old.may_send(queue(0), in_doubt=False)
    assert not old.may_send(queue(1), in_doubt=False)
    assert old.has_new_partitions
    assert [p.partition for p in old.take_new_partitions()] == [0, 1], "one request for all"
    assert not old.may_send(queue(0), in_doubt=False)
    assert not old.may_send(queue(2), in_doubt=False)
    assert not old.has_new_partitions, "one request at a time"
    old.partitions_done(are_added=True)
    assert old.may_send(queue(0), in_doubt=False)
    assert old.has_new_partitions, "partition 2"


@pytest.mark.parametrize("state", [TransactionPhase.ABORTABLE_ERROR, TransactionPhase.ABORTING])
def test_after_an_error_only_what_may_be_in_the_log_already_is_sent_again(state: TransactionPhase) -> None:
    made = machine(state)
    assert not made.may_send(queue(), in_doubt=False)
    assert made.may_send(queue(), in_doubt=True)


@pytest.mark.parametrize("state", [TransactionPhase.ABORTABLE_ERROR, TransactionPhase.ABORTING])
def test_what_is_refused_in_flight_after_an_error_fails_and_does_not_wait_for_ever(state: TransactionPhase) -> None:
    made = machine(state)
    assert not made.may_retry(batch(queue(), 4))
    assert made.may_retry(batch(queue(), 4, in_doubt=True))
    assert machine(TransactionPhase.COMMITTING).may_retry(batch(queue(), 4))


@pytest.mark.parametrize(
    "state", [TransactionPhase.UNINITIALIZED, TransactionPhase.READY, TransactionPhase.FATAL_ERROR]
)
def test_nothing_is_sent_outside_a_transaction(state: TransactionPhase) -> None:
    assert not machine(state).may_send(queue(), in_doubt=False)


def test_after_the_end_of_the_producer_nothing_is_sent_again_whatever_is_in_doubt() -> None:
    made = machine(TransactionPhase.FATAL_ERROR)
    assert not made.may_send(queue(), in_doubt=True)
    assert not made.may_retry(batch(queue(), 4, in_doubt=True))


def test_partitions_that_were_not_added_are_asked_for_again_and_start_nothing() -> None:
    made = machine(TransactionPhase.IN_TRANSACTION, version=1)
    made.may_send(queue(), in_doubt=False)
    assert made.take_new_partitions() == [("t", 0)]
    made.partitions_done(are_added=False)
    assert not made.is_started and not made.has_new_partitions
    assert not made.may_send(queue(), in_doubt=False)
    assert made.take_new_partitions() == [("t", 0)]
    made.partitions_done(are_added=True)
    assert made.is_started


def test_a_coordinator_that_has_a_group_in_the_transaction_must_get_its_end() -> None:
    made = machine(TransactionPhase.IN_TRANSACTION)
    assert not made.is_started
    made.offsets_added()
    assert made.is_started
    made.begin_commit()
    made.ended(None, 2)
    assert not made.is_started


def test_a_batch_that_was_never_sent_needs_no_new_epoch() -> None:
    made = machine(TransactionPhase.COMMITTING, version=1)
    made.batch_failed(batch(queue()), KafkaTimeoutError("too late"))
    assert made.state is TransactionPhase.ABORTABLE_ERROR
    made.begin_abort()
    assert made.ended(None, 1)


def test_a_failed_number_makes_version_1_ask_for_the_next_epoch() -> None:
    made = machine(TransactionPhase.IN_TRANSACTION, version=1)
    made.batch_failed(batch(queue(), 4, in_doubt=True), KafkaTimeoutError("too late"))
    made.begin_abort()
    assert not made.ended(None, 1)
    assert made.state is TransactionPhase.INITIALIZING
    made.initialized(ProducerIdAndEpoch(7, 4), can_bump=True, version=1)
    assert made.state is TransactionPhase.READY


def test_with_version_2_the_end_brings_the_next_epoch() -> None:
    made = machine(TransactionPhase.IN_TRANSACTION, version=2)
    made.batch_failed(batch(queue(), 4, in_doubt=True), KafkaTimeoutError("too late"))
    made.begin_abort()
    assert made.ended(ProducerIdAndEpoch(7, 4), 2)
    assert made.identity == (7, 4)


def test_where_nobody_gives_an_epoch_a_number_that_was_not_used_is_used_again() -> None:
    made = machine(TransactionPhase.IN_TRANSACTION, version=1, can_bump=False)
    refused, lost = queue(0), queue(1)
    made.batch_failed(batch(refused, 4), MessageSizeTooLargeError("t-0"))
    made.batch_failed(batch(refused, 6), OutOfOrderSequenceNumberError("t-0"))
    made.batch_failed(batch(lost, 9), UnknownProducerIdError("t-1"))
    made.begin_abort()
    assert made.ended(None, 1)
    assert (refused.numbers.next_sequence, refused.numbers.has_gap) == (4, False)
    assert (lost.numbers.next_sequence, lost.numbers.has_gap) == (0, False), "the leader has forgotten the producer"


@pytest.mark.parametrize("sequence", [0, 4])
def test_where_nobody_gives_an_epoch_a_number_that_may_be_used_ends_the_producer(sequence: int) -> None:
    made = machine(TransactionPhase.IN_TRANSACTION, version=1, can_bump=False)
    made.batch_failed(batch(queue(), sequence, in_doubt=True), KafkaTimeoutError("too late"))
    assert made.state is TransactionPhase.FATAL_ERROR
    with pytest.raises(FatalTransactionError, match="gives no new epoch"):
        made.begin_abort()


@pytest.mark.parametrize(
    ("version", "can_bump", "sequence", "in_doubt", "needs_bump"),
    [
        (1, True, 0, False, True),
        (1, True, 4, True, True),
        (1, True, -1, False, False),  # it was never sent
        (1, False, 0, False, False),  # the number is used again
        (2, True, 4, True, False),  # the end brings the next epoch
        (2, False, 4, True, False),
    ],
)
def test_a_batch_that_fails_aborts_its_transaction_and_takes_an_epoch_where_its_end_brings_none(
    version: int, can_bump: bool, sequence: int, in_doubt: bool, needs_bump: bool
) -> None:
    made = machine(TransactionPhase.IN_TRANSACTION, version=version, can_bump=can_bump)
    made.batch_failed(batch(queue(), sequence, in_doubt=in_doubt), KafkaTimeoutError("too late"))
    assert made.state is TransactionPhase.ABORTABLE_ERROR
    assert made.needs_bump is needs_bump


def test_the_first_number_that_was_not_used_is_used_again_as_any_other_and_not_where_an_epoch_comes() -> None:
    for can_bump, identity, is_used_again in ((False, None, True), (True, None, False), (False, (7, 4), False)):
        made = machine(TransactionPhase.IN_TRANSACTION, version=1, can_bump=can_bump)
        refused = queue()
        made.batch_failed(batch(refused, 0), MessageSizeTooLargeError("t-0"))
        made.begin_abort()
        made.ended(None if identity is None else ProducerIdAndEpoch(*identity), 1)
        assert (refused.numbers.next_sequence, refused.numbers.has_gap) == ((0, False) if is_used_again else (5, True))


@pytest.mark.parametrize(
    "state", [TransactionPhase.INITIALIZING, TransactionPhase.ABORTING, TransactionPhase.COMMITTING]
)
def test_an_error_of_a_batch_that_ends_the_producer_ends_it_in_each_state(state: TransactionPhase) -> None:
    """TransactionManager.maybeTransitionToErrorState."""
    made = machine(state)
    made.batch_failed(batch(queue(), 4), ClusterAuthorizationFailedError("t-0"))
    assert made.state is TransactionPhase.FATAL_ERROR


def test_a_batch_that_fails_during_the_abort_changes_nothing() -> None:
    made = machine(TransactionPhase.ABORTING)
    made.batch_failed(batch(queue(), 4), MessageSizeTooLargeError("t-0"))
    assert made.state is TransactionPhase.ABORTING
    assert made.error is None


@pytest.mark.parametrize(
    ("identity", "after"),
    [(None, (7, 3)), ((-1, -1), (7, 3)), ((7, 4), (7, 4)), ((0, 0), (0, 0))],
)
def test_the_end_brings_an_id_and_epoch_or_the_producer_goes_on_with_those_it_has(
    identity: tuple[int, int] | None, after: tuple[int, int]
) -> None:
    """EndTxnResponse: -1 for none (KIP-890); 0 is an id as any other."""
    made = machine(TransactionPhase.COMMITTING)
    assert made.ended(None if identity is None else ProducerIdAndEpoch(*identity), 2)
    assert made.identity == after
    assert made.state is TransactionPhase.READY


@pytest.mark.parametrize(
    ("before", "after", "can_bump", "needs_bump"),
    [
        (1, 2, True, True),
        (1, 3, True, True),
        (1, 2, False, False),
        (1, 1, True, False),
        (2, 2, True, False),
        (2, 1, True, False),
    ],
)
def test_only_the_step_to_version_2_takes_an_epoch_of_its_own(
    before: int, after: int, can_bump: bool, needs_bump: bool
) -> None:
    made = machine(TransactionPhase.COMMITTING, version=before, can_bump=can_bump)
    made.prepare_end(after)
    assert made.needs_bump is needs_bump
    assert made.ended(None, after) is not needs_bump
    assert made.state is (TransactionPhase.INITIALIZING if needs_bump else TransactionPhase.READY)
    assert made.version == (before if needs_bump else after)


@pytest.mark.parametrize(
    ("version", "can_bump", "state", "needs_bump"),
    [
        (1, True, TransactionPhase.ABORTABLE_ERROR, True),  # abortableErrorIfPossible
        (1, False, TransactionPhase.FATAL_ERROR, False),
        (2, True, TransactionPhase.ABORTABLE_ERROR, False),  # KIP-890: the end brings the next epoch
        (2, False, TransactionPhase.ABORTABLE_ERROR, False),
    ],
)
def test_a_lost_producer_state_takes_an_epoch_where_the_end_brings_none_and_somebody_gives_one(
    version: int, can_bump: bool, state: TransactionPhase, needs_bump: bool
) -> None:
    made = machine(TransactionPhase.IN_TRANSACTION, version=version, can_bump=can_bump)
    made.failed(TransactionRequestKind.ADD_OFFSETS, UnknownProducerIdError("group"))
    assert (made.state, made.needs_bump) == (state, needs_bump)


def test_an_epoch_that_is_needed_already_stays_needed_at_the_end() -> None:
    made = machine(TransactionPhase.IN_TRANSACTION, version=1)
    made.failed(TransactionRequestKind.ADD_PARTITIONS, UnknownProducerIdError("t-0"))
    assert made.needs_bump
    made.begin_abort()
    made.prepare_end(2)
    assert made.needs_bump
    made.ended(None, 2)
    made.initialized(ProducerIdAndEpoch(7, 4), can_bump=True, version=2)
    assert not made.needs_bump


def test_a_transaction_that_the_broker_has_ended_says_so() -> None:
    for error, is_said in ((InvalidTxnStateError("EndTxn"), True), (FATAL, False)):
        error_of_call = machine(TransactionPhase.COMMITTING).failed(TransactionRequestKind.END, error)
        assert ("longer than transaction_timeout_ms" in str(error_of_call)) is is_said
        assert "close it" in str(error_of_call)


def test_an_old_epoch_in_produce_is_found_out_by_the_abort() -> None:
    made = machine(TransactionPhase.IN_TRANSACTION)
    made.batch_failed(batch(queue(), 4), InvalidProducerEpochError("t-0"))
    assert made.state is TransactionPhase.ABORTABLE_ERROR, "KIP-588: it may have been a time-out at the broker"
    made.begin_abort()
    made.failed(TransactionRequestKind.END, ProducerFencedError("EndTxn"))
    assert made.state is TransactionPhase.FATAL_ERROR


def test_an_upgrade_of_the_cluster_takes_an_epoch() -> None:
    made = machine(TransactionPhase.IN_TRANSACTION, version=1)
    made.begin_commit()
    made.prepare_end(2)
    assert not made.ended(None, 2)
    made.initialized(ProducerIdAndEpoch(7, 4), can_bump=True, version=2)
    made.begin()
    made.begin_commit()
    made.prepare_end(1)
    assert made.ended(ProducerIdAndEpoch(7, 5), 1), "and the way back none"
    assert made.version == 1


def test_records_that_an_abort_drops_say_so_or_why() -> None:
    assert isinstance(machine(TransactionPhase.IN_TRANSACTION).begin_abort(), TransactionAbortedError)
    assert isinstance(machine(TransactionPhase.ABORTABLE_ERROR).begin_abort(), TopicAuthorizationFailedError)


def test_the_sender_gets_errors_once() -> None:
    phases: list[TransactionPhase] = []
    made = machine(TransactionPhase.IN_TRANSACTION)
    made.on_error = lambda: phases.append(made.state)
    made.failed(TransactionRequestKind.ADD_PARTITIONS, ABORTABLE)
    made.failed(TransactionRequestKind.ADD_PARTITIONS, ABORTABLE)
    made.failed(TransactionRequestKind.ADD_PARTITIONS, FATAL)
    made.failed(TransactionRequestKind.ADD_PARTITIONS, FATAL)
    assert phases == [TransactionPhase.ABORTABLE_ERROR, TransactionPhase.FATAL_ERROR]


# -- a random walk ----------------------------------------------------------------------------------------------------


@each_seed(200)
def test_no_sequence_of_calls_and_errors_leads_anywhere_but_along_the_table(seed: int) -> None:
    """The machine raises RuntimeError for a step that its table lacks: that must not happen. Whatever comes, an error's
    group says the truth about what is left."""
    rng = random.Random(seed)
    version, can_bump = rng.choice([(2, True), (1, True), (1, False)])
    made = TransactionManager("id")
    queues = [queue(number) for number in range(3)]
    epoch = 0
    for _ in range(60):
        before = made.state
        step = rng.randrange(12)
        try:
            if step < 5:
                list(CALLS.values())[step][0](made)
            elif step == 5 and before is TransactionPhase.INITIALIZING:
                epoch += 1
                made.initialized(ProducerIdAndEpoch(7, epoch), can_bump=can_bump, version=version)
            elif step == 6 and before in (TransactionPhase.COMMITTING, TransactionPhase.ABORTING):
                made.prepare_end(version)
                if version >= 2 and made.is_started:
                    epoch += 1
                    made.ended(ProducerIdAndEpoch(7, epoch), version)
                else:
                    made.ended(None, version)
                assert not made.is_started
            elif step == 7:
                made.may_send(rng.choice(queues), in_doubt=rng.random() < 0.1)
            elif step == 8 and made.has_new_partitions:
                made.take_new_partitions()
                made.partitions_done(are_added=rng.random() < 0.8)
            elif step == 9 and before is not TransactionPhase.READY and rng.random() < 0.3:
                failed = batch(rng.choice(queues), rng.choice((-1, 5)), in_doubt=rng.random() < 0.3)
                made.batch_failed(failed, rng.choice(list(ERRORS_BY_CODE.values()))("x"))
            elif (
                step == 10
                and before not in (TransactionPhase.UNINITIALIZED, TransactionPhase.READY)
                and rng.random() < 0.3
            ):
                api = (
                    TransactionRequestKind.INIT
                    if before is TransactionPhase.INITIALIZING
                    else rng.choice(list(TransactionRequestKind))
                )
                error = rng.choice(list(ERRORS_BY_CODE.values()))("x")
                if not TRANSACTION_ERROR_ACTIONS[api].action_for(error).is_retry:
                    made.failed(api, error)
        except AbortableTransactionError:
            assert made.state is TransactionPhase.ABORTABLE_ERROR
        except FatalTransactionError:
            assert made.state is TransactionPhase.FATAL_ERROR
        except IllegalStateError:
            assert made.state is before
        assert made.state is before or made.state in TRANSACTION_PHASES[before]
        assert (made.error is not None) >= (
            made.state in (TransactionPhase.ABORTABLE_ERROR, TransactionPhase.FATAL_ERROR)
        )


@pytest.mark.parametrize("version", [1, 2])
def test_nothing_is_sent_while_the_transaction_ends(version: int) -> None:
    queue, made = PartitionQueue("t", 0), machine(TransactionPhase.IN_TRANSACTION, version=version)
    made.may_send(queue, in_doubt=False)
    made.take_new_partitions()
    made.partitions_done(are_added=True)
    made.begin_commit()
    assert made.may_send(queue, in_doubt=False), "it is part of the transaction still"
    made.prepare_end(version)
    assert not made.may_send(queue, in_doubt=False), "it could come after the marker, and stay open for ever"
    made.ended(None, version)
    made.begin()
    assert made.may_send(queue, in_doubt=False) is (version == 2)
