"""Producers with transactions, for the owners of a schedule and for workers in consumer groups; and what keeps them
from working, as lines that say what is missing and how to grant it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka import admin
from kafka.client import KafkaClient
from kafka.errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    InvalidTransactionTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnstableOffsetCommitError,
)
from kafka.future import Future
from kafka.producer import KafkaProducer, transaction_trouble
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.tasks.backends.kafka.connection import producer_configs
from kafka.tasks.backends.kafka.loop_task import LoopTask, within
from kafka.tasks.backends.kafka.rights import COMMAND, how_to_grant
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.settings import Settings
from kafka.tasks.worker.runtime_estimate import PRODUCER_BATCH_RECORDS

TRANSACTION_TIMEOUT_MS: Final = 10_000
"""Of the transactions of owners: a broker ends what a dead one has left open, if no other owner does so before."""
REQUEST_TIMEOUT_S: Final = 10.0
"""Of their requests at most, and of the records of a transaction with all retries: it does not last longer."""
INIT_S: Final = 30.0
"""Time limit for having a transactional id. The answers of a cluster that just starts change within seconds."""

MISSING: Final[dict[type[KafkaError], str]] = {
    TransactionalIdAuthorizationFailedError: "not authorized to use transactional ids that begin with {app}.; "
    + how_to_grant("{app}", "transactional-id", "Write"),
    TopicAuthorizationFailedError: "not authorized to read or write a topic of the app ({error}); "
    + how_to_grant("{app}", "topic", "Read", "Write"),
    GroupAuthorizationFailedError: "not authorized to be a member of a group of the app ({error}); "
    + how_to_grant("{app}", "group", "Read"),
    InvalidTransactionTimeoutError: f"the broker allows no transactions of {TRANSACTION_TIMEOUT_MS} ms; set its "
    f"transaction.max.timeout.ms to {TRANSACTION_TIMEOUT_MS} or more",
    CoordinatorNotAvailableError: "the cluster has no coordinator of transactions: its topic __transaction_state has "
    "no leader, or cannot be made with fewer brokers than transaction.state.log.replication.factor says (3 unless it "
    "is set); start that many, or set it and transaction.state.log.min.isr to what there is",
}  # fmt: skip
"""Error -> what is missing, and how to have it."""


def explain(error: BaseException, names: TopicNames) -> str:
    """What the error means for an app, in one line."""
    for kind, text in MISSING.items():
        if isinstance(error, kind):
            detail = (error.args and error.args[0]) or type(error).__name__
            if COMMAND in detail:  # it says so itself
                return str(detail)
            return text.format(app=names.app, error=detail)
    return str(error)


def make_producer(client: KafkaClient, transactional_id: str, settings: Settings) -> KafkaProducer:
    """A producer with this transactional id, which it does not have yet."""
    configs = producer_configs(
        settings, linger_s=0, batch_bytes=settings.batch_bytes, batch_records=PRODUCER_BATCH_RECORDS
    )
    timeout_ms = min(configs["request_timeout_ms"], int(REQUEST_TIMEOUT_S * 1000))
    times: dict[str, Any] = {
        "request_timeout_ms": timeout_ms,
        "delivery_timeout_ms": int(REQUEST_TIMEOUT_S * 1000),
        "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
    }
    return KafkaProducer(
        client=client, transactional_id=transactional_id, metrics_enabled=False, **{**configs, **times}
    )


async def fence(
    client: KafkaClient, transactional_id: str, settings: Settings, timeout_s: float = INIT_S
) -> KafkaProducer:
    """A producer that has this transactional id: no earlier one can commit anything, and what it has left open is
    ended. KafkaError when it has none within ``timeout_s``; a producer that waits for its id might wait for ever."""
    producer = make_producer(client, transactional_id, settings)
    initialized = producer.init_transactions_async()
    try:
        if not await within(client.loop, initialized, timeout_s):
            raise transaction_trouble(producer) or KafkaTimeoutError(
                f"no answer of a coordinator of transactions within {timeout_s:g} s"
            )
        initialized.result()
    except BaseException:
        producer.close(timeout=0)
        raise
    return producer


async def committed_offsets(
    client: KafkaClient,
    group: str,
    places: Sequence[TopicPartition],
    timeout_s: float = REQUEST_TIMEOUT_S,
    require_stable: bool = False,
) -> Mapping[TopicPartition, OffsetAndMetadata]:
    """What a consumer group has committed; offset -1 where it has not. With ``require_stable``
    UnstableOffsetCommitError when an open transaction would still decide about an offset after ``timeout_s``."""
    limits: dict[str, Any] = {"backoff": client.retry_backoff, "timeout_s": timeout_s}
    try:
        committed = await client.run(
            admin.dialogues.list_group_offsets({group: places}, require_stable=require_stable, **limits)
        )
    except KafkaTimeoutError as error:
        if isinstance(error.__cause__, UnstableOffsetCommitError):
            raise error.__cause__ from error
        raise
    return committed[group]


def check_transactions(
    client: KafkaClient, names: TopicNames, settings: Settings, needed_by: str, timeout_s: float = INIT_S
) -> None:
    """See that transactions work, before a worker leases anything. Blocks, driving the client's loop. KafkaError with
    what is missing and how to grant it; ``needed_by``: what needs them."""
    checked: Future[None] = Future()

    async def check() -> None:
        (await fence(client, f"{names.app}.check", settings, timeout_s)).close(timeout=0)

    LoopTask(check(), lambda error: checked.success(None) if error is None else checked.failure(error))
    client.loop.run_until(checked)
    error = checked.exception
    if isinstance(error, KafkaError):
        raise KafkaError(f"{needed_by} of app {names.app} needs transactions: {explain(error, names)}") from error
    checked.result()
