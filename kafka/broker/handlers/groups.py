"""ListGroups and DeleteGroups: share groups, and the simple groups that only have offsets.

Different from Apache Kafka 4.3.0: classic, consumer and streams groups with members are not here yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.broker.broker import error_code
from kafka.broker.registry import Call, handles
from kafka.errors import BrokerResponseError, GroupIdNotFoundError
from kafka.protocol.groups import DeleteGroupsRequest, DeleteGroupsResponse, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker


@handles(ListGroupsRequest, versions=(0, 5))
def list_groups(broker: Broker, call: Call[ListGroupsRequest]) -> ListGroupsResponse:
    states = {state.lower() for state in call.request.states_filter}
    types = {kind.lower() for kind in call.request.types_filter}
    found = [
        ListGroupsResponse.ListedGroup(group_id=name, protocol_type="", group_state="Empty", group_type="classic")
        for name in broker.offsets.groups()
    ]
    found += [
        ListGroupsResponse.ListedGroup(
            group_id=name, protocol_type="share", group_state=group.state, group_type="share"
        )
        for name, group in broker.share.groups.items()
    ]
    return ListGroupsResponse(
        error_code=0,
        groups=[
            group
            for group in found
            if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
        ],
    )


@handles(DeleteGroupsRequest, versions=(0, 2))
def delete_groups(broker: Broker, call: Call[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    results = []
    for name in call.request.groups_names:
        code = 0
        try:
            _delete(broker, name)
        except BrokerResponseError as error:
            code = error_code(error)
        results.append(DeleteGroupsResponse.DeletableGroupResult(group_id=name, error_code=code))
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


def _delete(broker: Broker, name: str) -> None:
    if name in broker.share.groups:
        broker.share.delete(name)
        broker.sessions.drop_group(name)
    elif broker.offsets.has_group(name):
        broker.offsets.delete(name)
    else:
        raise GroupIdNotFoundError(f"no group {name}")
