"""``check-version``: what it prints, how it fails, and real brokers of every generation."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from kafka.broker import find_release
from kafka.cli import main
from kafka.cli.check_version import lines, report
from kafka.client import ApiRanges
from kafka.core.versions import OLD_RANGES
from kafka.protocol.registry import NAMES, REGISTRY
from test.support.apache_kafka import ApacheKafka

RELEASES = {
    "0.8.0": "0.8.0",
    "0.8.1.1": "0.8.1",
    "0.8.2.2": "0.8.2",
    "0.9.0.1": "0.9",
    "0.10.2.2": "0.10.2",
    "0.11.0.3": "0.11",
    "1.1.1": "1.1",
    "2.8.2": "2.8",
    "3.9.1": "3.9",
    "4.1.1": "4.1",
    "4.3.0": "4.3",
}
"""What is started -> what it is taken for."""

FOUND = ApiRanges({3: (0, 13), 9999: (0, 1)}, {"share.version": (0, 1)}, "4.3")


@pytest.fixture
def mute_port() -> Iterator[int]:
    """A port that accepts connections (the system does) and never says anything."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def test_the_report_has_both_sides_ranges_and_the_features() -> None:
    metadata = REGISTRY[3]
    assert report("a:1", FOUND) == {
        "address": "a:1",
        "release": "4.3",
        "inferred": False,
        "apis": [
            {
                "key": 3,
                "name": "Metadata",
                "min": 0,
                "max": 13,
                "our_min": metadata.min_version,
                "our_max": metadata.max_version,
            },
            {"key": 9999, "name": "Unknown9999", "min": 0, "max": 1, "our_min": None, "our_max": None},
        ],
        "features": {"share.version": [0, 1]},
    }


def test_the_release_is_the_first_line_then_the_apis_then_the_features() -> None:
    first, metadata, unknown, feature = lines(report("a:1", FOUND))
    assert first == "4.3"
    assert metadata.split() == ["3", "Metadata", "0-13", "ours", "0-13"]
    assert "not supported here" in unknown
    assert feature == "feature share.version  0-1"


def test_nobody_there_is_one_line_and_exit_code_1(free_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-version", f"127.0.0.1:{free_port}"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("python -m kafka check-version: ") and f"127.0.0.1:{free_port}" in line and "refused" in line


def test_a_peer_that_says_nothing_is_given_up(mute_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-version", f"127.0.0.1:{mute_port}", "--timeout", "0.3"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "answers nothing" in line


@pytest.mark.parametrize(
    "arguments",
    [[], ["a:b"], ["a:1", "--timeout", "soon"], ["a:1", "--timeout", "-1"], ["a:1", "b:1"], ["--yaml", "a:1"]],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-version", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1


def test_it_runs_as_a_module(free_port: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafka", "check-version", f"127.0.0.1:{free_port}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr


@pytest.mark.deep("starts eleven releases; kept by test/broker/test_emulation.py and test/core/test_versions.py")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", RELEASES)
def test_a_real_broker_of_each_generation_is_recognised(
    version: str, start_apache_kafka: Callable[..., ApacheKafka], capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_apache_kafka(version)
    assert main(["check-version", broker.bootstrap]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == RELEASES[version]
    assert main(["check-version", broker.bootstrap, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["address"] == broker.bootstrap and found["release"] == RELEASES[version]
    apis = {api["key"]: api for api in found["apis"]}
    assert len(rest) == len(apis) + len(found["features"])
    assert set(apis) <= set(NAMES)
    for key, api in apis.items():
        assert api["name"] == NAMES[key] and 0 <= api["min"] <= api["max"]
        ours = REGISTRY.get(key)
        assert (api["our_min"], api["our_max"]) == (
            (None, None) if ours is None else (ours.min_version, ours.max_version)
        )
    old = OLD_RANGES.get(RELEASES[version])
    assert found["inferred"] == (old is None)
    if old is not None:
        assert {key: (api["min"], api["max"]) for key, api in apis.items()} == old
    table = find_release(version)
    assert table.recorded == version
    if old is None:  # what the embedded broker tells when it plays this release
        assert {key: (api["min"], api["max"]) for key, api in apis.items()} == table.apis
        assert found["features"] == {name: [level, level] for name, level in table.finalized.items()}
    if version.startswith("4."):
        assert found["features"]["metadata.version"][1] > 20
        assert (apis[1]["max"], apis[78]["max"]) == ((18, 1) if version == "4.1.1" else (18, 2))
