"""Classic groups as records of ``__consumer_offsets``, in Kafka's own form, and groups from such records.

    GroupMetadata      a classic group whole, at each generation that was agreed on (version 3)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka.broker.groups.classic_group import ClassicGroup
from kafka.broker.groups.classic_member import ClassicMember
from kafka.broker.state.group_records import GroupMetadataKey, GroupMetadataValue
from kafka.broker.state.record_codec import decode_value, encode_key, encode_value

Entry = tuple[bytes, "bytes | None"]
"""A record's key and value; None: what was under the key has ended."""

CLASSIC_VERSION: Final = 3
"""Of GroupMetadata's values, as Apache Kafka 4.3.0 writes them (measured)."""


def classic_entry(group: ClassicGroup, assignments: Mapping[str, bytes]) -> Entry:
    """A classic group's record, with these assignments."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.changed_at_ms,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return classic_key(group.group_id), encode_value(value, CLASSIC_VERSION)


def classic_key(group_id: str) -> bytes:
    return encode_key(GroupMetadataKey(group=group_id))


def load_classic(group: ClassicGroup, data: bytes) -> None:
    """Fill a new group from its record."""
    value = decode_value(GroupMetadataValue, data)
    group.generation = value.generation
    group.changed_at_ms = value.current_state_timestamp
    for one in value.members:
        member = ClassicMember(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            value.protocol_type,
            ((value.protocol or "", bytes(one.subscription)),),
            one.session_timeout,
            one.session_timeout if one.rebalance_timeout == -1 else one.rebalance_timeout,
            bytes(one.assignment),
        )
        group.put(member)
    group.protocol_type = value.protocol_type or None
    group.leader = value.leader
    if group.members:
        group.select_protocol()
    group.protocol_name = value.protocol


def has_members(data: bytes) -> bool:
    """Whether a classic group's record has any."""
    return bool(decode_value(GroupMetadataValue, data).members)
