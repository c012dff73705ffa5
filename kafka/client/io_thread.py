"""Where a public client lives: on a loop of its own in a thread, or on a loop that the user runs.

::

    host = make_host("producer", settings, loop)        # IoThread when loop is None, else LoopHost
    host.client                                         # the KafkaClient: on the loop's thread only
    future = host.submit(fn, *args)                     # any thread: fn(*args) on the loop
    value = host.call(fn, *args, timeout_s=5)           # any other thread: the same, and wait; a Future that fn
                                                        #   returns is waited for, too
    value = host.wait(future, timeout_s=5)              # any other thread
    host.close()                                        # any thread

Blocking on the loop's own thread would wait for itself and is refused. After a fork everything but ``close`` is refused
in the child: the loop and its sockets are the parent's. A client that is forgotten without ``close()``, and the end of
the interpreter, stop the thread.
"""

from __future__ import annotations

import abc
import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from kafka.bootstrap import resolve_bootstrap
from kafka.client.kafka_client import KafkaClient
from kafka.config import narrow
from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.future import Future
from kafka.net.loop import Loop

log = logging.getLogger(__name__)

T = TypeVar("T")

EXIT_TIMEOUT_S = 2.0
"""How long the end of the interpreter waits for a thread that was not closed."""


class Host(abc.ABC):
    """The part that both have in common. ``what`` names the public client in errors ("producer")."""

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
        """End the client. Any number of times; in a forked child it only forgets."""

    def _check_usable(self) -> None:
        if self._pid != os.getpid():
            raise IllegalStateError(
                f"{self.what}: it belongs to the parent process; after a fork, make a new one in the child"
            )
        if self._is_closed:
            raise self._closed_error()

    def _closed_error(self) -> IllegalStateError:
        return IllegalStateError(f"the {self.what} is closed")


class IoThread(Host):
    """A loop and a KafkaClient in a daemon thread of their own."""

    def __init__(self, what: str = "client", *, client: KafkaClient | None = None, **configs: Any) -> None:
        configs.setdefault("all_topics", False)
        super().__init__(what, client or KafkaClient(loop=Loop(), **configs))
        started = threading.Event()
        self._thread = threading.Thread(
            target=_run_loop, args=(self.client, started), name=f"kafka-{what}", daemon=True
        )
        self._thread.start()
        started.wait()  # from here on the loop knows its thread
        # The thread holds the client but not this object, so that forgetting it is enough to end the thread.
        self._finalizer = weakref.finalize(self, _stop, self.client, self._thread, self._pid)

    def close(self, timeout_s: float | None = None) -> None:
        """Close the client and end the thread; wait for that, for at most ``timeout_s`` (not on the loop's thread)."""
        if self._is_closed:
            return
        self._is_closed = True
        self._finalizer.detach()
        _stop(self.client, self._thread, self._pid, timeout_s)


class LoopHost(Host):
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
) -> Host:
    """The host for a public client with these resolved settings; ``options`` (``network``, ``rng``) go to KafkaClient.

    ``embedded:DIR`` among the servers starts that directory's broker if need be, which takes some tenths of a second.
    ``client``: one that several public clients share, on its own loop; whoever made it closes it, and its settings hold
    for everything below requests.
    """
    if client is not None:
        return LoopHost(what, client.loop, client=client)
    configs = {**narrow("client", settings), **options}
    configs["bootstrap_servers"] = resolve_bootstrap(configs["bootstrap_servers"])
    return IoThread(what, **configs) if loop is None else LoopHost(what, loop, **configs)


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


def _run_loop(client: KafkaClient, started: threading.Event) -> None:
    loop = client.loop
    loop.call_soon(started.set)
    try:
        loop.run_forever()
    finally:
        client.close()
        loop.close()


def _stop(client: KafkaClient, thread: threading.Thread, pid: int, timeout_s: float | None = EXIT_TIMEOUT_S) -> None:
    if pid != os.getpid():
        return
    try:
        client.loop.call_soon_threadsafe(client.loop.stop)
    except RuntimeError:
        return  # it has ended already
    if thread is not threading.current_thread():
        thread.join(timeout_s)
        if thread.is_alive():
            log.warning("%s did not end within %s s", thread.name, timeout_s)
