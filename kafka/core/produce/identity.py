"""The producer id, its epoch, and when they may be used.

    OFF                                   not idempotent
    NEEDED ──asked──► ASKED ──answer──► READY ──raise_epoch: the next epoch, given by ourselves──► READY
       ▲                 │                └─────raise_epoch after the last epoch──────────────────► NEEDED
       └─────error───────┘

Sequences belong to the partitions (``numbering.py``); this is the part that all of them share. An idempotent producer
raises its epoch by itself: nobody else has its id, and each leader takes a higher epoch that begins at 0. The
transactional producer's epoch is its coordinator's to give: its machine puts it here with :meth:`Identity.received`.

Source: KIP-98, KIP-360; the Java client's ``TransactionManager.bumpIdempotentProducerEpoch``.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

LAST_EPOCH: Final = 2**15 - 1


class IdentityState(enum.Enum):
    """Where the producer's identity stands."""

    OFF = "off"
    NEEDED = "needed"
    ASKED = "asked"
    READY = "ready"


class ProducerIdentity(NamedTuple):
    """A producer id and epoch; -1 and -1 are none."""

    producer_id: int = -1
    epoch: int = -1


class Identity:
    """Owner of the producer's id and epoch."""

    __slots__ = ("ask_at", "failures", "is_given", "state", "value")

    def __init__(self, wanted: bool, *, is_given: bool = False) -> None:
        self.state = IdentityState.NEEDED if wanted else IdentityState.OFF
        self.value = ProducerIdentity()
        self.ask_at = 0.0
        """Not to be asked for before."""
        self.is_given = is_given
        """Nobody is to ask for it, nor to raise the epoch: a transaction's coordinator gives them."""
        self.failures = 0
        """How often it could not be had, in a row."""

    @property
    def is_on(self) -> bool:
        return self.state is not IdentityState.OFF

    @property
    def is_ready(self) -> bool:
        return self.state is IdentityState.READY

    def raise_epoch(self) -> None:
        """Have an epoch that was never used. After the last one (32767) a new id is needed."""
        if self.state is not IdentityState.READY or self.is_given:
            return
        if self.value.epoch < LAST_EPOCH:
            self.value = ProducerIdentity(self.value.producer_id, self.value.epoch + 1)
        else:
            self.value = ProducerIdentity()
            self.state = IdentityState.NEEDED

    def should_ask(self, now: float) -> bool:
        """Whether to ask the broker now; after that the state is ASKED."""
        if self.state is not IdentityState.NEEDED or now < self.ask_at or self.is_given:
            return False
        self.state = IdentityState.ASKED
        return True

    def received(self, value: ProducerIdentity) -> None:
        """The broker's answer."""
        self.value = value
        self.state = IdentityState.READY
        self.failures = 0

    def failed(self, ask_at: float) -> None:
        """No answer, or one that may be better later."""
        self.state = IdentityState.NEEDED
        self.ask_at = ask_at

    def turn_off(self) -> None:
        """The broker cannot do it."""
        self.state = IdentityState.OFF
        self.value = ProducerIdentity()
