"""How processes find the broker of a directory."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path

import pytest

from kafka.broker.log import DirectoryLock
from kafka.broker.log.log_directory import LOCK_NAME
from kafka.broker.process import BrokerOptions, RunningBroker
from kafka.broker.state_file import (
    DIRECTORY_LOCK_NAME,
    MAX_STATE_BYTES,
    STATE_NAME,
    BrokerState,
    has_broker,
    read_state,
    remove_state,
    starter_lock,
    write_state,
)
from kafka.protocol.metadata import MetadataRequest
from kafka.testing import EmbeddedBroker
from test.broker.raw_client import RawClient


def test_what_was_written_is_read_until_it_is_removed(tmp_path: Path) -> None:
    state = BrokerState(7, "127.0.0.1", 9092)
    write_state(str(tmp_path), state)
    assert read_state(str(tmp_path)) == state
    remove_state(str(tmp_path))
    remove_state(str(tmp_path))
    assert read_state(str(tmp_path)) is None


def text(**fields: object) -> str:
    """What a broker writes, with other fields."""
    return json.dumps({"pid": 7, "host": "127.0.0.1", "port": 9092, "listeners": {"SSL": "[::]:9093"}} | fields)


HOSTILE = {
    "empty": "",
    "torn": "{",
    "no object": "[]",
    "no fields": "{}",
    "not UTF-8": "\udcff",
    "deep": '{"pid": ' * 5_000,
    "deep lists": "[" * 60_000,
    "more digits than Python reads": text().replace("9092", "9" * 5000),
    "too long": text(comment="x" * MAX_STATE_BYTES),
    "an infinite port": text().replace("9092", "1e999"),
    "an infinite pid": text().replace("7,", "1e999,", 1),
    "no number": text().replace("9092", "NaN"),
    **{f"port {value!r}": text(port=value) for value in (0, -1, 65536, 2**80, 9092.0, True, "9092", None, [9092])},
    **{f"pid {value!r}": text(pid=value) for value in (0, -1, 2**31, 7.0, True, "7", None)},
    **{f"host {value!r}": text(host=value) for value in ("evil.example", "localhost", "127.evil.example", "", None, 1)},
    "a host with a NUL": text(host="127.0.0.1\0"),
    **{f"listeners {value!r}": text(listeners=value) for value in ([["SSL", "h:1"]], "SSL", None)},
    **{f"listener {value!r}": text(listeners={"PLAINTEXT": value}) for value in ("x", "h:", "h:x", "h:70000", 1)},
}
"""What no broker has written."""


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_no_broker_wrote_counts_for_nothing(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / STATE_NAME).write_text(text, errors="surrogateescape")
    with caplog.at_level(logging.DEBUG, "kafka.broker.state_file"):
        assert read_state(str(tmp_path)) is None
    assert f"ignored {tmp_path / STATE_NAME}: " in caplog.text


@pytest.mark.parametrize("name", ["deep", "an infinite port", "port 65536", "listener 'x'", "host 'evil.example'"])
def test_a_broker_starts_whatever_the_file_says(tmp_path: Path, name: str) -> None:
    """It looks there for its last port."""
    (tmp_path / STATE_NAME).write_text(HOSTILE[name])
    with EmbeddedBroker(tmp_path, in_process=True) as broker:
        state = read_state(str(tmp_path))
        assert state is not None
        assert (state.pid, state.bootstrap) == (os.getpid(), broker.bootstrap)


def test_what_an_earlier_release_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / STATE_NAME).write_text('{"pid": 7, "host": "::1", "port": 9092}')
    assert read_state(str(tmp_path)) == BrokerState(7, "::1", 9092)


def test_a_host_that_was_given_by_name_is_written_as_the_address_that_was_bound(tmp_path: Path) -> None:
    running = RunningBroker(BrokerOptions(str(tmp_path), host="localhost"))
    state = read_state(str(tmp_path))
    running.stop()
    running.run()
    assert state == running.state
    assert state.is_loopback


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("10.0.0.1", False), ("0.0.0.0", False), ("::2", False)],
)
def test_loopback_addresses_are_distinguished_from_others(host: str, is_loopback: bool) -> None:
    assert BrokerState(7, host, 9092).is_loopback is is_loopback


def test_an_ipv6_address_is_bracketed() -> None:
    assert BrokerState(1, "::1", 9).bootstrap == "[::1]:9"


def test_the_directory_has_a_broker_while_its_lock_is_held(tmp_path: Path) -> None:
    assert DIRECTORY_LOCK_NAME == LOCK_NAME
    assert not has_broker(str(tmp_path))
    lock = DirectoryLock(str(tmp_path))
    assert has_broker(str(tmp_path))
    lock.release()
    assert not has_broker(str(tmp_path)), "the file stays, the lock is gone"


def test_the_starters_lock_is_had_by_one_at_a_time(tmp_path: Path) -> None:
    with starter_lock(str(tmp_path), 0) as first:
        assert first
        with starter_lock(str(tmp_path), 0.05) as second:
            assert not second
    with starter_lock(str(tmp_path), 0) as third:
        assert third


def _unwritable(data_dir: str, state: BrokerState) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_broker_that_cannot_write_its_address_serves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kafka.broker.process.write_state", _unwritable)
    with EmbeddedBroker(tmp_path, in_process=True) as broker, RawClient(broker.port) as client:
        assert client.ask(MetadataRequest(topics=[])).brokers
    assert "cannot find this broker" in caplog.text
