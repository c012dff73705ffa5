from __future__ import annotations

import pytest

from kafka.broker.share.states import AckBatch, check_ack_batches, runs_of
from kafka.errors import InvalidRequestError


@pytest.mark.parametrize(
    "batches",
    [
        [AckBatch(5, 4, (1,))],
        [AckBatch(5, 6, ())],
        [AckBatch(5, 7, (1, 1))],
        [AckBatch(5, 5, (1, 1))],
        [AckBatch(5, 5, (5,))],
        [AckBatch(5, 5, (-1,))],
        [AckBatch(5, 9, (1,)), AckBatch(3, 4, (1,))],
        [AckBatch(-2, -2, (1,))],
    ],
)
def test_malformed_acknowledgements_are_invalid_requests(batches: list[AckBatch]) -> None:
    with pytest.raises(InvalidRequestError):
        check_ack_batches(batches)


@pytest.mark.parametrize(
    "batches",
    [
        [],
        [AckBatch(5, 5, (1,))],
        [AckBatch(5, 9, (0,))],
        [AckBatch(5, 8, (0, 1, 2, 3))],
        [AckBatch(5, 9, (1,)), AckBatch(9, 9, (1,)), AckBatch(12, 12, (1,))],
    ],
)
def test_well_formed_acknowledgements_pass(batches: list[AckBatch]) -> None:
    """KafkaApis.validateAcknowledgementBatches: an overlap of one offset is found with the records, not here."""
    check_ack_batches(batches)


def test_renew_needs_the_requests_flag() -> None:
    check_ack_batches([AckBatch(0, 1, (4,))], is_renew_ack=True)
    with pytest.raises(InvalidRequestError):
        check_ack_batches([AckBatch(0, 1, (1, 4))])


def test_neighbours_of_one_type_go_together() -> None:
    assert list(runs_of(AckBatch(3, 9, (1,)))) == [(3, 9, 1)]
    assert list(runs_of(AckBatch(3, 4, (1, 2)))) == [(3, 3, 1), (4, 4, 2)]
    assert list(runs_of(AckBatch(3, 8, (1, 1, 2, 0, 0, 1)))) == [(3, 4, 1), (5, 5, 2), (6, 7, 0), (8, 8, 1)]
