"""Messages as dictionaries, and the errors in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kafka.errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    LeaderNotAvailableError,
    NotControllerError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    ThrottlingQuotaExceededError,
    for_code,
)
from kafka.wire.message import Struct


def to_dict(message: Struct) -> dict[str, Any]:
    """A structure as ``{field: value}``, all the way down."""
    return {name: _plain(getattr(message, name)) for name in message.fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return to_dict(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


Entry = tuple[int, "str | None", str]
"""``(error code, the broker's text, what it is about)``."""

TRANSIENT: Final[frozenset[type[BrokerResponseError]]] = frozenset(
    {
        NotControllerError,
        NotCoordinatorError,
        NotLeaderForPartitionError,
        LeaderNotAvailableError,
        CoordinatorNotAvailableError,
        CoordinatorLoadInProgressError,
        ThrottlingQuotaExceededError,
    }
)
"""The request came to the wrong broker, or too early: ask again."""


def raise_first(entries: Iterable[Entry]) -> None:
    """Raise the error of the first entry that has one."""
    for code, text, what in entries:
        if code:
            raise for_code(code)(f"{what}: {text}" if text else what)


def raise_transient(entries: Iterable[Entry]) -> None:
    """The same for errors of :data:`TRANSIENT` alone, inside the retry loop: most errors that are retriable by their
    class are the answer here (a topic that is not there stays so)."""
    raise_first(entry for entry in entries if for_code(entry[0]) in TRANSIENT)
