"""Where a public client lives: on a loop of its own in a thread, or on a loop that the user runs.

::

    host = make_host("producer", settings, loop)        # IoThread when loop is None, else SharedLoopHost
    host.client                                         # the KafkaClient: on the loop's thread only
    future = host.submit(fn, *args)                     # any thread: fn(*args) on the loop
    value = host.call(fn, *args, timeout_s=5)           # any other thread: the same, and wait; a Future that fn
                                                        #   returns is waited for, too
    value = host.wait(future, timeout_s=5)              # any other thread
    host.close()                                        # any thread

Blocking on the loop's own thread would wait for itself and is refused. After a fork everything but ``close`` is refused
in the child: the loop and its sockets are the parent's.

A host that is garbage-collected without ``close()`` lets its thread complete the work of the client's residents
(producers, groups), and end::

    garbage-collected       -> ShutdownState.begin(): residents finish -> the loop stops -> the thread ends; no wait
    end of the interpreter  -> the same for all threads that are left, waiting EXIT_TIMEOUT_S at most

So ``KafkaProducer(...).send(topic, value).get()`` works, and a program that ends without ``close()`` has sent all that
it passed to ``send()``, as kafka-python's users expect.
"""

from __future__ import annotations

import abc
import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from kafka.bootstrap import is_embedded, resolve_bootstrap
from kafka.client.kafka_client import KafkaClient
from kafka.config import narrow
from kafka.errors import IllegalStateError, KafkaConfigurationError, KafkaTimeoutError
from kafka.future import Future
from kafka.net.loop import Loop

log = logging.getLogger(__name__)

T = TypeVar("T")

EXIT_TIMEOUT_S = 5.0
"""How long the end of the interpreter waits, in all, for threads that were not closed."""

STOP_TIMEOUT_S = 1.0
"""How long it waits after that for threads that are to stop at once."""


