"""Fair comparison on a noisy machine: the contenders take turns, and only figures of the same round are compared."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Contender:
    """Somebody who can do the work. `run` does it once and returns the figure, or raises Missing."""

    name: str
    run: Callable[[], float]


class Missing(Exception):
    """It is not installed here."""


@dataclass
class Figure:
    """What was measured of one contender, round by round."""

    name: str
    unit: str
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        low, high = min(self.values), max(self.values)
        return f"{number(self.median)} {self.unit} ({number(low)} to {number(high)})"

    def to(self, other: Figure) -> Ratio:
        return Ratio(self.name, other.name, [a / b for a, b in zip(self.values, other.values, strict=True)])


@dataclass(frozen=True)
class Ratio:
    """One contender against another, within each round."""

    of: str
    to: str
    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({min(self.values):.2f} to {max(self.values):.2f})"


@dataclass(frozen=True)
class Bar:
    """What was promised of a figure."""

    what: str
    value: float
    spread: str
    bar: float
    stretch: float | None
    at_least: bool = True

    @property
    def verdict(self) -> str:
        if self.stretch is not None and self._reaches(self.stretch):
            return "stretch"
        return "met" if self._reaches(self.bar) else "MISSED"

    def _reaches(self, goal: float) -> bool:
        return self.value >= goal if self.at_least else self.value <= goal

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        stretch = f", stretch {sign} {number(self.stretch)}" if self.stretch is not None else ""
        return f"{self.verdict:8} {self.what}: {self.spread} (bar {sign} {number(self.bar)}{stretch})"


def take_turns(contenders: Sequence[Contender], rounds: int, unit: str) -> dict[str, Figure]:
    """Let everyone do the work once a round. Who is missing is named once and left out."""
    figures = {contender.name: Figure(contender.name, unit) for contender in contenders}
    for turn in range(rounds):
        for contender in contenders:
            if contender.name not in figures:
                continue
            say(f"round {turn + 1} of {rounds}: {contender.name}")
            try:
                figures[contender.name].values.append(contender.run())
            except Missing as missing:
                print(f"  missing: {contender.name} ({missing})", flush=True)
                del figures[contender.name]
    say("")
    return figures


def table(figures: Sequence[Figure], reference: Figure) -> None:
    width = max(len(figure.name) for figure in figures)
    for figure in sorted(figures, key=lambda figure: -figure.median):
        print(f"  {figure.name:{width}}  {figure!s:44}  × {figure.to(reference)}", flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def say(text: str) -> None:
    """What is going on just now, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()
