"""The workers of an app on all machines, from their snapshots: what ``python -m kafka inspect`` reads.

A worker that has stopped normally is removed at once. A worker that was killed, is blocked, or cannot reach the brokers
is *silent* and is removed after a minute.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple

from kafka.broker.embedded import is_running
from kafka.errors import AuthorizationError
from kafka.tasks.app import App
from kafka.tasks.backends.base import QueueDelivery, SnapshotReader
from kafka.tasks.errors import BadRecord
from kafka.tasks.health.monitor import PUBLISH_S
from kafka.tasks.health.queue_lengths import QueueLength, queue_lengths
from kafka.tasks.health.snapshot import WorkerSnapshot, from_json
from kafka.tasks.settings import EMBEDDED

log = logging.getLogger(__name__)

SILENT_S: Final = 3 * PUBLISH_S
"""A worker without a snapshot for so long is silent."""


class Seen(NamedTuple):
    """A worker: its snapshot, with ages as they are by now if nothing has changed, and how old that is."""

    worker: WorkerSnapshot
    age_s: float

    @property
    def is_silent(self) -> bool:
        """Whether several snapshots are missing."""
        return self.age_s > SILENT_S


class Directory:
    """Reads until :meth:`close`; connects at once, with a connection of its own. For one thread.

    The broker of ``embedded:DIR`` is not started for this: while none runs there, there is no worker.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._reader = self._open()
        self._unreadable: set[str] = set()
        self._has_warned_of_pauses = False

    def workers(self, wait_s: float = 0.0) -> list[Seen]:
        """All workers that published a snapshot within the last minute and have not stopped, in the order of host
        and pid.

        Reads new snapshots for ``wait_s`` seconds first. When all snapshots are old, it waits for as long as a live
        worker takes between two at most: the clocks of this machine and the broker may differ.
        """
        if self._reader is None:
            self._reader = self._open()
            if self._reader is None:
                time.sleep(wait_s)
                return []
        seen_workers = []
        for worker_id, text, age_s in self._reader.read(wait_s):
            try:
                seen_workers.append(Seen(from_json(text).aged(age_s), age_s))
            except BadRecord as error:
                if worker_id not in self._unreadable:
                    self._unreadable.add(worker_id)
                    log.warning("could not decode the snapshot of worker %r, it is not shown: %s", worker_id, error)
        return sorted(seen_workers, key=lambda seen: (seen.worker.host, seen.worker.pid, seen.worker.id))

    def queue_lengths(self, seen_workers: Sequence[Seen]) -> list[QueueLength]:
        """The length of each queue that the app declares; asks the brokers. ``seen_workers``: those of
        :meth:`workers`; what a silent one held is available again soon. No queue while there is no broker to connect
        to. Errors are the clients' own."""
        if self._reader is None:
            return []
        live = [seen.worker for seen in seen_workers if not seen.is_silent]
        return queue_lengths(self._reader.backlogs(self._app.queues), live, self._paused(self._reader))

    def deliveries(self) -> list[QueueDelivery]:
        """How the jobs of each queue that the app declares are delivered; asks the brokers. No queue while there is no
        broker to connect to. Errors are the clients' own."""
        return [] if self._reader is None else self._reader.deliveries(self._app.queues)

    def _paused(self, reader: SnapshotReader) -> frozenset[str] | None:
        """None for those who may not read the topic, as workers go on without it."""
        try:
            return reader.paused()
        except AuthorizationError as error:
            if not self._has_warned_of_pauses:
                self._has_warned_of_pauses = True
                log.warning("cannot read which queues are paused: %s", error)
            return None

    def close(self) -> None:
        """Disconnect."""
        if self._reader is not None:
            self._reader.close()

    @property
    def has_broker(self) -> bool:
        """Whether there is a broker to connect to."""
        return self._reader is not None

    def _open(self) -> SnapshotReader | None:
        servers = self._app.settings.bootstrap_servers
        if servers.startswith(EMBEDDED) and not is_running(servers.removeprefix(EMBEDDED)):
            return None
        return self._app.backend().snapshot_reader()

    def __enter__(self) -> Directory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
