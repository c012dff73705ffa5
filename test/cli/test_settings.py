"""``settings``: what is listed of each subject, as text and as JSON, and that it comes from the tables in use."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kafka.cli import main
from kafka.cli.settings import SUBJECTS


def rows_of(capsys: pytest.CaptureFixture[str], subject: str) -> dict[str, dict[str, Any]]:
    assert main(["settings", subject, "--json"]) == 0
    return {row["setting"]: row for row in json.loads(capsys.readouterr().out)}


def test_without_a_subject_the_subjects_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "subject"
    named = [line.split()[0] for line in lines]
    assert named == ["app", "worker", "producer", "consumer", "share", "admin", "client", "broker", "topic"]
    assert main(["settings", "--json"]) == 0
    assert [row["subject"] for row in json.loads(capsys.readouterr().out)] == named


def test_an_unknown_subject_is_one_line_that_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "brokr"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'brokr'" in line and "broker" in line and "producer" in line


@pytest.mark.parametrize(
    ("subject", "setting", "default", "unit", "meaning"),
    [
        ("app", "result_ttl", 86_400, "s", "how long results are kept"),
        ("app", "security_protocol", "PLAINTEXT", "", "See docs/security.rst."),
        ("worker", "--concurrency", "the number of processors; asyncio: 100", "", "how many jobs run at once"),
        ("worker", "--kill-grace", "the app's", "s", "seconds between SIGTERM and SIGKILL"),
        ("worker", "--max-jobs-per-child", "", "", "10 % more or less (pools: prefork)"),
        ("worker", "--log-jobs", True, "", "log at INFO when a job is received and how it ends"),
        ("worker", "--log-level", "INFO", "", "what to log on stderr"),
        ("producer", "acks", -1, "", "-1 for all in sync"),
        ("producer", "retries", "inf", "", "Attempts after the first"),
        ("producer", "compression_type", None, "", "need the extra compression"),
        ("producer", "request_timeout_ms", 30_000, "ms", "From handing a request over to its answer"),
        ("client", "request_timeout_ms", 40_000, "ms", "From handing a request over to its answer"),
        ("consumer", "bootstrap_servers", ["localhost"], "", "Servers to learn the cluster from"),
        ("share", "share_acquire_mode", "batch_optimized", "", "record_limit"),
        ("broker", "num.partitions", "1", "", "Partitions of topics that name no number"),
        ("broker", "log.retention.ms", "604800000", "ms", "The retention.ms of topics without one of their own"),
        ("broker", "log.cleaner.dedupe.buffer.size", "134217728", "bytes", "Memory for the keys"),
        ("broker", "offsets.retention.minutes", "10080", "minutes", "Committed offsets"),
        ("topic", "retention.ms", "604800000", "ms", "-1: any age"),
    ],
)
def test_a_setting_is_listed_with_default_unit_and_meaning(
    capsys: pytest.CaptureFixture[str], subject: str, setting: str, default: object, unit: str, meaning: str
) -> None:
    row = rows_of(capsys, subject)[setting]
    assert (row["default"], row["unit"]) == (default, unit)
    assert meaning in row["meaning"]


@pytest.mark.parametrize("subject", list(SUBJECTS))
def test_every_setting_has_a_meaning_in_plain_text(capsys: pytest.CaptureFixture[str], subject: str) -> None:
    rows = rows_of(capsys, subject)
    assert rows
    assert [name for name, row in rows.items() if not row["meaning"]] == []
    assert [name for name, row in rows.items() if re.search(r"`|%%|:[a-z]+:", row["meaning"])] == []


def test_what_a_client_does_not_have_is_not_listed_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "acks" not in rows_of(capsys, "consumer")
    assert "group_id" not in rows_of(capsys, "producer")


def test_text_is_one_line_for_each_setting_when_it_is_not_read_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["settings", "topic"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["setting", "default", "unit", "meaning"]
    at = head.index("meaning")
    assert len(lines) == 33
    assert all(line[at - 2 : at] == "  " and line[at] != " " for line in lines)
