"""The four assignors, and the base class of a user's own, at kafka-python's paths."""

from __future__ import annotations
