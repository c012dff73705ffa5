"""The end of a transaction by hand: a marker for one partition, without the coordinator (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final, TypeVar

from kafka.core.admin.answers import TRANSIENT, since
from kafka.core.admin.given import partition_of
from kafka.core.admin.leaders import Build, Read, all_or_raise, at_leaders
from kafka.core.admin.producers import producers_request, read_producers
from kafka.core.admin.transaction_values import AbortTransactionSpec, PartitionProducerState, ProducerState
from kafka.core.dialogue import Dialogue
from kafka.core.partitions import by_topic
from kafka.core.retry import Backoff, RetryAction, classify, retrying
from kafka.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    KafkaError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafka.structs import TopicPartition

T = TypeVar("T")

_UNWRITTEN: Final = TRANSIENT | {UnknownTopicOrPartitionError, NotEnoughReplicasError}
"""Errors that are tried again, with which no marker was written."""
_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "producer_id": (0, 2**63 - 1),
    "producer_epoch": (0, 2**15 - 1),
    "coordinator_epoch": (-1, 2**31 - 1),
}
"""Field of AbortTransactionSpec -> the least and the most that it may be."""


def abort_transaction(spec: AbortTransactionSpec, *, backoff: Backoff, timeout_s: float = 30.0) -> Dialogue[None]:
    """Abort a producer's transaction in one partition, whatever its coordinator says; nothing when it has none there.

    InvalidProducerEpochError: the epoch is older than the partition's. TransactionCoordinatorFencedError: the
    coordinator's is; the default, -1, is then replaced by the one that the partition tells (2.8), as brokers refuse it
    where a coordinator has ended a transaction of this producer before. ClusterAuthorizationFailedError.

    A marker names a producer and no transaction: a second one would abort the producer's next transaction. So before
    each further try the partition is asked whether the one that was there before the first is there still. Where that
    cannot be asked (brokers before 2.8; topics that may not be read), an error behind which the marker may have been
    written is raised, and says so. After a KafkaTimeoutError, too, look before you call again.
    """
    abort = _Abort(_checked(spec), backoff)
    try:
        yield from retrying(abort.attempt, what=abort.what, backoff=backoff, timeout_s=timeout_s)
    except _Final as end:
        raise end.error from None
    if abort.unclear is not None:
        raise type(abort.unclear)(
            f"{abort.what}: the outcome is not known, and the partition cannot be asked for it; another marker would"
            f" abort what the producer has open there by then ({abort.unclear})"
        ) from abort.unclear


def _checked(given: Any) -> AbortTransactionSpec:
    call = "abort_transaction"
    try:
        spec = AbortTransactionSpec(*given)
    except TypeError:
        raise IllegalArgumentError(
            f"{call}: {given!r}: an AbortTransactionSpec(partition, producer_id, producer_epoch) is needed"
        ) from None
    for name, (least, most) in _RANGES.items():
        value = getattr(spec, name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise IllegalArgumentError(f"{call}: {name}={value!r}: a number of at least {least}, at most {most}")
    return spec._replace(topic_partition=partition_of(spec.topic_partition, call))


class _Final(Exception):
    """Carries a partition's error past the retry loop: one of a class that is tried again elsewhere."""

    def __init__(self, error: BrokerResponseError) -> None:
        super().__init__(error)
        self.error = error


class _Abort:
    """One transaction that is to be aborted, through all tries. ``unclear``: the error after which the outcome is not
    known, and nobody can be asked."""

    def __init__(self, spec: AbortTransactionSpec, backoff: Backoff) -> None:
        where = f"{spec.topic_partition.topic}-{spec.topic_partition.partition}"
        self.what = f"aborting the transaction of producer {spec.producer_id} in {where}"
        self.unclear: KafkaError | None = None
        self._spec = spec
        self._backoff = backoff
        self._coordinator_epoch = spec.coordinator_epoch
        self._has_looked = False
        self._before: ProducerState | None = None
        self._blind: KafkaError | None = None
        """Why the partition cannot be asked."""
        self._is_sent = False
        """A marker may be there."""

    def attempt(self) -> Dialogue[None]:
        if not self._has_looked:
            try:
                self._before = yield from self._look()
            except (IncompatibleBrokerVersion, TopicAuthorizationFailedError) as error:
                self._blind = error
            self._has_looked = True
        elif self._is_sent and self._blind is None and _transaction((yield from self._look())) != self._transaction:
            return
        try:
            yield from self._mark()
        except TransactionCoordinatorFencedError:
            if self._coordinator_epoch >= 0:
                raise
            if self._blind is not None:
                raise self._blind from None
            present = yield from self._look()
            if _transaction(present) != self._transaction:
                return
            self._coordinator_epoch = 0 if present is None else max(0, present.coordinator_epoch)
            yield from self._mark()

    @property
    def _transaction(self) -> tuple[int, int] | None:
        return _transaction(self._before)

    def _look(self) -> Dialogue[ProducerState | None]:
        """What the partition remembers of the producer. Tries nothing twice."""
        told: PartitionProducerState = yield from since("2.8", self._ask(producers_request, read_producers))
        return next((row for row in told.active_producers if row.producer_id == self._spec.producer_id), None)

    def _mark(self) -> Dialogue[None]:
        """Tries nothing twice."""

        def build(partitions: Iterable[TopicPartition]) -> WriteTxnMarkersRequest:
            self._is_sent = True
            return _abort_request(self._spec, partitions, self._coordinator_epoch)

        try:
            yield from self._ask(build, _read_markers)
        except KafkaError as error:
            is_final = classify(error) is RetryAction.GIVE_UP or type(error) in _UNWRITTEN
            if self._blind is None or not self._is_sent or is_final:
                raise
            self.unclear = error

    def _ask(self, build: Build, read: Read[T]) -> Dialogue[T]:
        partition = self._spec.topic_partition
        found = yield from at_leaders(
            [partition], build, read, what=self.what, backoff=self._backoff, timeout_s=inf, attempts=1
        )
        try:
            return all_or_raise(found)[partition]
        except BrokerResponseError as error:
            if classify(error) is RetryAction.GIVE_UP:
                raise
            raise _Final(error) from None


def _transaction(row: ProducerState | None) -> tuple[int, int] | None:
    """The producer's transaction in the partition, as none before or after it is."""
    return None if row is None else (row.producer_epoch, row.current_transaction_start_offset)


def _abort_request(
    spec: AbortTransactionSpec, partitions: Iterable[TopicPartition], coordinator_epoch: int
) -> WriteTxnMarkersRequest:
    topics = [
        WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
        for topic, numbers in by_topic(partitions).items()
    ]
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=spec.producer_id,
        producer_epoch=spec.producer_epoch,
        transaction_result=False,
        topics=topics,
        coordinator_epoch=coordinator_epoch,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def _read_markers(answer: WriteTxnMarkersResponse) -> dict[TopicPartition, bool | BrokerResponseError]:
    return {
        TopicPartition(topic.name, each.partition_index): for_code(each.error_code)("") if each.error_code else True
        for marker in answer.markers
        for topic in marker.topics
        for each in topic.partitions
    }
