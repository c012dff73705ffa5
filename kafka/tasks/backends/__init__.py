"""Where jobs are kept, by the scheme of ``bootstrap_servers``."""

from __future__ import annotations
