"""Tests of ``kafka.tasks.health.server``: strangers of all kinds, over a network in memory and over real sockets."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from http import HTTPStatus

import pytest

from kafka.errors import IllegalArgumentError
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.tasks.health.http import HEAD_BYTES, HttpRequest, HttpResponse
from kafka.tasks.health.server import LIFE_S, LINGER_BYTES, LINGER_S, MAX_CONNECTIONS, HealthServer, parse_address
from test.net.recorder import Recorder

PROBE = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
SOON_S = 30.0


def answer(request: HttpRequest) -> HttpResponse:
    if request.path == "/broken":
        raise ZeroDivisionError("ours")
    if request.path == "/large":
        return HttpResponse(HTTPStatus.OK, b"x" * 8_000_000)
    return HttpResponse(HTTPStatus.OK, f"{request.method} {request.path}\n".encode())


# -- where it listens --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("9100", ("127.0.0.1", 9100)),
        ("0", ("127.0.0.1", 0)),
        (" 9100 ", ("127.0.0.1", 9100)),
        ("0.0.0.0:9100", ("0.0.0.0", 9100)),
        ("worker-1.example:9100", ("worker-1.example", 9100)),
        ("[::1]:9100", ("::1", 9100)),
    ],
)
def test_a_place_is_a_port_of_this_machine_or_a_host_with_a_port(text: str, place: tuple[str, int]) -> None:
    assert parse_address(text) == place


@pytest.mark.parametrize("text", ["", "x", "65536", "-1", ":9100", "host:", "::1:9100", "a b:9100", "9100:host", "1e3"])
def test_what_is_no_place_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=r"--health-port is PORT .* 0\.0\.0\.0:9100"):
        parse_address(text)


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken, closing(Loop()) as loop:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"--health-port: 127.0.0.1:{port} is in use by another process; choose"):
            HealthServer(loop, ("127.0.0.1", port), answer)


def test_a_name_that_nobody_knows_is_an_error() -> None:
    with closing(Loop()) as loop, pytest.raises(OSError, match="--health-port: "):
        HealthServer(loop, ("no-such-host.invalid", 9100), answer)


# -- strangers on a network in memory ----------------------------------------------------------------------------------


class World:
    """A server at ``worker:9100`` and its strangers, on simulated time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = Loop.simulated(self.clock)
        self.network = MemoryNetwork(self.loop, "worker")
        self.server = HealthServer(self.loop, ("worker", 9100), answer, self.network)

    def stranger(self, *said: bytes) -> Recorder:
        recorder = Recorder()
        network = self.network.host("stranger")
        recorder.transport = network.connect(network.resolve("worker", 9100).value, recorder)
        for each in said:
            recorder.transport.write(each)
        self.settle()
        return recorder

    def settle(self) -> None:
        while self.loop.run_once(0, advance=False):
            pass

    def pass_time(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.loop.run_once(end - self.clock.monotonic())
        self.settle()


@pytest.fixture
def world() -> World:
    return World()


def status(recorder: Recorder) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", recorder.data)
    assert found, recorder.data
    return int(found[1])


def test_a_probe_is_answered_and_the_connection_ends(world: World) -> None:
    probe = world.stranger(PROBE)
    assert status(probe) == 200
    assert probe.data.endswith(b"\r\n\r\nGET /readyz\n")
    assert probe.is_closed
    assert world.server.connection_count == 0


def test_head_has_the_length_and_no_body(world: World) -> None:
    probe = world.stranger(PROBE.replace(b"GET", b"HEAD"))
    assert status(probe) == 200
    assert b"Content-Length: 13\r\n" in probe.data
    assert probe.data.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"OPTIONS", b"CONNECT", b"BREW"])
def test_other_methods_are_405_with_those_that_are_served(world: World, method: bytes) -> None:
    probe = world.stranger(PROBE.replace(b"GET", method))
    assert status(probe) == 405
    assert b"\r\nAllow: GET, HEAD\r\n" in probe.data


def test_an_error_of_ours_is_a_500_and_a_line_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "kafka.tasks.health"):
        assert status(world.stranger(b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n")) == 500
    assert "could not answer GET /broken" in caplog.text
    assert status(world.stranger(PROBE)) == 200


def test_a_request_that_trickles_in_gets_a_time_out(world: World) -> None:
    slow = world.stranger(b"GET /rea")
    for _ in range(9):
        world.pass_time(1.0)
        slow.transport.write(b"d")  # type: ignore[union-attr]
        world.settle()
        assert not slow.data
    world.pass_time(LIFE_S - 9.0)
    assert status(slow) == 408
    world.pass_time(LINGER_S)
    assert slow.is_closed
    assert world.server.connection_count == 0


def test_who_says_nothing_is_let_go(world: World) -> None:
    silent = world.stranger()
    world.pass_time(LIFE_S - 0.1)
    assert not silent.is_closed
    world.pass_time(0.2)
    assert silent.is_closed
    assert not silent.data
    assert world.server.connection_count == 0


def test_who_does_not_read_the_answer_is_let_go(world: World) -> None:
    deaf = world.stranger()
    deaf.transport.pause_reading()  # type: ignore[union-attr]
    deaf.transport.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")  # type: ignore[union-attr]
    world.pass_time(LIFE_S + 0.1)
    assert world.server.connection_count == 0


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 2 * HEAD_BYTES, 431),
        (b"GET /" + b"a" * 2 * HEAD_BYTES, 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 400),
    ],
)
def test_what_is_refused_is_answered_and_what_follows_thrown_away(world: World, said: bytes, code: int) -> None:
    stranger = world.stranger(said)
    assert status(stranger) == code
    length = len(stranger.data)
    stranger.transport.write(PROBE)  # type: ignore[union-attr]
    world.settle()
    assert not stranger.is_closed, "a reset would take the answer along"
    world.pass_time(LINGER_S)
    assert stranger.is_closed
    assert len(stranger.data) == length


