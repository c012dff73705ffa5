"""What the broker's log says while the disk takes no writes, and when it takes them again."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka.broker import write_errors
from kafka.broker.write_errors import WriteErrors, describe_free_space
from test.broker.driver import HandBroker, batch
from test.broker.log.test_log_directory import full_disk

STORAGE = 56
TOPIC = "jobs"


def lines_of(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == write_errors.__name__ and record.levelno == level
    ]


def test_the_log_says_once_a_minute_that_the_disk_is_full_and_once_that_it_takes_writes_again(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hand.create_topic(TOPIC)
    hand.create_topic("other")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full_disk)
        refused = hand.produce(TOPIC, batch(b"a"))
        hand.produce(TOPIC, batch(b"a"))
        hand.produce("other", batch(b"a"))
        (line,) = lines_of(caplog, logging.ERROR)
        hand.advance(59.0)
        hand.produce(TOPIC, batch(b"a"))
        assert len(lines_of(caplog, logging.ERROR)) == 1
        hand.advance(2.0)
        hand.produce(TOPIC, batch(b"a"))
        assert len(lines_of(caplog, logging.ERROR)) == 2, "a minute later it is still full"
        assert lines_of(caplog, logging.INFO) == []
    assert f"data directory {hand.data_dir}: No space left on device; " in line
    assert re.search(r"; \d+ bytes are free: free space", line)
    assert refused.error_code == STORAGE
    assert refused.error_message is not None
    assert re.search(f"cannot write to {hand.data_dir}/.*: No space left on device", refused.error_message)
    assert hand.produce(TOPIC, batch(b"a")).error_code == 0
    assert hand.produce(TOPIC, batch(b"a")).error_code == 0
    (again,) = lines_of(caplog, logging.INFO)
    assert f"{hand.data_dir} works again, after 5 failed writes in 61.0 s" in again


def test_each_cause_has_a_line_of_its_own_that_says_what_to_do(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hand.create_topic(TOPIC)

    def failing(code: int) -> Callable[..., int]:
        def write(fd: int, data: bytes, position: int) -> int:
            raise OSError(code, os.strerror(code))

        return write

    causes = {
        errno.ENOSPC: "free space", errno.EDQUOT: "raise the quota", errno.EIO: "check the disk",
        errno.EFBIG: "ulimit -f",
    }  # fmt: skip
    for code, remedy in causes.items():
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", failing(code))
            for _ in range(2):
                answer = hand.produce(TOPIC, batch(b"a"))
                assert answer.error_code == STORAGE
                assert os.strerror(code) in str(answer.error_message)
        line = lines_of(caplog, logging.ERROR)[-1]
        assert os.strerror(code) in line
        assert remedy in line
    assert len(lines_of(caplog, logging.ERROR)) == len(causes)


def test_one_file_that_fails_between_writes_to_others_does_not_fill_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    now_ms = [0]
    found = WriteErrors(str(tmp_path), lambda: now_ms[0])
    for _ in range(50):
        found.failed(PermissionError(errno.EACCES, "Permission denied"))
        assert found.has_failed
        found.succeeded()
        assert not found.has_failed
        now_ms[0] += 2000
    assert [len(lines_of(caplog, level)) for level in (logging.ERROR, logging.INFO)] == [2, 2]


def test_a_directory_that_is_gone_has_an_unknown_number_of_free_bytes(tmp_path: Path) -> None:
    assert describe_free_space(str(tmp_path / "gone")) == "the free space is unknown"


def test_a_small_write_on_a_full_disk_does_not_mean_that_large_ones_work_again(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hand.create_topic(TOPIC)
    small, large = batch(b"a"), batch(b"a" * 10_000)
    write, free = os.pwrite, [5000]

    def nearly_full(fd: int, data: bytes, position: int) -> int:
        if len(data) > free[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data, position)

    monkeypatch.setattr(os, "pwrite", nearly_full)
    monkeypatch.setattr(write_errors, "free_bytes", lambda directory: free[0])
    assert hand.produce(TOPIC, large).error_code == STORAGE
    assert hand.produce(TOPIC, small).error_code == 0
    assert lines_of(caplog, logging.INFO) == []
    free[0] = 1 << 20
    assert hand.produce(TOPIC, small).error_code == 0
    assert len(lines_of(caplog, logging.INFO)) == 1
