"""Tests of ``kafka.tasks.pools.ipc.channel``: both sides in one process, so that every interleaving can be had."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterator

import pytest

from kafka.tasks import App
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.ipc import channel, large_payloads, shared_page
from kafka.tasks.pools.ipc.channel import ChildChannel, ChildFds, ParentChannel
from kafka.tasks.pools.ipc.frames import HEAD_BYTES, IN_FILE, encode
from kafka.tasks.pools.ipc.messages import DONE, PROGRESS, encode_done
from kafka.tasks.pools.ipc.processes import ChannelDamaged, ChildProgress, ChildUp, JobDone
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import AttemptFailed, ErrorInfo, JobSucceeded
from test.tasks.fakes import a_job
from test.tasks.pools.child_processes import few_descriptors

APP = App("shop")
FROM_FILE = large_payloads.FILE_FROM_BYTES
BIG = 10_000_000


@APP.task(name="work")
def work() -> None: ...


def a_call(payload: bytes = b'{"args":[],"kwargs":{}}') -> Job:
    envelope = a_job("work")
    envelope.value = payload
    return Job(JobLease(JobSource("q", "shop.q"), payload, [], 1), envelope, work)


class Pair:
    """Both ends of one channel."""

    def __init__(self, shared: bool = True, spare: large_payloads.SpareDescriptor | None = None) -> None:
        self.parent = ParentChannel(4, shared, spare)
        self.child = ChildChannel(4, self.parent.for_child, self.parent.page if shared else None)

    def news_socket(self) -> socket.socket:
        return self.child._messages

    def kill_child(self) -> None:
        """What the kernel does to a dead child's ends."""
        self.child.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    before = len(process_setup.open_fds())
    pair = Pair()
    yield pair
    pair.parent.close()
    with contextlib.suppress(OSError):
        pair.child.close()
    assert len(process_setup.open_fds()) == before, "a descriptor is left"


def test_jobs_arrive_in_their_order_and_outcomes_come_back(pair: Pair) -> None:
    for seq in (1, 2, 3):
        assert pair.parent.send(seq, a_call(b"payload %d" % seq))
    for seq in (1, 2, 3):
        packet = pair.child.receive()
        assert packet is not None
        assert (packet.seq, packet.envelope.value) == (seq, b"payload %d" % seq)
        pair.child.send_done(JobDone(seq, JobSucceeded(b"%d" % seq), 0.5, 1.5))
    assert pair.parent.read_messages() == [JobDone(seq, JobSucceeded(b"%d" % seq), 0.5, 1.5) for seq in (1, 2, 3)]
    assert pair.parent.read_messages() == []
    assert not pair.parent.messages_eof


def test_a_recalled_job_can_not_be_received_and_a_received_one_not_recalled(pair: Pair) -> None:
    for seq in range(1, 7):
        pair.parent.send(seq, a_call())
    first = pair.child.receive()
    assert first is not None
    assert first.seq == 1
    assert pair.parent.recall(2) == [2, 3]
    fourth = pair.child.receive()
    assert fourth is not None
    assert fourth.seq == 4
    assert pair.parent.recall() == [5, 6]
    assert pair.parent.recall() == []


def test_jobs_that_a_dead_child_has_not_received_come_back(pair: Pair) -> None:
    for seq in range(1, 4):
        pair.parent.send(seq, a_call(bytes(BIG) if seq == 2 else b"x"))
    pair.child.receive()
    pair.kill_child()
    assert pair.parent.send(4, a_call())  # its end is not known yet
    assert pair.parent.recall() == [2, 3, 4]
    assert pair.parent.read_messages() == []
    assert pair.parent.messages_eof


