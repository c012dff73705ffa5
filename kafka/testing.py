"""For users' tests: an embedded broker as a context manager.

::

    with EmbeddedBroker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        broker.kill()           # as kill -9 does
        broker.restart()        # on the same directory and port: everything acknowledged is there

The broker is a process of its own, so that it can be killed and paused and shares no interpreter with the test;
``in_process=True`` runs it in a thread instead, which starts faster and can do neither.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from types import TracebackType

from kafka.broker import BrokerOptions, RunningBroker
from kafka.errors import IllegalStateError, KafkaTimeoutError

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0


class EmbeddedBroker:
    """One broker on a data directory: ``data_dir``, or a temporary one that goes with it.

    ``settings``: broker settings by Kafka's names, such as ``{"num.partitions": "4"}``. ``fsync``: ``always``,
    ``interval`` or ``never``. The port is kept over restarts. Starts with ``with`` or :meth:`start`.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        in_process: bool = False,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        fsync: str = "interval",
    ) -> None:
        self._temporary = data_dir is None
        self.data_dir = os.path.abspath(tempfile.mkdtemp(prefix="kafka-broker-") if data_dir is None else data_dir)
        self._in_process = in_process
        self._port = port
        self._settings = dict(settings or {})
        self._fsync = fsync
        self._process: subprocess.Popen[bytes] | None = None
        self._running: RunningBroker | None = None
        self._thread: threading.Thread | None = None
        self._is_paused = False
        self.log_path = os.path.join(self.data_dir, "broker.log")
        """What the broker's process says on stderr."""

    # -- where it is -------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """``HOST:PORT`` for ``bootstrap_servers``."""
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """IllegalStateError before the first start."""
        if not self._port:
            raise IllegalStateError("the broker has not been started, so it has no port yet")
        return self._port

    @property
    def pid(self) -> int:
        """The broker's process."""
        return self._own_process().pid

    @property
    def is_running(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return self._thread is not None and self._thread.is_alive()

    # -- start and end -----------------------------------------------------------------------------------------------

    def start(self) -> EmbeddedBroker:
        """Start it, and come back when it listens. KafkaTimeoutError with the end of its log when it does not."""
        if self.is_running:
            raise IllegalStateError("the broker is running already")
        if self._in_process:
            self._running = RunningBroker(
                BrokerOptions(self.data_dir, port=self._port, settings=self._settings, fsync=self._fsync)
            )
            self._port = self._running.state.port
            self._thread = threading.Thread(target=self._running.run, name="embedded-broker", daemon=True)
            self._thread.start()
        else:
            self._start_process()
        return self

    def stop(self) -> None:
        """End it well, as SIGTERM does. Nothing when it does not run."""
        if self._running is not None and self._thread is not None:
            self._running.stop()
            self._thread.join(STOP_TIMEOUT_S)
            self._running = self._thread = None
        if self._process is not None:
            self.resume()
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._reap()

    def kill(self) -> None:
        """End it as ``kill -9`` does: nothing is flushed, nothing said."""
        process = self._own_process()
        process.kill()
        process.wait()
        self._reap()

    def restart(self) -> None:
        """Start it again on the same directory and port, after it has ended well if it still ran."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP): connections stand, nothing answers."""
        os.kill(self._own_process().pid, signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Let it go on after :meth:`pause`."""
        if self._is_paused:
            os.kill(self._own_process().pid, signal.SIGCONT)
            self._is_paused = False

    def close(self) -> None:
        """End it, and remove its directory if that was a temporary one."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> EmbeddedBroker:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _start_process(self) -> None:
        os.makedirs(self.data_dir, exist_ok=True)
        command = [
            sys.executable, "-m", "kafka", "broker", "--data-dir", self.data_dir,
            "--port", str(self._port), "--fsync", self._fsync, "--log-level", "info", "--exit-with-stdin",
        ]  # fmt: skip
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        python_path = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([root, *([python_path] if python_path else [])]),
        }
        with open(self.log_path, "ab") as log_file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log_file, env=environment
            )  # nothing is written to stdin: it ends with this process, whatever ends that, and so does the broker
        line = self._first_line(self._process)
        if not line.startswith("listening on "):
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._reap()
            raise KafkaTimeoutError(f"the broker did not start: {self._log_tail()}")
        self._port = int(line.rpartition(":")[2])

    @staticmethod
    def _first_line(process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        give_up_at = time.monotonic() + START_TIMEOUT_S
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n") and selector.select(max(0.0, give_up_at - time.monotonic())):
                byte = os.read(process.stdout.fileno(), 1)
                if not byte:
                    break
                line += byte
        return line.decode().strip()

    def _own_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            why = "it runs in this process" if self._running is not None else "it is not running"
            raise IllegalStateError(f"the broker has no process of its own: {why}")
        return self._process

    def _reap(self) -> None:
        for stream in (self._process.stdin, self._process.stdout) if self._process is not None else ():
            if stream is not None:
                stream.close()
        self._process = None
        self._is_paused = False

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError), open(self.log_path, encoding="utf-8", errors="replace") as file:
            lines = file.read().strip().splitlines()[-5:]
            return " | ".join(lines) or "it said nothing"
        return "it said nothing"
