"""``completion``: the scripts complete commands, options, fixed values and files; bash runs its script here."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from kafka.cli import COMMANDS, main

BASH = shutil.which("bash")
ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_shtab_kafka_taskloop
printf "%s\\n" "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The script for bash, made by another process, as users make it."""
    pytest.importorskip("shtab", reason="needs the extra cli")
    path = tmp_path_factory.mktemp("completion") / "kafka-taskloop"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "kafka", "completion", "bash"]
    path.write_bytes(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)
    return path


def completed(script: pathlib.Path, *words: str, cwd: pathlib.Path | None = None) -> list[str]:
    """What bash suggests for the last of the words behind the program's name."""
    assert BASH is not None
    command = [BASH, "--norc", "-c", ASK, "bash", str(script), "kafka-taskloop", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert all("compopt: not currently executing" in line for line in done.stderr.splitlines()), done.stderr
    return sorted(done.stdout.split())


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["wor"], ["worker"]),
        (["check"], ["check-version"]),
        (["worker", "--max-"], ["--max-jobs-per-child", "--max-memory-per-child"]),
        (["worker", "shop:app", "--log-level", "W"], ["WARNING"]),
        (["settings", "pro"], ["producer"]),
        (["groups", "de"], ["delete", "describe"]),
        (["broker", "--data-dir", "dir", "--fsync", ""], ["always", "interval", "never"]),
    ],
)
def test_bash_completes(script: pathlib.Path, words: list[str], suggested: list[str]) -> None:
    assert completed(script, *words) == suggested


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_bash_completes_all_commands(script: pathlib.Path) -> None:
    assert completed(script, "") == sorted(COMMANDS)


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_bash_completes_files_where_an_option_takes_one(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "client.properties").touch()
    assert completed(script, "inspect", "--config", "cli", cwd=tmp_path) == ["client.properties"]


@pytest.mark.parametrize(("shell", "beginning"), [("zsh", "#compdef kafka-taskloop"), ("fish", "# AUTO")])
def test_other_shells_get_scripts_that_name_every_command(
    capsys: pytest.CaptureFixture[str], shell: str, beginning: str
) -> None:
    pytest.importorskip("shtab", reason="needs the extra cli")
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert text.startswith(beginning)
    assert [name for name in COMMANDS if name not in text] == []


def test_an_unknown_shell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh'" in capsys.readouterr().err


def test_without_the_extra_the_line_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    line = "python -m kafka completion: completion needs the package shtab: pip install 'kafka-taskloop[cli]'\n"
    assert capsys.readouterr().err == line
