"""The lengths of an app's queues, served to Prometheus by a process that is no worker.

A worker can say what it holds, and what the brokers say; how many jobs *wait* needs all workers' snapshots, and an
autoscaler needs an answer when there is no worker. One such process for each app is enough, and asks for all.

It answers on a loop, by default in a thread of its own, from what :meth:`QueueExporter.update` was last given.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from kafka.net.loop import Loop
from kafka.net.transport import Address, Network
from kafka.tasks.health.directory import Seen
from kafka.tasks.health.http import HttpRequest, HttpResponse
from kafka.tasks.health.metrics import APP_FAMILIES, AppScrape, MetricsText
from kafka.tasks.health.queue_lengths import QueueLength
from kafka.tasks.health.server import HealthServer, parse_address
from kafka.tasks.pools import make_loop

_STATES: Final = ("ready", "unready", "silent")


class QueueExporter:
    """Serves ``/metrics``, and ``/healthz`` for probes, at PORT or HOST:PORT of ``address`` until :meth:`close`.

    ``loop``: one that its caller runs; None: one of its own, in a thread. Errors:
    :class:`kafka.tasks.health.metrics.MetricsMissing` without the extra, IllegalArgumentError and OSError as of
    :meth:`kafka.tasks.health.monitor.Monitor.listen`.
    """

    def __init__(self, address: str, loop: Loop | None = None, network: Network | None = None) -> None:
        self._latest: AppScrape | str = "nothing was read yet"  # set by any thread; the loop's own is the next
        self._scrape = AppScrape()
        self._metrics = MetricsText(APP_FAMILIES, lambda: self._scrape)
        self._thread: threading.Thread | None = None
        host_port = parse_address(address)
        self._loop = loop or make_loop()
        try:
            self._server = HealthServer(self._loop, host_port, self._answer, network)
        except OSError:
            if loop is None:
                self._loop.close()
            raise
        if loop is None:
            self._thread = threading.Thread(target=self._loop.run_forever, name="queue metrics", daemon=True)
            self._thread.start()

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._server.address

    def update(self, queues: Sequence[QueueLength], workers: Sequence[Seen]) -> None:
        """Serve these from now on."""
        states = Counter(
            "silent" if seen.is_silent else "ready" if seen.worker.is_ready else "unready" for seen in workers
        )
        self._latest = AppScrape(queues, {state: states[state] for state in _STATES})

    def fail(self, why: str) -> None:
        """Serve 503 with the reason from now on: an autoscaler would act on old numbers."""
        self._latest = why

    def close(self) -> None:
        """Answer nothing more."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._server.close()
        if self._thread is not None:
            self._loop.close()

    def _answer(self, request: HttpRequest) -> HttpResponse:
        latest = self._latest
        if request.path == "/healthz":
            return HttpResponse(HTTPStatus.OK, b"ok\n")
        if request.path != "/metrics":
            return HttpResponse(HTTPStatus.NOT_FOUND, b"here are /healthz, /metrics\n")
        if isinstance(latest, str):
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, f"{latest}\n".encode())
        self._scrape = latest
        content_type, body = self._metrics.text(request.headers.get("accept", ""))
        return HttpResponse(HTTPStatus.OK, body, content_type)
