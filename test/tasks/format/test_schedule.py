"""Tests of ``kafka.tasks.format.schedule``."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.errors import BadRecord
from kafka.tasks.format.commands import StoredJob
from kafka.tasks.format.envelope import Header
from kafka.tasks.format.schedule import (
    ENDED,
    LEASED,
    MOVED,
    SENT,
    WAITING,
    JobPlace,
    ScheduleRecord,
    decode_detail,
    decode_job,
    decode_place,
    encode_ended,
    encode_gone,
    encode_moved,
    encode_sent,
    encode_waiting,
)

ID = "018c0a1b2c3d0005" + "ab" * 8
JOB = StoredJob("mail", b"user-7", b"payload", [("id", ID.encode()), ("name", b"f"), ("mine", None)])

numbers = st.integers(0, 10**18 - 1)
own_headers: st.SearchStrategy[list[Header]] = st.lists(
    st.tuples(
        st.sampled_from(["id", "name", "attempt", "request", "queue", "mine"]), st.none() | st.binary(max_size=9)
    ),
    max_size=5,
)
jobs = st.builds(
    StoredJob,
    st.sampled_from(["default", "mail.bulk"]),
    st.none() | st.binary(max_size=9),
    st.binary(max_size=20),
    own_headers,
    st.booleans(),
)

RECORDS: list[tuple[ScheduleRecord, bytes, bytes | None]] = [
    (encode_waiting(JobPlace(WAITING, ID, 5, 4, 3, 9), JOB), b"WAITING 5 4 3 9 0", b"payload"),
    (encode_waiting(JobPlace(WAITING, ID, 5, 4, 3), JOB), b"WAITING 5 4 3 - 0", b"payload"),
    (encode_waiting(JobPlace(LEASED, ID, 5, 4, 3, since_ms=2), JOB), b"LEASED 5 4 3 - 2", b"payload"),
    (encode_ended(JobPlace(ENDED, ID, 5, 5, 3, state="REVOKED"), b"{}"), b"ENDED 5 3 REVOKED", b"{}"),
    (encode_sent(JobPlace(SENT, ID, 4, 5, 3, attempt=2)), b"SENT 5 4 3 2", b""),
    (encode_moved(ID, 5, 3), b"MOVED 5 3", None),
]  # fmt: skip


@pytest.mark.parametrize(("record", "place", "value"), RECORDS)
def test_each_place_has_its_header_and_its_value(record: ScheduleRecord, place: bytes, value: bytes | None) -> None:
    """What is drawn in the module's docstring: a later release reads what this one has written."""
    assert record.key == ID.encode()
    assert record.headers[0] == ("schedule-place", place)
    assert record.value == value


def test_a_waiting_job_has_its_queue_its_key_and_its_headers() -> None:
    record = encode_waiting(JobPlace(WAITING, ID, 5, 4, 3), JOB)
    assert record.headers[1:] == [
        ("schedule-queue", b"mail"), ("schedule-key", b"user-7"), ("id", ID.encode()), ("name", b"f"), ("mine", None)
    ]  # fmt: skip


def test_a_job_of_an_ordered_queue_says_so_and_one_of_a_release_before_says_nothing() -> None:
    record = encode_waiting(JobPlace(WAITING, ID, 5, 4, 3), JOB._replace(is_ordered=True))
    assert record.headers[1:4] == [("schedule-queue", b"mail"), ("schedule-key", b"user-7"), ("schedule-ordered", b"1")]
    without = [header for header in record.headers if header[0] != "schedule-ordered"]
    assert decode_job(record.value, without) == JOB
    assert not JOB.is_ordered


def test_what_is_moved_or_gone_is_a_tombstone() -> None:
    """Null values: compaction removes them after ``delete.retention.ms``."""
    assert encode_moved(ID, 5, 3).value is None
    assert encode_gone(ID) == (ID.encode(), None, [])
    assert decode_place(ID.encode(), []) is None


@given(st.sampled_from([WAITING, LEASED]), numbers, numbers, numbers, st.none() | numbers, jobs)
def test_a_job_that_waits_or_runs_comes_back(
    kind: str, at_ms: int, announced_ms: int, generation: int, expires_ms: int | None, job: StoredJob
) -> None:
    since_ms = announced_ms
    place = JobPlace(kind, ID, at_ms, announced_ms, generation, expires_ms, since_ms=since_ms)
    record = encode_waiting(place, job)
    assert decode_place(record.key, record.headers) == place
    assert decode_job(record.value, record.headers) == job


@given(numbers, numbers, numbers, numbers)
def test_places_without_a_job_come_back(at_ms: int, announced_ms: int, generation: int, attempt: int) -> None:
    for state in ("REVOKED", "FAILURE", "SUCCESS"):
        ended = JobPlace(ENDED, ID, at_ms, at_ms, generation, state=state)
        assert decode_place(*_placed(encode_ended(ended, b"{}"))) == ended
    sent = JobPlace(SENT, ID, at_ms, announced_ms, generation, attempt=attempt)
    assert decode_place(*_placed(encode_sent(sent))) == sent
    moved = JobPlace(MOVED, ID, at_ms, at_ms, generation)
    assert decode_place(*_placed(encode_moved(ID, at_ms, generation))) == moved


