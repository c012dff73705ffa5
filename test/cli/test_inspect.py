"""``inspect``: the workers of an app as tables, as JSON, and on a terminal; a real worker on an embedded broker."""

from __future__ import annotations

import io
import json
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka.cli import inspect, main
from kafka.cli.inspect import Inspected, duration, plain, size
from kafka.errors import GroupAuthorizationFailedError, NoBrokersAvailable
from kafka.net.loop import Loop
from kafka.tasks import (
    App,
    ChildSnapshot,
    Directory,
    QueueDelivery,
    QueueJobs,
    QueueLength,
    RunningJob,
    Seen,
    WorkerSnapshot,
    run_worker,
)
from kafka.tasks.health import monitor
from kafka.testing import EmbeddedBroker
from test.support.commands import started_command
from test.support.waiting import eventually, until

SOON_S = 30.0
ROOT = Path(__file__).resolve().parents[2]

WORKER = WorkerSnapshot(
    "web:12:ab",
    app="shop",
    host="web",
    pid=12,
    queues=("default", "mail"),
    pool="prefork",
    concurrency=2,
    busy=1,
    held=7,
    stage="WORKING",
    uptime_s=3725.0,
    contact_age_s=0.25,
    rss_bytes=30 << 20,
    counts={"done": 5},
    lost={"oom": 1, "signal": 0},
    children=(ChildSnapshot(20, 1, "busy", "j1", "mail.send", 3.5, 40 << 20, 4, 0.5), ChildSnapshot(21, 2, "idle")),
    running=(RunningJob("j1", "mail.send", 3.5, 40 << 20, 20),),
)


QUEUES = [QueueLength("default", 0, 0, 0, None), QueueLength("mail", 1200, 2, 14, True), QueueLength("new", 0, 0, 0)]
DELIVERIES = [QueueDelivery("default", "share", None, "Empty"), QueueDelivery("mail", "group", "classic", "Stable")]


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_workers_queues_children_and_running_jobs_are_tables() -> None:
    assert list(plain("shop", Inspected([Seen(WORKER, 1.0)], QUEUES, "", DELIVERIES), "db:9092")) == [
        "1 worker of shop",
        "  worker  state  queues        pool     busy  held  done  lost   up     rss  brokers",
        "  web:12  ready  default,mail  prefork  1/2   7     5     oom 1  1h02m  30M  0.2s",
        "",
        "queues",
        "  queue    available  running  dead  paused  delivery         group",
        "  default  0          0        0     -       share            Empty",
        "  mail     1200       2        14    yes     group (classic)  Stable",
        "  new      0          0        0     no      -                -",
        "",
        "children",
        "  worker  child  gen  state  jobs  rss  active",
        "  web:12  20     1    busy   4     40M  0.5s",
        "  web:12  21     2    idle   0     -    0.0s",
        "",
        "running jobs",
        "  worker  child  job  task       age   rss",
        "  web:12  20     j1   mail.send  3.5s  40M",
        "",
    ]


def test_an_app_without_workers_is_reported() -> None:
    assert list(plain("shop", Inspected([]), "db:9092")) == ["no workers of shop found at db:9092", ""]


def test_queues_are_shown_without_workers_and_workers_without_the_right_to_see_the_queues() -> None:
    shown = list(plain("shop", Inspected([], QUEUES), "db:9092"))
    assert shown[:3] == ["no workers of shop found at db:9092", "", "queues"]
    shown = list(plain("shop", Inspected([Seen(WORKER, 1.0)], None, "GROUP_AUTHORIZATION_FAILED"), "db:9092"))
    assert shown[0] == "1 worker of shop" and "queues" not in shown
    assert shown[-1] == "the lengths of the queues are not known: GROUP_AUTHORIZATION_FAILED"


