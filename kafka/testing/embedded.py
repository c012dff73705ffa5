"""One broker for a test: started, killed, paused, and given faults to produce.

The broker is a process of its own, so that it can be killed and shares no interpreter with the test;
``in_process=True`` runs it in a thread instead, which starts faster and cannot be killed. Both have the same control
channel, a new one for each start, over which ``faults``, ``clock``, ``requests`` and ``pushed`` work
(``instruments.py``).
"""

from __future__ import annotations

import collections
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
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.broker import LATEST, BrokerSecurity, find_release, open_private, prepare_directory, write_properties
from kafka.broker.embedded import EmbeddedBrokerError
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition
from kafka.testing.instruments import (
    ANSWER_TIMEOUT_S,
    BrokerClock,
    BrokerGoneError,
    ControlConnection,
    Faults,
    PushedMetrics,
    Requests,
)

if TYPE_CHECKING:
    from kafka.broker import RunningBroker

START_TIMEOUT_S = 30.0


def next_line(process: subprocess.Popen[bytes]) -> str:
    """The next line of its output; a part of it when the process has ended, or has been silent for long."""
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


def port_of(place: str) -> int:
    """The port of a text that ends with ``:PORT``."""
    return int(place.rpartition(":")[2])


def _secret_file(directory: str, name: str, text: str) -> str:
    """A file that only we can read: all users of the machine can see a command line."""
    path = os.path.join(directory, name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path


READ_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
END_TIMEOUT_S = 1.0
"""Time limit from the last line of output to the end of the process."""

_WRONG_USE: Final = 2
"""The exit code of ``python -m kafka broker`` for settings that it refuses."""

DEFAULT_SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "connections.max.idle.ms": "-1"}
"""Defaults that differ from Kafka's: tests should not wait 3 s for more consumers to join (Kafka's own
configuration for development says the same), and a test that sets the broker's clock forward keeps its connections."""


