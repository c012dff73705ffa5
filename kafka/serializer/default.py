"""Text."""

from __future__ import annotations

from typing import Any

from kafka.serializer.abstract import Deserializer, Headers, Serializer


class DefaultSerializer(Serializer, Deserializer):
    """Text both ways; bytes and None go out as they are."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: Headers | None, data: Any) -> bytes | None:
        """TypeError for what is neither text nor bytes."""
        if data is None or isinstance(data, bytes):
            return data
        if isinstance(data, (bytearray, memoryview)):
            return bytes(data)
        if not isinstance(data, str):
            raise TypeError(f"text or bytes are needed, not {type(data).__name__}")
        return data.encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers | None, data: bytes | None) -> Any:
        return None if data is None else bytes(data).decode(self.encoding)
