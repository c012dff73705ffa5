"""Long requests are done in slices, one batch at a time, and nobody waits for the whole of another's."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from kafka.broker.responses import ConnectionContext, PendingResponse, SlicedRequests
from kafka.protocol.api_versions import ApiVersionsResponse
from kafka.wire.message import Response


class Work:
    """A handler that yields these values one after another, and what it has done."""

    def __init__(self, *yields: bool, error: Exception | None = None, hangs_up: bool = False) -> None:
        self.done = 0
        self.is_closed = False
        self.response = ApiVersionsResponse(error_code=0, api_keys=[])
        self._yields = yields
        self._error = error
        self._hangs_up = hangs_up

    def steps(self) -> Generator[bool, None, Response | PendingResponse]:
        try:
            for each in self._yields:
                yield each
                self.done += 1
        except GeneratorExit:
            self.is_closed = True
            raise
        if self._error is not None:
            raise self._error
        return PendingResponse.hanging_up() if self._hangs_up else self.response


def started(
    requests: SlicedRequests, work: Work, connection: ConnectionContext | None = None
) -> Response | PendingResponse:
    return requests.start(
        connection or ConnectionContext(), work.steps(), lambda reply, response: reply.complete(response)
    )


def test_what_never_yields_is_answered_at_once() -> None:
    requests = SlicedRequests()
    work = Work()
    assert started(requests, work) is work.response
    assert not requests


def test_each_run_does_one_slice_of_one_request_and_the_others_have_their_turns() -> None:
    requests = SlicedRequests()
    first, second = Work(False, False), Work(False)
    replies = [started(requests, first), started(requests, second)]
    assert all(isinstance(reply, PendingResponse) and not reply.done for reply in replies)
    seen = []
    while requests:
        requests.run()
        seen.append((first.done, second.done, [isinstance(reply, PendingResponse) and reply.done for reply in replies]))
    assert seen == [
        (1, 0, [False, False]),
        (1, 1, [False, True]),
        (2, 1, [True, True]),
    ]


def test_who_holds_an_inflated_batch_goes_on_until_it_is_read() -> None:
    requests = SlicedRequests()
    holder, other = Work(False, True, True, False), Work(False)
    started(requests, holder)
    started(requests, other)
    order = []
    while requests:
        requests.run()
        order.append((holder.done, other.done))
    assert order == [(1, 0), (2, 0), (3, 0), (3, 1), (4, 1)]


def test_a_request_whose_connection_ends_is_not_gone_on_with() -> None:
    requests = SlicedRequests()
    connection, other = ConnectionContext(), Work(False)
    work = Work(False, True, True)
    reply = started(requests, work, connection)
    started(requests, other)
    requests.run()
    assert connection.has_pending
    connection.cancel_pending()
    assert (work.done, work.is_closed) == (1, True)
    assert isinstance(reply, PendingResponse)
    assert not reply.done
    requests.run()
    assert (other.done, len(requests)) == (1, 0)


def test_a_request_that_fails_in_a_later_slice_ends_its_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    requests = SlicedRequests()
    connection, other = ConnectionContext(), Work(False)
    reply = started(requests, Work(False, error=ZeroDivisionError()), connection)
    started(requests, other)
    while requests:
        requests.run()
    assert isinstance(reply, PendingResponse)
    assert (reply.done, reply.hang_up, connection.has_pending) == (True, True, False)
    assert other.done == 1
    assert "a request failed; closing the connection" in caplog.text


def test_a_request_may_end_with_hanging_up() -> None:
    requests = SlicedRequests()
    reply = started(requests, Work(True, hangs_up=True))
    requests.run()
    assert isinstance(reply, PendingResponse)
    assert (reply.done, reply.hang_up) == (True, True)
