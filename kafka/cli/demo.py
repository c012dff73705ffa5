"""``python -m kafka demo``: from end to end, with real work: one job for each text file under a path counts its words.

A run has a broker (an embedded one in a temporary directory, unless one is named), worker processes, an app of its own,
and this process, which enqueues, waits and shows how far it is. Afterwards nothing is left of it: processes are ended,
the directory is removed, on a named broker the run's topics and groups are deleted; so also after Ctrl-C and SIGTERM.

Each file's job ends in one of three ways: *done*; *failed* (the task raised); *lost*: it was not enqueued, or had not
ended when no worker was left, or nothing had ended for long. Seconds are from the first enqueue to the last result.
The task, the choice of files and the counting are in ``demo_tasks.py``, which the workers import.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from math import inf
from types import FrameType
from typing import Any, Final, NamedTuple, Protocol, TextIO

from kafka import KafkaAdminClient
from kafka.cli import EXIT_FAILED, EXIT_OK, CommandError, client_settings
from kafka.cli.demo_tasks import NAME_VARIABLE, QUEUE, WINDOW, Common, DemoFiles, Tally, make_app, task_of, text_files
from kafka.config import narrow
from kafka.errors import KafkaError
from kafka.tasks import READY, App, JobFailed, JobHandle, JobRevoked
from kafka.testing import EmbeddedBroker

# -- progress: a bar on a terminal, plain lines elsewhere, nothing with ``--json`` -------------------------------------
#
# The bar is rich's when that is installed (extra ``cli``), else a line of our own that is overwritten. Notes go to
# stderr, everything else to stdout.

BAR_WIDTH: Final = 30


class DemoProgress(Protocol):
    """Display of the demo's progress."""

    def show(self, ended: int) -> None:
        """Show the number of jobs that have ended."""

    def note(self, text: str) -> None:
        """Show a message at once."""

    def close(self) -> None:
        """The end; what comes next is printed as usual."""


def choose_progress(total: int, stream: TextIO | None = None, quiet: bool = False) -> DemoProgress:
    """The way to show ``total`` jobs on ``stream`` (default: stdout); ``quiet``: not at all, but for notes."""
    stream = sys.stdout if stream is None else stream
    if quiet:
        return SilentProgress()
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return LineProgress(total, stream)
    try:
        return RichProgress(total, stream)
    except ImportError:
        return BarProgress(total, stream)


class SilentProgress:
    """Notes alone."""

    def show(self, ended: int) -> None: ...

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None: ...


class LineProgress(SilentProgress):
    """A line for each tenth of the jobs."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream
        self._tenths = 0

    def show(self, ended: int) -> None:
        tenths = ended * 10 // self._total
        if tenths > self._tenths:
            self._tenths = tenths
            have = "has" if self._total == 1 else "have"
            print(f"{ended} of {_counted(self._total, 'job')} {have} ended", file=self._stream, flush=True)


class BarProgress(SilentProgress):
    """One line that is written over, as wide as the terminal has room for."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream
        self._ended = 0
        self._shown = ""

    def show(self, ended: int) -> None:
        self._ended = ended
        room = max(10, min(BAR_WIDTH, shutil.get_terminal_size().columns - 30))
        full = room * ended // self._total
        line = f"[{'#' * full}{'.' * (room - full)}] {ended} of {_counted(self._total, 'job')}"
        if line != self._shown:
            self._write(line)

    def note(self, text: str) -> None:
        self._write("")
        super().note(text)
        self.show(self._ended)

    def close(self) -> None:
        self._write("")

    def _write(self, line: str) -> None:
        """Put ``line`` in the place of what is there. Spaces, not an escape: any terminal knows those."""
        blank = " " * len(self._shown)
        self._stream.write(f"\r{blank}\r{line}" if self._shown else line)
        self._stream.flush()
        self._shown = line


