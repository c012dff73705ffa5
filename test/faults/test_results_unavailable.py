"""The results topic cannot be written for a while: finished code does not run again, and all results arrive."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType
from kafka.errors import BrokerResponseError, NotEnoughReplicasError, TopicAuthorizationFailedError
from kafka.tasks import JobHandle
from kafka.testing import EmbeddedBroker
from test.faults.counted_jobs import Crew
from test.support.apache_kafka import LATEST, ApacheKafka
from test.support.waiting import until

MakeCrew = Callable[[str, int], Crew]

JOBS = 100
REFUSALS = 4
"""Of both workers. Each waits longer after each of its own: the fifth time for half a minute."""
OUTAGE_S = 120.0
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


def _wait_for_the_line(team: Crew, within_s: float) -> None:
    until(
        lambda: "its lock is renewed until they are written" in team.logs(),
        "a worker could not write",
        within_s=within_s,
        shown=team.logs,
    )


@pytest.mark.deep("minutes; kept by the test above")
@pytest.mark.timeout(300)
def test_an_outage_longer_than_the_producers_delivery_timeout_runs_nothing_again(crew: MakeCrew) -> None:
    with EmbeddedBroker() as broker:
        team = crew(broker.bootstrap, 2)
        team.warm_up(2)
        with broker.faults.answer("Produce", NotEnoughReplicasError, topic=team.app.names.results):
            handles = _begin(team)
            until(lambda: _are_all_started(team, handles), "all jobs have started", shown=team.logs)
            _wait_for_the_line(team, BEYOND_A_DELIVERY_TIMEOUT_S)
            assert not any(handle.wait(0) for handle in handles)
        _check(team, handles)
        team.close()


@pytest.mark.deep("minutes, and an Apache Kafka of its own; kept by the tests above")
@pytest.mark.timeout(300)
def test_two_minutes_without_the_right_to_write_results_run_nothing_again_on_apache_kafka(
    start_apache_kafka: Callable[..., ApacheKafka], crew: MakeCrew
) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    servers = start_apache_kafka(LATEST, settings).bootstrap
    team = crew(servers, 2)
    team.warm_up(2)
    topic = ResourcePattern(ResourceType.TOPIC, team.app.names.results)
    allowed = [
        ACL("User:*", "*", operation, ACLPermissionType.ALLOW, topic)
        for operation in (ACLOperation.READ, ACLOperation.DESCRIBE)
    ]
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        assert admin.create_acls(allowed)["failed"] == []
        handles = _begin(team)
        begun = time.monotonic()
        until(lambda: _are_all_started(team, handles), "all jobs have started", shown=team.logs)
        _wait_for_the_line(team, 45)
        until(lambda: time.monotonic() - begun > OUTAGE_S, "the outage ends", within_s=2 * OUTAGE_S)
        assert not any(handle.wait(0) for handle in handles)
        admin.delete_acls(allowed)
    _check(team, handles)
