"""The figures of a run, and the table that shows them: a row for each measure, a column for each subject."""

from __future__ import annotations

import os
import platform
from typing import NamedTuple


class Measure(NamedTuple):
    """One row. ``goal``: what the project wants of it, as text; empty for none."""

    title: str
    unit: str
    goal: str = ""


class Report:
    """Figures by measure and subject, in the order in which they came."""

    def __init__(self) -> None:
        self._figures: dict[Measure, dict[str, float]] = {}

    def add(self, measure: Measure, subject: str, figure: float) -> None:
        """Note one figure."""
        self._figures.setdefault(measure, {})[subject] = figure

    def lines(self) -> list[str]:
        """The table, under a line that says where it was made. Empty without figures."""
        if not self._figures:
            return []
        subjects = list(dict.fromkeys(subject for row in self._figures.values() for subject in row))
        table = [["", *subjects, "goal"]]
        for measure, row in self._figures.items():
            title = f"{measure.title}, {measure.unit}"
            table.append([title, *(_shown(row.get(subject)) for subject in subjects), measure.goal])
        widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
        load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
        where = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
        where += f", load averages at the end {load}"
        return ["", where, *("  ".join(_aligned(row, widths)).rstrip() for row in table)]


def percentile(values: list[float], percent: float) -> float:
    """The value that ``percent`` of all are at most, the nearest one that is there."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _shown(figure: float | None) -> str:
    if figure is None:
        return "-"
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.2f}"


def _aligned(row: list[str], widths: list[int]) -> list[str]:
    first, *rest = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
    return [row[0].ljust(len(first)), *rest]
