"""Reaching a server over several addresses."""

from __future__ import annotations

import socket

import pytest

from kafka.net.loop import Loop
from kafka.net.resolve import literal_address
from kafka.net.tcp import TcpNetwork
from kafka.net.transport import Address, ConnectFailed, ConnectionOptions
from test.net.recorder import Acceptor, Recorder


@pytest.fixture
def network():
    loop = Loop()
    network = TcpNetwork(loop)
    yield network
    network.close()
    loop.run_once(0)
    loop.close()


@pytest.fixture
def refusing():
    """An address that is bound and does not listen: every attempt is refused, and nobody else can take it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield Address(socket.AF_INET, sock.getsockname())


@pytest.fixture
def silent():
    """An address whose queue of connections is full, so that an attempt gets no answer."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        address = sock.getsockname()
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        yield Address(socket.AF_INET, address)
        for filler in fillers:
            filler.close()


def test_refused_address_falls_to_the_next(network, refusing):
    acceptor = Acceptor()
    listener = network.listen("127.0.0.1", 0, acceptor)
    handler = Recorder()
    transport = network.connect([refusing, listener.address], handler)
    assert network.loop.run_until(lambda: handler.is_connected and acceptor.recorders, 10)
    assert transport.peer == listener.address


def test_silent_address_falls_to_the_next_after_its_time(network, silent):
    listener = network.listen("127.0.0.1", 0, Acceptor())
    handler = Recorder()
    options = ConnectionOptions(connect_timeout_s=0.01)
    transport = network.connect([silent, listener.address], handler, options)
    assert network.loop.run_until(lambda: handler.is_connected, 10)
    assert transport.peer == listener.address


def test_no_address_left_closes_with_every_cause(network, refusing, silent):
    handler = Recorder()
    network.connect([refusing, silent], handler, ConnectionOptions(connect_timeout_s=0.01))
    assert handler.log == []
    assert network.loop.run_until(lambda: handler.is_closed, 10)
    assert handler.log == ["closed"]
    assert isinstance(handler.error, ConnectFailed)
    assert [type(error) for _, error in handler.error.errors] == [ConnectionRefusedError, TimeoutError]


def test_no_address_at_all_is_a_failed_connect(network):
    handler = Recorder()
    network.connect([], handler)
    assert network.loop.run_until(lambda: handler.is_closed, 10)
    assert isinstance(handler.error, ConnectFailed)


def test_address_that_fails_at_once_is_told_later_all_the_same(network):
    handler = Recorder()
    network.connect([Address(socket.AF_INET6, ("ff02::1", 1, 0, 0)), Address(socket.AF_INET, ("x" * 70, 1))], handler)
    assert handler.log == []
    assert network.loop.run_until(lambda: handler.is_closed, 10)
    assert isinstance(handler.error, ConnectFailed)


def test_abort_while_connecting_closes_once_and_leaves_nothing_behind(network, silent):
    handler = Recorder()
    error = RuntimeError("changed our mind")
    transport = network.connect([silent, silent], handler)
    transport.abort(error)
    transport.close()
    network.loop.run_once(0)
    assert handler.log == ["closed"]
    assert handler.error is error
    assert not network._transports


def test_connection_to_oneself_counts_as_refused(network):
    """Connecting from a port to the same port succeeds in TCP: the kernel may choose it when nobody listens there."""
    from kafka.net import tcp

    handler = Recorder()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    configure = tcp.configure

    def bind_there(sock, options):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        configure(sock, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tcp, "configure", bind_there)
        network.connect([literal_address("127.0.0.1", port)], handler)
    assert network.loop.run_until(lambda: handler.is_closed, 10)
    assert "connected to itself" in str(handler.error)
