"""Real Apache Kafka of any release, on loopback, for tests::

    with ApacheKafka("0.9.0.1", {"num.partitions": 1}) as kafka:
        kafka.bootstrap        # "127.0.0.1:41234"
        kafka.kill()           # kill -9
        kafka.restart()        # the same data directory, the same port

A broker listens on free ports, keeps its files in a directory of its own and ends with the test session, also when
that is killed (on Linux). Releases before 3 get a ZooKeeper beside them; later ones are their own controller. Jars come
from ``jars.py``. Whether a test may run here at all is decided by :func:`require_apache_kafka`. A release that wants
other settings to start is one more line in :meth:`ApacheKafka._settings`.

Facts about old releases that shape this file: a broker that has lost its ZooKeeper waits for it and ignores SIGTERM, so
the broker ends first; a broker that was killed stays registered in ZooKeeper until its session has run out, and cannot
start again before (0.9 and 0.10 end at once; 4.3, without ZooKeeper, waits 9 s by default); an open port says nothing,
so a broker counts as started when it answers a Metadata request.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

import pytest

from test.support import jars
from test.support.ports import free_ports

LATEST = "4.3.0"

FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
"""Flags of the broker's JVM for tests; benchmarks give their own, since these cost half of the speed later on."""

LONG_RETENTION = {"log.retention.hours": "876000"}
"""A setting for tests that write records with times of former years: they would go half a minute after a start, or at
any moment five minutes later. (Before 1.0 ``log.retention.ms`` cannot be as long.)
"""

_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 20.0
_LOG_TAIL_LINES = 40
_LOG_TAIL_BYTES = 1 << 18

_LOG4J1 = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_LOG4J2 = """\
Configuration:
  Appenders: {Console: {name: OUT, target: SYSTEM_OUT, PatternLayout: {pattern: '[%d] %p %m (%c)%n'}}}
  Loggers: {Root: {level: WARN, AppenderRef: [{ref: OUT}]}}
"""

_running: list[ApacheKafka] = []
_starts_s: list[float] = []


class ApacheKafkaError(Exception):
    """The broker did not start, or ended by itself; the text ends with its log."""


def require_apache_kafka(*versions: str) -> None:
    """Skip the calling test, with the reason, where ``versions`` cannot be run; in CI fail it instead.

    Fetches the jars when they are not in the cache.
    """
    try:
        if shutil.which("java") is None:
            raise jars.Unavailable("Java is not installed (no `java` on PATH)")
        for version in versions or (LATEST,):
            jars.broker_classpath(version)
    except jars.Unavailable as reason:
        refuse(f"needs Apache Kafka {', '.join(versions or (LATEST,))}: {reason}")


def refuse(reason: str) -> NoReturn:
    """Skip the calling test, but fail it in CI, where everything has to be there."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason} (in CI this is a failure)", pytrace=False)
    pytest.skip(reason)


def running_brokers() -> Sequence[ApacheKafka]:
    """Every broker of this process that was started and not stopped."""
    return tuple(_running)


def starts_s() -> Sequence[float]:
    """How long each start of this process has taken, in seconds."""
    return tuple(_starts_s)


@contextlib.contextmanager
def _starting() -> Iterator[None]:
    """A start has limits of its own, 90 s for each step; the test's, 60 s, would end the fixture of a whole suite."""
    began = time.monotonic()
    with jars.time_limit_stands_still():
        yield
    _starts_s.append(time.monotonic() - began)


class Place(NamedTuple):
    """A node of a quorum, by its id, and the ports of its broker and its controller."""

    node_id: int
    port: int
    controller_port: int


