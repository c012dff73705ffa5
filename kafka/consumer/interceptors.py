"""Interceptors (KIP-42): users' objects that see what a consumer hands out, and what it has committed.

    on_consume({partition: [record]}) -> the same or other ones     in the thread that polls, before poll() returns
    on_commit({partition: offset and metadata})                     there, too: when the commit was answered, at the end
                                                                    of commit() or in a later poll() or close()
    close()                                                         when the consumer is closed

Any of them may be missing. An error in one is logged and changes nothing: the next one gets the records as the one
before has left them. Records that an interceptor leaves out count as consumed. It is called once for what a poll
returns, and for what iteration takes at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.core.consume.partition import RecordsByPartition
from kafka.structs import OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)


class ConsumerInterceptor:
    """A base to begin with: does nothing."""

    def on_consume(self, records: RecordsByPartition) -> RecordsByPartition:
        """What ``poll`` is to return in place of ``records``, by partition."""
        return records

    def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets were committed."""

    def close(self) -> None:
        """The consumer was closed."""


class ConsumerInterceptors:
    """Those of one consumer, in their order."""

    def __init__(self, given: Sequence[Any]) -> None:
        self._all = [one() if isinstance(one, type) else one for one in given]

    def on_consume(self, records: RecordsByPartition) -> RecordsByPartition:
        """What is to be handed out."""
        for one in self._all:
            method = getattr(one, "on_consume", None)
            if method is None:
                continue
            try:
                made = method(records)
                if not isinstance(made, Mapping):
                    raise TypeError(f"on_consume returned {type(made).__name__}, and no dict of lists of records")
                records = {partition: list(of_partition) for partition, of_partition in made.items() if of_partition}
            except Exception:
                log.exception("interceptor's on_consume raised; returning the records unchanged")
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell them."""
        self._call("on_commit", dict(offsets))

    def close(self) -> None:
        """Tell them."""
        self._call("close")

    def _call(self, name: str, *arguments: Any) -> None:
        for one in self._all:
            method = getattr(one, name, None)
            if method is not None:
                try:
                    method(*arguments)
                except Exception:
                    log.exception("interceptor's %s raised; ignoring it", name)
