"""Arguments and results on their whole way, in each format: enqueued, run, recorded, and read by the handle; and the
option ``serializer`` of app, task and call."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError, KafkaConfigurationError
from kafka.tasks import App, BadRecord, JobHandle, NotSerialisable
from kafka.tasks.delivery.base import Ending, JobLease, JobSource
from kafka.tasks.delivery.records import StateRecords
from kafka.tasks.format.envelope import decode
from kafka.tasks.format.job_id import time_of
from kafka.tasks.format.serializers import SERIALIZERS
from kafka.tasks.options import WorkerOptions
from kafka.tasks.pools.runner import Job, run
from kafka.tasks.rules.decide import JobHistory, JobPolicy, decide
from kafka.tasks.rules.outcome import AttemptFailed, JobSucceeded, Outcome
from kafka.tasks.worker.admission import AdmissionPolicy
from test.tasks.fakes import FakeBackend

MSGPACK = SERIALIZERS["msgpack"]
needs_msgpack = pytest.mark.skipif(not MSGPACK.is_installed, reason="the package msgpack is not installed")
quiet_pickle = pytest.mark.filterwarnings("ignore:a job is enqueued with serializer='pickle'")
FORMATS = [
    ("json", None),
    pytest.param("msgpack", b"application/vnd.msgpack", marks=needs_msgpack),
    pytest.param("pickle", b"application/x-python-serialize", marks=quiet_pickle),
]
ALL = ["json", "msgpack", "pickle"]


class Color(enum.Enum):
    RED = "red"


@dataclass
class Order:
    when: date
    colors: tuple[Color, ...]


ORDER = Order(date(2026, 1, 2), (Color.RED,))


def new_app(**settings: Any) -> App:
    app = App("shop", bootstrap_servers="fake://", **settings)

    @app.task(name="same")
    def same(order: Order) -> Order:
        assert order == ORDER
        return order

    return app


def backend_of(app: App) -> FakeBackend:
    backend = app.backend()
    assert isinstance(backend, FakeBackend)
    return backend


def run_last(app: App) -> tuple[Outcome, dict[str, bytes | None]]:
    """Run the job that was enqueued last, and record its end; its outcome, and the headers of its state record."""
    backend = backend_of(app)
    record = backend.queues.topics["shop.default"][-1]
    envelope = decode(record.value, record.headers)
    lease = JobLease(JobSource("default", "shop.default"), record.value, [], 1)
    outcome = run(Job(lease, envelope, app.tasks[envelope.name]))
    decision = decide(outcome, JobHistory(), JobPolicy(), 0)
    maker = StateRecords(app.names, "host", 4)
    *_, state = maker.for_decision(decision, outcome, envelope, lease, time_of(envelope.id))
    backend.queues.append(state)
    return outcome, dict(state.headers or ())


@pytest.mark.parametrize(("serializer", "content_type"), FORMATS)
def test_a_call_and_its_result_pass_in_each_format(serializer: str, content_type: bytes | None) -> None:
    app = new_app(accept_content=ALL)
    handle = app.tasks["same"].using(serializer=serializer).delay(ORDER)
    record = backend_of(app).queues.topics["shop.default"][-1]
    assert dict(record.headers).get("content-type") == content_type
    outcome, headers = run_last(app)
    assert isinstance(outcome, JobSucceeded)
    assert headers.get("content-type") == content_type
    assert handle.result() == ORDER


@needs_msgpack
def test_the_nearest_option_holds() -> None:
    app = new_app(serializer="msgpack")
    same: Any = app.tasks["same"]

    @app.task(name="plain", serializer="json")
    def plain(order: Order) -> None: ...

    same.delay(ORDER)
    same.using(serializer="json").delay(ORDER)
    plain.delay(ORDER)
    plain.using(serializer="msgpack").delay(ORDER)
    app.send("same", (ORDER,))
    app.send("plain", (ORDER,))
    app.send("elsewhere", (ORDER,))
    app.send("elsewhere", (ORDER,), serializer="json")
    found = [dict(record.headers).get("content-type") for record in backend_of(app).queues.topics["shop.default"]]
    msgpack = b"application/vnd.msgpack"
    assert found == [msgpack, None, None, msgpack, msgpack, None, msgpack, None]


def test_a_task_that_is_sent_by_name_gets_what_its_annotations_say() -> None:
    elsewhere, app = App("shop", bootstrap_servers="fake://"), new_app()
    handle: JobHandle[Any] = elsewhere.send("same", (ORDER,))
    (record,) = backend_of(elsewhere).queues.topics["shop.default"]
    backend_of(app).queues.copy(record)
    assert isinstance(run_last(app)[0], JobSucceeded)
    for state in backend_of(app).queues.topics["shop.results"]:
        backend_of(elsewhere).queues.copy(state)
    assert handle.result() == {"when": date(2026, 1, 2), "colors": ("red",)}
    assert app.send("same", (ORDER,)).id != handle.id


def test_a_bare_id_has_plain_values_and_the_handle_of_the_task_its_own() -> None:
    app = new_app()
    handle = app.tasks["same"].delay(ORDER)
    run_last(app)
    assert handle.result() == ORDER
    assert app.job(handle.id).result() == {"when": date(2026, 1, 2), "colors": ("red",)}


def test_a_failure_is_json_whatever_the_call_was() -> None:
    app = new_app()

    @app.task(name="fails")
    def fails() -> None:
        raise OSError("disk")

    record_format = "msgpack" if MSGPACK.is_installed else "json"
    fails.using(serializer=record_format).delay()
    outcome, headers = run_last(app)
    assert isinstance(outcome, AttemptFailed)
    assert "content-type" not in headers


@quiet_pickle
def test_a_child_refuses_pickle_that_its_app_does_not_accept() -> None:
    elsewhere, app = new_app(accept_content=ALL, serializer="pickle"), new_app()
    elsewhere.tasks["same"].delay(ORDER)
    backend_of(app).queues.topics["shop.default"].extend(backend_of(elsewhere).queues.topics["shop.default"])
    outcome, _ = run_last(app)
    assert isinstance(outcome, AttemptFailed)
    assert outcome.error_info.type == "BadRecord"
    assert outcome.error_info.text.endswith("x-python-serialize (pickle) is not in accept_content")


@quiet_pickle
def test_a_client_refuses_a_result_in_pickle_that_its_app_does_not_accept() -> None:
    app = new_app(accept_content=ALL, serializer="pickle")
    handle = app.tasks["same"].delay(ORDER)
    run_last(app)
    careful = new_app()
    for state in backend_of(app).queues.topics["shop.results"]:
        backend_of(careful).queues.copy(state)
    with pytest.raises(BadRecord, match="is not in accept_content"):
        careful.job(handle.id).result()


def test_what_does_not_arrive_is_refused_at_delay_and_nothing_is_sent() -> None:
    app = new_app()
    same: Any = app.tasks["same"]
    with pytest.raises(NotSerialisable, match=r"argument 1 \(order\) of task same cannot be sent as JSON"):
        same.delay({"when": date(2026, 1, 2), "colors": ()})
    with pytest.raises(NotSerialisable, match="argument 'order' of task same"):
        app.send("same", kwargs={"order": 5})
    assert not backend_of(app).queues.topics["shop.default"]


@pytest.mark.parametrize("value", ["yaml", "JSON", 1])
def test_an_unknown_serializer_is_refused_where_it_is_written(value: Any) -> None:
    app = new_app()
    text = "serializer must be one of 'json', 'msgpack', 'pickle', not "
    with pytest.raises(KafkaConfigurationError, match=text):
        new_app(serializer=value)
    with pytest.raises(IllegalArgumentError, match=text):
        app.task(serializer=value)
    with pytest.raises(IllegalArgumentError, match=text):
        app.tasks["same"].using(serializer=value)
    with pytest.raises(IllegalArgumentError, match=text):
        app.send("f", serializer=value)


def test_a_serializer_that_the_app_does_not_read_is_refused_with_what_to_add() -> None:
    app = new_app()
    text = r"serializer='pickle' needs .*accept_content=\[\.\.\.\].* with 'pickle' in it, here and in the app that the"
    with pytest.raises(KafkaConfigurationError, match=text):
        new_app(serializer="pickle")
    with pytest.raises(IllegalArgumentError, match=text):
        app.task(name="f", serializer="pickle")(new_app)
    with pytest.raises(IllegalArgumentError, match=text):
        app.tasks["same"].using(serializer="pickle")
    with pytest.raises(IllegalArgumentError, match=text):
        app.send("f", serializer="pickle")


@pytest.mark.parametrize("value", ["json", 5, ["json", "yaml"], [None]])
def test_what_is_accepted_is_a_list_of_formats(value: Any) -> None:
    with pytest.raises(KafkaConfigurationError, match=r"accept_content m(ust|ay) "):
        new_app(accept_content=value)


def test_pickle_is_not_accepted_by_default() -> None:
    assert new_app().settings.accept_content == ("json", "msgpack")


@quiet_pickle
@pytest.mark.parametrize("accepted", [["json", "pickle"], ["json"]])
def test_a_worker_leaves_a_job_in_a_format_that_it_does_not_accept_to_others(accepted: list[str]) -> None:
    elsewhere, app = new_app(accept_content=ALL, serializer="pickle"), new_app(accept_content=accepted)
    elsewhere.tasks["same"].delay(ORDER)
    (record,) = backend_of(elsewhere).queues.topics["shop.default"]
    lease = JobLease(JobSource("default", "shop.default"), record.value, record.headers, 1)
    policy = AdmissionPolicy(app.tasks, StateRecords(app.names, "host", 4), 8, WorkerOptions(), random.Random(1))
    admitted = policy.admit(lease, time_of(decode(record.value, record.headers).id))
    if "pickle" in accepted:
        assert isinstance(admitted, Job)
    else:
        assert isinstance(admitted, Ending)
        (moved,) = admitted.records
        again = decode(moved.value, moved.headers or ())
        assert (moved.value, again.content_type) == (record.value, "application/x-python-serialize")
        assert (again.unknown, again.unknown_since_ms) == (1, time_of(again.id))
