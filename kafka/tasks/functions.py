"""What the function of a task is called, and why no worker could import it.

A task is any callable. Functions, classes and methods have names; ``functools.partial`` and instances of a class with
``__call__`` have none that tells one from the other, nor have lambdas: such a task needs ``name=``.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

MAIN = "__main__"


class FunctionName(NamedTuple):
    """Where a callable is declared, as ``module`` and ``qualname``: of a partial its function's place, of an object its
    class's. ``is_own``: the name is that of this callable alone, and so can be its task's."""

    module: str
    qualname: str
    is_own: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> FunctionName:
        """The name of a callable."""
        if isinstance(function, functools.partial):
            return cls.of(function.func)._replace(is_own=False)
        named = function if isinstance(getattr(function, "__qualname__", None), str) else type(function)
        is_own = named is function and not named.__qualname__.endswith("<lambda>")
        return cls(named.__module__ or "builtins", named.__qualname__, is_own)

    def __str__(self) -> str:
        return f"{self.module}.{self.qualname}"

    @property
    def importable(self) -> str | None:
        """What an import names to get at it, ``C`` for ``C.method``; None where none does: a lambda, and what is
        declared inside a function."""
        return None if "<" in self.qualname else self.qualname.partition(".")[0]


def kind_of(function: Callable[..., Any]) -> str:
    """What a callable without a name of its own is: a lambda, a partial, an object of some class."""
    if isinstance(function, functools.partial):
        return "a functools.partial"
    if inspect.isfunction(function):
        return "a lambda"
    return f"an object of the class {type(function).__qualname__}"


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine: also a partial of such a function, and an object with ``async def
    __call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return inspect.iscoroutinefunction(function)
    return inspect.iscoroutinefunction(type(function).__call__)


def refusal_of_main(name: FunctionName) -> str | None:
    """Why no worker can run a task of this function, with the import that helps: it is one of ``__main__``. None: it is
    not."""
    if name.module != MAIN:
        return None
    refusal = f"{name.qualname} is a task of __main__, which no worker can import: "
    module, wanted = _module_of_main(), name.importable
    if wanted is None:
        return f"{refusal}declare it with `def` at the top level of a file, and enqueue it from another one"
    if module is None:
        return f"{refusal}write it to a file, say jobs.py, and use `from jobs import {wanted}`"
    return f"{refusal}enqueue it from another file, with `from {module} import {wanted}`"


def _module_of_main() -> str | None:
    """The name by which others import the module that was started; None for a console."""
    main = sys.modules.get(MAIN)
    spec = getattr(main, "__spec__", None)
    path = getattr(main, "__file__", None)
    if spec is not None and spec.name:
        return str(spec.name).removesuffix(f".{MAIN}")
    if not path or path.startswith("<"):  # <stdin>
        return None
    return str(path).replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".py")
