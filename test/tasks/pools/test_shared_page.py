"""Tests of ``kafka.tasks.pools.ipc.shared_page`` and ``spill``: memory and files that two processes share."""

from __future__ import annotations

import errno
import os

import pytest

from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.ipc import large_payloads, shared_page
from kafka.tasks.pools.ipc.processes import ChildPhase
from kafka.tasks.pools.ipc.shared_page import SharedPage, page_file


def test_what_a_child_writes_is_seen_through_another_mapping_of_the_file() -> None:
    fd = page_file()
    ours, theirs = SharedPage(fd), SharedPage(fd)
    os.close(fd)
    assert (ours.phase, ours.begun_seq, ours.done_seq) == (ChildPhase.BOOTING, 0, 0)
    theirs.idle(0, 1.5)
    assert (ours.phase, ours.heartbeat_at) == (ChildPhase.IDLE, 1.5)
    theirs.begin(2**64 - 1, 2.5)
    assert (ours.phase, ours.begun_seq, ours.started_at) == (ChildPhase.USER_CODE, 2**64 - 1, 2.5)
    theirs.write()
    assert (ours.phase, ours.done_seq) == (ChildPhase.WRITING, 0)
    theirs.idle(2**64 - 1, 3.5)
    assert (ours.phase, ours.done_seq, ours.heartbeat_at) == (ChildPhase.IDLE, 2**64 - 1, 3.5)
    ours.cancel(7)
    ours.soft(8)
    assert (theirs.cancelled_seq, theirs.soft_seq) == (7, 8)
    ours.close()
    theirs.close()


def test_a_forked_child_writes_to_the_page_of_its_parent() -> None:
    shared = SharedPage()
    pid = os.fork()
    if pid == 0:
        shared.begin(5, 1.0)
        os._exit(0)
    os.waitpid(pid, 0)
    assert shared.begun_seq == 5
    shared.close()


@pytest.mark.parametrize("size", [0, 1, 10_000_000])
@pytest.mark.parametrize("has_memfd", [True, False])
def test_a_spilled_payload_comes_back_and_leaves_no_file(
    size: int, has_memfd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    before = len(process_setup.open_fds())
    data = os.urandom(1) * size
    fd = large_payloads.write_file(data)
    assert not os.get_inheritable(fd)
    assert os.fstat(fd).st_nlink == 0
    assert large_payloads.read_file(fd) == data
    assert len(process_setup.open_fds()) == before


def test_a_system_without_memory_files_uses_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, flags: int) -> int:
        raise OSError(38, "not implemented")

    monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    fd = shared_page.anonymous_file("kafka-test", 10)
    assert os.fstat(fd).st_size == 10
    os.close(fd)


def test_a_file_for_which_no_descriptor_is_left_is_refused_with_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, flags: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    with pytest.raises(OSError, match="Too many open files"):
        shared_page.anonymous_file("kafka-test", 10)
