"""Tests of the pools' pure parts: settings, starts, limits, scaling, memory, deaths, statistics."""

from __future__ import annotations

import mmap
import os
import signal
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.tasks.pools.limits import ChildLimits, LimitAction, StartedJob
from kafka.tasks.pools.parent.autoscaler import Autoscaler, PoolLoad
from kafka.tasks.pools.parent.deadlines import PoolDeadlines
from kafka.tasks.pools.parent.exit_reasons import KillReason, child_exit
from kafka.tasks.pools.parent.memory import OomCounter, oom_file, quota, sample_process
from kafka.tasks.pools.parent.spawn_breaker import IMMEDIATE_RESTARTS, SpawnBreaker, delay_s
from kafka.tasks.pools.parent.statistics import WriteCounts, brief, human_write_stats
from kafka.tasks.pools.settings import PoolSettings, check_start_method, parse_autoscale, parse_memory, start_methods
from kafka.tasks.rules.outcome import LOST_CAUSES
from test.tasks.fakes import settle

# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"concurrency": 0}, "the concurrency of a pool must be an integer from 1"),
        ({"concurrency": 1001}, "to 1000,"),
        ({"concurrency": True}, "not True"),
        ({"timeout": 0.0}, "timeout must be a number of seconds above 0"),
        ({"timeout": float("nan")}, "timeout must be a number of seconds above 0"),
        ({"kill_grace": -1.0}, "kill_grace must be a number"),
        ({"kill_grace": None}, "kill_grace must be a number"),
        ({"soft_timeout": 5.0, "timeout": 5.0}, "must be below timeout"),
        ({"max_jobs_per_child": 0}, "max_jobs_per_child must be an integer from 1"),
        ({"max_memory_soft": 512}, "max_memory_soft must be an integer from 1048576"),
        ({"max_memory_soft": 2 << 20, "max_memory_hard": 2 << 20}, "must be below the hard one"),
        ({"autoscale": (4, 2)}, "MIN not above MAX, not 4,2"),
        ({"autoscale": (0, 2)}, "the least of autoscale must be an integer from 1"),
        ({"prefetch": 0}, "prefetch must be an integer from 1"),
        ({"start_method": "frok"}, "did you mean 'fork'"),
    ],
)
def test_settings_that_make_no_sense_say_so(given: dict[str, Any], text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text):
        PoolSettings(**given)


def test_slots_begin_between_the_bounds_of_autoscale() -> None:
    assert PoolSettings(8, autoscale=(1, 4)).slots == 4
    assert PoolSettings(1, autoscale=(2, 4)).slots == 2
    assert PoolSettings(8).slots == 8


def test_sizes_and_ranges_are_read_as_people_write_them() -> None:
    assert parse_memory("m", "512M") == (512 << 20, None)
    assert parse_memory("m", "1.5G, 2GiB") == (3 << 29, 2 << 30)
    assert parse_memory("m", "300000000,1g") == (300_000_000, 1 << 30)
    assert parse_autoscale("a", "2,8") == (2, 8)
    for wrong in ("", "M", "12X", "5M,", "-1M"):
        with pytest.raises(IllegalArgumentError, match="m must be a size such as 512M"):
            parse_memory("m", wrong)
    for wrong in ("2", "a,b", "2,"):
        with pytest.raises(IllegalArgumentError, match="MIN,MAX"):
            parse_autoscale("a", wrong)


def test_platforms_have_their_start_methods() -> None:
    assert start_methods("linux")[0] == "fork"
    assert start_methods("freebsd14")[0] == "fork"
    assert start_methods("darwin")[0] == "spawn"
    assert check_start_method(None, "darwin") == "spawn"
    with pytest.raises(IllegalArgumentError, match="'win32' has no fork: its pools are inline, threads and asyncio"):
        check_start_method("spawn", "win32")


# -- starts ------------------------------------------------------------------------------------------------------------


def test_delays_double_up_to_a_minute() -> None:
    assert [delay_s(n) for n in range(10)] == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert delay_s(10_000) == 60


