"""``MODULE:APP`` on the command line -> the :class:`kafka.tasks.App`, or an error that says which half failed.

``APP`` may be dotted; left out, it is the only App in the module. The current directory comes first on the path, as for
``python -m``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

import kafka
from kafka.errors import KafkaError
from kafka.tasks.app import App
from kafka.tasks.errors import LoadError, did_you_mean

_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(kafka.__file__)), "")
"""Errors are reported where an invalid setting was written, not where this package checked it."""


def load(target: str, directory: str | None = None) -> App:
    """The app that ``target`` names; :class:`LoadError` else. Errors inside the module are reported with their file
    and line."""
    module_name, _, path = target.partition(":")
    is_file = module_name.endswith(".py")
    if not module_name or is_file or not all(part.isidentifier() for part in module_name.split(".")):
        raise LoadError(f"{target!r} is not MODULE:APP, such as shop.tasks:app{_file_hint(module_name)}")
    where = directory or os.getcwd()
    if where not in sys.path:
        sys.path.insert(0, where)
    module = _import(module_name, where)
    if not path:
        return _only_app(module_name, vars(module))
    loaded: object = module
    for part in path.split("."):
        if not hasattr(loaded, part):
            names = [name for name, value in vars(module).items() if isinstance(value, App)]
            raise LoadError(f"the module {module_name} has no {path!r}{did_you_mean(path, names)}")
        loaded = getattr(loaded, part)
    if not isinstance(loaded, App):
        raise LoadError(f"{target} is not a kafka.tasks.App but a {type(loaded).__name__}")
    return loaded


def _import(name: str, where: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise LoadError(f"there is no module {error.name!r} (looked in {where} and on Python's path)") from None
        raise LoadError(f"importing {name} failed: {error}{_source_position(error)}") from error
    except (Exception, SystemExit) as error:
        raise LoadError(f"importing {name} failed: {_error_text(error)}{_source_position(error)}") from error


def _error_text(error: BaseException) -> str:
    if isinstance(error, KafkaError) and error.args:  # its text begins with its class already
        return str(error.args[0])
    return f"{type(error).__name__}: {error}"


def _source_position(error: BaseException) -> str:
    frames = error.__traceback__
    place = ""
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if not file.startswith(("<frozen", _PACKAGE)) and "importlib" not in file:
            place = f" ({file}, line {frames.tb_lineno})"
        frames = frames.tb_next
    return place


def _only_app(module: str, names: dict[str, object]) -> App:
    apps = {name: value for name, value in names.items() if isinstance(value, App)}
    if apps and len(set(map(id, apps.values()))) == 1:  # it may have several names
        return next(iter(apps.values()))
    if not apps:
        name = module.split(".")[0]
        raise LoadError(f"the module {module} has no App; make one with app = kafka.tasks.App({name!r})")
    raise LoadError(f"the module {module} has several apps: use {' or '.join(f'{module}:{name}' for name in apps)}")


def _file_hint(name: str) -> str:
    if name.endswith(".py"):
        return f"; for the file {name} use {name[:-3].replace(os.sep, '.').lstrip('.')}:app"
    return ""
