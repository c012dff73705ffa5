"""What an answer's errors ask for: raise them, ask again, say which release is needed; and how much time is left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

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

T = TypeVar("T")

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


def error_of(code: int, text: str | None) -> BrokerResponseError:
    """What an answer says of one thing, as an error; NoError where it went well."""
    return for_code(code)(text or "")


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
