"""Dialogues about transactions (KIP-664).

    list_transactions           what each broker coordinates
    describe_transactions       what the coordinator of each transactional id knows of it
    describe_producers          what partitions remember of their producers
    abort_transaction           an end by hand, in one partition
    find_hanging_transactions   those that no coordinator is going to end
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from kafka.core.admin.cluster import broker_ids_of_the_cluster, request_each_broker
from kafka.core.admin.responses import (
    TRANSIENT,
    each_partition,
    raise_first,
    request_brokers,
    requiring_release,
    result_of,
    time_left,
    to_dict,
    topics_as,
)
from kafka.core.admin.routing import (
    Build,
    Read,
    request_coordinators,
    request_leaders,
    result_or_raise,
    results_or_raise,
)
from kafka.core.admin.topics import metadata_of
from kafka.core.admin.values import (
    AbortTransactionSpec,
    PartitionProducerState,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
    texts,
)
from kafka.core.dialogue import Dialogue, Send, now
from kafka.core.partitions import by_topic
from kafka.core.retry import Backoff, RetryAction, classify, retrying
from kafka.core.routing import CoordinatorType
from kafka.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
    TransactionalIdNotFoundError,
    TransactionCoordinatorFencedError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafka.structs import TopicPartition
from kafka.validation import is_integer, list_of, milliseconds, node_ids, numbers_of, partition_of

_FILTERS: Final[Mapping[str, tuple[int, str]]] = {"duration_filter": (1, "3.8"), "transactional_id_pattern": (2, "4.1")}
"""Field of ListTransactions -> the version and the release that have it (KIP-994, KIP-1152)."""


def list_transactions(
    broker_ids: Sequence[int] | None = None,
    producer_id_filters: Iterable[int] | None = None,
    state_filters: Iterable[TransactionState | str] | None = None,
    duration_filter_ms: float | None = None,
    transactional_id_pattern: str | None = None,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[dict[int, list[TransactionListing]]]:
    """The transactional ids that each broker coordinates: ``{broker: [TransactionListing]}``, of all brokers for None.

    Filters: ids of producers, states, transactions that have lasted for more than so many ms (3.8, KIP-994; those that
    are over count from their start, too), ids that match a whole regular expression (4.1, KIP-1152; the broker reads
    it). IncompatibleBrokerVersion before 3.0; InvalidRegularExpressionError; UnsupportedVersionError for a state that a
    broker does not know.
    """
    call = "list_transactions"
    given_ids = node_ids(broker_ids)
    producers = () if producer_id_filters is None else producer_id_filters
    given_states = () if state_filters is None else state_filters
    states = texts(TransactionState, list_of(given_states, "state_filters", "a list of states is needed"))
    if TransactionState.UNKNOWN.value in states:
        raise IllegalArgumentError("state_filters: there is no asking for the state Unknown")
    request = ListTransactionsRequest(
        state_filters=states,
        producer_id_filters=numbers_of(producers, "producer_id_filters", "a list of producers' ids is needed"),
    )
    release, least = "3.0", 0
    if duration_filter_ms is not None and milliseconds("duration_filter_ms", duration_filter_ms) < 0:
        raise IllegalArgumentError(f"duration_filter_ms={duration_filter_ms!r}: at least 0 is needed")
    given = {
        "duration_filter": None if duration_filter_ms is None else int(duration_filter_ms),
        "transactional_id_pattern": transactional_id_pattern,
    }
    for name, value in given.items():
        if value is not None:
            setattr(request, name, value)
            least, release = _FILTERS[name]
    found: dict[int, list[TransactionListing]] = {}

    def attempt() -> Dialogue[list[int]]:
        wanted = given_ids
        if wanted is None:  # anew each time: a broker may have left, and others coordinate what was its
            wanted = yield from broker_ids_of_the_cluster()
        asked = [broker for broker in wanted if broker not in found]
        try:
            answers = yield from request_each_broker(asked, request, least)
        except UnknownBrokerIdError as error:
            if given_ids is not None:
                raise
            raise KafkaConnectionError(f"{call}: {error}") from error
        for broker, answer in answers:
            if answer.unknown_state_filters:
                raise UnsupportedVersionError(
                    f"{call}: node {broker} knows no state {', '.join(answer.unknown_state_filters)}:"
                    " leave it out of state_filters"
                )
            if not answer.error_code:
                found[broker] = [
                    TransactionListing(name, producer_id, TransactionState.of(state))
                    for name, producer_id, state in (to_dict(row).values() for row in answer.transaction_states)
                ]
        raise_first((answer.error_code, None, f"{call} at node {broker}") for broker, answer in answers)
        return wanted

    heard = yield from requiring_release(
        release, retrying(attempt, what="listing the transactions", backoff=backoff, timeout_s=timeout_s)
    )
    return {broker: found[broker] for broker in heard}


def describe_transactions(
    transactional_ids: Iterable[str], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[str, TransactionDescription]]:
    """What their coordinators know of them: ``{transactional id: TransactionDescription}``. Raises the first error
    (TransactionalIdNotFoundError). IncompatibleBrokerVersion before 3.0."""
    found = yield from descriptions(transactional_ids, backoff, timeout_s)
    return {name: result_or_raise(each, name, CoordinatorType.TRANSACTION) for name, each in found.items()}


def descriptions(
    transactional_ids: Iterable[str], backoff: Backoff, timeout_s: float
) -> Dialogue[dict[str, TransactionDescription | BrokerResponseError]]:
    """The same, with the error of each."""

    def ask(node: int, names: Sequence[str]) -> Dialogue[Mapping[str, TransactionDescription | BrokerResponseError]]:
        request = DescribeTransactionsRequest(transactional_ids=list(names))
        (answer,) = yield from request_brokers([Send(node, request)])
        return {
            row.transactional_id: for_code(row.error_code)("")
            if row.error_code
            else TransactionDescription(
                node,
                TransactionState.of(row.transaction_state),
                row.producer_id,
                row.producer_epoch,
                row.transaction_timeout_ms,
                row.transaction_start_time_ms,
                {TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions},
            )
            for row in answer.transaction_states
        }

    asking = request_coordinators(
        transactional_ids,
        ask,
        what="describing transactions",
        backoff=backoff,
        timeout_s=timeout_s,
        kind=CoordinatorType.TRANSACTION,
    )
    return (yield from requiring_release("3.0", asking))


# What partitions remember of their producers.


def describe_producers(
    partitions: Iterable[TopicPartition],
    broker_id: int | None = None,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[dict[TopicPartition, PartitionProducerState]]:
    """What partitions remember of their producers: ``{partition: PartitionProducerState}``. Their leaders are asked;
    ``broker_id``: this replica of all of them instead (NotLeaderForPartitionError when it is none). Raises the first
    error. IncompatibleBrokerVersion before 2.8."""
    asking = request_leaders(
        partitions,
        producers_request,
        read_producers,
        what="describing producers",
        backoff=backoff,
        timeout_s=timeout_s,
        node_id=broker_id,
    )
    return results_or_raise((yield from requiring_release("2.8", asking)))


def producers_request(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    """Asks for the producers of these."""
    return DescribeProducersRequest(topics=topics_as(DescribeProducersRequest.TopicRequest, by_topic(partitions)))


def read_producers(
    answer: DescribeProducersResponse,
) -> dict[TopicPartition, PartitionProducerState | BrokerResponseError]:
    """What each partition has told, or its error."""
    return {
        partition: result_of(each.error_code, each.error_message)
        if each.error_code
        else PartitionProducerState([ProducerState(*to_dict(row).values()) for row in each.active_producers])
        for partition, each in each_partition(answer.topics)
    }


# The end of a transaction by hand: a marker for one partition, without the coordinator (KIP-664).


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
    """Abort a producer's transaction in one partition, by ``AbortTransactionSpec(partition, producer_id,
    producer_epoch)``, whatever its coordinator says, which is not informed: for one that hangs, as readers of committed
    records wait for its end. Nothing happens when the producer has none there.

    InvalidProducerEpochError: the epoch is older than the partition's. TransactionCoordinatorFencedError: the
    coordinator's is; the default, -1, is then replaced by the partition's (2.8), as brokers refuse it
    where a coordinator has ended a transaction of this producer before. ClusterAuthorizationFailedError.

    A marker names a producer and no transaction: a second one would abort the producer's next transaction. So before
    each further try the partition is asked whether the one that was there before the first is there still. Where that
    cannot be asked (brokers before 2.8; topics that may not be read), an error behind which the marker may have been
    written is raised, and says so. After a KafkaTimeoutError, too, look before you call again.
    """
    abort = _Abort(_checked_spec(spec), backoff)
    try:
        yield from retrying(abort.attempt, what=abort.what, backoff=backoff, timeout_s=timeout_s)
    except _FinalError as end:
        raise end.error from None
    if abort.unclear is not None:
        raise type(abort.unclear)(
            f"{abort.what}: the outcome is not known, and the partition cannot be asked for it; another marker would"
            f" abort what the producer has open there by then ({abort.unclear})"
        ) from abort.unclear


def _checked_spec(given: Any) -> AbortTransactionSpec:
    call = "abort_transaction"
    try:
        spec = AbortTransactionSpec(*given)
    except TypeError:
        raise IllegalArgumentError(
            f"{call}: {given!r}: an AbortTransactionSpec(partition, producer_id, producer_epoch) is needed"
        ) from None
    for name, (least, most) in _RANGES.items():
        value = getattr(spec, name)
        if not is_integer(value) or not least <= value <= most:
            raise IllegalArgumentError(f"{call}: {name}={value!r}: a number of at least {least}, at most {most}")
    return spec._replace(topic_partition=partition_of(spec.topic_partition, call))


class _FinalError(Exception):
    """Carries a partition's error past the retry loop: one of a class that is tried again elsewhere."""

    def __init__(self, error: BrokerResponseError) -> None:
        super().__init__(error)
        self.error = error


