"""Rules of access: list, make and remove them (KIP-140, KIP-290)."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Int8, Int16, Int32, String


class DescribeAclsRequest(Request["DescribeAclsResponse"], api_key=29, versions=(0, 3), flexible=2):
    """Which rules match the filter: types by number (1: any), None for any name."""

    resource_type_filter: Int8
    resource_name_filter: String | None = field(null_since=0)
    pattern_type_filter: Int8 = field(default=3, since=1)
    principal_filter: String | None = field(null_since=0)
    host_filter: String | None = field(null_since=0)
    operation: Int8
    permission_type: Int8


class DescribeAclsResponse(Response, api_key=29, versions=(0, 3), flexible=2):
    """The rules, by resource."""

    class AclDescription(Struct):
        principal: String
        host: String
        operation: Int8
        permission_type: Int8

    class DescribeAclsResource(Struct):
        resource_type: Int8
        resource_name: String
        pattern_type: Int8 = field(default=3, since=1)
        acls: list[DescribeAclsResponse.AclDescription]

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(null_since=0)
    resources: list[DescribeAclsResponse.DescribeAclsResource]


class CreateAclsRequest(Request["CreateAclsResponse"], api_key=30, versions=(0, 3), flexible=2):
    """Make rules."""

    class AclCreation(Struct):
        resource_type: Int8
        resource_name: String
        resource_pattern_type: Int8 = field(default=3, since=1)
        principal: String
        host: String
        operation: Int8
        permission_type: Int8

    creations: list[CreateAclsRequest.AclCreation]


class CreateAclsResponse(Response, api_key=30, versions=(0, 3), flexible=2):
    """An outcome for each rule, in the order of the request."""

    class AclCreationResult(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(null_since=0)

    throttle_time_ms: Int32 = field(default=0)
    results: list[CreateAclsResponse.AclCreationResult]


class DeleteAclsRequest(Request["DeleteAclsResponse"], api_key=31, versions=(0, 3), flexible=2):
    """Remove all rules that match one of the filters."""

    class DeleteAclsFilter(Struct):
        resource_type_filter: Int8
        resource_name_filter: String | None = field(null_since=0)
        pattern_type_filter: Int8 = field(default=3, since=1)
        principal_filter: String | None = field(null_since=0)
        host_filter: String | None = field(null_since=0)
        operation: Int8
        permission_type: Int8

    filters: list[DeleteAclsRequest.DeleteAclsFilter]


class DeleteAclsResponse(Response, api_key=31, versions=(0, 3), flexible=2):
    """What each filter has removed, in the order of the request."""

    class DeleteAclsMatchingAcl(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(null_since=0)
        resource_type: Int8
        resource_name: String
        pattern_type: Int8 = field(default=3, since=1)
        principal: String
        host: String
        operation: Int8
        permission_type: Int8

    class DeleteAclsFilterResult(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(null_since=0)
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl]

    throttle_time_ms: Int32 = field(default=0)
    filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult]
