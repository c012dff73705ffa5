"""``python -m kafka``: see :mod:`kafka.cli`."""

from __future__ import annotations

import sys

from kafka.cli import main

if __name__ == "__main__":
    sys.exit(main())
