"""DescribeQuorum, UnregisterBroker, AddRaftVoter, RemoveRaftVoter, UpdateFeatures: one broker, its own controller.

Different from Apache Kafka 4.3.0: there is no ``__cluster_metadata`` log, so DescribeQuorum shows one voter that is
always up to date at offset 0; the broker cannot unregister itself (there it does, and vanishes from the metadata), and
``kraft.version`` can be raised only in a request that validates, so that voters never change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code, error_text
from kafka.broker.features import KRAFT_VERSION, SAFE_DOWNGRADE, UPGRADE, FeatureUpdate
from kafka.broker.registry import Call, handles
from kafka.errors import (
    BrokerIdNotRegisteredError,
    BrokerResponseError,
    InconsistentClusterIdError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
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

METADATA_TOPIC: Final = "__cluster_metadata"
CONTROLLER: Final = "CONTROLLER"
UNSUPPORTED: Final = error_code(UnsupportedVersionError)
_NODES_SINCE: Final = 2


@handles(DescribeQuorumRequest, versions=(0, 2))
def describe_quorum(broker: Broker, call: Call[DescribeQuorumRequest]) -> DescribeQuorumResponse:
    asked = [(topic.topic_name, one.partition_index) for topic in call.request.topics for one in topic.partitions]
    is_known = asked == [(METADATA_TOPIC, 0)]
    host, port = broker.endpoint(call.connection)
    node = DescribeQuorumResponse.Node(
        node_id=broker.config.node_id,
        listeners=[DescribeQuorumResponse.Listener(name=CONTROLLER, host=host, port=port)],
    )
    return DescribeQuorumResponse(
        error_code=0,
        error_message="",
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
        error_code=0,
        error_message="",
        leader_id=broker.config.node_id,
        leader_epoch=1,
        high_watermark=0,
        current_voters=[voter],
        observers=[],
    )


def _no_quorum(index: int, version: int) -> DescribeQuorumResponse.PartitionData:
    text = "This server does not host this topic-partition." if version >= _NODES_SINCE else ""
    return DescribeQuorumResponse.PartitionData(
        partition_index=index,
        error_code=error_code(UnknownTopicOrPartitionError),
        error_message=text,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


@handles(UnregisterBrokerRequest, versions=(0, 0))
def unregister_broker(broker: Broker, call: Call[UnregisterBrokerRequest]) -> UnregisterBrokerResponse:
    wanted = call.request.broker_id
    if wanted == broker.config.node_id:
        code, text = InvalidRequestError.errno, f"Broker ID {wanted} is the one that is asked, and it is the only one"
    else:
        code, text = BrokerIdNotRegisteredError.errno, f"Broker ID {wanted} is not currently registered"
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=int(code or 0), error_message=text)


@handles(AddRaftVoterRequest, versions=(0, 1))
def add_raft_voter(broker: Broker, call: Call[AddRaftVoterRequest]) -> AddRaftVoterResponse:
    request = call.request
    code, text = _voter_refusal(broker, request, "Add", "adding")
    if code == UNSUPPORTED and CONTROLLER not in {listener.name for listener in request.listeners}:
        shown = ", ".join(f"ListenerName({one.name})={one.host}/<unresolved>:{one.port}" for one in request.listeners)
        code = error_code(InvalidRequestError)
        text = (
            f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{shown}}})) for the default "
            f"listener ListenerName({CONTROLLER})"
        )
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=code, error_message=text)


@handles(RemoveRaftVoterRequest, versions=(0, 0))
def remove_raft_voter(broker: Broker, call: Call[RemoveRaftVoterRequest]) -> RemoveRaftVoterResponse:
    code, text = _voter_refusal(broker, call.request, "Remove", "removing")
    return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=code, error_message=text)


def _voter_refusal(
    broker: Broker, request: AddRaftVoterRequest | RemoveRaftVoterRequest, noun: str, verb: str
) -> tuple[int, str]:
    if request.cluster_id is not None and request.cluster_id != broker.ids.cluster_id:
        text = f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{broker.ids.cluster_id}"'
        return error_code(InconsistentClusterIdError), text
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        return error_code(InvalidRequestError), f"{noun} voter request didn't include a valid voter"
    return UNSUPPORTED, f"Cluster doesn't support {verb} voter because the kraft.version feature is 0"


@handles(UpdateFeaturesRequest, versions=(0, 2))
def update_features(broker: Broker, call: Call[UpdateFeaturesRequest]) -> UpdateFeaturesResponse:
    request = call.request
    updates = [
        FeatureUpdate(
            one.feature,
            one.max_version_level,
            one.upgrade_type if call.version else SAFE_DOWNGRADE if one.allow_downgrade else UPGRADE,
        )
        for one in request.feature_updates
    ]
    try:
        broker.features.update(updates, validate_only=True)
        if not request.validate_only:
            if any(one.name == KRAFT_VERSION and one.level for one in updates):
                raise InvalidUpdateVersionError("The one controller of this broker has a fixed set of voters.")
            broker.features.update(updates, validate_only=False)
    except BrokerResponseError as error:
        return UpdateFeaturesResponse(
            throttle_time_ms=0, error_code=error_code(error), error_message=error_text(error), results=[]
        )
    results = [
        UpdateFeaturesResponse.UpdatableFeatureResult(feature=one.name, error_code=0, error_message="NONE")
        for one in updates
    ]
    return UpdateFeaturesResponse(
        throttle_time_ms=0, error_code=0, error_message=None, results=results if call.version < 2 else []
    )
