"""Tests of ``kafka.tasks.health.checks``."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.tasks.delivery.base import BrokerContact, JobSource, SourceKind
from kafka.tasks.health.checks import STARTING, Condition, contact_age_s, reasons_not_ready
from kafka.tasks.worker.worker import WorkerStage

MAIL = JobSource("mail", "shop.mail")
SUSPECT = JobSource("mail", "shop.mail.suspect", SourceKind.SUSPECT)
NOW = 1000.0


def condition(**changed: Any) -> Condition:
    contacts = [BrokerContact(MAIL, NOW - 1, 5.0), BrokerContact(SUSPECT, NOW - 4, 5.0)]
    fine: dict[str, Any] = {
        "stage": "WORKING", "pool_ready": True, "degraded": None, "contacts": contacts, "now": NOW
    }  # fmt: skip
    return Condition(**{**fine, **changed})


def test_a_worker_with_children_and_answers_is_ready() -> None:
    assert reasons_not_ready(condition()) == []


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"stage": STARTING, "pool_ready": False, "contacts": []}, "starting: the worker has not connected yet"),
        *(({"stage": each.name}, f"stopping: {each.name}") for each in WorkerStage if each is not WorkerStage.WORKING),
        ({"pool_ready": False}, "pool: no child is up yet"),
        ({"pool_ready": False, "degraded": "importing shop.tasks failed"}, "pool: importing shop.tasks failed"),
        ({"degraded": "the breaker is open"}, "pool: the breaker is open"),
        ({"contacts": [BrokerContact(MAIL, None, 5.0)]}, "brokers: the group shop.mail has not answered yet"),
        (
            {"contacts": [BrokerContact(MAIL, NOW - 1, 5.0), BrokerContact(SUSPECT, NOW - 10.5, 5.0)]},
            "brokers: no answer for the group shop.mail.suspect for 10.5 s (one is due every 5 s)",
        ),
    ],
)
def test_each_reason_is_one_line_that_says_whose_it_is(changed: dict[str, Any], reason: str) -> None:
    assert reasons_not_ready(condition(**changed)) == [reason]


def test_an_answer_may_come_two_intervals_after_the_one_before() -> None:
    assert reasons_not_ready(condition(contacts=[BrokerContact(MAIL, NOW - 10.0, 5.0)])) == []


def test_all_that_is_wrong_is_reported() -> None:
    found = reasons_not_ready(
        condition(stage="DRAINING", degraded="the breaker is open", contacts=[BrokerContact(MAIL, None, 5.0)])
    )
    assert [reason.partition(":")[0] for reason in found] == ["stopping", "pool", "brokers"]


def test_the_age_of_the_contact_is_that_of_the_source_that_heard_nothing_for_longest() -> None:
    assert contact_age_s([BrokerContact(MAIL, NOW - 1, 5.0), BrokerContact(SUSPECT, NOW - 4, 5.0)], NOW) == 4.0
    assert contact_age_s([BrokerContact(MAIL, NOW - 1, 5.0), BrokerContact(SUSPECT, None, 5.0)], NOW) is None
    assert contact_age_s([], NOW) is None
