"""Every example of ``docs/security.rst`` is run, with the addresses and files of the test in the place of its own."""

from __future__ import annotations

import pathlib
import re
import textwrap

import pytest

from test.security.support import ALICE_PASSWORD, SCRAM_PASSWORD, Secured, read, token_for
from test.support.certificates import PASSWORD

pytestmark = pytest.mark.timeout(120)

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "security.rst"
BLOCK = re.compile(r"^\.\. code-block:: python\n(?:   :caption: (\S+)\n)?\n((?:(?:   .*)?\n)+)", re.MULTILINE)

EXAMPLES = {name: textwrap.dedent(text) for name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8"))}
LISTENERS = {
    "SSL": "SSL", "MUTUAL": "MUTUAL", "CONTEXT": "SSL", "SCRAM": "BOTH", "PLAIN": "BOTH", "OAUTHBEARER": "TOKEN",
}  # fmt: skip


def test_every_example_has_a_name_and_a_listener() -> None:
    assert EXAMPLES.keys() == LISTENERS.keys()


@pytest.mark.parametrize("name", LISTENERS)
def test_the_example_writes_its_record(secured: Secured, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = LISTENERS[name]
    if listener not in secured.places.ports:
        pytest.skip(f"the embedded broker has no listener for {name}")
    monkeypatch.setenv("KEY_PASSWORD", PASSWORD)
    monkeypatch.setenv("KAFKA_PASSWORD", SCRAM_PASSWORD if name == "SCRAM" else ALICE_PASSWORD)
    topic = secured.new_topic()
    text = EXAMPLES[name]
    for written, meant in (
        ("kafka.example.com:9093", f"localhost:{secured.places.ports[listener]}"),
        ("/etc/kafka/", f"{secured.certificates.directory}/"),
        ('"events"', repr(topic)),
        ('b"value"', 'b"1"'),
    ):
        assert written in text or written == "/etc/kafka/"
        text = text.replace(written, meant)
    exec(compile(text, f"{PAGE.name}: {name}", "exec"), {"fetch_token": token_for})
    assert read(secured.plain(), topic, 1) == [1]