class ApacheKafka:
    """One broker of one release, with its ZooKeeper when it needs one.

    ``settings`` go over the ones that a test broker has; ``directory`` (default: a temporary one, removed at the end)
    keeps data, settings and logs; ``jvm`` are the flags of the broker's JVM. ``beside``: a broker of 3 or later that is
    running and is its cluster's controller: this one joins it, as node 2 unless ``settings`` say otherwise.
    ``place`` and ``quorum``: this one is broker and controller there, in a cluster of 3 or later whose other nodes,
    in all their places, are made of the same ``cluster_id``: see :func:`start_all`. ``plugins``: directories with more
    classes.
    """

    def __init__(
        self,
        version: str = LATEST,
        settings: Mapping[str, object] | None = None,
        *,
        directory: pathlib.Path | None = None,
        jvm: Sequence[str] = FAST_START,
        beside: ApacheKafka | None = None,
        place: Place | None = None,
        quorum: Sequence[Place] = (),
        cluster_id: str | None = None,
        plugins: Sequence[pathlib.Path] = (),
    ) -> None:
        self.beside = beside
        self._place = place
        self._quorum = tuple(quorum)
        self.cluster_id: str = cluster_id or (beside.cluster_id if beside is not None else random_id())
        """As releases since 3 are told it; older ones choose their own."""
        self.controller: str = beside.controller if beside is not None else ""
        self.version = version
        self.bootstrap = ""
        self.directory = directory
        self._settings_given = dict(settings or {})
        self._temporary = directory is None
        self._jvm = tuple(jvm)
        self._release = tuple(int(part) for part in version.split("."))
        self._classpath = ""
        self._plugins = tuple(plugins)
        self._port = 0
        self._broker: subprocess.Popen[bytes] | None = None
        self._log_begin = 0
        """Of the broker that was launched last."""
        self._zookeeper: subprocess.Popen[bytes] | None = None
        self._first_call: socket.socket | None = None

    def __enter__(self) -> ApacheKafka:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The broker's process id."""
        if self._broker is None:
            raise ApacheKafkaError(f"Apache Kafka {self.version} is not running")
        return self._broker.pid

    def start(self) -> ApacheKafka:
        """Start the broker, and come back when it answers.

        When it does not, an :class:`ApacheKafkaError` says so with its log, and nothing is left running.
        """
        start_all([self])
        return self

    def _begin(self) -> None:
        self._classpath = os.pathsep.join([jars.broker_classpath(self.version), *map(str, self._plugins)])
        self.directory = self.directory or pathlib.Path(tempfile.mkdtemp(prefix=f"apache-kafka-{self.version}-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        _running.append(self)
        self._prepare(self.directory)
        self._launch_broker()

    def stop(self, *, gracefully: bool = True) -> None:
        """End the broker, then its ZooKeeper, and remove a temporary directory; nothing when not running."""
        for process in (self._broker, self._zookeeper):
            if process is not None:
                _end(process, gracefully)
        self._broker = self._zookeeper = None
        self._hang_up()
        if self in _running:
            _running.remove(self)
        if self._temporary and self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither stopped nor killed since."""
        return self._broker is not None

    def kill(self) -> None:
        """``kill -9`` the broker; its ZooKeeper stays, and so does its data."""
        self._end_broker(gracefully=False)

    def shut_down(self) -> None:
        """SIGTERM the broker, which hands its leaderships over before it ends; its data stays."""
        self._end_broker(gracefully=True)

    def _end_broker(self, gracefully: bool) -> None:
        if self._broker is not None:
            _end(self._broker, gracefully)
            self._broker = None

    def pause(self) -> None:
        """SIGSTOP: the broker holds its connections open and answers nothing. It stands still when one of its threads
        has come round to the signal, which on a busy machine may be after it has answered once more: so that is waited
        for.
        """
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT: the end of :meth:`pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self, *, gracefully: bool = True) -> None:
        """End the broker, if it runs, and start it again on the same data and the same port."""
        if self.directory is None:
            raise ApacheKafkaError(f"Apache Kafka {self.version} was never started")
        self._end_broker(gracefully)
        with _starting():
            self._launch_broker()
            self._wait_started(time.monotonic() + _START_TIMEOUT_S)

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        """The last lines of the broker's log, and of its ZooKeeper's."""
        parts = []
        for name in ("zookeeper", "broker"):
            path = self.directory / f"{name}.log" if self.directory else None
            if path is not None and path.exists():
                with path.open("rb") as file:  # its end alone: a ZooKeeper has been seen to write gigabytes
                    file.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
                    tail = file.read(_LOG_TAIL_BYTES).decode(errors="replace").splitlines()[-lines:]
                parts += [f"--- {name} of Apache Kafka {self.version} ---", *tail]
        return "\n".join(parts)

    # -- how it is done ---------------------------------------------------------------------------------------------

    def _prepare(self, directory: pathlib.Path) -> None:
        """Write the settings, start ZooKeeper or format the data directory."""
        (directory / "log4j.properties").write_text(_LOG4J1)
        (directory / "log4j2.yaml").write_text(_LOG4J2)
        self._port, second_port = free_ports(2) if self._place is None else self._place[1:]
        self.bootstrap = f"127.0.0.1:{self._port}"
        settings = self._settings(directory, second_port) | self._settings_given
        properties = directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if self._has_zookeeper:
            self._start_zookeeper(directory, second_port)
        elif not (directory / "data").exists():
            self._format_or_copy(directory, properties, settings)

    def _format_or_copy(
        self, directory: pathlib.Path, properties: pathlib.Path, settings: Mapping[str, object]
    ) -> None:
        """Give the broker a formatted data directory: Java takes 3 s to make one, so the processes of a run share a
        copy of the first one of each release. It belongs to node 1, and to one cluster: brokers that are made of it
        have the same cluster id, and never meet. A node of a quorum gets a node id and a directory id of its own.
        """
        run = os.environ.get("KAFKA_TEST_RUN_DIRECTORY")
        is_first = (settings["node.id"], settings["process.roles"]) == (1, "broker,controller")
        if run is None or not (is_first or self._quorum):
            self._format(directory, properties)
            return
        template = pathlib.Path(run) / f"apache-kafka-{self.version}"
        with pathlib.Path(f"{template}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not template.exists():
                self._format(directory, properties)
                shutil.copytree(directory / "data", f"{template}.new")
                os.rename(f"{template}.new", template)
                if not self._quorum:
                    return
                shutil.rmtree(directory / "data")
        shutil.copytree(template, directory / "data")
        rows = (template / "meta.properties").read_text().splitlines()
        if self._quorum:
            own = {"cluster.id": self.cluster_id, "node.id": settings["node.id"], "directory.id": random_id()}
            fields = [row.partition("=") for row in rows if not row.startswith("#")]
            rows = [f"{name}={own.get(name, value)}" for name, _, value in fields]
            (directory / "data" / "meta.properties").write_text("\n".join([*rows, ""]))
        else:
            self.cluster_id = next(row.removeprefix("cluster.id=") for row in rows if row.startswith("cluster.id="))

    def _format(self, directory: pathlib.Path, properties: pathlib.Path) -> None:
        tool = ("kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(properties))
        command = [*self._java(directory), "-XX:TieredStopAtLevel=1", "-cp", self._classpath, *tool]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=_START_TIMEOUT_S
        )
        if done.returncode != 0:
            raise ApacheKafkaError(f"the data directory could not be formatted:\n{done.stdout}{done.stderr}")

    @property
    def _has_zookeeper(self) -> bool:
        return self._release < (3,)

    def _settings(self, directory: pathlib.Path, second_port: int) -> dict[str, object]:
        """What a broker of this release needs to run alone, quickly and small."""
        settings: dict[str, object] = {
            "log.dirs": directory / "data",
            "num.partitions": 4,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        }
        listener = f"PLAINTEXT://{self.bootstrap}"
        if self._has_zookeeper:
            settings |= {
                "broker.id": 0,
                "zookeeper.connect": f"127.0.0.1:{second_port}",
                "zookeeper.session.timeout.ms": 4000,
            }
            if self._release < (0, 9):
                settings |= {"port": self._port, "host.name": "127.0.0.1", "advertised.host.name": "127.0.0.1"}
            else:
                settings |= {"listeners": listener}
        else:
            settings |= {
                "process.roles": "broker,controller",
                "node.id": 1,
                "controller.quorum.voters": f"1@127.0.0.1:{second_port}",
                "listeners": f"{listener},CONTROLLER://127.0.0.1:{second_port}",
                "advertised.listeners": listener,
                "controller.listener.names": "CONTROLLER",
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                # A killed broker cannot register again before its session has run out (9 s by default).
                "broker.session.timeout.ms": 3000,
                "broker.heartbeat.interval.ms": 500,
            }
        if self._place is not None:
            voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, _, port in self._quorum)
            settings |= {"node.id": self._place.node_id, "controller.quorum.voters": voters}
        if self.beside is not None:
            settings |= {
                "process.roles": "broker",
                "node.id": 2,
                "controller.quorum.voters": self.controller,
                "listeners": listener,
            }
        elif not self._has_zookeeper:
            self.controller = str(settings["controller.quorum.voters"])
        if self._release >= (0, 11):
            settings |= {
                "transaction.state.log.replication.factor": 1,
                "transaction.state.log.min.isr": 1,
                "transaction.state.log.num.partitions": 4,
                "group.initial.rebalance.delay.ms": 0,
            }
        if self._release >= (4,):
            settings |= {
                "share.coordinator.state.topic.replication.factor": 1,
                "share.coordinator.state.topic.min.isr": 1,
                "share.coordinator.state.topic.num.partitions": 4,
            }
        return settings

    def _java(self, directory: pathlib.Path) -> list[str]:
        return [
            "java",
            f"-Dlog4j.configuration=file:{directory / 'log4j.properties'}",
            f"-Dlog4j2.configurationFile={directory / 'log4j2.yaml'}",
        ]

    def _launch(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        assert self.directory is not None
        command = [*self._java(self.directory), "-cp", self._classpath, *arguments]
        setpriv = shutil.which("setpriv")
        if setpriv is not None and threading.current_thread() is threading.main_thread():
            # Linux can end the broker when this process is killed with -9; it looks at the thread that started it, so
            # from another thread than the main one the broker would end too early.
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with (self.directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _start_zookeeper(self, directory: pathlib.Path, port: int) -> None:
        properties = directory / "zookeeper.properties"
        properties.write_text(
            f"dataDir={directory / 'zookeeper'}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n"
        )
        self._zookeeper = self._launch(
            "zookeeper",
            "-Xmx128m",
            *FAST_START[:2],
            "-Dzookeeper.jmx.log4j.disable=true",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(properties),
        )
        # Kept open until the broker is up: a connection that ends while ZooKeeper has no database yet is never let go
        # of, but is reported for ever, with a whole core and a gigabyte of log in a minute.
        deadline = time.monotonic() + _START_TIMEOUT_S
        while self._first_call is None:
            try:
                self._first_call = socket.create_connection(("127.0.0.1", port), 1)
            except OSError:
                self._check_alive(self._zookeeper, deadline)

    def _hang_up(self) -> None:
        if self._first_call is not None:
            self._first_call.close()
            self._first_call = None

    def _launch_broker(self) -> None:
        assert self.directory is not None
        log = self.directory / "broker.log"
        self._log_begin = log.stat().st_size if log.exists() else 0
        self._broker = self._launch("broker", *self._jvm, "kafka.Kafka", str(self.directory / "server.properties"))

    def _says(self, *texts: bytes) -> bool:
        """Whether one of these is in the log of the broker that was launched last."""
        assert self.directory is not None
        with (self.directory / "broker.log").open("rb") as file:
            file.seek(self._log_begin)
            said = file.read(_LOG_TAIL_BYTES)
        return any(text in said for text in texts)

    def _wait_started(self, deadline: float) -> None:
        while True:
            assert self._broker is not None
            try:
                while not self._answers():
                    self._check_alive(self._broker, deadline)
                    if self._says(b"Fatal error during KafkaServer startup"):
                        self._broker.kill()  # it ends by itself, but 0.9 has been seen to hang on the way
                        self._broker.wait()
                return
            except ApacheKafkaError:
                # Still registered in ZooKeeper from before a kill: it can start when that session has run out.
                registered = self._says(b"is already registered", b"NodeExists")
                if not registered or self._broker.poll() is None or time.monotonic() > deadline:
                    raise
            self._launch_broker()

    def _answers(self) -> bool:
        """Whether Metadata v0 is answered: from 0.9 on with a broker in it, before with anything."""
        request = struct.pack(">hhih5si", 3, 0, 1, 5, b"start", 0)
        try:
            with socket.create_connection(("127.0.0.1", self._port), 1) as connection:
                connection.settimeout(2)
                connection.sendall(struct.pack(">i", len(request)) + request)
                with connection.makefile("rb") as answer:
                    head = answer.read(12)
        except OSError:
            return False
        return len(head) == 12 and (self._release < (0, 9) or struct.unpack(">iii", head)[2] > 0)

    def _check_alive(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
        if process.returncode is not None:
            raise ApacheKafkaError(
                f"Apache Kafka {self.version} ended with {process.returncode} while it started\n{self.log_tail()}"
            )
        if time.monotonic() > deadline:
            raise ApacheKafkaError(
                f"Apache Kafka {self.version} did not answer within {_START_TIMEOUT_S:.0f} s\n{self.log_tail()}"
            )


def start_all(brokers: Sequence[ApacheKafka]) -> None:
    """Start brokers side by side, and come back when all answer: those of a quorum answer only when most are up. When
    one does not, none is left running."""
    for broker in brokers:
        if broker.is_running:
            raise ApacheKafkaError(f"Apache Kafka {broker.version} is running already")
    try:
        with _starting():
            for broker in brokers:
                broker._begin()
            deadline = time.monotonic() + _START_TIMEOUT_S
            for broker in brokers:
                broker._wait_started(deadline)
    except BaseException:
        for broker in brokers:
            broker.stop(gracefully=False)
        raise
    for broker in brokers:
        broker._hang_up()


def _end(process: subprocess.Popen[bytes], gracefully: bool) -> None:
    """End a process and reap it; SIGKILL when SIGTERM does not help in time."""
    if process.poll() is not None:
        return
    if gracefully:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_TIMEOUT_S)
            return
    process.kill()
    process.wait()


def random_id() -> str:
    """As Kafka writes ids of clusters and directories."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "A", 1)


@atexit.register
def _stop_all() -> None:
    for broker in running_brokers():
        broker.stop(gracefully=False)
