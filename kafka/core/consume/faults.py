"""Where a partition's error was: said on the error itself, for programs that go on from there.

    error.topic_partition   the TopicPartition
    error.offset            what could not be read; None when the partition has no position

Here and not in ``errors.py``, since what a user's deserialiser raises may be anything.
"""

from __future__ import annotations

import contextlib

from kafka.structs import TopicPartition


def locate(error: BaseException, partition: TopicPartition, offset: int | None) -> None:
    """Say so. An error that takes no attributes (a user's, with slots) stays as it is."""
    with contextlib.suppress(AttributeError, TypeError):
        for name, value in (("topic_partition", partition), ("offset", offset)):
            setattr(error, name, value)


def is_located(error: BaseException) -> bool:
    """Whether somebody who knows better has said so already."""
    return getattr(error, "topic_partition", None) is not None
