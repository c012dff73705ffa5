"""The processes of ``group_member.py``, the faults that they go through, and the check of what they noted.

Crew       five processes; each has a member in every group
Faults     what happens to them and to the broker, chosen by a seed
check      every record was read; commits of a partition never went back, and were of one owner at a time
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from test.support.waiting import whole_lines

SCRIPT = Path(__file__).with_name("group_member.py")
ROOT = Path(__file__).resolve().parents[2]
MEMBERS = 5
END_S = 60.0
"""A process that was asked to end has so long."""


class Crew:
    """``groups``: the settings of the members of each."""

    def __init__(self, directory: Path, bootstrap: str, topic: str, groups: Mapping[str, Mapping[str, Any]]) -> None:
        self.directory = directory
        self.groups = groups
        self.running: list[subprocess.Popen[bytes]] = []
        self.leaving: list[subprocess.Popen[bytes]] = []
        self._order = {"bootstrap": bootstrap, "topic": topic, "groups": groups, "notes": str(directory)}
        self._slots: dict[int, int] = {}
        directory.mkdir(exist_ok=True)

    def join(self, slot: int | None = None) -> None:
        """One more, or one in the place of another."""
        slot = len(self._slots) if slot is None else slot
        order = json.dumps({**self._order, "slot": slot})
        with open(self.directory / "stderr", "ab") as log:
            self.running.append(
                subprocess.Popen([sys.executable, str(SCRIPT), order], cwd=ROOT, stderr=log, env=_environment())
            )
        self._slots[self.running[-1].pid] = slot

    def slot_of(self, member: subprocess.Popen[bytes]) -> int:
        return self._slots[member.pid]

    def leave(self, member: subprocess.Popen[bytes]) -> None:
        self.running.remove(member)
        self.leaving.append(member)
        member.terminate()

    def kill(self, member: subprocess.Popen[bytes]) -> None:
        self.running.remove(member)
        member.kill()
        member.wait()

    def see_ended(self) -> None:
        """Those that were asked to leave have, and without an error; nobody else has."""
        for member in self.leaving:
            assert member.wait(END_S) in (0, -signal.SIGTERM), self.log_tail()  # the latter: it had not begun yet
        self.leaving = []
        assert [member.poll() for member in self.running] == [None] * len(self.running), self.log_tail()

    def log_tail(self) -> str:
        return (self.directory / "stderr").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        for member in [*self.running, *self.leaving]:
            member.kill()
            member.wait()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


class Broker(Protocol):
    """One that can be stopped and continued."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Faults:
    """``pause_s``: about the most between two faults. ``stopped_s``: longer than a session. ``restart``: ends the
    broker with -9 and starts it again."""

    def __init__(
        self,
        crew: Crew,
        rng: random.Random,
        pause_s: float,
        stopped_s: float,
        broker: Broker,
        restart: Callable[[], object],
    ) -> None:
        self._broker = broker
        self._crew = crew
        self._rng = rng
        self._pause_s = pause_s
        self._stopped_s = stopped_s
        self._restart = restart

    def round(self) -> Iterator[str]:
        """One of each, in any order; tells what is happening."""
        kinds = [self._kill, self._stop, self._leave, self._join, self._restart_broker, self._stop_broker]
        self._rng.shuffle(kinds)
        for kind in kinds:
            yield kind.__name__.strip("_")
            kind()
            time.sleep(self._rng.random() * self._pause_s / 2)

    def _kill(self) -> None:
        member = self._rng.choice(self._crew.running)
        self._crew.kill(member)
        time.sleep(self._rng.random() * self._pause_s / 2)
        self._crew.join(self._crew.slot_of(member))

    def _stop(self) -> None:
        member = self._rng.choice(self._crew.running)
        member.send_signal(signal.SIGSTOP)
        time.sleep(self._stopped_s)
        member.send_signal(signal.SIGCONT)

    def _leave(self) -> None:
        member = self._rng.choice(self._crew.running)
        self._crew.leave(member)
        if self._rng.random() < 0.5:
            time.sleep(self._rng.random() * self._pause_s / 2)
        self._crew.join(self._crew.slot_of(member))

    def _join(self) -> None:
        self._crew.join()
        time.sleep(self._rng.random() * self._pause_s / 2)
        self._crew.leave(self._rng.choice(self._crew.running))

    def _restart_broker(self) -> None:
        self._restart()

    def _stop_broker(self) -> None:
        self._broker.pause()
        time.sleep(self._rng.random() * self._stopped_s)
        self._broker.resume()


class Commit(NamedTuple):
    """One partition's part of a commit that the broker took."""

    began: float
    ended: float
    offset: int
    generation: int
    member: str
    assigned_at: float
    """When this member was last given the partition, by its own notes."""


class Noted(NamedTuple):
    """What the members of one group noted."""

    values: set[int]
    commits: dict[int, list[Commit]]
    crashes: list[str]
    errors: dict[str, int]


def read_notes(directory: Path, group: str) -> Noted:
    """Of all members that the group ever had."""
    noted = Noted(set(), {}, [], {})
    for path in directory.glob(f"{group}.*"):
        given: dict[int, float] = {}
        for line in whole_lines(path):
            event = json.loads(line)
            what = event["what"]
            if what == "read":
                for values in event["values"].values():
                    noted.values.update(values)
            elif what == "assigned":
                given.update(dict.fromkeys(event["partitions"], event["at"]))
            elif what == "committed":
                for number, offset in event["offsets"].items():
                    noted.commits.setdefault(int(number), []).append(
                        Commit(
                            event["began"],
                            event["at"],
                            offset,
                            event["generation"],
                            path.name,
                            given.get(int(number), 0.0),
                        )
                    )
            elif what == "crashed":
                noted.crashes.append(event["text"])
            elif what == "error":
                kind = event["text"].partition(":")[0]
                noted.errors[kind] = noted.errors.get(kind, 0) + 1
    return noted


def check(directory: Path, group: str, produced: int) -> str:
    """Raise AssertionError for whatever was promised and not kept; else what was seen, for people."""
    noted = read_notes(directory, group)
    assert not noted.crashes, f"{group}: {noted.crashes}"
    missing = sorted(set(range(produced)) - noted.values)
    assert not missing, f"{group}: {len(missing)} of {produced} records were never read: {missing[:10]}"
    for partition, commits in noted.commits.items():
        _check_partition(f"{group}-{partition}", sorted(commits, key=lambda each: each.ended))
    count = sum(map(len, noted.commits.values()))
    owners = sum(len({each.member for each in commits}) for commits in noted.commits.values())
    return f"{group}: {count} commits by {owners} owners of partitions; errors: {noted.errors or 'none'}"


def _check_partition(where: str, commits: Iterable[Commit]) -> None:
    done: list[Commit] = []
    for commit in commits:
        for before in reversed(done):
            if before.ended > commit.began:
                continue  # at the same time: the order is not known
            assert before.offset <= commit.offset, f"{where}: the committed offset went back: {before} then {commit}"
            assert before.generation <= commit.generation, f"{where}: an older generation: {before} then {commit}"
            assert before.member == commit.member or before.began < commit.assigned_at, (
                f"{where}: two owners: {before} then {commit}, which was given the partition before"
            )
            break
        done.append(commit)
