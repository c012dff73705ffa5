"""``bootstrap_servers``: addresses stay, directories become addresses."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from unittest import mock

import pytest

from kafka.bootstrap import is_embedded, resolve_bootstrap
from kafka.broker.embedded import ensure_running
from kafka.errors import IllegalArgumentError
from kafka.producer import KafkaProducer
from kafka.testing import EmbeddedBroker


@pytest.mark.parametrize(
    ("given", "resolved"),
    [
        ("h:1", ["h:1"]),
        ("h:1, i:2 ,", ["h:1", "i:2"]),
        (["h:1", "i:2"], ["h:1", "i:2"]),
        ([], []),
    ],
)
def test_addresses_are_left_as_they_are_and_load_no_broker(given: str | list[str], resolved: list[str]) -> None:
    with mock.patch.dict("sys.modules", {"kafka.broker.embedded": None}):
        assert resolve_bootstrap(given) == resolved


def test_a_directory_becomes_the_address_of_its_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "a,b") as broker:
        assert resolve_bootstrap([f"embedded:{tmp_path}/a,b", "h:1"]) == [broker.bootstrap, "h:1"]


def test_a_directory_has_to_be_named() -> None:
    assert is_embedded("embedded:")
    with pytest.raises(IllegalArgumentError, match="needs a directory"):
        resolve_bootstrap("embedded:")


def test_a_producer_survives_the_death_of_the_broker_of_its_directory(tmp_path: Path) -> None:
    servers = f"embedded:{tmp_path}"
    with KafkaProducer(bootstrap_servers=servers) as producer:
        assert producer.send("t", b"before").get(30).offset == 0
        former = ensure_running(str(tmp_path)).pid
        os.kill(former, signal.SIGKILL)
        assert producer.send("t", b"after").get(30).offset == 1
        latter = ensure_running(str(tmp_path)).pid
        assert latter != former
    os.kill(latter, signal.SIGTERM)
