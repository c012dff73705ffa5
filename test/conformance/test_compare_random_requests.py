"""Requests by chance to the embedded broker and to Apache Kafka 4.3.0, one for one: their answers are the same, and so
is what they leave behind.

``KAFKA_TEST_COMPARE_ROUNDS`` multiplies how many are asked; each round is another seed. The seeds are fixed, unlike
those of other random tests, and there is one round in the deep tier, too: more of them still bring up differences in
requests that no client makes (``test/README.rst``). What is different on purpose is in ``intended_differences.py``, and
for users in the handlers' docstrings.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.configs import DescribeConfigsRequest
from kafka.protocol.fetch import FetchRequest
from kafka.protocol.registry import NAMES, REGISTRY
from kafka.testing import EmbeddedBroker
from test.conformance.broker_pair import BrokerPair, Difference, Side, differences
from test.conformance.intended_differences import alike, is_not_asked, is_on_purpose
from test.conformance.random_requests import Batch, RandomRequests, Scene, for_side
from test.conformance.scenes import SETTINGS, VIEWS, clear, make_internal_topics, make_scene, produced, settle
from test.support.apache_kafka import ApacheKafka, require_apache_kafka

REQUESTS = 60
"""For each API and round."""

NOT_BY_CHANCE = {
    "JoinGroup": "waits for other members; test_groups.py",
    "UnregisterBroker": "would end the only broker",
    "UpdateFeatures": "would change what all other tests see; test_cluster_apis.py",
    "AddRaftVoter": "would change the quorum",
    "RemoveRaftVoter": "would change the quorum",
}
"""APIs that are left out here, and why."""

STEPS = 12
"""Fetches in a session."""

SHOWN = 30
"""Kinds of differences of an API that a failing test names."""

LOWEST = {"Produce": 3}
"""API -> its lowest version that is served, where Kafka lists some that it does not serve."""

Found = tuple[str, Difference]
"""A request, and where the answers to it differ."""


@pytest.fixture(scope="module")
def pair() -> Iterator[BrokerPair]:
    require_apache_kafka()
    with EmbeddedBroker(settings=SETTINGS) as embedded, ApacheKafka(settings=SETTINGS) as apache:
        both = BrokerPair(embedded.bootstrap, apache.bootstrap)
        try:
            make_internal_topics(both)
            yield both
        finally:
            both.close()


_scenes = itertools.count(1)


@pytest.fixture
def scene(pair: BrokerPair) -> Iterator[Scene]:
    """Topics with records on both brokers; settings, quotas and topics are taken away again."""
    made = make_scene(pair, str(next(_scenes)).translate(str.maketrans("0123456789", "abcdefghij")))
    yield made
    clear(pair, made)


def ranges(side: Side) -> dict[int, tuple[int, int]]:
    answer: Any = side.ask(ApiVersionsRequest(client_software_name="twins", client_software_version="1"), 4)
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted({NAMES[key] for key in REGISTRY} - NOT_BY_CHANCE.keys()))
def test_answers_are_those_of_apache_kafka(pair: BrokerPair, scene: Scene, name: str, compare_rounds: int) -> None:
    key = next(key for key, known in NAMES.items() if known == name)
    shared = [found.get(key) for found in map(ranges, pair.sides)]
    if shared[0] is None or shared[1] is None:
        pytest.skip(f"{name} is not spoken by {'the embedded broker' if shared[0] is None else 'Apache Kafka 4.3.0'}")
    assert shared[0] == shared[1]
    cls = REGISTRY[key].request
    low, high = max(shared[0][0], cls.min_version, LOWEST.get(name, 0)), shared[0][1]
    views = VIEWS[name](scene) if name in VIEWS else []
    left_behind = settle(pair, views)
    found: list[Found] = [("(before the first request)", one) for one in left_behind]
    for round in range(compare_rounds):
        chance = RandomRequests(random.Random(f"{name} {round}"), scene)
        for at in range(REQUESTS):
            version = low + at % (high - low + 1)
            made = chance.make(cls, version, pair.sides[0])
            if is_not_asked(name, made):
                continue
            answers = pair.ask(lambda side, made=made: for_side(made, side), version)  # type: ignore[misc]
            parted = [one for one in differences(*alike(name, *answers), name) if not is_on_purpose(name, made, one)]
            found += [(f"{made!r} v{version}", one) for one in parted]
            if views:
                now = settle(pair, views, left_behind)
                found += [(f"after {made!r} v{version}", one) for one in now if one not in left_behind]
                left_behind = now
    assert not found, summary(found)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_settings_have_the_types_and_defaults_of_apache_kafka(pair: BrokerPair, scene: Scene) -> None:
    kinds = ((2, scene.topics[0]), (2, scene.topics[2]), (4, "1"), (4, ""), (32, scene.groups[0]))
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in kinds
    ]
    both = pair.ask(DescribeConfigsRequest(resources=resources, include_synonyms=True), 4)
    found = differences(*alike("DescribeConfigs", *both), "DescribeConfigs")
    assert not found, summary([("all settings", one) for one in found])


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", range(7, 19))
def test_fetch_sessions_return_what_those_of_apache_kafka_return(
    pair: BrokerPair, scene: Scene, version: int, compare_rounds: int
) -> None:
    """A full fetch, then incremental ones that add, move and forget partitions, with new records between them."""
    found: list[Found] = []
    for seed in range(compare_rounds):
        rng = random.Random(f"{version} {seed}")
        sessions: dict[Side, int] = {}
        for epoch in range(STEPS):
            if rng.random() < 0.3:
                topic, number = rng.choice(scene.topics[:2]), rng.choice((0, 1))
                for side in pair.sides:
                    side.ask(produced(side, topic, number, Batch((b"new",))), 9)
            wanted = partitions_by_chance(rng, scene)
            forgotten = partitions_by_chance(rng, scene) if epoch else []
            answers = []
            for side in pair.sides:
                request = session_fetch(side, version, sessions.get(side, 0), epoch, wanted, forgotten)
                answer = side.ask(request, version)
                sessions.setdefault(side, answer.session_id)
                answer.session_id = bool(answer.session_id)
                answers.append(side.plain(answer))
            made = f"v{version} step {epoch}: {wanted!r}, without {forgotten!r}"
            found += [(made, one) for one in differences(answers[0], answers[1], "Fetch")]
    assert not found, summary(found)


def partitions_by_chance(rng: random.Random, scene: Scene) -> list[tuple[str, int, int]]:
    """Topic, partition, offset."""
    places = {(rng.choice(scene.topics), rng.choice((0, 1))): rng.choice((0, 2, 3, 5, 100)) for _ in range(3)}
    return [(topic, number, offset) for (topic, number), offset in sorted(places.items())]


def session_fetch(
    side: Side,
    version: int,
    session_id: int,
    epoch: int,
    wanted: list[tuple[str, int, int]],
    forgotten: list[tuple[str, int, int]],
) -> FetchRequest:
    """One fetch of a session."""
    by_id = version >= 13

    def name(topic: str) -> dict[str, Any]:
        return {"topic_id": side.value(f"$topic-id:{topic}")} if by_id else {"topic": topic}

    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchRequest.FetchTopic(
                partitions=[
                    FetchRequest.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
                **name(topic),
            )
            for topic, number, offset in wanted
        ],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(partitions=[number], **name(topic)) for topic, number, _ in forgotten
        ],
    )


def summary(found: list[Found]) -> str:
    """Differences by kind, with one example of each."""
    kinds: dict[tuple[str, str, str], list[Found]] = {}
    for one in found:
        path, first, second = one[1]
        kinds.setdefault((re.sub(r"\[\d+\]", "[]", path), repr(first)[:1200], repr(second)[:1200]), []).append(one)
    lines = [f"{len(found)} differences of {len(kinds)} kinds"]
    for (path, first, second), same in list(kinds.items())[:SHOWN]:
        lines.append(f"{len(same)} x {path}: {first}, and {second} of Apache Kafka, as in {same[0][0]}")
    return "\n".join(lines)
