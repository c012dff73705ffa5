"""The examples of the section "Jobs that run in order" of ``docs/tasks.rst`` run, with the keys that it says."""

from __future__ import annotations

import pathlib
import re
import textwrap
from typing import Any

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "tasks.rst"
BLOCK = re.compile(r"^\.\. code-block:: python\n\n((?:(?:    .*)?\n)+)", re.MULTILINE)


def test_the_examples_of_ordered_queues_run_in_their_order() -> None:
    text = PAGE.read_text(encoding="utf-8").split("Jobs that run in order\n---", 1)[1].split("\nRetries\n---", 1)[0]
    declarations, calls = (textwrap.dedent(block) for block in BLOCK.findall(text))
    names: dict[str, Any] = {"__name__": "bank"}
    exec(declarations, names)
    app = names["app"]
    assert app.ordered_queues == {"ledger"}
    with app.testing() as t:
        exec(calls, names)
        t.run_all()
        assert [(job.task, job.key, str(job.state)) for job in t.jobs] == [
            ("bank.book", b"account-7", "SUCCESS"),
            ("bank.book", b"account-7", "SUCCESS"),
            ("bank.close_account", b"account-7", "SUCCESS"),
            ("bank.book", b"account-8", "SUCCESS"),
            ("bank.close_account", b"account-8", "SUCCESS"),
        ]
