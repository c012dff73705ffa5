"""Processes that are executed anew: what they have to know, how they are started, and the launcher of start method
``spawn``, whose children they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from kafka.tasks.app import App
from kafka.tasks.pools import job_logging
from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.ipc.channel import ParentChannel
from kafka.tasks.pools.ipc.shared_page import anonymous_file
from kafka.tasks.pools.parent.base_launcher import BaseLauncher
from kafka.tasks.pools.parent.launched_child import DirectChild, LaunchedChild
from kafka.tasks.pools.registry import registry_hash
from kafka.tasks.pools.settings import PoolSettings


def spec_of(settings: PoolSettings) -> dict[str, Any]:
    """What a process that is not forked from this one has to know, as JSON can carry it."""
    spec: dict[str, Any] = {
        "app": settings.app_path,
        "directory": os.getcwd(),
        "path": sys.path,
        "process_per_job": settings.process_per_job,
        "descriptors": process_setup.descriptor_limit(),
        "worker_pid": os.getpid(),
        "logs": job_logging.logging_config(),
        "servers": None,
        "client": {},
    }
    if settings.app is not None:  # the command line may have changed it since it was loaded
        own = settings.app.settings
        spec["servers"] = own.bootstrap_servers
        spec["client"] = {name: value for name, value in own.client.items() if _is_plain(value)}
    return spec


def _is_plain(value: object) -> bool:
    """Whether JSON carries it; what it does not is from the app's declaration, and so in the child as well."""
    return value is None or isinstance(value, (str, int, float, bool))


class InterpreterStarter:
    """Starts Python processes that have a spec: in a file of its own, since it may hold passwords."""

    def __init__(self, spec: dict[str, Any]) -> None:
        data = json.dumps(spec).encode()
        self._fd = anonymous_file("kafka-spec", 0)
        os.pwrite(self._fd, data, 0)
        self._environment = {**os.environ, process_setup.MARK: str(os.getpid())}

    def start(self, role: str, numbers: Sequence[int], fds: Sequence[int], title: str) -> int:
        """Start ``bootstrap.main(role, numbers)`` with these descriptors; its pid. OSError when that cannot be."""
        if not sys.executable:
            raise OSError("cannot start a child: sys.executable is empty")
        code = (
            f"import json,os,sys;spec=json.loads(os.pread({self._fd},1<<24,0));os.close({self._fd});"
            f"sys.path[:]=spec['path'];from kafka.tasks.pools.child.bootstrap import main;"
            f"main(spec,{role!r},{list(numbers)!r})"
        )
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", code, f"kafka-{role}", title],
            stdin=subprocess.DEVNULL,
            pass_fds=(self._fd, *fds),
            env=self._environment,
            start_new_session=True,
        )
        process.returncode = 0  # it is reaped elsewhere, and Popen is not to look after it
        return process.pid

    def close(self) -> None:
        """Nothing is started any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class InterpreterLauncher(BaseLauncher):
    """The base of launchers that start interpreters, which import the app."""

    def __init__(self, spec: dict[str, Any], app: App | None) -> None:
        super().__init__(app)
        if app is not None:
            self.registry_hash = registry_hash(app)
        self._title = str(spec["app"])
        self._starter = InterpreterStarter(spec)

    def close(self) -> None:
        super().close()
        self._starter.close()


class SpawnLauncher(InterpreterLauncher):
    """Children are new interpreters that import the app."""

    def start(self, generation: int) -> LaunchedChild:
        channel = ParentChannel(generation, spare_descriptor=self._spare_descriptor)
        fds = channel.for_child
        try:
            shared = (self.stacks_fd, *fds)
            pid = self._starter.start("child", (generation, *shared), shared, self._title)
        except BaseException:
            channel.close()
            raise
        finally:
            fds.close()
        return LaunchedChild(channel, DirectChild(pid, self._orphans), self._orphans)
