"""``python -m kafka queue ACTION APP.QUEUE``: what operators do with a queue.

    purge      remove the jobs that have not ended
    pause      workers lease none of its jobs until it is resumed
    resume     they lease its jobs again
    migrate    have its jobs delivered by share groups, or by a consumer group, from now on

An action is a function that returns the exit code, and its line in :data:`ACTIONS`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from typing import Final

from kafka.cli import EXIT_OK, CommandError, client_settings
from kafka.cli.confirmation import confirm
from kafka.tasks import App

_HELD: Final = "Jobs that workers hold go on, and jobs that wait in the schedule stay there"
"""What a purge does not remove."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=list(ACTIONS), help="what to do")
    client_settings.add_queue_arguments(parser)
    parser.add_argument("--yes", action="store_true", help="purge: do not ask")
    parser.add_argument("--to", choices=list(_WAYS), help="migrate: how jobs are delivered from now on")


def run(args: argparse.Namespace) -> int:
    app, queue = client_settings.queue_of(args)
    try:
        return ACTIONS[args.action](app, queue, args)
    finally:
        app.close()


def _purge(app: App, queue: str, args: argparse.Namespace) -> int:
    with closing(app.backend().purge(queue)) as purge:
        count = f"{purge.jobs} {'job' if purge.jobs == 1 else 'jobs'}"
        if not purge.jobs:
            print(f"{args.queue} has no jobs that have not ended")
            return EXIT_OK
        if not args.yes:
            confirm(f"remove {count} of {args.queue} that have not ended? {_HELD}.")
        purge.delete()
        print(f"removed {count} of {args.queue}; {_HELD[0].lower()}{_HELD[1:]}")
    return EXIT_OK


_WAYS: Final = {"share": "share groups", "group": "a consumer group"}


_ORDERED: Final = "share groups keep no order: workers that declare the queue as ordered refuse it until --to group"
"""No broker knows which queues are ordered: apps declare it."""


def _migrate(app: App, queue: str, args: argparse.Namespace) -> int:
    if args.to is None:
        raise CommandError(f"missing --to {'|'.join(_WAYS)}")
    done = app.backend().migrate(queue, args.to)
    if done.found is None:
        print(f"nothing to do: no worker has read {args.queue} yet")
    elif done.found == args.to:
        print(f"nothing to do: the jobs of {args.queue} are delivered by {_WAYS[args.to]}")
    else:
        moved = f", {done.moved} of them written anew" if done.moved else ""
        waiting = f"{done.waiting} {'job' if done.waiting == 1 else 'jobs'}"
        print(f"the jobs of {args.queue} are delivered by {_WAYS[args.to]} from now on: {waiting} to do{moved}")
        if args.to == "share":
            print(_ORDERED)
    return EXIT_OK


def _pause(app: App, queue: str, args: argparse.Namespace) -> int:
    is_new = app.backend().set_paused(queue, True)
    effect = ": within a few seconds workers lease no more of its jobs" if is_new else " already"
    print(f"{args.queue} is paused{effect}")
    return EXIT_OK


def _resume(app: App, queue: str, args: argparse.Namespace) -> int:
    is_new = app.backend().set_paused(queue, False)
    print(f"{args.queue} is {'resumed' if is_new else 'not paused'}")
    return EXIT_OK


ACTIONS: Final[dict[str, Callable[[App, str, argparse.Namespace], int]]] = {
    "purge": _purge,
    "pause": _pause,
    "resume": _resume,
    "migrate": _migrate,
}
