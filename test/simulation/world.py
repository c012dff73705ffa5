"""One world: a loop on simulated time, a network in memory, the embedded broker's machine, and a story that happens.

    begin -> faults for some seconds -> calm -> everything the story waits for, within a bound -> close -> check

The story's members live on hosts of their own (``hosts.py``), each with a KafkaClient of its own; what goes wrong
between them and the broker is ``random_faults.py``'s. Everything of note goes into the trace, whose end a failing
seed shows. What the package logs as an error is a failure too.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from kafka.broker.broker import Broker
from kafka.broker.error_places import ErrorResponse
from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.broker.server import BrokerServer
from kafka.client.kafka_client import KafkaClient
from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.protocol.configs import IncrementalAlterConfigsRequest
from kafka.protocol.framing import ReceivedRequest, UnknownRequest
from kafka.protocol.produce import ProduceRequest
from kafka.protocol.topics import CreateTopicsRequest
from kafka.records import RecordBatchBuilder
from kafka.records.builder import HeaderItems
from kafka.wire.message import Request, Response
from test.simulation.hosts import HostLoop
from test.simulation.replies import hand_over, passed_on
from test.simulation.trace import shown

R = TypeVar("R", bound=Response)

BROKER = "broker"
PORT = 9092
KEPT_EVENTS = 60
MOST_TURNS = 5000
"""At one simulated instant: more, and something runs in a circle."""
CLOSE_S = 30.0
"""How long a good end of all members may take."""

CLIENT_SETTINGS: dict[str, Any] = {
    "request_timeout_ms": 3000,
    "socket_connection_setup_timeout_ms": 1500,
    "socket_connection_setup_timeout_max_ms": 3000,
    "reconnect_backoff_max_ms": 1000,
    "metadata_max_age_ms": 60_000,
    "allow_auto_create_topics": False,
}
BROKER_SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1500",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "auto.create.topics.enable": "false",
}


class Host:
    """A machine in the world, and what it is called."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.world = world
        ahead_s = world.rng.randrange(1_000_000)
        self.loop = HostLoop(world.loop, ahead_s)
        self.network = MemoryNetwork(self.loop, name, _fabric=world.fabric)
        self.is_dead = False
        self.disturbed_until = -1.0
        """Until then it may not hear what the network tells it."""

    def client(self, **configs: Any) -> KafkaClient:
        """A client of the broker on this host."""
        settings = {**CLIENT_SETTINGS, "client_id": self.name, **configs}
        return KafkaClient(
            loop=self.loop,
            network=self.network,
            rng=random.Random(self.world.rng.getrandbits(64)),
            all_topics=False,
            bootstrap_servers=f"{BROKER}:{PORT}",
            **settings,
        )

    def die(self, is_heard: bool) -> None:
        """End without a word. ``is_heard``: the system closes the connections; else the machine itself has gone."""
        self.is_dead = True
        self.loop.pause()
        if is_heard:
            self.world.fabric_view.cut(self.name, BROKER)


