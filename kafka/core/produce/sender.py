"""The producer's machine: which batches go where and when. What becomes of the answers is in
:class:`ProduceResponseHandler`.

    poll(now) ──► effects: SendBatches, RequestProducerId, RefreshTopicMetadata; and ``next_deadline``
    answered(call, response, now) · failed(call, error, now)        once for each SendBatches
    identity_received(...) · identity_failed(...)                   once for each RequestProducerId

A driver carries the effects out and owns connections and clocks. Everything here runs on the loop's thread; what it
shares with users' threads is in ``accumulator.py``.

Order within a partition, which idempotence makes a promise (KIP-98, KIP-185):

* one batch of a partition in a request, at most five in request, all on one connection: a partition whose leader has
  moved waits until the old leader's answers are in;
* after a failure nothing new of the partition goes out before the failed batches have been sent again, in the order
  of their sequences, one at a time;
* the first batch of a partition, and the first after a silence, goes out alone: a leader that knows nothing of a
  producer takes any sequence, and would take the second batch after it had refused the first;
* a batch that fails for good after it was numbered leaves a gap: the partition then counts from 0 under the next epoch
  (KIP-360), once nothing of it is in request. A batch that may be in the log is first sent again under its old number,
  for as long as that is in doubt: only so is it known not to be there twice. Other partitions are not stopped by it.

Without idempotence the second of two batches in request can be in the log before the first is repeated; who minds sets
``max_in_flight_requests_per_connection=1``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from math import inf
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from kafka.core.produce.accumulator import RecordAccumulator
from kafka.core.produce.batch import (
    NO_LIMIT,
    SEQUENCE_MASK,
    UNKNOWN_OFFSET,
    BatchResult,
    PartitionQueue,
    PendingRecords,
    ProducerBatch,
    ProducerIdAndEpoch,
    place_in_queue,
    produce_request,
)
from kafka.core.produce.errors import (
    PRODUCE_ERROR_HANDLING,
    PRODUCER_ID_ERROR_ACTIONS,
    ProduceErrorAction,
    ProducerIdErrorAction,
    produce_error_action,
)
from kafka.core.produce.transactions import LAST_PRODUCE_OF_VERSION_1, TransactionManager
from kafka.core.retry import Backoff
from kafka.errors import (
    BrokerResponseError,
    Cancelled,
    ConcurrentTransactionsError,
    CorruptRecordError,
    InvalidMetadataError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    for_code,
)
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.records import decode_raw, parse_header
from kafka.records.header import HEADER_BYTES

# What the producer's machine asks its driver to do, as values.
#
# A new kind of effect is a class here, a member of :data:`Effect`, and a branch in ``kafka/producer/driver.py``.


class SendBatches(NamedTuple):
    """Send ``request`` to ``node``, in a version up to ``max_version`` (None: any)."""

    node: int
    request: ProduceRequest
    batches: list[ProducerBatch]
    max_version: int | None


class RequestProducerId(NamedTuple):
    """Send InitProducerId for a new idempotent producer."""


class RefreshTopicMetadata(NamedTuple):
    """What is known of these topics' leaders is out of date or missing."""

    topics: frozenset[str]


Effect = SendBatches | RequestProducerId | RefreshTopicMetadata


# The requests that were sent and not answered: how many to each node, and whose batches' time is over (KIP-91).


class InFlightProduceRequest:
    """One request. ``expires_at``: when the first of its batches has to be given up."""

    __slots__ = ("call", "expires_at")

    def __init__(self, call: SendBatches, expires_at: float) -> None:
        self.call = call
        self.expires_at = expires_at


