"""Puts a producer's parts together: settings -> accumulator, sender and driver on one host.

Nothing here is done twice in a producer's life. A new part (a transaction's machine, metrics) is made here, handed to
those that use it, and given back in :class:`Parts`.
"""

from __future__ import annotations

import os
import random
import weakref
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from kafka.client import Host
from kafka.core.produce.accumulator import CLOSED, Accumulator
from kafka.core.produce.partitioning import STICKY, partitioning_for
from kafka.core.produce.sender import Sender
from kafka.core.produce.transactions import TransactionManager
from kafka.errors import IllegalStateError
from kafka.partitioner import DefaultPartitioner, StickyPartitioner
from kafka.producer.codec import chosen_codec
from kafka.producer.driver import FORKED, Driver
from kafka.producer.transactions import Transactions
from kafka.wire.types import ZERO_UUID

_NAMES: dict[type, str | None] = {DefaultPartitioner: None, StickyPartitioner: STICKY}
"""kafka-python's classes for what is built in."""


def _built_in(partitioner: Any) -> Any:
    """A name, where it is one of kafka-python's own classes, or an instance of just that; else what was given."""
    kind = partitioner if isinstance(partitioner, type) else type(partitioner)
    return _NAMES.get(kind, partitioner)


class Parts(NamedTuple):
    """What a producer is made of, beside its host."""

    accumulator: Accumulator
    sender: Sender
    driver: Driver
    transactions: Transactions | None


def assemble(settings: dict[str, Any], host: Host, lock: AbstractContextManager[Any]) -> Parts:
    """The parts for these resolved settings. ``lock`` is the accumulator's.

    Nothing that the I/O thread holds may hold ``host``, nor the producer: forgetting them ends the thread.
    """
    host_ref = weakref.ref(host)
    pid = os.getpid()
    loop = host.loop
    cluster = host.client.cluster

    def guard() -> None:
        living = host_ref()
        if living is not None:
            living.check_may_block()
        elif os.getpid() != pid:
            raise IllegalStateError(FORKED)

    def signal() -> None:
        try:
            loop.call_soon_threadsafe(driver.pump)
        except RuntimeError:
            if os.getpid() != pid:
                raise IllegalStateError(FORKED) from None
            raise IllegalStateError(CLOSED) from None

    def leader_of(topic: str, partition: int) -> int | None:
        found = cluster.find_partition(topic, partition)
        return None if found is None or found.leader < 0 else found.leader

    def leader_epoch_of(topic: str, partition: int) -> int:
        found = cluster.find_partition(topic, partition)
        return -1 if found is None else found.leader_epoch

    codec = chosen_codec(settings)
    late_ms = settings["partitioner_availability_timeout_ms"]
    rng = random.Random()
    partitioning = partitioning_for(
        _built_in(settings["partitioner"]),
        rng,
        batch_bytes=settings["batch_size"],
        adaptive=settings["partitioner_adaptive_partitioning_enable"],
        ignore_keys=settings["partitioner_ignore_keys"],
        late_s=late_ms and (late_ms + settings["linger_ms"]) / 1000,
        cluster=cluster,
    )
    accumulator = Accumulator(
        lock=lock,
        clock=loop.time,
        rng=rng,
        signal=signal,
        guard=guard,
        buffer_bytes=settings["buffer_memory"],
        batch_bytes=min(settings["batch_size"], settings["max_request_size"]),
        batch_records=settings["batch_max_records"],
        max_batch_bytes=settings["max_request_size"],
        compression=codec.number,
        compression_level=codec.level,
        partitioner=partitioning,
    )
    transactional_id = settings["transactional_id"]
    machine = None if transactional_id is None else TransactionManager(transactional_id)
    sender = Sender(
        accumulator,
        leader_of=leader_of,
        leader_epoch_of=leader_epoch_of,
        topic_id_of=lambda topic: cluster.topic_id(topic) or ZERO_UUID,
        free_at=host.client.throttled_until,
        acks=settings["acks"],
        idempotent=settings["enable_idempotence"],
        linger_s=settings["linger_ms"] / 1000,
        max_request_bytes=settings["max_request_size"],
        max_in_flight=settings["max_in_flight_requests_per_connection"],
        request_timeout_s=settings["request_timeout_ms"] / 1000,
        delivery_timeout_s=settings["delivery_timeout_ms"] / 1000,
        backoff=host.client.retry_backoff,
        retries=None if settings["retries"] == float("inf") else int(settings["retries"]),
        transactions=machine,
    )
    driver = Driver(host.client, accumulator, sender, settings)
    transactions = None
    if machine is not None:
        transactions = Transactions(host.client, machine, sender, driver.when_answered, driver.pump_soon, settings)
        driver.on_pumped = transactions.pump
    return Parts(accumulator, sender, driver, transactions)
