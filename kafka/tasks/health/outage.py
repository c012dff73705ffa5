"""Logs one line when no broker is reachable, and one when a broker is reachable again.

Two signs, looked at every :data:`CHECK_S` seconds: no connection stands, or no group has answered for too long (a
broker that hangs, or a network that swallows everything, leaves connections as they are). Time comes as an argument.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from kafka.tasks.delivery.base import BrokerContact
from kafka.tasks.health.checks import MISSED_INTERVALS

log = logging.getLogger(__name__)

CHECK_S: Final = 1.0
REPORT_AFTER_S: Final = 3.0
"""A broker that is restarted within this is not worth a line."""
LATE_CHECK_S: Final = 2.0
"""Looks that lie further apart: the loop stood still (a job of the pool ``inline``, SIGSTOP), and could read no answer.
"""


class BrokerOutage:
    """Detects and logs outages. ``since`` is when the one under way began, on the clock of ``now``; None: there is
    none."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._is_reported = False
        self._error = ""
        self._checked_at: float | None = None

    def check(self, now: float, contacts: Sequence[BrokerContact], connect_error: str | None) -> None:
        """``connect_error``: the last error when no connection stands ("": not known), None when one does."""
        checked_at, self._checked_at = self._checked_at, now
        if checked_at is not None and now - checked_at > LATE_CHECK_S:
            return
        answers = [contact.at for contact in contacts if contact.at is not None]
        is_silent = bool(answers) and all(
            contact.at is None or now - contact.at > MISSED_INTERVALS * contact.interval_s for contact in contacts
        )
        is_out = connect_error is not None or is_silent
        self._error = connect_error or self._error
        if not is_out:
            if self.since is not None and max(answers, default=now) > self.since:
                self._end(now - self.since)
            return
        if self.since is None:
            self.since = max(answers) if connect_error is None else now
        if not self._is_reported and now - self.since >= REPORT_AFTER_S:
            self._is_reported = True
            why = f"last error: {self._error}" if self._error else "no responses"
            log.warning("no broker reachable, no jobs are leased until one is (%s)", why)

    def _end(self, seconds: float) -> None:
        if self._is_reported:
            log.warning("broker reachable again after %.0f s; leasing jobs again", seconds)
        self.since = None
        self._is_reported = False
        self._error = ""
