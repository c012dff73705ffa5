"""Which broker coordinates a group or a transaction."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Int8, Int16, Int32, String


class FindCoordinatorRequest(Request["FindCoordinatorResponse"], api_key=10, versions=(0, 6), flexible=3):
    """``key_type``: 0 group, 1 transaction, 2 share (between brokers). Several keys from version 4 on (KIP-699)."""

    key: String = field(default="", until=3)
    key_type: Int8 = field(default=0, since=1)
    coordinator_keys: list[String] = field(default_factory=list, since=4)


class FindCoordinatorResponse(Response, api_key=10, versions=(0, 6), flexible=3):
    """The coordinating broker for each key."""

    class Coordinator(Struct):
        key: String = field(default="", since=4)
        node_id: Int32 = field(default=0, since=4)
        host: String = field(default="", since=4)
        port: Int32 = field(default=0, since=4)
        error_code: Int16 = field(default=0, since=4)
        error_message: String | None = field(default="", since=4, null_since=4, ignorable=True)

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16 = field(default=0, until=3)
    error_message: String | None = field(default="", since=1, until=3, null_since=1, ignorable=True)
    node_id: Int32 = field(default=0, until=3)
    host: String = field(default="", until=3)
    port: Int32 = field(default=0, until=3)
    coordinators: list[FindCoordinatorResponse.Coordinator] = field(default_factory=list, since=4)
