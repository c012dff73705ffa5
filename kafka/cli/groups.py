"""``python -m kafka groups ACTION HOST:PORT [GROUP...]``: groups of all types, as tables.

    list       which there are
    describe   state and members
    offsets    where each partition stands, and how far behind its end that is
    reset      commit other offsets for a group without members (share groups: begin there)
    delete     groups without members

Each action is a function that returns rows, the first of which is the head; ``--json`` prints them as objects. Another
action is another function and its line in :data:`ACTIONS`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import OffsetSpec, OffsetTimestamp
from kafka.cli import CommandError, client_settings
from kafka.cli.tables import aligned
from kafka.config import narrow
from kafka.errors import NoError

Rows = Iterator[Sequence[Any]]

EXIT_FAILED: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=list(ACTIONS), help="what to do")
    parser.add_argument("address", metavar="HOST:PORT", help="a broker; the default port is 9092")
    parser.add_argument("groups", metavar="GROUP", nargs="*", help="names of groups; all actions except list need one")
    client_settings.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--state", action="append", default=[], help="list: only groups in this state")
    parser.add_argument("--type", action="append", default=[], help="list: only groups of this type, such as share")
    parser.add_argument(
        "--topic", action="append", default=[], metavar="T[:P]", help="reset: all partitions of a topic, or one"
    )
    parser.add_argument(
        "--to", metavar="WHERE", help="reset: earliest, latest, an offset, or @ and a time in ms since the epoch"
    )


def run(args: argparse.Namespace) -> int:
    if (args.action == "list") == bool(args.groups):
        raise CommandError("list takes no group names" if args.groups else f"{args.action} needs the name of a group")
    settings = client_settings.read(args)
    if not args.address.startswith("embedded:"):
        client_settings.check_broker(args.address, settings)
    rows: list[Sequence[Any]] = []
    missing: CommandError | None = None
    with KafkaAdminClient(bootstrap_servers=args.address, **narrow("admin", settings)) as admin:
        try:
            for row in ACTIONS[args.action](admin, args):
                rows.append(row)
        except CommandError as error:
            if len(rows) < 2:
                raise
            missing = error  # the others are shown
    if args.json:
        head, *body = rows
        print(json.dumps([dict(zip(head, row, strict=True)) for row in body], indent=2))
    else:
        print("\n".join(aligned(rows)))
    if missing is not None:
        raise missing
    return EXIT_FAILED if any(str(cell).endswith("Error") for row in rows for cell in row[-1:]) else 0


def _list(admin: KafkaAdminClient, args: argparse.Namespace) -> Rows:
    yield ("group", "type", "state")
    listed = admin.list_groups(states_filter=args.state, types_filter=args.type)
    for group in sorted(listed, key=lambda each: str(each["group_id"])):
        yield group["group_id"], group["group_type"] or group["protocol_type"], group["group_state"]


def _describe(admin: KafkaAdminClient, args: argparse.Namespace) -> Rows:
    yield ("group", "type", "state", "member", "client", "host", "partitions")
    described = admin.describe_groups(args.groups)
    missing = [group_id for group_id, group in described.items() if _is_missing(group)]
    for group_id, group in described.items():
        if group_id in missing:
            continue
        start = (group_id, group.get("group_type"), group["group_state"])
        for member in group["members"]:
            yield *start, member["member_id"], member["client_id"], member["client_host"], _reads(member)
        if not group["members"]:
            yield *start, None, None, None, None
    _fail_for(missing)


def _is_missing(group: dict[str, Any]) -> bool:
    """Brokers before 4.0 call a group that is not there dead, and mention no error."""
    return bool(group["group_state"] == "Dead" and not group["members"])


def _fail_for(missing: Sequence[str]) -> None:
    if missing:
        raise CommandError("; ".join(f"group {group} does not exist" for group in missing), EXIT_FAILED)


def _reads(member: dict[str, Any]) -> str:
    classic = member.get("member_assignment")
    if isinstance(classic, dict):
        assigned = [(each["topic"], each["partitions"]) for each in classic["assigned_partitions"]]
    elif classic is None:
        assigned = [(each["topic_name"], each["partitions"]) for each in member["assignment"]["topic_partitions"]]
    else:
        assigned = []
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in assigned)


def _offsets(admin: KafkaAdminClient, args: argparse.Namespace) -> Rows:
    """Rows of committed offsets and lag; of share groups, the start offset and the broker's own count of the lag.
    Values that the broker does not know are None. All groups that exist are yielded before CommandError names those
    that do not."""
    yield ("group", "topic", "partition", "offset", "end", "lag")
    described = admin.describe_groups(args.groups)
    share = _shares_of(described)
    others = [group for group in args.groups if group not in share]
    missing = []
    with KafkaConsumer(bootstrap_servers=args.address, **client_settings.read(args)) as consumer:
        if others:
            for group, offsets in admin.list_group_offsets(others).items():
                if not offsets and _is_missing(described[group]):
                    missing.append(group)
                ends = consumer.end_offsets(list(offsets)) if offsets else {}
                for partition in sorted(offsets):
                    offset, end = offsets[partition].offset, ends[partition]
                    yield group, *partition, offset, end, max(end - offset, 0)
        if share:
            for group, starts in admin.list_share_group_offsets(share).items():
                ends = consumer.end_offsets(list(starts)) if starts else {}
                for partition in sorted(starts):
                    at = starts[partition]
                    known = at.start_offset >= 0
                    lag = at.lag if known and at.lag >= 0 else None
                    yield group, *partition, at.start_offset if known else None, ends[partition], lag
    _fail_for(missing)


def _reset(admin: KafkaAdminClient, args: argparse.Namespace) -> Rows:
    if not args.topic or args.to is None:
        raise CommandError("reset needs --topic and --to")
    partitions = list(_partitions(admin, args.topic))
    spec = _where(args.to)
    share = _share_groups(admin, args.groups)
    yield ("group", "topic", "partition", "offset", "outcome")
    for group in args.groups:
        if group in share:
            offsets = _looked_up(args, partitions, spec)
            for partition, error in admin.alter_share_group_offsets(group, offsets).items():
                yield group, *partition, offsets[partition], _outcome(error)
        else:
            for partition, outcome in admin.reset_group_offsets(group, dict.fromkeys(partitions, spec)).items():
                yield group, *partition, outcome["offset"], _outcome(outcome["error"])


def _delete(admin: KafkaAdminClient, args: argparse.Namespace) -> Rows:
    yield ("group", "outcome")
    yield from admin.delete_groups(args.groups).items()


def _share_groups(admin: KafkaAdminClient, groups: Iterable[str]) -> list[str]:
    return _shares_of(admin.describe_groups(groups))


def _shares_of(described: dict[str, dict[str, Any]]) -> list[str]:
    return [group for group, state in described.items() if state.get("group_type") == "share" and not state["error"]]


def _partitions(admin: KafkaAdminClient, names: Iterable[str]) -> Iterator[TopicPartition]:
    for text in names:
        topic, colon, number = text.partition(":")
        if colon:
            if not number.isdecimal():
                raise CommandError(f"--topic {text}: expected a partition number after the colon")
            yield TopicPartition(topic, int(number))
            continue
        (described,) = admin.describe_topics([topic])
        if not described["partitions"]:
            raise CommandError(f"topic {topic} does not exist", EXIT_FAILED)
        for number in sorted(each["partition_index"] for each in described["partitions"]):
            yield TopicPartition(topic, number)


def _where(text: str) -> OffsetSpec | OffsetTimestamp | int:
    if text in ("earliest", "latest"):
        return OffsetSpec[text.upper()]
    number = text[1:] if text.startswith("@") else text
    if not number.isdecimal():
        raise CommandError(f"--to {text}: expected earliest, latest, an offset, or @ and a time in ms since the epoch")
    return OffsetTimestamp(number) if text.startswith("@") else int(number)


def _looked_up(
    args: argparse.Namespace, partitions: list[TopicPartition], spec: OffsetSpec | OffsetTimestamp | int
) -> dict[TopicPartition, int]:
    """As ``reset_group_offsets`` looks them up: share groups accept offsets alone."""
    with KafkaConsumer(bootstrap_servers=args.address, **client_settings.read(args)) as consumer:
        starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        if isinstance(spec, OffsetSpec):
            return starts if spec is OffsetSpec.EARLIEST else ends
        if not isinstance(spec, OffsetTimestamp):
            return {each: min(max(spec, starts[each]), ends[each]) for each in partitions}
        offsets = consumer.offsets_for_times(dict.fromkeys(partitions, int(spec)))
        return {each: ends[each] if at is None else at.offset for each, at in offsets.items()}


def _outcome(error: type[Exception]) -> str:
    return "OK" if error is NoError else error.__name__


ACTIONS: Final[dict[str, Callable[[KafkaAdminClient, argparse.Namespace], Rows]]] = {
    "list": _list,
    "describe": _describe,
    "offsets": _offsets,
    "reset": _reset,
    "delete": _delete,
}
