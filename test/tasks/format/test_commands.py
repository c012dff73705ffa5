"""Tests of ``kafka.tasks.format.commands``."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.errors import BadRecord
from kafka.tasks.format.commands import (
    ADD,
    CANCEL,
    DECLARE,
    END,
    LEASE,
    LOOK,
    PAUSE,
    PUT,
    REMOVE,
    RENEW,
    RESCHEDULE,
    RESUME,
    RUN,
    Command,
    StoredJob,
    decode_command,
    encode_command,
    encode_put,
    partition_of_entry,
    partition_of_job,
)
from kafka.tasks.format.envelope import Envelope, Header, decode
from test.strategies import text
from test.tasks.format.test_envelope import envelopes

ID = "018c0a1b2c3d0005" + "ab" * 8
REQUEST = "018c0a1b2c3d0007" + "cd" * 8
DUE = 1_700_000_000_000

JOB_COMMAND: list[Header] = [
    ("schedule-command", b"PUT"),
    ("schedule-queue", b"mail"),
    ("due", b"1700000000000"),
    ("id", ID.encode()),
    ("name", b"f"),
]

header_names = st.sampled_from(
    ["schedule-command", "schedule-queue", "schedule-key", "request", "due", "generation", "expires", "terminate"]
    + ["id", "name", "mine", ""]
)
header_values = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.sampled_from([b"PUT", b"LEASE", b"RENEW", b"END", b"CANCEL", b"RESCHEDULE", b"LOOK", b"DECLARE", b"ADD"]),
    st.sampled_from([b"mail", b"1700000000000", b"9" * 18, b"9" * 19, b"-1", b"+1", b"1_0", "\u0661".encode()]),
    st.sampled_from([ID.encode(), REQUEST.encode(), ID.upper().encode(), ID.encode()[:-1]]),
)
keys = st.one_of(st.none(), st.binary(max_size=40), st.just(ID.encode()), st.just(ID.encode()[:-1]))


# -- as they are written -----------------------------------------------------------------------------------------------


def test_a_put_is_the_job_with_its_queue_its_key_and_its_time() -> None:
    """The names are the format (docstring of the module): other languages write them."""
    envelope = Envelope(ID, "mail.send", b"{}", attempt=2, key=b"user-7", generation=3, extra=(("mine", b"1"),))
    assert encode_put(envelope, "mail", DUE) == (
        ID.encode(),
        b"{}",
        [
            ("schedule-command", b"PUT"),
            ("schedule-queue", b"mail"),
            ("due", b"1700000000000"),
            ("schedule-key", b"user-7"),
            ("id", ID.encode()),
            ("name", b"mail.send"),
            ("attempt", b"2"),
            ("generation", b"3"),
            ("mine", b"1"),
        ],
    )


def test_a_job_of_an_ordered_queue_says_so_and_no_other() -> None:
    for kind in (PUT, LEASE):
        record = encode_put(Envelope(ID, "f", b"x", key=b"k"), "mail", DUE, kind, is_ordered=True)
        assert record.headers[:5] == [
            ("schedule-command", kind.encode()),
            ("schedule-queue", b"mail"),
            ("due", b"1700000000000"),
            ("schedule-key", b"k"),
            ("schedule-ordered", b"1"),
        ]
        command = decode_command(*record)
        assert command is not None
        assert command.job == StoredJob("mail", b"k", b"x", [("id", ID.encode()), ("name", b"f")], True)


def test_each_command_has_its_headers() -> None:
    cancel = encode_command(CANCEL, ID, request=REQUEST, is_terminating=True)
    assert cancel == (
        ID.encode(),
        b"",
        [("schedule-command", b"CANCEL"), ("request", REQUEST.encode()), ("terminate", b"1")],
    )
    renew = encode_command(RENEW, ID, due_ms=DUE, generation=0)
    assert renew == (
        ID.encode(),
        b"",
        [("schedule-command", b"RENEW"), ("due", b"1700000000000"), ("generation", b"0")],
    )


# -- both ways ---------------------------------------------------------------------------------------------------------


@given(envelopes, st.sampled_from(["default", "mail.bulk", "a_b-c"]), st.integers(0, 10**18 - 1), st.booleans())
def test_a_job_survives_the_way_through_the_schedule(
    envelope: Envelope, queue: str, due_ms: int, is_ordered: bool
) -> None:
    """All but its ``due``, which is the command's."""
    record = encode_put(envelope, queue, due_ms, is_ordered=is_ordered)
    command = decode_command(record.key, record.value, record.headers, 5)
    assert command is not None and command.job is not None
    assert (command.kind, command.subject, command.due_ms, command.time_ms) == (PUT, envelope.id, due_ms, 5)
    assert (command.generation, command.expires_ms) == (envelope.generation, envelope.expires_ms)
    job = command.job
    envelope.due_ms = None
    assert (job.queue, job.is_ordered) == (queue, is_ordered)
    assert job.headers == envelope.headers()
    assert decode(job.value, job.headers, job.key) == envelope


