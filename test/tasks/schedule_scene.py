"""A schedule on a broker: its topics, owners whose loops the test drives, commands, and what becomes of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.client import KafkaClient
from kafka.net.loop import Loop
from kafka.net.transport import Network
from kafka.structs import ConsumerGroupMetadata, TopicPartition
from kafka.tasks import App
from kafka.tasks.backends.kafka.admin import new_topic
from kafka.tasks.backends.kafka.publisher import KafkaPublisher
from kafka.tasks.backends.kafka.schedule_owner import OwnerStage, PartitionOwner
from kafka.tasks.backends.kafka.schedule_owners import ScheduleOwners
from kafka.tasks.format.commands import CommandRecord, encode_command, partition_of_job, put_headers
from kafka.tasks.format.envelope import Header
from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.topics import TopicDefaults, cancelled_plan, schedule_plans
from test.support.cut_network import API_VERSIONS, FETCH, CutNetwork
from test.support.waiting import until

TURN_S = 0.002


class OwnerProcess:
    """A client on a loop of its own, which runs only when the test drives it, and a member of the schedule's group. To
    be killed is to be driven no more."""

    def __init__(self, scene: Scene, loop: Loop | None = None, network: Network | None = None) -> None:
        self.loop = loop or Loop()
        self.is_alive = True
        client_id = f"owner{len(scene.processes)}"
        self.client = KafkaClient(
            bootstrap_servers=scene.bootstrap,
            loop=self.loop,
            network=network,
            client_id=client_id,
            all_topics=False,
            allow_auto_create_topics=False,
        )
        clock = scene.app.backend().clock
        settings, names = scene.app.settings, scene.app.names
        publisher = KafkaPublisher(self.client, settings, clock, names.results)
        self.member = ScheduleOwners(self.client, names, settings, clock, scene.partitions, publisher.learn_time)

    def turn(self) -> None:
        if self.is_alive:
            self.loop.run_once(TURN_S)

    def close(self) -> None:
        self.client.close()
        self.loop.close()


class AssignedSource:
    """Commands of one partition without a group: two owners may believe that it is theirs."""

    def __init__(self, client: KafkaClient, scene: Scene, partition: int = 0) -> None:
        names = scene.app.names
        self._group = names.commands
        self._place = TopicPartition(names.commands, partition)
        self.owner: PartitionOwner | None = None
        make: Callable[..., Any] = KafkaConsumer
        self.consumer = make(client=client, on_records=self._on_records, auto_offset_reset="earliest")
        self.consumer.assign([self._place])
        self.consumer.pause(self._place)

    def _on_records(self, records: Any) -> None:
        if self.owner is not None:
            for found in records.values():
                self.owner.add(found)

    def membership(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self._group)

    def seek(self, partition: int, offset: int | None) -> None:
        if offset is None:
            self.consumer.seek_to_beginning(self._place)
        else:
            self.consumer.seek(self._place, offset)

    def set_paused(self, partition: int, is_paused: bool) -> None:
        (self.consumer.pause if is_paused else self.consumer.resume)(self._place)


class LoneOwner(OwnerProcess):
    """An owner of partition 0 outside of any group. After ``last_request`` requests (fetches of commands do not count)
    it is as if killed: it sends nothing more, and sees no answer."""

    def __init__(self, scene: Scene, last_request: int | None = None) -> None:
        loop = Loop()
        self._network = CutNetwork(loop, last_request, self._counts)
        super().__init__(scene, loop, self._network)
        self._source = source = AssignedSource(self.client, scene)
        context = self.member._context
        self.owner = source.owner = PartitionOwner(context, 0, source)
        self.owner.start()

    @property
    def request_count(self) -> int:
        return self._network.request_count

    def turn(self) -> None:
        super().turn()
        self.is_alive = self.is_alive and not self._network.has_arrived

    def close(self) -> None:
        self.owner.drop()
        self._source.consumer.close_async()
        super().close()
        self._network.close()

    def _counts(self, api_key: int) -> bool:
        owner: PartitionOwner | None = getattr(self, "owner", None)
        if api_key == FETCH:
            return owner is None or owner.stage is not OwnerStage.RUNNING
        return api_key != API_VERSIONS


class Scene:
    """See the module. Its queue is ``mail``."""

    def __init__(self, bootstrap: str, name: str, partitions: int = 1) -> None:
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.app = App(name, bootstrap_servers=bootstrap, partitions=partitions)
        self.names = self.app.names
        self.backend: Any = self.app.backend()
        self.backend.route("mail", True)
        shape = TopicDefaults(partitions=partitions)
        plans = [*schedule_plans(self.names, shape), cancelled_plan(self.names, shape)]
        with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([new_topic(plan) for plan in plans], wait_for_metadata=True)
        self.processes: list[OwnerProcess] = []
        self.moved: list[str] = []  # ids, as read from the topic of due jobs
        self.moved_at: dict[str, int] = {}
        self.answers: list[tuple[str, dict[str, Any]]] = []  # request and answer
        self.states: list[tuple[str, str]] = []  # id and state
        self._producer = KafkaProducer(bootstrap_servers=bootstrap)
        topics = [self.names.due("mail"), self.names.results, self.names.late]
        options: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        self._reader = KafkaConsumer(*topics, bootstrap_servers=bootstrap, **options)
        self._count = 0

    # -- owners -------------------------------------------------------------------------------------------------------

    def start(self) -> OwnerProcess:
        """A process that may become a member of the group."""
        process = OwnerProcess(self)
        self.processes.append(process)
        return process

    def join(self) -> OwnerProcess:
        """A member of the group, from now on."""
        process = self.start()
        process.member.start()
        return process

    def own(self, last_request: int | None = None) -> LoneOwner:
        """An owner of partition 0 outside of the group."""
        process = LoneOwner(self, last_request)
        self.processes.append(process)
        return process

    def owner(self) -> PartitionOwner:
        """The owner outside of the group that was made last."""
        found = self.processes[-1]
        assert isinstance(found, LoneOwner)
        return found.owner

    def turn(self) -> None:
        """Drive those that live, and read."""
        for process in self.processes:
            process.turn()
        for place, records in self._reader.poll(0).items():
            for record in records:
                headers = dict(record.headers)
                if place.topic == self.names.due("mail"):
                    job_id = (headers["id"] or b"").decode()
                    self.moved.append(job_id)
                    self.moved_at[job_id] = record.timestamp
                elif record.key is not None:
                    self._note_state(record.key.decode(), headers, record.value)

    def _note_state(self, job_id: str, headers: dict[str, Any], value: bytes) -> None:
        state = headers["state"].decode()
        if state == "SUCCESS":
            self.answers.append((job_id, json.loads(value)))
        else:
            self.states.append((job_id, state))

    def until(self, condition: Callable[[], object], what: str = "", **options: Any) -> None:
        """Drive everything until the condition holds."""
        until(condition, what, meanwhile=self.turn, shown=self.shown, **options)

    def shown(self) -> object:
        return self.moved, self.answers, self.states, [process.member.snapshot() for process in self.processes]

    # -- commands -----------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        now: int = self.backend.clock.now_ms()
        return now

    def new_id(self, at_ms: int | None = None) -> str:
        self._count += 1
        return make_id(self.now_ms() if at_ms is None else at_ms, 0, self._count.to_bytes(8, "big"))

    def put(
        self,
        delay_s: float = 0.0,
        queue: str = "mail",
        generation: int = 1,
        job_id: str | None = None,
        value: bytes = b"{}",
    ) -> str:
        """A job that is due after so long; its id."""
        due_ms = self.now_ms() + int(delay_s * 1000)
        job_id = job_id or self.new_id(due_ms)
        own: list[Header] = [("name", b"send"), ("id", job_id.encode()), ("generation", b"%d" % generation)]
        self.send(job_id, value, put_headers(queue, None, due_ms, own))
        return job_id

    def ask(self, kind: str, job_id: str, due_ms: int | None = None) -> str:
        """Send a command that is answered; its request."""
        request = self.new_id()
        record = encode_command(kind, job_id, request=request, due_ms=due_ms)
        self.send(job_id, record.value, record.headers)
        return request

    def send(self, job_id: str, value: bytes, headers: list[Header]) -> None:
        partition = partition_of_job(job_id, self.partitions)
        self._producer.send(self.names.commands, value, job_id.encode(), headers, partition)

    def send_entry(self, record: CommandRecord) -> None:
        """Send a command about an entry; there is one partition."""
        self._producer.send(self.names.commands, record.value, record.key, record.headers, 0)

    def answers_to(self, request: str) -> list[dict[str, Any]]:
        return [answer for of, answer in self.answers if of == request]

    def count_moved(self) -> Counter[str]:
        return Counter(self.moved)

    def close(self) -> None:
        for process in self.processes:
            process.close()
        self._producer.close()
        self._reader.close()
        self.app.close()
