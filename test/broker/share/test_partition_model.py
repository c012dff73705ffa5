"""A share partition against a model that keeps every offset by itself, with restarts from the journal in between."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka.broker.share.partition import SharePartition
from kafka.broker.share.state_store import ShareKey
from kafka.broker.share.states import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AckBatch,
    AcquireMode,
    ShareEvent,
    ShareSettings,
)
from kafka.errors import InvalidRecordStateError, InvalidRequestError
from test.broker.share.memory_journal import MemoryJournal

KEY = ShareKey("g", UUID(int=1), 0)
MEMBERS = st.sampled_from(["a", "b", "c"])


@dataclass
class Offset:
    state: int = AVAILABLE
    count: int = 0
    member: str = ""
    deadline: float = 0.0
    durable: tuple[int, int] | None = None


class SharePartitionAgainstModel(RuleBasedStateMachine):
    @initialize(
        sizes=st.lists(st.integers(1, 7), min_size=1, max_size=40),
        limit=st.integers(2, 6),
        max_locks=st.integers(3, 30),
        rewrite_above=st.sampled_from([0, 3, 1000]),
    )
    def begin(self, sizes: list[int], limit: int, max_locks: int, rewrite_above: int) -> None:
        self.bounds: list[tuple[int, int]] = []
        base = 0
        for size in sizes:
            self.bounds.append((base, base + size - 1))
            base += size
        self.settings = ShareSettings(lock_s=10.0, delivery_limit=limit, max_locks=max_locks)
        self.journal = MemoryJournal(rewrite_above=rewrite_above)
        self.now = 0.0
        self.start = 0
        self.offsets: dict[int, Offset] = {}
        self.open()

    def open(self) -> None:
        store = self.journal.store()
        state = store.load(KEY)
        self.partition = SharePartition(
            state.start_offset if state else 0,
            self.settings,
            lambda start, changes: store.write(KEY, start, changes),
            state.ranges if state else (),
        )
        store.attach(KEY, self.partition)

    # -- the model ---------------------------------------------------------------------------------------------------

    def end(self) -> int:
        return max(self.offsets, default=self.start - 1) + 1

    def settle(self, at: int, state: int) -> None:
        found = self.offsets[at]
        if state == AVAILABLE and found.count >= self.settings.delivery_limit:
            state = ARCHIVED
        found.state, found.member, found.durable = state, "", (state, found.count)

    def advance(self) -> None:
        end = self.end()
        while self.start < end and self.offsets[self.start].state in (ACKNOWLEDGED, ARCHIVED):
            self.start += 1
        self.offsets = {at: found for at, found in self.offsets.items() if at >= self.start}

    # -- what may happen ---------------------------------------------------------------------------------------------

    @rule(
        member=MEMBERS, count=st.integers(1, 12), size=st.integers(1, 10), exact=st.booleans(), reach=st.integers(1, 9)
    )
    def acquire(self, member: str, count: int, size: int, exact: bool, reach: int) -> None:
        end = self.end()
        available = [at for at, found in sorted(self.offsets.items()) if found.state == AVAILABLE]
        offset = self.partition.next_fetch_offset()
        assert offset == (available[0] if available else end)
        has_room = end - self.start < self.settings.max_locks
        assert self.partition.can_acquire() == (bool(available) or has_room)
        fetched = [bounds for bounds in self.bounds if bounds[1] >= offset][:reach]
        taken = self.partition.acquire(
            member,
            fetched,
            fetch_offset=offset,
            max_records=count,
            batch_size=size,
            mode=AcquireMode.RECORD_LIMIT if exact else AcquireMode.BATCH_OPTIMIZED,
            now=self.now,
        )
        assert bool(taken) == (bool(fetched) and (bool(available) or has_room))
        got = [at for found in taken for at in range(found.first, found.last + 1)]
        assert got == sorted(set(got))
        if exact:
            assert len(got) <= count
        if got:
            assert got[0] == offset
        if not has_room:
            assert all(at < end for at in got)
        new = [at for at in got if at >= end]
        if new:
            # New records come without holes, and batches that they begin are in the window as a whole.
            assert new == list(range(end, new[-1] + 1))
            last = next(bounds[1] for bounds in self.bounds if bounds[1] >= new[-1])
            for at in range(end, last + 1):
                self.offsets[at] = Offset()
            if not exact:
                assert new[-1] == last
                assert sum(b[0] <= new[-1] for b in self.bounds if b[1] >= new[0] + count) <= 1
        last_delivery = 0
        for found in taken:
            for at in range(found.first, found.last + 1):
                offset_state = self.offsets[at]
                assert offset_state.state == AVAILABLE
                offset_state.state = ACQUIRED
                offset_state.count += 1
                offset_state.member = member
                offset_state.deadline = self.now + 10.0
                assert offset_state.count == found.delivery_count <= self.settings.delivery_limit
                last_delivery += offset_state.count == self.settings.delivery_limit
        if self.settings.delivery_limit > 2 and last_delivery:
            assert last_delivery == 1

    @rule(member=MEMBERS, data=st.data())
    def acknowledge_something(self, member: str, data: st.DataObject) -> None:
        """Any offsets, good or bad: all of it or nothing."""
        first = data.draw(st.integers(max(0, self.start - 3), self.end() + 1))
        length = data.draw(st.integers(1, 6))
        kinds = st.sampled_from([GAP, ACCEPT, RELEASE, REJECT, RENEW])
        types = data.draw(st.one_of(st.tuples(kinds), st.tuples(*[kinds] * length)))
        self.check_ack(member, first, first + length - 1, types)

    @rule(member=MEMBERS, kind=st.sampled_from([ACCEPT, RELEASE, REJECT, RENEW]), data=st.data())
    def acknowledge_held(self, member: str, kind: int, data: st.DataObject) -> None:
        held = [at for at, found in sorted(self.offsets.items()) if found.member == member]
        if held:
            first = data.draw(st.sampled_from(held))
            last = first
            while last + 1 in held and data.draw(st.booleans()):
                last += 1
            self.check_ack(member, first, last, (kind,))

    def check_ack(self, member: str, first: int, last: int, types: tuple[int, ...]) -> None:
        wanted = [at for at in range(first, last + 1) if at >= self.start]
        good = all(at in self.offsets and self.offsets[at].member == member for at in wanted)
        entries = list(self.journal.entries)
        try:
            event = self.partition.acknowledge(member, [AckBatch(first, last, types)], self.now)
        except (InvalidRecordStateError, InvalidRequestError):
            assert not good
            assert self.journal.entries == entries
            return
        assert good
        before = self.start
        for at in wanted:
            kind = types[at - first] if len(types) > 1 else types[0]
            if kind == RENEW:
                self.offsets[at].deadline = self.now + 10.0
            else:
                states = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}
                self.settle(at, states[kind])
        self.advance()
        assert bool(event & ShareEvent.START_MOVED) == (self.start != before)

    @rule(member=MEMBERS)
    def close_session(self, member: str) -> None:
        self.partition.release(member, self.now)
        for at, found in self.offsets.items():
            if found.member == member:
                self.settle(at, AVAILABLE)
        self.advance()

    @rule(seconds=st.sampled_from([1.0, 4.0, 9.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        expired = [at for at, found in self.offsets.items() if found.member and found.deadline <= self.now]
        deadline = self.partition.next_deadline
        assert deadline is not None or not any(found.member for found in self.offsets.values())
        if expired:
            assert deadline is not None
            assert deadline <= self.now
        event = self.partition.tick(self.now)
        assert bool(event & ShareEvent.LOCK_EXPIRED) == bool(expired)
        for at in expired:
            self.settle(at, AVAILABLE)
        self.advance()

    @rule()
    def restart(self) -> None:
        """Locks are gone, and so is every delivery of which nothing was written."""
        durable = [at for at, found in self.offsets.items() if found.durable is not None]
        end = max(durable, default=self.start - 1) + 1
        known = any(found.durable for found in self.offsets.values()) or self.start > 0
        self.offsets = {at: found for at, found in self.offsets.items() if at < end}
        for found in self.offsets.values():
            state, count = found.durable if found.durable is not None else (AVAILABLE, 0)
            found.state, found.count, found.member = state, count, ""
        assert known or not self.offsets
        self.open()

    @invariant()
    def the_same_everywhere(self) -> None:
        if not hasattr(self, "partition"):
            return
        assert self.partition.start_offset == self.start
        assert self.partition.end_offset == self.end()
        for member in "abc":
            held = [at for run in self.partition.acquired_by(member) for at in range(run.first, run.last + 1)]
            assert held == [at for at, found in sorted(self.offsets.items()) if found.member == member]
        done = sum(found.state in (ACKNOWLEDGED, ARCHIVED) for found in self.offsets.values())
        assert self.partition.delivery_complete_count == done


SharePartitionAgainstModel.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
test_a_share_partition_is_its_offsets_whatever_happens = pytest.mark.filterwarnings("error")(
    SharePartitionAgainstModel.TestCase
)
