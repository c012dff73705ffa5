"""``python -m kafka COMMAND``, installed as ``kafka-taskloop COMMAND`` too: the table of commands, their exit codes and
how they report errors.

A command is a module with ``add_arguments(parser)`` and ``run(args) -> int`` (the exit code), imported only when it
runs. A new command is a module and a line in :data:`COMMANDS`.

Errors are one line on stderr, never a traceback. Exit codes: 0 done; 1 it failed, or no broker could be reached; 2
wrong use (arguments, settings, a missing module or file); 130 interrupted; 141 the output's reader has closed it. A
command raises :class:`CommandError` for any other code.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

import kafka._name_clash  # noqa: F401 (before another import fails for it)
from kafka._compiled import is_compiled
from kafka._version import __version__
from kafka.errors import IllegalArgumentError, KafkaConfigurationError, KafkaError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "broker": ("kafka.cli.broker", "run an embedded broker with a data directory"),
    "worker": ("kafka.cli.worker", "run the jobs of an application's queues"),
    "scheduler": ("kafka.cli.scheduler", "own an application's schedule: jobs with a delay, retries, periodic jobs"),
    "inspect": ("kafka.cli.inspect", "show the workers of an application, its queues, children and running jobs"),
    "dead": ("kafka.cli.dead", "list, show, replay and drop the dead jobs of a queue"),
    "demo": ("kafka.cli.demo", "an example run: jobs count the words of text files"),
    "check-version": ("kafka.cli.check_version", "show which release of Kafka runs at an address"),
    "schedule": ("kafka.cli.schedule", "list, pause, resume and run the periodic jobs of an application"),
    "queue": ("kafka.cli.queue", "pause, resume or migrate a queue, or remove its jobs"),
    "settings": ("kafka.cli.settings", "list the settings of apps, workers, clients and the broker"),
    "groups": ("kafka.cli.groups", "list, describe, reset and delete groups of all types"),
    "completion": ("kafka.cli.completion", "print a script that completes arguments in a shell"),
}
"""Name -> its module, and what it does."""

SCRIPT: Final = "kafka-taskloop"
"""The installed console script."""

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""Of what commands log on stderr."""

_MISSING: Final = "the following arguments are required: "
"""How argparse begins what it says of missing arguments."""


class CommandError(Exception):
    """A command cannot go on: one line of text, and the exit code."""

    def __init__(self, text: str, code: int = EXIT_USAGE) -> None:
        super().__init__(text)
        self.code = code


def program_name() -> str:
    """The name under which this program was started."""
    return SCRIPT if sys.argv and os.path.basename(sys.argv[0]) == SCRIPT else "python -m kafka"


class _Parser(argparse.ArgumentParser):
    """Prints an error in one line; one of missing arguments has the line to write, with the action that was given."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = args or ()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        if message.startswith(_MISSING):
            required = ", ".join(each for each in message.removeprefix(_MISSING).split(", ") if each not in self._lists)
            message = f"missing {required}: {self.prog} {' '.join(self._positionals_to_write())}"
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")

    @property
    def _lists(self) -> list[str]:
        """Positional arguments that may be left out."""
        return [str(each.metavar) for each in self._actions if not each.option_strings and each.nargs == "*"]

    def _positionals_to_write(self) -> Iterator[str]:
        for each in self._actions:
            if each.option_strings:
                if each.required:
                    yield f"{each.option_strings[-1]} {each.metavar or each.dest.upper()}"
            elif each.choices is not None and each.metavar is None:
                yield next((name for name in each.choices if name in self._given), "|".join(each.choices))
            else:
                name = str(each.metavar or each.dest)
                yield {"*": f"[{name}...]", "+": f"{name}..."}.get(str(each.nargs), name)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. ``argv``: the arguments behind the program's name (default: the process's)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    if name not in ("worker", "scheduler"):
        return _main(name, arguments)
    from kafka.cli.startup import startup_signals

    with startup_signals.of(name):
        return _main(name, arguments)


def _main(name: str | None, arguments: list[str]) -> int:
    parser, commands = _parser()
    try:
        if name in COMMANDS:
            module = import_module(COMMANDS[name][0])
            module.add_arguments(commands[name])
        args, unknown = parser.parse_known_args(arguments)
        if unknown and not _take_intermixed(args, unknown, commands[args.command]):
            commands[args.command].error(f"unrecognized arguments: {' '.join(unknown)}")
        code: int = module.run(args)
        if sys.stdout is not None:  # the parent process may have closed it
            sys.stdout.flush()
        return code
    except SystemExit as end:  # argparse has said why
        return end.code if isinstance(end.code, int) else EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Without this the interpreter reports an error at exit, because it cannot flush the buffer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except CommandError as error:
        return _fail(name, str(error), error.code)
    except (KafkaConfigurationError, IllegalArgumentError) as error:
        return _fail(name, _text(error), EXIT_USAGE)
    except (KafkaError, OSError) as error:
        return _fail(name, _text(error), EXIT_FAILED)


def _take_intermixed(args: argparse.Namespace, unknown: list[str], parser: argparse.ArgumentParser) -> bool:
    """Add arguments behind options to a list that ends the command's positional arguments: argparse takes that list
    for complete before the options. False when there is none, or an unknown option."""
    ends = [action for action in parser._actions if not action.option_strings][-1:]
    if any(each.startswith("-") for each in unknown) or not (ends and ends[0].nargs == "*"):
        return False
    setattr(args, ends[0].dest, [*getattr(args, ends[0].dest), *unknown])
    return True


def full_parser(program: str) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser of ``program`` with the arguments of all commands, whose modules are imported, and those by name."""
    parser, commands = _parser(program)
    for name, (module, _) in COMMANDS.items():
        import_module(module).add_arguments(commands[name])
    return parser, commands


def _parser(program: str | None = None) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    parser = _Parser(prog=program or program_name(), description="A Kafka client, an embedded broker and a task queue.")
    kind = "compiled" if is_compiled() else "plain Python"
    parser.add_argument("--version", action="version", version=f"{SCRIPT} {__version__} ({kind})")
    chosen = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    return parser, {name: chosen.add_parser(name, help=text, description=text) for name, (_, text) in COMMANDS.items()}


def _fail(name: str | None, text: str, code: int) -> int:
    print(f"{program_name()} {name}: {' '.join(text.split())}", file=sys.stderr)
    return code


def _text(error: Exception) -> str:
    """The error's own words, without the name of its class when there are any."""
    if isinstance(error, KafkaError) and error.args:
        return str(error.args[0])
    return str(error) or type(error).__name__
