"""Dialogues about transactions: what coordinators know of them, what partitions do, and an end by hand (KIP-664).

    list_transactions           what each broker coordinates
    describe_transactions       what the coordinator of each transactional id knows of it
    describe_producers          what partitions remember of their producers
    abort_transaction           a marker for one partition, without the coordinator
    find_hanging_transactions   the first three, compared

A transaction hangs when nobody is going to end it: its coordinator does not, though its time is over, or does not know
that it is open in a partition. Readers of committed records wait there until somebody aborts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka.core.admin.cluster import ask_brokers, broker_ids_of_the_cluster
from kafka.core.admin.coordinators import at_coordinators, or_raise
from kafka.core.admin.group_values import texts
from kafka.core.admin.leaders import all_or_raise, at_leaders
from kafka.core.admin.plain import raise_first, since
from kafka.core.admin.topics import metadata_of
from kafka.core.admin.transaction_values import (
    AbortTransactionSpec,
    PartitionProducerState,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from kafka.core.dialogue import Dialogue, Send
from kafka.core.partitions import by_topic
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import CoordinatorType
from kafka.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    TransactionalIdNotFoundError,
    TransactionCoordinatorFencedError,
    for_code,
)
from kafka.protocol.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafka.structs import TopicPartition

HANGING_SLACK_MS: Final = 5 * 60 * 1000
"""How long after the longest time that a transaction may have it is said to hang, as in Kafka's own tool."""

_NOBODY: Final = -1
"""The coordinator of a producer that none knows."""
_FILTERS: Final[Mapping[str, tuple[int, str]]] = {"duration_filter": (1, "3.8"), "transactional_id_pattern": (2, "4.1")}
"""Field of ListTransactions -> the version and the release that have it (KIP-994, KIP-1152)."""
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


