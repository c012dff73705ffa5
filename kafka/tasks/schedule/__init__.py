"""Decides when jobs run: one state machine for each partition of the schedule, and the times of periodic jobs."""

from __future__ import annotations
