"""The control channel: ``kafka.testing`` controls a running broker over a socket pair, never over the network.

One JSON object a line, both ways; never pickles, so that the peer can send only data::

    -> {"id": 7, "do": "add", "with": {"number": 1, "rule": {...}}}
    <- {"id": 7, "is": null}                 or  {"id": 7, "error": "one line"}
    <- {"hits": {"1": [4, 2]}}               unasked: rule 1 has matched 4 requests and was applied twice

A command that waits (``wait_hits``, ``wait_requests``) is answered when its condition holds, or is withdrawn by
``forget``. The loop watches the descriptor, so all commands run on the loop's thread, between requests. A broker
carries out the commands up to ``serve`` before it serves: rules from before a restart are active before the first
request.

A new command is a method and its row in ``COMMANDS``; its caller is in ``kafka/testing``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, Final

from kafka.broker.broker import Broker
from kafka.broker.faults import Rule, SeenRequest
from kafka.broker.responses import ConnectionContext
from kafka.broker.server import BrokerServer
from kafka.broker.telemetry import ClientTelemetry, TelemetryPush
from kafka.errors import IllegalStateError, KafkaError
from kafka.net.clock import AdjustableClock
from kafka.net.loop import Loop
from kafka.protocol.framing import ReceivedRequest
from kafka.protocol.share import DescribeShareGroupOffsetsRequest

log = logging.getLogger(__name__)

READ_BYTES: Final = 65536
MOST_STEPS: Final = 10_000
"""The most steps of one ``advance``, in case a timer sets itself again and again."""


class _Deferred(Exception):  # noqa: N818  # control flow, not an error
    """The command is answered later, when its condition holds."""


class ControlChannel:
    """The broker's end of the pair ``sock``. ``is_process``: the broker has a process of its own, which may be killed.

    Its owner calls :meth:`wait_for_serve` once before the loop runs; the loop does the rest until :meth:`close`.
    """

    def __init__(
        self,
        sock: socket.socket,
        broker: Broker,
        server: BrokerServer,
        loop: Loop,
        clock: AdjustableClock,
        *,
        is_process: bool,
    ) -> None:
        self._sock = sock
        self._broker = broker
        self._server = server
        self._loop = loop
        self._clock = clock
        self._data = b""
        self._is_paused = False
        self._is_serving = False
        self._is_ended = False
        self._is_report_scheduled = False
        self._reported: dict[int, tuple[int, int]] = {}
        self._waiting: dict[int, Callable[[], Any]] = {}
        """Id of a waiting command -> a function that returns its answer, or None as long as there is none."""
        self._faults = broker.faults
        self._log = self._faults.record()
        self._faults.attach(self._schedule_report, self._kill_process if is_process else None)
        # Blocking: wait_for_serve() reads it before the loop runs.
        sock.setblocking(True)
        self._watch = loop.watch(sock, on_readable=self._readable)

    def wait_for_serve(self) -> None:
        """Carry out the commands up to ``serve``; returns at once when the other end is closed."""
        while not (self._is_serving or self._is_ended):
            self._receive()

    def close(self) -> None:
        """Send the last report and close."""
        self._report()
        self._watch.close()
        self._sock.close()

    # -- input and output----------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        self._receive()
        while self._is_paused and not self._is_ended:  # serve nothing but commands, as if the process were stopped
            self._receive()

    def _receive(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._is_ended = True
            self._watch.set(read=False)
            return
        *lines, self._data = (self._data + data).split(b"\n")
        for line in lines:
            self._do(json.loads(line))

    def _do(self, command: dict[str, Any]) -> None:
        number = command["id"]
        answer: dict[str, Any] = {"id": number}
        try:
            answer["is"] = COMMANDS[command["do"]](self, **{"id": number, **command.get("with", {})})
        except _Deferred:
            return
        except KafkaError as error:
            answer["error"] = str(error.args[0]) if error.args else str(error)
        except Exception as error:
            log.exception("the control command %s failed", command.get("do"))
            answer["error"] = f"{type(error).__name__}: {error}"
        self._send(answer)

    def _send(self, *messages: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            self._sock.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in messages))

    def _schedule_report(self) -> None:
        if not self._is_report_scheduled:
            self._is_report_scheduled = True
            self._loop.call_soon(self._report)

    def _report(self) -> None:
        """Send changed counts, and answer commands whose condition holds now."""
        self._is_report_scheduled = False
        changed = {}
        for number, each in self._faults.active_rules.items():
            if self._reported.get(number) != (each.seen, each.hits):
                self._reported[number] = changed[number] = (each.seen, each.hits)
        messages: list[dict[str, Any]] = [{"hits": changed}] if changed else []
        for number, attempt in list(self._waiting.items()):
            found = attempt()
            if found is not None:
                del self._waiting[number]
                messages.append({"id": number, "is": found})
        if messages:
            self._send(*messages)

    def _kill_process(self) -> None:
        self._report()
        os.kill(os.getpid(), signal.SIGKILL)

    # -- commands ----------------------------------------------------------------------------------------------------

    def serve(self, id: int) -> None:
        self._is_serving = True

    def add(self, id: int, number: int, rule: dict[str, Any], seen: int = 0, hits: int = 0) -> None:
        self._reported[number] = (seen, hits)
        self._faults.add(Rule.from_json(rule), number, seen, hits)

    def remove(self, id: int, number: int) -> tuple[int, int]:
        counts = self.hits(id, number)
        self._faults.remove(number)
        return counts

    def clear(self, id: int) -> None:
        self._faults.clear()

    def hits(self, id: int, number: int) -> tuple[int, int]:
        each = self._faults.active_rules.get(number)
        return (each.seen, each.hits) if each is not None else self._reported.get(number, (0, 0))

    def wait_hits(self, id: int, number: int, count: int) -> bool:
        return bool(self._when(id, lambda: True if self.hits(id, number)[1] >= count else None))

    def requests(self, id: int, **match: Any) -> list[Any]:
        return [each.to_json() for each in self._matching(**match)]

    def request_count(self, id: int) -> int:
        return self._log.count

    def wait_requests(self, id: int, count: int, **match: Any) -> list[Any]:
        def attempt() -> list[Any] | None:
            found = self._matching(**match)
            return [each.to_json() for each in found] if len(found) >= count else None

        found: list[Any] = self._when(id, attempt)
        return found

    def forget_requests(self, id: int) -> None:
        self._log.clear()

    def forget(self, id: int, what: int) -> None:
        self._waiting.pop(what, None)

    def advance(self, id: int, seconds: float) -> None:
        """Advance the clock from deadline to deadline, so that timers run in order and at their time."""
        clock, server = self._clock, self._server
        was_frozen = clock.is_frozen
        clock.freeze()
        end = clock.monotonic() + seconds
        for _ in range(MOST_STEPS):
            deadline = server.tick()
            if deadline is None or deadline > end:
                break
            clock.advance(max(0.0, deadline - clock.monotonic()))
        clock.advance(max(0.0, end - clock.monotonic()))
        server.tick()
        if not was_frozen:
            clock.resume()

    def freeze(self, id: int) -> None:
        self._clock.freeze()

    def unfreeze(self, id: int) -> None:
        self._clock.resume()
        self._server.end_turn()

    def now(self, id: int) -> tuple[float, float]:
        return self._clock.monotonic(), self._clock.time()

    def pause(self, id: int) -> None:
        self._is_paused = True

    def resume(self, id: int) -> None:
        self._is_paused = False

    def disconnect_all(self, id: int) -> int:
        return self._server.disconnect_all()

    def refuse(self, id: int, refuse: bool) -> None:
        self._server.refuse_connections(refuse)

    def wait_drained(self, id: int, shares: list[tuple[str, str]]) -> bool:
        """``shares``: (group, topic)."""
        return bool(self._when(id, lambda: None if any(self._lag(group, topic) for group, topic in shares) else True))

    def subscribe_metrics(self, id: int, name: str, values: dict[str, str]) -> None:
        """Set a client metrics subscription; {}: remove it."""
        from kafka.broker.telemetry import KIND, check_client_metrics

        broker = self._broker
        broker.metadata.set_config(KIND, name, check_client_metrics(name, values))
        broker.flush_metadata()
        self._telemetry().subscriptions_changed()

    def metrics_as_delta(self, id: int, is_delta: bool) -> None:
        self._telemetry().use_delta(is_delta)

    def pushes(self, id: int, count: int = 0, **match: Any) -> list[Any]:
        """The matching pushes, the oldest first; waits until there are ``count``."""

        def attempt() -> list[Any] | None:
            found = self._pushes(**match)
            return [each.to_json() for each in found] if len(found) >= count else None

        found: list[Any] = self._when(id, attempt)
        return found

    # -- inside ------------------------------------------------------------------------------------------------------

    def _when(self, id: int, attempt: Callable[[], Any]) -> Any:
        found = attempt()
        if found is None:
            self._waiting[id] = attempt
            raise _Deferred
        return found

    def _telemetry(self) -> ClientTelemetry:
        if self._broker.telemetry is None:
            raise IllegalStateError("the broker requests no client metrics: start it with telemetry=True")
        return self._broker.telemetry

    def _pushes(
        self, client_id: str | None = None, client_instance_id: str | None = None, is_terminating: bool | None = None
    ) -> list[TelemetryPush]:
        found = [
            each
            for kept in self._telemetry().pushes.values()
            for each in kept
            if client_id in (None, each.client_id)
            and client_instance_id in (None, each.client_instance_id.hex)
            and is_terminating in (None, each.is_terminating)
        ]
        return sorted(found, key=lambda each: each.at)

    def _lag(self, group_id: str, name: str) -> int:
        """The share group's lag in the topic; 0 when there is no such topic."""
        broker = self._broker
        topic = broker.metadata.topic(name)
        if topic is None:
            return 0
        wanted = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic(
            topic_name=name, partitions=list(range(topic.partitions))
        )
        group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(
            group_id=group_id, topics=[wanted]
        )
        request = DescribeShareGroupOffsetsRequest(groups=[group])
        received = ReceivedRequest(request, request.max_version, 0, None)
        answer: Any = broker.handle_now(ConnectionContext(), received, self._loop.time()).response
        lag = 0
        for found in answer.groups[0].topics[0].partitions if answer.groups[0].topics else ():
            log = broker.logs.log(topic, found.partition_index)
            lag += found.lag if found.start_offset >= 0 else log.end_offset - log.start_offset
        return lag

    def _matching(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        after: int = 0,
    ) -> list[SeenRequest]:
        """``after``: only requests whose number is above it."""
        return [
            each
            for each in self._log.requests
            if each.number > after
            and (api is None or each.api == api)
            and (client_id is None or each.client_id == client_id)
            and (topic is None or topic in each.topics)
        ]


COMMANDS: Final[dict[str, Callable[..., Any]]] = {
    name: getattr(ControlChannel, name)
    for name in (
        "serve", "add", "remove", "clear", "hits", "wait_hits", "requests", "request_count", "wait_requests",
        "forget_requests", "forget", "advance", "freeze", "unfreeze", "now", "pause", "resume", "disconnect_all",
        "refuse",
        "wait_drained", "subscribe_metrics", "metrics_as_delta", "pushes",
    )
}  # fmt: skip
"""Name -> command."""
