"""Rows as aligned plain text."""

from __future__ import annotations

from kafka.cli.tables import aligned


def test_columns_stand_under_their_heads() -> None:
    assert list(aligned([("name", "n"), ("a", 10), ("longer one", None), ("", 3)])) == [
        "name        n",
        "a           10",
        "longer one  -",
        "-           3",
    ]


def test_the_last_column_is_wrapped_under_itself() -> None:
    text = "one two three four five six seven eight nine ten"
    assert list(aligned([("name", "meaning"), ("x", text)], width=36)) == [
        "name  meaning",
        "x     one two three four five six",
        "      seven eight nine ten",
    ]


def test_a_terminal_that_is_too_narrow_still_gets_words() -> None:
    assert list(aligned([("name", "meaning"), ("x" * 40, "one two")], width=20))[1] == f"{'x' * 40}  one two"
