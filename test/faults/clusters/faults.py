"""What happens to a cluster of three while a workload runs on it: functions of both, by name in :data:`FAULTS`.

Each waits, by what it sees, until the workload goes on during the fault and after it, and until all replicas are in
sync again before the next broker goes: two of three must be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from test.faults.clusters.workloads import Workload
from test.support.real_cluster import Cluster
from test.support.waiting import until

STOPPED_S: Final = 60.0
Fault = Callable[[Cluster, Workload], None]


def rolling_restart(cluster: Cluster, load: Workload) -> None:
    """Each broker is stopped in order and started again, one after the other."""
    for broker in cluster.brokers.values():
        broker.restart()
        cluster.wait_healthy()
        load.goes_on()


def kill_each(cluster: Cluster, load: Workload) -> None:
    """Each broker, in turn."""
    for node_id in cluster.brokers:
        _kill(cluster, load, node_id)


def _kill(cluster: Cluster, load: Workload, node_id: int) -> None:
    cluster.brokers[node_id].kill()
    load.goes_on()
    cluster.brokers[node_id].restart()
    cluster.wait_healthy()
    load.goes_on()


def kill_coordinators(cluster: Cluster, load: Workload) -> None:
    """The broker that coordinates the group, share state or transactions: of each kind the first one."""
    kinds = dict(reversed([(kind, key) for key, kind in load.coordinators]))
    for kind, key in kinds.items():
        _kill(cluster, load, cluster.coordinator_of(key, kind))
    if not kinds:  # a producer without transactions has none
        _kill(cluster, load, cluster.leader_of(load.name))


def kill_controller(cluster: Cluster, load: Workload) -> None:
    """The active controller, with its broker."""
    _kill(cluster, load, cluster.active_controller())


def reassign(cluster: Cluster, load: Workload) -> None:
    """Each partition goes to the two replicas that do not lead it, and gets the third back as a follower; twice."""
    for _ in range(2):
        found = cluster.partitions(load.name)
        leaders = {place: each.leader_id for place, each in found.items()}
        left = {place: [node for node in each.replica_nodes if node != leaders[place]] for place, each in found.items()}
        cluster.reassign(left)
        load.goes_on()
        cluster.reassign({place: [*nodes, leaders[place]] for place, nodes in left.items()})
        load.goes_on()


def elect(cluster: Cluster, load: Workload) -> None:
    """The next replica of each partition becomes the preferred one and is elected, of the brokers' own topics too, and
    so all coordinators move; three times, so that each has led."""
    for _ in range(3):
        found = cluster.partitions(load.name, "__consumer_offsets", "__transaction_state", "__share_group_state")
        cluster.reassign({place: [*each.replica_nodes[1:], each.replica_nodes[0]] for place, each in found.items()})
        cluster.elect_preferred(list(found))
        load.goes_on()


def stop_for_a_minute(cluster: Cluster, load: Workload) -> None:
    """SIGSTOP the coordinator's broker, or the first partition's leader; its connections stay open."""
    keys = load.coordinators[:1]
    node_id = cluster.coordinator_of(*keys[0]) if keys else cluster.leader_of(load.name)
    began = time.monotonic()
    cluster.brokers[node_id].pause()
    until(
        lambda: time.monotonic() - began >= STOPPED_S, "a minute has passed", within_s=2 * STOPPED_S,
        meanwhile=load.goes_on,
    )  # fmt: skip
    cluster.brokers[node_id].resume()
    cluster.wait_healthy()
    load.goes_on()


FAULTS: Final[Mapping[str, Fault]] = {
    "rolling restart": rolling_restart,
    "each killed": kill_each,
    "coordinator killed": kill_coordinators,
    "controller killed": kill_controller,
    "reassignment": reassign,
    "election": elect,
    "stopped for a minute": stop_for_a_minute,
}
