"""The machine of a transactional producer: what may be done now, what an error makes of that, which batches may go out.

    UNINITIALIZED ──init──► INITIALIZING ──epoch──► READY ◄──────────────────────────────┐
          ▲                  │       ▲                │ begin                            │
          └── refused now ───┘       │                ▼                                  │
                                     │          IN_TRANSACTION ──commit──► COMMITTING ───┤
                            another epoch is          │    │                   │        │ ended
                            needed, and EndTxn        │    └───abort───┐     error       │
                            did not bring it          │ error          │       │         │
                                     │                ▼                ▼       │         │
                                     │         ABORTABLE_ERROR ──► ABORTING ───┼─────────┤
                                     │                ▲                │       │         │
                                     │                └────────────────┼───────┘         │
                                     └─────────────────────────────────┴─────────────────┘
    any of them ──an error that ends the producer──► FATAL_ERROR

Two protocols. Version 2 (KIP-890), where the cluster's finalized feature ``transaction.version`` is 2 or more: the
broker adds partitions and groups by itself, and every EndTxn brings a new epoch, so that nothing that is late gets into
the next transaction. Version 1: the producer adds partitions (before their first batch) and groups by requests of its
own, keeps its epoch from end to end, and after an error that may have left records behind asks for the next one
(KIP-360), which brokers before 2.5 cannot give. The version may change between two transactions: when the cluster has
been upgraded, the step from 1 to 2 takes an epoch of its own.

The machine sends nothing and knows no time: the dialogues of ``kafka/producer/transactions.py`` send, and tell
it what came; what an error means is the table in ``core/produce/errors.py``. It belongs to the loop's thread. Steps
that the table in ``core/states.py`` lacks are refused there; what users may not call now is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafka.core.produce.batch import PartitionQueue, ProducerBatch, ProducerIdAndEpoch
from kafka.core.produce.errors import TRANSACTION_ERROR_ACTIONS, TransactionErrorAction, TransactionRequestKind
from kafka.core.states import TRANSACTION_PHASES, States, TransactionPhase
from kafka.errors import (
    IllegalStateError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionError,
    UnknownProducerIdError,
    as_abortable,
    as_fatal,
)
from kafka.structs import TopicPartition

LAST_PRODUCE_OF_VERSION_1: Final = 11
"""From Produce v12 on the broker adds the partition to the transaction (KIP-890)."""

ONLY_ABORT: Final = "the transaction can only be aborted: abort_transaction()"
CLOSE_IT: Final = "this producer has no transactions any more: close it"
ENDED_IT: Final = "the broker has ended the transaction: it took longer than transaction_timeout_ms, perhaps"

_OPEN: Final = (TransactionPhase.IN_TRANSACTION, TransactionPhase.COMMITTING)
_ERRORS: Final = (TransactionPhase.ABORTABLE_ERROR, TransactionPhase.FATAL_ERROR)
_WHY_NOT: Final[dict[TransactionPhase, str]] = {
    TransactionPhase.UNINITIALIZED: "init_transactions() has to be called first",
    TransactionPhase.INITIALIZING: "init_transactions() is not done yet",
    TransactionPhase.READY: "no transaction has begun: begin_transaction() first",
    TransactionPhase.IN_TRANSACTION: "a transaction is under way: commit_transaction() or abort_transaction() first",
    TransactionPhase.COMMITTING: "the transaction is being committed",
    TransactionPhase.ABORTING: "the transaction is being aborted",
}


class TransactionManager:
    """One producer's transactions."""

    __slots__ = (
        "_added", "_is_end_requested", "_new", "_pending", "_rewinds", "_states", "can_bump", "error", "identity",
        "is_started", "needs_bump", "on_error", "transactional_id", "version",
    )  # fmt: skip

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.on_error: Callable[[], object] = lambda: None
        """Called when the state becomes one of the two errors: the sender has to know. It may be called in the
        middle of anything: nothing may be done to batches there."""
        self.identity = ProducerIdAndEpoch()
        self.version = 1
        """Of the protocol, in this transaction."""
        self.can_bump = False
        """Whether the coordinator gives the next epoch of a producer id (InitProducerId v3)."""
        self.needs_bump = False
        """The next transaction needs another epoch than this one has."""
        self.is_started = False
        """The coordinator may know of this transaction, so EndTxn has to be sent."""
        self.error: TransactionError | None = None
        self._states: States[TransactionPhase] = States(
            TRANSACTION_PHASES, TransactionPhase.UNINITIALIZED, "transaction"
        )
        # A partition goes from `_new` to `_pending` (its AddPartitionsToTxn is under way) to `_added`.
        self._new: dict[TopicPartition, None] = {}
        self._pending: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._is_end_requested = False
        """EndTxn is under way: a record that came after it could be in the log behind the marker, and for ever open."""
        self._rewinds: dict[PartitionQueue, int] = {}
        """Partitions that have lost a batch, and the sequence that their leaders wait for still."""

    def call_on_error(self, action: Callable[[], object]) -> None:
        """``action`` is called when an error ends what the transaction may do."""
        self.on_error = action

    @property
    def state(self) -> TransactionPhase:
        return self._states.now

    @property
    def is_open(self) -> bool:
        """There is something that :meth:`begin_abort` would abort."""
        return self.state in (TransactionPhase.IN_TRANSACTION, TransactionPhase.ABORTABLE_ERROR)

    # -- what users call -----------------------------------------------------------------------------------------------

    def check_sending(self) -> None:
        """Raise unless records and offsets may become part of a transaction now."""
        self._check(TransactionPhase.IN_TRANSACTION)

    def begin_initializing(self) -> None:
        self._check(TransactionPhase.UNINITIALIZED, "init_transactions() has been called already")
        self._states.enter(TransactionPhase.INITIALIZING)

    def begin(self) -> None:
        self._check(TransactionPhase.READY)
        self._states.enter(TransactionPhase.IN_TRANSACTION)

    def begin_commit(self) -> None:
        self._check(TransactionPhase.IN_TRANSACTION)
        self._states.enter(TransactionPhase.COMMITTING)

    def begin_abort(self) -> Exception:
        """The error that records get which were not sent yet."""
        if self.state is not TransactionPhase.ABORTABLE_ERROR:
            self._check(TransactionPhase.IN_TRANSACTION)
        self._states.enter(TransactionPhase.ABORTING)
        self._new.clear()
        return self.error or TransactionAbortedError("the transaction was aborted before the record was sent")

    def _check(self, wanted: TransactionPhase, why_not: str = "") -> None:
        if self.state in _ERRORS:
            raise self.refusal()
        if self.state is not wanted:
            raise IllegalStateError(why_not or _WHY_NOT[self.state])

    # -- batches -------------------------------------------------------------------------------------------------------

    def may_send(self, queue: PartitionQueue, *, in_doubt: bool) -> bool:
        """Whether a batch of the partition may go out now. ``in_doubt``: it went out before, and may be in the log: as
        long as that is unknown, EndTxn cannot be sent. A request that arrives behind the marker would
        begin a transaction that never ends; version 1 has no other help against that (KIP-890)."""
        if self.state not in _OPEN or self._is_end_requested:
            return in_doubt and self.state is not TransactionPhase.FATAL_ERROR
        if self.version >= 2:
            self.is_started = True
            return True
        where = TopicPartition(queue.topic, queue.partition)
        if where in self._added:
            return True
        if where not in self._pending:
            self._new[where] = None
        return False

    def may_retry(self, batch: ProducerBatch) -> bool:
        """Whether a batch that was refused is to be sent again; otherwise it fails: its transaction is over."""
        return self.state in _OPEN or (batch.in_doubt and self.state is not TransactionPhase.FATAL_ERROR)

    def batch_failed(self, batch: ProducerBatch, error: BaseException) -> None:
        """A batch has failed for good. One that has a number leaves a gap: what follows it in the partition can only
        be written under another epoch, or, where the coordinator gives none, when the number is used again: so it must
        be known that it was not used. Brokers before 2.5 give no next epoch. InitProducerId without an epoch would,
        but would also fence a producer that has taken over meanwhile (seen on 0.11.0.3 and 1.1.1)."""
        if batch.sequence >= 0:
            self._rewinds.setdefault(batch.queue, 0 if isinstance(error, UnknownProducerIdError) else batch.sequence)
        action = TRANSACTION_ERROR_ACTIONS[TransactionRequestKind.PRODUCE].action_for(error)
        if action is not TransactionErrorAction.ABORT:
            self.failed(TransactionRequestKind.PRODUCE, error)
        elif batch.sequence >= 0 and self.version < 2 and not self.can_bump and batch.in_doubt:
            doubt = "the records may be in the log or not, and the broker gives no new epoch"
            self._enter_fatal(as_fatal(error, f"{doubt}; {CLOSE_IT}"))
        else:
            if batch.sequence >= 0 and self.version < 2:
                self.needs_bump = self.can_bump
            if self.state in _OPEN:
                self._enter_abortable(error)

    # -- partitions (version 1) ----------------------------------------------------------------------------------------

    @property
    def has_new_partitions(self) -> bool:
        return bool(self._new) and not self._pending

    def take_new_partitions(self) -> list[TopicPartition]:
        """Those that batches wait for; :meth:`partitions_done` is owed for them."""
        self._pending, self._new = self._new, {}
        return list(self._pending)

    def partitions_done(self, *, are_added: bool) -> None:
        """What was taken has been added, or has not and will not be."""
        if are_added:
            self._added.update(self._pending)
            self.is_started = True
        self._pending = {}

    def offsets_added(self) -> None:
        """The coordinator knows of the group; with version 2 it may, once offsets were sent."""
        self.is_started = True

    # -- what came -----------------------------------------------------------------------------------------------------

    def allows(self, api: TransactionRequestKind) -> bool:
        """Whether it makes sense to send a request (again)."""
        if api is TransactionRequestKind.COMMIT_OFFSETS:
            return self.state in _OPEN
        return self.state is not TransactionPhase.FATAL_ERROR

    def initialized(self, identity: ProducerIdAndEpoch, *, can_bump: bool, version: int) -> None:
        """The coordinator gave an id and epoch."""
        self.identity = identity
        self.can_bump = can_bump
        self.version = version
        self.needs_bump = False
        self._states.enter(TransactionPhase.READY)

    def prepare_end(self, version: int) -> None:
        """The end is about to be told. ``version``: what the cluster speaks now; it holds from the next transaction on,
        but for that the step from 1 to 2 needs an epoch of its own: late batches of the last transaction of version 1
        would fit into the first one of version 2."""
        self._is_end_requested = True
        if self.version < 2 <= version:
            self.needs_bump = self.needs_bump or self.can_bump

    def ended(self, identity: ProducerIdAndEpoch | None, version: int) -> bool:
        """The transaction has ended, with the id and epoch to go on with (None: the same). Whether it is all done:
        otherwise the next epoch is to be asked for."""
        if identity is not None and identity.producer_id >= 0:
            self.identity = identity
        self.error = None
        self.is_started = False
        self._is_end_requested = False
        self._new.clear()
        self._pending.clear()
        self._added.clear()
        if identity is None and not self.can_bump:
            for queue, sequence in self._rewinds.items():
                queue.numbers.rewind(sequence)
        self._rewinds.clear()
        if self.needs_bump:
            self._states.enter(TransactionPhase.INITIALIZING)
            return False
        self.version = version
        self._states.enter(TransactionPhase.READY)
        return True

    def refusal(self) -> BaseException:
        """What to raise instead of what the state does not allow, after an error."""
        error = self.error or TransactionAbortedError("the transaction was aborted")
        return as_fatal(error) if self.state is TransactionPhase.FATAL_ERROR else as_abortable(error)

    def failed(self, api: TransactionRequestKind, error: BaseException) -> BaseException:
        """A request has failed, and is not tried again. What to raise to the user."""
        recovery = TRANSACTION_ERROR_ACTIONS[api].action_for(error)
        if self.state is TransactionPhase.FATAL_ERROR:
            return self.refusal()
        if recovery is TransactionErrorAction.AGAIN and self.state is TransactionPhase.INITIALIZING:
            self.identity = ProducerIdAndEpoch()
            self._states.enter(TransactionPhase.UNINITIALIZED)
            return error
        if recovery is TransactionErrorAction.FENCED:
            fenced = ProducerFencedError(
                f"another producer has taken over the transactional id {self.transactional_id!r}, or the transaction "
                f"took longer than transaction_timeout_ms and was aborted; {CLOSE_IT}"
            )
            fenced.__cause__ = error
            return self._enter_fatal(fenced)
        if recovery is TransactionErrorAction.BUMP and self.version < 2:
            if self.can_bump:
                self.needs_bump = True
            else:
                recovery = TransactionErrorAction.FATAL
        if recovery in (TransactionErrorAction.ABORT, TransactionErrorAction.BUMP):
            if self.state in _OPEN:
                return self._enter_abortable(error)
            if self.state is TransactionPhase.ABORTABLE_ERROR:
                return self.refusal()
            if api is not TransactionRequestKind.END:  # of a transaction that is being aborted anyway
                return as_abortable(error)
        why = f"{ENDED_IT}; {CLOSE_IT}" if isinstance(error, InvalidTxnStateError) else CLOSE_IT
        return self._enter_fatal(as_fatal(error, why))

    def _enter_abortable(self, error: BaseException) -> BaseException:
        self.error = as_abortable(error, ONLY_ABORT)
        self._states.enter(TransactionPhase.ABORTABLE_ERROR)
        self._new.clear()
        self.on_error()
        return self.refusal()

    def _enter_fatal(self, error: TransactionError) -> BaseException:
        if self.state is not TransactionPhase.FATAL_ERROR:
            self.error = error
            self._states.enter(TransactionPhase.FATAL_ERROR)
            self._new.clear()
            self.on_error()
        return self.refusal()
