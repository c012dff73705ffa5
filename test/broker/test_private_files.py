"""A data directory is its user's alone, whoever has prepared it; and what is in it is a file, or is not opened."""

from __future__ import annotations

import ast
import contextlib
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kafka
from kafka.broker.broker import Broker
from kafka.broker.embedded import EmbeddedBrokerError
from kafka.broker.log import FilePool
from kafka.broker.log.files import replace_file
from kafka.broker.private_files import OWN_NAMES, make_private_directory, open_private, prepare_directory
from kafka.errors import KafkaStorageError
from kafka.testing import BrokerSecurity, EmbeddedBroker
from test.broker.driver import HandBroker, batch, produce_request
from test.broker.raw_client import RawClient
from test.broker.test_server import make_topic


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    former = os.umask(mask)
    try:
        yield
    finally:
        os.umask(former)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def open_to_others(path: Path) -> list[str]:
    """What others may do anything with, of a directory and all that is in it."""
    return [str(each) for each in (path, *path.rglob("*")) if mode_of(each) & 0o077]


def special_files(path: Path) -> Iterator[Path]:
    """A link to a file, a link to nothing, a pipe, a device, a directory."""
    (path / "file").write_bytes(b"precious")
    (path / "link").symlink_to(path / "file")
    (path / "dangling").symlink_to(path / "nothing")
    os.mkfifo(path / "pipe")
    (path / "directory").mkdir()
    yield from (path / "link", path / "dangling", path / "pipe", path / "directory", Path(os.devnull))


# -- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags", [os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_CREAT | os.O_APPEND]
)
def test_what_is_no_regular_file_is_refused_at_once_and_unchanged(tmp_path: Path, flags: int) -> None:
    for path in special_files(tmp_path):
        with pytest.raises(OSError) as refused:
            open_private(str(path), flags)
        assert str(refused.value.filename) == str(path)
    assert (tmp_path / "file").read_bytes() == b"precious"
    assert not (tmp_path / "nothing").exists()
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="remove it and try again"):
        open_private(str(tmp_path / "pipe"), os.O_RDWR)
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)


def test_a_new_file_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    with umask(0), open(tmp_path / "new", "ab", opener=open_private) as file:
        file.write(b"x")
    assert mode_of(tmp_path / "new") == 0o600


def test_new_directories_are_for_their_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    with umask(0):
        make_private_directory(str(tmp_path / "a" / "b" / "c"))
        make_private_directory(str(tmp_path / "a" / "b" / "c"))
    assert [mode_of(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        make_private_directory(str(tmp_path / "file"))
    with pytest.raises(NotADirectoryError):
        make_private_directory(str(tmp_path / "file" / "below"))


def test_a_directory_that_can_never_be_made_is_the_systems_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, mode: int) -> None:
        raise FileExistsError(path) if os.path.exists(path) else FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr("os.mkdir", refuse)  # as in /proc
    with pytest.raises(FileNotFoundError, match="No such file or directory"):
        make_private_directory(str(tmp_path / "a"))


def test_a_segment_that_is_a_link_is_neither_written_nor_cut_nor_replaced_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "0.log").symlink_to(victim)
    (tmp_path / "start-offset.tmp").symlink_to(victim)
    pool = FilePool()
    uses: tuple[Callable[[], None], ...] = (
        lambda: pool.write(str(tmp_path / "0.log"), 0, b"records"),
        lambda: pool.truncate(str(tmp_path / "0.log"), 0),
        lambda: replace_file(str(tmp_path / "start-offset"), b"0\n"),
    )
    for use in uses:
        with pytest.raises(KafkaStorageError, match="symbolic link"):
            use()
    assert victim.read_bytes() == b"precious"


