"""Which requests the broker answers: one table, for dispatch and for the ApiVersions answer.

A handler is a function in ``handlers/``, marked with what it handles::

    @handles(MetadataRequest, versions=(0, 13))
    def metadata(broker: Broker, call: Call[MetadataRequest]) -> MetadataResponse: ...

It returns the response, or a :class:`~kafka.broker.reply.Reply` that is completed later. A new module of handlers goes
into ``MODULES``; its docstring says what it does and what it lacks beside Apache Kafka (the documentation shows it).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from kafka.broker.reply import Connection, Reply
from kafka.wire.message import Request, Response

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

Q = TypeVar("Q", bound="Request[Any]")

MODULES: Final = (
    "api_versions",
    "cluster",
    "configs",
    "coordinator",
    "fetch",
    "groups",
    "list_offsets",
    "metadata",
    "offsets",
    "partitions",
    "produce",
    "producer_ids",
    "share_acknowledge",
    "share_fetch",
    "share_groups",
    "topics",
)
"""The modules of ``kafka.broker.handlers``."""


class Call(Generic[Q]):
    """One request on its way through a handler. ``now``: monotonic s."""

    __slots__ = ("client_id", "connection", "now", "request", "version")

    def __init__(self, request: Q, version: int, client_id: str | None, connection: Connection, now: float) -> None:
        self.request = request
        self.version = version
        self.client_id = client_id
        self.connection = connection
        self.now = now


Outcome = Response | Reply
HandlerFunction = Callable[["Broker", Call[Any]], Outcome]


class Handler(NamedTuple):
    """One row. ``listed_from``: the lowest version that ApiVersions names; Kafka names some of Produce that it does not
    serve, for librdkafka's sake."""

    key: int
    min_version: int
    max_version: int
    listed_from: int
    function: HandlerFunction


HANDLERS: Final[dict[int, Handler]] = {}
"""API key -> handler. Filled by :func:`load`."""


def handles(
    request: type[Q], versions: tuple[int, int], *, listed_from: int | None = None
) -> Callable[[Callable[[Broker, Call[Q]], Outcome]], Callable[[Broker, Call[Q]], Outcome]]:
    """Make the decorated function the handler of these versions of a request (both inclusive)."""
    low, high = versions
    if not request.min_version <= low <= high <= request.max_version:
        raise ValueError(f"{request.__name__} has no versions {low} to {high}")

    def register(function: Callable[[Broker, Call[Q]], Outcome]) -> Callable[[Broker, Call[Q]], Outcome]:
        key = request.api_key
        if key in HANDLERS:
            raise ValueError(f"{request.__name__} has two handlers")
        HANDLERS[key] = Handler(key, low, high, low if listed_from is None else listed_from, function)
        return function

    return register


def load() -> dict[int, Handler]:
    """The whole table."""
    for name in MODULES:
        import_module(f"kafka.broker.handlers.{name}")
    return HANDLERS
