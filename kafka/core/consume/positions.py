"""Where each assigned partition is read, and what of it is buffered.

    AWAITING ──start──► NEEDS RESET or READING
    NEEDS RESET ──asked──► RESETTING ──offset──► READING ──out of range──► NEEDS RESET (or an error, by policy)
         ▲                     │ error: again after a pause    │
         └─────────────────────┘                       seek: READING at once

``position`` is the next offset to hand out, ``fetch_offset`` the next to ask for: what lies between is buffered.
``generation`` goes up with every seek, so that answers to earlier questions are known as such.

What changes a position notes it in :class:`PositionChanges`: the fetcher looks at what has changed and not at a
thousand positions that have not. A new fact that decides whether, where or what is fetched is to call
:meth:`PartitionPosition. touch` when it changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import Final, NamedTuple

from kafka.core.consume.fetched import CompletedFetch, set_error_location
from kafka.structs import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
NO_EPOCH: Final = -1
"""A leader epoch that is not known."""


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition, and its epoch (:data:`NO_EPOCH`: unknown to old brokers)."""

    leader: int
    epoch: int


MAX_INFLATED_BYTES: Final = 32 << 20
"""Of the batches that are being read, when they are more than one."""


class PositionChanges:
    """What happened to positions: ``touched`` since the fetcher last looked; ``ready`` for the reader, in its turn."""

    __slots__ = ("_inflated", "_inflated_bytes", "_max_inflated_bytes", "buffered_bytes", "ready", "touched")

    def __init__(self, max_inflated_bytes: int = MAX_INFLATED_BYTES) -> None:
        self.touched: dict[PartitionPosition, None] = {}
        self.ready: dict[PartitionPosition, None] = {}
        self.buffered_bytes = 0
        """Of all positions."""
        self._inflated: dict[CompletedFetch, int] = {}
        """What has been read from and holds an inflated batch, the longest ago first, and how many bytes of it."""
        self._inflated_bytes = 0
        self._max_inflated_bytes = max_inflated_bytes

    def put_first(self, position: PartitionPosition) -> None:
        """It is the reader's next one."""
        self.ready = {position: None, **self.ready}

    def note_inflated(self, fetched: CompletedFetch, size_bytes: int) -> None:
        """``fetched`` holds so much of an inflated batch now. Beyond :data:`MAX_INFLATED_BYTES` in all, others let go
        of theirs, which are inflated again when they are read on."""
        self._inflated_bytes += size_bytes - self._inflated.pop(fetched, 0)
        if not size_bytes:
            return
        self._inflated[fetched] = size_bytes
        while self._inflated_bytes > self._max_inflated_bytes and len(self._inflated) > 1:
            other = next(iter(self._inflated))
            self._inflated_bytes -= self._inflated.pop(other)
            other.close()