def _placed(record: ScheduleRecord) -> tuple[bytes, list[Header]]:
    return record.key, record.headers


@pytest.mark.parametrize(
    "place",
    [
        None, b"", b"WAITING", b"WAITING 1 2 3", b"WAITING 1 2 3 4 5 6", b"WAITING 1 2 3 x 0", b"WAITING 1 2 3  0",
        b"WAITING -1 2 3 - 0", b"WAITING +1 2 3 - 0", b"WAITING 1_0 2 3 - 0", b"WAITING 1.0 2 3 - 0",
        b"WAITING 1  3 - 0",
        b"WAITING " + b"9" * 19 + b" 2 3 - 0", b"WAITING 1 2 " + b"9" * 5000 + b" - 0", b"waiting 1 2 3 - 0",
        "WAITING \u0661 2 3 - 0".encode(), b"LEASED 1 2 3 -", b"MOVED 1", b"MOVED 1 2 3", b"MOVED 1 -", b"SENT 1 2 3",
        b"SENT 1 2 3 - 0", b"ENDED 1 REVOKED", b"ENDED 1 2 3", b"ENDED 1 2 STARTED", b"ENDED 1 2 \xff", b"\xff\xfe",
        b"LATER 1 2",
    ],
)  # fmt: skip
def test_a_damaged_place_is_a_bad_record(place: bytes | None) -> None:
    """Its numbers fit 64 bits, of which the table of pending jobs has no more."""
    with pytest.raises(BadRecord) as caught:
        decode_place(ID.encode(), [("schedule-place", place)])
    assert caught.value.cause == "bad-schedule"


@pytest.mark.parametrize(
    "key", [None, b"", b"entry:nightly", b"declared", ID.encode()[:-1], ID.upper().encode(), b"\xff" * 32]
)
@pytest.mark.parametrize("headers", [[], [("schedule-place", b"MOVED 5 3")]])
def test_a_record_with_the_key_of_no_job_is_a_bad_record(key: bytes | None, headers: list[Header]) -> None:
    with pytest.raises(BadRecord):
        decode_place(key, headers)


def test_a_record_whose_first_header_is_another_is_a_bad_record() -> None:
    """Only the owner of a partition writes here: it is not a job that is gone."""
    with pytest.raises(BadRecord):
        decode_place(ID.encode(), [("name", b"f"), ("schedule-place", b"MOVED 5 3")])


@pytest.mark.parametrize(
    "queue", [[], [("schedule-queue", None)], [("schedule-queue", b"")], [("schedule-queue", b"\xff")]]
)
def test_a_waiting_job_without_a_queue_is_a_bad_record(queue: list[Header]) -> None:
    with pytest.raises(BadRecord):
        decode_job(b"payload", [("schedule-place", b"WAITING 5 4 3 -"), *queue])


def test_a_waiting_job_without_a_value_is_a_bad_record() -> None:
    with pytest.raises(BadRecord):
        decode_job(None, [("schedule-place", b"WAITING 5 4 3 -"), ("schedule-queue", b"mail")])


@pytest.mark.parametrize("value", [b"{", b"[]", b"null", b"1", b"\xff", b"[" * 100_000])
def test_an_end_that_is_no_object_is_a_bad_record(value: bytes) -> None:
    with pytest.raises(BadRecord):
        decode_detail(value)


def test_an_end_without_a_value_has_no_details() -> None:
    assert (decode_detail(None), decode_detail(b"")) == ({}, {})


words = st.sampled_from(
    [b"WAITING", b"LEASED", b"ENDED", b"SENT", b"MOVED", b"REVOKED", b"-", b"5", b"9" * 18, b"9" * 19]
)
places = st.one_of(st.none(), st.binary(max_size=20), st.lists(words, max_size=6).map(b" ".join))


@given(
    st.sampled_from([ID.encode(), ID.encode()[:9], None]) | st.binary(max_size=34),
    st.none() | st.binary(max_size=9),
    places,
    st.lists(
        st.tuples(st.sampled_from(["schedule-queue", "schedule-key", "x"]), st.none() | st.binary(max_size=4)),
        max_size=4,
    ),
)
def test_whatever_a_record_holds_it_is_read_or_a_bad_record(
    key: bytes | None, value: bytes | None, place: bytes | None, more: list[Header]
) -> None:
    headers: list[Header] = [("schedule-place", place), *more]
    with contextlib.suppress(BadRecord):
        decode_place(key, headers)
    with contextlib.suppress(BadRecord):
        decode_job(value, headers)
    with contextlib.suppress(BadRecord):
        decode_detail(value)
