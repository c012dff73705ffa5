"""Servers as users write them, and look-ups that do not block the loop."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.net import resolve
from kafka.net.loop import Loop
from kafka.net.resolve import Resolver, literal_address, parse_server, parse_servers
from kafka.net.transport import Address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broker", ("broker", 9092)),
        ("broker:29092", ("broker", 29092)),
        (" broker:1 ", ("broker", 1)),
        ("127.0.0.1:9093", ("127.0.0.1", 9093)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
        ("::1", ("::1", 9092)),
        ("fe80::1%eth0", ("fe80::1%eth0", 9092)),
        ("a-b.c_d.example.com:65535", ("a-b.c_d.example.com", 65535)),
    ],
)
def test_server_is_read_as_host_and_port(text, expected):
    assert parse_server(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", " ", ":9092", "broker:", "broker:0", "broker:65536", "broker:x", "broker:-1", "broker:+1", "a b:1", "[::1",
     "[::1]9092", "[broker]:1", "[]:1", "http://broker:1", "user@broker:1", "broker:1:2", "broker:²", "[::1]:",
     "broker:00009092"],
)  # fmt: skip
def test_bad_server_is_one_clear_value_error(text):
    with pytest.raises(ValueError, match="is not a server address: expected HOST"):
        parse_server(text)


@given(st.text(max_size=30))
def test_any_text_is_a_server_or_a_value_error(text):
    try:
        host, port = parse_server(text)
    except ValueError:
        return
    assert host
    assert 1 <= port <= 65535


def test_servers_come_as_text_or_list_and_each_once():
    assert parse_servers("a, b:1,[::1]:2,a:9092") == [("a", 9092), ("b", 1), ("::1", 2)]
    assert parse_servers(["a:1,b", "c"], default_port=7) == [("a", 1), ("b", 7), ("c", 7)]
    for nothing in ("", " , ", []):
        with pytest.raises(ValueError, match="no server in"):
            parse_servers(nothing)


def test_literal_addresses_are_known_without_asking():
    assert literal_address("127.0.0.1", 5) == Address(socket.AF_INET, ("127.0.0.1", 5))
    assert literal_address("broker.example", 5) is None
    assert literal_address("x" * 80, 5) is None


@pytest.fixture
def loop():
    loop = Loop()
    yield loop
    loop.close()


def test_literal_address_is_answered_at_once(loop):
    future = Resolver(loop).resolve("127.0.0.1", 9092)
    assert future.value == [Address(socket.AF_INET, ("127.0.0.1", 9092))]


def test_name_is_answered_on_the_loops_thread_and_the_look_up_is_shared(loop, monkeypatch):
    calls: list[str] = []
    go = threading.Event()
    answer = [Address(socket.AF_INET, ("10.0.0.1", 1)), Address(socket.AF_INET, ("10.0.0.2", 1))]

    def fake(host, port, family):
        calls.append(threading.current_thread().name)
        go.wait(30)
        return answer

    monkeypatch.setattr(resolve, "lookup", fake)
    resolver = Resolver(loop)
    threads: list[bool] = []
    futures = [resolver.resolve("broker", 1) for _ in "ab"]
    for future in futures:
        future.add_callback(lambda _: threads.append(loop.in_loop_thread()))
    loop.run_once(0)
    assert not futures[0].is_done
    go.set()
    assert loop.run_until(lambda: all(future.is_done for future in futures), 10)
    assert [future.value for future in futures] == [answer, answer]
    assert threads == [True, True]
    assert calls == ["kafka-resolve-broker"]


def test_many_slow_names_take_at_most_four_threads_and_all_are_answered(loop, monkeypatch):
    running: list[str] = []
    peak: list[int] = []
    four = threading.Barrier(4)

    def fake(host, port, family):
        running.append(host)
        peak.append(len(running))
        four.wait(30)
        running.remove(host)
        return [Address(socket.AF_INET, (host, port))]

    monkeypatch.setattr(resolve, "lookup", fake)
    resolver = Resolver(loop)
    futures = [resolver.resolve(f"broker-{number}", 1) for number in range(8)]
    assert loop.run_until(lambda: all(future.is_done for future in futures), 10)
    assert max(peak) <= 4


def test_unknown_name_fails_with_an_os_error_that_names_it(loop, monkeypatch):
    def fake(*args, **kwargs):
        if kwargs.get("flags") or len(args) > 4:
            raise socket.gaierror(socket.EAI_NONAME, "not literal")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fake)
    future = Resolver(loop).resolve("nowhere.invalid", 1)
    assert loop.run_until(future, 10)
    assert isinstance(future.exception, OSError)
    assert "nowhere.invalid: Name or service not known" in str(future.exception)


def test_name_that_cannot_be_one_fails_with_an_os_error(loop):
    future = Resolver(loop).resolve("x" * 80, 1)
    assert loop.run_until(future, 10)
    assert isinstance(future.exception, OSError)


@pytest.mark.parametrize(
    ("host", "port"),
    [("127.0.0.1", 70_000), ("127.0.0.1", 0), ("127.0.0.1", -1), ("broker", 2**31 - 1), ("", 1), ("a" * 32_767, 1),
     ("a\0b", 1), ("a\r\nb", 1)],
)  # fmt: skip
def test_a_host_or_port_that_cannot_be_fails_at_once_and_nothing_else_is_looked_up(loop, monkeypatch, host, port):
    """The C library takes 70000 for 4464, and what stands before a zero byte for the name."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args: pytest.fail("it was asked"))
    future = Resolver(loop).resolve(host, port)
    assert isinstance(future.exception, OSError)
    assert len(str(future.exception)) < 400


def test_closing_fails_what_waits_and_a_late_answer_is_dropped(loop, monkeypatch):
    go = threading.Event()

    def fake(host, port, family):
        go.wait(30)
        return []

    monkeypatch.setattr(resolve, "lookup", fake)
    resolver = Resolver(loop)
    future = resolver.resolve("broker", 1)
    resolver.close()
    assert isinstance(future.exception, RuntimeError)
    go.set()
    assert loop.run_until(lambda: not resolver._thread_count, 10)
