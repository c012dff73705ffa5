"""The admin client's calls about groups, under kafka-python's names.

Each runs a dialogue of ``core/admin`` and waits for it. What kafka-python 3 answers with dictionaries and error classes
is answered so here; the names and shapes of kafka-python 2 are in ``older_calls.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka.admin import dialogues
from kafka.admin.running import Running
from kafka.core.admin.group_values import GroupState, GroupType, MemberToRemove, OffsetSpec, OffsetTimestamp
from kafka.core.admin.share_groups import SharePartitionOffset
from kafka.errors import BrokerResponseError, IllegalArgumentError, NoError
from kafka.structs import OffsetAndMetadata, TopicPartition

Specs = Mapping[str, "Iterable[TopicPartition] | None"] | Iterable[str] | str
"""Groups, each with the partitions that are meant (None: all); names alone mean all."""


class GroupCalls(Running):
    """Groups of all types: classic, of KIP-848 (``consumer``), and share groups. ``group_coordinator_id``: the node to
    ask, if it is known."""

    def list_groups(
        self,
        broker_ids: Sequence[int] | None = None,
        states_filter: Iterable[GroupState | str] | None = None,
        types_filter: Iterable[GroupType | str] | None = None,
    ) -> list[dict[str, Any]]:
        """All groups: ``[{"group_id", "protocol_type", "group_state", "group_type"}]``. Filters take names in any case:
        states such as "stable" (2.6), types "classic", "consumer", "share" (3.8)."""
        return self._run(
            dialogues.list_groups(broker_ids, states_filter or (), types_filter or (), **self._limits)
        )

    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """Groups of any type: ``{group: {"group_id", "group_state", "group_type", "members", "error", ...}}``, where
        ``error`` is None or a text. The other fields are those of DescribeGroups, ConsumerGroupDescribe or
        ShareGroupDescribe; what consumers of classic groups told one another is decoded."""
        return self._run(
            dialogues.describe_groups(
                group_ids,
                node_id=group_coordinator_id,
                include_authorized_operations=include_authorized_operations,
                **self._limits,
            )
        )

    def list_group_offsets(self, group_specs: Specs) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets: ``{group: {partition: OffsetAndMetadata}}``. Takes names of groups, or ``{group:
        partitions}``, None for all. Raises the first error."""
        return self._run(dialogues.list_group_offsets(_specs(group_specs), **self._limits))

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, type[BrokerResponseError]]:
        """Commit offsets for a group without members: ``{partition: error class}``, NoError where it went well."""
        return self._run(
            dialogues.alter_group_offsets(group_id, offsets, node_id=group_coordinator_id, **self._limits)
        )

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Commit what an OffsetSpec, an OffsetTimestamp or a plain offset means, brought into the partition's range,
        for a group without members: ``{partition: {"error": class, "offset"}}``."""
        return self._run(
            dialogues.reset_group_offsets(
                group_id,
                offset_specs,
                self._host.client.cluster.leader_for_partition,
                node_id=group_coordinator_id,
                **self._limits,
            )
        )

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, type[BrokerResponseError]]:
        """Forget committed offsets: ``{partition: error class}`` (GroupSubscribedToTopicError). Raises the group's
        error (GroupIdNotFoundError). Since 2.4."""
        return self._run(
            dialogues.delete_group_offsets(group_id, partitions, node_id=group_coordinator_id, **self._limits)
        )

    def delete_groups(self, group_ids: Iterable[str], group_coordinator_id: int | None = None) -> dict[str, str]:
        """Delete empty groups of any type: ``{group: "OK"}``, or the name of the error's class ("NonEmptyGroupError",
        "GroupIdNotFoundError")."""
        found = self._run(dialogues.delete_groups(group_ids, node_id=group_coordinator_id, **self._limits))
        return {group: "OK" if error is NoError else error.__name__ for group, error in found.items()}

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str, type[BrokerResponseError]]:
        """Make members leave a classic group: ``{member id or instance id: error class}``. Raises the group's error."""
        return self._run(
            dialogues.remove_group_members(group_id, members, node_id=group_coordinator_id, **self._limits)
        )

    # -- share groups --------------------------------------------------------------------------------------------------

    def describe_share_groups(
        self, group_ids: Iterable[str], include_authorized_operations: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Share groups alone: as :meth:`describe_groups`; what is none has its ``error``."""
        return self._run(
            dialogues.describe_share_groups(
                group_ids, include_authorized_operations=include_authorized_operations, **self._limits
            )
        )

    def list_share_group_offsets(self, group_specs: Specs) -> dict[str, dict[TopicPartition, SharePartitionOffset]]:
        """Where share groups stand: ``{group: {partition: SharePartitionOffset(start_offset, lag, leader_epoch)}}``
        (KIP-1226). Takes what :meth:`list_group_offsets` takes. Raises the first error."""
        return self._run(dialogues.list_share_group_offsets(_specs(group_specs), **self._limits))

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, type[BrokerResponseError]]:
        """Let an empty share group begin at other offsets: ``{partition: error class}``. Raises the group's error
        (NonEmptyGroupError)."""
        return self._run(dialogues.alter_share_group_offsets(group_id, offsets, **self._limits))

    def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str]
    ) -> dict[str, type[BrokerResponseError]]:
        """Let an empty share group forget topics: ``{topic: error class}``. Raises the group's error."""
        return self._run(dialogues.delete_share_group_offsets(group_id, topics, **self._limits))


def _specs(given: Specs) -> Mapping[str, Iterable[TopicPartition] | None]:
    if isinstance(given, str):
        found: Mapping[str, Iterable[TopicPartition] | None] = {given: None}
    else:
        found = given if isinstance(given, Mapping) else dict.fromkeys(given)
    if not found:
        raise IllegalArgumentError("group_specs: no groups")
    return found
