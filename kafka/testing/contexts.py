"""Context managers: a broker, and a worker of a task queue."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.net.loop import Loop
from kafka.tasks import App, run_worker
from kafka.testing.embedded import EmbeddedBroker

START_S = 30.0
DRAIN_S = 30.0


@contextlib.contextmanager
def embedded_broker(*, in_process: bool = True, **options: Any) -> Iterator[EmbeddedBroker]:
    """A broker that runs during the block, in a thread of the test's process unless ``in_process`` is False.
    ``options`` are those of :class:`~kafka.testing.EmbeddedBroker`."""
    with EmbeddedBroker(in_process=in_process, **options) as broker:
        yield broker


class RunningWorker:
    """A worker in a thread of the test. It works for a copy of the app, since a worker closes the app that it had."""

    def __init__(self, app: App, queues: Sequence[str], pool: str, concurrency: int, broker: EmbeddedBroker | None):
        self._app = app
        self._queues = list(queues) or list(app.queues)
        self._broker = broker
        self._loop = Loop()
        self._worker: Any = None
        self._queues_of_groups: frozenset[str] = frozenset()
        self._error: BaseException | None = None
        self._is_stopping = False
        self._started = threading.Event()
        self._ended = threading.Event()
        arguments = (_copy_of(app), list(queues), pool, concurrency)
        self._thread = threading.Thread(target=self._run, args=arguments, name="kafka-test-worker", daemon=True)
        self._thread.start()
        if not self._started.wait(START_S):
            raise KafkaTimeoutError(f"the worker has not started within {START_S:g} s")
        self._raise_error()

    @property
    def counts(self) -> dict[str, int]:
        """What it has done so far: ``leased``, ``done``, ``refused``, ``given_back``, ``locks_lost``, ..."""
        return dict(self._worker.counts)

    def drain(self, timeout: float = DRAIN_S) -> None:
        """Wait until its queues are empty: all jobs have ended, including retries and jobs that jobs have enqueued.
        KafkaTimeoutError; the worker's own error when it ends before."""
        if self._broker is None:
            if self._app.is_in_process:
                raise IllegalStateError("drain() needs a broker: with memory://, wait for the handles of the jobs")
            raise IllegalStateError("drain() needs running_worker(broker=...): the broker knows how many jobs are left")
        self._app.flush(timeout)
        names = self._app.names
        shares: list[tuple[str, str]] = []
        groups: list[tuple[str, str]] = []
        for queue in self._queues:
            for topic in names.job_topics(queue):
                if queue in self._queues_of_groups:
                    groups.append((names.group(queue), topic))
                else:
                    shares.append((topic, topic))
        try:
            self._broker.wait_drained(shares, timeout, groups)
        finally:
            self._raise_error()

    def stop(self, timeout: float = DRAIN_S) -> dict[str, int]:
        """Stop it, as SIGTERM does, and wait for its end; returns its counts. Raises the error that ended it, if
        any."""
        if self._thread.is_alive() and not self._is_stopping:
            self._is_stopping = True
            with contextlib.suppress(RuntimeError):  # the loop was quicker
                self._loop.call_soon_threadsafe(self._worker.stop)
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise KafkaTimeoutError(f"the worker has not stopped within {timeout:g} s")
        self._raise_error()
        return self.counts

    def _run(self, app: App, queues: Sequence[str], pool: str, concurrency: int) -> None:
        try:
            run_worker(app, queues, pool, concurrency, self._loop, self._note, schedule=True)
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()
            self._loop.close()

    def _note(self, worker: Any) -> None:
        self._worker = worker
        self._queues_of_groups = frozenset(use.queue for use in worker.metadata_use())
        self._started.set()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


@contextlib.contextmanager
def running_worker(
    app: App,
    queues: Sequence[str] = (),
    *,
    pool: str = "threads",
    concurrency: int = 1,
    broker: EmbeddedBroker | None = None,
) -> Iterator[RunningWorker]:
    """A worker of the app that runs while the block does; ``pool="inline"`` runs jobs on the worker's own thread. With
    ``broker`` it can be drained. Jobs of the block that have not ended at its end are left to others."""
    worker = RunningWorker(app, queues, pool, concurrency, broker)
    try:
        yield worker
    finally:
        worker.stop()


def _copy_of(app: App) -> App:
    """An app of the same name, settings and tasks, with a connection of its own."""
    settings = {each.name: getattr(app.settings, each.name) for each in dataclasses.fields(app.settings)}
    client = settings.pop("client")
    copy = App(app.name, **{**settings, **client, "queues": tuple(app.queues)})
    copy.tasks.update(app.tasks)
    for queue in app.ordered_queues:
        copy.queue(queue, ordered=True)
    return copy
