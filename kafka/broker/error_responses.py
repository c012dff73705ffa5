"""What many responses have: error codes and texts, and the authorized operations.

There is no authorizer, so the broker's answer to "authorized operations" (KIP-430) is always all operations of a kind
of resource: bit fields of Kafka's ``AclOperation`` numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka.errors import BrokerResponseError, KafkaError, KafkaStorageError, NotCoordinatorError
from kafka.wire.message import Response, Struct, fields_of

if TYPE_CHECKING:
    from kafka.broker.registry import RequestContext

S = TypeVar("S", bound=Struct)
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


def error_code(error: KafkaError | type[KafkaError] | None) -> int:
    """Kafka's code of an error or of a kind of errors: -1 (UNKNOWN_SERVER_ERROR) where it has none, 0 for no error."""
    if error is None:
        return 0
    code = getattr(error, "errno", None)
    return -1 if code is None else int(code)


def error_text(error: KafkaError) -> str:
    """The error's text for a response's error message."""
    return str(error.args[0]) if error.args else getattr(error, "message", "")


def without_frames(error: E) -> E:
    """A copy of the error, without its traceback and without the errors that it came from. What keeps an error to
    answer with it later keeps the frames of all these, and such a frame may hold the error: a cycle that keeps a
    request of 100 MB until the garbage collector comes (``test/hostile/test_reference_cycles.py``)."""
    cls = type(error)
    bare = cls.__new__(cls, *error.args)  # not copy(): what __init__ takes need not be the arguments
    vars(bare).update(vars(error))
    return bare


def coordinator_error(error: BrokerResponseError) -> BrokerResponseError:
    """The error as a coordinator says it: one that cannot write its state is no coordinator any more."""
    return NotCoordinatorError(error_text(error)) if isinstance(error, KafkaStorageError) else error


def failed(kind: type[S], error: KafkaError | int, **given: Any) -> S:
    """A response, or an item of one, that says an error and nothing else: what is not given is 0 or empty. ``error``:
    its code and its text, or the code alone."""
    constants, arrays, has_text = _empty_fields(kind)
    values = constants.copy()
    for name in arrays:
        values[name] = []
    if isinstance(error, int):
        values["error_code"] = error
    else:
        values["error_code"] = error_code(error)
        if has_text:
            values["error_message"] = error_text(error)
    values.update(given)
    return kind(**values)


def error_response(call: RequestContext[Any], error: BrokerResponseError) -> Response:
    """The response to a request that failed as a whole. Raises the error where the response has no place for it."""
    kind: type[Response] = type(call.request).response_type()
    code = kind.fields.get("error_code")
    if code is None or not code.present(call.version):
        raise error
    return failed(kind, error)


@functools.cache
def _empty_fields(kind: type[Struct]) -> tuple[dict[str, Any], list[str], bool]:
    """What the constructor requires: the fields that are 0 or an empty text, and the names of the arrays. Whether it
    has an error message."""
    required = [each for each in fields_of(kind) if each.spec.required]
    return (
        {each.name: each.implicit for each in required if not each.type.array},
        [each.name for each in required if each.type.array],
        "error_message" in kind.fields,
    )


def answer_each(items: Iterable[T], answer: Callable[[T], S], refuse: Callable[[T, BrokerResponseError], S]) -> list[S]:
    """An item of the response for each item of the request: what ``answer`` returns, or ``refuse`` makes of the error
    that it raises."""
    found = []
    for item in items:
        try:
            found.append(answer(item))
        except BrokerResponseError as error:
            found.append(refuse(item, error))
    return found


# -- authorized operations ---------------------------------------------------------------------------------------------


READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12

OPERATIONS_NOT_REQUESTED: Final = -(2**31)
"""In a response to a client that did not request the authorized operations."""


def operations(is_requested: bool, all_operations: int) -> int:
    """The authorized operations for a response: all, where they are requested."""
    return all_operations if is_requested else OPERATIONS_NOT_REQUESTED


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ALL_TOPIC_OPERATIONS: Final = _bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ALL_CLUSTER_OPERATIONS: Final = _bits(
    CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE
)
ALL_GROUP_OPERATIONS: Final = _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
