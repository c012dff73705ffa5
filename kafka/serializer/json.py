"""JSON."""

from __future__ import annotations

import json
from typing import Any

from kafka.serializer.abstract import Headers
from kafka.serializer.default import DefaultSerializer


class JsonSerializer(DefaultSerializer):
    """JSON both ways; None stays None, which is a tombstone and not ``null``."""

    def serialize(self, topic: str, headers: Headers | None, data: Any) -> bytes | None:
        """TypeError or ValueError for what JSON cannot say."""
        return None if data is None else json.dumps(data).encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers | None, data: bytes | None) -> Any:
        return None if data is None else json.loads(bytes(data).decode(self.encoding))
