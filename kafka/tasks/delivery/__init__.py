"""How a worker gets jobs and finishes them."""

from __future__ import annotations
