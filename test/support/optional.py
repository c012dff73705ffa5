"""Marks of tests that need an optional package."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

needs_re2 = pytest.mark.skipif(
    find_spec("re2") is None, reason="the optional package google-re2 is not installed"
)
