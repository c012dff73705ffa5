"""A broker with all that it runs on: loop, sockets, signals, state file, the end for idleness.

``python -m kafka broker`` runs one in its main thread, ``kafka.testing`` one in a thread of its own. Rules of ending:
SIGTERM, SIGINT and :meth:`RunningBroker.stop` end it well (all is flushed and sealed); with ``exit_when_idle_s`` it
also ends when no connection has stood for so long, with ``lifeline_fd`` when that pipe's other end is closed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Mapping
from typing import NamedTuple

from kafka.broker.broker import Broker
from kafka.broker.log.files import storage_error
from kafka.broker.server import WILDCARD_HOSTS, BrokerServer
from kafka.broker.state_file import STATE_NAME, BrokerState, read_state, remove_state, starter_lock, write_state
from kafka.errors import KafkaError
from kafka.net.loop import Loop, LoopTimer
from kafka.net.signals import SignalWatch
from kafka.net.tcp import TcpNetwork

log = logging.getLogger(__name__)

_IDLE_RETRY_S = 0.1


class ListenError(KafkaError):
    """The address cannot be had."""


class BrokerOptions(NamedTuple):
    """How to run a broker. ``port`` 0: a free one, if possible the one that this directory's last broker had, so that
    clients find it again. ``settings``: Kafka's names. ``fsync``: always, interval or never. ``lifeline_fd``: a pipe
    whose other end somebody holds who needs the broker; the broker ends with it."""

    data_dir: str
    host: str = "127.0.0.1"
    port: int = 0
    fsync: str = "interval"
    settings: Mapping[str, str] = {}
    exit_when_idle_s: float | None = None
    lifeline_fd: int | None = None


class RunningBroker:
    """A broker that listens from the constructor on and serves while :meth:`run` runs.

    Errors of the constructor: ListenError (the address), and those of :class:`~kafka.broker.broker.Broker`.
    """

    def __init__(self, options: BrokerOptions) -> None:
        self.options = options
        self.data_dir = os.path.abspath(options.data_dir)
        self._loop = Loop()
        self._network = TcpNetwork(self._loop)
        self._idle_timer: LoopTimer | None = None
        self._signals: SignalWatch | None = None
        clock = self._loop.clock
        try:
            self.broker = Broker(
                self.data_dir,
                options.settings,
                fsync=options.fsync,
                now=clock.monotonic(),
                epoch_offset=clock.time() - clock.monotonic(),
            )
            try:
                self._server = self._listen()
                host = "127.0.0.1" if options.host in WILDCARD_HOSTS else options.host
                self.state = BrokerState(os.getpid(), host, self._server.address.port)
                self._tell()
                if options.lifeline_fd is not None:
                    self._loop.watch(options.lifeline_fd, on_readable=self._lifeline_readable)
            except BaseException:
                self.broker.close()
                raise
        except BaseException:
            self._network.close()
            self._loop.close()
            raise
        self._went_idle(self._loop.time())

    @property
    def address(self) -> str:
        """``HOST:PORT``, as bound."""
        return str(self._server.address)

    def run(self) -> None:
        """Serve until the end, and end well. In the main thread SIGTERM and SIGINT are that end."""
        if threading.current_thread() is threading.main_thread():
            self._signals = self._loop.watch_signals(self._signalled, signal.SIGTERM, signal.SIGINT)
        try:
            self._loop.run_forever()
        finally:
            if self._signals is not None:
                self._signals.close()
            self._shut()
            self._loop.close()

    def stop(self) -> None:
        """From any thread: let :meth:`run` return. Nothing when it has."""
        if self._loop.is_usable:
            self._loop.call_soon_threadsafe(self._loop.stop)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _listen(self) -> BrokerServer:
        host, port = self.options.host, self.options.port
        last = read_state(self.data_dir) if port == 0 else None
        if last is not None:
            try:
                return BrokerServer(self.broker, self._network, host, last.port, on_idle=self._went_idle)
            except OSError as error:
                log.debug("port %d, which the last broker here had, cannot be had: %s", last.port, error)
        try:
            return BrokerServer(self.broker, self._network, host, port, on_idle=self._went_idle)
        except OSError as error:
            raise ListenError(f"{error.strerror or error}; choose another host or port (0: a free one)") from error

    def _tell(self) -> None:
        try:
            write_state(self.data_dir, self.state)
        except OSError as error:
            raise storage_error("write", os.path.join(self.data_dir, STATE_NAME), error) from error

    def _lifeline_readable(self) -> None:
        assert self.options.lifeline_fd is not None
        if not os.read(self.options.lifeline_fd, 4096):
            log.info("whoever needed this broker has ended: so does the broker")
            self._loop.stop()

    def _signalled(self, signum: int) -> None:
        log.info("%s: the broker ends", signal.Signals(signum).name)
        self._loop.stop()

    def _went_idle(self, since: float | None) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if since is not None and self.options.exit_when_idle_s is not None:
            self._idle_timer = self._loop.call_at(since + self.options.exit_when_idle_s, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self._server.connection_count:
            return
        log.info("no connection for %g s", self.options.exit_when_idle_s)
        try:
            with starter_lock(self.data_dir, 0) as held:
                if not held:  # somebody is asking for this broker right now
                    self._idle_timer = self._loop.call_later(_IDLE_RETRY_S, self._end_if_idle)
                    return
                self._loop.stop()
                self._shut()  # under the lock: who asks next finds nothing and starts another
        except OSError as error:  # the directory is gone, or not ours any more: nobody can ask for this broker
            log.warning("%s: %s; the broker ends", self.data_dir, error.strerror or error)
            self._loop.stop()

    def _shut(self) -> None:
        if self._server.is_closed:
            return
        started = self._loop.time()
        self._server.close()
        self._network.close()
        remove_state(self.data_dir)
        self.broker.close()
        log.info("closed %s in %.0f ms", self.data_dir, (self._loop.time() - started) * 1000)


def raise_descriptor_limit() -> None:
    """Let this process have as many open files as the system allows it: a connection is one, and so is a segment."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