def test_children_that_began_together_fail_once() -> None:
    starts = SpawnBreaker(3)
    for _ in range(8):
        starts.on_boot_failure(10.0, 9.0, "no module")
    assert starts.boot_failures == 1
    assert starts.next_at == 10.0
    starts.on_boot_failure(12.0, 10.5, "no module")
    starts.on_boot_failure(14.0, 12.5, "no module")
    assert starts.next_at == 16.0
    assert starts.open_reason(15.0) == "3 child starts failed in a row; last error: no module"
    starts.on_child_up()
    assert starts.open_reason(15.0) is None


def test_a_next_try_is_announced_where_there_will_be_one() -> None:
    starts = SpawnBreaker(3)
    starts.on_child_up()
    for began_at in (10.0, 11.0, 13.0):
        starts.on_boot_failure(began_at + 1.0, began_at, "no module")
    assert (
        starts.open_reason(15.0)
        == "3 child starts failed in a row; next attempt in 1 s; last error: no module"
    )


def test_crashes_open_the_breaker_unless_jobs_end_between() -> None:
    starts = SpawnBreaker(5)
    for _ in range(IMMEDIATE_RESTARTS):
        starts.on_crash(0.0, "signal")
        assert starts.next_at == 0.0
    for _ in range(5):
        starts.on_crash(0.0, "signal")
    assert starts.open_reason(0.0) is not None
    assert starts.next_at == 8.0
    starts.on_crash(100.0, "signal", lived_s=90.0)
    assert starts.open_reason(0.0) is None
    for _ in range(20):
        starts.on_crash(100.0, "signal")
    starts.on_job_done()
    assert starts.open_reason(0.0) is None


# -- limits ------------------------------------------------------------------------------------------------------------


def _job(soft: float | None = None, hard: float | None = None) -> Any:
    return SimpleNamespace(soft_s=soft, hard_s=hard)


def test_a_child_is_looked_at_once_for_many_short_jobs_under_long_limits() -> None:
    limits = ChildLimits()
    assert limits.add(_job(hard=60), 100.0)
    assert not any(limits.add(_job(hard=60), 100.0 + n / 1000) for n in range(1000))
    assert limits.check_at == 160.0
    assert limits.check(160.0, None, []) is LimitAction.NOTHING
    assert limits.check_at is None


def test_limits_count_from_the_start_on_the_page() -> None:
    limits = ChildLimits()
    job = _job(soft=2, hard=5)
    limits.add(job, 100.0)
    assert limits.check_at == 102.0
    assert limits.check(102.0, None, [job]) is LimitAction.NOTHING  # it waits behind another
    assert limits.check_at == 104.0
    running = StartedJob(7, job, 103.0)
    assert limits.check(104.0, running, [job]) is LimitAction.NOTHING
    assert limits.check_at == 105.0
    assert limits.check(105.0, running, [job]) is LimitAction.SOFT
    assert limits.check_at == 106.0
    assert limits.check(105.5, running, [job]) is LimitAction.NOTHING
    assert limits.check(106.5, running, [job]) is LimitAction.AGAIN
    assert limits.check_at == 107.5
    assert limits.check(107.5, running, [job]) is LimitAction.AGAIN
    assert limits.check_at == 108.0
    assert limits.check(108.0, running, [job]) is LimitAction.HARD
    assert limits.check_at is None


def test_the_hard_limit_comes_first_when_both_are_overdue() -> None:
    job = _job(soft=2, hard=5)
    assert ChildLimits().check(110.0, StartedJob(1, job, 100.0), [job]) is LimitAction.HARD


# -- scaling -----------------------------------------------------------------------------------------------------------


def test_slots_grow_only_when_all_are_busy_and_more_waits_for_a_while() -> None:
    scaler = Autoscaler(2, 10)
    assert scaler.target(0, PoolLoad(4, 4, 10)) == 4
    assert scaler.target(1, PoolLoad(4, 4, 10)) == 4
    assert scaler.target(2, PoolLoad(4, 4, 10)) == 6
    assert scaler.target(3, PoolLoad(6, 6, 10)) == 6
    assert scaler.target(4, PoolLoad(6, 6, 1)) == 7
    assert scaler.target(10, PoolLoad(7, 7, 100)) == 10
    assert scaler.target(20, PoolLoad(10, 10, 100)) == 10


