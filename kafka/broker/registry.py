"""Which requests the broker can handle: one table, of which each emulated release uses a part.

A handler is a function in ``handlers/``, marked with what it handles::

    @handles(MetadataRequest)
    def metadata(broker: Broker, call: RequestContext[MetadataRequest]) -> MetadataResponse: ...

It returns the response, or a :class:`~kafka.broker.responses.PendingResponse` that is completed later. An error that it
raises is the error of the whole response (``error_responses.error_response``).

``MODULES`` declares which module handles which APIs, and their versions, which are declared nowhere else: the broker's
answer to ApiVersions comes from there, and a module is imported when the first request for it arrives. To add a
handler, mark a function and add a row to ``MODULES``; to add a version, change the row. A module's docstring says what
it does and how it differs from Apache Kafka (the documentation shows it).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.protocol.registry import NAMES
from kafka.wire.message import Request, Response, Struct

log = logging.getLogger(__name__)

Q = TypeVar("Q", bound="Request[Any]")

MODULES: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "cluster": {
        "DescribeLogDirs": (0, 5), "AlterReplicaLogDirs": (0, 2), "DescribeQuorum": (0, 2), "UpdateFeatures": (0, 2),
        "DescribeCluster": (0, 2), "UnregisterBroker": (0, 0), "AddRaftVoter": (0, 1), "RemoveRaftVoter": (0, 0),
    },
    "configs": {
        "DescribeConfigs": (0, 4), "AlterConfigs": (0, 2), "IncrementalAlterConfigs": (0, 1),
        "DescribeClientQuotas": (0, 1), "AlterClientQuotas": (0, 1), "ListConfigResources": (0, 1),
    },
    "fetch": {"Fetch": (0, 18)},
    "groups": {
        "JoinGroup": (0, 9), "Heartbeat": (0, 4), "LeaveGroup": (0, 5), "SyncGroup": (0, 5), "DescribeGroups": (0, 6),
        "ListGroups": (0, 5), "DeleteGroups": (0, 2), "ConsumerGroupHeartbeat": (0, 1), "ConsumerGroupDescribe": (0, 1),
    },
    "list_offsets": {"ListOffsets": (0, 11), "OffsetForLeaderEpoch": (0, 4)},
    "metadata": {
        "Metadata": (0, 13), "FindCoordinator": (0, 6), "ApiVersions": (0, 4), "DescribeTopicPartitions": (0, 0),
    },
    "offsets": {"OffsetCommit": (0, 10), "OffsetFetch": (0, 10), "OffsetDelete": (0, 0)},
    "produce": {"Produce": (0, 13)},
    "security": {
        "SaslHandshake": (0, 1), "DescribeAcls": (0, 3), "CreateAcls": (0, 3), "DeleteAcls": (0, 3),
        "SaslAuthenticate": (0, 2), "CreateDelegationToken": (0, 3), "RenewDelegationToken": (0, 2),
        "ExpireDelegationToken": (0, 2), "DescribeDelegationToken": (0, 3), "DescribeUserScramCredentials": (0, 0),
        "AlterUserScramCredentials": (0, 0),
    },
    "share": {
        "ShareGroupHeartbeat": (1, 1), "ShareGroupDescribe": (1, 1), "ShareFetch": (1, 2), "ShareAcknowledge": (1, 2),
        "DescribeShareGroupOffsets": (0, 1), "AlterShareGroupOffsets": (0, 0), "DeleteShareGroupOffsets": (0, 0),
    },
    "telemetry": {"GetTelemetrySubscriptions": (0, 0), "PushTelemetry": (0, 0)},
    "topics": {
        "CreateTopics": (0, 7), "DeleteTopics": (0, 6), "DeleteRecords": (0, 2), "CreatePartitions": (0, 3),
        "ElectLeaders": (0, 2), "AlterPartitionReassignments": (0, 1), "ListPartitionReassignments": (0, 0),
    },
    "transactions": {
        "InitProducerId": (0, 5), "AddPartitionsToTxn": (0, 5), "AddOffsetsToTxn": (0, 4), "EndTxn": (0, 5),
        "WriteTxnMarkers": (0, 2), "TxnOffsetCommit": (0, 5), "DescribeProducers": (0, 0),
        "DescribeTransactions": (0, 0), "ListTransactions": (0, 2),
    },
}  # fmt: skip
"""Module of ``kafka.broker.handlers`` -> its APIs and their versions, both inclusive."""

MOST_ELEMENTS: Final[Mapping[str, int]] = {
    "AddPartitionsToTxn": 8_000, "AlterClientQuotas": 4_000, "AlterConfigs": 2_500,
    "AlterPartitionReassignments": 10_000, "AlterShareGroupOffsets": 1_200, "AlterUserScramCredentials": 9_000,
    "ConsumerGroupDescribe": 4_000, "ConsumerGroupHeartbeat": 12_000, "CreatePartitions": 9_000,
    "CreateTopics": 8_000, "DeleteGroups": 14_000, "DeleteRecords": 7_000, "DeleteTopics": 4_000,
    "DescribeClientQuotas": 18_000, "DescribeConfigs": 700, "DescribeGroups": 6_000, "DescribeLogDirs": 5_500,
    "DescribeProducers": 1_500, "DescribeQuorum": 8_000, "DescribeShareGroupOffsets": 8_000,
    "DescribeTopicPartitions": 10_000, "DescribeTransactions": 6_000, "DescribeUserScramCredentials": 9_000,
    "ElectLeaders": 11_000, "FindCoordinator": 12_000, "IncrementalAlterConfigs": 2_500, "LeaveGroup": 10_000,
    "Metadata": 10_000, "OffsetCommit": 4_500, "OffsetFetch": 9_000, "OffsetForLeaderEpoch": 9_000,
    "ShareGroupDescribe": 4_000, "TxnOffsetCommit": 8_000, "WriteTxnMarkers": 100,
}  # fmt: skip
"""API -> how many elements the arrays of one request may have together, where an element costs so much that those
that any request may have (``wire.codec.MAX_ELEMENTS``) would keep the loop for longer than 100 ms
(``python -m test.hostile.measure``). A request with more ends its connection, as one that is too large does."""


class RequestContext(Generic[Q]):
    """One request on its way through a handler. ``now``: monotonic s."""

    __slots__ = ("client_id", "connection", "now", "request", "version")

    def __init__(
        self, request: Q, version: int, client_id: str | None, connection: ConnectionContext, now: float
    ) -> None:
        self.request = request
        self.version = version
        self.client_id = client_id
        self.connection = connection
        self.now = now

    def at(self, now: float) -> RequestContext[Q]:
        """The same request, handled at a later time."""
        return RequestContext(self.request, self.version, self.client_id, self.connection, now)


def reject_too_many_elements(call: RequestContext[Any], most: int) -> PendingResponse:
    """End the connection of a request with more than ``most`` elements: refusing each of them would take as long as
    handling it."""
    log.warning(
        "%r: closed the connection: %s v%d has more than %d elements in its arrays; ask in several requests",
        call.connection, type(call.request).__name__, call.version, most,
    )  # fmt: skip
    return PendingResponse.hanging_up()


Outcome = Response | PendingResponse
PartitionRef = tuple[str | UUID, int]
"""A partition by its topic's name or id, and its number."""
HandlerFunction = Callable[[Any, RequestContext[Any]], Outcome]
"""Called with the broker, which this module does not import: the broker imports this one."""


