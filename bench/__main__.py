"""How fast, against whom, in one run: prints tables and what was promised, and writes JSON."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import dashboard, drain, fleet, growth, idle, latency, locks, peers, plot, submit
from bench.measure import Bar, Figure

Part = Callable[[], tuple[dict[str, Figure], Iterator[Bar]]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        help="drain submit latency idle memory growth fleet dashboard locks; all of them if none is named",
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often everyone takes a turn")
    parser.add_argument("--no-peers", action="store_true", help="only ourselves, xargs and the limit of the machine")
    parser.add_argument("--sizes", help="the queues of the growth part, for example 1000,100000")
    parser.add_argument("--jobs", type=int, default=locks.JOBS, help="how many the locks part works on")
    parser.add_argument(
        "--only", action="append", default=[], help="the locks part: only operations with this in their name"
    )
    parser.add_argument("--setup", action="store_true", help="install the peers from Debian and PyPI, and stop")
    parser.add_argument("--json", type=Path, help="where the figures go; bench/results.json for all parts")
    parser.add_argument("--plot", type=Path, help="also draw the drain as SVG")
    options = parser.parse_args()
    if options.setup:
        peers.set_up()
        return 0
    sizes = tuple(int(size) for size in options.sizes.split(",")) if options.sizes else growth.SIZES
    parts: dict[str, Part] = {
        "drain": lambda: drain.measure(options.rounds, not options.no_peers),
        "submit": lambda: submit.measure(options.rounds),
        "latency": lambda: latency.measure(options.rounds),
        "idle": lambda: idle.measure(min(options.rounds, 3)),
        "memory": idle.memory_over,
        "growth": lambda: growth.measure(sizes),
        "dashboard": lambda: dashboard.measure(options.rounds),
        "fleet": lambda: fleet.measure(min(options.rounds, 3), not options.no_peers),
        "locks": lambda: locks.measure(min(options.rounds, 3), options.jobs, options.only),
    }
    unknown = [name for name in options.parts if name not in parts]
    if unknown:
        parser.error(f"there is no part {unknown[0]}; choose from {' '.join(parts)}")
    figures: dict[str, Figure] = {}
    drained: dict[str, Figure] = {}
    bars: list[Bar] = []
    for name in options.parts or parts:
        print(f"\n== {name}", flush=True)
        found, promised = parts[name]()
        figures |= found
        bars += promised
        if name == "drain":
            drained = found
    print("\n== what was promised")
    for bar in bars:
        print(" ", bar)
    if options.json or not options.parts:
        write(options.json or Path("bench/results.json"), figures, bars)
    if options.plot and drained:
        plot.draw(options.plot, list(drained.values()))
    return 0


def write(path: Path, figures: dict[str, Figure], bars: list[Bar]) -> None:
    data = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "figures": {name: {"unit": figure.unit, "values": figure.values} for name, figure in figures.items()},
        "bars": [
            {"what": bar.what, "value": bar.value, "bar": bar.bar, "stretch": bar.stretch, "verdict": bar.verdict}
            for bar in bars
        ],
    }
    path.write_text(json.dumps(data, indent=1) + "\n")
    print(f"\nThe figures are in {path}.")


if __name__ == "__main__":
    raise SystemExit(main())
