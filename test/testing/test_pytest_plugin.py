"""The fixtures, used as a user does: by a run of pytest of its own."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

CONFTEST = """
import pytest

pytest_plugins = ["kafka.testing.pytest_plugin"]


@pytest.fixture(scope="session")
def kafka_broker_options():
    return {"in_process": True, "settings": {"num.partitions": "3"}}


@pytest.fixture
def kafka_topic_options():
    return {"partitions": 2, "retention_ms": 60_000}
"""

TESTS = """
def test_clients_meet_on_the_topic(kafka_topic, kafka_producer, kafka_consumer, kafka_admin):
    kafka_producer.send(kafka_topic, b"x", partition=1).get(30)
    (records,) = kafka_consumer.poll(timeout_ms=20_000).values()
    assert [record.value for record in records] == [b"x"]
    assert len(kafka_admin.describe_topics([kafka_topic])[0]["partitions"]) == 2


def test_settings_reach_the_broker(kafka_broker, kafka_producer):
    kafka_producer.send("made-by-itself", b"x").get(30)
    assert {record.partition for record in kafka_broker.records("made-by-itself")} <= {0, 1, 2}


topics = []


def test_topics_are_different_1(kafka_topic):
    topics.append(kafka_topic)


def test_topics_are_different_2(kafka_topic, kafka_broker):
    assert kafka_topic not in topics
    kafka_broker.faults.drop("Metadata")


def test_faults_have_ended_with_the_test_before(kafka_broker, kafka_topic):
    assert kafka_broker.faults.rules == []


def test_a_broker_of_ones_own_may_be_killed(kafka_broker_factory, kafka_broker):
    own = kafka_broker_factory()
    assert own.port != kafka_broker.port
    own.kill()
    own.start()


def test_jobs_are_run_by_the_test(kafka_tasks_app, kafka_tasks_testing):
    @kafka_tasks_app.task
    def double(number):
        return 2 * number

    job = double.delay(4)
    assert kafka_tasks_testing.run_all() == 1
    assert (job.result(), kafka_tasks_testing.jobs[0].args) == (8, [4])


def test_jobs_are_run(kafka_tasks_app, kafka_tasks_worker):
    @kafka_tasks_app.task
    def double(number):
        return 2 * number

    worker = kafka_tasks_worker()
    jobs = [double.delay(number) for number in range(10)]
    worker.drain()
    assert [job.result(30) for job in jobs] == [2 * number for number in range(10)]
"""


def run(directory: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    python_path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        timeout=55,
    )


def test_the_fixtures_work_together(tmp_path: pathlib.Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout


def test_jobs_of_an_app_of_ones_own_are_run_without_a_broker(tmp_path: pathlib.Path) -> None:
    (tmp_path / "conftest.py").write_text(
        """
import pytest
from kafka.tasks import App

pytest_plugins = ["kafka.testing.pytest_plugin"]
app = App("shop", bootstrap_servers="127.0.0.1:1")


@app.task
def double(number):
    return 2 * number


@pytest.fixture(scope="session")
def kafka_broker():
    raise AssertionError("a broker is started")


@pytest.fixture
def kafka_tasks_app():
    return app
"""
    )
    (tmp_path / "test_it.py").write_text(
        """
from conftest import double


def test_it(kafka_tasks_testing):
    job = double.delay(4)
    kafka_tasks_testing.run_all()
    assert job.result() == 8
"""
    )
    done = run(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_nothing_is_there_unless_it_is_asked_for(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(kafka_broker): pass\n")
    assert "fixture 'kafka_broker' not found" in run(tmp_path).stdout


@pytest.mark.parametrize("statement", ["import kafka", "import kafka.tasks", "from kafka import KafkaProducer"])
def test_who_does_not_test_loads_nothing_of_it(statement: str) -> None:
    code = f"import sys; {statement}; print([name for name in sys.modules if name.startswith('kafka.testing')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout.strip() == "[]"


def test_the_rest_of_kafka_testing_needs_no_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; from kafka.testing import running_worker as r; print(r.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "running_worker", done.stderr


def test_a_failure_shows_what_the_brokers_know(tmp_path: pathlib.Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(
        """
def test_it(kafka_broker, kafka_topic, kafka_broker_factory):
    own = kafka_broker_factory(topics=["mine"])
    kafka_broker.faults.drop("Heartbeat")
    own.stop()
    raise AssertionError("it is wrong")


def test_good(kafka_broker):
    pass
"""
    )
    shown = run(tmp_path).stdout
    assert "1 failed, 1 passed" in shown
    assert shown.count("embedded broker 127.0.0.1:") == 2
    for part in ("which has ended", "requests: unknown, since", "log: ", "drop", "CreateTopics v7 about topic-"):
        assert part in shown, shown
