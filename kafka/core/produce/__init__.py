"""The producer without sockets or threads.

    murmur2.py       a key's hash, and its partition
    batch.py         what records wait in
    accumulator.py   records -> batches, under one short lock
    identity.py      producer id and epoch
    fate.py          a broker's error -> what to do (table)
    sender.py        batches -> requests -> results
"""

from __future__ import annotations
