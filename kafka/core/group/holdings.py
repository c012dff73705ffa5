"""What a member of a group of the new protocol holds, and the next step to what the broker told it to hold (KIP-848).

    told(target) ──► Revoke what is not in it ──► Assign all of it whose topics have names ──► nothing left to do
    give_up()    ──► Revoke or Lose all that is held ──► free

One step at a time: the next comes after the last was carried out, and goes by what is wanted then. Topics come by their
ids; those that the cluster's metadata does not name wait in ``unresolved``. When to say anything to the broker is
``consumer.py``'s part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from kafka.core.group.machine import Assign, Lose, Revoke
from kafka.structs import TopicPartition

IdPartition = tuple[UUID, int]
"""Topic id and number. A topic that was deleted and made again has another id, and is another one here."""

Step = Revoke | Lose | Assign


class Holdings:
    """Of one member. ``topic_of_id``: the name of a topic, None while it is unknown."""

    def __init__(self, topic_of_id: Callable[[UUID], str | None]) -> None:
        self.held: Mapping[IdPartition, TopicPartition] = {}
        self.unresolved: frozenset[UUID] = frozenset()
        """Topics of the target without a name, as of the last :meth:`next_step`."""
        self.under_way: Step | None = None
        self._topic_of_id = topic_of_id
        self._target: frozenset[IdPartition] | None = None
        self._announced: frozenset[IdPartition] | None = None  # the target that the last Assign was for
        self._announcing: frozenset[IdPartition] | None = None
        self._giving_up: type[Revoke] | type[Lose] | None = None
        self._next_held: Mapping[IdPartition, TopicPartition] = {}

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """By their names."""
        return frozenset(self.held.values())

    @property
    def claimed(self) -> Mapping[IdPartition, TopicPartition]:
        """What a heartbeat has to list: what is held, and what the user is being given. A list without the latter would
        allow the broker to assign it to another at once."""
        return self._next_held if isinstance(self.under_way, Assign) else self.held

    @property
    def is_free(self) -> bool:
        """Nothing is held, and nothing is being done."""
        return not self.held and self.under_way is None

    @property
    def is_reconciled(self) -> bool:
        """All of the target is held, and nothing else."""
        return self.under_way is None and self._target == self._announced == frozenset(self.held)

    @property
    def is_empty_handed(self) -> bool:
        """Neither is anything held, nor was it told to be."""
        return self.is_free and not self._target

    def told(self, target: frozenset[IdPartition]) -> None:
        """The broker wants exactly this to be held."""
        if target != self._target:
            self._target = target
        self._giving_up = None

    def give_up(self, is_lost: bool) -> None:
        """Hold nothing any more. ``is_lost``: others may hold it already; that counts more than a former word."""
        self._target = self._announced = self._announcing = None
        self.unresolved = frozenset()
        if self._giving_up is None or is_lost:
            self._giving_up = Lose if is_lost else Revoke

    def next_step(self, may_add: bool = True) -> Step | None:
        """What to do now; None while something is being done, and when there is nothing. ``may_add``: the broker has
        confirmed the target, so what is missing may be assigned."""
        if self.under_way is None:
            self.under_way = self._release() if self._target is None else self._reconcile(self._target, may_add)
            return self.under_way
        return None

    def _release(self) -> Step | None:
        giving_up, self._giving_up = self._giving_up, None
        self._next_held = {}
        return None if giving_up is None or not self.held else giving_up(self.owned)

    def _reconcile(self, target: frozenset[IdPartition], may_add: bool) -> Step | None:
        if target is self._announced and len(self.held) == len(target):
            return None
        kept = {each: partition for each, partition in self.held.items() if each in target}
        missing = [each for each in target if each not in kept]
        names = {topic_id: self._topic_of_id(topic_id) for topic_id in {each[0] for each in missing}}
        self.unresolved = frozenset(topic_id for topic_id, name in names.items() if name is None)
        if len(kept) < len(self.held):
            self._next_held = kept
            return Revoke(self.owned - frozenset(kept.values()))
        added = {each: TopicPartition(name, each[1]) for each in missing if (name := names[each[0]]) is not None}
        nothing_new = not added and (target == self._announced or bool(self.unresolved))
        if nothing_new or (added and not may_add):
            return None
        self._announcing = target
        self._next_held = {**kept, **added}
        return Assign(frozenset(self._next_held.values()), frozenset(added.values()))

    def carried_out(self, kind: type[Step]) -> bool:
        """The step that is under way was carried out; False when it is of another kind."""
        if not isinstance(self.under_way, kind):
            return False
        self.under_way = None
        self._announced = self._announcing
        self.held = self._next_held
        return True
