"""``KAFKA_TEST_ROUNDS`` (default 1) multiplies the rounds or examples of the tests that can run for longer."""

from __future__ import annotations

import os
from typing import Final

ROUNDS: Final = max(1, int(os.environ.get("KAFKA_TEST_ROUNDS", "1")))