class PartitionPosition:
    """One assigned partition. ``leader_epoch``, ``fetch_epoch``: of the record before ``position``, ``fetch_offset``:
    of the last handed out and the last fetched, or as given to :meth:`seek`; :data:`NO_EPOCH`: not known."""

    __slots__ = (
        "_changes", "_error", "_is_paused", "buffered", "buffered_bytes", "distrusted_epoch", "failures",
        "fetch_epoch", "fetch_offset", "generation", "highwater", "is_awaiting", "is_resetting", "is_validating",
        "last_stable_offset", "leader", "leader_epoch", "log_start_offset", "recheck_at", "node", "partition",
        "position",
        "read_replica", "read_replica_until", "refused_by", "reset_to", "retry_at",
    )  # fmt: skip

    def __init__(self, partition: TopicPartition, changes: PositionChanges) -> None:
        self.partition = partition
        self._changes = changes
        self.position: int | None = None
        self.leader_epoch = NO_EPOCH
        self.fetch_offset: int | None = None
        self.fetch_epoch = NO_EPOCH
        # Goes up with each seek and reset, so that answers to earlier requests are dropped.
        self.generation = 0
        self.reset_to: int | None = None
        """The timestamp to reset to (LATEST, EARLIEST, or ms since the epoch); None: no reset is needed."""
        self.is_awaiting = False
        """The start is not known yet, and must not be reset here: the group's committed offset is being looked up."""
        self.is_resetting = False
        self.is_validating = False
        """Whether the log still has what was read of it is being asked (KIP-320)."""
        self.leader: LeaderAndEpoch | None = None
        """With whom the position is valid."""
        self.distrusted_epoch = NO_EPOCH
        """An epoch of the metadata with which the leader refused us again and again."""
        self.read_replica: int | None = None
        """A node that the leader has sent us to (KIP-392), until ``read_replica_until``."""
        self.read_replica_until = 0.0
        self.node: int | None = None
        """Where it is fetched; None: nowhere now."""
        self._is_paused = False
        self.failures = 0
        """Errors in a row."""
        self.retry_at = 0.0
        self.refused_by: int | None = None
        """The node that does not lead it any more, for which ``retry_at`` holds: another one is not made to wait."""
        self.recheck_at = inf
        """When the fetcher looks at it next, though nothing touched it."""
        self.buffered: deque[CompletedFetch] = deque()
        self.buffered_bytes = 0
        self._error: BaseException | None = None
        self.highwater: int | None = None
        self.last_stable_offset = -1
        self.log_start_offset = -1

    # -- what is read --------------------------------------------------------------------------------------------------

    def seek(self, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Read from ``offset`` on; ``leader_epoch`` is that of the record before it, where it is known: the log is then
        asked first whether it still has that (KIP-320)."""
        self._begin_anew()
        self.reset_to = None
        self.position = self.fetch_offset = offset
        self.leader_epoch = self.fetch_epoch = leader_epoch
        self.touch()

    def seek_validated(self, offset: int, leader_epoch: int) -> None:
        """:meth:`seek`, where the leader has just said that its log has the record before ``offset``."""
        leader = self.leader
        self.seek(offset, leader_epoch)
        self.leader = leader

    def reset(self, timestamp: int) -> None:
        """Find the position by ``timestamp``: :data:`LATEST`, :data:`EARLIEST`, or ms since the epoch."""
        self._begin_anew()
        self.reset_to = timestamp
        self.position = self.fetch_offset = None
        self.leader_epoch = self.fetch_epoch = NO_EPOCH
        self.touch()

    def release(self) -> None:
        """It is assigned no more."""
        self._begin_anew()
        self.reset_to = self.position = self.fetch_offset = None
        self.touch()

    def drop_buffer(self) -> None:
        """Forget what is buffered: it is fetched again."""
        self.generation += 1
        self._empty()
        self.fetch_offset = self.position
        self.fetch_epoch = self.leader_epoch
        self.touch()

    def _begin_anew(self) -> None:
        self.generation += 1
        self.is_awaiting = self.is_resetting = self.is_validating = False
        self.leader = None
        self.failures = 0
        self.retry_at = 0.0
        self._empty()
        self._error = None

    def _empty(self) -> None:
        self._changes.buffered_bytes -= self.buffered_bytes
        for fetched in self.buffered:
            self._changes.note_inflated(fetched, 0)
        self.buffered.clear()
        self.buffered_bytes = 0

    def buffer(self, fetched: CompletedFetch) -> None:
        """An answer has come for the present generation."""
        self.buffered.append(fetched)
        self.buffered_bytes += fetched.size_bytes
        self._changes.buffered_bytes += fetched.size_bytes
        self.fetch_offset = fetched.next_offset
        if fetched.headers and fetched.headers[-1].leader_epoch >= 0:
            self.fetch_epoch = fetched.headers[-1].leader_epoch
        self.touch()

    def read_from(self, fetched: CompletedFetch) -> None:
        """``fetched``, the first that is buffered, was read from."""
        self.position = fetched.position
        if fetched.leader_epoch >= 0:
            self.leader_epoch = fetched.leader_epoch
        self._changes.note_inflated(fetched, fetched.inflated_bytes)
        if fetched.is_exhausted:
            self.buffered.popleft()
            self.buffered_bytes -= fetched.size_bytes
            self._changes.buffered_bytes -= fetched.size_bytes
            self.touch()

    # -- what the fetcher notes ----------------------------------------------------------------------------------------

    def await_start(self) -> None:
        """Where to begin is being looked up (a group's committed offset): neither fetched nor reset before."""
        self.is_awaiting = True

    def end_await(self) -> None:
        """No committed offset was found, or whatever else says where to begin."""
        self.is_awaiting = False

    def begin_reset(self) -> None:
        """The offset of ``reset_to`` is being requested."""
        self.is_resetting = True

    def end_reset(self) -> None:
        """The offset could not be found; :meth:`seek` ends a reset that succeeded."""
        self.is_resetting = False

    def lead_by(self, leader: LeaderAndEpoch, validating: bool) -> None:
        """``leader`` leads from now on; ``validating``: its log is asked first whether it has what was read."""
        self.leader = leader
        self.read_replica = None
        self.is_validating = validating

    def end_validation(self) -> None:
        """The leader has answered, or the position cannot be checked."""
        self.is_validating = False
        self.touch()

    def invalidate(self) -> None:
        """Ask again whether the leader's log has what was read."""
        self.leader = None

    def read_at(self, node: int | None) -> None:
        """It is fetched from ``node``; None: from nowhere now."""
        self.node = node

    def prefer_replica(self, replica: int, until: float) -> None:
        """The leader has sent us to ``replica`` (KIP-392)."""
        self.read_replica = replica
        self.read_replica_until = until
        self.touch()

    def leave_replica(self) -> None:
        """Fetch from the leader again."""
        self.read_replica = None
        self.touch()

    def back_off(self, until: float, refused_by: int | None = None) -> None:
        """One more error in a row: left alone until then, unless ``refused_by`` does not lead it any more by then."""
        self.failures += 1
        self.retry_at = until
        self.refused_by = refused_by
        self.touch()

    def distrust(self, leader_epoch: int) -> None:
        """Fetch without this epoch of the metadata: its leader refuses it again and again."""
        self.distrusted_epoch = leader_epoch

    def note_offsets(self, highwater: int, last_stable_offset: int, log_start_offset: int) -> None:
        """A fetch was answered without an error."""
        self.failures = 0
        self.highwater = highwater
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset

    def recheck_by(self, when: float) -> bool:
        """The fetcher is to look at it then or earlier; whether that is news (else an earlier look is due anyway)."""
        if when >= self.recheck_at:
            return False
        self.recheck_at = when
        return True

    def rechecked(self, now: float) -> None:
        """The fetcher looks at it now."""
        if self.recheck_at <= now:
            self.recheck_at = inf

    def go_on_from(self, position: int | None) -> None:
        """Reading failed behind ``position``: what is buffered is dropped, and fetched again from there."""
        self.position = position
        self.drop_buffer()

    # -- notifications of the fetcher and the reader -------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Nothing is fetched or handed out; what is buffered stays."""
        return self._is_paused

    def pause(self, is_paused: bool = True) -> None:
        """Stop handing out, or go on."""
        self._is_paused = is_paused
        self.touch()

    @property
    def error(self) -> BaseException | None:
        """To be raised to the reader once what is buffered has been read."""
        return self._error

    def set_error(self, error: BaseException | None) -> None:
        """What the reader has to know; None: it does, and reading goes on."""
        self._error = error
        self.touch()

    def fault(self) -> BaseException:
        """The error, to be raised now: it says where it was."""
        assert self._error is not None
        set_error_location(self._error, self.partition, self.fetch_offset)
        return self._error

    @property
    def is_ready(self) -> bool:
        """There is something for the reader, be it an error."""
        return not self._is_paused and (bool(self.buffered) or self._error is not None)

    def touch(self) -> None:
        """Something has changed: the fetcher is to look at it."""
        self._changes.touched[self] = None
        if self.is_ready:
            self._changes.ready.setdefault(self)
        else:
            self._changes.ready.pop(self, None)


# ``auto_offset_reset``: where a partition is read that has no position, or one that its log does not have (KIP-1106).
#
#     latest, earliest             its end, its start
#     by_duration:PT3600S          the first record that is not older than that now; the end where there is none
#     none                         nowhere: an error for the reader
#
# The texts are as the setting's check leaves them. Another policy is another row, or another branch in
# :meth:`OffsetResetStrategy.timestamp`.


BY_DURATION: Final = "by_duration:PT"
RESET_TIMESTAMPS: Final[Mapping[str, int | None]] = {"latest": LATEST, "earliest": EARLIEST, "none": None}


class OffsetResetStrategy:
    """``wall_ms`` gives the time of day, in ms since the epoch, as records have it."""

    def __init__(self, text: str, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._age_ms: int | None = None
        self._timestamp: int | None = None
        if text.startswith(BY_DURATION):
            self._age_ms = round(float(text[len(BY_DURATION) : -1]) * 1000)
        else:
            self._timestamp = RESET_TIMESTAMPS[text]

    @property
    def resets(self) -> bool:
        """A position is looked up anew; else an error is raised to its reader."""
        return self._age_ms is not None or self._timestamp is not None

    def timestamp(self) -> int | None:
        """The timestamp to look up now; None when nothing is to be reset."""
        return self._timestamp if self._age_ms is None else max(self._wall_ms() - self._age_ms, 0)
