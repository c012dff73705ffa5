"""Tests of ``kafka.tasks.pools.child``: what user code may do to its process, and what comes of the job."""

from __future__ import annotations

import json
import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from kafka.tasks.hooks import Handlers
from kafka.tasks.pools.child.job_loop import EXIT_BROKEN_CHANNEL
from kafka.tasks.pools.child.stack_writer import END
from kafka.tasks.pools.ipc.processes import ChannelDamaged, ChildHandle, ChildPhase, JobDone
from kafka.tasks.pools.parent.memory import sample_process
from kafka.tasks.rules.outcome import AttemptFailed, JobSucceeded
from test.support.waiting import until
from test.tasks.pools import children_app as tasks
from test.tasks.pools.child_processes import ChildProcesses, is_running

BIG = 10_000_000


@pytest.fixture
def processes() -> Iterator[ChildProcesses]:
    with ChildProcesses() as processes:
        yield processes


def _fault(outcome: object) -> str:
    assert isinstance(outcome, AttemptFailed), outcome
    return f"{outcome.error_info.type.rpartition('.')[2]}: {outcome.error_info.text}"


def _value(outcome: object) -> Any:
    assert isinstance(outcome, JobSucceeded), outcome
    return json.loads(outcome.value)


# -- outcomes ---------------------------------------------------------------------------------------------------------


def test_jobs_run_one_after_the_other_in_one_process(processes: ChildProcesses) -> None:
    child = processes.start()
    seqs = [processes.give(child, tasks.add, n, n) for n in range(20)]
    done = processes.messages(child, 20)
    assert [(d.seq, _value(d.outcome)) for d in done if isinstance(d, JobDone)] == [
        (seq, 2 * n) for n, seq in enumerate(seqs)
    ]
    assert _value(processes.run(child, tasks.pid)) == child.pid != os.getpid()
    until(lambda: child.page.phase == ChildPhase.IDLE)
    assert child.page.begun_seq == child.page.done_seq == 21


def test_a_task_sees_its_job(processes: ChildProcesses) -> None:
    job_id, name, attempt, deliveries = _value(processes.run(processes.start(), tasks.who))
    assert (len(job_id), name, attempt, deliveries) == (32, tasks.who.name, 1, 1)


def test_ten_megabytes_pass_both_ways(processes: ChildProcesses) -> None:
    child = processes.start()
    assert _value(processes.run(child, tasks.length, "x" * BIG)) == BIG
    assert len(_value(processes.run(child, tasks.repeat, "y", BIG))) == BIG
    assert _value(processes.run(child, tasks.add, 1, 2)) == 3


def test_a_result_above_the_limit_of_the_app_is_a_failure_that_says_so(processes: ChildProcesses) -> None:
    child = processes.start()
    text = _fault(processes.run(child, tasks.repeat, "z", 2 * BIG))
    assert text.startswith("PayloadTooLarge: ") and "20000002 bytes, more than max_payload_bytes (20000000)" in text
    assert _value(processes.run(child, tasks.repeat, "z", 10)) == "z" * 10


