"""Carrying out what was decided: markers, then the record that they are written.

    PrepareCommit  ─sync─>  markers in all partitions  ─sync─>  CompleteCommit      sync: with fsync=always only

With ``fsync=always`` each step is on the disk before the next one is written: else a lost machine could keep one of two
markers and lose the decision, and the transaction would be half committed. With other policies, and where nothing waits
for the disk, all is done at once. What fails on the way stays in its Prepare state, for the coordinator to try again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafka.broker.transactions.markers import Marker, check_written, end_everywhere
from kafka.broker.transactions.states import COMPLETED, PREPARE_COMMIT
from kafka.broker.transactions.store import TransactionStore
from kafka.broker.transactions.transaction import Transaction, completed
from kafka.errors import KafkaStorageError

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

log = logging.getLogger(__name__)

Ended = Callable[[bool], object]
"""Told whether the decision holds: False when it may not be on the disk."""


class Endings:
    """Of all transactional ids. ``retry`` is called with one whose end could not be carried out."""

    def __init__(self, broker: Broker, store: TransactionStore, version: int, retry: Callable[[str], None]) -> None:
        self._broker = broker
        self._store = store
        self._version = version
        self._retry = retry
        self._under_way: dict[str, list[Ended]] = {}

    def carry_out(self, transactional_id: str, *, again: bool = False) -> None:
        """The id is in a Prepare state. ``again``: some markers may be there already."""
        self._under_way.setdefault(transactional_id, [])
        self._when_synced(partial(self._write_markers, transactional_id, again))

    def when_ended(self, transactional_id: str, then: Ended) -> bool:
        """Have ``then`` called when the end that is under way is carried out, or has failed; False: none is."""
        waiting = self._under_way.get(transactional_id)
        if waiting is None:
            return False
        waiting.append(then)
        return True

    def _when_synced(self, step: Callable[[], None]) -> None:
        logs = self._broker.logs
        if logs.flush_policy.sync_before_answer and logs.has_unflushed:
            logs.flusher.add_waiter(lambda error: step())  # whose file it was that failed, each step finds out
        else:
            step()

    def _write_markers(self, transactional_id: str, again: bool) -> None:
        found = self._decided(transactional_id)
        if found is None:
            return
        try:
            self._store.check(transactional_id)
        except KafkaStorageError as error:
            self._failed(transactional_id, error, holds=False)
            return
        try:
            marker = Marker(
                found.producer_id,
                found.epoch,
                found.state is PREPARE_COMMIT,
                self._store.coordinator_epoch(transactional_id),
                found.client_version,
            )
            end_everywhere(self._broker, found.partitions, marker, again=again)
        except KafkaStorageError as error:
            self._failed(transactional_id, error, holds=True)
        else:
            self._when_synced(partial(self._finish, transactional_id))

    def _finish(self, transactional_id: str) -> None:
        found = self._decided(transactional_id)
        if found is None:
            return
        try:
            check_written(self._broker, found.partitions)
            self._store.put(transactional_id, completed(found, self._broker.epoch_ms()), self._version)
        except KafkaStorageError as error:
            self._failed(transactional_id, error, holds=True)
        else:
            self._ended(transactional_id, True)

    def _decided(self, transactional_id: str) -> Transaction | None:
        """The transaction; None when somebody has deleted the topic of decisions meanwhile."""
        found = self._store.get(transactional_id)
        if found is not None and found.state in COMPLETED:
            return found
        self._ended(transactional_id, True)
        return None

    def _failed(self, transactional_id: str, error: KafkaStorageError, *, holds: bool) -> None:
        log.error("the transaction of %s is decided and cannot be completed yet: %s", transactional_id, error)
        self._retry(transactional_id)
        self._ended(transactional_id, holds)

    def _ended(self, transactional_id: str, holds: bool) -> None:
        for then in self._under_way.pop(transactional_id, []):
            then(holds)
