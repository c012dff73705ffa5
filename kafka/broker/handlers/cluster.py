"""The cluster: DescribeCluster (KIP-700), the KRaft quorum, features, and the log directory. There is one broker,
which is its own controller.

Different from Apache Kafka 4.3.0: there is no ``__cluster_metadata`` log, so DescribeQuorum shows one voter that is
always up to date at offset 0; the broker cannot unregister itself (there it does, and vanishes from the metadata);
``kraft.version`` can be raised only in a request that validates, so that voters never change; there is one log
directory, the path of ``--data-dir``, and it is never cordoned.
"""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Final

from kafka.broker.emulation import KRAFT_VERSION, SAFE_DOWNGRADE, UPGRADE, FeatureUpdate
from kafka.broker.error_responses import ALL_CLUSTER_OPERATIONS, error_code, failed, operations
from kafka.broker.log import Topic
from kafka.broker.registry import RequestContext, handles
from kafka.broker.topics import distinct_partitions
from kafka.errors import (
    BrokerIdNotRegisteredError,
    InconsistentClusterIdError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    LogDirNotFoundError,
    MismatchedEndpointTypeError,
    UnknownTopicOrPartitionError,
    UnsupportedEndpointTypeError,
    UnsupportedVersionError,
)
from kafka.protocol.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kafka.protocol.metadata import DescribeClusterRequest, DescribeClusterResponse
from kafka.protocol.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kafka.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

BROKERS: Final = 1
CONTROLLERS: Final = 2


@handles(DescribeClusterRequest)
def describe_cluster(broker: Broker, call: RequestContext[DescribeClusterRequest]) -> DescribeClusterResponse:
    """Brokers only: an endpoint type of controllers gets MISMATCHED_ENDPOINT_TYPE (114), any other
    UNSUPPORTED_ENDPOINT_TYPE (115) (KIP-919)."""
    wanted = call.request.endpoint_type
    if wanted == CONTROLLERS:
        raise MismatchedEndpointTypeError(
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        )
    if wanted != BROKERS:
        raise UnsupportedEndpointTypeError(f"Unsupported endpoint type {wanted}")
    host, port = broker.endpoint(call.connection)
    node_id = broker.config.node_id
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=broker.ids.cluster_id,
        controller_id=node_id,
        brokers=[DescribeClusterResponse.DescribeClusterBroker(broker_id=node_id, host=host, port=port)],
        cluster_authorized_operations=operations(
            call.request.include_cluster_authorized_operations, ALL_CLUSTER_OPERATIONS
        ),
    )


# -- quorum and features ----------------------------------------------------------------------------------------------


METADATA_TOPIC: Final = "__cluster_metadata"
CONTROLLER: Final = "CONTROLLER"
_NODES_SINCE: Final = 2


@handles(DescribeQuorumRequest)
def describe_quorum(broker: Broker, call: RequestContext[DescribeQuorumRequest]) -> DescribeQuorumResponse:
    """Only a request for exactly ``__cluster_metadata-0`` is answered with the quorum; otherwise each partition gets
    an error (KIP-595; nodes since version 2, KIP-853)."""
    asked = [(topic.topic_name, one.partition_index) for topic in call.request.topics for one in topic.partitions]
    is_known = asked == [(METADATA_TOPIC, 0)]
    host, port = broker.endpoint(call.connection)
    node = DescribeQuorumResponse.Node(
        node_id=broker.config.node_id,
        listeners=[DescribeQuorumResponse.Listener(name=CONTROLLER, host=host, port=port)],
    )
    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponse.TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    _quorum(broker, call.version) if is_known else _no_quorum(one.partition_index, call.version)
                    for one in topic.partitions
                ],
            )
            for topic in call.request.topics
        ],
        nodes=[node] if is_known and call.version >= _NODES_SINCE else [],
    )


def _quorum(broker: Broker, version: int) -> DescribeQuorumResponse.PartitionData:
    voter = DescribeQuorumResponse.ReplicaState(replica_id=broker.config.node_id, log_end_offset=0)
    if version >= 1:
        voter.last_fetch_timestamp = voter.last_caught_up_timestamp = broker.epoch_ms()
    return DescribeQuorumResponse.PartitionData(
        partition_index=0,
        leader_id=broker.config.node_id,
        leader_epoch=1,
        high_watermark=0,
        current_voters=[voter],
        observers=[],
    )


def _no_quorum(index: int, version: int) -> DescribeQuorumResponse.PartitionData:
    text = "This server does not host this topic-partition." if version >= _NODES_SINCE else ""
    return failed(DescribeQuorumResponse.PartitionData, UnknownTopicOrPartitionError(text), partition_index=index)


@handles(UnregisterBrokerRequest)
def unregister_broker(broker: Broker, call: RequestContext[UnregisterBrokerRequest]) -> UnregisterBrokerResponse:
    wanted = call.request.broker_id
    if wanted == broker.config.node_id:
        raise InvalidRequestError(f"Broker ID {wanted} is the one that is asked, and it is the only one")
    raise BrokerIdNotRegisteredError(f"Broker ID {wanted} is not currently registered")


