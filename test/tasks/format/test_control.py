"""What operators say of queues, as records, both ways."""

from __future__ import annotations

import pytest

from kafka.tasks.format.control import QueueControl, decode_control, encode_control


def test_a_pause_is_read_as_it_was_written() -> None:
    control = QueueControl("mail.fast", True, 1_700_000_000_000, "db1")
    assert encode_control(control) == (
        b"mail.fast",
        b'{"paused":true,"time":1700000000000,"host":"db1"}',
    )
    assert decode_control(*encode_control(control)) == control


def test_a_queue_that_is_not_paused_leaves_nothing_behind() -> None:
    key, value = encode_control(QueueControl("mail", False, 5, "db1"))
    assert (key, value) == (b"mail", None), "compaction keeps the last value of a key"
    assert decode_control(key, value) == QueueControl("mail", False)


def test_fields_of_later_releases_are_ignored() -> None:
    assert decode_control(b"mail", b'{"rate":5}') == QueueControl("mail", False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b'{"paused":true}'),
        (b"", b'{"paused":true}'),
        (b"\xff", b'{"paused":true}'),
        (b"mail", b""),
        (b"mail", b"yes"),
        (b"mail", b"[1]"),
        (b"mail", b'{"paused":1}'),
        (b"mail", b'{"paused":true,"time":"now"}'),
        (b"mail", b'{"paused":true,"host":5}'),
        (b"mail", b"[" * 100_000),
    ],
)
def test_what_says_nothing_is_none(key: bytes | None, value: bytes | None) -> None:
    assert decode_control(key, value) is None
