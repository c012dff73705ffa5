"""How the process's open files (RLIMIT_NOFILE) are shared out: so many for logs, the rest for connections.

    limit = open already + OWN + MOMENTARY + files of logs kept open + files of one slice of a sync + connections

Each part is bounded by its owner (``FilePool``, ``Syncer``, ``ConnectionQuotas``), so that connections never take what
logs, state files and imports need. A limit that leaves too little for any part is an error of the start.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final, NamedTuple

from kafka.broker.log.files import MAX_OPEN_FILES
from kafka.broker.log.flushing import SLICE_FILES
from kafka.errors import KafkaError

OWN: Final = 8
"""What a broker holds from its start to its end: the lock of its directory, its listeners, the pair for signals."""

MOMENTARY: Final = 16
"""What may be open for a moment: a module that is imported, a seal or state file and its directory, a log that is
scanned (two) or compacted, directories that are removed (one for each level), a connection that is about to be refused,
a source file of a traceback."""

LEAST: Final = 4
"""Of each other part."""


class DescriptorLimitError(KafkaError):
    """The process may have too few open files for a broker."""


class DescriptorPlan(NamedTuple):
    """The parts. ``connections`` None: any number."""

    log_files: int = MAX_OPEN_FILES
    sync_files: int = SLICE_FILES
    connections: int | None = None


def plan_descriptors(limit: int | None, taken: int) -> DescriptorPlan:
    """The parts of what is left of ``limit`` (None: there is none) by the ``taken`` descriptors that are open.

    DescriptorLimitError when that is too little.
    """
    if limit is None:
        return DescriptorPlan()
    rest = limit - taken - OWN - MOMENTARY
    if rest < 3 * LEAST:
        raise DescriptorLimitError(
            f"the limit of open files is {limit} and {taken} are open: a broker needs a limit of at least "
            f"{limit - rest + 3 * LEAST}; raise it with ulimit -n"
        )
    log_files = min(MAX_OPEN_FILES, max(LEAST, rest // 4))
    sync_files = min(SLICE_FILES, max(LEAST, rest // 8))
    return DescriptorPlan(log_files, sync_files, rest - log_files - sync_files)


def descriptor_limit() -> int | None:
    """How many open files this process may have; None: any number, or the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return None
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def open_descriptors() -> int:
    """How many this process has."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return len(os.listdir(directory)) - 1  # the listing's own
    return 0


def raise_descriptor_limit() -> None:
    """Let this process have as many open files as the system allows it: a connection is one, and so is a segment."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
