"""What the loop has to tell the user, by an exception of the next poll."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kafka.errors import KafkaError


class Reports:
    """``on_news`` is called when there is one. Errors come in on the loop, and go out where the user is."""

    def __init__(self, on_news: Callable[[], object]) -> None:
        self.fatal: KafkaError | None = None
        """Nothing comes any more, as every poll says; until another subscription."""
        self._on_news = on_news
        self._errors: deque[KafkaError] = deque()

    def put(self, error: KafkaError, is_fatal: bool = False) -> None:
        """To be raised once; a fatal one again and again."""
        if is_fatal:
            self.fatal = error
        else:
            self._errors.append(error)
        self._on_news()

    @property
    def is_empty(self) -> bool:
        return not self._errors and self.fatal is None

    def raise_one(self) -> None:
        """Raise what there is, if anything."""
        if self._errors:
            raise self._errors.popleft()
        if self.fatal is not None:
            raise self.fatal
