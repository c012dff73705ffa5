"""A peer for client tests: a broker that answers as its script says, over any network of ``kafka.net``.

It has no state of its own and no opinion: :attr:`ScriptedBroker.answers` maps a request class to a function of the
request and its version, or to a list of such functions that are used up one by one. What a function returns is sent;
:data:`SILENT` sends nothing, :data:`CLOSE` ends the connection, bytes are sent as they are.

How it treats what it does not know is a release's manner: :class:`Manner`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from kafka.core.versions import OLD_RANGES
from kafka.net.transport import Listener, Network, Transport, TransportHandler
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.framing import ReceivedRequest, UnknownRequest, decode_request, encode_response
from kafka.protocol.groups import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.offsets import OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.registry import REGISTRY
from kafka.wire.frame import FrameReader
from kafka.wire.message import Request, Response


class Manner(Enum):
    """What a broker does with a request that it does not know."""

    CLOSES = "0.8"
    SILENT = "0.9"
    SAYS_SO = "0.10 and later"


class Signal(Enum):
    SILENT = "send nothing"
    CLOSE = "end the connection"


SILENT = Signal.SILENT
CLOSE = Signal.CLOSE

Answer = Response | Signal | bytes
Script = Callable[[Any, int], Answer]

MODERN: Mapping[int, tuple[int, int]] = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 16: (0, 5),
    18: (0, 4), 19: (2, 7), 35: (1, 5),
}  # fmt: skip
"""About what 4.3 tells."""


class ScriptedBroker:
    """Listens at ``host``:``port`` of ``network``. ``brokers``: what Metadata tells, by default this one as node 1."""

    def __init__(
        self,
        network: Network,
        host: str = "kafka",
        port: int = 9092,
        *,
        node_id: int = 1,
        ranges: Mapping[int, tuple[int, int]] = MODERN,
        manner: Manner = Manner.SAYS_SO,
        brokers: Mapping[int, tuple[str, int]] | None = None,
    ) -> None:
        self.received: list[tuple[Request[Any], int]] = []
        """Requests and their versions, in the order of coming."""
        self.accepted = 0
        """Connections so far."""
        self.open: list[_Peer] = []
        """Connections that stand."""
        self.ranges = dict(ranges)
        self.manner = manner
        self.brokers = dict(brokers if brokers is not None else {node_id: (host, port)})
        self.controller_id = node_id
        self.topics: dict[str, dict[int, int]] = {}
        """Topic -> partition -> leader, for Metadata."""
        self.answers: dict[type[Request[Any]], Script | list[Script]] = {
            ApiVersionsRequest: self.api_versions,
            MetadataRequest: self.metadata,
            ListGroupsRequest: lambda request, version: ListGroupsResponse(error_code=0, groups=[]),
            FindCoordinatorRequest: self.coordinator,
            OffsetFetchRequest: lambda request, version: OffsetFetchResponse(topics=[]),
        }
        self._network = network
        self._where = (host, port)
        self._listener: Listener | None = network.listen(host, port, self._accept)

    @classmethod
    def of_release(cls, network: Network, release: str, **options: Any) -> ScriptedBroker:
        """One that knows and behaves as "0.8.0", "0.8.1", "0.8.2" or "0.9" did."""
        manner = Manner.SILENT if release == "0.9" else Manner.CLOSES
        return cls(network, ranges=OLD_RANGES[release], manner=manner, **options)

    def stop(self) -> None:
        """Refuse connections, and reset those that stand."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for peer in list(self.open):
            peer.transport.abort()

    def restart(self) -> None:
        """Listen again."""
        self._listener = self._network.listen(*self._where, self._accept)

    def requests(self, cls: type[Request[Any]]) -> list[Request[Any]]:
        """What came of one class."""
        return [request for request, _ in self.received if isinstance(request, cls)]

    # -- the answers that every broker has -----------------------------------------------------------------------------

    def api_versions(self, request: Any, version: int) -> Answer:
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=least, max_version=most)
            for key, (least, most) in self.ranges.items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=keys)

    def metadata(self, request: Any, version: int) -> Answer:
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=node, host=host, port=port)
            for node, (host, port) in self.brokers.items()
        ]
        wanted = None if request.topics is None else {topic.name for topic in request.topics}
        if version == 0 and not wanted:
            wanted = None
        topics = [
            MetadataResponse.MetadataResponseTopic(
                error_code=0 if name in self.topics else 3,
                name=name,
                partitions=[
                    MetadataResponse.MetadataResponsePartition(
                        error_code=0,
                        partition_index=number,
                        leader_id=leader,
                        leader_epoch=0 if version >= 7 else -1,
                        replica_nodes=[leader],
                        isr_nodes=[leader],
                    )
                    for number, leader in self.topics.get(name, {}).items()
                ],
            )
            for name in sorted(self.topics if wanted is None else wanted)
        ]
        return MetadataResponse(brokers=brokers, controller_id=self.controller_id, topics=topics)

    def coordinator(self, request: Any, version: int) -> Answer:
        node_id, (host, port) = next(iter(self.brokers.items()))
        if version < 4:
            return FindCoordinatorResponse(node_id=node_id, host=host, port=port)
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(key=key, node_id=node_id, host=host, port=port)
                for key in request.coordinator_keys
            ]
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _accept(self, transport: Transport) -> TransportHandler:
        self.accepted += 1
        peer = _Peer(self, transport)
        self.open.append(peer)
        return peer


class _Peer(TransportHandler):
    """One connection."""

    def __init__(self, broker: ScriptedBroker, transport: Transport) -> None:
        self.transport = transport
        self._broker = broker
        self._frames = FrameReader()

    def connected(self) -> None:
        return

    def writable(self) -> None:
        return

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            if self.transport.is_closing:
                return
            self._handle(decode_request(frame))

    def closed(self, error: BaseException | None) -> None:
        self._broker.open.remove(self)

    def _handle(self, received: ReceivedRequest | UnknownRequest) -> None:
        broker = self._broker
        key = received.api_key if isinstance(received, UnknownRequest) else received.request.api_key
        version = received.api_version if isinstance(received, UnknownRequest) else received.version
        least, most = broker.ranges.get(key, (0, -1))
        if isinstance(received, UnknownRequest) or not least <= version <= most:
            self._unknown(key, received.correlation_id)
            return
        broker.received.append((received.request, version))
        script = broker.answers.get(type(received.request))
        if isinstance(script, list):
            script = script.pop(0)
        assert script is not None, f"no script for {REGISTRY[key].name}"
        self.answer(script(received.request, version), version, received.correlation_id)

    def answer(self, answer: Answer, version: int, correlation_id: int) -> None:
        if answer is CLOSE:
            self.transport.close()
        elif isinstance(answer, bytes):
            self.transport.write(answer)
        elif isinstance(answer, Response):
            self.transport.write(encode_response(answer, version, correlation_id))

    def _unknown(self, key: int, correlation_id: int) -> None:
        if self._broker.manner is Manner.SILENT:
            return
        if self._broker.manner is Manner.CLOSES or key != ApiVersionsRequest.api_key:
            self.transport.close()
            return
        self.transport.write(encode_response(ApiVersionsResponse(error_code=35, api_keys=[]), 0, correlation_id))
