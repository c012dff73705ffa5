"""The tables of state machines, and the one way to move along them."""

from __future__ import annotations

import pytest

from kafka.core.states import LINK, TABLES, Link, States


def test_a_machine_moves_along_its_table() -> None:
    states = States(LINK, Link.IDLE, "link")
    for step in (Link.CONNECTING, Link.GREETING, Link.READY, Link.IDLE):
        states.enter(step)
    assert states.now is Link.IDLE


def test_a_step_that_the_table_lacks_is_refused_and_changes_nothing() -> None:
    states = States(LINK, Link.IDLE, "link")
    with pytest.raises(RuntimeError, match="link: no step from IDLE to READY"):
        states.enter(Link.READY)
    assert states.now is Link.IDLE


@pytest.mark.parametrize("name", TABLES)
def test_each_table_names_every_state_and_leads_to_each(name: str) -> None:
    table = TABLES[name]
    states = set(type(next(iter(table))))
    assert set(table) == states
    reached = {next(iter(table))}.union(*table.values())
    assert reached == states
