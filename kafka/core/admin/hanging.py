"""Transactions that hang: what coordinators know and what partitions do, compared (KIP-664).

A transaction hangs when nobody is going to end it: its coordinator does not, though its time is over, or does not know
that it is open in a partition. Readers of committed records wait there until somebody aborts it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka.core.admin.answers import raise_first, since, time_left
from kafka.core.admin.coordinators import or_raise
from kafka.core.admin.given import milliseconds, node_ids
from kafka.core.admin.leaders import all_or_raise, at_leaders
from kafka.core.admin.producers import producers_request, read_producers
from kafka.core.admin.topics import metadata_of
from kafka.core.admin.transaction_values import (
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from kafka.core.admin.transactions import descriptions, list_transactions
from kafka.core.dialogue import Dialogue, now
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import CoordinatorType
from kafka.errors import (
    KafkaTimeoutError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.structs import TopicPartition

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
"""Errors of partitions in which nobody can look; the last: it was deleted meanwhile."""
_COORDINATORS: Final = "__transaction_state"
"""The leaders of its partitions are the coordinators."""


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
    ``transaction.max.timeout.ms`` is) and five minutes after their begin: leave these to their coordinators, which may
    be about to commit (PrepareCommit). And those that are open in a partition, with nothing written for so long, of
    which no coordinator knows: ``transactional_id`` is None, ``state`` "Unknown" and ``coordinator_id`` -1 where there
    is none of that producer either, and only these may be aborted without a further look. ``broker_ids``: what these
    brokers coordinate and lead; all for None. ``now_ms``: since the epoch.

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
    listed = yield from list_transactions(**(yield from limits()))
    names = [
        row.transactional_id
        for broker, rows in listed.items()
        for row in rows
        if row.state in _LIVE and (given_ids is None or broker in given_ids or row.producer_id in writers)
    ]
    live = yield from _live(names, **(yield from limits()))
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
        if 0 <= known.transaction_start_time_ms <= begun_before_ms
        and (given_ids is None or known.coordinator_id in given_ids)
    ]
    unknown = {each.key for each in _known_to_nobody(old, live)}
    if not unknown:
        return overdue
    # One of them may have ended since, and that is why its coordinator knows no more of it. Or what coordinates it was
    # between two brokers, neither of which told of it.
    again = yield from _open_transactions({each[0] for each in unknown}, **(yield from limits()))
    still = [each for each in again if each.key in unknown]
    if not still:
        return overdue
    yield from _wait_for_coordinators(**(yield from limits()))
    listed = yield from list_transactions(**(yield from limits()))
    writers = {each.producer.producer_id for each in still}
    names = [
        row.transactional_id
        for rows in listed.values()
        for row in rows
        if row.state in _LIVE and row.producer_id in writers
    ]
    live = yield from _live(names, **(yield from limits()))
    return overdue + _orphans(_known_to_nobody(still, live), listed, now_ms)


def _live(
    names: Iterable[str], *, backoff: Backoff, timeout_s: float
) -> Dialogue[dict[str, TransactionDescription]]:
    """Those of these transactional ids that have a transaction that is not over."""
    found: dict[str, TransactionDescription] = {}
    for name, known in (yield from descriptions(sorted(names), backoff, timeout_s)).items():
        if isinstance(known, TransactionDescription):
            if known.state in _LIVE:
                found[name] = known
        elif not isinstance(known, TransactionalIdNotFoundError):  # else it went meanwhile
            or_raise(known, name, CoordinatorType.TRANSACTION)
    return found


def _known_to_nobody(opened: Iterable[_Open], live: Mapping[str, TransactionDescription]) -> list[_Open]:
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
) -> Dialogue[list[_Open]]:
    """What is open in those of the partitions that have a leader and may be read."""
    asking = at_leaders(
        partitions,
        producers_request,
        read_producers,
        what="looking at producers",
        backoff=backoff,
        timeout_s=timeout_s,
        waits_for_leaders=False,
    )
    found = yield from since("3.0", asking)
    for partition, told in found.items():
        if isinstance(told, _LEFT_OUT):
            log.warning(
                "looking for transactions that hang: %s-%s was left out: %r", partition.topic, partition.partition, told
            )
    looked_at = all_or_raise({partition: told for partition, told in found.items() if not isinstance(told, _LEFT_OUT)})
    return [
        _Open(partition, producer)
        for partition, told in looked_at.items()
        for producer in told.active_producers
        if producer.current_transaction_start_offset >= 0
    ]
