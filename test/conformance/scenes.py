"""What random requests find on both brokers, how their state is compared afterwards, and how it is put back.

Apache Kafka does many things a moment after it has said so (topics, settings). :func:`settle` waits until both brokers
show the same, which is also the comparison of what requests have done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kafka.protocol.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.list_offsets import ListOffsetsRequest
from kafka.protocol.log_dirs import DescribeLogDirsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.offsets import OffsetCommitRequest
from kafka.protocol.produce import ProduceRequest
from kafka.protocol.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from kafka.protocol.registry import NAMES
from kafka.protocol.sasl import DescribeUserScramCredentialsRequest
from kafka.protocol.topics import CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest
from kafka.protocol.transactions import InitProducerIdRequest
from kafka.records import GZIP
from kafka.wire.message import Request
from test.conformance.broker_pair import BrokerPair, Difference, Side, differences
from test.conformance.intended_differences import alike
from test.conformance.random_requests import BASE_MS, CONFIG_NAMES, Batch, Named, Scene
from test.conformance.readiness import GROUP, SHARE, TRANSACTION, wait_for_coordinator
from test.support.waiting import NotWithin, eventually, look_until

SETTLED_S: Final = 10.0
"""How long Apache Kafka may take until it shows what it has done. What is different then does not end a test: it has
more to compare, and tells all differences at its end."""

SETTINGS: Final = {
    "num.partitions": "2",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
}
"""Of both brokers."""

View = tuple[Request[Any], int]
"""A request that shows state, and its version."""


def make_internal_topics(pair: BrokerPair) -> None:
    """Ask for each kind of coordinator until all are there; and learn where the data is."""
    for side in pair.sides:
        wait_for_coordinator(side, "group", GROUP)
        wait_for_coordinator(side, "transaction", TRANSACTION)
        wait_for_coordinator(side, "group:AAAAAAAAAAAAAAAAAAAAAQ:0", SHARE)
        found = side.ask(DescribeLogDirsRequest(topics=[]), 1).results[0].log_dir
        side.learn("log-dir", found, "$log-dir")
    found = settle(pair, [_all_topics()])
    assert not found, found


def make_scene(pair: BrokerPair, stem: str) -> Scene:
    """Three topics with records, some of them deleted, some by an idempotent producer; a group with offsets."""
    left, right, compact = topics = (f"left-{stem}", f"right-{stem}", f"compact-{stem}")
    producers = (Named(f"$producer-a-{stem}"), Named(f"$producer-b-{stem}"))
    scene = Scene(topics, (f"group-a-{stem}", f"group-b-{stem}"), (f"tx-a-{stem}", f"tx-b-{stem}"), producers)
    _ask_alike(pair, CreateTopicsRequest(topics=[_creatable(name) for name in topics], timeout_ms=10_000), 7)
    found = settle(pair, [_all_topics(), _offsets(scene, -1)])
    assert not found, found
    for side in pair.sides:
        for name in topics:
            side.topic_id(name)
        for producer in producers:
            side.learn("producer", _new_producer(side), producer.name)
    for topic, partition, batch in (
        (left, 0, Batch((b"a", b"b"))),
        (left, 0, Batch((b"c" * 100, b"d" * 100, b"e"), timestamp=BASE_MS + 20, codec=GZIP)),
        (left, 0, Batch((b"f", b"g"), timestamp=BASE_MS + 50, producer=producers[0], epoch=0, sequence=0)),
        (left, 1, Batch((b"h",), timestamp=BASE_MS + 30)),
        (left, 1, Batch((b"i",), timestamp=BASE_MS + 10)),
        (right, 0, Batch((b"j", b"k", b"l"))),
        (right, 0, Batch((b"m",), timestamp=BASE_MS + 30)),
        (right, 0, Batch((b"n",), timestamp=BASE_MS + 40)),
        (compact, 0, Batch((b"o", b"p"), key=b"k")),
        (compact, 0, Batch((b"q", None), key=b"l", timestamp=BASE_MS + 20)),
    ):
        _ask_alike(pair, lambda side, one=(topic, partition, batch): produced(side, *one), 9)
    _ask_alike(pair, _delete_records(right, 0, 2), 2)
    commit = _commit(scene.groups[0], {left: 3, right: 0})
    for side in pair.sides:
        eventually(lambda side=side: side.ask(commit, 8).topics[0].partitions[0].error_code, 0)
    return scene


def clear(pair: BrokerPair, scene: Scene) -> None:
    """Take away what tests after this one should not meet: settings, quotas, topics."""
    for side in pair.sides:
        if side.was_configured:
            for name in ("", "1"):
                for setting in CONFIG_NAMES:  # one by one, or one that cannot be unset would keep them all
                    side.ask(_unset(name, setting), 1)
            side.was_configured = False
        side.ask(_no_quotas(side), 1)
        listed = side.ask(MetadataRequest(topics=None), 12).topics
        mine = [
            DeleteTopicsRequest.DeleteTopicState(name=topic.name, topic_id=_ZERO)
            for topic in listed
            if not topic.is_internal
        ]
        side.ask(DeleteTopicsRequest(topics=mine, topic_names=[], timeout_ms=10_000), 6)
    settle(pair, [_all_topics()])


_ZERO: Final = DeleteTopicsRequest.DeleteTopicState(name="").topic_id

# -- what there is ---------------------------------------------------------------------------------------------------


def _all_topics() -> View:
    return MetadataRequest(topics=None, allow_auto_topic_creation=False), 12


def _offsets(scene: Scene, timestamp: int) -> View:
    return (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=timestamp)
                        for number in (0, 1)
                    ],
                )
                for name in scene.topics
            ],
        ),
        8,
    )


def _topics_of(scene: Scene) -> list[View]:
    return [_all_topics(), _offsets(scene, -1)]


def _logs_of(scene: Scene) -> list[View]:
    return [_offsets(scene, -1), _offsets(scene, -2)]


def _settings_of(scene: Scene) -> list[View]:
    wanted = [(2, name) for name in scene.topics] + [(4, "1"), (4, ""), (32, scene.groups[0])]
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=CONFIG_NAMES
        )
        for kind, name in wanted
    ]
    return [(DescribeConfigsRequest(resources=resources, include_synonyms=True), 4)]


def _quotas_of(scene: Scene) -> list[View]:
    return [(DescribeClientQuotasRequest(components=[], strict=False), 1)]


def _scram_of(scene: Scene) -> list[View]:
    return [(DescribeUserScramCredentialsRequest(users=None), 0)]


VIEWS: Final[dict[str, Callable[[Scene], list[View]]]] = {
    "CreateTopics": _topics_of,
    "DeleteTopics": _topics_of,
    "CreatePartitions": _topics_of,
    "Metadata": _topics_of,
    "Produce": _logs_of,
    "DeleteRecords": _logs_of,
    "AlterConfigs": _settings_of,
    "IncrementalAlterConfigs": _settings_of,
    "AlterClientQuotas": _quotas_of,
    "AlterUserScramCredentials": _scram_of,
}
"""API -> what shows on both brokers alike what it has done."""


def settle(pair: BrokerPair, views: Sequence[View], known: Sequence[Difference] = ()) -> list[Difference]:
    """Wait until both brokers show the same; what is still different in the end. ``known``: what was so before."""
    try:
        return look_until(
            lambda: [one for view in views for one in _apart(pair, *view)],
            lambda found: not found or found == list(known),
            within_s=SETTLED_S,
        )
    except NotWithin as different:
        return list(different.found)


# -- requests --------------------------------------------------------------------------------------------------------


def _ask_alike(pair: BrokerPair, request: Any, version: int) -> None:
    found = _apart(pair, request, version)
    assert not found, found


def _apart(pair: BrokerPair, request: Any, version: int) -> list[Difference]:
    first, second = pair.ask(request, version)
    api = NAMES[(request if isinstance(request, Request) else request(pair.sides[0])).api_key]
    return differences(*alike(api, first, second), api)


def _creatable(name: str) -> CreateTopicsRequest.CreatableTopic:
    config = CreateTopicsRequest.CreatableTopicConfig(name="cleanup.policy", value="compact")
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=2,
        replication_factor=1,
        assignments=[],
        configs=[config] if name.startswith("compact") else [],
    )


def _new_producer(side: Side) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    return int(look_until(lambda: side.ask(request, 4), lambda answer: not answer.error_code).producer_id)


def produced(side: Side, topic: str, partition: int, batch: Batch) -> ProduceRequest:
    """A request that has one batch."""
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch.bytes(side))
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )


def _delete_records(topic: str, partition: int, before: int) -> DeleteRecordsRequest:
    partition_request = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=before)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition_request])], timeout_ms=10_000
    )


def _commit(group: str, offsets: dict[str, int]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata="m"
                    )
                ],
            )
            for name, offset in offsets.items()
        ],
    )


def _unset(name: str, setting: str) -> IncrementalAlterConfigsRequest:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name=setting, config_operation=1, value=None)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4, resource_name=name, configs=[change]
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def _no_quotas(side: Side) -> AlterClientQuotasRequest:
    listed = side.ask(DescribeClientQuotasRequest(components=[], strict=False), 1)
    return AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[
                    AlterClientQuotasRequest.EntityData(entity_type=one.entity_type, entity_name=one.entity_name)
                    for one in entry.entity
                ],
                ops=[AlterClientQuotasRequest.OpData(key=one.key, value=0.0, remove=True) for one in entry.values],
            )
            for entry in listed.entries or []
        ],
        validate_only=False,
    )
