"""How the package is built: with its hot modules compiled by mypyc where that can be done, else in plain Python.

A build backend in the tree (PEP 517) around setuptools' own, and what ``setup.py`` needs of it. Both kinds come from
the same typed source and behave alike; :data:`COMPILED` says which modules are compiled.

    KAFKA_PURE   who asks             what is built
    unset        pip install .        compiled where a C compiler and Python's headers are, and mypy can be had;
                                      plain where not, or where the compilation fails, with one line that says so
    1            pip install .        plain; mypy is not even asked for
    0            pip install .        compiled, and an error where that cannot be done (for our own tests)
    any          pip install -e .     plain: an edited source would not be what runs

``KAFKA_OPT_LEVEL`` (default 2) is the C compiler's: 0 compiles in half of the time, for our own tests.

mypy is a requirement of the build only where it will be used (:func:`get_requires_for_build_wheel`), so an install
without compiler downloads nothing more than setuptools. Without build isolation it is used when it is installed.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any

from setuptools import Extension, build_meta
from setuptools.command.build_ext import build_ext

build_sdist = build_meta.build_sdist
build_wheel = build_meta.build_wheel
build_editable = build_meta.build_editable
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable

HERE = pathlib.Path(__file__).resolve().parent
MYPY = "mypy>=2.4"
"""The first whose compiler was tried with this package; it runs where the package does (Python 3.10 and later)."""

# A compiled class over a plain one over a compiled one has attributes that its base never sees: compile all classes of
# a hierarchy, or only its base. Transports stay plain because ``pending_bytes`` is a property in some of them, and
# compiled code would read the base's attribute; ``Future`` because users set ``Future.error_on_callbacks``.
COMPILED = (
    "kafka/_compiled.py",
    "kafka/client/connection.py",
    "kafka/client/metrics.py",
    "kafka/client/router.py",
    "kafka/consumer/driver.py",
    "kafka/consumer/metrics.py",
    "kafka/core/connection.py",
    "kafka/core/consume/fetcher.py",
    "kafka/core/consume/partition.py",
    "kafka/core/consume/session.py",
    "kafka/core/produce/accumulator.py",
    "kafka/core/produce/batch.py",
    "kafka/core/produce/sender.py",
    "kafka/core/routing.py",
    "kafka/core/share/acknowledgements.py",
    "kafka/core/share/records.py",
    "kafka/core/share/session.py",
    "kafka/core/states.py",
    "kafka/metrics/stats.py",
    "kafka/net/loop.py",
    "kafka/producer/arguments.py",
    "kafka/producer/driver.py",
    "kafka/producer/metrics.py",
    "kafka/producer/sending.py",
    "kafka/protocol/framing.py",
    "kafka/records/builder.py",
    "kafka/records/header.py",
    "kafka/records/reader.py",
    "kafka/records/validator.py",
    "kafka/tasks/backends/kafka/publisher.py",
    "kafka/tasks/delivery/base.py",
    "kafka/tasks/delivery/consumer_group/delivery.py",
    "kafka/tasks/delivery/consumer_group/owned_partition.py",
    "kafka/tasks/delivery/consumer_group/progress.py",
    "kafka/tasks/delivery/consumer_group/settling.py",
    "kafka/tasks/delivery/finishing.py",
    "kafka/tasks/delivery/records.py",
    "kafka/tasks/delivery/share_group/delivery.py",
    "kafka/tasks/format/envelope.py",
    "kafka/tasks/format/job_id.py",
    "kafka/tasks/format/offset_metadata.py",
    "kafka/tasks/format/payload.py",
    "kafka/tasks/format/plain_values.py",
    "kafka/tasks/format/records.py",
    "kafka/tasks/format/serializers.py",
    "kafka/tasks/pools/fork.py",
    "kafka/tasks/pools/ipc/channel.py",
    "kafka/tasks/pools/ipc/frames.py",
    "kafka/tasks/pools/ipc/messages.py",
    "kafka/tasks/pools/prefork.py",
    "kafka/tasks/results/view.py",
    "kafka/tasks/worker/admission.py",
    "kafka/tasks/worker/completion.py",
    "kafka/tasks/worker/dispatcher.py",
    "kafka/tasks/worker/leases.py",
    "kafka/tasks/worker/source_buffers.py",
    "kafka/tasks/worker/worker.py",
    "kafka/wire/frame.py",
)
"""What runs for every record or every batch, by profile. A module is added when a measurement says so: each one costs
time at every installation."""

_BUILDING = frozenset({"bdist", "bdist_wheel", "build", "build_ext", "install"})
"""The commands of setuptools that make something to be installed; for all others nothing is compiled."""


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """PEP 517: mypy only where it can be of use."""
    wanted = list(build_meta.get_requires_for_build_wheel(config_settings))
    return [*wanted, MYPY] if why_plain() is None else wanted


def why_plain() -> str | None:
    """Why nothing can be compiled here; None when it can be tried."""
    choice = os.environ.get("KAFKA_PURE", "")
    if choice not in ("", "0", "1"):
        raise SystemExit(f"KAFKA_PURE={choice}: 1 (plain Python), 0 (compiled, or an error) or nothing is possible")
    if choice == "1":
        return "KAFKA_PURE=1"
    return None if choice == "0" or _has_c_compiler() else "no C compiler with Python's headers"


def extensions() -> list[Extension]:
    """The compiled modules, translated to C; empty for a plain build."""
    if not _BUILDING & set(sys.argv):
        return []
    reason = why_plain()
    if reason is None:
        try:
            return _translated()
        except (Exception, SystemExit) as error:  # mypyc ends the process when it finds an error in the source
            reason = _one_line(error)
            _forced(reason)
    _say(reason)
    return []


class BuildCompiled(build_ext):
    """Compiles everything or nothing: a compiled module without its neighbours would not even be imported."""

    def run(self) -> None:
        self._remove_all()  # what a former build left would be installed, too, whatever became of its source
        try:
            super().run()
        except Exception as error:
            reason = _one_line(error)
            _forced(reason)
            self._remove_all()
            self.extensions = []
            _say(reason)

    def _remove_all(self) -> None:
        for path in pathlib.Path(self.build_lib).rglob("*.so"):
            path.unlink()


def _translated() -> list[Extension]:
    from mypyc.build import mypycify

    os.environ.setdefault("MYPY_CACHE_DIR", str(HERE / "build" / "mypy"))
    settings = ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports"]
    # -O2 and no debugging data: -O3 was not faster, and took longer to compile.
    level = os.environ.get("KAFKA_OPT_LEVEL", "2")
    found: list[Extension] = mypycify(
        [*settings, *COMPILED], group_name="kafka._native", opt_level=level, debug_level="0"
    )
    if sys.platform != "win32":
        # Python's own -Wall takes as long as -O2 over one generated file of 60 MB, and warns nobody who wrote it.
        for extension in found:
            extension.extra_compile_args.append("-Wno-all")
    return found


def _has_c_compiler() -> bool:
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "probe.c")
        source.write_text("#include <Python.h>\n")
        include = sysconfig.get_path("include")
        try:
            done = subprocess.run(
                [*command, f"-I{include}", "-c", str(source), "-o", str(source.with_suffix(".o"))],
                capture_output=True,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


def _forced(reason: str) -> None:
    if os.environ.get("KAFKA_PURE") == "0":
        raise SystemExit(f"KAFKA_PURE=0, and nothing can be compiled: {reason}")


def _one_line(error: BaseException) -> str:
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return "mypyc refused the source, for the reasons above"
    return " ".join(str(error).split())[:200] or type(error).__name__


def _say(reason: str) -> None:
    print(f"kafka-taskloop is built in plain Python, not compiled: {reason}", file=sys.stderr)
