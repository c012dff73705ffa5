"""Each case of ``client_cases.py``, small: what peers give to clients and workers takes little time and memory."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from test.hostile.client_cases import answers, cases
from test.hostile.costs import MOST_MB, MOST_S, MOST_TIMES
from test.hostile.measure_clients import SAMPLE, cost, run_small

SLOWER: Final = 3
"""How much slower than the machine of the bound one may be that runs tests."""
MEASURED_ELSEWHERE: Final = re.compile("(gzip|snappy|lz4|zstd): (headers|one huge)")
"""What inflates to 30 MB takes seconds; ``python -m test.hostile.measure_clients`` has it."""


@pytest.fixture(autouse=True)
def clear() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_no_input_of_10_kb_takes_much_of_a_clients_loop_or_30_times_its_bytes_and_64_mb() -> None:
    late, large = [], []
    for case in cases():
        if MEASURED_ELSEWHERE.search(case.title):
            continue
        run_small(case)
        found = cost(case, SAMPLE)
        if found.is_on_loop and found.ms > MOST_S * SLOWER * 1e3:
            late.append(found)
        if found.mb > MOST_TIMES * found.input_bytes / 1e6 + MOST_MB:
            large.append(found)
    assert late == []
    assert large == []


def test_a_case_names_a_limit_that_is_there_and_every_answer_with_an_array_has_one() -> None:
    assert all(re.fullmatch(r"[A-Z_]+ = [\d,]+", case.bound) for case in cases())
    kinds = {case.name.partition(" ")[0] for _, case in answers()}
    assert {"MetadataResponse", "FetchResponse", "ShareFetchResponse", "ApiVersionsResponse"} <= kinds
