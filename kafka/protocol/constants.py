"""What some numbers in messages mean, for the client and the broker alike: epochs of members and sessions, and types of
acknowledgements."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

JOIN_EPOCH: Final = 0
"""Member epoch of a heartbeat that joins a consumer group (KIP-848) or a share group (KIP-932)."""
LEAVE_EPOCH: Final = -1
"""Member epoch of a heartbeat that leaves the group."""
STATIC_LEAVE_EPOCH: Final = -2
"""A static member left temporarily: no other member gets its partitions before its session times out."""

NO_SESSION: Final = 0
"""Id of no fetch session (KIP-227)."""
INITIAL_EPOCH: Final = 0
"""Epoch of a fetch or share fetch that names all its partitions and opens a session."""
FINAL_EPOCH: Final = -1
"""Epoch of a request that ends its session; of a fetch: that is full and wants no session."""
MAX_EPOCH: Final = 2**31 - 1
"""The last epoch of a session; 1 is the next one."""


class AcknowledgeType(IntEnum):
    """How a delivery ends, or goes on (``RENEW``). The numbers are the protocol's."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
