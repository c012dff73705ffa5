"""The stages in which a worker stops: which one it is in, and until when.

::

    WORKING -> DRAINING -----------> INTERRUPTING -----> ABANDONING ------> LEAVING ------> LEFT
               lease nothing, give   SoftTimeLimit in    kill what can be   close sessions,
               back what has not     what runs           killed, give the   leave the groups
               started, let run                          rest back
               what runs
               stop_grace            kill_grace          LEAVE_S            until it is done

Each stage is entered by a signal or when the time of the one before is over, whichever comes first, and from the first
three the worker leaves as soon as nothing is held any more and no request is out that may bring jobs: what came after
that would be handed out once more, which is a suspicion, and of a suspect a crash. Leases are renewed in all of them.
With the defaults (20 s, 5 s, and about a second between SIGTERM and SIGKILL) a worker has left within the 30 s that
Kubernetes gives a pod.

It says when; the worker does what belongs to a stage.
"""

from __future__ import annotations

import math
from enum import IntEnum

LEAVE_S = 5.0
"""After ABANDONING began, this long for the last children and records before the worker leaves without them."""


class WorkerStage(IntEnum):
    """How far the worker's stop has come."""

    WORKING = 0
    DRAINING = 1
    INTERRUPTING = 2
    ABANDONING = 3
    LEAVING = 4
    LEFT = 5


class WorkerShutdown:
    """The present stage. ``ends_at``: when the next one begins by itself (infinity: it does not)."""

    __slots__ = ("_lasts", "ends_at", "stage")

    def __init__(self, stop_grace_s: float, kill_grace_s: float) -> None:
        self.stage = WorkerStage.WORKING
        self.ends_at = math.inf
        self._lasts = {
            WorkerStage.DRAINING: stop_grace_s,
            WorkerStage.INTERRUPTING: kill_grace_s,
            WorkerStage.ABANDONING: LEAVE_S,
        }

    def advance(self, now: float) -> WorkerStage | None:
        """Enter the next stage; None when there is none to enter by wish."""
        if self.stage >= WorkerStage.LEAVING:
            return None
        return self.enter(WorkerStage(self.stage + 1), now)

    def enter(self, stage: WorkerStage, now: float) -> WorkerStage:
        """Be in that stage from now on."""
        self.stage = stage
        self.ends_at = now + self._lasts.get(stage, math.inf)
        return stage

    @property
    def has_begun(self) -> bool:
        """Nothing is leased or started any more."""
        return self.stage >= WorkerStage.DRAINING

    @property
    def is_interrupting(self) -> bool:
        """Running jobs have been asked to end: what ends now ended because of that."""
        return self.stage >= WorkerStage.INTERRUPTING

    @property
    def may_leave(self) -> bool:
        """It leaves once nothing is held."""
        return WorkerStage.DRAINING <= self.stage < WorkerStage.LEAVING
