"""What commands that run until they are stopped log on stderr: the option ``--log-level``, and its effect."""

from __future__ import annotations

import argparse
import logging
from typing import Final

from kafka.cli import LOG_FORMAT

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


def add_argument(parser: argparse.ArgumentParser) -> None:
    """The option."""
    parser.add_argument(
        "--log-level",
        default="INFO",
        type=str.upper,
        choices=LEVELS,
        help="what to log on stderr (default: %(default)s)",
    )


def configure(level: str) -> None:
    """Log from this level on."""
    logging.basicConfig(level=level, format=LOG_FORMAT)
    if level == "INFO":  # each attempt to connect is a line there; commands log the outcome themselves
        logging.getLogger("kafka.client").setLevel(logging.WARNING)
