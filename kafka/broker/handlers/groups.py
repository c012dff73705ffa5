"""ListGroups and DeleteGroups: groups of every kind, one name space.

Different from Apache Kafka 4.3.0: streams groups are not here; groups are listed in the order in which they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.broker.codes import error_code
from kafka.broker.groups.classic_group import ClassicGroup
from kafka.broker.groups.embedded_protocol import PROTOCOL_TYPE
from kafka.broker.registry import Call, handles
from kafka.errors import BrokerResponseError, KafkaStorageError, NotCoordinatorError
from kafka.protocol.groups import DeleteGroupsRequest, DeleteGroupsResponse, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_Listed = ListGroupsResponse.ListedGroup


@handles(ListGroupsRequest, versions=(0, 5))
def list_groups(broker: Broker, call: Call[ListGroupsRequest]) -> ListGroupsResponse:
    states = {state.lower() for state in call.request.states_filter}
    types = {kind.lower() for kind in call.request.types_filter}
    return ListGroupsResponse(
        error_code=0,
        groups=[
            group
            for group in _all(broker)
            if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
        ],
    )


def _all(broker: Broker) -> list[_Listed]:
    found = []
    for name, group in broker.groups.groups.items():
        if isinstance(group, ClassicGroup):
            protocol, state = group.protocol_type or "", group.state.value
        else:
            protocol, state = PROTOCOL_TYPE, group.state
        found.append(_Listed(group_id=name, protocol_type=protocol, group_state=state, group_type=group.kind))
    found += [
        _Listed(group_id=name, protocol_type="share", group_state=group.state, group_type="share")
        for name, group in broker.share.groups.items()
    ]
    return found


@handles(DeleteGroupsRequest, versions=(0, 2))
def delete_groups(broker: Broker, call: Call[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    results = []
    for name in dict.fromkeys(call.request.groups_names):
        code = 0
        try:
            _delete(broker, name)
        except KafkaStorageError:
            code = error_code(NotCoordinatorError)
        except BrokerResponseError as error:
            code = error_code(error)
        results.append(DeleteGroupsResponse.DeletableGroupResult(group_id=name, error_code=code))
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


def _delete(broker: Broker, name: str) -> None:
    if name in broker.share.groups:
        broker.share.delete(name)
        broker.sessions.drop_group(name)
    else:
        broker.groups.delete(name)