class ClientHost(abc.ABC):
    """The part that both kinds have in common. ``what`` names the public client in errors ("producer")."""

    def __init__(self, what: str, client: KafkaClient) -> None:
        self.what = what
        self.client = client
        self.loop: Loop = client.loop
        self._pid = os.getpid()
        self._is_closed = False

    @overload
    def submit(self, fn: Callable[..., Future[T]], *args: Any) -> Future[T]: ...

    @overload
    def submit(self, fn: Callable[..., T], *args: Any) -> Future[T]: ...

    def submit(self, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run ``fn(*args)`` on the loop, from any thread. The future gets its result, its error, or what the future
        that it returns gets; callbacks run on the loop.
        """
        self._check_usable()
        future: Future[Any] = Future()
        try:
            self.loop.call_soon_threadsafe(_run, fn, args, future)
        except RuntimeError:
            raise self._closed_error() from None
        return future

    @overload
    def call(self, fn: Callable[..., Future[T]], *args: Any, timeout_s: float | None = None) -> T: ...

    @overload
    def call(self, fn: Callable[..., T], *args: Any, timeout_s: float | None = None) -> T: ...

    def call(self, fn: Callable[..., Any], *args: Any, timeout_s: float | None = None) -> Any:
        """:meth:`submit` and wait. IllegalStateError on the loop's thread, KafkaTimeoutError after ``timeout_s``."""
        self.check_may_block()
        return self.wait(self.submit(fn, *args), timeout_s)

    def wait(self, future: Future[T], timeout_s: float | None = None) -> T:
        """The future's result. IllegalStateError on the loop's thread, KafkaTimeoutError after ``timeout_s``."""
        if not future.is_done:
            self.check_may_block()
            if not future.wait(timeout_s):
                raise KafkaTimeoutError(f"{self.what}: not done within {timeout_s:g} s")
        return future.result()

    def check_may_block(self) -> None:
        """IllegalStateError when the calling thread is the one that runs the loop, or the host is not usable."""
        self._check_usable()
        if self.loop.in_loop_thread():
            raise IllegalStateError(
                f"{self.what}: a blocking call on the loop's own thread would wait for itself; "
                "use the call that returns a future, or another thread"
            )

    @abc.abstractmethod
    def close(self, timeout_s: float | None = None) -> None:
        """End the client. Any number of times; in a forked child it closes nothing."""

    def _check_usable(self) -> None:
        if self._pid != os.getpid():
            raise IllegalStateError(
                f"{self.what}: it belongs to the parent process; after a fork, make a new one in the child"
            )
        if self._is_closed:
            raise self._closed_error()

    def _closed_error(self) -> IllegalStateError:
        return IllegalStateError(f"the {self.what} is closed")


class IoThread(ClientHost):
    """A loop and a KafkaClient in a daemon thread of their own."""

    def __init__(self, what: str = "client", *, client: KafkaClient | None = None, **configs: Any) -> None:
        configs.setdefault("all_topics", False)
        super().__init__(what, client or _new_client(configs))
        started = threading.Event()
        self._thread = threading.Thread(
            target=_run_loop, args=(self.client, started), name=f"kafka-{what}", daemon=True
        )
        self._thread.start()
        started.wait()  # from here on the loop knows its thread
        # The thread holds the client but not this object, so that losing the last reference ends the thread.
        self._shutdown = ShutdownState(self.client, self._thread)
        self._finalizer = weakref.finalize(self, self._shutdown.begin)
        self._finalizer.atexit = False  # _stop_all_threads does that, in whatever order atexit runs

    def close(self, timeout_s: float | None = None) -> None:
        """Close the client and end the thread; wait for that, for at most ``timeout_s`` (not on the loop's thread)."""
        if self._is_closed:
            return
        self._is_closed = True
        self._finalizer.detach()
        self._shutdown.stop(timeout_s)


class SharedLoopHost(ClientHost):
    """A KafkaClient on the loop that the user runs. ``close`` leaves the loop alone, and a client that was given."""

    def __init__(self, what: str, loop: Loop, *, client: KafkaClient | None = None, **configs: Any) -> None:
        configs.setdefault("all_topics", False)
        self._owns_client = client is None
        super().__init__(what, client or KafkaClient(loop=loop, **configs))

    def close(self, timeout_s: float | None = None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._pid != os.getpid() or not self.loop.is_usable or not self._owns_client:
            return
        if self.loop.in_loop_thread():
            self.client.close()
        else:
            self.loop.call_soon_threadsafe(self.client.close)


def make_host(
    what: str,
    settings: Mapping[str, Any],
    loop: Loop | None = None,
    client: KafkaClient | None = None,
    **options: Any,
) -> ClientHost:
    """The host for a public client with these resolved settings; ``options`` (``network``, ``rng``) go to KafkaClient.

    ``embedded:DIR`` among the servers starts that directory's broker if need be, which takes some tenths of a second.
    ``client``: one that several public clients share, on its own loop; its maker closes it, and its settings hold
    for everything below requests.
    """
    if client is not None:
        if not isinstance(client, KafkaClient):
            raise TypeError(f"client: a kafka.client.KafkaClient is needed, not {type(client).__name__}")
        return SharedLoopHost(what, client.loop, client=client)
    if loop is not None and not isinstance(loop, Loop):
        raise TypeError(f"loop: a kafka.net.loop.Loop is needed, not {type(loop).__name__}")
    configs = {**narrow("client", settings), **options}
    servers = configs["bootstrap_servers"]
    configs["bootstrap_servers"] = resolve_bootstrap(servers)
    if any(map(is_embedded, servers)):
        configs.setdefault("resolve_servers", lambda: resolve_bootstrap(servers))
    if loop is not None:
        if configs["bootstrap_timeout_ms"] is not None:
            raise KafkaConfigurationError(
                "bootstrap_timeout_ms: a client on a loop that is given cannot wait while it is made; leave it out, "
                "and wait for KafkaClient.bootstrapped() if you want to know"
            )
        return SharedLoopHost(what, loop, **configs)
    host = IoThread(what, **configs)
    if configs["bootstrap_timeout_ms"] is not None:
        try:
            host.call(host.client.bootstrapped)
        except BaseException:
            host.close()
            raise
    return host


def _run(fn: Callable[..., Any], args: tuple[Any, ...], future: Future[Any]) -> None:
    try:
        result = fn(*args)
    except Exception as error:
        future.failure(error)
        return
    if isinstance(result, Future):
        result.chain(future)
    else:
        future.success(result)


def _new_client(configs: Mapping[str, Any]) -> KafkaClient:
    """A client on a loop of its own, which is closed when the settings are refused."""
    loop = Loop()
    try:
        return KafkaClient(loop=loop, **configs)
    except BaseException:
        loop.close()
        raise


def _run_loop(client: KafkaClient, started: threading.Event) -> None:
    loop = client.loop
    loop.call_soon(started.set)
    try:
        loop.run_forever()
    finally:
        client.close()
        loop.close()
        for shutdown in [shutdown for shutdown in list(ShutdownState.living) if shutdown.client is client]:
            ShutdownState.living.discard(shutdown)


class ShutdownState:
    """Ends one I/O thread. It holds the client and the thread, and not the host."""

    living: set[ShutdownState] = set()
    """Those whose thread may still run."""

    def __init__(self, client: KafkaClient, thread: threading.Thread) -> None:
        self.client = client
        self.thread = thread
        self.pid = os.getpid()
        ShutdownState.living.add(self)

    def begin(self) -> None:
        """Let the residents finish, then stop. From any thread; waits for nothing."""
        self._hand_over(self._finish)

    def stop(self, timeout_s: float | None) -> None:
        """Stop now, and wait for that for ``timeout_s`` (not on the loop's thread)."""
        if self._hand_over(self.client.loop.stop) and self.thread is not threading.current_thread():
            self.thread.join(timeout_s)
            if self.thread.is_alive():
                log.warning("%s did not end within %s s", self.thread.name, timeout_s)

    def _hand_over(self, action: Callable[[], object]) -> bool:
        if self.pid != os.getpid():
            return False
        try:
            self.client.loop.call_soon_threadsafe(action)
        except RuntimeError:  # it has ended already
            ShutdownState.living.discard(self)
            return False
        return True

    def _finish(self) -> None:
        self.client.finish_residents().add_both(lambda _: self.client.loop.stop())


def _stop_all_threads() -> None:
    """The interpreter ends: let all threads finish their work at the same time, for ``EXIT_TIMEOUT_S``."""
    shutdowns = [
        shutdown
        for shutdown in list(ShutdownState.living)
        if shutdown.pid == os.getpid() and shutdown.thread.is_alive()
    ]
    for shutdown in shutdowns:
        shutdown.begin()
    give_up_at = time.monotonic() + EXIT_TIMEOUT_S
    for shutdown in shutdowns:
        shutdown.thread.join(max(give_up_at - time.monotonic(), 0.0))
    for shutdown in shutdowns:
        if shutdown.thread.is_alive():
            shutdown.stop(STOP_TIMEOUT_S)


atexit.register(_stop_all_threads)