class InFlightBatches:
    """All of them, in the order of sending. ``delivery_timeout_s`` counts from the making of a batch."""

    __slots__ = ("_counts", "_delivery_timeout_s", "_in_flight")

    def __init__(self, delivery_timeout_s: float) -> None:
        self._delivery_timeout_s = delivery_timeout_s
        self._in_flight: list[InFlightProduceRequest] = []
        self._counts: dict[int, int] = {}

    def count(self, node: int) -> int:
        return self._counts.get(node, 0)

    def add(self, call: SendBatches) -> None:
        made_at = inf
        for batch in call.batches:
            if batch.created_at < made_at:
                made_at = batch.created_at
        self._in_flight.append(InFlightProduceRequest(call, made_at + self._delivery_timeout_s))
        self._counts[call.node] = self.count(call.node) + 1

    def remove(self, call: SendBatches) -> None:
        for index, request in enumerate(self._in_flight):
            if request.call is call:
                del self._in_flight[index]
                self._counts[call.node] -= 1
                return

    @property
    def next_expiry(self) -> float:
        """When :meth:`expired` has something to say; infinite for never."""
        first = inf
        for request in self._in_flight:  # plain comparisons: compiled, `min` costs more than all else here
            if request.expires_at < first:
                first = request.expires_at
        return first

    def expired(self, now: float) -> list[ProducerBatch]:
        """The batches whose time is over, each once. They are in request still."""
        found: list[ProducerBatch] = []
        for request in self._in_flight:
            if request.expires_at > now:
                continue
            request.expires_at = inf
            for batch in request.call.batches:
                if batch.done.is_done:
                    continue
                expires_at = batch.created_at + self._delivery_timeout_s
                if expires_at <= now:
                    found.append(batch)
                else:
                    request.expires_at = min(request.expires_at, expires_at)
        return found


# The producer id, its epoch, and when they may be used.
#
#     OFF                                   not idempotent
#     NEEDED ──asked──► ASKED ──answer──► READY ──raise_epoch: the next epoch, given by ourselves──► READY
#        ▲                 │                └─────raise_epoch after the last epoch──────────────────► NEEDED
#        └─────error───────┘
#
# Sequences belong to the partitions (:class:`SequenceNumbers`); this is the part that all of them share. An idempotent
# producer raises its epoch by itself: no other producer has its id, and each leader takes a higher epoch that begins at
# 0. The transactional producer's epoch is its coordinator's to give: its machine puts it here with
# :meth:`ProducerIdState.received`.
#
# Source: KIP-98, KIP-360; the Java client's ``TransactionManager.bumpIdempotentProducerEpoch``.


LAST_EPOCH: Final = 2**15 - 1


class ProducerIdPhase(enum.Enum):
    """Where the producer's identity stands."""

    OFF = "off"
    NEEDED = "needed"
    ASKED = "asked"
    READY = "ready"


class ProducerIdState:
    """Owner of the producer's id and epoch."""

    __slots__ = ("ask_at", "failures", "is_given", "last_error", "state", "value")

    def __init__(self, wanted: bool, *, is_given: bool = False) -> None:
        self.state = ProducerIdPhase.NEEDED if wanted else ProducerIdPhase.OFF
        self.value = ProducerIdAndEpoch()
        self.ask_at = 0.0
        """Not to be asked for before."""
        self.is_given = is_given
        """It is not requested, nor is its epoch raised, here: the transaction coordinator gives both."""
        self.failures = 0
        """How often it could not be had, in a row."""
        self.last_error: BaseException | None = None
        """Why, the last time."""

    @property
    def is_on(self) -> bool:
        return self.state is not ProducerIdPhase.OFF

    @property
    def is_ready(self) -> bool:
        return self.state is ProducerIdPhase.READY

    def raise_epoch(self) -> None:
        """Have an epoch that was never used. After the last one (32767) a new id is needed. Here and not by a
        request: InitProducerId with an id and an epoch, without a transactional id, gives a new id (seen on 4.3.0)."""
        if self.state is not ProducerIdPhase.READY or self.is_given:
            return
        if self.value.epoch < LAST_EPOCH:
            self.value = ProducerIdAndEpoch(self.value.producer_id, self.value.epoch + 1)
        else:
            self.value = ProducerIdAndEpoch()
            self.state = ProducerIdPhase.NEEDED

    def should_ask(self, now: float) -> bool:
        """Whether to ask the broker now; after that the state is ASKED."""
        if self.state is not ProducerIdPhase.NEEDED or now < self.ask_at or self.is_given:
            return False
        self.state = ProducerIdPhase.ASKED
        return True

    def received(self, value: ProducerIdAndEpoch) -> None:
        """The broker's answer."""
        self.value = value
        self.state = ProducerIdPhase.READY
        self.failures = 0
        self.last_error = None

    def failed(self, error: BaseException, ask_at: float) -> None:
        """No answer, or one that may be better later; to be asked for again at ``ask_at``."""
        self.failures += 1
        self.last_error = error
        self.state = ProducerIdPhase.NEEDED
        self.ask_at = ask_at

    def turn_off(self) -> None:
        """The broker cannot do it."""
        self.state = ProducerIdPhase.OFF
        self.value = ProducerIdAndEpoch()


