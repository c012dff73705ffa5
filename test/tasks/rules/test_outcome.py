"""Tests of ``kafka.tasks.rules.outcome``: outcomes are data, and a lost child says how it ended."""

from __future__ import annotations

import pytest

from kafka.tasks.rules.outcome import (
    LOST_CAUSES,
    AttemptFailed,
    ChildLost,
    ErrorInfo,
    InvalidRecord,
    JobCancelled,
    JobExpired,
    JobRetried,
    JobSnoozed,
    JobSucceeded,
    LockLost,
    NotDue,
    NotStarted,
    Outcome,
    SuspectedCrash,
    UnknownTask,
    WorkerCrashed,
)

FAULT = ErrorInfo("OSError", "disk")
ONE_OF_EACH: list[Outcome] = [
    JobSucceeded(b"1"),
    AttemptFailed(FAULT),
    JobRetried(5),
    JobSnoozed(5),
    JobCancelled("no"),
    JobExpired(),
    WorkerCrashed(FAULT),
    ChildLost("exit"),
    SuspectedCrash(),
    NotStarted(),
    NotDue(5),
    UnknownTask("f"),
    InvalidRecord("bad-id", "x"),
    LockLost(),
]


def test_an_outcome_is_one_of_these() -> None:
    assert sorted(type(each).__name__ for each in ONE_OF_EACH) == sorted(str(Outcome).split(" | "))


def test_what_is_left_out_of_an_outcome() -> None:
    assert AttemptFailed(FAULT) == AttemptFailed(FAULT, listed=True, kill_signal=None, handlers_called=True)
    assert UnknownTask("f") == UnknownTask("f", reason="")
    assert JobRetried(5) == JobRetried(5, reason="")
    assert ChildLost("exit") == ChildLost("exit", None, None, None, "", counts=True, peak_rss_bytes=None, cpu_s=None)
    assert ErrorInfo("E") == ErrorInfo("E", text="", traceback="")


def test_outcomes_are_values_that_cannot_be_changed() -> None:
    changeable: list[object] = []
    for each in (FAULT, *ONE_OF_EACH):
        try:
            hash(each)
        except TypeError:
            changeable.append(each)
        if hasattr(each, "__dict__"):
            changeable.append(each)
    assert changeable == []


def test_the_causes_of_a_lost_job_are_known_by_these_texts() -> None:
    assert LOST_CAUSES == {
        "time": "killed at its time limit",
        "memory": "killed at its memory limit",
        "oom": "killed by the kernel's OOM killer",
        "signal": "killed by a signal that the worker did not send",
        "exit": "the task ended its process",
        "channel": "its channel was closed or damaged",
        "frozen": "its process was stopped",
        "stopped": "the worker is stopping",
        "cancelled": "killed since its job was cancelled",
    }
    assert ChildLost(
        "exit", exit_code=3, rss_bytes=1 << 20, peak_rss_bytes=2 << 20, cpu_s=1.5, detail="x"
    ).error_info().text == (
        "the job's process ended: the task ended its process; exit code 3; last RSS 1 MiB; peak RSS 2 MiB; "
        "1.5 s of CPU time; x"
    )
    assert ChildLost("exit").error_info().text == "the job's process ended: the task ended its process"


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (ChildLost("signal", 11), ["signal 11 (SIGSEGV)", "worker did not send"]),
        (ChildLost("exit", exit_code=0), ["exit code 0", "ended its process"]),
        (ChildLost("memory", 9, rss_bytes=512 << 20), ["memory limit", "SIGKILL", "512 MiB"]),
        (ChildLost("oom", 9, None, 1 << 30, "3 kills in its cgroup"), ["OOM killer", "1024 MiB", "3 kills in its"]),
        (ChildLost("signal", 9, rss_bytes=50 << 20, peak_rss_bytes=900 << 20), ["last RSS 50 MiB; peak RSS 900 MiB"]),
        (ChildLost("signal", 9, peak_rss_bytes=900 << 20), ["(SIGKILL); peak RSS 900 MiB"]),
        (ChildLost("time", 9), ["time limit"]),
        (ChildLost("new cause", 200), ["new cause", "signal 200 (unknown)"]),
    ],
)
def test_a_lost_job_says_signal_exit_code_memory_and_cause(lost: ChildLost, words: list[str]) -> None:
    error_info = lost.error_info()
    assert error_info.type == "WorkerLost"
    assert [word for word in words if word not in error_info.text] == []


def test_a_peak_that_is_no_more_than_what_was_seen_is_not_reported() -> None:
    assert "peak" not in ChildLost("oom", 9, rss_bytes=900 << 20, peak_rss_bytes=(900 << 20) + 4096).error_info().text
