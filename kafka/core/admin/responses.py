"""What an answer's errors ask for: raise them, ask again, say which release is needed; and how much time is left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar
from uuid import UUID

from kafka.core.dialogue import Dialogue, now
from kafka.errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    NotControllerError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
    ThrottlingQuotaExceededError,
    for_code,
)
from kafka.wire.message import Struct
from kafka.wire.types import ZERO_UUID

T = TypeVar("T")

ResponseEntry = tuple[int, "str | None", str]
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

RESPONSE_LOST: Final[tuple[type[KafkaError], ...]] = (KafkaConnectionError, RequestTimedOutError)
"""After these it is unknown whether the broker carried out the request."""


def result_of(code: int, text: str | None) -> BrokerResponseError:
    """What an answer says of one thing, as an error; NoError where it went well."""
    return for_code(code)(text or "")


def raise_first(entries: Iterable[ResponseEntry]) -> None:
    """Raise the error of the first entry that has one."""
    for code, text, what in entries:
        if code:
            raise for_code(code)(f"{what}: {text}" if text else what)


def raise_transient(entries: Iterable[ResponseEntry]) -> None:
    """The same for errors of :data:`TRANSIENT` alone, inside the retry loop: most errors that are retriable by their
    class are the answer here (a topic that is not there stays so)."""
    raise_first(entry for entry in entries if for_code(entry[0]) in TRANSIENT)


def requiring_release(release: str, dialogue: Dialogue[T]) -> Dialogue[T]:
    """``dialogue``, whose IncompatibleBrokerVersion says which release of brokers has what it needs."""
    try:
        return (yield from dialogue)
    except IncompatibleBrokerVersion as error:
        text = str(error.args[0]) if error.args else "the broker is too old"
        raise IncompatibleBrokerVersion(f"{text}; brokers have it since release {release}") from error


def time_left(give_up_at: float) -> Dialogue[float]:
    """Seconds until that monotonic instant; 0 from then on."""
    return max(0.0, give_up_at - (yield from now()))


# Messages as dictionaries, and authorized operations by their names.


_NO_OPERATIONS: Final = -2_147_483_648
OPERATIONS: Final = (
    "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS",
)  # fmt: skip
"""The bits of ``authorized_operations``, from the lowest (KIP-430)."""


def operations_of(bits: int) -> list[str] | None:
    """Names of what may be done; None when that was not asked for."""
    if bits == _NO_OPERATIONS:
        return None
    return [name for number, name in enumerate(OPERATIONS) if number > 2 and bits >> number & 1]


def to_dict(message: Struct) -> dict[str, Any]:
    """A structure as ``{field: value}``, all the way down. Ids are texts, and None where there is none."""
    return {name: _as_plain(getattr(message, name)) for name in message.fields}


def _as_plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return to_dict(value)
    if isinstance(value, list):
        return [_as_plain(item) for item in value]
    if isinstance(value, UUID):
        return None if value == ZERO_UUID else str(value)
    return value