class RichProgress(SilentProgress):
    """The bar of rich. ImportError where that is not installed."""

    def __init__(self, total: int, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Display

        columns = (TextColumn("jobs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # transient: the bar goes when all is done. What is printed meanwhile, to either stream, appears above it.
        self._display: Any = Display(*columns, console=Console(file=stream), transient=True)
        self._task = self._display.add_task("jobs", total=total)
        self._display.start()

    def show(self, ended: int) -> None:
        self._display.update(self._task, completed=ended)

    def close(self) -> None:
        self._display.stop()


# -- worker processes --------------------------------------------------------------------------------------------------
#
# They are started as ``python -m kafka worker``, each in a session of its own, so that Ctrl-C in the terminal reaches
# the demo alone, which then ends them in order. Their stdin is a pipe; its end tells them that the demo was killed
# (``demo_tasks.py``). A worker that is killed is replaced, a few times; one
# that ends by itself is not, because the next one would end for the same reason, which is in its log.


REPLACEMENTS: Final = 3
"""Workers that are started in the place of killed ones, in a run."""

STOP_S: Final = 5.0
"""After SIGTERM, before SIGKILL."""


class _Process(NamedTuple):
    number: int
    process: subprocess.Popen[bytes]
    log_path: str


class Workers:
    """``count`` processes of ``python -m kafka worker ARGUMENTS``. Their logs go into ``directory``.

    ``undisturbed``: a block in which no signal strikes, so that no process is started and then forgotten.
    """

    def __init__(
        self,
        count: int,
        arguments: list[str],
        environment: Mapping[str, str],
        directory: str,
        undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._count = count
        self._arguments = arguments
        self._environment = {**os.environ, "PYTHONPATH": _python_path(), **environment}
        self._directory = directory
        self._undisturbed = undisturbed
        self._running: list[_Process] = []
        self._started = 0

    @property
    def pids(self) -> list[int]:
        """The processes that were running when last looked at."""
        return [worker.process.pid for worker in self._running]

    def start(self) -> None:
        """Start all of them. OSError when a process cannot be had."""
        for _ in range(self._count):
            self._start_one()

    def check(self) -> Iterator[str]:
        """Look for workers that have ended, and replace killed ones. One line for each."""
        for worker in list(self._running):
            code = worker.process.poll()
            if code is None:
                continue
            self._running.remove(worker)
            _close(worker.process)
            text = f"worker {worker.number} (process {worker.process.pid}) {_ending(code)}"
            if code < 0 and self._started < self._count + REPLACEMENTS:
                self._start_one()
                yield f"{text}; another one takes its place"
            else:
                yield f"{text}: {_last_line(worker.log_path)}"

    def stop(self, patience_s: float = STOP_S) -> None:
        """End them all: SIGTERM, and SIGKILL for those that are there after ``patience_s``."""
        for worker in self._running:
            worker.process.terminate()
        give_up_at = time.monotonic() + patience_s
        for worker in self._running:
            try:
                worker.process.wait(max(0.0, give_up_at - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            _close(worker.process)
        self._running.clear()

    def _start_one(self) -> None:
        self._started += 1
        log_path = os.path.join(self._directory, f"worker-{self._started}.log")
        command = [sys.executable, "-m", "kafka", "worker", *self._arguments]
        with self._undisturbed(), open(log_path, "wb") as log_file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
                cwd=os.sep,
                env=self._environment,
            )
            self._running.append(_Process(self._started, process, log_path))


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _python_path() -> str:
    """A path on which this very package is found first, wherever it was run from."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    python_path = os.environ.get("PYTHONPATH")
    return os.pathsep.join([root, *([python_path] if python_path else [])])


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _last_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().strip().splitlines()
    except OSError:
        return "its log is gone"
    return lines[-1] if lines else "it said nothing"


# Ctrl-C and SIGTERM as exceptions at points where they can do no harm.
#
# Raised at once they could strike between a process's start and the note that it was started, which would leave it
# behind for ever; inside ``with interrupts.held():`` they therefore wait for the block's end. SIGINT becomes
# KeyboardInterrupt, SIGTERM SystemExit with the exit code that shells give for it. In another thread than the main
# one, where no signal arrives, all of this does nothing.


EXIT_TERMINATED: Final = 128 + signal.SIGTERM


class Interrupts:
    """Takes the two signals over between ``with`` and its end."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._holds = 0
        self._pending: int | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(signum) is not signal.SIG_IGN:  # as it is for commands that a script put aside
                    self._before[signum] = signal.signal(signum, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before.clear()

    @contextmanager
    def held(self) -> Iterator[None]:
        """What arrives within is raised at the end."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._maybe_raise()

    def _arrived(self, signum: int, frame: FrameType | None) -> None:
        self._pending = signum
        self._maybe_raise()

    def _maybe_raise(self) -> None:
        if self._pending is None or self._holds:
            return
        signum, self._pending = self._pending, None
        if signum == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(EXIT_TERMINATED)


COMMONEST: Final = 10
MOST_WORKERS: Final = 100
LONGEST_SHOWN: Final = 40
"""Characters of a word that are printed."""

TURN_S: Final = 0.05
CLOSE_S: Final = 5.0
LAST_WORDS_S: Final = 1.0
"""After the last worker has ended, so long for results that are on their way."""

PATIENCE_S: Final = 60.0
SLOWEST_BYTES_S: Final = 500_000
"""A file is given :data:`PATIENCE_S` and a second for so many of its bytes, before its job counts as lost."""

FAILURES_SHOWN: Final = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("path", nargs="?", metavar="PATH", help="a directory or file (default: this package's sources)")
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="a broker (default: an embedded one, in a temporary directory)"
    )
    client_settings.add_arguments(parser)
    parser.add_argument(
        "--workers", type=_workers, default=2, metavar="N", help="number of worker processes (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else on stdout")


def run(args: argparse.Namespace) -> int:
    """Count, print, and say by the exit code whether all went well."""
    files_found = _find(args.path)
    if not files_found.files:
        left_out = "binary files, and what is in hidden directories, are left out"
        raise CommandError(f"no text file found at {args.path}: {left_out}", EXIT_FAILED)
    with Interrupts() as interrupts:
        place = _Place.of(args)
        summary, commonest = _count(interrupts, files_found, place, args.workers, quiet=args.json)
    if args.json:
        print(json.dumps(summary._asdict()))
    else:
        _print(summary, commonest)
    return EXIT_FAILED if summary.failed + summary.lost else EXIT_OK


class Summary(NamedTuple):
    """What a run comes to; what ``--json`` prints."""

    jobs: int = 0
    done: int = 0
    failed: int = 0
    lost: int = 0
    words: int = 0
    seconds: float = 0.0


class _Place(NamedTuple):
    """The broker: its address, None for one of our own; how to be let in, and the arguments that say so to workers."""

    bootstrap: str | None
    security: dict[str, Any]
    arguments: list[str]

    @classmethod
    def of(cls, args: argparse.Namespace) -> _Place:
        if args.bootstrap_server is None:
            return cls(None, {}, [])
        security = client_settings.read(args, client_settings.CONNECTION)
        arguments = [] if args.config is None else ["--config", args.config]
        for entry in args.settings:
            arguments += ["-X", entry]
        return cls(args.bootstrap_server, security, arguments)

    def __repr__(self) -> str:
        return f"<_Place {self.bootstrap}>"


class DemoRun:
    """The jobs of one run, from enqueueing to their results. ``failures``: the first few, for people.

    ``has_broker``: whether the broker is still there, as far as that can be known.
    """

    def __init__(
        self,
        app: App,
        files_found: DemoFiles,
        workers: Workers,
        progress: DemoProgress,
        has_broker: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tally = Tally()
        self.done = 0
        self.failed = 0
        self.failures: list[str] = []
        self._app = app
        self._files = files_found.files
        self._patience_s = PATIENCE_S + files_found.largest_bytes / SLOWEST_BYTES_S
        self._workers = workers
        self._progress = progress
        self._has_broker = has_broker
        self._clock = clock
        # Enqueued a few at a time: the limit is on what is under way.
        self._waiting = iter(files_found.files)
        self._under_way: dict[JobHandle[dict[str, Any]], str] = {}

    def to_the_end(self) -> Summary:
        """Enqueue everything and wait for it. KafkaError when not even the first job can be enqueued."""
        started = ended_at = self._clock()
        alone_at = inf
        while True:
            self._enqueue()
            if not self._under_way:
                break
            self._pause()
            for note in self._workers.check():
                self._progress.note(note)
            if not self._has_broker():  # before it is asked again, which would take its time
                self._progress.note("the broker has ended")
                break
            now = self._clock()
            alone_at = inf if self._workers.pids else min(alone_at, now)
            if self._collect():
                ended_at = now
                self._progress.show(self.done + self.failed)
            elif now - alone_at > LAST_WORDS_S:
                self._progress.note("no worker is left")
                break
            elif now - ended_at > self._patience_s:
                self._progress.note(f"no job has ended for {self._patience_s:.0f} s")
                break
        lost = len(self._files) - self.done - self.failed
        seconds = round(self._clock() - started, 3)
        return Summary(len(self._files), self.done, self.failed, lost, self.tally.words, seconds)

    def _enqueue(self) -> None:
        task = task_of(self._app)
        try:
            for path in islice(self._waiting, WINDOW - len(self._under_way)):
                self._under_way[task.delay(path)] = path
        except KafkaError as error:
            if not self._under_way and not self.done + self.failed:
                raise
            self._waiting = iter(())
            self._progress.note(f"no more jobs can be enqueued: {error.args[0] if error.args else error}")

    def _pause(self) -> None:
        """Wait for the youngest job, a moment at most: at the end no time is lost, and till then looks are few."""
        try:
            next(reversed(self._under_way)).wait(TURN_S)
        except KafkaError:
            time.sleep(TURN_S)

    def _collect(self) -> int:
        """Take in the jobs that have ended or could not be enqueued; how many there were."""
        gone = []
        with contextlib.suppress(KafkaError):  # the broker does not answer at the moment; patience ends the waiting
            for job, path in self._under_way.items():
                if self._is_over(job, path):
                    gone.append(job)
        for job in gone:
            del self._under_way[job]
        return len(gone)

    def _is_over(self, job: JobHandle[dict[str, Any]], path: str) -> bool:
        try:
            job.raise_if_not_sent()
        except KafkaError as error:
            self._note_failure(path, error)
            return True
        if job.status() not in READY:
            return False
        try:
            self.tally.add(path, job.result(timeout=0))
            self.done += 1
        except (JobFailed, JobRevoked) as error:
            self._note_failure(path, error)
            self.failed += 1
        return True

    def _note_failure(self, path: str, error: KafkaError) -> None:
        if len(self.failures) < FAILURES_SHOWN:
            self.failures.append(f"{path}: {error.args[0] if error.args else error}")


def _find(path: str | None) -> DemoFiles:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        files_found = text_files(package if path is None else path)
    except OSError as error:
        reason = f"cannot read {path}: {error.strerror}" if error.strerror else str(error)
        raise CommandError(f"{reason}; PATH is a directory or a file") from None
    except ValueError as error:  # a NUL character in it
        raise CommandError(f"{path!r} is not a path: {error}") from None
    if files_found.unreadable:
        more = f", and {len(files_found.unreadable) - 1} more" if len(files_found.unreadable) > 1 else ""
        print(f"not readable, left out: {files_found.unreadable[0]}{more}", file=sys.stderr)
    return files_found


def _count(
    interrupts: Interrupts, files_found: DemoFiles, place: _Place, count: int, quiet: bool
) -> tuple[Summary, list[Common]]:
    """One run, with all that it needs, of which nothing is left when it is over."""
    cleaning = contextlib.ExitStack()
    bootstrap = place.bootstrap
    try:
        broker = None
        if bootstrap is None:
            with interrupts.held():
                broker = _embedded(cleaning)
        address = broker.bootstrap if broker is not None else bootstrap or ""
        app = make_app(f"kafka-demo-{uuid.uuid4().hex[:8]}")
        app.connect_to(address, **place.security)
        cleaning.callback(app.close, CLOSE_S)
        app.backend()  # an invalid address is an error here
        if bootstrap is not None:
            _check(address, place.security)
        if not quiet:
            kind = "an embedded broker" if bootstrap is None else "the broker"
            files, processes = _counted(len(files_found.files), "file"), _counted(count, "worker")
            print(f"{files}, {processes}, {kind} at {address}", flush=True)
        if bootstrap is not None:
            cleaning.callback(_delete_topics, app, address, place.security)
        logs = cleaning.enter_context(tempfile.TemporaryDirectory(prefix="kafka-demo-"))
        # Threads: the workers have one already (the lifeline of demo_tasks.py), and with threads one does not fork.
        pool = ["--pool", "threads", "--concurrency", "2"]
        arguments = ["kafka.cli.demo_tasks:app", "--queues", QUEUE, *pool, "--bootstrap-server", address]
        environment = {NAME_VARIABLE: app.name}
        if bootstrap is None:
            environment[client_settings.VARIABLE] = ""  # our own broker has no authentication
        workers = Workers(count, arguments + place.arguments, environment, logs, interrupts.held)
        cleaning.callback(workers.stop)
        workers.start()
        progress = choose_progress(len(files_found.files), quiet=quiet)
        work = DemoRun(app, files_found, workers, progress, lambda: broker is None or broker.is_running)
        try:
            summary = work.to_the_end()
        finally:
            progress.close()
        for failure in work.failures:
            print(f"failed: {failure}", file=sys.stderr)
        return summary, [] if quiet else _commonest(work.tally)
    finally:
        with interrupts.held():
            cleaning.close()


def _check(address: str, security: dict[str, Any]) -> None:
    """Say at once when nothing answers, or when what answers has no share groups, before workers are started for it."""
    if address.startswith("embedded:"):
        return
    broker_versions = client_settings.check_broker(address, security)
    if broker_versions.features.get("share.version", (0, 0))[1] < 1:
        raise CommandError(
            f"{address} is Kafka {broker_versions.release} without share groups, which the workers need: 4.2 or later, "
            "with the feature share.version 1",
            EXIT_FAILED,
        )


def _embedded(cleaning: contextlib.ExitStack) -> EmbeddedBroker:
    broker = EmbeddedBroker()
    cleaning.callback(broker.close)
    return broker.start()


def _commonest(tally: Tally) -> list[Common]:
    try:
        return tally.commonest(COMMONEST)
    except OSError as error:
        print(f"no commonest words: {error}", file=sys.stderr)
        return []


def _delete_topics(app: App, address: str, security: dict[str, Any]) -> None:
    """Leave nothing of the run on a broker that is not ours, as far as it lets us."""
    names = app.names
    app.close(CLOSE_S)  # before its topics go: a client that asks for a missing topic can bring it back
    topics = [*names.job_topics(QUEUE), names.dead(QUEUE), names.results, names.late, names.workers]
    topics += [names.commands, names.schedule, names.cancelled]
    settings = narrow("admin", security)
    with contextlib.suppress(KafkaError), KafkaAdminClient(bootstrap_servers=address, **settings) as admin:
        # Groups first: a broker that has lost the topic from its metadata cannot delete a share group's state of it,
        # tries for 15 s, and keeps the group.
        for group in names.job_topics(QUEUE):
            with contextlib.suppress(KafkaError):
                admin.delete_groups([group])
        admin.delete_topics(topics, raise_errors=False)


def _print(summary: Summary, commonest: list[Common]) -> None:
    width = max((len(str(common.times)) for common in commonest), default=0)
    for common in commonest:
        print(f"{common.times:>{width}}  {_shown(common.word)}")
    jobs, done, failed, lost, words, seconds = summary
    print(
        f"demo: {_counted(jobs, 'job')}, {done} done, {failed} failed, {lost} lost, {_counted(words, 'word')}, "
        f"{seconds:.1f} s"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _shown(word: str) -> str:
    """A word as any terminal can show it: no control characters, nothing that stdout cannot encode, not too long."""
    encoding = sys.stdout.encoding or "ascii"
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in word[: LONGEST_SHOWN + 1])
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _workers(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if not 1 <= count <= MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"the number of workers must be 1 to {MOST_WORKERS}, not {text}")
    return count
