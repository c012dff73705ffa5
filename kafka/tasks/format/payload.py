"""Arguments and results as bytes: what a record's value holds.

A call is ``{"args": [...], "kwargs": {...}}``, a result any value; both in one of the formats of
:mod:`kafka.tasks.format.serializers`, by default JSON with the types of :mod:`kafka.tasks.format.plain_values`. The
header ``content-type`` says which; a result has the format of its job's call.

:class:`PayloadCodec` is what a task (or an app, for tasks that it does not know) reads and writes with. A value that
would not arrive as it was sent is refused where it is written.
"""

from __future__ import annotations

from typing import Any

from kafka.errors import IllegalArgumentError
from kafka.tasks.errors import BadRecord, NotSerialisable
from kafka.tasks.format.annotations import NotRestored, TaskTypes
from kafka.tasks.format.plain_values import SCALARS, TYPE, VALUE, PlainForm, is_marked
from kafka.tasks.format.serializers import JSON, SAFE, SERIALIZERS, PayloadFormat, pickle_warning, reader_of

_POSSIBLE = "numbers, texts, dates, bytes, lists, dicts, sets, dataclasses and the like"
_WORDS = {None: b"null", True: b"true", False: b"false"}


class PayloadCodec:
    """``types``: what the task's annotations say (None: the task is not known here, so that enumerations, dataclasses
    and models are read as plain values). ``accepted``: names of the formats that are read.
    """

    __slots__ = ("_types", "accepted")

    def __init__(self, types: TaskTypes | None = None, accepted: frozenset[str] = SAFE) -> None:
        self._types = types
        self.accepted = accepted

    def writer(self, serializer: str) -> PayloadFormat:
        """The format of that name; :class:`IllegalArgumentError` when results in it could not be read here."""
        if serializer not in self.accepted:
            raise IllegalArgumentError(
                f"serializer={serializer!r} needs App(accept_content=[...]) with {serializer!r} in it, here and in the "
                "app that the workers load"
            )
        return SERIALIZERS[serializer]

    def encode_call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], serializer: PayloadFormat = JSON
    ) -> bytes:
        """The payload of a call of task ``name``; :class:`NotSerialisable` names the argument that does not pass."""
        form: PlainForm | None = None
        plain_args: Any = args
        plain_kwargs = kwargs
        try:
            if serializer.takes_objects:
                pickle_warning.give()
                plain_args = list(args)
            elif _has_objects(args, kwargs):
                form = PlainForm(serializer.has_bytes)
                plain_args = [form.of(value) for value in args]
                plain_kwargs = {key: form.of(value) for key, value in kwargs.items()}
                if TYPE in kwargs and is_marked(kwargs):
                    raise ValueError(f"{TYPE!r} and {VALUE!r} cannot be the names of all keyword arguments")
            data = serializer.encode({"args": plain_args, "kwargs": plain_kwargs})
        except Exception as error:
            culprit = _offending_argument(args, kwargs, serializer)
            raise _not_serialisable(culprit, name, serializer, error) from None
        types = self._types
        is_checked = types is not None and types.may_restore_arguments and not serializer.takes_objects
        if is_checked or (form is not None and form.by_value):
            self._check_call(name, args, kwargs, data, serializer)
        return data

    def decode_call(
        self, value: bytes | None, content_type: str | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """The positional and keyword arguments in a payload; :class:`BadRecord` when it is none."""
        serializer = JSON if content_type is None else reader_of(content_type, self.accepted, "bad-payload")
        args, kwargs = _read_call(serializer, value)
        types = self._types
        if types is not None and types.may_restore_arguments and not serializer.takes_objects:
            try:
                args, kwargs = types.restore_call(args, kwargs)
            except NotRestored as error:
                raise BadRecord("bad-payload", f"{error.label}: {error.reason}") from None
        return args, kwargs

    def encode_value(self, name: str, value: Any, content_type: str | None = None) -> bytes:
        """The payload of a result of task ``name`` whose call had this content type; :class:`NotSerialisable` when
        the format cannot carry it unchanged."""
        types = self._types
        is_checked = types is not None and types.may_restore_result
        kind = type(value)
        is_fast = content_type is None and not is_checked
        if is_fast and (value is None or kind is bool):
            return _WORDS[value]
        serializer = JSON if content_type is None else reader_of(content_type, self.accepted, "bad-result")
        form: PlainForm | None = None
        plain = value
        try:
            if is_fast and kind is int:
                return b"%d" % value
            if kind not in SCALARS and not serializer.takes_objects:
                form = PlainForm(serializer.has_bytes)
                plain = form.of(value)
            data = serializer.encode(plain)
        except Exception as error:
            raise _not_serialisable("the result", name, serializer, error) from None
        if types is not None and (is_checked or (form is not None and form.by_value)) and not serializer.takes_objects:
            try:
                types.check_result(value, serializer.decode(data))
            except Exception as error:  # also one of the decoder, as for a dataclass in a set
                raise _not_serialisable("the result", name, serializer, error) from None
        return data

    def decode_value(self, value: bytes | None, content_type: str | None = None) -> Any:
        """The value in a result's payload; :class:`BadRecord` when it is none."""
        serializer = JSON if content_type is None else reader_of(content_type, self.accepted, "bad-result")
        try:
            result = serializer.decode(value) if value else None
        except Exception as error:
            raise BadRecord("bad-result", f"the result is not {serializer.label}: {_reason(error)}") from None
        types = self._types
        if value and types is not None and types.may_restore_result and not serializer.takes_objects:
            try:
                return types.restore_result(result)
            except NotRestored as error:
                raise BadRecord("bad-result", f"the result is not what the task's annotation says: {error}") from None
        return result

    def _check_call(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        data: bytes,
        serializer: PayloadFormat,
    ) -> None:
        """Read what was written, and refuse what a worker would not get as it was."""
        try:
            read_args, read_kwargs = _read_call(serializer, data)
            if self._types is not None:
                self._types.check_call(args, kwargs, read_args, read_kwargs)
        except NotRestored as error:
            raise _not_serialisable(error.label, name, serializer, error) from None
        except BadRecord as error:  # as for a dataclass in a set
            raise _not_serialisable("an argument", name, serializer, error) from None


_PLAIN = PayloadCodec()
encode_call = _PLAIN.encode_call
decode_call = _PLAIN.decode_call
encode_value = _PLAIN.encode_value
decode_value = _PLAIN.decode_value
"""The same without a task's annotations, for dead records and others whose task is not at hand. They refuse pickle."""


def _has_objects(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether some argument is more than a scalar, or the keywords look like a marked value."""
    for value in args:
        if type(value) not in SCALARS:
            return True
    for value in kwargs.values():
        if type(value) not in SCALARS:
            return True
    return TYPE in kwargs


def _read_call(serializer: PayloadFormat, value: bytes | None) -> tuple[list[Any], dict[str, Any]]:
    try:
        body = serializer.decode(value or b"")
        args, kwargs = body["args"], body["kwargs"]
    except Exception as error:
        raise BadRecord(
            "bad-payload", f'the payload is not a {serializer.label} object with "args" and "kwargs": {error!r}'
        ) from None
    if type(args) is not list or type(kwargs) is not dict:
        raise BadRecord("bad-payload", 'the payload\'s "args" must be a list and its "kwargs" an object')
    for key in kwargs:
        if type(key) is not str:
            raise BadRecord("bad-payload", 'the names in the payload\'s "kwargs" must be texts')
    return args, kwargs


def _offending_argument(args: tuple[Any, ...], kwargs: dict[str, Any], serializer: PayloadFormat) -> str:
    named = [(f"argument {i}", value) for i, value in enumerate(args, 1)]
    named += [(f"argument {name!r}", value) for name, value in kwargs.items()]
    for label, value in named:
        try:
            serializer.encode(value if serializer.takes_objects else PlainForm(serializer.has_bytes).of(value))
        except Exception:
            return label
    return "an argument"


def _not_serialisable(what: str, name: str, serializer: PayloadFormat, error: Exception) -> NotSerialisable:
    is_result = what == "the result"
    verb = "stored" if is_result else "sent"
    text = f"{what} of task {name} cannot be {verb} as {serializer.label}: {_reason(error)}"
    if isinstance(error, NotRestored):  # which says what to do
        return NotSerialisable(text)
    if is_result:
        return NotSerialisable(f"{text}. Return {_POSSIBLE}, or declare the task with store_result=False")
    return NotSerialisable(f"{text}. Pass {_POSSIBLE}, for example an object's id")


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error) or type(error).__name__
