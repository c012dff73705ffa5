"""The same requests to two brokers, and their answers compared: what the embedded one says is what Apache Kafka says.

Names that a broker makes up itself (ids of topics, members and producers, its address) cannot be the same. Each
broker's own stand for one *name* (``$topic-id:orders``, ``$producer-1``, by the order in which they were first seen),
and answers are compared with the names in the place of what they stand for. Requests are written with the names, too.

Compared is everything else, null and empty told apart, but for :data:`IGNORED`. What two brokers may tell in any order
is in :data:`UNORDERED`; other lists have one. What is different on purpose is in ``intended_differences.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.list_offsets import ListOffsetsResponse
from kafka.protocol.log_dirs import DescribeLogDirsResponse
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.produce import ProduceRequest
from kafka.protocol.registry import NAMES
from kafka.records import HEADER_BYTES, parse_header
from kafka.wire.message import Request, Struct, fields_of
from kafka.wire.types import ZERO_UUID
from test.broker.raw_client import RawClient
from test.conformance.unordered import OF_COORDINATORS

IGNORED: Final = {
    "error_message": "texts that explain are for people",
    "acknowledge_error_message": "texts that explain are for people",
    "batch_index_error_message": "texts that explain are for people",
    "throttle_time_ms": "depends on what has been asked before, and how fast",
    "finalized_features_epoch": "an offset in Apache Kafka's log of metadata",
    "documentation": "texts that explain are for people",
    "unknown_tagged_fields": "what the schema does not know",
    "total_bytes": "the disk's",
    "usable_bytes": "the disk's, a moment ago",
}
"""Field -> why it is not compared."""

MADE_UP: Final = {
    "member_id": "member",
    "leader": "member",
    "producer_id": "producer",
    "topic_id": "topic-id",
    "cluster_id": "cluster",
    "log_dir": "directory",
    "host": "host",
    "log_append_time_ms": "now",
    "transaction_start_time_ms": "now",
}
"""Fields whose values become names, and of what kind."""

OWN: Final = frozenset({"host", "port", "cluster", "directory", "now"})
"""Kinds of which a broker has but one name for all."""

NOTHING: Final = ("", -1, None, ZERO_UUID)

UNORDERED: Final = frozenset(
    {
        "AlterConfigs.responses",
        "AlterClientQuotas.entries",
        "AlterClientQuotas.entries.entity",
        "AlterReplicaLogDirs.results",
        "AlterReplicaLogDirs.results.partitions",
        "CreatePartitions.results",
        "CreateTopics.topics",
        "DeleteRecords.topics",
        "DeleteRecords.topics.partitions",
        "DeleteTopics.responses",
        "DescribeClientQuotas.entries",
        "DescribeClientQuotas.entries.entity",
        "DescribeClientQuotas.entries.values",
        "DescribeConfigs.results",
        "DescribeConfigs.results.configs",
        "AlterUserScramCredentials.results",
        "DescribeUserScramCredentials.results",
        "DescribeLogDirs.results.topics",
        "DescribeLogDirs.results.topics.partitions",
        "ElectLeaders.replica_election_results",
        "IncrementalAlterConfigs.responses",
        "ListConfigResources.config_resources",
        "ListOffsets.topics",
        "ListOffsets.topics.partitions",
        "Metadata of all.topics",
        "OffsetForLeaderEpoch.topics",
        "OffsetForLeaderEpoch.topics.partitions",
        "Produce.responses",
        "Produce.responses.partition_responses",
    }
) | OF_COORDINATORS
"""Lists without an order: Apache Kafka keeps them in hash maps. As paths without their indexes."""

_LAST_GIVEN: Final = 1 << 32
"""No broker makes up an id as low: it is one of the tests."""

CONFIGURING: Final = (AlterConfigsRequest, IncrementalAlterConfigsRequest)
"""What changes settings of brokers."""

HUNG_UP: Final = "hung up"
SILENT: Final = "silent"


IDENTITY: Final = (
    "group_id", "member_id", "transactional_id", "producer_id", "name", "topic", "topic_name", "topic_id",
    "partition_index", "partition", "index", "resource_type", "resource_name", "entity", "user",
)  # fmt: skip
"""Fields by which two brokers' elements of such a list are put side by side."""


