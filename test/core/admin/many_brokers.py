"""Brokers by hand for dialogues that ask several: who leads what, who coordinates what, and what each API answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka.core.connection import ByVersion
from kafka.core.dialogue import All, RefreshMetadata, Send
from kafka.errors import IncompatibleBrokerVersion
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.metadata import DescribeClusterRequest, DescribeClusterResponse, MetadataRequest, MetadataResponse
from kafka.structs import TopicPartition
from test.core.test_retry import drive

Handler = Callable[[Any, Any], Any]
"""``handler(node, request)``: the answer; an exception in its place is raised."""


class Brokers:
    """``leaders``: the leader of each partition, or an error code as a negative number; ``where``: coordinators."""

    def __init__(
        self, leaders: Mapping[TopicPartition, int] = {}, where: Mapping[str, int] = {}, version: int = 12
    ) -> None:
        self.leaders = dict(leaders)
        self.where = where
        self.version = version
        self.ids = [1, 2]
        self.key_type = 1
        """Of what ``where`` names the coordinators: 0 groups, 1 transactional ids."""
        self.handlers: dict[type, Handler] = {
            MetadataRequest: self._metadata,
            FindCoordinatorRequest: self._coordinators,
            DescribeClusterRequest: self._cluster,
        }
        self.sent: list[tuple[Any, Any]] = []
        self.refreshes = 0

    def run(self, dialogue: Any) -> Any:
        return drive(dialogue, self._answer)[0]

    def asked(self, kind: type) -> list[tuple[Any, Any]]:
        return [(target, request) for target, request in self.sent if isinstance(request, kind)]

    def _answer(self, step: Any) -> Any:
        if isinstance(step, All):
            found = [self._answer(each) for each in step.steps]
            for each in found:
                if isinstance(each, Exception):
                    raise each
            return found
        if isinstance(step, RefreshMetadata):
            self.refreshes += 1
        if not isinstance(step, Send):
            return None
        request: Any = step.request
        if isinstance(request, ByVersion):
            request = request.build(min(self.version, step.max_version or self.version))
        elif step.min_version is not None and step.min_version > self.version:
            raise IncompatibleBrokerVersion(f"{type(request).__name__} {step.min_version}")
        self.sent.append((step.target, request))
        handler = self.handlers.get(type(request))
        if handler is None:
            raise IncompatibleBrokerVersion(type(request).__name__)
        answer = handler(step.target, request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _metadata(self, node: Any, request: MetadataRequest) -> MetadataResponse:
        names = {topic for topic, _ in self.leaders} if request.topics is None else {t.name for t in request.topics}
        assert request.topics is None or not request.allow_auto_topic_creation
        topics = []
        for name in sorted(str(name) for name in names):
            leaders = {number: leader for (topic, number), leader in self.leaders.items() if topic == name}
            code = 0 if leaders else 3
            partitions = [
                MetadataResponse.MetadataResponsePartition(
                    error_code=5 if leader < 0 else 0,
                    partition_index=number,
                    leader_id=leader,
                    replica_nodes=[],
                    isr_nodes=[],
                )
                for number, leader in leaders.items()
            ]
            topics.append(MetadataResponse.MetadataResponseTopic(error_code=code, name=name, partitions=partitions))
        return MetadataResponse(brokers=[], topics=topics)

    def _coordinators(self, node: Any, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        assert request.key_type == self.key_type
        if self.version < 4:
            return FindCoordinatorResponse(node_id=self.where[request.key])
        entry = FindCoordinatorResponse.Coordinator
        keys = request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[entry(key=key, node_id=self.where[key]) for key in keys])

    def _cluster(self, node: Any, request: DescribeClusterRequest) -> DescribeClusterResponse:
        broker = DescribeClusterResponse.DescribeClusterBroker
        found = [broker(broker_id=number, host="h", port=1) for number in self.ids]
        return DescribeClusterResponse(throttle_time_ms=0, error_code=0, cluster_id="c", brokers=found)
