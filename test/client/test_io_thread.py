"""Hosts: a client on a thread's loop or on the user's; blocking, forking, forgetting, the end of the interpreter."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka.client.io_thread import ClientHost, IoThread, SharedLoopHost, make_host
from kafka.config import resolve
from kafka.core.routing import AnyNode
from kafka.errors import Cancelled, IllegalStateError, KafkaTimeoutError
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.net.tcp import TcpNetwork
from test.client.support import NONE
from test.support.scripted import ScriptedBroker
from test.support.waiting import pause, until


@pytest.fixture
def served() -> Iterator[str]:
    """The address of a scripted broker, on a loop in a thread of its own."""
    loop = Loop()
    network = TcpNetwork(loop)
    broker = ScriptedBroker(network, "127.0.0.1", 0)
    assert broker._listener is not None
    address = broker._listener.address
    broker.brokers = {1: (address.host, address.port)}
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield str(address)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    network.close()
    loop.close()


@pytest.fixture
def host(served: str) -> Iterator[IoThread]:
    host = IoThread("producer", bootstrap_servers=served)
    yield host
    host.close(10)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kafka-producer")]


def test_call_runs_on_the_loop_and_waits(host: IoThread) -> None:
    assert host.call(threading.get_ident) != threading.get_ident()
    assert host.call(host.loop.in_loop_thread)
    assert host.call(host.client.request, AnyNode(), NONE, timeout_s=20).brokers


def test_submit_gives_a_future_of_the_result(host: IoThread) -> None:
    future = host.submit(host.client.request, AnyNode(), NONE)
    assert host.wait(future, 20).brokers
    failed = host.submit(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        host.wait(failed, 20)


def test_waiting_has_a_limit(host: IoThread) -> None:
    with pytest.raises(KafkaTimeoutError, match="producer: not done within 0.01 s"):
        host.wait(Future[None](), 0.01)


def test_blocking_on_the_loops_thread_is_refused(host: IoThread) -> None:
    with pytest.raises(IllegalStateError, match="loop's own thread"):
        host.call(lambda: host.call(int))
    assert host.call(lambda: host.wait(Future[int]().success(5))) == 5  # nothing to wait for


def test_after_close_everything_says_so_and_the_thread_is_gone(host: IoThread) -> None:
    pending = host.submit(lambda: Future[None]())
    request = host.submit(host.client.request, 99, NONE)
    host.call(int)
    host.close(10)
    host.close()
    assert threads() == []
    assert not pending.is_done
    assert request.is_done
    for use in (lambda: host.call(int), lambda: host.submit(int), host.check_may_block):
        with pytest.raises(IllegalStateError, match="the producer is closed"):
            use()


def test_closing_fails_what_is_under_way(host: IoThread) -> None:
    def endless() -> Any:
        yield from ()
        from kafka.core.dialogue import Sleep

        yield Sleep(1000)

    future = host.submit(host.client.run, endless())
    host.call(int)
    host.close(10)
    assert isinstance(future.exception, Cancelled)


def test_a_host_that_is_forgotten_ends_its_thread() -> None:
    host: ClientHost | None = IoThread("producer", bootstrap_servers="127.0.0.1:1")
    assert len(threads()) == 1
    del host
    gc.collect()
    until(lambda: not threads(), meanwhile=lambda: (gc.collect(), pause()), shown=threads)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # from 3.12 on: that is what is tested here
def test_after_a_fork_the_error_in_the_child_says_to_make_a_new_one(host: IoThread) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # no test framework in here: every way out is _exit
        try:
            told = []
            uses: list[Callable[[], object]] = [
                lambda: host.call(int),
                lambda: host.submit(int),
                host.check_may_block,
                lambda: host.client.request(1, NONE),
                lambda: host.client.poll(),
            ]
            for use in uses:
                try:
                    use()
                    told.append("nothing")
                except IllegalStateError as error:
                    told.append("fork" if "fork" in str(error) else str(error))
            host.close()
            os.write(writer, ",".join(told).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"fork,fork,fork,fork,fork"
    os.waitpid(pid, 0)
    assert host.call(int) == 0  # the parent goes on


def test_the_interpreter_ends_without_hanging_or_noise() -> None:
    code = """
        from kafka.client.io_thread import IoThread
        host = IoThread("producer", bootstrap_servers="127.0.0.1:1")
        host.call(int)
        print("end")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=45,  # a hang is one for ever
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout, done.stderr) == ("end\n", "")


def test_on_a_given_loop_there_is_no_thread_and_blocking_is_refused(served: str) -> None:
    loop = Loop()
    before = threading.active_count()
    host = make_host("consumer", resolve("consumer", {"bootstrap_servers": served}), loop)
    assert isinstance(host, SharedLoopHost) and threading.active_count() == before
    with pytest.raises(IllegalStateError, match="loop's own thread"):
        host.call(int)
    future = host.submit(host.client.request, AnyNode(), NONE)
    assert loop.run_until(future, 20)
    assert future.result().brokers
    host.close()
    assert loop.run_until(lambda: True)  # the loop is the user's, and goes on
    loop.close()


def test_another_thread_may_block_on_a_given_loop(served: str) -> None:
    loop = Loop()
    host = SharedLoopHost("consumer", loop, bootstrap_servers=served)
    results: list[Any] = []

    def work() -> None:
        results.append(host.call(host.client.request, AnyNode(), NONE, timeout_s=20))

    thread = threading.Thread(target=work)
    thread.start()
    assert loop.run_until(lambda: not thread.is_alive(), 20) or results
    thread.join(30)
    assert results[0].brokers
    host.close()
    loop.close()
