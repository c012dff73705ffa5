"""The consumer without sockets or threads.

record.py       ConsumerRecord
sinks.py        records as they are found -> ConsumerRecord, deserialised
fetched.py      one partition's answer -> records: aborted transactions left out
positions.py    where each partition is read, and what is buffered of it
fetcher.py      which fetches go where and when, what becomes of the answers
offsets.py      offsets by time, as a dialogue
"""

from __future__ import annotations
