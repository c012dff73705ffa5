"""What something costs, in a process of its own: peak memory, limits, and tables for the documentation.

Used for requests to the broker (``measure.py``) and for what clients and workers are given (``measure_clients.py``).
Linux only.
"""

from __future__ import annotations

import json
import os
import resource
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

MOST_S: Final = 0.1
MOST_MB: Final = 64
MOST_TIMES: Final = 30
GIVE_UP_S: Final = 3.0
"""A case that took so long is not tried with more bytes."""
CPU_LIMIT_S: Final = 60
MEMORY_LIMIT_BYTES: Final = 3 << 30


def badness(input_bytes: int, ms: float, mb: float) -> float:
    """Above 1 the bound is missed: the loop's time, or memory in 1e6 bytes beyond the input."""
    return max(ms / 1000 / MOST_S, mb / (MOST_MB + MOST_TIMES * input_bytes / 1e6))


def in_a_child(work: Callable[[], Iterable[tuple[Any, ...]]]) -> Iterator[Any]:
    """What ``work`` gives, run in a process of its own: rows as lists, and behind them the exit status where that is
    not 0."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.close(reading)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
            with os.fdopen(writing, "w") as out:
                for row in work():
                    print(json.dumps(row), file=out, flush=True)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as lines:
        found = [json.loads(line) for line in lines]
    _, status = os.waitpid(pid, 0)
    yield from found
    if status:
        yield status


def reset_peak() -> int:
    """Forget the process's peak of memory; what it has now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    return peak()


def peak() -> int:
    """The peak of the process's memory, in bytes."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmHWM in /proc/self/status")


def list_table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Lines of reStructuredText; the first row is the head."""
    yield ".. list-table::\n   :header-rows: 1\n"
    for row in rows:
        yield "\n" + "".join(f"   {'*' if not at else ' '} - {cell}\n" for at, cell in enumerate(row))
