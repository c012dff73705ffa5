"""A million jobs wait, and the owners of the schedule are killed: what they need, how soon the next ones have it all,
and that each job comes to its queue once and not before its time."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterator

import pytest

from kafka import KafkaConsumer
from kafka.consumer import ConsumerRecord
from kafka.tasks.format.job_id import time_of
from kafka.testing import EmbeddedBroker
from test.faults.counted_jobs import Crew, job_id_of
from test.support.process_table import needs_proc
from test.support.waiting import until

pytestmark = [needs_proc, pytest.mark.deep("minutes; kept by test_schedule.py in conformance/ with fewer jobs")]

JOBS = 1_000_000
PARTITIONS = 8
FIRST_DUE_S = 300.0
"""After the beginning: longer than it takes to enqueue them and to take over. The others are due within a minute."""
DUE_WITHIN_S = 60.0
OWNERS_MB = 150.0
TAKEOVER_S = 30.0
"""Ten until the group has seen the kill, and 20 to read the log."""
PATIENCE_S = 600.0


@pytest.mark.timeout(2400)
def test_of_a_million_jobs_that_wait_none_is_lost_early_or_moved_twice_when_owners_are_killed(
    crew: Callable[[str, int], Crew],
) -> None:
    with EmbeddedBroker() as broker:
        team = crew(broker.bootstrap, PARTITIONS)
        team.app.warm_up(30)
        owner = team.start_scheduler()
        ids = _enqueue(team)
        enqueued_at = time.monotonic()
        team.app.schedule.list(timeout=PATIENCE_S)  # answered by each partition behind all commands before
        print(f"heard {JOBS:,} jobs {time.monotonic() - enqueued_at:.1f} s after the last one; {_memory(owner.pid)}")

        owner.kill()
        killed_at = time.monotonic()
        owner = team.start_scheduler()
        team.app.schedule.list(timeout=PATIENCE_S)
        takeover_s = time.monotonic() - killed_at
        print(f"taken over after {takeover_s:.1f} s; {_memory(owner.pid)}")
        resident_mb = _memory(owner.pid)["VmRSS"]

        found: dict[str, int] = {}
        twice: list[str] = []
        for records in _moved(team):
            for record in records:
                job_id = job_id_of(record)
                if job_id in found:
                    twice.append(job_id)
                found[job_id] = record.timestamp
            if len(found) > JOBS // 3 and len(team.schedulers) == 2:
                owner.kill()  # in the middle of a round
                owner = team.start_scheduler()
        last_late_s = (max(found.values()) - max(map(time_of, found))) / 1000
        print(f"the last was moved {last_late_s:.1f} s after the last was due")
        assert twice == []
        assert found.keys() == ids
        assert [job_id for job_id, moved_ms in found.items() if moved_ms < time_of(job_id)] == []
        assert takeover_s < TAKEOVER_S
        assert resident_mb < OWNERS_MB


def _enqueue(team: Crew) -> set[str]:
    """Jobs that are due within a minute, evenly and in no order."""
    work, began = team.app.tasks["work"], time.monotonic()
    ids = set()
    for number in range(JOBS):
        at_s = FIRST_DUE_S + number * 7919 % JOBS * DUE_WITHIN_S / JOBS
        ids.add(work.using(delay=max(at_s - (time.monotonic() - began), 0.0)).delay(number, 0.0).id)
    team.app.flush(PATIENCE_S)
    return ids


def _moved(team: Crew) -> Iterator[list[ConsumerRecord]]:
    """What comes to the topic of due jobs, until that are as many as there are jobs, and nothing more comes."""
    topic, count = team.app.names.due("default"), 0
    options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "max_poll_records": 10_000}
    with KafkaConsumer(topic, bootstrap_servers=team.servers, **options) as consumer:

        def poll() -> list[ConsumerRecord]:
            return [record for records in consumer.poll(1000).values() for record in records]

        while count < JOBS:
            found = until(poll, f"more than {count:,} jobs are moved", within_s=PATIENCE_S, shown=team.logs)
            count += len(found)
            yield found
        team.app.schedule.list(timeout=PATIENCE_S)  # the round of each partition is over
        yield poll()


def _memory(pid: int) -> dict[str, float]:
    """Resident MB of a process, now and at most."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: round(int(fields[name].split()[0]) * 1024 / 1e6, 1) for name in ("VmRSS", "VmHWM") if name in fields}
