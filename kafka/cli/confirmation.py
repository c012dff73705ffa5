"""Asks before a command deletes something."""

from __future__ import annotations

import sys

from kafka.cli import EXIT_FAILED, CommandError


def confirm(question: str) -> None:
    """Ask on the terminal. CommandError when the answer is not yes, and where nothing can be asked."""
    if not sys.stdin.isatty():
        raise CommandError(f"{question} Not without --yes where standard input is not a terminal")
    print(question, "[y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed", EXIT_FAILED)
