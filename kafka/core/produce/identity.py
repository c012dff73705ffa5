"""The producer id, its epoch, and when they may be used.

    OFF                                   not idempotent
    NEEDED ──asked──► ASKED ──answer──► READY
                        │                 │ state lost at a broker
                        └──error──► NEEDED◄──── BUMP: wait until nothing is in flight, then ask for the next epoch

Sequences belong to the partitions' queues; this is the part that all partitions share. Epochs end at 32767: the broker
gives a new id then, by itself.

Source: KIP-98, KIP-360.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class IdentityState(enum.Enum):
    """Where the producer's identity stands."""

    OFF = "off"
    NEEDED = "needed"
    ASKED = "asked"
    READY = "ready"
    BUMP = "bump"


class ProducerIdentity(NamedTuple):
    """A producer id and epoch; -1 and -1 are none."""

    producer_id: int = -1
    epoch: int = -1


class Identity:
    """Owner of the producer's id and epoch."""

    __slots__ = ("ask_at", "state", "value")

    def __init__(self, wanted: bool) -> None:
        self.state = IdentityState.NEEDED if wanted else IdentityState.OFF
        self.value = ProducerIdentity()
        self.ask_at = 0.0
        """Not to be asked for before."""

    @property
    def allows_sending(self) -> bool:
        return self.state in (IdentityState.OFF, IdentityState.READY)

    def lose(self) -> None:
        """The broker does not know us as we are: the next epoch is needed."""
        if self.state is IdentityState.READY:
            self.state = IdentityState.BUMP

    def should_ask(self, now: float, in_flight_count: int) -> bool:
        """Whether to ask the broker now; after that the state is ASKED."""
        if now < self.ask_at:
            return False
        if self.state is IdentityState.NEEDED or (self.state is IdentityState.BUMP and not in_flight_count):
            self.state = IdentityState.ASKED
            return True
        return False

    def received(self, value: ProducerIdentity) -> None:
        """The broker's answer."""
        self.value = value
        self.state = IdentityState.READY

    def failed(self, ask_at: float) -> None:
        """No answer, or one that may be better later."""
        self.state = IdentityState.NEEDED
        self.ask_at = ask_at

    def turn_off(self) -> None:
        """The broker cannot do it."""
        self.state = IdentityState.OFF
        self.value = ProducerIdentity()
