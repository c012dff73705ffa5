"""Every layout of what the queue writes, and its versions. Pure."""

from __future__ import annotations
