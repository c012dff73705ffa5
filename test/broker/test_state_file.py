"""How processes find the broker of a directory."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafka.broker.log import DirectoryLock
from kafka.broker.log.directory_lock import LOCK_NAME
from kafka.broker.state_file import (
    DIRECTORY_LOCK_NAME,
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


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"pid": "x", "host": "h", "port": 1}', '{"pid": 1, "port": null}']
)
def test_a_file_that_cannot_be_read_counts_for_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / STATE_NAME).write_text(text)
    assert read_state(str(tmp_path)) is None


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


def test_a_broker_that_cannot_tell_where_it_is_serves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kafka.broker.process.write_state", _unwritable)
    with EmbeddedBroker(tmp_path, in_process=True) as broker, RawClient(broker.port) as client:
        assert client.ask(MetadataRequest(topics=[])).brokers
    assert "will not find this broker" in caplog.text
