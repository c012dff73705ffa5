"""Which answers wait for the disk, and letting them out when it has what they promise (group commit); by flush policy:

    always    an answer that promises something waits while anything written is not on the disk: also what another
              request has written, as an answer to a duplicate is a promise about the original
    others    only what has to be on the disk whatever the policy (metadata, blocks of producer ids) is waited for

Answers to those who only read wait for nothing. After a sync that failed nobody knows what is on the disk, so the
connection ends instead of an answer.
"""

from __future__ import annotations

from typing import Final

from kafka.broker.log import FlushPolicy, LogDirectory
from kafka.broker.reply import Reply
from kafka.errors import KafkaStorageError
from kafka.wire.message import Response

READING_APIS: Final = frozenset(
    {1, 2, 3, 9, 10, 12, 15, 16, 17, 18, 23, 29, 32, 35, 36, 50, 60, 61, 65, 66, 69, 75, 77, 90}
)
"""What changes nothing that is on the disk, by API key."""

METADATA_APIS: Final = frozenset({19, 20, 22, 33, 37, 44, 49, 51, 57})
"""Whose answers promise something about the metadata, also where another request has just written it."""


class HeldAnswers:
    """The answers of one broker that wait for a sync of its directory."""

    def __init__(self, logs: LogDirectory, policy: FlushPolicy) -> None:
        self._logs = logs
        self._is_always = policy.sync_before_answer

    def show(self, reply: Reply, api_key: int) -> Reply:
        """The reply to give the connection for one that a handler has made: itself, or one that is done later."""
        if reply.done:
            if not self._has_to_wait(api_key):
                return reply
            held = Reply()
            self._logs.flusher.add_waiter(lambda error: _let_out(held, reply, error))
            return held
        if self._is_always and api_key not in READING_APIS:
            shown = Reply()
            reply.on_done = lambda reply: self._done_later(shown, reply)
            return shown
        return reply

    def complete(self, reply: Reply, api_key: int, response: Response) -> None:
        """Answer a request that has waited for others, or is just being handled."""
        if self._has_to_wait(api_key):
            self._logs.flusher.add_waiter(lambda error: _let_out(reply, Reply.of(response), error))
        else:
            reply.complete(response)

    def _has_to_wait(self, api_key: int) -> bool:
        if self._is_always:
            return self._logs.has_unflushed and api_key not in READING_APIS
        flusher = self._logs.flusher
        return (flusher.has_requested and api_key not in READING_APIS) or (
            flusher.is_requested_unfinished and api_key in METADATA_APIS
        )

    def _done_later(self, shown: Reply, reply: Reply) -> None:
        if self._logs.has_unflushed:
            self._logs.flusher.add_waiter(lambda error: _let_out(shown, reply, error))
        else:
            _let_out(shown, reply, None)


def _let_out(shown: Reply, reply: Reply, error: KafkaStorageError | None) -> None:
    shown.version, shown.hang_up = reply.version, reply.hang_up or error is not None
    shown.complete(reply.response)
