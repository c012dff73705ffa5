"""The schedule while brokers are killed and restarted: retries with back-off go on, no job starts early, and each
ends."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from kafka.tasks import READY, JobState
from kafka.tasks.format.records import decode
from kafka.testing import EmbeddedBroker
from test.faults.counted_jobs import ATTEMPTS, Crew, read_topic
from test.support.apache_kafka import ApacheKafka
from test.support.waiting import until

JOBS = 200
"""Of a round, each with two retries, in which the broker is restarted twice: 2,000 retries and ten restarts in the deep
tier."""
RESTARTS = 2


class Restarts(NamedTuple):
    """A broker of the test's own. ``restart(False)`` kills it, where it may be; else it is stopped before."""

    bootstrap: str
    restart: Callable[[bool], object]


@pytest.fixture(params=["embedded", pytest.param("apache", marks=pytest.mark.deep("minutes; kept with embedded"))])
def broker(request: pytest.FixtureRequest) -> Iterator[Restarts]:
    """Either broker, as it is by default. Apache Kafka 4.3.0 is stopped each time: when a cluster of one is killed in
    the midst of a commit, it forgets in one of ten times to end the transaction in one of its partitions, and a
    ``read_committed`` reader of that waits for ever (docs/schedule.rst)."""
    if request.param == "apache":
        start: Callable[[], ApacheKafka] = request.getfixturevalue("start_apache_kafka")
        apache = start()
        yield Restarts(apache.bootstrap, lambda gracefully: apache.restart())
        return
    with EmbeddedBroker() as embedded:

        def restart(gracefully: bool) -> None:
            (embedded.stop if gracefully else embedded.kill)()
            embedded.start()

        yield Restarts(embedded.bootstrap, restart)


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_retries_with_back_off_go_on_through_restarts_of_the_broker(
    broker: Restarts, crew: Callable[[str, int], Crew], rounds: int
) -> None:
    team = crew(broker.bootstrap, 4)
    team.warm_up(2, "prefork")
    before, per_restart = team.starts_count(), JOBS // RESTARTS
    retried, handles = team.app.tasks["retried"], []
    for number in range(rounds * RESTARTS):
        handles += [retried.delay(len(handles) + each) for each in range(per_restart)]
        goal = before + ATTEMPTS * per_restart * number + per_restart * 3 // 2
        until(functools.partial(team.has_come_to, goal), "some wait for their second attempt", shown=team.logs)
        broker.restart(bool(number % 2))
    team.app.flush(60)
    for handle in handles:
        handle.raise_if_not_sent()
    assert [handle.result(90) for handle in handles] == list(range(len(handles))), team.logs()
    assert [worker.poll() for worker in team.workers] == [None, None], team.logs()

    names, starts = team.app.names, team.starts()
    ends: Counter[str] = Counter()
    due_s: dict[tuple[str, int], list[float]] = defaultdict(list)
    for topic in (names.results, names.late):
        for record in read_topic(broker.bootstrap, topic):
            state = decode(record.key, record.value, record.headers)
            if state is not None and state.state in READY:
                ends[state.id] += 1
            elif state is not None and state.state is JobState.RETRY:
                assert state.due_ms is not None
                due_s[state.id, state.attempt].append(state.due_ms / 1000)
    again = 0
    for handle in handles:
        runs = starts[handle.id]
        assert {run.attempt for run in runs} == set(range(1, ATTEMPTS + 1)), f"{handle}: {runs}\n{team.logs()}"
        again += len(runs) - ATTEMPTS
        for attempt in range(1, ATTEMPTS):
            began = min(run.at for run in runs if run.attempt == attempt + 1)
            assert began >= min(due_s[handle.id, attempt]), f"{handle} is early: {runs}\n{team.logs()}"
    again_ended = sum(ends.values()) - len(ends)
    print(f"{rounds * RESTARTS} restarts: {again} attempts of {len(handles)} jobs ran again, {again_ended} ended again")
    assert team.count_moved(names.dead("default")) == 0, team.logs()