@handles(AddRaftVoterRequest)
def add_raft_voter(broker: Broker, call: RequestContext[AddRaftVoterRequest]) -> AddRaftVoterResponse:
    request = call.request
    _check_voter(broker, request, "Add")
    if CONTROLLER not in {listener.name for listener in request.listeners}:
        shown = ", ".join(f"ListenerName({one.name})={one.host}/<unresolved>:{one.port}" for one in request.listeners)
        raise InvalidRequestError(
            f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{shown}}})) for the default "
            f"listener ListenerName({CONTROLLER})"
        )
    raise UnsupportedVersionError("Cluster doesn't support adding voter because the kraft.version feature is 0")


@handles(RemoveRaftVoterRequest)
def remove_raft_voter(broker: Broker, call: RequestContext[RemoveRaftVoterRequest]) -> RemoveRaftVoterResponse:
    _check_voter(broker, call.request, "Remove")
    raise UnsupportedVersionError("Cluster doesn't support removing voter because the kraft.version feature is 0")


def _check_voter(broker: Broker, request: AddRaftVoterRequest | RemoveRaftVoterRequest, verb: str) -> None:
    if request.cluster_id is not None and request.cluster_id != broker.ids.cluster_id:
        raise InconsistentClusterIdError(
            f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{broker.ids.cluster_id}"'
        )
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        raise InvalidRequestError(f"{verb} voter request didn't include a valid voter")


@handles(UpdateFeaturesRequest)
def update_features(broker: Broker, call: RequestContext[UpdateFeaturesRequest]) -> UpdateFeaturesResponse:
    """KIP-584: all updates or none, with one error for the whole. Version 0 has ``allow_downgrade`` for the upgrade
    type; versions before 2 have a result for each feature."""
    request = call.request
    updates = [
        FeatureUpdate(
            one.feature,
            one.max_version_level,
            one.upgrade_type if call.version else SAFE_DOWNGRADE if one.allow_downgrade else UPGRADE,
        )
        for one in request.feature_updates
    ]
    broker.features.update(updates, validate_only=True)
    if not request.validate_only:
        if any(one.name == KRAFT_VERSION and one.level for one in updates):
            raise InvalidUpdateVersionError("The one controller of this broker has a fixed set of voters.")
        broker.features.update(updates, validate_only=False)
    results = [UpdateFeaturesResponse.UpdatableFeatureResult(feature=one.name, error_message="NONE") for one in updates]
    return UpdateFeaturesResponse(error_message=None, results=results if call.version < 2 else [])


# -- log directories --------------------------------------------------------------------------------------------------


_VOLUME_SINCE: Final = 4

_LogDirResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


@handles(DescribeLogDirsRequest)
def describe_log_dirs(broker: Broker, call: RequestContext[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    """Sizes of the partitions that exist; unknown ones are left out, as in Kafka, and null means all. Bytes of the
    volume since version 4 (KIP-827), -1 where the system does not give them."""
    wanted: list[tuple[Topic, list[int]]] = []
    if call.request.topics is None:
        wanted = [(topic, list(range(topic.partitions))) for topic in broker.metadata]
    else:
        for name, numbers in distinct_partitions((one.topic, one.partitions) for one in call.request.topics).items():
            topic = broker.metadata.topic(name)
            if topic is not None:
                wanted.append((topic, [one for one in numbers if 0 <= one < topic.partitions]))
    result = DescribeLogDirsResponse.DescribeLogDirsResult(
        log_dir=broker.logs.path,
        topics=[
            DescribeLogDirsResponse.DescribeLogDirsTopic(
                name=topic.name,
                partitions=[
                    DescribeLogDirsResponse.DescribeLogDirsPartition(
                        partition_index=number,
                        partition_size=broker.logs.size_of(topic, number),
                        offset_lag=0,
                        is_future_key=False,
                    )
                    for number in found
                ],
            )
            for topic, found in wanted
            if found
        ],
    )
    if call.version >= _VOLUME_SINCE:
        with contextlib.suppress(OSError):
            volume = shutil.disk_usage(broker.logs.path)
            result.total_bytes, result.usable_bytes = volume.total, volume.free
    return DescribeLogDirsResponse(results=[result])


@handles(AlterReplicaLogDirsRequest)
def alter_replica_log_dirs(
    broker: Broker, call: RequestContext[AlterReplicaLogDirsRequest]
) -> AlterReplicaLogDirsResponse:
    """Succeeds for partitions that exist when the directory is the broker's own, where they are already; else
    LOG_DIR_NOT_FOUND (57)."""
    codes: dict[str, dict[int, int]] = {}
    for directory in call.request.dirs:
        is_ours = directory.path == broker.logs.path
        for asked in directory.topics:
            topic = broker.metadata.topic(asked.name)
            for number in asked.partitions:
                is_there = topic is not None and 0 <= number < topic.partitions
                error = LogDirNotFoundError if not is_ours else None if is_there else UnknownTopicOrPartitionError
                codes.setdefault(asked.name, {})[number] = error_code(error)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[_LogDirResult(partition_index=number, error_code=code) for number, code in found.items()],
            )
            for name, found in codes.items()
        ],
    )
