"""Settings of every client that show below requests: names, time limits, sockets, who we say we are."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafka import KafkaConsumer, KafkaProducer
from kafka.client import KafkaClient
from kafka.client.bootstrap import canonical_servers
from kafka.config import resolve
from kafka.core.routing import AnyNode
from kafka.errors import KafkaConfigurationError, KafkaTimeoutError
from kafka.net import resolve as names
from kafka.net.loop import Loop
from kafka.net.tcp import TcpNetwork
from kafka.net.transport import Address
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.metadata import MetadataRequest
from test.client.support import NONE, Fixed, World
from test.net.test_proxy import TestProxy
from test.support.scripted import SILENT, ScriptedBroker

# -- connecting --------------------------------------------------------------------------------------------------------


def test_the_time_for_connecting_grows_with_failures_up_to_its_maximum(world: World) -> None:
    world.network.partition("me", "kafka")
    limits: list[float] = []
    connect = world.mine.connect

    def noted(addresses: Any, handler: Any, options: Any) -> Any:
        limits.append(options.connect_timeout_s)
        return connect(addresses, handler, options)

    world.mine.connect = noted  # type: ignore[method-assign]
    broker = ScriptedBroker(world.network, "there", 1, node_id=1)
    broker.brokers = {1: ("there", 1), 2: ("kafka", 9092)}
    client = world.settled(
        world.client(
            "there:1",
            rng=Fixed(0.5),
            socket_connection_setup_timeout_ms=1_000,
            socket_connection_setup_timeout_max_ms=5_000,
            reconnect_backoff_max_ms=50,
        )
    )
    limits.clear()
    failed = client.request(2, NONE, 60)
    for _ in range(4):
        world.failure(failed)
        failed = client.request(2, NONE, 60)
    assert limits[:4] == pytest.approx([1, 2, 4, 5])
    world.network.heal("me", "kafka")


def test_the_time_for_connecting_has_jitter(world: World) -> None:
    """All clients that lost one broker would else give up on it together (KIP-601)."""
    world.network.partition("me", "kafka")
    client = world.client(rng=Fixed(1.0), socket_connection_setup_timeout_ms=1_000)
    world.run(1.1)
    assert client.router.bootstrap.failures == 0
    world.run(0.2)
    assert client.router.bootstrap.failures == 1


def test_all_addresses_of_a_name_are_tried(world: World) -> None:
    world.network.names["service"] = ["down", "up"]
    broker = ScriptedBroker(world.network, "up", 9092)
    broker.brokers = {1: ("service", 9092)}
    client = world.settled(world.client("service:9092"))
    assert client.connected(1)


def test_options_are_set_on_the_socket_after_our_own() -> None:
    loop = Loop()
    network = TcpNetwork(loop)
    seen: list[tuple[int, int]] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = KafkaClient(
            network=network,
            bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}",
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)],
        )

        def has_connected() -> bool:
            for transport in network._transports:
                if transport._sock is not None:
                    get = transport._sock.getsockopt
                    seen.append(
                        (get(socket.IPPROTO_TCP, socket.TCP_NODELAY), get(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
                    )
            return bool(seen)

        assert loop.run_until(has_connected, 10)
        client.close()
    network.close()
    loop.close()
    assert seen[0][0] == 0 and seen[0][1] != 0


@pytest.mark.parametrize("value", [5, [5], [(1, 2)], [("a", 1, 1)]])
def test_what_is_no_list_of_socket_options_is_refused(value: Any) -> None:
    with pytest.raises(KafkaConfigurationError, match="socket_options.*setsockopt"):
        resolve("producer", {"socket_options": value})


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """A name service: name -> addresses; and ``names`` the other way round."""
    forward = {"alias": ["10.0.0.1", "10.0.0.2", "10.0.0.3"], "plain": ["10.0.0.1"]}
    backward = {"10.0.0.1": "one.example", "10.0.0.2": "two.example"}

    def lookup(host: str, port: int, family: int = 0) -> list[Address]:
        if host not in forward:
            raise socket.gaierror(socket.EAI_NONAME, f"{host}: Name or service not known")
        return [Address(socket.AF_INET, (each, port)) for each in forward[host]]

    def by_address(host: str) -> tuple[str, list[str], list[str]]:
        if host not in backward:
            raise socket.herror(1, "Unknown host")
        return backward[host], [], [host]

    monkeypatch.setattr(names, "lookup", lookup)
    monkeypatch.setattr(socket, "gethostbyaddr", by_address)
    return forward


def test_canonical_names_stand_for_an_alias(dns: dict[str, list[str]]) -> None:
    """Each once; an address without a name stands for itself; a server without an address is left out."""
    assert canonical_servers([("alias", 9092), ("plain", 9092), ("unknown", 1)]) == [
        ("one.example", 9092),
        ("two.example", 9092),
        ("10.0.0.3", 9092),
    ]
    with pytest.raises(OSError, match="unknown: Name or service not known"):
        canonical_servers([("unknown", 1)])


def test_a_client_asks_the_canonical_servers_and_looks_them_up_before_each_round(dns: dict[str, list[str]]) -> None:
    loop = Loop()
    client = KafkaClient(
        loop=loop, bootstrap_servers="alias:9092", client_dns_lookup="resolve_canonical_bootstrap_servers_only"
    )
    bootstrap = client.router.bootstrap
    tried: list[list[tuple[str, int]]] = []
    bootstrap._try_next = lambda: tried.append(sorted(bootstrap._left)) or bootstrap._end_failed_round()  # type: ignore
    assert loop.run_until(lambda: len(tried) == 1, 10)
    dns["alias"] = ["10.0.0.2"]
    assert loop.run_until(lambda: len(tried) == 2, 10)
    assert tried == [[("10.0.0.3", 9092), ("one.example", 9092), ("two.example", 9092)], [("two.example", 9092)]]
    client.close()
    loop.close()


# -- who we are, what we ask first -------------------------------------------------------------------------------------


def test_the_broker_gets_the_clients_software(world: World, broker: ScriptedBroker) -> None:
    world.settled(world.client(client_software_name="my-app", client_software_version="1.2.3"))
    asked = broker.requests(ApiVersionsRequest)[0]
    assert isinstance(asked, ApiVersionsRequest)
    assert (asked.client_software_name, asked.client_software_version) == ("my-app", "1.2.3")


def test_by_default_that_is_this_package(world: World, broker: ScriptedBroker) -> None:
    world.settled(world.client())
    asked = broker.requests(ApiVersionsRequest)[0]
    assert isinstance(asked, ApiVersionsRequest) and asked.client_software_name == "kafka-taskloop"


@pytest.mark.parametrize("name", ["", "-a", "a.", "a b", "ä", "a_b"])
def test_a_name_that_brokers_refuse_is_refused_here(name: str) -> None:
    with pytest.raises(KafkaConfigurationError, match="client_software_name"):
        resolve("consumer", {"client_software_name": name})


def test_topics_may_be_named_whose_metadata_is_read_from_the_start(world: World, broker: ScriptedBroker) -> None:
    broker.topics = {"a": {0: 1}, "b": {0: 1}}
    client = world.settled(world.client(bootstrap_topics_filter={"a"}))
    assert client.cluster.topics() == {"a"}
    asked = [request for request in broker.requests(MetadataRequest) if request.topics]  # type: ignore[attr-defined]
    assert [topic.name for topic in asked[-1].topics] == ["a"]  # type: ignore[attr-defined]


# -- waiting for the first contact -------------------------------------------------------------------------------------


@pytest.fixture
def deaf_server() -> Iterator[str]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("make", [KafkaProducer, KafkaConsumer, KafkaClient])
def test_making_a_client_may_wait_for_the_cluster_and_says_what_was_in_the_way(make: Any) -> None:
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(KafkaTimeoutError, match=r"bootstrap_timeout_ms=300: no bootstrap server.*refused"):
        make(bootstrap_servers=nobody, bootstrap_timeout_ms=300)
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive()


def test_that_ends_in_time_with_a_server_that_says_nothing(deaf_server: str) -> None:
    with pytest.raises(KafkaTimeoutError, match="bootstrap_timeout_ms=300"):
        KafkaClient(bootstrap_servers=deaf_server, bootstrap_timeout_ms=300)


def test_bootstrapped_is_done_when_metadata_was_read(world: World) -> None:
    client = world.client()
    future = client.bootstrapped()
    world.run(5)
    assert not future.is_done
    ScriptedBroker(world.network)
    world.wait(future)
    assert client.cluster.brokers()
    assert client.bootstrapped().is_done


def test_bootstrapped_may_be_asked_for_anew_and_with_a_limit_of_its_own(world: World, broker: ScriptedBroker) -> None:
    client = world.client()
    world.wait(client.bootstrapped())
    asked: list[Any] = []
    broker.answers[MetadataRequest] = lambda request, version: asked.append(request) or SILENT
    assert client.bootstrapped(5000).is_done and asked == []
    began = world.now
    failure = world.failure(client.bootstrapped(3000, anew=True))
    assert isinstance(failure, KafkaTimeoutError) and str(failure).endswith("timeout_ms=3000: no broker answered")
    assert world.now - began == pytest.approx(3, abs=0.01) and len(asked) == 1


def test_bootstrapped_fails_in_its_time(world: World, broker: ScriptedBroker) -> None:
    broker.answers[MetadataRequest] = lambda request, version: SILENT
    client = world.client(bootstrap_timeout_ms=2_000)
    began = world.now
    assert isinstance(world.failure(client.bootstrapped()), KafkaTimeoutError)
    assert world.now - began == pytest.approx(2, abs=0.01)


def test_on_a_loop_that_is_given_nobody_can_wait() -> None:
    loop = Loop()
    with pytest.raises(KafkaConfigurationError, match="bootstrap_timeout_ms.*given cannot wait"):
        KafkaProducer(loop=loop, bootstrap_timeout_ms=1000)
    loop.close()


# -- proxies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["proxy_url", "socks5_proxy"])
def test_everything_goes_through_the_proxy(world: World, name: str) -> None:

    proxy = TestProxy(world.network, "socks5h")
    ScriptedBroker(world.network, "kafka", 9092).brokers = {1: ("kafka", 9092)}
    client = world.settled(world.client("kafka:9092", **{name: "socks5h://proxy:1080"}))
    assert world.wait(client.request(1, NONE)).brokers
    assert set(proxy.targets) == {("kafka", 9092)} and len(proxy.targets) == 2, "bootstrap, and node 1"


def test_what_the_proxy_says_is_in_the_error(world: World) -> None:
    TestProxy(world.network, "http")
    client = world.client("nowhere:1", proxy_url="http://proxy:1080")
    error = world.failure(client.request(AnyNode(), NONE, 2))
    assert "proxy http://proxy:1080: it cannot connect to nowhere:1: 502 Bad Gateway" in str(error)


@pytest.mark.parametrize("url", ["ftp://me:hunter2@proxy", "socks5://me:hunter2@:1080"])
def test_a_proxy_that_cannot_be_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(KafkaConfigurationError, match="proxy_url: expected SCHEME") as caught:
        KafkaClient(proxy_url=url)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(resolve("client", {"proxy_url": url}))


def test_a_proxy_has_one_name() -> None:
    with pytest.raises(KafkaConfigurationError, match="two names of one setting"):
        KafkaClient(proxy_url="http://a", socks5_proxy="socks5://b")
