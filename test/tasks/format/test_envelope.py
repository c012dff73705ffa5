"""Tests of ``kafka.tasks.format.envelope``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.errors import BadRecord
from kafka.tasks.format.envelope import OWN_HEADERS, DeadLetter, Envelope, Header, dead_letter_of, decode
from kafka.tasks.format.job_id import time_of

ID = "018c0a1b2c3d0005" + "ab" * 8
OTHER_ID = "018c0a1b2c3d0007" + "cd" * 8
limits = st.none() | st.floats(0.001, 1e6)
envelopes = st.builds(
    Envelope,
    st.just(ID),
    st.text(min_size=1, max_size=40).filter(lambda s: s.encode("utf-8", "ignore").decode() == s),
    st.binary(max_size=50),
    attempt=st.integers(1, 10**6),
    expires_ms=st.none() | st.integers(0, 2**48),
    timeout=limits,
    soft_timeout=limits,
    store_result=st.none() | st.booleans(),
    crashes=st.integers(0, 100),
    clean=st.integers(0, 100),
    unknown=st.integers(0, 100),
    key=st.none() | st.binary(max_size=8),
    due_ms=st.none() | st.integers(0, 2**48),
    content_type=st.none() | st.just("application/msgpack"),
    needs=st.just(()) | st.just(("fencing", "x")),
    unknown_since_ms=st.none() | st.integers(0, 2**48),
    run=st.none() | st.just("nightly@1700000000000"),
    origin=st.none() | st.just(OTHER_ID),
    parent=st.none() | st.just(OTHER_ID),
    root=st.none() | st.just(OTHER_ID),
    generation=st.integers(0, 10**18 - 1),
    extra=st.just((("traceparent", b"00-1"), ("empty", None))) | st.just(()),
)


def test_each_field_has_its_header() -> None:
    """The header names are the format: other languages and older workers read them (task-queue specification)."""
    envelope = Envelope(
        ID, "f", b"", 2, 3, 4.0, 1.5, False, 5, 6, (("mine", b"1"),), 7, b"user-7", 8, "application/msgpack",
        ("fencing", "groups"), 9, "nightly@10", OTHER_ID, OTHER_ID, ID, 3,
    )  # fmt: skip
    assert dict(envelope.headers()) == {
        "id": ID.encode(), "name": b"f", "attempt": b"2", "due": b"8", "expires": b"3", "timeout": b"4.0",
        "soft-timeout": b"1.5", "store": b"0", "content-type": b"application/msgpack", "needs": b"fencing,groups",
        "crashes": b"5", "clean": b"6", "unknown": b"7", "unknown-since": b"9", "run": b"nightly@10",
        "origin": OTHER_ID.encode(), "parent": OTHER_ID.encode(), "root": ID.encode(), "generation": b"3", "mine": b"1",
    }  # fmt: skip
    assert dict(envelope.headers()).keys() - {"mine"} == OWN_HEADERS


def test_a_job_keeps_what_is_its_own_when_it_moves() -> None:
    envelope = Envelope(
        ID, "f", b"x", 1, 3, 4.0, 1.5, False, 0, 6, (("mine", b"1"),), 7, b"user-7", 8, "application/msgpack",
        ("fencing",), 9, "nightly@10", OTHER_ID, OTHER_ID, ID,
    )  # fmt: skip
    changed = {"attempt": b"2", "crashes": b"1"}
    counted = {"clean", "unknown", "unknown-since", "due"}
    kept = {name: value for name, value in envelope.headers() if name not in counted}
    moved = envelope.moved(attempt=2, crashes=1)
    assert dict(moved.headers()) == {**kept, **changed}
    assert (moved.key, moved.value) == (b"user-7", b"x")


@given(envelopes)
def test_a_job_survives_the_way_through_a_record(envelope: Envelope) -> None:
    assert decode(envelope.value, envelope.headers(), envelope.key) == envelope


def test_a_first_attempt_has_two_headers() -> None:
    assert Envelope(ID, "mail.send", b"{}").headers() == [("id", ID.encode()), ("name", b"mail.send")]


def test_id_and_name_are_enough_for_a_job() -> None:
    envelope = decode(b"{}", [("name", b"mail.send"), ("id", ID.encode())])
    assert (envelope.attempt, envelope.crashes, envelope.expires_ms) == (1, 0, None)
    assert (time_of(envelope.id), envelope.results_partition) == (0x018C0A1B2C3D, 5)


@pytest.mark.parametrize(
    ("value", "headers", "cause"),
    [
        (b"", [], "no-job"),
        (b"", [("id", ID.encode())], "no-job"),
        (b"", [("name", b"f")], "no-job"),
        (b"", [("id", ID.encode()), ("name", b"")], "no-job"),
        (b"", [("id", b"42"), ("name", b"f")], "bad-id"),
        (None, [("id", ID.encode()), ("name", b"f")], "no-payload"),
        (b"", [("id", None), ("name", b"f")], "bad-header"),
        (b"", [("id", ID.encode()), ("name", b"\xff")], "bad-header"),
        (b"", [("id", ID.encode()), ("name", b"f"), ("attempt", b"0")], "bad-header"),
        (b"", [("id", ID.encode()), ("name", b"f"), ("attempt", b"-1")], "bad-header"),
        (b"", [("id", ID.encode()), ("name", b"f"), ("crashes", "²".encode())], "bad-header"),
        (b"", [("id", ID.encode()), ("name", b"f"), ("timeout", b"nan")], "bad-header"),
        (b"", [("id", ID.encode()), ("name", b"f"), ("origin", b"42")], "bad-header"),
        (b"", [("id", ID.encode()), ("name", b"f"), ("run", b"r" * 101)], "bad-header"),
        (b"", [("id", ID.encode()), ("name", b"f"), ("due", b"soon")], "bad-header"),
        (b"", [("id", ID.encode()), ("name", b"f"), ("timeout", b"inf")], "bad-header"),
        (b"", [("id", ID.encode()), ("name", b"f"), ("store", b"no")], "bad-header"),
        (b"", [("id", ID.encode()), ("name", b"f"), ("expires", b"9" * 5000)], "bad-header"),
        (b"", [("id", ID.encode()), ("name", b"f")] + [("x", b"")] * 101, "too-many-headers"),
        (b"", [("id", ID.encode()), ("name", b"f")] + [("attempt", b"1")] * 127, "too-many-headers"),
    ],
)
def test_a_record_that_is_no_job_says_why(value: bytes | None, headers: list[Header], cause: str) -> None:
    with pytest.raises(BadRecord) as caught:
        decode(value, headers)
    assert caught.value.cause == cause


def test_the_error_of_a_record_is_one_line_however_large_the_record_is() -> None:
    large = b"x" * 1_000_000
    for headers in (
        [("id", large), ("name", b"f")],
        [("id", ID.encode()), ("name", b"\xff" + large)],
        [("id", ID.encode()), ("name", b"f"), ("timeout", large)],
        [("", None)] * 100_000,
    ):
        with pytest.raises(BadRecord) as caught:
            decode(b"", headers)
        assert len(caught.value.text) < 600
        assert any(size in caught.value.text for size in ("1000000", "1000001", "100000 headers"))


def test_a_job_with_as_many_headers_of_others_as_there_may_be_stays_one_on_its_way() -> None:
    given_headers: list[Header] = [("id", ID.encode()), ("name", b"f"), *[(f"x-{n}", b"") for n in range(100)]]
    moved = decode(b"{}", given_headers).moved(attempt=7, crashes=2, clean=3, unknown=1)
    moved.expires_ms, moved.timeout, moved.soft_timeout, moved.store_result = 1, 2.0, 1.0, False
    death = DeadLetter("attempts", "OSError", "disk", "Traceback", "host", 1234, "shop.mail:0:7")
    assert decode(b"{}", moved.headers() + death.headers()) == moved


names = st.sampled_from(["id", "name", "attempt", "timeout", "store", "expires", "crashes", "other"])


@given(st.none() | st.binary(max_size=9), st.lists(st.tuples(names, st.none() | st.binary(max_size=34)), max_size=6))
def test_any_record_is_a_job_or_a_bad_record(value: bytes | None, headers: list[Header]) -> None:
    try:
        decode(value, headers)
    except BadRecord as error:
        assert error.cause


def test_a_dead_record_is_its_job_and_its_death() -> None:
    envelope = Envelope(ID, "f", b"{}", attempt=3)
    death = DeadLetter("attempts", "OSError", "disk \udc80", "Traceback", "host", 1234, "shop.mail:0:7")
    headers = envelope.headers() + death.headers()
    assert decode(b"{}", headers) == envelope
    told = dead_letter_of(headers)
    assert told is not None
    assert (told.cause, told.type, told.time_ms, told.origin) == ("attempts", "OSError", 1234, "shop.mail:0:7")
    assert dead_letter_of(envelope.headers()) is None