def test_who_goes_on_talking_after_the_answer_is_cut_off(world: World) -> None:
    stranger = world.stranger(b"\x00")
    stranger.transport.write(b"\x00" * (LINGER_BYTES + 1))  # type: ignore[union-attr]
    world.settle()
    assert stranger.is_closed
    assert world.server.connection_count == 0


def test_idle_connections_keep_no_probe_out(world: World) -> None:
    idle = [world.stranger(b"GET ") for _ in range(200)]
    assert world.server.connection_count == MAX_CONNECTIONS
    assert sum(each.is_closed for each in idle) == 200 - MAX_CONNECTIONS
    assert not any(each.is_closed for each in idle[-MAX_CONNECTIONS:]), "the oldest ones go"
    for _ in range(5):
        assert status(world.stranger(PROBE)) == 200
    world.pass_time(LIFE_S + LINGER_S)
    assert world.server.connection_count == 0


def test_a_connection_that_is_reset_is_forgotten(world: World) -> None:
    stranger = world.stranger(b"GET ")
    stranger.transport.abort()  # type: ignore[union-attr]
    world.settle()
    assert world.server.connection_count == 0


def test_closing_ends_all(world: World) -> None:
    idle = world.stranger(b"GET ")
    world.server.close()
    world.settle()
    assert idle.is_closed
    assert not world.stranger(PROBE).is_connected


# -- strangers over sockets --------------------------------------------------------------------------------------------


class Served:
    """A real loop with a server on it, driven by the strangers' waiting."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.server = HealthServer(self.loop, ("127.0.0.1", 0), answer)

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.server.address.port))
        sock.setblocking(False)
        return sock

    def wait(self, is_so: Callable[[], object]) -> None:
        assert self.loop.run_until(is_so, SOON_S), "it did not come about"

    def read_all(self, sock: socket.socket) -> bytes:
        """What comes until the end of the stream."""
        pieces: list[bytes] = []

        def is_at_end() -> bool:
            self.loop.wakeup()  # our end is not under the loop's watch
            try:
                pieces.append(sock.recv(1_000_000))
            except BlockingIOError:
                return False
            return not pieces[-1]

        self.wait(is_at_end)
        return b"".join(pieces)

    def close(self) -> None:
        self.server.close()
        self.loop.close()


@pytest.fixture
def served() -> Iterator[Served]:
    with closing(Served()) as served:
        yield served


def test_a_half_closed_client_has_its_answer(served: Served) -> None:
    with served.connect() as sock:
        sock.sendall(PROBE)
        sock.shutdown(socket.SHUT_WR)
        assert served.read_all(sock).endswith(b"GET /readyz\n")


def test_a_client_that_half_closes_too_early_is_let_go(served: Served) -> None:
    with served.connect() as sock:
        sock.sendall(b"GET /readyz HT")
        sock.shutdown(socket.SHUT_WR)
        assert served.read_all(sock) == b""
    assert served.server.connection_count == 0


def test_an_answer_larger_than_the_sockets_buffers_arrives_whole(served: Served) -> None:
    with served.connect() as sock:
        sock.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        assert len(served.read_all(sock).partition(b"\r\n\r\n")[2]) == 8_000_000


def test_who_sends_too_much_reads_why(served: Served) -> None:
    """Closing with unread bytes would be a reset, and the answer lost with it."""
    with served.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 60_000)
        assert served.read_all(sock).startswith(b"HTTP/1.1 431 ")


def test_200_connections_at_once_cost_64_descriptors_and_no_probe(served: Served) -> None:
    crowd = [served.connect() for _ in range(200)]
    try:
        served.wait(lambda: served.server.connection_count == MAX_CONNECTIONS)
        with served.connect() as probe:
            probe.sendall(PROBE)
            assert served.read_all(probe).startswith(b"HTTP/1.1 200 ")
        assert served.server.connection_count <= MAX_CONNECTIONS
    finally:
        for sock in crowd:
            sock.close()
    served.wait(lambda: served.server.connection_count == 0)
