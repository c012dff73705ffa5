"""Deserializers of a share consumer: bytes of records that were taken become values, one record after the other.

A record whose deserializer fails is given back to the group; those before it are handed out first, those behind it next
time. Nothing that was taken is lost, whatever is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kafka.core.deserialize import deserializer_for
from kafka.core.share.records import ShareRecord
from kafka.share.inbox import Inbox

log = logging.getLogger(__name__)


class Deserializers:
    """``key``, ``value``: as users set them. Falsy without any."""

    def __init__(self, key: Any, value: Any, inbox: Inbox) -> None:
        self._key = deserializer_for(key)
        self._value = deserializer_for(value)
        self._inbox = inbox

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def read(self, taken: list[ShareRecord], release: Callable[[ShareRecord], object]) -> list[ShareRecord]:
        """As many of these as can be read; the rest is put back, and what cannot be read goes to ``release``. What a
        deserializer raises comes through."""
        if not self:
            return taken
        for count, record in enumerate(taken):
            try:
                if record.sizes is None:  # else it was read before, and put back
                    key, value = record.key, record.value
                    record.replace(
                        key if self._key is None else self._key(record.topic, record.headers, key),
                        value if self._value is None else self._value(record.topic, record.headers, value),
                    )
            except Exception:
                if count:
                    self._inbox.put_back(taken[count:])
                    return taken[:count]
                self._inbox.put_back(taken[1:])
                log.error("%r cannot be deserialized and is released", record)
                release(record)
                raise
            except BaseException:
                self._inbox.put_back(taken)
                raise
        return taken
