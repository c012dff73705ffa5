"""Tests of ``kafka.tasks.pools.job_logging``: lines carry their job, and are in the order in which they were
written."""

from __future__ import annotations

import io
import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kafka.tasks import Context
from kafka.tasks.pools import job_logging
from kafka.tasks.pools.job_logging import JobFormatter, JobLogContext
from test.tasks.pools import children_app as tasks
from test.tasks.pools.child_processes import ChildProcesses


@pytest.fixture
def jobs_log() -> Iterator[tuple[JobLogContext, io.StringIO]]:
    """Installed, with a handler of its own; everything is as before afterwards."""
    factory = logging.getLogRecordFactory()
    formatters = [(handler, handler.formatter) for handler in job_logging._handlers()]
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    log = JobLogContext()
    try:
        log.install()
        yield log, text
    finally:
        logger.removeHandler(handler)
        logging.setLogRecordFactory(factory)
        for each, formatter in formatters:
            each.setFormatter(formatter)


def test_lines_of_a_job_carry_its_name_and_id_and_others_do_not(jobs_log: tuple[JobLogContext, io.StringIO]) -> None:
    log, text = jobs_log
    logging.getLogger("shop").warning("before")
    log.begin("0" * 32, "shop.send")
    logging.getLogger("shop").warning("within %d%%", 100)
    log.end()
    logging.getLogger("shop").warning("after")
    assert text.getvalue() == (
        f"WARNING shop: before\nWARNING shop: shop.send[{'0' * 32}] within 100%\nWARNING shop: after\n"
    )


def test_a_format_of_ones_own_has_the_attributes_and_no_prefix(jobs_log: tuple[JobLogContext, io.StringIO]) -> None:
    log, text = jobs_log
    handler = logging.getLogger("shop").handlers[-1]
    handler.setFormatter(logging.Formatter("%(job_name)s/%(job_id)s %(message)s"))
    job_logging._show_job(handler)
    log.begin("id", "name")
    logging.getLogger("shop").warning("text")
    assert text.getvalue() == "name/id text\n"


def test_a_formatter_of_another_class_is_left_alone() -> None:
    class Own(logging.Formatter):
        pass

    own = Own()
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(own)
    job_logging._show_job(handler)
    assert handler.formatter is own


def test_a_line_of_the_context_says_it_once(jobs_log: tuple[JobLogContext, io.StringIO]) -> None:
    log, _ = jobs_log
    record = logging.getLogger("kafka.tasks.job").makeRecord("kafka.tasks.job", 20, "f", 1, "n[i] text", (), None)
    record.job_id, record.job_name = "i", "n"
    assert JobFormatter("%(message)s").format(record) == "n[i] text"
    Context("i", "n").log("text")
    log.end()


def test_streams_that_user_code_has_broken_harm_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    monkeypatch.setattr(sys, "stderr", None)
    job_logging.flush_streams()
    job_logging.use_line_buffering()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_what_tasks_print_and_log_is_in_order_and_before_their_outcome(method: str, tmp_path: pathlib.Path) -> None:
    """Into a file, where Python would keep what is printed until the end."""
    code = f"""
import logging, sys
sys.path[:0] = {[path for path in sys.path if path]!r}
logging.basicConfig(level="INFO", format="%(levelname)s %(message)s", stream=sys.stderr)
from test.tasks.pools import children_app as tasks
from test.tasks.pools.child_processes import ChildProcesses
with ChildProcesses({method!r}) as processes:
    child = processes.start()
    for number in range(3):
        processes.run(child, tasks.say, str(number))
        print("ended", number, flush=True)
"""
    path = tmp_path / "output"
    with path.open("wb") as output:
        subprocess.run([sys.executable, "-c", code], stdout=output, stderr=output, cwd=os.getcwd(), check=True)
    lines = path.read_text().splitlines()
    assert len(lines) == 9
    for number in range(3):
        printed, logged, ended = lines[3 * number : 3 * number + 3]
        assert printed == str(number)
        assert logged.startswith(f"WARNING {tasks.say.name}[")
        assert logged.endswith(f"] logged {number}")
        assert ended == f"{number} againended {number}"


def test_a_child_whose_parent_does_not_log_does_not_either(capfd: pytest.CaptureFixture[str]) -> None:
    with ChildProcesses("fork") as processes:
        processes.run(processes.start(), tasks.add, 1, 2)
    assert capfd.readouterr() == ("", "")


def test_how_a_process_logs_is_described_for_its_children() -> None:
    root = logging.getLogger()
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s!"))
    root.addHandler(handler)
    logging.getLogger("shop.quiet").setLevel(logging.ERROR)
    try:
        described = job_logging.logging_config()
    finally:
        root.removeHandler(handler)
        logging.getLogger("shop.quiet").setLevel(logging.NOTSET)
    assert described["on"] is True
    assert described["level"] == root.level
    assert described["levels"]["shop.quiet"] == logging.ERROR
