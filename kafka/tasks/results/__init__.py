"""States of jobs as readers see them: the view, the look-up, and their reader on Kafka."""

from __future__ import annotations
