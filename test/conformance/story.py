"""A story told to two brokers: several clients with a connection each, whose answers must be the same on both sides.

    story = Story(pair)
    me = story.ask("ann", join, 9)["member_id"]            # a name where the brokers have made up an id: "$member-1"
    story.send("bob", lambda side: ..., 9)                 # goes without waiting
    story.receive("bob")                                   # compared then
    story.until("ann", heartbeat, 4, lambda answer: ...)   # each side until it shows that: only the last is compared

Requests are values, or functions of a side that take what a name stands for there from :func:`here`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kafka.protocol.registry import NAMES
from kafka.wire.message import Request
from test.broker.raw_client import RawClient
from test.conformance.broker_pair import HUNG_UP, SILENT, BrokerPair, Side, differences, ordered, title
from test.support.waiting import look_until

DEADLINE_S: Final = 30.0

Make = Callable[[Side], Request[Any]] | Request[Any]


def here(side: Side, name: Any) -> Any:
    """What a name stands for on a side; anything else is itself."""
    return side.value(name) if isinstance(name, str) and name.startswith("$") else name


class Story:
    """Clients by name."""

    def __init__(self, pair: BrokerPair) -> None:
        self._pair = pair
        self._clients: dict[tuple[str, int], RawClient] = {}
        self._sent: dict[tuple[str, int], list[tuple[Request[Any], int]]] = {}
        self.asked = 0
        self.told: list[str] = []
        """What happened, for a failing test."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self._pair.sides

    def ask(
        self, who: str, make: Make, version: int, excused: Callable[[Any, Any], bool] = lambda one, other: False
    ) -> Any:
        """Send, and give the answer; AssertionError when the brokers do not say the same. None when the two answers are
        ``excused``: different on purpose."""
        self.send(who, make, version)
        return self.receive(who, excused)

    def send(self, who: str, make: Make, version: int) -> None:
        """Send to both, without waiting."""
        self.asked += 1
        for at, side in enumerate(self._pair.sides):
            request = make if isinstance(make, Request) else make(side)
            if at == 0:
                self.told.append(f"{who}: {request!r} v{version}")
            self._client(who, at).send(request, version)
            self._sent.setdefault((who, at), []).append((request, version))

    def receive(self, who: str, excused: Callable[[Any, Any], bool] = lambda one, other: False) -> Any:
        """The answers to the oldest request of this client that has none."""
        answers = []
        name = ""
        for at, side in enumerate(self._pair.sides):
            request, version = self._sent[who, at].pop(0)
            name = NAMES[request.api_key]
            answers.append(ordered(side.plain(self._receive(who, at, request, version)), title(request)))
        if differences(answers[0], answers[1], name) and excused(*answers):
            return None
        return self._same(who, answers, name)

    def until(self, who: str, make: Make, version: int, shows: Callable[[Any], bool]) -> Any:
        """Ask each side again and again until it shows that, and compare the last answers."""
        answers = []
        self.told.append(f"{who}: until {make!r} v{version}")
        name = ""
        for at, side in enumerate(self._pair.sides):

            def look(at: int = at, side: Side = side) -> Any:
                nonlocal name
                self.asked += 1
                request = make if isinstance(make, Request) else make(side)
                name = NAMES[request.api_key]
                self._client(who, at).send(request, version)
                return ordered(side.plain(self._receive(who, at, request, version)), title(request))

            answers.append(look_until(look, shows, f"on side {at}", shown=lambda: self.told[-30:]))
        return self._same(who, answers, name)

    def _same(self, who: str, answers: list[Any], name: str) -> Any:
        """What both answered; AssertionError when they did not say the same."""
        found = differences(answers[0], answers[1], name)
        assert not found, "\n".join(["", *self.told[-60:], *(str(one) for one in found)])
        self.told.append(f"    {who} gets {answers[0]!r}")
        return answers[0]

    def hang_up(self, who: str) -> None:
        """Close a client's connections; the next request opens new ones."""
        self.told.append(f"{who} hangs up")
        for at in range(2):
            client = self._clients.pop((who, at), None)
            if client is not None:
                client.close()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _client(self, who: str, at: int) -> RawClient:
        found = self._clients.get((who, at))
        if found is None:
            found = self._clients[who, at] = RawClient(self._pair.sides[at].port)
            found.socket.settimeout(DEADLINE_S)
        return found

    def _receive(self, who: str, at: int, request: Request[Any], version: int) -> Any:
        try:
            return self._client(who, at).receive(request, version)
        except (EOFError, ConnectionError):
            outcome = HUNG_UP
        except TimeoutError:
            outcome = SILENT
        self._clients.pop((who, at)).close()
        return outcome
