"""Tests of apps in children: a task that enqueues has a connection of its own, and the worker's stays the worker's."""

from __future__ import annotations

import json
import uuid

import pytest

from kafka.tasks.pools.settings import start_methods
from kafka.tasks.rules.outcome import JobSucceeded
from test.tasks.pools import enqueuing_app as tasks
from test.tasks.pools.child_processes import ChildProcesses


@pytest.mark.parametrize("method", start_methods())
def test_a_task_enqueues_and_the_workers_own_connection_goes_on(
    bootstrap: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_TEST_APP", f"children-{uuid.uuid4().hex[:8]}")
    app = tasks.make_app()
    monkeypatch.setattr(tasks, "app", app)
    app.connect_to(bootstrap)
    try:
        tasks.jobs["other"].delay(1)  # the worker is connected before it forks
        app.flush(60)
        with ChildProcesses(method, "test.tasks.pools.enqueuing_app:app", app=app) as processes:
            child = processes.start()
            sent = processes.run(child, tasks.jobs["enqueue"], 5)
            assert isinstance(sent, JobSucceeded), sent
            ids = json.loads(sent.value)
            assert len(set(ids)) == 5
            last = processes.run(child, tasks.jobs["enqueue_without_waiting"])
            assert isinstance(last, JobSucceeded), last
            child.retire()  # what was enqueued and not flushed goes out before it ends
            assert processes.end_of(child)[0].code == 0
        tasks.jobs["other"].delay(2)
        app.flush(60)
        assert tasks.count_records(bootstrap, app.names.queue("default")) == 1 + 5 + 1 + 1
    finally:
        app.close()
