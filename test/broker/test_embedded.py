"""One broker process for a directory: started by whoever comes first, shared, gone when nobody needs it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka.broker import embedded
from kafka.broker.embedded import LOG_NAME, EmbeddedBrokerError, RunningEmbeddedBroker, ensure_running
from kafka.broker.log import DirectoryLock, log_directory
from kafka.broker.state_file import (
    DIRECTORY_LOCK_NAME,
    STARTER_LOCK_NAME,
    STATE_NAME,
    BrokerState,
    has_broker,
    read_state,
    write_state,
)
from kafka.errors import KafkaTimeoutError
from kafka.protocol.metadata import MetadataRequest
from kafka.testing import EmbeddedBroker
from test.broker.driver import batch, fetch_request, fetched, produce_request, values
from test.broker.raw_client import RawClient
from test.broker.test_server import make_topic
from test.support.small_disk import small_disk
from test.support.waiting import until

DEADLINE_S = 30.0


def port_of(lease: RunningEmbeddedBroker) -> int:
    return int(lease.bootstrap.rpartition(":")[2])


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[str]:
    """A directory whose broker, if there is one, ends with the test."""
    path = str(tmp_path / "data")
    yield path
    state = read_state(path)
    if state is not None and has_broker(path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.pid, signal.SIGKILL)


def test_a_broker_is_started_and_then_shared(data_dir: str) -> None:
    first = ensure_running(data_dir)
    assert ensure_running(data_dir) == first
    assert first.pid != os.getpid()
    assert first.data_dir == os.path.abspath(data_dir)
    with RawClient(port_of(first)) as client:
        assert client.ask(MetadataRequest(topics=[])).controller_id == 1


def test_a_broker_that_has_ended_leaves_no_zombie_once_another_is_started(data_dir: str) -> None:
    former = ensure_running(data_dir).pid
    os.kill(former, signal.SIGKILL)
    os.waitid(os.P_PID, former, os.WEXITED | os.WNOWAIT)
    assert ensure_running(data_dir).pid != former
    with pytest.raises(ChildProcessError):
        os.waitpid(former, os.WNOHANG)


def test_another_process_sees_the_same_broker(data_dir: str) -> None:
    lease = ensure_running(data_dir)
    code = "import sys; from kafka.broker.embedded import ensure_running; print(ensure_running(sys.argv[1]).pid)"
    seen = subprocess.run([sys.executable, "-c", code, data_dir], capture_output=True, text=True, check=True)
    assert int(seen.stdout) == lease.pid


def test_starters_that_race_get_one_broker(data_dir: str) -> None:
    code = "import sys; from kafka.broker.embedded import ensure_running; print(ensure_running(sys.argv[1]).pid)"
    racers = [
        subprocess.Popen([sys.executable, "-c", code, data_dir], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    found = {racer.communicate(timeout=DEADLINE_S)[0].strip() for racer in racers}
    assert len(found) == 1
    assert ensure_running(data_dir).pid == int(found.pop())


def test_the_broker_has_a_session_of_its_own_and_none_of_our_streams(data_dir: str) -> None:
    pid = ensure_running(data_dir).pid
    assert os.getsid(pid) == pid
    streams = [os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1, 2)]
    log_path = os.path.join(data_dir, LOG_NAME)
    assert streams == [os.devnull, log_path, log_path]


def test_what_a_killed_broker_left_behind_counts_for_nothing_and_its_port_is_kept(data_dir: str) -> None:
    first = ensure_running(data_dir)
    with RawClient(port_of(first)) as client:
        make_topic(client, "t")
        client.ask(produce_request("t", batch(b"kept")), 9)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not has_broker(data_dir))
    assert read_state(data_dir) is not None
    second = ensure_running(data_dir)
    assert second.pid != first.pid
    assert second.bootstrap == first.bootstrap
    with RawClient(port_of(second)) as client:
        assert values(fetched(client.ask(fetch_request("t"), 12))[0].records) == [b"kept"]


def test_a_broker_that_somebody_started_by_hand_is_found(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        lease = ensure_running(str(tmp_path / "data"))
        assert (lease.bootstrap, lease.pid) == (broker.bootstrap, broker.pid)


def test_the_broker_ends_when_its_last_client_has_gone_and_not_before(data_dir: str) -> None:
    lease = ensure_running(data_dir, idle_s=3.0)
    client = RawClient(port_of(lease))
    assert not threading.Event().wait(3.5)
    assert client.ask(MetadataRequest(topics=[])).controller_id == 1, "a connection keeps it"
    closed_at = time.monotonic()
    client.close()
    until(lambda: not has_broker(data_dir))
    assert time.monotonic() - closed_at > 2.9
    assert read_state(data_dir) is None


def test_no_client_gets_the_address_of_a_broker_that_is_just_ending(data_dir: str) -> None:
    for wait_s in (0.96, 0.97, 0.98, 0.99, 1.0):
        lease = ensure_running(data_dir, idle_s=1.0)  # the client below has that long to connect, to the same broker
        threading.Event().wait(wait_s)
        again = ensure_running(data_dir, idle_s=5)
        with RawClient(port_of(again)) as client:
            assert client.ask(MetadataRequest(topics=[])).controller_id == 1
        os.kill(again.pid, signal.SIGKILL)
        until(lambda: not has_broker(data_dir))
        assert lease.data_dir == again.data_dir


def test_a_stopped_broker_is_named_in_the_error(data_dir: str) -> None:
    lease = ensure_running(data_dir)
    os.kill(lease.pid, signal.SIGSTOP)
    try:
        write_state(data_dir, BrokerState(lease.pid, "127.0.0.1", 1))  # nobody listens there: no wait for an answer
        with pytest.raises(KafkaTimeoutError, match=f"process {lease.pid}"):
            ensure_running(data_dir, timeout_s=0.1)
    finally:
        os.kill(lease.pid, signal.SIGKILL)


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedBrokerError, match="nope; |unknown broker setting nope"):
        ensure_running(str(tmp_path), arguments=("--set", "nope=1"))
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedBrokerError, match="no embedded broker in"):
        ensure_running(str(tmp_path / "file" / "below"))


@pytest.mark.parametrize("name", [LOG_NAME, DIRECTORY_LOCK_NAME, STARTER_LOCK_NAME, "metadata.journal"])
@pytest.mark.parametrize("plant", ["link", "pipe"])
def test_a_planted_link_or_pipe_is_an_error_at_once_and_no_file_of_ours_is_touched(
    tmp_path: Path, name: str, plant: str
) -> None:
    """A repository that was cloned, an archive that was unpacked: the directory is ours, what is in it was not."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"")  # what a broker would append to, or write its process id into
    victim.chmod(0o644)
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    if plant == "link":
        (data_dir / name).symlink_to(victim)
    else:
        os.mkfifo(data_dir / name)
    with pytest.raises(EmbeddedBrokerError, match=f"{name}.* remove it and try again"):
        ensure_running(str(data_dir))
    assert victim.read_bytes() == b""
    assert victim.stat().st_mode & 0o777 == 0o644
    (data_dir / name).unlink()
    os.kill(ensure_running(str(data_dir)).pid, signal.SIGKILL)


