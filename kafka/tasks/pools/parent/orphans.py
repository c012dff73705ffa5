"""What a dead child leaves behind: processes that its tasks started and that left its group, and zombies.

Linux only. Worker and children are subreapers: a daemon that a task starts stays below its child while that lives, and
comes to the worker when the child dies. So a foreign process whose parent is the worker is an orphan of a dead child,
or something that the worker's own program has started; which must not be killed. An orphan is known
by one of two marks, and whatever has neither is left alone:

* the variable :data:`MARK` in the environment that it was executed with, which children set in their own;
* it was never executed: its environment lies where this process's does, in memory copied by forks, and it is in another
  session than this process (children have their own sessions, so all that they fork are in others).

A broker that ``embedded:DIR`` has started serves others as well, and is left alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time

from kafka.tasks.pools.child.process_setup import MARK
from kafka.tasks.pools.kernel import children_of, is_shared_broker, read_proc, stat_of

log = logging.getLogger(__name__)

ZOMBIE_S = 5.0
"""A zombie that was not reaped for so long is reaped here."""

END_S = 1.0
"""At the end of the pool, what was killed has so long to die, and what comes from it to be killed, too."""


class Orphans:
    """Finds, kills and reaps them. ``own``: pids that the launcher watches and reaps itself."""

    def __init__(self) -> None:
        self.own: set[int] = set()
        self._killed: set[int] = set()
        self._zombie_since: dict[int, float] = {}
        self._exited: set[int] = set()
        self._exited_before: set[int] = set()
        self._may_have_children = False
        """What was killed had children, perhaps in sessions of their own: they come when it is dead."""

    def on_child_exit(self, pid: int) -> None:
        """A child has ended and was reaped: zombies of its session may be reaped."""
        self.own.discard(pid)
        self._exited.add(pid)

    def kill_orphans(self) -> list[int]:
        """Kill all orphans; returns their pids. They are reaped by :meth:`reap_zombies`, which kills what comes from
        them."""
        # One that was killed counts until it is reaped: what it leaves behind comes as it dies, perhaps after this.
        orphans = [
            pid for pid in children_of(os.getpid()) if pid not in self.own and (pid in self._killed or _is_orphan(pid))
        ]
        self._may_have_children = bool(orphans)
        for pid in orphans:
            if pid not in self._killed:
                log.warning("killing process %d, which was left behind by a child that has ended", pid)
                self._killed.add(pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return orphans

    def end(self) -> None:
        """Kill and reap all there are, and what comes from them. Waits for that, but not for long."""
        give_up_at = time.monotonic() + END_S
        while self.kill_orphans() and time.monotonic() < give_up_at:
            time.sleep(0.005)
            self.reap_zombies()
        self.reap_zombies()

    def reap_zombies(self) -> None:
        """Reap the zombies that no other part of the program waits for."""
        if self._may_have_children:
            self.kill_orphans()
        now = time.monotonic()
        ours = self._exited | self._exited_before | self.own
        zombies: dict[int, float] = {}
        killed: set[int] = set()
        for pid in children_of(os.getpid()):
            if pid in self.own:
                continue
            stat = stat_of(pid)
            if pid in self._killed:
                killed.add(pid)
            if stat is None or stat[0] != "Z":
                continue
            since = self._zombie_since.get(pid, now)
            if pid in killed or stat[2] in ours or now - since >= ZOMBIE_S:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            else:
                zombies[pid] = since
        self._zombie_since, self._killed = zombies, killed
        self._exited, self._exited_before = set(), self._exited


def _is_orphan(pid: int) -> bool:
    stat, mine = stat_of(pid), stat_of(os.getpid())
    if stat is None or mine is None or stat[0] == "Z":
        return False
    environment = read_proc(pid, "environ").split(b"\0")
    if b"%s=%d" % (MARK.encode(), os.getpid()) in environment:
        return not is_shared_broker(pid)
    return stat[3] == mine[3] and stat[2] != mine[2]
