"""What a broker can do (KIP-35): the first request on a connection."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Boolean, Int16, Int32, Int64, String


class ApiVersionsRequest(Request["ApiVersionsResponse"], api_key=18, versions=(0, 4), flexible=3):
    """Ask which APIs and versions the broker has. From version 3 on the client names its software (KIP-511)."""

    client_software_name: String = field(default="", since=3, ignorable=True)
    client_software_version: String = field(default="", since=3, ignorable=True)


class ApiVersionsResponse(Response, api_key=18, versions=(0, 4), flexible=3):
    """The ranges, and from version 3 on the features that the cluster has finalized (KIP-584).

    A broker that lacks the version asked for answers error 35 in the form of version 0. The header is always version 0.
    """

    class ApiVersion(Struct):
        api_key: Int16
        min_version: Int16
        max_version: Int16

    class SupportedFeatureKey(Struct):
        name: String = field(default="", since=3)
        min_version: Int16 = field(default=0, since=3)
        max_version: Int16 = field(default=0, since=3)

    class FinalizedFeatureKey(Struct):
        name: String = field(default="", since=3)
        max_version_level: Int16 = field(default=0, since=3)
        min_version_level: Int16 = field(default=0, since=3)

    error_code: Int16 = field(default=0)
    api_keys: list[ApiVersionsResponse.ApiVersion]
    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = field(
        default_factory=list, since=3, tag=0, tag_since=3, ignorable=True
    )
    finalized_features_epoch: Int64 = field(default=-1, since=3, tag=1, tag_since=3, ignorable=True)
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = field(
        default_factory=list, since=3, tag=2, tag_since=3, ignorable=True
    )
    zk_migration_ready: Boolean = field(default=False, since=3, tag=3, tag_since=3, ignorable=True)