@pytest.mark.parametrize("kind", [PUT, LEASE])
def test_a_lease_holds_a_job_as_a_put_does(kind: str) -> None:
    record = encode_put(Envelope(ID, "f", b"x", expires_ms=9, generation=4), "mail", DUE, kind)
    own: list[Header] = [("id", ID.encode()), ("name", b"f"), ("expires", b"9"), ("generation", b"4")]
    assert decode_command(*record, 7) == Command(
        kind, ID, 7, None, DUE, 4, 9, False, StoredJob("mail", None, b"x", own), b""
    )


@pytest.mark.parametrize("kind", [RENEW, END, CANCEL, RESCHEDULE, LOOK])
def test_commands_of_jobs_come_back(kind: str) -> None:
    request = REQUEST if kind in (CANCEL, RESCHEDULE, LOOK) else None
    generation = 3 if kind in (RENEW, END) else None
    due_ms = DUE if kind in (RENEW, RESCHEDULE) else None
    record = encode_command(
        kind, ID, request=request, due_ms=due_ms, generation=generation, is_terminating=kind == CANCEL
    )
    expected = Command(kind, ID, 7, request, due_ms or 0, generation or 0, None, kind == CANCEL)
    assert decode_command(*record, 7) == expected


@pytest.mark.parametrize("kind", [ADD, REMOVE, PAUSE, RESUME, RUN])
@given(name=text(), body=st.binary(max_size=20))
def test_commands_of_entries_come_back(kind: str, name: str, body: bytes) -> None:
    record = encode_command(kind, name, request=REQUEST, body=body)
    assert decode_command(*record, 7) == Command(kind, name, 7, REQUEST, body=body)


def test_declared_entries_need_no_request() -> None:
    record = encode_command(DECLARE, "", body=b"[]")
    assert decode_command(*record, 7) == Command(DECLARE, "", 7, body=b"[]")


@pytest.mark.parametrize("name", ["request", "terminate", "queue", "key", "command", "place", "state"])
@pytest.mark.parametrize("value", [None, b"", b"1", b"\xff", b"GET /index.html"])
def test_a_callers_header_passes_though_a_command_has_one_of_its_name(name: str, value: bytes | None) -> None:
    """A caller's own headers pass unchanged (``envelope``, docstring); none begins with ``schedule-``."""
    record = encode_put(Envelope(ID, "f", b"x", extra=((name, value), ("other", value))), "mail", DUE)
    command = decode_command(*record)
    assert command is not None and command.job is not None
    assert command.job.headers[2:] == [(name, value), ("other", value)]
    assert (command.request, command.is_terminating) == (None, False)


def test_headers_with_the_prefix_of_the_schedule_do_not_stay_with_a_job() -> None:
    """RESERVED: such a header of a job's record is not the job's, so it cannot name another queue here."""
    stray: list[Header] = [("id", ID.encode()), ("name", b"f"), ("schedule-queue", b"other"), ("schedule-x", b"1")]
    record = encode_put(decode(b"x", stray), "mail", DUE)
    command = decode_command(*record)
    assert command is not None and command.job is not None
    assert (command.job.queue, command.job.headers) == ("mail", [("id", ID.encode()), ("name", b"f")])


@pytest.mark.parametrize("key", [None, b"", b"user-7", b"\xff"])
def test_a_jobs_key_comes_back(key: bytes | None) -> None:
    command = decode_command(*encode_put(Envelope(ID, "f", b"x", key=key), "mail", DUE))
    assert command is not None and command.job is not None
    assert command.job.key == key


# -- damaged, and of later releases ------------------------------------------------------------------------------------