def test_a_directory_may_lie_on_another_disk_behind_a_link(tmp_path: Path) -> None:
    """The topics' directory is synced like a file, and a link in its place is followed."""
    (tmp_path / "data").mkdir()
    (tmp_path / "disk").mkdir()
    (tmp_path / "data" / "topics").symlink_to(tmp_path / "disk")
    hand = HandBroker(tmp_path / "data", fsync="always")
    hand.create_topic("t")
    assert hand.produce("t", batch(b"x")).error_code == 0
    hand.restart()
    assert hand.produce("t", batch(b"x")).base_offset == 1
    hand.broker.close()
    pool = FilePool()
    pool.sync(str(tmp_path / "data" / "topics"))
    pool.close()


# -- the directory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o770, 0o775, 0o707, 0o702, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused_and_left_as_it_is(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "my data"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(PermissionError, match=re.escape(f"(mode {mode:04o})")) as refused:
        prepare_directory(str(path))
    assert f"run chmod go-w '{path}'" in str(refused.value.strerror)
    assert mode_of(path) == mode
    with pytest.raises(KafkaStorageError, match="chmod go-w"):
        Broker(str(path))
    assert list(path.iterdir()) == []
    path.chmod(mode & ~0o022)
    Broker(str(path)).close()
    assert mode_of(path) & 0o077 == 0


