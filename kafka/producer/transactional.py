"""Transactions as users call them: :class:`Transactional`, the part of KafkaProducer between its life and its sending.

A call that takes longer than ``max_block_ms`` raises KafkaTimeoutError and goes on in the background: the same call
again waits for the same end. Anything else is refused meanwhile, as in Java: whether the transaction was committed is
not decided by asking for something else.

``send`` learns that there is no transaction without looking, as it learns that the producer is closed: the table of
topics is taken away (:class:`~kafka.producer.lifecycle.Lifecycle`). So a record costs nothing more in a transaction.

What happens on the loop's thread is in ``transactions.py``.
"""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kafka.errors import (
    FatalTransactionError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    TransactionError,
)
from kafka.future import Future
from kafka.producer.edge import check_seconds
from kafka.producer.lifecycle import Lifecycle
from kafka.producer.offsets import committed_offsets, group_of
from kafka.producer.transactions import Transactions
from kafka.structs import TopicPartition

log = logging.getLogger(__name__)


class Transactional(Lifecycle):
    """The transactions of a producer that has a ``transactional_id``.

    ::

        producer.init_transactions()                    # once
        with producer.transaction():
            producer.send("out", b"...")
            producer.send_offsets_to_transaction({TopicPartition("in", 0): OffsetAndMetadata(7)}, "group")

    They may be called from any thread, one at a time; ``send`` from as many as you like between ``begin_transaction``
    and ``commit_transaction``. A record that another thread sends while the transaction is being ended is part of it,
    or is refused: wait for such threads first. With ``loop=``, on the loop's thread: the calls whose names end with
    ``_async``; their futures have no time limit.
    """

    _transactions: Transactions | None = None
    _settings: dict[str, Any]

    def init_transactions(self) -> None:
        """Take the transactional id over: whoever had it before is fenced, and what that one left open is ended. To be
        called once, before the first transaction.

        Errors: KafkaTimeoutError after ``max_block_ms`` (call it again); AuthorizationError (call it again when the
        permission was given); FatalTransactionError, such as for a ``transaction_timeout_ms`` above the broker's
        ``transaction.max.timeout.ms``.
        """
        self._run_operation("init_transactions")

    def begin_transaction(self) -> None:
        """From here on records belong to a transaction. IllegalStateError when that cannot be now."""
        transactions = self._its_transactions()
        if self._may_block:
            self._host.call(transactions.begin)
        else:
            transactions.begin()
        self._open_gate()
        if not transactions.is_sending:  # an error has closed it meanwhile
            self._close_gate()

    def commit_transaction(self) -> None:
        """Deliver all records of the transaction and commit it; returns when it is committed.

        Errors: AbortableTransactionError (a record, or the commit, has failed: abort the transaction);
        FatalTransactionError (close the producer); KafkaTimeoutError after ``max_block_ms``: call it again, the
        transaction may have been committed by then.
        """
        self._run_operation("commit_transaction")

    def abort_transaction(self) -> None:
        """Drop what was not sent, wait for what was, and abort the transaction. Records that were not sent fail with
        TransactionAbortedError. Errors: FatalTransactionError; KafkaTimeoutError after ``max_block_ms``: call it again.
        """
        self._run_operation("abort_transaction")

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Any], group_metadata: Any = None, *, consumer_group_id: Any = None
    ) -> None:
        """Make a group's offsets part of the transaction: they count as committed if it is.

        ``offsets``: partition -> the offset to read next, as OffsetAndMetadata, as a tuple that begins like one, or as
        a number. ``group_metadata``: a :class:`~kafka.structs.ConsumerGroupMetadata` (the member is then checked, and
        one that has left its group is refused: KIP-447), or the group's id (``consumer_group_id`` in kafka-python 2).

        Errors: IllegalArgumentError; AbortableTransactionError, also when the group has moved on;
        FatalTransactionError; KafkaTimeoutError after ``max_block_ms``, when the offsets may or may not be part of it.
        """
        transactions = self._its_transactions()
        checked, group = committed_offsets(offsets), group_of(group_metadata, consumer_group_id)
        send: Callable[..., Future[None]] = transactions.send_offsets
        self._wait("send_offsets_to_transaction", send, checked, group)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction around a block: committed at its end, aborted when the block, or the commit, raises. What was
        raised goes on, but for an abortable error whose abort shows that it is worse: then that is raised.

        A block may end its transaction by itself. A commit that timed out is not aborted: :meth:`commit_transaction`.
        """
        self.begin_transaction()
        try:
            yield
            if not self._its_transactions().is_ended:
                self.commit_transaction()
        except BaseException as error:
            fatal = self._abort_if_open()
            if fatal is not None and isinstance(error, TransactionError):
                raise fatal from error
            raise

    # -- on the loop's thread ------------------------------------------------------------------------------------------

    def init_transactions_async(self) -> Future[None]:
        """On the loop: :meth:`init_transactions`."""
        return self._start_operation("init_transactions")

    def commit_transaction_async(self) -> Future[None]:
        """On the loop: :meth:`commit_transaction`."""
        return self._start_operation("commit_transaction")

    def abort_transaction_async(self) -> Future[None]:
        """On the loop: :meth:`abort_transaction`."""
        return self._start_operation("abort_transaction")

    def send_offsets_to_transaction_async(
        self, offsets: Mapping[TopicPartition, Any], group_metadata: Any = None, *, consumer_group_id: Any = None
    ) -> Future[None]:
        """On the loop: :meth:`send_offsets_to_transaction`."""
        checked, group = committed_offsets(offsets), group_of(group_metadata, consumer_group_id)
        return self._its_transactions().send_offsets(checked, group)

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Deliver what is here, for at most ``timeout`` seconds (None: as long as it takes), and stop. What is left
        then fails with Cancelled. Any number of times. A transaction that is open is aborted first, for at most
        ``timeout`` and ``max_block_ms``; if that is not enough, the broker does it after ``transaction_timeout_ms``.

        On the thread of a loop that was given it does not wait: only ``timeout=0`` is taken there, and
        :meth:`close_async` closes in good order.
        """
        check_seconds(timeout)
        transactions = self._transactions
        if transactions is not None and self._refusal is None and timeout != 0 and self._may_block:
            self._close_gate()
            began = time.monotonic()
            limit_s: float = self._settings["max_block_ms"] / 1000
            finish: Callable[..., Future[None]] = transactions.finish
            with contextlib.suppress(KafkaError):
                self._host.call(finish, timeout_s=limit_s if timeout is None else min(timeout, limit_s))
            if timeout is not None:
                timeout = max(timeout - (time.monotonic() - began), 0.0)
        super().close(timeout)

    def close_async(self) -> Future[None]:
        """On the loop: take no more records, deliver what is here, and stop. The future is done then. A transaction
        that is open is aborted first."""
        transactions = self._transactions
        if transactions is None or self._refusal is not None:
            return super().close_async()
        self._close_gate()
        done: Future[None] = Future()
        close = super().close_async
        transactions.finish().add_both(lambda _: close().chain(done))
        return done

    # -- inside --------------------------------------------------------------------------------------------------------

    def _attach(self, transactions: Transactions | None) -> None:
        """Begin without a transaction, when the producer is to have some; else with all topics."""
        self._transactions = transactions
        if transactions is None:
            self._open_gate()
            return
        itself = weakref.ref(self)  # the loop's thread may not hold the producer

        def close_gate() -> None:
            producer = itself()
            if producer is not None:
                producer._close_gate()

        transactions.on_closed_gate = close_gate

    def _open_gate(self) -> None:
        if self._refusal is None:
            self._topics = self._known_topics

    def _close_gate(self) -> None:
        self._topics = {}

    def _check_may_send(self) -> None:
        """Raise when records are to be part of a transaction, and cannot."""
        if self._transactions is not None and self._refusal is None:
            self._transactions.machine.check_sending()

    def _its_transactions(self) -> Transactions:
        self._check_usable()
        if self._transactions is None:
            raise IllegalStateError("this producer has no transactions: it was made without transactional_id")
        return self._transactions

    def _run_operation(self, name: str) -> None:
        transactions = self._its_transactions()
        run: Callable[..., Future[None]] = transactions.run
        try:
            self._wait(name, run, name)
        except KafkaTimeoutError as error:
            if isinstance(error, TransactionError):  # a record's, and not this call's
                transactions.told(name)
            raise
        except KafkaError:
            transactions.told(name)
            raise
        transactions.told(name)

    def _start_operation(self, name: str) -> Future[None]:
        transactions = self._its_transactions()
        future = transactions.run(name)
        transactions.told(name, by_future=True)
        return future

    def _wait(self, name: str, run: Callable[..., Future[None]], *args: Any) -> None:
        limit_ms = self._settings["max_block_ms"]
        self._guard()
        future = self._host.submit(run, *args)
        if not future.wait(limit_ms / 1000):
            last = self._its_transactions().last_error
            why = "" if last is None else f"; last: {last}"
            raise KafkaTimeoutError(f"{name}: not done within max_block_ms={limit_ms}; it goes on, call it again{why}")
        future.result()

    def _abort_if_open(self) -> FatalTransactionError | None:
        transactions = self._transactions
        if transactions is not None and self._refusal is None and transactions.machine.is_open:
            try:
                self.abort_transaction()
            except FatalTransactionError as error:
                return error
            except KafkaError as error:  # its text alone: a cause may be a user's error, with a secret of theirs
                log.warning("a transaction could not be aborted: %s", error)
        return None
