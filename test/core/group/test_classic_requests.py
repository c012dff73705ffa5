"""The requests of a member of a classic group, in the form of each version."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.core.connection import ByVersion
from kafka.core.group.protocol import MemberSubscription, read_subscription
from kafka.errors import UnsupportedFieldError
from kafka.protocol.groups import JoinGroupRequest
from kafka.wire.codec import decode, encode
from test.core.group.classic_bench import BEAT_S, MAX_POLL_S, Bench, joined, synced


def test_a_join_says_all_assignors_in_the_users_order_and_both_time_outs() -> None:
    bench = Bench(("roundrobin", "range"), group_instance_id="i", rack="here")
    bench.subscribe("logs", "jobs")
    request = bench.request
    assert isinstance(request, JoinGroupRequest)
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (45_000, 300_000)
    assert (request.group_id, request.member_id, request.group_instance_id) == ("g", "", "i")
    assert request.protocol_type == "consumer"
    assert [each.name for each in request.protocols] == ["roundrobin", "range"]
    subscription = read_subscription(bytes(request.protocols[0].metadata))
    assert subscription == MemberSubscription(("jobs", "logs"), None, (), -1, "here")
    assert bench.asked is not None
    assert bench.asked.timeout_s == MAX_POLL_S + 5, "the broker may hold it for so long, and answer a little later"
    assert bench.member.state_name == "rebalancing"


def test_a_first_join_has_no_reason_and_no_rebalance_time_out_that_no_message_can_carry() -> None:
    bench = Bench(max_poll_interval_s=3e9)
    bench.poll()
    bench.subscribe("jobs")
    assert (bench.request.reason, bench.request.rebalance_timeout_ms) == (None, 2_147_483_647)


def test_reasons_are_cut_at_255_characters() -> None:
    bench = Bench().join(0)
    bench.member.rejoin("x" * 300, bench.now)
    bench.poll()
    bench.carry_out()
    assert bench.request.reason == "x" * 255


def test_a_leave_is_in_the_form_of_each_version() -> None:
    bench = Bench().join()
    bench.member.leave(bench.now)
    bench.poll()
    assert bench.asked is not None and isinstance(bench.asked.request, ByVersion)
    old: Any = bench.asked.request.build(2)
    assert (old.member_id, old.members) == ("me", [])
    new: Any = bench.asked.request.build(3)
    assert (new.member_id, new.members[0].member_id) == ("", "me")


def test_every_version_of_every_request_can_be_written() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    asked: list[Any] = [bench.request]
    bench.answer(joined())
    asked.append(bench.request)
    bench.answer(synced(0))
    bench.carry_out()
    bench.poll(BEAT_S)
    asked.append(bench.request)
    for request in asked:
        for version in range(type(request).min_version, type(request).max_version + 1):
            assert decode(type(request), encode(request, version), version).group_id == "g"
    join = asked[0]
    assert decode(JoinGroupRequest, encode(join, 0), 0).session_timeout_ms == 45_000, "of 0.9: both time-outs in one"
    assert decode(JoinGroupRequest, encode(join, 1), 1).rebalance_timeout_ms == 300_000


def test_a_static_member_needs_a_broker_that_knows_such() -> None:
    bench = Bench(group_instance_id="i")
    bench.subscribe("jobs")
    with pytest.raises(UnsupportedFieldError, match="group_instance_id"):
        encode(bench.request, 4)
    encode(bench.request, 5)