def test_a_directory_of_another_user_is_refused_even_to_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(PermissionError, match=f"belongs to user {owner} and this process runs as user {owner + 1}"):
        prepare_directory(str(tmp_path))
    with pytest.raises(KafkaStorageError, match="a directory of your own"):
        Broker(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_directory_of_ours_is_as_good_as_the_directory(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    prepare_directory(str(tmp_path / "link"))
    assert mode_of(tmp_path / "disk") == 0o700
    (tmp_path / "disk").chmod(0o777)
    with pytest.raises(PermissionError, match="chmod go-w"):
        prepare_directory(str(tmp_path / "link"))


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may give a file to another user")
def test_a_link_of_somebody_else_is_refused_although_it_leads_to_a_directory_of_ours(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "private")
    os.lchown(tmp_path / "link", 4711, 4711)
    with pytest.raises(PermissionError, match="a symbolic link of user 4711") as refused:
        prepare_directory(str(tmp_path / "link"))
    assert str(tmp_path / "private") in str(refused.value.strerror)
    assert mode_of(tmp_path / "private") == 0o755


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_in_the_place_of_the_directory_is_an_error_of_the_system(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((FileExistsError, NotADirectoryError)):
        prepare_directory(str(tmp_path / name))


def as_an_earlier_release_left_it(path: Path) -> None:
    """Files 0644, directories 0755."""
    for each in (*path.rglob("*"), path):
        each.chmod(0o755 if each.is_dir() else 0o644)


def filled(path: Path) -> Path:
    hand = HandBroker(path)
    hand.create_topic("t", 2)
    hand.produce("t", batch(b"secret"))
    hand.broker.close()
    (path / "broker.log").write_text("")
    (path / "users").write_text("alice:secret\n")
    return path


def test_a_directory_of_an_earlier_release_is_closed_with_all_its_files_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = filled(tmp_path / "data")
    as_an_earlier_release_left_it(path)
    assert len(open_to_others(path)) > 8
    with caplog.at_level(logging.INFO, "kafka.broker.private_files"):
        prepare_directory(str(path))
        assert open_to_others(path) == []
        prepare_directory(str(path))
    assert [record.getMessage() for record in caplog.records if record.name == "kafka.broker.private_files"] == [
        f"changed the mode of the data directory {path} from 0755: its owner alone has access"
    ]


def test_what_was_closed_halfway_is_closed_at_the_next_start(tmp_path: Path) -> None:
    """A crash in the midst of it: the topics' directory is the last of what is in it, the data directory of all."""
    path = filled(tmp_path / "data")
    as_an_earlier_release_left_it(path)
    path.chmod(0o700)
    next(path.glob("topics/*")).chmod(0o700)
    prepare_directory(str(path))
    assert open_to_others(path) == []


def test_only_the_brokers_files_are_closed_in_a_directory_that_holds_others(tmp_path: Path) -> None:
    """``--data-dir .`` in somebody's project, or at home."""
    path = filled(tmp_path / "data")
    (path / "script").write_text("#!/bin/sh\n")
    (path / "pages").mkdir()
    as_an_earlier_release_left_it(path)
    (path / "script").chmod(0o755)
    prepare_directory(str(path))
    assert set(open_to_others(path)) == {str(path), str(path / "script"), str(path / "pages")}
    assert [mode_of(path), mode_of(path / "script"), mode_of(path / "pages")] == [0o755] * 3


def test_closing_a_directory_follows_no_link(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", filled(tmp_path / "data")
    victim.mkdir()
    (victim / "file").write_text("")
    as_an_earlier_release_left_it(path)
    as_an_earlier_release_left_it(victim)
    (path / "topics" / "directory").symlink_to(victim)
    (path / "topics" / "file").symlink_to(victim / "file")
    (path / "broker.json").symlink_to(victim / "file")
    os.mkfifo(path / "topics" / "pipe")
    prepare_directory(str(path))
    assert mode_of(path / "topics") == 0o700
    assert [mode_of(victim), mode_of(victim / "file")] == [0o755, 0o644]


def test_a_mode_that_cannot_be_changed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file system without modes."""
    path = filled(tmp_path / "data")
    as_an_earlier_release_left_it(path)

    def refuse(fd: int, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    prepare_directory(str(path))
    assert caplog.text.count("other users may be able to read files") == 1


def test_where_there_are_no_owners_a_directory_is_made_and_nothing_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "geteuid")
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    prepare_directory(str(tmp_path / "data"))
    prepare_directory(str(tmp_path / "missing" / "data"))
    assert (tmp_path / "missing" / "data").is_dir()
    assert mode_of(tmp_path / "data") == 0o777


# -- whole brokers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_process", [False, True])
def test_everything_that_a_broker_makes_is_for_its_owner_alone_whatever_the_umask(
    tmp_path: Path, in_process: bool
) -> None:
    path = tmp_path / "data"
    security = BrokerSecurity("SASL_PLAINTEXT", users={"alice": "secret"})
    with umask(0), EmbeddedBroker(path, in_process=in_process, security=security) as broker:
        with RawClient(broker.port) as client:
            make_topic(client, "t")
            client.ask(produce_request("t", batch(b"secret")), 9)
        assert len(list(path.rglob("*"))) > 5
        assert open_to_others(path) == []
        broker.restart()
        assert open_to_others(path) == []
        assert {each.name for each in path.iterdir()} <= OWN_NAMES
    assert open_to_others(path) == []


@pytest.mark.parametrize("in_process", [False, True])
def test_a_tests_broker_refuses_a_directory_that_others_may_write_to(tmp_path: Path, in_process: bool) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(KafkaStorageError if in_process else EmbeddedBrokerError, match="chmod go-w"):
        EmbeddedBroker(tmp_path, in_process=in_process).start()
    assert list(tmp_path.iterdir()) == []


def test_every_file_of_the_data_directory_is_opened_by_one_function() -> None:
    """Else one of them may be a link, or a pipe that the broker's loop waits for."""
    package = Path(str(kafka.__file__)).parent / "broker"
    others: list[str] = []
    for path in (*sorted(package.glob("log/*.py")), package / "embedded.py", package / "state_file.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("open", "os.open"):
                continue
            if "opener=open_private" not in map(ast.unparse, node.keywords):
                others.append(f"{path.name}: {ast.unparse(node)}")
    assert others == [
        "files.py: os.open(path, os.O_RDONLY | flags)",  # sync_directory
        "flushing.py: os.open(path, os.O_RDONLY | getattr(os, 'O_CLOEXEC', 0))",
        "segment.py: open(_BOOT_ID, encoding='ascii')",
    ]