class _Abort:
    """One transaction that is to be aborted, through all tries. ``unclear``: the error after which the outcome is not
    known, and cannot be looked up."""

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
        """Reads the partition's producer state before the first marker, so that a later attempt can tell an abort
        whose answer was lost from one that never arrived. With TRANSACTION_COORDINATOR_FENCED, the marker is sent
        again with the epoch that the partition knows, unless the caller gave one."""
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
        told: PartitionProducerState = yield from requiring_release("2.8", self._ask(producers_request, read_producers))
        return next((row for row in told.active_producers if row.producer_id == self._spec.producer_id), None)

    def _mark(self) -> Dialogue[None]:
        """Tries nothing twice."""

        message, spec = WriteTxnMarkersRequest, self._spec

        def build(partitions: Iterable[TopicPartition]) -> WriteTxnMarkersRequest:
            self._is_sent = True
            marker = message.WritableTxnMarker(
                producer_id=spec.producer_id,
                producer_epoch=spec.producer_epoch,
                transaction_result=False,
                topics=topics_as(message.WritableTxnMarkerTopic, by_topic(partitions)),
                coordinator_epoch=self._coordinator_epoch,
            )
            return message(markers=[marker])

        try:
            yield from self._ask(build, _read_markers)
        except KafkaError as error:
            is_final = classify(error) is RetryAction.GIVE_UP or type(error) in _UNWRITTEN
            if self._blind is None or not self._is_sent or is_final:
                raise
            self.unclear = error

    def _ask(self, build: Build, read: Read[T]) -> Dialogue[T]:
        partition = self._spec.topic_partition
        found = yield from request_leaders(
            [partition], build, read, what=self.what, backoff=self._backoff, timeout_s=inf, attempts=1
        )
        try:
            return results_or_raise(found)[partition]
        except BrokerResponseError as error:
            if classify(error) is RetryAction.GIVE_UP:
                raise
            raise _FinalError(error) from None


