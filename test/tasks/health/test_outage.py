"""Tests of ``kafka.tasks.health.outage``: one line when no broker can be reached, one when that is over."""

from __future__ import annotations

import logging

import pytest

from kafka.tasks.delivery.base import BrokerContact, JobSource, SourceKind
from kafka.tasks.health.outage import CHECK_S, REPORT_AFTER_S, BrokerOutage

MAIL = JobSource("mail", "shop.mail")
SUSPECT = JobSource("mail", "shop.mail.suspect", SourceKind.SUSPECT)
REFUSED = "node 1 (db:9092): cannot connect: Connection refused"


class Seconds:
    """An outage looked at once a second; ``answered_at``: the brokers' last answer."""

    def __init__(self) -> None:
        self.outage = BrokerOutage()
        self.now = 1000.0
        self.answered_at = self.now

    def pass_(self, seconds: float, connect_error: str | None = None, *, answers: bool = True) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += CHECK_S
            if answers and connect_error is None:
                self.answered_at = self.now
            self.look(connect_error)

    def look(self, connect_error: str | None = None) -> None:
        contacts = [BrokerContact(MAIL, self.answered_at, 5.0), BrokerContact(SUSPECT, self.answered_at - 1, 5.0)]
        self.outage.check(self.now, contacts, connect_error)


@pytest.fixture
def seconds(caplog: pytest.LogCaptureFixture) -> Seconds:
    caplog.set_level(logging.DEBUG, "kafka.tasks.health")
    return Seconds()


def test_an_outage_is_one_warning_with_the_last_error_and_its_end_one_with_its_length(
    seconds: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    seconds.pass_(10)
    seconds.pass_(REPORT_AFTER_S + CHECK_S, REFUSED)
    (told,) = caplog.records
    assert told.levelname == "WARNING"
    assert f"no broker reachable, no jobs are leased until one is (last error: {REFUSED})" in caplog.text
    seconds.pass_(60, REFUSED)
    assert len(caplog.records) == 1
    seconds.pass_(20)
    assert len(caplog.records) == 2
    assert "broker reachable again after 64 s" in caplog.records[1].getMessage()


def test_a_broker_that_is_soon_back_is_not_reported(seconds: Seconds, caplog: pytest.LogCaptureFixture) -> None:
    seconds.pass_(REPORT_AFTER_S - 1, REFUSED)
    seconds.pass_(4, answers=False)
    assert seconds.outage.since is not None
    seconds.pass_(1)
    assert seconds.outage.since is None
    assert not caplog.records


def test_a_connection_alone_is_no_end_before_the_groups_have_answered(
    seconds: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    seconds.pass_(6, REFUSED)
    seconds.pass_(2, answers=False)
    assert len(caplog.records) == 1
    seconds.pass_(1)
    assert len(caplog.records) == 2


def test_brokers_that_take_everything_and_answer_nothing_are_an_outage(
    seconds: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    seconds.pass_(10)
    seconds.pass_(9, answers=False)
    assert not caplog.records
    seconds.pass_(6, answers=False)
    (told,) = caplog.records
    assert "no broker reachable" in told.getMessage()
    assert "(no responses)" in told.getMessage()
    seconds.pass_(1)
    assert "after 16 s" in caplog.records[1].getMessage()


def test_a_worker_that_stood_still_itself_blames_no_broker(seconds: Seconds, caplog: pytest.LogCaptureFixture) -> None:
    seconds.pass_(10)
    seconds.now += 60
    seconds.look()
    seconds.pass_(1)
    assert not caplog.records


def test_a_second_outage_is_reported_anew(seconds: Seconds, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        seconds.pass_(6, REFUSED)
        seconds.pass_(6)
    assert [record.getMessage().split(" after ")[0].split(",")[0] for record in caplog.records] == [
        "no broker reachable", "broker reachable again"
    ] * 2  # fmt: skip
