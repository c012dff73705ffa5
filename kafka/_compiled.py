"""Whether this installation's hot modules were compiled, and the one attribute that tells the compiler more.

This module is compiled together with them (``build_kafka.py`` has the list), so it knows by its own file.
"""

from __future__ import annotations

from typing import Final

IS_COMPILED: Final = not __file__.endswith(".py")


def is_compiled() -> bool:
    """Whether the hot modules run as compiled code; if not, they are plain Python, which does the same more slowly."""
    return IS_COMPILED
