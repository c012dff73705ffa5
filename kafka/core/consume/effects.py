"""What the fetcher wants done, for a driver to do. A new kind is a class here, and an entry in ``consumer/driver.py``.

:class:`~kafka.core.consume.node.SendFetch` is beside the machine that makes it.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka.core.consume.epochs import EpochQuestion
from kafka.core.consume.node import SendFetch
from kafka.structs import TopicPartition


class FindOffsets(NamedTuple):
    """Ask ``leader`` for the offsets of these timestamps; ``generations`` are those of the positions."""

    leader: int
    timestamps: dict[TopicPartition, int]
    generations: dict[TopicPartition, int]


class AskEpochs(NamedTuple):
    """Ask one leader where these epochs ended (``epochs.py``); ``generations`` are those of the positions."""

    questions: dict[TopicPartition, EpochQuestion]
    generations: dict[TopicPartition, int]


class RefreshMetadata(NamedTuple):
    """What is known of these topics is out of date or missing."""

    topics: frozenset[str]


Effect = SendFetch | FindOffsets | AskEpochs | RefreshMetadata
