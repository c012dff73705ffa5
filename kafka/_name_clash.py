"""kafka-python and its forks are imported as ``kafka``, too: installed into one directory, each overwrites files of the
other, and to uninstall one removes files of the other.

Where this package was installed last, the end of its ``__init__.py`` calls :func:`warn_of_clash`, which lists the
directory once. It warns and does not raise: until the other package is installed again, what is imported is this one.
Where the other one was installed last, or was uninstalled, ``kafka/__init__.py`` is not ours. For that, ``kafka.tasks``
and the command line import this module first, which then raises ImportError, instead of the first import that fails.
"""

from __future__ import annotations

import os
import sys
import warnings

FOREIGN = frozenset({"kafka", "kafka_python", "kafka_python_ng"})
"""Distributions, as directories of metadata name them, that contain a package ``kafka``."""

_REMEDY = "pip uninstall -y {} && pip install --force-reinstall --no-deps kafka-taskloop"


def foreign_distributions(directory: str) -> list[str]:
    """The distributions of :data:`FOREIGN` whose metadata is in ``directory``, as NAME-VERSION."""
    try:
        entries = os.listdir(directory)
    except OSError:  # a zip file
        return []
    return sorted(
        entry.rpartition(".")[0]
        for entry in entries
        if entry.endswith((".dist-info", ".egg-info")) and entry.partition("-")[0].lower() in FOREIGN
    )


def warn_of_clash(package_file: str) -> None:
    """RuntimeWarning in the line that imports this package when another one is installed over it. ``package_file``: of
    this package's ``__init__.py``."""
    found = foreign_distributions(os.path.dirname(os.path.dirname(package_file)))
    if found:
        names = " ".join(sorted({each.partition("-")[0].replace("_", "-") for each in found}))
        warnings.warn(
            f"{', '.join(found)} and kafka-taskloop are installed in one directory and overwrite each other's files, "
            f"since both are imported as `kafka`: run `{_REMEDY.format(names)}`",
            RuntimeWarning,
            stacklevel=3,
        )


def _check_package() -> None:
    if not hasattr(sys.modules["kafka"], "_HOME"):
        raise ImportError(
            "files of kafka-taskloop were overwritten or removed by another distribution that is imported as `kafka`, "
            f"such as kafka-python: run `{_REMEDY.format('kafka-python')}`"
        )


_check_package()
