"""What becomes of batches: the broker's answers, and what follows from them for the batch and for its queue.

The sender (``sender.py``) says which batches went out together and when; the table of recoveries is in ``fate.py``.
Here it is carried out: futures are completed, failed batches are put back in their order, memory is given up.

A batch whose delivery time was over while it was in flight has failed for its user, but stays in its queue until the
node has answered: nothing may overtake it, and whether its numbers are used is to be known.
"""

from __future__ import annotations

from typing import Any, Final, Protocol
from uuid import UUID

from kafka.core.produce.accumulator import Accumulator
from kafka.core.produce.batch import UNKNOWN_PLACE, Batch, BatchResult
from kafka.core.produce.effects import SendBatches
from kafka.core.produce.fate import Fate, fate_for, recovery_for
from kafka.core.produce.splitting import split
from kafka.core.produce.transactions import TransactionManager
from kafka.core.retry import Backoff
from kafka.errors import (
    ConcurrentTransactionsError,
    InvalidMetadataError,
    KafkaConnectionError,
    KafkaError,
    for_code,
)
from kafka.protocol.produce import ProduceResponse

QUICK_S: Final = 0.02
"""Before a batch that came too soon after the last transaction's end is sent again, as in Java."""
NO_LOG_START: Final = -1
"""For what has no log_start_offset."""


class CountsListener(Protocol):
    """Somebody who counts for himself (``kafka/producer/metrics.py``)."""

    def retried(self, batch: Batch) -> object: ...

    def failed(self, batch: Batch) -> object: ...


class Counts:
    """Totals since the start."""

    __slots__ = ("batches", "bytes", "errors", "listener", "records", "requests", "retries", "splits")

    def __init__(self) -> None:
        self.listener: CountsListener | None = None
        self.records = self.bytes = self.batches = self.requests = self.retries = self.errors = self.splits = 0

    def retried(self, batch: Batch) -> None:
        """The batch is to be sent again."""
        self.retries += 1
        if self.listener is not None:
            self.listener.retried(batch)

    def failed(self, batch: Batch) -> None:
        """The batch's records have failed."""
        self.errors += batch.records_count
        if self.listener is not None:
            self.listener.failed(batch)