class Side:
    """One broker, and what its own ids stand for."""

    def __init__(self, bootstrap: str) -> None:
        self.port = int(bootstrap.rpartition(":")[2])
        self._client: RawClient | None = None
        self._names: dict[tuple[str, Any], str] = {}
        self._values: dict[str, Any] = {}
        self.was_configured = False
        """Settings may be others than at the start."""

    def ask(self, request: Request[Any], version: int, timeout_s: float = 20.0) -> Any:
        """The answer, :data:`HUNG_UP` or :data:`SILENT`."""
        self.was_configured = self.was_configured or isinstance(request, CONFIGURING)
        if self._client is None:
            self._client = RawClient(self.port)
        self._client.socket.settimeout(timeout_s)
        try:
            if isinstance(request, ProduceRequest) and request.acks == 0:  # silence is all that is to come
                self._client.send(request, version)
                self._client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
                return SILENT
            return self._client.ask(request, version)
        except (EOFError, ConnectionError):
            outcome = HUNG_UP
        except TimeoutError:
            outcome = SILENT
        self.close()
        return outcome

    def close(self) -> None:
        """The next request takes a new connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def topic_id(self, name: str) -> UUID:
        """The id that this broker gave a topic; zero for a topic that it does not have."""
        answer = self.ask(
            MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False),
            12,
        )
        found: UUID = answer.topics[0].topic_id
        if found != ZERO_UUID:
            self.learn("topic-id", found, f"$topic-id:{name}")
        return found

    def learn(self, kind: str, value: Any, name: str) -> str:
        """Give a value of this broker a name, if it has none; the name."""
        return self._names.setdefault((kind, value), self._values.setdefault(name, value) and name or name)

    def value(self, name: str) -> Any:
        """What a name stands for here."""
        return self._values[name]

    def plain(self, answer: Any) -> Any:
        """An answer as plain values, with names for what the broker has made up."""
        return answer if isinstance(answer, str) else self._plain("", answer)

    def _plain(self, field: str, value: Any) -> Any:
        if isinstance(value, DescribeLogDirsResponse.DescribeLogDirsTopic) and value.name.startswith("__"):
            for partition in value.partitions:
                partition.partition_size = 0  # as much as a coordinator has written so far
        if isinstance(value, ListOffsetsResponse.ListOffsetsTopicResponse) and value.name.startswith("__"):
            for answer in value.partitions:
                answer.timestamp = min(answer.timestamp, 0)  # when a coordinator has written it
        if isinstance(value, Struct):
            self._learn_topic(value)
            return {
                each.name: self._plain(each.name, getattr(value, each.name))
                for each in fields_of(type(value))
                if each.name not in IGNORED
            }
        if isinstance(value, (list, tuple)):
            return [self._plain(field, each) for each in value]
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._records(bytes(value)) if field == "records" else bytes(value)
        if isinstance(value, UUID) and value.int > _LAST_GIVEN:
            return self._name("topic-id" if field == "topic_id" else field, value)
        if field == "session_id":
            return "$session" if value else value  # by chance; whether there is one is what counts
        if field == "port":
            return "$port" if value == self.port else value
        if field in MADE_UP and value not in NOTHING:
            return self._name(MADE_UP[field], value)
        return value

    def _learn_topic(self, value: Struct) -> None:
        """Ids of topics are known by the topic's name, in whatever order they come."""
        topic_id = getattr(value, "topic_id", ZERO_UUID)
        name = getattr(value, "name", None) or getattr(value, "topic_name", None) or getattr(value, "topic", None)
        if topic_id != ZERO_UUID and name and ("topic-id", topic_id) not in self._names:
            label = f"$topic-id:{name}"
            while label in self._values:  # made anew
                label += "'"
            self.learn("topic-id", topic_id, label)

    def _name(self, kind: str, value: Any) -> str:
        if kind in OWN:
            return f"${kind}"
        if isinstance(value, UUID) and value.int < 1000:
            return str(value)  # one of the tests, which nobody knows
        if isinstance(value, str) and not any(character.isdigit() for character in value):
            return value  # a name that the test has given
        known = self._names.get((kind, value))
        if known is None:
            count = sum(1 for key in self._names if key[0] == kind)
            known = self.learn(kind, value, f"${kind}-{count + 1}")
        return known

    def _records(self, data: bytes) -> Any:
        """Batches one by one; of those of a producer all but its id, and the checksum, which is over that, too."""
        found: list[Any] = []
        at = 0
        while (header := parse_header(data, at) if len(data) - at > HEADER_BYTES else None) is not None:
            batch = data[at : at + header.length]
            if header.has_producer_id:
                batch = batch[:17] + batch[21:43] + batch[51:]
                found.append(self._name("producer", header.producer_id))
            found.append(batch)
            at += header.length
        return [*found, data[at:]]


class Difference(NamedTuple):
    """Where two answers part: the path to the value, and both."""

    path: str
    first: Any
    second: Any


class BrokerPair:
    """Two brokers that are asked the same."""

    def __init__(self, first: str, second: str) -> None:
        self.sides = (Side(first), Side(second))

    def ask(
        self, make: Callable[[Side], Request[Any]] | Request[Any], version: int, *, timeout_s: float = 20.0
    ) -> tuple[Any, Any]:
        """Ask both, the same request or the one that ``make`` gives for a side; the answers with names in them."""
        answers = []
        for side in self.sides:
            request = make if isinstance(make, Request) else make(side)
            answers.append(ordered(side.plain(side.ask(request, version, timeout_s)), title(request)))
        return answers[0], answers[1]

    def close(self) -> None:
        for side in self.sides:
            side.close()


def title(request: Request[Any]) -> str:
    """The API's name; of one that is asked for everything, which comes in any order, "of all"."""
    name = NAMES[request.api_key]
    return f"{name} of all" if isinstance(request, MetadataRequest) and not request.topics else name


def ordered(value: Any, path: str) -> Any:
    """An answer with every list that has no order in one of ours. ``path``: to begin with, the API's name."""
    if isinstance(value, dict):
        return {name: ordered(each, f"{path}.{name}") for name, each in value.items()}
    if isinstance(value, list):
        found = [ordered(each, path) for each in value]
        return sorted(found, key=_identity) if path in UNORDERED else found
    return value


def _identity(value: Any) -> str:
    """What to sort an element by, so that those of one thing meet: its names and numbers first."""
    if not isinstance(value, dict):
        return repr(value)
    return repr([value[name] for name in IDENTITY if value.get(name) is not None]) + repr(value)


def differences(first: Any, second: Any, path: str) -> list[Difference]:
    """Where two answers, plain and ordered, differ. ``path``: to begin with, the API's name."""
    if isinstance(first, dict) and isinstance(second, dict):
        return [
            found
            for name in sorted(first.keys() | second.keys())
            for found in differences(first.get(name), second.get(name), f"{path}.{name}")
        ]
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return [
            found
            for at, (one, other) in enumerate(zip(first, second, strict=True))
            for found in differences(one, other, f"{path}[{at}]")
        ]
    return [] if repr(first) == repr(second) else [Difference(path, first, second)]  # by their looks: nan is nan
