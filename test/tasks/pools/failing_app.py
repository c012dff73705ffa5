"""An app whose import raises, or ends the process, as the environment says."""

from __future__ import annotations

import os
import sys

_HOW = os.environ.get("KAFKA_TEST_FAILING_IMPORT", "raise")
if _HOW == "raise":
    raise RuntimeError("no such database")
if _HOW == "exit":
    sys.exit(3)
os._exit(3)
