"""Tests of ``kafka.tasks.format.offset_metadata``: the texts are put together by hand, byte for byte."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka.tasks.format.offset_metadata import MOST_CHARACTERS, MarkedJob, PartitionMarks, decode, encode
from test.support.rounds import ROUNDS

EXAMPLES = {
    # 00 started_below, 00 suspects_below, 00 runs, 00 bytes of them, 00 jobs
    "writer": (10, PartitionMarks(writer="queue.1"), "1:AAAAAAA:queue.1"),
    # 01 bitmap, 01 byte of it: 00011100
    "bitmap": (10, PartitionMarks(((12, 14),)), "1:AAABARwA:"),
    # two bytes of it, 11111110 11111110: the characters of base64url
    "base64url": (0, PartitionMarks(((1, 7), (9, 15))), "1:AAABAv7-AA:"),
    # 00 runs, 03 bytes of them: 01 has not ended, AC 02 (300) have
    "runs": (100, PartitionMarks(((101, 400),)), "1:AAAAAwGsAgA:"),
    # 05 started_below, 82 01 (130) suspects_below
    "below": (1_000, PartitionMarks((), 1_005, 1_130, {}, "a:1:b"), "1:BYIBAAAA:a:1:b"),
    # 01 job: 03 behind, 03 started and a suspect, 02 attempts, 01 crash, 00 losses
    "suspect": (50, PartitionMarks(jobs={53: MarkedJob(2, 1, 0, True, True)}), "1:AAAAAAEDAwIBAA:"),
    # 02 jobs: 00 behind, 0C due and unknown, 01, 00, 00, E8 07 (1,000 ms), 01 unknown, 80 01 (128) since;
    # 02 behind that, 02 a suspect, 00, 00, 03 losses
    "held": (
        0,
        PartitionMarks(
            jobs={
                2: MarkedJob(losses=3, is_suspect=True),
                0: MarkedJob(1, due_ms=1_000, unknown=1, unknown_since_ms=128),
            }
        ),
        "1:AAAAAAIADAEAAOgHAYABAgIAAAM:",
    ),
    "nothing": (7, PartitionMarks(), ""),
}

NUMBERS = st.integers(0, 300) | st.integers(0, 1 << 42)
COUNTS = st.integers(0, 3) | st.integers(0, 1 << 20)
JOBS = st.builds(MarkedJob, COUNTS, COUNTS, COUNTS, st.booleans(), st.booleans(), NUMBERS, COUNTS, NUMBERS)
DISTANCES = st.integers(1, 5) | st.integers(1, 3_000_000)


@st.composite
def commits(draw: st.DrawFn) -> tuple[int, PartitionMarks]:
    offset = draw(st.integers(0, 1 << 40))
    at, runs = offset, []
    for gap, length in draw(st.lists(st.tuples(DISTANCES, DISTANCES), max_size=20)):
        runs.append((at + gap, at + gap + length - 1))
        at += gap + length
    started, suspects = (draw(st.just(0) | DISTANCES.map(lambda each: offset + each)) for _ in range(2))
    jobs = draw(st.dictionaries(st.integers(offset, offset + 1_000), JOBS, max_size=8))
    return offset, PartitionMarks(tuple(runs), started, suspects, jobs, draw(st.text(max_size=20)))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_text_is_laid_out_as_described(name: str) -> None:
    offset, marks, text = EXAMPLES[name]
    assert encode(offset, marks) == text
    assert decode(offset, text) == marks


def test_marks_at_and_below_the_offset_say_nothing() -> None:
    assert encode(10, PartitionMarks(started_below=10, suspects_below=4)) == ""


def test_no_text_is_no_marks() -> None:
    assert decode(10, None) == decode(10, "") == PartitionMarks()


@given(commits())
@settings(max_examples=200 * ROUNDS, deadline=None)
def test_what_is_encoded_is_decoded(commit: tuple[int, PartitionMarks]) -> None:
    offset, marks = commit
    assert decode(offset, encode(offset, marks)) == marks


@given(commits())
@settings(max_examples=50 * ROUNDS, deadline=None)
def test_a_text_cut_before_the_name_of_its_writer_is_not_understood(commit: tuple[int, PartitionMarks]) -> None:
    offset, marks = commit
    text = encode(offset, marks._replace(writer=""))
    for length in range(1, len(text)):
        assert decode(offset, text[:length]) is None


@given(
    st.text(max_size=40)
    | st.tuples(st.text(max_size=40), st.text(max_size=5)).map(lambda each: f"1:{each[0]}:{each[1]}")
    | st.binary(max_size=60).map(lambda body: f"1:{base64.urlsafe_b64encode(body).rstrip(b'=').decode()}:w")
    | st.tuples(st.binary(max_size=30), st.integers(0, 1)).map(
        lambda each: (
            "1:"
            + base64.urlsafe_b64encode(bytes((0, 0, each[1], len(each[0]))) + each[0] + b"\0").rstrip(b"=").decode()
            + ":w"
        )
    )
)
@settings(max_examples=500 * ROUNDS, deadline=None)
def test_damaged_text_is_not_understood_or_gives_marks_that_can_be(text: str) -> None:
    marks = decode(100, text)
    if marks is None or not text:
        return
    before = 100
    for first, last in marks.completed:
        assert before < first <= last, "the offset itself and one more behind each run have not ended"
        before = last + 1
    assert all(each == 0 or each > 100 for each in (marks.started_below, marks.suspects_below))
    assert all(each >= 100 for each in marks.jobs)
    assert decode(100, encode(100, marks)) == marks


@given(commits(), st.data())
@settings(max_examples=200 * ROUNDS, deadline=None)
def test_a_changed_character_raises_nothing(commit: tuple[int, PartitionMarks], data: st.DataObject) -> None:
    offset, marks = commit
    text = encode(offset, marks) or "1:AAAAAAA:w"
    at = data.draw(st.integers(0, len(text) - 1))
    found = decode(offset, text[:at] + data.draw(st.characters()) + text[at + 1 :])
    assert found is None or decode(offset, encode(offset, found)) == found


@pytest.mark.parametrize(
    "text",
    [
        "2:AAAAAAA:w",
        ":AAAAAAA:w",
        "11:AAAAAAA:w",
        "AAAAAAA",
        "some note",
        "1:AAAAAAA",  # no writer, not even an empty one
        "1:AAAAAAAA:w",  # a byte more
        "1:AAACAAA:w",  # a form to come
        "1:AAAAAAEDEAIBAA:",  # a flag to come
        "1:AAABAQEA:",  # the committed offset has ended
        "1:AAAAAgABAA:",  # so in runs
        "1:AAAA AAA:w",  # not base64url
        "1:" + "_" * 16 + ":w",  # a number without an end
    ],
)
def test_text_of_others_and_of_releases_to_come_is_not_understood(text: str) -> None:
    assert decode(0, text) is None


def test_sixteen_thousand_offsets_in_any_order_fit() -> None:
    runs = tuple((offset, offset) for offset in range(1_001, 17_000, 2))
    text = encode(1_000, PartitionMarks(runs, 17_000, 0, {}, "queue.worker-1"))
    assert len(text) < 4_000
    assert MOST_CHARACTERS == 4_000
    assert decode(1_000, text) == PartitionMarks(runs, 17_000, 0, {}, "queue.worker-1")


@pytest.mark.parametrize("done", [1_000_000, 30_000_000])
def test_jobs_behind_one_that_is_stuck_take_no_room(done: int) -> None:
    marks = PartitionMarks(((1_001, 1_000 + done),), 1_001 + done)
    text = encode(1_000, marks)
    assert len(text) <= 24, "five numbers of four bytes at most"
    assert decode(1_000, text) == marks
