"""The client's side of one connection: requests to bytes, bytes to answers, in order.

It knows correlation ids, what is in flight and until when, and chooses among the versions that the broker speaks
(:class:`ApiRanges`). It leaves sockets, connecting, queueing and retrying to ``client/connection.py``, and finding out
what the broker speaks to ``versions.py``; the broker's side is ``serving.py``.

    send(request, version)  ->  chunks to write          receive(data)  ->  (request, answer) in order
                                                         or get_buffer(), buffer_updated(count) for large ones
                                                         a fault: `failed` is set, nothing more is taken

Kafka answers in the order of the requests (protocol guide, "Network"), so the in-flight requests are a queue and each
response belongs to its head. One exception: a 0.9 broker drops a request that it does not know and answers the next
one. A request sent as ``skippable`` may be dropped like this; for all others another correlation id is a fault.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final, Generic, TypeVar

from kafka.core.routing import Coordinator
from kafka.errors import CorrelationIdError, IncompatibleBrokerVersion, KafkaProtocolError
from kafka.protocol.framing import decode_response, encode_request, read_correlation_id
from kafka.protocol.registry import NAMES
from kafka.wire.frame import DEFAULT_MAX_BYTES, Frame, LargeFrameReader, ReceiveBuffers
from kafka.wire.message import Request, Response
from kafka.wire.types import BytesLike

R = TypeVar("R", bound=Response)

PRODUCE_KEY: Final = 0
_MAX_CORRELATION_ID: Final = 2**31 - 1

_response_types: dict[type[Request[Any]], type[Response]] = {}


def expects_answer(request: Request[Any]) -> bool:
    """Whether the broker answers: always, but for Produce with acks=0."""
    return request.api_key != PRODUCE_KEY or request.acks != 0  # type: ignore[attr-defined]


class ApiRanges:
    """The API versions of one broker: API key -> (lowest, highest version), and the cluster's finalized features.

    ``release`` is what the ranges look like ("0.9", "4.3"); None for the ranges of a broker that was not asked.
    """

    __slots__ = ("_chosen", "features", "ranges", "release")

    def __init__(
        self,
        ranges: Mapping[int, tuple[int, int]],
        features: Mapping[str, tuple[int, int]] | None = None,
        release: str | None = None,
    ) -> None:
        self.ranges = dict(ranges)
        self.features = dict(features or {})
        self.release = release
        self._chosen: dict[type[Request[Any]], int] = {}

    def __contains__(self, api_key: int) -> bool:
        return api_key in self.ranges

    def choose(
        self,
        request: type[Request[Any]],
        min_version: int | None = None,
        max_version: int | None = None,
        node: object = "the broker",
    ) -> int:
        """The highest version that both sides speak, within ``min_version`` and ``max_version``.

        IncompatibleBrokerVersion, which names the API and both ranges, when there is none; ``node`` as text says who.
        """
        is_usual = min_version is None and max_version is None
        if is_usual and request in self._chosen:
            return self._chosen[request]
        name = NAMES.get(request.api_key, request.__name__)
        theirs = self.ranges.get(request.api_key)
        lowest = max(min_version or 0, request.min_version)
        highest = request.max_version if max_version is None else min(max_version, request.max_version)
        looks = f" (it looks like release {self.release})" if self.release else ""
        if theirs is None:
            raise IncompatibleBrokerVersion(f"{node} does not have the API {name}{looks}")
        if max(lowest, theirs[0]) > min(highest, theirs[1]):
            raise IncompatibleBrokerVersion(
                f"{name}: {node} speaks versions {theirs[0]} to {theirs[1]}{looks}, "
                f"this call needs {lowest} to {highest}"
            )
        version = min(highest, theirs[1])
        if is_usual:
            self._chosen[request] = version
        return version


class ByVersion(Generic[R]):
    """A request whose fields depend on the version spoken: ``build(version)`` is called once that is chosen.

    FindCoordinator asks for ``key`` up to version 3 and for ``coordinator_keys`` from 4 on, for example.

    ``depends_on``: whom the broker asks before it answers, if anybody: what is written in a transaction is verified
    with the transaction's coordinator (KIP-890).
    """

    __slots__ = ("build", "depends_on", "request_type")

    def __init__(
        self,
        request_type: type[Request[R]],
        build: Callable[[int], Request[R]],
        depends_on: Coordinator | None = None,
    ) -> None:
        self.request_type = request_type
        self.build = build
        self.depends_on = depends_on


class InFlightRequest:
    """One request in flight. ``owner`` is the sender's and not used here."""

    __slots__ = ("api_key", "correlation_id", "deadline", "owner", "response_type", "skippable", "version")

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        response_type: type[Response],
        deadline: float,
        owner: Any,
        skippable: bool,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.response_type = response_type
        self.deadline = deadline
        self.owner = owner
        self.skippable = skippable

    @property
    def api(self) -> str:
        """Name and version of the API, for logs and errors."""
        return f"{NAMES.get(self.api_key, self.api_key)} v{self.version}"