@pytest.mark.parametrize(
    ("changed", "age_s", "state", "note"),
    [
        ({}, 1.0, "ready", None),
        ({"reasons": ("pool: no child is up yet",)}, 1.0, "not", "web:12: pool: no child is up yet"),
        ({"stage": "DRAINING", "reasons": ("stopping: DRAINING",)}, 1.0, "draining", "web:12: stopping: DRAINING"),
        ({"left_out": 40}, 1.0, "ready", "web:12: 40 more children and jobs are not shown"),
        (
            {"queue_jobs": (QueueJobs("mail", 3, 2, 3_104), QueueJobs("low", 0, 0, 900), QueueJobs("default"))},
            1.0,
            "ready",
            "web:12: queue mail: 2 partitions take no more jobs until long ones end (3104 characters of offset "
            "metadata are used)",
        ),
        ({}, 23.0, "silent", "web:12: silent for 23s: killed, stopped, or cut off from the brokers"),
    ],
)
def test_what_is_wrong_with_a_worker_is_its_state_and_a_line(
    changed: dict[str, Any], age_s: float, state: str, note: str | None
) -> None:
    seen_workers = [Seen(WorkerSnapshot(**{**vars(WORKER), **changed}), age_s)]
    lines = list(plain("shop", Inspected(seen_workers), "db:9092"))
    assert lines[2].split()[1] == state
    assert (lines[-1] or None) == note


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0.0s"), (0.0, "0.0s"), (9.94, "9.9s"), (10.0, "10s"), (59.9, "59s"), (60.0, "1m00s"),
        (3599.0, "59m59s"), (3600.0, "1h00m"), (86_399.0, "23h59m"), (86_400.0, "1d00h"), (1_000_000.0, "11d13h"),
    ],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (0, "0B"), (1023, "1023B"), (2048, "2K"), (31 << 20, "31M"), (3 << 30, "3.0G"), (3 << 40, "3072.0G")],
)
def test_sizes_are_short(count: int | None, text: str) -> None:
    assert size(count) == text


def test_names_of_others_are_no_markup_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = pytest.importorskip("rich.console", reason="needs the extra cli")
    out = io.StringIO()
    view = inspect.rich_view("shop", lambda: "db:9092")
    assert view is not None
    view._live.console = console.Console(file=out, width=200, force_terminal=False)
    running = (RunningJob("[bold]j1[/bold]", "[/nonsense]", 1.0),)
    with view:
        view.show(Inspected([Seen(WorkerSnapshot(**{**vars(WORKER), "running": running}), 1.0)]))
    assert "[bold]j1[/bold]" in out.getvalue()
    assert "[/nonsense]" in out.getvalue()


# -- the command -------------------------------------------------------------------------------------------------------


class ADirectory:
    """A directory whose reader is interrupted (Ctrl-C) at the third look."""

    looks = 0
    has_broker = True

    def __init__(self, app: App) -> None:
        ADirectory.looks = 0

    def workers(self, wait_s: float = 0.0) -> Sequence[Seen]:
        ADirectory.looks += 1
        if ADirectory.looks == 3:
            raise KeyboardInterrupt
        return [Seen(WORKER, 1.0)]

    def queue_lengths(self, seen_workers: Sequence[Seen]) -> list[QueueLength]:
        assert [seen.worker for seen in seen_workers] == [WORKER]
        return QUEUES

    def deliveries(self) -> list[QueueDelivery]:
        return DELIVERIES

    def __enter__(self) -> ADirectory:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    text = "from kafka.tasks import App\napp = App('shop', bootstrap_servers='nowhere:1')\n"
    (tmp_path / "inspected.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "inspected", raising=False)
    monkeypatch.setattr(inspect, "LEAST_S", 0.0)
    return "inspected:app"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect, "Directory", ADirectory)


