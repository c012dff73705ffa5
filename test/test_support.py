"""What tests rely on: the runner of real brokers, the reader of Kafka's schemas, and the count of what is logged."""

from __future__ import annotations

import itertools
import json
import logging
import os
import pathlib
import socket
from collections.abc import Callable

import pytest

from kafka.log_limit import LimitedLog
from test.support import apache_kafka as apache
from test.support import schemas, troubles
from test.support.apache_kafka import ApacheKafka, ApacheKafkaError
from test.support.waiting import NotWithin, eventually, look_until, until, whole_lines


def _is_open(broker: ApacheKafka) -> bool:
    host, _, port = broker.bootstrap.partition(":")
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.deep("a test of the tests' own brokers")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", apache.LATEST])
def test_a_broker_comes_back_on_its_port_after_a_kill_and_leaves_no_process(
    version: str, start_apache_kafka: Callable[..., ApacheKafka]
) -> None:
    broker = start_apache_kafka(version)
    where, first = broker.bootstrap, broker.pid
    broker.kill()
    assert not _is_open(broker)
    broker.restart()
    assert broker.bootstrap == where and broker.pid != first and _is_open(broker)
    second, directory = broker.pid, broker.directory
    broker.stop()
    assert broker not in apache.running_brokers()
    assert directory is not None and not directory.exists()
    for pid in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.deep("a test of the tests' own brokers")
@pytest.mark.timeout(240)
def test_a_broker_that_cannot_start_shows_its_log_and_leaves_nothing() -> None:
    apache.require_apache_kafka("0.9.0.1")
    before = apache.running_brokers()
    with pytest.raises(ApacheKafkaError, match="(?s)ended with 1 .*none of these for configuration num.partitions"):
        ApacheKafka("0.9.0.1", {"num.partitions": "none of these"}).start()
    assert apache.running_brokers() == before


def test_the_shared_broker_is_the_same_for_each_test(apache_kafka: ApacheKafka) -> None:
    assert apache_kafka in apache.running_brokers()
    assert _is_open(apache_kafka)


def test_a_missing_java_skips_with_its_reason_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="Java is not installed"):
        apache.require_apache_kafka()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="Java is not installed"):
        apache.require_apache_kafka()


def test_a_missing_jar_without_maven_skips_with_its_reason_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setenv("APACHE_KAFKA_CACHE", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="Maven is not installed"):
        schemas.schema_jar("4.3.0")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="Maven is not installed"):
        schemas.schema_jar("4.3.0")


def test_a_schema_with_comments_and_brackets_too_many_is_read() -> None:
    text = '// a licence\n{\n  // why\n  "name": "X"\n}\n'
    assert schemas.parse_schema(text + "] }") == {"name": "X"}


@pytest.mark.parametrize(("version", "metadata"), [("4.3.0", "0-13"), ("2.8.2", "0-11")])
def test_the_jars_hold_the_schemas_of_their_release(version: str, metadata: str) -> None:
    assert schemas.load_schemas(version)["MetadataRequest"]["validVersions"] == metadata


def test_waiting_returns_what_became_true_and_says_what_did_not() -> None:
    values = iter([0, None, 7])
    assert until(lambda: next(values), meanwhile=lambda: None) == 7
    with pytest.raises(AssertionError, match=r"not within 0 s: the light: False green"):
        until(lambda: False, "the light", within_s=0, shown=lambda: "green")
    numbers = itertools.count()
    eventually(lambda: next(numbers), 3)
    with pytest.raises(AssertionError, match="not within 0 s: 2 is expected: 1"):
        eventually(lambda: 1, 2, within_s=0)
    numbers = itertools.count()
    assert look_until(lambda: next(numbers), lambda found: found == 0) == 0, "what is not true is returned, too"
    with pytest.raises(NotWithin) as caught:
        look_until(lambda: next(numbers), lambda found: found == 0, within_s=0)
    assert caught.value.found >= 1


def test_a_line_counts_when_it_is_whole(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "lines"
    for text, lines in [("", []), ("a 1", []), ("a 1\n", ["a 1"]), ("a 1\nb", ["a 1"]), ("a 1\nb 2\n", ["a 1", "b 2"])]:
        path.write_text(text)
        assert whole_lines(path) == lines

def test_lines_of_a_kind_are_counted_within_any_minute_and_by_process(tmp_path: pathlib.Path) -> None:
    def row(at: float, template: str, text: str) -> str:
        return json.dumps({"at": at, "logger": "kafka.x", "template": template, "text": text}) + "\n"

    (tmp_path / "7.troubles").write_text(
        row(0.0, "node %d", "node 1") + row(70.0, "node %d", "node 2") + row(71.0, "other", "other")
        + row(100.0, "node %d", "node 3") + row(131.0, "node %d", "node 1")
        + row(0.0, "not written: %s", "not written: [Error 7] OneError: x") + row(1.0, "not written: %s", "OtherError")
        + row(2.0, "not written: %s", "not written: OneError: y")
    )  # fmt: skip
    (tmp_path / "8.troubles").write_text(row(70.5, "node %d", "node 2"))
    assert troubles.worst_kinds(tmp_path) == [
        (7, "kafka.x", "node %d", ["node 2", "node 3"]),
        (7, "kafka.x", "not written: %s", ["not written: [Error 7] OneError: x", "not written: OneError: y"]),
        (7, "kafka.x", "not written: %s", ["OtherError"]),
        (7, "kafka.x", "other", ["other"]),
        (8, "kafka.x", "node %d", ["node 2"]),
    ]


def test_a_line_is_of_the_kind_of_those_that_a_limit_has_left_out_before_it(tmp_path: pathlib.Path) -> None:
    log, handlers = logging.getLogger("kafka.some_module"), logging.getLogger("kafka").handlers[:]
    troubles.note_troubles(tmp_path)
    try:
        limited, text = LimitedLog(log, most=1, every_s=10.0, clock=iter((0.0, 1.0, 11.0)).__next__), "node %d is gone"
        for number in range(3):
            limited.warning("gone", text, number)
    finally:
        logging.getLogger("kafka").handlers[:] = handlers
    (kind,) = troubles.worst_kinds(tmp_path)
    assert (kind.template, len(kind.lines)) == (text, 2)
