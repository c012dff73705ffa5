"""A producer that is killed (kill -9) in the middle of its transactions: readers see all of a transaction, or nothing.

The moments are the broker's: it holds a request before it is handled, or its answer after that, and while the producer
waits it is killed. So each moment between two requests comes once, and always the same.
"""

from __future__ import annotations

import collections
import os
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError
from kafka.testing import EmbeddedBroker, Fault
from test.producer.transaction_worker import GROUP, TRANSACTIONS, committed
from test.support import seeds

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 60.0
REQUESTS = {
    "4.3": {"FindCoordinator": 2, "InitProducerId": 1, "Produce": 4, "TxnOffsetCommit": 2, "EndTxn": 2},
    "3.9": {
        "FindCoordinator": 2, "InitProducerId": 1, "AddPartitionsToTxn": 4, "Produce": 4, "AddOffsetsToTxn": 2,
        "TxnOffsetCommit": 2, "EndTxn": 2,
    },
}  # fmt: skip
"""Release -> the requests of ``write``, and how many there are of each."""
MOMENTS = [
    (release, api, nth, when)
    for release, requests in REQUESTS.items()
    for api, count in requests.items()
    for nth in range(1, count + 1)
    for when in ("before", "after")
]


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True, emulate=request.param) as running:
        yield running


@contextmanager
def worker(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "test.producer.transaction_worker", *arguments], cwd=ROOT, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def take_over(broker: EmbeddedBroker, name: str) -> None:
    """What the next producer with the transactional id does first: what was left open is ended."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name, retry_backoff_ms=5) as heir:
        heir.init_transactions()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("broker", REQUESTS, indirect=True)
def test_the_requests_between_which_it_is_killed_are_all_that_there_are(
    broker: EmbeddedBroker, request: pytest.FixtureRequest
) -> None:
    name = f"all-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=2)
    with worker("write", broker.bootstrap, name, name) as process:
        assert process.wait(DEADLINE_S) == 0
    release = request.node.callspec.params["broker"]
    seen = collections.Counter(each.api for each in broker.requests.find(client_id=name))
    assert {api: count for api, count in seen.items() if api not in ("ApiVersions", "Metadata")} == REQUESTS[release]


@pytest.mark.deep("kills a producer 50 times; kept by test_transactions_faults.py and the exactly-once test below")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("broker", "api", "nth", "when"), MOMENTS, indirect=["broker"])
def test_a_killed_producer_leaves_whole_transactions_or_nothing(
    broker: EmbeddedBroker, api: str, nth: int, when: str
) -> None:
    name = f"killed-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=2)
    with (
        broker.faults.drop(api, when=when, nth=nth, client_id=name) as held,
        worker("write", broker.bootstrap, name, name) as process,
    ):
        held.wait(1, DEADLINE_S)
        process.kill()
        process.wait()
    take_over(broker, name)
    found = collections.Counter(record.value for record in broker.records(name))
    ends = nth if api == "EndTxn" and when == "after" else nth - 1 if api in ("EndTxn", "TxnOffsetCommit") else None
    for number in range(TRANSACTIONS):
        assert found[b"%d" % number] in (0, 2), "both partitions have it, or none"
    whole = sum(1 for number in range(TRANSACTIONS) if found[b"%d" % number])
    assert found == {b"%d" % number: 2 for number in range(whole)}
    assert committed(broker.bootstrap, name, TopicPartition(name, 0)) == (whole or -1), "and so have the offsets"
    if ends is not None:
        assert whole == ends, "the coordinator's word is what counts, heard or not"


# -- exactly once -----------------------------------------------------------------------------------------------------

COUNT = 400
LIVES = 12


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "broker",
    [
        pytest.param(release, marks=[] if release == "4.3" else pytest.mark.deep("kept by the newest release"))
        for release in REQUESTS
    ],
    indirect=True,
)
def test_what_is_consumed_and_produced_again_arrives_exactly_once_whenever_the_worker_is_killed(
    broker: EmbeddedBroker, request: pytest.FixtureRequest
) -> None:
    release = request.node.callspec.params["broker"]
    rng = seeds.rng(release)
    source, target = f"source-{uuid.uuid4().hex[:8]}", f"target-{uuid.uuid4().hex[:8]}"
    broker.create_topic(source)
    broker.create_topic(target, partitions=2)
    broker.fill(source, [b"%d" % number for number in range(COUNT)], partition=0)
    kills = 0
    for life in range(LIVES + 1):
        arguments = ("move", broker.bootstrap, f"mover-{source}", source, target, str(COUNT))
        with worker(*arguments) as process:
            if life < LIVES:
                api = rng.choice(["Produce", "TxnOffsetCommit", "EndTxn", "EndTxn"])
                moment = {"when": rng.choice(["before", "after"]), "nth": rng.randrange(1, 4)}
                with broker.faults.drop(api, client_id=arguments[2], **moment) as held:
                    kills += wait_or_end(held, process)
                    process.kill()
                    process.wait()
            else:
                assert process.wait(DEADLINE_S) == 0
    assert kills >= LIVES // 2
    records = broker.records(target)
    for partition in range(2):
        found = [record.value for record in records if record.partition == partition]
        assert found == [b"moved %d" % number for number in range(partition, COUNT, 2)]
    assert committed(broker.bootstrap, GROUP, TopicPartition(source, 0)) == COUNT


def wait_or_end(held: Fault, process: subprocess.Popen[bytes]) -> bool:
    """Until the request is held, or the worker has done its work before that; whether it was held."""
    while process.poll() is None:
        try:
            held.wait(1, 0.2)
        except KafkaTimeoutError:
            continue
        return True
    return False
