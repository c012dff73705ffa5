"""A schedule without an owner: one warning, until there is one."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kafka.tasks.backends.kafka import schedule_watch
from kafka.testing import EmbeddedBroker
from test.tasks.schedule_scene import Scene


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True, settings={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


def test_a_schedule_without_an_owner_is_one_warning_until_there_is_one(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schedule_watch, "FIRST_LOOK_S", 0.01)
    monkeypatch.setattr(schedule_watch, "LOOK_S", 0.02)
    caplog.set_level(logging.INFO, schedule_watch.__name__)
    scene = Scene(broker.bootstrap, "watched")
    try:
        described = broker.faults.delay("DescribeGroups", seconds=0.0)
        process = scene.start()
        group = scene.names.commands
        schedule_watch.ScheduleWatch(process.client, group).start()
        scene.until(lambda: described.hits >= 3)
        (line,) = caplog.messages
        assert f"group {group} has no members" in line
        assert "python -m kafka scheduler" in line
        scene.join()
        scene.until(lambda: len(caplog.messages) > 1)
        assert caplog.messages[1:] == [f"the schedule has an owner now (group {group})"]
        hits = described.hits
        schedule_watch.ScheduleWatch(process.client, group).start()
        scene.until(lambda: described.hits > hits)
        scene.turn()
        assert len(caplog.messages) == 2, "there is nothing to say"
    finally:
        broker.faults.clear()
        scene.close()
