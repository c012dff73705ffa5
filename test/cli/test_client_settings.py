"""``--config``, ``-X`` and the environment: from texts to settings."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import pytest

from kafka.cli import client_settings
from kafka.config import Secret
from kafka.errors import KafkaConfigurationError


def read(*arguments: str, known: Any = client_settings.ALL) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    client_settings.add_arguments(parser)
    return client_settings.read(parser.parse_args(arguments), known)


@pytest.fixture
def file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.delenv(client_settings.VARIABLE, raising=False)
    return tmp_path / "client.properties"


def test_nothing_is_set_without_a_file(file: pathlib.Path) -> None:
    assert read() == {}


def test_names_are_written_with_dots_or_without_and_values_as_texts(file: pathlib.Path) -> None:
    file.write_text(
        "# a comment\nsecurity.protocol = SASL_SSL\nsasl_plain_username=alice\nsasl.plain.password=5\n"
        "ssl_check_hostname=false\nrequest_timeout_ms=5000\nclient_id=12\n"
    )
    assert read("--config", str(file)) == {
        "security_protocol": "SASL_SSL", "sasl_plain_username": "alice", "sasl_plain_password": Secret("5"),
        "ssl_check_hostname": False, "request_timeout_ms": 5000, "client_id": "12",
    }  # fmt: skip


def test_the_environment_names_a_file_and_an_option_counts_more(
    file: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    file.write_text("client_id=from the environment\n")
    other = tmp_path / "other"
    other.write_text("client_id=from the option\n")
    monkeypatch.setenv(client_settings.VARIABLE, str(file))
    assert read() == {"client_id": "from the environment"}
    assert read("--config", str(other)) == {"client_id": "from the option"}
    assert read("-X", "client.id=said") == {"client_id": "said"}
    monkeypatch.setenv(client_settings.VARIABLE, "")
    assert read() == {}


def test_a_token_provider_is_imported(file: pathlib.Path) -> None:
    found = read("-X", "sasl_oauth_token_provider=test.security.support:token_for")
    assert found["sasl_oauth_token_provider"]().count(".") == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-X", "sasl_plain_password=x"], "use --config"),
        (["-X", "ssl.password=x"], "use --config"),
        (["-X", "client_id"], "expected NAME=VALUE"),
        (["-X", "clientid=x"], "is not a client setting"),
        (["-X", "bootstrap_servers=x"], "cannot be set for this command"),
        (["-X", "request_timeout_ms=soon"], "request_timeout_ms='soon': expected a whole number"),
        (["-X", "security_protocol=TLS"], "expected one of"),
        (["-X", "sasl_oauth_token_provider=nowhere"], "MODULE:NAME"),
        (["-X", "sasl_oauth_token_provider=no_such_module:x"], "No module named"),
        (["--config", "/no/such/file"], "/no/such/file"),
    ],
)
def test_what_cannot_be_is_reported_in_one_line(file: pathlib.Path, arguments: list[str], words: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        read(*arguments)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_commands_of_an_app_take_security_and_the_rack_alone(file: pathlib.Path) -> None:
    assert read("-X", "client.rack=left", known=client_settings.CONNECTION) == {"client_rack": "left"}
    assert read("-X", "security_protocol=SSL", known=client_settings.CONNECTION) == {"security_protocol": "SSL"}
    with pytest.raises(KafkaConfigurationError, match="cannot be set for this command"):
        read("-X", "request_timeout_ms=5", known=client_settings.CONNECTION)
