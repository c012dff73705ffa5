"""Certificates for tests, made by the ``openssl`` command when the first test asks for them; nothing is committed.

    ca.pem                          signs server and client
    server.pem  server.key          for localhost, broker and 127.0.0.1; server.both.pem: both in one file
    client.pem  client.key          the subject CN=client; client.locked.key: the same, encrypted with PASSWORD
    stranger.pem  stranger.key      signed by stranger-ca.pem, which nobody trusts
    expired.both.pem                like the server's, and over since yesterday
    other.both.pem                  like the server's, for the host name "elsewhere"
    crl.pem                         ca's revocations: none; crl.revoked.pem: the server's certificate
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess

from test.support.apache_kafka import refuse

PASSWORD = "opens the key"

_NAMES = "subjectAltName=DNS:localhost,DNS:broker,IP:127.0.0.1"


class Certificates:
    """What is in ``directory``; each attribute is a path as text."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.ca = self._path("ca.pem")
        self.server, self.server_key = self._path("server.pem"), self._path("server.key")
        self.server_both = self._path("server.both.pem")
        self.server_locked = self._path("server.locked.pem")
        self.client, self.client_key = self._path("client.pem"), self._path("client.key")
        self.client_locked_key = self._path("client.locked.key")
        self.stranger, self.stranger_key = self._path("stranger.pem"), self._path("stranger.key")
        self.stranger_ca = self._path("stranger-ca.pem")
        self.expired_both, self.other_both = self._path("expired.both.pem"), self._path("other.both.pem")
        self.crl, self.crl_revoked = self._path("crl.pem"), self._path("crl.revoked.pem")

    def _path(self, name: str) -> str:
        return str(self.directory / name)

    def make(self) -> Certificates:
        """Make them all. Skips the test, with the reason, where there is no ``openssl``."""
        if shutil.which("openssl") is None:
            refuse("needs certificates: there is no `openssl` on PATH")
        for name in ("ca", "stranger-ca"):
            self._run("req", "-x509", *self._new_key(name), "-days", "2", "-subj", f"/CN=test {name}",
                      "-out", self._path(f"{name}.pem"))  # fmt: skip
        for name, ca in (("server", "ca"), ("client", "ca"), ("stranger", "stranger-ca")):
            self._issue(name, ca)
        for name in ("server", "client"):
            self._run("pkcs8", "-topk8", "-v2", "aes-256-cbc", "-in", self._path(f"{name}.key"),
                      "-passout", f"pass:{PASSWORD}", "-out", self._path(f"{name}.locked.key"))  # fmt: skip
        self._issue("expired", "ca", days=-1)
        self._issue("other", "ca", names="subjectAltName=DNS:elsewhere")
        for name in ("expired", "other"):
            self._join(self._path(f"{name}.both.pem"), self._path(f"{name}.key"), self._path(f"{name}.pem"))
        self._revoke()
        self._join(self.server_both, self.server_key, self.server)
        self._join(self.server_locked, self._path("server.locked.key"), self.server)
        return self

    def _issue(self, name: str, ca: str, *, days: int = 1, names: str = _NAMES) -> None:
        request, extensions = self._path(f"{name}.csr"), self._path("extensions")
        pathlib.Path(extensions).write_text(names)
        self._run("req", *self._new_key(name), "-subj", f"/CN={name}", "-out", request)
        self._run("x509", "-req", "-in", request, "-CA", self._path(f"{ca}.pem"), "-CAkey", self._path(f"{ca}.key"),
                  "-CAcreateserial", "-days", str(days), "-extfile", extensions, "-out",
                  self._path(f"{name}.pem"))  # fmt: skip

    def _revoke(self) -> None:
        """The two revocation lists."""
        settings, index = self.directory / "ca.cnf", self.directory / "index.txt"
        settings.write_text(f"[ca]\ndefault_ca=own\n[own]\ndatabase={index}\ndefault_md=sha256\n")
        index.write_text("")
        signed = ("ca", "-config", str(settings), "-cert", self.ca, "-keyfile", self._path("ca.key"))
        self._run(*signed, "-gencrl", "-crldays", "2", "-out", self.crl)
        self._run(*signed, "-revoke", self.server)
        self._run(*signed, "-gencrl", "-crldays", "2", "-out", self.crl_revoked)

    def _new_key(self, name: str) -> tuple[str, ...]:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self._path(f"{name}.key"))

    @staticmethod
    def _join(target: str, *parts: str) -> None:
        pathlib.Path(target).write_text("".join(pathlib.Path(part).read_text() for part in parts))

    @staticmethod
    def _run(*arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"openssl {' '.join(arguments)}: {done.stderr}"
