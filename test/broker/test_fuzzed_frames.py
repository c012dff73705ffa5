"""Frames that make no sense, on every API: an error or a closed connection, never a dead broker, never a traceback.

By hand on every release that the broker plays, with values that get behind a handler's first check; and through real
sockets, to a broker that is a process of its own, so that its memory can be looked at. ``KAFKA_TEST_ROUNDS`` multiplies
the long one.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import os
import random
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka.broker import BrokerSecurity
from kafka.broker.emulation import RELEASES
from kafka.broker.groups import regex
from kafka.broker.registry import Handler, load
from kafka.net.tls import Pem, client_context
from kafka.protocol.framing import encode_request
from kafka.protocol.groups import ListGroupsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.registry import REGISTRY
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kafka.testing import EmbeddedBroker
from kafka.wire import codec
from kafka.wire.codec import MAX_ELEMENTS
from test.broker.crash_fuzz import Bench, Learner, RandomFrames
from test.broker.driver import HandBroker, batch, fetch_request, produce_request
from test.broker.raw_client import RawClient
from test.broker.test_server import make_topic
from test.strategies import messages
from test.support import seeds
from test.support.certificates import Certificates

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
    """Send these on a connection of their own, behind a sane request, and end our side of it: the broker has to end its
    side, whether it answers, refuses, or has something waiting. Then it has to be alive for others."""
    with RawClient(broker.port) as client, contextlib.suppress(ConnectionError):
        client.ask(NOTHING)
        client.socket.settimeout(20)
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


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_bears_requests_that_know_its_names(tmp_path: Path, release: str) -> None:
    bench = Bench(tmp_path / "data", 1, release=release)
    bench.run(600)
    bench.hand.broker.close()
    assert not bench.faults, bench.faults[0]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_any_requests_in_any_order_over_restarts(tmp_path: Path, rounds: int) -> None:
    for seed in seeds.seeds("requests over restarts", 2 * rounds):
        bench = Bench(tmp_path / str(seed), seed)
        bench.run(4000)
        bench.hand.broker.close()
        assert not bench.faults, bench.faults[0]


def test_strange_frames_of_those_who_are_let_in_by_tls_and_a_password(
    tmp_path: Path, certificates: Certificates
) -> None:
    security = BrokerSecurity("SASL_SSL", users={"alice": "x"}, certificate=certificates.server_both)
    context = client_context(Pem("ca", certificates.ca))
    rng = seeds.rng("strange frames")
    outcomes = collections.Counter[str]()
    with EmbeddedBroker(tmp_path, security=security) as broker:
        port = int(broker.secure_bootstrap.rpartition(":")[2])
        apis = [(row.key, row.min_version, row.max_version) for row in load().values()]
        frames = RandomFrames(rng, apis, Learner())
        for number in range(60):
            with RawClient(port) as client:
                client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
                is_let_in = number % 3 == 1
                if number % 3:
                    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
                    token = b"\0alice\0x" if is_let_in else rng.randbytes(40)
                    code = client.ask(SaslAuthenticateRequest(auth_bytes=token)).error_code
                    assert code == (0 if is_let_in else 58)
                # Of those who are let in some requests wait for records or members. All others are sent away.
                client.socket.settimeout(0.2 if is_let_in else 20.0)
                for at in range(10):
                    frame, _, _ = frames.frame(at)
                    outcome = outcome_of(client.socket, len(frame).to_bytes(4, "big") + frame)
                    outcomes[f"{'let in' if is_let_in else 'stranger'}: {outcome}"] += 1
                    if outcome == "ended":
                        break
        with RawClient(broker.port) as client:
            assert client.ask(NOTHING).controller_id == 1
        with open(broker.log_path, encoding="utf-8") as log:
            assert "Traceback" not in log.read()
    assert outcomes["let in: answered"] > outcomes["let in: waits"], outcomes
    assert outcomes["stranger: ended"] == 40, outcomes
    assert outcomes["stranger: waits"] == 0, outcomes


def outcome_of(connection: socket.socket, data: bytes) -> str:
    """What the broker does about a frame: it is answered, or it waits, or the connection is ended."""
    try:
        connection.sendall(data)
        return "answered" if connection.recv(1 << 16) else "ended"
    except TimeoutError:
        return "waits"
    except (ConnectionError, ssl.SSLError):
        return "ended"


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


def test_a_frame_cut_at_any_byte_and_then_the_end(broker: EmbeddedBroker) -> None:
    frame = b"".join(encode_request(produce_request("t", batch(b"cut")), 9, 1, "x"))
    for size in range(len(frame)):
        with socket.create_connection(("127.0.0.1", broker.port)) as connection:
            connection.sendall(frame[:size])
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(10)
            assert connection.recv(1) == b"", "no answer to half a request"
    with RawClient(broker.port) as client:
        assert client.ask(NOTHING).controller_id == 1


def test_a_slow_speaker_is_served_and_keeps_nobody_waiting(broker: EmbeddedBroker) -> None:
    frame = b"".join(encode_request(NOTHING, 12, 7, "slow"))
    with socket.create_connection(("127.0.0.1", broker.port)) as slow, RawClient(broker.port) as other:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame:
            slow.sendall(bytes((byte,)))
            assert other.ask(NOTHING).controller_id == 1
        slow.settimeout(10)
        assert slow.recv(8)[4:] == (7).to_bytes(4, "big")


@pytest.mark.parametrize("form", ["strings", "structures", "tags"])
def test_small_elements_cannot_make_much_of_a_large_frame(broker: EmbeddedBroker, form: str) -> None:
    """Some bytes make an object of a hundred: a frame as large as may be has room for fifty million."""
    head = {
        "strings": HEADER.pack(15, 5, 7, -1) + b"\0",  # DescribeGroups: names
        "structures": HEADER.pack(3, 12, 7, -1) + b"\0",  # Metadata: topics
        "tags": HEADER.pack(18, 3, 7, -1) + b"\0\x01\x01",  # ApiVersions: no names, then unknown tags
    }[form]
    count = 40_000_000
    length = b"".join((count >> shift & 0x7F | 0x80).to_bytes(1, "big") for shift in (0, 7, 14, 21)) + b"\0"
    # a varint of five bytes; one byte a name, two a topic, and tags that count up in four bytes
    body = {
        "strings": b"\x01" * count,
        "structures": b"\x01\0" * count,
        "tags": b"".join(struct.pack("<BBBBB", n & 0x7F | 0x80, n >> 7 & 0x7F | 0x80, n >> 14 & 0x7F | 0x80, n >> 21, 0)
                         for n in range(128, 2_000_000)),
    }[form]  # fmt: skip
    frame = head + length + body
    before = resident_bytes(broker.pid)
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")  # forget the most that former frames have taken
    started = cpu_s(broker.pid)
    throw(broker, frame)
    took_s = cpu_s(broker.pid) - started
    assert resident_bytes(broker.pid) - before < 128 * MEBIBYTE, "what stays"
    assert most_resident_bytes(broker.pid) - before < 2 * len(frame) + 200 * MEBIBYTE, "at no moment much more"
    assert took_s < 20, f"{took_s:.1f} s"


def most_resident_bytes(pid: int) -> int:
    """The most that the process ever had."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) << 10