# -- at coordinators --------------------------------------------------------------------------------------------------


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
    it). IncompatibleBrokerVersion before 3.0; InvalidRegularExpressionError.
    """
    request = ListTransactionsRequest(
        state_filters=texts(TransactionState, state_filters or ()),
        producer_id_filters=[int(producer) for producer in producer_id_filters or ()],
    )
    release, least = "3.0", 0
    given = {
        "duration_filter": None if duration_filter_ms is None else int(duration_filter_ms),
        "transactional_id_pattern": transactional_id_pattern,
    }
    for name, value in given.items():
        if value is not None:
            setattr(request, name, value)
            least, release = _FILTERS[name]
    left = None if broker_ids is None else list(broker_ids)
    found: dict[int, list[TransactionListing]] = {}

    def attempt() -> Dialogue[None]:
        nonlocal left
        if left is None:
            left = yield from broker_ids_of_the_cluster()
        asked = [broker for broker in left if broker not in found]
        answers = yield from ask_brokers([Send(broker, request, min_version=least) for broker in asked])
        for broker, answer in zip(asked, answers, strict=True):
            if not answer.error_code:
                found[broker] = [_listed(row) for row in answer.transaction_states]
        raise_first(
            (answer.error_code, None, f"list_transactions at node {broker}")
            for broker, answer in zip(asked, answers, strict=True)
        )

    yield from since(
        release, retrying(attempt, what="listing the transactions", backoff=backoff, timeout_s=timeout_s)
    )
    return found


def _listed(row: ListTransactionsResponse.TransactionState) -> TransactionListing:
    return TransactionListing(row.transactional_id, row.producer_id, TransactionState.of(row.transaction_state))


def describe_transactions(
    transactional_ids: Iterable[str], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[str, TransactionDescription]]:
    """What their coordinators know of them: ``{transactional id: TransactionDescription}``. Raises the first error
    (TransactionalIdNotFoundError). IncompatibleBrokerVersion before 3.0."""
    found = yield from _descriptions(transactional_ids, backoff, timeout_s)
    return {name: or_raise(each, name, CoordinatorType.TRANSACTION) for name, each in found.items()}


def _descriptions(
    transactional_ids: Iterable[str], backoff: Backoff, timeout_s: float
) -> Dialogue[dict[str, TransactionDescription | BrokerResponseError]]:
    def ask(node: int, names: Sequence[str]) -> Dialogue[Mapping[str, TransactionDescription | BrokerResponseError]]:
        request = DescribeTransactionsRequest(transactional_ids=list(names))
        (answer,) = yield from ask_brokers([Send(node, request)])
        return {row.transactional_id: _described(node, row) for row in answer.transaction_states}

    asking = at_coordinators(
        transactional_ids,
        ask,
        what="describing transactions",
        backoff=backoff,
        timeout_s=timeout_s,
        kind=CoordinatorType.TRANSACTION,
    )
    return (yield from since("3.0", asking))


def _described(
    node: int, row: DescribeTransactionsResponse.TransactionState
) -> TransactionDescription | BrokerResponseError:
    if row.error_code:
        return for_code(row.error_code)("")
    return TransactionDescription(
        node,
        TransactionState.of(row.transaction_state),
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout_ms,
        row.transaction_start_time_ms,
        {TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions},
    )


# -- in partitions ----------------------------------------------------------------------------------------------------

_Producers = dict[TopicPartition, "PartitionProducerState | BrokerResponseError"]


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
    asking = at_leaders(
        partitions,
        _producers_request,
        _read_producers,
        what="describing producers",
        backoff=backoff,
        timeout_s=timeout_s,
        node_id=broker_id,
    )
    return all_or_raise((yield from since("2.8", asking)))


def _producers_request(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    )


def _read_producers(answer: DescribeProducersResponse) -> _Producers:
    found: _Producers = {}
    for topic in answer.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                found[partition] = for_code(each.error_code)(each.error_message or "")
            else:
                found[partition] = PartitionProducerState([_producer(row) for row in each.active_producers])
    return found


def _producer(row: DescribeProducersResponse.ProducerState) -> ProducerState:
    return ProducerState(
        row.producer_id,
        row.producer_epoch,
        row.last_sequence,
        row.last_timestamp,
        row.coordinator_epoch,
        row.current_txn_start_offset,
    )


def abort_transaction(spec: AbortTransactionSpec, *, backoff: Backoff, timeout_s: float = 30.0) -> Dialogue[None]:
    """Abort a producer's transaction in one partition, whatever its coordinator says; nothing when it has none there.

    InvalidProducerEpochError: the epoch is older than the partition's. TransactionCoordinatorFencedError: the
    coordinator's is; the default, -1, is then replaced by the one that the partition tells (2.8), as brokers refuse it
    where a coordinator has ended a transaction of this producer before. ClusterAuthorizationFailedError.
    """
    spec = AbortTransactionSpec(*spec)
    partition = TopicPartition(*spec.topic_partition)
    if spec.producer_id < 0 or spec.producer_epoch < 0:
        raise IllegalArgumentError(f"abort_transaction: {spec}: a producer id and an epoch of at least 0 are needed")

    def write(coordinator_epoch: int) -> Dialogue[None]:
        def build(partitions: Iterable[TopicPartition]) -> WriteTxnMarkersRequest:
            return _abort_request(spec, partitions, coordinator_epoch)

        what = f"aborting the transaction of producer {spec.producer_id}"
        found = yield from at_leaders(
            [partition], build, _read_markers, what=what, backoff=backoff, timeout_s=timeout_s
        )
        all_or_raise(found)

    try:
        yield from write(spec.coordinator_epoch)
        return
    except TransactionCoordinatorFencedError:
        if spec.coordinator_epoch >= 0:
            raise
    told = yield from describe_producers([partition], backoff=backoff, timeout_s=timeout_s)
    epochs = [row.coordinator_epoch for row in told[partition].active_producers if row.producer_id == spec.producer_id]
    yield from write(max(epochs, default=0))


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


# -- what hangs -------------------------------------------------------------------------------------------------------


class _Open(NamedTuple):
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
    """Transactions that nobody is going to end: ``[{"transactional_id", "producer_id", "producer_epoch", "state",
    "age_ms", "coordinator_id", "topic_partitions"}]``, begun, or last written to, ``age_ms`` ago.

    Those that their coordinators have not ended ``max_transaction_timeout_ms`` (what the brokers'
    ``transaction.max.timeout.ms`` is) and five minutes after their begin. And those that are open in a partition, with
    nothing written for so long, of which no coordinator knows: ``transactional_id`` is None, ``state`` "Unknown" and
    ``coordinator_id`` -1 where there is none of that producer. ``broker_ids``: what these brokers coordinate and lead;
    all for None. ``now_ms``: since the epoch. Partitions that have no leader now, or may not be read, are left out.
    IncompatibleBrokerVersion before 3.0.
    """
    limits: dict[str, Any] = {"backoff": backoff, "timeout_s": timeout_s}
    limit_ms = now_ms - max_transaction_timeout_ms - HANGING_SLACK_MS
    seen = yield from _open_transactions(broker_ids, None, **limits)
    old = [each for each in seen if each.producer.last_timestamp <= limit_ms]
    writers = {each.producer.producer_id for each in old}
    listed = yield from list_transactions(**limits)
    names = sorted(
        row.transactional_id
        for broker, rows in listed.items()
        for row in rows
        if row.state in _LIVE and (broker_ids is None or broker in broker_ids or row.producer_id in writers)
    )
    live: dict[str, TransactionDescription] = {}
    for name, known in (yield from _descriptions(names, **limits)).items():
        if isinstance(known, TransactionDescription):
            if known.state in _LIVE:
                live[name] = known
        elif not isinstance(known, TransactionalIdNotFoundError):  # else it went meanwhile
            or_raise(known, name, CoordinatorType.TRANSACTION)
    overdue = [
        _row(
            name,
            known.producer_id,
            known.producer_epoch,
            known.state,
            now_ms - known.transaction_start_time_ms,
            known.coordinator_id,
            known.topic_partitions,
        )
        for name, known in live.items()
        if 0 <= known.transaction_start_time_ms <= limit_ms
        and (broker_ids is None or known.coordinator_id in broker_ids)
    ]
    covered = {(known.producer_id, partition) for known in live.values() for partition in known.topic_partitions}
    unknown = {each.key for each in old if (each.producer.producer_id, each.partition) not in covered}
    if not unknown:
        return overdue
    # One of them may have ended since, and that is why its coordinator knows no more of it.
    again = yield from _open_transactions(broker_ids, {partition for partition, _, _ in unknown}, **limits)
    still = [each for each in again if each.key in unknown]
    return overdue + _orphans(still, listed, now_ms)


def _orphans(
    opened: Iterable[_Open], listed: Mapping[int, Iterable[TransactionListing]], now_ms: float
) -> list[dict[str, Any]]:
    """A row for each producer."""
    by_producer: dict[tuple[int, int], list[_Open]] = {}
    for each in opened:
        by_producer.setdefault((each.producer.producer_id, each.producer.producer_epoch), []).append(each)
    owners = {row.producer_id: (broker, row) for broker, rows in listed.items() for row in rows}
    found = []
    for (producer_id, epoch), theirs in by_producer.items():
        broker, owner = owners.get(producer_id, (_NOBODY, None))
        name, state = (None, TransactionState.UNKNOWN) if owner is None else (owner.transactional_id, owner.state)
        age_ms = now_ms - max(each.producer.last_timestamp for each in theirs)
        found.append(_row(name, producer_id, epoch, state, age_ms, broker, [each.partition for each in theirs]))
    return found


def _row(
    name: str | None,
    producer_id: int,
    producer_epoch: int,
    state: TransactionState,
    age_ms: float,
    coordinator_id: int,
    partitions: Iterable[TopicPartition],
) -> dict[str, Any]:
    return {
        "transactional_id": name,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "state": state.value,
        "age_ms": int(age_ms),
        "coordinator_id": coordinator_id,
        "topic_partitions": sorted(partitions),
    }


def _open_transactions(
    broker_ids: Sequence[int] | None,
    partitions: set[TopicPartition] | None,
    *,
    backoff: Backoff,
    timeout_s: float,
) -> Dialogue[list[_Open]]:
    """What is open in these partitions, all for None, that have a leader (one of ``broker_ids``) and may be read."""
    names = None if partitions is None else sorted({partition.topic for partition in partitions})

    def attempt() -> Dialogue[list[_Open]]:
        metadata = yield from metadata_of(names)
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic in metadata.topics:
            for each in topic.partitions:
                partition = TopicPartition(str(topic.name), each.partition_index)
                is_wanted = partitions is None or partition in partitions
                if is_wanted and each.leader_id >= 0 and (broker_ids is None or each.leader_id in broker_ids):
                    by_leader.setdefault(each.leader_id, []).append(partition)
        answers = yield from ask_brokers([Send(node, _producers_request(led)) for node, led in by_leader.items()])
        return [
            _Open(partition, producer)
            for answer in answers
            for partition, told in _read_producers(answer).items()
            if isinstance(told, PartitionProducerState)
            for producer in told.active_producers
            if producer.current_transaction_start_offset >= 0
        ]

    looking = retrying(attempt, what="looking at producers", backoff=backoff, timeout_s=timeout_s)
    return (yield from since("3.0", looking))
