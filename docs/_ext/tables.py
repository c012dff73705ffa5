"""Tables of the documentation that are made from the code when it is built, so that they cannot be out of date.

``.. kafka-protocol-table::``   every API of Kafka, with the versions that our classes speak, from the registry
``.. kafka-import-table::``     who may import whom, from ``test/test_architecture.py``

A new generated table is one more function that returns rows, and its line in :func:`setup`.
"""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ARCHITECTURE = ROOT / "test" / "test_architecture.py"

Rows = Iterable[tuple[str, ...]]


def protocol_rows() -> Rows:
    """Key, name, oldest and newest version, first flexible version, of every API in the registry."""
    from kafka.protocol.registry import REGISTRY

    yield ("key", "name", "versions", "flexible from", "module")
    for key in sorted(REGISTRY):
        api = REGISTRY[key]
        flexible = api.request.flexible_since
        yield (
            str(key),
            api.name,
            f"{api.min_version} to {api.max_version}",
            str(flexible) if flexible <= api.max_version else "",
            f"``{api.request.__module__}``",
        )


def import_rows() -> Rows:
    """The rows of ``MAY_IMPORT``; rows that may import the same are one."""
    table: dict[str, tuple[str, ...]] = {}
    for node in ast.parse(ARCHITECTURE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "MAY_IMPORT":
            assert node.value is not None
            table = ast.literal_eval(node.value)
    same: dict[tuple[str, ...], list[str]] = {}
    for row, entries in table.items():
        same.setdefault(entries, []).append(row)
    yield ("package", "may import")
    for entries, packages in same.items():
        yield ", ".join(f"``{name}``" for name in packages), _entries(entries) or "nothing of ours"


def _entries(entries: tuple[str, ...]) -> str:
    """A row's entries as text: first whole packages and modules, then those of which only the public names."""
    whole = ", ".join(f"``{entry}``" for entry in entries if not entry.startswith("public"))
    names = [entry.removeprefix("public").strip() or "kafka" for entry in entries if entry.startswith("public")]
    public = f"the public names of {', '.join(f'``{name}``' for name in names)}" if names else ""
    return "; ".join(part for part in (whole, public) if part)


def _directive(rows: Callable[[], Rows], depends_on: pathlib.Path) -> type[SphinxDirective]:
    class Table(SphinxDirective):
        """A table with a header row, from a function."""

        def run(self) -> list[nodes.Node]:
            self.env.note_dependency(str(depends_on))
            lines = [".. list-table::", "   :header-rows: 1", ""]
            for row in rows():
                lines += [f"   {'*' if number == 0 else ' '} - {cell}" for number, cell in enumerate(row)]
            holder = nodes.container()
            self.state.nested_parse(StringList(lines, source=str(depends_on)), self.content_offset, holder)
            return holder.children

    return Table


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    registry = ROOT / "kafka" / "protocol" / "registry.py"
    app.add_directive("kafka-protocol-table", _directive(protocol_rows, registry))
    app.add_directive("kafka-import-table", _directive(import_rows, ARCHITECTURE))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
