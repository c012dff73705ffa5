"""Frames that make no sense, on every API, through real sockets: an error or a closed connection, never a dead broker.

The broker is a process of its own, so that its memory can be looked at.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka.broker.registry import load
from kafka.protocol.framing import encode_request
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.registry import REGISTRY
from kafka.testing import EmbeddedBroker
from test.broker.driver import batch, fetch_request, produce_request
from test.broker.raw_client import RawClient
from test.broker.test_server import make_topic
from test.strategies import messages

NOTHING = MetadataRequest(topics=[])
HEADER = struct.Struct(">hhih")
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"auto.create.topics.enable": "false"}, fsync="never") as running:
        with RawClient(running.port) as client:
            make_topic(client, "t")
            make_topic(client, "empty")
        yield running
        with open(running.log_path, encoding="utf-8") as log:
            assert "Traceback" not in log.read(), "a handler failed in a way that it does not know"


def throw(broker: EmbeddedBroker, *frames: bytes) -> None:
    """Send these on a connection of their own, with a sane request before and behind; all has to be answered in order,
    or the connection closed. Then the broker has to be alive for others."""
    with RawClient(broker.port) as client, contextlib.suppress(EOFError, ConnectionError, TimeoutError):
        client.ask(NOTHING)
        client.socket.settimeout(0.05)  # what waits in the broker may do so
        for frame in frames:
            client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
        client.socket.shutdown(socket.SHUT_WR)
        while client.socket.recv(1 << 16):
            pass
    with RawClient(broker.port) as other:
        assert other.ask(NOTHING).controller_id == 1


KEYS = sorted(load())
FEW = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FEW
@given(key=st.sampled_from(KEYS), version=st.integers(0, 20), body=st.binary(max_size=300))
def test_any_bytes_behind_a_header(broker: EmbeddedBroker, key: int, version: int, body: bytes) -> None:
    throw(broker, HEADER.pack(key, version, 7, -1) + body)


@FEW
@given(data=st.data())
def test_any_message_that_the_codec_can_make(broker: EmbeddedBroker, data: st.DataObject) -> None:
    """Every field at random: negative counts, unknown names, epochs and offsets from anywhere."""
    handler = load()[data.draw(st.sampled_from(KEYS))]
    version = data.draw(st.integers(handler.min_version, handler.max_version))
    request = data.draw(messages(REGISTRY[handler.key].request, version))
    throw(broker, b"".join(encode_request(request, version, 7, "fuzz"))[4:])


@FEW
@given(data=st.data())
def test_any_change_of_a_good_frame(broker: EmbeddedBroker, data: st.DataObject) -> None:
    handler = load()[data.draw(st.sampled_from(KEYS))]
    version = data.draw(st.integers(handler.min_version, handler.max_version))
    request = data.draw(messages(REGISTRY[handler.key].request, version))
    frame = bytearray(b"".join(encode_request(request, version, 7, "fuzz"))[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(frame) - 1))
        change = data.draw(st.sampled_from(["flip", "cut", "big", "negative"]))
        if change == "flip":
            frame[at] ^= data.draw(st.integers(1, 255))
        elif change == "cut":
            del frame[max(8, at) :]
        else:
            frame[at : at + 4] = b"\x7f\xff\xff\xff" if change == "big" else b"\xff\xff\xff\xfe"
    throw(broker, bytes(frame))


@FEW
@given(position=st.integers(0, 200), value=st.integers(1, 255))
def test_any_change_of_a_produced_batch(broker: EmbeddedBroker, position: int, value: int) -> None:
    data = bytearray(batch(b"a" * 20, b"b" * 20, b"c" * 40))
    data[position % len(data)] ^= value
    throw(
        broker,
        b"".join(encode_request(produce_request("t", bytes(data)), 9, 1, None))[4:],
        b"".join(encode_request(fetch_request("t"), 12, 2, None))[4:],
    )


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_length_promised_costs_nothing_until_its_bytes_come(broker: EmbeddedBroker) -> None:
    before = resident_bytes(broker.pid)
    connections = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(200)]
    try:
        for connection in connections:
            connection.sendall((100_000_000).to_bytes(4, "big") + b"half")
        with RawClient(broker.port) as client:
            assert client.ask(NOTHING).controller_id == 1
        assert resident_bytes(broker.pid) - before < 16 * MEBIBYTE
    finally:
        for connection in connections:
            connection.close()


def test_a_frame_that_comes_in_crumbs_takes_no_more_than_its_size(broker: EmbeddedBroker) -> None:
    before = resident_bytes(broker.pid)
    with socket.create_connection(("127.0.0.1", broker.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall((50_000_000).to_bytes(4, "big"))
        for _ in range(40_000):
            connection.sendall(b"xy")
        with RawClient(broker.port) as client:
            assert client.ask(NOTHING).controller_id == 1
        assert resident_bytes(broker.pid) - before < 2 * MEBIBYTE


@pytest.mark.parametrize("frame", [b"\0\0\0\0", None], ids=["empty", "small"])
def test_what_is_sent_ahead_of_a_parked_fetch_is_bounded(broker: EmbeddedBroker, frame: bytes | None) -> None:
    """The socket fills up; the broker does not."""
    before = resident_bytes(broker.pid)
    ahead = (frame or b"".join(encode_request(NOTHING, 12, 2, None))) * 10_000
    with RawClient(broker.port) as client:
        client.send(fetch_request("empty", max_wait_ms=20_000), 12)
        client.socket.settimeout(0.3)
        sent = 0
        with contextlib.suppress(TimeoutError, ConnectionError):
            while sent < 64 * MEBIBYTE:
                client.socket.sendall(ahead)
                sent += len(ahead)
        assert resident_bytes(broker.pid) - before < 24 * MEBIBYTE
    with RawClient(broker.port) as client:
        assert client.ask(NOTHING).controller_id == 1
