"""The answering side of a connection: order, one at a time, bounds, bytes that make no sense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.core.serving import ServerConnection
from kafka.errors import IllegalStateError, InvalidReceiveError, KafkaProtocolError
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.framing import ReceivedRequest, UnknownRequest, decode_response, encode_request

ANSWER = FindCoordinatorResponse(error_code=0, error_message=None, node_id=1, host="h", port=9)


def ask(key: str, correlation_id: int) -> bytes:
    return b"".join(encode_request(FindCoordinatorRequest(key=key), 3, correlation_id, "me"))


def key_of(received: ReceivedRequest | UnknownRequest | None) -> str:
    assert isinstance(received, ReceivedRequest)
    assert isinstance(received.request, FindCoordinatorRequest)
    return received.request.key


def joined(chunks: list[bytes | bytearray | memoryview]) -> bytes:
    return b"".join(chunks)


def test_requests_come_one_at_a_time_and_in_order() -> None:
    machine = ServerConnection()
    machine.receive(ask("a", 1) + ask("b", 2))
    assert key_of(machine.next_request()) == "a"
    assert machine.next_request() is None
    frame = joined(machine.answer(ANSWER))
    assert frame[4:8] == b"\0\0\0\1"
    assert decode_response(FindCoordinatorResponse, 3, frame[4:]) == ANSWER
    assert key_of(machine.next_request()) == "b"


@given(st.lists(st.integers(0, 200), max_size=8))
def test_cutting_the_stream_anywhere_changes_nothing(cuts: list[int]) -> None:
    stream = ask("a", 1) + ask("bb", 2) + ask("ccc", 3)
    machine = ServerConnection()
    keys = []
    borders = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in zip(borders, borders[1:], strict=False):
        machine.receive(stream[start:end])
        while (received := machine.next_request()) is not None:
            keys.append(key_of(received))
            machine.answer(None)
    assert keys == ["a", "bb", "ccc"]


def test_no_answer_frees_the_connection_for_the_next_request() -> None:
    machine = ServerConnection()
    machine.receive(ask("a", 1) + ask("b", 2))
    machine.next_request()
    assert machine.answer(None) == []
    assert key_of(machine.next_request()) == "b"


def test_an_answer_without_a_request_is_refused() -> None:
    with pytest.raises(IllegalStateError):
        ServerConnection().answer(ANSWER)


def test_a_request_of_an_unknown_version_can_be_answered_in_another_one() -> None:
    machine = ServerConnection()
    header = b"\x00\x12\x00\x63\x00\x00\x00\x07\xff\xff"  # ApiVersions v99, correlation id 7, no client id
    machine.receive(len(header).to_bytes(4, "big") + header)
    received = machine.next_request()
    assert received == UnknownRequest(ApiVersionsRequest.api_key, 99, 7, None)
    refusal = ApiVersionsResponse(error_code=35, api_keys=[])
    assert joined(machine.answer(refusal, 0)) == b"\0\0\0\x0a\0\0\0\7\0\x23\0\0\0\0"


def test_requests_in_front_of_bad_bytes_are_served_before_the_end() -> None:
    machine = ServerConnection()
    machine.receive(ask("a", 1) + b"\xff\xff\xff\xff" + ask("b", 2))
    assert not machine.wants_bytes
    assert key_of(machine.next_request()) == "a"
    machine.answer(None)
    for _ in range(2):
        with pytest.raises(InvalidReceiveError):
            machine.next_request()
    machine.receive(ask("c", 3))
    with pytest.raises(InvalidReceiveError):
        machine.next_request()


def test_a_frame_that_is_no_request_is_a_protocol_error_that_names_the_api() -> None:
    machine = ServerConnection()
    whole = ask("a", 1)[4:]
    machine.receive((len(whole) - 3).to_bytes(4, "big") + whole[:-3])
    with pytest.raises(KafkaProtocolError, match="FindCoordinator v3"):
        machine.next_request()


def test_a_request_above_the_limit_is_refused_by_its_length_alone() -> None:
    machine = ServerConnection(max_request_bytes=100)
    machine.receive((101).to_bytes(4, "big"))
    with pytest.raises(InvalidReceiveError, match="101"):
        machine.next_request()


def test_reading_stops_while_too_much_waits_and_goes_on_after_it() -> None:
    machine = ServerConnection(max_queued_bytes=200)
    frame = ask("k" * 60, 1)
    machine.receive(frame)
    assert machine.wants_bytes
    machine.receive(frame + frame[:50])
    assert not machine.wants_bytes
    machine.next_request()
    assert machine.wants_bytes, "one was taken out; the unfinished one does not count"


def test_empty_frames_fill_the_queue_too() -> None:
    machine = ServerConnection(max_queued_bytes=1000)
    machine.receive(bytes(4) * 20)
    assert not machine.wants_bytes


@given(st.binary(max_size=200))
def test_any_bytes_give_requests_or_one_protocol_error(data: bytes) -> None:
    machine = ServerConnection(max_request_bytes=1000)
    machine.receive(data)
    try:
        while machine.next_request() is not None:
            machine.answer(None)
    except KafkaProtocolError:
        pass
