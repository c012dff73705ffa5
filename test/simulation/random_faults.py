"""What goes wrong in a world, drawn from its seed: events at instants, and faults of single requests.

Each world has rates of its own: some kinds of faults are frequent in it, others absent, so that rare combinations
come about somewhere. A new kind of event is a method and a row in ``EVENTS``; one that strikes requests, a row in
``REQUEST_FAULTS``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.broker.responses import PendingResponse
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.groups import ListGroupsRequest

if TYPE_CHECKING:
    from test.simulation.world import Host, World

BROKER: Final = "broker"
GREETINGS: Final = (ApiVersionsRequest, ListGroupsRequest)


class RequestFault(NamedTuple):
    """What becomes of one request."""

    name: str
    seconds: float

    @property
    def is_handled(self) -> bool:
        return self.name != "request lost"

    @property
    def waits_before(self) -> bool:
        return self.name == "request late"

    def reply(self, reply: PendingResponse, world: World) -> PendingResponse:
        """What the connection gets instead of ``reply``."""
        if self.name == "request lost":
            if self.seconds > 0.5:
                reply.close_after_send(lambda transport: transport.abort())
            return reply
        if self.name == "answer halved":
            reply.transform_bytes(lambda chunks: [_half(chunks)])
            reply.close_after_send(lambda transport: transport.close())
            return reply
        shown = PendingResponse()
        act: Callable[[PendingResponse], None]
        if self.name == "answer lost":
            act = lambda done: _hang_up(shown)  # noqa: E731
        elif self.name == "answer late":
            act = lambda done: world.later(self.seconds, _hand_over, done, shown)  # noqa: E731
        else:  # none at all, and the connection stays
            act = lambda done: None  # noqa: E731
        if reply.done:
            if self.name == "answer lost":
                shown.hang_up = shown.done = True
                return shown
            act(reply)
        else:
            reply.call_when_done(act)
        return shown


REQUEST_FAULTS: Final = ("request lost", "request late", "answer lost", "answer halved", "answer late", "no answer")


def _hang_up(shown: PendingResponse) -> None:
    shown.hang_up = True
    shown.complete(None)


def _hand_over(done: PendingResponse, shown: PendingResponse) -> None:
    shown.version, shown.hang_up = done.version, done.hang_up
    shown.complete(done.response)


def _half(chunks: list[Any]) -> bytes:
    frame = b"".join(bytes(chunk) for chunk in chunks)
    return frame[: len(frame) // 2]


class RandomFaults:
    """The bad luck of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = rng = world.rng
        self.lasts_s = rng.uniform(3.0, 14.0)
        self._rates = [(name, rng.choice((0.0, 0.0, 0.0, 0.005, 0.02, 0.06))) for name in REQUEST_FAULTS]
        self._total = sum(rate for _, rate in self._rates)
        self._base_s = rng.choice((0.0005, 0.002, 0.02))
        self._spike = rng.choice((0.0, 0.0, 0.02, 0.1))
        self._spike_s = rng.choice((0.1, 0.6, 2.0))
        self._greeted_at = -1000.0
        self._until: list[Callable[[], object]] = []
        self.spared: frozenset[str] = frozenset()
        """Events that do not happen in this world."""

    # -- requests ------------------------------------------------------------------------------------------------------

    def on_request(self, received: Any) -> RequestFault | None:
        """What becomes of a request; None: it is handled and answered."""
        if not self._total:
            return None
        rng = self.rng
        if getattr(received, "request", None).__class__ in GREETINGS:
            # Three greetings lost in a row look as a broker of 0.8 does: so at most one for a while.
            if self._greeted_at > self.world.now - 5.0:
                return None
            self._greeted_at = self.world.now
        drawn = rng.random()
        if drawn >= self._total:
            return None
        for name, rate in self._rates:
            if drawn < rate:
                return RequestFault(name, rng.choice((0.01, 0.2, 1.0, 4.0)) * rng.random())
            drawn -= rate
        return None

    # -- links ---------------------------------------------------------------------------------------------------------

    def joined(self, host: Host) -> None:
        """A host is new: its links."""
        for one, other in ((host.name, BROKER), (BROKER, host.name)):
            self.world.fabric_view.link(one, other).delay_s = self._delay_s

    @property
    def longest_delay_s(self) -> float:
        """What a frame takes at most, if nothing is to keep it back."""
        return 1.5 * self._base_s + (self._spike_s if self._spike else 0.0)

    def _delay_s(self, count: int) -> float:
        rng = self.rng
        delay_s = self._base_s * (0.5 + rng.random())
        if self._spike and self.world.is_stormy and rng.random() < self._spike:
            delay_s += self._spike_s * rng.random()
        return delay_s

    # -- events --------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Draw what happens, and when."""
        rng = self.rng
        count = rng.choice((0, 1, 2, 4, 7))
        kinds = [kind for kind in EVENTS if rng.random() < 0.6] or list(EVENTS)
        kinds = [kind for kind in kinds if kind not in self.spared] or ["cut"]
        for _ in range(count):
            self.world.later(rng.uniform(0.2, self.lasts_s), EVENTS[rng.choice(kinds)], self)

    def end(self) -> None:
        """Everything is well from now on."""
        world = self.world
        until, self._until = self._until, []
        for action in until:
            action()
        if world.broker is None:
            world.start_broker()
        world.broker_host.loop.resume()

    def for_a_while(self, seconds: float, end: Callable[[], object]) -> None:
        """Call ``end`` after so long, or when the faults end."""
        is_over = False

        def once() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                end()

        self._until.append(once)
        self.world.later(seconds, once)

    def _disturb(self, host: Host, seconds: float) -> None:
        host.disturbed_until = max(host.disturbed_until, self.world.now + seconds)

    def _some_host(self) -> Host | None:
        living = [host for host in self.world.hosts.values() if not host.is_dead]
        return self.rng.choice(living) if living else None

    def _cut(self) -> None:
        host = self._some_host()
        if host is not None:
            self.world.note("fault", "cut", host.name)
            self.world.fabric_view.cut(host.name, BROKER)

    def _hold(self) -> None:
        """Nothing passes for a while, in one direction or in both; then everything does."""
        host = self._some_host()
        if host is None:
            return
        seconds = self.rng.choice((0.5, 3.0, 9.0)) * self.rng.random()
        ways = self.rng.choice(
            (((host.name, BROKER),), ((BROKER, host.name),), ((host.name, BROKER), (BROKER, host.name)))
        )
        net = self.world.fabric_view
        self.world.note("fault", "held", ways, seconds)
        self._disturb(host, seconds)
        for way in ways:
            net.link(*way).is_held = True
        self.for_a_while(seconds, lambda: net.heal(host.name, BROKER))

    def _silence(self) -> None:
        """What is sent one way vanishes for a while; then the connections turn out to be dead."""
        host = self._some_host()
        if host is None:
            return
        seconds = self.rng.choice((0.5, 3.0, 9.0)) * self.rng.random()
        way = self.rng.choice(((host.name, BROKER), (BROKER, host.name)))
        net = self.world.fabric_view
        self.world.note("fault", "silent", way, seconds)
        self._disturb(host, seconds)
        net.link(*way).is_lossy = True

        def end() -> None:
            net.link(*way).is_lossy = False
            net.cut(host.name, BROKER)

        self.for_a_while(seconds, end)

    def _pieces(self) -> None:
        """Everything arrives in pieces."""
        host = self._some_host()
        if host is None:
            return
        size = self.rng.choice((3, 17, 100))
        net = self.world.fabric_view
        ways = ((host.name, BROKER), (BROKER, host.name))
        self.world.note("fault", "pieces", host.name, size)
        for way in ways:
            net.link(*way).chunk_bytes = size

        def end() -> None:
            for way in ways:
                net.link(*way).chunk_bytes = None

        self.for_a_while(1.0, end)

    def _restart(self) -> None:
        """The broker goes down and comes back, with what it has on its disk."""
        world = self.world
        if world.broker is None:
            return
        down_s = self.rng.choice((0.05, 0.5, 3.0)) * self.rng.random()
        world.stop_broker(self.rng.random() < 0.5)
        self.for_a_while(down_s, lambda: world.broker is None and world.start_broker())

    def _pause(self) -> None:
        """A client's process stands still, and then goes on: its clock has jumped."""
        host = self._some_host()
        if host is None or host.loop.is_paused:
            return
        seconds = self.rng.choice((0.3, 2.0, 12.0)) * self.rng.random()
        self.world.note("fault", "paused", host.name, seconds)
        self._disturb(host, seconds)
        host.loop.pause()
        self.for_a_while(seconds, lambda: None if host.is_dead else host.loop.resume())

    def _broker_pause(self) -> None:
        """The broker's process stands still."""
        loop = self.world.broker_host.loop
        if self.world.broker is None or loop.is_paused:
            return
        seconds = self.rng.choice((0.3, 2.0, 5.0)) * self.rng.random()
        self.world.note("fault", "broker paused", seconds)
        loop.pause()
        self.for_a_while(seconds, loop.resume)

    def _step(self) -> None:
        """Somebody sets a wall clock."""
        host = self.rng.choice((self._some_host(), self.world.broker_host))
        if host is not None:
            seconds = self.rng.choice((-3600.0, -5.0, 5.0, 3600.0))
            self.world.note("fault", "wall clock", host.name, seconds)
            host.loop.clock.step(seconds)  # type: ignore[attr-defined]


EVENTS: Final[dict[str, Callable[[RandomFaults], None]]] = {
    "cut": RandomFaults._cut,
    "hold": RandomFaults._hold,
    "silence": RandomFaults._silence,
    "pieces": RandomFaults._pieces,
    "restart": RandomFaults._restart,
    "pause": RandomFaults._pause,
    "broker pause": RandomFaults._broker_pause,
    "step": RandomFaults._step,
}
