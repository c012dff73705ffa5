"""Files that are exchanged while a client runs: the next connection has the new ones."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import ssl

import pytest

from kafka import KafkaClient
from kafka.core.routing import AnyNode
from kafka.errors import KafkaConfigurationError, SslAuthenticationError
from kafka.net.tls import FileContext, TlsFiles, TlsSettingError
from kafka.protocol.metadata import MetadataRequest
from test.security.support import SOON_S, Secured
from test.support.certificates import Certificates
from test.support.waiting import until

pytestmark = pytest.mark.timeout(120)

ASK = MetadataRequest(topics=[])


class Files:
    """Copies of a client's files in a directory of the test's own; put in place whole, as whoever renews them does."""

    def __init__(self, directory: pathlib.Path, made: Certificates) -> None:
        self.directory = directory
        self.made = made
        self.chain, self.key, self.ca = (str(directory / name) for name in ("chain.pem", "key.pem", "ca.pem"))
        shutil.copy(made.ca, self.ca)
        self.put("client")

    def put(self, name: str) -> None:
        self.replace(self.chain, getattr(self.made, name))
        self.replace(self.key, getattr(self.made, f"{name}_key"))

    def replace(self, path: str, source: str) -> None:
        shutil.copy(source, path + ".new")
        os.replace(path + ".new", path)


@pytest.fixture
def files(tmp_path: pathlib.Path, certificates: Certificates) -> Files:
    return Files(tmp_path, certificates)


def test_each_connection_has_the_files_of_its_time(secured: Secured, files: Files) -> None:
    settings = secured.settings("MUTUAL", ssl_certfile=files.chain, ssl_keyfile=files.key, ssl_cafile=files.ca)
    settings |= {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 1}
    with KafkaClient(**settings) as client:

        def ask() -> None:
            future = client.request(AnyNode(), ASK)
            assert client.loop.run_until(future, SOON_S)
            future.result()

        def outcome() -> str:
            try:
                ask()
            except SslAuthenticationError as error:
                return str(error)
            return "well"

        def comes_to(text: str) -> None:
            """What it is asked ends with, once no attempt is under way that has the former files."""
            until(lambda: re.search(text, outcome()), text, within_s=SOON_S)

        def reconnect() -> None:
            for connection in list(client.router.nodes):
                client.close(connection.node_id)
            client.loop.run_until(lambda: False, 0.05)

        ask()
        files.put("stranger")
        ask()  # the connection that stands goes on
        reconnect()
        with pytest.raises(SslAuthenticationError, match="refuses our certificate"):
            ask()
        files.put("client")
        comes_to("^well$")

        pathlib.Path(files.key).write_text("half a k")
        reconnect()
        with pytest.raises(SslAuthenticationError, match=r"ssl_keyfile .*key\.pem contains no private key"):
            ask()
        os.unlink(files.key)
        comes_to(r"key\.pem.* cannot be read: No such file")
        files.put("client")
        comes_to("^well$")

        files.replace(files.ca, files.made.stranger_ca)
        reconnect()
        with pytest.raises(SslAuthenticationError, match="is refused"):
            ask()


@pytest.mark.parametrize("name", ["ssl_cafile", "ssl_certfile", "ssl_crlfile"])
def test_files_that_cannot_be_read_are_refused_at_construction(tmp_path: pathlib.Path, name: str) -> None:
    for content in (None, "not PEM"):
        path = tmp_path / "file.pem"
        if content is not None:
            path.write_text(content)
        with pytest.raises(KafkaConfigurationError, match=r"file\.pem"):
            KafkaClient(security_protocol="SSL", **{name: str(path)})


def test_a_context_is_made_once_for_the_same_files(files: Files) -> None:
    context = FileContext(TlsFiles(ca=files.ca, chain=files.chain, key=files.key))
    first = context()
    assert isinstance(first, ssl.SSLContext) and context() is first
    files.put("stranger")
    assert context() is not first


def test_a_link_that_points_elsewhere_is_another_file(files: Files) -> None:
    """As secrets are mounted: a name that leads through a link to the version of the day."""
    link = files.directory / "current.pem"
    link.symlink_to(files.ca)
    context = FileContext(TlsFiles(ca=str(link)))
    first = context()
    link.unlink()
    link.symlink_to(files.made.stranger_ca)
    assert context() is not first


def test_broken_files_are_the_same_error_until_they_are_good(files: Files) -> None:
    context = FileContext(TlsFiles(ca=files.ca))
    context()
    pathlib.Path(files.ca).write_text("")
    for _ in range(3):
        with pytest.raises(TlsSettingError, match="no certificate"):
            context()
    files.replace(files.ca, files.made.ca)
    context()
