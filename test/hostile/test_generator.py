"""Each case of the hostile generator, small: it can be written, and the broker's loop goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kafka.broker.registry import load
from kafka.protocol.registry import NAMES
from kafka.wire.codec import encode
from test.hostile.costs import MOST_S
from test.hostile.generator import cases
from test.hostile.scene import Scene

SIZE: Final = 10_000
SLOWER: Final = 3
"""How much slower than the machine of the bound one may be that runs tests."""
PARTITIONS: Final = 50
"""Few: the first use of a partition makes its log, which takes 1 ms."""
MEASURED_ELSEWHERE: Final = re.compile("codec [1-4]")
"""What inflates takes seconds to make; ``python -m test.hostile.measure`` has it."""


def test_no_request_of_10_kb_keeps_the_loop_for_long(tmp_path: Path) -> None:
    load()
    scene = Scene(tmp_path / "data", PARTITIONS)
    late, seen = [], set()
    for number, case in enumerate(cases(scene.hand.broker.release.apis())):
        if MEASURED_ELSEWHERE.search(case.title):
            continue
        seen.add(case.api)
        scene.turn(scene.frame(case.make(100, f"w{number:x}"), case.version))  # compiles codecs
        turn = scene.turn(scene.frame(case.make(SIZE, f"z{number:x}"), case.version))
        if turn.cpu_s > MOST_S * SLOWER:
            late.append(f"{case.title}: {turn}")
    scene.hand.broker.close()
    assert late == []
    assert seen == {NAMES[row.key] for row in scene.hand.broker.release.apis()}, "an API has no case"


def test_a_case_is_about_as_large_as_requested(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "data", 1)
    size = SIZE // 10
    sizes = {
        case.title: len(encode(case.make(size, "z"), case.version))
        for case in cases(scene.hand.broker.release.apis())
        if case.has_size and not MEASURED_ELSEWHERE.search(case.title)
    }
    scene.hand.broker.close()
    assert {title: found for title, found in sizes.items() if found > 3 * size} == {}
    assert sum(found > size // 3 for found in sizes.values()) > 0.8 * len(sizes)