class Outcomes:
    """Owner of the totals, of the error that ended the producer, and of the topics whose metadata was found wrong."""

    def __init__(
        self,
        accumulator: Accumulator,
        backoff: Backoff,
        retries: int | None,
        transactions: TransactionManager | None = None,
    ) -> None:
        self.counts = Counts()
        self.error: Exception | None = None
        """Why this producer may not go on; all that is left has failed with it."""
        self.stale: set[str] = set()
        """Topics whose metadata has to be read anew."""
        self._accumulator = accumulator
        self._backoff = backoff
        self._retries = retries
        self._transactions = transactions

    # -- from the broker -----------------------------------------------------------------------------------------------

    def answered(self, call: SendBatches, response: ProduceResponse | None, now: float) -> None:
        """The node answered; None: it was asked not to (acks=0), and the request has been written."""
        if response is None:
            for batch in call.batches:
                self.accepted(batch, UNKNOWN_PLACE)
            return
        found: dict[tuple[Any, int], Any] = {}
        ids: dict[str, UUID] = {}
        only = _only_answer(call, response)
        if only is None:
            for topic in response.responses:
                for partition in topic.partition_responses:
                    found[topic.name or topic.topic_id, partition.index] = partition
            ids = {data.name: data.topic_id for data in call.request.topic_data}
        for batch in call.batches:
            answer = only
            if answer is None:
                place = batch.topic, batch.partition
                answer = found.get(place) or found.get((ids[batch.topic], batch.partition))
            if answer is None:
                error: Exception = KafkaConnectionError(
                    f"node {call.node} did not say what became of {batch.topic}-{batch.partition}"
                )
                self.refused(batch, error, now)
            elif answer.error_code:
                error = for_code(answer.error_code)(
                    f"{batch.topic}-{batch.partition} at node {call.node}"
                    + (f": {answer.error_message}" if answer.error_message else "")
                )
                self.refused(batch, error, now, answer.log_start_offset)
            else:
                self.accepted(batch, BatchResult(answer.base_offset, answer.log_append_time_ms))

    def unanswered(self, call: SendBatches, error: BaseException, now: float) -> None:
        """There is no answer: the connection failed, or the time was up. The batches may be in the log."""
        for batch in call.batches:
            self.refused(batch, error, now)

    def accepted(self, batch: Batch, result: BatchResult) -> None:
        """The batch is in the log."""
        batch.queue.in_flight.remove(batch)
        if batch.sequence >= 0:
            batch.queue.numbers.is_known = True
        self._accumulator.finish(batch)
        batch.data = []
        if batch.done.is_done:
            return
        self.counts.batches += 1
        self.counts.records += batch.records_count
        self.counts.bytes += batch.builder.size_bytes
        batch.done.success(result)

    def refused(self, batch: Batch, error: BaseException, now: float, log_start_offset: int = NO_LOG_START) -> None:
        """The batch is not in the log, or nobody knows: do what the table says."""
        queue = batch.queue
        is_numbered = batch.sequence >= 0
        fate = fate_for(
            error,
            is_first=queue.in_flight[0] is batch and (not queue.retry or _place(batch) < _place(queue.retry[0])),
            is_numbered=is_numbered,
            log_start_offset=log_start_offset,
        )
        if isinstance(error, InvalidMetadataError):
            self.stale.add(batch.topic)
        if fate is Fate.SUCCEEDED:
            self.accepted(batch, UNKNOWN_PLACE)
            return
        queue.in_flight.remove(batch)
        if self._transactions is not None and fate in (Fate.RENUMBER, Fate.FATAL):
            fate = Fate.FAIL  # and its machine says what else
        if recovery_for(error).leaves_doubt:
            batch.in_doubt = is_numbered
        if self._transactions is not None and not self._transactions.may_retry(batch):
            fate = Fate.FAIL
        if batch.done.is_done:  # its time was over already
            self._leave(batch)
        elif fate is Fate.FATAL:
            self.end(error)
            self.fail(batch, error)
        elif fate is Fate.SPLIT and batch.records_count > 1:
            self.halve(batch, now)
        elif fate is Fate.SPLIT:
            size = batch.builder.size_bytes
            self.fail(batch, type(error)(f"{_text(error)}: one record of {size} bytes is more than its topic takes"))
        elif fate is Fate.FAIL or (self._retries is not None and batch.attempts > self._retries):
            self.fail(batch, error)
        else:
            if fate is Fate.RENUMBER:
                queue.numbers.has_gap = True
                batch.in_doubt = False
            self.counts.retried(batch)
            batch.last_error = error
            self._send_again([batch], now)
            if isinstance(error, ConcurrentTransactionsError):  # the last transaction is about to be completed
                queue.retry_at = min(queue.retry_at, now + QUICK_S)

    # -- carried out ---------------------------------------------------------------------------------------------------

    def fail(self, batch: Batch, error: BaseException) -> None:
        """The batch's records fail with ``error``, and it is in no queue any more."""
        self.give_up(batch, error)
        self._leave(batch)

    def give_up(self, batch: Batch, error: BaseException) -> None:
        """The batch's records fail with ``error``, wherever it is."""
        if not batch.done.is_done:
            self.counts.failed(batch)
            if self._transactions is not None:
                self._transactions.batch_failed(batch, error)
            batch.done.failure(error)

    def halve(self, batch: Batch, now: float) -> None:
        """The batch, which is in no queue now, goes on in two parts, at once."""
        self.counts.splits += 1
        self._send_again(split(batch, self._accumulator), now)

    def end(self, error: BaseException) -> None:
        """The producer may not go on."""
        self.error = error if isinstance(error, Exception) else KafkaError(str(error))

    def _leave(self, batch: Batch) -> None:
        if batch.sequence >= 0:
            batch.queue.numbers.has_gap = True  # and perhaps it is in the log after all
        self._accumulator.finish(batch)
        batch.data = []

    def _send_again(self, batches: list[Batch], now: float) -> None:
        queue = batches[0].queue
        queue.retry += batches
        queue.retry.sort(key=_place)
        queue.retry_at = now + self._backoff.delay_s(queue.retry[0].attempts)


def _only_answer(call: SendBatches, response: ProduceResponse) -> Any:
    """The answer to the only batch of a request, as most are, where it is the first; None when it takes more than that
    to find it."""
    if len(call.batches) != 1 or not response.responses:
        return None
    topic, asked, batch = response.responses[0], call.request.topic_data[0], call.batches[0]
    if not topic.partition_responses:
        return None
    if topic.name != batch.topic and (topic.name or topic.topic_id != asked.topic_id):
        return None
    answer = topic.partition_responses[0]
    return answer if answer.index == batch.partition else None


def _place(batch: Batch) -> tuple[int, int]:
    return batch.serial, batch.skipped


def _text(error: BaseException) -> str:
    return str(error.args[0]) if error.args else ""
