"""The consumer without sockets or threads: which fetches go where, and records from their answers.

    fetcher.py      which fetches go where and when, what answers do to positions
    partition.py    one partition: where it is read, what is buffered of it, its bytes -> records
    session.py      fetch sessions (KIP-227), and which fetch goes to a node next
    offsets.py      dialogues: offsets by time, ends of leader epochs (KIP-320)
"""

from __future__ import annotations
