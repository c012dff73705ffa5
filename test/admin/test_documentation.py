"""The examples of ``docs/admin.rst`` are run, from the top to the bottom of the page, over the embedded broker."""

from __future__ import annotations

import ast
import getpass
import pathlib
import re
import textwrap
from typing import Any

import pytest

from kafka import KafkaProducer
from kafka.errors import SecurityDisabledError
from kafka.testing import EmbeddedBroker

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "admin.rst"
BLOCK = re.compile(r"^\.\. code-block:: python\n\n((?:(?:   .*)?\n)+)", re.MULTILINE)

REFUSED: dict[str, type[Exception]] = {
    "rules, _ = admin.describe_acls(of_alice)": SecurityDisabledError,  # the embedded broker has no authorizer
}
"""Statements that one embedded broker refuses."""


def statements() -> list[str]:
    """Of all examples, in order."""
    blocks = [textwrap.dedent(text) for text in BLOCK.findall(PAGE.read_text(encoding="utf-8"))]
    assert len(blocks) > 10
    return [ast.unparse(statement) for block in blocks for statement in ast.parse(block).body]


@pytest.mark.timeout(120)
def test_all_examples_run_in_the_order_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getpass", lambda: "a password")
    names: dict[str, Any] = {}
    refused = []
    with EmbeddedBroker() as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="transfers") as producer:
            producer.init_transactions()
        try:
            for text in statements():
                try:
                    exec(text.replace("localhost:9092", broker.bootstrap), names)
                except Exception as error:
                    assert isinstance(error, REFUSED.get(text, ())), f"{text}: {error!r}"
                    refused.append(text)
        finally:
            names["admin"].close()
    assert refused == list(REFUSED)
