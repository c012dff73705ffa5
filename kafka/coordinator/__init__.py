"""The places where kafka-python has its assignors and what they say to one another. They are in ``core/group``."""

from __future__ import annotations
