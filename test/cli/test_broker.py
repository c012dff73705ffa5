"""``python -m kafka broker`` as a user meets it: its first line, its end, and one clear line for every wrong use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka.protocol.metadata import MetadataRequest
from kafka.testing import EmbeddedBroker
from test.broker.raw_client import RawClient

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 30


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kafka", "broker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start("--data-dir", str(tmp_path / "data"), "--port", "0")
    yield process
    process.kill()
    process.communicate(timeout=TIMEOUT_S)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_ends_well_on_a_signal(
    running: subprocess.Popen[str], tmp_path: Path, signum: int
) -> None:
    line = first_line(running)
    host, _, port = line.strip().removeprefix("listening on ").rpartition(":")
    assert (line, host) == (f"listening on 127.0.0.1:{port}\n", "127.0.0.1")
    state = json.loads((tmp_path / "data" / "broker.json").read_text())
    assert state == {"pid": running.pid, "host": "127.0.0.1", "port": int(port)}
    with RawClient(int(port)) as client:
        client.ask(MetadataRequest(topics=[]))
        running.send_signal(signum)
        assert running.wait(TIMEOUT_S) == 0
    assert running.stdout is not None
    assert running.stderr is not None
    assert (running.stdout.read(), running.stderr.read()) == ("", "")
    assert not (tmp_path / "data" / "broker.json").exists()


def fail(*arguments: str) -> tuple[int, str]:
    """Exit code and the one line of a broker that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "kafka", "broker", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=TIMEOUT_S,
    )
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.returncode, done.stderr


def test_a_port_in_use_is_one_line_and_exit_code_1(running: subprocess.Popen[str], tmp_path: Path) -> None:
    port = first_line(running).strip().rpartition(":")[2]
    code, line = fail("--data-dir", str(tmp_path / "other"), "--port", port)
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in line


def test_a_locked_directory_names_who_has_it(running: subprocess.Popen[str], tmp_path: Path) -> None:
    first_line(running)
    code, line = fail("--data-dir", str(tmp_path / "data"), "--port", "0")
    assert code == 1
    assert f"process {running.pid}" in line
    assert str(tmp_path / "data") in line


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, line = fail("--data-dir", str(tmp_path / "file" / "data"), "--port", "0")
    assert code == 1
    assert str(tmp_path / "file" / "data") in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    code, line = fail("--data-dir", str(tmp_path), "--port", "0")
    assert code == 1
    assert str(tmp_path) in line


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--port", "70000"], "0 to 65535"),
        (["--port", "x"], "--port"),
        (["--fsync", "sometimes"], "--fsync"),
        (["--exit-when-idle", "0"], "above 0 s"),
        (["--set", "num.partitions"], "NAME=VALUE"),
        (["--set", "num.partition=3"], "did you mean num.partitions?"),
        (["--set", "num.partitions=0"], "num.partitions"),
        (["--log-level", "loud"], "--log-level"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], text: str) -> None:
    code, line = fail("--data-dir", str(tmp_path / "data"), "--port", "0", *arguments)
    assert code == 2
    assert text in line


def test_a_data_directory_is_needed() -> None:
    code, line = fail()
    assert code == 2
    assert "--data-dir" in line


def test_an_address_that_is_not_ours_is_one_line(tmp_path: Path) -> None:
    code, line = fail("--data-dir", str(tmp_path), "--port", "0", "--host", "192.0.2.1")
    assert code == 1
    assert "192.0.2.1" in line


def test_settings_reach_the_broker(tmp_path: Path) -> None:
    with (
        EmbeddedBroker(tmp_path / "data", settings={"num.partitions": "3"}) as broker,
        RawClient(broker.port) as client,
    ):
        for _ in range(2):
            topics = client.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])).topics
        assert len(topics[0].partitions) == 3
