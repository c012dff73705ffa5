"""The consumer without sockets or threads: which fetches go where, and records from their answers.

    fetcher.py      which fetches go where and when, what answers do to positions
    positions.py    where each partition is read, what is buffered of it, and how a position is reset
    session.py      fetch sessions (KIP-227), and which fetch goes to a node next
    fetched.py      one partition's part of an answer -> records
    record.py       ConsumerRecord
    offsets.py      dialogues: offsets by time, ends of leader epochs (KIP-320)
"""

from __future__ import annotations