class Handler:
    """One row: all versions that there are, of any release. Which of them a broker serves and lists is decided by the
    release that it emulates (``emulation.py``). ``function`` is there at once, and imports its module when first
    called."""

    __slots__ = ("function", "key", "max_version", "min_version", "module", "most_elements")

    def __init__(self, key: int, min_version: int, max_version: int, module: str) -> None:
        self.key = key
        self.min_version = min_version
        self.max_version = max_version
        self.module = module
        self.most_elements = MOST_ELEMENTS.get(NAMES[key])
        self.function: HandlerFunction = self._first_call

    def load(self) -> HandlerFunction:
        """The function itself."""
        import_module(f"kafka.broker.handlers.{self.module}")
        self.function = _FUNCTIONS[self.key]
        return self.function

    def has_too_many_elements(self, request: Request[Any]) -> bool:
        """Whether a request has more elements than are handled at a time."""
        return self.most_elements is not None and _remaining_elements(request, self.most_elements) < 0

    def _first_call(self, broker: Any, call: RequestContext[Any]) -> Outcome:
        return self.load()(broker, call)


KEYS: Final = {name: key for key, name in NAMES.items()}

HANDLERS: Final[Mapping[int, Handler]] = {
    KEYS[name]: Handler(KEYS[name], *versions, module)
    for module, apis in MODULES.items()
    for name, versions in apis.items()
}
"""API key -> handler."""