def cpu_s(pid: int) -> float:
    """What the process has worked, however busy the machine is."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_as_many_elements_as_may_be_are_served(broker: EmbeddedBroker) -> None:
    with RawClient(broker.port) as client:
        started = cpu_s(broker.pid)
        answer = client.ask(ListGroupsRequest(states_filter=[""] * MAX_ELEMENTS), 4)
        assert answer.error_code == 0
        assert cpu_s(broker.pid) - started < 20
        with pytest.raises(EOFError):
            client.ask(ListGroupsRequest(states_filter=[""] * (MAX_ELEMENTS + 1)), 4)


def test_a_name_longer_than_a_string_may_be_ends_the_connection(broker: EmbeddedBroker) -> None:
    frame = HEADER.pack(15, 5, 7, -1) + b"\0\x02"
    for length, is_served in ((32_767, True), (32_768, False)):
        size = length + 1
        varint = bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14))
        data = frame + varint + b"n" * length + b"\0\0"
        with RawClient(broker.port) as client:
            client.socket.sendall(len(data).to_bytes(4, "big") + data)
            assert bool(client.socket.recv(4)) == is_served


ASKING = (
    2, 3, 9, 10, 12, 13, 14, 15, 16, 18, 23, 24, 25, 26, 28, 29, 32, 35, 36, 48, 50, 55, 60, 61, 65, 66, 69, 75, 77, 79,
    90,
)  # fmt: skip
"""APIs that make nothing for who asks about what there is not."""


def ask_about_nothing(hand: HandBroker, rng: random.Random, row: Handler) -> None:
    """Twenty requests of one API, each with names of its own. Nothing of them is kept here."""
    learner = Learner()
    frames = RandomFrames(rng, [(row.key, row.max_version, row.max_version)], learner)
    for _ in range(20):
        learner.learn_one("group_id", f"g{rng.random()}")
        learner.learn_one("member_id", f"m{rng.random()}")
        learner.learn_one("transactional_id", f"t{rng.random()}")
        learner.learn_one("topic_id", UUID(int=rng.getrandbits(128)))
        hand.send(*frames.request())
        hand.tick()


def test_who_asks_about_what_there_is_not_leaves_nothing_behind(tmp_path: Path) -> None:
    internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    few = {f"{name}.num.partitions": "1" for name in internal}  # so that all of them are open soon
    hand = HandBroker(tmp_path / "data", {"auto.create.topics.enable": "false", **few})
    hand.create_topic("t")
    rng = seeds.rng("what there is not")
    handlers = load()
    gc.freeze()  # what all other tests have left is not looked at again and again
    for key in ASKING:
        row = handlers[key]
        counts = []
        for _ in range(4):
            ask_about_nothing(hand, rng, row)
            hand.broker.disconnected(hand.connection, hand.now)
            for _ in range(3):
                hand.now += 300.0
                hand.tick()
            for bounded in (codec._uuid, regex._program):  # and kept over all APIs
                bounded.cache_clear()
            gc.collect()
            counts.append(len(gc.get_objects()))
        growth = min(after - before for before, after in zip(counts, counts[1:], strict=False))
        assert growth < 20, f"API {key}: {counts}"  # a codec may have been compiled once
    hand.broker.close()