def test_elsewhere_than_on_a_terminal_it_is_shown_once(
    tasks: str, fake: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", tasks]) == 0
    inspected = Inspected([Seen(WORKER, 1.0)], QUEUES, "", DELIVERIES)
    assert capsys.readouterr().out == "\n".join(plain("shop", inspected, "db:9092")) + "\n"
    assert ADirectory.looks == 1


def test_an_interval_refreshes_until_ctrl_c_which_is_no_error(
    tasks: str, fake: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", tasks, "--interval", "0.001"]) == 0
    assert capsys.readouterr().out.count("1 worker of shop") == 2


def test_json_is_one_object_or_a_line_each_time(tasks: str, fake: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", tasks, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["queues"] == [
        {"queue": "default", "available": 0, "running": 0, "dead": 0, "paused": None}
        | {"delivery": "share", "protocol": None, "group_state": "Empty"},
        {"queue": "mail", "available": 1200, "running": 2, "dead": 14, "paused": True}
        | {"delivery": "group", "protocol": "classic", "group_state": "Stable"},
        {"queue": "new", "available": 0, "running": 0, "dead": 0, "paused": False}
        | {"delivery": None, "protocol": None, "group_state": None},
    ]
    (found,) = shown["workers"]
    assert (found["id"], found["ready"], found["silent"], found["age_s"]) == ("web:12:ab", True, False, 1.0)
    assert found["children"][0]["job_name"] == "mail.send"
    assert found["running"] == [{"id": "j1", "name": "mail.send", "age_s": 3.5, "rss_bytes": 40 << 20, "pid": 20}]
    assert main(["inspect", tasks, "--json", "--interval", "0.001"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["workers"][0]["id"] for line in lines] == ["web:12:ab"] * 2


def test_workers_are_shown_where_the_queues_cannot_be_described(
    tasks: str, fake: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: ADirectory, seen_workers: Sequence[Seen]) -> list[QueueLength]:
        raise GroupAuthorizationFailedError("shop.mail")

    monkeypatch.setattr(ADirectory, "queue_lengths", refuse)
    assert main(["inspect", tasks]) == 0
    assert "1 worker of shop" in (shown := capsys.readouterr().out)
    assert shown.splitlines()[-1].startswith("the lengths of the queues are not known: ") and "shop.mail" in shown
    assert main(["inspect", tasks, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queues"] is None


def test_the_lengths_are_served_until_ctrl_c_and_while_the_brokers_fail_that_they_do(
    tasks: str, fake: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[object] = []

    class AnExporter:
        address = "127.0.0.1:9101"

        def __init__(self, place: str) -> None:
            served.append(place)

        def update(self, queues: Sequence[QueueLength], seen_workers: Sequence[Seen]) -> None:
            served.append((queues, [seen.worker for seen in seen_workers]))

        def fail(self, why: str) -> None:
            served.append(why)

        def close(self) -> None:
            served.append("closed")

    def lengths(self: ADirectory, seen_workers: Sequence[Seen]) -> list[QueueLength]:
        if ADirectory.looks == 2:
            raise NoBrokersAvailable("no broker")
        return QUEUES

    monkeypatch.setattr(inspect, "QueueExporter", AnExporter)
    monkeypatch.setattr(ADirectory, "queue_lengths", lengths)
    assert main(["inspect", tasks, "--health-port", "9101", "--interval", "0.001"]) == 0
    place, first, second, last = served
    assert (place, first, last) == ("9101", (QUEUES, [WORKER]), "closed")
    assert "no broker" in str(second)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals between processes")
def test_the_exporter_ends_with_exit_code_0_by_a_stop_signal(tmp_path: Path, name: str) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    (tmp_path / "served.py").write_text(
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # the tests may run with it ignored
        "from kafka.tasks import App\n"
        f"app = App('shop', bootstrap_servers='embedded:{tmp_path}/data')\n"
    )
    with started_command(tmp_path, "inspect", "served:app", "--health-port", "0") as (process, stderr):
        assert "serving the lengths of queues at http://127.0.0.1:" in stderr.readline()
        process.send_signal(getattr(signal, name))
        assert (process.wait(SOON_S), stderr.read()) == (0, "")


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("has_rich", [True, False])
def test_on_a_terminal_it_refreshes_with_rich_and_is_plain_without(
    tasks: str, fake: None, monkeypatch: pytest.MonkeyPatch, has_rich: bool
) -> None:
    if has_rich:
        pytest.importorskip("rich", reason="needs the extra cli")
        monkeypatch.setattr(inspect, "REFRESH_S", 0.001)
    else:
        for name in ("rich.box", "rich.console", "rich.live", "rich.table", "rich.text"):
            monkeypatch.setitem(sys.modules, name, None)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["inspect", tasks]) == 0
    assert "running jobs" in terminal.getvalue()
    assert ADirectory.looks == (3 if has_rich else 1)
    assert main(["inspect", tasks, "--once"]) == 0
    assert ADirectory.looks == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--interval", "-1"], "--interval must be 0 to 3600 seconds, not -1"),
        (["--interval", "4000"], "--interval must be"),
        (["--interval", "nan"], "--interval must be"),
        (["--interval", "1", "--once"], "not allowed with argument"),
        (["--interval", "soon"], "invalid float"),
        (["--health-port", "nowhere"], "--health-port is PORT"),
        (["--health-port", "0", "--once"], "--health-port serves until it is stopped"),
        (["--health-port", "0", "--json"], "not allowed with argument"),
    ],
)
def test_a_wrong_use_is_one_line_and_exit_code_2(
    tasks: str, fake: None, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert main(["inspect", tasks, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("python -m kafka inspect: ")
    assert text in captured.err
    assert captured.err.count("\n") == 1


def test_an_embedded_broker_that_does_not_run_is_named_and_neither_started_nor_made(
    tasks: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["inspect", tasks, "--bootstrap-server", "embedded:.kafka"]) == 0
    assert capsys.readouterr().out.strip() == (
        f"no workers of shop found at embedded:{tmp_path}/.kafka (no broker runs there)"
    )
    assert main(["inspect", tasks, "--bootstrap-server", "embedded:.kafka", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"workers": [], "queues": []}
    assert not (tmp_path / ".kafka").exists()


def test_a_directory_finds_an_embedded_broker_that_is_started_later(tmp_path: Path) -> None:
    app = App("shop", bootstrap_servers=f"embedded:{tmp_path}/later")
    with Directory(app) as directory:
        assert directory.workers() == []
        assert not directory.has_broker
        assert directory.queue_lengths([]) == []
        with EmbeddedBroker(tmp_path / "later"):
            assert directory.workers() == []
            assert directory.has_broker
    app.close()


def test_a_broker_that_cannot_be_reached_is_exit_code_1(tasks: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", tasks, "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


# -- a whole worker ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True) as running:
        yield running


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SOON_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_real_worker_is_seen_by_probes_by_prometheus_and_by_inspect(
    broker: EmbeddedBroker,
    tasks: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(monitor, "PUBLISH_S", 0.2)
    monkeypatch.setattr(monitor, "FIRST_PUBLISH_S", 0.1)
    app = App("shop", bootstrap_servers=broker.bootstrap)
    begun, advance = threading.Event(), threading.Event()

    @app.task(name="mail.send")
    def send() -> None:
        begun.set()
        advance.wait(SOON_S)

    @app.task(name="mail.quick")
    def quick() -> None: ...

    first = quick.delay()
    send.delay()
    app.flush(SOON_S)
    loop = Loop()
    workers: list[Any] = []
    caplog.set_level("INFO", "kafka.tasks.health")
    thread = threading.Thread(
        target=run_worker, args=(app, [], "threads", 2, loop, workers.append), kwargs={"health": "0"}
    )
    thread.start()
    try:
        assert begun.wait(SOON_S)
        (line,) = [record.getMessage() for record in caplog.records if "health server" in record.getMessage()]
        port = int(line.partition("127.0.0.1:")[2].partition("/")[0])
        assert get(port, "/readyz") == (200, "ready\n")
        assert get(port, "/healthz") == (200, "ok: WORKING\n")
        assert get(port, "/nothing")[0] == 404
        pytest.importorskip("prometheus_client", reason="needs the extra metrics")
        status, metrics = get(port, "/metrics")
        assert status == 200
        assert "kafka_tasks_jobs_in_pool 1.0\n" in metrics
        assert first.wait(SOON_S)
        ran = 'kafka_tasks_job_outcomes_total{outcome="succeeded",queue="default",task="mail.quick"} 1.0\n'
        unfinished = 'kafka_tasks_queue_unfinished_jobs{queue="default"} 1.0\n'
        until(lambda: ran in (text := get(port, "/metrics")[1]) and unfinished in text)
        with Directory(app) as directory:
            (seen,) = until(lambda: [each for each in directory.workers(0.1) if each.worker.running])
        assert (seen.worker.pool, seen.worker.stage, seen.worker.is_ready) == ("threads", "WORKING", True)
        assert [job.name for job in seen.worker.running] == ["mail.send"]
        capsys.readouterr()
        assert main(["inspect", tasks, "--bootstrap-server", broker.bootstrap]) == 0
        assert "mail.send" in capsys.readouterr().out
        assert main(["inspect", tasks, "--bootstrap-server", broker.bootstrap, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        is_shared = QueueDelivery("default", "share", None, "Stable")._asdict()
        assert found["queues"] == [QueueLength("default", 0, 1, 0, 0)._asdict() | is_shared]
        loop.call_soon_threadsafe(workers[0].stop)
        eventually(lambda: get(port, "/readyz"), (503, "stopping: DRAINING\n"))
        assert get(port, "/healthz") == (200, "ok: DRAINING\n")
    finally:
        advance.set()
        loop.call_soon_threadsafe(workers[0].stop_gracefully)
        thread.join(SOON_S)
        loop.close()
    assert main(["inspect", tasks, "--bootstrap-server", broker.bootstrap, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["workers"] == [], "a worker that has left is not shown"
    assert shown["queues"] == [QueueLength("default", 0, 0, 0)._asdict() | is_shared | {"group_state": "Empty"}]
