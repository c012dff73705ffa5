"""``python -m kafka completion SHELL``: a script that completes the arguments of ``kafka-taskloop`` in a shell.

It is made by shtab (the extra ``cli``) from the commands' own parsers. Load it in the shell's start-up file::

    eval "$(kafka-taskloop completion bash)"                          # ~/.bashrc
    kafka-taskloop completion zsh > DIRECTORY_OF_FPATH/_kafka-taskloop
    kafka-taskloop completion fish > ~/.config/fish/completions/kafka-taskloop.fish
"""

from __future__ import annotations

import argparse
from typing import Final

from kafka import cli

SHELLS: Final = ("bash", "zsh", "fish")

PROGRAM: Final = cli.SCRIPT
"""The console script; what follows ``python -m kafka`` is completed by no shell."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")


def run(args: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise cli.CommandError(
            "completion needs the package shtab: pip install 'kafka-taskloop[cli]'", cli.EXIT_USAGE
        ) from None
    parser, commands = cli.full_parser(PROGRAM)
    paths = {"FILE": shtab.FILE, "PATH": shtab.FILE, "DIR": shtab.DIRECTORY}
    for command in commands.values():
        for action in command._actions:
            if action.metavar in paths:
                vars(action)["complete"] = paths[action.metavar]  # an attribute that shtab looks for
    print(shtab.complete(parser, shell=args.shell))
    return 0
