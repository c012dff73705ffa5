"""An app whose import takes as long as a file is there, and longer than any test waits."""

from __future__ import annotations

import os
import time

while os.path.exists(os.environ.get("KAFKA_TEST_SLOW_IMPORT", "")):
    time.sleep(0.002)

from test.tasks.pools.children_app import app as app  # noqa: E402