Answer = tuple[InFlightRequest, Response | KafkaProtocolError | None]
"""A request with its response; the fault in the response's bytes; or None when the broker skipped the request."""


class ClientConnection:
    """The machine. ``node`` names the peer in errors; ``in_flight``: the requests without a response yet, oldest
    first."""

    __slots__ = ("_client_id", "_correlation_id", "_frames", "failed", "in_flight", "node")

    def __init__(
        self,
        client_id: str | None,
        node: str = "",
        max_bytes: int = DEFAULT_MAX_BYTES,
        correlation_id: int = 0,
        pool: ReceiveBuffers | None = None,
    ) -> None:
        self._client_id = client_id
        self._correlation_id = correlation_id
        self._frames = LargeFrameReader(pool or ReceiveBuffers(), max_bytes)
        self.node = node
        self.in_flight: deque[InFlightRequest] = deque()
        self.failed: KafkaProtocolError | None = None
        """The fault that ended the connection: close it."""

    def send(
        self,
        request: Request[Any],
        version: int,
        deadline: float = inf,
        owner: Any = None,
        *,
        skippable: bool = False,
    ) -> list[BytesLike]:
        """The bytes of ``request``; it is in flight from now on, unless no answer is to come (acks=0).

        ``deadline``: monotonic instant, see :meth:`next_deadline`. Errors of the message's fields pass through and
        change nothing.
        """
        correlation_id = self._correlation_id
        chunks = encode_request(request, version, correlation_id, self._client_id)
        self._correlation_id = correlation_id + 1 if correlation_id < _MAX_CORRELATION_ID else 0
        cls = type(request)
        if cls.api_key == PRODUCE_KEY and not expects_answer(request):
            return chunks
        response_type = _response_types.get(cls)
        if response_type is None:
            response_type = _response_types[cls] = cls.response_type()
        self.in_flight.append(
            InFlightRequest(cls.api_key, version, correlation_id, response_type, deadline, owner, skippable)
        )
        return chunks

    def receive(self, data: bytes) -> list[Answer]:
        """What the bytes complete, in order. After a fault ``failed`` is set, and what came before it is returned."""
        if self.failed is not None:
            return []
        try:
            frames: list[Frame] = [*self._frames.feed(data)]
        except KafkaProtocolError as fault:
            self._fail(fault)
            return []
        return self._answers(frames)

    def get_buffer(self) -> memoryview | None:
        """Where the next bytes are to be put, for :meth:`buffer_updated`; None: :meth:`receive` them."""
        return None if self.failed is not None else self._frames.get_buffer()

    def buffer_updated(self, count: int) -> list[Answer]:
        """So many bytes are in the buffer: what they complete, as :meth:`receive` says it."""
        if self.failed is not None:
            return []
        try:
            frames = self._frames.buffer_updated(count)
        except KafkaProtocolError as fault:
            self._fail(fault)
            return []
        return self._answers(frames)

    def missing_bytes(self) -> int:
        """How many bytes are missing of a large answer that has begun; 0: of none."""
        return 0 if self.failed is not None else self._frames.missing_bytes()

    def _answers(self, frames: list[Frame]) -> list[Answer]:
        answers: list[Answer] = []
        for frame in frames:
            try:
                call = self._take_in_flight(read_correlation_id(frame), answers)
            except KafkaProtocolError as fault:
                self._fail(fault)
                return answers
            try:
                answers.append((call, decode_response(call.response_type, call.version, frame)))
            except KafkaProtocolError as fault:
                self._fail(fault)
                answers.append((call, fault))
                return answers
        if self._frames.failed is not None:
            self._fail(self._frames.failed)
        return answers

    def next_deadline(self) -> float:
        """The earliest deadline of what is in flight; infinity when nothing is."""
        return min((call.deadline for call in self.in_flight), default=inf)

    def overdue(self, now: float) -> list[InFlightRequest]:
        """The requests in flight whose deadline has come."""
        return [call for call in self.in_flight if call.deadline <= now]

    def extend_deadlines(self, seconds: float) -> None:
        """Give what is in flight so much more time: the broker does not read it while it throttles (KIP-219)."""
        for call in self.in_flight:
            call.deadline += seconds

    def abandon(self) -> list[InFlightRequest]:
        """The connection is gone: take out what was in flight."""
        calls = list(self.in_flight)
        self.in_flight.clear()
        return calls

    def _take_in_flight(self, correlation_id: int, answers: list[Answer]) -> InFlightRequest:
        in_flight = self.in_flight
        if not in_flight:
            raise KafkaProtocolError(f"a response with correlation id {correlation_id}, and no request is in flight")
        while in_flight[0].correlation_id != correlation_id:
            if not (in_flight[0].skippable and len(in_flight) > 1):
                head = in_flight[0]
                text = f"a response with correlation id {correlation_id}, expected {head.correlation_id}"
                raise CorrelationIdError(text, api=head.api)
            answers.append((in_flight.popleft(), None))
        return in_flight.popleft()

    def _fail(self, fault: KafkaProtocolError) -> None:
        fault.add_node(self.node)
        self.failed = fault