# A batch that is too large for its broker, in two.
#
# The halves keep the records' order, times and sequence numbers, so what was numbered after them stays as it is; the
# futures of the records find them through ``forward``. Which errors lead here is said in ``errors.py``; that a single
# record cannot be split is for the caller to know.
#
# Source: the Java client's ``RecordAccumulator.splitAndReenqueue``, which cuts to ``batch.size`` at once and forgets
# how well the topic's records shrank, as here.


def split_batch(batch: ProducerBatch, accumulator: RecordAccumulator) -> list[ProducerBatch]:
    """Two batches with the records of ``batch``, which has at least two; the accumulator knows them in its place."""
    data = batch.encoded()
    header = parse_header(data)
    if header is None:
        raise CorruptRecordError("a batch of this producer's own is cut")
    records = decode_raw(data, header, NO_LIMIT)
    if batch.queue.ratio is not None:
        batch.queue.ratio.reset()
    half_bytes = HEADER_BYTES + (batch.builder.size_bytes - HEADER_BYTES) // 2
    parts: list[ProducerBatch] = []
    forward: list[tuple[PendingRecords, int]] = []
    sequence = batch.sequence
    left = len(records)
    for _offset, timestamp, key, value, headers in records:
        if not parts or (len(parts) == 1 and (parts[0].builder.size_bytes >= half_bytes or left == 1)):
            part = ProducerBatch(
                batch.queue, batch.serial, accumulator.new_builder(NO_LIMIT), batch.created_at, batch.guard
            )
            part.skipped = batch.skipped + len(forward)
            parts.append(part)
        part = parts[-1]
        forward.append((part, part.append(timestamp, key, value, headers)))
        left -= 1
    for part in parts:
        if sequence >= 0:
            part.number(batch.producer_id, batch.epoch, sequence)
            sequence = (sequence + part.records_count) & SEQUENCE_MASK
            if batch.in_doubt:
                part.mark_source_in_doubt()
    accumulator.replace(batch, parts)
    batch.move(forward)
    return parts


# What becomes of batches: the broker's answers, and what follows from them for the batch and for its queue.
#
# The sender (:class:`Sender`) says which batches went out together and when; the table of recoveries is in
# ``errors.py``. Here it is carried out: futures are completed, failed batches are put back in their order, memory is
# given up.
#
# A batch whose delivery time was over while it was in request has failed for its user, but stays in its queue until the
# node has answered: nothing may overtake it, and whether its numbers are used is to be known.


QUICK_RETRY_S: Final = 0.02
"""Before a batch that came too soon after the last transaction's end is sent again, as in Java."""
NO_LOG_START: Final = -1
"""For what has no log_start_offset."""


class ProduceCountersListener(Protocol):
    """Counts for itself (``kafka/producer/metrics.py``)."""

    def retried(self, batch: ProducerBatch) -> object: ...

    def failed(self, batch: ProducerBatch) -> object: ...


class ProduceCounters:
    """Totals since the start."""

    __slots__ = ("batches", "bytes", "errors", "listener", "records", "requests", "retries", "splits")

    def __init__(self) -> None:
        self.listener: ProduceCountersListener | None = None
        self.records = self.bytes = self.batches = self.requests = self.retries = self.errors = self.splits = 0

    def report_to(self, listener: ProduceCountersListener) -> None:
        """Tell ``listener`` of each batch that is retried or fails."""
        self.listener = listener

    def retried(self, batch: ProducerBatch) -> None:
        """The batch is to be sent again."""
        self.retries += 1
        if self.listener is not None:
            self.listener.retried(batch)

    def failed(self, batch: ProducerBatch) -> None:
        """The batch's records have failed."""
        self.errors += batch.records_count
        if self.listener is not None:
            self.listener.failed(batch)


