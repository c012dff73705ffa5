"""Where the embedded broker answers otherwise than Apache Kafka 4.3.0 on purpose; the handlers' docstrings tell users.

A row is as narrow as it can be: an API, the path of a value in its answer, when, and why.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kafka.wire.types import ZERO_UUID
from test.conformance.broker_pair import Difference
from test.conformance.random_requests import Made


class Row(NamedTuple):
    """``path``: a pattern for the whole path; ``when``: the request and the difference."""

    api: str
    path: str
    why: str
    when: Callable[[Made, Difference], bool] = lambda made, difference: True


MISSING: Final[dict[str, set[Any]]] = {"api_key": {83, 84, 85, 86, 87, 88, 89}, "name": {"streams.version"}}
"""What is not here, by the field that names it."""


def _is_what_is_missing(made: Made, difference: Difference) -> bool:
    """Whether nothing else is missing in a list."""
    field = "api_key" if difference.path.endswith("api_keys") else "name"
    return bool(difference.first == [one for one in difference.second if one[field] not in MISSING[field]])


ROWS: Final[tuple[Row, ...]] = (
    Row(
        "ApiVersions",
        r"ApiVersions\.(api_keys|supported_features|finalized_features)",
        "groups of Kafka Streams are not here, and neither is what brokers tell one another of share groups",
        _is_what_is_missing,
    ),
    Row(
        "Fetch",
        r"Fetch\.responses\[\d+\]\.partitions\[\d+\]\.records\[\d+\]",
        "no batch is cut at the end of an answer",
        lambda made, difference: difference.first == b"",
    ),
)

NOT_ASKED: Final[tuple[tuple[str, str, Callable[[Made], bool]], ...]] = (
    *(
        (
            name,
            "there are no loggers whose levels could be set",
            lambda made: any(one.values["resource_type"] == 8 for one in _resources(made)),
        )
        for name in ("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs")
    ),
    (
        "AddPartitionsToTxn",
        "Apache Kafka never answers a request without transactions",
        lambda made: not made.values.get("transactions") and "v3_and_below_topics" not in made.values,
    ),
    (
        "AddPartitionsToTxn",
        "Apache Kafka answers for a transactional id that is named twice with either's partitions",
        lambda made: _has_twice(
            [one.values.get("transactional_id", "") for one in made.values.get("transactions") or []]
        ),
    ),
    (
        "DescribeShareGroupOffsets",
        "Apache Kafka does not answer when a known topic has no such partition",
        lambda made: any(
            not 0 <= number < 2
            for group in made.values.get("groups") or []
            for topic in group.values.get("topics") or []
            for number in topic.values.get("partitions") or []
        ),
    ),
    (
        "ShareGroupHeartbeat",
        "Apache Kafka assigns partitions new to the group with the second heartbeat; test_compare_sequences.py",
        lambda made: any(
            name.startswith(("left-", "right-", "compact-", "__"))
            for name in made.values.get("subscribed_topic_names") or []
        ),
    ),
    (
        "WriteTxnMarkers",
        "Apache Kafka never answers a marker that has a partition twice, nor a marker with nothing to write after one "
        "that has something",
        lambda made: _has_partition_twice(made) or len(made.values.get("markers") or []) > 1,
    ),
    (
        "Fetch",
        "Apache Kafka stumbles (-1) over a partition of no topic at all that meets another one in a hash map",
        lambda made: _names_no_topic(made),
    ),
    (
        "IncrementalAlterConfigs",
        "of a resource with two kinds of faulty operations, Apache Kafka finds the one that a hash map has first",
        lambda made: any({-1, 4} & ops and {2, 3} & ops for ops in map(_operations, _resources(made))),
    ),
    (
        "AlterConfigs",
        "Apache Kafka never answers a request that names a resource twice",
        lambda made: _has_twice([_resource(one) for one in _resources(made)]),
    ),
)
"""API, why, which requests."""


OF_EACH_BROKER: Final = frozenset(
    {"advertised.listeners", "connections.max.idle.ms", "listener.security.protocol.map", "listeners", "node.id"}
)
"""Settings of the broker that each of the two was started with."""

NOT_CHANGED_HERE: Final = ("listener", "sasl.", "ssl.", "group.share.assignment.interval.ms")
"""Beginnings of settings that Apache Kafka lets change while it runs; here they are read at the start, and said to be
read-only."""


def alike(api: str, first: Any, second: Any) -> tuple[Any, Any]:
    """Both answers without what only Apache Kafka has: settings of the broker that mean nothing here, and those of
    groups of Kafka Streams."""
    if api == "DescribeConfigs" and isinstance(first, dict) and isinstance(second, dict):
        for ours, theirs in zip(first["results"], second["results"], strict=False):
            known = {row["name"] for row in ours["configs"]}
            theirs["configs"] = [
                row
                for row in theirs["configs"]
                if row["name"] in known
                or not (theirs["resource_type"] == 4 or (theirs["resource_type"] == 32 and _is_of_streams(row["name"])))
            ]
            for row in (*ours["configs"], *theirs["configs"]):
                _forget_own(row)
    return first, second


def _forget_own(row: dict[str, Any]) -> None:
    name = row["name"]
    if name in OF_EACH_BROKER:
        row.update(value=None, config_source=None, synonyms=None)
    if name.startswith(NOT_CHANGED_HERE):
        row.update(read_only=None)


def _is_of_streams(name: str) -> bool:
    return name.startswith("streams.")


def is_on_purpose(api: str, made: Made, difference: Difference) -> bool:
    """Whether a row says so."""
    return any(
        row.api == api and re.fullmatch(row.path, difference.path) and row.when(made, difference) for row in ROWS
    )


def is_not_asked(api: str, made: Made) -> bool:
    """Whether the request is left out."""
    return any(name == api and chosen(made) for name, _, chosen in NOT_ASKED)


def _resources(made: Made) -> list[Any]:
    return made.values.get("resources") or []


def _names_no_topic(made: Made) -> bool:
    """Whether there are several partitions, and one of them has neither the name of a topic nor an id."""
    topics = [one.values for one in made.values.get("topics") or [] if one.values.get("partitions")]
    without = [one for one in topics if not one.get("topic") and one.get("topic_id", ZERO_UUID) == ZERO_UUID]
    return bool(without) and sum(len(one["partitions"]) for one in topics) > 1


def _operations(resource: Made) -> set[int]:
    return {one.values["config_operation"] for one in resource.values.get("configs") or []}


def _resource(made: Made) -> tuple[int, str]:
    return made.values["resource_type"], made.values["resource_name"]


def _has_twice(found: list[Any]) -> bool:
    return len(set(found)) < len(found)


def _has_partition_twice(made: Made) -> bool:
    return any(
        _has_twice([(topic.values.get("name"), at) for topic in one.values.get("topics") or []
                    for at in topic.values.get("partition_indexes") or []])
        for one in made.values.get("markers") or []
    )  # fmt: skip
