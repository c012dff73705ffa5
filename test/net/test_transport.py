"""Addresses and the errors of connections."""

from __future__ import annotations

import socket

from kafka.net.transport import Address, ConnectFailed, TransportHandler


def test_address_reads_as_users_write_it():
    assert str(Address(socket.AF_INET, ("10.0.0.1", 9092))) == "10.0.0.1:9092"
    assert str(Address(socket.AF_INET6, ("::1", 9092, 0, 0))) == "[::1]:9092"


def test_failed_connect_names_every_address_and_its_cause():
    first, second = Address(socket.AF_INET, ("10.0.0.1", 1)), Address(socket.AF_INET, ("10.0.0.2", 2))
    error = ConnectFailed([(first, ConnectionRefusedError(111, "refused")), (second, TimeoutError(110, "too slow"))])
    assert str(error) == "10.0.0.1:1: refused; 10.0.0.2:2: too slow"
    assert error.errors[1][0] == second
    assert str(ConnectFailed([])) == "there is no address to connect to"


def test_handler_may_leave_out_what_it_does_not_need():
    class Quiet(TransportHandler):
        pass

    handler = Quiet()
    handler.connected()
    handler.data_received(b"x")
    handler.writable()
    handler.closed(None)
