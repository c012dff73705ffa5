"""Tests of ``kafka.tasks.worker.loader``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka.tasks.errors import LoadError
from kafka.tasks.worker.loader import load

GOOD = "from kafka.tasks import App\napp = App('shop')\nclass box:\n    inner = App('inner')\nnumber = 4\n"


@pytest.fixture(autouse=True)
def _path() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(text)
    return str(folder)


def test_an_app_is_loaded_by_its_path(tmp_path: Path) -> None:
    where = write(tmp_path, "good_tasks", GOOD)
    assert load("good_tasks:app", where).name == "shop"
    assert load("good_tasks:box.inner", where).name == "inner"
    assert load("good_tasks", where).name == "shop"


def test_one_app_with_two_names_is_one_app(tmp_path: Path) -> None:
    where = write(tmp_path, "good_tasks", GOOD + "celery = app\n")
    assert load("good_tasks", where).name == "shop"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("nothing_here:app", "there is no module 'nothing_here'"),
        ("good_tasks.sub:app", "good_tasks"),
        ("good_tasks:ap", "did you mean 'app'"),
        ("good_tasks:number", "is not a kafka.tasks.App but a int"),
        ("good_tasks.py", "use good_tasks:app"),
        ("src/good_tasks.py:app", "is not MODULE:APP, .*use src.good_tasks:app"),
        (":app", "is not MODULE:APP"),
        ("no-module:app", "is not MODULE:APP"),
    ],
)
def test_what_leads_to_no_app_says_which_half_failed(tmp_path: Path, target: str, text: str) -> None:
    where = write(tmp_path, "good_tasks", GOOD)
    with pytest.raises(LoadError, match=text):
        load(target, where)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("import not_there_at_all\n", "importing bad_tasks failed: No module named 'not_there_at_all'.*line 1"),
        ("x = 1\n1 / 0\n", "ZeroDivisionError: division by zero .*bad_tasks.py, line 2"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("def f(:\n", "SyntaxError"),
        (
            "from kafka.tasks import App\nx = App('x', partitons=3)\n",
            "failed: an app has no setting 'partitons'; did you mean 'partitions'\\? .*bad_tasks.py, line 2",
        ),
        ("import kafka\nkafka.KafkaProducer(no_such=3)\n", "failed: no_such: no such setting .*bad_tasks.py, line 2"),
        ("x = 1\n", "the module bad_tasks has no App"),
        ("from kafka.tasks import App\na = App('a')\nb = App('b')\n", "use bad_tasks:a or bad_tasks:b"),
        ("from kafka.tasks import App\napp = App('a')\nb = App('b')\n", "use bad_tasks:app or bad_tasks:b"),
    ],
)
def test_a_module_that_fails_is_reported_with_its_place(tmp_path: Path, body: str, text: str) -> None:
    where = write(tmp_path, "bad_tasks", body)
    with pytest.raises(LoadError, match=text):
        load("bad_tasks", where)
