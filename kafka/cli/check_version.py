"""``python -m kafka check-version HOST:PORT``: the broker's release, its API versions beside ours, its features.

The result is built by :func:`report` (what ``--json`` prints) and printed as text by :func:`lines`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafka import KafkaClient
from kafka.cli import client_settings
from kafka.protocol.registry import NAMES, REGISTRY

if TYPE_CHECKING:
    from kafka.client import ApiRanges

API_VERSIONS_KEY = 18


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", metavar="HOST:PORT", help="a broker; the default port is 9092")
    client_settings.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--timeout", type=_seconds, default=10.0, metavar="S", help="time limit of each step in seconds (default 10)"
    )


def run(args: argparse.Namespace) -> int:
    with KafkaClient(bootstrap_servers=args.address, **client_settings.read(args)) as client:
        versions = report(args.address, client.api_ranges(timeout=args.timeout))
    if args.json:
        print(json.dumps(versions, indent=2))
    else:
        print("\n".join(lines(versions)))
    return 0


def report(address: str, api_ranges: ApiRanges) -> dict[str, Any]:
    """The API versions as plain values.

    ``inferred``: the release was derived from the broker's API versions; false below 0.10, where probes showed
    the release, and the versions listed are those of that release. ``our_min`` and ``our_max`` are null for an API that
    this client does not speak.
    """
    apis = []
    for key, (least, most) in sorted(api_ranges.ranges.items()):
        ours = REGISTRY.get(key)
        apis.append(
            {
                "key": key,
                "name": NAMES.get(key, f"Unknown{key}"),
                "min": least,
                "max": most,
                "our_min": None if ours is None else ours.min_version,
                "our_max": None if ours is None else ours.max_version,
            }
        )
    return {
        "address": address,
        "release": api_ranges.release,
        "inferred": API_VERSIONS_KEY in api_ranges.ranges,
        "apis": apis,
        "features": {name: list(levels) for name, levels in sorted(api_ranges.features.items())},
    }


def lines(versions: dict[str, Any]) -> Iterator[str]:
    """The report for people: the release first."""
    yield versions["release"]
    width = max((len(api["name"]) for api in versions["apis"]), default=0)
    for api in versions["apis"]:
        ours = "not supported here" if api["our_min"] is None else f"ours {_range(api['our_min'], api['our_max'])}"
        yield f"{api['key']:>3} {api['name']:<{width}}  {_range(api['min'], api['max']):<8} {ours}"
    for name, (least, most) in versions["features"].items():
        yield f"feature {name}  {_range(least, most)}"


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}-{most}"


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0 and at most 3600")
    return value
