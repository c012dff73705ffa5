"""The demo: which files it takes, how it counts, what it does when workers die, and whole runs on both brokers."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka import KafkaAdminClient
from kafka.cli import demo, demo_tasks, main
from kafka.cli.demo import BarProgress, Interrupts, LineProgress, RichProgress, SilentProgress, Workers, choose_progress
from kafka.cli.demo_tasks import TASK, DemoFiles, Tally, count_words, make_app, result_of, text_files
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.tasks import JobFailed, JobState
from test.support.apache_kafka import ApacheKafka
from test.support.waiting import until

PACKAGE = pathlib.Path(demo.__file__).parent.parent
RUN_S = 110.0
"""For a whole run, which takes twenty seconds on a machine that has five times as much to do as it can."""


def plain_count(paths: list[str]) -> Counter[str]:
    """The words of files, counted in the plainest way."""
    counts: Counter[str] = Counter()
    for path in paths:
        text = pathlib.Path(path).read_bytes().decode("utf-8", "replace")
        counts.update("".join(each if re.match(r"[^\W\d_]", each) else " " for each in text).split(" "))
    del counts[""]
    return counts


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory with a bit of everything."""
    files = {
        "a.txt": b"one two  two\n",
        "empty": b"",
        ".hidden-file": b"seen",
        "sub/deep/b.md": b"three three\xff three",
        "nul-late": b"x" * 8192 + b"\0",
        "nul-early": b"x" * 8191 + b"\0",
        ".git/config": b"unseen",
        "sub/.cache/x": b"unseen",
        "sub/__pycache__/m.pyc": b"unseen",
    }
    root = tmp_path / "tree"
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "c.txt").write_text("unseen")
    (root / "link-to-file").symlink_to(root / "a.txt")
    (root / "link-to-directory").symlink_to(tmp_path / "outside")
    os.mkfifo(root / "pipe")
    return root


# -- which files ------------------------------------------------------------------------------------------------------


def names(found: DemoFiles, root: pathlib.Path) -> list[str]:
    return sorted(str(pathlib.Path(path).relative_to(root)) for path in found.files)


def test_text_files_are_regular_visible_and_without_nul_at_their_beginning(tree: pathlib.Path) -> None:
    found = text_files(str(tree))
    assert names(found, tree) == [".hidden-file", "a.txt", "empty", "nul-late", "sub/deep/b.md"]
    assert found.unreadable == [] and found.largest_bytes == 8193


def test_a_path_that_is_itself_in_a_hidden_directory_is_taken(tree: pathlib.Path) -> None:
    assert names(text_files(str(tree / ".git")), tree) == [".git/config"]


def test_a_path_may_be_one_file_and_a_link(tree: pathlib.Path) -> None:
    assert names(text_files(str(tree / "a.txt")), tree) == ["a.txt"]
    assert names(text_files(str(tree / "link-to-file")), tree) == ["a.txt"]
    assert [os.path.basename(path) for path in text_files(str(tree / "link-to-directory")).files] == ["c.txt"]


def test_paths_are_absolute_so_that_workers_find_them(tree: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert text_files("sub").files == [str(tree / "sub" / "deep" / "b.md")]


@pytest.mark.parametrize("name", ["missing", "pipe", "a.txt/under-a-file", ""])
def test_what_is_no_directory_or_file_is_an_error(tree: pathlib.Path, name: str) -> None:
    with pytest.raises(OSError):
        text_files(str(tree / name) if name else "")


def test_a_file_that_cannot_be_read_is_reported(tree: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.lstat

    def lstat(path: str, **options: Any) -> os.stat_result:
        if str(path).endswith("a.txt"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, **options)

    monkeypatch.setattr("kafka.cli.demo_tasks.os.lstat", lstat)
    found = text_files(str(tree))
    assert "a.txt" not in names(found, tree)
    assert found.unreadable == [f"{tree / 'a.txt'}: Permission denied"]


# -- counting ---------------------------------------------------------------------------------------------------------

PIECES = [b" ", b"\n", b"\xe2\x80\x83", b"\xc2\x85", b"\xff", b"\xe2\x80", b"a", b"word", b"_", b"1", b".", b"\xc3\xa4"]
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.binary())).map(b"".join)


