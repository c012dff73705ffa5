"""Calls about groups as kafka-python 2 has them: other names, tuples and objects for results, errors raised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kafka.admin import dialogues
from kafka.admin.group_calls import GroupCalls
from kafka.core.group.assignors.adapter import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from kafka.core.group.protocol import Assignment, MemberSubscription
from kafka.errors import BrokerResponseError, KafkaError
from kafka.structs import GroupInformation, MemberInformation, OffsetAndMetadata, TopicPartition


class OlderCalls(GroupCalls):
    """What kafka-python 2 names otherwise. Each says which call has taken its place."""

    def list_consumer_groups(self, broker_ids: Sequence[int] | None = None) -> list[tuple[str, str]]:
        """``[(group, protocol type)]``. kafka-python 2's; :meth:`list_groups` tells more."""
        return [(group["group_id"], group["protocol_type"]) for group in self.list_groups(broker_ids)]

    def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[GroupInformation]:
        """Groups as GroupInformation with MemberInformation. Raises the first error. kafka-python 2's;
        :meth:`describe_groups` tells more of groups that are not classic."""
        found = self.describe_groups(group_ids, group_coordinator_id, include_authorized_operations)
        for group_id, group in found.items():
            if group["error"] is not None and group["group_state"] != "Dead":
                raise KafkaError(f"group {group_id}: {group['error']}")
        return [_information(group_id, group) for group_id, group in found.items()]

    def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets of one group, all or of ``partitions``. kafka-python 2's; :meth:`list_group_offsets` takes
        several groups."""
        specs = {group_id: partitions}
        return self._run(dialogues.list_group_offsets(specs, node_id=group_coordinator_id, **self._limits))[group_id]

    def delete_consumer_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> list[tuple[str, type[BrokerResponseError]]]:
        """``[(group, error class)]``, NoError where it went well. kafka-python 2's; see :meth:`delete_groups`."""
        found = self._run(dialogues.delete_groups(group_ids, node_id=group_coordinator_id, **self._limits))
        return list(found.items())


def _information(group_id: str, group: dict[str, Any]) -> GroupInformation:
    members = [
        MemberInformation(
            member["member_id"],
            member["client_id"],
            member["client_host"],
            _metadata(member),
            _assignment(member),
        )
        for member in group["members"]
    ]
    return GroupInformation(
        0,
        group_id,
        group["group_state"],
        group.get("protocol_type", group.get("group_type", "")),
        group.get("protocol_data", group.get("assignor_name", "")),
        members,
        group.get("authorized_operations"),
    )


def _metadata(member: dict[str, Any]) -> Any:
    told = member.get("member_metadata")
    if told is None:  # no classic group
        told = {"topics": member["subscribed_topic_names"], "user_data": None}
    if not isinstance(told, dict):
        return told
    return ConsumerProtocolMemberMetadata.of(MemberSubscription(tuple(told["topics"]), told["user_data"]))


def _assignment(member: dict[str, Any]) -> Any:
    told = member.get("member_assignment")
    if told is None:
        topics = member["assignment"]["topic_partitions"]
        pairs = [(topic["topic_name"], topic["partitions"]) for topic in topics]
    elif isinstance(told, dict):
        pairs = [(topic["topic"], topic["partitions"]) for topic in told["assigned_partitions"]]
    else:
        return told
    partitions = tuple(TopicPartition(topic, number) for topic, numbers in pairs for number in numbers)
    return ConsumerProtocolMemberAssignment.of(Assignment(partitions))
