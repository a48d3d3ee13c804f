"""Charts, drawn as SVG. Pure: numbers in, markup out.

Widths are per cent and heights are pixels, so that a chart fits any screen and its letters keep their size. Colours
are the style sheet's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from markupsafe import Markup

from queuectl.metrics.run_stats import CHARTS, MINUTE, Chart, Point
from queuectl.system import times

RUNS, WAITS = 150, 56  # the heights of the two plots
ROOM = 16  # above each, for what the topmost line means
FOOT = 20  # below both, for the times
NICE = (1, 2, 3, 4, 6, 8, 10)
NICE_SPANS = (
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    1_200_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 28_800_000, 57_600_000, 86_400_000, 259_200_000,
    604_800_000,
)  # fmt: skip


def draw(points: Sequence[Point], seconds: int, label: str) -> Markup:
    """How many runs ended and failed, and below it how long the slowest had waited."""
    most = nice(max((point.runs for point in points), default=0))
    longest = nice_span(max((point.wait_p95_ms or 0 for point in points), default=0))
    height = ROOM + RUNS + ROOM + WAITS + FOOT
    floor = ROOM + RUNS
    marks = {ROOM: f"{most:,} runs", ROOM + RUNS / 2: f"{most // 2:,}", floor: ""}
    marks |= {floor + ROOM: times.span(longest / 1000) + " waiting", floor + ROOM + WAITS: ""}
    parts = [
        *(Markup('<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>').format(y=_number(y)) for y in marks),
        *_waits(points, longest, floor + ROOM),
        *_bars(points, most, seconds),
        *(Markup('<text x="0" y="{}">{}</text>').format(_number(y - 4), text) for y, text in marks.items() if text),
        *_times(points, CHARTS[seconds], height - 5),
    ]
    return Markup('<svg class="chart" width="100%" height="{}" role="img" aria-label="{}">{}</svg>').format(
        height, label, Markup("").join(parts)
    )


def nice(number: int) -> int:
    """The top of an axis: a round number that is not less."""
    power = 1
    while True:
        for factor in NICE:
            if factor * power >= max(number, 4) and factor * power % 2 == 0:
                return factor * power
        power *= 10


def nice_span(milliseconds: float) -> int:
    return next((span for span in NICE_SPANS if span >= milliseconds), NICE_SPANS[-1])


def when(moment: int, seconds: int) -> str:
    """The beginning of a point, for people."""
    form = "%a %H:%M" if CHARTS[seconds].by_day else "%H:%M"
    return time.strftime(form, time.localtime(moment / 1000))


def _times(points: Sequence[Point], chart: Chart, y: float) -> list[Markup]:
    """A time where a new day or a new round hour begins; none so near the edge that it would be cut."""
    found = []
    before: object = None
    for index, point in enumerate(points):
        there = time.localtime(point.moment / 1000)
        part = (there.tm_yday, 0 if chart.by_day else (there.tm_hour * 60 + there.tm_min) * MINUTE // chart.mark)
        x = 100 * index / len(points)
        if before not in (None, part) and 3 < x < 97:
            text = time.strftime("%a" if chart.by_day else "%H:%M", there)
            found.append(Markup('<text x="{}%" y="{}" text-anchor="middle">{}</text>').format(_number(x), y, text))
        before = part
    return found


def _waits(points: Sequence[Point], longest: int, top: float) -> list[Markup]:
    width = 100 / len(points) if points else 0

    def place(index: int, wait: float) -> tuple[str, str]:
        return _number((index + 0.5) * width), _number(top + WAITS * (1 - min(wait / longest, 1)))

    found = []
    last: tuple[str, str] | None = None
    for index, point in enumerate(points):
        here = None if point.wait_p95_ms is None else place(index, point.wait_p95_ms)
        if here and last:
            line = Markup('<line class="wait" x1="{}%" y1="{}" x2="{}%" y2="{}"/>')
            found.append(line.format(*last, *here))
        elif here and (index + 1 == len(points) or points[index + 1].wait_p95_ms is None):
            found.append(Markup('<circle class="dot" cx="{}%" cy="{}" r="2"/>').format(*here))
        last = here
    return found


def _bars(points: Sequence[Point], most: int, seconds: int) -> list[Markup]:
    """What fails stands on what does not; the whole height says what it is about."""
    width = 100 / len(points) if points else 0
    found = []
    for index, point in enumerate(points):
        if not point.runs:
            continue
        inside = []
        y: float = ROOM + RUNS
        for kind, n in (("completed", point.completed), ("failed", point.failed)):
            if not n:
                continue
            high = max(1.5, RUNS * n / most)
            y -= high
            inside.append(
                Markup('<rect class="{}" x="{}%" width="{}%" y="{}" height="{}"/>').format(
                    kind, _number((index + 0.12) * width), _number(width * 0.76), _number(y), _number(high)
                )
            )
        about = f"{when(point.moment, seconds)}: {point.completed:,} completed, {point.failed:,} failed"
        if point.wait_p95_ms is not None:
            about += f", 95 % waited less than {times.span(point.wait_p95_ms / 1000)}"
        found.append(
            Markup('<g><title>{}</title><rect class="column" x="{}%" width="{}%" y="{}" height="{}"/>{}</g>').format(
                about, _number(index * width), _number(width), 0, ROOM + RUNS + ROOM + WAITS, Markup("").join(inside)
            )
        )
    return found


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
