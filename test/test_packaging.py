"""What is shipped, what it brings along, and that the commands of the README are the ones that CI runs."""

from __future__ import annotations

import configparser
import email.message
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from email.parser import Parser

import pytest

import kafka
import kafka.__main__
from test.support.apache_kafka import refuse

ROOT = pathlib.Path(__file__).resolve().parent.parent


def literal_blocks(text: str) -> list[str]:
    """The blocks that follow a ``::``, without their indentation."""
    blocks = re.findall(r"::\n\n((?:(?: {4}.*)?\n)+)", text)
    return [textwrap.dedent(block).strip() for block in blocks]


@pytest.fixture(scope="module")
def copy_of_sources(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The repository's files in a folder of their own: builds leave files beside the sources."""
    target = tmp_path_factory.mktemp("sources") / "kafka-taskloop"
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "test", "docs")
    shutil.copytree(ROOT, target, ignore=unwanted)
    return target


def _pip(*arguments: str | pathlib.Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 and re.search("No module named pip|connection|Could not find a version", done.stderr):
        refuse("needs pip and a package index: " + done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def _wheel(sources: pathlib.Path, target: pathlib.Path, **environment: str) -> pathlib.Path:
    _pip("wheel", "-q", "--no-deps", "-w", target, sources, **environment)
    return next(target.glob("*.whl"))


def _shipped(wheel: pathlib.Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheel(copy_of_sources: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The package's wheel in plain Python."""
    return _wheel(copy_of_sources, tmp_path_factory.mktemp("wheel"), KAFKA_PURE="1")


@pytest.fixture(scope="module")
def metadata(wheel: pathlib.Path) -> email.message.Message:
    """The wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


@pytest.mark.timeout(180)
def test_the_wheel_holds_every_module_and_the_type_marker_and_nothing_else(wheel: pathlib.Path) -> None:
    assert _shipped(wheel) == _sources() | {"kafka/py.typed"}
    assert wheel.name.endswith("-py3-none-any.whl")


def _sources() -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (ROOT / "kafka").rglob("*.py")}


@pytest.mark.deep("translates every hot module; the wheel of the compiled tests is built in each run")
@pytest.mark.timeout(300)
def test_a_compilation_that_fails_leaves_a_plain_package_and_one_line(
    copy_of_sources: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *probe.c*) exit 0 ;; esac\necho no space left >&2\nexit 1\n')
    compiler.chmod(0o755)
    target = tmp_path / "wheel"
    done = _pip("wheel", "-v", "--no-deps", "-w", target, copy_of_sources, CC=str(compiler), KAFKA_PURE="")
    assert _shipped(next(target.glob("*.whl"))) == _sources() | {"kafka/py.typed"}
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "kafka-taskloop is built in plain" in line]
    assert len(lines) == 1


def _run_with(wheel: pathlib.Path, folder: pathlib.Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` where only the wheel and what it needs is installed, and neither this folder nor our environment's
    packages are in reach (-I -S)."""
    site = folder / "site"
    _pip("install", "-q", "--target", site, wheel)
    isolated = f"import sys; sys.path.insert(0, {str(site)!r}); {code}"
    return subprocess.run([sys.executable, "-I", "-S", "-c", isolated], capture_output=True, text=True, check=False)


@pytest.mark.timeout(180)
def test_the_package_says_who_it_is(metadata: email.message.Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("kafka-taskloop", kafka.__version__)
    assert metadata["Requires-Python"] == ">=3.10"


@pytest.mark.timeout(180)
def test_the_console_script_is_the_program_that_python_m_runs(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        scripts = configparser.ConfigParser()
        scripts.read_string(archive.read(name).decode())
    assert dict(scripts["console_scripts"]) == {"kafka-taskloop": "kafka.cli:main"}
    assert kafka.__main__.main is importlib.import_module("kafka.cli").main


@pytest.mark.timeout(180)
def test_an_install_brings_six_and_crcmod_and_nothing_else(metadata: email.message.Message) -> None:
    requirements = metadata.get_all("Requires-Dist") or []
    hard = {re.split(r"[^\w-]", line)[0] for line in requirements if "extra ==" not in line}
    assert hard == {"six", "crcmod"}
    extras = {"compression", "cli", "docs", "fast", "metrics", "msgpack", "pydantic", "re2", "telemetry", "test"}
    assert set(metadata.get_all("Provides-Extra") or []) == extras


@pytest.mark.timeout(300)
def test_it_installs_where_there_is_no_c_compiler(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """``crcmod`` comes as source only and would like to compile an extension."""
    target = tmp_path / "site"
    _pip("install", "-q", "--no-cache-dir", "--target", target, wheel, CC=shutil.which("false") or "/bin/false")
    assert not list(target.rglob("*.so")), "the compiler that is none was not asked"
    code = "import kafka, kafka.wire.crc32c as c; print(kafka.__file__); assert c.crc32c(b'123456789') == 0xE3069283"
    # -I -S: neither this folder nor this environment's packages, but what was installed just now
    isolated = f"import sys; sys.path.insert(0, {str(target)!r}); {code}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", isolated], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(target))


@pytest.mark.timeout(300)
def test_the_demo_command_of_the_readme_works_in_a_fresh_copy(copy_of_sources: pathlib.Path) -> None:
    demo = literal_blocks((ROOT / "README.rst").read_text())[0]
    command = ["bash", "-c", demo]
    done = subprocess.run(
        command, cwd=copy_of_sources, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"demo: \d+ jobs, \d+ done, 0 failed, 0 lost, \d+ words, [\d.]+ s", last)


def test_the_first_two_literal_blocks_of_the_readme_are_one_command_each() -> None:
    demo, tests = literal_blocks((ROOT / "README.rst").read_text())[:2]
    for command in (demo, tests):
        assert "\n" not in command
        assert command.replace("KAFKA_PURE=1 ", "").startswith("python3 -m venv .venv && .venv/bin/pip install -q ")
    assert demo.endswith(" -m kafka demo")


def test_ci_runs_the_test_command_of_the_readme_word_for_word() -> None:
    tests = literal_blocks((ROOT / "README.rst").read_text())[1]
    lines = [line.strip() for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    assert tests in lines
    assert "set -euo pipefail" in lines


def _run_ci_with(scripts: dict[str, str], folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run ``.ci/run`` in ``folder``, where shell scripts stand in for the commands that it calls."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    for name, text in scripts.items():
        script = folder / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", ".ci/run"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("status", "closing_line"), [(0, "=== 3 passed, 1 skipped in 2.00s ==="), (3, "=== 1 failed in 1.00s ===")]
)
def test_ci_ends_with_the_closing_line_of_pytest_and_the_exit_code_of_tox(
    status: int, closing_line: str, tmp_path: pathlib.Path
) -> None:
    scripts = {
        "python3": "",
        ".venv/bin/pip": "",
        ".venv/bin/tox": f"echo '{closing_line}'\necho '  py: done'\nexit {status}",
        ".tox/py/bin/python": "exit 0",
    }
    done = _run_ci_with(scripts, tmp_path)
    assert done.returncode == status
    assert done.stdout.splitlines() == [closing_line, "  py: done", closing_line]


@pytest.mark.parametrize(
    ("rerun", "check", "status"), [(0, 0, 0), (1, 0, 3), (0, 1, 1)], ids=["green", "red again", "an old row"]
)
def test_ci_is_green_after_failures_when_their_reruns_pass_and_no_row_is_too_old(
    rerun: int, check: int, status: int, tmp_path: pathlib.Path
) -> None:
    scripts = {
        "python3": "",
        ".venv/bin/pip": "",
        ".venv/bin/tox": "mkdir -p .tox/results; exit 3",
        ".tox/py/bin/python": f'echo "$3 $4"; case "$3" in rerun) exit {rerun} ;; check) exit {check} ;; esac; exit 9',
    }
    done = _run_ci_with(scripts, tmp_path)
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["rerun .venv/bin/tox", *(["check "] if rerun == 0 else [])]


def test_no_file_names_a_home_directory_or_a_package_host() -> None:
    """Lines that only work on one machine, or through one mirror, do not belong into the repository."""
    telling = re.compile(r"/(?:home|Users|root|work|opt|srv)/\w|--index-url|pythonhosted|repo1?\.maven")
    files = [
        *(path for path in ROOT.glob("*.*") if path.is_file()),
        ROOT / ".ci" / "run",
        *(path for folder in ("kafka", "test", "docs") for path in (ROOT / folder).rglob("*.py")),
        *(ROOT / "docs").rglob("*.rst"),
    ]
    for path in files:
        found = telling.search(path.read_text(encoding="utf-8"))
        assert found is None or path == pathlib.Path(__file__), f"{path}: {found.group()}"


def test_the_command_for_benchmarks_finds_them() -> None:
    """They are in no tier of the tests, and nothing else runs them."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "tox.ini")
    python, *arguments = config["testenv:bench"]["commands"].replace("{posargs}", "--collect-only -q").split()
    assert python == "python"
    done = subprocess.run(
        [sys.executable, *arguments, "-p", "no:cacheprovider"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (ROOT / "test" / "benchmarks").glob("test_*.py"):
        assert f"test/benchmarks/{path.name}::" in done.stdout


def test_the_default_of_tox_is_everything_that_a_change_must_pass() -> None:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "tox.ini")
    assert set(config["tox"]["env_list"].split(", ")) == {"lint", "types", "docs", "wheel", "py", "compiled"}
    assert config["testenv"]["commands"] == "python -m pytest {[tests]processes} {posargs}", "all of test/"
    for folder in re.findall(r"test/[a-z_./]+", config["testenv:compiled"]["commands"]):
        assert (ROOT / folder).exists(), folder
