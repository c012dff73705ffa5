"""Tests of ``kafka.tasks.pools.ipc.messages``: jobs and messages are the same on the other side."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks import App
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.format.envelope import DEAD, OWN_HEADERS, Envelope
from kafka.tasks.pools.ipc import messages
from kafka.tasks.pools.ipc.frames import Frame
from kafka.tasks.pools.ipc.messages import DONE, PROGRESS, STARTED, UP, Packet
from kafka.tasks.pools.ipc.processes import ChannelDamaged, ChildProgress, ChildUp, JobDone, JobStarted
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import AttemptFailed, ErrorInfo, JobCancelled, JobSucceeded, Outcome

APP = App("shop")


@APP.task
def work() -> None: ...


SEQS = st.integers(1, 2**64 - 1)
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=60)
OUTCOMES: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(JobSucceeded, st.binary(max_size=80)),
    st.builds(AttemptFailed, st.builds(ErrorInfo, TEXTS, TEXTS, TEXTS), st.booleans()),
    st.builds(JobCancelled, TEXTS),
)
HEADER_NAMES = st.text(max_size=8).filter(lambda name: name not in OWN_HEADERS and not name.startswith(DEAD))
HEADERS = st.lists(st.tuples(HEADER_NAMES, st.none() | st.binary(max_size=20)), max_size=3)


ENVELOPES = st.builds(
    Envelope,
    st.text("0123456789abcdef", min_size=32, max_size=32),
    st.text(min_size=1, max_size=40).filter(lambda name: "\0" not in name),
    st.binary(max_size=200),
    st.integers(1, 10**17),
    store_result=st.sampled_from([None, True, False]),
    crashes=st.integers(0, 9),
    key=st.none() | st.binary(max_size=9),
    content_type=st.none() | st.just("application/msgpack"),
    extra=HEADERS.map(tuple),
)


@given(SEQS, st.integers(1, 40), ENVELOPES, st.booleans())
def test_a_job_is_the_same_on_the_other_side(
    seq: int, deliveries: int, envelope: Envelope, track_started: bool
) -> None:
    lease = JobLease(JobSource("mail", "shop.mail"), envelope.value, [], deliveries)
    job = Job(lease, envelope, work, track_started=track_started)
    head, names, payload = messages.encode_job(seq, job)
    expected = Packet(seq, "mail", deliveries, envelope, track_started)
    assert messages.decode_job(memoryview(head + names + payload)) == expected
    assert messages.decode_job(memoryview(head), names + payload) == expected
    assert messages.seq_of(head) == seq


def test_a_count_that_no_packet_holds_is_cut() -> None:
    job = Job(JobLease(JobSource("q", "t"), b"", [], 2**40), Envelope("0" * 32, "n", b""), work)
    packet = messages.decode_job(memoryview(b"".join(messages.encode_job(1, job))))
    assert packet.deliveries == 2**32 - 1


@given(SEQS, OUTCOMES, st.floats(0, 1e9), st.floats(0, 1e9))
def test_an_outcome_is_the_same_on_the_other_side(seq: int, outcome: Outcome, ran_s: float, started_at: float) -> None:
    body = messages.encode_done(seq, outcome, ran_s, started_at)
    assert messages.decode_message(Frame(DONE, 0, body), body) == JobDone(seq, outcome, ran_s, started_at)


@given(SEQS, st.floats(0, 1e9))
def test_a_start_is_the_same_on_the_other_side(seq: int, started_at: float) -> None:
    body = messages.encode_started(seq, started_at)
    assert messages.decode_message(Frame(STARTED, 0, body), body) == JobStarted(seq, started_at)


@given(st.integers(1, 2**31), st.integers(1, 2**31), st.text(max_size=20), st.text(max_size=20))
def test_the_handshake_is_the_same_on_the_other_side(pid: int, generation: int, versions: str, tasks: str) -> None:
    up = ChildUp(pid, generation, versions, tasks)
    body = messages.encode_up(up)
    assert messages.decode_message(Frame(UP, 0, body), body) == up


def test_progress_is_text_whatever_is_in_it() -> None:
    body = messages.encode_progress("importing caf\u00e9 \ud800")
    assert messages.decode_message(Frame(PROGRESS, 0, body), body) == ChildProgress("importing caf\u00e9 \\ud800")


@given(st.integers(0, 255), st.binary(max_size=60))
def test_news_that_make_no_sense_are_damage_and_nothing_else(kind: int, body: bytes) -> None:
    try:
        message: Any = messages.decode_message(Frame(kind, 0, body), body)
    except ChannelDamaged:
        return
    assert isinstance(message, (ChildUp, ChildProgress, JobStarted, JobDone))


@pytest.mark.parametrize("kind", [UP, DONE, STARTED, 77])
def test_an_empty_body_is_damage(kind: int) -> None:
    with pytest.raises(ChannelDamaged, match=f"kind {kind}"):
        messages.decode_message(Frame(kind, 0, b""), b"")
