"""Kafka's messages as data, one module for each family; ``registry`` knows them all, ``framing`` adds the headers.

To add an API: its request and response classes in the module of its family, and its line in ``registry.py``. The test
that compares every class with Kafka's own schemas, and the protocol page of the documentation, find it there.
"""

from __future__ import annotations
