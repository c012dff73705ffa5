"""A script that was written for kafka-python runs unchanged: the peer's scenarios, with this package in its place."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "test" / "peers" / "clients" / "kafka_python.py"

EXPECTED = {
    "group": {"shares": [2, 2], "alone": 4, "seen": 1000, "committed": 1000, "listed": True},
    "transactions": {"committed": 7, "stems": ["a", "b"], "n": 80},
}


@pytest.mark.parametrize("scenario", EXPECTED)
def test_kafka_pythons_script_does_here_what_it_does_there(bootstrap: str, scenario: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), scenario, bootstrap],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == EXPECTED[scenario]
