"""What to do when a broker refuses a batch: data first, one function that reads it.

    SUCCEEDED     the records are in the log (an answer to a repetition)
    RETRY         send the same batch again after the back-off, after a look at the metadata where the error says so
    RENUMBER      the producer's state was lost at the broker: a new epoch, sequences from 0, then send again (KIP-360)
    FAIL          the batch's records fail with the error
    FATAL         so does everything: this producer may not go on

Codes that are not named go by their class: retriable ones RETRY, others FAIL.

Source: the Java client's ``Sender.completeBatch`` and ``TransactionManager.canRetry``; KIP-98, KIP-360.
"""

from __future__ import annotations

import enum
from typing import Final

from kafka.errors import (
    ClusterAuthorizationFailedError,
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    UnknownProducerIdError,
    UnsupportedForMessageFormatError,
)


class Fate(enum.Enum):
    """What becomes of a refused batch."""

    SUCCEEDED = "succeeded"
    RETRY = "retry"
    RENUMBER = "renumber"
    FAIL = "fail"
    FATAL = "fatal"


FATES: Final[dict[type[BaseException], Fate]] = {
    DuplicateSequenceNumberError: Fate.SUCCEEDED,
    OutOfOrderSequenceNumberError: Fate.RENUMBER,
    UnknownProducerIdError: Fate.RENUMBER,
    InvalidProducerEpochError: Fate.RENUMBER,
    ProducerFencedError: Fate.FATAL,
    ClusterAuthorizationFailedError: Fate.FATAL,
    UnsupportedForMessageFormatError: Fate.FAIL,
}
"""The errors whose recovery does not follow from their class."""


def fate_for(error: BaseException, *, is_next_in_sequence: bool) -> Fate:
    """What to do about ``error``. ``is_next_in_sequence``: no earlier batch of the partition is still unanswered;
    otherwise a gap in the sequence only says that the earlier one failed too, and both are to be sent again."""
    found = FATES.get(type(error))
    if isinstance(error, OutOfOrderSequenceNumberError) and not is_next_in_sequence:
        return Fate.RETRY
    if found is not None:
        return found
    return Fate.RETRY if getattr(error, "retriable", False) else Fate.FAIL
