"""What the annotations of a task's function say about its arguments and its result.

Enumerations, dataclasses, named tuples and pydantic models are written by their value; here they are made anew, also
within ``X | None`` and other unions, ``list[X]``, ``tuple[X, ...]``, ``dict[K, X]`` and the like. The classes are
those that the annotations name: a payload cannot choose any other. An enumeration is made of a member's value, a
dataclass by its constructor from the values of its fields, so its ``__post_init__`` runs; a named tuple is a tuple of
its fields.

A union takes the first member that can be made of the value, and the value itself where none can and a member is a
plain type. Where that is not what was sent, the sender learns it: :meth:`TaskTypes.check_call`.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from kafka.tasks.format.plain_values import is_model

Restore: TypeAlias = Callable[[Any], Any]
"""A value as it was read -> the value as the annotation says."""

MOST_SHOWN = 100
"""Characters of a value in a text."""

_CONTAINERS = frozenset({list, tuple, set, frozenset})
_BASES = frozenset({str, int, float, dict, *_CONTAINERS})


class NotRestored(ValueError):
    """A value does not arrive as it was sent. ``label`` names the argument, ``reason`` says why and what to do."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(reason)
        self.label = label
        self.reason = reason


class TaskTypes:
    """Of one task's function. ``signature``: its parameters as callers see them, ``function``: where names are looked
    up.

    Annotations are evaluated at the declaration. Names that are not defined yet, as those further down in the same
    file, are looked up once more when they are first needed.
    """

    __slots__ = (
        "_function", "_hints", "_restore_arguments", "_restore_result", "_signature", "_unresolved",
        "may_restore_arguments", "may_restore_result",
    )  # fmt: skip

    def __init__(self, signature: inspect.Signature, function: Callable[..., Any]) -> None:
        self._function = function
        self._signature = signature
        self.may_restore_arguments = True
        """False: no argument of this task is anything but plain."""
        self.may_restore_result = True
        """The same of its result."""
        self._hints: dict[str, Any] = {}
        self._unresolved: dict[str, str] | None = None  # None: not looked up for the last time
        self._restore_arguments: dict[str, Restore] = {}
        self._restore_result: Restore | None = None
        self._resolve(is_last=False)

    def restore_call(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments as they were read -> as the function gets them; :class:`NotRestored`."""
        self._resolve_names()
        if not self._restore_arguments:
            return args, kwargs
        names = self._names_of(len(args))
        positional = [self._restored(_label(i, names[i]), names[i], value) for i, value in enumerate(args)]
        named = {key: self._restored(f"argument {key!r}", self._name_of(key), value) for key, value in kwargs.items()}
        return positional, named

    def check_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], read_args: list[Any], read_kwargs: dict[str, Any]
    ) -> None:
        """:class:`NotRestored` when the arguments, read again, are not those that were sent."""
        self._resolve_names()
        names = self._names_of(len(args))
        for i, value in enumerate(args):
            self._check(_label(i, names[i]), names[i], value, read_args[i])
        for key, value in kwargs.items():
            self._check(f"argument {key!r}", self._name_of(key), value, read_kwargs[key])

    def restore_result(self, value: Any) -> Any:
        """A result as it was read -> as the function returned it; :class:`NotRestored`."""
        self._resolve_names()
        return self._restored("the result", "return", value)

    def check_result(self, value: Any, read: Any) -> None:
        """:class:`NotRestored` when the result, read again, is not what was returned."""
        self._resolve_names()
        self._check("the result", "return", value, read)

    def _restored(self, label: str, name: str, value: Any) -> Any:
        restore = self._restore_result if name == "return" else self._restore_arguments.get(name)
        if restore is None:
            return value
        try:
            return restore(value)
        except Exception as error:  # of a user's constructor, too
            hint = inspect.formatannotation(self._hints[name])
            raise NotRestored(label, f"{_shown(value)} is no {hint}: {error}") from None

    def _check(self, label: str, name: str, sent: Any, read: Any) -> None:
        arrived = self._restored(label, name, read)
        if _is_same(sent, arrived):
            return
        place = "return type" if name == "return" else "parameter"
        if name in (self._unresolved or ()):
            error = (self._unresolved or {})[name]
            reason = f"its annotation cannot be evaluated ({error}); import the name also at run time"
        elif name in self._hints:
            hint = inspect.formatannotation(self._hints[name])
            reason = f"its annotation is {hint}; change one of the two"
        else:
            reason = f"annotate the {place}, for example with {type(sent).__qualname__}, or pass plain values"
        raise NotRestored(label, f"{_shown(sent)} would arrive as {_shown(arrived)}: {reason}")

    def _names_of(self, count: int) -> list[str]:
        """The parameters of so many positional arguments."""
        names: list[str] = []
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                names += [parameter.name] * (count - len(names))
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                names.append(parameter.name)
        return names + [""] * (count - len(names))

    def _name_of(self, key: str) -> str:
        """The parameter of a keyword argument."""
        parameter = self._signature.parameters.get(key)
        if parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            return key
        return next((p.name for p in self._signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")

    def _resolve_names(self) -> None:
        if self._unresolved is None:
            self._resolve(is_last=True)

    def _resolve(self, is_last: bool) -> None:
        annotations = {name: p.annotation for name, p in self._signature.parameters.items()}
        annotations["return"] = self._signature.return_annotation
        given = {name: hint for name, hint in annotations.items() if hint is not inspect.Parameter.empty}
        names = _namespace(self._function)
        unresolved: dict[str, str] = {}
        hints: dict[str, Any] = {}
        for name, annotation in given.items():
            try:
                hint = _evaluated(annotation, names)
            except Exception as error:
                unresolved[name] = str(error)
                continue
            if name == "return" and _is_awaitable(hint):  # what a job returns is what it gives
                hint = get_args(hint)[-1]
            hints[name] = hint
        restorers = {name: restore for name, hint in hints.items() if (restore := restorer_of(hint)) is not None}
        restore_result = restorers.pop("return", None)
        for name, restore in restorers.items():
            if self._signature.parameters[name].default is None:
                restorers[name] = partial(_restore_unless_none, restore)
        # Two threads may do this at the same time, with the same outcome: nothing is seen half done.
        self._hints, self._restore_arguments, self._restore_result = hints, restorers, restore_result
        if is_last or not unresolved:
            self._unresolved = unresolved
            self.may_restore_arguments = bool(restorers)
            self.may_restore_result = restore_result is not None


def restorer_of(hint: Any) -> Restore | None:
    """How values of an annotation are made anew; None: they arrive as they are."""
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):  # a NewType
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            break
    origin, members = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _union(members)
    kind = hint if origin is None else origin
    if not isinstance(kind, type):
        return None
    if issubclass(kind, Enum):
        return kind
    if dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return _Fields(kind)
    if is_model(kind):
        return partial(_restore_model, hint)
    if issubclass(kind, tuple) and members[1:] != (...,):
        restorers = [restorer_of(member) or _same for member in members]
        return partial(_restore_tuple, restorers) if any(each is not _same for each in restorers) else None
    if issubclass(kind, Mapping) and len(members) == 2:
        of_keys, of_values = map(restorer_of, members)
        return partial(_restore_dict, of_keys or _same, of_values or _same) if of_keys or of_values else None
    if issubclass(kind, Iterable) and members:
        of_items = restorer_of(members[0])
        return None if of_items is None else partial(_restore_items, of_items)
    return None


class _Fields:
    """Makes a dataclass or a named tuple of the values of its fields, whose own annotations are looked up at the first
    use: a class may have fields of its own type."""

    __slots__ = ("_is_tuple", "_kind", "_restorers")

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._is_tuple = issubclass(kind, tuple)
        self._restorers: dict[str, Restore] | None = None

    def __call__(self, value: Any) -> Any:
        restorers = self._restorers
        if restorers is None:
            kind, hints = self._kind, get_type_hints(self._kind)
            names = kind._fields if self._is_tuple else [field.name for field in dataclasses.fields(kind) if field.init]
            restorers = self._restorers = {name: restorer_of(hints.get(name)) or _same for name in names}
        if self._is_tuple:
            return self._kind._make(_restore_tuple([*restorers.values()], value))
        if type(value) is not dict:
            raise TypeError(f"the fields of a {self._kind.__qualname__} are needed")
        for name in value:
            if name not in restorers:
                raise TypeError(f"{self._kind.__qualname__} has no field {_shown(name)}")
        return self._kind(**{name: restorers[name](inner) for name, inner in value.items()})


def _union(members: tuple[Any, ...]) -> Restore | None:
    restorers = [restore for member in members if (restore := restorer_of(member)) is not None]
    has_plain = any(member is not NoneType and restorer_of(member) is None for member in members)
    if not restorers:
        return None

    def restore_first(value: Any) -> Any:
        first_error: Exception | None = None
        for restore in restorers:
            try:
                return restore(value)
            except Exception as error:
                first_error = first_error or error
        if has_plain or first_error is None:
            return value
        raise first_error

    return partial(_restore_unless_none, restore_first) if NoneType in members else restore_first


def _restore_unless_none(restore: Restore, value: Any) -> Any:
    return None if value is None else restore(value)


def _restore_model(kind: Any, value: Any) -> Any:
    return kind.model_validate_json(json.dumps(value))  # not model_validate: strict models take texts from JSON only


def _restore_tuple(restorers: list[Restore], value: Any) -> Any:
    if type(value) not in (tuple, list) or len(value) != len(restorers):
        raise TypeError(f"a tuple of {len(restorers)} values is needed")
    return type(value)(restore(inner) for restore, inner in zip(restorers, value, strict=True))


def _restore_items(restore: Restore, value: Any) -> Any:
    if type(value) not in _CONTAINERS:
        raise TypeError("a list, tuple or set is needed")
    return type(value)(restore(inner) for inner in value)


def _restore_dict(of_key: Restore, of_value: Restore, value: Any) -> Any:
    if type(value) is not dict:
        raise TypeError("a dict is needed")
    return {of_key(key): of_value(inner) for key, inner in value.items()}


def _same(value: Any) -> Any:
    return value


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    return get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), names)["it"]


def _is_awaitable(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Awaitable) and bool(get_args(hint))


def _namespace(function: Any) -> dict[str, Any]:
    """The global names of the file that a function is written in."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if not hasattr(function, "__globals__"):  # a class, or an object that can be called
        function = getattr(function, "__init__") if isinstance(function, type) else type(function).__call__  # noqa: B009
    names: dict[str, Any] = getattr(function, "__globals__", {})
    return names


def _is_same(sent: Any, arrived: Any) -> bool:
    """Whether a value has arrived: equal and of equal types, or of the base type of a subclass."""
    kind = type(arrived)
    if type(sent) is not kind:
        return kind in _BASES and isinstance(sent, kind) and bool(sent == arrived)
    if kind is dict:
        return len(sent) == len(arrived) and all(
            map(_is_same, [*sent, *sent.values()], [*arrived, *arrived.values()])
        )
    if kind is list or issubclass(kind, tuple):
        return len(sent) == len(arrived) and all(map(_is_same, sent, arrived))
    if kind is set or kind is frozenset:
        return bool(sent == arrived) and set(map(type, sent)) == set(map(type, arrived))
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        return all(_is_same(getattr(sent, field.name), getattr(arrived, field.name)) for field in fields)
    return bool(sent == arrived) or bool(sent != sent and arrived != arrived)


def _label(index: int, name: str) -> str:
    return f"argument {index + 1} ({name})" if name else f"argument {index + 1}"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
