"""GROUP_MAX_SIZE_REACHED as Apache Kafka answers it: to whom, and what the group has of the one that was refused."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.share import ShareGroupHeartbeatRequest
from test.broker.groups.requests import beat, consumer, join
from test.broker.raw_client import RawClient
from test.support.apache_kafka import ApacheKafka
from test.support.waiting import eventually

FULL, UNKNOWN_MEMBER, MEMBER_ID_REQUIRED = 81, 25, 79
ONE_MEMBER = {"group.max.size": "1", "group.consumer.max.size": "1", "group.share.max.size": "1"}


def share(member: str, epoch: int) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id="shared", member_id=member, member_epoch=epoch, subscribed_topic_names=["t"]
    )


@pytest.mark.deep("starts a broker of its own; the reactions are kept by test_classic_errors.py and test_consumer.py")
def test_a_full_group_refuses_a_join_and_does_not_have_the_member(
    start_apache_kafka: Callable[..., ApacheKafka],
) -> None:
    broker = start_apache_kafka(settings=ONE_MEMBER)
    host, _, port = broker.bootstrap.rpartition(":")
    with RawClient(int(port), host) as raw:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["classic"])
        eventually(lambda: raw.ask(find, 6).coordinators[0].error_code, 0)
        eventually(lambda: raw.ask(beat("classic", 1, "nobody"), 4).error_code, UNKNOWN_MEMBER)

        given = [raw.ask(join("classic"), 9) for _ in range(2)]
        assert [each.error_code for each in given] == [MEMBER_ID_REQUIRED] * 2, "one without an id is no member"
        assert raw.ask(join("classic", given[0].member_id), 9).error_code == 0
        assert raw.ask(join("classic", given[1].member_id), 9).error_code == FULL
        assert raw.ask(beat("classic", 1, given[1].member_id), 4).error_code == UNKNOWN_MEMBER

        first, second = str(uuid.uuid4()), str(uuid.uuid4())
        assert raw.ask(consumer("new", first, 0, ["t"]), 1).error_code == 0
        assert raw.ask(consumer("new", second, 0, ["t"]), 1).error_code == FULL
        assert raw.ask(consumer("new", second, 1), 1).error_code == FULL, "so is one that the group does not have"
        assert raw.ask(consumer("new", first, -1), 1).error_code == 0
        assert raw.ask(consumer("new", second, 0, ["t"]), 1).error_code == 0, "a member has left"

        assert raw.ask(share(first, 0), 1).error_code == 0
        assert raw.ask(share(second, 0), 1).error_code == FULL
        assert raw.ask(share(second, 1), 1).error_code == FULL
