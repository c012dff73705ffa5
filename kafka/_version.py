"""The version of this package, and nothing else: ``setup.py`` reads it as text."""

from __future__ import annotations

__version__ = "0.1.0"