@given(data=TEXTS, chunk=st.integers(1, 9))
def test_reading_piece_by_piece_counts_as_reading_at_once(
    data: bytes, chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "text"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_tasks, "CHUNK_BYTES", chunk)
        assert count_words(str(path)) == plain_count([str(path)])


def test_the_commonest_words_are_exact_also_where_a_result_had_no_room_for_counts(tree: pathlib.Path) -> None:
    files = text_files(str(tree)).files
    tally = Tally()
    for path in files:
        tally.add(path, json.loads(json.dumps(result_of(count_words(path), most_bytes=20))))
    expected = plain_count(files)
    assert tally.words == expected.total()
    found = tally.commonest(3)
    assert [common.times for common in found] == [3, 2, 1]
    assert dict(found) == {word: expected[word] for word, _ in found}
    assert tally.commonest(3) == found


# -- a run, without a broker ------------------------------------------------------------------------------------------


class FakeJob:
    """A handle whose job ends as it is told."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def raise_if_not_sent(self) -> None:
        if isinstance(self.outcome, KafkaTimeoutError):
            raise self.outcome

    def status(self) -> JobState:
        return JobState.QUEUED if self.outcome is None else JobState.SUCCESS

    def wait(self, timeout: float) -> bool:
        return self.outcome is not None

    def result(self, timeout: float) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class FakeApp:
    """An app whose jobs end as ``outcomes`` says, by path; an exception class there is raised by ``delay``."""

    def __init__(self, outcomes: dict[str, Any]) -> None:
        self.outcomes = outcomes
        self.tasks = {TASK: self}

    def delay(self, path: str) -> FakeJob:
        if isinstance(self.outcomes[path], type):
            raise self.outcomes[path]("not enqueued")
        return FakeJob(self.outcomes[path])


class FakeWorkers:
    """Workers that are there until their notes have been read."""

    def __init__(self, *notes: str, alive: bool = True) -> None:
        self.notes = list(notes)
        self.pids = [1] if alive else []

    def check(self) -> Iterator[str]:
        notes, self.notes = self.notes, []
        yield from notes


class Notes(SilentProgress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def make_run(outcomes: dict[str, Any], workers: FakeWorkers) -> tuple[demo.DemoRun, Notes]:
    notes = Notes()
    times = iter(range(10**9))
    found = DemoFiles(list(outcomes), 0, [])
    app: Any = FakeApp(outcomes)
    there: Any = workers
    run = demo.DemoRun(app, found, there, notes, clock=lambda: float(next(times)))
    return run, notes


DONE = {"words": 2, "counts": {"a": 2}}


def test_each_job_is_done_or_failed_or_lost() -> None:
    failed, lost = JobFailed("OSError", "gone"), KafkaTimeoutError("broker away")
    outcomes = {"1": DONE, "2": failed, "3": None, "4": lost, "5": DONE}
    run, notes = make_run(outcomes, FakeWorkers("worker 1 was killed"))
    summary = run.to_the_end()
    assert summary[:5] == (5, 2, 1, 2, 4)
    assert notes.notes == ["worker 1 was killed", "no job has ended for 60 s"]
    assert run.failures == ["2: OSError: gone", "4: broker away"]


def test_without_a_worker_the_rest_is_lost_soon() -> None:
    run, notes = make_run({"1": DONE, "2": None}, FakeWorkers("it ended with code 1", alive=False))
    summary = run.to_the_end()
    assert (summary.done, summary.lost) == (1, 1) and summary.seconds < 10
    assert notes.notes == ["it ended with code 1", "no worker is left"]


def test_what_cannot_be_enqueued_in_the_middle_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "WINDOW", 1)
    run, notes = make_run({"1": DONE, "2": KafkaError, "3": DONE}, FakeWorkers())
    assert run.to_the_end()[:4] == (3, 1, 0, 2)
    assert notes.notes == ["no more jobs can be enqueued: not enqueued"]


def test_when_nothing_at_all_can_be_enqueued_the_error_is_the_commands() -> None:
    run, _ = make_run({"1": KafkaError}, FakeWorkers())
    with pytest.raises(KafkaError, match="not enqueued"):
        run.to_the_end()


def test_no_more_jobs_than_the_window_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "WINDOW", 3)
    run, _ = make_run({str(number): DONE for number in range(10)}, FakeWorkers())
    most = 0
    pause = run._pause

    def look() -> None:
        nonlocal most
        most = max(most, len(run._under_way))
        pause()

    monkeypatch.setattr(run, "_pause", look)
    assert run.to_the_end()[:2] == (10, 10)
    assert most == 3


# -- workers ----------------------------------------------------------------------------------------------------------


def test_a_signal_between_two_steps_is_an_exception() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, Interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143 and signal.getsignal(signal.SIGTERM) is before


def test_a_signal_inside_a_step_waits_for_its_end() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        with interrupts.held():
            with interrupts.held():
                os.kill(os.getpid(), signal.SIGINT)
            steps.append("first")
        steps.append("second")
    assert steps == ["first"]


def next_note(workers: Workers) -> str:
    notes: list[str] = []

    def arrived() -> bool:
        notes.extend(workers.check())
        return bool(notes)

    until(arrived)
    (note,) = notes
    return note


@pytest.fixture
def workers(tmp_path: pathlib.Path) -> Iterator[Workers]:
    """One worker that waits for a broker that accepts its connection and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        found = Workers(1, ["kafka.cli.demo_tasks:app", "--bootstrap-server", address], {}, str(tmp_path))
        yield found
        found.stop(0.1)


