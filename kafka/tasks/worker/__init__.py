"""The worker: a state machine, its parts, and the driver that runs it on a loop."""

from __future__ import annotations