@pytest.mark.parametrize(
    ("task", "error_info"),
    [
        (tasks.unserialisable, "NotSerialisable: "),
        (tasks.raise_with_arguments, "NeedsArguments: 7"),
        (tasks.raise_recursive, "ValueError: round and round"),
        (tasks.recurse, "RecursionError: maximum recursion depth"),
        (tasks.raise_bad_text, "BadText: <str() raised"),
        (tasks.raise_surrogates, "ValueError: half a pair: \ud800"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.function.__name__,
)
def test_what_can_not_be_written_is_a_failure_and_no_dead_child(
    processes: ChildProcesses, task: Any, error_info: str
) -> None:
    child = processes.start()
    assert _fault(processes.run(child, task)).startswith(error_info)
    assert _value(processes.run(child, tasks.add, 1, 2)) == 3
    assert child.exited() is None


def test_sys_exit_ends_the_job_and_not_the_child(processes: ChildProcesses) -> None:
    child = processes.start()
    assert _fault(processes.run(child, tasks.leave, 3)) == "SystemExit: 3"
    assert _value(processes.run(child, tasks.add, 1, 2)) == 3


def test_a_cancelled_job_sees_it(processes: ChildProcesses) -> None:
    child = processes.start()
    seq = processes.begin(child, tasks.until_cancelled)
    child.page.cancel(seq)
    (done,) = processes.messages(child)
    assert isinstance(done, JobDone)
    assert _value(done.outcome) == "cancelled"
    child.page.cancel(seq + 1)
    assert _value(processes.run(child, tasks.until_cancelled)) == "cancelled"


def test_an_alarm_that_a_task_has_left_armed_does_not_strike_the_next_one(processes: ChildProcesses) -> None:
    child = processes.start()
    assert _value(processes.run(child, tasks.arm_a_timer)) is None
    assert _value(processes.run(child, tasks.armed_timer)) == [0, 0]


def test_an_alarm_that_strikes_as_its_task_ends_costs_no_child_and_no_job(processes: ChildProcesses) -> None:
    child = processes.start()
    found = set()
    for us in range(1, 150):
        for fails in (False, True):
            outcome = processes.run(child, tasks.arm_a_raising_timer, us, fails)
            found.add(_fault(outcome) if isinstance(outcome, AttemptFailed) else _value(outcome))
    assert found <= {"kept", "ValueError: its own", "TimeoutError: struck"}
    assert _value(processes.run(child, tasks.armed_timer)) == [0, 0]
    assert child.exited() is None


# -- deaths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 7])
def test_os_exit_in_a_task_leaves_its_job_begun_and_the_others_untouched(processes: ChildProcesses, code: int) -> None:
    child = processes.start()
    first = processes.give(child, tasks.exit_at_once, code)
    others = [processes.give(child, tasks.add, 1, 1) for _ in range(3)]
    found, messages = processes.end_of(child)
    assert (found.code, found.signal, messages) == (code, None, [])
    assert found.max_rss_bytes is not None
    assert found.max_rss_bytes > 1 << 20
    assert (child.page.begun_seq, child.page.done_seq) == (first, 0)
    assert child.recall() == others


def test_a_segmentation_fault_is_reported_by_its_signal(processes: ChildProcesses) -> None:
    child = processes.start()
    processes.give(child, tasks.segfault)
    found, _ = processes.end_of(child)
    assert (found.code, found.signal) == (None, signal.SIGSEGV)


def test_killed_while_idle_nothing_is_lost(processes: ChildProcesses) -> None:
    child = processes.start()
    processes.run(child, tasks.add, 1, 1)
    until(lambda: child.page.phase == ChildPhase.IDLE)
    child.kill(signal.SIGKILL)
    found, messages = processes.end_of(child)
    assert (found.signal, messages) == (signal.SIGKILL, [])
    assert child.page.begun_seq == child.page.done_seq == 1


def test_killed_in_user_code_the_page_says_which_job_and_the_rest_comes_back(processes: ChildProcesses) -> None:
    child = processes.start()
    seq = processes.begin(child, tasks.spin)
    behind = [processes.give(child, tasks.add, n, n) for n in range(5)]
    child.kill(signal.SIGKILL)
    found, messages = processes.end_of(child)
    assert (found.signal, messages) == (signal.SIGKILL, [])
    assert (child.page.begun_seq, child.page.done_seq) == (seq, 0)
    assert child.recall() == behind


def test_killed_after_the_result_and_before_it_was_read_the_result_counts(processes: ChildProcesses) -> None:
    child = processes.start()
    seq = processes.give(child, tasks.repeat, "r", BIG)
    until(lambda: child.page.done_seq == seq)
    child.kill(signal.SIGKILL)
    _, messages = processes.end_of(child)
    assert [len(_value(done.outcome)) for done in messages if isinstance(done, JobDone)] == [BIG]


@pytest.mark.slow
def test_killed_while_it_writes_a_large_result_that_is_whole_or_lost(processes: ChildProcesses, rounds: int) -> None:
    for _ in range(5 * rounds):
        child = processes.start()
        seq = processes.give(child, tasks.repeat, "r", BIG)
        until(lambda child=child, seq=seq: child.page.phase == ChildPhase.WRITING or child.page.done_seq == seq)
        child.kill(signal.SIGKILL)
        _, messages = processes.end_of(child)
        assert child.page.begun_seq == seq
        if messages:
            (done,) = messages
            assert isinstance(done, JobDone)
            assert len(_value(done.outcome)) == BIG
        else:
            assert child.page.done_seq == 0


def test_a_child_that_was_stopped_is_seen_to_be_and_can_be_killed(processes: ChildProcesses) -> None:
    child = processes.start()
    seq = processes.begin(child, tasks.spin)
    behind = processes.give(child, tasks.add, 1, 1)
    child.kill(signal.SIGSTOP)
    until(lambda: (seen := sample_process(child.pid)) is not None and seen.is_stopped)
    assert child.recall() == [behind]
    child.kill(signal.SIGKILL)
    found, _ = processes.end_of(child)
    assert found.signal == signal.SIGKILL
    assert child.page.begun_seq == seq


def test_a_task_that_closes_all_descriptors_loses_its_job_and_its_child(processes: ChildProcesses) -> None:
    child = processes.start()
    seq = processes.give(child, tasks.close_descriptors)
    found, messages = processes.end_of(child)
    assert (found.code, messages) == (EXIT_BROKEN_CHANNEL, [])
    assert (child.page.begun_seq, child.page.done_seq) == (seq, 0)


def test_a_task_that_writes_to_the_channel_damages_it(processes: ChildProcesses) -> None:
    child = processes.start()
    processes.give(child, tasks.write_to_descriptors)
    with pytest.raises(ChannelDamaged):
        processes.messages(child)
    child.kill(signal.SIGKILL)
    until(child.exited)


def test_a_retired_child_ends_what_it_was_given_and_then_itself(processes: ChildProcesses) -> None:
    child = processes.start()
    for n in range(10):
        processes.give(child, tasks.add, n, n)
    child.retire()
    found, messages = processes.end_of(child)
    assert (found.code, found.signal, len(messages)) == (0, None, 10)


def test_a_child_takes_no_interrupt_from_the_keyboard(processes: ChildProcesses) -> None:
    child = processes.start()
    processes.begin(child, tasks.sleep, 0.2)
    child.kill_group(signal.SIGINT)
    assert len(processes.messages(child)) == 1
    assert _value(processes.run(child, tasks.add, 1, 2)) == 3


# -- processes of tasks -----------------------------------------------------------------------------------------------


def test_what_a_task_has_forked_dies_with_its_child(processes: ChildProcesses) -> None:
    child = processes.start()
    forked = _value(processes.run(child, tasks.fork_one))
    assert is_running(forked)
    child.kill(signal.SIGKILL)
    until(child.exited)
    until(lambda: not is_running(forked))


def test_a_fork_that_comes_back_from_its_task_ends_and_its_original_goes_on(processes: ChildProcesses) -> None:
    child = processes.start()
    forked = _value(processes.run(child, tasks.fork_and_return))
    until(lambda: not is_running(forked))
    assert _value(processes.run(child, tasks.pid)) == child.pid
    assert child.read_messages() == []


def test_a_fork_that_comes_back_ends_like_a_process_of_its_own(processes: ChildProcesses) -> None:
    child = processes.start()
    codes = [_value(processes.run(child, tasks.fork_and_exit, code)) for code in (3, 0, None, "wrong")]
    assert codes == [3, 0, 0, 1]
    assert _value(processes.run(child, tasks.fork_and_raise)) == 1


def test_the_handlers_of_a_run_are_not_called_in_what_its_task_has_forked(
    processes: ChildProcesses, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    told = tmp_path / "told"

    def tell(word: str) -> None:
        with told.open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()} {word}\n")

    handlers = Handlers()
    handlers.successes.append(lambda job: tell("well"))
    handlers.errors.append(lambda job, kill_signal, exc_info: tell("ill"))
    monkeypatch.setattr(tasks.app, "handlers", handlers)
    child = processes.start()  # forked from here, and so with these handlers
    for task in (tasks.fork_and_return, tasks.fork_and_raise):
        _value(processes.run(child, task))
    assert child.pid is not None
    child.kill(signal.SIGKILL)  # with its group: no copy can still be on its way
    until(child.exited)
    assert told.read_text(encoding="ascii").split("\n") == [f"{child.pid} well"] * 2 + [""]


def test_the_end_of_the_news_is_the_end_of_the_child_also_when_forks_of_it_live(processes: ChildProcesses) -> None:
    child = processes.start()
    forked = _value(processes.run(child, tasks.fork_one))
    processes.give(child, tasks.exit_at_once, 0)
    assert processes.messages(child) == []
    assert child.messages_eof
    until(child.exited)
    until(lambda: not is_running(forked))


@pytest.mark.parametrize("task", [tasks.daemonise, tasks.daemonise_a_program], ids=["fork", "exec"])
def test_a_daemon_lives_while_its_child_does_and_is_swept_up_after_it(processes: ChildProcesses, task: Any) -> None:
    child, other = processes.start(), processes.start()
    daemon = _value(processes.run(child, task))
    others_daemon = _value(processes.run(other, task))
    other.kill_orphans()
    assert is_running(daemon)
    child.kill_group(signal.SIGKILL)
    until(child.exited)
    assert is_running(daemon)  # in a session of its own
    child.kill_orphans()
    until(lambda: not is_running(daemon))
    assert is_running(others_daemon)


# -- soft limits ------------------------------------------------------------------------------------------------------


def test_a_soft_limit_passes_except_exception(processes: ChildProcesses, tmp_path: pathlib.Path) -> None:
    child = processes.start()
    child.soft(processes.begin(child, tasks.swallow, str(tmp_path / "swallowed")))
    (done,) = processes.messages(child)
    assert isinstance(done, JobDone)
    assert _fault(done.outcome).startswith("SoftTimeLimit")
    assert not (tmp_path / "swallowed").exists()


def test_a_task_can_clean_up_at_its_soft_limit(processes: ChildProcesses, tmp_path: pathlib.Path) -> None:
    child = processes.start()
    path = tmp_path / "cleaned"
    seq = processes.begin(child, tasks.clean_up, str(path))
    until(lambda: path.exists() and path.read_text())
    child.soft(seq)
    (done,) = processes.messages(child)
    assert isinstance(done, JobDone)
    assert _fault(done.outcome).startswith("SoftTimeLimit")
    assert path.read_text() == "began\ncleaned up\n"


def test_a_task_can_end_well_at_its_soft_limit(processes: ChildProcesses, tmp_path: pathlib.Path) -> None:
    child = processes.start()
    seq = processes.begin(child, tasks.finish_anyway, str(tmp_path / "began"))
    until((tmp_path / "began").exists)
    child.soft(seq)
    (done,) = processes.messages(child)
    assert isinstance(done, JobDone)
    assert _value(done.outcome) == "partial"


def test_a_soft_limit_is_raised_in_finally(processes: ChildProcesses) -> None:
    child = processes.start()
    child.soft(processes.begin(child, tasks.spin_in_finally))
    (done,) = processes.messages(child)
    assert isinstance(done, JobDone)
    assert _fault(done.outcome).startswith("SoftTimeLimit")
    assert _value(processes.run(child, tasks.add, 1, 2)) == 3


def test_a_loop_in_c_takes_no_soft_limit_and_dies_at_the_hard_one(processes: ChildProcesses) -> None:
    child = processes.start()
    seq = processes.begin(child, tasks.c_loop)
    child.soft(seq)
    behind = processes.give(child, tasks.add, 1, 1)
    assert child.recall() == [behind]
    child.kill(signal.SIGTERM)
    found, messages = processes.end_of(child)
    assert (found.signal, messages) == (signal.SIGTERM, [])
    assert child.page.begun_seq == seq


def test_a_soft_limit_that_comes_late_strikes_nobody(processes: ChildProcesses) -> None:
    child = processes.start()
    seq = processes.give(child, tasks.add, 1, 1)
    processes.messages(child)
    child.soft(seq)
    assert [_value(processes.run(child, tasks.add, n, n)) for n in range(50)] == [2 * n for n in range(50)]


# -- around the task --------------------------------------------------------------------------------------------------


def test_a_child_has_nothing_of_its_parent(processes: ChildProcesses) -> None:
    processes.start()  # a sibling, whose channel is none of the other's business
    reader, writer = os.pipe()
    found = _value(processes.run(processes.start(), tasks.surroundings))
    os.close(reader)
    os.close(writer)
    assert found == {
        "kinds": ["pipe", "socket", "socket"],
        "session": True,
        "sigint": True,
        "sigterm": True,
        "blocked": [],
        "stdin": True,
        "collects": True,
    }


def test_no_two_children_have_the_same_random_numbers(processes: ChildProcesses) -> None:
    children = [processes.start() for _ in range(3)]
    found = [tuple(_value(processes.run(child, tasks.numbers))) for child in children]
    assert len(set(found)) == 3


def _stacks(processes: ChildProcesses, child: ChildHandle, *lines: str) -> str:
    """What the child writes, asked again until all of these are in it: a job that has begun may be before its task."""

    def dumped() -> str:
        assert child.dump()
        text = os.pread(processes.launcher.stacks_fd, 1 << 20, 0).decode()
        return text if all(line in text for line in lines) else ""

    return str(until(dumped))


def test_a_child_writes_the_stacks_of_its_threads_when_asked_and_then_their_end(processes: ChildProcesses) -> None:
    child = processes.start()
    processes.begin(child, tasks.spin)
    text = _stacks(processes, child, " in spin", END.decode())
    assert "most recent call first" in text
    assert " in serve" in text


def test_a_child_in_c_code_writes_its_stacks(processes: ChildProcesses) -> None:
    child = processes.start()
    processes.begin(child, tasks.c_loop)
    _stacks(processes, child, " in c_loop", " in serve")
