"""All connections of a client, by node and lane, and the question which node has least to do.

It leaves the first contact to ``bootstrap.py``: a connection to a bootstrap server that stays in use is handed over
with :meth:`Nodes.adopt` as the node ``"bootstrap"``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from kafka.client.cluster import ClusterMetadata
from kafka.client.connection import BrokerConnection
from kafka.client.link import LinkSettings, Owner, Traffic
from kafka.core.retry import Rng
from kafka.core.routing import NodeId
from kafka.errors import KafkaError
from kafka.net.transport import Network

BOOTSTRAP = "bootstrap"
"""The node id of a server whose real id is not known."""


class Nodes:
    """Connections are made on first use and kept until :meth:`close`."""

    def __init__(
        self, cluster: ClusterMetadata, network: Network, settings: LinkSettings, owner: Owner, rng: Rng
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._settings = settings
        self._owner = owner
        self._rng = rng
        self._connections: dict[tuple[NodeId, str | None], BrokerConnection] = {}
        self._traffic: tuple[Traffic, ...] = ()

    def __iter__(self) -> Iterator[BrokerConnection]:
        return iter(list(self._connections.values()))

    def find(self, node_id: NodeId, lane: str | None = None) -> BrokerConnection | None:
        """The connection, if there is one."""
        return self._connections.get((node_id, lane))

    def get(self, node_id: NodeId, lane: str | None = None) -> BrokerConnection:
        """The connection, made now if there is none; it connects when it is used."""
        key = (node_id, lane)
        found = self._connections.get(key)
        if found is None:
            found = BrokerConnection(node_id, self._network, self._settings, self._owner, self._rng, lane)
            found.traffic = self._traffic
            self._connections[key] = found
        return found

    def adopt(self, connection: BrokerConnection) -> None:
        """Take over a connection made elsewhere."""
        connection.traffic = self._traffic
        self._connections[connection.node_id, connection.lane] = connection

    def set_traffic(self, traffic: tuple[Traffic, ...]) -> None:
        """Tell these of all requests from now on, and nobody else."""
        self._traffic = traffic
        for connection in self:
            connection.traffic = traffic

    def close(self, node_id: NodeId | None = None, lane: str | None = None, error: KafkaError | None = None) -> None:
        """Close all connections, those of one node, those of one lane, or the one."""
        for key, connection in list(self._connections.items()):
            if node_id in (None, key[0]) and lane in (None, key[1]):
                del self._connections[key]
                connection.close(error)

    def forget_strangers(self) -> None:
        """Drop what leads to nodes that are not in the metadata any more, unless it is still in use."""
        known = {broker.nodeId for broker in self._cluster.brokers()}
        for key, connection in list(self._connections.items()):
            if key[0] not in known and connection.disconnected() and not connection.in_flight_count:
                del self._connections[key]
                connection.close()

    def in_flight_request_count(self, node_id: NodeId | None = None) -> int:
        """Requests sent or waiting, on all connections or those to one node."""
        return sum(c.in_flight_count for c in self if node_id in (None, c.node_id))

    def least_loaded_node(self) -> NodeId | None:
        """A connected node with nothing in flight; else the one with least in flight outside back-off, connected ones
        first; else a broker from the metadata never tried; else one that throttles; else None. The bootstrap server
        comes last everywhere.
        """
        best: NodeId | None = None
        best_rank = (False, False, inf, False)
        for (node_id, lane), connection in self._connections.items():
            if lane is not None or connection.blacked_out() or self._is_nowhere(connection):
                continue
            is_muted = connection.muted_until > 0
            rank = (is_muted, connection.disconnected(), connection.in_flight_count, node_id == BOOTSTRAP)
            if best is None or rank < best_rank:
                best, best_rank = node_id, rank
        is_muted, is_disconnected = best_rank[:2]
        if best is not None and best != BOOTSTRAP and not is_muted and not is_disconnected:
            return best
        # A known broker that nobody tried beats a bootstrap server, and one that throttles.
        for broker in sorted(sorted(self._cluster.brokers()), key=lambda _: self._rng.random()):
            if (broker.nodeId, None) not in self._connections:
                return broker.nodeId if best in (None, BOOTSTRAP) or is_muted else best
        return best

    def _is_nowhere(self, connection: BrokerConnection) -> bool:
        """Whether there is no address to connect to: somebody asked for a node that is not in the metadata."""
        node_id = connection.node_id
        return connection.disconnected() and node_id != BOOTSTRAP and self._cluster.broker_metadata(node_id) is None

    def next_retry_at(self) -> float:
        """When the first of the nodes in back-off may be tried again; infinity when none is."""
        return min((c.retry_at for c in self if c.lane is None and c.blacked_out()), default=inf)