def _transaction(row: ProducerState | None) -> tuple[int, int] | None:
    """The producer's transaction in the partition, as none before or after it is."""
    return None if row is None else (row.producer_epoch, row.current_transaction_start_offset)


def _read_markers(answer: WriteTxnMarkersResponse) -> dict[TopicPartition, bool | BrokerResponseError]:
    return {
        partition: for_code(each.error_code)("") if each.error_code else True
        for marker in answer.markers
        for partition, each in each_partition(marker.topics)
    }


# Transactions that hang: what coordinators know and what partitions do, compared (KIP-664).
#
# A transaction hangs when no coordinator is going to end it: its coordinator does not, though its time is over, or
# does not know that it is open in a partition. Readers of committed records wait there until an operator aborts it.


log = logging.getLogger(__name__)

HANGING_SLACK_MS: Final = 5 * 60 * 1000
"""How long after the longest time that a transaction may have it is said to hang, as in Kafka's own tool."""
_NOBODY: Final = -1
"""The coordinator of a producer that none knows."""
_LIVE: Final = frozenset(
    {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
        TransactionState.PREPARE_EPOCH_FENCE,
        TransactionState.UNKNOWN,
    }
)
"""States in which a transaction is open in partitions."""
_LEFT_OUT: Final = (LeaderNotAvailableError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError)
"""Errors of partitions that cannot be looked at; the last: it was deleted meanwhile."""
_COORDINATORS: Final = "__transaction_state"
"""The leaders of its partitions are the coordinators."""


