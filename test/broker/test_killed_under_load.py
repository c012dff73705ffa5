"""``kill -9`` in the middle of everything that the broker makes durable: records, transactions, groups, committed
offsets, share acknowledgements, topics; while logs are compacted and their old segments deleted. What was acknowledged
is there after the restart, nothing comes twice, and nothing hangs.

``KAFKA_TEST_ROUNDS`` multiplies the rounds, ``KAFKA_TEST_SEED`` sets the chance: a round that fails tells its own.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kafka.protocol.configs import IncrementalAlterConfigsRequest
from kafka.protocol.topics import CreateTopicsRequest
from kafka.testing import EmbeddedBroker
from test.broker.crash_load import Client, Load, Progress, topic_id_of
from test.broker.crash_members import Member, ShareMember
from test.broker.crash_producers import CompactedWriter, Creator, Expiring, IdempotentProducer, Transactions
from test.broker.raw_client import RawClient
from test.support import seeds

ROUNDS = 8
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "50",
    "log.initial.task.delay.ms": "10",
    "log.retention.check.interval.ms": "50",
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "records": (3, {"segment.ms": "500"}),
    "shared": (1, {}),
    "transactions": (2, {"segment.ms": "500"}),
    "offsets": (1, {}),
    "compacted": (1, {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.01"}),
    "expiring": (1, {"segment.ms": "50", "retention.ms": "200"}),
}


def make(client: RawClient, name: str, partitions: int, settings: dict[str, str]) -> None:
    configs = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs
    )
    assert client.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0


def set_group(client: RawClient, group: str) -> None:
    I = IncrementalAlterConfigsRequest  # noqa: E741
    changes = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
    resource = I.AlterConfigsResource(
        resource_type=32,
        resource_name=group,
        configs=[I.AlterableConfig(name=name, config_operation=0, value=value) for name, value in changes.items()],
    )
    assert client.ask(I(resources=[resource], validate_only=False)).responses[0].error_code == 0


def make_load(port: int) -> Load:
    """The topics, and workers for them."""
    with Client(port) as client:
        for name, (partitions, settings) in TOPICS.items():
            make(client, name, partitions, settings)
        set_group(client, ShareMember.GROUP)
        shared = topic_id_of(client, "shared")
    progress = Progress()
    return Load(
        [
            IdempotentProducer(port, progress, "records", 3),
            IdempotentProducer(port, progress, "shared", 1),
            ShareMember(port, progress, "shared", shared),
            Transactions(port, progress, "transactions", "new", 5),
            Transactions(port, progress, "transactions", "old", 4),
            Member(port, progress, "offsets", is_classic=True),
            Member(port, progress, "offsets", is_classic=False),
            CompactedWriter(port, progress, "compacted"),
            Expiring(port, progress, "expiring"),
            Creator(port, progress),
        ],
        progress,
    )


def troubles(broker: EmbeddedBroker) -> list[str]:
    """The last lines of its log that are more than information, tracebacks included."""
    with open(broker.log_path, encoding="utf-8") as log:
        return [line for line in log if " INFO " not in line][-60:]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_that_was_acknowledged_is_lost_and_nothing_comes_twice(tmp_path: Path, rounds: int) -> None:
    seed = seeds.run_seed()
    with EmbeddedBroker(tmp_path / "data", settings=SETTINGS) as broker:
        load = make_load(broker.port)
        with load.running():
            for number in range(ROUNDS * rounds):
                round_seed = seed + number
                chance = random.Random(round_seed)
                is_last = number == ROUNDS * rounds - 1
                try:
                    load.go()
                    load.progress.wait_for(chance.randrange(20, 600))
                    load.hold(broker.kill)
                    broker._fsync = ("interval", "always")[number % 2]
                    broker.start()
                    load.check(broker.port)
                except BaseException as error:
                    print(f"round {number}: KAFKA_TEST_SEED={round_seed} begins with its kill")
                    print("".join(troubles(broker)))
                    raise error
                if is_last:
                    break
            print(f"{ROUNDS * rounds} rounds from KAFKA_TEST_SEED={seed} on")
        load.check(broker.port, is_last=True)
        counts = {type(worker).__name__: vars(worker) for worker in load.workers}
        compacted, member = counts["CompactedWriter"], counts["Member"]
        assert compacted["length"] < compacted["_number"], "the cleaner has worked"
        assert counts["Expiring"]["start_offset"] > 0, "segments were deleted"
        assert member["beats_after_restarts"] > 0
        said = "".join(troubles(broker))
        assert "Traceback" not in said and "failed; closing the connection" not in said, said
