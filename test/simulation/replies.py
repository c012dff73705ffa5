"""Replies of the broker's that somebody looks at, or holds back, on their way to the connection."""

from __future__ import annotations

from collections.abc import Callable

from kafka.broker.responses import PendingResponse


def passed_on(reply: PendingResponse, look: Callable[[PendingResponse], object]) -> PendingResponse:
    """The same reply, and a look at it when it is done."""
    if reply.done:
        look(reply)
        return reply
    shown = PendingResponse()

    def done(reply: PendingResponse) -> None:
        look(reply)
        hand_over(reply, shown)

    reply.call_when_done(done)
    return shown


def hand_over(reply: PendingResponse, shown: PendingResponse) -> None:
    """End ``shown`` as ``reply`` has ended."""
    shown.version, shown.hang_up, shown.token = reply.version, reply.hang_up, reply.token
    shown.transform, shown.after_send = shown.transform or reply.transform, shown.after_send or reply.after_send
    shown.complete(reply.response)
