"""All timeouts of all groups in one heap, by group, kind and member.

    timers.of("g").set(GroupTimeout.SESSION, "member-1", 12.5)      there is one of a kind for a member: this one now
    timers.pop_due(now) -> [("g", GroupTimeout.SESSION, "member-1")]

Setting one later costs no heap operation: the entry that is there comes up too early, once, and is put back.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

from kafka.net.loop import Timer, TimerHeap

K = TypeVar("K", bound=Hashable)


class DeadlineHeap(Generic[K]):
    """A deadline (monotonic s) for each of many names, and which comes next.

        at_latest("g", 12.5)     add a deadline, or move it to an earlier instant
        pop_due(now)             the names that are due; an owner that still waits adds its next deadline again

    An owner whose deadline has moved to a later instant does nothing: it is called too early, once, and then adds the
    new one. So 2,000 share partitions whose locks come and go with every fetch cost one comparison for each lock, not a
    scan for each tick."""

    __slots__ = ("_heap", "_timers")

    def __init__(self) -> None:
        self._heap: TimerHeap[K] = TimerHeap()
        self._timers: dict[K, Timer[K]] = {}

    def __len__(self) -> int:
        return len(self._timers)

    @property
    def next_at(self) -> float | None:
        """The earliest deadline of all, or None."""
        return self._heap.next_when()

    def at_latest(self, name: K, when: float | None) -> None:
        """Call ``name`` at ``when`` (monotonic s; None: nothing changes) or before."""
        if when is None:
            return
        timer = self._timers.get(name)
        if timer is not None:
            if timer.when <= when:
                return
            timer.cancel()
        self._timers[name] = self._heap.push(when, name)

    def pop_due(self, now: float) -> list[K]:
        """Remove the names that are due, the earliest first."""
        due: list[K] = []
        while (timer := self._heap.pop_due(now)) is not None:
            if timer.item is not None:
                due.append(timer.item)
                del self._timers[timer.item]
        return due

    def discard(self, name: K) -> None:
        """Forget a name, if it is there."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


class GroupTimeout(Enum):
    """The kinds of timeouts."""

    SESSION = "session"
    """A member sent nothing. Also for a classic member that was sent an id and did not join again with it."""
    JOIN = "join"
    """A classic group's join phase (no member)."""
    SYNC = "sync"
    """A classic group's sync phase (no member)."""
    REVOKE = "revoke"
    """A consumer member did not revoke its partitions."""
    MEMBER_JOIN = "member join"
    """A classic member of a consumer group did not join again when it should."""
    MEMBER_SYNC = "member sync"
    """A classic member of a consumer group did not fetch its assignment."""


Key = tuple[str, GroupTimeout, str]
"""Group, kind, member id (empty: the group's own)."""


class GroupTimers:
    """The timeouts of all groups."""

    def __init__(self) -> None:
        self._when: dict[str, dict[Key, float]] = {}
        """By group: one that ends takes its own along, and looks at no others."""
        self._deadlines: DeadlineHeap[Key] = DeadlineHeap()

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`pop_due` next at the latest, in monotonic s."""
        return self._deadlines.next_at

    def of(self, group_id: str) -> MemberTimers:
        """One group's share of them."""
        return MemberTimers(self, group_id)

    def set(self, key: Key, when: float) -> None:
        self._when.setdefault(key[0], {})[key] = when
        self._deadlines.at_latest(key, when)

    def when(self, key: Key) -> float | None:
        return self._when.get(key[0], {}).get(key)

    def cancel(self, key: Key) -> None:
        if self._take(key) is not None:
            self._deadlines.discard(key)

    def cancel_group(self, group_id: str) -> None:
        """Forget all of a group."""
        for key in self._when.pop(group_id, ()):
            self._deadlines.discard(key)

    def pop_due(self, now: float) -> list[Key]:
        """Remove what is due, the earliest first."""
        due = []
        for key in self._deadlines.pop_due(now):
            when = self._when[key[0]][key]
            if when <= now:
                self._take(key)
                due.append(key)
            else:
                self._deadlines.at_latest(key, when)
        return due

    def _take(self, key: Key) -> float | None:
        of_group = self._when.get(key[0])
        found = of_group.pop(key, None) if of_group is not None else None
        if found is not None and not of_group:
            del self._when[key[0]]
        return found


class MemberTimers:
    """One group's timeouts. Times in monotonic s."""

    __slots__ = ("_group_id", "_timers")

    def __init__(self, timers: GroupTimers, group_id: str) -> None:
        self._timers = timers
        self._group_id = group_id

    def set(self, kind: GroupTimeout, member_id: str, when: float) -> None:
        self._timers.set((self._group_id, kind, member_id), when)

    def set_if_none(self, kind: GroupTimeout, member_id: str, when: float) -> None:
        if self.when(kind, member_id) is None:
            self.set(kind, member_id, when)

    def when(self, kind: GroupTimeout, member_id: str = "") -> float | None:
        return self._timers.when((self._group_id, kind, member_id))

    def cancel(self, kind: GroupTimeout, member_id: str = "") -> None:
        self._timers.cancel((self._group_id, kind, member_id))

    def cancel_member(self, member_id: str) -> None:
        """Forget all of a member."""
        for kind in GroupTimeout:
            self.cancel(kind, member_id)

    def cancel_all(self) -> None:
        self._timers.cancel_group(self._group_id)
