"""``sticky`` at kafka-python's path."""

from __future__ import annotations
