"""Declarations for compiled code, without effect in plain Python. This module itself is never compiled.

``acyclic=True``: the garbage collector need not look at the class's objects. For objects that are made by the million,
and whose cycles, if any, are broken when their work is done. (With tuples, the collector took a quarter of a consumer's
time.) A record's value that refers to its record is never collected.

``allow_interpreted_subclasses=True``: a class in plain Python may derive from it. Others may not.

``i64``: a local variable of this type is a machine integer of 64 bits in compiled code, and an ``int`` in plain Python.
Where the first would wrap round the second grows, so code with it checks sums that may leave the 64 bits beforehand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_extensions import i64 as i64
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    i64 = int

    def mypyc_attr(**_settings: Any) -> Any:
        return lambda cls: cls
