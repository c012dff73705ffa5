"""Tests of ``kafka.tasks.health.http``."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.health.http import HEAD_BYTES, HttpRefusal, HttpRequest, HttpRequestReader, HttpResponse, encode

PLAIN = b"GET /healthz HTTP/1.1\r\nHost: x\r\nAccept:  text/plain \r\n\r\n"


def read(data: bytes) -> HttpRequest | HttpRefusal | None:
    return HttpRequestReader().feed(data)


def status_of(data: bytes) -> int:
    found = read(data)
    assert isinstance(found, HttpRefusal), found
    return found.status.value


def test_a_request_is_read() -> None:
    assert read(PLAIN) == HttpRequest("GET", "/healthz", {"host": "x", "accept": "text/plain"})


@given(st.lists(st.integers(0, len(PLAIN)), max_size=6))
def test_where_it_is_cut_changes_nothing(cuts: list[int]) -> None:
    reader = HttpRequestReader()
    places = [0, *sorted(cuts), len(PLAIN)]
    pieces = [PLAIN[a:b] for a, b in zip(places, places[1:], strict=False) if a < b]
    found = [reader.feed(piece) for piece in pieces]
    assert found[-1] == read(PLAIN)
    assert found[:-1] == [None] * (len(pieces) - 1)


def test_byte_by_byte() -> None:
    reader = HttpRequestReader()
    assert reader.is_empty
    found = [reader.feed(PLAIN[at : at + 1]) for at in range(len(PLAIN))]
    assert found[-1] == read(PLAIN)
    assert not any(found[:-1])
    assert not reader.is_empty
    assert not reader.has_rest


def test_what_follows_is_noticed_and_not_read() -> None:
    reader = HttpRequestReader()
    assert reader.feed(PLAIN + PLAIN) == read(PLAIN)
    assert reader.has_rest


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/metrics?name[]=up", "/metrics"),
        (b"/readyz#top", "/readyz"),
        (b"http://worker:9100/readyz?x", "/readyz"),
        (b"HTTP://worker", "/"),
        (b"*", "*"),
        (b"//readyz", "//readyz"),
        (b"/a/../readyz", "/a/../readyz"),
        (b"/%72eadyz", "/%72eadyz"),
    ],
)
def test_the_path_of_a_target(target: bytes, path: str) -> None:
    found = read(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert isinstance(found, HttpRequest)
    assert found.path == path


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n" + PLAIN,
        PLAIN.replace(b"\r\n", b"\n"),
        b"GET /healthz HTTP/1.0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost:\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: \xc3\xa4\r\n\r\n",
    ],
)
def test_what_the_rfc_lets_pass(data: bytes) -> None:
    found = read(data)
    assert isinstance(found, HttpRequest)
    assert found.path == "/healthz"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # TLS
        (b"\x00", 400),
        (b"{}", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET  /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /heal thz HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1x\r\nHost: x\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET / HTTP/3.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rX: c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET /" + b"a" * HEAD_BYTES, 414),
        (b"A" * (HEAD_BYTES + 1), 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * HEAD_BYTES, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * HEAD_BYTES + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 2000 + b"\r\n", 431),
    ],
)
def test_what_cannot_be_served_has_a_status_that_says_so(data: bytes, status: int) -> None:
    assert status_of(data) == status


@given(st.binary(max_size=300), st.integers(1, 50))
def test_garbage_is_a_request_or_refused_or_waited_for_and_nothing_else(data: bytes, step: int) -> None:
    reader = HttpRequestReader()
    for at in range(0, len(data), step):
        if reader.feed(data[at : at + step]) is not None:
            return


def test_memory_is_bounded_however_slowly_a_request_grows() -> None:
    reader = HttpRequestReader()
    sent = 0
    while reader.feed(b"A" * 100) is None:
        sent += 100
        assert sent <= HEAD_BYTES


def test_an_answer_says_how_long_it_is_and_that_the_connection_ends() -> None:
    answer = HttpResponse(HTTPStatus.OK, b"ready\n", more=(("Allow", "GET"),))
    head, _, body = encode(answer, 1_700_000_000.5).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 200 OK"
    assert {"Content-Length: 6", "Connection: close", "Content-Type: text/plain; charset=utf-8", "Allow: GET"} < set(
        lines
    )
    assert body == b"ready\n"
    assert encode(answer, 1_700_000_000.5, head_only=True) == head + b"\r\n\r\n"


@given(st.integers(0, 4_000_000_000))
def test_dates_are_those_of_mail(at: int) -> None:
    assert f"Date: {formatdate(at, usegmt=True)}\r\n".encode() in encode(HttpResponse(HTTPStatus.OK, b""), at)
