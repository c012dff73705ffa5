"""A producer's transactions on its loop: what ``transactional.py`` has users call is carried out here.

    user's thread                    the loop's thread
    init, commit, abort ───────────► one dialogue for each, kept until somebody was told of its end
    begin ─────────────────────────► the machine
    send ──► accumulator ──► sender ─┤ may it go out? which partitions are new?
    send_offsets ──────────────────► dialogues, one after the other

The machine is ``kafka/core/produce/transactions.py``, the requests are ``transaction_dialogues.py``. Dialogues with a
coordinator take turns: it refuses what comes while something else of the same transaction is being written.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka.client import KafkaClient
from kafka.core.dialogue import Dialogue, Wait
from kafka.core.produce.recoveries import Api
from kafka.core.produce.sender import Sender
from kafka.core.produce.transactions import TransactionManager
from kafka.core.retry import Backoff
from kafka.core.states import Transaction
from kafka.errors import Cancelled, IllegalStateError, KafkaError, TransactionAbortedError, TransactionError
from kafka.future import Future
from kafka.producer.transaction_dialogues import Offsets, TransactionDialogues
from kafka.structs import ConsumerGroupMetadata

log = logging.getLogger(__name__)

QUICK_S: Final = 0.02
"""First wait where the broker still completes the last transaction, as in Java."""
FEATURE: Final = "transaction.version"

_ENDING: Final = (Transaction.COMMITTING, Transaction.ABORTING)


class _Operation:
    """A call of ``init``, ``commit`` or ``abort`` under way, or done and not told yet."""

    __slots__ = ("future", "is_told", "name")

    def __init__(self, name: str, future: Future[None]) -> None:
        self.name = name
        self.future = future
        self.is_told = False


class Transactions:
    """One producer's transactions on its loop. All of it on the loop's thread, but for ``machine.state`` to look at.

    ``flush`` and ``pump_soon`` are the producer's driver's: what has been handed in was answered; look at the sender,
    and at :meth:`pump`, soon."""

    def __init__(
        self,
        client: KafkaClient,
        machine: TransactionManager,
        sender: Sender,
        flush: Callable[[], Future[None]],
        pump_soon: Callable[[], object],
        settings: Mapping[str, Any],
    ) -> None:
        self.machine = machine
        self.on_closed_gate: Callable[[], object] = lambda: None
        """Called when ``send`` is to be refused."""
        self._client = client
        self._sender = sender
        self._accumulator = sender.accumulator
        self._flush = flush
        self._pump_soon = pump_soon
        quick = Backoff(QUICK_S, settings["retry_backoff_ms"] / 1000, random.Random(), jitter=0)
        self._dialogues = TransactionDialogues(
            machine, settings["transaction_timeout_ms"], client.retry_backoff, quick, self._version
        )
        self._operation: _Operation | None = None
        self._turn: Future[None] | None = None
        """That of the last dialogue with a coordinator: they take turns."""
        self._is_adding = False
        """Partitions are being added, or are about to be: what is new meanwhile comes after them."""
        self._empty: Future[None] | None = None
        """Somebody waits until nothing is unanswered."""
        machine.on_error = self._note_error

    def _version(self) -> int:
        """Of the protocol that the cluster speaks now."""
        return 2 if self._client.finalized_level(FEATURE) >= 2 else 1

    @property
    def last_error(self) -> KafkaError | None:
        """Why what is under way is tried again, if it is. To look at, from any thread."""
        return self._dialogues.last_error

    @property
    def is_ended(self) -> bool:
        """No transaction is under way."""
        return self.machine.state is Transaction.READY

    @property
    def is_sending(self) -> bool:
        """Records may become part of a transaction."""
        return self.machine.state is Transaction.IN_TRANSACTION

    # -- called by the driver ------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """The sender was asked: do what it wants of us."""
        if self.machine.has_new_partitions and not self._is_adding:
            self._is_adding = True
            self._client.run(self._in_turn(self._dialogues.add_partitions)).add_both(self._added)
        empty = self._empty
        if empty is not None and self._accumulator.incomplete and self.machine.state is Transaction.ABORTING:
            self._sender.drop_unsent(TransactionAbortedError("the record was sent while its transaction was aborted"))
        self._refuse_late()
        if empty is not None and not self._accumulator.incomplete:
            self._empty = None
            empty.success(None)

    # -- called for the user -------------------------------------------------------------------------------------------

    def run(self, name: str) -> Future[None]:
        """One of :data:`_OPERATIONS`, or the same one that is under way already."""
        running = self._operation
        if running is not None and not running.is_told:
            if running.name == name:
                return running.future
            raise IllegalStateError(f"{running.name}() timed out, and is to be called again before anything else")
        begin, dialogue = _OPERATIONS[name]
        begin(self)
        self._operation = operation = _Operation(name, self._client.run(dialogue(self)))
        self._pump_soon()
        return operation.future

    def told(self, name: str, *, by_future: bool = False) -> None:
        """The caller has been told how the operation ended, if it has; or (``by_future``) will be by its future."""
        running = self._operation
        if running is not None and running.name == name and (running.future.is_done or by_future):
            running.is_told = True

    def begin(self) -> None:
        running = self._operation
        if running is not None and not (running.is_told and running.future.is_done):
            raise IllegalStateError(f"{running.name}() timed out, and is to be called again before anything else")
        self._refuse_late()
        self.machine.begin()

    def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> Future[None]:
        self.machine.check_sending()
        if not offsets:
            return Future[None]().success(None)
        return self._client.run(self._in_turn(lambda: self._dialogues.send_offsets(offsets, group)))

    def finish(self) -> Future[None]:
        """The producer is about to close: abort what is open, or wait for the end that is under way."""
        done: Future[None] = Future()
        running = self._operation
        if running is not None:
            running.is_told = True
            if not running.future.is_done:
                running.future.add_both(lambda _: self.finish().chain(done))
                return done
        if not self.machine.is_open:
            return done.success(None)
        self.run("abort_transaction").add_both(lambda _: done.success(None))
        return done

    # -- operations ----------------------------------------------------------------------------------------------------

    def _begin_init(self) -> None:
        self.machine.begin_initializing()

    def _init(self) -> Dialogue[None]:
        yield from self._dialogues.initialize()
        self._sender.identity_received(self.machine.identity)

    def _begin_commit(self) -> None:
        self.machine.begin_commit()
        self.on_closed_gate()

    def _commit(self) -> Dialogue[None]:
        yield Wait(self._flush())
        yield from self._end(True)

    def _begin_abort(self) -> None:
        reason = self.machine.begin_abort()
        self.on_closed_gate()
        self._drop(reason)

    def _abort(self) -> Dialogue[None]:
        yield from self._end(False)

    def _end(self, committed: bool) -> Dialogue[None]:
        while not self.is_ended:
            yield from self._until_empty()
            yield from self._in_turn(lambda: self._tell_end(committed))

    def _tell_end(self, committed: bool) -> Dialogue[None]:
        machine = self.machine
        if machine.state not in _ENDING:  # a record or an offset has failed meanwhile
            raise machine.refusal()
        if self._accumulator.incomplete:  # another thread was late, and it is part of the transaction
            return
        yield from self._dialogues.end(committed)
        self._sender.identity_received(machine.identity)
        self._pump_soon()

    def _until_empty(self) -> Dialogue[None]:
        while self._accumulator.incomplete and self.machine.state in _ENDING:
            if self._empty is None:
                self._empty = Future()
            self._pump_soon()
            yield Wait(self._empty)

    def _in_turn(self, dialogue: Callable[[], Dialogue[None]]) -> Dialogue[None]:
        before, mine = self._turn, Future[None]()
        self._turn = mine
        try:
            if before is not None and not before.is_done:
                yield Wait(before)
            yield from dialogue()
        finally:
            if not mine.is_done:
                mine.success(None)

    # -- errors --------------------------------------------------------------------------------------------------------

    def _note_error(self) -> None:
        """The machine has come to one of its two errors, in the middle of whatever: what follows, follows later."""
        self.on_closed_gate()
        self._client.loop.call_soon(self._after_error)

    def _after_error(self) -> None:
        error = self.machine.error
        if error is None:
            return
        if self.machine.state is Transaction.FATAL_ERROR:
            self._sender.end(error)
        else:
            self._drop(error)
        empty, self._empty = self._empty, None
        if empty is not None:
            empty.success(None)  # they look again
        self._pump_soon()

    def _drop(self, error: Exception) -> None:
        """Fail what was not sent yet."""
        self._sender.drop_unsent(error)
        self._pump_soon()

    def _refuse_late(self) -> None:
        """What another thread sent while the transaction was ended, too late to be part of it."""
        if self.is_ended and self._accumulator.incomplete:
            self._sender.drop_unsent(IllegalStateError("the record was sent while no transaction was under way"))

    def _added(self, outcome: object) -> None:
        self._is_adding = False
        if isinstance(outcome, BaseException) and not isinstance(outcome, (TransactionError, Cancelled)):
            log.error("adding partitions to a transaction", exc_info=outcome)
            self.machine.failed(Api.ADD_PARTITIONS, outcome)
        self._pump_soon()


_OPERATIONS: Final[dict[str, tuple[Callable[[Transactions], None], Callable[[Transactions], Dialogue[None]]]]] = {
    "init_transactions": (Transactions._begin_init, Transactions._init),
    "commit_transaction": (Transactions._begin_commit, Transactions._commit),
    "abort_transaction": (Transactions._begin_abort, Transactions._abort),
}
"""Name for users -> the step that may be refused at once, and what takes its time."""
