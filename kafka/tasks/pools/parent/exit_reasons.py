"""Why a child died: one table over the facts of its end. Pure.

What this side did comes first (it killed the child for a reason), then what the kernel did (its counter of kills for
want of memory rose and the signal was SIGKILL), then the signal, then the exit status. A cause is a key of
:data:`kafka.tasks.rules.outcome.LOST_CAUSES`; a new one is a row there.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from kafka.tasks.rules.outcome import LOST_CAUSES, signal_name

TERM: int = signal.SIGTERM
KILL: int = getattr(signal, "SIGKILL", signal.SIGTERM)

_FAULTS = frozenset(
    getattr(signal, name) for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT") if hasattr(signal, name)
)


@dataclass(frozen=True, slots=True)
class KillReason:
    """Why this side kills a child: ``cause``, a text for logs, and the job for whose sake (0: for none)."""

    cause: str
    detail: str = ""
    seq: int = 0


@dataclass(frozen=True, slots=True)
class ChildExit:
    """The end of a child. ``expected``: it had retired, nothing is logged. ``is_ours``: the worker killed it.
    ``peak_rss_bytes``: the most that it ever held; ``cpu_s``: what it used of the processor, for all of its jobs.
    """

    cause: str
    signal: int | None = None
    exit_code: int | None = None
    detail: str = ""
    expected: bool = False
    is_ours: bool = False
    peak_rss_bytes: int | None = None
    cpu_s: float | None = None

    def __str__(self) -> str:
        """For the log, each fact once: of a kill of ours the reason, else how it ended, which shows most causes."""
        if self.is_ours:
            return self.detail or LOST_CAUSES.get(self.cause, self.cause)
        end = "unknown exit status"
        if self.signal is not None:
            end = f"signal {self.signal} ({signal_name(self.signal)})"
        elif self.exit_code is not None:
            end = f"exit code {self.exit_code}"
        why = "" if self.cause in ("exit", "signal") else LOST_CAUSES.get(self.cause, self.cause)
        return "; ".join(each for each in (end, why, self.detail) if each)


def child_exit(
    code: int | None, signum: int | None, kill_reason: KillReason | None, oom_kills: int, retiring: bool = False
) -> ChildExit:
    """What killed a child that ended with an exit code, or by a signal, or in an unknown way (both None).

    ``oom_kills``: the kernel's kills in our control group since the last death.
    """
    if kill_reason is not None:
        return ChildExit(kill_reason.cause, signum, code, kill_reason.detail, is_ours=True)
    if signum is None:
        return ChildExit("exit", None, code, expected=retiring and not code)
    if signum == signal.SIGKILL and oom_kills:
        return ChildExit("oom", signum)
    detail = "usually caused by C code in the task" if signum in _FAULTS else ""
    return ChildExit("signal", signum, detail=detail)
