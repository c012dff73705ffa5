"""The apps of this process by name: what a handle that was pickled elsewhere finds its app in."""

from __future__ import annotations

from typing import Protocol
from weakref import WeakValueDictionary

from kafka.tasks.backends.base import Backend
from kafka.tasks.errors import UnknownApp, did_you_mean
from kafka.tasks.format.payload import PayloadCodec


class NamedApp(Protocol):
    """An app, as far as its handles need it."""

    codec: PayloadCodec
    """How results of tasks that it does not know are read."""

    @property
    def name(self) -> str:
        """The app's name."""

    def backend(self) -> Backend:
        """Where its jobs are kept."""


_apps: WeakValueDictionary[str, NamedApp] = WeakValueDictionary()


def add_app(app: NamedApp) -> None:
    """Of several apps of one name the latest is found."""
    _apps[app.name] = app


def find_app(name: str) -> NamedApp:
    """The app of that name; :class:`UnknownApp` when no module of this process has made it."""
    app = _apps.get(name)
    if app is None:
        raise UnknownApp(
            f"this handle is of the app {name!r}, which this process does not have{did_you_mean(name, _apps)}; import "
            "the module that makes it first"
        )
    return app
