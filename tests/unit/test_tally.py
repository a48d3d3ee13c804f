"""Counting runs: sums, buckets, quantiles, the points of a chart."""

from __future__ import annotations

import pytest

from queuectl.metrics import run_stats
from queuectl.metrics.run_stats import BEYOND, BOUNDS, Histogram, Point, Tally

NOON = 1_800_000_000_000  # a full hour
MINUTE = 60_000


def counted(rows: list[dict[str, object]], **wanted: object) -> list[dict[str, object]]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_a_run_counts_ever_for_its_queue_and_in_each_span_for_all() -> None:
    told = Tally()
    told.add("mail", "completed", 30, 7)
    told.add("web", "completed", 60, 7)
    rows = told.rows(NOON + 61_500)
    runs = counted(rows, what="run")
    assert [(row["span"], row["moment"], row["queue"], row["n"], row["ms"]) for row in runs] == [
        (0, 0, "mail", 1, 30),
        (0, 0, "web", 1, 60),
        (60, NOON + MINUTE, "", 2, 90),
        (3600, NOON, "", 2, 90),
    ]
    assert {(row["bound"], row["state"]) for row in runs} == {(100, "completed")}
    assert {row["bound"] for row in counted(rows, what="wait")} == {25}


def test_no_row_comes_twice_and_they_come_in_order() -> None:
    told = Tally()
    for queue in "cab":
        for state in ("dead", "completed"):
            for ms in (1, 10**9, 700):
                told.add(queue, state, ms, ms)
    keys = [(row["span"], row["moment"], row["queue"], row["state"], row["what"], row["bound"])
            for row in told.rows(NOON)]  # fmt: skip
    assert keys == sorted(set(keys))


@pytest.mark.parametrize(
    ("ms", "bound"), [(0, 5), (5, 5), (6, 25), (1000, 1000), (1001, 5000), (6 * 3_600_000, 6 * 3_600_000)]
)
def test_a_bound_belongs_to_what_is_below_it(ms: int, bound: int) -> None:
    told = Tally()
    told.add("q", "completed", ms, 0)
    [row] = counted(told.rows(NOON), span=0, what="run")
    assert row["bound"] == bound


def test_the_longest_run_is_counted_too() -> None:
    told = Tally()
    told.add("q", "completed", 10**11, 10**11)
    assert {row["bound"] for row in told.rows(NOON)} == {BEYOND}


def test_a_tally_is_empty_until_something_is_counted_and_after_it_was_stored() -> None:
    told = Tally()
    assert not told
    told.add("q", "dead", 1, 1)
    assert told
    told.clear()
    assert not told
    assert told.rows(NOON) == []


def test_the_bounds_grow() -> None:
    assert list(BOUNDS) == sorted(set(BOUNDS))


# -- histograms ------------------------------------------------------------------------------------------


def test_of_nothing_there_is_no_quantile() -> None:
    nothing = Histogram.of([])
    assert (nothing.n, nothing.quantile(0.95)) == (0, None)
    assert list(nothing.buckets) == list(BOUNDS)


def test_a_quantile_lies_within_its_bucket() -> None:
    histogram = Histogram.of([(100, 90, 6000), (500, 10, 3000)])
    assert histogram.quantile(0.9) == 100
    assert histogram.quantile(0.95) == 300
    assert histogram.quantile(0.45) == 25 + 75 / 2
    assert histogram.quantile(1) == 500


def test_beyond_the_last_bound_a_quantile_is_that_bound() -> None:
    assert Histogram.of([(5, 1, 1), (BEYOND, 9, 10**12)]).quantile(0.95) == BOUNDS[-2]


def test_rows_with_a_bound_that_is_no_longer_ours_still_count() -> None:
    histogram = Histogram.of([(5, 1, 1), (7, 1, 7)])
    assert list(histogram.buckets)[:3] == [5, 7, 25]
    assert histogram.n == 2


# -- charts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "points"), [(3600, 60), (86_400, 144), (604_800, 168)])
@pytest.mark.parametrize("now", [NOON, NOON + 1, NOON + 3_599_999])
def test_a_chart_has_evenly_spaced_points_up_to_now(seconds: int, points: int, now: int) -> None:
    moments = [point.moment for point in run_stats.points(now, seconds, [])]
    step = seconds * 1000 // points
    assert moments == list(range(moments[0], moments[0] + seconds * 1000, step))
    assert len(moments) == points
    assert moments[-1] <= now < moments[-1] + step
    assert moments[0] == run_stats.beginning(now, seconds)
    assert all(moment % step == 0 for moment in moments)


def test_a_point_sums_up_what_ended_within_its_step() -> None:
    rows = [
        (NOON, "completed", "run", 100, 3, 180),
        (NOON, "completed", "wait", 25, 3, 30),
        (NOON + MINUTE, "failed", "run", 500, 1, 420),
        (NOON + MINUTE, "failed", "wait", 25, 1, 10),
        (NOON + 2 * MINUTE, "dead", "run", 5, 1, 0),
        (NOON + 2 * MINUTE, "dead", "wait", 25, 1, 10),
        (NOON + 2 * MINUTE, "cancelled", "run", 5, 1, 0),
        (NOON + 2 * MINUTE, "cancelled", "wait", 5, 1, 0),
    ]
    *before, point = run_stats.points(NOON + 9 * MINUTE, 86_400, rows)
    assert point == Point(NOON, 3, 2, 5 + 20 * (0.95 * 6 - 1) / 5)
    assert {tuple(other[1:]) for other in before} == {(0, 0, None)}
