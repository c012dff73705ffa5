"""API key -> name, request and response class. Modules of message families are imported when first asked for.

``NAMES`` lists every API of Apache Kafka 4.3.0; ``FAMILIES`` the ones that have classes here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

from kafka.wire.message import Request, Response

NAMES: Final[dict[int, str]] = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 4: "LeaderAndIsr", 5: "StopReplica",
    6: "UpdateMetadata", 7: "ControlledShutdown", 8: "OffsetCommit", 9: "OffsetFetch", 10: "FindCoordinator",
    11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup", 14: "SyncGroup", 15: "DescribeGroups", 16: "ListGroups",
    17: "SaslHandshake", 18: "ApiVersions", 19: "CreateTopics", 20: "DeleteTopics", 21: "DeleteRecords",
    22: "InitProducerId", 23: "OffsetForLeaderEpoch", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn", 26: "EndTxn",
    27: "WriteTxnMarkers", 28: "TxnOffsetCommit", 29: "DescribeAcls", 30: "CreateAcls", 31: "DeleteAcls",
    32: "DescribeConfigs", 33: "AlterConfigs", 34: "AlterReplicaLogDirs", 35: "DescribeLogDirs",
    36: "SaslAuthenticate", 37: "CreatePartitions", 38: "CreateDelegationToken", 39: "RenewDelegationToken",
    40: "ExpireDelegationToken", 41: "DescribeDelegationToken", 42: "DeleteGroups", 43: "ElectLeaders",
    44: "IncrementalAlterConfigs", 45: "AlterPartitionReassignments", 46: "ListPartitionReassignments",
    47: "OffsetDelete", 48: "DescribeClientQuotas", 49: "AlterClientQuotas", 50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials", 52: "Vote", 53: "BeginQuorumEpoch", 54: "EndQuorumEpoch", 55: "DescribeQuorum",
    56: "AlterPartition", 57: "UpdateFeatures", 58: "Envelope", 59: "FetchSnapshot", 60: "DescribeCluster",
    61: "DescribeProducers", 62: "BrokerRegistration", 63: "BrokerHeartbeat", 64: "UnregisterBroker",
    65: "DescribeTransactions", 66: "ListTransactions", 67: "AllocateProducerIds", 68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe", 70: "ControllerRegistration", 71: "GetTelemetrySubscriptions", 72: "PushTelemetry",
    73: "AssignReplicasToDirs", 74: "ListConfigResources", 75: "DescribeTopicPartitions", 76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe", 78: "ShareFetch", 79: "ShareAcknowledge", 80: "AddRaftVoter", 81: "RemoveRaftVoter",
    82: "UpdateRaftVoter", 83: "InitializeShareGroupState", 84: "ReadShareGroupState", 85: "WriteShareGroupState",
    86: "DeleteShareGroupState", 87: "ReadShareGroupStateSummary", 88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe", 90: "DescribeShareGroupOffsets", 91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
}  # fmt: skip
"""Every API key of release 4.3.0, with the name that Kafka gives it."""

FAMILIES: Final[dict[str, tuple[int, ...]]] = {
    "produce": (0,),
    "fetch": (1,),
    "list_offsets": (2,),
    "metadata": (3,),
    "offsets": (8, 9, 23, 47),
    "coordinator": (10,),
    "groups": (11, 12, 13, 14, 15, 16, 42),
    "sasl": (17, 36),
    "scram": (50, 51),
    "api_versions": (18,),
    "topics": (19, 20, 21, 37, 75),
    "transactions": (22, 24, 25, 26, 27, 28, 61, 65, 66),
    "configs": (32, 33, 44, 74),
    "acls": (29, 30, 31),
    "log_dirs": (34, 35),
    "delegation_tokens": (38, 39, 40, 41),
    "reassignments": (43, 45, 46),
    "quotas": (48, 49),
    "quorum": (55, 57, 64, 80, 81),
    "cluster": (60,),
    "consumer_group": (68, 69),
    "telemetry": (71, 72),
    "share": (76, 77, 78, 79, 90, 91, 92),
}
"""Module of this package -> the API keys whose messages it declares."""


class Api(NamedTuple):
    """One API: its key, its name, and its two classes."""

    key: int
    name: str
    request: type[Request[Any]]
    response: type[Response]

    @property
    def min_version(self) -> int:
        """The oldest version that our classes speak."""
        return self.request.min_version

    @property
    def max_version(self) -> int:
        """The newest version that our classes speak."""
        return self.request.max_version


class Registry(Mapping[int, Api]):
    """Read-only mapping of API key to :class:`Api`."""

    def __init__(self) -> None:
        self._modules = {key: module for module, keys in FAMILIES.items() for key in keys}
        self._loaded: dict[int, Api] = {}

    def __getitem__(self, key: int) -> Api:
        found = self._loaded.get(key)
        if found is None:
            module = import_module(f"kafka.protocol.{self._modules[key]}")
            name = NAMES[key]
            request = cast("type[Request[Any]]", getattr(module, name + "Request"))
            response = cast("type[Response]", getattr(module, name + "Response"))
            found = self._loaded[key] = Api(key, name, request, response)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._modules))

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules


REGISTRY: Final = Registry()
