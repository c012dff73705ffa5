"""What operators say of queues: records of the topic ``APP.control``, which is compacted and has one partition.

::

    key      the queue's name, UTF-8
    value    JSON {"paused": true, "time": ms since the epoch, "host": "..."}, or null: the queue is not paused

The last record of a key holds. A worker that does not know a field ignores it.
"""

from __future__ import annotations

import json
from typing import NamedTuple


class QueueControl(NamedTuple):
    """What is said of one queue; ``time_ms`` and ``host`` say when and where, if that is known."""

    queue: str
    is_paused: bool
    time_ms: int = 0
    host: str = ""


def encode_control(control: QueueControl) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    body = {"paused": True, "time": control.time_ms, "host": control.host}
    return control.queue.encode(), json.dumps(body, separators=(",", ":")).encode() if control.is_paused else None


def decode_control(key: bytes | None, value: bytes | None) -> QueueControl | None:
    """What a record says; None when it is of another kind, or damaged."""
    try:
        queue = (key or b"").decode()
        body = json.loads(value) if value is not None else {}
        is_paused, time_ms, host = body.get("paused", False), body.get("time", 0), body.get("host", "")
    except (ValueError, AttributeError, RecursionError):
        return None
    if not queue or type(is_paused) is not bool or type(time_ms) is not int or not isinstance(host, str):
        return None
    return QueueControl(queue, is_paused, time_ms, host)
