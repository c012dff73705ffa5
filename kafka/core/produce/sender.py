"""The producer's machine: which batches go where and when, and what becomes of the answers.

    poll(now) ──► effects: SendBatches, AskIdentity, RefreshMetadata; and ``next_deadline``
    answered(call, response, now) · failed(call, error, now)        once for each SendBatches
    identity_received(...) · identity_failed(...)                   once for each AskIdentity

A driver carries the effects out and owns connections and clocks. Everything here runs on the loop's thread; what it
shares with users' threads is in ``accumulator.py``.

Order within a partition, which idempotence makes a promise (KIP-98, KIP-185):

* one batch of a partition in a request, at most five in flight, all on one connection: a partition whose leader has
  moved waits until the old leader's answers are in;
* after a failure nothing new of the partition goes out before the failed batches have been sent again, in the order
  of their sequences, one at a time;
* a batch that fails for good after it was numbered leaves a gap, so the producer asks for its next epoch and numbers
  what is left anew (KIP-360), once nothing is in flight.

Without idempotence the second of two batches in flight can be in the log before the first is repeated; who minds sets
``max_in_flight_requests_per_connection=1``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from kafka.core.produce.accumulator import Accumulator, PartitionQueue
from kafka.core.produce.batch import UNKNOWN_PLACE, Batch, BatchResult
from kafka.core.produce.fate import Fate, fate_for
from kafka.core.produce.identity import Identity, IdentityState, ProducerIdentity
from kafka.errors import Cancelled, KafkaConnectionError, KafkaError, KafkaTimeoutError, for_code
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.wire.types import ZERO_UUID

MAX_IN_FLIGHT_PER_PARTITION: Final = 5
"""As many batches a partition's leader remembers for each producer (KIP-98)."""
SEQUENCE_MASK: Final = 0x7FFFFFFF
"""Sequences go from 2**31 - 1 to 0."""
FIRST_VERSION_WITH_IDS: Final = 13
FIRST_VERSION_OF_BATCHES: Final = 3
"""Older brokers call a batch corrupt, which would be tried again until its time is over: better it is not sent."""


class SendBatches(NamedTuple):
    """Send ``request`` to ``node``, in a version up to ``max_version`` (None: any)."""

    node: int
    request: ProduceRequest
    batches: list[Batch]
    max_version: int | None


class AskIdentity(NamedTuple):
    """Send InitProducerId with ``identity`` as it is (-1, -1: a new producer)."""

    identity: ProducerIdentity


class RefreshMetadata(NamedTuple):
    """What is known of these topics' leaders is out of date or missing."""

    topics: frozenset[str]


Effect = SendBatches | AskIdentity | RefreshMetadata


class Counts:
    """Totals since the start."""

    __slots__ = ("batches", "bytes", "errors", "records", "requests", "retries")

    def __init__(self) -> None:
        self.records = self.bytes = self.batches = self.requests = self.retries = self.errors = 0