def test_a_full_channel_takes_no_more_until_something_was_received(pair: Pair) -> None:
    sent = 0
    while pair.parent.send(sent + 1, a_call()):
        sent += 1
    assert sent >= 50
    assert not pair.parent.send(sent + 1, a_call(bytes(BIG)))
    for _ in range(sent // 2):
        assert pair.child.receive() is not None
    assert pair.parent.send(sent + 1, a_call())
    assert pair.parent.recall()[-1] == sent + 1


@pytest.mark.parametrize("size", [0, 1, FROM_FILE - 1, FROM_FILE, FROM_FILE + 1, BIG])
def test_payloads_of_any_size_pass_both_ways(pair: Pair, size: int) -> None:
    payload = os.urandom(min(size, 1000)) * (size // 1000 + 1)
    payload = payload[:size]
    assert pair.parent.send(1, a_call(payload))
    packet = pair.child.receive()
    assert packet is not None
    assert packet.envelope.value == payload
    pair.child.send_done(JobDone(1, JobSucceeded(payload), 0.0, 0.0))
    (done,) = pair.parent.read_messages()
    assert isinstance(done, JobDone)
    assert done.outcome == JobSucceeded(payload)


def test_large_and_small_outcomes_keep_their_order(pair: Pair) -> None:
    sizes = [1, BIG // 10, 2, BIG // 5, BIG // 5, 3]
    for seq, size in enumerate(sizes):
        pair.child.send_done(JobDone(seq, JobSucceeded(bytes(size)), 0.0, 0.0))
    found: list[JobDone] = []
    while len(found) < len(sizes):
        found += [messages for messages in pair.parent.read_messages() if isinstance(messages, JobDone)]
    assert [(done.seq, done.outcome) for done in found] == [(s, JobSucceeded(bytes(n))) for s, n in enumerate(sizes)]


def test_an_error_with_a_long_traceback_passes(pair: Pair) -> None:
    failed = AttemptFailed(ErrorInfo("ValueError", "\u20ac" * 8000, "\ud800" * 32_000))
    pair.child.send_done(JobDone(1, failed, 0.0, 0.0))
    (done,) = pair.parent.read_messages()
    assert isinstance(done, JobDone)
    assert done.outcome == failed


def test_every_name_and_header_of_a_record_passes_however_long(pair: Pair) -> None:
    job = a_call(b"payload")
    job.envelope.name = "n" * 60_000
    job.envelope.extra = (("trace", b"\xff\x00" * 100_000),)
    assert pair.parent.send(1, job)
    packet = pair.child.receive()
    assert packet is not None
    assert packet.envelope == job.envelope


def test_the_end_of_the_jobs_comes_after_the_jobs(pair: Pair) -> None:
    pair.parent.send(1, a_call())
    pair.parent.retire()
    assert pair.child.receive() is not None
    assert pair.child.receive() is None
    assert pair.parent.recall() == []


def test_the_end_of_the_parent_is_the_end_of_the_jobs(pair: Pair) -> None:
    pair.parent.close()
    assert pair.child.receive() is None


def test_news_before_up_are_reported(pair: Pair) -> None:
    pair.child.send_progress("importing shop for 5 s")
    pair.child.send_up(ChildUp(1, 4, "v", "h"))
    assert pair.parent.read_messages() == [ChildProgress("importing shop for 5 s"), ChildUp(1, 4, "v", "h")]


@pytest.mark.parametrize("size", [100, 40_000, BIG])
def test_a_child_that_dies_at_any_byte_of_an_outcome_has_written_it_whole_or_not_at_all(size: int) -> None:
    """What is on the stream of a child that was killed is a beginning of what it would have written."""
    done = JobDone(7, JobSucceeded(bytes(size)), 0.0, 0.0)
    body = encode_done(*done)
    in_file = len(body) > large_payloads.FILE_FROM_BYTES
    stream = encode(4, DONE, b"", IN_FILE) if in_file else encode(4, DONE, body)
    before = len(process_setup.open_fds())
    step = max(1, len(stream) // 200)
    for length in sorted({*range(0, len(stream), step), *range(HEAD_BYTES), len(stream)}):
        pair = Pair()
        if length:
            rights = []
            if in_file:
                fd = large_payloads.write_file(body)
                rights = large_payloads.pass_fd(fd)
            pair.news_socket().sendmsg([stream[:length]], rights)
            if in_file:
                os.close(fd)
        pair.kill_child()
        found = []
        while not pair.parent.messages_eof:
            found += pair.parent.read_messages()
        assert found == ([done] if length == len(stream) else [])
        pair.parent.close()
    assert len(process_setup.open_fds()) == before


def test_what_user_code_writes_into_the_news_is_damage(pair: Pair) -> None:
    pair.child.send_done(JobDone(1, JobSucceeded(b"1"), 0.0, 0.0))
    assert len(pair.parent.read_messages()) == 1
    pair.news_socket().send(b"print() to the wrong descriptor")
    with pytest.raises(ChannelDamaged):
        pair.parent.read_messages()
    pair.child.send_done(JobDone(2, JobSucceeded(b"2"), 0.0, 0.0))
    with pytest.raises(ChannelDamaged):
        pair.parent.read_messages()


@pytest.mark.parametrize("garbage", [b"print() to the wrong descriptor", encode(4, 99, b""), encode(4, DONE, b"x")])
def test_what_came_before_the_damage_counts_and_the_damage_is_reported_next(pair: Pair, garbage: bytes) -> None:
    pair.child.send_done(JobDone(1, JobSucceeded(b"1"), 0.0, 0.0))
    pair.news_socket().send(garbage)
    assert pair.parent.read_messages() == [JobDone(1, JobSucceeded(b"1"), 0.0, 0.0)]
    assert select.select([pair.parent.messages_fd], [], [], 0)[0], "a loop would not come back"
    for _ in range(2):
        with pytest.raises(ChannelDamaged):
            pair.parent.read_messages()


def test_a_frame_without_its_file_is_damage(pair: Pair) -> None:
    pair.news_socket().send(encode(4, DONE, b"", IN_FILE))
    with pytest.raises(ChannelDamaged, match="file"):
        pair.parent.read_messages()


def test_a_file_that_says_it_is_larger_than_any_outcome_is_damage_and_not_read() -> None:
    pair = Pair(spare=large_payloads.SpareDescriptor(1_000_000))
    file = shared_page.anonymous_file("huge", 1 << 40)
    pair.news_socket().sendmsg([encode(4, DONE, b"", IN_FILE)], large_payloads.pass_fd(file))
    os.close(file)
    pair.child.page.count_file()
    with pytest.raises(ChannelDamaged, match="1099511627776 bytes, more than the limit of 1000000"):
        pair.parent.read_messages()
    pair.parent.close()
    pair.child.close()


def test_descriptors_without_frames_are_damage_before_they_use_up_those_of_the_parent(pair: Pair) -> None:
    before = len(process_setup.open_fds())
    with open(os.devnull, "rb") as file, pytest.raises(ChannelDamaged, match="without their frames"):
        for _ in range(100):
            pair.news_socket().sendmsg([b"K"], large_payloads.pass_fd(file.fileno()))
            pair.parent.read_messages()
    assert len(process_setup.open_fds()) <= before + channel.MOST_FILES + 1


def test_small_news_are_read_so_many_at_a_time(pair: Pair) -> None:
    pair.news_socket().setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    pair.news_socket().setblocking(False)
    frames = encode(4, PROGRESS, b"") * 4096
    with contextlib.suppress(BlockingIOError):
        for _ in range(64):
            pair.news_socket().sendall(frames)
    assert channel.MAX_MESSAGES <= len(pair.parent.read_messages()) < 2 * channel.MAX_MESSAGES


def test_a_child_that_floods_is_read_for_a_bounded_time(pair: Pair) -> None:
    pair.news_socket().setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    pair.news_socket().setblocking(False)
    frame = encode(4, DONE, encode_done(1, JobSucceeded(bytes(10_000)), 0.0, 0.0))
    written = 0
    while True:
        try:
            written += pair.news_socket().send(frame)
        except BlockingIOError:
            break
    reads = 0
    while (found := pair.parent.read_messages()) and reads < 1000:
        assert len(found) <= channel.MOST_READS * channel.READ_BYTES // 10_000 + 1
        reads += 1
    assert reads


def test_a_channel_for_another_program_has_its_page_in_a_file() -> None:
    before = len(process_setup.open_fds())
    pair = Pair(shared=False)
    pair.child.page.begin(3, 1.0)
    assert pair.parent.page.begun_seq == 3
    pair.child.page.close()
    pair.child.close()
    pair.parent.close()
    assert len(process_setup.open_fds()) == before


def test_no_descriptor_of_a_channel_is_inherited_by_programs() -> None:
    before = set(process_setup.open_fds())
    pair = Pair(shared=False)
    made = set(process_setup.open_fds()) - before
    assert made
    assert not [fd for fd in made if os.path.exists(f"/proc/self/fd/{fd}") and os.get_inheritable(fd)]
    pair.child.page.close()
    pair.child.close()
    pair.parent.close()


def test_a_channel_that_can_not_be_made_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OSError(24, "too many open files")

    before = len(process_setup.open_fds())
    monkeypatch.setattr(channel, "page_file", fail)
    with pytest.raises(OSError, match="too many"):
        ParentChannel(1)
    assert len(process_setup.open_fds()) == before


def test_where_packets_have_no_end_the_end_is_a_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PACKET_KIND", socket.SOCK_DGRAM)
    monkeypatch.setattr(channel, "HAS_END", False)
    pair = Pair()
    pair.parent.send(1, a_call())
    pair.parent.retire()
    packet = pair.child.receive()
    assert packet is not None
    assert packet.seq == 1
    assert pair.child.receive() is None
    pair.kill_child()
    pair.parent.close()


def test_a_default_timeout_of_sockets_is_none_of_the_channels() -> None:
    """Tasks call ``socket.setdefaulttimeout``: an idle child would end for it, and a recall wait for so long."""
    former = socket.getdefaulttimeout()
    socket.setdefaulttimeout(600.0)
    try:
        pair = Pair()
    finally:
        socket.setdefaulttimeout(former)
    assert pair.parent.recall() == []
    assert pair.child._jobs.gettimeout() is None
    assert pair.child._messages.gettimeout() is None
    assert os.get_blocking(pair.child._jobs.fileno())
    pair.child.close()
    pair.parent.close()


def test_a_large_job_is_not_received_without_a_descriptor_for_its_file(pair: Pair) -> None:
    assert pair.parent.send(1, a_call(b"x" * BIG))
    with few_descriptors(0), pytest.raises(OSError, match="no descriptor is left"):
        pair.child.receive()


def test_large_outcomes_are_received_without_a_descriptor_for_their_files() -> None:
    spare = large_payloads.SpareDescriptor()
    pair = Pair(spare=spare)
    for seq in range(1, 4):
        pair.child.send_done(JobDone(seq, JobSucceeded(bytes(BIG)), 0.0, 0.0))
    before = process_setup.open_fds()
    with few_descriptors(0):
        done = [messages for _ in range(3) for messages in pair.parent.read_messages() if isinstance(messages, JobDone)]
        assert [(each.seq, each.outcome) for each in done] == [(seq, JobSucceeded(bytes(BIG))) for seq in range(1, 4)]
        pair.child.send_done(JobDone(4, JobSucceeded(b"small"), 0.0, 0.0))
        assert len(pair.parent.read_messages()) == 1
    assert process_setup.open_fds() == before
    pair.child.close()
    pair.parent.close()
    spare.release()
    assert len(process_setup.open_fds()) == len(before) - 8


def test_after_damage_nothing_more_is_to_come(pair: Pair) -> None:
    pair.news_socket().sendall(b"this is no frame, and nobody takes it for one")
    with pytest.raises(ChannelDamaged):
        pair.parent.read_messages()
    assert pair.parent.messages_eof


def test_a_large_outcome_that_cannot_be_read_is_damage(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int, most: int | None) -> bytes:
        os.close(fd)
        raise OSError(12, "cannot allocate memory")

    pair.child.send_done(JobDone(1, JobSucceeded(b"x" * BIG), 0.5, 1.5))
    monkeypatch.setattr(large_payloads, "read_file", fail)
    with pytest.raises(ChannelDamaged, match="cannot allocate"):
        pair.parent.read_messages()


def test_packets_are_datagrams_where_the_system_has_the_name_of_better_ones_and_not_the_thing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(family: int, kind: int) -> tuple[socket.socket, socket.socket]:
        raise OSError(43, "protocol not supported")

    monkeypatch.setattr(socket, "socketpair", refuse)
    assert channel._packet_kind() == socket.SOCK_DGRAM


def test_ends_that_are_handed_over_can_be_closed_here() -> None:
    before = len(process_setup.open_fds())
    parent = ParentChannel(1)
    assert isinstance(parent.for_child, ChildFds)
    parent.for_child.close()
    parent.close()
    parent.close()
    assert len(process_setup.open_fds()) == before
