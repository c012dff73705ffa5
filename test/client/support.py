"""What the client's tests share: a simulated loop, a memory network, a scripted broker, clients that are closed."""

from __future__ import annotations

from typing import Any, TypeVar

from kafka.client.kafka_client import KafkaClient
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.protocol.metadata import MetadataRequest

T = TypeVar("T")

NONE = MetadataRequest(topics=[])
"""A request that every broker answers."""


class Fixed:
    """No chance: the middle of every jitter, the first of every choice."""

    def __init__(self, value: float = 0.5) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


class World:
    """One simulated loop with its network, seen by clients from the host "me"."""

    def __init__(self) -> None:
        self.loop = Loop.simulated()
        self.network = MemoryNetwork(self.loop, "kafka")
        self.mine = self.network.host("me")
        self.clients: list[KafkaClient] = []

    def client(self, servers: str = "kafka:9092", **configs: Any) -> KafkaClient:
        configs.setdefault("rng", Fixed(0.0))
        client = KafkaClient(network=self.mine, bootstrap_servers=servers, **configs)
        self.clients.append(client)
        return client

    @property
    def now(self) -> float:
        return self.loop.time()

    def wait(self, future: Future[T], timeout_s: float | None = 1000) -> T:
        """Run until it is done; its result, or its error raised."""
        assert self.loop.run_until(future, timeout_s), "not done"
        return future.result()

    def failure(self, future: Future[Any], timeout_s: float | None = 1000) -> BaseException:
        """Run until it has failed; the error."""
        assert self.loop.run_until(future, timeout_s), "not done"
        assert future.exception is not None, f"it succeeded: {future.value!r}"
        return future.exception

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.run_until(lambda: False, seconds)

    def settled(self, client: KafkaClient) -> KafkaClient:
        """Run until the client knows the cluster."""
        assert self.loop.run_until(lambda: client.cluster.ttl() > 0 and not client.cluster.need_update, 100)
        self.run(0.01)
        return client

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.loop.close()
