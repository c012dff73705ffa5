"""What administrators ask besides topics and groups: exact error codes and texts, the same of both brokers.

Everything here was measured on Apache Kafka 4.3.0. What differs on purpose (a broker that unregisters itself, client
metrics, a resource named twice in AlterConfigs) is in the handlers' docstrings, and no test is here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

import pytest

from kafka.protocol.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.configs import AlterConfigsRequest, DescribeConfigsRequest, ListConfigResourcesRequest
from kafka.protocol.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kafka.protocol.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from kafka.protocol.metadata import DescribeClusterRequest, MetadataRequest
from kafka.protocol.offsets import OffsetCommitRequest
from kafka.protocol.quorum import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from kafka.protocol.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from kafka.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.topics import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeTopicPartitionsRequest,
)
from test.broker.driver import batch, produce_request
from test.broker.raw_client import RawClient
from test.conformance.readiness import produce_to_leader
from test.support.waiting import eventually

T = TypeVar("T")
DEADLINE_S = 30.0
VOTER = UUID(int=5)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(int(bootstrap.rpartition(":")[2])) as client:
        yield client


@pytest.fixture
def node_id(raw: RawClient) -> int:
    return raw.ask(DescribeClusterRequest(include_cluster_authorized_operations=False)).brokers[0].broker_id


# -- rules of access, tokens -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_without_an_authorizer_there_are_no_rules(raw: RawClient, version: int) -> None:
    anything: dict[str, Any] = {
        "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None, "host_filter": None,
        "operation": 1, "permission_type": 1,
    }  # fmt: skip
    for resource_type in (1, 99):
        found = raw.ask(DescribeAclsRequest(resource_type_filter=resource_type, **anything), version)
        assert (found.error_code, found.error_message) == (54, "No Authorizer is configured on the broker")
        assert found.resources == []
    rule = CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="x", resource_pattern_type=3, principal="User:a", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    made = raw.ask(CreateAclsRequest(creations=[rule, rule]), version)
    assert [(one.error_code, one.error_message) for one in made.results] == [(54, "No Authorizer is configured.")] * 2
    filters = [DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=1, **anything)]
    gone = raw.ask(DeleteAclsRequest(filters=filters), version)
    assert [one.error_code for one in gone.filter_results] == [54]
    assert raw.ask(CreateAclsRequest(creations=[]), version).results == []


def test_who_has_not_authenticated_gets_no_tokens(raw: RawClient) -> None:
    wanted = CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1
    )
    made = raw.ask(wanted, 3)
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (64, "ANONYMOUS", "ANONYMOUS")
    assert (made.issue_timestamp_ms, made.token_id, bytes(made.hmac)) == (-1, "", b"")
    plain = CreateDelegationTokenRequest(
        owner_principal_type="", owner_principal_name="", renewers=[], max_lifetime_ms=-1
    )
    assert [raw.ask(plain, version).error_code for version in (1, 2)] == [64, 64]
    for version in (1, 2):
        assert raw.ask(RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1), version).error_code == 64
        assert raw.ask(ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), version).error_code == 64
    for version in (1, 2, 3):
        assert raw.ask(DescribeDelegationTokenRequest(owners=None), version).error_code == 64


# -- directories -----------------------------------------------------------------------------------------------------


def _describe_dirs(raw: RawClient, version: int, *topics: tuple[str, list[int]]) -> Any:
    wanted = [DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=found) for name, found in topics]
    answer = raw.ask(DescribeLogDirsRequest(topics=wanted), version)
    assert answer.error_code == 0
    (only,) = answer.results
    return only


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_the_size_of_a_partition_is_that_of_its_records(
    raw: RawClient, new_topic: Callable[..., str], version: int
) -> None:
    topic = new_topic(2)
    data = batch(bytes(1000))
    produce_to_leader(raw, produce_request(topic, data, 1))

    def sizes() -> dict[tuple[str, int], int]:
        found = _describe_dirs(raw, version, (topic, [1, 0, 7]), ("nobody-made-this", [0]))
        return {
            (one.name, each.partition_index): each.partition_size for one in found.topics for each in one.partitions
        }

    eventually(sizes, {(topic, 0): 0, (topic, 1): len(data)})
    found = _describe_dirs(raw, version, (topic, [1]))
    assert found.error_code == 0
    assert all(one.offset_lag == 0 and not one.is_future_key for one in found.topics[0].partitions)
    assert (found.total_bytes > 0 and found.usable_bytes > 0) is (version >= 4)
    assert not found.is_cordoned
    assert _describe_dirs(raw, version).topics == []
    whole = raw.ask(DescribeLogDirsRequest(topics=None), version)
    assert topic in {one.name for one in whole.results[0].topics}


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_can_only_be_moved_to_the_directory_that_there_is(
    raw: RawClient, new_topic: Callable[..., str], version: int
) -> None:
    topic = new_topic()
    ours = _describe_dirs(raw, 5).log_dir

    def moved(path: str) -> dict[tuple[str, int], int]:
        kind = AlterReplicaLogDirsRequest
        topics = [
            kind.AlterReplicaLogDirTopic(name=topic, partitions=[0, 7]),
            kind.AlterReplicaLogDirTopic(name="nobody-made-this", partitions=[0]),
        ]
        answer = raw.ask(kind(dirs=[kind.AlterReplicaLogDir(path=path, topics=topics)]), version)
        return {
            (one.topic_name, each.partition_index): each.error_code for one in answer.results for each in one.partitions
        }

    assert moved(ours) == {(topic, 0): 0, (topic, 7): 3, ("nobody-made-this", 0): 3}
    assert set(moved("/nowhere").values()) == set(moved("nowhere").values()) == {57}


# -- leaders, moves --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("kind", [0, 1, 9])
def test_no_election_is_needed_where_one_broker_leads(
    raw: RawClient, new_topic: Callable[..., str], version: int, kind: int
) -> None:
    if version == 0 and kind:
        kind = 0  # it knows no other
    topic = new_topic()
    wanted = [
        ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0, 7]),
        ElectLeadersRequest.TopicPartitions(topic="nobody-made-this", partitions=[0]),
    ]
    answer = raw.ask(ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=3000), version)
    found = [
        (one.topic, each.partition_id, each.error_code, each.error_message)
        for one in answer.replica_election_results
        for each in one.partition_result
    ]
    if kind == 9:
        assert answer.error_code == 42
        assert {(code, text) for _, _, code, text in found} == {(42, "Unknown election type 9")}
        return
    assert answer.error_code == 0
    assert found == [
        (topic, 0, 84, "Leader election not needed for topic partition."),
        (topic, 7, 3, f"No such partition as {topic}-7"),
        ("nobody-made-this", 0, 3, "No such topic as nobody-made-this"),
    ]


def test_an_election_of_all_leaders_names_the_topics_alone(raw: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    answer = raw.ask(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=3000))
    assert {one.topic: one.partition_result for one in answer.replica_election_results}[topic] == []


REASSIGNMENTS = [
    ([0], 39, "The manual partition assignment includes an empty replica list."),
    ([0, 9], 39, "The manual partition assignment includes broker 9, but no such broker is registered."),
    ([0, -1], 39, "The manual partition assignment includes broker -1, but no such broker is registered."),
    (None, 85, None),
]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("replicas", "code", "text"), REASSIGNMENTS, ids=lambda value: str(value)[:20])
def test_a_move_is_checked(
    raw: RawClient, new_topic: Callable[..., str], version: int, replicas: list[int] | None, code: int, text: str
) -> None:
    topic = new_topic()
    brokers = None if replicas is None else replicas[1:]
    assert _reassign(raw, version, (topic, 0, brokers)) == [(code, text)]


@pytest.mark.parametrize("version", [0, 1])
def test_a_move_to_where_a_partition_is_is_done_at_once(
    raw: RawClient, new_topic: Callable[..., str], version: int, node_id: int
) -> None:
    topic = new_topic()
    assert _reassign(raw, version, (topic, 0, [node_id])) == [(0, None)]
    twice = f"The manual partition assignment includes the broker {node_id} more than once."
    assert _reassign(raw, version, (topic, 0, [node_id, node_id])) == [(39, twice)]
    assert _reassign(raw, version, (topic, 7, [node_id])) == [(3, f"Unable to find partition {topic}:7.")]
    assert _reassign(raw, version, ("nobody-made-this", 0, None)) == [
        (3, "Unable to find a topic named nobody-made-this.")
    ]
    assert _reassign(raw, version) == []
    listed = raw.ask(ListPartitionReassignmentsRequest(timeout_ms=3000, topics=None))
    assert (listed.error_code, listed.topics) == (0, [])


def _reassign(raw: RawClient, version: int, *moves: tuple[str, int, list[int] | None]) -> list[tuple[int, str | None]]:
    kind = AlterPartitionReassignmentsRequest
    topics = [
        kind.ReassignableTopic(
            name=name, partitions=[kind.ReassignablePartition(partition_index=number, replicas=replicas)]
        )
        for name, number, replicas in moves
    ]
    answer = raw.ask(kind(timeout_ms=3000, topics=topics), version)
    assert (answer.error_code, answer.error_message) == (0, None if moves else "")
    return [(one.error_code, one.error_message) for topic in answer.responses for one in topic.partitions]


# -- quotas ----------------------------------------------------------------------------------------------------------

Entity = Sequence[tuple[str, "str | None"]]
Ops = Sequence[tuple[str, "float | None"]]


def _alter_quota(raw: RawClient, entity: Entity, ops: Ops, validate_only: bool = False) -> tuple[int, str | None]:
    kind = AlterClientQuotasRequest
    entry = kind.EntryData(
        entity=[kind.EntityData(entity_type=one, entity_name=name) for one, name in entity],
        ops=[kind.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )
    (found,) = raw.ask(kind(entries=[entry], validate_only=validate_only)).entries
    return found.error_code, found.error_message


def _quotas(raw: RawClient, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    kind = DescribeClientQuotasRequest
    return raw.ask(
        kind(
            components=[
                kind.ComponentData(entity_type=one, match_type=how, match=name) for one, how, name in components
            ],
            strict=strict,
        ),
        version,
    )


def _shown(answer: Any) -> list[tuple[Any, Any]]:
    assert answer.error_code == 0
    return sorted(
        (
            sorted((one.entity_type, one.entity_name) for one in entry.entity),
            sorted((one.key, one.value) for one in entry.values),
        )
        for entry in answer.entries
    )


def test_quotas_are_kept_found_and_removed(raw: RawClient, unique: Callable[[str], str]) -> None:
    user, client = unique("user"), unique("client")
    big = float(1 << 40)
    alone, both = [("user", user)], [("client-id", client), ("user", user)]
    assert _alter_quota(raw, alone, [("producer_byte_rate", big), ("request_percentage", 99.5)]) == (0, None)
    assert _alter_quota(raw, both, [("consumer_byte_rate", big)]) == (0, None)
    assert _alter_quota(raw, [("user", unique("user"))], [("producer_byte_rate", big)], validate_only=True)[0] == 0
    of_alone = (alone, [("producer_byte_rate", big), ("request_percentage", 99.5)])
    of_both = (both, [("consumer_byte_rate", big)])
    for version in (0, 1):
        eventually(lambda: _shown(_quotas(raw, ("user", 0, user), version=version)), [of_both, of_alone])  # noqa: B023
    assert _shown(_quotas(raw, ("user", 0, user), strict=True)) == [of_alone]
    assert _shown(_quotas(raw, ("user", 0, user), ("client-id", 2, None))) == [of_both]
    assert of_alone in _shown(_quotas(raw, ("user", 2, None)))
    assert of_alone in _shown(_quotas(raw))
    assert _shown(_quotas(raw, ("user", 1, None), ("client-id", 0, client))) == []
    assert _alter_quota(raw, alone, [("producer_byte_rate", None), ("request_percentage", None)]) == (0, None)
    assert _alter_quota(raw, both, [("consumer_byte_rate", None)]) == (0, None)
    assert _alter_quota(raw, both, [("consumer_byte_rate", None)]) == (0, None)
    eventually(lambda: _shown(_quotas(raw, ("user", 0, user))), [])


BAD_QUOTAS: list[tuple[Entity, Ops, str]] = [
    ([("user", "a")], [("foo", 1.0)], "Invalid configuration key foo"),
    ([("user", "a")], [("producer_byte_rate", -1.0)], "Quota producer_byte_rate must be greater than 0"),
    ([("user", "a")], [("producer_byte_rate", 1.5)], "producer_byte_rate cannot be a fractional value."),
    (
        [("user", "a")],
        [("producer_byte_rate", 1e300)],
        "Proposed value for producer_byte_rate is too large for a LONG.",
    ),
    ([("user", "a")], [("connection_creation_rate", 1.0)], "Invalid configuration key connection_creation_rate"),
    ([("ip", "1.2.3.4")], [("producer_byte_rate", 1.0)], "Invalid configuration key producer_byte_rate"),
    (
        [("ip", "1.2.3.4")],
        [("connection_creation_rate", 1.5)],
        "connection_creation_rate cannot be a fractional value.",
    ),
    ([("ip", "not an ip")], [("connection_creation_rate", 1.0)], "not an ip is not a valid IP or resolvable host."),
    ([("foo", "a")], [("producer_byte_rate", 1.0)], "Unhandled client quota entity type: foo"),
    ([("user", "")], [("producer_byte_rate", 1.0)], "Empty user not supported"),
    ([], [("producer_byte_rate", 1.0)], "Invalid empty client quota entity"),
    (
        [("user", "a"), ("ip", "1.2.3.4")],
        [("producer_byte_rate", 1.0)],
        "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
    ),
    (
        [("user", "a")],
        [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)],
        "Ignoring duplicate entity ClientQuotaEntity(entries={user=a})",
    ),
]


@pytest.mark.parametrize(("entity", "ops", "text"), BAD_QUOTAS, ids=[str(row[2])[:45] for row in BAD_QUOTAS])
def test_a_quota_that_cannot_be_is_refused(raw: RawClient, entity: Entity, ops: Ops, text: str) -> None:
    assert _alter_quota(raw, entity, ops) == (42, text)


def test_a_quota_that_is_no_number_is_kept(raw: RawClient, unique: Callable[[str], str]) -> None:
    user = [("user", unique("user"))]
    assert _alter_quota(raw, user, [("producer_byte_rate", math.nan)]) == (0, None)
    kept = str([(user, [("producer_byte_rate", math.nan)])])  # a NaN equals nothing
    eventually(lambda: str(_shown(_quotas(raw, ("user", 0, user[0][1])))), kept)
    assert _alter_quota(raw, user, [("producer_byte_rate", None)]) == (0, None)


def test_an_unknown_kind_of_election_names_no_partition(raw: RawClient) -> None:
    answer = raw.ask(ElectLeadersRequest(election_type=-1, topic_partitions=None, timeout_ms=1000), 2)
    assert (answer.error_code, answer.replica_election_results) == (42, [])


BAD_FILTERS: list[tuple[list[tuple[str, int, str | None]], int, str]] = [
    ([("foo", 0, "x")], 35, "Unsupported entity type foo"),
    ([("", 0, "x")], 42, "Invalid empty entity type."),
    ([("user", 7, None)], 42, "Unknown match type 7"),
    ([("user", 2, None), ("user", 0, "x")], 42, "Entity type user cannot appear more than once in the filter."),
    ([("user", 0, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
    ([("user", 1, "x")], 42, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
    ([("ip", 2, None), ("user", 2, None)], 42,
     "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter "
     "component."),
]  # fmt: skip


@pytest.mark.parametrize(("components", "code", "text"), BAD_FILTERS, ids=[str(row[2])[:45] for row in BAD_FILTERS])
def test_a_filter_of_quotas_that_cannot_be_is_refused(
    raw: RawClient, components: list[tuple[str, int, str | None]], code: int, text: str
) -> None:
    answer = _quotas(raw, *components)
    assert (answer.error_code, answer.error_message, answer.entries) == (code, text, None)


# -- quorum, features ------------------------------------------------------------------------------------------------


def _quorum(raw: RawClient, version: int, topic: str, partition: int) -> Any:
    kind = DescribeQuorumRequest
    topic_data = kind.TopicData(topic_name=topic, partitions=[kind.PartitionData(partition_index=partition)])
    answer = raw.ask(kind(topics=[topic_data]), version)
    assert (answer.error_code, answer.error_message) == (0, "")
    assert answer.topics[0].topic_name == topic
    return answer, answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_one_controller_leads_the_quorum(raw: RawClient, node_id: int, version: int) -> None:
    answer, found = _quorum(raw, version, "__cluster_metadata", 0)
    assert (found.error_code, found.leader_id, found.observers) == (0, node_id, [])
    (voter,) = found.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (node_id, found.high_watermark)
    assert (voter.last_fetch_timestamp > 0) is (voter.last_caught_up_timestamp > 0) is (version >= 1)
    assert [node.node_id for node in answer.nodes] == ([node_id] if version >= 2 else [])
    for topic, partition in (("__cluster_metadata", 1), ("nobody-made-this", 0)):
        answer, found = _quorum(raw, version, topic, partition)
        text = "This server does not host this topic-partition." if version >= 2 else ""
        assert (found.error_code, found.error_message, found.leader_id, found.current_voters) == (3, text, 0, [])
        assert answer.nodes == []


def test_voters_cannot_change_and_a_stranger_cannot_be_unregistered(raw: RawClient) -> None:
    listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host="127.0.0.1", port=1)

    def add(cluster_id: str | None, version: int) -> tuple[int, str | None]:
        found = raw.ask(
            AddRaftVoterRequest(
                cluster_id=cluster_id, timeout_ms=1000, voter_id=9, voter_directory_id=VOTER, listeners=[listener]
            ),
            version,
        )
        return found.error_code, found.error_message

    def remove(cluster_id: str | None) -> tuple[int, str | None]:
        found = raw.ask(RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=9, voter_directory_id=VOTER))
        return found.error_code, found.error_message

    feature = "because the kraft.version feature is 0"
    assert add(None, 0) == add(None, 1) == (35, f"Cluster doesn't support adding voter {feature}")
    assert remove(None) == (35, f"Cluster doesn't support removing voter {feature}")
    invalid = RemoveRaftVoterRequest(cluster_id=None, voter_id=-1, voter_directory_id=VOTER)
    assert raw.ask(invalid).error_code == 42
    assert add("wrong", 1)[0] == remove("wrong")[0] == 104
    gone = raw.ask(UnregisterBrokerRequest(broker_id=99))
    assert (gone.error_code, gone.error_message) == (102, "Broker ID 99 is not currently registered")


UP, SAFE, UNSAFE = 1, 2, 3
_WRONG = "The update failed for all features since the following feature had an error: "
_NO_DOWNGRADE = "Unsupported metadata.version downgrade from 30 to "
UPDATES: list[tuple[list[tuple[str, int, int]], str]] = [
    ([("foo", 1, UP)], "Invalid update version 1 for feature foo. Local controller {} does not support this feature."),
    ([("share.version", 9, UP)],
     "Invalid update version 9 for feature share.version. Local controller {} only supports versions 0-1"),
    ([("share.version", -1, UP)],
     "Invalid update version -1 for feature share.version. A feature version cannot be less than 0."),
    ([("share.version", 0, UP)],
     "Invalid update version 0 for feature share.version. Can't downgrade the version of this feature without setting "
     "the upgrade type to either safe or unsafe downgrade."),
    ([("share.version", 1, 0)],
     "Invalid update version 1 for feature share.version. The controller does not support the given upgrade type."),
    ([("kraft.version", 1, SAFE)],
     "Invalid update version 1 for feature kraft.version. Can't downgrade to a newer version."),
    ([("metadata.version", 31, UP)],
     "Invalid update version 31 for feature metadata.version. Local controller {} only supports versions 7-30"),
    ([("metadata.version", 29, SAFE)],
     _NO_DOWNGRADE + "29. Refusing to perform the requested downgrade because it might delete metadata information."),
    ([("metadata.version", 20, UNSAFE)],
     _NO_DOWNGRADE + "20. Unsafe metadata downgrade is not supported in this version."),
    ([("share.version", 1, UP), ("foo", 1, UP)],
     "Invalid update version 1 for feature foo. Local controller {} does not support this feature."),
]  # fmt: skip


def _update(
    raw: RawClient, version: int, updates: list[tuple[str, int, int]], validate_only: bool = False
) -> tuple[int, str | None, list[tuple[str, int, str | None]]]:
    kind = UpdateFeaturesRequest
    wanted = [
        kind.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=how) for name, level, how in updates
    ]
    found = raw.ask(kind(timeout_ms=5000, feature_updates=wanted, validate_only=validate_only), version)
    results = [(one.feature, one.error_code, one.error_message) for one in found.results]
    return found.error_code, found.error_message, results


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("updates", "text"), UPDATES, ids=[str(row[0]) for row in UPDATES])
def test_a_level_that_cannot_be_is_refused(
    raw: RawClient, node_id: int, version: int, updates: list[tuple[str, int, int]], text: str
) -> None:
    assert _update(raw, version, updates) == (95, _WRONG + text.format(node_id), [])


@pytest.mark.parametrize(
    "updates",
    [
        [("share.version", 1, UP)],
        [("share.version", 0, SAFE)],
        [("share.version", 0, UNSAFE), ("group.version", 0, SAFE)],
        [("transaction.version", 1, SAFE)],
        [("kraft.version", 1, UP)],
        [],
    ],
    ids=str,
)
def test_a_possible_level_is_accepted(raw: RawClient, updates: list[tuple[str, int, int]]) -> None:
    results = [(name, 0, "NONE") for name, _, _ in updates]
    assert _update(raw, 1, updates, validate_only=True) == (0, None, results)
    assert _update(raw, 2, updates, validate_only=True) == (0, None, [])


def test_clients_get_the_changed_level(raw: RawClient) -> None:
    def told() -> tuple[int, dict[str, int]]:
        found = raw.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
        levels = {one.name: one.max_version_level for one in found.finalized_features}
        return found.finalized_features_epoch, levels

    epoch, before = told()
    assert before["transaction.version"] == 2
    try:
        assert _update(raw, 2, [("transaction.version", 1, SAFE)])[0] == 0
        eventually(lambda: told()[1], {**before, "transaction.version": 1})
        assert told()[0] > epoch
    finally:
        assert _update(raw, 2, [("transaction.version", 2, UP)])[0] == 0
    eventually(lambda: told()[1], before)


# -- configurations --------------------------------------------------------------------------------------------------

Resource = tuple[int, str, Sequence[tuple[str, "str | None"]]]


def _alter(raw: RawClient, *resources: Resource, version: int = 2, validate_only: bool = False) -> Any:
    kind = AlterConfigsRequest
    answer = raw.ask(
        kind(
            resources=[
                kind.AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=[kind.AlterableConfig(name=key, value=value) for key, value in configs],
                )
                for resource_type, name, configs in resources
            ],
            validate_only=validate_only,
        ),
        version,
    )
    return [(one.error_code, one.error_message) for one in answer.responses]


def _own(raw: RawClient, topic: str) -> dict[str, str | None]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=None
    )
    (found,) = raw.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    return {one.name: one.value for one in found.configs if one.config_source == 1}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_all_that_was_set(raw: RawClient, new_topic: Callable[..., str], version: int) -> None:
    topic = new_topic(retention_ms=1000)
    assert _alter(raw, (TOPIC, topic, [("segment.ms", "1000")]), version=version) == [(0, None)]
    eventually(lambda: _own(raw, topic), {"segment.ms": "1000"})
    assert _alter(raw, (TOPIC, topic, [("retention.ms", "5")]), version=version, validate_only=True) == [(0, None)]
    assert _own(raw, topic) == {"segment.ms": "1000"}
    assert _alter(raw, (TOPIC, topic, []), version=version) == [(0, None)]
    eventually(lambda: _own(raw, topic), {})
    assert _alter(raw, version=version) == []


BAD_CONFIGS: list[tuple[Resource, int, str]] = [
    ((TOPIC, "nobody-made-this", []), 3, "The topic 'nobody-made-this' does not exist."),
    ((TOPIC, "", []), 42, "Default topic resources are not allowed."),
    ((TOPIC, "*", [("foo", "1")]), 40, "Unknown topic config name: foo"),
    (
        (TOPIC, "*", [("retention.ms", "x")]),
        40,
        "Invalid value x for configuration retention.ms: Not a number of type LONG",
    ),
    ((TOPIC, "*", [("retention.ms", None)]), 42, "Null value not supported for : retention.ms"),
    ((TOPIC, "*", [("segment.ms", "1"), ("segment.ms", "2")]), 42, "Error due to duplicate config keys"),
    ((9, "x", []), 42, "Unknown resource type 9"),
    ((LOGGER, "1", [("kafka", "INFO")]), 42, "Unknown resource type 8"),
    ((BROKER, "99", []), 42, "Unexpected broker id, expected {}, but received 99"),
    ((BROKER, "x", []), 42, "Node id must be an integer, but it is: x"),
    ((BROKER, "", []), 40, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
    ((BROKER, "{}", [("node.id", "7")]), 42, "Cannot update these configs dynamically: [node.id]"),
    ((GROUP, "g", [("foo", "1")]), 40, "Unknown group config name: foo"),
    ((GROUP, "", []), 42, "Default group resources are not allowed."),
]


@pytest.mark.parametrize(("resource", "code", "text"), BAD_CONFIGS, ids=[str(row[2])[:50] for row in BAD_CONFIGS])
def test_a_configuration_that_cannot_be_is_refused(
    raw: RawClient, new_topic: Callable[..., str], node_id: int, resource: Resource, code: int, text: str
) -> None:
    kind, name, configs = resource
    name = new_topic() if name == "*" else name.format(node_id)
    assert _alter(raw, (kind, name, configs)) == [(code, text.format(node_id))]


def test_resources_with_configurations_are_listed_by_their_type(
    raw: RawClient, new_topic: Callable[..., str], unique: Callable[[str], str], node_id: int
) -> None:
    topic, group = new_topic(), unique("group")
    assert _alter(raw, (GROUP, group, [("share.auto.offset.reset", "earliest")])) == [(0, None)]

    def listed(*kinds: int) -> set[tuple[int, str]]:
        answer = raw.ask(ListConfigResourcesRequest(resource_types=list(kinds)), 1)
        assert answer.error_code == 0
        return {(one.resource_type, one.resource_name) for one in answer.config_resources}

    eventually(lambda: (GROUP, group) in listed(GROUP), True)
    assert {kind for kind, _ in listed(TOPIC)} == {TOPIC}
    assert (TOPIC, topic) in listed(TOPIC)
    assert listed(BROKER, LOGGER) == {(BROKER, str(node_id)), (LOGGER, str(node_id))}
    assert listed() == listed(TOPIC, BROKER, LOGGER, METRICS, GROUP)
    for kind in (0, 1, 9):
        assert raw.ask(ListConfigResourcesRequest(resource_types=[kind]), 1).error_code == 35
    assert raw.ask(ListConfigResourcesRequest(), 0).config_resources == []
    assert _alter(raw, (GROUP, group, [])) == [(0, None)]
    eventually(lambda: (GROUP, group) in listed(GROUP), False)


# -- topics, in pieces -----------------------------------------------------------------------------------------------


def _topic_partitions(
    raw: RawClient, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    kind = DescribeTopicPartitionsRequest
    begin = None if cursor is None else kind.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    answer = raw.ask(
        kind(topics=[kind.TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=begin)
    )
    topics = [(one.name, one.error_code, [each.partition_index for each in one.partitions]) for one in answer.topics]
    following = answer.next_cursor
    return topics, None if following is None else (following.topic_name, following.partition_index)


def test_topics_come_sorted_and_as_many_partitions_as_fit(
    raw: RawClient, new_topic: Callable[..., str], node_id: int
) -> None:
    first, second = sorted((new_topic(2), new_topic(2)))
    assert _topic_partitions(raw, second, first, second) == ([(first, 0, [0, 1]), (second, 0, [0, 1])], None)
    assert _topic_partitions(raw, second, first, limit=1) == ([(first, 0, [0])], (first, 1))
    for limit in (0, -5):
        assert _topic_partitions(raw, first, limit=limit) == ([(first, 0, [0])], (first, 1))
    assert _topic_partitions(raw, second, first, limit=2) == ([(first, 0, [0, 1])], (second, 0))
    assert _topic_partitions(raw, first, limit=2) == ([(first, 0, [0, 1])], None)
    again = _topic_partitions(raw, second, first, cursor=(first, 1), limit=2)
    assert again == ([(first, 0, [1]), (second, 0, [0])], (second, 1))
    assert _topic_partitions(raw, second, first, cursor=(second, 1)) == ([(second, 0, [1])], None)
    assert _topic_partitions(raw, first, cursor=(first, 9)) == ([(first, 0, [])], None)
    topic_request = DescribeTopicPartitionsRequest.TopicRequest(name=first)
    (found,) = raw.ask(DescribeTopicPartitionsRequest(topics=[topic_request])).topics
    one = found.partitions[0]
    assert (one.leader_id, one.replica_nodes, one.isr_nodes, one.eligible_leader_replicas, one.last_known_elr) == (
        node_id, [node_id], [node_id], [], [],
    )  # fmt: skip
    assert found.topic_authorized_operations == 3576
    everything, _ = _topic_partitions(raw)
    assert {(first, 0), (second, 0)} <= {(name, code) for name, code, _ in everything}
    assert [name for name, _, _ in everything] == sorted(name for name, _, _ in everything)


def test_topics_that_are_not_there_and_cursors_that_fit_nothing(raw: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    missing = _topic_partitions(raw, "a-bad name", "zzz-nobody-made-this", topic)
    assert missing == ([("a-bad name", 17, []), (topic, 0, [0]), ("zzz-nobody-made-this", 3, [])], None)
    assert _topic_partitions(raw, "") == ([("", -1, [])], None)
    for cursor in ((topic, -1), ("another", 0), ("zzz", 0)):
        assert _topic_partitions(raw, topic, cursor=cursor) == ([(topic, 42, [])], None)
    assert _topic_partitions(raw, cursor=("zzzzzz", 0)) == ([], None)


# -- internal topics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_an_internal_topic_is_made_by_asking_for_it_and_is_not_for_clients(raw: RawClient, name: str) -> None:
    def described() -> tuple[int, bool, bool]:
        topic_request = MetadataRequest.MetadataRequestTopic(name=name)
        (found,) = raw.ask(MetadataRequest(topics=[topic_request], allow_auto_topic_creation=True), 12).topics
        return found.error_code, found.is_internal, len(found.partitions) > 1

    eventually(described, (0, True, True))
    again = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    made = raw.ask(CreateTopicsRequest(topics=[again]), 7).topics[0]
    assert (made.error_code, made.error_message) == (36, f"Topic '{name}' already exists.")
    assert raw.ask(produce_request(name, batch(b"x")), 9).responses[0].partition_responses[0].error_code == 17
    gone = DeleteRecordsRequest.DeleteRecordsTopic(
        name=name, partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=-1)]
    )
    answer = raw.ask(DeleteRecordsRequest(topics=[gone], timeout_ms=3000)).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (17, -1)


def test_a_commit_is_a_record_that_a_consumer_of_the_internal_topic_can_read(
    raw: RawClient, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    from kafka.broker.state.records import KeyDecoder, OffsetCommitKey, OffsetCommitValue, decode_value
    from kafka.broker.state.state_topic import partition_of
    from kafka.protocol.fetch import FetchRequest
    from kafka.records import decode_raw, iter_batches

    topic, group = new_topic(), unique("group")
    kind = OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=-1, committed_metadata="note"
    )
    commit = kind(
        group_id=group, generation_id_or_member_epoch=-1, member_id="",
        topics=[kind.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )  # fmt: skip
    eventually(lambda: raw.ask(commit, 9).topics[0].partitions[0].error_code, 0)
    topic_request = MetadataRequest.MetadataRequestTopic(name="__consumer_offsets")
    (internal,) = raw.ask(MetadataRequest(topics=[topic_request]), 12).topics
    home = partition_of(group, len(internal.partitions))
    fetch = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, session_id=0, session_epoch=-1, forgotten_topics_data=[],
        topics=[FetchRequest.FetchTopic(topic_id=internal.topic_id, partitions=[
            FetchRequest.FetchPartition(partition=home, fetch_offset=0, partition_max_bytes=1 << 24)
        ])],
    )  # fmt: skip
    (found,) = raw.ask(fetch, 17).responses[0].partitions
    data = bytes(found.records)  # type: ignore[arg-type]
    read = [
        (int.from_bytes(record[3][:2], "big"), decode_value(OffsetCommitValue, record[3]))
        for header in iter_batches(data)
        for record in decode_raw(data, header)
        if record[2]
        and record[3]
        and KeyDecoder([OffsetCommitKey]).decode(record[2]) == OffsetCommitKey(group=group, topic=topic, partition=0)
    ]
    version, value = read[-1]
    described = raw.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)]), 12).topics[0]
    assert (version, value.offset, value.metadata, value.topic_id) == (4, 5, "note", described.topic_id)
