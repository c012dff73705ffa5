"""In-flight batches of a share partition: ranges of offsets, split only where their states differ.

    InFlightBatch 100..199      what one acquire took, along the borders of producers' batches
      Run 100..149 ACKNOWLEDGED
      Run 150..150 ACQUIRED by "m1", delivery 2, until 12.5
      Run 151..199 AVAILABLE, delivery 1

A batch that is handled as a whole has one run, so that its cost does not depend on how many records it has. The batch's
own borders stay as they were taken: Apache Kafka's throttled redelivery counts in parts of that size.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka.broker.share.states import ACKNOWLEDGED, ARCHIVED, AVAILABLE

NO_MEMBER = ""


class Run:
    """Neighbouring offsets in one state. ``deadline``: when the lock ends, in monotonic s; only while ACQUIRED."""

    __slots__ = ("count", "deadline", "first", "last", "member", "state")

    def __init__(
        self, first: int, last: int, state: int, count: int, member: str = NO_MEMBER, deadline: float = 0.0
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member = member
        self.deadline = deadline

    @property
    def is_terminal(self) -> bool:
        return self.state == ACKNOWLEDGED or self.state == ARCHIVED

    def __repr__(self) -> str:
        return f"Run({self.first}..{self.last} state={self.state} count={self.count} member={self.member!r})"


class InFlightBatch:
    """Offsets ``first`` to ``last``, covered by ``runs`` without holes, in order."""

    __slots__ = ("first", "last", "runs")

    def __init__(self, first: int, last: int, runs: list[Run]) -> None:
        self.first = first
        self.last = last
        self.runs = runs

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """The runs that have an offset in ``first`` to ``last``, uncut."""
        for run in self.runs:
            if run.last < first:
                continue
            if run.first > last:
                return
            yield run

    def cut(self, first: int, last: int) -> list[Run]:
        """Cut the runs at the borders of ``first`` to ``last``, and give those inside."""
        runs = self.runs
        if len(runs) == 1 and runs[0].first >= first and runs[0].last <= last:
            return runs[:]
        inside: list[Run] = []
        whole: list[Run] = []
        for run in runs:
            if run.last < first or run.first > last:
                whole.append(run)
                continue
            if run.first < first:
                whole.append(_piece(run, run.first, first - 1))
            middle = _piece(run, max(run.first, first), min(run.last, last))
            whole.append(middle)
            inside.append(middle)
            if run.last > last:
                whole.append(_piece(run, last + 1, run.last))
        self.runs = whole
        return inside

    def join(self) -> None:
        """Put neighbours of one kind together again; terminal ones whatever their delivery counts were."""
        runs = self.runs
        if len(runs) < 2:
            return
        joined = [runs[0]]
        for run in runs[1:]:
            before = joined[-1]
            if before.state == run.state and (
                run.state in (ACKNOWLEDGED, ARCHIVED)
                or (
                    before.count == run.count
                    and (run.state == AVAILABLE or (before.member == run.member and before.deadline == run.deadline))
                )
            ):
                before.last = run.last
            else:
                joined.append(run)
        self.runs = joined

    @property
    def is_terminal(self) -> bool:
        return all(run.is_terminal for run in self.runs)


def _piece(run: Run, first: int, last: int) -> Run:
    return Run(first, last, run.state, run.count, run.member, run.deadline)
