"""Apps on a cluster of two real brokers: the replicas of their topics, and the nearest one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from kafka import KafkaAdminClient
from kafka.errors import KafkaConfigurationError
from kafka.tasks import App, JobState
from kafka.tasks.backends.kafka import KafkaBackend
from kafka.testing import running_worker
from test.support.real_cluster import Cluster, FetchedNodes, two_brokers

pytestmark = [pytest.mark.timeout(180), pytest.mark.deep("two brokers; kept by format/test_topics.py, test_kafka.py")]

WITHIN_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with two_brokers() as made:
        yield made


def warm_up(app: App) -> None:
    with closing(app):
        app.warm_up()


def test_an_app_warns_once_of_topics_with_one_replica_and_of_none_with_two(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    for name, factor, count in (("single", 1, 1), ("single", 1, 1), ("double", 2, 1)):
        warm_up(App(name, bootstrap_servers=cluster.bootstrap, replication_factor=factor, queues=["mail"]))
        lines = [record.getMessage() for record in caplog.records if "one replica" in record.getMessage()]
        assert len(lines) == count
    assert "app single has topics with one replica on a cluster of 2 brokers (single.results, " in lines[0]


def test_more_replicas_than_brokers_are_one_line(cluster: Cluster) -> None:
    app = App("triple", bootstrap_servers=cluster.bootstrap, replication_factor=3, queues=["mail"])
    with pytest.raises(KafkaConfigurationError, match="with 3 replicas: the cluster has 2 brokers; set repl"):
        warm_up(app)


def test_min_insync_replicas_above_the_brokers_default_replication_create_no_topic(cluster: Cluster) -> None:
    """``default.replication.factor`` of these brokers is 1."""
    app = App("insync", bootstrap_servers=cluster.bootstrap, min_insync_replicas=2, queues=["mail"])
    with pytest.raises(KafkaConfigurationError, match="min_insync_replicas=2 .* topics get 1 by default.repl"):
        warm_up(app)
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
        assert not [name for name in admin.list_topics() if name.startswith("insync.")]


@pytest.mark.parametrize(("rack", "node"), [("left", 1), ("right", 2)])
def test_an_app_reads_results_from_the_replica_in_its_rack(cluster: Cluster, rack: str, node: int) -> None:
    app = App(f"near-{rack}", bootstrap_servers=cluster.bootstrap, replication_factor=2, client_rack=rack)
    double = app.task(name="double")(lambda n: 2 * n)
    nodes = FetchedNodes()
    with closing(app), running_worker(app):
        app.warm_up()
        backend = app.backend()
        assert isinstance(backend, KafkaBackend) and backend._front is not None
        backend._front.io.call(backend._front.io.client.add_traffic, nodes)
        for number in range(8):
            job = double.delay(number)
            assert job.result(timeout=WITHIN_S) == 2 * number and job.status() is JobState.SUCCESS
    assert nodes.seen[-5:] == [node] * 5
