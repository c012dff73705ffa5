"""``auto_offset_reset``: where a partition is read that has no position, or one that its log does not have (KIP-1106).

    latest, earliest             its end, its start
    by_duration:PT3600S          the first record that is not older than that now; the end where there is none
    none                         nowhere: an error for the reader

The texts are as the setting's check leaves them. Another policy is another row, or another branch in
:meth:`ResetPolicy.timestamp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kafka.core.consume.positions import EARLIEST, LATEST

BY_DURATION: Final = "by_duration:PT"
TIMESTAMPS: Final[Mapping[str, int | None]] = {"latest": LATEST, "earliest": EARLIEST, "none": None}


class ResetPolicy:
    """``wall_ms`` gives the time of day, in ms since the epoch, as records have it."""

    def __init__(self, text: str, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._age_ms: int | None = None
        self._timestamp: int | None = None
        if text.startswith(BY_DURATION):
            self._age_ms = round(float(text[len(BY_DURATION) : -1]) * 1000)
        else:
            self._timestamp = TIMESTAMPS[text]

    @property
    def resets(self) -> bool:
        """A position is found anew; else its reader is told."""
        return self._age_ms is not None or self._timestamp is not None

    def timestamp(self) -> int | None:
        """The timestamp to look up now; None when nothing is to be reset."""
        return self._timestamp if self._age_ms is None else max(self._wall_ms() - self._age_ms, 0)