class Sender:
    """See the module. Times in seconds; ``leader_of(topic, partition)`` gives a node id or None, ``topic_id_of(topic)``
    an id or the zero one; both are asked at every sending. ``retries`` None: as long as the delivery time lasts."""

    def __init__(
        self,
        accumulator: Accumulator,
        *,
        leader_of: Callable[[str, int], int | None],
        topic_id_of: Callable[[str], UUID],
        acks: int = -1,
        idempotent: bool = True,
        linger_s: float = 0.0,
        max_request_bytes: int = 1048576,
        max_in_flight: int = 5,
        request_timeout_s: float = 30.0,
        delivery_timeout_s: float = 120.0,
        retry_backoff_s: float = 0.1,
        retries: int | None = None,
    ) -> None:
        self.accumulator = accumulator
        self.identity = Identity(idempotent)
        self.counts = Counts()
        self.next_deadline = inf
        """When :meth:`poll` has something to do although nothing happened."""
        self.error: Exception | None = None
        """Why this producer may not go on; all that is left has failed with it."""
        self._leader_of = leader_of
        self._topic_id_of = topic_id_of
        self._acks = acks
        self._linger_s = linger_s
        self._max_request_bytes = max_request_bytes
        self._max_in_flight = max_in_flight
        self._request_timeout_ms = int(request_timeout_s * 1000)
        self._delivery_timeout_s = delivery_timeout_s
        self._retry_backoff_s = retry_backoff_s
        self._retries = retries
        self._active: dict[PartitionQueue, None] = {}
        """The queues that have something to send, the one that waited longest first."""
        self._in_flight: dict[int, int] = {}
        """Requests in flight, by node."""
        self._stale: set[str] = set()

    # -- what there is to do -------------------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Effect]:
        """What to do now. To be called after each signal of the accumulator, each answer, and at ``next_deadline``."""
        for queue in self.accumulator.take_dirty():
            self._active.setdefault(queue)
        effects: list[Effect] = []
        if self.error is not None:
            self.abort(self.error)
            self.next_deadline = inf
            return effects
        self.next_deadline = inf
        if self._active:
            identity = self.identity
            if identity.should_ask(now, sum(self._in_flight.values())):
                if identity.value.producer_id >= 0:
                    self._renumber_all()
                effects.append(AskIdentity(identity.value))
            if not identity.allows_sending:
                self._wake_at(identity.ask_at if identity.state is IdentityState.NEEDED else inf)
            effects += self._drain(now, identity.allows_sending)
        if self._stale:
            effects.append(RefreshMetadata(frozenset(self._stale)))
            self._stale = set()
        return effects

    def _drain(self, now: float, may_send: bool) -> list[Effect]:
        by_node: dict[int, list[Batch]] = {}
        bytes_by_node: dict[int, int] = {}
        for queue in list(self._active):
            self._expire(queue, now)
            if not queue.has_unsent:
                del self._active[queue]
                continue
            if not may_send or not self._is_due(queue, now):
                continue
            node = self._leader_of(queue.topic, queue.partition)
            if node is None:
                self._stale.add(queue.topic)
                self._wake_at(now + self._retry_backoff_s)
                continue
            if self._in_flight.get(node, 0) >= self._max_in_flight or (queue.in_flight and queue.node != node):
                continue
            batch = self._peek(queue)
            size = bytes_by_node.get(node, 0) + batch.builder.size_bytes
            if size > self._max_request_bytes and node in by_node:
                continue
            self._take(queue, batch, node)
            try:
                batch.encoded()
            except Exception as error:  # it can never be sent, and must not stand in the way of the others
                self._leave_flight(batch)
                self._fail(batch, error)
                continue
            bytes_by_node[node] = size
            by_node.setdefault(node, []).append(batch)
            del self._active[queue]  # to the end: others first the next time
            self._active[queue] = None
        calls: list[Effect] = [self._call(node, batches) for node, batches in by_node.items()]
        if calls and any(queue.closed for queue in self._active):
            # More batches may go in parallel: a partition has one in each request.
            calls += self._drain(now, may_send)
        return calls

    def _is_due(self, queue: PartitionQueue, now: float) -> bool:
        """Whether the queue's first unsent batch may go out now, as far as the queue itself is concerned."""
        if queue.retry:
            if queue.in_flight:
                return False
            if queue.retry_at > now:
                self._wake_at(queue.retry_at)
                return False
            return True
        if len(queue.in_flight) >= MAX_IN_FLIGHT_PER_PARTITION:
            return False
        if queue.closed:
            return True
        batch = queue.open
        if batch is None:
            return False
        due_at = batch.created_at + self._linger_s
        if due_at > now:
            self._wake_at(due_at)
            return False
        return True

    def _peek(self, queue: PartitionQueue) -> Batch:
        if queue.retry:
            return queue.retry[0]
        if not queue.closed:
            self.accumulator.close_open(queue)
        return queue.closed[0]

    def _take(self, queue: PartitionQueue, batch: Batch, node: int) -> None:
        if queue.retry:
            del queue.retry[0]
        else:
            queue.closed.popleft()
        identity = self.identity.value
        if identity.producer_id >= 0 and batch.sequence < 0:
            batch.number(identity.producer_id, identity.epoch, queue.next_sequence)
            queue.next_sequence = (queue.next_sequence + batch.records_count) & SEQUENCE_MASK
        queue.node = node
        queue.in_flight.append(batch)
        batch.attempts += 1

    def _call(self, node: int, batches: list[Batch]) -> SendBatches:
        topics: dict[str, ProduceRequest.TopicProduceData] = {}
        max_version: int | None = None
        for batch in batches:
            data = topics.get(batch.topic)
            if data is None:
                topic_id = self._topic_id_of(batch.topic)
                if topic_id == ZERO_UUID:
                    max_version = FIRST_VERSION_WITH_IDS - 1
                data = topics[batch.topic] = ProduceRequest.TopicProduceData(
                    name=batch.topic, topic_id=topic_id, partition_data=[]
                )
            data.partition_data.append(
                ProduceRequest.PartitionProduceData(index=batch.partition, records=batch.encoded())
            )
        self._in_flight[node] = self._in_flight.get(node, 0) + 1
        self.counts.requests += 1
        request = ProduceRequest(
            acks=self._acks, timeout_ms=self._request_timeout_ms, topic_data=list(topics.values())
        )
        return SendBatches(node, request, batches, max_version)

    def _expire(self, queue: PartitionQueue, now: float) -> None:
        """Fail what was not delivered in time (KIP-91); batches in flight have their request's time limit first."""
        oldest: Batch | None = queue.retry[0] if queue.retry else queue.closed[0] if queue.closed else queue.open
        while oldest is not None:
            expires_at = oldest.created_at + self._delivery_timeout_s
            if expires_at > now:
                self._wake_at(expires_at)
                return
            if queue.retry:
                del queue.retry[0]
            else:
                if not queue.closed:
                    self.accumulator.close_open(queue)
                queue.closed.popleft()
            self._fail(
                oldest,
                KafkaTimeoutError(
                    f"{oldest.records_count} records of {queue.topic}-{queue.partition} were not delivered within "
                    f"delivery_timeout_ms={int(self._delivery_timeout_s * 1000)}, after {oldest.attempts} attempts"
                    + self._why_not_sent(oldest)
                ),
            )
            oldest = queue.retry[0] if queue.retry else queue.closed[0] if queue.closed else queue.open

    def _why_not_sent(self, batch: Batch) -> str:
        if batch.last_error is not None:
            return f"; last: {batch.last_error}"
        is_homeless = self._leader_of(batch.topic, batch.partition) is None
        return "; the partition has no leader, or is gone" if is_homeless else ""

    def _wake_at(self, when: float) -> None:
        if when < self.next_deadline:
            self.next_deadline = when

    # -- answers -------------------------------------------------------------------------------------------------------

    def answered(self, call: SendBatches, response: ProduceResponse | None, now: float) -> None:
        """The node answered; None: it was asked not to (acks=0), and the request has been written."""
        self._in_flight[call.node] -= 1
        if response is None:
            for batch in call.batches:
                self._leave_flight(batch)
                self._succeed(batch, UNKNOWN_PLACE)
            return
        found = {
            (topic.name or topic.topic_id, partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }
        ids = {data.name: data.topic_id for data in call.request.topic_data}
        for batch in call.batches:
            answer = found.get((batch.topic, batch.partition)) or found.get((ids[batch.topic], batch.partition))
            if answer is None:
                error: Exception = KafkaConnectionError(
                    f"node {call.node} did not say what became of {batch.topic}-{batch.partition}"
                )
                self._refused(batch, error, now)
            elif answer.error_code:
                error = for_code(answer.error_code)(
                    f"{batch.topic}-{batch.partition} at node {call.node}"
                    + (f": {answer.error_message}" if answer.error_message else "")
                )
                self._refused(batch, error, now)
            else:
                self._leave_flight(batch)
                self._succeed(batch, BatchResult(answer.base_offset, answer.log_append_time_ms))

    def failed(self, call: SendBatches, error: BaseException, now: float) -> None:
        """There is no answer: the connection failed, or the time was up. The batches may be in the log."""
        self._in_flight[call.node] -= 1
        for batch in call.batches:
            self._refused(batch, error, now)

    def _refused(self, batch: Batch, error: BaseException, now: float) -> None:
        queue = batch.queue
        is_next = not queue.retry and queue.in_flight[0] is batch
        self._leave_flight(batch)
        fate = fate_for(error, is_next_in_sequence=is_next)
        if getattr(error, "invalid_metadata", False):
            self._stale.add(batch.topic)
        if fate is Fate.RENUMBER and self.identity.state is IdentityState.OFF:
            fate = Fate.FAIL
        if fate is Fate.SUCCEEDED:
            self._succeed(batch, UNKNOWN_PLACE)
        elif fate is Fate.FATAL:
            self.error = error if isinstance(error, Exception) else KafkaError(str(error))
            self._fail(batch, error)
        elif fate is Fate.FAIL or (self._retries is not None and batch.attempts > self._retries):
            self._fail(batch, error)
        else:
            if fate is Fate.RENUMBER:
                self.identity.lose()
            self.counts.retries += 1
            batch.last_error = error
            queue.retry.append(batch)
            queue.retry.sort(key=_by_serial)
            queue.retry_at = now + self._retry_backoff_s
            self._active.setdefault(queue)

    def _leave_flight(self, batch: Batch) -> None:
        queue = batch.queue
        queue.in_flight.remove(batch)
        self._active.setdefault(queue)

    def _succeed(self, batch: Batch, result: BatchResult) -> None:
        self.counts.batches += 1
        self.counts.records += batch.records_count
        self.counts.bytes += batch.builder.size_bytes
        self.accumulator.finish(batch)
        batch.data = b""
        if not batch.done.is_done:
            batch.done.success(result)

    def _fail(self, batch: Batch, error: BaseException) -> None:
        self.counts.errors += batch.records_count
        if batch.sequence >= 0:
            self.identity.lose()  # a gap in the partition's sequence; and perhaps it is in the log after all
        self.accumulator.finish(batch)
        batch.data = b""
        if not batch.done.is_done:
            batch.done.failure(error)

    # -- identity ------------------------------------------------------------------------------------------------------

    def identity_received(self, identity: ProducerIdentity) -> None:
        """The broker's answer to :class:`AskIdentity`."""
        self.identity.received(identity)

    def identity_failed(self, error: BaseException, now: float, *, is_supported: bool = True) -> None:
        """There was none. ``is_supported`` False: the broker is too old, and the producer goes on without."""
        if not is_supported:
            self.identity.turn_off()
        elif getattr(error, "retriable", False):
            self.identity.failed(now + self._retry_backoff_s)
        else:
            self.error = error if isinstance(error, Exception) else KafkaError(str(error))

    def _renumber_all(self) -> None:
        """Forget all sequences: nothing is in flight, and the next epoch begins at 0 in each partition."""
        for topic in self.accumulator.topics.values():
            for queue in topic.queues:
                queue.next_sequence = 0
                for batch in queue.retry:
                    batch.number(-1, -1, -1)

    # -- the end -------------------------------------------------------------------------------------------------------

    def abort(self, error: BaseException | None = None) -> None:
        """Fail everything that was not answered. Answers that come later are for nobody."""
        reason = error if error is not None else Cancelled("the producer was closed before the records were delivered")
        for topic in list(self.accumulator.topics.values()):
            topic.parked = None
            for queue in topic.queues:
                self.accumulator.close_open(queue)
                queue.closed.clear()
                queue.retry.clear()
        for parcel in list(self.accumulator.incomplete):
            self.accumulator.finish(parcel)
            if not parcel.done.is_done:
                parcel.done.failure(reason)
        self._active.clear()


def _by_serial(batch: Batch) -> int:
    return batch.serial