class _OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    partition: TopicPartition
    producer: ProducerState

    @property
    def key(self) -> tuple[TopicPartition, int, int]:
        """Not that of the producer's next transaction in the partition."""
        return self.partition, self.producer.producer_id, self.producer.current_transaction_start_offset


def find_hanging_transactions(
    broker_ids: Sequence[int] | None = None,
    max_transaction_timeout_ms: float = 900_000,
    *,
    now_ms: float,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[list[dict[str, Any]]]:
    """Hanging transactions: ``[{"transactional_id", "producer_id", "producer_epoch", "state",
    "age_ms", "coordinator_id", "topic_partitions"}]``, begun, or last written to, ``age_ms`` ago.

    Those that their coordinators have not ended ``max_transaction_timeout_ms`` (what the brokers'
    ``transaction.max.timeout.ms`` is) and five minutes after their begin: leave these to their coordinators, which may
    be about to commit (PrepareCommit). And those that are open in a partition, with nothing written for so long, of
    which no coordinator knows: ``transactional_id`` is None, ``state`` "Unknown" and ``coordinator_id`` -1 where there
    is none of that producer either, and only these may be aborted without a further look. ``broker_ids``: what these
    brokers coordinate and lead; all for None. Ages are reckoned by this computer's clock, which should be right.

    Partitions that have no leader now, or may not be read, are left out, and logged. Before anything is said to be
    known to no coordinator, all of them were heard twice: KafkaTimeoutError while one has no leader. They name only
    the transactional ids that this user may describe. IncompatibleBrokerVersion before 3.0.
    """
    given_ids = node_ids(broker_ids)
    slack_ms = milliseconds("max_transaction_timeout_ms", max_transaction_timeout_ms) + HANGING_SLACK_MS
    begun_before_ms = now_ms - slack_ms
    give_up_at = timeout_s + (yield from now())

    def limits() -> Dialogue[dict[str, Any]]:
        left_s = yield from time_left(give_up_at)
        if not left_s:
            raise KafkaTimeoutError(f"looking for transactions that hang: not done within {timeout_s:g} s")
        return {"backoff": backoff, "timeout_s": left_s}

    led = yield from _led_by(given_ids, **(yield from limits()))
    seen = yield from _open_transactions(led, **(yield from limits()))
    old = [each for each in seen if each.producer.last_timestamp <= begun_before_ms]
    writers = {each.producer.producer_id for each in old}
    _, live = yield from _live_transactions(given_ids, writers, limits)
    overdue = [
        {
            "transactional_id": name,
            "producer_id": known.producer_id,
            "producer_epoch": known.producer_epoch,
            "state": known.state.value,
            "age_ms": int(now_ms - known.transaction_start_time_ms),
            "coordinator_id": known.coordinator_id,
            "topic_partitions": sorted(known.topic_partitions),
        }
        for name, known in live.items()
        if 0 <= known.transaction_start_time_ms <= begun_before_ms
        and (given_ids is None or known.coordinator_id in given_ids)
    ]
    unknown = {each.key for each in _known_to_nobody(old, live)}
    if not unknown:
        return overdue
    # One of them may have ended since, and that is why its coordinator knows no more of it. Or what coordinates it was
    # between two brokers, neither of which listed it.
    again = yield from _open_transactions({each[0] for each in unknown}, **(yield from limits()))
    still = [each for each in again if each.key in unknown]
    if not still:
        return overdue
    yield from _wait_for_coordinators(**(yield from limits()))
    listed, live = yield from _live_transactions((), {each.producer.producer_id for each in still}, limits)
    return overdue + _orphans(_known_to_nobody(still, live), listed, now_ms)


def _live_transactions(
    broker_ids: Sequence[int] | None, writers: Container[int], limits: Callable[[], Dialogue[dict[str, Any]]]
) -> Dialogue[tuple[dict[int, list[TransactionListing]], dict[str, TransactionDescription]]]:
    """What each broker coordinates; and the transactions that are not over of transactional ids that these brokers
    (None: all) coordinate, or of these producers."""
    listed = yield from list_transactions(**(yield from limits()))
    names = [
        row.transactional_id
        for broker, rows in listed.items()
        for row in rows
        if row.state in _LIVE and (broker_ids is None or broker in broker_ids or row.producer_id in writers)
    ]
    found: dict[str, TransactionDescription] = {}
    for name, known in (yield from descriptions(sorted(names), **(yield from limits()))).items():
        if isinstance(known, TransactionDescription):
            if known.state in _LIVE:
                found[name] = known
        elif not isinstance(known, TransactionalIdNotFoundError):  # else it went meanwhile
            result_or_raise(known, name, CoordinatorType.TRANSACTION)
    return listed, found


def _known_to_nobody(
    opened: Iterable[_OpenTransaction], live: Mapping[str, TransactionDescription]
) -> list[_OpenTransaction]:
    covered = {(known.producer_id, partition) for known in live.values() for partition in known.topic_partitions}
    return [each for each in opened if (each.producer.producer_id, each.partition) not in covered]


def _wait_for_coordinators(*, backoff: Backoff, timeout_s: float) -> Dialogue[None]:
    """Until there is a broker for everything that a coordinator may know. None knows of anything where there was never
    a transaction."""

    def attempt() -> Dialogue[None]:
        metadata = yield from metadata_of([_COORDINATORS])
        for topic in metadata.topics:
            if for_code(topic.error_code) is UnknownTopicOrPartitionError:
                continue
            raise_first([(topic.error_code, None, f"{_COORDINATORS} has to be seen, to know of all coordinators")])
            for each in topic.partitions:
                if each.leader_id < 0:
                    raise LeaderNotAvailableError(f"{_COORDINATORS}-{each.partition_index} has no leader now")

    yield from retrying(attempt, what="looking for all coordinators", backoff=backoff, timeout_s=timeout_s)


def _orphans(
    opened: Iterable[_OpenTransaction], listed: Mapping[int, Iterable[TransactionListing]], now_ms: float
) -> list[dict[str, Any]]:
    """A row for each producer."""
    by_producer: dict[tuple[int, int], list[_OpenTransaction]] = {}
    for each in opened:
        by_producer.setdefault((each.producer.producer_id, each.producer.producer_epoch), []).append(each)
    owners = {row.producer_id: (broker, row) for broker, rows in listed.items() for row in rows}
    found = []
    for (producer_id, epoch), theirs in by_producer.items():
        broker, owner = owners.get(producer_id, (_NOBODY, None))
        found.append(
            {
                "transactional_id": None if owner is None else owner.transactional_id,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "state": (TransactionState.UNKNOWN if owner is None else owner.state).value,
                "age_ms": int(now_ms - max(each.producer.last_timestamp for each in theirs)),
                "coordinator_id": broker,
                "topic_partitions": sorted(each.partition for each in theirs),
            }
        )
    return found


def _led_by(broker_ids: Sequence[int] | None, *, backoff: Backoff, timeout_s: float) -> Dialogue[list[TopicPartition]]:
    """The partitions that these brokers lead; all for None, with those that have no leader."""

    def attempt() -> Dialogue[list[TopicPartition]]:
        metadata = yield from metadata_of(None)
        return [
            TopicPartition(str(topic.name), each.partition_index)
            for topic in metadata.topics
            for each in topic.partitions
            if broker_ids is None or each.leader_id in broker_ids
        ]

    return (yield from retrying(attempt, what="looking at partitions", backoff=backoff, timeout_s=timeout_s))


def _open_transactions(
    partitions: Iterable[TopicPartition], *, backoff: Backoff, timeout_s: float
) -> Dialogue[list[_OpenTransaction]]:
    """What is open in those of the partitions that have a leader and may be read."""
    asking = request_leaders(
        partitions,
        producers_request,
        read_producers,
        what="looking at producers",
        backoff=backoff,
        timeout_s=timeout_s,
        waits_for_leaders=False,
    )
    found = yield from requiring_release("3.0", asking)
    for partition, told in found.items():
        if isinstance(told, _LEFT_OUT):
            log.warning(
                "finding hanging transactions: skipped %s-%s: %r", partition.topic, partition.partition, told
            )
    looked_at = results_or_raise(
        {partition: told for partition, told in found.items() if not isinstance(told, _LEFT_OUT)}
    )
    return [
        _OpenTransaction(partition, producer)
        for partition, told in looked_at.items()
        for producer in told.active_producers
        if producer.current_transaction_start_offset >= 0
    ]
