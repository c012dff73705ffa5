"""Settings of brokers, topics, groups and loggers."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Boolean, Int8, Int16, Int32, String


class DescribeConfigsRequest(Request["DescribeConfigsResponse"], api_key=32, versions=(0, 4), flexible=4):
    """Read settings. ``resource_type``: 2 topic, 4 broker, 8 logger, 16 client metrics, 32 group."""

    class DescribeConfigsResource(Struct):
        resource_type: Int8
        resource_name: String
        configuration_keys: list[String] | None = field(null_since=0)

    resources: list[DescribeConfigsRequest.DescribeConfigsResource]
    include_synonyms: Boolean = field(default=False, since=1)
    include_documentation: Boolean = field(default=False, since=3)


class DescribeConfigsResponse(Response, api_key=32, versions=(0, 4), flexible=4):
    """Settings with their source; from version 1 on with synonyms (KIP-226)."""

    class DescribeConfigsSynonym(Struct):
        name: String = field(default="", since=1)
        value: String | None = field(default="", since=1, null_since=0)
        source: Int8 = field(default=0, since=1)

    class DescribeConfigsResourceResult(Struct):
        name: String
        value: String | None = field(null_since=0)
        read_only: Boolean
        is_default: Boolean = field(default=False, until=0)
        config_source: Int8 = field(default=-1, since=1, ignorable=True)
        is_sensitive: Boolean
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = field(
            default_factory=list, since=1, ignorable=True
        )
        config_type: Int8 = field(default=0, since=3, ignorable=True)
        documentation: String | None = field(default="", since=3, null_since=0, ignorable=True)

    class DescribeConfigsResult(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(null_since=0)
        resource_type: Int8
        resource_name: String
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult]

    throttle_time_ms: Int32 = field(default=0)
    results: list[DescribeConfigsResponse.DescribeConfigsResult]


class AlterConfigsRequest(Request["AlterConfigsResponse"], api_key=33, versions=(0, 2), flexible=2):
    """Replace all settings of a resource; what is not named falls back to its default."""

    class AlterableConfig(Struct):
        name: String
        value: String | None = field(null_since=0)

    class AlterConfigsResource(Struct):
        resource_type: Int8
        resource_name: String
        configs: list[AlterConfigsRequest.AlterableConfig]

    resources: list[AlterConfigsRequest.AlterConfigsResource]
    validate_only: Boolean


class AlterConfigsResponse(Response, api_key=33, versions=(0, 2), flexible=2):
    """The error of each resource."""

    class AlterConfigsResourceResponse(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(null_since=0)
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse]


class IncrementalAlterConfigsRequest(
    Request["IncrementalAlterConfigsResponse"], api_key=44, versions=(0, 1), flexible=1
):
    """Change single settings (KIP-339): 0 set, 1 delete, 2 append, 3 subtract."""

    class AlterableConfig(Struct):
        name: String
        config_operation: Int8
        value: String | None = field(null_since=0)

    class AlterConfigsResource(Struct):
        resource_type: Int8
        resource_name: String
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig]

    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource]
    validate_only: Boolean


class IncrementalAlterConfigsResponse(Response, api_key=44, versions=(0, 1), flexible=1):
    """The error of each resource."""

    class AlterConfigsResourceResponse(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(null_since=0)
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32 = field(default=0)
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse]


class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"], api_key=74, versions=(0, 1), flexible=0):
    """Ask for the resources that have configurations; in version 0 for those of client metrics only (KIP-1142)."""

    resource_types: list[Int8] = field(default_factory=list, since=1)


class ListConfigResourcesResponse(Response, api_key=74, versions=(0, 1), flexible=0):
    """Their names, and from version 1 on their types."""

    class ConfigResource(Struct):
        resource_name: String
        resource_type: Int8 = field(default=16, since=1, ignorable=True)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    config_resources: list[ListConfigResourcesResponse.ConfigResource]
