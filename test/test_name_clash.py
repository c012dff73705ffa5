"""Beside kafka-python, which is imported as ``kafka`` too, one line says what to do; else an import says nothing."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from kafka._name_clash import foreign_distributions

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "kafka"
REINSTALL = "&& pip install --force-reinstall --no-deps kafka-taskloop`"


@pytest.fixture
def site(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory of installed packages with this one in it."""
    (tmp_path / "kafka").mkdir()
    for entry in PACKAGE.iterdir():
        (tmp_path / "kafka" / entry.name).symlink_to(entry)
    (tmp_path / "kafka_taskloop-0.1.0.dist-info").mkdir()
    (tmp_path / "kafka_pythonic-1.0.dist-info").mkdir()
    return tmp_path


def run(site: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python where only these packages are installed."""
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-S", *arguments]
    return subprocess.run(command, env=environment, cwd=site, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("metadata", "uninstalled"),
    [
        ("kafka_python-2.0.2.dist-info", "kafka-python"),
        ("kafka_python_ng-2.2.3.dist-info", "kafka-python-ng"),
        ("kafka-1.3.5-py3.11.egg-info", "kafka"),
    ],
)
def test_an_import_beside_kafka_python_warns_once_and_works(
    site: pathlib.Path, metadata: str, uninstalled: str
) -> None:
    (site / metadata).mkdir()
    done = run(site, "-c", "import kafka\nimport kafka.errors\nprint(kafka.__version__)")
    assert done.returncode == 0
    assert done.stdout
    (line, *source) = done.stderr.splitlines()
    assert line.startswith(f"<string>:1: RuntimeWarning: {metadata.rpartition('.')[0]} and kafka-taskloop are")
    assert line.endswith(f"run `pip uninstall -y {uninstalled} {REINSTALL}")
    assert [text.strip() for text in source] in ([], ["import kafka"])


def test_several_are_named_in_one_line(site: pathlib.Path) -> None:
    (site / "kafka_python-2.0.2.dist-info").mkdir()
    (site / "kafka_python_ng-2.2.3.dist-info").mkdir()
    done = run(site, "-W", "error::RuntimeWarning", "-c", "import kafka")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "RuntimeWarning: kafka_python-2.0.2, kafka_python_ng-2.2.3 and kafka-taskloop" in last
    assert "pip uninstall -y kafka-python kafka-python-ng &&" in last


def test_an_import_without_kafka_python_says_nothing(site: pathlib.Path) -> None:
    done = run(site, "-W", "error", "-c", "import kafka; print(kafka.__version__)")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("statement", ["import kafka.tasks", "from kafka.tasks import App", "import kafka.cli"])
@pytest.mark.parametrize("is_overwritten", [True, False], ids=["overwritten", "removed"])
def test_a_package_that_is_no_longer_this_one_is_an_error_that_says_so(
    site: pathlib.Path, statement: str, is_overwritten: bool
) -> None:
    (site / "kafka" / "__init__.py").unlink()
    if is_overwritten:
        (site / "kafka" / "__init__.py").write_text("__title__ = 'kafka'\n")
    done = run(site, "-c", statement)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: files of kafka-taskloop were overwritten or removed by another distribution")
    assert last.endswith(f"run `pip uninstall -y kafka-python {REINSTALL}")


def test_a_zip_file_has_no_other_distributions(tmp_path: pathlib.Path) -> None:
    archive = tmp_path / "packages.zip"
    archive.touch()
    assert foreign_distributions(str(archive)) == []
