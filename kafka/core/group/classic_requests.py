"""The requests of a member of a classic group, as each version has them.

JoinGroup 0 (0.9) has no rebalance time-out: there the session's time-out is both. 4: the first answer gives an id only
(KIP-394). 5: static members (KIP-345). 8: the reason (KIP-800). LeaveGroup 3: several members, by id or instance id; 5:
the reason. What a version lacks and may be left out, the codec leaves out; a ``group_instance_id`` may not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafka.core.dialogue import ByVersion
from kafka.core.group.protocol import PROTOCOL_TYPE
from kafka.protocol.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
)

_SEVERAL_MEMBERS_SINCE: Final = 3
_REASON_CHARACTERS: Final = 255
"""Brokers keep reasons for people; Java's clients cut them here, too."""


class Requests:
    """Of one member, less what changes: its id and generation."""

    def __init__(
        self, group_id: str, group_instance_id: str | None, session_timeout_s: float, rebalance_timeout_s: float
    ) -> None:
        self._group_id = group_id
        self._instance_id = group_instance_id
        self._session_timeout_ms = round(session_timeout_s * 1000)
        self._rebalance_timeout_ms = min(round(rebalance_timeout_s * 1000), 2**31 - 1)

    def join(self, member_id: str, protocols: Sequence[tuple[str, bytes]], reason: str) -> JoinGroupRequest:
        """``protocols``: assignors and what is said to each, the most wanted first."""
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
            reason=reason[:_REASON_CHARACTERS] or None,
        )

    def sync(
        self,
        member_id: str,
        generation: int,
        protocol: str | None,
        assignments: list[SyncGroupRequest.SyncGroupRequestAssignment],
    ) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self._group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol,
            assignments=assignments,
        )

    def heartbeat(self, member_id: str, generation: int) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self._group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self._instance_id,
        )

    def leave(self, member_id: str, reason: str) -> ByVersion[LeaveGroupResponse]:
        def build(version: int) -> LeaveGroupRequest:
            if version < _SEVERAL_MEMBERS_SINCE:
                return LeaveGroupRequest(group_id=self._group_id, member_id=member_id)
            member = LeaveGroupRequest.MemberIdentity(
                member_id=member_id, group_instance_id=self._instance_id, reason=reason[:_REASON_CHARACTERS] or None
            )
            return LeaveGroupRequest(group_id=self._group_id, members=[member])

        return ByVersion(LeaveGroupRequest, build)
