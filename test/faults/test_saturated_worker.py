"""A worker whose slots are all busy with long jobs takes no short ones: they run on another worker, and none waits."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from test.faults.counted_jobs import Crew
from test.support.waiting import until

SHORT_RUN = 200
JOBS = 2000
PARTITIONS = 8
"""As apps have by default. A partition whose oldest unsettled job is 4,000 records back delivers no more: with two, the
long jobs would stop both."""
AT_ONCE = 50
"""Jobs that are enqueued at once: one idle worker runs so many in a tenth of a second."""
MOST_WAIT_S = 1.0


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_short_jobs_do_not_wait_in_a_worker_that_long_ones_keep_busy(
    servers: str, crew: Callable[[str, int], Crew], rounds: int
) -> None:
    team = crew(servers, PARTITIONS)
    team.warm_up(1)
    work, hold = team.app.tasks["work"], team.app.tasks["hold"]
    for handle in [work.delay(number, 0.0) for number in range(SHORT_RUN)]:
        assert handle.wait(30), team.logs()
    long = [hold.delay("gate") for _ in range(2)]
    until(lambda: all(handle.id in team.starts() for handle in long), "both slots are taken", shown=team.logs)
    team.warm_up(1)
    moved = team.count_moved()
    enqueued: dict[str, float] = {}
    for _ in range(rounds * JOBS // AT_ONCE):
        now = time.time()
        handles = [work.delay(number, 0.0) for number in range(AT_ONCE)]
        enqueued |= dict.fromkeys((handle.id for handle in handles), now)
        for handle in handles:
            assert handle.wait(30), team.logs()
    starts = team.starts()
    waits = sorted(starts[job_id][0].at - at for job_id, at in enqueued.items())
    p99 = waits[len(waits) * 99 // 100]
    print(f"{len(waits)} jobs waited {waits[len(waits) // 2]:.4f} s (p50), {p99:.4f} (p99), {waits[-1]:.4f} (most)")
    assert p99 < MOST_WAIT_S, team.logs()
    assert all(len(starts[job_id]) == 1 for job_id in enqueued)
    assert team.count_moved() == moved, team.logs()
    team.open("gate")
    assert all(handle.wait(30) for handle in long), team.logs()