def test_a_load_that_swings_moves_nothing() -> None:
    scaler = Autoscaler(1, 10)
    for second in range(100):
        assert scaler.target(second, PoolLoad(4, 4 if second % 2 else 3, 5)) == 4
    for second in range(100, 300):
        assert scaler.target(second, PoolLoad(4, 1 if second % 20 else 3, 0)) == 4


def test_slots_shrink_slowly_when_half_of_them_are_idle() -> None:
    scaler = Autoscaler(2, 10)
    assert [scaler.target(second, PoolLoad(8, 2, 0)) for second in (0, 29, 30)] == [8, 8, 5]
    assert scaler.target(59, PoolLoad(5, 2, 0)) == 5
    assert scaler.target(60, PoolLoad(5, 2, 0)) == 4
    for second in range(60, 1000):
        target = scaler.target(second, PoolLoad(2, 0, 0))
    assert target == 2


# -- memory ------------------------------------------------------------------------------------------------------------


def test_vitals_are_those_of_the_process_now(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    fields = ["0"] * 50
    fields[0] = "T"
    fields[21] = "1000"
    (folder / "stat").write_text(f"7 (a) b ) {' '.join(fields)}\n")
    seen = sample_process(7, str(tmp_path))
    assert seen is not None
    assert seen.is_stopped
    assert seen.rss_bytes == 1000 * os.sysconf("SC_PAGE_SIZE")
    assert sample_process(8, str(tmp_path)) is None
    (folder / "stat").write_text("7 (cut")
    assert sample_process(7, str(tmp_path)) is None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")
def test_vitals_see_memory_that_is_given_back() -> None:
    before = sample_process(os.getpid())
    block = mmap.mmap(-1, 64 << 20)  # malloc() would give what tests before have given back, and the process keeps
    for at in range(0, len(block), 4096):
        block[at] = 1
    during = sample_process(os.getpid())
    block.close()
    after = sample_process(os.getpid())
    assert before is not None and during is not None and after is not None
    assert during.rss_bytes > before.rss_bytes + (48 << 20)
    assert after.rss_bytes < during.rss_bytes - (48 << 20)


def test_a_kernel_kill_explains_one_death_and_not_one_long_after(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom_kill 2\n")
    counter = OomCounter(events)
    assert counter.new_kills() == 0
    events.write_text("oom_kill 3\n")
    counter.advance()  # the look once a second may see it before the death is seen
    assert counter.new_kills() == 1
    assert counter.new_kills() == 0
    events.write_text("oom_kill 4\n")
    counter.advance()
    counter.advance()
    assert counter.new_kills() == 0
    events.unlink()
    assert counter.new_kills() == 0


@pytest.mark.parametrize(
    ("own", "file"),
    [
        ("0::/system.slice/worker\n", "system.slice/worker/memory.events"),
        ("4:memory:/worker\n3:cpuset:/\n0::/\n", "memory/worker/memory.oom_control"),
        ("11:cpu,cpuacct:/a\n5:hugetlb,memory:/worker\n", "memory/worker/memory.oom_control"),
        ("0::/not/made\n", None),
        ("3:cpuset:/worker\n", None),
    ],
)
def test_kernel_kills_are_read_from_the_group_of_either_version_of_control_groups(
    own: str, file: str | None, tmp_path: Path
) -> None:
    for made in ("system.slice/worker/memory.events", "memory/worker/memory.oom_control", "worker/memory.events"):
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (tmp_path / "cgroup").write_text(own)
    found = oom_file(tmp_path, tmp_path / "cgroup")
    assert found == (None if file is None else tmp_path / file)
    assert oom_file(tmp_path, tmp_path / "none") is None
    if found is not None:
        counter = OomCounter(found)
        found.write_text("oom_kill_disable 0\nunder_oom 1\noom_kill 5\n")
        assert [counter.new_kills() for _ in range(3)] == [2, 1, 0]


def test_kernel_kills_that_could_not_be_read_for_a_while_are_not_new_afterwards(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom_kill 7\n")
    counter = OomCounter(events)
    events.unlink()  # as when no descriptor is left
    counter.advance()
    counter.advance()
    events.write_text("oom_kill 7\n")
    assert counter.new_kills() == 0


def test_a_quota_of_one_is_exact_and_others_are_spread() -> None:
    assert quota(None, Random()) is None
    assert quota(1, Random()) == (1, 1)
    found = {quota(1000, Random(seed)) for seed in range(50)}
    assert len(found) > 30
    assert all(one is not None and 900 <= one.soft <= 1100 and one.most == 1100 for one in found)


# -- deaths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "signum", "kill_reason", "oom", "cause"),
    [
        (0, None, None, 0, "exit"),
        (None, None, None, 0, "exit"),
        (None, 9, None, 0, "signal"),
        (None, 9, None, 1, "oom"),
        (None, 11, None, 1, "signal"),
        (None, 15, KillReason("time"), 0, "time"),
        (0, None, KillReason("time"), 0, "time"),
        (None, 9, KillReason("memory", "too much"), 3, "memory"),
    ],
)
def test_what_this_side_did_comes_before_what_the_kernel_and_others_did(
    code: int | None, signum: int | None, kill_reason: KillReason | None, oom: int, cause: str
) -> None:
    death = child_exit(code, signum, kill_reason, oom)
    assert death.cause == cause
    assert cause in LOST_CAUSES
    assert not death.expected


def test_a_retired_child_that_ends_with_0_is_expected() -> None:
    assert child_exit(0, None, None, 0, retiring=True).expected
    assert child_exit(None, None, None, 0, retiring=True).expected  # nobody can tell: it did what it was told
    assert not child_exit(1, None, None, 0, retiring=True).expected
    assert not child_exit(None, 9, None, 0, retiring=True).expected


def test_a_death_says_what_is_known() -> None:
    assert str(child_exit(3, None, None, 0)) == "exit code 3"
    assert str(child_exit(None, None, None, 0)) == "unknown exit status"
    assert str(child_exit(None, 9, None, 1)) == "signal 9 (SIGKILL); killed by the kernel's OOM killer"
    assert (
        str(child_exit(None, 9, KillReason("time", "it did not start within 60 s"), 0))
        == "it did not start within 60 s"
    )
    assert "signal 11 (SIGSEGV); usually caused by C code" in str(child_exit(None, signal.SIGSEGV, None, 0))


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_deadlines_run_in_order_and_an_error_of_one_does_not_stop_the_others() -> None:
    clock = ManualClock()
    loop = Loop.simulated(clock)
    deadlines = PoolDeadlines(loop)
    ran: list[str] = []

    def fail() -> None:
        ran.append("fail")
        raise ValueError("no")

    deadlines.at(2.0, lambda: ran.append("b"))
    deadlines.at(1.0, fail)
    deadlines.at(3.0, lambda: ran.append("cancelled")).cancel()
    deadlines.at(1.0, lambda: deadlines.after(0.5, lambda: ran.append("a")))
    settle(loop)
    assert ran == []
    for _ in range(10):
        clock.advance(0.5)
        settle(loop)
    assert ran == ["fail", "a", "b"]
    assert deadlines.next_at() is None


def test_write_stats_are_percents_of_what_was_written() -> None:
    stats = human_write_stats({1: WriteCounts(30, 1), 2: WriteCounts(10, 0)})
    assert stats == {
        "total": 40,
        "avg": "50.00%",
        "all": "75.00%, 25.00%",
        "raw": "30, 10",
        "inqueues": {"total": 2, "active": 1},
    }
    assert human_write_stats({})["total"] == 0


def test_results_are_cut_for_the_log() -> None:
    assert brief(b"short") == "short"
    assert len(brief(b"x" * 10_000)) == 128
    assert brief(b"\xff\x00" * 10_000).endswith("...")
