"""The producer id, its epoch, and when they may be used.

    OFF                                   not idempotent
    NEEDED ──asked──► ASKED ──answer──► READY ──raise_epoch: the next epoch, given by ourselves──► READY
       ▲                 │                └─────raise_epoch after the last epoch──────────────────► NEEDED
       └─────error───────┘

Sequences belong to the partitions (:class:`SequenceNumbers`); this is the part that all of them share. An idempotent
producer raises its epoch by itself: no other producer has its id, and each leader takes a higher epoch that begins at
0. The transactional producer's epoch is its coordinator's to give: its machine puts it here with
:meth:`ProducerIdState.received`.

Source: KIP-98, KIP-360; the Java client's ``TransactionManager.bumpIdempotentProducerEpoch``.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

LAST_EPOCH: Final = 2**15 - 1


class ProducerIdPhase(enum.Enum):
    """Where the producer's identity stands."""

    OFF = "off"
    NEEDED = "needed"
    ASKED = "asked"
    READY = "ready"


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and epoch; -1 and -1 are none."""

    producer_id: int = -1
    epoch: int = -1


class ProducerIdState:
    """Owner of the producer's id and epoch."""

    __slots__ = ("ask_at", "failures", "is_given", "state", "value")

    def __init__(self, wanted: bool, *, is_given: bool = False) -> None:
        self.state = ProducerIdPhase.NEEDED if wanted else ProducerIdPhase.OFF
        self.value = ProducerIdAndEpoch()
        self.ask_at = 0.0
        """Not to be asked for before."""
        self.is_given = is_given
        """It is not requested, nor is its epoch raised, here: the transaction coordinator gives both."""
        self.failures = 0
        """How often it could not be had, in a row."""

    @property
    def is_on(self) -> bool:
        return self.state is not ProducerIdPhase.OFF

    @property
    def is_ready(self) -> bool:
        return self.state is ProducerIdPhase.READY

    def raise_epoch(self) -> None:
        """Have an epoch that was never used. After the last one (32767) a new id is needed. Here and not by a
        request: InitProducerId with an id and an epoch, without a transactional id, gives a new id (seen on 4.3.0)."""
        if self.state is not ProducerIdPhase.READY or self.is_given:
            return
        if self.value.epoch < LAST_EPOCH:
            self.value = ProducerIdAndEpoch(self.value.producer_id, self.value.epoch + 1)
        else:
            self.value = ProducerIdAndEpoch()
            self.state = ProducerIdPhase.NEEDED

    def should_ask(self, now: float) -> bool:
        """Whether to ask the broker now; after that the state is ASKED."""
        if self.state is not ProducerIdPhase.NEEDED or now < self.ask_at or self.is_given:
            return False
        self.state = ProducerIdPhase.ASKED
        return True

    def received(self, value: ProducerIdAndEpoch) -> None:
        """The broker's answer."""
        self.value = value
        self.state = ProducerIdPhase.READY
        self.failures = 0

    def failed(self, ask_at: float) -> None:
        """No answer, or one that may be better later; to be asked for again at ``ask_at``."""
        self.failures += 1
        self.state = ProducerIdPhase.NEEDED
        self.ask_at = ask_at

    def turn_off(self) -> None:
        """The broker cannot do it."""
        self.state = ProducerIdPhase.OFF
        self.value = ProducerIdAndEpoch()


# A partition's place in the producer's sequence: which id and epoch its leader knows, and which number is next.
#
# Owner: the sender, on the loop's thread. The producer's id and epoch are :class:`ProducerIdState`'s; a partition
# takes them over when it begins to send and after trouble, and keeps them meanwhile, so that one partition's trouble
# is no other's.
#
# Source: KIP-98; KIP-360 (a new epoch instead of a new id).


SEQUENCE_MASK: Final = 0x7FFFFFFF
"""Sequences go from 2**31 - 1 to 0."""


_NO_PRODUCER_ID: Final = ProducerIdAndEpoch()


class SequenceNumbers:
    """One partition's."""

    __slots__ = ("has_gap", "identity", "is_known", "next_sequence", "used_at")

    def __init__(self) -> None:
        self.identity = _NO_PRODUCER_ID
        self.next_sequence = 0
        self.has_gap = False
        """A number was given to a batch that is not, or perhaps not, in the log: the leader will refuse all later ones.
        Nothing new is numbered before the next :meth:`begin`."""
        self.is_known = False
        """The leader has acknowledged something of this producer id, and not too long ago to have forgotten it."""
        self.used_at = 0.0
        """When something was sent last."""

    def begin(self, identity: ProducerIdAndEpoch) -> None:
        """Count from 0 under this id and epoch. Nothing may be in flight."""
        if identity.producer_id != self.identity.producer_id:
            self.is_known = False
        self.identity = identity
        self.next_sequence = 0
        self.has_gap = False

    def note_acknowledged(self) -> None:
        """The leader has acknowledged a numbered batch: it knows the producer id."""
        self.is_known = True

    def note_use(self, now: float) -> None:
        """Something is sent."""
        self.used_at = now

    def forget_leader(self) -> None:
        """The leader may have forgotten the producer id: nothing was sent for long."""
        self.is_known = False

    def leave_gap(self) -> None:
        """A numbered batch is not, or perhaps not, in the log, and will not be sent again under its number."""
        self.has_gap = True

    def rewind(self, sequence: int) -> None:
        """Count on from here, under the same epoch: the numbers since then are known not to be in the log."""
        self.next_sequence = sequence
        self.has_gap = False

    def take(self, count: int) -> int:
        """The sequence of the first of ``count`` records. A batch may reach across the end of the numbers."""
        sequence = self.next_sequence
        self.next_sequence = (sequence + count) & SEQUENCE_MASK
        return sequence
