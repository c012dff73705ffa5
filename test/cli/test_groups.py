"""``groups``: tables and JSON of groups of all types, offsets that are reset, outcomes in the exit code."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafka.admin import ConfigResource, KafkaAdminClient, NewTopic
from kafka.cli import main
from kafka.producer import KafkaProducer
from kafka.share import KafkaShareConsumer
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.testing import EmbeddedBroker

SOON_S = 10.0


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker with the topic ``events`` (two partitions, three records in the first), ``readers`` who have read one of
    them, and the share group ``workers`` that has done two.
    """
    with EmbeddedBroker(in_process=True) as broker, KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic("events", 2, 1)], wait_for_metadata=True)
        with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(3):
                producer.send("events", b"%d" % number, partition=0, timestamp_ms=1_700_000_000_000 + number)
        admin.alter_group_offsets("readers", {TopicPartition("events", 0): OffsetAndMetadata(1)})
        settings = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"}
        admin.alter_configs([ConfigResource("group", "workers", settings)])
        with KafkaShareConsumer(
            "events", group_id="workers", bootstrap_servers=broker.bootstrap, share_acknowledgement_mode="explicit"
        ) as consumer:
            for _, record in zip(range(2), consumer, strict=False):
                consumer.acknowledge(record)
            consumer.commit()
        yield broker.bootstrap


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[list[str]]:
    assert main(["groups", *arguments]) == code
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def json_output(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["groups", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_groups_are_listed_by_type_and_described(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = shown(capsys, "list", address)
    assert head == ["group", "type", "state"]
    assert ["workers", "share", "Empty"] in rows
    assert ["readers", "classic", "Empty"] in rows
    assert shown(capsys, "list", address, "--type", "share")[1:] == [["workers", "share", "Empty"]]
    described = json_output(capsys, "describe", address, "workers")
    assert [(each["group"], each["state"], each["member"]) for each in described] == [("workers", "Empty", None)]


@pytest.mark.parametrize("action", ["describe", "offsets"])
def test_a_group_that_is_not_there_is_one_line_beside_those_that_are(
    address: str, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    assert main(["groups", action, address, "nosuch"]) == 1
    assert capsys.readouterr() == ("", "python -m kafka groups: group nosuch does not exist\n")
    assert main(["groups", action, address, "nosuch", "readers", "nor-this"]) == 1
    out, err = capsys.readouterr()
    assert err == "python -m kafka groups: group nosuch does not exist; group nor-this does not exist\n"
    assert [line.split()[0] for line in out.splitlines()] == ["group", "readers"]


def test_a_group_that_is_not_there_is_one_line_with_older_brokers_too(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(in_process=True, emulate="2.8") as broker:
        assert main(["groups", "describe", broker.bootstrap, "nosuch"]) == 1
    assert capsys.readouterr() == ("", "python -m kafka groups: group nosuch does not exist\n")


def test_a_missing_broker_is_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    began_at = time.monotonic()
    assert main(["groups", "list", "127.0.0.1:1"]) == 1
    assert time.monotonic() - began_at < SOON_S
    out, err = capsys.readouterr()
    assert not out
    assert "127.0.0.1:1: Connection refused" in err
    assert len(err.splitlines()) == 1


def test_members_are_shown_with_what_they_read(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with KafkaShareConsumer("events", group_id="busy", bootstrap_servers=address, client_id="me") as consumer:
        while not consumer.has_joined:
            consumer.poll(100)
        (row,) = json_output(capsys, "describe", address, "busy")
    assert (row["member"], row["client"]) == (consumer.member_id, "me")


def test_offsets_are_shown_with_the_end_and_the_lag(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = shown(capsys, "offsets", address, "readers", "workers")
    assert head == ["group", "topic", "partition", "offset", "end", "lag"]
    assert ["readers", "events", "0", "1", "3", "2"] in rows
    assert ["workers", "events", "0", "2", "3", "1"] in rows


@pytest.mark.parametrize(
    ("where", "offset"), [("earliest", 0), ("latest", 3), ("2", 2), ("@1700000000001", 1), ("9", 3)]
)
@pytest.mark.parametrize("group", ["readers", "workers"])
def test_offsets_are_reset_for_groups_of_both_kinds(
    address: str, capsys: pytest.CaptureFixture[str], group: str, where: str, offset: int
) -> None:
    rows = json_output(capsys, "reset", address, group, "--topic", "events:0", "--to", where)
    assert rows == [{"group": group, "topic": "events", "partition": 0, "offset": offset, "outcome": "OK"}]
    (row,) = [row for row in json_output(capsys, "offsets", address, group) if row["partition"] == 0]
    assert row["offset"] == offset
    main(["groups", "reset", address, group, "--topic", "events:0", "--to", "1" if group == "readers" else "2"])
    capsys.readouterr()


def test_all_partitions_of_a_topic_are_reset(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json_output(capsys, "reset", address, "whole", "--topic", "events", "--to", "latest")
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, 3), (1, 0)]


def test_deleting_reports_the_outcome_of_each_and_fails_when_one_did(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["groups", "reset", address, "gone", "--topic", "events", "--to", "latest"])
    capsys.readouterr()
    rows = shown(capsys, "delete", address, "gone", "nobody", code=1)
    assert rows == [["group", "outcome"], ["gone", "OK"], ["nobody", "GroupIdNotFoundError"]]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["list", "readers"], "no group names"),
        (["describe"], "needs the name of a group"),
        (["reset", "readers"], "--topic and --to"),
        (["reset", "readers", "--topic", "events", "--to", "yesterday"], "earliest, latest"),
        (["reset", "readers", "--topic", "events:x", "--to", "1"], "a partition number"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    address: str, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    action, *rest = arguments
    assert main(["groups", action, address, *rest]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line


def test_a_missing_topic_is_an_error_and_none_is_made(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["groups", "reset", address, "readers", "--topic", "none-such", "--to", "latest"]) == 1
    assert "does not exist" in capsys.readouterr().err
