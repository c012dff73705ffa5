"""What all launchers have: the orphans of their children, the file of stacks, and a spare descriptor."""

from __future__ import annotations

import os

from kafka.tasks.app import App
from kafka.tasks.pools import kernel
from kafka.tasks.pools.ipc import large_payloads
from kafka.tasks.pools.parent.orphans import Orphans
from kafka.tasks.pools.parent.stacks import stacks_file


class BaseLauncher:
    """The base of the implementations of :class:`kafka.tasks.pools.ipc.processes.Launcher`, which add ``start``."""

    registry_hash = ""
    """Empty: nothing to compare, a fork knows what this process knows."""

    def __init__(self, app: App | None) -> None:
        self.stacks_fd = stacks_file()
        self._orphans = Orphans()
        # Without the app it is not known how large the file of an outcome may be.
        most_bytes = None if app is None else app.settings.max_payload_bytes + large_payloads.OVERHEAD_BYTES
        self._spare_descriptor = large_payloads.SpareDescriptor(most_bytes)
        kernel.adopt_orphans()

    def reap_zombies(self) -> None:
        self._orphans.reap_zombies()

    def close(self) -> None:
        self._orphans.end()
        self._spare_descriptor.release()
        os.close(self.stacks_fd)
