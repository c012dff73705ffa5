"""The sans-io core: machines that are fed bytes, messages and ``now``, and dialogues that yield what they wait for.

Nothing is imported here: name the module (``from kafka.core.dialogue import Send``).
"""

from __future__ import annotations
