"""A test's handles on a running broker: its faults, its clock, its log of requests, pushed metrics.

Each sends commands over the :class:`ControlConnection`. They belong to the :class:`~kafka.testing.EmbeddedBroker` and
survive its restarts: rules and their counts are kept here and are active again before the restarted broker handles its
first request; the log of requests begins again.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any
from uuid import UUID

from kafka.broker import ApiName, FaultRuleBuilder, Rule, SeenRequest, TelemetryPush, api_name
from kafka.errors import IllegalArgumentError, IllegalStateError, KafkaTimeoutError

ANSWER_TIMEOUT_S = 20.0
"""For a command's answer; a broker that is stopped or hangs sends none. Waits wait as long when they are not told."""

Ask = Callable[..., Any]
"""``ask(command, timeout_s, **arguments)``: the running broker's answer; BrokerGoneError when none runs."""


class BrokerGoneError(IllegalStateError):
    """The broker has ended."""


class ControlConnection:
    """The test's end of a broker's control channel: commands out, answers in, from any thread.

    The other end and the protocol are in ``kafka/broker/control.py``. One daemon thread reads; each caller waits for
    the answer to its own command, or gets :class:`BrokerGoneError` when the broker ends. ``on_hits`` is called with
    ``{rule: (seen, hits)}`` on the reading thread.
    """

    def __init__(self, on_hits: Callable[[dict[int, tuple[int, int]]], object]) -> None:
        self._ours, self.theirs = socket.socketpair()
        """``theirs``: for the broker; the caller closes its copy when the broker has one."""
        self._on_hits = on_hits
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._is_open = True
        self._reader = threading.Thread(target=self._read, name="embedded-broker-control", daemon=True)
        self._reader.start()

    @property
    def is_open(self) -> bool:
        return self._is_open

    def post(self, command: str, **values: Any) -> tuple[int, Future[Any]]:
        """Send a command: its number and its answer. A starting broker executes it before its first request."""
        number, answer = next(self._numbers), Future[Any]()
        line = json.dumps({"id": number, "do": command, "with": values}).encode() + b"\n"
        with self._lock:
            if not self._is_open:
                raise BrokerGoneError("the broker has ended")
            self._pending[number] = answer
            with contextlib.suppress(OSError):  # the broker has ended: the reading thread says so
                self._ours.sendall(line)
        return number, answer

    def ask(self, command: str, timeout_s: float = ANSWER_TIMEOUT_S, **values: Any) -> Any:
        """Send a command and wait for its answer. IllegalArgumentError: the broker refuses it; BrokerGoneError;
        KafkaTimeoutError: there is no answer within ``timeout_s``."""
        number, answer = self.post(command, **values)
        try:
            return answer.result(timeout_s)
        except concurrent.futures.TimeoutError:
            with self._lock:
                is_pending = self._pending.pop(number, None) is not None
        if not is_pending:
            return answer.result()
        with contextlib.suppress(BrokerGoneError):
            self.post("forget", what=number)
        raise KafkaTimeoutError(f"the condition did not hold within {timeout_s:g} s")

    def close(self) -> None:
        """Close; may be called again."""
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._ours.close()
        self.theirs.close()

    def drain(self) -> None:
        """The broker has ended: read its last report, then close."""
        self.theirs.close()
        self._reader.join(ANSWER_TIMEOUT_S)
        self.close()

    def _read(self) -> None:
        with self._ours.makefile("rb") as lines, contextlib.suppress(OSError):
            for line in lines:
                if not line.endswith(b"\n"):  # the broker was killed while it wrote
                    break
                message = json.loads(line)
                if "hits" in message:
                    self._on_hits({int(number): (seen, hits) for number, (seen, hits) in message["hits"].items()})
                else:
                    self._answer(message)
        with self._lock:
            self._is_open = False
            pending, self._pending = self._pending, {}
        for each in pending.values():
            each.set_exception(BrokerGoneError("the broker has ended"))

    def _answer(self, message: dict[str, Any]) -> None:
        with self._lock:
            pending = self._pending.pop(message["id"], None)
        if pending is None:
            return
        if "error" in message:
            pending.set_exception(IllegalArgumentError(message["error"]))
        else:
            pending.set_result(message["is"])