STALLED_ATTEMPTS: Final = 4
"""After so many the log hears of a batch that its broker refuses, about a second after the first one."""

OnStalled = Callable[[ProducerBatch, BrokerResponseError], object]


class ProduceResponseHandler:
    """Owner of the totals, of the error that ended the producer, and of the topics whose metadata was found wrong."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        backoff: Backoff,
        retries: int | None,
        transactions: TransactionManager | None = None,
        on_stalled: OnStalled = lambda batch, error: None,
    ) -> None:
        self.counts = ProduceCounters()
        self.error: Exception | None = None
        """Why this producer may not go on; all that is left has failed with it."""
        self.stale: set[str] = set()
        """Topics whose metadata has to be read anew."""
        self._accumulator = accumulator
        self._backoff = backoff
        self._retries = retries
        self._transactions = transactions
        self._on_stalled = on_stalled

    # -- from the broker -----------------------------------------------------------------------------------------------

    def answered(self, call: SendBatches, response: ProduceResponse | None, now: float) -> None:
        """The node answered; None: it was asked not to (acks=0), and the request has been written."""
        if response is None:
            for batch in call.batches:
                self.accepted(batch, UNKNOWN_OFFSET)
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

    def accepted(self, batch: ProducerBatch, result: BatchResult) -> None:
        """The batch is in the log."""
        batch.queue.in_flight.remove(batch)
        if batch.sequence >= 0:
            batch.queue.numbers.note_acknowledged()
        self._accumulator.finish(batch)
        batch.drop_encoded()
        if batch.done.is_done:
            return
        self.counts.batches += 1
        self.counts.records += batch.records_count
        self.counts.bytes += batch.builder.size_bytes
        batch.done.success(result)

    def refused(
        self, batch: ProducerBatch, error: BaseException, now: float, log_start_offset: int = NO_LOG_START
    ) -> None:
        """The batch is not in the log, or that is unknown: do what the table says."""
        queue = batch.queue
        is_numbered = batch.sequence >= 0
        action = produce_error_action(
            error,
            is_first=queue.in_flight[0] is batch
            and (not queue.retry or place_in_queue(batch) < place_in_queue(queue.retry[0])),
            is_numbered=is_numbered,
            log_start_offset=log_start_offset,
        )
        if isinstance(error, InvalidMetadataError):
            self.stale.add(batch.topic)
        if action is ProduceErrorAction.SUCCEEDED:
            self.accepted(batch, UNKNOWN_OFFSET)
            return
        queue.in_flight.remove(batch)
        if self._transactions is not None and action in (ProduceErrorAction.RENUMBER, ProduceErrorAction.FATAL):
            action = ProduceErrorAction.FAIL  # and its machine says what else
        if action is ProduceErrorAction.RENUMBER and batch.source_in_doubt:
            action = ProduceErrorAction.FAIL  # not a second time under other numbers
            error = type(error)(f"{_text(error)}: the records may be in the log, by a request without an answer")
        if PRODUCE_ERROR_HANDLING.action_for(error).leaves_doubt:
            batch.mark_in_doubt()
        if self._transactions is not None and not self._transactions.may_retry(batch):
            action = ProduceErrorAction.FAIL
        if batch.done.is_done:  # its time was over already
            self._leave(batch)
        elif action is ProduceErrorAction.FATAL:
            self.end(error)
            self.fail(batch, error)
        elif action is ProduceErrorAction.SPLIT and batch.records_count > 1:
            self.halve(batch, now)
        elif action is ProduceErrorAction.SPLIT:
            size = batch.builder.size_bytes
            self.fail(batch, type(error)(f"{_text(error)}: one record of {size} bytes is more than its topic takes"))
        elif action is ProduceErrorAction.FAIL or (self._retries is not None and batch.attempts > self._retries):
            self.fail(batch, error)
        else:
            if action is ProduceErrorAction.RENUMBER:
                queue.numbers.leave_gap()
                batch.clear_doubt()
            self.counts.retried(batch)
            batch.to_be_retried(error)
            if batch.attempts == STALLED_ATTEMPTS and isinstance(error, BrokerResponseError):
                self._on_stalled(batch, error)
            self._send_again([batch], now)
            if isinstance(error, ConcurrentTransactionsError):  # the last transaction is about to be completed
                queue.back_off(min(queue.retry_at, now + QUICK_RETRY_S))

    # -- carried out ---------------------------------------------------------------------------------------------------

    def fail(self, batch: ProducerBatch, error: BaseException) -> None:
        """The batch's records fail with ``error``, and it is in no queue any more."""
        self.give_up(batch, error)
        self._leave(batch)

    def give_up(self, batch: ProducerBatch, error: BaseException) -> None:
        """The batch's records fail with ``error``, wherever it is."""
        if not batch.done.is_done:
            self.counts.failed(batch)
            if self._transactions is not None:
                self._transactions.batch_failed(batch, error)
            batch.done.failure(error)

    def halve(self, batch: ProducerBatch, now: float) -> None:
        """The batch, which is in no queue now, goes on in two parts, at once."""
        self.counts.splits += 1
        self._send_again(split_batch(batch, self._accumulator), now)

    def end(self, error: BaseException) -> None:
        """The producer may not go on."""
        self.error = error if isinstance(error, Exception) else KafkaError(str(error))

    def _leave(self, batch: ProducerBatch) -> None:
        if batch.sequence >= 0:
            batch.queue.numbers.leave_gap()  # and perhaps it is in the log after all
        self._accumulator.finish(batch)
        batch.drop_encoded()

    def _send_again(self, batches: list[ProducerBatch], now: float) -> None:
        queue = batches[0].queue
        first = queue.retry_batches(batches)
        queue.back_off(now + self._backoff.delay_s(first.attempts))


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


