"""The client's machine of one connection: correlation, order, deadlines, faults."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.core.connection import Answer, ClientConnection, expects_answer
from kafka.errors import CorrelationIdError, InvalidReceiveError, KafkaProtocolError, UnsupportedFieldError
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.framing import ReceivedRequest, decode_request, encode_response
from kafka.protocol.groups import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.produce import ProduceRequest
from kafka.wire.frame import FrameReader

METADATA = MetadataRequest(topics=[])


def answer(correlation_id: int, version: int = 0) -> bytes:
    return b"".join(encode_response(MetadataResponse(brokers=[], topics=[]), version, correlation_id))


def owners(answers: list[Answer]) -> list[object]:
    return [call.owner for call, _ in answers]


def test_requests_carry_the_client_id_and_growing_correlation_ids() -> None:
    machine = ClientConnection("me")
    sent = b"".join(bytes(chunk) for _ in range(3) for chunk in machine.send(METADATA, 0))
    received = [decode_request(frame) for frame in FrameReader().feed(sent)]
    assert [(r.client_id, r.correlation_id) for r in received] == [("me", 0), ("me", 1), ("me", 2)]
    assert all(isinstance(r, ReceivedRequest) and r.request == METADATA for r in received)


def test_correlation_ids_begin_again_after_the_largest() -> None:
    machine = ClientConnection("me", correlation_id=2**31 - 1)
    machine.send(METADATA, 0, owner="last")
    machine.send(METADATA, 0, owner="first")
    assert owners(machine.receive(answer(2**31 - 1) + answer(0))) == ["last", "first"]


@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_answers_come_whole_and_in_order_however_the_bytes_are_cut(cuts: list[int]) -> None:
    machine = ClientConnection("me")
    for number in range(4):
        machine.send(METADATA, 0, owner=number)
    data = b"".join(answer(number) for number in range(4))
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    seen: list[object] = []
    for start, end in zip(edges, edges[1:], strict=False):
        seen += owners(machine.receive(data[start:end]))
    assert seen == [0, 1, 2, 3]
    assert not machine.in_flight and machine.failed is None


def test_another_correlation_id_is_a_fault_that_ends_the_connection() -> None:
    machine = ClientConnection("me", "node 7")
    machine.send(METADATA, 0, owner="a")
    machine.send(METADATA, 0, owner="b")
    assert machine.receive(answer(1)) == []
    assert isinstance(machine.failed, CorrelationIdError)
    assert "node 7" in str(machine.failed) and "Metadata v0" in str(machine.failed)
    assert machine.receive(answer(0)) == []  # deaf from now on
    assert [call.owner for call in machine.abandon()] == ["a", "b"]


def test_a_skippable_call_is_passed_over_when_the_next_one_is_answered() -> None:
    machine = ClientConnection("me")
    machine.send(ListGroupsRequest(), 0, owner="probe", skippable=True)
    machine.send(METADATA, 0, owner="metadata")
    (skipped, nothing), (call, response) = machine.receive(answer(1))
    assert (skipped.owner, nothing) == ("probe", None)
    assert call.owner == "metadata" and isinstance(response, MetadataResponse)


def test_a_skippable_call_that_is_answered_counts_as_any_other() -> None:
    machine = ClientConnection("me")
    machine.send(ListGroupsRequest(), 0, owner="probe", skippable=True)
    machine.send(METADATA, 0, owner="metadata")
    groups = b"".join(encode_response(ListGroupsResponse(error_code=0, groups=[]), 0, 0))
    assert owners(machine.receive(groups + answer(1))) == ["probe", "metadata"]


def test_the_last_skippable_call_cannot_be_passed_over() -> None:
    machine = ClientConnection("me")
    machine.send(METADATA, 0, skippable=True)
    assert machine.receive(answer(5)) == []
    assert isinstance(machine.failed, CorrelationIdError)


def test_an_answer_that_nobody_asked_for_is_a_fault() -> None:
    machine = ClientConnection("me")
    machine.receive(answer(0))
    assert "no request is in flight" in str(machine.failed)


def test_a_length_above_the_limit_is_a_fault_that_names_the_node() -> None:
    machine = ClientConnection("me", "node 3", max_bytes=100)
    machine.send(METADATA, 0)
    machine.receive(b"\x00\x00\x00\x65")
    assert isinstance(machine.failed, InvalidReceiveError)
    assert "node 3" in str(machine.failed)


def test_what_came_before_a_fault_in_the_same_bytes_is_returned() -> None:
    machine = ClientConnection("me")
    machine.send(METADATA, 0, owner="good")
    machine.send(METADATA, 0, owner="bad")
    assert owners(machine.receive(answer(0) + b"\xff\xff\xff\xff")) == ["good"]
    assert isinstance(machine.failed, InvalidReceiveError)


def test_a_response_with_wrong_bytes_fails_its_call_and_the_connection() -> None:
    machine = ClientConnection("me", "node 1")
    machine.send(METADATA, 0, owner="a")
    frame = answer(0)
    longer = (len(frame) - 4 + 2).to_bytes(4, "big") + frame[4:] + b"xx"
    ((call, fault),) = machine.receive(longer)
    assert call.owner == "a" and isinstance(fault, KafkaProtocolError)
    assert machine.failed is fault
    assert "node 1" in str(fault) and "Metadata v0" in str(fault)


@given(data=st.binary(max_size=300))
def test_no_bytes_whatever_escape_as_anything_but_a_fault(data: bytes) -> None:
    machine = ClientConnection("me")
    machine.send(METADATA, 0)
    machine.send(ApiVersionsRequest(), 0)
    for position in range(0, len(data), 7):
        machine.receive(data[position : position + 7])


def test_a_produce_without_acks_is_never_in_flight() -> None:
    request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[])
    assert not expects_answer(request)
    machine = ClientConnection("me")
    assert machine.send(request, 3)
    assert not machine.in_flight
    machine.send(METADATA, 0, owner="next")
    assert owners(machine.receive(answer(1))) == ["next"]  # the correlation id was used up nevertheless


def test_a_message_that_does_not_fit_its_version_changes_nothing() -> None:
    machine = ClientConnection("me")
    with pytest.raises(UnsupportedFieldError):
        machine.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), 1)
    assert not machine.in_flight
    machine.send(METADATA, 0, owner="next")
    assert owners(machine.receive(answer(0))) == ["next"]


def test_deadlines_are_those_of_the_calls_in_flight() -> None:
    machine = ClientConnection("me")
    assert machine.next_deadline() == inf
    machine.send(METADATA, 0, 30.0, "late")
    machine.send(METADATA, 0, 20.0, "early")
    assert machine.next_deadline() == 20.0
    assert machine.overdue(19.9) == []
    assert [call.owner for call in machine.overdue(20.0)] == ["early"]
    machine.receive(answer(0) + answer(1))
    assert machine.next_deadline() == inf


def test_what_is_missing_is_reported_of_large_answers_alone_and_of_none_after_a_fault() -> None:
    machine = ClientConnection("me")
    machine.send(METADATA, 0)
    head = (1_000_000).to_bytes(4, "big") + (0).to_bytes(4, "big")
    assert machine.receive(head) == []
    assert machine.missing_bytes() == 1_000_000 - 4
    room = machine.get_buffer()
    assert room is not None
    room[:1000] = bytes(1000)
    del room
    assert machine.buffer_updated(1000) == []
    assert machine.missing_bytes() == 1_000_000 - 1004
    machine.failed = KafkaProtocolError("for some reason")
    assert machine.missing_bytes() == 0
    assert ClientConnection("me").missing_bytes() == 0
