"""Encodes and decodes whole messages: header and body, and a request's or response's length.

Which header goes with which message (protocol guide, "Request Header"): requests in flexible versions carry header 2,
others header 1; responses in flexible versions header 1, others 0. Two exceptions, which old peers force: the response
of ApiVersions always has header 0, because the client does not know the broker's versions yet; and
ControlledShutdown v0, which only brokers send, had request header 0.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from kafka.errors import KafkaProtocolError
from kafka.protocol.registry import NAMES, REGISTRY, RequestHeader, ResponseHeader
from kafka.wire.codec import decode_from, encode_chunks
from kafka.wire.frame import pack_length
from kafka.wire.message import Request, Response
from kafka.wire.types import BytesLike

R = TypeVar("R", bound=Response)

API_VERSIONS_KEY: Final = 18
_KEY_AND_VERSION: Final = struct.Struct(">hh")
LARGE_BYTES: Final = 4_096
"""Chunks of at least this size are not copied."""


def request_header_version(cls: type[Request[Any]], version: int) -> int:
    """The version of the header in front of a request."""
    return 2 if cls.flexible(version) else 1


def response_header_version(cls: type[Response], version: int) -> int:
    """The version of the header in front of a response."""
    return 1 if cls.flexible(version) and cls.api_key != API_VERSIONS_KEY else 0


def encode_request(request: Request[Any], version: int, correlation_id: int, client_id: str | None) -> list[BytesLike]:
    """A whole frame, its length included, as chunks to be written one after another."""
    before, after = _around_correlation_id(type(request), version, client_id)
    chunks: list[BytesLike] = [before, pack_length(correlation_id), after]
    chunks += encode_chunks(request, version)
    return _with_length(chunks)


@lru_cache(maxsize=1024)
def _around_correlation_id(cls: type[Request[Any]], version: int, client_id: str | None) -> tuple[bytes, bytes]:
    """A request's header before and after its correlation id, which is all that differs between requests."""
    header = RequestHeader(
        request_api_key=cls.api_key, request_api_version=version, correlation_id=0, client_id=client_id
    )
    data = b"".join(encode_chunks(header, request_header_version(cls, version)))
    return data[:4], data[8:]


def encode_response(response: Response, version: int, correlation_id: int) -> list[BytesLike]:
    """A whole frame, its length included, as chunks to be written one after another."""
    after = _after_correlation_id(response_header_version(type(response), version))
    chunks: list[BytesLike] = [pack_length(correlation_id), after]
    chunks += encode_chunks(response, version)
    return _with_length(chunks)


@lru_cache(maxsize=2)
def _after_correlation_id(version: int) -> bytes:
    """A response's header after the correlation id, the same in all responses."""
    return b"".join(encode_chunks(ResponseHeader(correlation_id=0), version))[4:]


class UnknownRequest(NamedTuple):
    """The header of a request whose API or version has no class here."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


class ReceivedRequest(NamedTuple):
    """A request as a broker receives it."""

    request: Request[Any]
    version: int
    correlation_id: int
    client_id: str | None


def decode_request(frame: bytes) -> ReceivedRequest | UnknownRequest:
    """The request in a frame (without its length); KafkaProtocolError when its bytes are wrong. More bytes than the
    request has are ignored."""
    key, version = _KEY_AND_VERSION.unpack_from(frame) if len(frame) >= _KEY_AND_VERSION.size else (-1, -1)
    cls = REGISTRY[key].request if key in REGISTRY else None
    if cls is None or not cls.min_version <= version <= cls.max_version:
        unknown, _ = decode_from(RequestHeader, frame, 0, 1)
        return UnknownRequest(key, version, unknown.correlation_id, unknown.client_id)
    try:
        header, position = decode_from(RequestHeader, frame, 0, request_header_version(cls, version))
        # Bytes after a request are ignored, as in Apache Kafka: librdkafka 2.16.1 asks for all topics (Metadata
        # v13) with an array's length of four bytes where one belongs, and its last three are left over.
        request, _ = decode_from(cls, frame, position, version)
    except KafkaProtocolError as error:
        error.api = f"{NAMES[key]} v{version}"
        raise
    return ReceivedRequest(request, version, header.correlation_id, header.client_id)


def read_correlation_id(frame: bytes | memoryview) -> int:
    """The correlation id that a response's frame starts with."""
    if len(frame) < 4:
        raise KafkaProtocolError("a response shorter than its correlation id", offset=0)
    return int.from_bytes(frame[:4], "big", signed=True)


def decode_response(cls: type[R], version: int, frame: bytes | memoryview) -> R:
    """The response in a frame (without its length); KafkaProtocolError when its bytes are wrong.

    An ApiVersions response with UNSUPPORTED_VERSION (35) is in version 0, whatever the request's version.
    """
    if cls.api_key == API_VERSIONS_KEY and frame[4:6] == b"\x00\x23":
        version = 0
    try:
        _, position = decode_from(ResponseHeader, frame, 0, response_header_version(cls, version))
        response, position = decode_from(cls, frame, position, version)
        _all_consumed(frame, position)
    except KafkaProtocolError as error:
        error.api = f"{NAMES.get(cls.api_key, cls.__name__)} v{version}"
        raise
    return response


def _with_length(chunks: list[BytesLike]) -> list[BytesLike]:
    """The chunks after their length, runs of small ones joined: a socket sends few large pieces faster than many
    small."""
    sizes = list(map(len, chunks))
    length = pack_length(sum(sizes))
    if max(sizes) < LARGE_BYTES:
        return [b"".join((length, *chunks))]
    joined: list[BytesLike] = []
    run: list[BytesLike] = [length]
    for chunk, size in zip(chunks, sizes, strict=True):
        if size < LARGE_BYTES:
            run.append(chunk)
        else:
            joined += (b"".join(run), chunk)
            run = []
    joined.append(b"".join(run))
    return joined


def _all_consumed(frame: bytes | memoryview, position: int) -> None:
    if position != len(frame):
        raise KafkaProtocolError(f"{len(frame) - position} bytes after the end of the message", offset=position)
