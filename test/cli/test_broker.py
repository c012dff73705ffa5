"""``python -m kafka broker`` as a user meets it: its first line, its end, and one clear line for every wrong use."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.groups import ListGroupsRequest
from kafka.protocol.log_dirs import DescribeLogDirsRequest
from kafka.protocol.metadata import DescribeClusterRequest, MetadataRequest
from kafka.testing import EmbeddedBroker
from kafka.wire.message import Request
from test.broker.driver import batch, fetch_request, produce_request
from test.broker.raw_client import RawClient
from test.broker.test_server import make_topic
from test.support.waiting import eventually

REQUESTS: tuple[Request[Any], ...] = (
    MetadataRequest(topics=[]),
    FindCoordinatorRequest(coordinator_keys=["g"]),
    ListGroupsRequest(),
    DescribeClusterRequest(include_cluster_authorized_operations=False),
    DescribeLogDirsRequest(topics=None),
)
"""Whose handlers are imported when they are first asked for."""

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


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_says_where_it_listens_and_ends_well_on_a_signal(
    running: subprocess.Popen[str], tmp_path: Path, signum: int
) -> None:
    line = first_line(running)
    host, _, port = line.strip().removeprefix("listening on ").rpartition(":")
    assert (line, host) == (f"listening on 127.0.0.1:{port}\n", "127.0.0.1")
    state = json.loads((tmp_path / "data" / "broker.json").read_text())
    assert (state["pid"], state["host"], state["port"]) == (running.pid, "127.0.0.1", int(port))
    with RawClient(int(port)) as client:
        client.ask(MetadataRequest(topics=[]))
        running.send_signal(signum)
        assert running.wait(TIMEOUT_S) == 0
    assert running.stdout is not None
    assert running.stderr is not None
    assert (running.stdout.read(), running.stderr.read()) == ("", "")
    assert not (tmp_path / "data" / "broker.json").exists()


def test_it_ends_well_in_time_while_it_is_busy(running: subprocess.Popen[str]) -> None:
    """Producers at full speed, a fetch that waits, a peer that takes no answers, half a frame, a frame too many."""
    port = int(first_line(running).strip().rpartition(":")[2])
    with RawClient(port) as client, RawClient(port) as waiting, RawClient(port) as deaf, RawClient(port) as half:
        make_topic(client, "t")
        waiting.send(fetch_request("t", offsets=(0,), max_wait_ms=60_000, min_bytes=1 << 30), 12)
        half.socket.sendall((1_000_000).to_bytes(4, "big") + b"half")
        request = produce_request("t", batch(b"x" * 100_000))
        for _ in range(30):
            client.ask(request, 9)
        deaf.socket.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            for _ in range(200):
                deaf.send(fetch_request("t", partition_max_bytes=1 << 20), 12)
        for _ in range(20):
            client.send(request, 9)
        running.send_signal(signal.SIGTERM)
        assert running.wait(TIMEOUT_S) == 0, "half of what the fetch may be held"


def test_a_soft_limit_of_open_files_is_none_for_a_broker(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, int(sys.argv[1])))"
    run = "from kafka.cli import main; sys.exit(main(sys.argv[2:]))"
    command = [sys.executable, "-c", f"{code}; {run}", str(hard), "broker", "--data-dir", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        clients = []
        try:
            port = int(first_line(process).strip().rpartition(":")[2])
            clients = [RawClient(port) for _ in range(200)]
            assert all(client.ask(MetadataRequest(topics=[])).controller_id == 1 for client in clients)
        finally:
            for client in clients:
                client.close()
            process.kill()


def start_with_limit(limit: int, *arguments: str) -> subprocess.Popen[str]:
    """A broker that may have so many open files."""
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, 2 * (int(sys.argv[1]),))"
    run = "from kafka.cli import main; sys.exit(main(sys.argv[2:]))"
    command = [sys.executable, "-c", f"{code}; {run}", str(limit), "broker", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


@pytest.mark.parametrize("fsync", ["always", "interval"])
def test_idle_connections_take_nothing_that_requests_and_logs_need(tmp_path: Path, fsync: str) -> None:
    """150 of them with a limit of 80 open files: who is served is served with everything, the others wait."""
    process = start_with_limit(80, "--data-dir", str(tmp_path), "--port", "0", "--fsync", fsync)
    with process, contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        port = int(first_line(process).strip().rpartition(":")[2])
        client = stack.enter_context(RawClient(port))
        idle = [stack.enter_context(RawClient(port)) for _ in range(150)]
        for at in range(20):
            make_topic(client, f"t{at}")
        produced = [produce_request(f"t{at}", batch(b"x")) for at in range(20)]
        answers = [client.ask(request, 9) for _ in range(3) for request in produced]
        assert {answer.responses[0].partition_responses[0].error_code for answer in answers} == {0}
        for request in REQUESTS:
            client.ask(request)
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < 80
        late = stack.enter_context(RawClient(port))
        late.send(MetadataRequest(topics=[]))
        for one in idle:
            one.close()
        assert late.receive(MetadataRequest(topics=[])).controller_id == 1
        assert late.ask(produced[0], 9).responses[0].partition_responses[0].base_offset == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        log_lines = process.stderr.read().splitlines()
        assert len(log_lines) == 1, log_lines
        assert "new connections wait until others close: what the limit of open files leaves for them" in log_lines[0]


def test_a_limit_of_open_files_that_no_broker_fits_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with start_with_limit(30, "--data-dir", str(tmp_path), "--port", "0") as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (1, "")
    assert err.count("\n") == 1
    assert "the limit of open files is 30" in err
    assert "raise it with ulimit -n" in err


def test_a_signal_that_comes_as_soon_as_it_listens_ends_it_well(tmp_path: Path) -> None:
    """Whoever has read the line, or the file, may send one at once. Here the broker is held in the midst of its line:
    nothing takes what it writes."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    os.set_blocking(writer, True)
    command = [sys.executable, "-m", "kafka", "broker", "--data-dir", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=writer, cwd=ROOT) as process, open(reader, "rb") as output:
        os.close(writer)
        eventually((tmp_path / "broker.json").exists, True, within_s=TIMEOUT_S)
        process.send_signal(signal.SIGTERM)
        assert output.read().strip(b".").startswith(b"listening on 127.0.0.1:")
        assert process.wait(TIMEOUT_S) == 0
    assert not (tmp_path / "broker.json").exists()


