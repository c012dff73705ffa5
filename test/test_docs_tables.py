"""What the pages have from the code is what the code says now, and is there as text."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import sys
from types import ModuleType

import pytest

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_tables", DOCS / "tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", list(sys.path))
    return load()


def pages() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.rst"))}


def test_the_pages_say_what_the_code_says(tables: ModuleType) -> None:
    outdated = [name for name, page in pages().items() if tables.rewritten(page) != page]
    assert outdated == [], "run `python docs/tables.py`"


def test_a_part_that_is_out_of_date_is_rewritten_and_nothing_else(tables: ModuleType) -> None:
    page = "Text.\n\n.. From docs/tables.py: settings later\n\nold\n\n.. End.\n\nMore.\n"
    fresh = tables.rewritten(page)
    assert fresh.startswith("Text.\n\n.. From docs/tables.py: settings later\n\n``kafka_client``, ")
    assert fresh.endswith("\n\n.. End.\n\nMore.\n")
    assert "old" not in fresh
    assert tables.rewritten(fresh) == fresh
    assert tables.rewritten(page.replace("old\n\n", "")) == fresh


def test_every_part_is_on_a_page(tables: ModuleType) -> None:
    marked = re.findall(r"^\.\. From docs/tables\.py: (.+)$", "".join(pages().values()), re.MULTILINE)
    used = {each if each in tables.PARTS else each.rpartition(" ")[0] for each in marked}
    assert used == set(tables.PARTS)


def test_no_page_needs_a_build_to_be_read() -> None:
    ours = [line for page in pages().values() for line in page.splitlines() if line.startswith(".. kafka-")]
    assert ours == []
    assert "extensions" not in (DOCS / "conf.py").read_text(encoding="utf-8")


def test_columns_are_aligned_and_wide_ones_wrapped(tables: ModuleType) -> None:
    text = tables.formatted([("name", "unit", "meaning"), ("``a``", "", "word " * 30), ("``bc``", "ms", "short")])
    assert text.splitlines() == [
        "======  ====  " + "=" * 106,
        "name    unit  meaning",
        "======  ====  " + "=" * 106,
        "``a``         " + " ".join(["word"] * 21),
        "              " + " ".join(["word"] * 9),
        "``bc``  ms    short",
        "======  ====  " + "=" * 106,
    ]


def test_a_first_column_that_cannot_be_wrapped_makes_a_list(tables: ModuleType) -> None:
    text = tables.formatted([("call", "meaning"), ("x" * 70, "two words")])
    assert text.splitlines() == [
        ".. list-table::",
        "   :header-rows: 1",
        "",
        "   * - call",
        "     - meaning",
        "   * - " + "x" * 70,
        "     - two words",
    ]


def test_names_are_shown_as_they_are(tables: ModuleType) -> None:
    (_, row) = [("setting",), *[row for row in tables.settings_rows("producer") if row[0] == "``retries``"]]
    assert row == ("``retries``", "``inf``", "", "Attempts after the first, within delivery_timeout_ms.")
    assert tables._escaped("all ssl_ settings, a|b, *x, ``y_``") == r"all ssl\_ settings, a\|b, \*x, ``y_``"


def test_check_names_the_outdated_files_and_changes_none(
    tables: ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.rst"
    page.write_text(".. From docs/tables.py: states PRODUCER\n\n.. End.\n")
    monkeypatch.setattr(tables, "DOCS", tmp_path)
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setitem(tables.PARTS, "states", lambda name: f"{name} here")
    assert tables.main(["--check"]) == 1
    assert page.read_text() == ".. From docs/tables.py: states PRODUCER\n\n.. End.\n"
    assert tables.main([]) == 0
    assert page.read_text() == ".. From docs/tables.py: states PRODUCER\n\nPRODUCER here\n\n.. End.\n"
    assert tables.main(["--check"]) == 0
    assert capsys.readouterr().out == "page.rst\npage.rst\n"
