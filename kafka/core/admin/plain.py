"""Messages as dictionaries, and the errors in them; what users hand over, looked at before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

from kafka.core.dialogue import Dialogue, now
from kafka.errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    IllegalArgumentError,
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
from kafka.structs import TopicPartition
from kafka.wire.message import Struct
from kafka.wire.types import ZERO_UUID

K = TypeVar("K")
T = TypeVar("T")

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
    return {name: _plain(getattr(message, name)) for name in message.fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return to_dict(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, UUID):
        return None if value == ZERO_UUID else str(value)
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


ANSWER_LOST: Final[tuple[type[KafkaError], ...]] = (KafkaConnectionError, RequestTimedOutError)
"""After these nobody knows whether the broker has done what it was asked for."""


def raise_first(entries: Iterable[Entry]) -> None:
    """Raise the error of the first entry that has one."""
    for code, text, what in entries:
        if code:
            raise for_code(code)(f"{what}: {text}" if text else what)


def raise_transient(entries: Iterable[Entry]) -> None:
    """The same for errors of :data:`TRANSIENT` alone, inside the retry loop: most errors that are retriable by their
    class are the answer here (a topic that is not there stays so)."""
    raise_first(entry for entry in entries if for_code(entry[0]) in TRANSIENT)


def since(release: str, dialogue: Dialogue[T]) -> Dialogue[T]:
    """``dialogue``, whose IncompatibleBrokerVersion says which release of brokers has what it needs."""
    try:
        return (yield from dialogue)
    except IncompatibleBrokerVersion as error:
        text = str(error.args[0]) if error.args else "the broker is too old"
        raise IncompatibleBrokerVersion(f"{text}; brokers have it since release {release}") from error


def time_left(give_up_at: float) -> Dialogue[float]:
    """Seconds until that monotonic instant; 0 from then on."""
    return max(0.0, give_up_at - (yield from now()))


def mapping_of(given: Mapping[K, T], what: str, form: str) -> dict[K, T]:
    """A copy. IllegalArgumentError for what is no mapping; ``what`` names the argument, ``form`` says how it looks."""
    if not isinstance(given, Mapping):
        raise IllegalArgumentError(f"{what}={given!r}: {form}")
    return dict(given)


def list_of(given: Iterable[T], what: str, form: str) -> list[T]:
    """A copy. The same for what is one text, or cannot be iterated."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise IllegalArgumentError(f"{what}={given!r}: {form}")
    return list(given)


def numbers_of(given: Iterable[int], what: str, form: str) -> list[int]:
    """The same for what does not hold whole numbers alone."""
    numbers = list_of(given, what, form)
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        raise IllegalArgumentError(f"{what}={given!r}: {form}")
    return numbers


def partition_of(given: TopicPartition | tuple[str, int], what: str) -> TopicPartition:
    """What was given, if it is a topic's name and a number; else IllegalArgumentError."""
    if isinstance(given, (tuple, list)) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and isinstance(number, int) and not isinstance(number, bool):
            return TopicPartition(topic, number)
    raise IllegalArgumentError(f"{what}: {given!r}: a TopicPartition is needed")