def test_a_killed_worker_is_noticed_and_replaced_a_few_times(workers: Workers) -> None:
    workers.start()
    for _ in range(4):
        (pid,) = workers.pids
        os.kill(pid, signal.SIGKILL)
        assert f"(process {pid}) was killed by SIGKILL" in next_note(workers)
    assert workers.pids == []


def test_a_worker_that_ends_by_itself_is_noticed_with_its_last_line_and_not_replaced(tmp_path: pathlib.Path) -> None:
    workers = Workers(1, ["no_such_module:app"], {}, str(tmp_path))
    workers.start()
    assert "ended with code 2: python -m kafka worker: there is no module 'no_such_module'" in next_note(workers)
    assert workers.pids == []


def test_stopping_leaves_no_process(workers: Workers) -> None:
    workers.start()
    (pid,) = workers.pids
    workers.stop(0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# -- the display ------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose_progress(10, io.StringIO()), LineProgress)
    assert isinstance(choose_progress(10, Terminal(), quiet=True), SilentProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose_progress(10, Terminal()), LineProgress)


def test_progress_is_a_bar_on_a_terminal_with_and_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    assert isinstance(choose_progress(10, Terminal()), BarProgress)
    monkeypatch.undo()
    monkeypatch.setenv("TERM", "xterm")
    pytest.importorskip("rich", reason="needs rich (extra cli)")
    bar = choose_progress(10, Terminal())
    assert isinstance(bar, RichProgress)
    bar.show(3)
    bar.close()


def test_lines_are_few() -> None:
    stream = io.StringIO()
    lines = LineProgress(1000, stream)
    for ended in range(1, 1001):
        lines.show(ended)
    shown = stream.getvalue().splitlines()
    assert len(shown) == 10 and shown[-1] == "1000 of 1000 jobs have ended"
    LineProgress(1, stream).show(1)
    assert stream.getvalue().endswith("\n1 of 1 job has ended\n")


def test_the_bar_is_gone_when_it_is_closed(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Terminal()
    bar = BarProgress(4, stream)
    bar.show(2)
    bar.note("something")
    bar.show(4)
    bar.close()
    assert "#...]" not in stream.getvalue().rpartition("\r")[2]
    assert stream.getvalue().endswith("\r") and "4 of 4 jobs" in stream.getvalue()
    assert capsys.readouterr().err == "something\n"


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("word", "word"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("ä", "ä"),
        ("\u202ex", "\\u202ex"),
        ("w" * 99, "w" * 40 + "..."),
    ],
)
def test_words_cannot_disturb_a_terminal(word: str, shown: str) -> None:
    assert demo._shown(word) == shown


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["/no/such/path"], "cannot read /no/such/path: No such file or directory"),
        (["/dev/null"], "neither a directory nor a regular file"),
        (["--workers", "0"], "must be 1 to 100"),
        (["--workers", "many"], "must be 1 to 100"),
        (["--bootstrap-server", "no-port:x"], "no-port:x"),
        (["--bootstrap-server", "redis://"], "no back end for 'redis'"),
    ],
)
def test_a_wrong_use_is_one_line_and_exit_code_2(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("python -m kafka demo: ") and text in err


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_path_without_a_text_file_is_one_line_and_exit_code_1(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    (tmp_path / "binary").write_bytes(b"\0")
    for path in (tmp_path, tmp_path / "binary"):
        assert main(["demo", *arguments, str(path)]) == 1
        out, err = capsys.readouterr()
        assert not out
        assert err.startswith(f"python -m kafka demo: no text file found at {path}: binary files")
        assert err.count("\n") == 1


def test_words_are_runs_of_letters(tmp_path: pathlib.Path) -> None:
    (tmp_path / "text").write_text("self.send(word_count, 'w\u00f6rd') == 12 # word!\n")
    assert count_words(str(tmp_path / "text")) == {"self": 1, "send": 1, "word": 2, "count": 1, "w\u00f6rd": 1}


def test_a_unique_line_is_logged_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    demo._print(demo.Summary(1, 1, 0, 0, 1, 0.5), [])
    demo._print(demo.Summary(2, 2, 0, 0, 0, 0.5), [])
    assert capsys.readouterr().out.splitlines() == [
        "demo: 1 job, 1 done, 0 failed, 0 lost, 1 word, 0.5 s", "demo: 2 jobs, 2 done, 0 failed, 0 lost, 0 words, 0.5 s"
    ]  # fmt: skip


def test_a_broker_that_cannot_be_reached_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["demo", "--bootstrap-server", address]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("python -m kafka demo: ") and address in err


@pytest.mark.deep("starts Apache Kafka 3.9.1; kept by test/tasks/backends/test_kafka.py")
@pytest.mark.timeout(120)
def test_a_kafka_without_share_groups_is_one_line_and_exit_code_1(
    start_apache_kafka: Callable[..., ApacheKafka], capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_apache_kafka("3.9.1")
    assert main(["demo", "--bootstrap-server", broker.bootstrap]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "is Kafka 3.9 without share groups" in err


def test_each_run_has_an_app_of_its_own() -> None:
    one, other = make_app("kafka-demo-1"), make_app("kafka-demo-2")
    assert one.queues == other.queues == ["files"]
    assert set(one.names.__slots__) and one.names.results != other.names.results


# -- whole runs -------------------------------------------------------------------------------------------------------


StartDemo = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def demo_process() -> Iterator[StartDemo]:
    """``demo_process(*arguments)``: the command as a process, which ends with the test."""
    with contextlib.ExitStack() as ending:

        def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-m", "kafka", "demo", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=PACKAGE.parent,
                **options,
            )
            ending.enter_context(process)
            ending.callback(process.terminate)  # with all that it has started
            return process

        yield start


@pytest.fixture
def whole_run(demo_process: StartDemo) -> Callable[..., str]:
    """``whole_run(*arguments)``: what a run that goes well prints."""

    def run(*arguments: str) -> str:
        process = demo_process(*arguments)
        out, err = process.communicate(timeout=RUN_S)
        assert (process.returncode, err) == (0, "")
        return out

    return run


@pytest.mark.timeout(120)
def test_on_the_embedded_broker_the_words_are_those_of_a_plain_count(whole_run: Callable[..., str]) -> None:
    files = text_files(str(PACKAGE)).files
    counts = plain_count(files)
    *lines, last = whole_run().splitlines()
    assert last.rpartition(", ")[0] == (
        f"demo: {len(files)} jobs, {len(files)} done, 0 failed, 0 lost, {counts.total()} words"
    )
    expected = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]
    shown = [line.split(maxsplit=1) for line in lines[-10:]]
    assert [(word, int(times)) for times, word in shown] == expected


@pytest.mark.timeout(120)
def test_files_of_all_kinds_count_as_in_a_plain_count(tree: pathlib.Path, whole_run: Callable[..., str]) -> None:
    found = json.loads(whole_run("--json", "--workers", "1", str(tree)))
    files = text_files(str(tree)).files
    assert list(found) == ["jobs", "done", "failed", "lost", "words", "seconds"]
    assert (found["jobs"], found["done"], found["failed"], found["lost"]) == (len(files), len(files), 0, 0)
    assert found["words"] == plain_count(files).total()


@pytest.mark.deep("another broker; kept by the same test on the embedded broker")
@pytest.mark.timeout(120)
def test_on_apache_kafka_the_words_are_those_of_a_plain_count_and_nothing_is_left(
    apache_kafka: ApacheKafka, whole_run: Callable[..., str]
) -> None:
    files = text_files(str(PACKAGE)).files
    found = json.loads(whole_run("--json", "--bootstrap-server", apache_kafka.bootstrap))
    assert (found["jobs"], found["done"], found["words"]) == (len(files), len(files), plain_count(files).total())
    with KafkaAdminClient(bootstrap_servers=apache_kafka.bootstrap) as admin:
        assert not [name for name in admin.list_topics() if name.startswith("kafka-demo-")]
        assert not [group for group in admin.list_groups() if group["group_id"].startswith("kafka-demo-")]


@pytest.mark.timeout(120)
def test_a_worker_that_is_killed_costs_no_job(tmp_path: pathlib.Path, demo_process: StartDemo) -> None:
    for number in range(100):
        (tmp_path / f"{number}.txt").write_text("some words " * 100_000)
    process = demo_process("--json", str(tmp_path))
    until(lambda: bool(workers_of(process.pid)))
    os.kill(workers_of(process.pid)[0], signal.SIGKILL)
    out, err = process.communicate(timeout=RUN_S)
    assert process.returncode == 0
    found = json.loads(out)
    assert (found["jobs"], found["done"], found["words"]) == (100, 100, 100 * 200_000)
    assert "was killed by SIGKILL; another one takes its place" in err


@pytest.mark.timeout(120)
def test_when_the_broker_is_killed_the_run_ends_and_says_what_is_lost(
    tmp_path: pathlib.Path, demo_process: StartDemo
) -> None:
    for number in range(99):
        (tmp_path / f"{number}.txt").write_text("some words")
    (tmp_path / "big").write_bytes(b"some words " * 20_000_000)  # takes seconds: it has not ended when the broker does
    process = demo_process(str(tmp_path))
    assert process.stdout is not None
    assert "100 files, 2 workers" in process.stdout.readline()
    (broker,) = [pid for pid, parent, command in processes() if parent == process.pid and "kafka broker" in command]
    while "jobs have ended" not in process.stdout.readline():
        assert process.poll() is None
    os.kill(broker, signal.SIGKILL)
    out, err = process.communicate(timeout=RUN_S)
    assert process.returncode == 1
    figures = [int(number) for number in re.findall(r"(\d+) (?:jobs|done|failed|lost)", out.splitlines()[-1])]
    jobs, done, failed, lost = figures
    assert (jobs, failed) == (100, 0) and done + lost == 100 and done > 0 and lost > 0
    assert "the broker has ended" in err and "Traceback" not in err
    assert not workers_of(process.pid)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_no_process_and_no_directory(
    signum: int, code: int, tmp_path: pathlib.Path, tree: pathlib.Path, demo_process: StartDemo
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (tree / "big").write_bytes(b"some words " * 20_000_000)
    process = demo_process(str(tree), env={**os.environ, "TMPDIR": str(temporary)})
    assert process.stdout is not None
    assert "files, 2 workers" in process.stdout.readline()
    until(lambda: len(workers_of(process.pid)) == 2)  # a log is there before its worker
    assert len(list(temporary.glob("*/worker-*.log"))) == 2
    children = {child for child, parent, _ in processes() if parent == process.pid}
    assert len(children) == 3
    process.send_signal(signum)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, "")
    assert list(temporary.iterdir()) == []
    assert not [command for pid, _, command in processes() if pid in children or str(temporary) in command]


def test_nothing_outlives_a_demo_that_is_killed(
    tmp_path: pathlib.Path, tree: pathlib.Path, demo_process: StartDemo
) -> None:
    (tree / "big").write_bytes(b"some words " * 20_000_000)
    process = demo_process(str(tree), env={**os.environ, "TMPDIR": str(tmp_path)})
    until(lambda: len(workers_of(process.pid)) == 2)
    children = {child for child, parent, _ in processes() if parent == process.pid}
    process.kill()
    until(lambda: not children & {pid for pid, _, _ in processes()})


def processes() -> Iterator[tuple[int, int, str]]:
    """Process id, parent's id and command of all that run."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if state != "Z":
                yield int(path.name), int(parent), command


def workers_of(pid: int) -> list[int]:
    return [child for child, parent, command in processes() if parent == pid and "kafka worker" in command]
