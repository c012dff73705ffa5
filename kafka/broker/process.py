"""A broker with all that it runs on: loop, sockets, file thread, signals, state file, shutdown when idle.

``python -m kafka broker`` runs one in its main thread, ``kafka.testing`` one in a thread of its own. Rules of ending:
SIGTERM, SIGINT, SIGHUP (unless ``nohup`` has it ignored) and :meth:`RunningBroker.stop` end it well (all is flushed and
sealed); with ``exit_when_idle_s`` it also ends when no connection has stood for so long, with ``lifeline_fd`` when that
pipe's other end is closed.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.broker import registry
from kafka.broker.broker import Broker
from kafka.broker.emulation import LATEST
from kafka.broker.listeners import ListenerSpec, read_listeners
from kafka.broker.log.files import MAX_OPEN_FILES, is_out_of_descriptors, storage_error
from kafka.broker.log.flushing import SLICE_FILES
from kafka.broker.server import WILDCARD_HOSTS, BrokerServer
from kafka.broker.state_file import STATE_NAME, BrokerState, read_state, remove_state, starter_lock, write_state
from kafka.errors import KafkaError
from kafka.net.clock import AdjustableClock
from kafka.net.loop import Loop, LoopTimer, SignalWatch
from kafka.net.tcp import TcpNetwork

if TYPE_CHECKING:
    from kafka.broker.control import ControlChannel

resource: Any = None
with contextlib.suppress(ImportError):  # Windows has no such limits
    import resource

log = logging.getLogger(__name__)

Work = tuple[Callable[[], Any], Callable[[Any], None]]
Result = tuple[Callable[[Any], None], Any, Exception | None]


class BackgroundThread:
    """Runs blocking file work (fsync, deletion) in a thread.

    loop's thread      run(work, done) ──queue──> the thread: work()
                       done(result)   <──call_soon_threadsafe──┘      then the server's turn ends: Broker.tick

    Work runs one piece after the other, in order, and may touch its own arguments only. Everything else of a broker is
    on the loop's thread: ``done`` runs there.

    An :class:`~kafka.broker.log.flushing.FileExecutor`. ``on_done`` is called on the loop after each ``done``.
    The thread starts with the first piece of work; while the system gives none, the loop does the work at once."""

    def __init__(self, loop: Loop, on_done: Callable[[], object] = lambda: None) -> None:
        self.on_done = on_done
        self._loop = loop
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._under_way = 0
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run ``work`` in the thread, and call ``done`` with its result on the loop."""
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="embedded-broker-files", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                log.warning(
                    "cannot start the file thread: syncing on the event loop, requests wait for the disk: %s",
                    error,
                )
                done(work())
                return
            self._thread = thread
        self._under_way += 1
        self._work.put((work, done))

    def drain(self) -> None:
        """On the loop's thread: wait for all submitted work, and call its ``done`` callbacks."""
        while self._under_way:
            self._finish(*self._results.get())

    def close(self) -> None:
        """Drain, and end the thread."""
        self.drain()
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while (found := self._work.get()) is not None:
            work, done = found
            try:
                self._results.put((done, work(), None))
            except Exception as error:
                self._results.put((done, None, error))
            with contextlib.suppress(RuntimeError):  # the loop has ended, and its owner drains
                self._loop.call_soon_threadsafe(self._take_results)

    def _take_results(self) -> None:
        """Call the ``done`` callbacks that ``drain`` has not called already."""
        while not self._results.empty():
            self._finish(*self._results.get())
        self.on_done()

    def _finish(self, done: Callable[[Any], None], result: Any, error: Exception | None) -> None:
        self._under_way -= 1
        if error is not None:
            raise error
        done(result)


OWN: Final = 8
"""Descriptors of a broker from start to end: the lock of its directory, its listeners, the pair for signals."""

MOMENTARY: Final = 16
"""What may be open for a moment: a module that is imported, a seal or state file and its directory, a log that is
scanned (two) or compacted, directories that are removed (one for each level), a connection that is about to be refused,
a source file of a traceback."""

