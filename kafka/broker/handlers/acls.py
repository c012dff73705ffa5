"""DescribeAcls, CreateAcls, DeleteAcls: everybody may do everything, and SECURITY_DISABLED (54) says so, as an Apache
Kafka 4.3.0 without an authorizer does.

A filter or an entry with an UNKNOWN (0) in it ends the connection, as there.

Different from Apache Kafka 4.3.0: there is no authorizer that could be configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code
from kafka.broker.registry import Call, handles
from kafka.broker.reply import Reply
from kafka.errors import SecurityDisabledError
from kafka.protocol.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_DISABLED: Final = error_code(SecurityDisabledError)
_TEXT: Final = "No Authorizer is configured."


def _has_unknown(wanted: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> bool:
    return 0 in (
        wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type
    )  # fmt: skip


@handles(DescribeAclsRequest, versions=(0, 3))
def describe_acls(broker: Broker, call: Call[DescribeAclsRequest]) -> DescribeAclsResponse | Reply:
    if _has_unknown(call.request):
        return Reply.hanging_up()
    text = "No Authorizer is configured on the broker"
    return DescribeAclsResponse(throttle_time_ms=0, error_code=_DISABLED, error_message=text, resources=[])


@handles(CreateAclsRequest, versions=(0, 3))
def create_acls(broker: Broker, call: Call[CreateAclsRequest]) -> CreateAclsResponse | Reply:
    for one in call.request.creations:
        if 0 in (one.resource_type, one.resource_pattern_type, one.operation, one.permission_type):
            return Reply.hanging_up()
    return CreateAclsResponse(
        throttle_time_ms=0,
        results=[
            CreateAclsResponse.AclCreationResult(error_code=_DISABLED, error_message=_TEXT)
            for _ in call.request.creations
        ],
    )


@handles(DeleteAclsRequest, versions=(0, 3))
def delete_acls(broker: Broker, call: Call[DeleteAclsRequest]) -> DeleteAclsResponse | Reply:
    if any(_has_unknown(one) for one in call.request.filters):
        return Reply.hanging_up()
    return DeleteAclsResponse(
        throttle_time_ms=0,
        filter_results=[
            DeleteAclsResponse.DeleteAclsFilterResult(error_code=_DISABLED, error_message=_TEXT, matching_acls=[])
            for _ in call.request.filters
        ],
    )
