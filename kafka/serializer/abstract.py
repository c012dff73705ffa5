"""The shapes."""

from __future__ import annotations

import abc
from typing import Any

Headers = list[tuple[str, bytes | None]]


class Serializer(abc.ABC):
    """Turns what users send into bytes."""

    @abc.abstractmethod
    def serialize(self, topic: str, headers: Headers | None, data: Any) -> bytes | None:
        """``data`` as bytes, or None. An error reaches the caller of ``send``, and nothing is sent. ``headers`` is a
        list, also for a record without any; what is added to it is sent with the record."""

    def close(self) -> None:  # noqa: B027 (it may be left as it is)
        """The client was closed."""


class Deserializer(abc.ABC):
    """Turns bytes into what users read."""

    @abc.abstractmethod
    def deserialize(self, topic: str, headers: Headers | None, data: bytes | None) -> Any:
        """The value of ``data``, which may be None."""

    def close(self) -> None:  # noqa: B027 (it may be left as it is)
        """The client was closed."""
