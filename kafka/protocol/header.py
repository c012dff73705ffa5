"""The headers in front of every request and response (protocol guide, "Request and Response Headers").

Which header version goes with which message version is said in ``framing.py``."""

from __future__ import annotations

from kafka.wire.message import Message, field
from kafka.wire.types import Int16, Int32, String


class RequestHeader(Message, versions=(0, 2), flexible=2):
    """What every request starts with. Version 0 is that of ControlledShutdown v0 alone; 2 has tagged fields."""

    is_counted = True

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: String | None = field(default="", since=1, null_since=1, flexible=False)


class ResponseHeader(Message, versions=(0, 1), flexible=1):
    """What every response starts with. Version 1 has tagged fields."""

    correlation_id: Int32
