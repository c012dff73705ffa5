"""The control channel: ``kafka.testing`` controls a running broker over a socket pair, never over the network.

One JSON object a line, both ways; never pickles, so that the peer can send only data::

    -> {"id": 7, "do": "add", "with": {"number": 1, "rule": {...}}}
    <- {"id": 7, "is": null}                 or  {"id": 7, "error": "one line"}
    <- {"hits": {"1": [4, 2]}}               unasked: rule 1 has matched 4 requests and was applied twice

A command that waits (``WAITING``) is answered when its condition holds, or is withdrawn by ``forget``. The loop watches
the descriptor, so all commands run on the loop's thread, between requests. A broker carries out the commands up to
``serve`` before it serves: rules from before a restart are active before the first request.

A new command is a row in ``ControlChannel``'s table; its caller is in ``kafka/testing``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from uuid import UUID

from kafka.broker.broker import Broker
from kafka.broker.faults import Rule
from kafka.broker.handlers.share import partition_offset
from kafka.broker.server import BrokerServer
from kafka.broker.telemetry import KIND, ClientTelemetry, check_client_metrics
from kafka.errors import IllegalStateError, KafkaError
from kafka.net.clock import AdjustableClock
from kafka.net.loop import Loop
from kafka.records import iter_batches
from kafka.structs import TopicPartition

log = logging.getLogger(__name__)

READ_BYTES: Final = 65536
MOST_STEPS: Final = 10_000
"""The most steps of one ``advance``, in case a timer sets itself again and again."""

WAITING: Final = frozenset({"hits", "requests", "pushes", "is_drained"})
"""Commands that wait as long as their result is None."""


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
        self._faults = broker.faults
        self._log = self._faults.record()
        self._commands: dict[str, Callable[..., Any]] = {
            "serve": self._serve,
            "forget": self._forget,
            "add": self._add,
            "remove": self._remove,
            "hits": self._hits,
            "requests": self._requests,
            "request_count": lambda: self._log.count,
            "forget_requests": self._log.clear,
            "advance": self._advance,
            "freeze": clock.freeze,
            "unfreeze": self._unfreeze,
            "now": lambda: (clock.monotonic(), clock.time()),
            "pause": self._pause,
            "disconnect_all": server.disconnect_all,
            "refuse": server.refuse_connections,
            "is_drained": self._is_drained,
            "subscribe_metrics": self._subscribe_metrics,
            "metrics_as_delta": lambda is_delta: self._telemetry.use_delta(is_delta),
            "pushes": self._pushes,
        }
        """Name -> function; its arguments are those of the command."""
        self._data = b""
        self._is_paused = False
        self._is_serving = False
        self._is_ended = False
        self._is_report_scheduled = False
        self._reported: dict[int, tuple[int, int]] = {}
        self._waiting: dict[int, Callable[[], Any]] = {}
        """Id of a waiting command -> a function that returns its answer, or None as long as there is none."""
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

    # -- input and output ---------------------------------------------------------------------------------------------

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
        """Carry out a command and answer it, unless it waits."""
        number, name = command["id"], command["do"]
        answer: dict[str, Any] = {"id": number}
        try:
            attempt = partial(self._commands[name], **command["with"])
            answer["is"] = attempt()
            if answer["is"] is None and name in WAITING:
                self._waiting[number] = attempt
                return
        except KafkaError as error:
            answer["error"] = str(error.args[0]) if error.args else str(error)
        except Exception as error:
            log.exception("the control command %s failed", name)
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
        messages: list[dict[str, Any]] = []
        counts = {number: (each.seen, each.hits) for number, each in self._faults.active_rules.items()}
        if counts != self._reported:
            self._reported = counts
            messages.append({"hits": counts})
        for number, attempt in list(self._waiting.items()):
            found = attempt()
            if found is not None:
                del self._waiting[number]
                messages.append({"id": number, "is": found})
        if messages:
            self._send(*messages)

    # -- commands ----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        self._is_serving = True

    def _forget(self, what: int) -> None:
        self._waiting.pop(what, None)

    def _pause(self, is_paused: bool) -> None:
        self._is_paused = is_paused

    def _kill_process(self) -> None:
        self._report()
        os.kill(os.getpid(), signal.SIGKILL)

    def _add(self, number: int, rule: dict[str, Any], seen: int = 0, hits: int = 0) -> None:
        self._faults.add(Rule.from_json(rule), number, seen, hits)

    def _remove(self, number: int) -> tuple[int, int] | None:
        counts = self._hits(number)
        self._faults.remove(number)
        return counts

    def _hits(self, number: int, count: int = 0) -> tuple[int, int] | None:
        """A rule's counts, when it was applied ``count`` times."""
        each = self._faults.active_rules.get(number)
        seen, hits = (each.seen, each.hits) if each is not None else (0, 0)
        return (seen, hits) if hits >= count else None

    def _requests(self, count: int = 0, after: int = 0, **match: Any) -> list[Any] | None:
        """The matching requests whose number is above ``after``, when there are ``count``."""
        found = [each.to_json() for each in self._log.requests if each.number > after and _matches(each, match)]
        return found if len(found) >= count else None

    def _pushes(
        self, count: int = 0, client_instance_id: str | None = None, **match: Any
    ) -> list[Any] | None:
        """The matching pushes, the oldest first, when there are ``count``."""
        match["client_instance_id"] = client_instance_id and UUID(client_instance_id)
        pushes = [each for kept in self._telemetry.pushes.values() for each in kept if _matches(each, match)]
        found = [each.to_json() for each in sorted(pushes, key=lambda each: each.at)]
        return found if len(found) >= count else None

    def _advance(self, seconds: float) -> None:
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

    def _unfreeze(self) -> None:
        self._clock.resume()
        self._server.end_turn()

    def _is_drained(self, shares: list[tuple[str, str]], groups: list[tuple[str, str]]) -> bool | None:
        """Whether the share groups have no lag and the consumer groups have committed all records, or None. Of both:
        (group, topic)."""
        is_left = any(self._lag(*each) for each in shares) or any(self._has_uncommitted(*each) for each in groups)
        return None if is_left else True

    def _lag(self, group_id: str, name: str) -> int:
        """The share group's lag in the topic; 0 when there is no such topic."""
        broker, lag = self._broker, 0
        topic = broker.metadata.topic(name)
        if topic is None:
            return 0
        for number in range(topic.partitions):
            found, log = partition_offset(broker, group_id, topic, number), broker.logs.log(topic, number)
            lag += found.lag if found.start_offset >= 0 else log.end_offset - log.start_offset
        return lag

    def _has_uncommitted(self, group_id: str, name: str) -> bool:
        """Whether the topic has a record behind what the consumer group has committed; markers of transactions are
        none."""
        broker = self._broker
        topic = broker.metadata.topic(name)
        if topic is None:
            return False
        for number in range(topic.partitions):
            log, committed = broker.logs.log(topic, number), broker.offsets.get(group_id, TopicPartition(name, number))
            offset = log.start_offset if committed is None else max(log.start_offset, committed.offset)
            while data := log.read(offset, READ_BYTES):
                for batch in iter_batches(data, check_crcs=False):
                    if not batch.is_control:
                        return True
                    offset = batch.next_offset
        return False

    def _subscribe_metrics(self, name: str, values: dict[str, str]) -> None:
        """Set a client metrics subscription; {}: remove it."""
        self._broker.metadata.set_config(KIND, name, check_client_metrics(name, values))
        self._broker.flush_metadata()
        self._telemetry.subscriptions_changed()

    @property
    def _telemetry(self) -> ClientTelemetry:
        if self._broker.telemetry is None:
            raise IllegalStateError("the broker requests no client metrics: start it with telemetry=True")
        return self._broker.telemetry


def _matches(each: Any, match: Mapping[str, Any]) -> bool:
    """Whether a request or a push has these values; None: any."""
    return all(
        wanted is None or (wanted in each.topics if name == "topic" else getattr(each, name) == wanted)
        for name, wanted in match.items()
    )
