"""Tests of ``kafka.tasks.requests``."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kafka.errors import MessageSizeTooLargeError
from kafka.tasks import App, JobTimeout
from kafka.tasks import waiting as waiting_module
from kafka.tasks.format.commands import LIST, LOOK, PAUSE, Command
from kafka.tasks.format.job_id import make_id, partition_of
from kafka.tasks.requests import ask, asking
from kafka.tasks.waiting import run_async
from test.tasks.fakes import FakeBackend, FakeSent

JOB = make_id(5, 0, b"\1" * 8)


def test_an_answer_is_the_owner_s_object(app: App, backend: FakeBackend) -> None:
    seen: list[Command] = []

    def owner(command: Command) -> object:
        seen.append(command)
        return {"state": "SCHEDULED", "due": 7}

    backend.owner = owner
    assert ask(backend, LOOK, JOB, 1.0) == {"state": "SCHEDULED", "due": 7}
    answer = asyncio.run(run_async(asking(backend, PAUSE, "nightly", 1.0, body=b"{}")))
    assert answer == {"state": "SCHEDULED", "due": 7}
    assert [(each.kind, each.subject, each.body) for each in seen] == [(LOOK, JOB, b""), (PAUSE, "nightly", b"{}")]
    assert partition_of(seen[0].request or "") == 3, "that of the client's own ids, which it reads"


@pytest.mark.parametrize("answer", [[1], "text", 3, True])
def test_an_answer_that_is_no_object_says_nothing(backend: FakeBackend, answer: Any) -> None:
    backend.owner = lambda command: answer
    assert ask(backend, LOOK, JOB, 1.0) == {}


def test_a_command_goes_to_the_partition_of_its_subject(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    # The last 48 bits of the id, and the CRC-32 of the name (python -c "import zlib; zlib.crc32(b'nightly')").
    monkeypatch.setattr(backend, "schedule_partitions", lambda: 1000)
    for kind, subject in ((LOOK, JOB), (PAUSE, "nightly")):
        with pytest.raises(JobTimeout):
            ask(backend, kind, subject, 0)
    partitions = [record.partition for record in backend.queues.topics["shop.commands"]]
    assert partitions == [0x0101_0101_0101 % 1000, 267906906 % 1000]


@pytest.mark.parametrize("way", ["thread", "coroutine"])
def test_without_an_owner_the_error_says_what_to_run(backend: FakeBackend, way: str) -> None:
    with pytest.raises(JobTimeout) as caught:
        if way == "thread":
            ask(backend, LOOK, JOB, 0.01)
        else:
            asyncio.run(run_async(asking(backend, LOOK, JOB, 0.01)))
    text = str(caught.value)
    assert f"no owner of the schedule of app shop has answered LOOK of {JOB} within 0.01 s" in text
    assert "`python -m kafka worker MODULE:APP` with a process pool" in text
    assert "`python -m kafka scheduler MODULE:APP`" in text
    assert "\n" not in text
    assert not any(backend.waiters.values())


def test_a_command_that_could_not_be_written_raises_the_producer_s_error(backend: FakeBackend) -> None:
    backend.next_sent = FakeSent(MessageSizeTooLargeError("shop.commands"))
    with pytest.raises(MessageSizeTooLargeError):
        ask(backend, LOOK, JOB, 5.0)
    backend.next_sent = sent = FakeSent(is_done=False)
    backend.on_wait = lambda: threading.Timer(0.01, sent.fail, [OSError("gone")]).start()
    with pytest.raises(OSError, match="gone"):
        ask(backend, LOOK, JOB, 5.0)


def test_topics_that_take_too_long_are_a_timeout_and_go_on_being_made(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_module, "LEAST_ASK_S", 0.0)
    go_on, made = threading.Event(), threading.Event()

    def make() -> int:
        go_on.wait(10)
        made.set()
        return 1

    backend.has_schedule = False
    monkeypatch.setattr(backend, "schedule_partitions", make)
    with pytest.raises(JobTimeout, match="the topics of the schedule were not ready at fake:// within 0.01 s"):
        ask(backend, LOOK, JOB, 0.01)
    go_on.set()
    assert made.wait(10)


def test_a_question_about_nothing_in_particular_names_nothing(backend: FakeBackend) -> None:
    with pytest.raises(JobTimeout, match=r"has answered LIST within 0.02 s: run"):
        ask(backend, LIST, "", 0.0199, partition=0)
