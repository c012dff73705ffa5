"""What ``import kafka`` promises: its names, their homes, its types, and that it costs next to nothing."""

from __future__ import annotations

import ast
import importlib
import os
import pathlib
import resource
import subprocess
import sys

import pytest

import kafka

IMPORT_BUDGET_S = 0.050


def _imported_for_type_checkers() -> dict[str, str]:
    """Name -> module, as the ``if TYPE_CHECKING:`` block of ``kafka/__init__.py`` says."""
    assert kafka.__file__ is not None
    tree = ast.parse(pathlib.Path(kafka.__file__).read_text())
    block = next(
        node
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )
    return {
        alias.asname or alias.name: node.module or ""
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("name", sorted(kafka._HOME))
def test_each_public_name_resolves_at_its_home(name: str) -> None:
    value = getattr(kafka, name)
    assert value is getattr(importlib.import_module(kafka._HOME[name]), name)
    assert value.__doc__, f"{name} has no docstring"


def test_the_table_the_list_and_the_types_name_the_same() -> None:
    assert sorted(kafka.__all__) == sorted([*kafka._HOME, "__version__"])
    assert _imported_for_type_checkers() == kafka._HOME


def test_dir_lists_names_that_were_not_used_yet() -> None:
    assert set(kafka.__all__) <= set(dir(kafka))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'KafkaConsumr'"):
        _ = kafka.KafkaConsumr


def test_errors_and_structs_are_there_after_a_plain_import() -> None:
    code = "import kafka; kafka.errors.KafkaError; kafka.structs.TopicPartition"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plain_import_loads_no_other_module_of_ours() -> None:
    code = "import sys, kafka; print(*sorted(m for m in sys.modules if m.partition('.')[0] == 'kafka'))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["kafka", "kafka._version"]


def test_import_kafka_costs_at_most_fifty_milliseconds() -> None:
    """Of the processor, as the difference of whole processes, each the best of several: a busy machine is not to
    decide."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    def best(code: str) -> float:
        times = []
        for _ in range(7):
            began = used()
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)
            times.append(used() - began)
        return min(times)

    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(pathlib.Path(kafka.__path__[0]).parent)
    assert best("import kafka") - best("pass") <= IMPORT_BUDGET_S
