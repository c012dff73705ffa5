"""One struck request on its way through the broker: what the rules that struck it do, and when.

::

    [late, muted] -> before: kill, close, drop, answer -> the broker handles it
    [late]        -> after:  kill, close, drop, answer -> throttle -> damage on the way out -> during: close, kill

A :class:`Passage` decides nothing about which rules those are; that was ``machine.py``.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafka.broker.faults import damage
from kafka.broker.faults.answers import READ_ONLY, Selection, copied, level_for, merge, refusal, without
from kafka.broker.faults.in_force import Received, RuleInForce
from kafka.broker.faults.rule import PRODUCE_KEY, Rule
from kafka.broker.faults.targets import topic_of
from kafka.broker.responses import ConnectionContext, PendingResponse, error_code
from kafka.errors import UnsupportedVersionError
from kafka.protocol.framing import API_VERSIONS_KEY, ReceivedRequest
from kafka.wire.message import Response
from kafka.wire.types import BytesLike

if TYPE_CHECKING:
    from kafka.broker.faults.machine import Faults

log = logging.getLogger(__name__)

_ENDING: Final = ("kill", "close", "drop", "answer")
_UNSUPPORTED_VERSION: Final = error_code(UnsupportedVersionError)


def may_end(rule: Rule) -> bool:
    """Whether it takes a request away before the broker handles it."""
    return rule.when == "before" and rule.action in _ENDING


def leaves_nothing(rule: Rule, received: Received) -> bool:
    """Of a rule that :func:`may_end` a request: whether it does away with the whole of it."""
    if rule.action != "answer":
        return True
    if not isinstance(received, ReceivedRequest):
        return False
    if rule.response is not None:
        return True
    level = level_for(received.request.response_type(), received.version, rule.error, Selection(None, None))
    if level is None or rule.topic is not None or rule.partition is not None:
        return False
    return not level.path or received.request.api_key not in READ_ONLY


class Passage:
    """``fired``: the rules that strike it, the oldest first. ``reply`` is what the server gets for it."""

    __slots__ = ("_faults", "_finish_with", "_version", "connection", "fired", "received", "reply")

    def __init__(
        self, faults: Faults, connection: ConnectionContext, received: Received, fired: list[RuleInForce]
    ) -> None:
        self.connection = connection
        self.received = received
        self.fired = fired
        self.reply = PendingResponse()
        self._version: int | None = None
        self._faults = faults
        self._finish_with: list[Callable[[Response], None]] = []
        """What is to be done with the broker's answer: parts of it are replaced."""

    def having(self, when: str, *actions: str) -> list[Rule]:
        """The rules of these actions at this moment, the oldest first."""
        return [each.rule for each in self.fired if each.rule.when == when and each.rule.action in actions]

    # -- on the way in -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """It has arrived."""
        received = self.received
        for rule in self.having("before", *_ENDING):
            if rule.action != "answer":
                self._end(rule)
                return
            if isinstance(received, ReceivedRequest):
                if self._answer_before(rule):
                    return
                received = self.received
        self._corrupt_request()
        broker = self._faults.broker
        inner = broker.handle_now(self.connection, self.received, broker.now)
        if inner.done:
            self._handled(inner)
        else:
            inner.call_when_done(self._handled)

    def _answer_before(self, rule: Rule) -> bool:
        """Answer instead of handling; False when a part of the request is left to be handled."""
        received: Any = self.received
        request, version = received.request, received.version
        if rule.response is not None:
            self._finish(copy.deepcopy(rule.response))
            return True
        selection = Selection(rule.topic, rule.partition)
        level = level_for(request.response_type(), version, rule.error, selection)
        if level is None:
            log.warning("%s: version %d of the answer has no place for it", rule, version)
            return False
        name_of = self._faults.name_of
        refused = refusal(self._faults.with_session(request), version, level, rule.error, selection, name_of)
        if not level.path:
            self._finish(refused)
            return True
        left = request
        if request.api_key not in READ_ONLY:
            left = without(request, version, level, selection, name_of)
        elif "max_wait_ms" in request.fields:
            left = copied(request, max_wait_ms=0)  # an error does not wait for records
        if left is None:
            self._finish(refused)
            return True
        self.received = received._replace(request=left)
        self._finish_with.append(
            lambda response: merge(response, refused, version, level, rule.error, selection, name_of)
        )
        return False

    def _corrupt_request(self) -> None:
        for each in self.fired:
            rule = each.rule
            received = self.received
            if rule.action != "corrupt" or not rule.records or not isinstance(received, ReceivedRequest):
                continue
            if received.request.api_key == PRODUCE_KEY:
                self._corrupt_records(received.request, each)

    def _corrupt_records(self, message: Any, each: RuleInForce) -> None:
        rule = each.rule
        selection = Selection(rule.topic, rule.partition)
        for topic, partition in damage.partitions_with_records(message):
            number = getattr(partition, "partition_index", getattr(partition, "index", None))
            if selection.has_topic(topic_of(topic, self._faults.name_of)) and selection.has_partition(number):
                records = damage.as_bytes(partition.records)  # type: ignore[attr-defined]
                partition.records = damage.corrupted_batches(records, rule.count, each.rng)  # type: ignore[attr-defined]

    # -- on the way out ----------------------------------------------------------------------------------------------

    def _handled(self, inner: PendingResponse) -> None:
        """The broker has its answer."""
        late_s = sum(rule.seconds for rule in self.having("after", "delay"))
        if late_s:
            self._faults.later(late_s, lambda: self._sent(inner))
        else:
            self._sent(inner)

    def _sent(self, inner: PendingResponse) -> None:
        response = inner.response
        if inner.hang_up:
            self.reply.complete(None, hang_up=True)
            return
        self._version = inner.version
        if response is not None:
            for finish in self._finish_with:
                finish(response)
        for rule in self.having("after", *_ENDING):
            if rule.action != "answer":
                self._end(rule)
                return
            if response is not None:
                response = self._replaced(rule, response)
        self._finish(response)

    def _replaced(self, rule: Rule, response: Response) -> Response:
        received: Any = self.received
        if rule.response is not None:
            return copy.deepcopy(rule.response)
        selection = Selection(rule.topic, rule.partition)
        level = level_for(type(response), received.version, rule.error, selection)
        if level is None:
            return response
        refused = refusal(received.request, received.version, level, rule.error, selection, self._faults.name_of)
        if not level.path:
            return refused
        merge(response, refused, received.version, level, rule.error, selection, self._faults.name_of)
        return response

    def _end(self, rule: Rule) -> None:
        """No answer: the process, the connection or the request alone ends here."""
        reply = self.reply
        if rule.action == "kill":
            self._faults.end_process()
        elif rule.action == "close":
            if rule.reset:
                reply.close_after_send(lambda transport: transport.abort())
            reply.complete(None, hang_up=True)
        elif _is_unanswered(self.received):  # Produce with acks=0: nobody waits, and the next one has its turn
            reply.complete(None)

    def _finish(self, response: Response | None) -> None:
        """Send the answer, damaged as it may be."""
        reply = self.reply
        received = self.received
        if response is None or _is_unanswered(received):
            reply.complete(None, hang_up=response is not None)
            return
        if response.api_key == API_VERSIONS_KEY and getattr(response, "error_code", 0) == _UNSUPPORTED_VERSION:
            self._version = 0  # as every client expects it (KIP-511)
        for rule in self.having("after", "throttle"):
            response = copied(response, throttle_time_ms=int(rule.seconds * 1000))
            if rule.mute:
                self._faults.mute(self.connection, rule.seconds)
        changes: list[Callable[[bytes], bytes]] = []
        for each in self.fired:
            change = self._damage(each, response)
            if change is not None:
                changes.append(change)
        ends = self.having("during", "close", "kill")
        if ends:
            keep = ends[0].keep
            changes.append(lambda frame: damage.cut_off(frame, keep))
            is_killed = ends[0].action == "kill"
            is_reset = ends[0].reset

            def close(transport: Any) -> None:
                if is_killed:
                    self._faults.end_process()
                elif is_reset:
                    transport.abort()
                else:
                    transport.close()

            reply.close_after_send(close)
        if changes:
            reply.transform_bytes(lambda chunks: [_transformed(chunks, changes)])
        reply.complete(response, version=self._version)

    def _damage(self, each: RuleInForce, response: Response) -> Callable[[bytes], bytes] | None:
        rule = each.rule
        if rule.action == "truncate":
            return lambda frame: damage.truncated(frame, rule.keep)
        if rule.action == "corrupt" and not rule.records:
            return lambda frame: damage.corrupted_frame(frame, rule.count, each.rng)
        if rule.action == "corrupt" and response.api_key != PRODUCE_KEY:
            self._corrupt_records(response, each)
        return None


def _transformed(chunks: list[BytesLike], changes: list[Callable[[bytes], bytes]]) -> bytes:
    frame = b"".join(chunks)
    for change in changes:
        frame = change(frame)
    return frame


def _is_unanswered(received: Received) -> bool:
    """Whether the client waits for no answer."""
    return isinstance(received, ReceivedRequest) and getattr(received.request, "acks", 1) == 0
