"""What stands before the records of a consumer on a loop: rebalance steps, errors, and commits by time.

A thread that polls does these things in its poll; here nobody polls, so they are done when they come up.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka.consumer.membership import Membership
from kafka.consumer.reader import Reader, Records
from kafka.consumer.reports import Reports
from kafka.net.loop import DeadlineTimer, Loop


class Intake:
    """Takes of ``reader`` what may be taken now. All on the loop's thread."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._membership: Membership | None = None
        self._reports: Reports | None = None
        self._on_news: Callable[[], object] = lambda: None
        self._alarm: DeadlineTimer | None = None
        self._loop: Loop | None = None

    def attach(self, membership: Membership, reports: Reports, on_news: Callable[[], object]) -> None:
        """What is made after the one who takes from here."""
        self._membership = membership
        self._reports = reports
        self._on_news = on_news

    def attend(self) -> None:
        """The group wants something carried out."""
        if self._membership is not None:
            self._membership.attend_on_loop(self._on_news)

    def commit_by_time(self, loop: Loop) -> None:
        """Commit what was handed out, as often as the settings say."""
        self._loop = loop
        self._alarm = DeadlineTimer(loop, self._commit)
        assert self._membership is not None
        self._membership.on_soon = self._commit
        self._commit()

    def _commit(self) -> None:
        assert self._membership is not None and self._alarm is not None and self._loop is not None
        when = self._membership.auto_commit(self._loop.time())
        self._alarm.set(when)

    def is_ready(self) -> bool:
        """Whether :meth:`take` has something to return or to raise."""
        if self._reports is not None and not self._reports.is_empty:
            return True
        return not self._is_busy and self._reader.is_ready()

    def take(self, limit: int) -> Records:
        """The next records; nothing while partitions are being given up."""
        if self._reports is not None:
            self._reports.raise_one()
        return {} if self._is_busy else self._reader.take(limit)

    @property
    def _is_busy(self) -> bool:
        return self._membership is not None and self._membership.is_busy