_FUNCTIONS: Final[dict[int, HandlerFunction]] = {}
"""API key -> function, of the modules that are imported."""


def _remaining_elements(message: Struct, most: int) -> int:
    """``most`` less the elements of all arrays of a message, or, when that is below 0, of the first of them."""
    for name in message.fields:
        value = getattr(message, name)
        if isinstance(value, Struct):
            most = _remaining_elements(value, most)
        elif isinstance(value, list):
            most -= len(value)
            if most >= 0 and value and isinstance(value[0], Struct):
                for one in value:
                    most = _remaining_elements(one, most)
                    if most < 0:
                        break
        if most < 0:
            break
    return most


def handles(
    request: type[Q],
    *,
    opens: Callable[[Q], Sequence[PartitionRef]] | None = None,
    most_opened: int | None = None,
) -> Callable[[Callable[[Any, RequestContext[Q]], Outcome]], Callable[[Any, RequestContext[Q]], Outcome]]:
    """Make the decorated function the handler of a request, in the versions that :data:`MODULES` declares. ``opens``:
    the partitions of a request whose logs it opens; when they are many, that is done first, in slices. A request with
    more of them than ``most_opened`` ends its connection, as those of :data:`MOST_ELEMENTS`."""

    def register(
        function: Callable[[Any, RequestContext[Q]], Outcome],
    ) -> Callable[[Any, RequestContext[Q]], Outcome]:
        """Enters the function, wrapped if the request names what has to be open first. ValueError, at import, for a
        function that does not fit the table: another module, other versions, or a second handler."""
        key, module = request.api_key, function.__module__.rpartition(".")[2]
        row = HANDLERS.get(key)
        if row is None or row.module != module:
            raise ValueError(f"{module} handles {request.__name__}, and MODULES does not say so")
        if not request.min_version <= row.min_version <= row.max_version <= request.max_version:
            raise ValueError(f"{request.__name__} has no versions {row.min_version} to {row.max_version}")
        if key in _FUNCTIONS:
            raise ValueError(f"{request.__name__} has two handlers")
        _FUNCTIONS[key] = function
        if opens is not None:

            @functools.wraps(function)
            def handle_when_open(broker: Any, call: RequestContext[Q]) -> Outcome:
                named = opens(call.request)
                if most_opened is not None and len(named) > most_opened:
                    return reject_too_many_elements(call, most_opened)
                outcome: Outcome = broker.when_open(call, named, function)
                return outcome

            _FUNCTIONS[key] = handle_when_open
        return function

    return register


def load_by_module() -> Iterator[str]:
    """Import one module after the other, and say which."""
    for name, apis in MODULES.items():
        for api in apis:
            HANDLERS[KEYS[api]].load()
        yield name


def load() -> Mapping[int, Handler]:
    """The whole table, with everything imported."""
    for _ in load_by_module():
        pass
    return HANDLERS
