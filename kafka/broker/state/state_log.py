"""What the owners of states ask of their internal topic: :class:`~kafka.broker.state.state_topic.StateTopic` is one,
and so is what a test keeps in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Entry = tuple[bytes, "bytes | None"]
"""Key and value of a record."""


class StateLog(Protocol):
    """A topic to append to, and to be read back once."""

    def partition_of(self, key: str) -> int: ...

    def append(self, partition: int, records: Sequence[Entry], *, producer: tuple[int, int] | None = None) -> None: ...

    def replay(
        self,
        on_record: Callable[[int, bytes, bytes | None, tuple[int, int] | None], None],
        on_marker: Callable[[int, int, int, bool], None],
    ) -> None: ...

    def when_deleted(self, callback: Callable[[], None]) -> None: ...


class RenewableStateLog(StateLog, Protocol):
    """One whose partitions may begin anew when most of what they hold is outdated."""

    def should_begin_anew(self, partition: int) -> bool: ...

    def begin_anew(self, partition: int, holding: Sequence[Entry]) -> None: ...
