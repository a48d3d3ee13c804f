"""Bars as SVG, by hand: a plotting library for one picture would be our largest dependency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from bench.measure import Figure

ROW, LABELS, BARS, VALUES = 26, 360, 380, 120


def draw(path: Path, figures: Sequence[Figure]) -> None:
    """One bar a contender, the fastest first, with its spread as a line."""
    ordered = sorted(figures, key=lambda figure: -figure.median)
    longest = max(max(figure.values) for figure in ordered)
    height = ROW * len(ordered) + 16
    rows = [_row(figure, 8 + number * ROW, BARS / longest) for number, figure in enumerate(ordered)]
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LABELS + BARS + VALUES} {height}" '
        f'font-family="system-ui, sans-serif" font-size="13">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{"".join(rows)}</svg>\n'
    )


def _row(figure: Figure, top: int, scale: float) -> str:
    ours = figure.name.startswith("queuectl")
    limit = figure.name.startswith("the limit")
    colour = "#2563eb" if ours else "#94a3b8" if limit else "#cbd5e1"
    weight = ' font-weight="600"' if ours else ""
    end = LABELS + figure.median * scale
    low, high = (LABELS + value * scale for value in (min(figure.values), max(figure.values)))
    middle = top + ROW / 2 - 2
    return (
        f'<text x="{LABELS - 10}" y="{middle + 4}" text-anchor="end" fill="#0f172a"{weight}>'
        f"{escape(figure.name)}</text>\n"
        f'<rect x="{LABELS}" y="{top}" width="{end - LABELS:.1f}" height="{ROW - 6}" rx="2" fill="{colour}"/>\n'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="#0f172a" stroke-width="1.5"/>\n'
        f'<text x="{max(end, high) + 8:.1f}" y="{middle + 4}" fill="#334155">{figure.median:,.0f} jobs/s</text>\n'
    )
