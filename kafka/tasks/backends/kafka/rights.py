"""Rights that brokers with an authorizer ask of an app's principals, as lines that name what is missing and the command
that grants it. ``docs/job-delivery.rst`` has the rights of each role.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

_ERRORS: Final = {"group": GroupAuthorizationFailedError, "topic": TopicAuthorizationFailedError}
COMMAND: Final = "kafka-acls.sh --add --allow-principal User:WORKER"


def how_to_grant(app: str, resource: str, *operations: str, suffix: str = ".") -> str:
    """What to run so that a principal may do this with all of an app's whose names go on with ``suffix``. ``resource``:
    ``topic``, ``group`` or ``transactional-id``; operations are those of the table in the documentation."""
    flags = " ".join(f"--operation {operation}" for operation in operations)
    return f"permit it with {COMMAND} {flags} --{resource} {app}{suffix} --resource-pattern-type prefixed"


@contextmanager
def needing(app: str, resource: str, operation: str) -> Iterator[None]:
    """An error that says that a right is missing is one of :func:`named` in this block."""
    try:
        yield
    except _ERRORS[resource] as error:
        raise named(error, app, resource, operation) from error


def named(error: Exception, app: str, resource: str, operation: str, suffix: str = ".") -> Exception:
    """An error that says that a right to a ``resource``, ``group`` or ``topic``, is missing as one that names this one,
    and how to grant it; others, and one that names a right already, as they are."""
    if not isinstance(error, _ERRORS[resource]) or COMMAND in str(error):
        return error
    return type(error)(
        f"not authorized: {operation} on {resource}s {app}{suffix} is missing; "
        + how_to_grant(app, resource, operation, suffix=suffix)
    )
