"""The task queue in consumer groups, as on brokers before 4.2: how fast threads drain it, how long a job takes.

Methods: as in ``test_queue.py``, with ``delivery="group"``, on the embedded broker and on Apache Kafka 3.9.1.
"""

from __future__ import annotations

import pytest

from test.benchmarks.places import THREADS, Place, note_drain
from test.benchmarks.report import Measure, Report, percentile

pytestmark = pytest.mark.timeout(1800)

GROUP_THREADS = THREADS._replace(rate={"plain": "15,000", "compiled": "25,000"}, to_peer="")
SINGLES = 400
START = Measure("delay to start, p50", "ms", "10")


@pytest.mark.parametrize("how", ["stored", "read"])
def test_no_op_jobs_come_out(group_place: Place, figures: Report, how: str) -> None:
    found = group_place.drain(GROUP_THREADS.jobs, how, GROUP_THREADS.flags)
    note_drain(GROUP_THREADS, how, found, group_place, figures, None)


def test_a_job_on_an_idle_queue_takes_little_time(group_place: Place, figures: Report) -> None:
    times = group_place.run("latency.py", str(SINGLES), *GROUP_THREADS.flags)
    figures.add(START, group_place.name, percentile(times["start_ms"], 50))
    for title, what, percent in (
        ("delay to start, p99", "start_ms", 99),
        ("delay to result, p50", "result_ms", 50),
        ("delay to result, p99", "result_ms", 99),
    ):
        figures.add(Measure(title, "ms"), group_place.name, percentile(times[what], percent))
