"""How answers tell an error: Kafka's code of it, and its text."""

from __future__ import annotations

from kafka.errors import KafkaError


def error_code(error: KafkaError | type[KafkaError] | None) -> int:
    """Kafka's code of an error or of a kind of errors: -1 (UNKNOWN_SERVER_ERROR) where it has none, 0 for no error."""
    if error is None:
        return 0
    code = getattr(error, "errno", None)
    return -1 if code is None else int(code)


def error_text(error: KafkaError) -> str:
    """What is told about an error beside its code."""
    return str(error.args[0]) if error.args else getattr(error, "message", "")