def fail(*arguments: str) -> tuple[int, str]:
    """Exit code and the one line of a broker that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "kafka", "broker", *arguments],
        stdin=subprocess.DEVNULL,
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


@pytest.mark.parametrize(
    "arguments",
    [
        ("--port", "70000"),
        ("--listener", "PLAINTEXT://127.0.0.1:65536"),
        ("--set", "listeners=PLAINTEXT://127.0.0.1:700000"),
    ],
)
def test_a_port_above_the_highest_is_one_line_and_exit_code_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, line = fail("--data-dir", str(tmp_path), *arguments)
    assert code == 2
    assert "from 0 to 65535" in line


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


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, where no directory can be made")
@pytest.mark.parametrize("path", ["/proc/no-data", "/proc/no-data/below"])
def test_a_directory_where_none_can_be_made_is_one_line(path: str) -> None:
    code, line = fail("--data-dir", path, "--port", "0")
    reason = f"cannot use the data directory {path}: No such file or directory"
    assert (code, line) == (1, f"python -m kafka broker: {reason}\n")


def test_a_directory_that_others_may_write_to_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    code, line = fail("--data-dir", str(tmp_path), "--port", "0")
    assert code == 1
    start = f"python -m kafka broker: cannot use the data directory {tmp_path}: its group or others may write"
    assert line.startswith(start)
    assert line.endswith(f"run chmod go-w {tmp_path}\n")


@pytest.mark.parametrize("name", [".lock", "metadata.journal"])
def test_a_file_that_is_a_link_is_one_line_and_what_it_leads_to_is_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).symlink_to(tmp_path / "victim")
    code, line = fail("--data-dir", str(tmp_path / "data"), "--port", "0")
    assert code == 1
    assert f"{tmp_path / 'data' / name}: it is not a regular file but a symbolic link" in line
    assert (tmp_path / "victim").read_text() == "precious"


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
        (["--port", "x"], "0 to 65535, not x"),
        (["--port", "-1"], "0 to 65535, not -1"),
        (["--data-dir", ""], "a directory name is required"),
        (["--exit-when-idle", "soon"], "above 0, not soon"),
        (["--exit-with-stdin"], "--exit-with-stdin needs a pipe"),
        (["--control-fd", "0"], "not an inherited socket"),
        (["--control-fd", "99"], "not an inherited socket"),
        (["--fsync", "sometimes"], "--fsync"),
        (["--exit-when-idle", "0"], "above 0"),
        (["--set", "num.partitions"], "NAME=VALUE"),
        (["--set", "num.partition=3"], "did you mean num.partitions?"),
        (["--set", "num.partitions=0"], "num.partitions"),
        (["--log-level", "loud"], "--log-level"),
        (["--log-level", "INFO", "--users", os.devnull], "--users has no effect without SASL"),
        (["--loud"], "unrecognized arguments: --loud (see python -m kafka broker --help)"),
        (["--listener", "PLAINTEXT://127.0.0.1:0"], "cannot be combined with --listener"),
        (["--users", os.devnull], "--users has no effect without SASL"),
        (["--certificate", os.devnull], "--certificate has no effect without TLS"),
        (["--client-auth", "required"], "--client-auth has no effect without TLS"),
        (["--set", "listeners=SSL://127.0.0.1:0"], "needs --certificate FILE"),
        (["--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0"], "needs --users FILE"),
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
