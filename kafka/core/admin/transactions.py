"""Dialogues about transactions: what their coordinators know of them (KIP-664).

    list_transactions       what each broker coordinates
    describe_transactions   what the coordinator of each transactional id knows of it

What partitions know of them is ``producers``'s; an end by hand ``aborting``'s; what nobody ends ``hanging``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafka.core.admin.answers import raise_first, since
from kafka.core.admin.cluster import ask_brokers, broker_ids_of_the_cluster
from kafka.core.admin.coordinators import at_coordinators, or_raise
from kafka.core.admin.given import list_of, milliseconds, node_ids, numbers_of
from kafka.core.admin.group_values import texts
from kafka.core.admin.transaction_values import TransactionDescription, TransactionListing, TransactionState
from kafka.core.dialogue import Dialogue, Send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import CoordinatorType
from kafka.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    KafkaConnectionError,
    UnknownBrokerIdError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.structs import TopicPartition

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
    request = ListTransactionsRequest(
        state_filters=_states(() if state_filters is None else state_filters),
        producer_id_filters=numbers_of(producers, "producer_id_filters", "a list of producers' ids is needed"),
    )
    release, least = "3.0", 0
    given = {
        "duration_filter": None if duration_filter_ms is None else _duration_ms(duration_filter_ms),
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
            answers = yield from ask_brokers([Send(broker, request, min_version=least) for broker in asked])
        except UnknownBrokerIdError as error:
            if given_ids is not None:
                raise
            raise KafkaConnectionError(f"{call}: {error}") from error
        for broker, answer in zip(asked, answers, strict=True):
            if answer.unknown_state_filters:
                raise UnsupportedVersionError(
                    f"{call}: node {broker} knows no state {', '.join(answer.unknown_state_filters)}:"
                    " leave it out of state_filters"
                )
            if not answer.error_code:
                found[broker] = [_listed(row) for row in answer.transaction_states]
        raise_first(
            (answer.error_code, None, f"{call} at node {broker}")
            for broker, answer in zip(asked, answers, strict=True)
        )
        return wanted

    heard = yield from since(
        release, retrying(attempt, what="listing the transactions", backoff=backoff, timeout_s=timeout_s)
    )
    return {broker: found[broker] for broker in heard}


def _states(given: Iterable[TransactionState | str]) -> list[str]:
    found = texts(TransactionState, list_of(given, "state_filters", "a list of states is needed"))
    if TransactionState.UNKNOWN.value in found:
        raise IllegalArgumentError("state_filters: there is no asking for the state Unknown")
    return found


def _duration_ms(given: float) -> int:
    if milliseconds("duration_filter_ms", given) < 0:
        raise IllegalArgumentError(f"duration_filter_ms={given!r}: at least 0 is needed")
    return int(given)


def _listed(row: ListTransactionsResponse.TransactionState) -> TransactionListing:
    return TransactionListing(row.transactional_id, row.producer_id, TransactionState.of(row.transaction_state))


def describe_transactions(
    transactional_ids: Iterable[str], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[str, TransactionDescription]]:
    """What their coordinators know of them: ``{transactional id: TransactionDescription}``. Raises the first error
    (TransactionalIdNotFoundError). IncompatibleBrokerVersion before 3.0."""
    found = yield from descriptions(transactional_ids, backoff, timeout_s)
    return {name: or_raise(each, name, CoordinatorType.TRANSACTION) for name, each in found.items()}


def descriptions(
    transactional_ids: Iterable[str], backoff: Backoff, timeout_s: float
) -> Dialogue[dict[str, TransactionDescription | BrokerResponseError]]:
    """The same, with the error of each."""

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
