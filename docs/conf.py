"""Settings of Sphinx. The tables that are made from the code come from ``_ext/``."""

from __future__ import annotations

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

from kafka._version import __version__  # noqa: E402

project = "kafka-taskloop"
copyright = "the authors of kafka-taskloop"  # noqa: A001
version = release = __version__

extensions = ["tables", "handlers"]
exclude_patterns = ["_build", "_ext"]
nitpicky = True
html_theme = "alabaster"
html_theme_options = {"description": "A Kafka client that also carries background jobs", "fixed_sidebar": True}
