"""From the source of a module to its mutants: each has one row, or one condition, changed. Pure.

What is changed is what decides: entries of tables, members of enumerations, truth values and small numbers,
comparisons, ``and``/``or``/``not``, conditions. Annotations, docstrings, messages and ``__repr__`` stay as they are.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

Enums = Mapping[str, Sequence[str]]
"""Name of an enumeration, as the module knows it -> its members."""


class Mutant(NamedTuple):
    """``place`` (the path and, behind a colon, the class or function) and ``change`` name the mutant in the list of
    equivalent ones; neither depends on line numbers. The second of the same changes in one place ends in ``(2)``.
    """

    path: str
    line: int
    place: str
    change: str
    source: str


_COMPARISONS: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SMALL: Final = 1 << 16
"""Numbers above this are sizes and bounds; one more or less of them is not a wrong row."""

_TELLING: Final = frozenset({"__repr__", "__str__"})
_LOGGERS: Final = frozenset({"log", "logger", "_log", "logging"})


def mutants(path: str, source: str, enums: Enums) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    tree = ast.parse(source)
    skipped = _telling_nodes(tree)
    places = _places(tree)
    tables = _table_nodes(tree)
    found = []
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        for change, undo in _changes(node, enums, node in tables):
            place = f"{path}:{places[id(node)]}".removesuffix(":")
            found.append(Mutant(path, getattr(node, "lineno", 0), place, change, ast.unparse(tree)))
            undo()
    seen: Counter[tuple[str, str]] = Counter()
    for mutant in sorted(found, key=lambda mutant: mutant.line):
        number = seen[mutant.place, mutant.change] = seen[mutant.place, mutant.change] + 1
        yield mutant if number == 1 else mutant._replace(change=f"{mutant.change} ({number})")


def _changes(node: ast.AST, enums: Enums, is_table: bool) -> Iterator[tuple[str, Callable[[], None]]]:
    """Change the node in each possible way: what was changed, and a function that takes the change back."""
    before = _shown(node)

    def changed(undo: Callable[[], None]) -> tuple[str, Callable[[], None]]:
        return f"{before} -> {_shown(node)}", undo

    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            node.ops[number] = _COMPARISONS[type(operator)]()
            yield changed(lambda number=number, operator=operator: node.ops.__setitem__(number, operator))  # type: ignore[misc]
    elif isinstance(node, ast.BoolOp):
        former = node.op
        node.op = ast.Or() if isinstance(former, ast.And) else ast.And()
        yield changed(lambda: setattr(node, "op", former))
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)) and not _is_compound(node.test):
        test = node.test
        node.test = ast.UnaryOp(ast.Not(), test)
        yield f"if {_shown(test)} -> if not {_shown(test)}", lambda: setattr(node, "test", test)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        operand = node.operand
        node.operand = ast.UnaryOp(ast.Not(), operand)
        yield changed(lambda: setattr(node, "operand", operand))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        value = node.value
        node.value = not value
        yield changed(lambda: setattr(node, "value", value))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < _SMALL:
        number_before = node.value
        node.value = number_before + 1
        yield changed(lambda: setattr(node, "value", number_before))
    elif isinstance(node, ast.Attribute) and _is_member(node, enums):
        members, member = enums[ast.unparse(node.value)], node.attr
        node.attr = members[(members.index(member) + 1) % len(members)]
        yield changed(lambda: setattr(node, "attr", member))
    elif is_table:
        yield from _shorter(node)


def _is_member(node: ast.Attribute, enums: Enums) -> bool:
    return isinstance(node.value, ast.Name) and node.attr in enums.get(node.value.id, ())


def _shorter(node: ast.AST) -> Iterator[tuple[str, Callable[[], None]]]:
    """A table with one entry less, for each of its entries."""
    columns = (node.keys, node.values) if isinstance(node, ast.Dict) else (node.elts,)  # type: ignore[attr-defined]
    if len(columns[0]) < 2:
        return
    for number in range(len(columns[0])):
        taken = [column.pop(number) for column in columns]
        name = ": ".join("**" if each is None else _shown(each) for each in taken)

        def undo(number: int = number, taken: list[object] = taken) -> None:
            for column, each in zip(columns, taken, strict=True):
                column.insert(number, each)

        yield f"without {name}", undo


def _shown(node: ast.AST) -> str:
    """Source of a node on one line, without the body that a statement has."""
    if isinstance(node, (ast.stmt, ast.mod, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)):
        return ""
    try:
        return " ".join(ast.unparse(node).split())[:160]
    except (AttributeError, ValueError):
        return ""


def _is_compound(test: ast.expr) -> bool:
    """Whether a condition has mutants of its own."""
    return isinstance(test, (ast.Compare, ast.BoolOp, ast.Constant)) or (
        isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    )


def _places(tree: ast.Module) -> dict[int, str]:
    """The id of each node -> ``Class.method`` that it stands in; empty in the module's body."""
    found: dict[int, str] = {}

    def walk(node: ast.AST, place: str) -> None:
        found[id(node)] = place
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            place = f"{place}.{node.name}".removeprefix(".")
        for child in ast.iter_child_nodes(node):
            walk(child, place)

    walk(tree, "")
    return found


