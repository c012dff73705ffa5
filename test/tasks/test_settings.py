"""Tests of ``kafka.tasks.settings``."""

from __future__ import annotations

import dataclasses
import pathlib
from datetime import timedelta
from typing import Any

import pytest

from kafka.config import settings_of
from kafka.errors import KafkaConfigurationError
from kafka.tasks.settings import SETTINGS, ClientKeywords, SettingKeywords, Settings, read_settings


def test_there_are_at_most_forty_settings_each_with_its_line() -> None:
    assert len(SETTINGS) <= 40
    assert all(row.doc for row in SETTINGS.values())
    assert {f.name for f in dataclasses.fields(Settings)} == {*SETTINGS, "client"}


def test_each_default_passes_its_own_check() -> None:
    for name, row in SETTINGS.items():
        assert row.check(name, row.default) == row.default


def test_durations_are_seconds_or_a_timedelta() -> None:
    assert read_settings({"result_ttl": timedelta(hours=2)}).result_ttl == 7200
    assert read_settings({"timeout": 5}).timeout == 5.0


def test_a_list_of_servers_is_as_good_as_a_text() -> None:
    assert read_settings({"bootstrap_servers": ["a:1", "b:2"]}).bootstrap_servers == "a:1,b:2"


def test_an_embedded_brokers_directory_is_the_one_of_when_the_app_was_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [read_settings({}), read_settings({"bootstrap_servers": "embedded:here"})]
    settings.append(read_settings({"bootstrap_servers": "embedded:/there"}))
    monkeypatch.chdir("/")  # as a task may, whose jobs went to a broker of their own there
    assert [each.bootstrap_servers for each in settings] == [
        f"embedded:{tmp_path / '.kafka'}",
        f"embedded:{tmp_path / 'here'}",
        "embedded:/there",
    ]


def test_credentials_go_to_the_clients() -> None:
    settings = read_settings({"security_protocol": "SSL", "ssl_cafile": "ca.pem", "sasl_mechanism": "PLAIN"})
    assert settings.client == {"security_protocol": "SSL", "ssl_cafile": "ca.pem", "sasl_mechanism": "PLAIN"}


def test_an_unknown_setting_names_the_nearest_one() -> None:
    with pytest.raises(KafkaConfigurationError, match="did you mean 'partitions'"):
        read_settings({"partition": 3})


@pytest.mark.parametrize(
    "given",
    [
        {"partitions": 0},
        {"partitions": True},
        {"partitions": 8.0},
        {"result_ttl": 0},
        {"result_ttl": "1h"},
        {"result_ttl": float("nan")},
        {"timeout": timedelta(0)},
        {"create_topics": 1},
        {"bootstrap_servers": ""},
        {"bootstrap_servers": []},
        {"queues": "mail"},
        {"queues": ["a b"]},
        {"default_queue": "results"},
        {"compression": "brotli"},
        {"retry": 3},
        {"retry": 3},
        {"timeout": 5, "soft_timeout": 5},
        {"replication_factor": 1, "min_insync_replicas": 2},
    ],
)
def test_a_setting_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(KafkaConfigurationError):
        read_settings(given)


def test_type_checkers_know_the_settings_that_the_tables_check() -> None:
    passed_on = ("security_protocol", "sasl_", "ssl_", "client_rack")
    client = {row.name for row in settings_of("client") if row.name.startswith(passed_on)}
    assert set(ClientKeywords.__annotations__) == client
    assert set(SettingKeywords.__annotations__) == set(SETTINGS) | client
