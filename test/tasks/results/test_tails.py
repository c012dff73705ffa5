"""The tails of results topics that a client follows: what it says when it may not read them."""

from __future__ import annotations

import logging

import pytest

from kafka.tasks import App
from kafka.testing import EmbeddedBroker
from test.support.waiting import WITHIN_S, until


def test_a_right_that_was_taken_away_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(in_process=True) as broker, caplog.at_level(logging.WARNING, "kafka.tasks.results"):
        app = App("shop", bootstrap_servers=broker.bootstrap, partitions=1)

        @app.task
        def step() -> None: ...

        refused = broker.faults.answer("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic=app.names.results)
        job = step.delay()
        app.flush(WITHIN_S)
        job.status()
        until(lambda: refused.hits >= 3)
        app.close()
        lines = [record.getMessage() for record in caplog.records if "results topics" in record.getMessage()]
        assert len(lines) == 1 and "--operation Read" in lines[0], lines