class Story:
    """What happens in a world, and what has to hold. One kind of simulation each."""

    kind: ClassVar[str] = ""
    watched: ClassVar[frozenset[int]] = frozenset()
    """API keys whose requests and answers :meth:`on_answer` sees."""
    allowed_errors: ClassVar[tuple[str, ...]] = ()
    """Parts of texts that may be logged as errors."""
    settles_within_s: ClassVar[float] = 60.0
    """From the end of the faults to :meth:`is_done`."""

    closes_within_s: ClassVar[float] = CLOSE_S
    """How long a good end of all members may take."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng

    def begin(self) -> None:
        """Make topics and members."""
        raise NotImplementedError

    def calm(self) -> None:
        """The faults are over: leave enough members to finish the work."""

    def is_done(self) -> bool:
        """What has to come about has come about."""
        raise NotImplementedError

    def missing(self) -> str:
        """What has not, for people."""
        return "not done"

    def close(self) -> Callable[[], bool]:
        """Begin to end all members in good order; the result says whether they have ended."""
        return lambda: True

    def check(self) -> None:
        """A last look at everything."""

    def on_request(self, connection: ConnectionContext, received: ReceivedRequest) -> ErrorResponse | None:
        """The broker has got a request. The error that it answers instead of handling it; None: it does."""
        return None

    def on_fault(self, connection: ConnectionContext, received: ReceivedRequest | UnknownRequest) -> None:
        """A request is hit by a fault on its way, or its answer will be."""

    def on_answer(self, connection: ConnectionContext, request: Any, response: Any) -> None:
        """The broker has answered a request of :attr:`watched`, whether or not the answer arrives."""

    def on_disconnected(self, connection: ConnectionContext) -> None:
        """The broker knows that a connection has ended."""

    def on_broker_gone(self) -> None:
        """The broker went down: what it had in memory is lost."""


class World:
    """See the module. ``directory`` is the world's own."""

    def __init__(self, kind: str, seed: int, directory: str, *, keeps_all: bool = False) -> None:
        self.kind = kind
        self.seed = seed
        self.rng = random.Random(f"{kind}:{seed}")
        self.loop = Loop.simulated()
        self.trace: deque[tuple[Any, ...]] = deque(maxlen=None if keeps_all else KEPT_EVENTS)
        self.events = 0
        self.violations: list[str] = []
        self.digest = hashlib.sha256() if keeps_all else None
        self.fabric_view = MemoryNetwork(self.loop, "world")
        self.fabric = self.fabric_view._fabric
        self.hosts: dict[str, Host] = {}
        self.is_stormy = False
        self.broker_host = Host(self, BROKER)
        self._directory = directory
        self._initial_offsets = 0
        self._internal = ConnectionContext()
        self.broker: Broker | None = None
        self.server: BrokerServer | None = None
        self.gone: set[int] = set()
        """Numbers of connections that have ended at the broker."""
        from test.simulation.random_faults import RandomFaults  # it knows the world

        self.faults = RandomFaults(self)
        self.story: Story | None = None
        self.start_broker()

    # -- what is told --------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.loop.time()

    def note(self, *what: Any) -> None:
        """Put an event into the trace."""
        self.events += 1
        event = (self.loop.time(), *what)
        self.trace.append(event)
        if self.digest is not None:
            self.digest.update(shown(event).encode())

    def violate(self, text: str) -> None:
        """Something does not hold. The world stops."""
        self.note("VIOLATION", text)
        self.violations.append(text)

    def later(self, delay_s: float, action: Callable[..., object], *args: object) -> None:
        """Let something happen, whoever is paused."""
        self.loop.call_later(delay_s, self._act, action, args)

    def _act(self, action: Callable[..., object], args: tuple[object, ...]) -> None:
        try:
            action(*args)
        except Exception:
            self.violate(f"an error in the story: {traceback.format_exc()}")

    # -- the course of things ------------------------------------------------------------------------------------------

    def run(self, story: Story) -> None:
        """Let ``story`` happen, until its end or the first violation."""
        self.story = story
        story.begin()
        self.is_stormy = True
        self.faults.begin()
        self._run_until(lambda: False, self.faults.lasts_s)
        self.is_stormy = False
        self.faults.end()
        self.note("calm")
        story.calm()
        if not self._run_until(story.is_done, story.settles_within_s):
            self.violate(f"not within {story.settles_within_s:g} s of calm: {story.missing()}")
            return
        if self.violations:
            return
        self.note("closing")
        has_ended = story.close()
        if not self._run_until(has_ended, story.closes_within_s):
            self.violate(f"the members did not end within {story.closes_within_s:g} s")
        elif not self.violations:
            story.check()

    def _run_until(self, done: Callable[[], object], seconds: float) -> bool:
        violations, loop = self.violations, self.loop
        turns, instant = 0, -1.0

        def is_over() -> object:
            nonlocal turns, instant
            turns += 1
            if loop.time() != instant:
                turns, instant = 0, loop.time()
            elif turns > MOST_TURNS:
                self.violate(f"{MOST_TURNS} turns of the loop at one instant")
            return violations or done()

        return loop.run_until(is_over, seconds)

    def close(self) -> None:
        """Let go of everything."""
        for host in self.hosts.values():
            host.loop.is_paused = host.loop.is_over = True  # nothing of it may run any more
        if self.server is not None:
            self.server.close()
        if self.broker is not None:
            self.broker.close()
        self.loop.close()

    # -- the broker ----------------------------------------------------------------------------------------------------

    def start_broker(self) -> None:
        """On what the last one has left."""
        self._initial_offsets += 1
        loop = self.broker_host.loop
        loop.resume()
        clock = loop.clock
        broker = Broker(
            os.path.join(self._directory, str(self._initial_offsets)),
            BROKER_SETTINGS,
            fsync="never",
            now=clock.monotonic(),
            epoch_offset=clock.time() - clock.monotonic(),
            rng=random.Random(self.rng.getrandbits(64)),
        )
        self._disconnected = broker.disconnected
        broker.handle = self._handle  # type: ignore[method-assign]
        broker.disconnected = self._on_disconnected  # type: ignore[method-assign]
        self.broker = broker
        self.server = BrokerServer(broker, self.broker_host.network, BROKER, PORT)
        self.note("broker is up")

    def stop_broker(self, is_killed: bool) -> None:
        """All connections end. ``is_killed``: what the process had not handed to the system is lost."""
        broker, server = self.broker, self.server
        if broker is None or server is None:
            return
        self.note("broker is down", "killed" if is_killed else "stopped")
        here, there = (
            os.path.join(self._directory, str(number)) for number in (self._initial_offsets, self._initial_offsets + 1)
        )
        if is_killed:
            shutil.copytree(here, there)
        self.broker = self.server = None
        server.close()
        broker.close()
        if not is_killed:
            os.rename(here, there)
        for name in self.hosts:
            self.fabric_view.cut(name, BROKER)
        if self.story is not None:
            self.story.on_broker_gone()

    def _on_disconnected(self, connection: ConnectionContext, now: float) -> None:
        self.gone.add(connection.number)
        self._disconnected(connection, now)
        if self.story is not None:
            self.story.on_disconnected(connection)

    def _handle(
        self, connection: ConnectionContext, received: ReceivedRequest | UnknownRequest, now: float
    ) -> PendingResponse:
        """Broker.handle, with faults before and behind it."""
        broker, story = self.broker, self.story
        assert broker is not None
        fault = self.faults.on_request(received) if self.is_stormy else None
        if fault is not None:
            self.note("fault", fault.name, type(getattr(received, "request", None)).__name__, connection.host)
            if story is not None:
                story.on_fault(connection, received)
            if not fault.is_handled:
                return fault.reply(PendingResponse.hanging_up(), self)
            if fault.waits_before:
                shown = PendingResponse()
                self.later(fault.seconds, self._handle_late, broker, connection, received, shown)
                return shown
        refusal: ErrorResponse | None = None
        if story is not None and isinstance(received, ReceivedRequest):
            refusal = story.on_request(connection, received)
        if refusal is None:
            reply = broker.handle_without_faults(connection, received, now)
        else:
            reply = PendingResponse.of(refusal.response())
        if story is not None and isinstance(received, ReceivedRequest) and received.request.api_key in story.watched:
            reply = passed_on(reply, lambda done: self._answered(connection, received, done))
        return reply if fault is None else fault.reply(reply, self)

    def _handle_late(
        self, broker: Broker, connection: ConnectionContext, received: Any, shown: PendingResponse
    ) -> None:
        if self.broker is not broker or connection.number in self.gone:
            return
        reply = broker.handle_without_faults(connection, received, self.broker_host.loop.time())
        story = self.story
        if story is not None and isinstance(received, ReceivedRequest) and received.request.api_key in story.watched:
            reply = passed_on(reply, lambda done: self._answered(connection, received, done))
        if reply.done:
            hand_over(reply, shown)
        else:
            reply.call_when_done(lambda done: hand_over(done, shown))
        assert self.server is not None
        self.server.end_turn()

    def _answered(self, connection: ConnectionContext, received: ReceivedRequest, done: PendingResponse) -> None:
        if done.response is not None and self.story is not None:
            self.story.on_answer(connection, received.request, done.response)

    # -- what the world does itself, past the network ------------------------------------------------------------------

    def ask(self, request: Request[R], version: int | None = None) -> R:
        """Ask the broker, which has to be up; it answers at once."""
        assert self.broker is not None
        assert self.server is not None
        from kafka.broker.registry import load

        version = load()[request.api_key].max_version if version is None else version
        received = ReceivedRequest(request, version, 1, "world")
        reply = self.broker.handle_without_faults(self._internal, received, self.broker_host.loop.time())
        self.server.end_turn()
        if not reply.done:
            self.broker.tick(self.broker_host.loop.time())
        assert reply.done
        response: Any = reply.response
        return response  # type: ignore[no-any-return]

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] = {}) -> UUID:  # noqa: B006
        own = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=own
        )
        answer: Any = self.ask(CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0, answer
        found: UUID = answer.topics[0].topic_id
        return found

    def configure_group(self, group_id: str, **settings: object) -> None:
        configs = [
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=name.replace("_", "."), config_operation=0, value=str(value)
            )
            for name, value in settings.items()
        ]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=32, resource_name=group_id, configs=configs
        )
        answer: Any = self.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        assert answer.responses[0].error_code == 0, answer

    def produce(self, topic: str, partition: int, values: list[bytes]) -> int:
        """Append one batch; its first offset. As a producer does that no fault reaches."""
        return self.append(topic, partition, [(None, value, None) for value in values])

    def append(
        self, topic: str, partition: int, records: Sequence[tuple[bytes | None, bytes, HeaderItems | None]]
    ) -> int:
        """The same with keys and headers."""
        builder = RecordBatchBuilder(1 << 20)
        assert self.broker is not None
        timestamp = self.broker.epoch_ms()
        for key, value, headers in records:
            builder.append(timestamp, key, value, headers)
        data = ProduceRequest.TopicProduceData(
            name=topic,
            partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=builder.build(-1, -1, -1))],
        )
        answer: Any = self.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
        part = answer.responses[0].partition_responses[0]
        assert part.error_code == 0, part
        offset: int = part.base_offset
        return offset

    def host(self, name: str) -> Host:
        """A new machine."""
        host = self.hosts[name] = Host(self, name)
        self.faults.joined(host)
        return host
