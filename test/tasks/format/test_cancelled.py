"""Tests of ``kafka.tasks.format.cancelled``."""

from __future__ import annotations

from math import inf

import pytest

from kafka.tasks.format.cancelled import CancelledJob, decode_cancelled, encode_cancelled
from kafka.tasks.format.envelope import Header

JOB_ID = "0123456789abcdef" * 2


def test_a_record_has_the_id_as_its_key_and_says_whether_a_process_is_to_be_ended() -> None:
    assert encode_cancelled(JOB_ID, False) == (JOB_ID.encode(), [])
    assert encode_cancelled(JOB_ID, True) == (JOB_ID.encode(), [("terminate", b"1")])


def test_the_job_comes_back_from_its_record() -> None:
    for is_terminating in (False, True):
        key, headers = encode_cancelled(JOB_ID, is_terminating)
        assert decode_cancelled(key, headers, 5.0) == CancelledJob(JOB_ID, is_terminating, 5.0)
        assert decode_cancelled(key, headers) == CancelledJob(JOB_ID, is_terminating, inf)


@pytest.mark.parametrize("key", [None, b"", b"\xff" * 32, b"0" * 31, b"G" * 32])
def test_a_key_that_is_no_id_is_of_another_kind(key: bytes | None) -> None:
    headers: list[Header] = [("terminate", b"1")]
    assert decode_cancelled(key, headers) is None


def test_another_value_of_the_header_ends_no_process() -> None:
    assert decode_cancelled(JOB_ID.encode(), [("terminate", b"0"), ("x", None)]) == CancelledJob(JOB_ID)
