"""When a group of consumers sees its topics, resolves its regular expressions and gets a new target."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kafka.broker.groups.consumer_group import ConsumerGroup
from kafka.broker.topics import TopicInfo
from test.broker.groups.hand import HandGroup
from test.support.optional import needs_re2


def read_back(hand: HandGroup) -> None:
    """The group as it is after a restart of the broker."""
    hand.group = ConsumerGroup(
        "g", lambda: hand.settings, hand.timers.of("g"), hand.topics, lambda: int(hand.now * 1000), hand.group.durable
    )


def test_a_target_is_made_when_the_interval_is_over() -> None:
    hand = HandGroup(assignment_interval_ms=1000)
    hand.join("a")
    hand.join("b")
    hand.now = 100.999
    assert hand.beat("b").epoch == 2
    hand.now = 101.0
    assert hand.beat("b").epoch == 3


def test_a_clock_that_was_set_back_does_not_hold_a_target_up() -> None:
    hand = HandGroup(assignment_interval_ms=1000)
    hand.join("a")
    hand.now = 50.0
    assert hand.join("b").epoch == 3


def test_topics_are_checked_when_they_are_reported_as_changed() -> None:
    hand = HandGroup(2)
    hand.join("a")
    hand.advance(1.1)
    hand.topics.all["t"] = TopicInfo(hand.topic_id, 3)
    assert hand.beat("a").epoch == 2
    hand.group.topics_changed({"other"})
    assert hand.beat("a").epoch == 2
    hand.group.topics_changed({"t"})
    assert hand.beat("a").epoch == 3


@needs_re2
def test_after_a_restart_topics_and_expressions_are_looked_at_once() -> None:
    hand = HandGroup(2)
    hand.join("a")
    hand.join("b", regex="x+")
    hand.topics.all["t"] = TopicInfo(hand.topic_id, 3)
    hand.topics.make("xx")
    hand.advance(1.1)
    read_back(hand)
    hand.beat("a")
    assert hand.group.subscribed_topics() == {"t", "xx"}
    assert hand.group.durable.target["a"] == {(hand.topic_id, number) for number in range(3)}


def test_a_topic_that_is_gone_stays_assigned_until_the_next_target() -> None:
    """CurrentAssignmentBuilder looks at the subscription when the member has changed it."""
    hand = HandGroup()
    hand.join("a")
    del hand.topics.all["t"]
    assert hand.beat("a", topics=frozenset({"t"})).assignment is None
    assert hand.beat("a", topics=frozenset({"u"})).assignment == frozenset()


@needs_re2
def test_a_group_is_subscribed_to_what_any_member_is() -> None:
    hand = HandGroup()
    hand.join("a")
    hand.topics.make("xx")
    hand.join("b", regex="x+")
    assert [hand.group.is_subscribed_to(name) for name in ("t", "xx", "u")] == [True, True, False]


@needs_re2
def test_expressions_are_resolved_again_after_10_s_if_topics_came_and_after_600_s_anyway() -> None:
    """GroupMetadataManager: REGEX_BATCH_REFRESH_MIN_INTERVAL_MS, group.consumer.regex.refresh.interval.ms."""
    hand = HandGroup()
    hand.join("a", regex="t+")
    hand.topics.make("tt")

    def topics_after(seconds: float) -> frozenset[str]:
        hand.now = 100.0 + seconds
        hand.beat("a")
        return hand.group.subscribed_topics()

    assert topics_after(11.0) == {"t"}, "nobody has told of a new topic"
    assert topics_after(600.0) == {"t"}
    assert topics_after(600.1) == {"t", "tt"}
    hand.topics.make("ttt")
    hand.group.topics_changed({"ttt"})
    assert topics_after(610.1) == {"t", "tt"}
    assert topics_after(610.2) == {"t", "tt", "ttt"}


@needs_re2
def test_a_new_expression_is_resolved_though_no_topic_came() -> None:
    hand = HandGroup()
    hand.join("a", regex="t+")
    hand.advance(10.1)
    hand.topics.make("xx")
    hand.join("b", regex="x+")
    assert hand.group.subscribed_topics() == {"t", "xx"}
    assert {text: found.at_ms for text, found in hand.group.durable.regexes.items()} == {"t+": 100_000, "x+": 110_100}


@needs_re2
def test_an_expression_that_finds_what_others_subscribe_to_is_news_all_the_same() -> None:
    hand = HandGroup()
    hand.join("a")
    hand.join("b", regex="t+")
    assert (hand.group.epoch, hand.group.state) == (3, "Assigning")


@needs_re2
def test_who_takes_up_or_drops_a_known_expression_changes_the_group() -> None:
    hand = HandGroup()
    hand.join("a", regex="t+")
    hand.beat("a")
    hand.join("b", topics=frozenset())
    epoch = hand.group.epoch
    hand.beat("b", regex="t+")
    assert hand.group.epoch == epoch + 1
    hand.beat("b", regex="")
    assert hand.group.epoch == epoch + 2
    hand.beat("b", regex="x+")
    assert hand.group.epoch == epoch + 2, "it is not resolved yet"


@needs_re2
def test_expressions_that_nobody_has_any_more_are_forgotten() -> None:
    hand = HandGroup()
    for member, regex in (("a", "t+"), ("b", "x+"), ("c", "y+")):
        hand.join(member, regex=regex)
        hand.advance(10.1)
    assert set(hand.group.durable.regexes) == {"t+", "x+", "y+"}
    hand.beat("a", regex="x+")
    assert set(hand.group.durable.regexes) == {"x+", "y+"}
    hand.group.remove(["c"])
    assert set(hand.group.durable.regexes) == {"x+"}
    hand.group.remove(["a", "b"])
    assert hand.group.durable.regexes == {}


@needs_re2
def test_an_expression_for_which_there_is_no_time_keeps_the_topics_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = HandGroup()
    hand.join("a", regex="t+")

    def none(texts: Iterable[str], names: Iterable[str]) -> dict[str, frozenset[str] | None]:
        return dict.fromkeys(texts)

    monkeypatch.setattr("kafka.broker.groups.consumer_group.resolve", none)
    hand.advance(10.1)
    hand.join("b", regex="x+")
    assert {text: found.topics for text, found in hand.group.durable.regexes.items()} == {"t+": {"t"}, "x+": set()}
