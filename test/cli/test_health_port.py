"""``worker --health-port``: what is wrong with it is one line; a worker process answers, and is missed when killed."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kafka.cli import main
from kafka.tasks import App, Directory, start_methods
from kafka.tasks.backends.kafka import snapshot_reader
from kafka.testing import EmbeddedBroker
from test.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
SOON_S = 60.0

TASKS = """
import os, time
from kafka.tasks import App
app = App(os.environ["PROBED_APP"], bootstrap_servers=os.environ["PROBED_SERVERS"])
@app.task(name="mail.send")
def send():
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True) as running:
        yield running


@pytest.fixture
def tasks(broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "probed.py").write_text(TASKS)
    monkeypatch.setenv("PROBED_SERVERS", broker.bootstrap)
    monkeypatch.setenv("PROBED_APP", f"shop-{tmp_path.name}")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "probed", raising=False)
    monkeypatch.chdir(tmp_path)
    return "probed:app"


def test_what_is_no_port_is_exit_code_2(tasks: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", tasks, "--pool", "threads", "--health-port", "health"]) == 2
    text = "python -m kafka worker: --health-port is PORT (reached from this machine alone) or"
    assert text in capsys.readouterr().err


def test_a_port_that_is_taken_is_exit_code_1_before_anything_is_leased(
    tasks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        assert main(["worker", tasks, "--pool", "threads", "--health-port", str(port)]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    text = f"python -m kafka worker: --health-port: 127.0.0.1:{port} is in use by another process; choose"
    assert last.startswith(text)


class WorkerProcess:
    """``python -m kafka worker`` with a port of its own, which is read from its log."""

    def __init__(self, tasks: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "kafka", "worker", tasks, "--health-port", "0", *arguments]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.getcwd()])}
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self.port = 0
        self._has_port = threading.Event()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        assert self._has_port.wait(SOON_S), "".join(self.log)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"health server listening at http://127\.0\.0\.1:(\d+)/", line)
            if found:
                self.port = int(found[1])
                self._has_port.set()

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=SOON_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def wait_until_ready(self) -> None:
        def watch() -> None:
            assert self.process.poll() is None, "".join(self.log)

        until(
            lambda: self.get("/readyz")[0] == 200,
            within_s=SOON_S,
            meanwhile=watch,
            shown=lambda: self.get("/readyz")[1] + "".join(self.log),
        )

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reading.join(SOON_S)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.mark.timeout(240)
def test_a_worker_that_is_killed_is_shown_with_its_jobs_until_it_is_silent_for_long(
    broker: EmbeddedBroker, tasks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    pool = "prefork" if start_methods() else "threads"
    app = App(os.environ["PROBED_APP"], bootstrap_servers=broker.bootstrap)
    with closing(app), closing(WorkerProcess(tasks, "--pool", pool, "--concurrency", "2")) as worker:
        worker.wait_until_ready()
        app.send("mail.send")
        app.flush(SOON_S)
        with Directory(app) as directory:

            def mine() -> list[str]:
                found = [seen for seen in directory.workers(0.2) if seen.worker.pid == worker.process.pid]
                return [job.name for seen in found for job in seen.worker.running]

            until(lambda: mine() == ["mail.send"], within_s=SOON_S, shown=lambda: "".join(worker.log))
            if pool == "prefork":
                (seen,) = [each for each in directory.workers() if each.worker.pid == worker.process.pid]
                assert len(seen.worker.children) == 2
                assert seen.worker.running[0].pid in {child.pid for child in seen.worker.children}
                until(lambda: "kafka_tasks_children_rss_bytes" in worker.get("/metrics")[1], within_s=SOON_S)
            worker.process.send_signal(signal.SIGKILL)
            worker.process.wait()
            now_ms = snapshot_reader._now_ms
            monkeypatch.setattr(snapshot_reader, "_now_ms", lambda: now_ms() + 20_000)
            assert all(seen.is_silent for seen in directory.workers())
            assert mine() == ["mail.send"]
            monkeypatch.setattr(snapshot_reader, "_now_ms", lambda: now_ms() + 70_000)
            assert mine() == []


FAILING = """
import os, sys
from kafka.tasks import App
if "worker" not in sys.argv:
    raise RuntimeError("the database is down")
app = App(os.environ["PROBED_APP"], bootstrap_servers=os.environ["PROBED_SERVERS"])
"""


@pytest.mark.skipif(not start_methods(), reason="the platform has no pools of processes")
@pytest.mark.timeout(240)
def test_a_worker_whose_children_cannot_import_the_tasks_is_alive_and_never_ready(tasks: str) -> None:
    Path("probed.py").write_text(FAILING)
    with closing(WorkerProcess(tasks, "--pool", "prefork", "--start-method", "spawn")) as worker:
        until(lambda: not worker.get("/readyz")[1].startswith("starting:"), within_s=SOON_S)
        status, text = worker.get("/readyz")
        assert (status, text[:6]) == (503, "pool: ")
        assert worker.get("/healthz") == (200, "ok: WORKING\n")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(SOON_S) == 0, "".join(worker.log)
