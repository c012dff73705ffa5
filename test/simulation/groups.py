"""Groups of consumers: what has to hold, whatever the protocol, the assignor and the member is.

* Every record is processed at least once, by a member that owned its partition.
* No partition has two owners who both can commit: once a member has been told that a partition is its own, the
  coordinator takes no commit for it from one that was told so earlier.
* Committed offsets never go back.
* Of each member: a partition is assigned, then revoked or lost, then perhaps assigned again; never twice the same.
* After the faults all partitions are owned by living members, each by one, all is processed and committed, and
  everybody can leave.

:class:`GroupStory` makes the world; who the members are is ``consumers.py``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar
from uuid import UUID

from kafka.broker.responses import ConnectionContext
from kafka.errors import FencedInstanceIdError, UnreleasedInstanceIdError
from kafka.protocol.topics import CreatePartitionsRequest
from kafka.structs import TopicPartition
from test.simulation.world import Host, Story, World

GROUP = "g"
TOPICS = ("t", "u")
OFFSET_COMMIT = 8


class GroupMember:
    """What the story knows of one member, which is told of by the ``told_`` methods."""

    def __init__(self, story: GroupStory, host: Host, instance_id: str | None) -> None:
        self.story = story
        self.host = host
        self.name = host.name
        self.instance_id = instance_id
        self.owned: dict[TopicPartition, float] = {}
        """Since when it has been told that these are its own."""
        self.last_owned: dict[TopicPartition, float] = {}
        self.is_closing = False
        self.has_left = False
        self.topics: tuple[str, ...] = ()
        self.is_fenced = False
        self.is_trying_again = False

    @property
    def is_living(self) -> bool:
        return not (self.host.is_dead or self.is_closing or self.is_fenced)

    # -- what the consumer tells ---------------------------------------------------------------------------------------

    def told_assigned(self, added: Iterable[TopicPartition]) -> None:
        story = self.story
        for partition in sorted(added):
            if partition in self.owned:
                story.world.violate(f"{partition} is assigned to {self.name} twice")
            self.owned[partition] = self.last_owned[partition] = story.world.now
        story.world.note("assigned", self.name, names(self.owned), "added", names(added))

    def told_gone(self, partitions: Iterable[TopicPartition], how: str) -> None:
        story = self.story
        story.world.note(how, self.name, names(partitions))
        for partition in partitions:
            if self.owned.pop(partition, None) is None:
                story.world.violate(f"{partition} is {how} by {self.name}, which did not own it")

    def told_error(self, error: BaseException) -> None:
        """A report, or what a poll raised."""
        story = self.story
        if isinstance(error, UnreleasedInstanceIdError) and self.instance_id is not None:
            # The place is another's still. Fatal, as with Java; this user tries again.
            if not self.is_trying_again:
                story.world.note("error", self.name, error)
                self.is_trying_again = True
                self.host.loop.call_later(2.0, self.try_again)
            return
        story.world.note("error", self.name, error)
        if isinstance(error, FencedInstanceIdError) and self.instance_id is not None:
            self.is_fenced = True
            if not any(each.instance_id == self.instance_id and each is not self for each in story.members):
                story.world.violate(f"{self.name} is fenced, and nobody has taken its place")
            elif story.is_calm:
                story.have_somebody()
        else:
            story.world.violate(f"{self.name}: {error!r}")

    def try_again(self) -> None:
        self.is_trying_again = False
        if self.is_living:
            self.subscribe(self.topics)

    def processed(self, partition: TopicPartition, offset: int) -> None:
        """A record has been worked on."""
        story = self.story
        if partition not in self.owned:
            story.world.violate(f"{self.name} works on {partition} {offset}, and does not own it")
        story.processed.setdefault(partition, set()).add(offset)

    # -- what the story wants ------------------------------------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...]) -> None:
        raise NotImplementedError

    def be_slow(self, seconds: float) -> None:
        """Do not poll for so long: a handler that takes its time."""
        raise NotImplementedError

    def leave(self) -> None:
        """In good order; :attr:`has_left` when it is over."""
        raise NotImplementedError


class GroupStory(Story):
    """See the module."""

    watched: ClassVar[frozenset[int]] = frozenset({OFFSET_COMMIT})
    settles_within_s = 60.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        rng = self.rng
        self.counts = {topic: rng.randint(1, 4) for topic in TOPICS[: rng.choice((1, 1, 2))]}
        self.topic_ids: dict[UUID, str] = {}
        self.members: list[GroupMember] = []
        self.ends: dict[TopicPartition, int] = {}
        self.processed: dict[TopicPartition, set[int]] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.to_produce = rng.randint(10, 40)
        self.is_static = rng.random() < 0.25
        self.session_s = rng.choice((3.0, 6.0))
        self.max_poll_s = rng.choice((4.0, 8.0))
        self.names = 0
        self.is_calm = False

    @property
    def may_grow(self) -> bool:
        """Whether a topic may get more partitions and these are found."""
        return True

    def new_member(self, host: Host, instance_id: str | None) -> GroupMember:
        """A member of this story's kind, not subscribed yet."""
        raise NotImplementedError

    # -- the course ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        world, rng = self.world, self.rng
        for topic, count in self.counts.items():
            self.topic_ids[world.create_topic(topic, count)] = topic
        world.note("topics", self.counts, "static" if self.is_static else "dynamic")
        self.produce()
        for _ in range(rng.randint(1, 3)):
            world.later(rng.choice((0.0, rng.uniform(0.0, 3.0))), self.join)
        for _ in range(rng.choice((0, 1, 2, 4))):
            world.later(rng.uniform(0.5, world.faults.lasts_s), self.change)

    def is_up(self) -> bool:
        return self.world.broker is not None and not self.world.broker_host.loop.is_paused

    def produce(self) -> None:
        world, rng = self.world, self.rng
        if self.to_produce <= 0:
            return
        if self.is_up():
            topic = rng.choice(list(self.counts))
            partition = TopicPartition(topic, rng.randrange(self.counts[topic]))
            count = min(self.to_produce, rng.choice((1, 2, 5)))
            end = self.ends.get(partition, 0)
            values = [b"%d" % (end + number) for number in range(count)]
            first = world.produce(topic, partition.partition, values)
            assert first == end
            self.ends[partition] = end + count
            self.to_produce -= count
            world.note("produced", topic, partition.partition, end, count)
        world.later(rng.choice((0.0, 0.1, 0.5, 2.0)), self.produce)

    def join(self, instance_id: str | None = None, topics: tuple[str, ...] = ()) -> None:
        """A member more. One that takes a static member's place wants the same ``topics``: with others, its place would
        keep the old assignment (KIP-814), so it is with Java."""
        self.names += 1
        if self.is_static and instance_id is None:
            instance_id = f"i{self.names}"
        host = self.world.host(f"c{self.names}")
        self.world.note("joins", host.name, instance_id)
        member = self.new_member(host, instance_id)
        self.members.append(member)
        member.subscribe(topics or self.some_topics())

    def some_topics(self) -> tuple[str, ...]:
        topics = tuple(self.counts)
        return topics if self.rng.random() < 0.8 else (self.rng.choice(topics),)

    def living(self) -> list[GroupMember]:
        return [each for each in self.members if each.is_living]

    def change(self) -> None:
        """A member comes, leaves, dies, is slow, wants other topics; or a topic grows."""
        rng, world = self.rng, self.world
        living = [each for each in self.living() if not each.host.loop.is_paused]
        how = rng.choice(("join", "leave", "die", "vanish", "slow", "subscribe", "grow", "replace"))
        if how == "grow":
            if self.may_grow:
                self.grow()
        elif how == "join" or not living:
            if len(self.living()) < 4:
                self.join()
        else:
            member = rng.choice(living)
            world.note(how, member.name)
            if how == "leave":
                member.leave()
            elif how == "slow":
                member.be_slow(rng.choice((1.0, 1.5 * self.max_poll_s)))
            elif how == "subscribe":
                member.subscribe(self.some_topics())
            elif how == "replace" and self.is_static:
                if rng.random() < 0.7:
                    member.host.die(rng.random() < 0.5)
                self.join(member.instance_id, member.topics)
            else:
                member.host.die(how == "die")

    def grow(self) -> None:
        """A topic gets one partition more."""
        if not self.is_up():
            return
        name = self.rng.choice(list(self.counts))
        self.counts[name] += 1
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=self.counts[name], assignments=None)
        answer: Any = self.world.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=False))
        assert answer.results[0].error_code == 0, answer
        self.world.note("grows", name, self.counts[name])

    def calm(self) -> None:
        while self.to_produce > 0:
            self.produce()
        self.is_calm = True
        self.have_somebody()

    def have_somebody(self) -> None:
        """A member that lives and reads everything. The last one may turn out to be fenced by one that has died."""
        if not self.living():
            self.join()
        self.living()[0].subscribe(tuple(self.counts))

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, count in self.counts.items() for number in range(count)]

    def is_done(self) -> bool:
        for partition, end in self.ends.items():
            if self.committed.get(partition, 0) < end:
                return False
        return not self._unowned()

    def _unowned(self) -> list[str]:
        """The partitions that not exactly one living member owns."""
        owners: dict[TopicPartition, list[str]] = {}
        for member in self.living():
            for partition in member.owned:
                owners.setdefault(partition, []).append(member.name)
        return [
            f"{each} is owned by {owners.get(each)}" for each in self.partitions() if len(owners.get(each, ())) != 1
        ]

    def missing(self) -> str:
        behind = [
            f"{partition} is committed to {self.committed.get(partition)} of {end}"
            for partition, end in self.ends.items()
            if self.committed.get(partition, 0) < end
        ]
        return "; ".join(self._unowned() + behind)

    def close(self) -> Callable[[], bool]:
        living = self.living()
        for member in living:
            member.leave()
        return lambda: all(member.has_left for member in living)

    def check(self) -> None:
        for partition, end in self.ends.items():
            left = set(range(end)) - self.processed.get(partition, set())
            if left:
                self.world.violate(f"nobody has processed {sorted(left)} of {partition}")

    # -- what the coordinator takes ------------------------------------------------------------------------------------

    def on_answer(self, connection: ConnectionContext, request: Any, response: Any) -> None:
        accepted = {
            (topic.topic_id, topic.name, part.partition_index)
            for topic in response.topics
            for part in topic.partitions
            if not part.error_code
        }
        for topic in request.topics:
            name = topic.name or self.topic_ids[topic.topic_id]
            for part in topic.partitions:
                if (topic.topic_id, topic.name, part.partition_index) in accepted:
                    self.on_commit(connection.host, TopicPartition(name, part.partition_index), part.committed_offset)

    def on_commit(self, name: str, partition: TopicPartition, offset: int) -> None:
        """The coordinator has taken a commit."""
        world = self.world
        world.note("committed", name, f"{partition.topic}-{partition.partition}", offset)
        member = next(each for each in self.members if each.name == name)
        since = member.last_owned.get(partition)
        if since is None:
            world.violate(f"{name} has committed {partition}, which it never owned")
            return
        for other in self.members:
            if other is not member and other.owned.get(partition, -1.0) > since:
                world.violate(f"{name} has committed {partition}, which {other.name} owns by now")
        former = self.committed.get(partition, 0)
        if offset < former:
            world.violate(f"{name} has committed {offset} of {partition} behind {former}")
        if offset > self.ends.get(partition, 0):
            world.violate(f"{name} has committed {offset} of {partition}, which ends at {self.ends.get(partition)}")
        missing = set(range(former, offset)) - self.processed.get(partition, set())
        if missing:
            world.violate(f"{name} has committed {offset} of {partition}, and nobody has processed {sorted(missing)}")
        self.committed[partition] = offset


def names(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(f"{topic}{number}" for topic, number in sorted(partitions)) or "-"
