"""Between the worker and a child process: channel, frames, messages, shared memory."""

from __future__ import annotations
