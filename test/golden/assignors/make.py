"""Makes ``cases.json``: groups by seeded chance, with what Java's assignors assign to them. How: README.md."""

from __future__ import annotations

import json
import pathlib
import random
import subprocess
import sys
from typing import Any

from kafka.core.group.assignors.base import GroupMember
from kafka.core.group.assignors.strategy import ASSIGNORS
from kafka.core.group.machine import TopicSnapshot
from kafka.core.group.protocol import MemberAssignment, MemberSubscription
from kafka.structs import TopicPartition
from test.support import jars

HERE = pathlib.Path(__file__).parent
RACKS = ("east", "north", "west")
Case = dict[str, Any]


def topics_by_chance(rng: random.Random, has_racks: bool, most: int) -> dict[str, list[list[str]]]:
    """Name -> the racks of each partition's replicas. Now and then all topics have as many partitions."""
    same = rng.randint(1, most) if rng.random() < 0.5 else None
    return {
        f"topic{number}": [
            sorted(rng.sample(RACKS, rng.randint(1, 2))) if has_racks else []
            for _ in range(same or rng.randint(1, most))
        ]
        for number in range(rng.randint(1, 6))
    }


def members_by_chance(rng: random.Random, case: Case, count: int) -> list[dict[str, Any]]:
    topics = sorted(case["topics"])
    are_equal = rng.random() < 0.5
    found = []
    for number in range(count):
        own = topics if are_equal else rng.sample(topics, rng.randint(1, len(topics)))
        member: dict[str, Any] = {"id": f"consumer-{number}-{rng.getrandbits(40):x}", "topics": own}
        if case["has_racks"] and rng.random() < 0.8:
            member["rack"] = rng.choice(RACKS)
        if rng.random() < 0.2:
            member["instance"] = f"instance-{rng.getrandbits(16)}"
        found.append(member)
    rng.shuffle(found)
    return found


def to_member(member: dict[str, Any]) -> GroupMember:
    said = MemberSubscription(
        tuple(member["topics"]),
        bytes.fromhex(member["user_data"]) if "user_data" in member else None,
        tuple(TopicPartition(*pair) for pair in member.get("owned", ())),
        member.get("generation", -1),
        member.get("rack", ""),
    )
    return GroupMember(member["id"], member.get("instance"), said)


def pictures(case: Case) -> dict[str, TopicSnapshot]:
    return {
        topic: TopicSnapshot(len(racks), [frozenset(each) for each in racks]) for topic, racks in case["topics"].items()
    }


def remember(member: dict[str, Any], assignor: str, partitions: list[list[Any]], generation: int) -> None:
    """The member says that it had these: as its assignor does."""
    member["generation"] = generation
    if assignor == "cooperative-sticky":
        member["owned"] = partitions
    inner = ASSIGNORS[assignor]()
    inner.on_assignment(MemberAssignment(tuple(TopicPartition(*pair) for pair in partitions)), generation)
    data = inner.user_data(frozenset(member["topics"]))
    if data is not None:
        member["user_data"] = data.hex()


def second_generation(rng: random.Random, case: Case) -> Case:
    """The group a little later: who was there remembers, some are gone, some are new, topics have grown."""
    assignor = case["assignor"]
    given = ASSIGNORS[assignor]().assign(pictures(case), [to_member(member) for member in case["members"]])
    later: Case = json.loads(json.dumps(case))
    for member in later["members"]:
        partitions = [list(each) for each in sorted(given[member["id"]].partitions)]
        remember(member, assignor, partitions, 5)
    kept = [member for member in later["members"] if rng.random() < 0.8] or later["members"][:1]
    if rng.random() < 0.3 and kept[0].get("topics"):
        kept[0]["topics"] = rng.sample(kept[0]["topics"], rng.randint(1, len(kept[0]["topics"])))
    new = members_by_chance(rng, case, rng.randint(0, 3))
    if rng.random() < 0.6:  # all read the same again
        for member in new:
            member["topics"] = case["members"][0]["topics"]
    for number, member in enumerate(new):
        member["id"] = f"new-{number}-{rng.getrandbits(32):x}"
    later["members"] = kept + new
    if rng.random() < 0.3:
        topic = rng.choice(sorted(later["topics"]))
        later["topics"][topic] += [later["topics"][topic][0]] * rng.randint(1, 3)
    if rng.random() < 0.2 and len(later["topics"]) > 1:
        del later["topics"][rng.choice(sorted(later["topics"]))]
    if rng.random() < 0.3:  # one was away, and remembers what has been another's since
        stale = rng.choice(kept)
        remember(stale, assignor, [list(each) for each in sorted(rng.choice([*given.values()]).partitions)], 3)
    rng.shuffle(later["members"])
    return later


def make(count: int, seed: int) -> list[Case]:
    rng = random.Random(seed)
    found: list[Case] = []
    while len(found) < count:
        case: Case = {"assignor": rng.choice(sorted(ASSIGNORS)), "has_racks": rng.random() < 0.4}
        case["topics"] = topics_by_chance(rng, case["has_racks"], rng.choice((3, 9)))
        case["members"] = members_by_chance(rng, case, rng.choice((1, 2, 3, 5, 8, 14)))
        found.append(case)
        if "sticky" in case["assignor"]:
            found += [second_generation(rng, case) for _ in range(3)]
    for case in found[:40]:
        case["with_bytes"] = True
    return found


def ask_java(cases: list[Case], release: str = jars.RELEASES[-1]) -> list[Case]:
    """The same cases with Java's answers."""
    done = subprocess.run(
        ["java", "-cp", jars.broker_classpath(release), str(HERE / "Assign.java")],
        input=json.dumps(cases), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    return [case for case in json.loads(done.stdout) if "fault" not in case and is_right(case)]


def is_right(case: Case) -> bool:
    """Everybody is given only what he reads. Java's sticky ones give back to a former owner what he reads no more."""
    return all(
        partition.rpartition("-")[0] in member["topics"]
        for member in case["members"]
        for partition in case["assignment"][member["id"]]
    )


if __name__ == "__main__":
    answered = ask_java(make(int(sys.argv[1]), int(sys.argv[2])))
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in answered)
    (HERE / "cases.json").write_text(f"[\n{lines}\n]\n")
