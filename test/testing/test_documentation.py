"""Every example of ``docs/testing.rst`` is a file of one test run, and passes."""

from __future__ import annotations

import pathlib
import re
import textwrap

import pytest

from test.testing.test_pytest_plugin import ROOT, run

PAGE = ROOT / "docs" / "testing.rst"
BLOCK = re.compile(r"^\.\. code-block:: python\n(?:   :caption: (\S+)\n)?\n((?:(?:   .*)?\n)+)", re.MULTILINE)


def examples() -> dict[str, str]:
    """File name -> its text."""
    found = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert all(name for name, _ in found), "an example without a caption is not run"
    assert len({name for name, _ in found}) == len(found)
    return {name: textwrap.dedent(text) for name, text in found}


@pytest.mark.timeout(120)
def test_all_examples_pass(tmp_path: pathlib.Path) -> None:
    files = examples()
    assert len(files) >= 7
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = run(tmp_path, "-p", "no:timeout")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b1\d passed", done.stdout), done.stdout
