"""The results topic cannot be written for a while: finished code does not run again, and all results arrive."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import BrokerResponseError, NotEnoughReplicasError, TopicAuthorizationFailedError
from kafka.tasks import JobHandle
from kafka.testing import EmbeddedBroker
from test.faults.counted_jobs import Crew
from test.support.waiting import until

MakeCrew = Callable[[str, int], Crew]

JOBS = 100
REFUSALS = 8
BEYOND_A_DELIVERY_TIMEOUT_S = 200.0
"""The worker's producer gives a record up after two minutes."""


def _begin(team: Crew) -> list[JobHandle[int]]:
    handles = [team.app.tasks["work"].delay(number, 0.0) for number in range(JOBS)]
    team.app.flush(30)
    return handles


def _check(team: Crew, handles: list[JobHandle[int]]) -> None:
    assert [handle.result(60) for handle in handles] == list(range(JOBS)), team.logs()
    starts = team.starts()
    assert all(len(starts[handle.id]) == 1 for handle in handles)
    names = team.app.names
    assert team.count_moved(names.suspect("default"), names.dead("default")) == 0, team.logs()


def _are_all_started(team: Crew, handles: list[JobHandle[int]]) -> bool:
    return all(handle.id in team.starts() for handle in handles)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(NotEnoughReplicasError, id="the producer retries"),
        pytest.param(TopicAuthorizationFailedError, id="the worker retries"),
    ],
)
def test_finished_jobs_keep_their_locks_until_their_results_are_written(
    crew: MakeCrew, error: type[BrokerResponseError]
) -> None:
    with EmbeddedBroker() as broker:
        team = crew(broker.bootstrap, 2)
        team.warm_up(2)
        with broker.faults.answer("Produce", error, topic=team.app.names.results) as refusal:
            handles = _begin(team)
            until(lambda: _are_all_started(team, handles), "all jobs have started", shown=team.logs)
            refusal.wait(REFUSALS, 40)
            assert not any(handle.wait(0) for handle in handles)
        _check(team, handles)
        team.close()


@contextlib.contextmanager
def _too_few_replicas(servers: str, topic: str) -> Iterator[None]:
    resource = [ConfigResource(ConfigResourceType.TOPIC, topic, {"min.insync.replicas": "2"})]
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.alter_configs(resource)
        yield
        admin.reset_configs(resource)


@contextlib.contextmanager
def _refused(broker: EmbeddedBroker, topic: str) -> Iterator[None]:
    with broker.faults.answer("Produce", NotEnoughReplicasError, topic=topic):
        yield


@pytest.mark.deep("minutes; kept by the tests above")
@pytest.mark.timeout(400)
def test_an_outage_longer_than_the_producers_delivery_timeout_runs_nothing_again(
    request: pytest.FixtureRequest, servers: str, crew: MakeCrew
) -> None:
    team = crew(servers, 2)
    team.warm_up(2)
    results = team.app.names.results
    broker: EmbeddedBroker = request.getfixturevalue("embedded_broker_of_session")
    outage = _refused(broker, results) if servers == broker.bootstrap else _too_few_replicas(servers, results)
    with outage:
        handles = _begin(team)
        until(lambda: _are_all_started(team, handles), "all jobs have started", shown=team.logs)
        until(
            lambda: team.logs().count("its lock is renewed until they are written") >= len(team.workers),
            "each worker's producer has given up once",
            within_s=BEYOND_A_DELIVERY_TIMEOUT_S,
            shown=team.logs,
        )
        assert not any(handle.wait(0) for handle in handles)
    _check(team, handles)
