"""What the embedded broker answers, from the modules of ``kafka/broker/handlers``.

``.. kafka-broker-handlers::`` gives a part for each module: its APIs with the versions that are served, then its
docstring, whose last paragraph says what differs from Apache Kafka. Nothing is written twice, so the page changes with
the code.
"""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective
from tables import ROOT, plain

HANDLERS = ROOT / "kafka" / "broker" / "handlers"


def lines_of_all() -> Iterator[str]:
    """The text of the whole list, as reStructuredText."""
    from kafka.broker.registry import MODULES, load
    from kafka.protocol.registry import NAMES

    served: dict[str, list[str]] = {name: [] for name in MODULES}
    for key, handler in sorted(load().items()):
        module = handler.function.__module__.rpartition(".")[2]
        low, high = handler.min_version, handler.max_version
        served[module].append(f"{NAMES[key]} {low} to {high}" if low != high else f"{NAMES[key]} {low}")
    for module, apis in served.items():
        yield from (f".. rubric:: {', '.join(apis)}", "")
        yield from (*docstring(HANDLERS / f"{module}.py").splitlines(), "")


def docstring(path: pathlib.Path) -> str:
    """A module's docstring, without importing it."""
    return plain(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")


class Handlers(SphinxDirective):
    """The list."""

    def run(self) -> list[nodes.Node]:
        for path in HANDLERS.glob("*.py"):
            self.env.note_dependency(str(path))
        holder = nodes.container()
        self.state.nested_parse(StringList(list(lines_of_all()), source=str(HANDLERS)), self.content_offset, holder)
        return holder.children


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("kafka-broker-handlers", Handlers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
