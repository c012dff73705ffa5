"""What is expired, as Apache Kafka 4.3.0 sees it, and the turns that retention and compaction have in a broker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka.broker.log import FilePool, LogConfig, PartitionLog
from kafka.broker.log.partition_log import find_expired_segments
from kafka.protocol.list_offsets import ListOffsetsRequest
from test.broker.driver import EPOCH_S, HandBroker, fetch_request, fetched, plain, values
from test.broker.driver import batch as driver_batch
from test.broker.log.batches import batch

DAY_MS = 24 * 3600 * 1000


def log_of(path: Path, *timestamps: int, size: int = 10, now_ms: int = 0, **config: int | bool) -> PartitionLog:
    """One segment for each of these, the last one not closed."""
    values = LogConfig()._replace(retention_ms=-1)._replace(**config)  # type: ignore[arg-type]
    log = PartitionLog(str(path), "t-0", FilePool(4), values, sync=False)
    for at, timestamp in enumerate(timestamps):
        log.append(batch([b"x" * size], timestamp=timestamp), now_ms=now_ms)
        if at < len(timestamps) - 1:
            log.roll(now_ms)
    return log


@pytest.mark.parametrize(
    ("timestamps", "start", "is_all"),
    [
        ((1000, 2000, 3000), None, False),
        ((999, 2000, 3000), 1, False),
        ((999, 998, 3000), 2, False),
        ((1000, 1, 3000), None, False),
        ((10, 20, 30), 3, True),
        ((99_999, 1, 2), None, False),
        ((), None, False),
    ],
)
def test_by_time_the_oldest_segments_go_whose_greatest_timestamp_is_too_old(
    tmp_path: Path, timestamps: tuple[int, ...], start: int | None, is_all: bool
) -> None:
    log = log_of(tmp_path / "t", *timestamps, retention_ms=1000)
    found = find_expired_segments(log, 2000)
    assert (None if found is None else found.start_offset) == start
    assert found is None or found.is_all == is_all


def test_a_segment_without_timestamps_is_as_old_as_its_last_write(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t", -1, -1, retention_ms=1000, now_ms=5000)
    assert find_expired_segments(log, 6000) is None
    found = find_expired_segments(log, 6001)
    assert found is not None
    assert found.is_all


@pytest.mark.parametrize(
    ("limit", "gone"), [(10**6, 0), (301, 0), (300, 1), (201, 1), (200, 2), (101, 2), (1, 3), (0, 4)]
)
def test_by_size_segments_go_as_long_as_enough_is_left(tmp_path: Path, limit: int, gone: int) -> None:
    log = log_of(tmp_path / "t", 1, 1, 1, 1, size=32)
    assert {segment.size for segment in log.segments} == {100}
    log.config = log.config._replace(retention_bytes=limit)
    found = find_expired_segments(log, 0)
    assert (0 if found is None else found.start_offset) == gone


def test_what_is_compacted_only_does_not_expire(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t", 1, 1, retention_ms=1, deletes=False, compacts=True, retention_bytes=0)
    assert find_expired_segments(log, DAY_MS) is None
    log.config = log.config._replace(deletes=True)
    assert find_expired_segments(log, DAY_MS) is not None


# -- in a broker -------------------------------------------------------------------------------------------------------


def begin(hand: HandBroker, topic: str, timestamp: int) -> int:
    P = ListOffsetsRequest.ListOffsetsTopic
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    topics = [P(name=topic, partitions=[partition])]
    answer = hand.ask(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics))
    return answer.topics[0].partitions[0].offset


def now_ms(hand: HandBroker) -> int:
    return int((hand.now + EPOCH_S) * 1000)


def test_expired_records_go_at_the_next_check_and_waiting_fetches_are_notified(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path)
    hand.create_topic("t", retention_ms="100000", segment_bytes="1048576")
    for _ in range(3):
        hand.produce("t", driver_batch(b"x" * 600_000))
    assert begin(hand, "t", -2) == 0
    waiting = hand.send(fetch_request("t", offsets=(3,), max_wait_ms=900_000), 12)
    hand.advance(50)
    assert begin(hand, "t", -2) == 0
    hand.produce("t", driver_batch(b"new", timestamp=now_ms(hand)))
    assert waiting.done
    hand.advance(400)
    assert begin(hand, "t", -2) == begin(hand, "t", -1) == 4, "all of it: the last segment was too old, too"
    late = hand.send(fetch_request("t", offsets=(0,)), 12)
    hand.tick()
    assert fetched(hand.answer(fetch_request("t"), late, 12))[0].error_code == 1
    assert hand.produce("t", driver_batch(b"after", timestamp=now_ms(hand))).base_offset == 4
    hand.restart()
    assert begin(hand, "t", -2) == 4
    hand.broker.close()


def test_a_fetch_that_waits_for_more_bytes_ends_when_its_records_are_deleted(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path)
    hand.create_topic("t", retention_ms="100000")
    hand.produce("t", driver_batch(b"x"))
    request = fetch_request("t", min_bytes=1 << 20, max_wait_ms=900_000)
    waiting = hand.send(request, 12)
    hand.advance(400)
    assert waiting.done
    assert fetched(hand.answer(request, waiting, 12))[0].error_code == 1
    hand.broker.close()


def test_share_groups_go_on_where_the_log_begins_now(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path)
    topic_id = hand.create_topic("t", retention_ms="100000")
    for value in (b"a", b"b", b"c"):
        hand.produce("t", driver_batch(value))
    hand.broker.share.partition("g", topic_id, 0, lambda config: 0)
    hand.advance(400)
    loaded = hand.broker.share.loaded("g", topic_id, 0)
    assert loaded is not None
    assert loaded.start_offset == 3
    hand.broker.close()


def test_brokers_defaults_and_coarser_units_hold_where_a_topic_has_none(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path, {"log.retention.hours": "1", "log.retention.check.interval.ms": "60000"})
    hand.create_topic("t")
    hand.create_topic("longer", retention_ms="-1")
    for name in ("t", "longer"):
        hand.produce(name, driver_batch(b"x"))
    hand.advance(3700)
    assert (begin(hand, "t", -2), begin(hand, "longer", -2)) == (1, 0)
    hand.broker.close()


def test_topics_that_nobody_uses_are_looked_at_and_let_go_again(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path)
    for number in range(60):
        hand.create_topic(f"t{number}", retention_ms="100000")
        hand.produce(f"t{number}", driver_batch(b"x"))
    hand.now += 50
    hand.produce("t0", driver_batch(b"new", timestamp=now_ms(hand)))
    hand.restart()
    assert hand.broker.logs.all_open_logs() == []
    hand.advance(25)
    assert hand.broker.logs.all_open_logs() == []
    hand.advance(30)
    hand.advance(300)
    assert begin(hand, "t59", -2) == 1
    hand.broker.close()


def test_a_sweep_of_many_topics_takes_many_short_turns(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path)
    for number in range(100):
        hand.create_topic(f"t{number}")
        hand.produce(f"t{number}", driver_batch(b"x"))
    hand.now = 31.0
    turns = 0
    at = hand.tick()
    while at is not None and at < 40.0:
        hand.now = max(hand.now, at)
        turns += 1
        at = hand.tick()
    assert turns >= 100 / 20
    hand.broker.close()


def test_a_compacted_topic_is_compacted_in_the_broker(tmp_path: Path) -> None:
    from test.broker.log.test_cleaner import batch as keyed

    hand = HandBroker(tmp_path)
    hand.create_topic("t", cleanup_policy="compact", segment_bytes="1048576")
    for turn in range(6):
        hand.produce("t", keyed((b"a", b"%d" % turn * 600_000)))
    log = hand.broker.logs.log(hand.broker.topic("t"), 0)
    before = log.size_bytes
    hand.advance(60)
    assert log.size_bytes < before / 2
    assert values(fetched(hand.ask(fetch_request("t"), 12))[0].records)[-1] == b"4" * 600_000
    hand.restart()
    log = hand.broker.logs.log(hand.broker.topic("t"), 0)
    assert log.end_offset == 6
    assert len(plain(log.read(0, 1))) > 600_000
    hand.broker.close()


def test_deleting_a_topic_of_many_segments_leaves_nothing_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path)
    hand.create_topic("t", partitions=3)
    topic = hand.broker.topic("t")
    for partition in range(3):
        log = hand.broker.logs.log(topic, partition)
        for _ in range(100):
            log.append(batch([b"x"]), now_ms=1)
            log.roll(1)
    hand.broker.logs.delete_topic("t")
    assert not [name for name in os.listdir(tmp_path / "topics") if name.startswith("t.")]
    hand.broker.close()
