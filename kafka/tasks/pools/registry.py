"""Which tasks a process knows, as a short text: parent and child compare theirs when the child is up.

A deploy that changes files under a running worker shows here: children of ``spawn`` load what is there now.
"""

from __future__ import annotations

import hashlib
import platform
from typing import TYPE_CHECKING

from kafka.tasks.pools.ipc.frames import MAGIC

if TYPE_CHECKING:
    from kafka.tasks.app import App

VERSIONS = f"{platform.python_implementation()} {platform.python_version()}, channel {MAGIC:x}.1"
"""Of the interpreter and of the channel's layouts."""


def registry_hash(app: App) -> str:
    """Names, functions and calling conventions of an app's tasks, hashed."""
    tasks = app.tasks.values()
    lines = sorted(f"{app.name} {task.name} {task.origin} {task.bind} {sorted(task.aliases)}" for task in tasks)
    return hashlib.sha256("\n".join(lines).encode("utf-8", "backslashreplace")).hexdigest()[:16]