def _text(error: BaseException) -> str:
    return str(error.args[0]) if error.args else ""


MAX_IN_FLIGHT_PER_PARTITION: Final = 5
"""As many batches a partition's leader remembers for each producer (KIP-98). The repetition of one of them is answered
with its offset, of an older one with OUT_OF_ORDER_SEQUENCE_NUMBER (seen on 4.3.0; older releases answer
DUPLICATE_SEQUENCE_NUMBER)."""
QUIET_S: Final = 60.0
"""After so long without a batch a leader may have forgotten the producer (``producer.id.expiration.ms``, a day)."""


class Sender:
    """See the module. Times in seconds; ``leader_of(topic, partition)`` gives a node id or None, ``leader_epoch_of``
    its epoch or -1, ``topic_id_of(topic)`` an id or the zero one, ``free_at(node)`` until when a node wants no requests
    (KIP-219; 0: now is fine); they are asked at every sending. ``backoff`` gives the waits before repetitions
    (KIP-580). ``retries`` None: as long as the delivery time lasts. ``on_stalled(batch, error)``: a broker has
    refused a batch :data:`STALLED_ATTEMPTS` times, and it is sent again."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        *,
        leader_of: Callable[[str, int], int | None],
        topic_id_of: Callable[[str], UUID],
        backoff: Backoff,
        leader_epoch_of: Callable[[str, int], int] = lambda _topic, _partition: -1,
        free_at: Callable[[int], float] = lambda _node: 0.0,
        acks: int = -1,
        idempotent: bool = True,
        linger_s: float = 0.0,
        max_request_bytes: int = 1048576,
        max_in_flight: int = 5,
        request_timeout_s: float = 30.0,
        delivery_timeout_s: float = 120.0,
        retries: int | None = None,
        transactions: TransactionManager | None = None,
        on_stalled: OnStalled = lambda batch, error: None,
    ) -> None:
        self.accumulator = accumulator
        # A transactional producer's id and epoch come from its coordinator, not from here.
        self.identity = ProducerIdState(idempotent, is_given=transactions is not None)
        self.handler = ProduceResponseHandler(accumulator, backoff, retries, transactions, on_stalled)
        self._transactions = transactions
        self.next_deadline = inf
        """When :meth:`poll` has something to do although nothing happened."""
        self._leader_of = leader_of
        self._leader_epoch_of = leader_epoch_of
        self._topic_id_of = topic_id_of
        self._free_at = free_at
        self._acks = acks
        self._linger_s = linger_s
        self._max_request_bytes = max_request_bytes
        self._max_in_flight = max_in_flight
        self._request_timeout_ms = int(request_timeout_s * 1000)
        self._delivery_timeout_s = delivery_timeout_s
        self._backoff = backoff
        self._active: dict[PartitionQueue, None] = {}
        """The queues that have something to send, the one that waited longest first."""
        self._in_flight = InFlightBatches(delivery_timeout_s)
        self._lacks_producer_id = False
        """A queue could go on with an id."""

    @property
    def counts(self) -> ProduceCounters:
        """Totals since the start."""
        return self.handler.counts

    @property
    def error(self) -> Exception | None:
        """Why this producer may not go on; all that is left has failed with it."""
        return self.handler.error

    # -- what there is to do -------------------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Effect]:
        """What to do now. To be called after each signal of the accumulator, each answer, and at ``next_deadline``."""
        for queue in self.accumulator.take_dirty():
            self._active.setdefault(queue)
        effects: list[Effect] = []
        self.next_deadline = inf
        if self.error is not None:
            self.abort(self.error)
            return effects
        for batch in self._in_flight.expired(now):
            batch.mark_in_doubt()
            self.handler.give_up(batch, self._overdue(batch))
        for queue in list(self._active):
            self._expire(queue, now)  # before the draining: users' callbacks may do anything, such as close
        if self._active:
            self._lacks_producer_id = False
            effects += self._drain(now)
            if self._lacks_producer_id and self.identity.should_ask(now):
                effects.append(RequestProducerId())
            elif self._lacks_producer_id and self.identity.state is ProducerIdPhase.NEEDED:
                self._wake_at(self.identity.ask_at)
        self._wake_at(self._in_flight.next_expiry)
        self._wake_at(self.accumulator.notify_overdue_waiter(now))
        if self.handler.stale:
            effects.append(RefreshTopicMetadata(frozenset(self.handler.stale)))
            self.handler.stale = set()
        return effects

    def _drain(self, now: float) -> list[Effect]:
        by_node: dict[int, list[ProducerBatch]] = {}
        bytes_by_node: dict[int, int] = {}
        broken: list[tuple[ProducerBatch, Exception]] = []
        for queue in list(self._active):
            if not queue.has_unsent:
                del self._active[queue]
                continue
            if not self._is_due(queue, now):
                continue
            node = self._leader_of(queue.topic, queue.partition)
            if node is None:
                self.handler.stale.add(queue.topic)
                self._wake_at(now + self._backoff.delay_s(1))
                continue
            if self._in_flight.count(node) >= self._max_in_flight or (queue.in_flight and queue.node != node):
                continue
            free_at = self._free_at(node)
            if free_at > now:
                # Sent now it would wait at the connection, for longer than a request may last; here it can still grow.
                self._wake_at(free_at)
                continue
            if self._transactions is not None and not self._transactions.may_send(
                queue, in_doubt=bool(queue.retry) and queue.retry[0].in_doubt
            ):
                continue
            if self.identity.is_on and not self._has_numbers(queue, now):
                continue
            batch = self._peek(queue)
            size = bytes_by_node.get(node, 0) + batch.builder.size_bytes
            if size > self._max_request_bytes and node in by_node:
                continue
            self._take(queue, batch, node, now)
            if not queue.closed:
                behind = queue.open
                if behind is not None:  # a batch begun behind others has no signal
                    self._wake_at(behind.created_at + self._linger_s)
            try:
                encoded_bytes = batch.encoded_bytes
            except Exception as error:  # it can never be sent, and must not stand in the way of the others
                queue.in_flight.remove(batch)
                broken.append((batch, error))
                self._wake_at(now)  # for those behind it, which have no other signal
                continue
            if encoded_bytes > self._max_request_bytes and batch.records_count > 1:
                queue.in_flight.remove(batch)
                self.handler.halve(batch, now)  # it was expected to shrink more
                self._wake_at(now)
                continue
            bytes_by_node[node] = size
            by_node.setdefault(node, []).append(batch)
            del self._active[queue]  # to the end: others first the next time
            self._active[queue] = None
        calls: list[Effect] = [self._call(node, batches) for node, batches in by_node.items()]
        for batch, why in broken:
            self.handler.fail(batch, why)
        if calls and any(queue.closed for queue in self._active):
            # More batches may go in parallel: a partition has one in each request.
            calls += self._drain(now)
        return calls

    def _is_due(self, queue: PartitionQueue, now: float) -> bool:
        """Whether the queue's first unsent batch may go out now, as far as the queue itself is concerned."""
        if queue.retry:
            if queue.in_flight:
                return False
            if queue.retry_at > now and not self._has_new_leader(queue):
                self._wake_at(queue.retry_at)
                return False
            return True
        if len(queue.in_flight) >= MAX_IN_FLIGHT_PER_PARTITION:
            return False
        batch = queue.open
        if queue.closed or batch is None:  # None: another thread has closed it just now
            return True
        due_at = batch.created_at + self._linger_s
        if due_at > now and not self.accumulator.memory.is_short:
            self._wake_at(due_at)
            return False
        return True

    def _has_new_leader(self, queue: PartitionQueue) -> bool:
        """There is nothing to wait for: the leader that refused is none any more (KIP-951)."""
        return 0 <= queue.leader_epoch < self._leader_epoch_of(queue.topic, queue.partition)

    def _has_numbers(self, queue: PartitionQueue, now: float) -> bool:
        """Whether the queue's first unsent batch has its sequence, or can be given one now."""
        numbers = queue.numbers
        if not queue.in_flight and numbers.used_at + QUIET_S < now:
            numbers.forget_leader()
        identity = self.identity
        head = queue.retry[0] if queue.retry else None
        # A batch that may be in the log keeps its old number until the leader has said whether it is. Java numbers that
        # batch anew, too, and can write it twice.
        if head is not None and head.sequence >= 0 and (head.in_doubt or not numbers.has_gap):
            return True
        if queue.in_flight:
            return numbers.is_known and not numbers.has_gap
        if not numbers.has_gap and numbers.identity == identity.value and identity.is_ready:
            return True
        if numbers.has_gap and numbers.identity == identity.value:
            identity.raise_epoch()
        if not identity.is_ready:
            self._lacks_producer_id = True
            return False
        numbers.begin(identity.value)
        for batch in queue.retry:
            batch.number(-1, -1, -1)
        return True

    def _peek(self, queue: PartitionQueue) -> ProducerBatch:
        if queue.retry:
            return queue.retry[0]
        if not queue.closed:
            # Only now: records could be appended while the batch waited to be sent, so a busy producer makes larger
            # batches without any linger_ms.
            self.accumulator.close_open(queue)
        return queue.closed[0]

    def _take(self, queue: PartitionQueue, batch: ProducerBatch, node: int, now: float) -> None:
        queue.take_next()
        if batch.sequence < 0 and self.identity.is_on:
            producer_id, epoch = queue.numbers.identity
            batch.number(producer_id, epoch, queue.numbers.take(batch.records_count))
        queue.send(batch, node, self._leader_epoch_of(queue.topic, queue.partition), now)
        batch.sent(self._transactions is not None)

    def _call(self, node: int, batches: list[ProducerBatch]) -> SendBatches:
        request, max_version = produce_request(batches, self._acks, self._request_timeout_ms, self._topic_id_of)
        self.handler.counts.requests += 1
        transactions = self._transactions
        if transactions is not None:
            request.transactional_id = transactions.transactional_id
            if transactions.version < 2:
                max_version = LAST_PRODUCE_OF_VERSION_1
        call = SendBatches(node, request, batches, max_version)
        self._in_flight.add(call)
        return call

    def _expire(self, queue: PartitionQueue, now: float) -> None:
        """Fail what waits and was not delivered in time (KIP-91)."""
        oldest: ProducerBatch | None = (
            queue.retry[0] if queue.retry else queue.closed[0] if queue.closed else queue.open
        )
        while oldest is not None:
            expires_at = oldest.created_at + self._delivery_timeout_s
            if expires_at > now:
                self._wake_at(expires_at)
                return
            if not queue.retry and not queue.closed:
                self.accumulator.close_open(queue)
            queue.take_next()
            self.handler.fail(oldest, self._overdue(oldest))
            oldest = queue.retry[0] if queue.retry else queue.closed[0] if queue.closed else queue.open

    def _overdue(self, batch: ProducerBatch) -> KafkaTimeoutError:
        error = KafkaTimeoutError(
            f"{batch.records_count} records of {batch.topic}-{batch.partition} were not delivered within "
            f"delivery_timeout_ms={int(self._delivery_timeout_s * 1000)}, after {batch.attempts} attempts"
            + self._why_not_sent(batch)
        )
        error.__cause__ = batch.last_error
        return error

    def _why_not_sent(self, batch: ProducerBatch) -> str:
        if batch.last_error is not None:
            return f"; last: {batch.last_error}"
        if batch in batch.queue.in_flight:
            return f"; node {batch.queue.node} has not answered"
        if self.identity.last_error is not None:
            return f"; there is no producer id: {self.identity.last_error}"
        is_homeless = self._leader_of(batch.topic, batch.partition) is None
        return "; the partition has no leader, or is gone" if is_homeless else ""

    def why_unanswered(self) -> str:
        """Why the oldest records that are here are not answered yet, as the end of a sentence; empty where that is not
        known. From any thread."""
        with self.accumulator.lock:
            batches = [each for each in self.accumulator.incomplete if isinstance(each, ProducerBatch)]
        refused = next((batch for batch in batches if batch.last_error is not None), None)
        if refused is not None:
            return self._why_not_sent(refused)
        return self._why_not_sent(batches[0]) if batches else ""

    def _wake_at(self, when: float) -> None:
        if when < self.next_deadline:
            self.next_deadline = when

    # -- answers -------------------------------------------------------------------------------------------------------

    def answered(self, call: SendBatches, response: ProduceResponse | None, now: float) -> None:
        """The node answered; None: it was asked not to (acks=0), and the request has been written."""
        self._landed(call)
        self.handler.answered(call, response, now)

    def failed(self, call: SendBatches, error: BaseException, now: float) -> None:
        """There is no answer: the connection failed, or the time was up. The batches may be in the log."""
        self._landed(call)
        self.handler.unanswered(call, error, now)

    def _landed(self, call: SendBatches) -> None:
        self._in_flight.remove(call)
        for batch in call.batches:
            self._active.setdefault(batch.queue)

    # -- identity ------------------------------------------------------------------------------------------------------

    def identity_received(self, identity: ProducerIdAndEpoch) -> None:
        """The broker's answer to :class:`RequestProducerId`."""
        self.identity.received(identity)

    def identity_failed(self, error: BaseException, now: float, *, is_supported: bool = True) -> None:
        """There was none. ``is_supported`` False: the broker is too old, and the producer goes on without."""
        if not is_supported:
            self.identity.turn_off()
            return
        action = PRODUCER_ID_ERROR_ACTIONS.action_for(error)
        if action is ProducerIdErrorAction.END:
            self.handler.end(error)
            return
        self.identity.failed(error, now + self._backoff.delay_s(self.identity.failures + 1))
        if action is ProducerIdErrorAction.FAIL_WAITING:
            self.abort(error)

    # -- the end -------------------------------------------------------------------------------------------------------

    def end(self, error: Exception) -> None:
        """This producer may not go on: everything fails with ``error``, at the next :meth:`poll`."""
        self.handler.end(error)

    def drop_unsent(self, error: BaseException) -> None:
        """Fail what was never sent, and what is known not to be in the log: its transaction is over."""
        accumulator = self.accumulator
        dropped: list[ProducerBatch] = []
        for topic in list(accumulator.topics.values()):
            accumulator.fail_unassigned(topic, error)
            for queue in topic.queues:
                dropped += accumulator.take_unsent(queue)
                dropped += queue.drop_retries()
        for batch in dropped:
            self.handler.fail(batch, error)
        accumulator.notify_waiters()  # no poll need follow

    def abort(self, error: BaseException | None = None) -> None:
        """Fail everything that was not answered. Later responses are ignored."""
        reason = error if error is not None else Cancelled("the producer was closed before the records were delivered")
        unanswered = self.accumulator.take_all()
        for topic in list(self.accumulator.topics.values()):
            for queue in topic.queues:
                if any(batch.sequence >= 0 for batch in queue.retry):
                    queue.numbers.leave_gap()
                queue.retry.clear()
        for pending_records in unanswered:
            self.accumulator.finish(pending_records)
            if not pending_records.done.is_done:
                pending_records.done.failure(reason)
        self._active.clear()
