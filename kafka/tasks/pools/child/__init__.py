"""The child's side of pools of processes."""

from __future__ import annotations
