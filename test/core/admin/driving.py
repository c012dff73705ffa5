"""Dialogues of the admin client by hand: what each request is answered, and what was asked."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from kafka.core.dialogue import All, Send
from kafka.core.retry import Backoff
from test.core.test_retry import drive

BACKOFF = Backoff(0.1, 0.1, random.Random(0), jitter=0)


def run(dialogue: Any, *answers: Any) -> tuple[Any, list[Any]]:
    """Its result, and its steps. ``answers``: of each :class:`Send`, those of an :class:`All` one by one; an exception
    is raised."""
    left = list(answers)

    def answer(step: Any) -> Any:
        if isinstance(step, All):
            return [answer(each) for each in step.steps]
        if not isinstance(step, Send):
            return None
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return drive(dialogue, answer)


def asked(dialogue: Any, *answers: Any) -> tuple[Any, list[Send]]:
    """Its result, and the requests among its steps, one by one."""
    result, steps = run(dialogue, *answers)
    return result, sends(steps)


def sends(steps: Iterable[Any]) -> list[Send]:
    """The requests among steps."""
    found: list[Send] = []
    for step in steps:
        if isinstance(step, Send):
            found.append(step)
        elif isinstance(step, All):
            found += sends(step.steps)
    return found