@pytest.mark.parametrize("plant", ["link", "pipe"])
def test_a_planted_link_or_pipe_in_the_place_of_the_address_counts_for_nothing(data_dir: str, plant: str) -> None:
    os.mkdir(data_dir)
    state = Path(data_dir, STATE_NAME)
    if plant == "link":
        state.symlink_to("/etc/passwd")
    else:
        os.mkfifo(state)
    lease = ensure_running(data_dir)
    assert read_state(data_dir) is not None
    assert not state.is_symlink()
    assert state.is_file()
    assert ensure_running(data_dir) == lease


@pytest.mark.parametrize("host", ["10.0.0.5", "0.0.0.0", "2001:db8::1"])
def test_a_client_is_never_sent_to_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Whatever the file says of a broker that lives, or somebody started one by hand that listens elsewhere."""

    def connect(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket, "create_connection", connect)
    lock = DirectoryLock(str(tmp_path))
    state = BrokerState(os.getpid(), host, 9092)
    write_state(str(tmp_path), state)
    with pytest.raises(EmbeddedBrokerError, match=f"listens at {re.escape(state.bootstrap)}.*name that address"):
        ensure_running(str(tmp_path))
    lock.release()


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_directory_that_others_may_write_to_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    data_dir.chmod(mode)
    with pytest.raises(EmbeddedBrokerError, match=f"no embedded broker in {data_dir}: .* run chmod go-w {data_dir}"):
        ensure_running(str(data_dir))
    assert list(data_dir.iterdir()) == []


def test_the_broker_and_its_starter_make_files_for_their_owner_alone_whatever_the_umask(data_dir: str) -> None:
    former = os.umask(0)
    try:
        lease = ensure_running(data_dir)
    finally:
        os.umask(former)
    with RawClient(port_of(lease)) as client:
        make_topic(client, "t")
        client.ask(produce_request("t", batch(b"secret")), 9)
    made = [Path(data_dir), *Path(data_dir).rglob("*")]
    assert len(made) > 7
    assert [str(path) for path in made if path.stat().st_mode & 0o077] == []


def test_the_client_side_loads_nothing_of_the_broker() -> None:
    code = "import sys, kafka.broker.embedded; print([m for m in sys.modules if m.startswith('kafka.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "kafka.broker.broker" not in loaded
    assert "kafka.records" not in loaded
    assert "kafka.protocol" not in loaded


@pytest.mark.parametrize("name", ["with spaces in it", "über/日本/missing parents", "-dash", "a=b;c"])
def test_any_name_will_do_for_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    lease = ensure_running(name)
    try:
        assert lease.data_dir == str(tmp_path / name)
        with RawClient(port_of(lease)) as client:
            assert client.ask(MetadataRequest(topics=[])).controller_id == 1
    finally:
        os.kill(lease.pid, signal.SIGKILL)


def test_a_broker_whose_directory_is_taken_away_ends_all_the_same(data_dir: str) -> None:
    lease = ensure_running(data_dir, idle_s=0.3)
    shutil.rmtree(data_dir)
    until(lambda: not is_alive(lease.pid))


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and is our child may be a zombie still."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_one_that_ends_while_it_is_asked_is_followed_by_another(
    data_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ensure_running(data_dir)
    asked: list[BrokerState] = []

    def killed_under_our_hands(state: BrokerState) -> bool:
        asked.append(state)
        if len(asked) == 1:
            os.kill(first.pid, signal.SIGKILL)
            until(lambda: not has_broker(data_dir))
            return False
        return answers(state)

    answers = embedded._answers
    monkeypatch.setattr(embedded, "_answers", killed_under_our_hands)
    assert ensure_running(data_dir).pid != first.pid


def test_who_only_looks_for_a_broker_keeps_none_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``has_broker`` takes the lock for a moment."""
    DirectoryLock(str(tmp_path)).release()
    fd = os.open(tmp_path / ".lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_SH)
    waits: list[float] = []

    class Moments:
        """The look is over when the lock is tried again."""

        @staticmethod
        def monotonic() -> float:
            return sum(waits)

        @staticmethod
        def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 2:
                os.close(fd)

    monkeypatch.setattr(log_directory, "time", Moments)
    DirectoryLock(str(tmp_path)).release()
    assert len(waits) == 2


def test_a_full_disk_is_named_with_its_free_space(data_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(embedded, "_spawn", full)
    text = rf"no embedded broker in {data_dir}: No space left on device \(\d+ bytes are free\)"
    with pytest.raises(EmbeddedBrokerError, match=text):
        ensure_running(data_dir)


def test_a_broker_that_does_not_start_on_a_full_file_system_says_so_in_one_line(tmp_path: Path) -> None:
    """Its log is in the same directory: where no line fits in, the process that starts it has the cause."""
    with small_disk(tmp_path / "disk", 256 << 10) as disk:
        data_dir = str(disk.path / "data")
        disk.fill()
        with pytest.raises(EmbeddedBrokerError) as refused:
            ensure_running(data_dir)
        assert str(refused.value) == (
            f"EmbeddedBrokerError: no embedded broker in {data_dir}: No space left on device (0 bytes are free)"
        )
        disk.fill(leaving=8 << 10)  # for the log, and for the lock
        with pytest.raises(EmbeddedBrokerError) as ended:
            ensure_running(data_dir)
        text = str(ended.value)
        assert data_dir in text
        assert "No space left on device" in text
        assert "\n" not in text
        disk.free()
        running = ensure_running(data_dir, idle_s=0.05)
        until(lambda: not has_broker(data_dir))
        assert running.data_dir == data_dir
