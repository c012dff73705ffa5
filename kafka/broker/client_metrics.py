"""Client metrics subscriptions: the settings of resources of type 16, and which of them are for a client (KIP-714).

    metrics        beginnings of the names wanted, separated by commas; ``*``: all
    interval.ms    how often, 100 to 3,600,000
    match          what a client has to be, ``client_id=app-.*,client_software_name=...``: all of it; empty: any client

A client gets what all subscriptions together that match it want, at the shortest of their intervals. Texts and checks
are Apache Kafka 4.3.0's, measured. Who pushes what is in ``telemetry.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafka.broker.groups.regex import check_regex, fits, new_work
from kafka.broker.settings import INT, LIST, Setting, list_of
from kafka.errors import InvalidConfigurationError, InvalidRegularExpressionError, InvalidRequestError

KIND: Final = "client-metrics"
"""Under which the metadata keeps their settings."""

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
DEFAULT_INTERVAL_MS: Final = 300_000
LEAST_INTERVAL_MS: Final = 100
MOST_INTERVAL_MS: Final = 3_600_000
EVERYTHING: Final = "*"

CLIENT_METRICS_SETTINGS: Final[Mapping[str, Setting]] = {
    INTERVAL_MS: Setting(INTERVAL_MS, INT, str(DEFAULT_INTERVAL_MS)),
    MATCH: Setting(MATCH, LIST, ""),
    METRICS: Setting(METRICS, LIST, ""),
}
ATTRIBUTES: Final = frozenset(
    {
        "client_instance_id", "client_id", "client_software_name", "client_software_version",
        "client_source_address", "client_source_port",
    }
)  # fmt: skip
"""What ``match`` may look at."""


class Wanted(NamedTuple):
    """What a client is to push. ``metrics`` empty: nothing."""

    metrics: tuple[str, ...]
    interval_ms: int


def check_client_metrics(name: str, values: Mapping[str, str]) -> dict[str, str]:
    """The values as they are kept; InvalidRequestError (42) or InvalidConfigurationError (40), as Kafka has it."""
    if not name:
        raise InvalidRequestError("Subscription name can't be empty")
    for key in values:
        if key not in CLIENT_METRICS_SETTINGS:
            raise InvalidRequestError(f"Unknown client metrics configuration: {key}")
    found = dict(values)
    for key in (METRICS, MATCH):
        if values.get(key, "").strip():
            parts = [part.strip() for part in values[key].split(",")]
            if not all(parts):
                raise InvalidConfigurationError(f"Configuration '{key}' values must not be empty.")
            found[key] = ",".join(parts)
    if INTERVAL_MS in values:
        CLIENT_METRICS_SETTINGS[INTERVAL_MS].check(values[INTERVAL_MS])
        interval_ms = int(values[INTERVAL_MS])
        if not LEAST_INTERVAL_MS <= interval_ms <= MOST_INTERVAL_MS:
            raise InvalidRequestError(
                f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between {LEAST_INTERVAL_MS} and "
                f"{MOST_INTERVAL_MS} (1 hour)"
            )
        found[INTERVAL_MS] = str(interval_ms)
    patterns_of(values.get(MATCH, ""))
    return found


def patterns_of(match: str) -> dict[str, str]:
    """Attribute -> the regular expression that all of it has to match."""
    found = {}
    for part in list_of(match):
        pair = part.split("=")
        try:
            if len(pair) != 2 or pair[0].strip() not in ATTRIBUTES or not pair[1]:
                raise ValueError
            check_regex(pair[1].strip())
            found[pair[0].strip()] = pair[1].strip()
        except (ValueError, InvalidRegularExpressionError):
            raise InvalidConfigurationError(f"Illegal client matching pattern: {part}") from None
    return found


def wanted_of(subscriptions: Iterable[Mapping[str, str]], attributes: Mapping[str, str]) -> Wanted:
    """What a client with these attributes is to push."""
    metrics: set[str] = set()
    interval_ms = DEFAULT_INTERVAL_MS
    work = new_work()
    for values in subscriptions:
        patterns = patterns_of(values.get(MATCH, ""))
        if all(fits(pattern, attributes.get(name, ""), work) for name, pattern in patterns.items()):
            metrics.update(list_of(values.get(METRICS, "")))
            interval_ms = min(interval_ms, int(values.get(INTERVAL_MS, DEFAULT_INTERVAL_MS)))
    return Wanted((EVERYTHING,) if EVERYTHING in metrics else tuple(sorted(metrics)), interval_ms)