LEAST: Final = 4
"""Of each other part."""


class DescriptorLimitError(KafkaError):
    """The process may have too few open files for a broker."""


class DescriptorPlan(NamedTuple):
    """How the process's file descriptors (RLIMIT_NOFILE) are divided:

    limit = open already + OWN + MOMENTARY + open log files + files of one flush slice + connections

    The owner of each part bounds it (``FilePool``, ``LogFlusher``, ``ConnectionQuotas``), so that connections never
    take what logs, state files and imports need. ``connections`` None: any number.
    """

    log_files: int = MAX_OPEN_FILES
    sync_files: int = SLICE_FILES
    connections: int | None = None


def plan_descriptors(limit: int | None, taken: int) -> DescriptorPlan:
    """The parts of what is left of ``limit`` (None: there is none) by the ``taken`` descriptors that are open.

    DescriptorLimitError when that is too little.
    """
    if limit is None:
        return DescriptorPlan()
    rest = limit - taken - OWN - MOMENTARY
    if rest < 3 * LEAST:
        raise DescriptorLimitError(
            f"the limit of open files is {limit} and {taken} are open: a broker needs a limit of at least "
            f"{limit - rest + 3 * LEAST}; raise it with ulimit -n"
        )
    log_files = min(MAX_OPEN_FILES, max(LEAST, rest // 4))
    sync_files = min(SLICE_FILES, max(LEAST, rest // 8))
    return DescriptorPlan(log_files, sync_files, rest - log_files - sync_files)


def descriptor_limit() -> int | None:
    """The process's limit of open files; None: there is none, or it is unknown."""
    if resource is None:
        return None
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def open_descriptors() -> int:
    """The number of open descriptors of this process."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return len(os.listdir(directory)) - 1  # the listing's own
    return 0


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard one: each connection and each open segment is one."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


_IDLE_RETRY_S = 0.1

_LOAD_AFTER_S = 1.0
_LOAD_PAUSE_S = 0.01


COLLECT_AFTER: Final = 50_000
"""So many objects more than at the last time."""


def tune_garbage_collector() -> None:
    """For a process that only runs a broker and has imported all handlers: freeze all current objects, and collect the
    others seldom. Nothing of a request is in a cycle, and with Python's own threshold of 700 objects the collector
    took a third of the time of a request with 30,000 of them."""
    gc.collect()
    gc.freeze()
    _, older, oldest = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, older, oldest)


class ListenError(KafkaError):
    """The address cannot be bound."""


class BrokerOptions(NamedTuple):
    """How to run a broker. ``port`` 0: a free one, if possible the one that this directory's last broker had, so that
    clients find it again. ``settings``: Kafka's names. ``fsync``: always, interval or never. ``emulate``: the
    release to play, a name of ``emulation.py``. ``lifeline_fd``: a pipe whose other end is held by the processes that
    need the broker; the broker ends with it."""

    data_dir: str
    host: str = "127.0.0.1"
    port: int = 0
    fsync: str = "interval"
    settings: Mapping[str, str] = {}
    users: Mapping[str, str] = {}
    """Name -> password, for listeners with SASL."""
    emulate: str = LATEST
    exit_when_idle_s: float | None = None
    lifeline_fd: int | None = None
    control_fd: int | None = None
    """One end of a pair of sockets, to be the remote control (``control.py``); the broker closes it."""
    telemetry: bool = False
    """Whether clients may push metrics (KIP-714)."""
    is_process: bool = True
    """Whether the broker has the process for itself, so that a fault may kill it."""


class RunningBroker:
    """A broker that listens from the constructor on and serves while :meth:`run` runs.

    ``ends_on_signals``: the caller is the main thread, and will call :meth:`run` in it. Signals that end the broker are
    taken before anybody can learn of it, as who does may send one at once.

    Errors of the constructor: ListenError (the address), DescriptorLimitError (too few open files), and those of
    :class:`~kafka.broker.broker.Broker`.
    """

    def __init__(self, options: BrokerOptions, *, ends_on_signals: bool = False) -> None:
        self.options = options
        self.data_dir = os.path.abspath(options.data_dir)
        self._control: ControlChannel | None = None
        self._control_socket = None if options.control_fd is None else socket.socket(fileno=options.control_fd)
        adjustable = AdjustableClock() if options.control_fd is not None else None
        self._loop = Loop(adjustable)
        self._network = TcpNetwork(self._loop)
        self._idle_timer: LoopTimer | None = None
        self._signals: SignalWatch | None = None
        clock = self._loop.clock
        with contextlib.ExitStack() as on_failure:
            if self._control_socket is not None:
                on_failure.callback(self._control_socket.close)
            on_failure.callback(self._loop.close)
            on_failure.callback(self._network.close)
            on_failure.callback(self._stop_watching_signals)
            self._plan = plan_descriptors(descriptor_limit(), open_descriptors())
            self.broker = Broker(
                self.data_dir,
                options.settings,
                fsync=options.fsync,
                now=clock.monotonic(),
                epoch_offset=clock.time() - clock.monotonic(),
                release=options.emulate,
                users=options.users,
                telemetry=options.telemetry,
                max_open_files=self._plan.log_files,
            )
            on_failure.callback(self.broker.close)
            self._server = self._listen()
            if self._plan.connections is not None:
                log.info(
                    "the limit of open files leaves %d for connections and %d for logs",
                    self._plan.connections, self._plan.log_files,
                )  # fmt: skip
            self._background = BackgroundThread(self._loop, self._server.end_turn)
            self.broker.logs.flusher.configure(
                self._background, self._plan.sync_files, lambda: self._server.connection_count <= 1
            )
            host = self._server.address.host
            self.state = BrokerState(
                os.getpid(),
                "127.0.0.1" if host in WILDCARD_HOSTS else host,
                self._server.address.port,
                {name: str(address) for name, address in self._server.addresses.items()},
            )
            if ends_on_signals:  # before broker.json and "listening on": their reader may send one at once
                self._watch_signals()
            self._tell()
            if options.lifeline_fd is not None:
                self._loop.watch(options.lifeline_fd, on_readable=self._lifeline_readable)
            if adjustable is not None:
                self._control = self._controlled(adjustable)
            on_failure.pop_all()
        self._went_idle(self._loop.time())

    @property
    def address(self) -> str:
        """``HOST:PORT``, as bound; of several listeners, the PLAINTEXT one if there is one."""
        return str(self._server.address)

    def run(self) -> None:
        """Serve until stopped, then close. In the main thread SIGTERM, SIGINT and SIGHUP stop it."""
        if self._signals is None and threading.current_thread() is threading.main_thread():
            self._watch_signals()
        try:
            if self._control is not None:
                self._control.wait_for_serve()
            self._loop.call_later(_LOAD_AFTER_S, self._load_next, registry.load_by_module())
            self._loop.run_forever()
        finally:
            self._stop_watching_signals()
            self._shut()
            self._loop.close()

    def stop(self) -> None:
        """From any thread: let :meth:`run` return; does nothing when it has."""
        if self._loop.is_usable:
            self._loop.call_soon_threadsafe(self._loop.stop)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _listen(self) -> BrokerServer:
        host, port = self.options.host, self.options.port
        specs = read_listeners(self.broker.config, host, port, has_users=bool(self.options.users))
        last = read_state(self.data_dir) if any(spec.port == 0 for spec in specs) else None
        if last is not None:
            try:
                return self._listen_at([_same_port_as(spec, last) for spec in specs])
            except OSError as error:
                log.debug("the ports which the last broker here had cannot be had: %s", error)
        try:
            return self._listen_at(specs)
        except OSError as error:
            raise ListenError(f"{error.strerror or error}; choose another host or port (0: a free one)") from error

    def _listen_at(self, specs: Sequence[ListenerSpec]) -> BrokerServer:
        return BrokerServer(
            self.broker,
            self._network,
            listeners=specs,
            on_idle=self._went_idle,
            max_connections=self._plan.connections,
        )

    def _controlled(self, clock: AdjustableClock) -> ControlChannel:
        from kafka.broker.control import ControlChannel

        assert self._control_socket is not None
        sock, is_process = self._control_socket, self.options.is_process
        return ControlChannel(sock, self.broker, self._server, self._loop, clock, is_process=is_process)

    def _tell(self) -> None:
        """Write down where the broker listens. Who was started for those who look there is of no use without; any
        other broker serves what it has, from a full disk, too."""
        try:
            write_state(self.data_dir, self.state)
        except OSError as error:
            failure = storage_error("write", os.path.join(self.data_dir, STATE_NAME), error)
            if self.options.exit_when_idle_s is not None:
                raise failure from error
            log.error("clients with embedded:%s cannot find this broker: %s", self.data_dir, failure.args[0])

    def _lifeline_readable(self) -> None:
        assert self.options.lifeline_fd is not None
        if not os.read(self.options.lifeline_fd, 4096):
            log.info("the process that started this broker has ended: shutting down")
            self._loop.stop()

    def _watch_signals(self) -> None:
        self._signals = self._loop.watch_signals(self._signalled, *_ending_signals())

    def _stop_watching_signals(self) -> None:
        if self._signals is not None:
            self._signals.close()

    def _signalled(self, signum: int) -> None:
        log.info("received %s: shutting down", signal.Signals(signum).name)
        self._loop.stop()

    def _load_next(self, rest: Iterator[str]) -> None:
        """Import, one at a time, the handlers that no request has needed: the start does without them, but the files
        may be of another release by the time that one does."""
        try:
            is_done = next(rest, None) is None
        except OSError as error:  # no descriptor is left now
            log.warning("cannot import request handlers in advance, importing them when needed: %s", error)
            self._loop.call_later(_LOAD_AFTER_S, self._load_next, registry.load_by_module())
            return
        if not is_done:
            self._loop.call_later(_LOAD_PAUSE_S, self._load_next, rest)
        elif self.options.is_process:
            tune_garbage_collector()

    def _went_idle(self, since: float | None) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if since is not None and self.options.exit_when_idle_s is not None:
            self._idle_timer = self._loop.call_at(since + self.options.exit_when_idle_s, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self._server.connection_count:
            return
        log.info("no connection for %g s: shutting down", self.options.exit_when_idle_s)
        try:
            with starter_lock(self.data_dir, 0) as held:
                if not held:  # a client is asking for this broker right now
                    self._idle_timer = self._loop.call_later(_IDLE_RETRY_S, self._end_if_idle)
                    return
                self._loop.stop()
                self._shut()  # under the lock: the next client finds nothing and starts another
        except OSError as error:
            if is_out_of_descriptors(error):
                self._idle_timer = self._loop.call_later(_IDLE_RETRY_S, self._end_if_idle)
                return
            # The directory is gone, or not ours any more: no client can ask for this broker.
            log.warning("cannot use the data directory %s: %s; shutting down", self.data_dir, error.strerror or error)
            self._loop.stop()

    def _shut(self) -> None:
        if self._server.is_closed:
            return
        started = self._loop.time()
        self._server.close()
        if self._control is not None:
            self._control.close()
        self._network.close()
        remove_state(self.data_dir)
        self.broker.close()
        self._background.close()
        log.info("closed %s in %.0f ms", self.data_dir, (self._loop.time() - started) * 1000)


def _same_port_as(spec: ListenerSpec, last: BrokerState) -> ListenerSpec:
    """A listener with port 0 gets the port that it had at the last start."""
    if spec.port:
        return spec
    place = last.listeners.get(spec.name)
    port = int(place.rpartition(":")[2]) if place else last.port if spec.protocol == "PLAINTEXT" else 0
    return spec._replace(port=port)


def _ending_signals() -> list[int]:
    """SIGHUP comes when a terminal is closed: its default would end the process without closing the logs."""
    found = [signal.SIGTERM, signal.SIGINT]
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        found.append(hangup)
    return [int(each) for each in found]
