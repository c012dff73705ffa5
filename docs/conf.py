"""Settings of Sphinx. What comes from the code is in the pages already: ``tables.py`` writes it."""

from __future__ import annotations

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from kafka._version import __version__  # noqa: E402

project = "kafka-taskloop"
copyright = "the authors of kafka-taskloop"  # noqa: A001
version = release = __version__

exclude_patterns = ["_build"]
nitpicky = True
html_theme = "alabaster"
html_theme_options = {"description": "A Kafka client that also carries background jobs", "fixed_sidebar": True}