def _telling_nodes(tree: ast.Module) -> set[int]:
    """The nodes that decide nothing."""
    found: set[int] = set()

    def skip(node: ast.AST | None) -> None:
        if node is not None:
            found.update(id(inner) for inner in ast.walk(node))

    for node in ast.walk(tree):
        skip(getattr(node, "annotation", None))
        skip(getattr(node, "returns", None))
        if isinstance(node, (ast.Assert, ast.JoinedStr)) or _decides_nothing(node):
            skip(node)
        elif isinstance(node, ast.Raise):
            for argument in getattr(node.exc, "args", ()):
                skip(argument)
    return found


def _decides_nothing(node: ast.AST) -> bool:
    """Blocks for type checkers, ``__repr__``, ``__all__``, calls of a logger."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.FunctionDef):
        return node.name in _TELLING
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) in ("__all__", "__slots__")
    return isinstance(node, ast.Call) and ast.unparse(node.func).partition(".")[0] in _LOGGERS


def _table_nodes(tree: ast.Module) -> set[ast.AST]:
    """The dictionaries, sets and sequences that stand in a module or class body: tables. Aliases of types are none."""
    found: set[ast.AST] = set()
    bodies = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    for statement in (statement for body in bodies for statement in body):
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        if value is not None and not isinstance(value, ast.Subscript):
            inner = list(ast.walk(value))
            of_types = {id(each) for node in inner if isinstance(node, ast.Subscript) for each in ast.walk(node.slice)}
            for node in inner:
                if isinstance(node, (ast.Dict, ast.Set, ast.List, ast.Tuple)) and id(node) not in of_types:
                    found.add(node)
    return found


def enums_of(source: str, module: str, others: Callable[[str], str | None]) -> dict[str, list[str]]:
    """The enumerations that a module defines or imports. ``others(name)``: the source of another module."""
    tree = ast.parse(source)
    found = _enums_in(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module != module:
            text = others(node.module)
            known = _enums_in(ast.parse(text)) if text is not None else {}
            found.update({alias.asname or alias.name: known[alias.name] for alias in node.names if alias.name in known})
    return found


def _enums_in(tree: ast.Module) -> dict[str, list[str]]:
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith(("Enum", "Flag")) for base in node.bases):
            names = [
                target.id
                for statement in node.body
                if isinstance(statement, ast.Assign)
                for target in statement.targets
                if isinstance(target, ast.Name) and not target.id.startswith("_")
            ]
            if len(names) > 1:
                found[node.name] = names
    return found


def canonical(source: str) -> str:
    """The source as an unchanged mutant would have it."""
    return ast.unparse(ast.parse(source))
