"""Requests to one broker or several, and what an answer's errors ask for: raise them, ask again, say which release is
needed; and how much time is left.

An API whose response has errors of one or more things is a row, :class:`AdminApi`, which :func:`request_api` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from kafka.core.connection import ByVersion
from kafka.core.dialogue import All, Dialogue, Send, now, refresh_metadata
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import Controller, Leader, Target
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
    UnknownBrokerIdError,
    UnstableOffsetCommitError,
    for_code,
)
from kafka.structs import TopicPartition
from kafka.wire.message import Request, Response, Struct
from kafka.wire.types import ZERO_UUID

R = TypeVar("R", bound=Response)
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
        UnstableOffsetCommitError,
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


_ATTEMPTS: Final = 2
_MARGIN_S: Final = 5
"""How much longer than a broker may take by its request's ``timeout_ms`` its response is waited for."""


def request_brokers(sends: Sequence[Send]) -> Dialogue[list[Any]]:
    """All answers, in order, or the first error. A broker that the client does not know may have joined since it last
    looked: it looks again, twice. UnknownBrokerIdError: there is none of that id."""
    answers: list[Any]
    for _ in range(_ATTEMPTS):
        try:
            answers = yield All(sends)
            return answers
        except UnknownBrokerIdError:
            yield from refresh_metadata()
    answers = yield All(sends)
    return answers


class AdminApi(NamedTuple):
    """An API as a dialogue asks for it. ``what``: what the call does, for KafkaTimeoutError; ``entries``: the errors in
    a response; ``release``: of brokers that have it, "" for all."""

    what: str
    entries: Callable[[Any], Iterable[ResponseEntry]] = lambda answer: ()
    target: Target = Controller()
    release: str = ""


def in_each(name: str, what: str) -> Callable[[Any], Iterable[ResponseEntry]]:
    """The entries of responses with an error in each element of the field ``name``, about ``what.format(element)``."""
    return lambda answer: [(each.error_code, each.error_message, what.format(each)) for each in getattr(answer, name)]


def in_all(what: str) -> Callable[[Any], Iterable[ResponseEntry]]:
    """The same of responses with one error, which is about all of it."""
    return lambda answer: [(answer.error_code, getattr(answer, "error_message", None), what)]


def request_api(
    api: AdminApi,
    request: Request[R] | ByVersion[R],
    backoff: Backoff,
    timeout_s: float,
    *,
    raise_errors: bool = True,
    min_version: int | None = None,
    lost: list[KafkaError] | None = None,
) -> Dialogue[R]:
    """The response, asked for again while it has an error of :data:`TRANSIENT`; then, with ``raise_errors``, its first
    error is raised. Errors of :data:`RESPONSE_LOST` are appended to ``lost``."""
    kind = request.request_type if isinstance(request, ByVersion) else type(request)
    send = Send(
        api.target,
        request,
        timeout_s=timeout_s + _MARGIN_S if "timeout_ms" in kind.fields else None,
        min_version=min_version,
    )

    def attempt() -> Dialogue[R]:
        answer: R
        try:
            if isinstance(api.target, int):
                (answer,) = yield from request_brokers([send])
            else:
                answer = yield send
        except RESPONSE_LOST as error:
            if lost is not None:
                lost.append(error)
            raise
        raise_transient(api.entries(answer))
        return answer

    topics = [api.target.partition.topic] if isinstance(api.target, Leader) else []
    asking = retrying(attempt, what=api.what, backoff=backoff, timeout_s=timeout_s, topics=topics)
    answer = yield from requiring_release(api.release, asking) if api.release else asking
    if raise_errors:
        raise_first(api.entries(answer))
    return answer


def time_left(give_up_at: float) -> Dialogue[float]:
    """Seconds until that monotonic instant; 0 from then on."""
    return max(0.0, give_up_at - (yield from now()))


# Partitions in messages, messages as dictionaries, and authorized operations by their names.


S = TypeVar("S", bound=Struct)


def topics_as(
    kind: type[S],
    topics: Mapping[str, Sequence[int]],
    partition_as: Callable[[TopicPartition], Any] = lambda partition: partition.partition,
) -> list[S]:
    """``{topic: numbers}`` as structures of ``kind``. The first field of such a structure is the topic's name, and the
    last one has its partitions: numbers, or what ``partition_as`` makes."""
    name, *_, partitions = kind.fields
    return [
        kind(**{name: topic, partitions: [partition_as(TopicPartition(topic, number)) for number in numbers]})
        for topic, numbers in topics.items()
    ]


def each_partition(topics: Iterable[Struct]) -> Iterator[tuple[TopicPartition, Any]]:
    """The partitions' structures in a response's ``topics``, which are of that shape."""
    for topic in topics:
        name, *_, partitions = topic.fields
        for each in getattr(topic, partitions):
            yield TopicPartition(getattr(topic, name), each.partition_index), each


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
