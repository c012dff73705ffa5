"""As much of HTTP/1.1 as probes and scrapers need: one request a connection, no body, in bounded memory. Pure.

    bytes --HttpRequestReader.feed--> HttpRequest | HttpRefusal          HttpResponse --encode--> bytes

The connection ends after each answer (``Connection: close``), which probes and Prometheus are content with, and so
there is nothing to keep between requests. Strict where lenience has hurt others (space before a colon, folded lines,
control characters, two Hosts: RFC 9112, 5 and 3.2), lenient where the RFC asks for it (empty lines in front, lone line
feeds, absolute targets).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NamedTuple

HEAD_BYTES: Final = 8192
"""Longest request."""

METHODS: Final = ("GET", "HEAD")

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST = re.compile(rb"(" + _TOKEN + rb") ([!-~]+) HTTP/(\d)\.(\d)")
_HEADER = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
_END = re.compile(rb"\r?\n\r?\n")
_ABSOLUTE = re.compile(r"https?://[^/?#]*", re.IGNORECASE)

TEXT: Final = "text/plain; charset=utf-8"


class HttpRequest(NamedTuple):
    """What is asked for: ``path`` without its query, headers by lower-case name, the first of each."""

    method: str
    path: str
    headers: Mapping[str, str]


class HttpRefusal(NamedTuple):
    """Why a request cannot be served, with the status of the response."""

    status: HTTPStatus
    why: str


@dataclass(frozen=True)
class HttpResponse:
    """A response; ``more``: further headers."""

    status: HTTPStatus
    body: bytes
    content_type: str = TEXT
    more: tuple[tuple[str, str], ...] = ()


class HttpRequestReader:
    """Collects one request. ``is_empty``: nothing has come yet; ``has_rest``: more has come than the request."""

    def __init__(self) -> None:
        self.has_rest = False
        self._buffer = bytearray()

    @property
    def is_empty(self) -> bool:
        """No byte of a request has come."""
        return not self._buffer

    def feed(self, data: bytes) -> HttpRequest | HttpRefusal | None:
        """Take in bytes, cut anywhere; None while the request is not whole. Not to be called after another answer."""
        buffer = self._buffer
        searched = max(0, len(buffer) - 3)
        buffer += data
        if searched == 0:
            while buffer.startswith((b"\r", b"\n")):
                del buffer[:1]
            if buffer and not buffer[:1].isalpha():
                # TLS, say: it would wait for our answer
                return HttpRefusal(HTTPStatus.BAD_REQUEST, "not an HTTP request")
        end = _END.search(buffer, searched)
        if end is None or end.end() > HEAD_BYTES:
            if len(buffer) <= HEAD_BYTES:
                return None
            long_target = b"\n" not in buffer[:HEAD_BYTES]
            self.has_rest = True
            return HttpRefusal(
                HTTPStatus.REQUEST_URI_TOO_LONG if long_target else HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"the request is larger than {HEAD_BYTES} bytes",
            )
        self.has_rest = end.end() < len(buffer)
        return _parse(bytes(buffer[: end.start()]))


def _parse(head: bytes) -> HttpRequest | HttpRefusal:
    """Request line and headers to a request, or to the status that refuses it: 505 for another major version, 400 for
    what is malformed, has a body, or says Host twice or, in HTTP/1.1, not at all (RFC 9112, 3.2). The path is without
    query, and without scheme and authority where the target is absolute."""
    first, *lines = (line.removesuffix(b"\r") for line in head.split(b"\n"))
    match = _REQUEST.fullmatch(first)
    if match is None:
        return HttpRefusal(HTTPStatus.BAD_REQUEST, "malformed request line: not METHOD TARGET HTTP/1.1")
    method, target, major, minor = match.groups()
    if major != b"1":
        return HttpRefusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 is supported")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            return HttpRefusal(HTTPStatus.BAD_REQUEST, "malformed header: not NAME: VALUE")
        name = header[1].decode().lower()
        if name == "host" and name in headers:
            return HttpRefusal(HTTPStatus.BAD_REQUEST, "duplicate Host header")
        headers.setdefault(name, header[2].decode("latin-1"))
    if minor != b"0" and "host" not in headers:
        return HttpRefusal(HTTPStatus.BAD_REQUEST, "missing Host header")
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        return HttpRefusal(HTTPStatus.BAD_REQUEST, "request bodies are not supported")
    text = target.decode()
    path = _ABSOLUTE.sub("", text, count=1) if not text.startswith("/") else text
    return HttpRequest(method.decode(), re.split(r"[?#]", path, maxsplit=1)[0] or "/", headers)


def refusal_response(refusal: HttpRefusal) -> HttpResponse:
    """The response to a request that cannot be served."""
    return HttpResponse(refusal.status, f"{refusal.why}\n".encode())


def encode(response: HttpResponse, unix_time: float, head_only: bool = False) -> bytes:
    """The response's bytes; ``head_only``: without the body, whose length is in the header all the same."""
    lines = [
        f"HTTP/1.1 {response.status.value} {response.status.phrase}",
        f"Date: {_date(unix_time)}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(f"{name}: {value}" for name, value in response.more),
    ]
    head = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"
    return head if head_only else head + response.body


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _date(unix_time: float) -> str:
    """As RFC 9110, 5.6.7 has it. (``strftime`` speaks the user's language, and ``email.utils`` is 20 modules more.)"""
    at = time.gmtime(unix_time)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    return f"{day}, {at.tm_mday:02d} {month} {at.tm_year} {at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d} GMT"