def test_a_command_of_a_later_release_is_unknown() -> None:
    assert decode_command(b"anything \xff", None, [("schedule-command", b"DEFER")]) is None


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (ID.encode(), b"", []),
        (ID.encode(), b"", [("schedule-command", None)]),
        (ID.encode(), b"", [("schedule-command", b"")]),
        (ID.encode(), b"", [("schedule-command", b"\xff")]),
        (None, b"x", JOB_COMMAND),
        (ID.upper().encode(), b"x", JOB_COMMAND),
        (ID.encode()[:-1], b"x", JOB_COMMAND),
        (b"\xff" * 32, b"x", JOB_COMMAND),
        (ID.encode(), None, JOB_COMMAND),
        (REQUEST.encode(), b"x", JOB_COMMAND),
        *((ID.encode(), b"x", JOB_COMMAND[:left] + JOB_COMMAND[left + 1 :]) for left in range(5)),
        *((ID.encode(), b"x", [*JOB_COMMAND, ("schedule-queue", queue)]) for queue in (None, b"", b"\xff", b"a/b")),
        (ID.encode(), b"x", [*JOB_COMMAND, ("schedule-queue", b"results")]),
        *((ID.encode(), b"x", [*JOB_COMMAND, ("due", due)]) for due in (None, b"", b"-1", b"1.5", b" 1", b"1" * 19)),
        *((ID.encode(), b"x", [*JOB_COMMAND, ("expires", text)]) for text in (b"", b"soon", b"-", b"1" * 19)),
        *((ID.encode(), b"x", [*JOB_COMMAND, ("generation", text)]) for text in (b"", b"-1", b"1" * 19)),
        (ID.encode(), b"", [("schedule-command", b"CANCEL")]),
        (ID.encode(), b"", [("schedule-command", b"LOOK"), ("request", b"mine")]),
        (ID.encode(), b"", [("schedule-command", b"LOOK"), ("request", b"\xff")]),
        (ID.encode(), b"", [("schedule-command", b"RESCHEDULE"), ("request", REQUEST.encode())]),
        (ID.encode(), b"", [("schedule-command", b"RENEW"), ("generation", b"1")]),
        (b"nightly", b"", [("schedule-command", b"PAUSE")]),
        (b"\xff", b"", [("schedule-command", b"PAUSE"), ("request", REQUEST.encode())]),
        (b"nightly", b"", [("schedule-command", b"CANCEL"), ("request", REQUEST.encode())]),
    ],
)
def test_a_damaged_command_is_a_bad_record(key: bytes | None, value: bytes | None, headers: list[Header]) -> None:
    with pytest.raises(BadRecord) as caught:
        decode_command(key, value, headers)
    assert caught.value.cause == "bad-command"


@given(keys, st.none() | st.binary(max_size=9), st.lists(st.tuples(header_names, header_values), max_size=7))
def test_whatever_a_record_holds_it_is_a_command_or_a_bad_record(
    key: bytes | None, value: bytes | None, headers: list[Header]
) -> None:
    with contextlib.suppress(BadRecord):
        decode_command(key, value, headers)


@given(st.integers(0, 4), st.integers(0, 40), st.booleans())
def test_a_cut_command_is_a_command_or_a_bad_record(which: int, length: int, is_odd: bool) -> None:
    headers = list(JOB_COMMAND)
    name, raw = headers[which]
    headers[which] = (name, (raw or b"")[:length] + (b"\xfe" if is_odd else b""))
    with contextlib.suppress(BadRecord):
        decode_command(ID.encode(), b"x", headers)


# -- partitions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job_id", "count", "partition"),
    [
        ("018c0a1b2c3d00050123000000000000", 8, 0),
        ("018c0a1b2c3d00050123000000000001", 8, 1),
        ("018c0a1b2c3d0005012300000000000f", 8, 7),
        ("018c0a1b2c3d0005012300000000000f", 10, 5),
        ("018c0a1b2c3d00050123ffffffffffff", 65_536, 65_535),
        ("018c0a1b2c3d0005ffff000000000064", 3, 1),  # 0x64 is 100
        ("ffffffffffffffffffff000000000007", 1, 0),
    ],
)
def test_the_partition_of_a_job_never_changes(job_id: str, count: int, partition: int) -> None:
    """Whoever asks for it must ask the partition that has it: the last 48 bits of the id, modulo the partitions."""
    assert partition_of_job(job_id, count) == partition


@pytest.mark.parametrize(
    ("name", "count", "partition"),
    # CRC-32 (ISO-HDLC): its check value, of "123456789", is 0xCBF43926; that of "a" is 0xE8B7BE43, of "" 0.
    [("123456789", 1 << 32, 0xCBF43926), ("123456789", 8, 6), ("a", 16, 3), ("a", 256, 0x43), ("", 8, 0)],
)
def test_the_partition_of_an_entry_never_changes(name: str, count: int, partition: int) -> None:
    assert partition_of_entry(name, count) == partition


@pytest.mark.parametrize("count", [2, 3, 8, 10, 50])
def test_jobs_and_entries_spread_evenly(count: int) -> None:
    """Jobs of one client: the first twelve random bits of its ids are the same."""
    ids = [f"018c0a1b2c3d0005abc{number * 0x9E3779B97F4A7 % (1 << 52):013x}" for number in range(20_000)]
    entries = [f"app.tasks.every_{number}" for number in range(20_000)]
    for of_each in ([partition_of_job(i, count) for i in ids], [partition_of_entry(e, count) for e in entries]):
        counts = Counter(of_each)
        assert len(counts) == count
        assert max(counts.values()) < 1.25 * 20_000 / count
        assert min(counts.values()) > 0.75 * 20_000 / count