class Fault:
    """An active rule. As a context manager it is removed at the end of the block."""

    def __init__(self, faults: Faults, number: int, rule: Rule) -> None:
        self.rule = rule
        """The fault."""
        self._faults = faults
        self._number = number
        self._seen = 0
        self._hits = 0

    @property
    def hits(self) -> int:
        """How often it was applied."""
        self._refresh()
        return self._hits

    @property
    def seen(self) -> int:
        """How many requests it has matched, those included that ``nth``, ``every``, ... leave out."""
        self._refresh()
        return self._seen

    def wait(self, n: int = 1, timeout: float = ANSWER_TIMEOUT_S) -> None:
        """Wait until it was applied ``n`` times. KafkaTimeoutError after ``timeout`` seconds; BrokerGoneError when the
        broker ends before."""
        if self.hits >= n:
            return
        try:
            self._faults.ask("hits", timeout, number=self._number, count=n)
        except KafkaTimeoutError:
            raise KafkaTimeoutError(
                f"{self.rule} was applied {self.hits} times within {timeout:g} s, not {n}"
            ) from None
        except BrokerGoneError:
            if self._hits < n:  # its last report has come by now
                raise

    def remove(self) -> None:
        """Remove the rule; no effect when it is removed already."""
        self._faults.remove(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Fault {self.rule}, {self._hits} hits>"

    def _refresh(self, command: str = "hits") -> None:
        with contextlib.suppress(BrokerGoneError):  # the counts of its last report are here
            self._count(*self._faults.ask(command, number=self._number))

    def _count(self, seen: int, hits: int) -> None:
        self._seen, self._hits = max(seen, self._seen), max(hits, self._hits)


class Faults(FaultRuleBuilder[Fault]):
    """Adds faults: see ``kafka.broker.faults`` for all of them. Also works before the broker's start."""

    def __init__(self, ask: Ask, *, can_kill: bool) -> None:
        self.ask = ask
        self._can_kill = can_kill
        self._active: dict[int, Fault] = {}
        self._number = 0
        self._lock = threading.Lock()

    @property
    def rules(self) -> list[Rule]:
        """The active rules, the oldest first."""
        return [fault.rule for fault in self]

    def __iter__(self) -> Iterator[Fault]:
        """The handles of the active rules."""
        return iter(list(self._active.values()))

    def add(self, rule: Rule) -> Fault:
        if rule.action == "kill" and not self._can_kill:
            raise IllegalArgumentError("kill: this broker runs in the test's own process; use in_process=False")
        with self._lock:
            self._number += 1
            fault = Fault(self, self._number, rule)
            with contextlib.suppress(BrokerGoneError):  # the rule is sent at the next start
                self.ask("add", number=fault._number, rule=rule.to_json())
            self._active[fault._number] = fault
        return fault

    def remove(self, fault: Fault) -> None:
        """The same as ``fault.remove()``."""
        with self._lock:
            was_active = self._active.pop(fault._number, None) is not None
        if was_active:
            fault._refresh("remove")

    def clear(self) -> None:
        """Remove all rules."""
        for fault in self:
            self.remove(fault)

    def _on_hits(self, counts: dict[int, tuple[int, int]]) -> None:
        for number, (seen, hits) in counts.items():
            fault = self._active.get(number)
            if fault is not None:
                fault._count(seen, hits)

    def _send_rules(self, channel: ControlConnection) -> None:
        """Send the rules and their counts to a broker that is about to start."""
        for number, fault in self._active.items():
            channel.post("add", number=number, rule=fault.rule.to_json(), seen=fault._seen, hits=fault._hits)


class _Instrument:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask


class Requests(_Instrument):
    """The last 10,000 requests since the broker's start: a sequence of :class:`~kafka.broker.SeenRequest` when iterated
    over."""

    def find(
        self, api: ApiName | None = None, *, client_id: str | None = None, topic: str | None = None, after: int = 0
    ) -> list[SeenRequest]:
        """The requests of an API, a client, a topic; None: any. ``after``: only those with a higher number."""
        return self.wait(api, 0, client_id=client_id, topic=topic, after=after)

    @property
    def count(self) -> int:
        """The number of requests since the start, which is the number of the last one."""
        return int(self._ask("request_count"))

    def wait(
        self,
        api: ApiName | None = None,
        n: int = 1,
        timeout: float = ANSWER_TIMEOUT_S,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        after: int = 0,
    ) -> list[SeenRequest]:
        """Wait for ``n`` such requests and return them. Earlier ones count: give ``after=requests.count``
        for new ones only. KafkaTimeoutError."""
        match = {"api": None if api is None else api_name(api), "client_id": client_id, "topic": topic}
        try:
            found = self._ask("requests", timeout, count=n, after=after, **match)
        except KafkaTimeoutError:
            if not n:
                raise
            shown = ", ".join(f"{name}={value!r}" for name, value in match.items() if value is not None) or "any"
            raise KafkaTimeoutError(f"there were no {n} requests with {shown} within {timeout:g} s") from None
        return [SeenRequest.from_json(each) for each in found]

    def clear(self) -> None:
        """Forget them. Their numbers go on."""
        self._ask("forget_requests")

    def __iter__(self) -> Iterator[SeenRequest]:
        return iter(self.find())

    def __len__(self) -> int:
        return len(self.find())


class BrokerClock(_Instrument):
    """The broker's time, and only the broker's: locks, sessions, transactions, retention and the waits of fetches go by
    it. Clients use the machine's clock: a member misses its heartbeats when the broker's clock moves far ahead.
    """

    def advance(self, seconds: float) -> None:
        """Move the clock by ``seconds``. Everything that becomes due has been done, in order, on return."""
        if not isinstance(seconds, (int, float)) or not 0 <= seconds < 10**10:
            raise IllegalArgumentError(f"advance() takes a number of seconds from 0 on, not {seconds!r}")
        self._ask("advance", seconds=seconds)

    def freeze(self) -> None:
        """Stop the clock; only :meth:`advance` moves it."""
        self._ask("freeze")

    def resume(self) -> None:
        """Let the clock continue."""
        self._ask("unfreeze")

    @property
    def time(self) -> float:
        """The broker's time of day, in epoch seconds."""
        return float(self._ask("now")[1])

    @property
    def monotonic(self) -> float:
        """The broker's monotonic time, in seconds from an arbitrary instant."""
        return float(self._ask("now")[0])


class PushedMetrics(_Instrument):
    """Metrics that clients have pushed to a broker with ``telemetry=True`` (KIP-714), and the subscriptions."""

    def subscribe(
        self, metrics: str | Iterable[str] = ("*",), interval_ms: int = 1000, match: str = "", *, name: str = "test"
    ) -> None:
        """Ask clients for the metrics whose names begin with (one of) ``metrics``, every ``interval_ms`` (100 to
        3600000). ``match``: which clients, ``client_id=app-.*``. The subscription of that ``name`` is replaced;
        clients learn of it with their next push. It is in the broker's data directory."""
        names = [metrics] if isinstance(metrics, str) else metrics
        values = {"metrics": ",".join(names), "interval.ms": str(interval_ms), **({"match": match} if match else {})}
        self._ask("subscribe_metrics", name=name, values=values)

    def unsubscribe(self, name: str = "test") -> None:
        """Remove the subscription."""
        self._ask("subscribe_metrics", name=name, values={})

    def tell_totals(self, *, as_delta: bool) -> None:
        """Whether clients are to send totals as what was added since their last push (as at first, and always with
        Apache Kafka), or as they are. They learn of it with their next subscription."""
        self._ask("metrics_as_delta", is_delta=as_delta)

    def find(
        self,
        *,
        client_id: str | None = None,
        client_instance_id: UUID | None = None,
        is_terminating: bool | None = None,
        n: int = 0,
        timeout: float = ANSWER_TIMEOUT_S,
    ) -> list[TelemetryPush]:
        """The last pushes of each client (100 at most) that match, the oldest first; waits until there are ``n``.
        KafkaTimeoutError. Their ``metrics`` are OpenTelemetry's ``MetricsData``, not compressed."""
        found = self._ask(
            "pushes",
            timeout,
            count=n,
            client_id=client_id,
            client_instance_id=client_instance_id and client_instance_id.hex,
            is_terminating=is_terminating,
        )
        return [TelemetryPush.from_json(each) for each in found]
