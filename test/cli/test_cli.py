"""The command line's frame: the table, errors as one line, exit codes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import types
from collections.abc import Callable

import pytest

from kafka import cli
from kafka.errors import (
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaConnectionError,
    NoBrokersAvailable,
)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], int]:
    """Run a command "probe" that does what the function does."""

    def run(action: Callable[[], int]) -> int:
        module = types.ModuleType("test_cli_probe")
        module.add_arguments = lambda parser: parser.add_argument("--n", type=int)  # type: ignore[attr-defined]
        module.run = lambda args: action()  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "test_cli_probe", module)
        monkeypatch.setitem(cli.COMMANDS, "probe", ("test_cli_probe", "a probe"))
        return cli.main(["probe"])

    return run


def raising(error: BaseException) -> Callable[[], int]:
    def action() -> int:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KafkaConfigurationError("linger: no such setting"), 2, "linger: no such setting"),
        (IllegalArgumentError("no queue x"), 2, "no queue x"),
        (cli.CommandError("no module a.b"), 2, "no module a.b"),
        (cli.CommandError("port 9092 is in use", 1), 1, "port 9092 is in use"),
        (NoBrokersAvailable("a:1: refused"), 1, "a:1: refused"),
        (KafkaConnectionError("two\nlines"), 1, "two lines"),
        (OSError("disk full"), 1, "disk full"),
    ],
)
def test_errors_are_one_line_with_the_right_exit_code(
    command: Callable[[Callable[[], int]], int],
    error: Exception,
    code: int,
    text: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command(raising(error)) == code
    assert capsys.readouterr().err == f"python -m kafka probe: {text}\n"


@pytest.mark.parametrize(
    ("started", "name"),
    [
        ("/usr/bin/kafka-taskloop", "kafka-taskloop"),
        ("/x/kafka/__main__.py", "python -m kafka"),
        ("-c", "python -m kafka"),
    ],
)
def test_errors_and_help_have_the_name_under_which_it_was_started(
    started: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [started])
    assert cli.main(["settings", "--loud"]) == 2
    expected = f"{name} settings: unrecognized arguments: --loud (see {name} settings --help)\n"
    assert capsys.readouterr() == ("", expected)
    assert cli.main(["worker", "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: {name} worker ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", ": missing COMMAND: python -m kafka COMMAND (see python -m kafka --help)"),
        ("dead", " dead: missing action, APP.QUEUE: python -m kafka dead list|show|replay|drop APP.QUEUE [ID...]"),
        ("dead replay", " dead: missing APP.QUEUE: python -m kafka dead replay APP.QUEUE [ID...]"),
        ("queue purge --yes", " queue: missing APP.QUEUE: python -m kafka queue purge APP.QUEUE"),
        ("worker", " worker: missing MODULE:APP: python -m kafka worker MODULE:APP"),
        ("broker", " broker: missing --data-dir: python -m kafka broker --data-dir DIR"),
    ],
)
def test_an_error_of_missing_arguments_has_the_line_to_write(
    arguments: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"python -m kafka{text}")


def test_a_command_returns_its_own_exit_code(command: Callable[[Callable[[], int]], int]) -> None:
    assert command(lambda: 7) == 7


def test_an_interrupt_is_130_and_silent(
    command: Callable[[Callable[[], int]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == ""


def test_a_bug_is_not_hidden(command: Callable[[Callable[[], int]], int]) -> None:
    with pytest.raises(ZeroDivisionError):
        command(raising(ZeroDivisionError()))


def test_a_reader_that_went_away_is_silent() -> None:
    code = "import sys; from kafka import cli; sys.exit(cli.main(['probe']))"
    module = "def add_arguments(p): pass\ndef run(args):\n    for _ in range(100000): print('x' * 100)\n    return 0\n"
    script = f"import sys, types; m = types.ModuleType('m'); exec({module!r}, m.__dict__); sys.modules['m'] = m\n"
    script += "from kafka import cli; cli.COMMANDS['probe'] = ('m', '')\n" + code
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == cli.EXIT_BROKEN_PIPE


def test_names_may_stand_behind_options(
    command: Callable[[Callable[[], int]], int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, list[str], int]] = []

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("action")
        parser.add_argument("names", nargs="*")
        parser.add_argument("--n", type=int)

    def run(args: argparse.Namespace) -> int:
        seen.append((args.action, args.names, args.n))
        return 0

    command(lambda: 0)  # makes the command probe
    monkeypatch.setattr(sys.modules["test_cli_probe"], "add_arguments", add_arguments)
    monkeypatch.setattr(sys.modules["test_cli_probe"], "run", run)
    for arguments in ("do a b --n 3", "do --n 3 a b", "--n 3 do a b", "do a --n 3 b"):
        assert cli.main(["probe", *arguments.split()]) == 0
    assert seen == [("do", ["a", "b"], 3)] * 4
    assert cli.main(["probe", "do", "a", "--nonsense", "b"]) == 2
    assert "unrecognized arguments: --nonsense" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["--nonsense"]])
def test_wrong_use_is_one_line_and_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_help_lists_the_commands_without_importing_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, (_, text) in cli.COMMANDS.items():
        assert name in shown and text.split()[0] in shown


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_each_command_of_the_table_has_its_module(name: str) -> None:
    module, _ = cli.COMMANDS[name]
    imported = __import__(module, fromlist=["run"])
    imported.add_arguments(argparse.ArgumentParser())
    assert callable(imported.run)
