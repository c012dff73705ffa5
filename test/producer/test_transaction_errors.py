"""Every error code, answered once to each request of a transaction, by a broker that is told to: what becomes of the
transaction is what the table of recoveries says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kafka import KafkaProducer, TopicPartition
from kafka.core.produce.errors import (
    TRANSACTION_ERROR_ACTIONS,
    ProduceErrorAction,
    TransactionErrorAction,
    TransactionRequestKind,
    produce_error_action,
)
from kafka.core.states import TransactionPhase
from kafka.errors import (
    ERRORS_BY_CODE,
    AbortableTransactionError,
    DuplicateSequenceNumberError,
    FatalTransactionError,
    KafkaError,
    ProducerFencedError,
    TransactionError,
    for_code,
)
from kafka.structs import OffsetAndMetadata
from kafka.testing import EmbeddedBroker

CODES = [code for code in sorted(ERRORS_BY_CODE) if code]
VERSION_1 = "3.9"
VERSION_2 = "4.3"
WALKS = [
    *(
        (VERSION_2, api)
        for api in (
            TransactionRequestKind.INIT,
            TransactionRequestKind.PRODUCE,
            TransactionRequestKind.COMMIT_OFFSETS,
            TransactionRequestKind.END,
        )
    ),
    *(
        pytest.param(VERSION_1, api, marks=pytest.mark.deep("an older protocol; kept by test_error_tables.py"))
        for api in TransactionRequestKind
        if api is not TransactionRequestKind.FIND
    ),
]
TOPIC = "walked"
GROUP = "group"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True, emulate=request.param, topics={TOPIC: 1, "source": 1}) as running:
        yield running


def transactional(broker: EmbeddedBroker, name: str, **settings: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        client_id=name,
        transactional_id=name,
        retry_backoff_ms=1,
        max_block_ms=20_000,
        **settings,
    )


def transact(producer: KafkaProducer, value: bytes) -> None:
    producer.begin_transaction()
    producer.send(TOPIC, value)
    producer.send_offsets_to_transaction({TopicPartition("source", 0): OffsetAndMetadata(1)}, GROUP)
    producer.commit_transaction()


def outcome_of(api: TransactionRequestKind, code: int) -> TransactionErrorAction | None:
    """What the tables say; None: it is as if nothing had happened."""
    error = for_code(code)("x")
    if api is TransactionRequestKind.PRODUCE:
        action = produce_error_action(error, is_first=True, is_numbered=True)
        if action in (ProduceErrorAction.RETRY, ProduceErrorAction.SUCCEEDED):
            return None
    recovery = TRANSACTION_ERROR_ACTIONS[api].action_for(error)
    return None if recovery.is_retry else recovery


def walk(broker: EmbeddedBroker, api: TransactionRequestKind, code: int, value: bytes) -> bool:
    """One transaction, and another one if that goes; whether ``value`` was committed at last."""
    name = f"{api.name}-{code}-{next(_numbers)}"
    expected = outcome_of(api, code)
    with (
        transactional(broker, name) as producer,
        broker.faults.answer(api.value, code, nth=1, client_id=name) as fault,
    ):
        raised: KafkaError | None = None
        try:
            producer.init_transactions()
            transact(producer, value)
        except KafkaError as error:
            raised = error
        assert fault.hits == 1
        machine = producer._transactions.machine  # type: ignore[union-attr]
        if expected is None:
            assert raised is None
            return not isinstance(for_code(code)(), DuplicateSequenceNumberError)  # told to be there, and is not
        assert isinstance(raised, KafkaError)
        if expected is TransactionErrorAction.AGAIN:
            assert not isinstance(raised, TransactionError)
            assert type(raised) is for_code(code)
            producer.init_transactions()
        elif expected in (TransactionErrorAction.FATAL, TransactionErrorAction.FENCED):
            assert isinstance(raised, FatalTransactionError)
            assert isinstance(raised, ProducerFencedError) == (expected is TransactionErrorAction.FENCED)
            assert machine.state is TransactionPhase.FATAL_ERROR
            for call in (
                producer.begin_transaction,
                producer.commit_transaction,
                producer.abort_transaction,
                lambda: producer.send(TOPIC, b"never"),
            ):
                with pytest.raises(type(raised)):
                    call()
            with transactional(broker, name) as heir:
                heir.init_transactions()  # ends what was left open, or nobody could read on
            return False
        else:
            assert isinstance(raised, AbortableTransactionError)
            assert isinstance(raised, ERRORS_BY_CODE[code]), "it is still the error that it was"
            for call in (producer.begin_transaction, producer.commit_transaction, lambda: producer.send(TOPIC, b"n")):
                with pytest.raises(AbortableTransactionError):
                    call()
            producer.abort_transaction()
        transact(producer, value)
        return True


@pytest.mark.parametrize(("broker", "api"), WALKS, indirect=["broker"])
def test_each_error_code_once_ends_as_the_table_says(broker: EmbeddedBroker, api: TransactionRequestKind) -> None:
    committed = []
    for code in CODES:
        value = f"{api.name}-{code}".encode()
        try:
            if walk(broker, api, code, value):
                committed.append(value)
        except BaseException:
            print(f"{api.value} answered {code} ({for_code(code).__name__})")
            raise
    found = {record.value for record in broker.records(TOPIC) if record.value.startswith(api.name.encode() + b"-")}
    assert found == set(committed), "of a transaction that was not committed, nothing is read"
