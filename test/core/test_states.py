"""The tables of state machines, and the one way to move along them."""

from __future__ import annotations

import pytest

from kafka.core.states import CONNECTION_STATES, TABLES, ConnectionState, States


def test_a_machine_moves_along_its_table() -> None:
    states = States(CONNECTION_STATES, ConnectionState.DISCONNECTED, "link")
    for step in (
        ConnectionState.CONNECTING,
        ConnectionState.CHECKING_API_VERSIONS,
        ConnectionState.READY,
        ConnectionState.DISCONNECTED,
    ):
        states.enter(step)
    assert states.now is ConnectionState.DISCONNECTED


def test_a_step_that_the_table_lacks_is_refused_and_changes_nothing() -> None:
    states = States(CONNECTION_STATES, ConnectionState.DISCONNECTED, "link")
    with pytest.raises(RuntimeError, match="link: no step from DISCONNECTED to READY"):
        states.enter(ConnectionState.READY)
    assert states.now is ConnectionState.DISCONNECTED


@pytest.mark.parametrize("name", TABLES)
def test_each_table_names_every_state_and_leads_to_each(name: str) -> None:
    table = TABLES[name]
    states = set(type(next(iter(table))))
    assert set(table) == states
    reached = {next(iter(table))}.union(*table.values())
    assert reached == states
