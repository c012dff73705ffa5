"""A partition's place in the producer's sequence: which id and epoch its leader knows, and which number is next.

Owner: the sender, on the loop's thread. The producer's id and epoch are ``identity.py``'s; a partition takes them over
when it begins to send and after trouble, and keeps them meanwhile, so that one partition's trouble is no other's.

Source: KIP-98; KIP-360 (a new epoch instead of a new id).
"""

from __future__ import annotations

from typing import Final

from kafka.core.produce.identity import ProducerIdentity

SEQUENCE_MASK: Final = 0x7FFFFFFF
"""Sequences go from 2**31 - 1 to 0."""


_NO_IDENTITY: Final = ProducerIdentity()


class Numbering:
    """One partition's."""

    __slots__ = ("has_gap", "identity", "is_known", "next_sequence", "used_at")

    def __init__(self) -> None:
        self.identity = _NO_IDENTITY
        self.next_sequence = 0
        self.has_gap = False
        """A number was given to a batch that is not, or perhaps not, in the log: the leader will refuse all later ones.
        Nothing new is numbered before the next :meth:`begin`."""
        self.is_known = False
        """The leader has acknowledged something of this producer id, and not too long ago to have forgotten it."""
        self.used_at = 0.0
        """When something was sent last."""

    def begin(self, identity: ProducerIdentity) -> None:
        """Count from 0 under this id and epoch. Nothing may be in flight."""
        if identity.producer_id != self.identity.producer_id:
            self.is_known = False
        self.identity = identity
        self.next_sequence = 0
        self.has_gap = False

    def rewind(self, sequence: int) -> None:
        """Count on from here, under the same epoch: the numbers since then are known not to be in the log."""
        self.next_sequence = sequence
        self.has_gap = False

    def take(self, count: int) -> int:
        """The sequence of the first of ``count`` records. A batch may reach across the end of the numbers."""
        sequence = self.next_sequence
        self.next_sequence = (sequence + count) & SEQUENCE_MASK
        return sequence