class EmbeddedBroker:
    """One broker on a data directory: ``data_dir``, or a temporary one that goes with it.

    ``topics``: those that its first start makes where they are missing, ``"orders"``, ``["orders", "mail"]`` or
    ``{"orders": partitions}``.
    ``settings``: broker settings by Kafka's names, such as ``{"num.partitions": "4"}``; unless they say
    otherwise, ``group.initial.rebalance.delay.ms`` is 0, ``connections.max.idle.ms`` -1 (never), and all others have
    Kafka's defaults. ``fsync``: ``always``, ``interval`` or ``never``. ``emulate``: the release of Apache Kafka to be
    like, old or new, such as ``"0.10"`` (ValueError, which lists them, for one that is not known). ``security``: a
    second listener with TLS, passwords or both, at :attr:`secure_bootstrap`. ``telemetry``: ask clients for metrics
    (KIP-714), as an Apache Kafka with a plug-in does; see :attr:`pushed`. ``arguments``: more options of ``python -m
    kafka broker``, for one with a process. The port is kept over restarts. Starts with ``with`` or :meth:`start`.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        in_process: bool = False,
        port: int = 0,
        topics: str | Iterable[str] | Mapping[str, int] = (),
        settings: Mapping[str, str] | None = None,
        fsync: str = "interval",
        emulate: str = LATEST,
        security: BrokerSecurity | None = None,
        telemetry: bool = False,
        arguments: Iterable[str] = (),
    ) -> None:
        self._temporary = data_dir is None
        self.data_dir = os.path.abspath(tempfile.mkdtemp(prefix="kafka-broker-") if data_dir is None else data_dir)
        self._in_process = in_process
        self._port = port
        names = [topics] if isinstance(topics, str) else topics
        self._wanted_topics = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, 1)
        self._settings = {**DEFAULT_SETTINGS, **(settings or {})}
        self._fsync = fsync
        self._emulate = find_release(emulate).name
        self._security = security
        self._telemetry = telemetry
        self._secure_port = 0
        # In process, telemetry is an argument of the call that makes the broker.
        if isinstance(arguments, str):
            raise IllegalArgumentError(f"arguments={arguments!r}: a list of options, not one text")
        self._arguments = (*arguments, *(["--telemetry"] if telemetry and not in_process else []))
        if in_process and self._arguments:
            raise IllegalArgumentError("arguments are for a broker with a process of its own; use in_process=False")
        self._process: subprocess.Popen[bytes] | None = None
        self._running: RunningBroker | None = None
        self._thread: threading.Thread | None = None
        self._is_paused = False
        self.log_path = os.path.join(self.data_dir, "broker.log")
        """The file with the stderr of the broker's process."""
        self._channel: ControlConnection | None = None
        self.faults = Faults(self._ask, can_kill=not in_process)
        """Faults; see :mod:`kafka.broker.faults`."""
        self.clock = BrokerClock(self._ask)
        """The broker's time, to be set forward or stopped."""
        self.requests = Requests(self._ask)
        """The requests since its start."""
        self.pushed = PushedMetrics(self._ask)
        """The metrics that clients have pushed, and which they are asked for."""

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
    def secure_bootstrap(self) -> str:
        """The same of the listener that ``security`` has made."""
        if not self._secure_port:
            raise IllegalStateError("the broker has no security=, or has not been started")
        return f"127.0.0.1:{self._secure_port}"

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
        """Start it and wait until it listens. KafkaConfigurationError when it refuses its settings,
        EmbeddedBrokerError with the end of its log when it ends for another reason, KafkaTimeoutError."""
        if self.is_running:
            raise IllegalStateError("the broker is running already")
        self._reap()
        channel = ControlConnection(self.faults._on_hits)
        try:
            if self._in_process:
                self._start_thread(channel)
            else:
                self._start_process(channel)
            self.faults._send_rules(channel)
            channel.post("serve")  # until then it listens and answers no client
        except BaseException:
            channel.close()
            raise
        self._channel = channel
        if self._wanted_topics:
            self._create_missing_topics()
        return self

    def stop(self) -> None:
        """Stop it, as SIGTERM does; no effect when it is not running."""
        if self._running is not None and self._thread is not None:
            self.resume()
            self._running.stop()
            self._thread.join(STOP_TIMEOUT_S)
            self._running = self._thread = None
            self._close_channel()
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
        """Kill it, as ``kill -9`` does."""
        process = self._own_process()
        process.kill()
        process.wait()
        self._reap()

    def wait_ended(self, timeout: float = STOP_TIMEOUT_S) -> None:
        """Wait until it has ended by itself, for example killed by a fault. KafkaTimeoutError."""
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise KafkaTimeoutError(f"the broker still runs after {timeout:g} s") from None
            self._reap()

    def restart(self) -> None:
        """Stop it if it is running, and start it again on the same directory and port."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Suspend it (SIGSTOP, for a process): connections stay open, it does not respond."""
        if self._running is not None:
            self._ask("pause", is_paused=True)
        else:
            os.kill(self._own_process().pid, signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Let it go on after :meth:`pause`."""
        if self._is_paused:
            if self._running is not None:
                self._ask("pause", is_paused=False)
            else:
                os.kill(self._own_process().pid, signal.SIGCONT)
            self._is_paused = False

    def log_tail(self, lines: int = 20) -> list[str]:
        """The last lines of its process's log; none for a broker in the test's own process, which logs there."""
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as file:
                return list(collections.deque((line.rstrip() for line in file), lines))
        except FileNotFoundError:
            return []

    # -- what it does to clients -------------------------------------------------------------------------------------

    def disconnect_all(self) -> int:
        """Reset all open connections; returns their number. New ones are accepted."""
        return int(self._ask("disconnect_all"))

    def refuse_connections(self) -> None:
        """Close new connections at once from now on; open ones continue."""
        self._ask("refuse", refuse=True)

    def accept_connections(self) -> None:
        """Accept new connections again."""
        self._ask("refuse", refuse=False)

    # -- what is on it -----------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> str:
        """Create a topic; returns its name. ``configs``: settings with ``_`` for ``.``, as in ``retention_ms=1000``."""
        settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
        with KafkaAdminClient(bootstrap_servers=self._running_at()) as admin:
            admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)], wait_for_metadata=True)
        return name

    def fill(self, topic: str, values: Iterable[bytes | str], *, partition: int | None = None) -> int:
        """Write records with these values, in their order if they go to one ``partition``; how many there were."""
        if isinstance(values, (str, bytes)):
            raise IllegalArgumentError(f"values={values!r}: a list of values, not one")
        with KafkaProducer(bootstrap_servers=self._running_at()) as producer:
            futures = [
                producer.send(topic, value.encode() if isinstance(value, str) else value, partition=partition)
                for value in values
            ]
            producer.flush()
            for future in futures:
                future.get(0)
        return len(futures)

    def records(self, topic: str, at_least: int = 0, timeout: float = READ_TIMEOUT_S) -> list[ConsumerRecord]:
        """All records of a topic that a reader of committed ones sees, partition by partition. With ``at_least``, waits
        until there are so many. KafkaTimeoutError."""
        found: list[ConsumerRecord] = []
        give_up_at = time.monotonic() + timeout
        consumer = KafkaConsumer(bootstrap_servers=self._running_at(), isolation_level="read_committed")
        with contextlib.closing(consumer):
            wanted = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
            if not wanted:
                raise UnknownTopicOrPartitionError(f"no topic {topic}")
            consumer.assign(wanted)
            consumer.seek_to_beginning(*wanted)
            ends = consumer.end_offsets(wanted)
            while len(found) < at_least or any(consumer.position(each) < end for each, end in ends.items()):
                left_s = give_up_at - time.monotonic()
                if left_s <= 0:
                    wish = f"there are {len(found)} records, not {at_least}," if at_least else "not all could be read"
                    raise KafkaTimeoutError(f"{topic}: {wish} after {timeout:g} s")
                for batch in consumer.poll(timeout_ms=min(left_s, 1.0) * 1000).values():
                    found += batch
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def close(self) -> None:
        """Stop it, and remove a temporary directory."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> EmbeddedBroker:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def wait_drained(
        self,
        shares: Sequence[tuple[str, str]],
        timeout: float = READ_TIMEOUT_S,
        groups: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Wait until the share groups have settled every record, and the consumer groups have committed behind every
        one: ``shares`` and ``groups`` are (group, topic). KafkaTimeoutError."""
        try:
            self._ask("is_drained", timeout, shares=list(shares), groups=list(groups))
        except KafkaTimeoutError:
            names = ", ".join(sorted({group for group, _ in (*shares, *groups)}))
            raise KafkaTimeoutError(f"{names}: there are records left after {timeout:g} s") from None

    # -- inside ------------------------------------------------------------------------------------------------------

    def _ask(self, command: str, timeout_s: float = ANSWER_TIMEOUT_S, **values: Any) -> Any:
        """Have the broker carry out a command; BrokerGoneError when it is not running."""
        return self._connected().ask(command, timeout_s, **values)

    def _connected(self) -> ControlConnection:
        if self._is_paused and self._process is not None:
            raise IllegalStateError("the broker's process is paused: resume() it first")
        if self._channel is None or not self._channel.is_open:
            raise BrokerGoneError("the broker is not running")
        return self._channel

    def _running_at(self) -> str:
        """Its address; an error at once, and not at a client's time-out, if the broker is not running."""
        self._connected()
        return self.bootstrap

    def _close_channel(self) -> None:
        """Close the control connection of a broker that has ended, after reading its last messages."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.drain()

    def _create_missing_topics(self) -> None:
        """Make the topics of the first start, but for those that are there already."""
        topics = [NewTopic(name, partitions, 1) for name, partitions in self._wanted_topics.items()]
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as admin:
            for topic in admin.create_topics(topics, raise_errors=False)["topics"]:
                if topic["error_code"] not in (0, TopicAlreadyExistsError.errno):
                    raise for_code(topic["error_code"])(f"topic {topic['name']}: {topic['error_message']}")
        self._wanted_topics = {}

    def _start_thread(self, channel: ControlConnection) -> None:
        from kafka.broker import BrokerOptions, RunningBroker  # one in a process of its own needs them there alone

        options = BrokerOptions(
            self.data_dir,
            port=self._port,
            settings=self._all_settings(),
            users=self._security.users if self._security is not None else {},
            fsync=self._fsync,
            emulate=self._emulate,
            telemetry=self._telemetry,
            control_fd=channel.theirs.detach(),
            is_process=False,
        )
        self._running = RunningBroker(options)
        self._port = self._running.state.port
        if self._security is not None:
            self._secure_port = port_of(self._running.state.listeners[self._security.protocol])
        self._thread = threading.Thread(target=self._running.run, name="embedded-broker", daemon=True)
        self._thread.start()

    def _start_process(self, channel: ControlConnection) -> None:
        """Begin ``python -m kafka broker`` on the directory. EmbeddedBrokerError for a directory that cannot be made or
        trusted (``broker/private_files.py``)."""
        data_dir, security, control_fd = self.data_dir, self._security, channel.theirs.fileno()
        try:
            prepare_directory(data_dir)
        except OSError as error:
            why = error.strerror or error
            raise EmbeddedBrokerError(f"cannot use the data directory {data_dir}: {why}") from error
        command = [
            sys.executable, "-m", "kafka", "broker", "--data-dir", data_dir,
            "--port", str(self._port), "--fsync", self._fsync, "--log-level", "info", "--exit-with-stdin",
            "--control-fd", str(control_fd), "--emulate", self._emulate,
            "--settings", _secret_file(data_dir, "broker.properties", write_properties(self._all_settings())),
        ]  # fmt: skip
        if security is not None and security.users:
            users = "".join(f"{name}:{password}\n" for name, password in security.users.items())
            command += ["--users", _secret_file(data_dir, "users", users)]
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        with open(self.log_path, "ab", opener=open_private) as log_file:
            self._process = process = subprocess.Popen(
                [*command, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=(control_fd,),
            )  # nothing is written to stdin: it ends with this process, whatever ends that, and the broker ends with it
        channel.theirs.close()  # the broker has it now, and its end is the end of the line
        line = next_line(process)
        if not line.startswith("listening on "):
            self._raise_why(process)
        self._port = port_of(line)
        if security is not None:
            self._secure_port = port_of(next_line(process))

    def _all_settings(self) -> dict[str, str]:
        security = self._security
        if security is None:
            return self._settings
        listeners = f"PLAINTEXT://127.0.0.1:{self._port},{security.protocol}://127.0.0.1:{self._secure_port}"
        return {"listeners": listeners, **security.settings(), **self._settings}

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
        self._close_channel()

    def _raise_why(self, process: subprocess.Popen[bytes]) -> NoReturn:
        """It does not listen: it has ended, or is about to, or has run out of its time."""
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(END_TIMEOUT_S)
        if code is None:
            process.kill()
            process.wait()
        self._reap()
        text = f"the broker did not start: {' | '.join(self.log_tail(5)) or 'it said nothing'}"
        if code is None:
            raise KafkaTimeoutError(text)
        raise (KafkaConfigurationError if code == _WRONG_USE else EmbeddedBrokerError)(text)
